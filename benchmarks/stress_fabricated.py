"""Noised and fabricated classifiers of stress with their membership-inference scores: 004 Table 7.

The document's recordings are not public; these are those of CogLoad1. As in 004 §6.2.3, half of a
person's rows, drawn at random, train her own classifier and the other half test it, so that test
rows are training rows shifted by one beat; noise protects an entry. Everything is
`permea.documents`, in the document's order and with its stopping rule; all settings of the table,
with both columns of scores. Read the order, not the level.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from common import QUICK, options_of, size, table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "stress"))

import steps
from people import SETTINGS, people_of, recordings_of

from permea import audit, documents

# 004 Table 7: accuracy by Def. 15 and Def. 12, mis by Def. 15 and Def. 12
STATED = {
    (8, 5): (0.8485, 0.9074, 0.02773, 0.04903),
    (16, 5): (0.8817, 0.9484, 0.06739, 0.15790),
    (24, 5): (0.8925, 0.9557, 0.07625, 0.21036),
    (32, 5): (0.8931, 0.9568, 0.07603, 0.22235),
    (32, 1): (0.8608, 0.9058, 0.00973, 0.02259),
    (32, 3): (0.8777, 0.9457, 0.04045, 0.12006),
    (32, 7): (0.8960, 0.9599, 0.11834, 0.33322),
    (32, 10): (0.8938, 0.9566, 0.17230, 0.48887),
    (32, 15): (0.8795, 0.9451, 0.24173, 0.68009),
}
TABLE_7 = list(STATED)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--people", type=int, default=size(5, 2))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    name = size("cogload1", "synthetic")
    if QUICK:
        print("Quick run on invented people: its figures mean nothing.\n")
    recordings = recordings_of(name, n_people=3, seed=options.seed)
    people = people_of(recordings, SETTINGS[name], how="random", most=360)[: options.people]
    rows = []
    for epsilon, n in size(TABLE_7, TABLE_7[:1]):
        found = {True: [], False: []}
        for who in people:
            first, test = who.split("random", options.seed)
            for rule in found:
                clf = documents.kahm_classifier_004(
                    n, privacy=steps.promise(epsilon), fabricate="original" if rule else False,
                    random_state=options.seed,
                ).fit(who.X[first], who.y[first])  # fmt: skip
                mis = audit.membership_inference_score(clf, who.X[first], who.X[test])
                found[rule].append((clf.score(who.X[test], who.y[test]), float(mis)))
        made, noised = (np.mean(found[rule], axis=0) for rule in (True, False))
        stated = STATED[epsilon, n]
        rows.append([f"({epsilon}, {n})", f"{made[0]:.4f}", f"{stated[0]:.4f}", f"{made[1]:.4f}",
                     f"{stated[2]:.4f}", f"{noised[0]:.4f}", f"{stated[1]:.4f}",
                     f"{noised[1]:.4f}", f"{stated[3]:.4f}"])  # fmt: skip
        print(*rows[-1], file=sys.stderr, flush=True)
    print(f"Mean over {len(people)} people of {name}.\n")
    head = [f"{kind}: {what}" for kind in ("fabricated", "noised")
            for what in ("accuracy", "004", "mis", "004 mis")]  # fmt: skip
    table(["(ε per entry, n)", *head], rows)


if __name__ == "__main__":
    main()

"""Stress from heart beats: private classifiers beside 004 Table 7, federated, attacked, by person.

The rows are those of the benchmark ``stress``. As in 004 §6.2.3, half of a person's rows, drawn at
random, train her own classifier and the other half test it; test rows are then training rows
shifted by one beat. In (a) and (b) noise on rows protects an entry, not a person. In (c) one
model of everybody's rows hides each person. Intervals are 95 %, over people.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from common import QUICK, options_of, size, table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "stress"))

import steps
from people import SETTINGS, apart, crowd, people_of, recordings_of

from permea import KAHMClassifier, audit

TABLE_7 = [(8, 5), (32, 1), (32, 5), (32, 10)]
STATED = {(8, 5): (0.8485, 0.9074), (32, 5): (0.8931, 0.9568),
          (32, 1): (0.8608, 0.9058), (32, 10): (0.8938, 0.9566)}  # fmt: skip


def main():
    options = options_of(__doc__).parse_args()
    warnings.simplefilter("ignore")
    names = size(("cogload1", "stress_predict"), ("synthetic",))
    if QUICK:
        print("Quick run on invented people: its figures mean nothing.\n")
    data = {name: recordings_of(name, n_people=3, seed=options.seed) for name in names}
    fabricated(names[0], data[names[0]], options.seed)
    together(data, options.seed)
    hidden(data, options.seed)


def interval(values):
    mean, low, high = steps.over_people(values)
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def fabricated(name, recordings, seed):
    """Private classifiers of 004 Def. 12 and 15 on halves of each person's rows."""
    people = people_of(recordings, SETTINGS[name], how="random", most=360)
    rows = []
    for epsilon, n in size(TABLE_7, TABLE_7[:1]):
        lines = []
        for who in people[: size(5, 2)]:
            first, test = who.split("random", seed)
            for rule in (True, False):
                clf = KAHMClassifier(
                    n_components=n,
                    n_layers=min(5, n),
                    privacy=steps.promise(epsilon),
                    fabricate=rule,
                    random_state=seed,
                ).fit(who.X[first], who.y[first])
                mis = audit.membership_inference_score(clf, who.X[first], who.X[test])
                lines.append((rule, clf.score(who.X[test], who.y[test]), float(mis)))
        line = [f"({epsilon}, {n})"]
        for rule, stated in zip((True, False), STATED[epsilon, n], strict=True):
            found = np.mean([line[1:] for line in lines if line[0] == rule], axis=0)
            line += [f"{found[0]:.4f}", f"{stated:.4f}", f"{found[1]:.4f}"]
        rows.append(line)
    print(f"**(a) Private and fabricated, beside 004 Table 7: {name}**, mean over people.\n")
    kinds = ("fabricated", "noised")
    head = [f"{k}: {w}" for k in kinds for w in ("accuracy", "004", "mis")]
    table(["(ε per entry, n)", *head], rows)


def together(data, seed):
    """Federation over people and attack, at ε = 1 per entry."""
    rows = []
    for name, recordings in data.items():
        people = people_of(recordings, SETTINGS[name], how="random", most=200)[: size(8, 3)]
        results, _ = steps.federate(people, 1.0)
        report = steps.attack(*apart(recordings, SETTINGS[name]), 1.0, seed)
        strongest = report.strongest
        low, high = strongest.auc_interval
        rows.append(
            [name, len(people), interval([each[1] for each in results.values()]),
             f"{strongest.name} {strongest.auc:.3f} [{low:.3f}, {high:.3f}]", strongest.n_member]
        )  # fmt: skip
    print("**(b) Federated over people, and attacked**: ε = 1 per entry. A person is judged by the")
    print(
        "private models of all others; the attack is on a model of rows that share no interval.\n"
    )
    table(
        ["set", "people", "balanced accuracy on a new person", "strongest attack, AUC", "members"],
        rows,
    )


def hidden(data, seed):
    """One model of all people but some, with a promise per person, on those."""
    rows = []
    invented = recordings_of("synthetic", n_people=size(200, 20), seed=seed)
    for name, recordings in {**data, "synthetic": invented}.items():
        table_of = crowd(recordings, SETTINGS[name])
        line = [name, len(set(table_of["person"])), len(table_of["mean"])]
        for epsilon in (1, 4, 8, np.inf):
            areas, _ = steps.hide_people(table_of, epsilon, seed=seed)
            line.append(interval(areas))
        rows.append(line)
    print(
        "**(c) One model of everybody's rows, ε per person**: AUROC on people it has not seen, of"
    )
    print("heart rate variability in rows that share no interval.\n")
    head = [f"ε = {epsilon} per person" for epsilon in (1, 4, 8)]
    table(["set", "people", "rows", *head, "no privacy"], rows)


if __name__ == "__main__":
    main()

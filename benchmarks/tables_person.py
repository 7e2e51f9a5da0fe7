"""Framingham's people with up to three examinations each: three ways to hide a whole person.

AUROC for a cardiovascular event on all examinations of a fifth of the people, means over ten splits
by person, δ = 1e-6, one person replaced. "Rows weighted 1/m" is ``unit="person"``: all her
examinations count, together as one row. "First examination only" throws the others away and hides
a record. "Group privacy" hides a record so well that three of them together are hidden at the
stated ε (Gaussian noise three times as large). Options: ``--epsilon``, ``--runs``, ``--resume``.
"""

import sys
import warnings

import numpy as np
from common import Kept, options_of, size, table
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from tables_common import DELTA, load_table, splits

from permea import MomentClassifier, Privacy
from permea.privacy.composition import Loss, tight_epsilon
from permea.privacy.noise import gaussian_mu

MOST_ROWS = 3  # examinations of a person, by the design of the study


def private_model(schema, epsilon, unit, seed):
    privacy = Privacy(epsilon=epsilon, delta=DELTA, unit=unit)
    return MomentClassifier(privacy=privacy, schema=schema, random_state=seed)


def weighted(schema, epsilon, train, seed):
    return private_model(schema, epsilon, "person", seed).fit(train)


def first_only(schema, epsilon, train, seed):
    first = train.sort_values("PERIOD").drop_duplicates(schema.person)
    return private_model(schema, epsilon, "record", seed).fit(first)


def as_group(schema, epsilon, train, seed):
    mu = gaussian_mu(epsilon, DELTA) / MOST_ROWS
    each = tight_epsilon([Loss("gaussian", mu)], DELTA)
    return private_model(schema, each, "record", seed).fit(train)


def without_privacy(schema, epsilon, train, seed):
    return MomentClassifier(schema=schema).fit(train)


WAYS = {
    "rows weighted 1/m": weighted,
    "first examination only": first_only,
    "group privacy, three rows": as_group,
}


def scores(way, frame, schema, epsilon, seeds):
    """AUROC of every split."""
    truth = schema.labels(frame) == schema.classes[1]
    found = []
    for seed, train, test in splits(frame, schema, seeds):
        model = way(schema, epsilon, frame.iloc[train], seed)
        forecast = model.predict_proba(frame.iloc[test])[:, 1]
        found.append(float(roc_auc_score(truth[test], forecast)))
    return found


def logistic(frame, schema, seeds):
    """AUROC of logistic regression on the same features, without privacy."""
    features, truth = schema.encoder(bins=5).transform(frame), schema.labels(frame)
    found = []
    for _, train, test in splits(frame, schema, seeds):
        model = LogisticRegression(C=10, max_iter=500).fit(features[train], truth[train])
        found.append(float(roc_auc_score(truth[test], model.predict_proba(features[test])[:, 1])))
    return found


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilon", type=float, nargs="+", default=size((1.0, 4.0), (4.0,)))
    parser.add_argument("--runs", type=int, default=size(10, 2))
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    frame, schema = load_table("framingham")
    kept, seeds = Kept("tables-person", options.resume), range(options.runs)
    for name, way in WAYS.items():
        for epsilon in options.epsilon:
            key = f"{name}, {epsilon:g}"
            if key not in kept:
                kept[key] = scores(way, frame, schema, epsilon, seeds)
                print(key, np.mean(kept[key]), file=sys.stderr, flush=True)
    rows = [
        [name, *(_cell(kept[f"{name}, {epsilon:g}"]) for epsilon in options.epsilon)]
        for name in WAYS
    ]
    for name, found in (
        ("no privacy, exact moments", scores(without_privacy, frame, schema, None, seeds)),
        ("no privacy, logistic", logistic(frame, schema, seeds)),
    ):
        rows.append([name, *[_cell(found)] * len(options.epsilon)])
    table(["AUROC", *(f"ε = {epsilon:g} per person" for epsilon in options.epsilon)], rows)
    people = len(np.unique(schema.people(frame)))
    print(f"{len(frame)} examinations of {people} people; ± is the deviation over splits.")


def _cell(found):
    return f"{np.mean(found):.4f} ± {np.std(found, ddof=1):.4f}"


if __name__ == "__main__":
    main()

"""A rare class: declared class weights beside none, on Adult with 1 % of positive training rows.

AUROC per record, δ = 1e-6, one record replaced, mean of five splits (``--runs``); positive rows are
left out of the training part at random until 1 % are left. A weight below 1 for the frequent class
is declared, not learned, and costs nothing; the total weight is noised.
"""

import numpy as np
from common import options_of, size, table
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from tables_common import DELTA, load_table, splits

from permea import MomentClassifier, Privacy

WEIGHTS = (1.0, 0.5, 0.2, 0.1, 0.05)


def rare(labels, train, positive, seed):
    """Training rows with 1 % of positive ones."""
    rng = np.random.default_rng(seed)
    often, seldom = train[labels[train] != positive], train[labels[train] == positive]
    return np.concatenate([often, rng.choice(seldom, len(often) // 99, replace=False)])


def main():
    parser = options_of(__doc__)
    parser.add_argument("--runs", type=int, default=size(5, 1))
    options = parser.parse_args()
    frame, schema = load_table("adult")
    labels, (negative, positive) = schema.labels(frame), schema.classes
    parts = [
        (rare(labels, train, positive, seed), test, seed)
        for seed, train, test in splits(frame, schema, range(options.runs))
    ]

    def score(fit):
        found = [
            roc_auc_score(labels[test] == positive, fit(train, seed)(frame.iloc[test]))
            for train, test, seed in parts
        ]
        return f"{np.mean(found):.4f}"

    def private(epsilon, weight):
        def fit(train, seed):
            model = MomentClassifier(
                privacy=Privacy(epsilon=epsilon, delta=DELTA, unit="record"), schema=schema,
                class_weight={negative: weight, positive: 1.0}, loss="squared", random_state=seed,
            )  # fmt: skip
            return model.fit(frame.iloc[train]).decision_function

        return fit

    def logistic(train, seed):
        encoder = schema.encoder()
        model = LogisticRegression(C=10, max_iter=500)
        model.fit(encoder.transform(frame.iloc[train]), labels[train])
        return lambda rows: model.decision_function(encoder.transform(rows))

    rows = [
        [f"ε = {epsilon:g}", *(score(private(epsilon, weight)) for weight in WEIGHTS)]
        for epsilon in (1.0, 4.0, 8.0)
    ]
    table(["weight of the frequent class", *(f"{weight:g}" for weight in WEIGHTS)], rows)
    print(f"Logistic regression without privacy: {score(logistic)}")


if __name__ == "__main__":
    main()

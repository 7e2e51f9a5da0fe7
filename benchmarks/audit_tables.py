"""Attack accuracies over ε on breast cancer and digits: 001 Fig. 3.1 and 3.2 as a table.

KAHM classifier on noised rows (ε per entry, δ = 1e-4 per entry as in 001, replace-one-entry
neighbours, domain declared from the features' public ranges: 0 to 16 for digits, 0 to twice the
published maximum for breast cancer), half of the rows as members; 0.5 is guessing. The noise of a
benchmark is seeded, so that it can be repeated. Option: ``--shadows N``.
"""

import numpy as np
from common import options_of, size, table
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

from permea import KAHMClassifier, Privacy, audit

EPSILONS = size((None, 10.0, 5.0, 1.0, 0.1), (1.0,))
METRICS = ("correctness", "loss", "confidence", "entropy", "modified_entropy", "distance")
LEARNT = ("shadow_svm", "shadow_tree", "shadow_network", "lira_online", "rmia_online")
# Upper ends of the 30 features as the data set's description lists them, doubled.
CANCER_HIGH = 2.0 * np.array(
    [28.11, 39.28, 188.5, 2501.0, 0.163, 0.345, 0.427, 0.201, 0.304, 0.097,
     2.873, 4.885, 21.98, 542.2, 0.031, 0.135, 0.396, 0.053, 0.079, 0.03,
     36.04, 49.54, 251.2, 4254.0, 0.223, 1.058, 1.252, 0.291, 0.664, 0.208]
)  # fmt: skip


def datasets():
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", np.clip(X / CANCER_HIGH, 0, 1), y
    X, y = load_digits(return_X_y=True)
    yield "digits", X / 16, y


def classifier(epsilon, **options):
    privacy = None
    if epsilon is not None:
        privacy = Privacy(epsilon=epsilon, delta=1e-4, domain=(0, 1))
    return KAHMClassifier(privacy=privacy, random_state=0, **options)


def over_epsilon(name, X, y, n_shadows):
    X, y = X[: size(None, 300)], y[: size(None, 300)]
    X_in, X_out, y_in, y_out = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
    rows = []
    for epsilon in EPSILONS:
        clf = classifier(epsilon).fit(X_in, y_in)
        report = audit.attack(
            clf, X_in, y_in, X_out, y_out, kinds=[*METRICS, *LEARNT], n_shadows=n_shadows, n_jobs=2
        )
        rows.append(
            [
                "none" if epsilon is None else f"{epsilon:g}",
                f"{clf.score(X_out, y_out):.3f}",
                *(f"{report[kind].accuracy:.3f}" for kind in (*METRICS, *LEARNT)),
                f"{report.membership_inference_score:.4f}",
            ]
        )
    half = (report["loss"].accuracy_interval[1] - report["loss"].accuracy_interval[0]) / 2
    print(f"**{name}**, {len(X_in)} members; attack accuracies are ± {half:.3f} (95 %).\n")
    table(["ε per entry", "test accuracy", *METRICS, *LEARNT, "mis"], rows)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--shadows", type=int, default=size(20, 4))
    arguments = parser.parse_args()
    for name, X, y in datasets():
        over_epsilon(name, X, y, arguments.shadows)


if __name__ == "__main__":
    main()

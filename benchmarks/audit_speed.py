"""The whole attack suite with 20 shadow models on digits: at most 15 s on two cores.

KAHM classifier (n = 20, L = 5) on half of scikit-learn's digits, every attack of ``permea.audit``.
Option: ``--shadows N``.
"""

from common import options_of, seconds, size, table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from permea import KAHMClassifier, audit


def main():
    parser = options_of(__doc__)
    parser.add_argument("--shadows", type=int, default=size(20, 4))
    shadows = parser.parse_args().shadows
    X, y = (part[: size(None, 400)] for part in load_digits(return_X_y=True))
    X_in, X_out, y_in, y_out = train_test_split(
        X / 16, y, test_size=0.5, stratify=y, random_state=0
    )
    clf = KAHMClassifier(random_state=0).fit(X_in, y_in)
    took, report = seconds(
        lambda: audit.attack(clf, X_in, y_in, X_out, y_out, n_shadows=shadows, n_jobs=2)
    )
    table(
        ["attack", "AUC", "95 % interval", "accuracy", "TPR at 1 % FPR"],
        [
            [
                result.name,
                f"{result.auc:.3f}",
                f"{result.auc_interval[0]:.3f} to {result.auc_interval[1]:.3f}",
                f"{result.accuracy:.3f}",
                f"{result.tpr_at[0.01]:.3f}",
            ]
            for result in report.attacks
        ],
    )
    print(f"{shadows} shadow models, all attacks: {took:.1f} s (target: at most 15 s).")


if __name__ == "__main__":
    main()

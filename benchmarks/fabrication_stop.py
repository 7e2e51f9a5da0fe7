"""When to stop smoothing: the rule of document 004 against public rules, on MNIST.

8000 training and 3000 test rows, n = 20, L = 5, δ = 1e-5 per entry, one branch per class. The
rule of 004 (stop at the modelling error of the original rows) reads private rows; a fixed number
of steps and the discrepancy principle do not. mis compares 3000 training rows with the test rows.
"""

import numpy as np
from common import mnist, options_of, size, table

from permea import KAHMClassifier, Privacy
from permea.audit import density_difference

RULES = {"noised rows": False, "0 steps": 0, "1 step (default)": 1, "2 steps": 2, "3 steps": 3,
         "discrepancy": "discrepancy", "as in 004 (not private)": "original"}  # fmt: skip


def main():
    options_of(__doc__).parse_args()
    X, y, T, t = mnist(rows=8000)
    T, t = T[:3000], t[:3000]
    rows = []
    for epsilon in size((1, 4, 16), (4,)):
        for name, rule in RULES.items():
            clf = KAHMClassifier(
                privacy=Privacy(epsilon=epsilon, delta=1e-5, domain=(0, 1)),
                fabricate=rule,
                branch_size=2000,
                n_jobs=2,
                random_state=0,
            ).fit(X, y)
            outside = clf.distances(T)
            inside = clf.distances(X[:3000]).min(axis=1)
            accuracy = np.mean(clf.classes_[outside.argmin(axis=1)] == t)
            score = float(density_difference(inside, outside.min(axis=1)))
            rows.append([epsilon, name, f"{accuracy:.4f}", f"{score:.4f}"])
    table(["ε per entry", "stopping rule", "accuracy", "mis"], rows)


if __name__ == "__main__":
    main()

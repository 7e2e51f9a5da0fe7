"""Constants of the transfer: what happens when one of them is switched off.

Run ``python benchmarks/transfer_constants.py``. Data that no other table scores: scikit-learn's
digits, half of them the source, the other half the target with few labels, changed in four ways
(as they are, blurred, inverted and rescaled, noised source), and clusters without a usable source.
The score is the accuracy on the unlabelled target rows, in %, and its change in points with the
standard error of the paired differences. A constant that was removed keeps the figures that the
last version which had it printed. ``sure_loss`` needs 76 labels and there are at most 50 here;
``python benchmarks/information_mnist.py --ordered --epsilons 10`` shows what it is worth.
"""

from dataclasses import replace

import numpy as np
from common import options_of, size, table
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits, make_blobs

from permea import Privacy, SourceModel, TransferClassifier
from permea.transfer import self_training

OFF = {
    "strength": 1e9, "usable_loss": 0.0, "certain_loss": 0.0, "certain_exponent": 1.0,
    "mixing": 0.0, "propagation": 0.5, "initial_weight": 0.0,
}  # fmt: skip
REMOVED = [  # as printed by commit f169b67, seeds 0 to 5
    ["as it was", "", "97.5", "89.7", "94.2", "91.8", "96.3"],
    ["source_mixing", "0", "+0.0 ± 0.0", "-0.0 ± 0.2", "+0.0 ± 0.0", "+0.1 ± 0.1", "+0.0 ± 0.0"],
]


def digits(seed, change, privacy, labels_per_class):
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(X))[: size(1797, 400)]
    X, y = X[order] / 16, y[order]
    half = len(X) // 2
    source = SourceModel(privacy=privacy, random_state=seed).fit(X[:half], y[:half])
    return source, change(X[half:]), y[half:], labels_per_class


def clusters(seed):
    X, y = make_blobs(600, 6, centers=8, cluster_std=2.5, random_state=seed)
    source = SourceModel(random_state=seed).fit(X[:300], (y[:300] + 1) % 8)  # a wrong source
    return source, X[300:], y[300:], 3


def blurred(X):
    return gaussian_filter(X.reshape(-1, 8, 8), (0, 0.8, 0.8)).reshape(len(X), -1)


def rescaled(X):
    return 0.2 + 0.6 * (1 - X)


CASES = {
    "same": lambda s: digits(s, lambda X: X, None, 2),
    "blurred": lambda s: digits(s, blurred, None, 2),
    "inverted": lambda s: digits(s, rescaled, None, 5),
    "private source": lambda s: digits(s, lambda X: X, Privacy(epsilon=1, domain=(0, 1)), 3),
    "wrong source": clusters,
}


def accuracy(problem):
    source, X, y, per_class = problem
    labels = np.full(len(y), -1)
    for label in np.unique(y):
        labels[np.flatnonzero(y == label)[:per_class]] = label
    model = TransferClassifier(source, random_state=0).fit(X, labels)
    free = labels == -1
    return 100 * float((model.predict(X)[free] == y[free]).mean())


def main():
    first = options_of(__doc__).parse_args().seed
    problems = {
        name: [make(first + number) for number in range(size(6, 1))]
        for name, make in list(CASES.items())[: size(None, 1)]
    }
    kept = self_training.SETTINGS
    scores = {}
    for name, value in {"as it is": None, **dict(list(OFF.items())[: size(None, 1)])}.items():
        if value is not None:
            self_training.SETTINGS = replace(kept, **{name: value})
        scores[name] = {case: np.array([accuracy(p) for p in problems[case]]) for case in problems}
        self_training.SETTINGS = kept
    rows = [["as it is", "", *(f"{s.mean():.1f}" for s in scores["as it is"].values())]]
    for name in list(scores)[1:]:
        changes = [scores[name][case] - scores["as it is"][case] for case in problems]
        rows.append(
            [name, f"{OFF[name]:g}"]
            + [f"{c.mean():+.1f} ± {c.std() / max(1, len(c) - 1) ** 0.5:.1f}" for c in changes]
        )
    table(["constant", "value", *problems], rows)
    print("Removed since: figures of version 0.1.0 at commit f169b67, the last that had it.\n")
    table(["constant", "value", *CASES], REMOVED)


if __name__ == "__main__":
    main()

"""USPS to MNIST with 100 to 500 labels (001 Table 1.3).

The target is MNIST's training rows, of which some have labels; all 10000 test rows are scored. The
document does not say how many target rows it has. The library's method gets 15000 random ones, the
document's method, from `permea.documents`, all 60000, with three of the five numbers of labels
(many minutes each); ``--methods``, ``--rows`` and ``--labels`` ask for others. What is done is kept
in the folder for temporary files: ``--resume`` takes it from there.
"""

import sys
from functools import cache

import numpy as np
from common import Kept, mnist, options_of, size, table
from transfer_baselines import answers, few_labels
from transfer_mnist_usps import usps

from permea import KAHMClassifier, SourceModel, TransferClassifier, documents

SEED = {100: 92.29, 200: 95.86, 300: 97.31, 400: 97.63, 500: 97.99}
ROWS = {"consensus": size(15_000, 400), "source2target": size(60_000, 400)}
LABELS = {"consensus": size(sorted(SEED), [100]), "source2target": size([100, 300, 500], [100])}


@cache
def source_of(method, seed):
    A, a, _, _ = usps()
    promise = documents.noise(0.1)
    if method == "source2target":
        return documents.source_001(promise, p=A.shape[1], random_state=seed).fit(A, a)
    learner = KAHMClassifier(n_layers=1, n_jobs=2)
    return SourceModel(privacy=promise, classifier=learner, random_state=seed).fit(A, a)


def accuracies(method, n_rows, count, seed):
    """Of the method and of label spreading, in %."""
    X, y, T, t = mnist(rows=n_rows)
    few = few_labels(y, count // 10, np.random.default_rng(seed))
    source, common = source_of(method, seed), {"n_jobs": 2, "random_state": 0}
    if method == "source2target":
        clf = documents.transfer_001(source, **common)
    else:
        clf = TransferClassifier(source, method=method, **common)
    peer = answers("label spreading", X[:2], y[:2], X, few, T)
    return [100 * float(clf.fit(X, few).score(T, t)), 100 * float(np.mean(peer == t))]


def main():
    parser = options_of(__doc__)
    parser.add_argument("--methods", nargs="+", default=size(list(ROWS), ["consensus"]))
    parser.add_argument("--rows", type=int)
    parser.add_argument("--labels", type=int, nargs="+")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    kept = Kept("transfer-usps-mnist-as-written", options.resume)
    print("ε = 0.1 per entry, δ = 1e-5; one choice of labels.\n")
    for method in options.methods:
        n_rows = options.rows or ROWS[method]
        rows = []
        for count in options.labels or LABELS[method]:
            key = f"{method} {n_rows} {count} {options.seed}"
            if key not in kept:
                kept[key] = accuracies(method, n_rows, count, options.seed)
                print(key, kept[key], file=sys.stderr, flush=True)
            own, peer = kept[key]
            rows.append([count, f"{own:.2f}", f"{peer:.2f}", SEED.get(count, "")])
        print(f"{n_rows} target rows:\n")
        table(["labels", f"{method}, %", "label spreading, %", "001, %"], rows)


if __name__ == "__main__":
    main()

"""USPS to MNIST with 100 to 500 labels (001 Table 1.3).

The target is a random part of MNIST's training rows (``--rows``, 15000 by default), of which some
have labels; all 10000 test rows are scored.
"""

import sys

import numpy as np
from common import mnist, options_of, size, table
from transfer_baselines import answers, few_labels
from transfer_mnist_usps import usps

from permea import KAHMClassifier, Privacy, SourceModel, TransferClassifier

SEED = {100: 92.29, 200: 95.86, 300: 97.31, 400: 97.63, 500: 97.99}


def main():
    parser = options_of(__doc__)
    parser.add_argument("--rows", type=int, default=size(15_000, 400))
    parser.add_argument("--labels", type=int, nargs="+", default=size(sorted(SEED), [100]))
    options = parser.parse_args()
    X, y, T, t = mnist(rows=options.rows)
    A, a, _, _ = usps()
    promise = Privacy(epsilon=0.1, delta=1e-5, domain=(0, 1))
    learner = KAHMClassifier(n_layers=1, n_jobs=2)
    source = SourceModel(privacy=promise, classifier=learner, random_state=options.seed).fit(A, a)
    rows = []
    for count in options.labels:
        few = few_labels(y, count // 10, np.random.default_rng(options.seed))
        clf = TransferClassifier(source, n_jobs=2, random_state=0).fit(X, few)
        peer = np.mean(answers("label spreading", X[:2], y[:2], X, few, T) == t)
        rows.append(
            [count, f"{100 * clf.score(T, t):.2f}", f"{100 * peer:.2f}", SEED.get(count, "")]
        )
        print(*rows[-1], file=sys.stderr, flush=True)
    print(f"ε = 0.1 per entry, δ = 1e-5; {len(X)} target rows, one choice of labels.\n")
    table(["labels", "consensus, %", "label spreading, %", "001, %"], rows)


if __name__ == "__main__":
    main()

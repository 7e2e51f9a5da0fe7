"""Features whose bits depend on one row alone, against the linear-algebra library's.

Run ``python benchmarks/rowwise_speed.py``. The library rounds a row's product differently from
place to place, so its features cannot be summed behind a promise about added rows (see
``docs/proofs/moments.md``). The fit is that of ``MomentClassifier`` on MNIST; the last column says
how much longer it takes than with the library's float32 products, cosines and sines. The limit
is 1.5.
"""

import numpy as np
from common import mnist, options_of, seconds, size, table

from permea.models.features import Chain, RandomFourier, ScaledIdentity
from permea.models.moments import MomentClassifier
from permea.privacy import Privacy

PROMISE = Privacy(epsilon=1.0, delta=1e-5, unit="record", domain=(0, 1))


def by_the_library(X, W, m):
    phases = (2 * X - 1) / np.float32(np.sqrt(X.shape[1])) @ W
    return np.hstack([np.cos(phases), np.sin(phases)]) / np.float32(np.sqrt(m))


def in_chunks(X, work, rows=4096):
    for start in range(0, len(X), rows):
        work(X[start : start + rows])


def main():
    options_of(__doc__).parse_args()
    X, y, _, _ = mnist()
    repeat = size(5, 1)
    lines = []
    for m in (300, 1000):
        features = Chain([ScaledIdentity(domain=(0, 1)), RandomFourier(n_frequencies=m)])
        features.fit_columns(X.shape[1])
        W = np.random.default_rng(0).normal(scale=1.5, size=(X.shape[1], m)).astype(np.float32)
        ours, _ = seconds(lambda f=features: in_chunks(X, f.transform), repeat)
        library, _ = seconds(
            lambda W=W, m=m: in_chunks(X, lambda A: by_the_library(A, W, m)), repeat
        )
        clf = MomentClassifier(privacy=PROMISE, features=features, classes=range(10))
        fit, _ = seconds(lambda c=clf: c.fit(X, y), size(2, 1))
        ratio = fit / (fit - ours + library)
        lines.append(
            [
                m,
                f"{ours:.2f}",
                f"{library:.2f}",
                f"{ours / library:.2f}",
                f"{fit:.2f}",
                f"{ratio:.2f}",
            ]
        )
    table(
        [
            "frequencies",
            "row by row, s",
            "library, float32, s",
            "ratio",
            "private fit, s",
            "ratio of the fit",
        ],
        lines,
    )


if __name__ == "__main__":
    main()

"""Time and memory of a private fit of 60000 rows with 2000 features, in chunks.

Run ``python benchmarks/moments_speed.py``. The rows are made up chunk by chunk and never lie in
memory together; the limits are 60 s and 2 GiB on two cores.
"""

import resource
import time

import numpy as np
from common import options_of, size, table

from permea.models.features import Chain, RandomFourier, ScaledIdentity
from permea.models.moments import MomentClassifier
from permea.privacy import Privacy


def chunks(n_rows, n_columns, size=4096):
    weights = np.random.default_rng(0).normal(size=(n_columns, 10))

    def make():
        for start in range(0, n_rows, size):
            rng = np.random.default_rng([1, start])
            X = rng.random((min(size, n_rows - start), n_columns), dtype=np.float32)
            yield X, (X @ weights).argmax(axis=1)

    return make


def main():
    parser = options_of(__doc__)
    parser.add_argument("--rows", type=int, default=size(60_000, 2000))
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--features", type=int, default=size(2000, 100))
    options = parser.parse_args()
    features = Chain([ScaledIdentity(), RandomFourier(n_frequencies=options.features // 2)])
    promise = Privacy(epsilon=1.0, delta=1e-5, unit="record", domain=(0, 1))
    rows = []
    for keep in (True, False):
        clf = MomentClassifier(privacy=promise, features=features, classes=range(10))
        start = time.perf_counter()
        clf.fit_chunks(chunks(options.rows, options.columns), keep=keep)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        text = "features kept for the second pass" if keep else "features made twice"
        rows.append([options.rows, options.features, text, f"{seconds:.1f}", f"{peak:.2f}"])
    table(["rows", "features", "way", "seconds", "peak so far, GiB"], rows)


if __name__ == "__main__":
    main()

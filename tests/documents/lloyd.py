"""The k-means of the transcriptions: Lloyd's steps from starting rows, on inputs as they are.

The documents name k-means and no start. The starting rows are those of the library, so that both
sides end in the same of many solutions.
"""

import numpy as np

from permea.models.inducing import pivot_order


def centroids(X, M):
    """M centroids of the rows of X."""
    ranges = X.max(axis=0) - X.min(axis=0)
    start, _ = pivot_order(X / np.where(ranges > 0, ranges, 1), M)
    centres, last = X[start], None
    while last is None or not np.array_equal(centres, last):
        nearest = np.array([np.argmin(np.sum((centres - x) ** 2, axis=1)) for x in X])
        last = centres
        centres = np.array([
            X[nearest == m].mean(axis=0) if (nearest == m).any() else centres[m]
            for m in range(len(centres))
        ])  # fmt: skip
    return centres

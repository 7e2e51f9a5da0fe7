"""Parts of a data set that are small enough to be modelled one by one."""

import math
import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from permea._arrays import Array

_KMEANS_ROWS = 20_000  # k-means learns its centres from at most this many rows


def partition(
    Y: Array,
    branch_size: int,
    *,
    random_state: int | np.random.RandomState | None = None,
) -> list[NDArray[np.intp]]:
    """Split the rows into S = ⌈N / branch_size⌉ parts by k-means (004 eq. 58-59).

    k-means parts are uneven, and the cost of a part grows with the cube of its size: a part with
    more than twice ``branch_size`` rows is split again.

    Parameters
    ----------
    Y : ndarray of shape (N, p)
        Rows. If they are private, only their noised version may be given here.
    branch_size : int
        Nominal number of rows of a part.
    random_state : int, RandomState or None
        For the start of k-means.

    Returns
    -------
    list of index arrays
        Every row is in exactly one part; no part is empty or larger than twice ``branch_size``.

    Examples
    --------
    >>> import numpy as np
    >>> parts = partition(np.arange(10.0)[:, None], 4, random_state=0)
    >>> sorted(int(i) for part in parts for i in part)
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    >>> max(map(len, parts)) <= 8
    True
    """
    random = check_random_state(random_state)
    waiting = [np.arange(Y.shape[0])]
    parts: list[NDArray[np.intp]] = []
    first = True
    while waiting:
        rows = waiting.pop()
        if len(rows) <= (branch_size if first else 2 * branch_size):
            parts.append(rows)
        else:
            waiting.extend(_split(Y, rows, math.ceil(len(rows) / branch_size), random))
        first = False
    return parts


def _split(
    Y: Array, rows: NDArray[np.intp], n_parts: int, random: np.random.RandomState
) -> list[NDArray[np.intp]]:
    """k-means parts of some rows; halves by position where the rows are all the same."""
    from sklearn.cluster import KMeans  # here, for a quick `import permea`

    chosen = rows
    if len(rows) > _KMEANS_ROWS:
        chosen = np.sort(random.choice(rows, _KMEANS_ROWS, replace=False))
    with warnings.catch_warnings():  # fewer distinct rows than parts is fine: see below
        warnings.simplefilter("ignore", ConvergenceWarning)
        means = KMeans(n_parts, n_init=1, random_state=random).fit(Y[chosen])
    labels = means.labels_ if chosen is rows else means.predict(Y[rows])
    parts = [rows[labels == label] for label in range(n_parts)]
    parts = [part for part in parts if part.size]
    return parts if len(parts) > 1 else list(np.array_split(rows, n_parts))

"""The nearest-neighbour estimator of mutual information, as a second opinion.

It makes no model of the data and has no adversary to show for its number. It is close to the truth
for few variables and falls short of it when there are many or when they depend strongly.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree
from scipy.special import digamma
from sklearn.utils import check_array, check_consistent_length

from permea.models.base import Array


def neighbour_information(observed: ArrayLike, hidden: ArrayLike, *, n_neighbors: int = 3) -> float:
    r"""Estimate I(t; x) in nats by nearest neighbours (Kraskov, Stögbauer and Grassberger 2004).

    .. math:: I = \psi(k) + \psi(N) - \langle \psi(n_x + 1) + \psi(n_t + 1) \rangle

    where n_x and n_t count the rows that are closer, in x alone and in t alone, than the k-th
    neighbour is in both (their first estimator, with maximum norms).

    Parameters
    ----------
    observed : array-like of shape (N, n)
        Samples of x.
    hidden : array-like of shape (N, q)
        Samples of t.
    n_neighbors : int
        k.

    Returns
    -------
    float
        Nats. It may be slightly negative where there is nothing to find.

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> t = random.normal(size=(2000, 1))
    >>> estimate = neighbour_information(t + random.normal(size=(2000, 1)), t)
    >>> bool(abs(estimate - 0.5 * np.log(2)) < 0.05)
    True
    """
    X, T = (_standardised(check_array(part, dtype=np.float64)) for part in (observed, hidden))
    check_consistent_length(X, T)
    N = len(X)
    if not 1 <= n_neighbors < N:
        raise ValueError(f"n_neighbors must be between 1 and {N - 1}; got {n_neighbors}.")
    both = np.hstack([X, T])
    tree = cKDTree(both)
    nearest = np.asarray(tree.query(both, k=n_neighbors + 1, p=np.inf)[0])
    radius = np.nextafter(nearest[:, n_neighbors], 0)
    counts = [
        cKDTree(part).query_ball_point(part, radius, p=np.inf, return_length=True)
        for part in (X, T)
    ]  # with the row itself in it: n + 1
    means = sum(float(np.mean(digamma(np.maximum(count, 1)))) for count in counts)
    return float(digamma(n_neighbors) + digamma(N)) - means


def _standardised(part: Array) -> Array:
    spread = part.std(axis=0)
    return np.asarray((part - part.mean(axis=0)) / np.where(spread > 0, spread, 1.0))

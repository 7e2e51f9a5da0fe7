"""Labels that agree with those of near rows: spreading over a graph of nearest neighbours."""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from permea.models.base import Array, Indices

_NEIGHBOURS = 10
_MOST_ROWS = 20_000  # members of a graph: the search stays affordable however many rows there are


class Neighbourhood(NamedTuple):
    """A symmetric, normalised graph over some of the rows; the others listen to its members."""

    members: Indices  #: numbers of the rows that take part
    graph: sparse.csr_array  #: (n, n) D^(−1/2) W D^(−1/2)
    others: Indices  #: numbers of the rows that do not
    listening: sparse.csr_array  #: (rows that do not, n) weights of their nearest members, sum 1

    def spread(self, start: Array, alpha: float, n_steps: int) -> Array:
        """Mix each member's distribution with its neighbours': F ← α S F + (1 − α) F₀.

        The others are mixed once, with what their nearest members have in the end.
        """
        first = start[self.members]
        current = first
        for _ in range(n_steps):
            current = alpha * (self.graph @ current) + (1 - alpha) * first
        mixed = start.copy()
        mixed[self.members] = current
        if n_steps and self.others.size:
            heard = self.listening @ current
            mixed[self.others] = alpha * heard + (1 - alpha) * start[self.others]
        return mixed


class Memory(NamedTuple):
    """What the members of a graph believe in the end, for rows that come later."""

    codes: Array  #: (n, d)
    posterior: Array  #: (n, C)

    def vote(self, codes: Array) -> Array:
        """Mean belief of the nearest members, nearer ones counting more, shape (m, C)."""
        return np.asarray(_nearest(self.codes, codes) @ self.posterior)


def _nearest(members: Array, codes: Array) -> sparse.csr_array:
    """Weights of the nearest members of each row, shape (m, n); nearer ones count more, sum 1."""
    m, n, k = len(codes), len(members), min(_NEIGHBOURS, len(members))
    if not m:
        return sparse.csr_array((m, n))
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(members)
    distances, near = search.kneighbors(codes)
    reach = np.maximum(distances[:, -1:], np.sqrt(np.finfo(members.dtype).tiny))
    weights = np.exp(-np.square(distances / reach))
    weights /= weights.sum(axis=1, keepdims=True)
    return sparse.csr_array((weights.ravel(), near.ravel(), k * np.arange(m + 1)), shape=(m, n))


def neighbourhood(
    codes: Array, random: np.random.RandomState, labelled: Indices | None = None
) -> Neighbourhood:
    """Graph of the nearest neighbours of each row.

    Edges weigh exp(−‖x − x'‖² / (s s')), where s is the distance of a row to its farthest
    neighbour, so that dense and sparse regions count alike. With more rows than a graph can hold,
    the labelled ones and a random choice of the others take part, the rest listens to them, and the
    cost of everything stays linear.

    Parameters
    ----------
    codes : ndarray of shape (N, d)
        Rows.
    random : RandomState
        For the choice.
    labelled : ndarray of int, optional
        Numbers of rows that must take part.

    Returns
    -------
    Neighbourhood

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.r_[np.zeros((6, 1)), np.ones((6, 1)) * 9] + np.linspace(0, 1, 12)[:, None]
    >>> near = neighbourhood(rows, np.random.RandomState(0))
    >>> near.graph.shape
    (12, 12)
    """
    members = _chosen(len(codes), random, labelled)
    others = np.setdiff1d(np.arange(len(codes)), members, assume_unique=True)
    chosen = codes[members]
    listening = _nearest(chosen, codes[others])
    n, k = len(chosen), min(_NEIGHBOURS, len(chosen) - 1)
    if k < 1:
        return Neighbourhood(members, sparse.csr_array((n, n)), others, listening)
    search = NearestNeighbors(n_neighbors=k + 1, algorithm="brute").fit(chosen)
    distances, near = search.kneighbors(chosen)
    own = near == np.arange(n)[:, None]
    own[~own.any(axis=1), -1] = True  # among many duplicates a row may not find itself
    distances, near = distances[~own].reshape(n, k), near[~own].reshape(n, k)
    reach = np.maximum(distances[:, -1:], np.sqrt(np.finfo(codes.dtype).tiny))
    weights = np.exp(-np.square(distances) / (reach * reach[near][:, :, 0]))
    rows = np.repeat(np.arange(n), k)
    W = sparse.csr_array((weights.ravel(), (rows, near.ravel())), shape=(n, n))
    W = W.maximum(W.T)
    scale = sparse.diags_array(1 / np.sqrt(np.maximum(W.sum(axis=1), 1e-300)))
    return Neighbourhood(members, sparse.csr_array(scale @ W @ scale), others, listening)


def _chosen(N: int, random: np.random.RandomState, labelled: Indices | None) -> Indices:
    """Numbers of the rows that take part: all, or the labelled ones and some others."""
    if N <= _MOST_ROWS:
        return np.arange(N)
    order = random.permutation(N)
    if labelled is not None:
        known = np.isin(order, labelled)
        order = np.concatenate([order[known], order[~known]])
    return np.sort(order[:_MOST_ROWS])

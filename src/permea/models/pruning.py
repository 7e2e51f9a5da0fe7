"""A first look at an image: a lower bound of its distance, from a few coordinates.

Rows and images are compared first in a few orthonormal directions, the *head*: those of the code
and some further ones. That partial distance is a lower bound of the distance (a sum of squares only
grows), so a row whose partial distance already reaches its cutoff is done. The full products are
formed for the rest.
"""

from collections.abc import Callable

import numpy as np

from permea._arrays import Array, Indices, Mask

_CHUNK_ENTRIES = 2_000_000  # kernel values held at once: bounds the memory of every query
_HEAD = 96  # directions beside the code in a first look
_SLACK = 64  # rounding errors, in units of machine precision, that a bound leaves room for


def nearest_in_chunks(
    nearest: Callable[[Array, Array], Array], Y: Array, cutoff: Array | None, n_codes: int
) -> Array:
    """Squared distances of all rows, asked for in parts whose kernel values fit into memory.

    Parameters
    ----------
    nearest : callable
        Squared distances of some rows, given the squared limit from which on infinity will do.
    Y : ndarray of shape (m, p)
        Queries.
    cutoff : ndarray of shape (m,) or None
        Distance from which on infinity will do.
    n_codes : int
        Kernel values that a row takes.
    """
    best = np.full(Y.shape[0], np.inf, dtype=Y.dtype)
    limit = best if cutoff is None else np.square(cutoff, dtype=np.float64).astype(Y.dtype)
    for rows in query_chunks(Y.shape[0], n_codes):
        best[rows] = nearest(Y[rows], limit[rows])
    return best


def query_chunks(n_rows: int, n_codes: int) -> list[slice]:
    """Slices of queries whose kernel values stay within the memory bound."""
    size = max(1, min(1024, _CHUNK_ENTRIES // max(n_codes, 1)))
    return [slice(start, start + size) for start in range(0, n_rows, size)]


def head_basis(components: Array, A: Array) -> Array:
    """Orthonormal directions for a first look: the code's, and where the rows of A are largest.

    Parameters
    ----------
    components : ndarray of shape (p, n)
        Orthonormal directions of the code; they come first.
    A : ndarray of shape (M, p)
        Coefficients; images are combinations of their rows.

    Returns
    -------
    ndarray of shape (p, n + h)
        No further directions where they would save nothing: of few features or few rows.
    """
    p, n = components.shape
    if p <= 2 * (n + _HEAD) or A.shape[0] <= _HEAD:
        return components
    start = np.random.default_rng(0).standard_normal((p, _HEAD)).astype(A.dtype)
    extra = A.T @ (A @ start)
    for _ in range(2):
        extra -= components @ (components.T @ extra)
        extra, _ = np.linalg.qr(extra)
    return np.ascontiguousarray(np.column_stack([components, extra]))


def may_win(difference: Array, outside: Array, limit: Array) -> Mask:
    """Rows whose squared distance in the head alone does not yet reach the limit.

    Parameters
    ----------
    difference : ndarray of shape (m, h)
        Row minus image in the coordinates of the head.
    outside : ndarray of shape (m,)
        Squared distance in features that never vary.
    limit : ndarray of shape (m,)
        Squared distance to stay below.
    """
    partial = np.einsum("ij,ij->i", difference, difference) + outside
    slack = _SLACK * float(np.finfo(partial.dtype).eps)
    return np.asarray(partial * (1 - slack) <= limit)


def lower(best: Array, rows: Indices, difference: Array, outside: Array) -> None:
    """Lower the best squared distance of some rows to that of a new difference."""
    squared = np.einsum("ij,ij->i", difference, difference) + outside[rows]
    best[rows] = np.minimum(best[rows], squared)

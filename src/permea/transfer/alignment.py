"""Bring target rows into the space of the source: subspace alignment, or nothing at all."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from permea._arrays import Array

_BLOCK = 4096  # rows that are centred at once


def principal_directions(Y: Array, n_directions: int) -> Array:
    """Orthonormal rows V: eigenvectors of the covariance of ``Y``, largest eigenvalue first.

    The latent subspace of 000 §4.2 and 001 §1.3.2. Directions along which the rows do not vary are
    left out, so there may be fewer than asked for. The largest entry of each direction is
    positive, which makes the answer unique.

    Parameters
    ----------
    Y : ndarray of shape (N, p)
        Rows.
    n_directions : int
        Number of directions that is wished for.

    Returns
    -------
    ndarray of shape (n, p)
        V, with V Vᵀ = I.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 0.0, 5.0], [2.0, 0.1, 5.0], [4.0, 0.0, 5.0], [6.0, 0.1, 5.0]])
    >>> V = principal_directions(rows, 3)
    >>> V.shape, bool(np.allclose(V @ V.T, np.eye(2)))
    ((2, 3), True)
    """
    N, p = Y.shape
    mean = Y.mean(axis=0, dtype=np.float64)
    wanted = min(n_directions, p)
    if p >= N:
        centred = np.asarray(Y, np.float64) - mean
        gram = centred @ centred.T
        values, vectors = _leading(gram, min(wanted, N))
        kept = values > _floor(values, max(N, p))
        directions = (vectors[:, kept] / np.sqrt(values[kept])).T @ centred
        directions = np.linalg.qr(directions.T)[0].T if kept.any() else directions
    else:
        return np.asarray(
            leading_directions(_scatter(Y, mean), wanted, noise_rows=max(N, p)), dtype=Y.dtype
        )
    return np.asarray(_with_sign(directions), dtype=Y.dtype)


def leading_directions(
    matrix: Array, count: int, *, least: float = 0.0, noise_rows: int = 0
) -> Array:
    """Orthonormal rows: eigenvectors of a covariance, the largest eigenvalue first.

    Eigenvalues up to ``least``, or to the rounding of a sum over so many rows, count as zero.

    Examples
    --------
    >>> import numpy as np
    >>> leading_directions(np.diag([1.0, 3.0, 0.0]), 3).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    values, vectors = _leading(matrix, count)
    floor = max(least, _floor(values, max(noise_rows, len(matrix))))
    return _with_sign(vectors[:, values > floor].T)


def _scatter(Y: Array, mean: Array) -> Array:
    """Sum of the outer products of the centred rows, block by block."""
    total = np.zeros((Y.shape[1], Y.shape[1]))
    for start in range(0, Y.shape[0], _BLOCK):
        part = Y[start : start + _BLOCK] - mean
        total += part.T @ part
    return total


def _leading(matrix: Array, count: int) -> tuple[Array, Array]:
    size = matrix.shape[0]
    values, vectors = eigh(matrix, subset_by_index=(size - count, size - 1))
    return values[::-1], vectors[:, ::-1]


def _floor(values: Array, size: int) -> float:
    largest = float(values[0]) if values.size else 0.0
    return max(largest * size * float(np.finfo(np.float64).eps), 0.0)


def _with_sign(directions: Array) -> Array:
    if not directions.size:
        return directions
    largest = np.abs(directions).argmax(axis=1)[:, None]
    return directions * np.sign(np.take_along_axis(directions, largest, axis=1))


@dataclass(frozen=True)
class Alignment:
    """The way of target rows to the space of the source.

    With ``source`` and ``target`` None the two spaces are the same and rows pass unchanged;
    otherwise a row goes through both subspaces (001 eq. 1.79):

        y_tg→sr = (V⁺ˢʳ)ᵀ Vᵗᵍ y_tg.
    """

    source: Array | None = None  #: V⁺ˢʳ, shape (n, p_sr)
    target: Array | None = None  #: Vᵗᵍ, shape (n, p_tg)

    @property
    def is_identity(self) -> bool:
        """Whether both spaces are the same."""
        return self.source is None

    def to_latent(self, Y: Array) -> Array:
        """Coordinates Vᵗᵍ y of target rows in the common subspace."""
        return Y if self.target is None else Y @ self.target.T

    def from_latent(self, codes: Array) -> Array:
        """Rows of the source space with given coordinates, (V⁺ˢʳ)ᵀ z."""
        return codes if self.source is None else codes @ self.source

    def to_source(self, Y: Array) -> Array:
        """Target rows in the source space (001 eq. 1.79)."""
        return self.from_latent(self.to_latent(Y))


def align(
    source_directions: Array, n_source: int, Y: Array, n_directions: int | None = None
) -> Alignment:
    """Alignment of target rows ``Y`` with a source (001 eq. 1.79).

    Parameters
    ----------
    source_directions : ndarray of shape (n, p_sr)
        V⁺ˢʳ of the source artefact.
    n_source : int
        Number of features p_sr of the source; −1 never equals p_tg and forces the subspace.
    Y : ndarray of shape (N, p_tg)
        All target rows, labelled or not.
    n_directions : int, optional
        n_st; None for as many as both sides have.

    Returns
    -------
    Alignment
        The identity for p_sr = p_tg; else subspace alignment with n_st = min(⌈p_sr/2⌉, p_tg)
        directions, or as many as both sides have.

    Examples
    --------
    >>> import numpy as np
    >>> Y = np.random.default_rng(0).normal(size=(30, 4))
    >>> align(np.eye(3, 6), 6, Y).to_source(Y).shape
    (30, 6)
    >>> align(np.eye(2, 4), 4, Y).is_identity
    True
    """
    if n_source == Y.shape[1]:
        return Alignment()
    source_directions = source_directions[:n_directions]
    target = principal_directions(Y, min(source_directions.shape[0], Y.shape[1]))
    n = min(source_directions.shape[0], target.shape[0])
    return Alignment(source_directions[:n].astype(Y.dtype), target[:n])

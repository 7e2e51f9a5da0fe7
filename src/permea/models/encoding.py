"""The linear encoding of a kernel affine hull machine: principal directions, whitened.

In the principal basis the covariance θ of the codes (004 eq. 36) is diagonal. Dividing each
coordinate by its standard deviation therefore turns the kernel of 004 eq. (35) into a plain
Gaussian of Euclidean distances, and the encoding of a layer with one dimension less is the same
encoding with its last coordinate left out. One decomposition serves all layers.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import eigh

from permea._arrays import Array, Indices, Mask
from permea.models.linear_algebra import lower_gram, product


class ShrunkWarning(UserWarning):
    """A requested dimension was larger than the data can carry and was lowered."""


@dataclass(frozen=True)
class Encoding:
    """Mean, principal directions and their standard deviations for the features that vary.

    Features that are constant in the training rows carry no direction. They are left out of every
    product (``active`` marks the others) and keep their value in each image.
    """

    mean: Array  #: (p,) mean of the training rows
    active: Mask  #: (p,) boolean, the features that vary
    components: Array  #: (p_active, n) orthonormal principal directions, largest variance first
    scales: Array  #: (n,) standard deviation along each direction

    @property
    def n_components(self) -> int:
        """Number of directions kept."""
        return int(self.scales.shape[0])

    @cached_property
    def columns(self) -> Indices | None:
        """Positions of the active features; None where all are."""
        return None if self.active.all() else np.flatnonzero(self.active)

    def centre(self, Y: Array) -> Array:
        """Rows minus the mean, in the active features."""
        if self.columns is None:
            return Y - self.mean
        centred = np.take(Y, self.columns, axis=1)
        centred -= self.mean[self.columns]
        return centred

    def placed(self, values: Array) -> Array:
        """Rows in all features: ``values`` in the active ones, the mean in the others."""
        if self.columns is None:
            return values
        rows = np.empty((values.shape[0], self.mean.shape[0]), dtype=values.dtype)
        rows[:] = self.mean
        rows[:, self.columns] = values
        return rows

    def inactive_energy(self, Y: Array) -> Array:
        """Squared distance of each row to the mean in the features that never varied."""
        if self.columns is None:
            return np.zeros(Y.shape[0], dtype=Y.dtype)
        difference = Y[:, ~self.active] - self.mean[~self.active]
        return np.asarray(np.einsum("ij,ij->i", difference, difference))

    def whiten(self, coordinates: Array) -> Array:
        """Principal coordinates divided by their standard deviations, kept finite.

        A code is clipped where its square would overflow. Only its direction matters out there:
        the image of a point far away is that of its nearest training code.
        """
        limit = np.sqrt(np.finfo(coordinates.dtype).max) / 1e6
        codes = coordinates[:, : self.n_components] / self.scales[: coordinates.shape[1]]
        return np.clip(codes, -limit, limit)

    def encode(self, Y: Array) -> Array:
        """Whitened principal coordinates of each row."""
        return self.whiten(self.centre(Y) @ self.components)

    def narrowed(self, n_components: int) -> "Encoding":
        """The same encoding with its leading ``n_components`` directions only."""
        return Encoding(
            mean=self.mean,
            active=self.active,
            components=self.components[:, :n_components],
            scales=self.scales[:n_components],
        )


def principal_encoding(Y: Array, n_components: int) -> Encoding:
    """Encode the rows of ``Y`` by their leading principal directions (004 Def. 1).

    Works on the smaller of the two Gram matrices, so it is economical for many features and few
    rows as well as for many rows and few features. Directions without variance are dropped with a
    `ShrunkWarning`.

    Parameters
    ----------
    Y : ndarray of shape (N, p)
        Training rows, float32 or float64.
    n_components : int
        The subspace dimension n that is wished for.

    Returns
    -------
    Encoding

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 7.0, 1.0], [2.0, 7.0, 1.5], [4.0, 7.0, 0.5]])
    >>> encoding = principal_encoding(rows, 2)
    >>> encoding.active
    array([ True, False,  True])
    >>> codes = encoding.encode(rows)
    >>> bool(np.allclose(codes.T @ codes / 2, np.eye(2)))
    True
    """
    N, p = Y.shape
    mean = Y.mean(axis=0, dtype=np.float64).astype(Y.dtype)
    active = np.ptp(Y, axis=0) > 0
    mean[~active] = Y[0, ~active]
    centred = Y - mean if active.all() else Y[:, active] - mean[active]
    wanted = min(n_components, N - 1, int(active.sum()))
    variances, components = _leading_directions(centred, wanted)
    kept = int(np.count_nonzero(variances > _variance_floor(variances, centred)))
    if kept < n_components:
        warnings.warn(
            f"n_components={n_components} is more than these {N} rows of {p} features can "
            f"carry; n_components={kept} is used.",
            ShrunkWarning,
            stacklevel=3,
        )
    return Encoding(mean, active, components[:, :kept], np.sqrt(variances[:kept]))


def _variance_floor(variances: Array, centred: Array) -> float:
    """Variances below this are rounding errors of the largest one."""
    if variances.size == 0:
        return 0.0
    eps = float(np.finfo(centred.dtype).eps)
    return float(float(variances[0]) * max(centred.shape) * eps * 4)


def _leading_directions(centred: Array, n: int) -> tuple[Array, Array]:
    """Largest ``n`` variances of the centred rows and their directions, largest first."""
    N, p = centred.shape
    if n < 1:
        return np.zeros(0, dtype=centred.dtype), np.zeros((p, 0), dtype=centred.dtype)
    if p <= N:
        variances, directions = _top_eigenpairs(lower_gram(centred), n)
    else:
        variances, weights = _top_eigenpairs(lower_gram(centred.T), n)
        directions = product(centred.T, weights)
        directions /= np.maximum(np.linalg.norm(directions, axis=0), np.finfo(centred.dtype).tiny)
    return np.maximum(variances, 0) / (N - 1), directions


def _top_eigenpairs(gram: Array, n: int) -> tuple[Array, Array]:
    """Largest ``n`` eigenvalues of a symmetric matrix (lower triangle) and their vectors."""
    size = gram.shape[0]
    values, vectors = eigh(
        gram, subset_by_index=[size - n, size - 1], check_finite=False, overwrite_a=True
    )
    return values[::-1], np.ascontiguousarray(vectors[:, ::-1])

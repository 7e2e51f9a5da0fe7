"""Principal directions of rows, and the linear codes that the model families make of them.

In the principal basis the covariance θ of the codes (004 eq. 36) is diagonal. Dividing each
coordinate by its standard deviation therefore turns the kernel of 004 eq. (35) into a plain
Gaussian of Euclidean distances, and the encoding of a layer with one dimension less is the same
encoding with its last coordinate left out. One decomposition serves all layers.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import eigh

from permea._arrays import Array, Indices, Mask
from permea.models.base import warn_shrunk
from permea.models.linear_algebra import lower_gram, product


@dataclass(frozen=True)
class Encoding:
    """Mean, principal directions and their standard deviations for the features that vary.

    Features that are constant in the training rows carry no direction. They are usually left out of
    every product (``active`` marks the others) and keep their value in each image.
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

    def uncentre(self, centred: Array) -> Array:
        """Rows in all features from rows minus the mean in the active ones."""
        if self.columns is None:
            return centred + self.mean
        rows = np.empty((len(centred), len(self.mean)), dtype=centred.dtype)
        rows[:] = self.mean
        rows[:, self.columns] += centred
        return rows

    def inactive_energy(self, Y: Array) -> Array:
        """Squared distance of each row to the mean in the features that never varied."""
        if self.columns is None:
            return np.zeros(Y.shape[0], dtype=Y.dtype)
        difference = Y[:, ~self.active] - self.mean[~self.active]
        return np.asarray(np.einsum("ij,ij->i", difference, difference))

    def whiten(self, coordinates: Array) -> Array:
        """Principal coordinates divided by their standard deviations, kept finite.

        Further coordinates are left out. A code is clipped where its square would overflow. Only
        its direction matters there: the image of a point far away is that of its nearest training
        code.
        """
        limit = np.sqrt(np.finfo(coordinates.dtype).max) / 1e6
        return np.clip(coordinates[:, : self.n_components] / self.scales, -limit, limit)

    def narrowed(self, n_components: int) -> "Encoding":
        """The same encoding with its leading ``n_components`` directions only."""
        components, scales = self.components[:, :n_components], self.scales[:n_components]
        return replace(self, components=components, scales=scales)


def principal_encoding(Y: Array, n_components: int, *, drop_constant: bool = True) -> Encoding:
    """Encode the rows of ``Y`` by their leading principal directions (004 Def. 1).

    Directions without variance are dropped with a `ShrunkWarning`.

    Parameters
    ----------
    Y : ndarray of shape (N, p)
        Training rows, float32 or float64.
    n_components : int
        The requested subspace dimension n.
    drop_constant : bool
        Leave features that never vary out.

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
    >>> codes = encoding.whiten(encoding.centre(rows) @ encoding.components)
    >>> bool(np.allclose(codes.T @ codes / 2, np.eye(2)))
    True
    """
    N = Y.shape[0]
    mean = Y.mean(axis=0, dtype=np.float64).astype(Y.dtype)
    active = (np.ptp(Y, axis=0) > 0) | (not drop_constant)
    mean[~active] = Y[0, ~active]
    centred = Y - mean if active.all() else Y[:, active] - mean[active]
    energies, components = leading_directions(centred, min(n_components, N - 1))
    if energies.size < n_components:
        warn_shrunk("n_components", n_components, energies.size, Y.shape)
    return Encoding(mean, active, components, np.sqrt(energies / max(N - 1, 1)))


def leading_directions(rows: Array, n: int) -> tuple[Array, Array]:
    """Largest ``n`` eigenvalues of AᵀA for a matrix A of rows, and their eigenvectors as columns.

    Eigenvalues that are rounding errors of the largest one are left out. The smaller one of the two
    Gram matrices is decomposed.

    Examples
    --------
    >>> import numpy as np
    >>> values, directions = leading_directions(np.array([[3.0, 4.0], [6.0, 8.0]]), 2)
    >>> values.round(3), abs(directions).round(3).tolist()
    (array([125.]), [[0.6], [0.8]])
    """
    N, p = rows.shape
    n = min(n, N, p)
    if n < 1:
        return np.zeros(0, dtype=rows.dtype), np.zeros((p, 0), dtype=rows.dtype)
    gram = lower_gram(rows if p <= N else rows.T)
    top = [len(gram) - n, len(gram) - 1]
    values, vectors = eigh(gram, subset_by_index=top, check_finite=False, overwrite_a=True)
    values, directions = values[::-1], np.asarray(vectors[:, ::-1], rows.dtype, order="C")
    if p > N:
        directions = product(rows.T, directions)
        directions /= np.maximum(np.linalg.norm(directions, axis=0), np.finfo(rows.dtype).tiny)
    floor = max(float(values[0]), 0.0) * max(N, p) * float(np.finfo(rows.dtype).eps) * 4
    kept = int(np.count_nonzero(values > floor))
    return values[:kept], directions[:, :kept]

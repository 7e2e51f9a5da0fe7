"""Feature maps that do not look at the data: public functions of one row each.

Learning from noised moments needs features that are fixed before the private rows are seen, with a
norm that is bounded by a public number. A map here reads of the data their number of columns and
nothing else; its randomness comes from a public seed. Maps follow each other in a :class:`Chain`
and stand side by side in :class:`SideBySide`.

=====================  ==========================================================================
:class:`ScaledIdentity`  the row itself, moved and scaled by the declared domain
:class:`RandomFourier`   cosines and sines of random projections: the Gaussian kernel, norm 1
:class:`PublicNystrom`   the Gaussian kernel to public inducing points (001 eq. 1.47), norm ≤ 1
:class:`OrientedGradients`  for images: edges by place and direction, norm 1
=====================  ==========================================================================
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_array, check_is_fitted

from permea.models.base import Array
from permea.models.factor import jittered_cholesky

_FLOATS = [np.float64, np.float32]
_BATCH = 1 << 25  # entries of scratch arrays held at once


class FeatureMap(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What the maps share: ``fit`` reads the number of columns, ``transform`` one row at a time.

    A map offers ``_prepare(p)``, which is given the number of columns and returns the number of
    features, and ``_map(X)``. ``norm_bound_`` is the public bound on the norm of its rows.
    """

    norm_bound_: float

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Read the number of columns of ``X``, and nothing else of it."""
        return self.fit_columns(int(check_array(X, dtype=_FLOATS).shape[1]))

    def fit_columns(self, n_columns: int) -> Self:
        """Prepare for rows of ``n_columns`` entries."""
        self.n_features_in_ = n_columns
        self.norm_bound_ = 1.0
        self.n_features_out_ = self._prepare(n_columns)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Features of every row; float32 rows stay float32."""
        check_is_fitted(self, "n_features_out_")
        rows = check_array(X, dtype=_FLOATS)
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return self._map(rows)

    def _prepare(self, p: int) -> int:
        raise NotImplementedError

    def _map(self, X: Array) -> Array:
        raise NotImplementedError


class ScaledIdentity(FeatureMap):
    r"""The row itself: :math:`(x - m) / (h \sqrt{p})` with middle m and half-width h of the domain.

    Rows outside the declared domain are clipped to it, so the norm is at most 1.

    Parameters
    ----------
    domain : (low, high)
        The declared public domain: numbers, or one number per column.

    Examples
    --------
    >>> ScaledIdentity(domain=(0, 10)).fit_transform([[0.0, 10.0, 5.0, 50.0]]).tolist()
    [[-0.5, 0.5, 0.0, 0.5]]
    """

    def __init__(self, *, domain: tuple[ArrayLike, ArrayLike] = (0.0, 1.0)) -> None:
        self.domain = domain

    def _prepare(self, p: int) -> int:
        low, high = (np.broadcast_to(np.asarray(v, float), (p,)) for v in self.domain)
        if not np.all(low < high):
            raise ValueError("domain needs low < high in every column.")
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        return p

    def _map(self, X: Array) -> Array:
        scaled = np.clip((X - self._middle) / self._half, -1.0, 1.0) / np.sqrt(X.shape[1])
        return np.asarray(scaled, dtype=X.dtype)


class RandomFourier(FeatureMap):
    r"""Random Fourier features of the Gaussian kernel, cosine and sine: their norm is exactly 1.

    :math:`\phi(x) = m^{-1/2} [\cos(Wx), \sin(Wx)]` with rows of W drawn from
    :math:`N(0, s^2 I)` by a public seed has :math:`E\,\phi(x)^T\phi(x') = \exp(-s^2|x-x'|^2/2)`
    (Rahimi and Recht 2008).

    Parameters
    ----------
    n_frequencies : int, default=1000
        Number m of frequencies; there are 2m features.
    scale : float, default=1.5
        Scale s of the frequencies, one over the width of the kernel. The rule is public: the maps
        before this one bound the norm of their rows by 1, and 1.5 was found on public data
        (``docs/methods/moments.md``).
    seed : int, default=0
        Public; the same everywhere, so that the moments of several parties add up.

    Examples
    --------
    >>> import numpy as np
    >>> phi = RandomFourier(n_frequencies=4000).fit_transform([[0.0, 0.0], [0.6, 0.0]])
    >>> bool(np.allclose(np.linalg.norm(phi, axis=1), 1))
    True
    >>> bool(abs(phi[0] @ phi[1] - np.exp(-0.5 * (1.5 * 0.6) ** 2)) < 0.05)
    True
    """

    def __init__(self, *, n_frequencies: int = 1000, scale: float = 1.5, seed: int = 0) -> None:
        self.n_frequencies = n_frequencies
        self.scale = scale
        self.seed = seed

    def _prepare(self, p: int) -> int:
        rng = np.random.default_rng(self.seed)
        self._frequencies = rng.normal(scale=self.scale, size=(p, self.n_frequencies))
        return 2 * self.n_frequencies

    def _map(self, X: Array) -> Array:
        m = self.n_frequencies
        phases = X @ self._frequencies.astype(X.dtype)
        out = np.empty((X.shape[0], 2 * m), dtype=X.dtype)
        np.cos(phases, out=out[:, :m])
        np.sin(phases, out=out[:, m:])
        out /= X.dtype.type(np.sqrt(m))
        return out


class PublicNystrom(FeatureMap):
    r"""The kernel to public inducing points, whitened: :math:`\phi(x) = L^{-1} k(a, x)`.

    With :math:`K_{aa} = LL^T` ridge regression on these features is the membership mapping of 001
    eq. (1.48); its inducing points would be cluster centroids of the private rows (1.51), here
    they are public. The norm is at most 1 because :math:`k_{xa}K_{aa}^{-1}k_{ax} \le k(x,x) = 1`.

    Parameters
    ----------
    inducing_points : array of shape (M, n)
        Public points: of a public data set, or drawn from the domain.
    scale : float, default=1.5
        One over the width of the kernel.

    Examples
    --------
    >>> import numpy as np
    >>> grid = np.linspace(-1, 1, 9)[:, None]
    >>> phi = PublicNystrom(grid, scale=2.0).fit_transform(np.array([[0.3], [-0.2]]))
    >>> bool(abs(phi[0] @ phi[1] - np.exp(-0.5 * (2.0 * 0.5) ** 2)) < 1e-3)
    True
    """

    def __init__(self, inducing_points: ArrayLike, *, scale: float = 1.5) -> None:
        self.inducing_points = inducing_points
        self.scale = scale

    def _prepare(self, p: int) -> int:
        points = np.asarray(self.inducing_points, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != p:
            raise ValueError(
                f"inducing_points must be a matrix with {p} columns, as the rows have here; got "
                f"the shape {points.shape}."
            )
        self._points = points * self.scale
        self._factor = jittered_cholesky(_gaussian(self._points, self._points))
        return len(points)

    def _map(self, X: Array) -> Array:
        kernel = _gaussian(self._points, X.astype(np.float64) * self.scale)
        whitened = solve_triangular(self._factor, kernel, lower=True, check_finite=False)
        return np.asarray(whitened.T, dtype=X.dtype)


def _gaussian(A: Array, B: Array) -> Array:
    squares = np.sum(A * A, axis=1)[:, None] + np.sum(B * B, axis=1) - 2.0 * A @ B.T
    return np.asarray(np.exp(-0.5 * np.maximum(squares, 0.0)))


class OrientedGradients(FeatureMap):
    """Edges of an image by place and direction: a fixed map for drawings, digits and the like.

    Central differences; the direction, signed, falls softly into its two nearest bins with the
    length of the gradient as weight; each bin is pooled over overlapping triangular cells; then
    the square root (which makes the Euclidean distance a Hellinger distance) and the norm 1.

    Parameters
    ----------
    image_shape : (height, width), optional
        Of the flattened images; a square by default.
    cells : int or sequence of int, default=(3, 6)
        Cells per side; several numbers give several resolutions, side by side.
    orientations : int, default=12
        Number of directions.

    Examples
    --------
    >>> import numpy as np
    >>> bar = np.zeros((1, 28, 28)); bar[:, :, 10:16] = 1
    >>> phi = OrientedGradients().fit_transform(bar.reshape(1, -1))
    >>> phi.shape, float(np.linalg.norm(phi).round(6))
    ((1, 540), 1.0)
    """

    def __init__(
        self,
        *,
        image_shape: tuple[int, int] | None = None,
        cells: int | Sequence[int] = (3, 6),
        orientations: int = 12,
    ) -> None:
        self.image_shape = image_shape
        self.cells = cells
        self.orientations = orientations

    def _prepare(self, p: int) -> int:
        side = int(np.sqrt(p))
        shape = (side, side) if self.image_shape is None else tuple(self.image_shape)
        if shape[0] * shape[1] != p:
            raise ValueError(
                f"{p} columns are no image of shape {shape}; give image_shape=(height, width)."
            )
        self._shape = shape
        sizes = [self.cells] if isinstance(self.cells, int) else list(self.cells)
        self._pools = [(triangles(shape[0], c), triangles(shape[1], c)) for c in sizes]
        return self.orientations * sum(c * c for c in sizes)

    def _map(self, X: Array) -> Array:
        step = max(1, _BATCH // (X.shape[1] * self.orientations))
        parts = [self._block(X[i : i + step]) for i in range(0, len(X), step)]
        return np.concatenate(parts)

    def _block(self, X: Array) -> Array:
        images = np.pad(X.reshape(-1, *self._shape), ((0, 0), (1, 1), (1, 1)))
        across = images[:, 1:-1, 2:] - images[:, 1:-1, :-2]
        down = images[:, 2:, 1:-1] - images[:, :-2, 1:-1]
        edges = self._by_direction(across, down)
        pooled = [(P.astype(X.dtype) @ edges) @ Q.T.astype(X.dtype) for P, Q in self._pools]
        features = np.sqrt(np.concatenate([c.reshape(len(X), -1) for c in pooled], axis=1))
        norms = np.linalg.norm(features, axis=1, keepdims=True)
        return np.asarray(features / np.where(norms > 0, norms, 1))

    def _by_direction(self, across: Array, down: Array) -> Array:
        """Lengths of the gradients, split between the two nearest of the directions."""
        bins = self.orientations
        length = np.hypot(across, down)
        angle = np.arctan2(down, across) * length.dtype.type(bins / (2 * np.pi))
        lower = np.floor(angle)
        upper_part = length * (angle - lower)
        lower_part = length - upper_part
        lower_bin = lower.astype(np.int8) % bins
        edges = np.empty((len(length), bins, *self._shape), dtype=length.dtype)
        for b in range(bins):
            edges[:, b] = np.where(lower_bin == b, lower_part, 0)
            edges[:, b] += np.where(lower_bin == (b - 1) % bins, upper_part, 0)
        return edges


def triangles(length: int, cells: int) -> Array:
    """Weights of overlapping triangular cells along one side of an image.

    Examples
    --------
    >>> triangles(4, 2).tolist()
    [[0.75, 0.75, 0.25, 0.0], [0.0, 0.25, 0.75, 0.75]]
    """
    width = length / cells
    centres = (np.arange(cells) + 0.5) * width - 0.5
    return np.asarray(np.maximum(0, 1 - np.abs(np.arange(length) - centres[:, None]) / width))


class Chain(FeatureMap):
    """One map after the other.

    Examples
    --------
    >>> Chain([ScaledIdentity(domain=(0, 1)), RandomFourier(n_frequencies=3)]).fit_transform(
    ...     [[0.5, 0.5]]
    ... ).round(3).tolist()
    [[0.577, 0.577, 0.577, 0.0, 0.0, 0.0]]
    """

    def __init__(self, maps: Sequence[FeatureMap]) -> None:
        self.maps = maps

    def _prepare(self, p: int) -> int:
        self.maps_ = [clone(one) for one in self.maps]
        for one in self.maps_:
            p = one.fit_columns(p).n_features_out_
        self.norm_bound_ = float(self.maps_[-1].norm_bound_)
        return p

    def _map(self, X: Array) -> Array:
        for one in self.maps_:
            X = one.transform(X)
        return X


class SideBySide(FeatureMap):
    """Several maps of the same row, each with the weight ``w / sqrt(sum w²)``: norm at most 1.

    Examples
    --------
    >>> both = SideBySide([ScaledIdentity(), RandomFourier(n_frequencies=2)], weights=[3, 4])
    >>> both.fit_transform([[1.0]]).round(3).tolist()[0][0]
    0.6
    """

    def __init__(
        self, maps: Sequence[FeatureMap], *, weights: Sequence[float] | None = None
    ) -> None:
        self.maps = maps
        self.weights = weights

    def _prepare(self, p: int) -> int:
        weights = np.ones(len(self.maps)) if self.weights is None else np.asarray(self.weights)
        self.maps_ = [clone(one).fit_columns(p) for one in self.maps]
        self._weights: Any = weights / np.linalg.norm(weights)
        bounds = np.array([one.norm_bound_ for one in self.maps_])
        self.norm_bound_ = float(np.linalg.norm(self._weights * bounds))
        return sum(one.n_features_out_ for one in self.maps_)

    def _map(self, X: Array) -> Array:
        parts = [
            one.transform(X) * X.dtype.type(w)
            for one, w in zip(self.maps_, self._weights, strict=True)
        ]
        return np.concatenate(parts, axis=1)

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

What these maps make of a row depends on that row alone, to the last bit: not on the rows beside
it, its place, its type (float32 or float64), the layout in memory or the number of threads
(:mod:`permea.privacy.rowwise`). Of any other transformer nobody knows that, so :func:`map_rows`
gives it one row at a time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_array, check_is_fitted

from permea._arrays import Array
from permea._parallel import batches
from permea.models.linear_algebra import jittered_cholesky
from permea.privacy.rowwise import (
    CACHED,
    cosines_and_sines,
    exp_of_negative,
    lengths_and_angles,
    row_product,
    row_solve,
    row_sums,
    row_tops,
)

_FLOATS = [np.float64, np.float32]
_BLOCK = 1024  # rows mapped at once
_EXPONENTS = (0.5, 0.375, 0.25)
_LENGTH_BITS = 22  # lengths of gradients are whole numbers below 2**22, which float32 holds


class FeatureMap(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What the maps share: ``fit`` reads the number of columns, ``transform`` one row at a time.

    A map offers ``_prepare(p)``, which is given the number of columns and returns the number of
    features, and ``_map(X)``, which is given a block of rows in float64. ``norm_bound_`` is the
    public bound on the norm of its rows.
    """

    norm_bound_: float
    learns_nothing = True  #: ``fit`` reads no value: harmless before a private step of a pipeline

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
        """Features of every row, computed in float64; for float32 rows rounded at the end."""
        check_is_fitted(self, "n_features_out_")
        rows = check_array(X, dtype=_FLOATS)
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return self._in_blocks(rows, rows.dtype)

    def _in_blocks(self, rows: Array, dtype: Any) -> Array:
        """Features of checked rows, rounded to ``dtype``."""
        features = np.empty((len(rows), self.n_features_out_), dtype=dtype)
        for part in batches(len(rows), _BLOCK):
            features[part] = self._map(np.asarray(rows[part], dtype=np.float64))
        return features

    def _prepare(self, p: int) -> int:
        raise NotImplementedError

    def _map(self, X: Array) -> Array:
        raise NotImplementedError


@dataclass(kw_only=True, eq=False, repr=False)
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

    domain: tuple[ArrayLike, ArrayLike] = (0.0, 1.0)

    def _prepare(self, p: int) -> int:
        low, high = (np.broadcast_to(np.asarray(v, float), (p,)) for v in self.domain)
        if not np.all(low < high):
            raise ValueError("domain needs low < high in every column.")
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        return p

    def _map(self, X: Array) -> Array:
        scaled = X - self._middle
        scaled /= self._half
        np.clip(scaled, -1.0, 1.0, out=scaled)
        scaled /= np.sqrt(X.shape[1])
        return np.asarray(scaled)


@dataclass(kw_only=True, eq=False, repr=False)
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

    n_frequencies: int = 1000
    scale: float = 1.5
    seed: int = 0

    def _prepare(self, p: int) -> int:
        rng = np.random.default_rng(self.seed)
        self._frequencies = rng.normal(scale=self.scale, size=(p, self.n_frequencies))
        return 2 * self.n_frequencies

    def _map(self, X: Array) -> Array:
        turns = row_product(X, self._frequencies / (2.0 * np.pi))
        out = np.empty((len(X), 2 * self.n_frequencies))
        for part in batches(len(X), max(1, CACHED // (2 * out.shape[1]))):
            out[part] = cosines_and_sines(turns[part], self.n_frequencies**-0.5)
        return out


@dataclass(eq=False, repr=False)
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

    inducing_points: ArrayLike
    scale: float = field(default=1.5, kw_only=True)

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
        return row_solve(self._factor, _gaussian(X * self.scale, self._points))


def _gaussian(A: Array, B: Array) -> Array:
    """Kernel of rows of A with public rows of B."""
    squares = row_sums(A * A) + row_sums(B * B).T - 2.0 * row_product(A, B.T, limbs=3)
    return exp_of_negative(0.5 * np.maximum(squares, 0.0))


@dataclass(kw_only=True, eq=False, repr=False)
class OrientedGradients(FeatureMap):
    """Edges of an image by place and direction: a fixed map for drawings, digits and the like.

    Central differences, in colour those of the channel where they are longest; the direction,
    signed, falls softly into its two nearest bins with the length of the gradient as weight; each
    bin is pooled over overlapping triangular cells; then a root (the square root makes the
    Euclidean distance a Hellinger distance) and the norm 1.

    Parameters
    ----------
    image_shape : (height, width) or (height, width, channels), optional
        Of the flattened images; by default a square of one channel, or of three where the number of
        columns is three squares.
    cells : int or sequence of int, default=(3, 6)
        Cells per side; several numbers give several resolutions, side by side.
    orientations : int, default=12
        Number of directions.
    exponent : {0.5, 0.375, 0.25}, default=0.5
        The root that is taken of the shares of the bins.

    Examples
    --------
    >>> import numpy as np
    >>> bar = np.zeros((1, 28, 28)); bar[:, :, 10:16] = 1
    >>> phi = OrientedGradients().fit_transform(bar.reshape(1, -1))
    >>> phi.shape, float(np.linalg.norm(phi).round(6))
    ((1, 540), 1.0)
    """

    image_shape: tuple[int, ...] | None = None
    cells: int | Sequence[int] = (3, 6)
    orientations: int = 12
    exponent: float = 0.5

    def _prepare(self, p: int) -> int:
        shape = _square(p) if self.image_shape is None else tuple(self.image_shape)
        if len(shape) not in (2, 3) or math.prod(shape) != p:
            raise ValueError(
                f"{p} columns are no image of shape {shape}; give image_shape=(height, width), or "
                "(height, width, channels)."
            )
        if self.exponent not in _EXPONENTS:
            raise ValueError(f"exponent must be one of {_EXPONENTS}.")
        self._shape, self._channels = shape[:2], math.prod(shape[2:])
        sizes = [self.cells] if isinstance(self.cells, int) else list(self.cells)
        self._pools = [(triangles(shape[0], c), triangles(shape[1], c)) for c in sizes]
        if self._bits() < 8:
            raise ValueError(
                f"An image of shape {shape} is too large: sums over about a million pixels are "
                "exact, over more they are not. Reduce the images first."
            )
        return self.orientations * sum(c * c for c in sizes)

    def _map(self, X: Array) -> Array:
        cells = self._cells()
        step = max(1, CACHED // (4 * math.prod(self._shape)))
        return np.concatenate([self._block(X[part], cells) for part in batches(len(X), step)])

    def _cells(self) -> Array:
        """Weights of the pixels in every cell as whole numbers: multiples of 1 / (4 h w)."""
        height, width = self._shape
        sides = [(np.rint(P * 2 * height), np.rint(Q * 2 * width)) for P, Q in self._pools]
        return np.concatenate([np.kron(P, Q) for P, Q in sides]).T

    def _block(self, X: Array, cells: Array) -> Array:
        """Square roots of the shares of the cells: sums of whole numbers, exact in any order."""
        edges = self._by_direction(*self._gradients(X))
        sums = (edges @ cells).reshape(len(X), -1, cells.shape[1])
        sums[:, 0] += sums[:, -1]  # after a whole turn comes the first direction again
        sums = sums[:, :-1]
        ends = np.cumsum([P.shape[0] * Q.shape[0] for P, Q in self._pools])[:-1]
        parts = [part.reshape(len(X), -1) for part in np.split(sums, ends, axis=2)]
        pooled = np.concatenate(parts, axis=1)
        roots = np.sqrt(pooled / np.maximum(row_sums(pooled), 1.0))
        if self.exponent == 0.5:
            return np.asarray(roots)
        quarters = np.sqrt(roots)  # square roots and products are rounded in one way only
        roots = quarters if self.exponent == 0.25 else quarters * np.sqrt(quarters)
        lengths = np.sqrt(row_sums(roots * roots))
        return np.asarray(roots / np.maximum(lengths, np.finfo(np.float64).tiny))

    def _gradients(self, X: Array) -> tuple[Array, Array]:
        """Lengths of the gradients as whole numbers, the longest of a row with all its bits."""
        tops = np.maximum(np.frexp(row_tops(X))[1], -900)  # lengths do not matter but to each other
        images = (X * np.ldexp(1.0, -tops)).reshape(-1, *self._shape, self._channels)
        images = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
        across = (images[:, 1:-1, 2:] - images[:, 1:-1, :-2]).astype(np.float32)
        down = (images[:, 2:, 1:-1] - images[:, :-2, 1:-1]).astype(np.float32)
        if self._channels > 1:
            longest = (across * across + down * down).argmax(axis=3)[..., None]
            across, down = (np.take_along_axis(v, longest, axis=3) for v in (across, down))
        lengths, angles = lengths_and_angles(across.reshape(len(X), -1), down.reshape(len(X), -1))
        exponents = np.maximum(np.frexp(row_tops(lengths))[1], -60)
        lengths *= np.ldexp(np.float32(1.0), self._bits() - exponents)
        return np.rint(lengths), angles

    def _by_direction(self, lengths: Array, angles: Array) -> Array:
        """Lengths split between the two nearest directions, a row for every image and direction.

        The direction after the last one is the first; it has a row of its own here.
        """
        bins = self.orientations
        angles = angles * angles.dtype.type(bins)
        lower = np.minimum(np.floor(angles), bins - 1)
        upper_part = np.rint(lengths * (angles - lower))
        n, p = lengths.shape
        edges = np.zeros((n, bins + 1, p))
        place = lower.astype(np.intp) * p + np.arange(p)
        place += (np.arange(n) * ((bins + 1) * p))[:, None]
        edges.ravel()[place] = lengths - upper_part
        edges.ravel()[place + p] = upper_part
        return edges.reshape(-1, p)

    def _bits(self) -> int:
        """How long gradients may be for sums over cells and pixels to stay below 2**53."""
        p = self._shape[0] * self._shape[1]
        return min(_LENGTH_BITS, 53 - (4 * p * p * len(self._pools)).bit_length())


def _square(p: int) -> tuple[int, ...]:
    """The shape of a square image with so many numbers, in colour where p is three squares."""
    channels = 3 if p % 3 == 0 and math.isqrt(p // 3) ** 2 == p // 3 else 1
    side = math.isqrt(p // channels)
    return (side, side) if channels == 1 else (side, side, channels)


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


@dataclass(eq=False, repr=False)
class Chain(FeatureMap):
    """One map after the other.

    Examples
    --------
    >>> Chain([ScaledIdentity(domain=(0, 1)), RandomFourier(n_frequencies=3)]).fit_transform(
    ...     [[0.5, 0.5]]
    ... ).round(3).tolist()
    [[0.577, 0.577, 0.577, 0.0, 0.0, 0.0]]
    """

    maps: Sequence[FeatureMap]

    def _prepare(self, p: int) -> int:
        self.maps_ = [clone(one) for one in self.maps]
        for one in self.maps_:
            p = one.fit_columns(p).n_features_out_
        self.norm_bound_ = float(self.maps_[-1].norm_bound_)
        return p

    def _map(self, X: Array) -> Array:
        for one in self.maps_:
            X = one._map(X)
        return X


@dataclass(eq=False, repr=False)
class SideBySide(FeatureMap):
    """Several maps of the same row, each with the weight ``w / sqrt(sum w²)``: norm at most 1.

    Examples
    --------
    >>> both = SideBySide([ScaledIdentity(), RandomFourier(n_frequencies=2)], weights=[3, 4])
    >>> both.fit_transform([[1.0]]).round(3).tolist()[0][0]
    0.6
    """

    maps: Sequence[FeatureMap]
    weights: Sequence[float] | None = field(default=None, kw_only=True)

    def _prepare(self, p: int) -> int:
        weights = np.ones(len(self.maps)) if self.weights is None else np.asarray(self.weights)
        self.maps_ = [clone(one).fit_columns(p) for one in self.maps]
        self._weights: Any = weights / np.linalg.norm(weights)
        bounds = np.array([one.norm_bound_ for one in self.maps_])
        self.norm_bound_ = float(np.linalg.norm(self._weights * bounds))
        return sum(one.n_features_out_ for one in self.maps_)

    def _map(self, X: Array) -> Array:
        parts = [one._map(X) * w for one, w in zip(self.maps_, self._weights, strict=True)]
        return np.concatenate(parts, axis=1)


_ROWWISE = (ScaledIdentity, RandomFourier, PublicNystrom, OrientedGradients, Chain, SideBySide)


def is_rowwise(transformer: object) -> bool:
    """Whether a map is known to treat every row by itself, to the last bit.

    Known are the maps of this module and their combinations. A class derived from one of them may
    do anything, so it is not known.

    Examples
    --------
    >>> is_rowwise(Chain([ScaledIdentity(), RandomFourier()]))
    True
    >>> class Mine(ScaledIdentity): ...
    >>> is_rowwise(Chain([Mine(), RandomFourier()]))
    False
    """
    if type(transformer) not in _ROWWISE:
        return False
    parts = [*getattr(transformer, "maps", ()), *getattr(transformer, "maps_", ())]
    return all(is_rowwise(one) for one in parts)


def map_rows(transformer: Any, X: Array) -> Array:
    """Features of rows, those of each row a function of that row alone.

    Maps of this module are given all rows at once, and their features are rounded to float32. Any
    other transformer is given one row at a time, as float64: slow, and right for every transformer
    that keeps no state between two calls.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import FunctionTransformer
    >>> by_the_batch = FunctionTransformer(lambda X: X / X.max())
    >>> map_rows(by_the_batch, np.array([[1.0, 2.0], [4.0, 4.0]])).tolist()
    [[0.5, 1.0], [1.0, 1.0]]
    """
    rows = np.asarray(X, dtype=np.float64)
    if is_rowwise(transformer):
        return np.asarray(transformer._in_blocks(rows, np.float32))
    return np.vstack([_map_one(transformer, rows[i : i + 1]) for i in range(len(rows))])


def _map_one(transformer: Any, row: Array) -> Array:
    """Features of one row by a foreign transformer, which gets a copy and keeps nothing."""
    made: Any = transformer.transform(np.array(row, order="C"))
    features = np.array(made.toarray() if hasattr(made, "toarray") else made, dtype=np.float64)
    if features.ndim != 2 or len(features) != 1:
        raise ValueError("A transformer must return one row of features for one row.")
    return features

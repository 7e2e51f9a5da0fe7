"""Autoencoders whose images are linear in kernel values, and distances through chains of them.

Kernel affine hull machines and membership autoencoders both compute the image of a point from its
principal coordinates x as

    image = mean + w(x) A + b,

with weights w from a kernel and coefficients A of shape (M, p). The product w(x) A dominates the
cost of a query. When only the nearest of many images matters, most of these products are pruned by
a lower bound: a draft of each image in a few orthonormal directions, those of the code and some in
which queries of other classes differ from the training rows. The distance to the draft never
exceeds the distance to the image, so a row for which it already reaches the best distance found is
done. Which directions are taken is a question of speed alone.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array, Indices
from permea._parallel import batches
from permea.models.base import FLOATS, row_norms
from permea.models.encoding import Encoding, leading_directions

_CHUNK_ENTRIES = 2_000_000  # kernel values held at once: bounds the memory of every query
_DRAFT_ENTRIES = 1 << 18  # the same for drafts, which are fastest in the cache of a core
_DRAFT_DIRECTIONS = 16  # directions of a draft beside those of the code
_LANDMARKS = 256  # queries that choose these directions where nobody else does
_SLACK = 64  # rounding errors, in units of machine precision, that the bound leaves room for


class KernelAutoencoder(BaseEstimator):  # type: ignore[misc]
    """A model whose image of a point is ``mean + weights @ coefficients + shift``."""

    encoding_: Encoding

    def _image_weights(self, coordinates: Array) -> Array:
        """w(x) of each query, from its principal coordinates (further columns are ignored)."""
        raise NotImplementedError

    def _image_map(self) -> tuple[Array, Array]:
        """A and b, in the active features."""
        raise NotImplementedError

    def reconstruct(self, Y: Array) -> Array:
        """Image of each row (004 eq. 33, 001 eq. 1.23).

        Parameters
        ----------
        Y : array-like of shape (m, p)
            Any points.

        Returns
        -------
        ndarray of shape (m, p)
            Their images.
        """
        Y = self._validated(Y)
        image = np.empty_like(Y)
        coefficients, shift = self._image_map()
        for rows in query_chunks(len(Y), len(coefficients)):
            coordinates = self.encoding_.centre(Y[rows]) @ self.encoding_.components
            offsets = self._image_weights(coordinates) @ coefficients
            image[rows] = self.encoding_.uncentre(offsets + shift)
        return image

    def distance(self, Y: Array) -> Array:
        """Distance of each row to its image (004 eq. 48).

        Parameters
        ----------
        Y : array-like of shape (m, p)
            Any points.

        Returns
        -------
        ndarray of shape (m,)
            Their distances.
        """
        Y = self._validated(Y)
        return row_norms(Y - self.reconstruct(Y))

    @staticmethod
    def distance_through(
        layers: "Sequence[KernelAutoencoder]", Y: Array, cutoff: Array | None = None
    ) -> Array:
        """Distance of each row to the nearest of its images in a chain (004 eq. 53, 001 Def. 3).

        Parameters
        ----------
        layers : list of fitted models
            A chain made by ``next_layer``.
        Y : ndarray of shape (m, p)
            Queries.
        cutoff : ndarray of shape (m,), optional
            Rows whose distance is not below it may get infinity instead.

        Returns
        -------
        ndarray of shape (m,)
            Distances.
        """
        Y = np.asarray(Y, dtype=layers[0].encoding_.mean.dtype)
        drafts = _drafts_of(layers, Y[:_LANDMARKS])
        constant = layers[0].encoding_.inactive_energy(Y)
        squared = np.full(len(Y), np.inf, dtype=Y.dtype)
        limit = squared if cutoff is None else np.square(cutoff, dtype=np.float64).astype(Y.dtype)
        possible = np.flatnonzero(constant * _slack(Y.dtype) <= limit)
        n_rows = max(1, _DRAFT_ENTRIES // len(drafts.layers[0][0][0]))
        with np.errstate(over="ignore", invalid="ignore"):  # of points too far for their precision
            for chunk in batches(len(possible), n_rows):
                rows = possible[chunk]
                squared[rows] = _nearest(layers, drafts, Y[rows], constant[rows], limit[rows])
        return np.sqrt(squared)

    @staticmethod
    def expect(layers: "Sequence[KernelAutoencoder]", landmarks: Array) -> None:
        """Prepare `distance_through` for queries that lie about where ``landmarks`` do."""
        _drafts_of(layers, np.asarray(landmarks, dtype=layers[0].encoding_.mean.dtype))

    def _draft_arrays(self, basis: Array) -> tuple[Array, ...]:
        """What `_draft` needs, the first with one row for each code: A in a basis, and more."""
        return (self._image_map()[0] @ basis,)

    def _draft(self, coordinates: Array, columns: Array, *_: Array) -> "Draft":
        """Image weights, and the offsets w A of the images in the directions of a draft."""
        weights = self._image_weights(coordinates)
        return Draft(weights, None, weights @ columns)

    def _validated(self, Y: Array) -> Array:
        check_is_fitted(self, "encoding_")
        Y = validate_data(self, Y, dtype=FLOATS, reset=False)
        return np.asarray(Y, dtype=self.encoding_.mean.dtype)


def query_chunks(n_rows: int, n_codes: int) -> Sequence[slice]:
    """Slices of queries whose kernel values stay within the memory bound."""
    return list(batches(n_rows, max(1, min(1024, _CHUNK_ENTRIES // max(n_codes, 1)))))


class Draft(NamedTuple):
    """Images in a few directions, and what their remaining features are computed from."""

    weights: Array  #: (m, M) weights w of each image, times the scale of its row
    scales: Array | None  #: (m,) None for 1
    offsets: Array  #: (m, n + h) w A in the directions of the draft

    def full_offsets(self, rows: Indices, A: Array) -> Array:
        """W A for some of the rows."""
        weights = self.weights if rows.size == len(self.weights) else self.weights[rows]
        offsets = weights @ A
        if self.scales is not None:
            offsets /= self.scales[rows, None]
        return np.asarray(offsets)


class _Drafts(NamedTuple):
    """Orthonormal directions, and what each layer of a chain prepared for them."""

    basis: Array  #: (p, n + h); the directions of the code come first
    layers: Sequence[tuple[tuple[Array, ...], Array]]  #: prepared arrays, and b in the directions


_drafts: "WeakKeyDictionary[KernelAutoencoder, _Drafts]" = WeakKeyDictionary()


def _drafts_of(layers: Sequence[KernelAutoencoder], landmarks: Array) -> _Drafts:
    """What was prepared for a chain; ``landmarks`` choose the directions the first time."""
    found = _drafts.get(layers[0])
    if found is None or len(found.layers) != len(layers):
        basis = _directions(layers[0].encoding_, landmarks)
        prepared = [(layer._draft_arrays(basis), layer._image_map()[1] @ basis) for layer in layers]
        found = _drafts[layers[0]] = _Drafts(basis, prepared)
    return found


def _directions(encoding: Encoding, landmarks: Array) -> Array:
    """Directions of the code, and those in which landmarks differ most from the training rows.

    The latter are the principal directions of what the code leaves out of the landmarks. There are
    none where they would save nothing, for few features.
    """
    basis = encoding.components
    p, n = basis.shape
    if p <= 2 * (n + _DRAFT_DIRECTIONS) or len(landmarks) == 0:
        return basis
    rest = encoding.centre(landmarks)
    rest = rest - (rest @ basis) @ basis.T
    _, extra = leading_directions(rest, _DRAFT_DIRECTIONS)
    for _ in range(2):  # once more, for what rounding left
        extra -= basis @ (basis.T @ extra)
        extra, _ = np.linalg.qr(extra)
    return np.ascontiguousarray(np.column_stack([basis, extra]))


def _nearest(
    layers: Sequence[KernelAutoencoder], drafts: _Drafts, Y: Array, constant: Array, limit: Array
) -> Array:
    """Squared distance of each row to the nearest image, or infinity from ``limit`` on."""
    centred = layers[0].encoding_.centre(Y)
    in_basis = coordinates = centred @ drafts.basis
    slack = _slack(Y.dtype)
    best = np.full(len(Y), np.inf, dtype=Y.dtype)
    for layer, (arrays, shift) in zip(layers, drafts.layers, strict=True):
        draft = layer._draft(coordinates, *arrays)
        coordinates = draft.offsets + shift
        partial = _squares(in_basis - coordinates) + constant
        close = partial * slack <= np.minimum(best, limit)
        if close.any():
            rows = np.flatnonzero(close)
            A, b = layer._image_map()
            difference = draft.full_offsets(rows, A)
            difference += b
            np.subtract(centred[rows], difference, out=difference)
            best[rows] = np.minimum(best[rows], _squares(difference) + constant[rows])
    return best


def _slack(dtype: Any) -> float:
    return 1 - _SLACK * float(np.finfo(dtype).eps)


def _squares(rows: Array) -> Array:
    """Squared length of each row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))

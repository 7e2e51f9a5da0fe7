"""Autoencoders whose images are linear in kernel values, and distances through chains of them.

Kernel affine hull machines and membership autoencoders both compute the image of a point from its
principal coordinates x as

    image = mean + w(x) A + b,

with weights w from a kernel and coefficients A of shape (M, p). The product w(x) A dominates the
cost of a query. When only the nearest of many images matters, most of these products are pruned by
a lower bound: rows and images are compared first in a few orthonormal directions, those of the
code and some in which images vary most. That partial distance never exceeds the distance, so a row
whose partial distance already reaches the best one found is done.
"""

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array
from permea._parallel import batches
from permea.models.base import FLOATS, row_norms
from permea.models.encoding import Encoding

_CHUNK_ENTRIES = 2_000_000  # kernel values held at once: bounds the memory of every query
_BOUND_DIRECTIONS = 96  # directions of the lower bound beside those of the code
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
        bound = _bounds.get(layers[0])
        if bound is None or len(bound.images) != len(layers):
            bound = _bounds[layers[0]] = _lower_bound(layers)
        Y = np.asarray(Y, dtype=bound.basis.dtype)
        squared = np.full(Y.shape[0], np.inf, dtype=Y.dtype)
        limit = squared if cutoff is None else np.square(cutoff, dtype=np.float64).astype(Y.dtype)
        for rows in query_chunks(len(Y), len(bound.images[0][0])):
            squared[rows] = _nearest(layers, bound, Y[rows], limit[rows])
        return np.sqrt(squared)

    def _validated(self, Y: Array) -> Array:
        check_is_fitted(self, "encoding_")
        Y = validate_data(self, Y, dtype=FLOATS, reset=False)
        return np.asarray(Y, dtype=self.encoding_.mean.dtype)


def query_chunks(n_rows: int, n_codes: int) -> Sequence[slice]:
    """Slices of queries whose kernel values stay within the memory bound."""
    return list(batches(n_rows, max(1, min(1024, _CHUNK_ENTRIES // max(n_codes, 1)))))


class _LowerBound(NamedTuple):
    """The directions of a lower bound, and the image map of each layer in these directions."""

    basis: Array  #: (p, n + h) orthonormal; the directions of the code come first
    images: list[tuple[Array, Array]]  #: A and b of each layer, times ``basis``


_bounds: "WeakKeyDictionary[KernelAutoencoder, _LowerBound]" = WeakKeyDictionary()


def _lower_bound(layers: Sequence[KernelAutoencoder]) -> _LowerBound:
    """Choose directions in which the images of a chain vary most, by one power iteration.

    There are none beside those of the code where they would save nothing: for few features or few
    training rows.
    """
    basis, (A, _) = layers[0].encoding_.components, layers[0]._image_map()
    p, n = basis.shape
    if p > 2 * (n + _BOUND_DIRECTIONS) and A.shape[0] > _BOUND_DIRECTIONS:
        start = np.random.default_rng(0).standard_normal((p, _BOUND_DIRECTIONS)).astype(A.dtype)
        extra = A.T @ (A @ start)
        for _ in range(2):
            extra -= basis @ (basis.T @ extra)
            extra, _ = np.linalg.qr(extra)
        basis = np.ascontiguousarray(np.column_stack([basis, extra]))
    maps = (layer._image_map() for layer in layers)
    return _LowerBound(basis, [(A @ basis, b @ basis) for A, b in maps])


def _nearest(
    layers: Sequence[KernelAutoencoder], bound: _LowerBound, Y: Array, limit: Array
) -> Array:
    """Squared distance of each row to the nearest image, or infinity from ``limit`` on."""
    centred = layers[0].encoding_.centre(Y)
    constant = layers[0].encoding_.inactive_energy(Y)
    rows_in_basis = coordinates = centred @ bound.basis
    slack = 1 - _SLACK * float(np.finfo(Y.dtype).eps)
    best = np.full(len(Y), np.inf, dtype=Y.dtype)
    for layer, (A_in_basis, b_in_basis) in zip(layers, bound.images, strict=True):
        weights = layer._image_weights(coordinates)
        coordinates = weights @ A_in_basis + b_in_basis
        partial = _squares(rows_in_basis - coordinates) + constant
        rows = np.flatnonzero(partial * slack <= np.minimum(best, limit))
        if rows.size:
            A, b = layer._image_map()
            difference = (weights if rows.size == len(weights) else weights[rows]) @ A
            difference += b
            np.subtract(centred[rows], difference, out=difference)
            best[rows] = np.minimum(best[rows], _squares(difference) + constant[rows])
    return best


def _squares(rows: Array) -> Array:
    """Squared length of each row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))

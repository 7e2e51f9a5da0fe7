"""Distances through a chain of membership autoencoders, with less work than the definition.

All layers of a chain share one encoding (001 Alg. 2), and a layer needs no more of the image before
it than its code. So the codes are followed through the chain in the head of `first_look`, and whole
images are formed only for rows that may still win.
"""

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from permea.models.base import Array
from permea.models.first_look import head_basis, lower, may_win, nearest_in_chunks
from permea.models.inducing import gaussian_kernel
from permea.models.mapping import Mapping, scale_inputs

if TYPE_CHECKING:
    from permea.models.membership import MembershipAutoencoder


class _Layer:
    """One autoencoder of the chain: its image minus the mean is k(code) A + shift."""

    def __init__(self, model: "MembershipAutoencoder", basis: Array) -> None:
        encoding = model.encoding_
        self.mapping: Mapping = model.mapping_
        self.n_components = encoding.n_components
        self.shift = model.offset_ - encoding.mean[encoding.active]
        self.head = self.mapping.coefficients @ basis
        self.head_shift = self.shift @ basis

    def look(self, codes: Array) -> tuple[Array, Array]:
        """Kernel values, and the image in the coordinates of the head."""
        inputs = scale_inputs(codes[:, : self.n_components], self.mapping.scales)
        values = gaussian_kernel(inputs, self.mapping.points)
        return values, values @ self.head + self.head_shift


class LayeredDistance:
    """A chain of autoencoders, prepared once and asked many times."""

    def __init__(self, layers: "list[MembershipAutoencoder]") -> None:
        self.encoding = layers[0].encoding_
        self.basis = head_basis(self.encoding.components, layers[0].mapping_.coefficients)
        self.layers = [_Layer(model, self.basis) for model in layers]

    def __call__(self, Y: Array, cutoff: Array | None) -> Array:
        """Squared distance of each row to the nearest image, or infinity from the cutoff on."""
        n_codes = self.layers[0].mapping.points.shape[0]
        return nearest_in_chunks(self._nearest, Y, cutoff, n_codes)

    def _nearest(self, Y: Array, limit: Array) -> Array:
        centred = self.encoding.centre(Y)
        outside = self.encoding.inactive_energy(Y)
        head = centred @ self.basis
        codes: Array = head
        best = np.full(Y.shape[0], np.inf, dtype=Y.dtype)
        for layer in self.layers:
            values, codes = layer.look(codes)
            rows = np.flatnonzero(may_win(head - codes, outside, np.minimum(best, limit)))
            if rows.size:
                chosen = values if rows.size == len(values) else values[rows]
                image = chosen @ layer.mapping.coefficients
                image += layer.shift
                lower(best, rows, centred[rows] - image, outside)
        return best


_prepared: "WeakKeyDictionary[MembershipAutoencoder, LayeredDistance]" = WeakKeyDictionary()


def layered_distance(
    layers: "list[MembershipAutoencoder]", Y: Array, cutoff: Array | None = None
) -> Array:
    """Distance of each row of ``Y`` to the nearest of its images in the chain (001 Def. 3).

    Parameters
    ----------
    layers : list of fitted autoencoders
        A chain made by `MembershipAutoencoder.next_layer`.
    Y : ndarray of shape (m, p)
        Queries.
    cutoff : ndarray of shape (m,), optional
        Rows whose distance is not below it may be answered with infinity.
    """
    chain = _prepared.get(layers[0])
    if chain is None or len(chain.layers) != len(layers):
        chain = _prepared[layers[0]] = LayeredDistance(layers)
    Y = np.asarray(Y, dtype=layers[0].mapping_.points.dtype)
    return np.asarray(np.sqrt(chain(Y, cutoff)))

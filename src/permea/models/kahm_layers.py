"""Distances through a chain of kernel affine hull machines, with less work than the definition.

All machines of a chain share one encoding, so a query is projected once. Its image is compared
first in the head of `first_look`, and whole images are formed only for rows that may still win.
"""

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

import numpy as np

from permea.models.base import Array, Indices
from permea.models.first_look import head_basis, lower, may_win, nearest_in_chunks
from permea.models.kernel import KernelRows

if TYPE_CHECKING:
    from permea.models.kahm import KernelAffineHullMachine


def guard_level(machine: "KernelAffineHullMachine") -> float:
    """Smallest Σh over ‖k‖²/max k that 004 eq. (147) allows, with room for rounding at equality."""
    room = 1 - float(np.sqrt(np.finfo(machine.codes_.dtype).eps))
    return room / (machine.regularization_ + machine.largest_eigenvalue_)


class _Layer:
    """One machine of the chain, prepared for queries by code."""

    def __init__(self, machine: "KernelAffineHullMachine", basis: Array) -> None:
        self._machine = ref(machine)  # what is prepared must not keep its machine alive
        self.kernel = KernelRows(machine.codes_)
        ones = np.ones_like(machine.denominators_)
        projected = machine.coefficients_ @ basis
        self.head = np.column_stack([projected, machine.denominators_, ones])
        self.guard = guard_level(machine)

    @property
    def machine(self) -> "KernelAffineHullMachine":
        """The machine, which lives as long as the chain it is asked through."""
        machine = self._machine()
        assert machine is not None
        return machine

    def look(self, codes: Array) -> tuple[Array, Array, Array, Indices]:
        """Kernel values, head coordinates of the images, denominators, and rows to redo."""
        values = self.kernel.values(codes[:, : self.machine.n_components_])
        product = values @ self.head
        denominators, sums = product[:, -2], product[:, -1]
        redo = self._doubtful(values, denominators, sums)
        denominators[redo] = 1
        return values, product[:, :-2] / denominators[:, None], denominators, redo

    def _doubtful(self, values: Array, denominators: Array, sums: Array) -> Indices:
        """Rows that underflow, or whose denominator is below the promise of 004 eq. (147)."""
        tiny = float(np.finfo(values.dtype).tiny) ** 0.5
        redo = sums < tiny
        check = np.flatnonzero(~redo & (denominators < sums * self.guard))
        if check.size:
            rows = values[check]
            floor = np.einsum("ij,ij->i", rows, rows) / rows.max(axis=1)
            redo[check[denominators[check] < floor * self.guard]] = True
        return np.flatnonzero(redo)


class LayeredDistance:
    """A chain of machines, prepared once and asked many times."""

    def __init__(self, layers: "list[KernelAffineHullMachine]") -> None:
        self.encoding = layers[0].encoding_
        self.basis = head_basis(self.encoding.components, layers[0].coefficients_)
        self.layers = [_Layer(machine, self.basis) for machine in layers]

    def __call__(self, Y: Array, cutoff: Array | None) -> Array:
        """Squared distance of each row to the nearest image, or infinity from the cutoff on."""
        n_codes = self.layers[0].kernel.n_codes
        return nearest_in_chunks(self._nearest, Y, cutoff, n_codes)

    def _nearest(self, Y: Array, limit: Array) -> Array:
        centred = self.encoding.centre(Y)
        outside = self.encoding.inactive_energy(Y)
        head = centred @ self.basis
        coordinates: Array = head
        best = np.full(Y.shape[0], np.inf, dtype=Y.dtype)
        for layer in self.layers:
            codes = self.encoding.whiten(coordinates[:, : self.encoding.n_components])
            values, images, denominators, redo = layer.look(codes)
            if redo.size:
                offsets = layer.machine.offset(codes[redo, : layer.machine.n_components_])
                images[redo] = offsets @ self.basis
                lower(best, redo, centred[redo] - offsets, outside)
            alive = may_win(head - images, outside, np.minimum(best, limit))
            alive[redo] = False
            rows = np.flatnonzero(alive)
            if rows.size:
                chosen = values if rows.size == len(values) else values[rows]
                product = chosen @ layer.machine.coefficients_
                product /= denominators[rows, None]
                np.subtract(centred[rows], product, out=product)
                lower(best, rows, product, outside)
            coordinates = images
        return best


_prepared: "WeakKeyDictionary[KernelAffineHullMachine, LayeredDistance]" = WeakKeyDictionary()


def layered_distance(
    layers: "list[KernelAffineHullMachine]", Y: Array, cutoff: Array | None = None
) -> Array:
    """Distance of each row of ``Y`` to the nearest of its images in the chain (004 eq. 53).

    Parameters
    ----------
    layers : list of fitted machines
        A chain made by `KernelAffineHullMachine.next_layer`.
    Y : ndarray of shape (m, p)
        Queries, in the precision of the machines.
    cutoff : ndarray of shape (m,), optional
        Rows whose distance is not below it may be answered with infinity.
    """
    chain = _prepared.get(layers[0])
    if chain is None or len(chain.layers) != len(layers):
        chain = _prepared[layers[0]] = LayeredDistance(layers)
    Y = np.asarray(Y, dtype=layers[0].codes_.dtype)
    return np.asarray(np.sqrt(chain(Y, cutoff)))

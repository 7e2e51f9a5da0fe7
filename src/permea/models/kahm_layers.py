"""Distances through a chain of kernel affine hull machines, with less work than the definition.

All machines of a chain share one encoding, so a query is projected once. Its image is compared
first in a few coordinates only: the code and some further directions, together the *head*. That
partial distance is a lower bound of the distance (a sum of squares only grows), so a row whose
partial distance already reaches the cutoff is done. The full products are formed for the rest.
"""

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

import numpy as np

from permea.models.base import Array, Indices
from permea.models.kernel import KernelRows

if TYPE_CHECKING:
    from permea.models.kahm import KernelAffineHullMachine

_CHUNK_ENTRIES = 2_000_000  # kernel values held at once: bounds the memory of every query
_HEAD = 96  # directions beside the code in a first look
_SLACK = 64  # rounding errors, in units of machine precision, that a bound leaves room for


def query_chunks(n_rows: int, n_codes: int) -> list[slice]:
    """Slices of queries whose kernel values stay within the memory bound."""
    size = max(1, min(1024, _CHUNK_ENTRIES // max(n_codes, 1)))
    return [slice(start, start + size) for start in range(0, n_rows, size)]


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
        self.basis = _head_basis(layers[0])
        self.layers = [_Layer(machine, self.basis) for machine in layers]

    def __call__(self, Y: Array, cutoff: Array | None) -> Array:
        """Squared distance of each row to the nearest image, or infinity from the cutoff on."""
        best = np.full(Y.shape[0], np.inf, dtype=Y.dtype)
        limit = best if cutoff is None else np.square(cutoff, dtype=np.float64).astype(Y.dtype)
        for rows in query_chunks(Y.shape[0], self.layers[0].kernel.n_codes):
            best[rows] = self._nearest(Y[rows], limit[rows])
        return best

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
                _lower(best, redo, centred[redo] - offsets, outside)
            alive = self._alive(head - images, outside, np.minimum(best, limit))
            alive[redo] = False
            rows = np.flatnonzero(alive)
            if rows.size:
                chosen = values if rows.size == len(values) else values[rows]
                product = chosen @ layer.machine.coefficients_
                product /= denominators[rows, None]
                np.subtract(centred[rows], product, out=product)
                _lower(best, rows, product, outside)
            coordinates = images
        return best

    def _alive(self, difference: Array, outside: Array, limit: Array) -> Array:
        """Rows whose distance in the head alone does not yet reach the limit."""
        partial = np.einsum("ij,ij->i", difference, difference) + outside
        slack = _SLACK * float(np.finfo(partial.dtype).eps)
        return np.asarray(partial * (1 - slack) <= limit)


def _lower(best: Array, rows: Indices, difference: Array, outside: Array) -> None:
    """Lower the best squared distance of some rows to that of a new difference."""
    squared = np.einsum("ij,ij->i", difference, difference) + outside[rows]
    best[rows] = np.minimum(best[rows], squared)


def _head_basis(machine: "KernelAffineHullMachine") -> Array:
    """Orthonormal directions for a first look: the code's, and where coefficients are largest."""
    components = machine.encoding_.components
    p, n = components.shape
    if p <= 2 * (n + _HEAD):
        return components
    A = machine.coefficients_
    start = np.random.default_rng(0).standard_normal((p, _HEAD)).astype(A.dtype)
    extra = A.T @ (A @ start)
    for _ in range(2):
        extra -= components @ (components.T @ extra)
        extra, _ = np.linalg.qr(extra)
    return np.ascontiguousarray(np.column_stack([components, extra]))


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

"""Two circuits for arg min over classes of the minimum over parties, on packed BFV ciphertexts.

Both end in one number per (query, class) that is zero exactly for the winning class; a uniform
non-zero mask makes all the others uniform on 1..t−1 (t is prime), so the asker learns the label and
nothing else: neither a distance, nor the runner-up, nor which party won. Ties go to the lowest
class index. Codes lie in 0..2^bits − 2 (`quantise.infinity_code`).

`Thermometer` is linear in the number of parties and exponential in bits; `Pairs` compares all pairs
of candidates bit by bit and is quadratic in parties and linear in bits. `docs/proofs/encryption.md`
proves both.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .engine import Engine

Slots = NDArray[np.uint64]
Runner = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], list[Any]]


def _log2(count: int) -> int:
    """⌈log₂ count⌉."""
    return (count - 1).bit_length()


@dataclass(frozen=True)
class Circuit(ABC):
    """Layout and evaluation for fixed public numbers in a ring of `degree`."""

    degree: int
    n_parties: int
    n_classes: int
    bits: int

    name: ClassVar[str]

    @property
    def row(self) -> int:
        """Slots that one rotation cycles through; a ciphertext has two such rows."""
        return self.degree // 2

    @property
    @abstractmethod
    def fits(self) -> bool:
        """Whether one query fits into a row."""

    @property
    @abstractmethod
    def levels(self) -> int:
        """Multiplicative depth before the mask."""

    @property
    @abstractmethod
    def largest_value(self) -> int:
        """Largest number that must stay below the plaintext modulus."""

    @property
    @abstractmethod
    def addition_bits(self) -> int:
        """Bits of noise that sums can add."""

    @property
    @abstractmethod
    def batch(self) -> int:
        """Queries per ciphertext."""

    @property
    @abstractmethod
    def rotations(self) -> list[int]:
        """Every rotation that is used; keys exist for these only."""

    @property
    @abstractmethod
    def multiplications(self) -> int:
        """Ciphertext products per batch."""

    @property
    @abstractmethod
    def ciphertexts(self) -> int:
        """Ciphertexts per party and batch."""

    @property
    def results(self) -> int:
        """Ciphertexts of the result per batch."""
        return 1

    @abstractmethod
    def encode(self, codes: NDArray[np.int64]) -> list[Slots]:
        """Slots that a party encrypts for one batch, codes of shape (batch, classes)."""

    @abstractmethod
    def evaluate(
        self, engine: Engine, run: Runner, parties: list[list[bytes]], n_queries: int
    ) -> list[bytes]:
        """One batch of all parties to sealed results."""

    @abstractmethod
    def positions(self, n_queries: int) -> NDArray[np.intp]:
        """Place of (query, class) in the concatenated result slots, shape (n_queries, classes)."""

    def _spread(self, n_queries: int) -> NDArray[np.intp]:
        """Row and column of each query of a batch, as shape (2, n_queries)."""
        return np.stack(np.divmod(np.arange(n_queries), self.batch // 2))


# ---- thermometer ---------------------------------------------------------------------------------
def minimum_over_parties(
    engine: Engine, party_parts: Sequence[bytes], shift: int
) -> tuple[bytes, ...]:
    """M = ∏ over parties of T (level 1), with U = 1 − M and U moved by one threshold."""
    M = engine.product([engine.load(part) for part in party_parts], remaining=1)
    U = engine.one_minus(M)
    return tuple(bytes(x.to_string()) for x in (M, U, engine.rotate(U, shift)))


def excess_over_rivals(
    engine: Engine, M: bytes, rivals: bytes, stride: int, count: int, positions: NDArray[np.bool_]
) -> bytes:
    """Mask · Σ_v M[v] · rivals[v]."""
    terms = engine.at_level(engine.multiply(engine.load(M), engine.load(rivals)), 0)
    total = engine.cyclic_sum(terms, stride, count)
    return bytes(engine.mask(total, positions).to_string())


def running_sums(engine: Engine, terms: Sequence[Any]) -> list[Any]:
    """Sums of the first 1, 2, … terms."""
    sums = list(terms[:1])
    for term in terms[1:]:
        sums.append(engine.add([sums[-1], term]))
    return sums


def evaluate_batch(
    engine: Engine, circuit: Circuit, parties: list[list[bytes]], n_queries: int
) -> list[bytes]:
    """A whole batch in one process."""
    return circuit.evaluate(
        engine, lambda task, calls: [task(engine, *args) for args in calls], parties, n_queries
    )


class Thermometer(Circuit):
    """Thermometer codes: a distance a is the vector T[v] = [a ≥ v], v = 0, …, 2^bits − 1.

    Slots hold (threshold, query), one ciphertext per class. The minimum over parties is the product
    M_c[v] = ∏ᵢ T_ic[v] = [m_c ≥ v], and with U = 1 − M

        rank_c = Σ_v M_c[v] (Σ_{d>c} U_d[v] + Σ_{d<c} U_d[v+1])
               = Σ_{d>c} max(m_c − m_d, 0) + Σ_{d<c} max(m_c + 1 − m_d, 0),

    which is zero iff c wins. Depth ⌈log₂ parties⌉ + 1.
    """

    name = "thermometer"

    @property
    def fits(self) -> bool:
        """Whether one query fits into a row."""
        return self.thresholds <= self.row

    @property
    def thresholds(self) -> int:
        """Number of thresholds, 2^bits."""
        return int(2**self.bits)

    @property
    def levels(self) -> int:
        """Multiplicative depth before the mask."""
        return _log2(self.n_parties) + 1

    @property
    def largest_value(self) -> int:
        """Largest number that must stay below the plaintext modulus."""
        return (self.n_classes - 1) * self.thresholds

    @property
    def addition_bits(self) -> int:
        """Bits of noise that sums can add."""
        return _log2(self.n_classes) + self.bits + _log2(min(self.n_classes, self.thresholds))

    @property
    def batch(self) -> int:
        """Queries per ciphertext."""
        return 2 * (self.row // self.thresholds)

    @property
    def rotations(self) -> list[int]:
        """Every rotation that is used."""
        width = self.batch // 2
        return [width << power for power in range(self.bits)]

    @property
    def multiplications(self) -> int:
        """Ciphertext products per batch."""
        return self.n_classes * self.n_parties

    @property
    def ciphertexts(self) -> int:
        """Ciphertexts per party and batch."""
        return self.n_classes

    @property
    def results(self) -> int:
        """Ciphertexts of the result per batch."""
        return -(-self.n_classes // self.thresholds)

    def encode(self, codes: NDArray[np.int64]) -> list[Slots]:
        """Slots that a party encrypts for one batch."""
        thresholds = np.arange(self.thresholds)[None, :, None]
        planes = []
        for column in codes.T:
            reached = column.reshape(2, 1, self.batch // 2) >= thresholds
            planes.append(reached.astype(np.uint64).ravel())
        return planes

    def positions(self, n_queries: int) -> NDArray[np.intp]:
        """Place of (query, class) in the result slots."""
        half, place = self._spread(n_queries)[:, :, None]
        result, threshold = np.divmod(np.arange(self.n_classes), self.thresholds)
        slot = half * self.row + threshold * (self.batch // 2) + place
        return np.asarray(result * self.degree + slot, dtype=np.intp)

    def evaluate(
        self, engine: Engine, run: Runner, parties: list[list[bytes]], n_queries: int
    ) -> list[bytes]:
        """One batch of all parties to sealed results."""
        width = self.batch // 2
        per_class = [([party[c] for party in parties], width) for c in range(self.n_classes)]
        minima = run(minimum_over_parties, per_class)
        U = [engine.load(item[1]) for item in minima]
        shifted = [engine.load(item[2]) for item in minima]
        where = self.positions(n_queries)
        later, earlier = running_sums(engine, U[:0:-1])[::-1], running_sums(engine, shifted[:-1])
        tasks = []
        for c in range(self.n_classes):
            rivals = engine.add(later[c : c + 1] + earlier[max(c - 1, 0) : c])
            chosen = np.zeros(self.degree, dtype=bool)
            chosen[where[:, c] % self.degree] = True
            tasks.append((minima[c][0], bytes(rivals.to_string()), width, self.thresholds, chosen))
        masked = [engine.load(item) for item in run(excess_over_rivals, tasks)]
        groups = range(0, self.n_classes, self.thresholds)
        return [engine.seal_result(engine.add(masked[g : g + self.thresholds])) for g in groups]


# ---- all pairs -----------------------------------------------------------------------------------
def greater(engine: Engine, left: Sequence[bytes], right: Sequence[bytes], remaining: int) -> bytes:
    """[a > b] in every slot from bit planes, most significant first.

    Per bit ab = a·b, greater = a − ab, equal = 1 − a − b + 2ab; then neighbours are combined by
    greater = greater_high + equal_high · greater_low, equal = equal_high · equal_low.
    """
    row: list[tuple[Any, Any]] = []
    level = remaining + _log2(len(left))
    for a_bytes, b_bytes in zip(left, right, strict=True):
        a, b = (engine.at_level(engine.load(x), level + 1) for x in (a_bytes, b_bytes))
        ab = engine.multiply(a, b)
        above = engine.subtract(a, ab)
        equal = engine.one_minus(engine.add([above, engine.subtract(b, ab)]))
        row.append((above, equal))
    while len(row) > 1:
        row = [(engine.at_level(g, level), e and engine.at_level(e, level)) for g, e in row]
        merged: list[tuple[Any, Any]] = []
        for index in range(0, len(row) - 1, 2):
            (above, equal), (low_above, low_equal) = row[index : index + 2]
            lowest = index + 2 == len(row)
            both = None if lowest else engine.multiply(equal, low_equal)
            merged.append((engine.add([above, engine.multiply(equal, low_above)]), both))
        row = merged + row[len(row) & ~1 :]
        level -= 1
    return bytes(engine.at_level(row[0][0], remaining).to_string())


class Pairs(Circuit):
    """All pairs of candidates: slots hold (rival class d, class c, query), one ciphertext per bit.

    Party i's class c is beaten by party j's class d iff a_ic + [d < c] > a_jd; the number of rivals
    that beat it is its rank, and rank_c = ∏ᵢ rank_ic is zero iff class c wins through any party.
    Depth 1 + ⌈log₂ bits⌉ + ⌈log₂ parties⌉.
    """

    name = "pairs"

    @property
    def fits(self) -> bool:
        """Whether one query fits into a row."""
        return self.batch > 0

    @property
    def rivals(self) -> int:
        """Number of classes, padded to a power of two so that sums over rivals are cyclic."""
        return int(2 ** _log2(self.n_classes))

    @property
    def levels(self) -> int:
        """Multiplicative depth before the mask."""
        return 1 + _log2(self.bits) + _log2(self.n_parties)

    @property
    def largest_value(self) -> int:
        """Largest number that must stay below the plaintext modulus."""
        return self.n_parties * (self.n_classes - 1)

    @property
    def addition_bits(self) -> int:
        """Bits of noise that sums can add."""
        return _log2(self.n_parties) + _log2(self.rivals) + _log2(self.bits)

    @property
    def batch(self) -> int:
        """Queries per ciphertext."""
        return 2 * (self.row // self.rivals // self.n_classes)

    @property
    def rotations(self) -> list[int]:
        """Every rotation that is used."""
        stride = self.row // self.rivals
        return [stride << power for power in range(_log2(self.n_classes))]

    @property
    def multiplications(self) -> int:
        """Ciphertext products per batch."""
        merges = 2 * (self.bits - 1) - _log2(self.bits)
        return self.n_parties**2 * (self.bits + merges) + self.n_parties - 1

    @property
    def ciphertexts(self) -> int:
        """Ciphertexts per party and batch."""
        return 2 * self.bits

    def encode(self, codes: NDArray[np.int64]) -> list[Slots]:
        """Slots that a party encrypts for one batch."""
        place = self.batch // 2
        rival, own = np.arange(self.rivals)[:, None], np.arange(self.n_classes)[None, :]
        halves = codes.reshape(2, place, self.n_classes).transpose(0, 2, 1)  # row, class, query
        left = halves[:, None] + (rival < own)[None, :, :, None]
        sentinel = np.full((2, self.rivals, 1, place), 2**self.bits - 1)  # beats nobody
        sentinel[:, : self.n_classes, 0] = halves
        right = np.broadcast_to(sentinel, left.shape).copy()
        right[:, rival[: self.n_classes, 0], own[0]] = (
            2**self.bits - 1
        )  # a class is no rival of itself
        planes = []
        for values in (left, right):
            flat = np.zeros((2, self.rivals, self.row // self.rivals), dtype=np.int64)
            flat[:, :, : self.n_classes * place] = values.reshape(2, self.rivals, -1)
            shifts = range(self.bits - 1, -1, -1)
            planes += [((flat >> s) & 1).astype(np.uint64).ravel() for s in shifts]
        return planes

    def positions(self, n_queries: int) -> NDArray[np.intp]:
        """Place of (query, class) in the result slots."""
        half, place = self._spread(n_queries)[:, :, None]
        slot = half * self.row + np.arange(self.n_classes) * (self.batch // 2) + place
        return np.asarray(slot, dtype=np.intp)

    def evaluate(
        self, engine: Engine, run: Runner, parties: list[list[bytes]], n_queries: int
    ) -> list[bytes]:
        """One batch of all parties to sealed results."""
        bits, after = self.bits, _log2(self.n_parties)
        tasks = [(x[:bits], y[bits:], after) for x in parties for y in parties]
        beaten = [engine.load(item) for item in run(greater, tasks)]
        stride, n = self.row // self.rivals, self.n_parties
        ranks = [
            engine.cyclic_sum(engine.add(beaten[i * n : (i + 1) * n]), stride, self.rivals)
            for i in range(n)
        ]
        chosen = np.zeros(self.degree, dtype=bool)
        chosen[self.positions(n_queries)] = True
        return [engine.seal_result(engine.mask(engine.product(ranks, remaining=0), chosen))]


CIRCUITS: dict[str, type[Circuit]] = {"thermometer": Thermometer, "pairs": Pairs}


def cost(circuit: Circuit, n_primes: int) -> float:
    """Work per query in the unit of one butterfly pass, to choose between circuits."""
    return (
        circuit.multiplications
        * circuit.degree
        * math.log2(circuit.degree)
        * n_primes
        / circuit.batch
    )

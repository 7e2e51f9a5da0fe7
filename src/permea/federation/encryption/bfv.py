"""Default scheme: BFV with public-key encryption and SIMD packing (seal-python).

Two circuits compute arg min over classes of the minimum over parties on packed ciphertexts. Both
end in one number per (query, class) that is zero exactly for the winning class; a uniform non-zero
mask makes all the others uniform on 1..t−1 (t is prime), so the key holder learns the label and
nothing else: neither a distance, nor the runner-up, nor which party won. Ties go to the lowest
class index. Codes lie in 0..2^bits − 2 (`infinity_code`).

`Thermometer` is linear in the number of parties and exponential in bits; `Pairs` compares all pairs
of candidates bit by bit and is quadratic in parties and linear in bits. `docs/proofs/encryption.md`
proves both.
"""

import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from permea.federation.encryption import engine as seal_engine
from permea.federation.encryption.engine import RINGS, Engine, Parameters
from permea.federation.encryption.scheme import (
    DamagedMessageError,
    EncryptionError,
    EvaluationKey,
    MismatchError,
    PublicKey,
    Scheme,
    SecretKey,
    WrongKeyError,
)

Slots = NDArray[np.uint64]
Runner = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], list[Any]]


def _log2(count: int) -> int:
    """⌈log₂ count⌉."""
    return (count - 1).bit_length()


class Circuit(ABC):
    """Layout and evaluation for fixed public numbers in a ring of `degree`."""

    name: ClassVar[str]
    batch: int  #: queries per ciphertext; 0 when not even one fits
    levels: int  #: multiplicative depth before the mask
    largest_value: int  #: largest number that must stay below the plaintext modulus
    addition_bits: int  #: bits of noise that sums can add
    rotations: list[int]  #: every rotation that is used; keys exist for these only
    multiplications: int  #: ciphertext products per batch
    ciphertexts: int  #: ciphertexts per party and batch
    results: int = 1  #: ciphertexts of the result per batch

    def __init__(self, degree: int, n_parties: int, n_classes: int, bits: int) -> None:
        self.degree, self.n_parties, self.n_classes, self.bits = degree, n_parties, n_classes, bits
        self.row = degree // 2  # slots that one rotation cycles through; a ciphertext has two rows

    @abstractmethod
    def encode(self, codes: NDArray[np.int64]) -> list[Slots]:
        """Slots that a party encrypts for one batch, codes of shape (batch, classes)."""

    @abstractmethod
    def evaluate(
        self, engine: Engine, run: Runner, parties: list[list[bytes]], n_queries: int
    ) -> list[bytes]:
        """One batch of all parties to results that the key holder can decrypt."""

    @abstractmethod
    def positions(self, n_queries: int) -> NDArray[np.intp]:
        """Place of (query, class) in the concatenated result slots, shape (n_queries, classes)."""

    def cost(self, n_primes: int) -> float:
        """Work per batch in the unit of one butterfly pass, to choose between circuits."""
        return self.multiplications * self.degree * math.log2(self.degree) * n_primes

    def _row_and_column(self, n_queries: int) -> NDArray[np.intp]:
        """Row and column of each query of a batch, shape (2, n_queries, 1)."""
        return np.stack(np.divmod(np.arange(n_queries), self.batch // 2))[:, :, None]


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

    def __init__(self, degree: int, n_parties: int, n_classes: int, bits: int) -> None:
        super().__init__(degree, n_parties, n_classes, bits)
        self.thresholds = int(2**bits)
        width = self.row // self.thresholds
        self.batch = 2 * width
        self.levels = _log2(n_parties) + 1
        self.largest_value = (n_classes - 1) * self.thresholds
        self.addition_bits = _log2(n_classes) + bits + _log2(min(n_classes, self.thresholds))
        self.rotations = [width << power for power in range(bits)]
        self.multiplications = n_classes * n_parties
        self.ciphertexts = n_classes
        self.results = -(-n_classes // self.thresholds)

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
        half, place = self._row_and_column(n_queries)
        result, threshold = np.divmod(np.arange(self.n_classes), self.thresholds)
        slot = half * self.row + threshold * (self.batch // 2) + place
        return np.asarray(result * self.degree + slot, dtype=np.intp)

    def evaluate(
        self, engine: Engine, run: Runner, parties: list[list[bytes]], n_queries: int
    ) -> list[bytes]:
        """One batch of all parties to results that the key holder can decrypt."""
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
        return [engine.finish(engine.add(masked[g : g + self.thresholds])) for g in groups]


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

    def __init__(self, degree: int, n_parties: int, n_classes: int, bits: int) -> None:
        super().__init__(degree, n_parties, n_classes, bits)
        self.rivals = int(2 ** _log2(n_classes))  # a power of two, so that sums are cyclic
        stride = self.row // self.rivals
        self.batch = 2 * (stride // n_classes)
        self.levels = 1 + _log2(bits) + _log2(n_parties)
        self.largest_value = n_parties * (n_classes - 1)
        self.addition_bits = _log2(n_parties) + _log2(self.rivals) + _log2(bits)
        self.rotations = [stride << power for power in range(_log2(n_classes))]
        merges = 2 * (bits - 1) - _log2(bits)
        self.multiplications = n_parties**2 * (bits + merges) + n_parties - 1
        self.ciphertexts = 2 * bits

    def encode(self, codes: NDArray[np.int64]) -> list[Slots]:
        """Slots that a party encrypts for one batch."""
        place = self.batch // 2
        rival, own = np.arange(self.rivals)[:, None], np.arange(self.n_classes)[None, :]
        halves = codes.reshape(2, place, self.n_classes).transpose(0, 2, 1)  # row, class, query
        left = halves[:, None] + (rival < own)[None, :, :, None]
        sentinel = np.full((2, self.rivals, 1, place), 2**self.bits - 1)  # beats no candidate
        sentinel[:, : self.n_classes, 0] = halves
        right = np.broadcast_to(sentinel, left.shape).copy()
        right[:, rival[: self.n_classes, 0], own[0]] = 2**self.bits - 1  # no rival of itself
        planes = []
        for values in (left, right):
            flat = np.zeros((2, self.rivals, self.row // self.rivals), dtype=np.int64)
            flat[:, :, : self.n_classes * place] = values.reshape(2, self.rivals, -1)
            shifts = range(self.bits - 1, -1, -1)
            planes += [((flat >> s) & 1).astype(np.uint64).ravel() for s in shifts]
        return planes

    def positions(self, n_queries: int) -> NDArray[np.intp]:
        """Place of (query, class) in the result slots."""
        half, place = self._row_and_column(n_queries)
        slot = half * self.row + np.arange(self.n_classes) * (self.batch // 2) + place
        return np.asarray(slot, dtype=np.intp)

    def evaluate(
        self, engine: Engine, run: Runner, parties: list[list[bytes]], n_queries: int
    ) -> list[bytes]:
        """One batch of all parties to results that the key holder can decrypt."""
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
        return [engine.finish(engine.mask(engine.product(ranks, remaining=0), chosen))]


CIRCUITS: dict[str, type[Circuit]] = {"thermometer": Thermometer, "pairs": Pairs}


def plan(
    circuit: type[Circuit], n_parties: int, n_classes: int, bits: int
) -> tuple[Circuit, Parameters] | None:
    """Smallest secure ring in which a circuit fits, or None."""
    for degree in RINGS:
        layout = circuit(degree, n_parties, n_classes, bits)
        if layout.batch:
            parameters = seal_engine.choose(
                degree,
                levels=layout.levels,
                largest_value=layout.largest_value,
                addition_bits=layout.addition_bits,
            )
            if parameters is not None:
                return layout, parameters
    return None


def fastest_circuit(n_parties: int, n_classes: int, bits: int, n_queries: int | None = None) -> str:
    """Name of the fastest circuit for ``n_queries``; None: the one with the highest throughput.

    Examples
    --------
    >>> fastest_circuit(10, 2, 12, n_queries=4), fastest_circuit(10, 2, 12, n_queries=4000)
    ('thermometer', 'pairs')
    """
    work = {}
    for name, kind in CIRCUITS.items():
        if (found := plan(kind, n_parties, n_classes, bits)) is not None:
            layout, chosen = found
            n_batches = 1 / layout.batch if n_queries is None else -(-n_queries // layout.batch)
            work[name] = layout.cost(chosen.n_primes) * n_batches
    return min(work, key=work.__getitem__, default="thermometer")


@dataclass(frozen=True, kw_only=True)
class BFV(Scheme):
    """Encrypted arg min with BFV at 128-bit security.

    Parameters
    ----------
    n_parties, n_classes, bits, scale, n_jobs
        See `Scheme`. `n_jobs` processes share the evaluation.
    circuit : {"auto", "thermometer", "pairs"}, default="auto"
        "auto" takes the one with the higher throughput.

    Formal guarantees
    -----------------
    Under the ring-LWE assumption at the 128-bit parameters, the aggregator learns nothing about the
    distances from the ciphertexts. What the key holder decrypts is a function of the label and
    fresh uniform masks; its ciphertext is re-randomised and flooded to within 2⁻⁴⁰ in statistical
    distance, for honest-but-curious roles. An aggregator that colludes with the key holder sees
    every distance.

    Examples
    --------
    >>> scheme = BFV(n_parties=2, n_classes=3, bits=4)
    >>> keys = scheme.keygen()                                                     # key holder
    >>> one = scheme.encrypt(keys.public, [[5, 2, 14], [1, 9, 9]], party=0)        # a party
    >>> two = scheme.encrypt(keys.public, [[14, 3, 2], [1, 1, 9]], party=1)        # another
    >>> result = scheme.aggregate(keys.evaluation, [one, two])                     # aggregator
    >>> scheme.decrypt(keys.secret, result)                                        # key holder
    array([1, 0])
    """

    circuit: str = "auto"
    layout: Circuit = field(init=False, repr=False, compare=False)  #: circuit and packing
    seal_parameters: Parameters = field(init=False, repr=False, compare=False)

    name = "bfv"

    def __post_init__(self) -> None:
        super().__post_init__()
        size = (self.n_parties, self.n_classes, self.bits)
        name = fastest_circuit(*size) if self.circuit == "auto" else self.circuit
        if name not in CIRCUITS:
            raise ValueError(
                f"circuit must be 'auto' or one of {list(CIRCUITS)}, got {self.circuit!r}"
            )
        if (found := plan(CIRCUITS[name], *size)) is None:
            raise EncryptionError(
                f"{self.n_parties} parties × {self.n_classes} classes × {self.bits} bits fit into "
                f"no 128-bit parameters of circuit {self.circuit!r}: use fewer bits or parties"
            )
        chosen = {"layout": found[0], "seal_parameters": found[1], "circuit": name}
        for field_name, value in chosen.items():
            object.__setattr__(self, field_name, value)

    @classmethod
    def for_queries(cls, n_queries: int | None, **fields: Any) -> Self:
        """The scheme with the fastest circuit for so many queries; None: many."""
        size = (fields["n_parties"], fields["n_classes"], fields["bits"])
        return cls(**fields, circuit=fastest_circuit(*size, n_queries))

    @property
    def batch(self) -> int:
        """Queries per ciphertext: send multiples of it."""
        return self.layout.batch

    def parameters(self) -> dict[str, Any]:
        """Public parameters, with the circuit."""
        return {**super().parameters(), "circuit": self.circuit}

    def _derived(self) -> list[int]:
        chosen = self.seal_parameters
        return [chosen.degree, chosen.plain_modulus, chosen.prime_bits, chosen.n_primes]

    # ---- key holder ------------------------------------------------------------------------------
    def _keygen(self) -> tuple[list[bytes], list[bytes], list[bytes]]:
        seal = seal_engine.import_seal()
        generator = seal.KeyGenerator(seal_engine.context_of(self.seal_parameters))
        rotation = seal.GaloisKeys()
        generator.create_galois_keys(self.layout.rotations, rotation)
        public = generator.create_public_key().to_string()
        evaluation = [public, generator.create_relin_keys().to_string(), rotation.to_string()]
        return [generator.secret_key().to_string()], [public], evaluation

    def _decrypt(
        self, secret_key: SecretKey, parts: list[bytes], n_queries: int
    ) -> NDArray[np.intp]:
        values = self._open(secret_key, parts, n_queries)
        return np.asarray(np.argmax(values == 0, axis=1), dtype=np.intp)

    def _open(
        self, secret_key: SecretKey, parts: list[bytes], n_queries: int
    ) -> NDArray[np.uint64]:
        """All that is decrypted, (queries, classes): 0 for the winner, uniform elsewhere."""
        per_batch, sizes = self.layout.results, self._batch_sizes(n_queries)
        if len(parts) != per_batch * len(sizes):
            raise MismatchError(
                f"the result has {len(parts)} ciphertexts, expected {per_batch * len(sizes)}"
            )
        slots = seal_engine.decrypt_slots(self.seal_parameters, secret_key.parts[0], parts)
        batches = slots.reshape(len(sizes), -1)
        return np.concatenate([self._read(*batch) for batch in zip(batches, sizes, strict=True)])

    def _read(self, slots: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
        """Values of one batch; each query must have one zero, and all other slots must be empty."""
        where = self.layout.positions(size)
        values: NDArray[np.uint64] = slots[where]
        rest = slots.copy()
        rest[where] = 0
        if rest.any() or (np.count_nonzero(values == 0, axis=1) != 1).any():
            raise WrongKeyError(
                "the decrypted vector is not a masked one-hot vector: wrong key, or ciphertexts "
                "that were not made by this scheme"
            )
        return values

    # ---- party -----------------------------------------------------------------------------------
    def _encrypt(self, public_key: PublicKey, codes: NDArray[np.int64]) -> list[bytes]:
        padded = np.zeros((-(-len(codes) // self.batch), self.batch, self.n_classes), np.int64)
        padded.reshape(-1, self.n_classes)[: len(codes)] = codes
        slots = [plane for batch in padded for plane in self.layout.encode(batch)]
        return seal_engine.encrypt_slots(self.seal_parameters, public_key.parts[0], slots)

    # ---- aggregator ------------------------------------------------------------------------------
    def _public_part(self, evaluation_key: EvaluationKey) -> PublicKey:
        return PublicKey.of(self.fingerprint, evaluation_key.key_id, evaluation_key.parts[:1])

    def _check_parts(self, parts: list[bytes], n_queries: int) -> None:
        expected = self.layout.ciphertexts * len(self._batch_sizes(n_queries))
        if len(parts) != expected:
            raise MismatchError(f"a reply of {len(parts)} ciphertexts, expected {expected}")
        context = seal_engine.context_of(self.seal_parameters)
        for part in parts:
            seal_engine.load_fresh(context, part)

    def _load_key(self, key: EvaluationKey) -> None:
        try:
            Engine(self.seal_parameters, key.parts)
        except (RuntimeError, ValueError) as error:
            raise DamagedMessageError(f"an evaluation key cannot be read: {error}") from None

    def _aggregate(
        self, evaluation_key: EvaluationKey, parties: list[list[bytes]], n_queries: int
    ) -> list[bytes]:
        sizes, each = self._batch_sizes(n_queries), self.layout.ciphertexts
        for party, parts in enumerate(parties):
            if len(parts) != each * len(sizes):
                raise MismatchError(
                    f"party {party} sent {len(parts)} ciphertexts, expected {each * len(sizes)}"
                )
        engine = Engine(self.seal_parameters, evaluation_key.parts)
        tasks = [
            ([parts[index * each : (index + 1) * each] for parts in parties], size)
            for index, size in enumerate(sizes)
        ]
        with self._runner(engine, evaluation_key) as run:
            if len(tasks) >= self.n_jobs:  # a batch per process: no transfers in between
                found = run(evaluate_batch, [(self.layout, *task) for task in tasks])
            else:
                found = [self.layout.evaluate(engine, run, *task) for task in tasks]
        return [result for results in found for result in results]

    @contextmanager
    def _runner(self, engine: Engine, key: EvaluationKey) -> Iterator[Runner]:
        """How tasks run: here, or in processes (seal-python holds the interpreter lock)."""
        if self.n_jobs == 1:
            yield lambda task, calls: [task(engine, *args) for args in calls]
            return
        from joblib import Parallel, delayed

        with tempfile.TemporaryDirectory(prefix="permea-") as folder:
            for index, part in enumerate(key.parts):
                (Path(folder) / str(index)).write_bytes(part)
            head = (self.seal_parameters, key.key_id, folder)
            with Parallel(n_jobs=self.n_jobs, batch_size=1) as pool:

                def run(task: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
                    jobs = (delayed(seal_engine.run_in_worker)(*head, task, args) for args in calls)
                    return list(pool(jobs))

                yield run

    def _batch_sizes(self, n_queries: int) -> list[int]:
        """Queries in each batch."""
        full, rest = divmod(n_queries, self.batch)
        return [self.batch] * full + ([rest] if rest else [])

"""Default scheme: BFV with public-key encryption and SIMD packing (seal-python).

A party knows which of its classes is nearest: it encrypts that one alone, as a number of
``bits + ⌈log₂ classes⌉`` bits, distance first and class last. The smallest number of all parties
then names the arg min over classes of the minimum over parties, ties to the lowest class index.
Two circuits find it on packed ciphertexts. Both end in one number per (query, class) that is zero
exactly for the winning class; a uniform non-zero mask makes all the others uniform on 1..t−1 (t is
prime), so the key holder learns the label and nothing else: neither a distance, nor the runner-up,
nor which party won. Codes lie in 0..2^bits − 2 (`infinity_code`).

`Digits` answers few queries fast, `Bits` many at once. `docs/proofs/encryption.md` proves both.
"""

import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
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
_PRODUCT_COST = 3.5  # a product of ciphertexts in units of a rotation, measured


def _log2(count: int) -> int:
    """⌈log₂ count⌉."""
    return (count - 1).bit_length()


class Circuit(ABC):
    """Layout and evaluation for fixed public numbers in a ring of `degree`.

    Slots are (outer, …, candidate, …, query): every party is a candidate, and a rival of every
    candidate. Both circuits count the rivals that are smaller than a candidate, its rank, in all
    places of the outer dimension, where the classes stand in groups of `spread`.
    """

    name: ClassVar[str]
    spread: int  #: size of the outer dimension
    stride: int  #: slots from one candidate to the next
    batch: int  #: queries per ciphertext; 0 when not even one fits
    levels: int  #: multiplicative depth before the mask
    addition_bits: int  #: bits of noise that sums can add
    rotations: list[int]  #: every rotation that is used; keys exist for these only
    work: float  #: products and rotations per batch, in rotations
    ciphertexts: int  #: ciphertexts per party and batch

    def __init__(self, degree: int, n_parties: int, n_classes: int, bits: int) -> None:
        self.degree, self.n_parties, self.n_classes, self.bits = degree, n_parties, n_classes, bits
        self.row = degree // 2  # slots that one rotation cycles through; a ciphertext has two rows
        self.n_candidates = int(2 ** _log2(n_parties))  # with places that no party fills
        self.width = bits + _log2(n_classes)  # bits of a candidate
        self.largest_value = n_parties

    @property
    def results(self) -> int:
        """Ciphertexts of the result per batch."""
        return -(-self.n_classes // self.spread)

    @abstractmethod
    def encode(self, codes: NDArray[np.int64], party: int) -> list[Slots]:
        """Slots that a party encrypts for one batch, codes of shape (batch, classes)."""

    @abstractmethod
    def ranks(self, engine: Engine, sums: list[Any]) -> Any:
        """Rank of each candidate in all places of the outer dimension."""

    def evaluate(
        self, engine: Engine, parties: Sequence[Sequence[bytes]], n_queries: int
    ) -> list[bytes]:
        """One batch of all parties to results that the key holder can decrypt."""
        sums = [engine.add([engine.load(x) for x in each]) for each in zip(*parties, strict=True)]
        ranks = self.ranks(engine, sums[: -self.results])
        where, results = self.positions(n_queries), []
        for group, other_class in enumerate(sums[-self.results :]):
            left = _log2(self.n_parties)
            factors = engine.add([ranks, engine.at_level(other_class, left)])
            while left:  # the product over the candidates is zero iff one has rank 0 and the class
                left -= 1
                factors = engine.at_level(factors, left + 1)
                factors = engine.multiply(factors, engine.rotate(factors, self.stride << left))
            chosen = np.zeros(self.degree, dtype=bool)
            chosen[where[where // self.degree == group] % self.degree] = True
            results.append(engine.finish(engine.mask(engine.at_level(factors, 0), chosen)))
        return results

    def positions(self, n_queries: int) -> NDArray[np.intp]:
        """Place of (query, class) in the concatenated result slots, shape (n_queries, classes)."""
        half, place = np.stack(np.divmod(np.arange(n_queries), self.batch // 2))[:, :, None]
        group, outer = np.divmod(np.arange(self.n_classes), self.spread)
        slot = half * self.row + outer * (self.row // self.spread) + place
        return np.asarray(group * self.degree + slot, dtype=np.intp)

    def cost(self, n_primes: int) -> float:
        """Work per batch in the unit of one butterfly pass, to choose between circuits."""
        return self.work * self.degree * math.log2(self.degree) * n_primes

    def _candidates(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The nearest class of each query as one number, distance first; shape (2, queries)."""
        nearest = codes.argmin(axis=1)
        numbers = (codes.min(axis=1) << _log2(self.n_classes)) + nearest
        return np.asarray(numbers.reshape(2, -1))

    def _other_class(self, numbers: NDArray[np.int64], party: int) -> list[Slots]:
        """[class of the candidate ≠ c] for each group of classes; 1 where there is no candidate."""
        classes = np.arange(self.results * self.spread).reshape(self.results, 1, self.spread, 1)
        mine = numbers & ((1 << _log2(self.n_classes)) - 1)
        slots = np.zeros((self.results, 2, self.spread, self.row // self.spread), dtype=np.uint64)
        own = party * self.stride
        slots[..., own : own + self.batch // 2] = mine[None, :, None, :] != classes
        if party == 0:
            slots[..., self.n_parties * self.stride : self.n_candidates * self.stride] = 1
        return list(slots.reshape(self.results, -1))


class Digits(Circuit):
    """Candidates as digits, a digit d as unit vector [d = v] and as threshold vector [d < v].

    Slots are (value, digit, candidate, rival, query): one product compares all digits of all
    candidates with those of all rivals, [b < a] = Σ_v [a = v] [b < v] and [a = b] likewise, and
    neighbouring digits are combined by

        greater = greater_high + equal_high · greater_low,  equal = equal_high · equal_low.

    Depth 1 + ⌈log₂ digits⌉ + ⌈log₂ parties⌉.
    """

    name = "digits"

    def __init__(self, degree: int, n_parties: int, n_classes: int, bits: int) -> None:
        super().__init__(degree, n_parties, n_classes, bits)
        pairs, size = self.n_candidates**2, _log2(n_parties)
        fitting: list[tuple[float, int, int, int, int]] = []
        for merges in range(self.width.bit_length()):
            digit_bits = -(-self.width // 2**merges)
            n_products = 1 + (merges > 0) + max(2 * merges - 1, 0)
            n_rotations = digit_bits * (1 + (merges > 0)) + max(2 * merges - 1, 0) + size
            if pairs * 2 ** (merges + digit_bits) <= self.row:
                work = (_PRODUCT_COST * n_products + n_rotations) * (1 + merges + size)
                fitting.append((work, merges, digit_bits, n_products, n_rotations))
        _, self.merges, self.digit_bits, n_products, n_rotations = min(
            fitting, default=(0.0, 0, 0, 0, 0)
        )
        self.n_digits, self.spread = int(2**self.merges), int(2**self.digit_bits)
        queries = self.row // (self.spread * self.n_digits * pairs) if fitting else 0
        self.batch = 2 * queries
        self.stride = self.n_candidates * queries
        self.levels = 1 + self.merges + size
        self.addition_bits = 2 * size + self.digit_bits + self.merges + 2
        self.work = _PRODUCT_COST * n_products + n_rotations
        self.work += self.results * size * (_PRODUCT_COST + 1)
        digit = self.stride * self.n_candidates
        steps = [(queries, size), (self.stride, size), (digit, self.merges)]
        steps.append((self.row // self.spread, self.digit_bits))
        self.rotations = sorted({step << power for step, count in steps for power in range(count)})
        self.ciphertexts = 2 + (self.merges > 0) + self.results

    def encode(self, codes: NDArray[np.int64], party: int) -> list[Slots]:
        """Slots that a party encrypts for one batch."""
        numbers = self._candidates(codes)
        shifts = self.digit_bits * np.arange(self.n_digits)[::-1]  # the leading digit comes first
        digits = (numbers[:, None, :] >> shifts[:, None]) & (self.spread - 1)
        values = np.arange(self.spread)[:, None, None]
        unit, below = digits[:, None] == values, digits[:, None] < values
        shape = (2, self.spread, self.n_digits, self.n_candidates, self.n_candidates, -1)
        planes = np.zeros((3, 2 * self.row), dtype=np.uint64)
        candidate, below_it, equal_to_it = (plane.reshape(shape) for plane in planes)
        candidate[:, :, :, party] = unit[:, :, :, None]
        below_it[:, :, :, :, party] = below[:, :, :, None]
        equal_to_it[:, :, :, :, party] = unit[:, :, :, None]
        return [*planes[: 2 + (self.merges > 0)], *self._other_class(numbers, party)]

    def ranks(self, engine: Engine, sums: list[Any]) -> Any:
        """Rank of each candidate, in the places of the first rival and the first digit."""
        left, queries = self.levels - 1, self.batch // 2
        found = [engine.at_level(engine.multiply(sums[0], other), left) for other in sums[1:]]
        found = [engine.cyclic_sum(x, self.row // self.spread, self.spread) for x in found]
        for merge in range(self.merges):
            above, equal = (engine.at_level(x, left - merge) for x in found)
            step = (self.stride * self.n_candidates) << merge
            found = [engine.add([above, engine.multiply(equal, engine.rotate(above, step))])]
            if merge < self.merges - 1:
                found.append(engine.multiply(equal, engine.rotate(equal, step)))
        ranks = engine.at_level(found[0], _log2(self.n_parties))
        for power in range(_log2(self.n_parties)):
            ranks = engine.add([ranks, engine.rotate(ranks, queries << power)])
        return ranks


class Bits(Circuit):
    """Candidates as bits: slots are (rival, candidate, query), one ciphertext for each bit.

    Per bit ab = a·b, greater = a − ab, equal = 1 − a − b + 2ab; then neighbours are combined as in
    `Digits`. Depth 1 + ⌈log₂(bits + ⌈log₂ classes⌉)⌉ + ⌈log₂ parties⌉.
    """

    name = "bits"

    def __init__(self, degree: int, n_parties: int, n_classes: int, bits: int) -> None:
        super().__init__(degree, n_parties, n_classes, bits)
        size = _log2(n_parties)
        self.spread = self.n_candidates
        self.stride = self.row // self.n_candidates**2
        self.batch = 2 * self.stride
        self.levels = 1 + _log2(self.width) + size
        self.addition_bits = 2 * size + _log2(self.width) + 1
        outer = self.row // self.spread
        self.rotations = sorted(
            {step << power for step in (outer, self.stride) for power in range(size)}
        )
        n_products = 3 * self.width - 2 - _log2(self.width) + self.results * size
        self.work = _PRODUCT_COST * n_products + size * (1 + self.results)
        self.ciphertexts = 2 * self.width + self.results

    def encode(self, codes: NDArray[np.int64], party: int) -> list[Slots]:
        """Slots that a party encrypts for one batch."""
        numbers = self._candidates(codes)
        shape = (2, self.n_candidates, self.n_candidates, self.batch // 2)
        left, right = np.zeros((2, *shape), dtype=np.int64)
        left[:, :, party] = numbers[:, None]
        right[:, party] = numbers[:, None]
        if party == 0:
            right[:, self.n_parties :] = 2**self.width - 1  # smaller than no candidate
        shifts = range(self.width - 1, -1, -1)
        planes = [((x >> s) & 1).astype(np.uint64).ravel() for x in (left, right) for s in shifts]
        return [*planes, *self._other_class(numbers, party)]

    def ranks(self, engine: Engine, sums: list[Any]) -> Any:
        """Rank of each candidate in the places of all rivals."""
        beaten = greater(
            engine, sums[: self.width], sums[self.width :], remaining=_log2(self.n_parties)
        )
        return engine.cyclic_sum(beaten, self.row // self.spread, self.spread)


def greater(engine: Engine, left: Sequence[Any], right: Sequence[Any], remaining: int) -> Any:
    """[a > b] in every slot from bits, most significant first."""
    row: list[tuple[Any, Any]] = []
    level = remaining + _log2(len(left))
    for a, b in zip(left, right, strict=True):
        ab = engine.multiply(a, b)
        above = engine.subtract(a, ab)
        row.append((above, engine.one_minus(engine.add([above, engine.subtract(b, ab)]))))
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
    return engine.at_level(row[0][0], remaining)


CIRCUITS: dict[str, type[Circuit]] = {"bits": Bits, "digits": Digits}


def evaluate_batch(
    engine: Engine, circuit: Circuit, parties: list[list[bytes]], n_queries: int
) -> list[bytes]:
    """A batch in a worker process."""
    return circuit.evaluate(engine, parties, n_queries)


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
    >>> fastest_circuit(3, 10, 12, n_queries=1), fastest_circuit(3, 10, 12, n_queries=4000)
    ('digits', 'bits')
    """
    work = {}
    for name, kind in CIRCUITS.items():
        if (found := plan(kind, n_parties, n_classes, bits)) is not None:
            layout, chosen = found
            n_batches = 1 / layout.batch if n_queries is None else -(-n_queries // layout.batch)
            work[name] = layout.cost(chosen.n_primes) * n_batches
    return min(work, key=work.__getitem__, default="bits")


@dataclass(frozen=True, kw_only=True)
class BFV(Scheme):
    """Encrypted arg min with BFV at 128-bit security.

    Parameters
    ----------
    n_parties, n_classes, bits, scale, n_jobs
        See `Scheme`. `n_jobs` processes share the evaluation.
    circuit : {"auto", "digits", "bits"}, default="auto"
        "auto" takes the one with the higher throughput; `for_queries` the one that is fastest for
        a number of queries.

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
    def _encrypt(self, public_key: PublicKey, codes: NDArray[np.int64], party: int) -> list[bytes]:
        padded = np.zeros((-(-len(codes) // self.batch), self.batch, self.n_classes), np.int64)
        padded.reshape(-1, self.n_classes)[: len(codes)] = codes
        slots = [plane for batch in padded for plane in self.layout.encode(batch, party)]
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
        tasks = [
            (self.layout, [parts[index * each : (index + 1) * each] for parts in parties], size)
            for index, size in enumerate(sizes)
        ]
        if self.n_jobs == 1 or len(tasks) == 1:
            engine = Engine(self.seal_parameters, evaluation_key.parts)
            found = [evaluate_batch(engine, *task) for task in tasks]
        else:
            found = self._in_processes(evaluation_key, tasks)
        return [result for results in found for result in results]

    def _in_processes(self, key: EvaluationKey, tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Results of each batch, from processes: seal-python holds the interpreter lock."""
        from joblib import Parallel, delayed

        with tempfile.TemporaryDirectory(prefix="permea-") as folder:
            for index, part in enumerate(key.parts):
                (Path(folder) / str(index)).write_bytes(part)
            head = (self.seal_parameters, key.key_id, folder, evaluate_batch)
            jobs = (delayed(seal_engine.run_in_worker)(*head, task) for task in tasks)
            return list(Parallel(n_jobs=self.n_jobs, batch_size=1)(jobs))

    def _batch_sizes(self, n_queries: int) -> list[int]:
        """Queries in each batch."""
        full, rest = divmod(n_queries, self.batch)
        return [self.batch] * full + ([rest] if rest else [])

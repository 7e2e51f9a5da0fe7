"""Default scheme: BFV with public-key encryption and SIMD packing (seal-python)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .base import EvaluationKey, PublicKey, Scheme, SecretKey
from .circuits import CIRCUITS, Circuit, Runner, cost, evaluate_batch
from .engine import Engine, load_ciphertext, run_in_worker
from .messages import EncryptionError, MismatchError, WrongKeyError, pack
from .parameters import RINGS, Parameters, choose, context_of, import_seal


def plan(
    circuit: type[Circuit], n_parties: int, n_classes: int, bits: int
) -> tuple[Circuit, Parameters] | None:
    """Smallest secure ring in which a circuit fits, or None."""
    for degree in RINGS:
        layout = circuit(degree, n_parties, n_classes, bits)
        if layout.fits:
            parameters = choose(
                degree,
                levels=layout.levels,
                largest_value=layout.largest_value,
                addition_bits=layout.addition_bits,
            )
            if parameters is not None:
                return layout, parameters
    return None


def fastest_circuit(n_parties: int, n_classes: int, bits: int, n_queries: int) -> str:
    """Name of the circuit that answers ``n_queries`` soonest; "auto" counts full batches instead.

    Examples
    --------
    >>> fastest_circuit(10, 2, 12, n_queries=4), fastest_circuit(10, 2, 12, n_queries=4000)
    ('thermometer', 'pairs')
    """
    found = {name: plan(kind, n_parties, n_classes, bits) for name, kind in CIRCUITS.items()}
    work = {
        name: cost(layout, chosen.n_primes) * layout.batch * -(-n_queries // layout.batch)
        for name, (layout, chosen) in ((n, p) for n, p in found.items() if p is not None)
    }
    if not work:
        raise EncryptionError(f"{n_parties} × {n_classes} × {bits} bits fit into no circuit")
    return min(work, key=work.__getitem__)


@dataclass(frozen=True, kw_only=True)
class BFV(Scheme):
    """Encrypted arg min with BFV at 128-bit security.

    Parameters
    ----------
    n_parties, n_classes, bits, scale, n_jobs
        See `Scheme`. `n_jobs` processes share the evaluation.
    circuit : {"auto", "thermometer", "pairs"}, default="auto"
        See `permea.federation.encryption.circuits`; "auto" takes the one with the higher
        throughput.

    Formal guarantees
    -----------------
    Under the ring-LWE assumption at the 128-bit parameters, the aggregator learns nothing about the
    distances from the ciphertexts. The asker's decrypted slots are a function of the label and
    fresh uniform masks; its ciphertext is re-randomised and flooded to within 2⁻⁴⁰ in statistical
    distance, for honest-but-curious roles. An aggregator that colludes with the asker sees every
    distance.

    Examples
    --------
    >>> scheme = BFV(n_parties=2, n_classes=3, bits=4)
    >>> keys = scheme.keygen()                                                     # asker
    >>> one = scheme.encrypt(keys.public, [[5, 2, 14], [1, 9, 9]], party=0)        # a party
    >>> two = scheme.encrypt(keys.public, [[14, 3, 2], [1, 1, 9]], party=1)        # another
    >>> result = scheme.aggregate(keys.evaluation, [one, two])                     # aggregator
    >>> scheme.decrypt(keys.secret, result)                                        # asker
    array([1, 0])
    """

    circuit: str = "auto"
    _plan: tuple[Circuit, Parameters] = field(init=False, repr=False, compare=False)

    name = "bfv"

    def __post_init__(self) -> None:
        super().__post_init__()
        names = list(CIRCUITS) if self.circuit == "auto" else [self.circuit]
        if not set(names) <= set(CIRCUITS):
            raise ValueError(
                f"circuit must be 'auto' or one of {list(CIRCUITS)}, got {self.circuit!r}"
            )
        size = (self.n_parties, self.n_classes, self.bits)
        plans = [found for name in names if (found := plan(CIRCUITS[name], *size)) is not None]
        if not plans:
            raise EncryptionError(
                f"{self.n_parties} parties × {self.n_classes} classes × {self.bits} bits fit into "
                f"no 128-bit parameters of circuit {self.circuit!r}: use fewer bits or parties"
            )
        best = min(plans, key=lambda found: cost(found[0], found[1].n_primes))
        object.__setattr__(self, "_plan", best)
        object.__setattr__(self, "circuit", best[0].name)

    @classmethod
    def for_queries(cls, n_queries: int | None, **fields: Any) -> Self:
        """The scheme whose circuit answers so many queries soonest; None: many."""
        if n_queries is None:
            return cls(**fields)
        size = (fields["n_parties"], fields["n_classes"], fields["bits"])
        return cls(**fields, circuit=fastest_circuit(*size, n_queries))

    @property
    def layout(self) -> Circuit:
        """Circuit and packing."""
        return self._plan[0]

    @property
    def seal_parameters(self) -> Parameters:
        """Ring and moduli."""
        return self._plan[1]

    @property
    def batch(self) -> int:
        """Queries per ciphertext: ask in multiples of it."""
        return self.layout.batch

    def parameters(self) -> dict[str, Any]:
        """Public parameters, with the circuit."""
        return {**super().parameters(), "circuit": self.circuit}

    def _derived(self) -> list[int]:
        chosen = self.seal_parameters
        return [chosen.degree, chosen.plain_modulus, chosen.prime_bits, chosen.n_primes]

    # ---- asker -----------------------------------------------------------------------------------
    def _keygen(self) -> tuple[list[bytes], list[bytes], list[bytes]]:
        seal = import_seal()
        generator = seal.KeyGenerator(context_of(self.seal_parameters))
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
        """All that the asker sees, (queries, classes): 0 for the winner, uniform elsewhere."""
        seal = import_seal()
        context = context_of(self.seal_parameters)
        decryptor = seal.Decryptor(context, context.from_secret_str(secret_key.parts[0]))
        encoder = seal.BatchEncoder(context)
        per_batch = self.layout.results
        sizes = self._batch_sizes(n_queries)
        if len(parts) != per_batch * len(sizes):
            raise MismatchError(
                f"the result has {len(parts)} ciphertexts, expected {per_batch * len(sizes)}"
            )
        rows = []
        for index, size in enumerate(sizes):
            slots = []
            for part in parts[index * per_batch : (index + 1) * per_batch]:
                ciphertext = load_ciphertext(context, part)
                if decryptor.invariant_noise_budget(ciphertext) < 1:
                    raise WrongKeyError(
                        "the noise covers the result: wrong secret key or damaged evaluation"
                    )
                slots.append(encoder.decode_uint64(decryptor.decrypt(ciphertext)))
            rows.append(self._read(np.concatenate(slots), size))
        return np.concatenate(rows)

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
        seal = import_seal()
        context = context_of(self.seal_parameters)
        encryptor = seal.Encryptor(context, context.from_public_str(public_key.parts[0]))
        encoder = seal.BatchEncoder(context)
        parts = []
        for start in range(0, len(codes), self.batch):
            batch = codes[start : start + self.batch]
            full = np.zeros((self.batch, self.n_classes), dtype=np.int64)
            full[: len(batch)] = batch
            for slots in self.layout.encode(full):
                parts.append(encryptor.encrypt(encoder.encode(slots)).to_string())
        return parts

    # ---- aggregator ------------------------------------------------------------------------------
    def _public_part(self, evaluation_key: EvaluationKey) -> PublicKey:
        header = {"parameters": self.fingerprint, "key": evaluation_key.key_id}
        return PublicKey(pack(PublicKey.kind, header, evaluation_key.parts[:1]))

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
            if len(tasks) >= self.n_jobs:  # a batch per process: nothing travels in between
                found = run(evaluate_batch, [(self.layout, *task) for task in tasks])
            else:
                found = [self.layout.evaluate(engine, run, *task) for task in tasks]
        return [result for results in found for result in results]

    @contextmanager
    def _runner(self, engine: Engine, key: EvaluationKey) -> Iterator[Runner]:
        """How tasks are run: here, or in processes (seal-python holds the interpreter lock)."""
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
                    jobs = (delayed(run_in_worker)(*head, task, args) for args in calls)
                    return list(pool(jobs))

                yield run

    def _batch_sizes(self, n_queries: int) -> list[int]:
        """Queries in each batch."""
        full, rest = divmod(n_queries, self.batch)
        return [self.batch] * full + ([rest] if rest else [])

"""The scheme of 001 ch. 2: TFHE with a bootstrap after every gate (concrete-python).

001 ch. 2 specifies gate-by-gate bootstrapping of cheap functions. Minimum tournaments are slow
there; bitwise elimination needs 2 · candidates + 1 bootstraps per bit: a candidate is *alive* until
some other alive candidate has a 0 where it has a 1, from the top bit down.

**Encryption is secret-key.** The parties share the secret key of the key holder, so that a party or
the key holder who reads the traffic between a party and the aggregator can decrypt it; only the
aggregator cannot. Use ``scheme="bfv"`` where parties must not read one another. No noise is
flooded: the key holder sees the label, and circuit privacy beyond the bootstrapped noise is not
claimed.

concrete-python is published under BSD-3-Clause-Clear, which grants no patent rights: free for
research and prototypes, to be cleared with its vendor for commercial use.
"""

import hashlib
import inspect
import secrets
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from permea.federation.encryption.scheme import (
    DamagedMessageError,
    EvaluationKey,
    Key,
    MismatchError,
    PublicKey,
    Scheme,
    SecretKey,
)

MAX_CANDIDATES = 120  # a table lookup on a count of alive candidates takes at most 7 bits
ERROR_RATE = 2.0**-40  # of a whole circuit


def import_fhe() -> Any:
    """Import concrete-python, or raise an error that names the extra to install."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its import of pkg_resources
            return import_module("concrete.fhe")
    except ImportError as error:
        raise ImportError(
            "scheme='tfhe' needs concrete-python: install it into an environment of its own with "
            "`pip install 'permea[tfhe]'` (it pins numpy<2 and setuptools<81)"
        ) from error


def positive(fhe: Any, largest: int) -> Any:
    """Table of [count > 0] for counts up to `largest`; tables have 2ⁿ entries."""
    return fhe.LookupTable([0] + [1] * (2 ** largest.bit_length() - 1))


def elimination(fhe: Any, n_parties: int, n_classes: int, bits: int) -> Callable[..., Any]:
    """Circuit of one query; argument i holds party i's bit planes, shape (bits, classes)."""
    some = positive(fhe, n_parties * n_classes)
    held = positive(fhe, n_parties)
    before = positive(fhe, n_classes)
    both = fhe.LookupTable([0, 0, 1, 0])  # index alive + (1 − bit): 2 iff alive and the bit is 0
    # index 3·hit + alive + low, low ≤ alive: without a hit all alive stay, with one those of bit 0
    stay = fhe.LookupTable([0, 1, 1, 0, 0, 1, 0, 0])

    def circuit(**parties: Any) -> Any:
        planes = [parties[f"party{i}"] for i in range(n_parties)]
        alive: list[Any] = [None] * n_parties
        for bit in range(bits):
            zeros = [1 - plane[bit] for plane in planes]
            low = [z if a is None else both[a + z] for a, z in zip(alive, zeros, strict=True)]
            count = low[0]
            for other in low[1:]:
                count = count + other
            hit = some[np.sum(count)]
            alive = [
                stay[3 * hit + (1 if a is None else a) + x] for a, x in zip(alive, low, strict=True)
            ]
        count = alive[0]
        for other in alive[1:]:
            count = count + other
        wins = held[count]
        label, seen = 0, 0
        for c in range(n_classes):  # the label is the number of classes before the first winner
            seen = seen + wins[c]
            label = label + (1 - before[seen])
        return label

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [inspect.Parameter(f"party{i}", kind) for i in range(n_parties)]
    circuit.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    return circuit


@lru_cache(maxsize=4)
def compile_circuit(n_parties: int, n_classes: int, bits: int) -> Any:
    """Compile from public numbers only, so that no role runs code that another one sent."""
    fhe = import_fhe()
    function = elimination(fhe, n_parties, n_classes, bits)
    shape = (bits, n_classes)
    generator = np.random.default_rng(0)  # public: the input set only fixes bit widths
    inputs = [tuple(np.full(shape, value) for _ in range(n_parties)) for value in (0, 1)]
    inputs += [tuple(generator.integers(0, 2, shape) for _ in range(n_parties)) for _ in range(200)]
    names = {f"party{i}": "encrypted" for i in range(n_parties)}
    compiler = fhe.Compiler(function, names)
    return compiler.compile(
        inputs, fhe.Configuration(global_p_error=ERROR_RATE, compress_evaluation_keys=True)
    )


@dataclass(frozen=True, kw_only=True)
class TFHE(Scheme):
    """Encrypted arg min with TFHE at 128-bit security.

    Parameters
    ----------
    n_parties, n_classes, bits, scale
        See `Scheme`; n_parties · n_classes ≤ 120. `n_jobs` is ignored: the library uses all cores
        itself.
    """

    name = "tfhe"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_parties * self.n_classes > MAX_CANDIDATES:
            raise ValueError(
                f"tfhe takes at most {MAX_CANDIDATES} candidates, got {self.n_parties} parties × "
                f"{self.n_classes} classes: use scheme='bfv'"
            )

    def _circuit(self) -> Any:
        return compile_circuit(self.n_parties, self.n_classes, self.bits)

    def _keygen(self) -> tuple[list[bytes], list[bytes], list[bytes]]:
        circuit = self._circuit()
        client = import_fhe().Client(circuit.client.specs)
        # the library's default seed is 0: give it one from the operating system instead
        client.keygen(
            force=True, secret_seed=secrets.randbits(128), encryption_seed=secrets.randbits(128)
        )
        specs = bytes(client.specs.serialize())
        shared = [specs, bytes(client.keys.serialize())]
        return shared, shared, [_digest(specs), bytes(client.evaluation_keys.serialize())]

    def _client(self, key: Key) -> Any:
        fhe = import_fhe()
        client = fhe.Client(fhe.ClientSpecs.deserialize(key.parts[0]))
        client.keys = fhe.Keys.deserialize(key.parts[1])
        return client

    def _encrypt(self, public_key: PublicKey, codes: NDArray[np.int64], party: int) -> list[bytes]:
        # The circuit is the same for every party, so the first argument's place serves all of them.
        client = self._client(public_key)
        shifts = np.arange(self.bits - 1, -1, -1)[:, None]
        others = [None] * (self.n_parties - 1)
        parts = []
        for row in codes:
            values = client.encrypt((row[None, :] >> shifts) & 1, *others)
            first = values[0] if self.n_parties > 1 else values
            parts.append(bytes(first.serialize()))
        return parts

    def _aggregate(
        self, evaluation_key: EvaluationKey, parties: list[list[bytes]], n_queries: int
    ) -> list[bytes]:
        fhe, circuit = import_fhe(), self._circuit()
        if evaluation_key.parts[0] != _digest(bytes(circuit.client.specs.serialize())):
            raise MismatchError(
                "the evaluation key was made for another compilation of the circuit: use the same "
                "version of concrete-python on all sides"
            )
        keys = fhe.EvaluationKeys.deserialize(evaluation_key.parts[1])
        results = []
        for query in range(n_queries):
            try:
                values = [fhe.Value.deserialize(parts[query]) for parts in parties]
            except (IndexError, RuntimeError) as error:
                raise DamagedMessageError(f"query {query} cannot be read: {error}") from error
            label = circuit.server.run(*values, evaluation_keys=keys)
            results.append(bytes(label.serialize()))
        return results

    def _decrypt(
        self, secret_key: SecretKey, parts: list[bytes], n_queries: int
    ) -> NDArray[np.intp]:
        client = self._client(secret_key)
        values = [import_fhe().Value.deserialize(part) for part in parts]
        labels = np.array([int(client.decrypt(value)) for value in values], dtype=np.intp)
        if labels.shape != (n_queries,) or labels.min() < 0 or labels.max() >= self.n_classes:
            raise MismatchError("the decrypted labels are not class indices: discard the result")
        return labels


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()

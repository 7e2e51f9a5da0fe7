"""Secure aggregation: one reader learns the sum of many parties' whole numbers, nothing else.

Additive BFV. Numbers modulo 2⁶⁴ are cut into two halves of 32 bits, each half lies in a slot, and a
plaintext modulus above parties · 2³² keeps the sums of halves exact:

    Σ values = Σ low + 2³² Σ high  (mod 2⁶⁴).

The server that adds up sees ciphertexts; the reader that decrypts sees the total only. The two must
not be the same. The sum is re-randomised and flooded, so that its noise is independent of single
summands.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from permea.federation.encryption import (
    DamagedMessageError,
    MismatchError,
    PublicKey,
    SecretKey,
    engine,
)
from permea.federation.encryption.engine import Parameters, context_of, import_seal
from permea.federation.encryption.scheme import pack, require_same, unpack

_DEGREE = 8192
_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)
_PRIMES, _PRIME_BITS = 3, 54  # with the one for keys 216 bits; 218 are 128-bit secure at N = 8192


@dataclass(frozen=True, kw_only=True)
class SecureSum:
    """Sum of one vector per party.

    Parameters
    ----------
    n_parties : int
        Largest number of summands.
    n_values : int
        Length of the vectors.

    Examples
    --------
    >>> import numpy as np
    >>> scheme = SecureSum(n_parties=2, n_values=3)
    >>> secret, public = scheme.keygen()                                     # the reader
    >>> one = scheme.encrypt(public, np.array([1, -2, 2**62]), party=0)      # a party
    >>> two = scheme.encrypt(public, np.array([5, -5, 2**62]), party=1)      # another
    >>> total = scheme.aggregate(public, [one, two])                         # the server
    >>> scheme.decrypt(secret, total).tolist() == [6, -7, -(2**63)]          # modulo 2⁶⁴
    True
    """

    n_parties: int
    n_values: int

    def __post_init__(self) -> None:
        if not 1 <= self.n_parties <= 2**16 or self.n_values < 1:
            raise ValueError("A sum needs 1 to 65536 parties and at least one value.")

    @property
    def parameters(self) -> Parameters:
        """Ring and moduli; the plaintext modulus exceeds every sum of halves."""
        bits = 33 + self.n_parties.bit_length()
        modulus = int(import_seal().PlainModulus.Batching(_DEGREE, bits).value())
        return Parameters(_DEGREE, modulus, _PRIME_BITS, _PRIMES, self.n_parties.bit_length())

    @property
    def _context(self) -> Any:
        return context_of(self.parameters)

    def keygen(self) -> tuple[SecretKey, PublicKey]:
        """Reader: draw a fresh pair of keys."""
        generator = import_seal().KeyGenerator(self._context)
        name = self._name, secrets.token_hex(16)
        secret, public = generator.secret_key(), generator.create_public_key()
        return (
            SecretKey.of(*name, [secret.to_string()]),
            PublicKey.of(*name, [public.to_string()]),
        )

    @property
    def _name(self) -> str:
        return f"sum of {self.n_parties} × {self.n_values}"

    def encrypt(self, public: PublicKey, values: NDArray[np.int64], party: int) -> bytes:
        """Party: encrypt its numbers."""
        self._check(public)
        if values.shape != (self.n_values,) or values.dtype != np.int64:
            raise ValueError(f"a summand must be {self.n_values} whole numbers of 64 bits")
        halves, slots = values.view(np.uint64), np.zeros(self._rows * _DEGREE, dtype=np.uint64)
        slots[: 2 * self.n_values] = np.concatenate([halves & _LOW, halves >> _HALF])
        rows = slots.reshape(self._rows, _DEGREE)
        parts = engine.encrypt_slots(self.parameters, public.parts[0], rows)
        header = {"parameters": self._name, "key": public.key_id, "party": int(party)}
        return pack("summand", header, parts)

    def check_summand(self, public: PublicKey, message: Any, party: int) -> list[Any]:
        """Server: the ciphertexts of a summand, or an error that says why it is none."""
        if not isinstance(message, bytes):
            raise DamagedMessageError("a summand must be bytes")
        header, parts = unpack(message, "summand")
        require_same("the sum", header.get("parameters"), self._name, "sizes must be the same")
        require_same("the key", header.get("key"), public.key_id, "use one key for all")
        require_same("the party", header.get("party"), party, "each party has its own place")
        require_same("the length", len(parts), self._rows, "send the whole vector")
        return [engine.load_fresh(self._context, part) for part in parts]

    def aggregate(self, public: PublicKey, summands: Sequence[bytes]) -> bytes:
        """Server: add up, re-randomise, flood."""
        self._check(public)
        headers = [unpack(message, "summand")[0] for message in summands]
        loaded = [
            self.check_summand(public, message, header.get("party", -1))
            for message, header in zip(summands, headers, strict=True)
        ]
        if len({header["party"] for header in headers}) < max(len(headers), 1):
            raise MismatchError("the sum contains a party twice, or no party at all")
        evaluator = import_seal().Evaluator(self._context)
        key = self._context.from_public_str(public.parts[0])
        encryptor = import_seal().Encryptor(self._context, key)
        results = []
        for terms in zip(*loaded, strict=True):
            total = evaluator.add_many([*terms, encryptor.encrypt_zero(terms[0].parms_id())])
            results.append(engine.flood(self._context, self.parameters, total))
        header = {"parameters": self._name, "key": public.key_id, "summands": len(headers)}
        return pack("sum", header, results)

    def decrypt(self, secret: SecretKey, total: bytes) -> NDArray[np.int64]:
        """Reader: the sum modulo 2⁶⁴."""
        self._check(secret)
        header, parts = unpack(total, "sum")
        require_same("the key of the sum", header["key"], secret.key_id, "use one key for all")
        slots = engine.decrypt_slots(self.parameters, secret.parts[0], parts)
        halves = slots.ravel()[: 2 * self.n_values]
        low, high = halves[: self.n_values], halves[self.n_values :]
        return np.asarray(low + (high << _HALF)).view(np.int64)

    @property
    def _rows(self) -> int:
        return -(-2 * self.n_values // _DEGREE)

    def _check(self, key: SecretKey | PublicKey) -> None:
        what = key.header["parameters"]
        require_same("the purpose of the key", what, self._name, "make keys for this sum")

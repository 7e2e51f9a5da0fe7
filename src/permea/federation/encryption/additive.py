"""Secure aggregation: the sum of many parties' whole numbers, and nothing else, for one reader.

Additive BFV. Numbers modulo 2⁶⁴ are cut into two halves of 32 bits, each half lies in a slot, and a
plaintext modulus above parties · 2³² keeps the sums of halves exact:

    Σ words = Σ low + 2³² Σ high  (mod 2⁶⁴).

Whoever adds up sees ciphertexts; whoever decrypts sees the total alone. The two must not be one.
The sum is re-randomised and flooded, so that its noise tells nothing of single summands.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import PublicKey, SecretKey
from .engine import flood, load_ciphertext
from .messages import MismatchError, WrongKeyError, pack, require_same, unpack
from .parameters import Parameters, context_of, import_seal

Words = NDArray[np.int64]
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
    n_words : int
        Length of the vectors.

    Examples
    --------
    >>> import numpy as np
    >>> scheme = SecureSum(n_parties=2, n_words=3)
    >>> secret, public = scheme.keygen()                                     # who may read the sum
    >>> one = scheme.encrypt(public, np.array([1, -2, 2**62]), party=0)      # a party
    >>> two = scheme.encrypt(public, np.array([5, -5, 2**62]), party=1)      # another
    >>> total = scheme.aggregate(public, [one, two])                         # who adds up
    >>> scheme.decrypt(secret, total).tolist() == [6, -7, -(2**63)]          # modulo 2⁶⁴
    True
    """

    n_parties: int
    n_words: int

    def __post_init__(self) -> None:
        if not 1 <= self.n_parties <= 2**16 or self.n_words < 1:
            raise ValueError("A sum needs 1 to 65536 parties and at least one word.")

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
        header = {"parameters": self._name, "key": secrets.token_hex(16)}
        return (
            SecretKey(pack(SecretKey.kind, header, [generator.secret_key().to_string()])),
            PublicKey(pack(PublicKey.kind, header, [generator.create_public_key().to_string()])),
        )

    @property
    def _name(self) -> str:
        return f"sum of {self.n_parties} × {self.n_words}"

    def encrypt(self, public: PublicKey, words: Words, party: int) -> bytes:
        """Party: encrypt its numbers."""
        self._check(public)
        if words.shape != (self.n_words,) or words.dtype != np.int64:
            raise ValueError(f"a summand must be {self.n_words} whole numbers of 64 bits")
        encryptor, encoder = self._encryptor(public), import_seal().BatchEncoder(self._context)
        slots = self._slots(words.view(np.uint64))
        parts = [encryptor.encrypt(encoder.encode(row)).to_string() for row in slots]
        header = {"parameters": self._name, "key": public.key_id, "party": int(party)}
        return pack("summand", header, parts)

    def aggregate(self, public: PublicKey, summands: Sequence[bytes]) -> bytes:
        """Server: add up, re-randomise, flood."""
        self._check(public)
        opened = [unpack(message, "summand") for message in summands]
        for header, parts in opened:
            require_same("the sum", header["parameters"], self._name, "sizes must be the same")
            require_same("the key", header["key"], public.key_id, "use one key for all")
            require_same("the length", len(parts), self._rows, "send the whole vector")
        if len({header["party"] for header, _ in opened}) < max(len(opened), 1):
            raise MismatchError("a party stands twice in the sum, or nobody does")
        evaluator = import_seal().Evaluator(self._context)
        encryptor = self._encryptor(public)
        results = []
        for row in range(self._rows):
            terms = [load_ciphertext(self._context, parts[row]) for _, parts in opened]
            total = evaluator.add_many([*terms, encryptor.encrypt_zero(terms[0].parms_id())])
            results.append(flood(self._context, self.parameters, total))
        header = {"parameters": self._name, "key": public.key_id, "summands": len(opened)}
        return pack("sum", header, results)

    def decrypt(self, secret: SecretKey, total: bytes) -> Words:
        """Reader: the sum modulo 2⁶⁴."""
        self._check(secret)
        header, parts = unpack(total, "sum")
        require_same("the key of the sum", header["key"], secret.key_id, "use one key for all")
        context = self._context
        decryptor = import_seal().Decryptor(context, context.from_secret_str(secret.parts[0]))
        encoder = import_seal().BatchEncoder(context)
        rows = []
        for part in parts:
            ciphertext = load_ciphertext(context, part)
            if decryptor.invariant_noise_budget(ciphertext) < 1:
                raise WrongKeyError("the noise covers the sum: wrong secret key or damaged sum")
            rows.append(encoder.decode_uint64(decryptor.decrypt(ciphertext)))
        halves = np.concatenate(rows)[: 2 * self.n_words]
        low, high = halves[: self.n_words], halves[self.n_words :]
        return np.asarray(low + (high << _HALF)).view(np.int64)

    @property
    def _rows(self) -> int:
        return -(-2 * self.n_words // _DEGREE)

    def _slots(self, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        slots = np.zeros(self._rows * _DEGREE, dtype=np.uint64)
        slots[: 2 * self.n_words] = np.concatenate([words & _LOW, words >> _HALF])
        return slots.reshape(self._rows, _DEGREE)

    def _encryptor(self, public: PublicKey) -> Any:
        context = self._context
        return import_seal().Encryptor(context, context.from_public_str(public.parts[0]))

    def _check(self, key: SecretKey | PublicKey) -> None:
        what = key.header["parameters"]
        require_same("the purpose of the key", what, self._name, "make keys for this sum")

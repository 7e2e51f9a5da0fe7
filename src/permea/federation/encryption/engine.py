"""BFV by seal-python: parameters of at least 128-bit security, and operations on ciphertexts.

For a circuit of `levels` multiplications the coefficient modulus must hold, in bits,

    fresh encryption + levels · (log₂ t + log₂ N + 1) + additions + mask + flooding + margin,

where the cost of a level was checked against SEAL's noise meter (30 bits measured at N = 16384,
t = 65537, 31 charged). The security level is SEAL's own check (`sec_level_type.tc128`), which
enforces the Homomorphic Encryption Standard's table for ternary secrets: at most 438 bits at
N = 16384 and 881 at N = 32768.

`Engine` is what an aggregator can do with the evaluation keys: multiply, add, rotate, mask, flood.
It cannot decrypt.
"""

import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from permea.federation.encryption.scheme import DamagedMessageError, EncryptionError, WrongKeyError

RINGS = {16384: 438, 32768: 881}  # N: bits of the whole modulus at 128-bit security
PRIME_BITS = 60  # the largest prime that SEAL accepts
FLOOD_BITS = 55  # 2⁻⁴⁰ over at most 2¹⁵ coefficients
FRESH_BITS = 12  # noise of a fresh encryption, or of a modulus switch, before the factor t
MARGIN_BITS = 6
SPARE_BITS = 3  # noise budget that flooding leaves to decryption
_PREFIX = 113  # bytes before the coefficients in an uncompressed SEAL 4 ciphertext


def import_seal() -> Any:
    """Import seal-python, or raise an error that names the extra to install."""
    try:
        return import_module("seal")
    except ImportError as error:
        raise ImportError(
            "scheme='bfv' needs seal-python: install it with `pip install 'permea[encrypted]'`"
        ) from error


def batching_prime(degree: int, above: int) -> int:
    """Smallest prime t > above with t ≡ 1 mod 2N, so that a plaintext has N slots.

    Examples
    --------
    >>> batching_prime(16384, 1000), batching_prime(16384, 98280)
    (65537, 163841)
    """
    value = 2 * degree + 1
    while value <= above or any(value % f == 0 for f in range(3, math.isqrt(value) + 1, 2)):
        value += 2 * degree
    return value


@dataclass(frozen=True)
class Parameters:
    """One secure choice, and how many primes are still needed with r levels to go."""

    degree: int
    plain_modulus: int
    prime_bits: int
    n_primes: int
    addition_bits: int

    def needed_bits(self, remaining: int) -> float:
        """Bits of coefficient modulus that a ciphertext needs with `remaining` levels to go."""
        t, n = math.log2(self.plain_modulus), math.log2(self.degree)
        mask = t + n / 2 + 3
        noise = FRESH_BITS + remaining * (t + n + 1) + self.addition_bits + mask
        return noise + t + FLOOD_BITS + MARGIN_BITS

    def primes_for(self, remaining: int) -> int:
        """Primes to keep with `remaining` levels to go; the rest are dropped, which saves time."""
        return min(self.n_primes, math.ceil(self.needed_bits(remaining) / self.prime_bits))


def choose(
    degree: int, *, levels: int, largest_value: int, addition_bits: int
) -> Parameters | None:
    """Parameters for a circuit in the ring of `degree`, or None when they would not be secure."""
    t = batching_prime(degree, largest_value)
    probe = Parameters(degree, t, PRIME_BITS, 99, addition_bits)
    n_primes = probe.primes_for(levels)
    prime_bits = math.ceil(probe.needed_bits(levels) / n_primes)
    if prime_bits * (n_primes + 1) > RINGS[degree]:
        return None
    return Parameters(degree, t, prime_bits, n_primes, addition_bits)


@lru_cache(maxsize=8)
def context_of(parameters: Parameters) -> Any:
    """SEAL context; SEAL itself refuses anything below 128 bits."""
    seal = import_seal()
    settings = seal.EncryptionParameters(seal.scheme_type.bfv)
    settings.set_poly_modulus_degree(parameters.degree)
    chain = [parameters.prime_bits] * (parameters.n_primes + 1)  # the last one serves key switching
    settings.set_coeff_modulus(seal.CoeffModulus.Create(parameters.degree, chain))
    settings.set_plain_modulus(parameters.plain_modulus)
    context = seal.SEALContext(settings, True, seal.sec_level_type.tc128)
    if not context.parameters_set():
        raise EncryptionError(f"SEAL refuses the parameters: {context.parameter_error_message()}")
    return context


def random_nonzero(modulus: int, size: int) -> NDArray[np.uint64]:
    """Uniform integers of 1..modulus−1 from the operating system's generator, by rejection."""
    bits = (modulus - 1).bit_length()
    found = np.empty(0, dtype=np.uint64)
    while len(found) < size:
        words = np.frombuffer(secrets.token_bytes(8 * 2 * size), dtype=np.uint64) >> np.uint64(
            64 - bits
        )
        found = np.concatenate([found, words[(words > 0) & (words < modulus)]])
    return found[:size]


def load_ciphertext(context: Any, data: bytes) -> Any:
    """Read a ciphertext; SEAL checks that it belongs to the parameters."""
    ciphertext = import_seal().Ciphertext()
    try:
        ciphertext.load_bytes(context, data)
    except (RuntimeError, ValueError) as error:
        raise DamagedMessageError(
            f"a ciphertext cannot be read under these parameters: {error}"
        ) from error
    return ciphertext


def load_fresh(context: Any, data: bytes) -> Any:
    """Read a ciphertext that an encryption made: two polynomials, all primes, not transparent."""
    ciphertext = load_ciphertext(context, data)
    fresh = context.first_context_data().parms_id()
    if ciphertext.size() != 2 or ciphertext.parms_id() != fresh or ciphertext.is_transparent():
        raise DamagedMessageError("a ciphertext is not one that an encryption makes")
    return ciphertext


def encrypt_slots(
    parameters: Parameters, public_key: bytes, rows: Iterable[NDArray[np.uint64]]
) -> list[bytes]:
    """One ciphertext for each vector of slots."""
    seal, context = import_seal(), context_of(parameters)
    encryptor = seal.Encryptor(context, context.from_public_str(public_key))
    encoder = seal.BatchEncoder(context)
    return [bytes(encryptor.encrypt(encoder.encode(row)).to_string()) for row in rows]


def decrypt_slots(
    parameters: Parameters, secret_key: bytes, ciphertexts: Sequence[bytes]
) -> NDArray[np.uint64]:
    """The slots of all ciphertexts, one row for each."""
    seal, context = import_seal(), context_of(parameters)
    decryptor = seal.Decryptor(context, context.from_secret_str(secret_key))
    encoder, rows = seal.BatchEncoder(context), []
    for data in ciphertexts:
        ciphertext = load_ciphertext(context, data)
        if decryptor.invariant_noise_budget(ciphertext) < 1:
            raise WrongKeyError("the noise covers the result: wrong secret key or damaged result")
        rows.append(encoder.decode_uint64(decryptor.decrypt(ciphertext)))
    return np.array(rows, dtype=np.uint64)


def flood(context: Any, parameters: Parameters, ciphertext: Any) -> bytes:
    """Add a uniform integer e with |e| < 2^B to every coefficient of the constant polynomial.

    Decryption reads Δm + v + e. B leaves `SPARE_BITS` of noise budget; the noise v of the
    circuit is FLOOD_BITS smaller (`Parameters.needed_bits`), so v changes the distribution of v
    + e by at most N · 2^(−FLOOD_BITS) in statistical distance.
    """
    data = context.get_context_data(ciphertext.parms_id())
    moduli = [modulus.value() for modulus in data.parms().coeff_modulus()]
    degree, plain = parameters.degree, parameters.plain_modulus
    bits = data.total_coeff_modulus_bit_count() - plain.bit_length() - SPARE_BITS - 1
    message = bytearray(ciphertext.to_string())
    if len(message) != _PREFIX + 2 * len(moduli) * degree * 8:
        raise DamagedMessageError("unknown ciphertext layout: this SEAL version cannot be flooded")
    shape = (len(moduli), degree)
    constant = np.frombuffer(
        message, np.uint64, count=len(moduli) * degree, offset=_PREFIX
    ).reshape(shape)
    width = bits // 8 + 1
    stream = secrets.token_bytes(width * degree)
    drop, centre = 8 * width - (bits + 1), 1 << bits
    noise = [
        (int.from_bytes(stream[i : i + width], "big") >> drop) - centre
        for i in range(0, width * degree, width)
    ]
    for row, modulus in zip(constant, moduli, strict=True):
        residues = np.array([e % modulus for e in noise], dtype=np.uint64)
        row[:] = (row + residues) % np.uint64(modulus)  # both below 2⁶⁰: no overflow
    return bytes(message)


class Engine:
    """Evaluator with keys.

    Parameters
    ----------
    parameters : Parameters
    keys : sequence of bytes
        Public key (to re-randomise results), relinearisation keys and rotation keys.
    """

    def __init__(self, parameters: Parameters, keys: Sequence[bytes]) -> None:
        seal = import_seal()
        self.parameters = parameters
        self.context = context_of(parameters)
        public, relinearisation, rotation = keys
        self._evaluator = seal.Evaluator(self.context)
        self._encoder = seal.BatchEncoder(self.context)
        self._encryptor = seal.Encryptor(self.context, self.context.from_public_str(public))
        self._relinearisation = self.context.from_relin_str(relinearisation)
        self._rotation = self.context.from_galois_str(rotation)

    @cached_property
    def _levels(self) -> dict[int, Any]:
        """Number of primes → SEAL's identifier of that level."""
        levels, data = {}, self.context.first_context_data()
        while data is not None:
            levels[data.chain_index() + 1] = data.parms_id()
            data = data.next_context_data()
        return levels

    def load(self, data: bytes) -> Any:
        """Bytes to ciphertext."""
        return load_ciphertext(self.context, data)

    def multiply(self, left: Any, right: Any) -> Any:
        """Product, back to two polynomials."""
        product = self._evaluator.multiply(left, right)
        return self._evaluator.relinearize(product, self._relinearisation)

    def product(self, factors: Sequence[Any], remaining: int) -> Any:
        """Product by a tree of depth ⌈log₂ n⌉ that ends with `remaining` levels to go."""
        row = list(factors)
        depth = (len(row) - 1).bit_length()
        for level in range(depth, 0, -1):
            row = [self.at_level(factor, remaining + level) for factor in row]
            pairs = [self.multiply(a, b) for a, b in zip(row[::2], row[1::2], strict=False)]
            row = pairs + row[len(row) & ~1 :]
        return self.at_level(row[0], remaining)

    def add(self, terms: Sequence[Any]) -> Any:
        """Sum."""
        return self._evaluator.add_many(list(terms))

    def subtract(self, left: Any, right: Any) -> Any:
        """Difference."""
        return self._evaluator.sub(left, right)

    def one_minus(self, ciphertext: Any) -> Any:
        """1 − x in every slot."""
        one = self._encoder.encode(np.ones(self.parameters.degree, dtype=np.uint64))
        return self._evaluator.add_plain(self._evaluator.negate(ciphertext), one)

    def rotate(self, ciphertext: Any, steps: int) -> Any:
        """Move slot i + steps of each row to slot i, cyclically."""
        return self._evaluator.rotate_rows(ciphertext, steps, self._rotation)

    def cyclic_sum(self, ciphertext: Any, stride: int, count: int) -> Any:
        """Sum of the `count` rotations by multiples of `stride` (count · stride = one row)."""
        while count > 1:
            count //= 2
            ciphertext = self.add([ciphertext, self.rotate(ciphertext, stride * count)])
        return ciphertext

    def at_level(self, ciphertext: Any, remaining: int) -> Any:
        """Drop the primes that are not needed any more with `remaining` levels to go."""
        primes = self.parameters.primes_for(remaining)
        if ciphertext.coeff_modulus_size() <= primes:
            return ciphertext
        return self._evaluator.mod_switch_to(ciphertext, self._levels[primes])

    def mask(self, ciphertext: Any, positions: NDArray[np.bool_]) -> Any:
        """Multiply by fresh uniform non-zero numbers at `positions`, by zero elsewhere."""
        values = np.zeros(self.parameters.degree, dtype=np.uint64)
        values[positions] = random_nonzero(self.parameters.plain_modulus, int(positions.sum()))
        return self._evaluator.multiply_plain(ciphertext, self._encoder.encode(values))

    def finish(self, ciphertext: Any) -> bytes:
        """Re-randomise, flood the noise, shrink to one prime: only the slots stay readable."""
        fresh = self._evaluator.add(ciphertext, self._encryptor.encrypt_zero(ciphertext.parms_id()))
        flooded = self.load(flood(self.context, self.parameters, fresh))
        return bytes(self._evaluator.mod_switch_to(flooded, self._levels[1]).to_string())


_ENGINES: dict[tuple[Parameters, str], Engine] = {}


def run_in_worker(
    parameters: Parameters, key_id: str, path: str, task: Callable[..., Any], args: tuple[Any, ...]
) -> Any:
    """Call ``task(engine, *args)`` in a worker process, which reads the keys once per key set."""
    name = (parameters, key_id)
    if name not in _ENGINES:
        _ENGINES.clear()
        parts = [(Path(path) / str(index)).read_bytes() for index in range(3)]
        _ENGINES[name] = Engine(parameters, parts)
    return task(_ENGINES[name], *args)

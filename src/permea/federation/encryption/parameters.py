"""BFV parameters: ring, plaintext modulus and coefficient modulus with at least 128-bit security.

For a circuit of `levels` multiplications the coefficient modulus must hold, in bits,

    fresh encryption + levels · (log₂ t + log₂ N + 1) + additions + mask + flooding + margin,

where the cost of a level was checked against SEAL's noise meter (30 bits measured at N = 16384,
t = 65537, 31 charged). The security level is SEAL's own check (`sec_level_type.tc128`), which
enforces the Homomorphic Encryption Standard's table for ternary secrets: at most 438 bits at
N = 16384 and 881 at N = 32768.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from .messages import EncryptionError

RINGS = {16384: 438, 32768: 881}  # N: bits of the whole modulus at 128-bit security
PRIME_BITS = 60  # the largest prime that SEAL accepts
FLOOD_BITS = 55  # 2⁻⁴⁰ over at most 2¹⁵ coefficients
FRESH_BITS = 12  # noise of a fresh encryption, or of a modulus switch, before the factor t
MARGIN_BITS = 6


def import_seal() -> Any:
    """Import seal-python, or say which extra brings it."""
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

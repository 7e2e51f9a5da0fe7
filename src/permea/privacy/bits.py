"""Where random bits come from: a cryptographic stream, or a seed for runs to be repeated."""

import os
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

Words = NDArray[np.uint64]
RandomState = None | int | np.random.RandomState | np.random.Generator


class BitSource(Protocol):
    """A stream of independent fair bits, read as 64-bit words."""

    @property
    def seeded(self) -> bool:
        """Whether somebody who knows the seed can repeat the stream."""
        ...

    def words(self, count: int) -> Words:
        """Give the next ``count`` words of 64 bits."""
        ...


class CryptographicBits:
    """AES-256 in counter mode under a fresh key from the operating system.

    The key is drawn once per object and never leaves it; an object serves one release.

    Examples
    --------
    >>> bits = CryptographicBits()
    >>> bits.words(3).dtype, bits.seeded
    (dtype('uint64'), False)
    """

    seeded = False

    def __init__(self) -> None:
        cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16)))
        self._stream = cipher.encryptor()
        self._zeros = b""

    def words(self, count: int) -> Words:
        """Give the next ``count`` words of 64 bits."""
        length = 8 * count
        if len(self._zeros) < length:
            self._zeros = bytes(length)
        out = np.empty(count + 2, dtype=np.uint64)  # the cipher asks for a block of slack
        written = self._stream.update_into(memoryview(self._zeros)[:length], out.data.cast("B"))
        assert written == length
        return out[:count]


class SeededBits:
    """A repeatable stream from a seed: for tests and reproduction, never for a private release.

    Examples
    --------
    >>> bool((SeededBits(7).words(4) == SeededBits(7).words(4)).all())
    True
    """

    seeded = True

    def __init__(self, random_state: int | np.random.RandomState | np.random.Generator) -> None:
        if isinstance(random_state, np.random.Generator):
            self._generator = random_state
            return
        entropy: int | list[int]
        if isinstance(random_state, np.random.RandomState):
            entropy = [int(word) for word in random_state.randint(0, 2**32, 8, dtype=np.uint64)]
        else:
            entropy = int(random_state)
        self._generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))

    def words(self, count: int) -> Words:
        """Give the next ``count`` words of 64 bits."""
        words: Words = self._generator.integers(0, 2**64, size=count, dtype=np.uint64)
        return words


def bit_source(random_state: RandomState) -> BitSource:
    """Give the cryptographic stream for ``None``, a seeded one for anything that names a seed.

    Examples
    --------
    >>> bit_source(None).seeded, bit_source(0).seeded
    (False, True)
    """
    if random_state is None:
        return CryptographicBits()
    return SeededBits(random_state)


def uniforms(count: int, source: BitSource) -> NDArray[np.float64]:
    """Doubles in the open interval (0, 1), 52 bits each, for the float sampler alone."""
    return ((source.words(count) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52

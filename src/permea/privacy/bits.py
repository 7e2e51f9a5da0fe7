"""Where random bits come from: a cryptographic stream, or a seed for runs to be repeated."""

import os
import threading
from typing import Any, NamedTuple, Protocol, Self

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


class Process(NamedTuple):
    """What tells one process from another, forks of it included."""

    pid: int
    n_forks: int


_n_forks = 0  # on the way from the first process to this one; a pid alone may be used again


def _count_fork() -> None:
    global _n_forks
    _n_forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def this_process() -> Process:
    """Give the process that calls: a value that no fork of it shares.

    Whoever keeps a state that must not be used twice (a key stream, a round of which one half has
    left) stores this value beside it and compares.

    Examples
    --------
    >>> this_process() == this_process()
    True
    """
    return Process(os.getpid(), _n_forks)


class _KeyStream:
    """One key, the process that drew it, and a lock: no block of the stream is given twice."""

    def __init__(self) -> None:
        self.process = this_process()
        cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16)))
        self._encryptor = cipher.encryptor()
        self._lock = threading.Lock()
        self._zeros = b""

    def words(self, count: int) -> Words:
        length = 8 * count
        out = np.empty(count + 2, dtype=np.uint64)  # the cipher asks for a block of slack
        with self._lock:
            if len(self._zeros) < length:
                self._zeros = bytes(length)
            plain = memoryview(self._zeros)[:length]
            written = self._encryptor.update_into(plain, out.data.cast("B"))
        assert written == length
        return out[:count]


class CryptographicBits:
    """AES-256 in counter mode under a fresh key from the operating system.

    The key never leaves the object, and never serves two: a process forked from this one draws a
    key of its own before its first word, and so does a copy, also one that went through pickle.
    Noise that is added to two sums from the same words cancels in their difference. Threads may
    share an object.

    Examples
    --------
    >>> bits = CryptographicBits()
    >>> bits.words(3).dtype, bits.seeded
    (dtype('uint64'), False)
    >>> import copy
    >>> bool((copy.deepcopy(bits).words(4) == bits.words(4)).any())
    False
    """

    seeded = False

    def __init__(self) -> None:
        self._stream = _KeyStream()

    def words(self, count: int) -> Words:
        """Give the next ``count`` words of 64 bits."""
        stream = self._stream
        if stream.process != this_process():  # forked: the parent goes on with the same key
            stream = self._stream = _KeyStream()
        return stream.words(count)

    def __copy__(self) -> Self:
        return type(self)()

    def __deepcopy__(self, memo: object) -> Self:
        return type(self)()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


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

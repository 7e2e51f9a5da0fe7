"""Where random bits come from: a cryptographic stream, or a seed for runs to be repeated."""

import os
import threading
from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from permea._arrays import Integers

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


CHUNK = 1 << 16  # entries per step: the scratch arrays stay in the cache of a core
RADIX_BITS = 10  # a geometric variable is sampled in digits of this many bits
TOP = 512  # values of the leading digit before it overflows into a fresh draw
MIN_RATE = 2.0**-44  # scales beyond this would leave no room in 64-bit integers

GUARD = 20  # decimal digits kept beyond what a decision needs
_WORD_DIGITS = 20  # 64 bits are less than 20 decimal digits

Law = Callable[[int], list[Decimal]]
"""The probabilities of a finite law, each with an absolute error below 10**-digits."""


class ExactTable:
    """Exact sampler of a finite law by Walker's alias method in integers.

    With ``w`` bits per draw, outcome ``i`` has the integer weight ``n_i``, at most ``2**w p_i``.
    What the floors leave over, ``R = 2**w - sum(n_i)``, is an outcome of its own: when it is drawn
    (about once in ``2**w / R`` draws) the outcome is decided by rejection from the remainders
    ``f_i = 2**w p_i - n_i``, whose bits are computed as far as they are needed. So
    ``P(i) = n_i / 2**w + (R / 2**w) (f_i / R) = p_i``, exactly. Proof: ``docs/proofs/table.md``.

    Parameters
    ----------
    law : callable
        ``law(digits)`` gives the probabilities with an absolute error below ``10**-digits``.
    word_bits : int
        Random bits per draw; small values exercise the remainder in tests.

    Examples
    --------
    >>> from permea.privacy.sampling import SeededBits
    >>> thirds = ExactTable(lambda digits: [Decimal(1) / 3] * 3)
    >>> [int(i) for i in thirds.draw(6, SeededBits(0))]
    [1, 1, 0, 0, 2, 2]
    """

    def __init__(self, law: Law, word_bits: int = 64) -> None:
        self._law = law
        self._word_bits = word_bits
        with localcontext(Context(prec=100)):
            unit, slack = Decimal(2**word_bits), Decimal(10) ** -30
            weights = [max(0, _floor(p * unit - slack)) for p in law(60)]
        self._weights = weights
        self.size = len(weights)
        self.remainder = 2**word_bits - sum(weights)
        self._column_bits = max(1, self.size.bit_length())
        self._fill([*weights, self.remainder])

    def _fill(self, weights: list[int]) -> None:
        """Vose's construction, in whole numbers, with a column per power of two."""
        columns = 1 << self._column_bits
        capacity = 1 << (self._word_bits - self._column_bits)
        left = weights + [0] * (columns - len(weights))
        threshold, alias = [capacity] * columns, list(range(columns))
        small = [i for i, weight in enumerate(left) if weight < capacity]
        large = [i for i, weight in enumerate(left) if weight > capacity]
        while small:
            low, high = small.pop(), large[-1]
            threshold[low], alias[low] = left[low], high
            left[high] -= capacity - left[low]
            if left[high] <= capacity:
                large.pop()
                if left[high] < capacity:
                    small.append(high)
        self._threshold = np.array(threshold, dtype=np.uint64)
        self._alias = np.array(alias, dtype=np.int64)

    def draw(self, count: int, source: BitSource) -> Integers:
        """Draw ``count`` independent outcomes."""
        words = source.words(count)
        column_shift = np.uint64(64 - self._column_bits)
        column = (words >> column_shift).view(np.int64)
        words &= (np.uint64(1) << column_shift) - np.uint64(1)
        words >>= np.uint64(64 - self._word_bits)
        outcome = np.where(words < self._threshold.take(column), column, self._alias.take(column))
        for place in np.flatnonzero(outcome == self.size):
            outcome[place] = self._draw_remainder(source)
        return outcome

    def _draw_remainder(self, source: BitSource) -> int:
        """Draw from the remainders: a uniform outcome, accepted with probability ``f_i / 2``."""
        while True:
            outcome = int(uniform_below(self.size, 1, source)[0])
            if bernoulli(partial(self._half_remainder, outcome), source):
                return outcome

    def _half_remainder(self, outcome: int, digits: int) -> Decimal:
        """The probability ``f_i / 2`` with an absolute error below ``10**-digits``."""
        need = digits + _WORD_DIGITS
        with localcontext(Context(prec=need + 2 * GUARD)):
            remainder = self._law(need)[outcome] * 2**self._word_bits - self._weights[outcome]
            return Decimal(remainder / 2)


def _floor(value: Decimal) -> int:
    return int(value.to_integral_value(rounding=ROUND_FLOOR))


def bernoulli(probability: Callable[[int], Decimal], source: BitSource) -> bool:
    """One exact coin: compare a uniform number with ``probability``, bit by bit as far as needed.

    ``probability(digits)`` gives the probability with an absolute error below ``10**-digits``.
    """
    number, depth = 0, 0
    while True:
        depth += 1
        number = (number << 64) | int(source.words(1)[0])
        digits = _WORD_DIGITS * depth + GUARD
        with localcontext(Context(prec=digits + 2 * GUARD)):
            low, high = Decimal(number) / 2 ** (64 * depth), Decimal(number + 1) / 2 ** (64 * depth)
            value, error = probability(digits), Decimal(10) ** (2 - digits)
            if high <= value - error:
                return True
            if low >= value + error:
                return False


def uniform_below(bound: int, count: int, source: BitSource) -> Integers:
    """Whole numbers in ``[0, bound)``, exactly uniform, by rejection of what is too large."""
    shift = np.uint64(64 - max(1, (bound - 1).bit_length()))
    out = (source.words(count) >> shift).view(np.int64)
    while (wrong := np.flatnonzero(out >= bound)).size:
        out[wrong] = (source.words(wrong.size) >> shift).view(np.int64)
    return out


def decimal_exp(exponent: Fraction) -> Decimal:
    """The exponential of a rational number in the precision of the current context."""
    return (Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()


def exponential(exponent: Fraction, digits: int) -> Decimal:
    """The exponential of a rational number at most zero, with an error below ``10**-digits``."""
    with localcontext(Context(prec=digits + GUARD)):
        return decimal_exp(exponent)


def _digit_law(rate: Fraction) -> Law:
    """Law of one digit of a geometric variable: ``P(i) ~ exp(-rate i)``, ``i < 2**RADIX_BITS``."""

    def law(digits: int) -> list[Decimal]:
        with localcontext(Context(prec=digits + 2 * GUARD)):
            ratio = decimal_exp(-rate)
            norm = (1 - ratio) / (1 - decimal_exp(-rate * 2**RADIX_BITS))
            return [norm * power for power in _powers(ratio, 2**RADIX_BITS)]

    return law


def _powers(ratio: Decimal, count: int) -> list[Decimal]:
    powers = [Decimal(1)]
    for _ in range(count - 1):
        powers.append(powers[-1] * ratio)
    return powers


def _top_law(rate: Fraction, sign_rate: Fraction | None, point_mass: Fraction) -> Law:
    """Joint law of leading digit, sign and point mass.

    Outcome ``2 i + s`` is digit ``i`` with sign bit ``s``; the digit ``TOP - 1`` stands for
    "``TOP - 1`` or more"; the last outcome is the point mass. Without a ``sign_rate`` the sign bit
    is always 0.
    """

    def law(digits: int) -> list[Decimal]:
        with localcontext(Context(prec=digits + 2 * GUARD)):
            mass = Decimal(point_mass.numerator) / Decimal(point_mass.denominator)
            ratio = decimal_exp(-rate)
            powers = _powers(ratio, TOP)
            digit = [(1 - ratio) * power for power in powers[:-1]] + [powers[-1]]
            negative = Decimal(0)
            if sign_rate is not None:
                negative = decimal_exp(-sign_rate) / (1 + decimal_exp(-sign_rate))
            pairs = ((p * (1 - negative), p * negative) for p in digit)
            return [(1 - mass) * p for pair in pairs for p in pair] + [mass]

    return law


class _LaplaceTables:
    """The tables behind :func:`discrete_laplace` for one rate and one point mass."""

    def __init__(self, rate: Fraction, point_mass: Fraction, word_bits: int) -> None:
        self.word_bits = word_bits
        self.digits: list[ExactTable] = []
        self.top_rate = rate
        while self.top_rate < Fraction(1, 64):
            self.digits.append(ExactTable(_digit_law(self.top_rate), word_bits))
            self.top_rate *= 2**RADIX_BITS
        self.top = ExactTable(_top_law(self.top_rate, rate, point_mass), word_bits)
        self._more: ExactTable | None = None

    def draw(self, count: int, source: BitSource) -> Integers:
        outcome = self.top.draw(count, source)
        leading = outcome >> 1
        for place in np.flatnonzero(leading == TOP - 1):
            leading[place] += self._overflow(source)
        for table in reversed(self.digits):
            leading <<= RADIX_BITS
            leading |= table.draw(count, source)
        leading ^= -(outcome & 1)  # a set sign bit turns g into -1 - g
        leading[outcome == 2 * TOP] = 0
        return leading

    def _overflow(self, source: BitSource) -> int:
        """A geometric variable has no memory: what lies beyond the table is a fresh one."""
        if self._more is None:
            self._more = ExactTable(_top_law(self.top_rate, None, Fraction(0)), self.word_bits)
        total = 0
        while (digit := int(self._more.draw(1, source)[0]) >> 1) == TOP - 1:
            total += digit
        return total + digit


@lru_cache(maxsize=16)
def _laplace_tables(rate: Fraction, point_mass: Fraction, word_bits: int) -> _LaplaceTables:
    return _LaplaceTables(rate, point_mass, word_bits)


def discrete_laplace(
    rate: Fraction | float,
    size: int,
    source: BitSource,
    *,
    point_mass: Fraction | float = 0.0,
    word_bits: int = 64,
) -> Integers:
    """Draw from the discrete Laplace law with a point mass at zero, exactly.

    ``P(x) = point_mass [x = 0] + (1 - point_mass) tanh(rate / 2) exp(-rate |x|)`` on the integers:
    the grid form of 002 Result 4 (2.83) and 001 (1.75), with ``rate = ε / (bound in grid steps)``.

    With ``q = exp(-rate)``, a sign bit of probability ``q / (1 + q)`` and a geometric ``g``
    (``P(g) = (1 - q) q**g``) give ``x = g`` or ``x = -1 - g``. The digits of a geometric variable
    in any radix are independent, so each is one draw from an :class:`ExactTable`; nothing is
    rejected and every entry costs the same number of words.

    Parameters
    ----------
    rate : Fraction or float
        Positive; taken as the exact rational it is.
    size : int
        How many integers to draw.
    source : BitSource
        Where the bits come from.
    point_mass : Fraction or float
        The δ of the documents: probability that the noise is exactly zero, beside the Laplace part.
    word_bits : int
        Bits per table draw (64); smaller values only serve to test the exact remainder.

    Examples
    --------
    >>> from permea.privacy.sampling import SeededBits
    >>> discrete_laplace(0.5, 5, SeededBits(3)).shape
    (5,)
    >>> discrete_laplace(0.5, 3, SeededBits(3), point_mass=1.0).tolist()
    [0, 0, 0]
    """
    exact_rate, mass = Fraction(rate), Fraction(point_mass)
    if exact_rate < MIN_RATE:
        raise ValueError(
            "The noise is too wide for 64-bit integers: its scale exceeds 2**44 grid steps. "
            "Use a coarser grid (a smaller `resolution`) or a larger epsilon."
        )
    if not 0 <= mass <= 1:
        raise ValueError("The point mass is a probability and lies between 0 and 1.")
    tables = _laplace_tables(exact_rate, mass, word_bits)
    return in_chunks(size, lambda count: tables.draw(count, source))


def in_chunks(size: int, draw: Callable[[int], Integers]) -> Integers:
    """Fill an array piece by piece, so that scratch memory does not grow with its size."""
    out = np.empty(size, dtype=np.int64)
    for start in range(0, size, CHUNK):
        stop = min(start + CHUNK, size)
        out[start:stop] = draw(stop - start)
    return out


def _stage_law(epsilon: Fraction, bound: int, inner: int) -> Law:
    """Law of (stage, part) of the staircase; the last stage stands for "or more"."""

    def law(digits: int) -> list[Decimal]:
        with localcontext(Context(prec=digits + 2 * GUARD)):
            ratio = decimal_exp(-epsilon)
            powers = _powers(ratio, TOP)
            stage = [(1 - ratio) * power for power in powers[:-1]] + [powers[-1]]
            outer = (bound - inner) * ratio / (inner + (bound - inner) * ratio)
            return [p for s in stage for p in (s * (1 - outer), s * outer)]

    return law


def discrete_staircase(
    epsilon: Fraction | float, bound: int, inner: int, size: int, source: BitSource
) -> Integers:
    """Draw from the discrete staircase law, exactly.

    ``P(x) ~ exp(-ε s(|x|))`` with ``s(n) = floor((n - inner) / bound) + 1`` (Geng and Viswanath
    2014, on the integers): the first ``inner`` steps of every stair of ``bound`` are one level
    higher than the rest. A shift by at most ``bound`` moves ``s`` by at most one, which is
    ε-differential privacy.

    Examples
    --------
    >>> from permea.privacy.sampling import SeededBits
    >>> discrete_staircase(1.0, 8, 3, 4, SeededBits(0)).shape
    (4,)
    """
    if not 1 <= inner <= bound:
        raise ValueError("`inner` counts grid steps of the higher part: 1 to `bound`.")
    exact = Fraction(epsilon)
    table = _staircase_table(exact, bound, inner)

    def magnitude(count: int) -> Integers:
        outcome = table.draw(count, source)
        stage = outcome >> 1
        for place in np.flatnonzero(stage == TOP - 1):
            while (more := int(table.draw(1, source)[0]) >> 1) == TOP - 1:
                stage[place] += more
            stage[place] += more
        within = uniform_below(inner, count, source)
        if inner < bound:
            outer = inner + uniform_below(bound - inner, count, source)
            within = np.where(outcome & 1, outer, within)
        return stage * bound + within

    def draw(count: int) -> Integers:
        out = magnitude(count)
        negative = uniform_below(2, count, source) == 1
        while (wrong := np.flatnonzero(negative & (out == 0))).size:  # minus zero is not a value
            out[wrong] = magnitude(wrong.size)
            negative[wrong] = uniform_below(2, wrong.size, source) == 1
        return np.where(negative, -out, out)

    return in_chunks(size, draw)


@lru_cache(maxsize=16)
def _staircase_table(epsilon: Fraction, bound: int, inner: int) -> ExactTable:
    return ExactTable(_stage_law(epsilon, bound, inner))

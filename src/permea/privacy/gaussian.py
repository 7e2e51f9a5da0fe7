"""The discrete Gaussian law, exactly: cells from a table, places in a cell by rejection."""

from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from permea._arrays import Integers
from permea.privacy.sampling import (
    GUARD,
    BitSource,
    ExactTable,
    Words,
    bernoulli,
    decimal_exp,
    discrete_laplace,
    exponential,
    in_chunks,
)

LARGEST_SIGMA = 2**44 - 1  # grid steps: wider noise would leave no room in 64-bit integers

_REACH = 8  # standard deviations that the cells cover; what lies beyond has a law of its own
_CELLS = 5  # at least 2**5 cells for a standard deviation, or one for each integer
_MARGIN = 2.0**-40  # relative; far more than the rounding error of a double


def discrete_gaussian(
    sigma: Fraction | float, size: int, source: BitSource, *, margin: float = _MARGIN
) -> Integers:
    """Draw from the discrete Gaussian law ``P(x) ~ exp(-x**2 / (2 sigma**2))``, exactly.

    ``|x|`` falls into a cell of ``2**s`` integers, at most ``sigma / 32`` of them: the cell is
    drawn from an :class:`ExactTable` in proportion to the density at its nearer end, the place in
    it uniformly, and both are accepted with the ratio of the two densities, which is nearly one.
    Most coins are decided by a lower bound for the cell, most of the others by a double. When the
    uniform number lies within ``margin`` (relative) of the probability, which is far more than its
    rounding error, decimals decide.

    Parameters
    ----------
    sigma : Fraction or float
        From about 0.5 up to ``2**44 - 1`` grid steps.
    size : int
        How many integers to draw.
    source : BitSource
        Where the bits come from.
    margin : float
        Half-width of the band that is decided exactly; larger values only cost time.

    Examples
    --------
    >>> from permea.privacy.sampling import SeededBits
    >>> x = discrete_gaussian(100.0, 10_000, SeededBits(0))
    >>> bool(97 < x.std() < 103)
    True
    """
    exact = Fraction(sigma)
    if not 0 < exact < LARGEST_SIGMA:
        raise ValueError(
            "sigma must be positive and below 2**44 grid steps. "
            "Use a coarser grid (a smaller `resolution`) or less noise."
        )
    cells = _gaussian_cells(exact, _REACH)
    return in_chunks(size, lambda count: cells.draw(count, source, margin))


class _GaussianCells:
    """The proposal behind :func:`discrete_gaussian` for one sigma.

    Outcome ``h`` of the table is the cell of magnitudes ``h 2**s <= m < (h + 1) 2**s``, and the
    last one stands for all magnitudes from ``end`` on, under ``exp(-end m / sigma**2)``.
    """

    def __init__(self, sigma: Fraction, reach: int) -> None:
        self.halved = 1 / (2 * sigma * sigma)
        self.cell_bits = max(0, int(sigma).bit_length() - 1 - _CELLS)
        width = 1 << self.cell_bits
        self.n_cells = -int(-reach * sigma // width)
        self.end = self.n_cells * width
        self.table = ExactTable(self._law)
        starts = np.arange(self.n_cells, dtype=np.float64) * width
        least = np.exp(-float(self.halved) * (width - 1) * (2 * starts + width - 1))
        self._least = np.append(least, 0.0)  # acceptance at the far end of a cell; none beyond

    def _law(self, digits: int) -> list[Decimal]:
        """Masses under the proposal; those of the cells by ``exp(-a (h+1)**2) / exp(-a h**2)``."""
        with localcontext(Context(prec=digits + 2 * GUARD)):
            unit = self.halved * 4**self.cell_bits
            ratio, step = decimal_exp(-unit), decimal_exp(-2 * unit)
            masses = [Decimal(2**self.cell_bits)]
            for _ in range(self.n_cells):
                masses.append(masses[-1] * ratio)
                ratio *= step
            rate = 2 * self.halved * self.end
            masses[-1] = decimal_exp(-self.halved * self.end**2) / (1 - decimal_exp(-rate))
            total = sum(masses, Decimal(0))
            return [mass / total for mass in masses]

    def draw(self, count: int, source: BitSource, margin: float) -> Integers:
        """Draw until ``count`` are accepted."""
        kept: list[Integers] = []
        missing = count
        while missing > 0:
            found = self._accepted(missing + missing // 16 + 16, source, margin)[:missing]
            kept.append(found)
            missing -= found.size
        return kept[0] if len(kept) == 1 else np.concatenate(kept)

    def _accepted(self, count: int, source: BitSource, margin: float) -> Integers:
        """What remains of so many proposals."""
        cell = self.table.draw(count, source)
        place = source.words(count)
        negative = (place & np.uint64(1)).view(np.int64)
        place >>= np.uint64(63 - self.cell_bits)
        place >>= np.uint64(1)
        magnitude = place.view(np.int64)
        magnitude |= cell << self.cell_bits
        rejected = self._rejected(cell, magnitude, source, margin)
        if not magnitude.all():  # minus zero is not a value
            rejected = np.append(rejected, np.flatnonzero((magnitude == 0) & (negative == 1)))
        magnitude ^= -negative
        magnitude += negative
        return np.delete(magnitude, rejected)

    def _rejected(
        self, cell: Integers, magnitude: Integers, source: BitSource, margin: float
    ) -> NDArray[np.intp]:
        """Positions of proposals that fail; magnitudes beyond the cells are drawn here."""
        beyond = np.flatnonzero(cell == self.n_cells)
        failed = [place for place in beyond if not self._beyond(magnitude, int(place), source)]
        if self.cell_bits:
            words = source.words(cell.size)
            certain = (self._least * max(1 - margin, 0.0) * 2**53).astype(np.uint64) << np.uint64(
                11
            )
            open_ = np.flatnonzero(words >= certain.take(cell))
            open_ = open_[cell[open_] < self.n_cells]
            taken = self._coins(cell[open_], magnitude[open_], words[open_], source, margin)
            failed.extend(open_[~taken])
        return np.array(failed, dtype=np.intp)

    def _coins(
        self, cell: Integers, magnitude: Integers, words: Words, source: BitSource, margin: float
    ) -> NDArray[np.bool_]:
        """Exact coins with probability ``exp(-(m**2 - start**2) / (2 sigma**2))``."""
        start = cell << self.cell_bits
        inside = (magnitude - start).astype(np.float64)
        gamma = float(self.halved) * inside * (start + magnitude)
        probability = np.exp(-gamma)
        band = margin * (1.0 + gamma) * probability + 2.0**-60
        uniform = words.astype(np.float64) * 2.0**-64
        taken: NDArray[np.bool_] = uniform < probability
        for place in np.flatnonzero(np.abs(uniform - probability) <= band):
            near, far = int(start[place]), int(magnitude[place])
            exponent = -self.halved * (far - near) * (far + near)
            replay = _Replay(int(words[place]), source)
            taken[place] = bernoulli(partial(exponential, exponent), replay)
        return taken

    def _beyond(self, magnitude: Integers, place: int, source: BitSource) -> bool:
        """A magnitude beyond the cells, geometric, and whether it is accepted."""
        rate = 2 * self.halved * self.end
        signed = int(discrete_laplace(rate, 1, source)[0])
        more = signed if signed >= 0 else -1 - signed  # geometric, whatever the sign
        magnitude[place] = self.end + more
        return bernoulli(partial(exponential, -self.halved * more * more), source)


@lru_cache(maxsize=16)
def _gaussian_cells(sigma: Fraction, reach: int) -> _GaussianCells:
    return _GaussianCells(sigma, reach)


class _Replay:
    """A stream that repeats one word that was already drawn, then goes on with its source."""

    def __init__(self, word: int, source: BitSource) -> None:
        self._word: int | None = word
        self._source = source
        self.seeded = source.seeded

    def words(self, count: int) -> Words:
        if self._word is None or count != 1:
            return self._source.words(count)
        word, self._word = self._word, None
        return np.array([word], dtype=np.uint64)

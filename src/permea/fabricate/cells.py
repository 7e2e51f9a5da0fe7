"""Cells of a column: where a value is counted, and how a value is drawn from a cell again.

*Fine* cells are public: every value of a short list, otherwise intervals of the declared range, and
both of its ends for themselves. *Bins* join fine cells, by noised counts of the fine cells alone.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from permea._arrays import Array, Integers
from permea.tables.columns import Choice, Column, Date, Number

FINE = 64  # intervals of a number without steps
STEPS = 256  # most cells of a number with steps


@dataclass(frozen=True)
class Cells:
    """Fine cells of one column; ``starts`` are the limits of those of a number, in rising order.

    Examples
    --------
    >>> cells = fine_cells(Number(0, 3, whole=True, missing=True))
    >>> cells.of(np.array([0.0, 2.0, 9.0, np.nan])).tolist(), cells.count
    ([0, 2, 3, 4], 5)
    """

    column: Column
    starts: Array | None

    @property
    def count(self) -> int:
        """Number of cells, the last of them for missing values where these are declared."""
        return self.known + self.column.missing

    @property
    def known(self) -> int:
        """Number of cells without that of missing values."""
        if self.starts is None:
            assert isinstance(self.column, Choice)
            return len(self.column.names)
        return len(self.starts) - 1

    @property
    def is_ordered(self) -> bool:
        """Whether cells that lie side by side may be joined."""
        return self.starts is not None

    def of(self, positions: Array) -> Integers:
        """The cell of every value, by comparisons alone."""
        bounds = np.arange(1.0, self.known) if self.starts is None else self.starts[1:-1]
        cells = np.searchsorted(bounds, positions, side="right")
        return np.where(np.isnan(positions), self.count - 1, cells)

    def round(self, positions: Array) -> Array:
        """Numbers in the range and on the steps of the column; missing ones stay missing."""
        return np.asarray(as_number(self.column).round(positions))

    def draw(self, cells: Integers, rng: np.random.Generator) -> Array:
        """Positions in these cells: evenly in an interval, on the column's steps; NaN if missing.

        Examples
        --------
        >>> cells = fine_cells(Number(0, 3, whole=True, missing=True))
        >>> cells.draw(np.array([4, 0, 2]), np.random.default_rng(0)).tolist()
        [nan, 0.0, 2.0]
        """
        if self.starts is None:
            drawn: Array = cells.astype(np.float64)
        else:
            last = np.minimum(cells, self.known - 1)
            low, high = self.starts[last], self.starts[last + 1]
            inside = low + (high - low) * rng.random(len(cells))
            below = np.maximum(low, np.nextafter(high, -math.inf))
            drawn = self.round(np.minimum(inside, below)) + 0.0  # 0.0 in place of -0.0
        return np.where(cells == self.known, np.nan, drawn) if self.column.missing else drawn


def as_number(column: Column) -> Number:
    """A number, or a date as the number of its day."""
    number = column.days if isinstance(column, Date) else column
    assert isinstance(number, Number)
    return number


def fine_cells(column: Column) -> Cells:
    """The fine cells of a column, from its declaration alone."""
    if isinstance(column, Choice):
        return Cells(column, None)
    number = as_number(column)
    step = 1.0 if number.whole else number.resolution
    most = FINE if step is None else STEPS
    points = np.unique([number.low, *_points(number, most), number.high])
    if step is None:  # the ends are cells: many a range begins with a value of its own, such as 0
        low, high = points[[0, -1]]
        return Cells(column, np.array([low, np.nextafter(low, math.inf), *points[1:], high]))
    lattice = np.unique(np.rint((points - number.low) / step))
    return Cells(column, number.low + (np.append(lattice, lattice[-1] + 1) - 0.5) * step)


def _points(number: Number, most: int) -> Array:
    """Limits of about ``most`` intervals, those of the schema's own grid among them."""
    if number.edges is None:
        return replace(number, bins=None).grid(most + 1)
    edges = np.array(number.edges)
    parts = max(1, most // (len(edges) - 1))
    shares = np.arange(parts) / parts
    inside = edges[:-1, None] + np.diff(edges)[:, None] * shares
    return np.append(inside.ravel(), edges[-1])


@dataclass(frozen=True)
class Bins:
    """How fine cells of a column are joined, and how often each occurs in its bin."""

    of_fine: Integers
    shares: Array

    @property
    def count(self) -> int:
        """Number of bins."""
        return int(self.of_fine.max()) + 1

    def draw(self, bins: Integers, rng: np.random.Generator) -> Integers:
        """A fine cell for every bin, as often as the shares say."""
        out = np.empty(len(bins), np.int64)
        order = np.argsort(bins, kind="stable")
        ends = np.cumsum(np.bincount(bins, minlength=self.count))
        for label, rows in enumerate(np.split(order, ends[:-1])):
            inside = np.flatnonzero(self.of_fine == label)
            out[rows] = rng.choice(inside, size=len(rows), p=self.shares[inside])
        return out


def join_cells(
    cells: Cells, counts: Array, noise: float, most: int, *, least: float = 0.0, rare: float = 3.0
) -> Bins:
    """Bins with about as many people each, or rare values together, from noised counts.

    Cells of a number are joined with their neighbours until a bin holds one of ``most`` equal
    parts, and at least ``least``; one cell that holds as much is a bin of its own. Values of a
    category that cannot be told from the noise (``rare`` times its standard deviation) share one
    bin. Missing values stay alone.

    Examples
    --------
    >>> cells = fine_cells(Number(0, 5, whole=True))
    >>> join_cells(cells, np.array([60.0, 5, 5, 10, 10, 10]), 0.1, 4).of_fine.tolist()
    [0, 1, 1, 1, 2, 2]
    """
    known = counts[: cells.known]
    if cells.starts is not None:
        known = smoothed(known, np.diff(cells.starts), noise)
        joined = _equal_parts(known, most, least)
    else:
        joined = _rare_together(known, rare * noise)
    of_fine = joined if not cells.column.missing else np.append(joined, joined.max() + 1)
    weights = np.maximum(np.append(known, 1.0)[: len(of_fine)], 0.0)
    totals = np.bincount(of_fine, weights)
    size = np.bincount(of_fine)
    even = 1.0 / size[of_fine]
    safe = np.where(totals > 0, totals, 1.0)[of_fine]
    return Bins(of_fine, np.where(totals[of_fine] > 0, weights / safe, even))


def _equal_parts(counts: Array, most: int, least: float) -> Integers:
    target = max(counts.sum() / most, least)
    for _ in range(most):  # what one cell holds alone is not there to be shared
        heavy = counts >= target
        rest = counts[~heavy].sum() / max(most - heavy.sum(), 1)
        target = max(min(target, rest), least)
    out = np.zeros(len(counts), np.int64)
    label, held = 0, 0.0
    for place, count in enumerate(counts):
        if held and (held >= (1.0 - 1e-9) * target or count >= target):
            label, held = label + 1, 0.0
        out[place] = label
        held += count
    if label and held < 0.5 * target:  # what is left over at the end
        out[out == label] = label - 1
    return out


def _rare_together(counts: Array, least: float) -> Integers:
    rare = counts < least
    if rare.sum() < 2:
        return np.arange(len(counts))
    out = np.cumsum(~rare) - 1
    return np.where(rare, (~rare).sum(), out)


def smoothed(counts: Array, widths: Array, noise: float) -> Array:
    """Noised counts of neighbouring cells, smooth where only noise tells them apart.

    Differences between halves, quarters and so on (Haar wavelets) are kept where they exceed what
    noise alone reaches, the universal threshold. The others of a level are drawn to what the widths
    of the cells give by the factor of James and Stein, as far as they may be noise. The result is
    not negative.

    Examples
    --------
    >>> smoothed(np.array([9.0, -9, 500, 0]), np.ones(4), 10.0).round().tolist()
    [0.0, 0.0, 500.0, 0.0]
    """
    size = 1 << max(0, math.ceil(math.log2(len(counts))))
    sums = [np.pad(counts, (0, size - len(counts)))]
    spans = [np.pad(widths.astype(np.float64), (0, size - len(counts)))]
    while len(sums[-1]) > 1:
        sums.append(sums[-1].reshape(-1, 2).sum(1))
        spans.append(spans[-1].reshape(-1, 2).sum(1))
    least = math.sqrt(2.0 * math.log(max(size, 2)))
    total = np.maximum(sums[-1], 0.0)
    for level in range(len(sums) - 2, -1, -1):
        left, right = sums[level].reshape(-1, 2).T
        span = spans[level].reshape(-1, 2)
        share = span[:, 0] / np.maximum(span.sum(1), 1e-300)
        own = right + left
        surprise = left - share * own
        spread = noise * math.sqrt(2.0**level) * np.hypot(1.0 - share, share)
        first = share * total + _believed(surprise, spread, least) * surprise
        first = np.clip(first, 0.0, total)
        total = np.stack([first, total - first], 1).ravel()
    return np.asarray(total[: len(counts)])


def _believed(surprise: Array, spread: Array, least: float) -> Array:
    """The factor by which each difference of a level is kept."""
    scaled = np.divide(surprise, spread, out=np.zeros_like(surprise), where=spread > 0)
    large = np.abs(scaled) > least
    energy = float(np.square(scaled[~large]).sum())
    factor = max(0.0, 1.0 - float((~large & (spread > 0)).sum()) / max(energy, 1e-300))
    return np.where(large, 1.0, factor)

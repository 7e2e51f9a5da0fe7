"""How near a synthetic table is to what was released; no private row is read for it."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from permea._arrays import Array, Integers
from permea.fabricate.cells import Bins, Cells
from permea.fabricate.generator import TableGenerator, as_values
from permea.fabricate.learn_tables import Learner
from permea.tables import Date
from permea.tables.columns import Choice

_NORMAL = 1.959964  # 95 % of a normal variable lie within so many standard deviations
_LISTED = 3  # values of a bin that are named; of more, their number


@dataclass(frozen=True)
class Agreement:
    """Distance between the synthetic table and what was released, of one or two columns.

    Attributes
    ----------
    columns : tuple of str
    distance : float
        Total variation: half the sum of absolute differences of shares, from 0 to 1.
    by_chance : float
        What the noise, and the chance of who is in the table, make of that on average when the
        synthetic rows follow the right distribution.
    error : float
        Standard deviation of that.
    """

    columns: tuple[str, ...]
    distance: float
    by_chance: float
    error: float

    @property
    def is_held(self) -> bool:
        """Whether chance explains the distance, but for a hundredth."""
        return self.distance <= self.by_chance + 4.0 * self.error + 0.01


@dataclass(frozen=True)
class Query:
    """The share of rows with a value, or one of several, in both tables.

    Where a person has several rows, each of her m rows counts 1/m.

    Attributes
    ----------
    column, value : str
        A value, several, or a range.
    synthetic : float
        The share in the synthetic table.
    released : float
        The share in the private table, with its noise.
    error : float
        Standard deviation of that noise.
    """

    column: str
    value: str
    synthetic: float
    released: float
    error: float

    @property
    def interval(self) -> tuple[float, float]:
        """Where the share of the private table lies, with 95 % confidence."""
        return self.low, self.high

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return min(max(self.released - _NORMAL * self.error, 0.0), 1.0)

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return min(max(self.released + _NORMAL * self.error, 0.0), 1.0)


@dataclass(frozen=True)
class TableQuality:
    """How near a synthetic table is to what was released; it may be published.

    A pair whose distance is well above ``by_chance`` depends in a way that the trees do not hold.
    ``queries`` are the shares of single values, with error bars that follow from the noise alone.
    ``n_halved`` of the pairs are compared in halves of both columns (`permea.fabricate.halves`).
    """

    columns: tuple[Agreement, ...]
    pairs: tuple[Agreement, ...]
    queries: tuple[Query, ...] = ()
    n_halved: int = 0

    @property
    def pairs_not_held(self) -> tuple[Agreement, ...]:
        """Pairs that are further off than chance explains, furthest first."""
        found = [pair for pair in self.pairs if not pair.is_held]
        return tuple(sorted(found, key=lambda pair: pair.by_chance - pair.distance))

    @property
    def largest_by_chance(self) -> float:
        """The largest distance of a pair that chance explains on average."""
        return max((pair.by_chance for pair in self.pairs), default=0.0)

    @property
    def queried(self) -> tuple[str, ...]:
        """The columns that queries are about."""
        return tuple(dict.fromkeys(query.column for query in self.queries))

    def queries_of(self, column: str) -> tuple[Query, ...]:
        """The queries about one column."""
        return tuple(query for query in self.queries if query.column == column)

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return asdict(self)


def quality_of(generator: TableGenerator, learner: Learner) -> TableQuality:
    """Compare a draw with the released counts; no private row is read."""
    size, label = float(learner.totals.sum()), generator.schema.label
    bins, labels = generator.draw_written(max(generator.size, 1000), np.random.default_rng(0))
    columns, pairs, queries = [], [], []
    for k, name in enumerate(generator.names):
        counts, noise = learner.column_counts(k)
        together = noise * math.sqrt(len(counts))
        columns.append(_agreement((name,), counts.sum(0), together, size, bins[:, [k]]))
        if label is not None:
            cells = np.column_stack([labels, bins[:, k]])
            pairs.append(_agreement((name, label), counts, noise, size, cells))
        drawn = np.bincount(bins[:, k], minlength=len(noise)) / len(bins)
        texts = bin_texts(generator.cells[k], generator.bins[k])
        queries += _queries(name, texts, drawn, counts.sum(0) / size, together / size)
    for (one, other), (tables, spread) in learner.counted_pairs.items():
        names = generator.names[one], generator.names[other]
        all_labels = spread * np.full(tables[0].shape, math.sqrt(len(tables)))
        pairs.append(_agreement(names, sum(tables), all_labels, size, bins[:, [one, other]]))
    n_halved = 0
    for (one, other), table in learner.counted_halves.items():
        if (one, other) not in learner.counted_pairs:  # no table: whether both are in one half
            n_halved += 1
            apart = learner.halves[one][bins[:, one]] ^ learner.halves[other][bins[:, other]]
            names, spread = (generator.names[one], generator.names[other]), learner.charged.noise(1)
            pairs.append(_agreement(names, table, np.full(2, spread), size, apart[:, None]))
    if label is not None:
        drawn = np.bincount(labels, minlength=len(learner.totals)) / len(labels)
        error = np.full(len(drawn), learner.totals_noise / size)
        queries += _queries(label, generator.schema.classes, drawn, learner.totals / size, error)
    return TableQuality(tuple(columns), tuple(pairs), tuple(queries), n_halved)


def _queries(
    column: str, texts: Sequence[str], drawn: Array, released: Array, error: Array
) -> list[Query]:
    rows = zip(texts, drawn.tolist(), released.tolist(), error.tolist(), strict=True)
    return [Query(column, str(text), *numbers) for text, *numbers in rows]


def _agreement(
    names: tuple[str, ...], counted: Any, noise: Array, size: float, bins: Integers
) -> Agreement:
    shape = np.shape(counted)
    code = np.ravel_multi_index(tuple(bins.T), shape)
    drawn = np.bincount(code, minlength=int(np.prod(shape))) / len(code)
    distance = 0.5 * np.abs(np.ravel(counted) / size - drawn).sum()
    spread = np.broadcast_to(noise, shape).ravel()
    variance = (spread**2 + size * drawn) / size**2  # of the released share of every cell
    by_chance = 0.5 * math.sqrt(2.0 / math.pi) * np.sqrt(variance).sum()
    error = 0.5 * math.sqrt((1.0 - 2.0 / math.pi) * variance.sum())
    return Agreement(names, float(distance), float(by_chance), float(error))


def bin_texts(cells: Cells, bins: Bins) -> list[str]:
    """What the bins of a column are about, in words.

    Examples
    --------
    >>> from permea.fabricate.cells import fine_cells
    >>> from permea.tables import Number, YesNo
    >>> cells = fine_cells(Number(0, 3, whole=True, missing=True))
    >>> bin_texts(cells, Bins(np.array([0, 1, 1, 1, 2]), np.ones(5)))
    ['0', '1 to 3', 'missing']
    >>> bin_texts(fine_cells(YesNo()), Bins(np.array([0, 1]), np.ones(2)))
    ['no', 'yes']
    """
    return [_bin_text(cells, np.flatnonzero(bins.of_fine == place)) for place in range(bins.count)]


def _bin_text(cells: Cells, fine: Integers) -> str:
    if fine[0] == cells.known:
        return "missing"
    if cells.starts is None:
        assert isinstance(cells.column, Choice)
        names = [cells.column.names[place] for place in fine]
        return ", ".join(names) if len(names) <= _LISTED else f"{len(names)} rare values"
    ends = cells.starts[[fine[0], fine[-1] + 1]]
    inside = cells.round(np.nextafter(ends, ends[::-1]))
    low, high = (_value_text(cells, at) for at in inside)
    if low == high:
        return low
    beyond = ends[0] == np.nextafter(cells.starts[0], math.inf)  # the end has a cell of its own
    return f"{'above ' if beyond else ''}{low} to {high}"


def _value_text(cells: Cells, at: float) -> str:
    if isinstance(cells.column, Date):
        return str(as_values(cells.column, np.array([at]))[0])
    assert cells.starts is not None
    smallest = 1e-9 * float(np.ptp(cells.starts))
    return f"{0.0 if abs(at) < smallest else at:.5g}"

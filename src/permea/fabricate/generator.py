"""Rows drawn from what was released: trees of cells per label, and persons with several rows."""

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from permea._arrays import Array, Integers, Mask
from permea._files import write_atomically
from permea.fabricate.cells import Bins, Cells, fine_cells
from permea.fabricate.persons import Persistence
from permea.fabricate.trees import Tree
from permea.tables import Date, Number, Schema
from permea.tables.columns import Choice, Column

CHUNK = 1 << 18  # rows that are drawn together
_ATTEMPTS = 100  # to keep the rules, for each row


class _Drawn(NamedTuple):
    """Rows on their way to a table: bins, labels, and positions of the values."""

    bins: Integers
    labels: Integers
    values: Array

    def take(self, chosen: Any) -> "_Drawn":
        return _Drawn(*(part[chosen] for part in self))


@dataclass(frozen=True)
class TableGenerator:
    """Draws tables of any length. It holds released numbers alone, and may be handed over itself.

    Attributes
    ----------
    schema : Schema
    names : tuple of str
        The columns that trees are about; with persons, the last one counts their rows.
    cells, bins : sequences
        Fine cells of every column, and how they were joined.
    label_shares : ndarray of shape (C,)
        Shares of the labels; one share where there is no label.
    trees : sequence of Tree
        One for every label.
    size : int
        How many rows, or persons, the private table had, as far as that was released.
    persistence : Persistence or None
        What stays from one row of a person to the next.
    """

    schema: Schema
    names: tuple[str, ...]
    cells: Sequence[Cells]
    bins: Sequence[Bins]
    label_shares: Array
    trees: Sequence[Tree]
    size: int
    persistence: Persistence | None = None

    def draw(self, count: int | None = None, *, random_state: int | None = None) -> Any:
        """A pandas table of ``count`` rows; by default of as many rows, or persons, as there were.

        Parameters
        ----------
        count : int, optional
        random_state : int, optional
            Repeats a draw. It acts after the release, so the promise holds with any.
        """
        import pandas as pd

        return pd.concat(list(self.chunks(count, random_state=random_state)), ignore_index=True)

    def chunks(
        self, count: int | None = None, *, rows: int = CHUNK, random_state: int | None = None
    ) -> Iterator[Any]:
        """The same in parts of about ``rows`` rows, for tables that do not fit into memory."""
        if rows < 1 or (count is not None and count < 1):
            raise ValueError("At least one row must be drawn.")
        rng = np.random.default_rng(random_state)
        left, units = count, self.size if count is None else None
        person, mean = 0, self.rows_per_person
        while (left is None or left > 0) and (units is None or units > 0):
            most = math.ceil(min(rows, rows if left is None else left) / mean)
            most = most if units is None else min(most, units)
            drawn = self._rows(most, rng)
            owners, person = np.arange(len(drawn.labels)) + person, person + len(drawn.labels)
            if self.persistence is not None:
                drawn, owners = self._visits(drawn, owners, rng)
            if left is not None:
                drawn, owners = drawn.take(slice(left)), owners[:left]
                left -= len(owners)
            units = None if units is None else units - most
            yield self._frame(drawn, owners)

    @property
    def rows_per_person(self) -> float:
        """How many rows a synthetic person has on average; 1 where rows are not of persons."""
        if self.persistence is None:
            return 1.0
        rng = np.random.default_rng(0)
        bins, _ = self.draw_bins(1000, rng)
        return float(self._values(bins, rng)[:, -1].mean())

    def write_parquet(
        self, path: str | Path, count: int, *, rows: int = CHUNK, random_state: int | None = None
    ) -> Path:
        """Write ``count`` rows to a Parquet file, part by part; it appears when it is complete."""
        return write_atomically(
            path, _parquet(self.chunks(count, rows=rows, random_state=random_state))
        )

    def draw_bins(self, count: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
        """Bins of every column, and the place of the label, of so many rows."""
        limits = np.cumsum(self.label_shares)[:-1]
        even = (np.arange(count) + rng.random()) / count
        labels = rng.permutation(np.searchsorted(limits, even, side="right"))
        bins = np.empty((count, len(self.names)), np.int64)
        for label, tree in enumerate(self.trees):
            mine = labels == label
            bins[mine] = tree.draw(int(mine.sum()), rng)
        return bins, labels

    def log_likelihood(self, table: Any) -> Array:
        """How likely every row of a table is: what an attack on the generator itself looks at.

        Of persons with several rows, each row by itself; columns that count rows do not matter.

        Parameters
        ----------
        table : table
            With the columns of the schema.
        """
        schema = self.schema
        names = [name for name in self.names if name in schema.columns]
        read = schema.read(table, [*names, *([schema.label] if schema.label else [])])
        n_rows = len(read[names[0]])
        cells, density = np.zeros((n_rows, len(self.names)), np.int64), np.zeros(n_rows)
        known = np.zeros(cells.shape, bool)
        for k, (own, bins) in enumerate(zip(self.cells, self.bins, strict=True)):
            if self.names[k] in read:
                fine = own.of(read[self.names[k]])
                cells[:, k], known[:, k] = bins.of_fine[fine], True
                density += np.log(np.maximum(bins.shares[fine], 1e-12))
        labels = np.zeros(n_rows, np.int64)
        if schema.label is not None:
            labels = read[schema.label].astype(np.int64)
        likely = np.stack([tree.likelihood(cells, known) for tree in self.trees])
        own_label = likely[labels, np.arange(n_rows)] * self.label_shares[labels]
        return np.asarray(density + np.log(np.maximum(own_label, 1e-300)))

    def _rows(self, count: int, rng: np.random.Generator) -> _Drawn:
        bins, labels = self.draw_bins(count, rng)
        drawn = _Drawn(bins, labels, self._values(bins, rng))
        return self._by_the_rules(drawn, lambda wrong: self.draw_bins(int(wrong.sum()), rng), rng)

    def _values(self, bins: Integers, rng: np.random.Generator) -> Array:
        """Positions drawn inside bins."""
        columns = zip(self.cells, self.bins, bins.T, strict=True)
        return np.stack([cells.draw(b.draw(own, rng), rng) for cells, b, own in columns], axis=1)

    # ---- several rows of a person ----

    def _visits(
        self, first: _Drawn, people: Integers, rng: np.random.Generator
    ) -> tuple[_Drawn, Integers]:
        """All rows of persons whose first ones were drawn, and whose each is."""
        counts = np.rint(first.values[:, -1]).astype(np.int64)
        rows, owners, before, alive = [first], [people], first, np.arange(len(people))
        for visit in range(2, int(counts.max()) + 1):
            more = counts[alive] >= visit
            alive, before = alive[more], before.take(more)
            before = self._next(before, rng)
            rows.append(before)
            owners.append(people[alive])
        all_rows = _Drawn(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))
        order = np.argsort(np.concatenate(owners), kind="stable")
        return all_rows.take(order), np.concatenate(owners)[order]

    def _next(self, before: _Drawn, rng: np.random.Generator) -> _Drawn:
        """The next row of each person."""
        after = self._follow(before, rng)
        return self._by_the_rules(
            after, lambda wrong: self._follow(before.take(wrong), rng)[:2], rng, before
        )

    def _follow(self, before: _Drawn, rng: np.random.Generator) -> _Drawn:
        persistence = self.persistence
        assert persistence is not None
        bins, labels, kept, _ = persistence.follow(
            before.bins, before.labels, self.trees, self.label_shares, rng
        )
        same = kept & (rng.random(kept.shape) < persistence.keeps_value)
        same[:, -1] = True  # how many rows there are
        return _Drawn(bins, labels, np.where(same, before.values, self._values(bins, rng)))

    # ---- rules ----

    def _by_the_rules(
        self, drawn: _Drawn, again: Any, rng: np.random.Generator, before: _Drawn | None = None
    ) -> _Drawn:
        """Rows that keep the declared rules: repaired where that is possible, else drawn again."""
        if not self.schema.rules:
            return drawn
        for _ in range(_ATTEMPTS):
            drawn = self._repaired(drawn)
            wrong = ~self._kept(drawn)
            if not wrong.any():
                return drawn
            bins, labels = again(wrong)
            for part, new in zip(drawn, (bins, labels, self._values(bins, rng)), strict=True):
                part[wrong] = new
            if before is not None:
                drawn.values[:, -1] = before.values[:, -1]
        if before is not None:  # a next row of a person: as the one before
            for part, old in zip(drawn, before, strict=True):
                part[wrong] = old[wrong]
            return drawn
        if wrong.all():
            raise ValueError(
                "The rules of the schema cannot be kept within the declared ranges. Check them "
                "against the ranges and resolutions of their columns."
            )
        chosen = np.arange(len(wrong))
        chosen[wrong] = rng.choice(np.flatnonzero(~wrong), int(wrong.sum()))  # as other rows
        return drawn.take(chosen)

    def draw_written(self, count: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
        """Bins and labels of rows as they are written: what the rules changed is in them."""
        if not self.schema.rules:
            return self.draw_bins(count, rng)
        drawn = self._rows(count, rng)
        columns = zip(self.cells, self.bins, drawn.values.T, strict=True)
        return np.stack([b.of_fine[cells.of(at)] for cells, b, at in columns], 1), drawn.labels

    def _repaired(self, drawn: _Drawn) -> _Drawn:
        columns = {name: drawn.values[:, k] for k, name in enumerate(self.names)}
        for rule in self.schema.parsed_rules:
            columns = rule.repaired(columns)
        values = [self._within(k, columns[name]) for k, name in enumerate(self.names)]
        return drawn._replace(values=np.stack(values, axis=1))

    def _within(self, place: int, values: Array) -> Array:
        """Values in the range and on the steps of their column."""
        return values if not self.cells[place].is_ordered else self.cells[place].round(values)

    def _kept(self, drawn: _Drawn) -> Mask:
        columns = {name: drawn.values[:, k] for k, name in enumerate(self.names)}
        kept = np.ones(len(drawn.labels), bool)
        for rule in self.schema.parsed_rules:
            kept &= rule.holds(columns)
        return kept

    def _frame(self, drawn: _Drawn, owners: Integers) -> Any:
        """A pandas table with the columns of the schema in their order, and new identifiers."""
        import pandas as pd

        columns = self.schema.columns
        positions = {name: drawn.values[:, k] for k, name in enumerate(self.names)}
        if self.schema.label is not None:
            positions[self.schema.label] = drawn.labels.astype(np.float64)
        out: dict[str, Any] = {}
        if self.schema.person is not None:
            out[self.schema.person] = owners + 1
        for name in columns:
            if name in positions:
                out[name] = as_values(columns[name], positions[name])
        return pd.DataFrame(out)


def check_rules(schema: Schema) -> None:
    """Check, before a row is read, that values in the declared ranges can keep the rules.

    Examples
    --------
    >>> both = {"a": Number(0, 1, whole=True), "b": Number(0.3, 0.7)}
    >>> check_rules(Schema(both, rules=("a >= b",)))
    >>> check_rules(Schema(both, rules=("a = b",)))
    Traceback (most recent call last):
        ...
    ValueError: The rules of the schema cannot be kept within the declared ranges. ...
    """
    names = tuple(dict.fromkeys(name for rule in schema.parsed_rules for name in rule.names))
    if not names:
        return
    cells = [fine_cells(schema.columns[name]) for name in names]
    even = [np.full((1 if k == 0 else cells[k - 1].count, own.count), 1.0 / own.count)
            for k, own in enumerate(cells)]  # fmt: skip
    later = range(1, len(cells))
    tree = Tree(0, even[0][0], tuple((k, k - 1) for k in later), {k: even[k] for k in later})
    bins = [Bins(np.arange(own.count), np.ones(own.count)) for own in cells]
    generator = TableGenerator(schema, names, cells, bins, np.ones(1), [tree], 1)
    generator.draw_written(100, np.random.default_rng(0))


def _parquet(frames: Iterator[Any]) -> Iterator[bytes]:
    """The content of a Parquet file, piece by piece."""
    import pyarrow as pa
    from pyarrow import parquet

    held: list[bytes] = []
    sink, writer = pa.PythonFile(_Pieces(held), mode="w"), None
    for frame in frames:
        schema = None if writer is None else writer.schema
        table = pa.Table.from_pandas(frame, schema, preserve_index=False)
        writer = writer or parquet.ParquetWriter(sink, table.schema)
        writer.write_table(table)
        yield b"".join(held)
        held.clear()
    assert writer is not None
    writer.close()
    yield b"".join(held)


class _Pieces(io.RawIOBase):
    """A file that hands what is written to a list; pyarrow asks it where it stands."""

    def __init__(self, held: list[bytes]) -> None:
        super().__init__()
        self._held, self._place = held, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def write(self, data: Any) -> int:
        self._held.append(bytes(data))
        self._place += len(self._held[-1])
        return len(self._held[-1])


def as_values(column: Column, positions: Array) -> Any:
    """Values at these positions, in the type that the column declares.

    Numbers are ``float64``, whole ones ``int64``, or ``Int64`` where values may be missing;
    categories are categoricals of all declared values, and whole numbers where all of these are;
    dates are text in their format. The types of the private table do not count: a single value can
    change them.

    Examples
    --------
    >>> as_values(Number(0, 9, whole=True, missing=True), np.array([3.0, np.nan])).tolist()
    [3, <NA>]
    >>> from permea.tables import YesNo
    >>> as_values(YesNo(), np.array([1.0, 0.0])).tolist()
    ['yes', 'no']
    """
    import pandas as pd

    if isinstance(column, Number):
        if not column.whole:
            return pd.Series(positions)
        return pd.Series(positions).astype("Int64" if column.missing else "int64")
    missing = np.isnan(positions)
    if isinstance(column, Date):
        days = np.where(missing, column.first.toordinal(), positions).astype(np.int64)
        texts = {day: date.fromordinal(day).strftime(column.format) for day in set(days.tolist())}
        written = np.array([texts[day] for day in days.tolist()], dtype=object)
        written[missing] = None
        return pd.Series(written)
    assert isinstance(column, Choice)
    codes = np.where(missing, -1, positions).astype(np.int64)
    numbers = numbers_of(column)
    if numbers is None:
        return pd.Series(
            pd.Categorical.from_codes(codes.tolist(), categories=pd.Index(column.names))
        )
    whole = pd.Series(np.array(numbers)[codes]).astype("Int64").mask(missing)
    return whole if column.missing else whole.astype("int64")


def numbers_of(column: Choice) -> list[int] | None:
    """The declared values as whole numbers, if all of them are.

    Examples
    --------
    >>> from permea.tables import Category, YesNo
    >>> numbers_of(YesNo(yes=["1"], no=["0"])), numbers_of(Category(["1", "2"]))
    ([0, 1], [1, 2])
    >>> numbers_of(Category(["01", "02"])) is None
    True
    """
    names = column.names
    whole = all(name.isdecimal() and str(int(name)) == name for name in names)
    return [int(name) for name in names] if whole else None


__all__ = ["CHUNK", "TableGenerator", "as_values", "check_rules", "numbers_of"]

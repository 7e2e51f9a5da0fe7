"""Persons with several rows in a table: how many persons there are, and weights of rows."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from permea.tables.reading import Chunks, load_module

if TYPE_CHECKING:
    import pandas as pd

    from permea.tables.schema import Schema

Ids = NDArray[Any]


@dataclass(frozen=True, repr=False)
class WeightedChunks:
    """Frames with the weight 1/m of every row, m being the rows of its person in the table.

    Calling it gives an iterator over (frame, weights). Every pass counts again and stops where a
    person has more rows than before, so that her weights never add up to more than 1, even if the
    table grows meanwhile. `people_weights` makes it.
    """

    chunks: Chunks
    people: "Callable[[pd.DataFrame], Ids]"
    counts: dict[Any, int] | None  # rows of every person; None if the table is in their order

    @property
    def names(self) -> tuple[str, ...]:
        """Column names."""
        return self.chunks.names

    def __call__(self) -> "Iterator[tuple[pd.DataFrame, NDArray[np.float64]]]":
        """Read the table from its beginning."""
        return self._ordered() if self.counts is None else self._counted(self.counts)

    def _counted(self, counts: dict[Any, int]) -> "Iterator[tuple[pd.DataFrame, Any]]":
        left = dict(counts)
        for frame in self.chunks():
            ids, inverse, rows = _distinct(self.people(frame))
            for person, more in zip(ids, rows, strict=True):
                left[person] = left.get(person, 0) - more
                if left[person] < 0:
                    raise ValueError("The table grew while it was read. Read a copy of it.")
            yield frame, (1.0 / np.array([counts[person] for person in ids]))[inverse]

    def _ordered(self) -> "Iterator[tuple[pd.DataFrame, Any]]":
        frames = load_module("pandas", "cli")
        rest: Any = None  # the rows of the last person, which may go on
        for frame in chain(self.chunks(), [None]):
            if frame is not None:
                rest = frame if rest is None else frames.concat([rest, frame])
            people = self.people(rest)
            if np.any(people[1:] < people[:-1]):
                raise ValueError("The rows are not in the order of their people. Sort them first.")
            end = len(rest) if frame is None else int(np.argmax(people == people[-1]))
            if end:
                _, inverse, rows = _distinct(people[:end])
                yield rest[:end], (1.0 / rows)[inverse]
            rest = rest[end:]


def people_weights(
    chunks: Chunks, person: "str | Callable[[pd.DataFrame], Ids]", *, ordered: bool = False
) -> WeightedChunks:
    """Weights 1/m of rows, for a table in which a person has m rows in any places.

    One pass over the table counts the rows of every person. The counts stay in memory, some hundred
    bytes per person, however many rows there are. For a table that is sorted by person nothing is
    counted before, and memory holds one chunk and the rows of one person.

    Parameters
    ----------
    chunks : Chunks
    person : str or callable
        The column that tells people apart, or a function of a frame that gives their ids.
    ordered : bool, default=False
        Whether the rows are sorted by ``person``: text in the order of its characters, numbers by
        size. If they turn out not to be, an error is raised while they are read.

    Examples
    --------
    >>> import pandas as pd
    >>> from permea.tables import read_chunks
    >>> visits = read_chunks(pd.DataFrame({"patient": [7, 7, 8], "age": [61, 62, 40]}), rows=2)
    >>> [weights.tolist() for _, weights in people_weights(visits, "patient")()]
    [[0.5, 0.5], [1.0]]
    """
    people = partial(_column, person) if isinstance(person, str) else person
    if ordered:
        return WeightedChunks(chunks, people, None)
    counts: Counter[Any] = Counter()
    for frame in (chunks.select([person]) if isinstance(person, str) else chunks)():
        ids, _, rows = _distinct(people(frame))
        for each, more in zip(ids, rows, strict=True):
            counts[each] += more
    return WeightedChunks(chunks, people, dict(counts))


def count_units(table: "Chunks | pd.DataFrame", schema: "Schema", unit: str) -> int:
    """How many records or persons a table has, which is public where neighbours replace one.

    It never fails, because it may be called before a charge: rows that cannot be read end the count
    and are refused later.

    Examples
    --------
    >>> import pandas as pd
    >>> from permea.tables import Number, Schema, read_chunks
    >>> visits = pd.DataFrame({"id": ["7", " 7", "8"], "age": [61, 62, 40]})
    >>> schema = Schema({"age": Number(0, 110)}, person="id")
    >>> count_units(visits, schema, "person"), count_units(read_chunks(visits), schema, "record")
    (2, 3)
    """
    by_person = unit == "person"
    needed = str(schema.person) if by_person else schema.features[0]
    people: set[str | None] = set()
    rows = 0
    with suppress(Exception):
        for frame in table.select([needed])() if isinstance(table, Chunks) else [table]:
            people.update(schema.person_ids(frame) if by_person else ())
            rows += len(frame)
    return len(people - {None}) if by_person else rows


def _column(name: str, frame: "pd.DataFrame") -> Ids:
    return frame[name].to_numpy(dtype=object)


def _distinct(ids: Ids) -> tuple[list[Any], NDArray[np.intp], NDArray[np.int64]]:
    """Different ids, the place of every row's id among them, and how often each occurs."""
    places, found = load_module("pandas", "cli").factorize(ids)
    if np.any(places < 0) or "" in (known := found.tolist()):
        raise ValueError("A row has no person id. Every row must belong to somebody.")
    return known, places, np.bincount(places, minlength=len(known))

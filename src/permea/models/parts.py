"""Rows in parts: blocks of a matrix or columns of a table, with outputs and weights."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from permea._arrays import Array
from permea._parallel import batches
from permea.models.features import (
    Chain,
    FeatureMap,
    OrientedGradients,
    RandomFourier,
    ScaledIdentity,
)
from permea.privacy.release import table_shape

_KEPT_BYTES = 1 << 29  # features of the first pass that are kept for the second


class Part(NamedTuple):
    """Some of the rows: a block of a matrix or columns by name, their outputs and weights."""

    rows: Any
    outputs: NDArray[Any]
    weights: Array | None = None  #: None for 1 each

    def take(self, chosen: Any) -> "Part":
        """Some of the rows, by a slice or a mask."""
        rows = self.rows[chosen] if not isinstance(self.rows, dict) else None
        if rows is None:
            rows = {name: column[chosen] for name, column in self.rows.items()}
        weights = None if self.weights is None else self.weights[chosen]
        return Part(rows, self.outputs[chosen], weights)

    def cut(self, size: int) -> "Iterator[Part]":
        """The same in parts of at most ``size`` rows."""
        return map(self.take, batches(len(self.outputs), size))


class Counted(NamedTuple):
    """Rows of each person who is in some chunks: in these chunks, and in the whole table.

    Private, like the rows.
    """

    here: Counter[Any]
    everywhere: Counter[Any]

    @classmethod
    def of(cls, counts: Sequence[Counter[Any]]) -> "list[Counted]":
        """The same for the parts of a table, from the counts of each of them.

        Examples
        --------
        >>> Counted.of([Counter(ann=1), Counter(ann=2, bob=1)])[0]
        Counted(here=Counter({'ann': 1}), everywhere=Counter({'ann': 3}))
        """
        total: Counter[Any] = Counter()
        for here in counts:
            total.update(here)
        return [cls(here, Counter({person: total[person] for person in here})) for here in counts]


Parts = Callable[[], Iterable[Part]]
Total = Callable[[Callable[[Part], Any]], Any]
Chunks = Callable[[], Iterable[Any]]
Task = tuple[Chunks, Counted | None]  # some of the chunks, for a worker


def feature_map(features: str | Any, domain: tuple[ArrayLike, ArrayLike], n_columns: int) -> Any:
    """The public map that a name or a transformer stands for, ready for rows of ``n_columns``.

    Maps of :mod:`permea.models.features` are told the number of columns. Any other transformer
    must have been fitted already, on public data: it is used as it is and never fitted here.
    """
    named: dict[str, Callable[[], FeatureMap]] = {
        "identity": lambda: ScaledIdentity(domain=domain),
        "fourier": lambda: Chain(
            [ScaledIdentity(domain=domain), RandomFourier(n_frequencies=300, scale=2.0)]
        ),
        "edges": lambda: OrientedGradients(exponent=0.375),
        "gradients": lambda: Chain([OrientedGradients(), RandomFourier(scale=2.0)]),
    }
    if isinstance(features, str):
        if features not in named:
            raise ValueError(f"features must be one of {sorted(named)} or a transformer.")
        return named[features]().fit_columns(n_columns)
    if isinstance(features, FeatureMap):
        return clone(features).fit_columns(n_columns)
    if not hasattr(features, "transform"):
        raise TypeError("features must be a name or an object with a method `transform`.")
    return features


def column_range(parts: Parts) -> tuple[Array, Array]:
    """Range of every column, for learning without a promise; a constant column gets a width."""
    blocks = (dense(part.rows) for part in parts())
    lows, highs = zip(*((X.min(axis=0), X.max(axis=0)) for X in blocks), strict=True)
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    return low, np.where(high > low, high, low + 1.0)


def dense(rows: Any) -> Array:
    """A block of rows as an array; blocks of a sparse matrix are small enough for that.

    An index outside a sparse matrix is refused: it would be written into another row.
    """
    if hasattr(rows, "check_format"):
        rows.check_format(full_check=True)
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)


class MappedParts:
    """Features, outputs and weights of parts of the rows; half a gibibyte of them is kept."""

    def __init__(self, parts: Parts, transform: Callable[[Any], Array], keep: bool) -> None:
        self._parts, self._transform, self._keep = parts, transform, keep
        self._kept: list[Part] | None = None

    def __iter__(self) -> Iterator[Part]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Part] = []
        size = 0
        for part in self._parts():
            mapped = part._replace(rows=self._transform(part.rows))
            size += mapped.rows.nbytes
            self._keep = self._keep and size <= _KEPT_BYTES
            kept = [*kept, mapped] if self._keep else []
            yield mapped
        self._kept = kept if self._keep else None


def n_numbers(y: Any) -> int:
    """Number of outputs of a row, from the shape alone; rows of different lengths have one."""
    try:
        shape = getattr(y, "shape", None) or np.shape(y)
    except ValueError:
        return 1
    return shape[1] if len(shape) == 2 else 1


def first_chunk(chunks: Chunks) -> tuple[Any, Any, Any]:
    """The first chunk, for its shape."""
    X, y, groups = opened(next(iter(chunks()), ((), ())))
    table_shape(X)
    return X, y, groups


def opened(chunk: Any) -> tuple[Any, Any, Any]:
    """Rows, outputs and groups of a chunk; a frame has them in its columns."""
    if isinstance(chunk, tuple):
        return (*chunk, None) if len(chunk) == 2 else chunk
    return chunk, None, None

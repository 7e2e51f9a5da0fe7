"""Private quantiles as bin edges, for numbers whose range is known only loosely.

Every column is counted in a public tree over its declared range: 16 cells, each of them in 16, and
those in 16 again. The noised counts are one release (`permea.privacy.counts`); all that follows is
post-processing: the counts are made consistent over the levels, and edges are placed so that
about as many people lie between any two of them.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.isotonic import isotonic_regression

from permea._arrays import Array, Integers
from permea.privacy.certificate import Certificate
from permea.privacy.counts import release_table_counts
from permea.privacy.ledger import Ledger
from permea.privacy.moments import Neighbours
from permea.privacy.sampling import RandomState
from permea.privacy.units import Privacy
from permea.tables import Number, Schema

BRANCHES, DEPTH = 16, 3
CELLS = BRANCHES**DEPTH
_EVEN = 0.01  # part of the edges' mass that is spread over the whole range


def private_edges(
    frame: Any,
    schema: Schema,
    *,
    columns: Sequence[str],
    privacy: Privacy,
    bins: int,
    neighbours: Neighbours = "replace",
    groups: ArrayLike | None = None,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    random_state: RandomState = None,
) -> tuple[Schema, Certificate]:
    """Bin edges at noised quantiles, for numbers whose declared range is loose.

    This is a release of its own: what it costs is charged, and adds up with that of the model that
    is learned with the new schema. A tenth of the budget is enough for thousands of people: with
    ranges ten times too wide it gained up to 0.019 of AUROC (``benchmarks/tables_pairs.py``). Where
    ranges are known well, edges by ``Number(low, high, scale=…)`` cost nothing and serve as well.

    Parameters
    ----------
    frame : table
        The private rows.
    schema : Schema
        Declares the loose ranges; ``scale="log"`` counts in cells of growing width.
    columns : sequence of str
        Number columns that get edges.
    privacy : Privacy
        The promise, per record or per person, with δ > 0; the schema stands for the domain.
    bins : int
        Number of edges of a column; a column of whole numbers gets no more than it has values.
    neighbours : {"replace", "add/remove"}
        How neighbouring data sets differ.
    groups : array-like, optional
        Whose row each is, with ``unit="person"``; the schema's person by default.
    ledger, dataset, random_state
        As in `permea.privacy.release.release`.

    Returns
    -------
    Schema
        The same with explicit edges on those columns. It may be published.
    Certificate

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> frame = {"pay": rng.normal(3000, 500, 20_000)}
    >>> promise = Privacy(epsilon=0.5, delta=1e-6, unit="record")
    >>> schema, certificate = private_edges(
    ...     frame, Schema({"pay": Number(0, 100_000)}), columns=["pay"], privacy=promise, bins=4
    ... )
    >>> all(2000 < edge < 4000 for edge in schema.columns["pay"].edges), certificate.is_private
    (True, True)
    """
    numbers = _loose_numbers(schema, columns)
    grids = [fine_grid(column) for column in numbers.values()]
    counts = [_n_edges(column, bins) for column in numbers.values()]
    released = release_table_counts(
        frame, schema, list(numbers),
        lambda rows: [
            level
            for name, grid in zip(numbers, grids, strict=True)
            for level in tree_codes(rows[name], grid)
        ],
        [BRANCHES**level for level in range(1, DEPTH + 1)] * len(numbers),
        privacy=privacy, neighbours=neighbours, groups=groups, ledger=ledger, dataset=dataset,
        random_state=random_state, description=f"bin edges of {len(numbers)} columns",
    )  # fmt: skip
    edges = {}
    for place, (name, column) in enumerate(numbers.items()):
        levels = released.tables[DEPTH * place : DEPTH * (place + 1)]
        found = edges_of(levels, grids[place], counts[place])
        edges[name] = replace(column, edges=tuple(found.tolist()))
    return replace(schema, columns={**schema.columns, **edges}), released.certificate


def _loose_numbers(schema: Schema, columns: Sequence[str]) -> dict[str, Number]:
    """The columns that get edges, checked against the schema alone."""
    found = {}
    for name in (columns,) if isinstance(columns, str) else columns:
        column = schema.columns.get(name)
        if not isinstance(column, Number) or name not in schema.features:
            raise ValueError(f"{name!r} is not a number among the features of the schema.")
        found[name] = column
    return found


def _n_edges(column: Number, bins: int) -> int:
    if bins < 2:
        raise ValueError("bins must be at least 2: a number is placed between two edges.")
    step = 1.0 if column.whole else column.resolution
    most = math.inf if step is None else (column.high - column.low) / step + 1
    return int(max(2, min(bins, most)))


def fine_grid(column: Number) -> Array:
    """Bounds of the finest cells: equal steps, or growing in proportion for ``scale="log"``.

    Examples
    --------
    >>> grid = fine_grid(Number(0.1, 1000, scale="log"))
    >>> grid[[0, CELLS // 4, CELLS // 2, CELLS]].round(9).tolist()
    [0.1, 1.0, 10.0, 1000.0]
    """
    low, width = float(column.low), float(column.high) - float(column.low)
    steps = np.arange(CELLS + 1) / CELLS
    if column.scale == "log":
        start = low if low > 0 else column.resolution or 1.0
        steps = np.expm1(steps * math.log1p(width / start)) / (width / start)
    grid = low + steps * width
    grid[-1] = column.high
    if not np.all(np.diff(grid) > 0):
        raise ValueError("A range is too narrow for its numbers to be told apart.")
    return np.asarray(grid)


def tree_codes(values: Array, grid: Array) -> list[Integers]:
    """Cells of values in every level of the tree; -1 for NaN, the ends for what lies outside.

    Comparisons alone decide, so the cell of a row does not depend on other rows.

    Examples
    --------
    >>> grid = np.linspace(0, 4096, CELLS + 1)
    >>> [level.tolist() for level in tree_codes(np.array([-5.0, 300.5, np.nan, 1e9]), grid)]
    [[0, 1, -1, 15], [0, 18, -1, 255], [0, 300, -1, 4095]]
    """
    cells = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, CELLS - 1)
    cells = np.where(np.isnan(values), -1, cells)
    return [cells // BRANCHES**up for up in reversed(range(DEPTH))]


def consistent(levels: Sequence[Array]) -> Array:
    """Least squares: counts of the finest cells that agree best with all noised levels.

    Two passes over the tree (Hay et al. 2010). Sums of many cells are then far more precise than
    sums of noised fine counts.

    Examples
    --------
    >>> counts = np.arange(CELLS, dtype=float)
    >>> levels = [counts.reshape(n, -1).sum(1) for n in (16, 256, 4096)]
    >>> bool(np.allclose(consistent(levels), counts))
    True
    """
    best = [levels[-1]]
    for height, own in enumerate(reversed(levels[:-1]), start=2):
        all_of, below = BRANCHES**height, BRANCHES ** (height - 1)
        share = (all_of - below) / (all_of - 1)
        best.insert(0, share * own + (1 - share) * best[0].reshape(-1, BRANCHES).sum(axis=1))
    leaves = best[0]
    for table in best[1:]:
        gap = leaves - table.reshape(-1, BRANCHES).sum(axis=1)
        leaves = table + np.repeat(gap / BRANCHES, BRANCHES)
    return leaves


def edges_of(levels: Sequence[Array], grid: Array, bins: int) -> Array:
    """Strictly increasing edges with about equal noised counts between them.

    A cell with more than its share (a value that many people have) gets one edge, and the others
    are placed by the remaining counts.

    Examples
    --------
    >>> grid = np.linspace(0, 1, CELLS + 1)
    >>> levels = [np.full(n, 4096.0 / n) for n in (16, 256, 4096)]
    >>> edges_of(levels, grid, 5).round(3).tolist()
    [0.1, 0.3, 0.5, 0.7, 0.9]
    """
    below = np.maximum(isotonic_regression(np.cumsum(consistent(levels))), 0.0)
    mass = np.diff(below, prepend=0.0)
    mass = mass / mass.sum() if mass.sum() > 0 else np.full(CELLS, 1.0 / CELLS)
    for _ in range(bins):  # shares are cut to 1/bins of what is left, until nothing changes
        mass = np.minimum(mass, mass.sum() / bins)
    mass = (1 - _EVEN) * mass / mass.sum() + _EVEN / CELLS
    share = np.concatenate([[0.0], np.cumsum(mass)])
    return np.asarray(np.interp((np.arange(bins) + 0.5) / bins, share / share[-1], grid))

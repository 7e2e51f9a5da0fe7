"""Pairs of columns whose interaction a noised criterion finds.

For every pair of feature columns a coarse table is counted: cells of the one, cells of the other,
the label. All tables are one release (`permea.privacy.counts`). What follows is post-processing:
the model without interaction (each column acts on the label in the same way whatever the other
says) is fitted to each table, and a pair is ranked by how far the table is from it, in standard
deviations of what sampling and privacy noise alone would give.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from permea._arrays import Array, Integers
from permea.privacy.certificate import Certificate
from permea.privacy.counts import release_table_counts
from permea.privacy.ledger import Ledger
from permea.privacy.moments import Neighbours
from permea.privacy.sampling import RandomState
from permea.privacy.units import Privacy
from permea.tables import Category, Column, Date, Number, Schema, YesNo

NUMBER_CELLS = 4
MOST_VALUES = 16  # values of a category; later ones share the last cell
_SIMULATED = 100  # tables without interaction, for the scale of the criterion
_ERROR = 0.01  # chance that any pair is taken where none interacts


def pick_pairs(
    frame: Any,
    schema: Schema,
    *,
    k: int,
    privacy: Privacy,
    neighbours: Neighbours = "replace",
    groups: ArrayLike | None = None,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    random_state: RandomState = None,
) -> tuple[Schema, Certificate]:
    """Add up to k pairs of feature columns that interact, found from one noised release.

    This is a release of its own, charged beside that of the model. With a tenth of the budget it
    found the right pair of an invented table at ε = 1, and gained 0.17 of AUROC; on Adult, SUPPORT2
    and Framingham it gained nothing at ε = 1, 4 and 8 (``benchmarks/tables_pairs.py``). Use it
    where there is a reason to expect interactions.

    Parameters
    ----------
    frame : table
        The private rows, with the label (or target) column.
    schema : Schema
        The declared columns. Pairs that it names already stay and are not counted again.
    k : int
        How many pairs at most. Pairs that chance could explain are not taken.
    privacy : Privacy
        The promise, per record or per person, with δ > 0; the schema stands for the domain.
    neighbours : {"replace", "add/remove"}
        How neighbouring data sets differ.
    groups : array-like, optional
        Whose row each is, with ``unit="person"``; the schema's person by default.
    ledger, dataset, random_state
        As in `permea.privacy.release.release`.

    Returns
    -------
    Schema
        The same with more pairs. It may be published.
    Certificate
    """
    if k < 1:
        raise ValueError("k must be at least 1: how many pairs are wanted.")
    pairs = [
        pair for pair in combinations(schema.features, 2)
        if pair not in schema.pairs and pair[::-1] not in schema.pairs
    ]  # fmt: skip
    label = schema.label or schema.target
    if label is None:
        raise ValueError("Interactions act on a label or a target: declare one in the schema.")
    shapes = {name: n_cells(schema.columns[name]) for name in (*schema.features, label)}
    sizes = [shapes[one] * shapes[other] * shapes[label] for one, other in pairs]

    def cells(rows: Mapping[str, Array]) -> list[Integers]:
        coarse = {name: coarse_cells(schema.columns[name], rows[name]) for name in shapes}
        return [_joined(coarse, shapes, (*pair, label)) for pair in pairs]

    released = release_table_counts(
        frame, schema, (*schema.features, label), cells, sizes,
        privacy=privacy, neighbours=neighbours, groups=groups, ledger=ledger, dataset=dataset,
        random_state=random_state,
        description=f"choice of up to {k} of {len(pairs)} pairs of columns",
    )  # fmt: skip
    strengths = [
        interaction(table.reshape([shapes[name] for name in (*pair, label)]), released.noise)
        for table, pair in zip(released.tables, pairs, strict=True)
    ]
    least = stats.norm.isf(_ERROR / len(pairs))
    best = [at for at in np.argsort(strengths)[::-1][:k] if strengths[at] > least]
    chosen = replace(schema, pairs=(*schema.pairs, *(pairs[at] for at in best)))
    return chosen, released.certificate


def n_cells(column: Column) -> int:
    """Number of coarse cells of a column, one of them for missing values if they are declared."""
    if isinstance(column, Category | YesNo):
        return min(len(column.names), MOST_VALUES) + column.missing
    return NUMBER_CELLS + column.missing


def coarse_cells(column: Column, positions: Array) -> Integers:
    """The cell of every value, by comparisons alone.

    Examples
    --------
    >>> coarse_cells(Number(0, 100, missing=True), np.array([-5.0, 30, 99, np.nan])).tolist()
    [0, 1, 3, 4]
    """
    if isinstance(column, Category | YesNo):
        bounds = np.arange(1.0, min(len(column.names), MOST_VALUES))
    else:
        number = column.days if isinstance(column, Date) else column
        assert isinstance(number, Number)
        fine = number.grid(4 * NUMBER_CELLS + 1)
        bounds = fine[np.arange(1, NUMBER_CELLS) * (len(fine) - 1) // NUMBER_CELLS]
    cells = np.searchsorted(bounds, positions, side="right")
    return np.where(np.isnan(positions), n_cells(column) - 1, cells)


def _joined(
    cells: Mapping[str, Integers], shapes: Mapping[str, int], names: tuple[str, ...]
) -> Integers:
    code = np.zeros_like(cells[names[0]])
    for name in names:
        code = code * shapes[name] + cells[name]
    return code


def interaction(table: Array, noise: float) -> float:
    """How far a table of noised counts is from one without interaction, in standard deviations.

    Tables without interaction are simulated from the fitted one, with the same noise, so that
    neither sampling nor noise nor many empty cells are taken for an interaction. Their distances
    are about gamma distributed, and the cube root of such a variable is about normal (Wilson and
    Hilferty 1931).

    Examples
    --------
    >>> either = np.array([[[400.0, 100], [100, 400]], [[100, 400], [400, 100]]])
    >>> bool(interaction(either, 10.0) > 10), bool(interaction(np.full((2, 2, 2), 250.0), 10.0) < 3)
    (True, True)
    """
    rng = np.random.default_rng(0)
    fitted = _without_interaction(table[None])
    size = (_SIMULATED, *table.shape)
    null = rng.poisson(fitted, size) + rng.normal(scale=noise, size=size)
    expected = _distances(null, noise)
    found = _distances(table[None], noise)[0]
    mean = max(expected.mean(), 0.01)
    spread = 9.0 * mean**2 / max(expected.var(), 1e-4)
    return float((np.cbrt(found / mean) - 1.0 + 1.0 / spread) * np.sqrt(spread))


def _distances(tables: Array, noise: float) -> Array:
    """Pearson's statistic of every table, with the noise in the variance of a cell."""
    fitted = _without_interaction(tables)
    left = np.square(tables - fitted) / (fitted + noise**2 + 1.0)
    return np.asarray(left.sum(axis=(1, 2, 3)))


def _without_interaction(tables: Array) -> Array:
    """Iterative proportional fitting to the counts of every two of the three columns."""
    margins = [np.maximum(tables.sum(axis=axis, keepdims=True), 1e-6) for axis in (1, 2, 3)]
    fitted = np.ones_like(tables)
    for _ in range(20):
        for axis, margin in enumerate(margins, start=1):
            fitted *= margin / np.maximum(fitted.sum(axis=axis, keepdims=True), 1e-12)
    return fitted

"""Learns a generator of tables from counts that are released in stages.

1. Every column alone, in fine cells, for every label: bins follow from it.
2. All pairs of columns in these bins, for every label: a tree of dependences follows. Where these
   tables would be lost in noise (more than 50 columns, or few people), all pairs in halves
   (`permea.fabricate.halves`).
3. The pairs of that tree again, with half of the budget.

A row has one label, so the tables of all labels together cost as much as those of one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple, overload

import numpy as np

from permea._arrays import Array, Indices, Integers
from permea.fabricate.cells import Bins, Cells, join_cells
from permea.fabricate.halves import half_strengths, halves
from permea.fabricate.persons import AGREEMENTS, Persistence, agreements, fit_persistence
from permea.fabricate.trees import (
    Tree,
    combined,
    fit_tree,
    pair_strength,
    spanning_tree,
    to_simplex,
)
from permea.privacy.counts import Codes
from permea.privacy.stages import MOST_CELLS, ChargedCounts, Stage

SHARES = (0.3, 0.2, 0.5)
PERSISTENCE_SHARE = 0.05  # of the budget, for what stays from one row of a person to the next
_SIGNAL = 0.2  # noise of a pair's table, as a share of the rows of a label, that bins allow
_LEAST = 4.0  # rows of a bin, in standard deviations of the noise of the last stage
_MANY = 50  # columns beyond which halves are counted
_LOST = 0.06  # noise of the second stage, in rows of a label, above which halves are counted
_FEWEST, _MOST = 3, 32  # bins of a number


class Rows(NamedTuple):
    """Private rows: the fine cell of every row in every column, its label, and its weight."""

    fine: Sequence[Indices]
    labels: Integers
    weights: Array | None = None
    people: Integers | None = None  #: whose each row is, where persons have several


def stages(n_columns: int, *, persons: bool = False) -> list[Stage]:
    """Stages for so many columns; without pairs to choose from there is less to count.

    With ``persons`` one more stage counts which values stay from one row of a person to the next.

    Examples
    --------
    >>> [stage.n_tables for stage in stages(14)], len(stages(2)), len(stages(1))
    ([14, 91, 13], 2, 1)
    """
    tables = [n_columns, n_columns * (n_columns - 1) // 2, n_columns - 1]
    kept = [(s, t) for s, t in zip(SHARES, tables, strict=True) if t > 0]
    if n_columns == 2:  # one pair: nothing to choose
        kept = [kept[0], (SHARES[1] + SHARES[2], 1)]
    if persons:
        kept.append((PERSISTENCE_SHARE, n_columns + 1))
    total = math.fsum(share for share, _ in kept)
    return [Stage(share / total, n) for share, n in kept]


class _Lazy(Sequence[Integers]):
    """Cells of many tables, each computed when it is counted."""

    def __init__(self, makers: Sequence[Callable[[], Integers]]) -> None:
        self._makers = makers

    def __len__(self) -> int:
        return len(self._makers)

    @overload
    def __getitem__(self, place: int) -> Integers: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Integers]: ...
    def __getitem__(self, place: int | slice) -> Any:
        return self._makers[place]() if isinstance(place, int) else _Lazy(self._makers[place])


@dataclass
class Learner:
    """One run of the stages; ``private`` rows are read by `ChargedCounts.release` alone."""

    charged: ChargedCounts
    read: Callable[[], Rows]
    cells: Sequence[Cells]
    n_labels: int
    bins: list[Bins] = field(default_factory=list)
    totals: Array = field(default_factory=lambda: np.zeros(0))
    totals_noise: float = 0.0
    trees: list[Tree] = field(default_factory=list)
    persistence: Persistence | None = None
    counted_pairs: dict[tuple[int, int], tuple[list[Array], float]] = field(default_factory=dict)
    counted_alone: list[tuple[Array, float]] = field(default_factory=list)
    halves: list[Integers] = field(default_factory=list)
    counted_halves: dict[tuple[int, int], Array] = field(default_factory=dict)

    @property
    def n_columns(self) -> int:
        """Number of columns beside the label."""
        return len(self.cells)

    def learn(self, *, persons: bool = False) -> None:
        """All stages: bins, a tree with shares for every label, and what stays within a person."""
        self._count_columns()
        if self.n_columns == 1:
            self.trees = [
                fit_tree((), {}, [self._marginal(c, 0, [])]) for c in range(self.n_labels)
            ]
        else:
            if self.n_columns > 2 and self._are_lost_in_noise():
                self._count_halves()
            elif self.n_columns > 2:
                self._count_pairs()
            self.trees = self._count_trees()
        if persons:
            self._count_agreements()

    def _count_agreements(self) -> None:
        def read() -> Codes:
            rows = self.read()
            assert rows.people is not None
            return agreements(rows.people, rows.fine, self.bins, rows.labels)

        tables = self.charged.release(self._last + 1, [AGREEMENTS] * (self.n_columns + 1), read)
        self.persistence = fit_persistence(tables, self.trees, self.totals / self.totals.sum())

    @property
    def _last(self) -> int:
        """The stage in which pairs are counted last, or the only one."""
        return min(self.n_columns, 3) - 1

    def _count_columns(self) -> None:
        C = self.n_labels

        def read() -> Codes:
            rows = self.read()
            makers = [_crossed((rows.labels, fine), (C, cells.count))
                      for fine, cells in zip(rows.fine, self.cells, strict=True)]  # fmt: skip
            return Codes(_Lazy(makers), rows.weights)

        sizes = [C * cells.count for cells in self.cells]
        found = self.charged.release(0, sizes, read)
        noise = self.charged.noise(0)
        tables = [table.reshape(C, -1) for table in found]
        sums = [(table.sum(1), noise * math.sqrt(table.shape[1])) for table in tables]
        totals, self.totals_noise = combined(sums)
        public = self.charged.public_size
        size = totals.sum() if public is None else public
        self.totals = to_simplex(totals, max(float(size), 1.0))
        self.bins = self._bins([table.sum(0) for table in tables], noise * math.sqrt(C))
        self.counted_alone = [
            (_joined(table, bins), noise * math.sqrt(table.shape[1] / bins.count))
            for table, bins in zip(tables, self.bins, strict=True)
        ]

    def _bins(self, counts: Sequence[Array], noise: float) -> list[Bins]:
        """Bins of all columns; coarser ones where all pairs together have too many cells."""
        most, rare = self._n_bins(), 3.0
        least = _LEAST * self.charged.noise(self._last)
        while True:
            bins = [
                join_cells(cells, own, noise, most, least=least, rare=rare)
                for cells, own in zip(self.cells, counts, strict=True)
            ]
            sizes = np.array([each.count for each in bins])
            pairs = (sizes.sum() ** 2 - np.square(sizes).sum()) / 2
            if pairs * self.n_labels <= MOST_CELLS:
                return bins
            most, rare = max(1, most * 3 // 4), 1.5 * rare

    def _n_bins(self) -> int:
        """So many that the noise of a table is a small share of the rows of a label."""
        last = self.charged.noise(self._last)
        rows = float(self.totals.max())
        return int(np.clip(math.sqrt(_SIGNAL * rows / last), _FEWEST, _MOST))

    def _count_pairs(self) -> None:
        pairs = list(combinations(range(self.n_columns), 2))
        tables = self._release(1, pairs)
        noise = self.charged.noise(1)
        self.counted_pairs = {
            pair: (table, noise) for pair, table in zip(pairs, tables, strict=True)
        }

    def _are_lost_in_noise(self) -> bool:
        """Whether tables of all pairs would be lost in noise, as far as the first stage tells."""
        rows = float(self.totals.sum()) / self.n_labels
        return self.n_columns > _MANY or self.charged.noise(1) > _LOST * rows

    def _count_halves(self) -> None:
        """All pairs in halves, in place of their tables; one tree for all labels follows."""
        self.halves = [
            halves(cells, counts.sum(0))
            for cells, (counts, _) in zip(self.cells, self.counted_alone, strict=True)
        ]
        pairs = list(combinations(range(self.n_columns), 2))

        def read() -> Codes:
            rows = self.read()
            side = [
                half[bins.of_fine].astype(np.int8)[fine]
                for half, bins, fine in zip(self.halves, self.bins, rows.fine, strict=True)
            ]
            return Codes(_Lazy([_differing(side[a], side[b]) for a, b in pairs]), rows.weights)

        found = self.charged.release(1, [2] * len(pairs), read)
        self.counted_halves = dict(zip(pairs, found, strict=True))

    def _count_trees(self) -> list[Tree]:
        edges, stage = self._edges(), self._last
        found = self._release(stage, edges)
        noise = self.charged.noise(stage)
        trees = []
        for label in range(self.n_labels):
            counted = {
                column: self._with_first(label, column, parent, (tables[label].T, noise))
                for (column, parent), tables in zip(edges, found, strict=True)
            }
            trees.append(self._tree(label, edges, counted))
        if not self.counted_pairs:  # pairs of the last stage are the only ones with tables
            for (column, parent), tables in zip(edges, found, strict=True):
                turned = [table.T if parent < column else table for table in tables]
                pair = min(column, parent), max(column, parent)
                self.counted_pairs[pair] = turned, noise
        return trees

    def _with_first(
        self, label: int, column: int, parent: int, new: tuple[Array, float]
    ) -> tuple[Array, float]:
        """A table of parent by column, together with what was counted of it before."""
        if not self.counted_pairs:
            return new
        first, second = min(column, parent), max(column, parent)
        tables, noise = self.counted_pairs[first, second]
        old = tables[label] if parent == first else tables[label].T
        return combined([(old, noise), new])

    def _tree(
        self,
        label: int,
        edges: Sequence[tuple[int, int]],
        counted: Mapping[int, tuple[Array, float]],
    ) -> Tree:
        further: list[list[tuple[Array, float]]] = [[] for _ in range(self.n_columns)]
        for column, parent in edges:
            table, noise = counted[column]
            further[column].append((table.sum(0), noise * math.sqrt(table.shape[0])))
            further[parent].append((table.sum(1), noise * math.sqrt(table.shape[1])))
        marginals = [
            self._marginal(label, column, further[column]) for column in range(self.n_columns)
        ]
        return fit_tree(edges, {column: table for column, (table, _) in counted.items()}, marginals)

    def _edges(self) -> list[tuple[int, int]]:
        """The tree of dependences, from the pairs counted so far: one for all labels.

        A tree for every label was no nearer to the pairs, and less was learned about the label.
        """
        if self.counted_halves:
            return spanning_tree(self._strengths_of_halves())
        if not self.counted_pairs:
            return [(1, 0)]
        strengths = np.zeros((self.n_columns, self.n_columns))
        for label in range(self.n_labels):
            marginals = [self._marginal(label, column, []) for column in range(self.n_columns)]
            for (one, other), (tables, noise) in self.counted_pairs.items():
                found = pair_strength(tables[label], marginals[one], marginals[other], noise)
                strengths[one, other] += found
        return spanning_tree(strengths + strengths.T)

    def _strengths_of_halves(self) -> Array:
        upper = np.zeros(self.n_columns)
        for k, (half, (counts, _)) in enumerate(zip(self.halves, self.counted_alone, strict=True)):
            known = to_simplex(counts.sum(0), max(float(self.totals.sum()), 1.0))
            upper[k] = known[half == 1].sum() / known.sum()
        return half_strengths(
            list(self.counted_halves.values()), list(self.counted_halves), upper,
            self.charged.noise(1),
        )  # fmt: skip

    def _marginal(self, label: int, column: int, further: Sequence[tuple[Array, float]]) -> Array:
        """Rows of a label in every bin of a column: all that was counted, by inverse variance."""
        alone, noise = self.counted_alone[column]
        estimates = [(alone[label], noise), *further]
        for other in range(self.n_columns) if self.counted_pairs else ():
            if other != column:
                tables, spread = self.counted_pairs[min(column, other), max(column, other)]
                table = tables[label] if column < other else tables[label].T
                estimates.append((table.sum(1), spread * math.sqrt(table.shape[1])))
        mean, _ = combined(estimates)
        return to_simplex(mean, max(float(self.totals[label]), 1e-6))

    def column_counts(self, column: int) -> tuple[Array, Array]:
        """Rows of every label in every bin of a column, and the standard deviation of each.

        All that was counted of the column in the first two stages, as it was released.
        """
        alone, _ = self.counted_alone[column]
        sizes = np.bincount(self.bins[column].of_fine).astype(np.float64)
        estimates = [(alone, self.charged.noise(0) ** 2 * sizes)]
        for (one, other), (tables, noise) in self.counted_pairs.items():
            if column in (one, other):
                sums = np.stack([table.sum(1 if column == one else 0) for table in tables])
                cells = tables[0].shape[1 if column == one else 0]
                estimates.append((sums, np.full(len(sizes), noise**2 * cells)))
        weights = np.array([1.0 / variance.mean() for _, variance in estimates])
        weights /= weights.sum()
        mean = sum(w * table for w, (table, _) in zip(weights, estimates, strict=True))
        variance = sum(w**2 * own for w, (_, own) in zip(weights, estimates, strict=True))
        return np.asarray(mean), np.sqrt(variance)

    def _release(self, stage: int, pairs: Sequence[tuple[int, int]]) -> list[list[Array]]:
        """Counts of pairs in bins, for every label: a table of the label and both columns each."""
        counts = [bins.count for bins in self.bins]
        C = self.n_labels

        def read() -> Codes:
            rows = self.read()
            coarse = [
                bins.of_fine.astype(np.int32)[fine]
                for bins, fine in zip(self.bins, rows.fine, strict=True)
            ]
            makers = [
                _crossed((rows.labels, coarse[a], coarse[b]), (C, counts[a], counts[b]))
                for a, b in pairs
            ]
            return Codes(_Lazy(makers), rows.weights)

        found = self.charged.release(stage, [C * counts[a] * counts[b] for a, b in pairs], read)
        return [
            list(flat.reshape(C, counts[a], counts[b]))
            for flat, (a, b) in zip(found, pairs, strict=True)
        ]


def _differing(one: Indices, other: Indices) -> Callable[[], Integers]:
    return lambda: np.asarray(one ^ other, np.int64)


def _crossed(parts: Sequence[Indices], sizes: Sequence[int]) -> Callable[[], Integers]:
    def cells() -> Integers:
        code = parts[0].astype(np.int64)
        for part, size in zip(parts[1:], sizes[1:], strict=True):
            code = code * size + part
        return code

    return cells


def _joined(table: Array, bins: Bins) -> Array:
    """Counts of fine cells, one row for every label, as counts of bins."""
    out = np.zeros((len(table), bins.count))
    for label, counts in enumerate(table):
        out[label] = np.bincount(bins.of_fine, counts, minlength=bins.count)
    return out

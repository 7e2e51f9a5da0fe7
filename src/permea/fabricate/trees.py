"""A distribution over several columns that is a tree: every column depends on one other.

It is learned from noised tables of counts of pairs (`pair_strength`, `spanning_tree`, `fitted`) and
drawn from exactly, column after column (`Tree.draw`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from permea._arrays import Array, Integers, Mask
from permea._parallel import batches

_RAKED = 30  # rounds of iterative proportional fitting
_REDRAWN = 1 << 14  # rows at once


def to_simplex(values: Array, total: float) -> Array:
    """The nearest array with this sum and no negative entry (Duchi et al. 2008).

    Examples
    --------
    >>> to_simplex(np.array([5.0, 3.0, -4.0]), 6.0).tolist()
    [4.0, 2.0, 0.0]
    """
    falling = np.sort(values, axis=None)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    cut = excess[np.flatnonzero(falling > excess)[-1]]
    return np.asarray(np.maximum(values - cut, 0.0))


def combined(estimates: Sequence[tuple[Array, float]]) -> tuple[Array, float]:
    """The mean of noised tables of the same counts, by inverse variance, and its noise.

    Examples
    --------
    >>> table, noise = combined([(np.array([10.0]), 1.0), (np.array([14.0]), 1.0)])
    >>> table.tolist(), round(noise, 3)
    ([12.0], 0.707)
    """
    weights = np.array([1.0 / noise**2 for _, noise in estimates])
    mean = sum(w * table for w, (table, _) in zip(weights, estimates, strict=True))
    return np.asarray(mean / weights.sum()), float(1.0 / np.sqrt(weights.sum()))


def pair_strength(table: Array, rows: Array, columns: Array, noise: float) -> float:
    """Mutual information of two columns times the number of rows, with the noise taken off.

    Half the sum of squared distances from independence over what independence expects; the part
    that noise adds on average is subtracted, and cells below the noise count as much as the noise.

    Examples
    --------
    >>> alike, half = np.diag([50.0, 50.0]), np.array([50.0, 50.0])
    >>> pair_strength(alike, half, half, 0.1) > 40 > pair_strength(alike, half, half, 60.0)
    True
    """
    expected = np.outer(rows, columns) / max(float(rows.sum()), 1.0)
    excess = np.square(table - expected) - noise**2
    return float(np.sum(excess / (2.0 * np.maximum(expected, noise))))


def spanning_tree(strengths: Array) -> list[tuple[int, int]]:
    """Maximum spanning tree (Prim): pairs of a column and the one that it depends on.

    Examples
    --------
    >>> spanning_tree(np.array([[0.0, 3, 1], [3, 0, 2], [1, 2, 0]]))
    [(1, 0), (2, 1)]
    """
    left = set(range(1, len(strengths)))
    best, parent = strengths[0].copy(), np.zeros(len(strengths), np.int64)
    found = []
    while left:
        column = max(sorted(left), key=lambda one: best[one])
        left.remove(column)
        found.append((column, int(parent[column])))
        nearer = strengths[column] > best
        best, parent = np.where(nearer, strengths[column], best), np.where(nearer, column, parent)
    return found


def fitted(table: Array, rows: Array, columns: Array) -> Array:
    """A table with these marginals, as near to a noised one as proportional fitting gets."""
    total = float(rows.sum())
    out = to_simplex(table, max(total, 1.0)) + 1e-9 * np.outer(rows, columns) / max(total, 1.0)
    for _ in range(_RAKED):
        out = out * (rows / np.maximum(out.sum(1), 1e-300))[:, None]
        out = out * (columns / np.maximum(out.sum(0), 1e-300))
    return out


@dataclass(frozen=True)
class Tree:
    """Shares of the cells of column ``root``, and of every other column given its parent.

    ``edges`` come in an order in which parents are first; ``given`` has one row of shares for every
    cell of the parent.
    """

    root: int
    shares: Array
    edges: tuple[tuple[int, int], ...]
    given: Mapping[int, Array]

    def draw(self, count: int, rng: np.random.Generator) -> Integers:
        """Cells of ``count`` rows; how often each occurs is off by rounding rather than by chance.

        Examples
        --------
        >>> tree = Tree(0, np.array([0.5, 0.5]), ((1, 0),), {1: np.eye(2)})
        >>> rows = tree.draw(4, np.random.default_rng(0))
        >>> sorted(map(tuple, rows.tolist()))
        [(0, 0), (0, 0), (1, 1), (1, 1)]
        """
        out = np.zeros((count, len(self.edges) + 1), np.int64)
        nothing = np.zeros(count, np.int64)
        out[:, self.root] = stratified(self.shares[None], nothing, rng)
        for column, parent in self.edges:
            out[:, column] = stratified(self.given[column], out[:, parent], rng)
        return out

    def redraw(self, cells: Integers, kept: Mask, rng: np.random.Generator) -> Integers:
        """Other rows, drawn given the cells that are kept in each.

        Messages from the leaves to the root collect what is kept; then columns are drawn in order.
        A row that follows the tree is turned into another that does, whatever is kept.

        Examples
        --------
        >>> tree = Tree(0, np.array([0.5, 0.5]), ((1, 0),), {1: np.eye(2)})
        >>> kept = np.array([[False, True]])
        >>> tree.redraw(np.array([[1, 1]]), kept, np.random.default_rng(0)).tolist()
        [[1, 1]]
        """
        out = np.empty_like(cells)
        for part in batches(len(cells), _REDRAWN):
            out[part] = self._redraw(cells[part], kept[part], rng)
        return out

    def likelihood(self, cells: Integers, kept: Mask) -> Array:
        """Probability of the cells that are kept in each row, whatever the others are.

        Examples
        --------
        >>> tree = Tree(0, np.array([0.2, 0.8]), ((1, 0),), {1: np.eye(2)})
        >>> tree.likelihood(np.array([[1, 1]]), np.array([[False, True]])).tolist()
        [0.8]
        """
        parts = [
            self._messages(cells[part], kept[part])[self.root] @ self.shares
            for part in batches(len(cells), _REDRAWN)
        ]
        return np.concatenate([np.zeros(0), *parts])

    def _messages(self, cells: Integers, kept: Mask) -> dict[int, Array]:
        """For every column, how likely what is kept there and below it is, by its cell."""
        likely: dict[int, Array] = {}
        for column, size in [(self.root, len(self.shares)), *self._sizes()]:
            known = np.arange(size) == cells[:, column, None]
            likely[column] = np.where(kept[:, column, None], known, 1.0)
        for column, parent in reversed(self.edges):
            likely[parent] = likely[parent] * (likely[column] @ self.given[column].T)
        return likely

    def _redraw(self, cells: Integers, kept: Mask, rng: np.random.Generator) -> Integers:
        likely = self._messages(cells, kept)
        out = np.empty_like(cells)
        out[:, self.root] = one_each(self.shares * likely[self.root], cells[:, self.root], rng)
        for column, parent in self.edges:
            shares = self.given[column][out[:, parent]] * likely[column]
            out[:, column] = one_each(shares, cells[:, column], rng)
        return out

    def _sizes(self) -> list[tuple[int, int]]:
        return [(column, self.given[column].shape[1]) for column, _ in self.edges]


def one_each(shares: Array, otherwise: Integers, rng: np.random.Generator) -> Integers:
    """A cell for every row by its own shares; ``otherwise`` where all of them are zero."""
    limits = np.cumsum(shares, axis=1)
    total = limits[:, -1]
    drawn = (limits < (rng.random(len(shares)) * total)[:, None]).sum(1)
    return np.where(total > 0, np.minimum(drawn, shares.shape[1] - 1), otherwise)


def stratified(given: Array, parents: Integers, rng: np.random.Generator) -> Integers:
    """A cell for every row by the shares of its parent's cell, evenly within the same parent."""
    order = np.lexsort((rng.random(len(parents)), parents))
    sizes = np.bincount(parents, minlength=len(given))
    first = np.cumsum(sizes) - sizes
    sorted_parents = parents[order]
    rank = np.arange(len(parents)) - first[sorted_parents]
    u = (rank + rng.random(len(given))[sorted_parents]) / np.maximum(sizes, 1)[sorted_parents]
    limits = np.cumsum(given, axis=1)[:, :-1]
    out = np.empty(len(parents), np.int64)
    # one search for all parents: their limits follow each other, each in its own unit interval
    flat = (limits + np.arange(len(given))[:, None]).ravel()
    place = np.searchsorted(flat, np.minimum(u, 1.0 - 2.0**-40) + sorted_parents, side="right")
    out[order] = place - sorted_parents * limits.shape[1]
    return np.clip(out, 0, given.shape[1] - 1)


def fit_tree(
    edges: Sequence[tuple[int, int]], tables: Mapping[int, Array], marginals: Sequence[Array]
) -> Tree:
    """The tree with these edges: ``tables[column]`` counts its parent's cells by its own."""
    root = edges[0][1] if edges else 0
    given = {}
    for column, parent in edges:
        table = fitted(tables[column], marginals[parent], marginals[column])
        totals = table.sum(axis=1, keepdims=True)
        own = marginals[column] / max(float(marginals[column].sum()), 1e-300)
        given[column] = np.where(totals > 1e-9, table / np.maximum(totals, 1e-300), own)
    shares = marginals[root] / max(float(marginals[root].sum()), 1e-300)
    return Tree(root, shares, tuple(edges), given)

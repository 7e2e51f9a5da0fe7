"""Several rows of one person: how many there are, what stays from one to the next, what changes.

The number of rows is one more column of every row. From one row of a person to the next every
column keeps its value with a probability of its own, or its bin, or is drawn anew given what was
kept. Rows drawn like this follow the same trees as first rows. That a value drifts with time is
not modelled.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from permea._arrays import Array, Indices, Integers, Mask
from permea.fabricate.cells import Bins, Cells, fine_cells
from permea.fabricate.trees import Tree, one_each
from permea.privacy.counts import Codes
from permea.tables import Number

MOST_ROWS = 32  # of a synthetic person, where nothing is declared
ROWS = "rows of the person"  # name of the column that counts them
AGREEMENTS = 3  # the same fine cell, the same bin, or neither
_SIMULATED = 4000
_ROUNDS = 5


def row_counts(people: Integers) -> Integers:
    """How many rows the person of every row has, who is given by a number.

    Examples
    --------
    >>> row_counts(np.array([0, 1, 0])).tolist()
    [2, 1, 2]
    """
    return np.asarray(np.bincount(people)[people])


def count_cells(most: int | None) -> Cells:
    """Cells of the number of rows, up to what is declared; more count as that many."""
    return fine_cells(Number(1, max(2, most or MOST_ROWS), whole=True, scale="log"))


def agreements(
    people: Integers, fine: Sequence[Indices], bins: Sequence[Bins], labels: Integers
) -> Codes:
    """How neighbouring rows of one person agree in every column, rows being in their order.

    The last table is about the label. Neighbours of a person with m rows have the weight 1/(m - 1)
    each, so that a person adds at most 1 to each table.
    """
    order = np.argsort(people, kind="stable")
    first, second = order[:-1], order[1:]
    same = people[first] == people[second]
    first, second = first[same], second[same]
    weights = 1.0 / np.maximum(np.bincount(people)[people[first]] - 1, 1)
    tables = []
    for cells, joined in zip(fine, bins, strict=True):
        one, other = cells[first], cells[second]
        alike = np.where(joined.of_fine[one] == joined.of_fine[other], 1, 2)
        tables.append(np.where(one == other, 0, alike).astype(np.int64))
    tables.append(np.where(labels[first] == labels[second], 0, 2).astype(np.int64))
    return Codes(tables, weights)


@dataclass(frozen=True)
class Persistence:
    """Probabilities that a column keeps its bin, and with it its value, and that the label stays.

    What is not kept is drawn anew, given what is: first the label, then the columns. So rows that
    follow the trees are followed by rows that do.

    Attributes
    ----------
    keeps_bin : ndarray of shape (K,)
    keeps_value : ndarray of shape (K,)
        Of those that keep their bin.
    keeps_label : float
    """

    keeps_bin: Array
    keeps_value: Array
    keeps_label: float

    def follow(
        self,
        bins: Integers,
        labels: Integers,
        trees: Sequence[Tree],
        shares: Array,
        rng: np.random.Generator,
    ) -> tuple[Integers, Integers, Mask, Mask]:
        """Bins and labels of next rows, and which of them were kept: columns, labels."""
        kept = rng.random(bins.shape) < self.keeps_bin
        stays = rng.random(len(labels)) < self.keeps_label
        after, anew = np.empty_like(bins), labels.copy()
        if not stays.all() and len(trees) > 1:
            move = ~stays
            likely = [tree.likelihood(bins[move], kept[move]) for tree in trees]
            anew[move] = one_each(shares * np.stack(likely, axis=1), labels[move], rng)
        for label, tree in enumerate(trees):
            mine = anew == label
            after[mine] = tree.redraw(bins[mine], kept[mine], rng)
        return after, anew, kept, stays


def fit_persistence(tables: Sequence[Array], trees: Sequence[Tree], shares: Array) -> Persistence:
    """From noised agreements, which chance explains in part: a redrawn value may be the same.

    How often it is, is found by drawing from the trees with the probabilities found so far.
    """
    rng = np.random.default_rng(0)
    counts = [np.maximum(table, 0.0) for table in tables]
    total = [max(float(table.sum()), 1e-9) for table in counts]
    agree = np.array([(c[0] + c[1]) / t for c, t in zip(counts, total, strict=True)])
    value = np.array([c[0] / max(float(c[0] + c[1]), 1e-9) for c in counts])
    labels = rng.choice(len(trees), size=_SIMULATED, p=shares)
    bins = np.zeros((_SIMULATED, len(agree) - 1), np.int64)
    for label, tree in enumerate(trees):
        bins[labels == label] = tree.draw(int((labels == label).sum()), rng)
    keeps = agree.copy()
    for _ in range(_ROUNDS):
        found = Persistence(keeps[:-1], value[:-1], float(keeps[-1]))
        after, anew, kept, stays = found.follow(bins, labels, trees, shares, rng)
        same = np.column_stack([after == bins, anew == labels])
        redrawn = ~np.column_stack([kept, stays])
        chance = (same & redrawn).sum(0) / np.maximum(redrawn.sum(0), 1)
        keeps = np.clip((agree - chance) / np.maximum(1.0 - chance, 1e-9), 0.0, 1.0)
        keeps = np.where(redrawn.any(0), keeps, agree)
        keeps[-2] = 1.0  # how many rows there are
    return Persistence(keeps[:-1], value[:-1], float(keeps[-1]))

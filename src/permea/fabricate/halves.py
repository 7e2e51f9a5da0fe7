"""Pairs of columns in halves: what is counted of all pairs where their tables are lost in noise.

Every column is divided into two halves, by released counts. Of a pair of columns two numbers are
counted: how many rows are in the same half of both, and how many are not. With many columns the
noise on a count is large, and a table of b by b cells has it b² times; here it is there twice. The
price is that a dependence which the halves do not show is not found.
"""

from collections.abc import Sequence

import numpy as np

from permea._arrays import Array, Integers
from permea.fabricate.cells import Cells


def halves(cells: Cells, counts: Array) -> Integers:
    """The half, 0 or 1, of every bin, from the number of rows in each.

    Columns are divided at a limit between two bins, values of a category in the order in which they
    are declared; missing values are with the lower ones.

    Examples
    --------
    >>> from permea.fabricate.cells import fine_cells
    >>> from permea.tables import Category, Number
    >>> halves(fine_cells(Number(0, 3, whole=True)), np.array([10.0, 20, 5, 5])).tolist()
    [0, 1, 1, 1]
    >>> halves(fine_cells(Category(["a", "b", "c"])), np.array([10.0, 15, 10])).tolist()
    [0, 1, 1]
    """
    known, out = np.maximum(counts, 0.0), np.zeros(len(counts), np.int64)
    n_known = len(counts) - cells.column.missing
    below = np.cumsum(known[:n_known])[:-1] + known[n_known:].sum()
    if len(below):
        out[int(np.abs(2.0 * below - known.sum()).argmin()) + 1 : n_known] = 1
    return out


def half_strengths(
    tables: Sequence[Array], pairs: Sequence[tuple[int, int]], upper: Array, noise: float
) -> Array:
    """Mutual information of the halves of each pair, times the number of rows, without the noise.

    ``tables`` say how many rows are in the same half of both columns, and how many are not;
    ``upper`` is the share of the upper half of each column.

    Examples
    --------
    >>> tables, even = [np.array([90.0, 10.0]), np.array([50.0, 50.0])], np.full(3, 0.5)
    >>> half_strengths(tables, [(0, 1), (0, 2)], even, 1.0).round(1).tolist()
    [[0.0, 32.0, -0.0], [32.0, 0.0, 0.0], [-0.0, 0.0, 0.0]]
    """
    out = np.zeros((len(upper), len(upper)))
    for (one, other), (same, apart) in zip(pairs, tables, strict=True):
        rows = max(float(same + apart), 1.0)
        lean = (1.0 - 2.0 * upper[one]) * (1.0 - 2.0 * upper[other])
        excess = (same - apart - rows * lean) ** 2 - 2.0 * noise**2
        spread = 16.0 * rows * np.prod([p * (1.0 - p) for p in upper[[one, other]]])
        out[one, other] = out[other, one] = excess / (2.0 * max(float(spread), 2.0 * noise))
    return out

"""Arithmetic whose answer for one row is a function of that row alone, to the last bit.

A linear-algebra library rounds a row's product differently when the row stands elsewhere in its
block, when the block has another number of rows, or when another number of threads is at work;
vectorised cosines and exponentials may round the end of an array differently from its middle. A
proof about sums over people cannot live with that: one more row would change the terms of all
others. Everything here is therefore made of three kinds of operation only:

* entry by entry, those that IEEE 754 defines exactly: ``+ - * /``, square root, rounding to whole
  numbers, scaling by powers of two, comparisons;
* maxima, which no order changes;
* matrix products of whole numbers whose sums stay below 2**53: no order of summation rounds them.

What is computed is thereby the same in every layout (C, Fortran, strided), chunk and thread, and
under every linear-algebra library that sums products of doubles. The proof that uses this is in
``docs/proofs/moments.md``.
"""

import math

import numpy as np

from permea._arrays import Array
from permea._parallel import batches

CACHED = 1 << 17  # entries of an array that stays in the cache between two operations
_WHOLE = 53  # bits of whole numbers that doubles add without rounding
_TAME = 400  # rows with entries between 2**-400 and 2**400 are squared without over- or underflow
_LARGEST = 900  # products stay finite: 2**900 stands for everything larger


def _taylor(first: float, factor: float, skips: list[int]) -> list[float]:
    """Coefficients of a series, each the one before times ``factor / skip``."""
    series = [first]
    for skip in skips:
        series.append(series[-1] * factor / skip)
    return series


_TURN = 2.0 * math.pi
_SINE = _taylor(_TURN, -_TURN * _TURN, [2 * k * (2 * k + 1) for k in range(1, 9)])
_EXP2 = _taylor(1.0, math.log(2.0), list(range(1, 13)))
_ATAN = [(-1.0) ** k / (2 * k + 1) / math.pi for k in range(8)]  # 2 atan(t), in turns


def _polynomial(x: Array, coefficients: list[float]) -> Array:
    """Horner's rule, entry by entry."""
    kind = x.dtype.type
    total = np.full_like(x, kind(coefficients[-1]))
    for coefficient in coefficients[-2::-1]:
        total *= x
        total += kind(coefficient)
    return total


def row_tops(X: Array) -> Array:
    """Largest absolute value of every row, as a column.

    Examples
    --------
    >>> row_tops(np.array([[1.0, -3.0], [0.5, 0.0]])).tolist()
    [[3.0], [0.5]]
    """
    return np.asarray(np.maximum(X.max(axis=1), -X.min(axis=1))[:, None])


def row_sums(X: Array) -> Array:
    """Sum of every row, as a column, in one fixed order: halves are added until one is left.

    Examples
    --------
    >>> row_sums(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).tolist()
    [[6.0], [15.0]]
    """
    half = (X.shape[1] + 1) // 2
    total = X[:, :half].copy()
    total[:, : X.shape[1] - half] += X[:, half:]
    return _add_halves(total)


def _add_halves(total: Array) -> Array:
    """The same in place."""
    width = total.shape[1]
    while width > 1:
        half = (width + 1) // 2
        total[:, : width - half] += total[:, half:width]
        width = half
    return np.asarray(total[:, :1])


def shrink_rows(X: Array, norm: float, out: Array | None = None) -> Array:
    """Rows of at most ``norm``: longer ones are shrunk to it, however large their entries are.

    The result is written to ``out``, which may be X itself, or to a new array.

    Raises
    ------
    ValueError
        If a row holds NaN or infinity, or the norm is not between 2**-300 and 2**300.

    Examples
    --------
    >>> shrink_rows(np.array([[3.0, 4.0], [0.1, 0.2], [1e306, 0.0], [0.0, -1e308]]), 2.5).tolist()
    [[1.5, 2.0], [0.1, 0.2], [2.5, 0.0], [0.0, -2.5]]
    """
    if not 2.0**-300 < norm < 2.0**300:
        raise ValueError("A public norm must be a positive number that squares without overflow.")
    shrunk = np.empty(X.shape) if out is None else out
    squares = np.empty((min(len(X), max(1, CACHED // X.shape[1])), X.shape[1]))
    for part in batches(len(X), max(1, len(squares))):
        _shrink_block(np.asarray(X[part], dtype=np.float64), norm, squares, shrunk[part])
    return shrunk


def _shrink_block(rows: Array, norm: float, squares: Array, out: Array) -> None:
    with np.errstate(over="ignore"):
        lengths = np.sqrt(_add_halves(np.multiply(rows, rows, out=squares[: len(rows)])))
    tame = (lengths > 2.0**-_TAME) & (lengths < 2.0**_TAME)
    others = ~tame[:, 0]
    extreme = _shrink_extreme(rows[others], norm) if others.any() else None
    np.multiply(rows, np.minimum(1.0, norm / np.where(tame, lengths, 1.0)), out=out)
    if extreme is not None:
        out[others] = extreme


def _shrink_extreme(rows: Array, norm: float) -> Array:
    """The same for rows whose squares are too large or too small for floating-point numbers."""
    tops = row_tops(rows)
    if not np.all(np.isfinite(tops)):
        raise ValueError(
            "Rows with NaN or infinity have no length and cannot be summed; make whatever computes "
            "them, such as the transformer of the features, return finite numbers."
        )
    exponents = np.frexp(tops)[1]
    scaled = np.ldexp(rows, -exponents)  # the largest entry between 1/2 and 1, or all of them 0
    lengths = np.maximum(np.sqrt(row_sums(scaled * scaled)), 0.5)
    whole = np.ldexp(1.0, np.minimum(exponents, 1023))  # brings the row back as it was
    return np.asarray(scaled * np.minimum(whole, norm / lengths))


def row_product(X: Array, W: Array, limbs: int = 1) -> Array:
    """``X @ W`` for public W, with rows of X and all of W rounded to whole numbers first.

    With p columns a number has ``(53 - log2 p) / 2`` bits per limb, counted from the largest
    entry of its row of X, and of W altogether: 21 for 784 columns. Every sum is then exact. With
    two limbs the numbers have twice as many bits, in three products instead of one; with three,
    those of doubles in six.

    Examples
    --------
    >>> row_product(np.array([[1.0, 2.0], [1e6, 0.0]]), np.array([[3.0], [4.0]])).tolist()
    [[11.0], [3000000.0]]
    """
    bits = (_WHOLE - X.shape[1].bit_length()) // 2
    rows, row_exponents = _whole(X, row_tops(X), bits, limbs)
    weights, exponent = _whole(W, np.abs(W).max(keepdims=True), bits, limbs)
    product = rows[0] @ weights[0]
    for order in range(1, limbs):  # the small ones last, always in this order
        for k in range(order + 1):
            product += (rows[k] @ weights[order - k]) * 2.0 ** (-bits * order)
    scale = row_exponents + (int(exponent.item()) - 2 * bits)
    product *= np.ldexp(1.0, np.minimum(scale, _LARGEST))
    return np.asarray(product)


def _whole(X: Array, tops: Array, bits: int, limbs: int) -> tuple[list[Array], Array]:
    """X * 2**(bits - exponent) as whole numbers, and what is left of it in as many bits more."""
    exponents = np.maximum(np.frexp(tops)[1], -_TAME)
    rest = X * np.ldexp(1.0, bits - exponents)
    whole = []
    for _ in range(limbs - 1):
        whole.append(np.rint(rest))
        rest = (rest - whole[-1]) * 2.0**bits
    return [*whole, np.rint(rest, out=rest)], exponents


def row_solve(triangle: Array, X: Array) -> Array:
    """Solve ``triangle @ z = x`` for every row x by substitution, in the order of the columns.

    Examples
    --------
    >>> row_solve(np.array([[2.0, 0.0], [1.0, 4.0]]), np.array([[2.0, 5.0]])).tolist()
    [[1.0, 1.0]]
    """
    out = np.array(X, dtype=np.float64, order="C")
    columns = np.ascontiguousarray(triangle.T)
    for part in batches(len(X), max(1, CACHED // (2 * X.shape[1]))):
        rest = out[part]
        for j, column in enumerate(columns):
            rest[:, j] /= column[j]
            rest[:, j + 1 :] -= rest[:, j : j + 1] * column[j + 1 :]
    return out


def cosines_and_sines(turns: Array, amplitude: float = 1.0) -> Array:
    """Cosines and, beside them, sines of angles in turns, to within 1e-13 of the amplitude.

    Examples
    --------
    >>> cosines_and_sines(np.array([[0.0, 0.125, 7.5, -0.25]])).round(9).tolist()[0]
    [1.0, 0.707106781, -1.0, 0.0, 0.0, 0.707106781, 0.0, -1.0]
    """
    part = turns - np.rint(turns)  # exact; half a turn at most
    quarter = np.empty((turns.shape[0], 2 * turns.shape[1]))  # where both are sines
    np.subtract(0.25, np.abs(part), out=quarter[:, : turns.shape[1]])
    np.subtract(2.0 * np.clip(part, -0.25, 0.25), part, out=quarter[:, turns.shape[1] :])
    waves = _polynomial(quarter * quarter, [amplitude * c for c in _SINE])
    waves *= quarter
    return waves


def exp_of_negative(X: Array) -> Array:
    """``exp(-X)`` for X at least 0, to within 1e-15 (of 1) and a relative 1e-13 below.

    Examples
    --------
    >>> exp_of_negative(np.array([0.0, 1.0, 1e9])).round(9).tolist()
    [1.0, 0.367879441, 0.0]
    """
    powers = np.minimum(X, 800.0) * (-1.0 / math.log(2.0))
    whole = np.rint(powers)
    return np.asarray(np.ldexp(_polynomial(powers - whole, _EXP2), whole.astype(np.int32)))


def lengths_and_angles(across: Array, down: Array) -> tuple[Array, Array]:
    """Polar coordinates, the angle in turns from 0 to 1 and to within 1e-8.

    Examples
    --------
    >>> lengths, angles = lengths_and_angles(np.array([3.0, 0.0, -1.0]), np.array([4.0, -2.0, 1.0]))
    >>> lengths.round(6).tolist(), angles.round(6).tolist()
    ([5.0, 2.0, 1.414214], [0.147584, 0.75, 0.375])
    """
    kind = across.dtype.type
    x, y = np.abs(across), np.abs(down)
    lengths = np.sqrt(x * x + y * y)
    slopes = lengths + np.maximum(x, y)
    np.maximum(slopes, np.finfo(kind).tiny, out=slopes)
    np.divide(np.minimum(x, y), slopes, out=slopes)  # tangent of half the angle to the nearest axis
    angles = slopes * _polynomial(slopes * slopes, _ATAN)
    for beyond, turned in ((y > x, 0.25), (across < 0, 0.5), (down < 0, 1.0)):
        angles = np.abs(beyond * kind(turned) - angles)
    return lengths, angles

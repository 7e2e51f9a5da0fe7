"""Arithmetic of one row at a time: exact where it says so, close to NumPy elsewhere."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from permea.privacy.rowwise import (
    cosines_and_sines,
    exp_of_negative,
    lengths_and_angles,
    row_product,
    row_solve,
    row_sums,
    shrink_rows,
)


def extreme_rows(rng, n, p):
    """Rows of all magnitudes, with zeros of both signs, subnormal numbers and the largest ones."""
    X = rng.normal(size=(n, p)) * 2.0 ** rng.integers(-40, 40, size=(n, 1))
    X[::5] *= 2.0 ** rng.integers(-1060, 970, size=(len(X[::5]), 1))
    X[1::7] = rng.choice([0.0, -0.0, 5e-324, 1.7e308, -1.7e308, 1.0], size=X[1::7].shape)
    return X


def shrink_in_place(X, norm):
    rows = X.copy(order="K")
    return shrink_rows(rows, norm, out=rows)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), p=st.integers(1, 40), limbs=st.integers(1, 3))
def test_a_row_has_the_same_answer_alone_elsewhere_and_in_another_layout(seed, p, limbs):
    rng = np.random.default_rng(seed)
    X, W = extreme_rows(rng, 23, p), rng.normal(size=(p, 9))
    lower = np.tril(rng.normal(size=(p, p))) + 4 * np.eye(p)
    tame = rng.normal(size=(23, p))
    order = rng.permutation(23)
    wide = np.zeros((23, 2 * p))
    for function, rows in (
        (lambda A: row_product(A, W, limbs), X),
        (lambda A: shrink_rows(A, 0.7), X),
        (lambda A: shrink_in_place(A, 0.7), X),
        (row_sums, tame),
        (lambda A: row_solve(lower, A), tame),
        (cosines_and_sines, tame * 50),
        (exp_of_negative, np.abs(tame) * 50),
        (lambda A: lengths_and_angles(A, A[:, ::-1])[1], tame),
    ):
        whole = function(rows)
        wide[:, ::2] = rows
        np.testing.assert_array_equal(function(rows[order]), whole[order])
        np.testing.assert_array_equal(function(np.asfortranarray(rows)), whole)
        np.testing.assert_array_equal(function(wide[:, ::2]), whole)
        for i in (0, 1, 5, 22):
            np.testing.assert_array_equal(function(rows[i : i + 1]), whole[i : i + 1])


@pytest.mark.parametrize("p", [1, 3, 784, 5000])
def test_the_largest_whole_numbers_are_multiplied_exactly(p):
    """All entries just below a power of two: the sums come as near to 2**53 as they can."""
    X = np.full((3, p), np.nextafter(2.0, 0.0))
    X[1] = np.random.default_rng(0).uniform(-2, 2, size=p)
    W = np.full((p, 2), -np.nextafter(8.0, 0.0))
    bits = (53 - p.bit_length()) // 2
    weight = int(np.rint(W[0, 0] * 2.0 ** (bits - 3)))
    for row, product in zip(X, row_product(X, W)[:, 0], strict=True):
        exponent = int(np.frexp(np.abs(row).max())[1])
        exact = sum(int(v) for v in np.rint(row * 2.0 ** (bits - exponent))) * weight
        assert abs(exact) <= 2**53
        assert Fraction(float(product)) == exact * Fraction(2) ** (exponent + 3 - 2 * bits)


@pytest.mark.parametrize(("limbs", "error"), [(1, 3e-6), (2, 3e-12), (3, 1e-14)])
def test_products_are_close_to_the_library(limbs, error):
    rng = np.random.default_rng(1)
    X, W = rng.normal(size=(40, 300)), rng.normal(size=(300, 20))
    scale = np.linalg.norm(X, axis=1)[:, None] * np.linalg.norm(W, axis=0)
    assert np.abs((row_product(X, W, limbs) - X @ W) / scale).max() < error


def test_rows_are_shrunk_without_further_memory_and_to_the_same_rows():
    """Every array of more than 128 KiB costs page faults, on Dask's workers each time."""
    X = np.random.default_rng(5).normal(size=(20_000, 130))
    expected = shrink_rows(X, 0.5)
    tracemalloc.start()
    assert shrink_rows(X, 0.5, out=X) is X
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.1 * X.nbytes
    np.testing.assert_array_equal(X, expected)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1), p=st.integers(1, 60), norm=st.sampled_from([1e-80, 0.3, 1e80])
)
def test_no_row_is_longer_than_the_norm_and_short_ones_are_kept(seed, p, norm):
    X = extreme_rows(np.random.default_rng(seed), 15, p)
    limit, limbs = Fraction(norm) ** 2, Fraction(1 + 1e-12)
    for row, short in zip(X, shrink_rows(X, norm), strict=True):
        length = sum(Fraction(float(v)) ** 2 for v in row)
        assert sum(Fraction(float(v)) ** 2 for v in short) <= limit * limbs
        if length < limit / limbs:
            np.testing.assert_array_equal(short, row)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_refused_and_nothing_is_told(bad):
    with pytest.raises(ValueError, match="NaN or infinity") as caught:
        shrink_rows(np.array([[1.0, 2.0], [bad, 0.0]]), 1.0)
    assert not any(letter.isdigit() for letter in str(caught.value))
    with pytest.raises(ValueError, match="public norm"):
        shrink_rows(np.ones((1, 2)), abs(bad))


def test_functions_are_those_of_numpy():
    rng = np.random.default_rng(2)
    turns = rng.normal(size=(100, 40)) * 30
    angles = 2 * np.pi * (turns - np.rint(turns))
    waves = np.hstack([np.cos(angles), np.sin(angles)])
    np.testing.assert_allclose(cosines_and_sines(turns, 0.5), 0.5 * waves, atol=1e-13)
    huge = cosines_and_sines(np.array([[1e300, -(2.0**60)]]))
    np.testing.assert_allclose(huge, [[1, 1, 0, 0]], atol=1e-13)
    powers = rng.random(1000) * 700
    np.testing.assert_allclose(exp_of_negative(powers), np.exp(-powers), rtol=1e-12)
    across, down = rng.normal(size=(2, 1000))
    lengths, parts = lengths_and_angles(across, down)
    np.testing.assert_allclose(lengths, np.hypot(across, down), rtol=1e-14)
    np.testing.assert_allclose(parts, np.arctan2(down, across) / (2 * np.pi) % 1, atol=1e-8)
    lower = np.tril(rng.normal(size=(30, 30))) + 5 * np.eye(30)
    rows = rng.normal(size=(7, 30))
    np.testing.assert_allclose(row_solve(lower, rows), np.linalg.solve(lower, rows.T).T, atol=1e-12)

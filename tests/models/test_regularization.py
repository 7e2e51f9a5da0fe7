"""λ* of 004 Theorem 1: unique, in its interval, reached from any start."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from permea.models.encoding import principal_encoding
from permea.models.kahm import (
    ShiftedKernel,
    Targets,
    kernel_matrix,
    relative_kernel,
    solve_fixed_point,
)

CLAIM = settings(max_examples=25, deadline=None, derandomize=True)


def problem(seed, N=30, p=6, n=3, shift=0.5):
    Y = np.random.default_rng(seed).normal(size=(N, p)) + shift
    encoding = principal_encoding(Y, n)
    centred = encoding.centre(Y)
    K = kernel_matrix(encoding.whiten(centred @ encoding.components))
    targets = Targets.of(centred, encoding.mean, encoding.active, p)
    return Y, K, targets


def error(Y, K, e, tau):
    """R(e, τ) of 004 eq. (21), term by term."""
    residual = Y - K @ np.linalg.solve(K + (e + tau) * np.eye(len(Y)), Y)
    return np.sum(residual**2) / Y.size


problems = st.builds(problem, seed=st.integers(0, 10_000), N=st.integers(5, 50))


@CLAIM
@given(problems, st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_the_fixed_point_is_reached_from_any_start(given_problem, one, other):
    Y, K, targets = given_problem
    top = np.sum(Y**2) / Y.size
    first = solve_fixed_point(K.copy(), targets, tol=1e-12, start=one * top)
    second = solve_fixed_point(K.copy(), targets, tol=1e-12, start=other * top)
    assert first.regularization == pytest.approx(second.regularization, rel=1e-9)


@CLAIM
@given(problems)
def test_the_fixed_point_lies_in_its_interval_and_solves_its_equation(given_problem):
    Y, K, targets = given_problem
    solution = solve_fixed_point(K.copy(), targets, tol=1e-12)
    top = np.sum(Y**2) / Y.size
    e = solution.regularization - 2 * top
    assert 0 < e < top
    assert error(Y, K, e, 2 * top) == pytest.approx(e, rel=1e-8)


@CLAIM
@given(problems)
def test_the_map_has_a_slope_between_zero_and_one(given_problem):
    Y, K, targets = given_problem
    tau = targets.threshold
    grid = np.linspace(0.01, 0.99, 12) * tau / 2
    values = [error(Y, K, e, tau) for e in grid]
    slopes = np.diff(values) / np.diff(grid)
    assert np.all(slopes > 0)
    assert np.all(slopes < 1)


def test_the_threshold_is_that_of_theorem_1():
    Y, _, targets = problem(1)
    assert targets.threshold == pytest.approx(2 * np.sum(Y**2) / Y.size)


def test_the_draft_in_single_precision_leads_to_the_same_end():
    _, K, targets = problem(2, N=520, p=700)
    drafted = solve_fixed_point(K.copy(order="F"), targets, tol=1e-10)
    direct = solve_fixed_point(K.copy(order="F"), targets, tol=1e-10, draft_size=10_000)
    assert drafted.regularization == pytest.approx(direct.regularization, rel=1e-9)
    np.testing.assert_allclose(drafted.coefficients, direct.coefficients, atol=1e-8)


def test_one_matrix_serves_several_strengths():
    _, K, _ = problem(3, N=40)
    kernel = ShiftedKernel(K.copy(order="F"))
    right = np.random.default_rng(0).normal(size=(40, 3))
    for strength in (1.0, 0.01, 3.0):
        used = kernel.factor(strength)
        expected = np.linalg.solve(K + used * np.eye(40), right)
        np.testing.assert_allclose(kernel.solve(right), expected, atol=1e-9)


def test_a_strength_below_rounding_is_raised_until_it_factorises():
    K = np.ones((50, 50), dtype=np.float32, order="F")
    assert ShiftedKernel(K).factor(1e-30) >= 50 * np.finfo(np.float32).eps


def test_relative_kernel_rows_are_proportional_to_the_values():
    codes = np.random.default_rng(4).normal(size=(20, 3))
    queries = np.random.default_rng(5).normal(size=(7, 3))
    d = queries[:, None] - codes[None]
    values = np.exp(-np.sum(d**2, axis=2) / 6)
    expected = values / values.max(axis=1, keepdims=True)
    np.testing.assert_allclose(relative_kernel(queries, codes), expected, rtol=1e-10)

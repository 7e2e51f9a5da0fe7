"""Subspace alignment does what 001 eq. (1.79) says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from permea.transfer import Alignment, align, principal_directions

SETTINGS = settings(deadline=None, derandomize=True, max_examples=40)


def rows(n, p, seed):
    random = np.random.default_rng(seed)
    return random.normal(size=(n, p)) * np.linspace(3, 0.5, p) + random.normal(size=p)


@SETTINGS
@given(n=st.integers(2, 40), p=st.integers(1, 20), k=st.integers(1, 25), seed=st.integers(0, 99))
def test_directions_are_orthonormal_and_sorted_by_variance(n, p, k, seed):
    Y = rows(n, p, seed)
    V = principal_directions(Y, k)
    assert V.shape == (min(k, p, n - 1), p)
    np.testing.assert_allclose(V @ V.T, np.eye(len(V)), atol=1e-8)
    variances = ((Y - Y.mean(axis=0)) @ V.T).var(axis=0)
    assert np.all(np.diff(variances) <= 1e-9 * variances[0])


@SETTINGS
@given(n=st.integers(4, 30), p=st.integers(2, 30), seed=st.integers(0, 99))
def test_both_ways_to_the_directions_agree(n, p, seed):
    """Few rows go over the Gram matrix, many over the covariance."""
    Y = rows(n, p, seed)
    k = min(n - 1, p, 3)
    expected = np.linalg.svd(Y - Y.mean(axis=0), full_matrices=False)[2][:k]
    found = principal_directions(Y, k)
    np.testing.assert_allclose(np.abs(np.sum(found * expected, axis=1)), 1, atol=1e-6)


def test_the_sign_is_fixed():
    Y = rows(50, 6, 0)
    first, second = principal_directions(Y, 4), principal_directions(-Y, 4)
    np.testing.assert_allclose(first, second, atol=1e-9)
    largest = np.abs(first).argmax(axis=1)
    assert np.all(first[np.arange(4), largest] > 0)


def test_rows_that_never_vary_have_no_directions():
    assert principal_directions(np.ones((5, 3)), 2).shape == (0, 3)
    assert principal_directions(np.ones((2, 3)), 2).shape == (0, 3)


def test_equal_dimensions_are_left_alone():
    Y = rows(20, 5, 1)
    alignment = align(np.eye(3, 5), 5, Y)
    assert alignment.is_identity
    np.testing.assert_array_equal(alignment.to_source(Y), Y)


def test_other_dimensions_go_through_both_subspaces():
    Y, source = rows(40, 4, 2), principal_directions(rows(60, 10, 3), 5)
    alignment = align(source, 10, Y)
    target = principal_directions(Y, 4)
    assert alignment.source.shape == (4, 10)  # n_st = min(⌈10/2⌉, 4)
    expected = np.stack([source[:4].T @ (target @ y) for y in Y])  # (1.79), row by row
    np.testing.assert_allclose(alignment.to_source(Y), expected, atol=1e-10)


@SETTINGS
@given(p=st.integers(2, 8), q=st.integers(2, 8), seed=st.integers(0, 99))
def test_alignment_keeps_latent_coordinates(p, q, seed):
    Y, source = rows(30, p, seed), principal_directions(rows(30, q, seed + 1), q)
    alignment = align(source, -1, Y)
    Z = alignment.to_source(Y)
    np.testing.assert_allclose(Z @ alignment.source.T, alignment.to_latent(Y), atol=1e-8)


def test_single_precision_stays_single():
    Y = rows(20, 4, 0).astype(np.float32)
    assert principal_directions(Y, 2).dtype == np.float32
    assert align(np.eye(3, 7), 7, Y).to_source(Y).dtype == np.float32


@pytest.mark.parametrize("codes", [np.zeros((2, 3)), np.ones((1, 3))])
def test_identity_passes_codes_through(codes):
    np.testing.assert_array_equal(Alignment().from_latent(codes), codes)

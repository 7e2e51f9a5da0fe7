"""Choosing inducing points: the loop ends, the rule holds, and M is that of document 001."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from permea.models.inducing import (
    InducingSearch,
    gaussian_kernel,
    k_means,
    pivot_order,
    shrinking_sequence,
    smoothing_level,
    unit_range_scales,
)
from permea.models.linear_algebra import RidgePath, jittered_cholesky
from permea.models.membership import learn_precision_mapping

SETTINGS = settings(deadline=None, derandomize=True, max_examples=25)


@pytest.mark.parametrize("kappa", [1e-12, 0.1, 1.0, 1e6])
def test_the_search_ends_for_every_small_number_of_rows(kappa):
    rng = np.random.default_rng(0)
    for N in range(2, 51):
        X, Y = rng.normal(size=(N, 3)), rng.normal(size=(N, 2))
        for limit in {1, N // 2 + 1, N}:
            mapping = learn_precision_mapping(X, Y, limit=limit, kappa=kappa)
            assert 1 <= len(mapping.points) <= limit
            assert np.isfinite(mapping(X)).all()


@given(largest=st.integers(1, 5000))
@SETTINGS
def test_the_sequence_falls_to_one(largest):
    sequence = shrinking_sequence(largest)
    assert sequence[0] == largest
    assert sequence[-1] == 1
    assert all(later < earlier for earlier, later in pairwise(sequence))


@given(
    seed=st.integers(0, 1000),
    N=st.integers(2, 120),
    n=st.integers(1, 8),
    kappa=st.sampled_from([1e-3, 0.1, 0.5]),
    method=st.sampled_from(["kmeans", "pivots"]),
)
@SETTINGS
def test_m_is_the_last_of_the_sequence_that_smooths_enough(seed, N, n, kappa, method):
    X = np.random.default_rng(seed).normal(size=(N, n)) / 3
    search = InducingSearch(X, N, kappa, 2.1, method)
    found = search.smoothest()
    M = len(found.points)
    assert found.smoothing >= kappa or M == 1
    larger = [m for m in shrinking_sequence(N) if m > M]
    if larger:
        assert search.at(larger[-1]).smoothing < kappa or search.order.size <= M


def document_loop(X, limit, kappa=0.1, nu=2.1):
    """Steps 3 to 8 of 001 Algorithm 1, with a k-means of its own for every M."""
    for M in shrinking_sequence(limit):
        centres = KMeans(M, n_init=1, random_state=0).fit(X).cluster_centers_
        L = jittered_cholesky(gaussian_kernel(centres, centres))
        if smoothing_level(np.linalg.solve(L, gaussian_kernel(centres, X)).T, nu) >= kappa:
            return M
    return 1


def test_m_agrees_with_the_loop_of_the_document():
    digits = load_digits()
    for label in (0, 1):
        Y = digits.data[digits.target == label] / 16
        _, _, Vt = np.linalg.svd(Y - Y.mean(axis=0), full_matrices=False)
        X = Y @ Vt[:12].T
        X *= unit_range_scales(X)
        M = len(InducingSearch(X, len(X) // 2, 0.1, 2.1, "kmeans").smoothest().points)
        sequence = shrinking_sequence(len(X) // 2)
        assert abs(sequence.index(M) - sequence.index(document_loop(X, len(X) // 2))) <= 2


def test_k_means_is_as_tight_as_that_of_scikit_learn():
    X = load_digits().data[:400] / 16
    order, _ = pivot_order(X, 40, 0.0, 2.1)
    centres, labels = k_means(X, X[order])
    inertia = np.sum((X - centres[labels]) ** 2)
    reference = KMeans(40, n_init=1, random_state=0).fit(X).inertia_
    assert inertia < 1.1 * reference
    for k in np.unique(labels):
        np.testing.assert_allclose(centres[k], X[labels == k].mean(axis=0), atol=1e-12)


def test_duplicates_are_never_two_pivots():
    X = np.repeat(np.random.default_rng(0).normal(size=(5, 2)), 4, axis=0)
    order, _ = pivot_order(X, 20, 0.0, 2.1)
    assert len(np.unique(X[order], axis=0)) == len(order) == 5


def test_pivots_track_the_residual_of_the_kernel_matrix():
    """The crossing is where the trace of the Schur complement, computed plainly, crosses κ."""
    X = np.random.default_rng(3).normal(size=(60, 4)) / 2
    order, crossing = pivot_order(X, 60, 0.1, 2.1)
    K = gaussian_kernel(X, X)
    for M, expected in ((crossing, True), (crossing + 1, False)):
        a = order[:M]
        left = 60 - np.trace(np.linalg.solve(K[np.ix_(a, a)], K[a] @ K[:, a]))
        assert bool(left / (2.1 + M - 2) >= 0.1) is expected


@given(seed=st.integers(0, 1000), M=st.integers(1, 12), strength=st.floats(1e-3, 1e3))
@SETTINGS
def test_ridge_path_solves_the_system_for_every_strength(seed, M, strength):
    rng = np.random.default_rng(seed)
    F, C = rng.normal(size=(M, M + 2)), rng.normal(size=(M, 3))
    G = F @ F.T
    Z = np.linalg.solve(G + strength * np.eye(M), C)
    path = RidgePath(G, C)
    np.testing.assert_allclose(path.solve(strength), Z, atol=1e-9)
    assert path.inner(strength) == pytest.approx(np.sum(Z * C), rel=1e-8)
    assert path.squared_norm(strength) == pytest.approx(np.sum(Z * Z), rel=1e-8)
    Y = np.linalg.lstsq(F, C, rcond=None)[0]
    expected = np.sum((Y - F.T @ Z) ** 2)
    energy = np.sum(Y**2)
    assert path.residual(strength, energy) == pytest.approx(expected, rel=1e-6, abs=1e-9 * energy)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cholesky_survives_a_singular_matrix(dtype):
    K = gaussian_kernel(*[np.zeros((30, 2), dtype)] * 2)
    L = jittered_cholesky(K.copy())
    assert L.dtype == dtype
    np.testing.assert_allclose(L @ L.T, K, atol=1e-3)

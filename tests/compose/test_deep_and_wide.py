"""Depth and width: minima over layers and branches (004 Definitions 3-6)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator

from permea.compose import ConditionallyDeep, Wide, partition
from permea.models import FuzzyAutoencoder, KernelAffineHullMachine, MembershipAutoencoder
from permea.models.base import row_norms

CLAIM = settings(max_examples=20, deadline=None, derandomize=True)


def data(seed, N=50, p=6, dtype=np.float64):
    random = np.random.default_rng(seed)
    return (
        random.normal(size=(N, p)).astype(dtype),
        (2 * random.normal(size=(30, p))).astype(dtype),
    )


def through_the_layers(deep, Y):
    """004 eq. (50)-(53) as they are written."""
    return np.min([row_norms(Y - image) for image in deep.images(Y)], axis=0)


@CLAIM
@given(st.integers(0, 10_000), st.integers(1, 5), st.sampled_from([np.float32, np.float64]))
def test_deep_distance_is_the_minimum_over_layers(seed, n_layers, dtype):
    Y, queries = data(seed, dtype=dtype)
    deep = ConditionallyDeep(KernelAffineHullMachine(n_components=5), n_layers=n_layers).fit(Y)
    expected = through_the_layers(deep, queries)
    np.testing.assert_allclose(deep.distance(queries), expected, rtol=2e-4)
    image = deep.reconstruct(queries)
    np.testing.assert_allclose(row_norms(queries - image), expected, rtol=2e-4)


@CLAIM
@given(st.integers(0, 10_000))
def test_deep_is_never_further_than_its_first_layer(seed):
    Y, queries = data(seed)
    deep = ConditionallyDeep(KernelAffineHullMachine(n_components=5), n_layers=4).fit(Y)
    assert np.all(deep.distance(queries) <= deep.layers_[0].distance(queries) + 1e-9)


def test_layers_lose_one_component_each_and_share_the_encoding():
    Y, _ = data(1)
    deep = ConditionallyDeep(KernelAffineHullMachine(n_components=4), n_layers=4).fit(Y)
    assert [layer.n_components_ for layer in deep.layers_] == [4, 3, 2, 1]
    alone = KernelAffineHullMachine(n_components=2, tol=1e-9).fit(Y)
    tight = ConditionallyDeep(KernelAffineHullMachine(n_components=4, tol=1e-9), n_layers=3).fit(Y)
    np.testing.assert_allclose(tight.layers_[2].distance(Y), alone.distance(Y), atol=1e-6)


def test_rows_of_few_dimensions_have_all_layers():
    Y, _ = data(2, N=3)
    deep = ConditionallyDeep(KernelAffineHullMachine(n_components=6), n_layers=6).fit(Y)
    assert [layer.n_components_ for layer in deep.layers_] == [2, 1, 1, 1, 1, 1]


FAMILIES = [
    KernelAffineHullMachine(n_components=5),
    MembershipAutoencoder(n_components=5),
    MembershipAutoencoder(n_components=5, disturbance="gamma"),
]


def wide_rows(seed, dtype):
    """Rows of so many features that the lower bound uses a part of them; two never vary."""
    random = np.random.default_rng(seed)
    Y = (random.normal(size=(220, 260)) * np.geomspace(1, 0.01, 260)).astype(dtype)
    Y[:, [0, 7]] = 0.5
    return Y, np.vstack([Y[:20] + dtype(0.01), random.normal(size=(20, 260)).astype(dtype)])


@pytest.mark.parametrize("model", FAMILIES)
@CLAIM
@given(st.integers(0, 10_000), st.sampled_from([np.float32, np.float64]))
def test_the_distance_is_that_to_the_nearest_image(model, seed, dtype):
    Y, queries = wide_rows(seed, dtype)
    deep = ConditionallyDeep(model, n_layers=3).fit(Y)
    expected = through_the_layers(deep, queries)
    np.testing.assert_allclose(deep.distance(queries), expected, rtol=1e-4)


@pytest.mark.parametrize("model", FAMILIES)
@CLAIM
@given(st.integers(0, 10_000), st.sampled_from([np.float32, np.float64]))
def test_a_cutoff_changes_nothing_below_it(model, seed, dtype):
    """Also with so many features that the lower bound uses a part of them only."""
    random = np.random.default_rng(seed)
    Y, queries = wide_rows(seed, dtype)
    deep = ConditionallyDeep(model, n_layers=3).fit(Y)
    exact = deep.distance(queries)
    cutoff = (exact * random.choice([0.5, 0.999, 1.001, 2.0], size=40)).astype(dtype)
    found = deep.distance_below(queries, cutoff)
    below = exact < cutoff
    assert below.any()
    np.testing.assert_allclose(found[below], exact[below], rtol=1e-5)
    assert np.all(found[~below] >= exact[~below] * (1 - 1e-5))


@pytest.mark.parametrize("scale", [1e3, 1e12])
def test_far_queries_go_through_all_layers_without_nan(scale):
    Y, queries = data(3)
    deep = ConditionallyDeep(KernelAffineHullMachine(n_components=4), n_layers=3).fit(Y)
    np.testing.assert_allclose(
        deep.distance(queries * scale), through_the_layers(deep, queries * scale), rtol=1e-6
    )


@CLAIM
@given(st.integers(0, 10_000))
def test_wide_distance_is_the_minimum_over_branches(seed):
    Y, queries = data(seed, N=90)
    chain = ConditionallyDeep(KernelAffineHullMachine(n_components=3), n_layers=2)
    wide = Wide(chain, branch_size=30, random_state=0).fit(Y)
    each = np.stack([branch.distance(queries) for branch in wide.branches_])
    assert len(wide.branches_) >= 3
    np.testing.assert_allclose(wide.distance(queries), each.min(axis=0), rtol=1e-9)
    images = wide.reconstruct(queries)
    np.testing.assert_allclose(row_norms(queries - images), each.min(axis=0), rtol=1e-9)


@CLAIM
@given(st.integers(0, 10_000), st.integers(1, 200), st.integers(1, 60))
def test_parts_cover_every_row_once_and_stay_small(seed, N, branch_size):
    random = np.random.default_rng(seed)
    Y = np.round(random.normal(size=(N, 2)) * random.choice([0.0, 1.0, 3.0]))
    parts = partition(Y, branch_size, random_state=0)
    assert sorted(np.concatenate(parts)) == list(range(N))
    assert max(map(len, parts)) <= 2 * branch_size
    assert min(map(len, parts)) >= 1


def test_branches_are_the_same_on_one_worker_and_on_two():
    Y, queries = data(5, N=80)
    one = Wide(branch_size=20, random_state=0).fit(Y)
    two = Wide(branch_size=20, random_state=0, n_jobs=2).fit(Y)
    np.testing.assert_allclose(one.distance(queries), two.distance(queries), rtol=1e-9)


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_a_backend_the_user_selects_is_used(backend):
    from joblib import parallel_config

    Y, queries = data(6, N=60)
    with parallel_config(backend=backend, n_jobs=2):
        wide = Wide(branch_size=20, random_state=0).fit(Y)
    plain = Wide(branch_size=20, random_state=0).fit(Y)
    np.testing.assert_allclose(wide.distance(queries), plain.distance(queries), rtol=1e-9)


class Subspace(BaseEstimator):
    """A family without ``next_layer``: projection on principal directions."""

    def __init__(self, n_components=3):
        self.n_components = n_components

    def fit(self, Y, y=None):
        self.mean_ = Y.mean(axis=0)
        self.basis_ = np.linalg.svd(Y - self.mean_)[2][: self.n_components]
        return self

    def reconstruct(self, Y):
        return self.mean_ + (Y - self.mean_) @ self.basis_.T @ self.basis_

    def distance(self, Y):
        return row_norms(Y - self.reconstruct(Y))


def kahm_image(Y, n, y):
    """004 Definition 1 for the leading n principal directions, in plain inverses."""
    N, p = Y.shape
    centred = Y - Y.mean(axis=0)
    P = np.linalg.svd(centred)[2][:n]
    theta = np.atleast_2d(np.cov(P @ centred.T))

    def kernel(a, b):
        d = P @ (a - b)
        return np.exp(-d @ np.linalg.inv(theta) @ d / (2 * n))

    K = np.array([[kernel(a, b) for b in Y] for a in Y])
    tau = 2 * np.sum(Y**2) / (p * N)
    error = 0.0
    for _ in range(200):  # λ = e + τ, e = R(e)
        residual = (error + tau) * np.linalg.solve(K + (error + tau) * np.eye(N), Y)
        error = np.sum(residual**2) / (p * N)
    h = np.linalg.solve(K + (error + tau) * np.eye(N), [kernel(y, b) for b in Y])
    return h @ Y / h.sum()


@pytest.mark.parametrize(("n", "L"), [(1, 5), (3, 5), (2, 7)])
def test_layer_l_has_n_minus_l_plus_1_dimensions_and_at_least_one(n, L):
    """n_l = max(n - l + 1, 1) of 000, 001 and 003, and images by (51) and (53) of 004."""
    Y, queries = data(7, N=25)
    queries = queries[:4]
    deep = ConditionallyDeep(KernelAffineHullMachine(n_components=n, tol=1e-10), n_layers=L).fit(Y)
    dimensions = [max(n - layer + 1, 1) for layer in range(1, L + 1)]
    assert [layer.n_components_ for layer in deep.layers_] == dimensions
    images, last = [], queries
    for dimension in dimensions:
        last = np.array([kahm_image(Y, dimension, y) for y in last])
        images.append(last)
    np.testing.assert_allclose(deep.images(queries), images, atol=1e-7)
    nearest = np.min([row_norms(queries - image) for image in images], axis=0)
    np.testing.assert_allclose(deep.distance(queries), nearest, atol=1e-7)


@pytest.mark.parametrize(
    "model", [MembershipAutoencoder(n_components=2), FuzzyAutoencoder(n_components=2), Subspace(2)]
)
def test_every_family_has_as_many_layers_as_asked_for(model):
    Y, queries = data(8, N=30)
    deep = ConditionallyDeep(model, n_layers=5).fit(Y)
    assert [layer.n_components for layer in deep.layers_] == [2, 1, 1, 1, 1]
    np.testing.assert_allclose(deep.distance(queries), through_the_layers(deep, queries))


@pytest.mark.parametrize("estimator", [ConditionallyDeep(n_layers=0), Wide(branch_size=0)])
def test_sizes_must_be_positive(estimator):
    with pytest.raises(ValueError, match=r"n_layers|branch_size"):
        estimator.fit(np.eye(4))

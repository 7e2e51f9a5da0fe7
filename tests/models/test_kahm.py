"""Kernel Affine Hull Machines: 004 Definitions 1-2, Theorems 1-3."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from permea.compose import ConditionallyDeep
from permea.models import KernelAffineHullMachine, ShrunkWarning
from permea.models.kahm import kernel_matrix

CLAIM = settings(max_examples=30, deadline=None, derandomize=True)


def rows_and_queries(seed, n_rows=40, n_features=5, scale=1.0, offset=0.0):
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(n_features, n_features))
    rows = scale * (random.normal(size=(n_rows, n_features)) @ mixing) + offset
    queries = scale * 3 * random.normal(size=(25, n_features)) + offset
    return rows, queries


data_sets = st.builds(
    rows_and_queries,
    seed=st.integers(0, 10_000),
    n_rows=st.integers(3, 60),
    n_features=st.integers(2, 12),
    scale=st.sampled_from([0.1, 1.0, 20.0]),
    offset=st.sampled_from([0.0, 5.0]),
)


def by_definition(Y, queries, n):
    """004 eq. (33)-(44) written out, with inverses and loops."""
    N, p = Y.shape
    _, vectors = np.linalg.eigh(np.cov(Y.T))
    P = vectors[:, ::-1][:, :n].T
    X = Y @ P.T
    theta_inverse = np.linalg.inv(np.atleast_2d(np.cov(X.T)))

    def kernel(a, b):
        d = a[:, None, :] - b[None, :, :]
        return np.exp(-np.einsum("ijk,kl,ijl->ij", d, theta_inverse, d) / (2 * n))

    K = kernel(X, X)
    tau = 2 / (p * N) * np.sum(Y**2)
    e = tau / 8
    for _ in range(300):
        e = np.sum((Y - K @ np.linalg.solve(K + (e + tau) * np.eye(N), Y)) ** 2) / (p * N)
    h = kernel(queries @ P.T, X) @ np.linalg.inv(K + (e + tau) * np.eye(N))
    return (h / h.sum(axis=1, keepdims=True)) @ Y, e + tau


@pytest.mark.parametrize("n", [1, 3, 5])
def test_the_image_is_that_of_the_definition(n):
    Y, _ = rows_and_queries(0)
    queries = Y + 0.1
    machine = KernelAffineHullMachine(n_components=n, tol=1e-12).fit(Y)
    image, regularization = by_definition(Y, queries, n)
    np.testing.assert_allclose(machine.reconstruct(queries), image, atol=1e-8)
    assert machine.regularization_ == pytest.approx(regularization, rel=1e-9)
    np.testing.assert_allclose(
        machine.distance(queries), np.linalg.norm(queries - image, axis=1), atol=1e-8
    )


def test_more_features_than_rows_gives_the_same_machine():
    random = np.random.default_rng(1)
    Y = random.normal(size=(12, 30))
    queries = Y + 0.05
    machine = KernelAffineHullMachine(n_components=4, tol=1e-12).fit(Y)
    image, _ = by_definition(Y, queries, 4)
    np.testing.assert_allclose(machine.reconstruct(queries), image, atol=1e-7)


@CLAIM
@given(data_sets)
def test_weights_are_affine_and_images_lie_in_the_hull(data):
    Y, queries = data
    machine = KernelAffineHullMachine(n_components=2).fit(Y)
    weights = machine.weights(queries)
    image = machine.reconstruct(queries)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
    size = np.abs(Y).max() * np.abs(weights).sum(axis=1, keepdims=True)
    assert np.all(np.abs(weights @ Y - image) <= 1e-6 * size + 1e-9)


@CLAIM
@given(data_sets)
def test_no_image_is_longer_than_theorem_2_allows(data):
    Y, queries = data
    machine = KernelAffineHullMachine(n_components=3).fit(Y)
    points = np.vstack([Y, queries, 100 * queries])
    lengths = np.linalg.norm(machine.reconstruct(points), axis=1)
    loose = np.linalg.norm(Y, 2) * (1 + Y.shape[1] * Y.shape[0] ** 2 / (2 * np.sum(Y**2)))
    assert np.all(lengths <= machine.norm_bound_ * (1 + 1e-9))
    assert machine.norm_bound_ < loose


@CLAIM
@given(data_sets)
def test_distance_ratio_stays_below_theorem_3(data):
    Y, queries = data
    machine = KernelAffineHullMachine(n_components=3).fit(Y)
    ratio = machine.norm_bound_ / np.linalg.norm(Y, 2)
    spread = [np.linalg.norm(query - Y, 2) for query in queries]
    assert np.all(machine.distance(queries) <= ratio * np.array(spread) * (1 + 1e-9))


@CLAIM
@given(data_sets)
def test_the_order_of_rows_does_not_matter(data):
    Y, queries = data
    order = np.random.default_rng(0).permutation(len(Y))
    one = KernelAffineHullMachine(n_components=2, tol=1e-9).fit(Y)
    other = KernelAffineHullMachine(n_components=2, tol=1e-9).fit(Y[order])
    size = np.abs(Y).max() + np.abs(queries).max()
    np.testing.assert_allclose(one.distance(queries), other.distance(queries), atol=1e-5 * size)


@CLAIM
@given(data_sets)
def test_images_turn_with_the_data(data):
    Y, queries = data
    rotation, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(Y.shape[1],) * 2))
    one = KernelAffineHullMachine(n_components=2, tol=1e-9).fit(Y)
    other = KernelAffineHullMachine(n_components=2, tol=1e-9).fit(Y @ rotation)
    size = np.abs(Y).max() + np.abs(queries).max()
    np.testing.assert_allclose(
        one.reconstruct(queries) @ rotation, other.reconstruct(queries @ rotation), atol=1e-4 * size
    )


def test_constant_features_keep_their_value():
    Y, queries = rows_and_queries(2)
    wide = np.insert(Y, [0, 3], [7.0, -2.0], axis=1)
    machine = KernelAffineHullMachine(n_components=3).fit(wide)
    image = machine.reconstruct(np.insert(queries, [0, 3], [0.0, 0.0], axis=1))
    assert np.all(image[:, 0] == 7.0)
    assert np.all(image[:, 4] == -2.0)


def test_duplicate_features_and_rows_are_fine():
    Y, queries = rows_and_queries(4)
    machine = KernelAffineHullMachine(n_components=3).fit(np.vstack([Y, Y, Y]))
    assert np.isfinite(machine.distance(queries)).all()
    twice = np.hstack([Y, Y])
    machine = KernelAffineHullMachine(n_components=4).fit(twice)
    image = machine.reconstruct(twice)
    np.testing.assert_allclose(image[:, :5], image[:, 5:], atol=1e-9)


def test_too_many_components_shrink_with_a_warning_that_says_to_what():
    Y, _ = rows_and_queries(5, n_rows=4, n_features=9)
    with pytest.warns(ShrunkWarning, match=r"n_components=20 .* n_components=3 is used"):
        machine = KernelAffineHullMachine(n_components=20).fit(Y)
    assert machine.n_components_ == 3


@pytest.mark.parametrize("Y", [np.ones((1, 3)), np.full((5, 3), 2.0), np.zeros((4, 2))])
def test_rows_without_variance_have_themselves_as_image(Y):
    machine = KernelAffineHullMachine(n_components=1).fit(Y)
    np.testing.assert_array_equal(machine.reconstruct(Y + 3), np.broadcast_to(Y[0], Y.shape))
    np.testing.assert_allclose(machine.distance(Y + 3), 3 * np.sqrt(Y.shape[1]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("power", [1, 5, 15, 30])
def test_far_away_points_have_finite_images_in_the_bound(dtype, power):
    Y, queries = rows_and_queries(6)
    far = (queries * 10.0**power).astype(dtype)
    machine = KernelAffineHullMachine(n_components=3).fit(Y.astype(dtype))
    image = machine.reconstruct(far)
    assert np.isfinite(image).all()
    assert np.all(np.linalg.norm(image, axis=1) <= machine.norm_bound_ * (1 + 1e-4))
    assert not np.isnan(machine.distance(far)).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_in_is_precision_out(dtype):
    Y, queries = (a.astype(dtype) for a in rows_and_queries(7))
    machine = KernelAffineHullMachine(n_components=3).fit(Y)
    assert machine.reconstruct(queries).dtype == dtype
    assert machine.distance(queries).dtype == dtype


def test_single_precision_agrees_with_double():
    Y, queries = rows_and_queries(8, n_rows=600, n_features=30)
    double = KernelAffineHullMachine(n_components=10).fit(Y)
    single = KernelAffineHullMachine(n_components=10).fit(Y.astype(np.float32))
    np.testing.assert_allclose(
        double.distance(queries), single.distance(queries.astype(np.float32)), rtol=5e-3
    )


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e6])
def test_any_scale_of_the_data_works(scale):
    Y, queries = rows_and_queries(9, scale=scale)
    machine = KernelAffineHullMachine(n_components=3).fit(Y)
    assert np.isfinite(machine.reconstruct(queries)).all()
    assert machine.regularization_ > 0


def test_smoothing_is_kernel_ridge_regression_of_the_rows():
    Y, _ = rows_and_queries(10)
    machine = KernelAffineHullMachine(n_components=3).fit(Y)
    K = kernel_matrix(machine.codes_)
    expected = K @ np.linalg.solve(K + machine.regularization_ * np.eye(len(Y)), Y)
    np.testing.assert_allclose(machine.smooth(Y), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 2.5}, "n_components"),
        ({"tol": 0.0}, "tol"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        KernelAffineHullMachine(**parameters).fit(np.eye(4))


def test_a_failed_fit_leaves_nothing_behind():
    machine = KernelAffineHullMachine()
    with pytest.raises(ValueError, match="NaN"):
        machine.fit(np.array([[1.0, np.nan], [2.0, 3.0]]))
    assert not [name for name in vars(machine) if name.endswith("_") and name != "n_features_in_"]


def test_a_machine_that_was_asked_is_freed_with_its_chain():
    """What is prepared for queries must not keep the rows in memory."""
    rows = np.random.default_rng(0).normal(size=(60, 5))
    deep = ConditionallyDeep(KernelAffineHullMachine(n_components=3), n_layers=3).fit(rows)
    deep.distance(rows)
    machine = weakref.ref(deep.layers_[0])
    del deep
    gc.collect()
    assert machine() is None

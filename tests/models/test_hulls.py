"""Hulls of classes against plain transcriptions, and what is learned from exact and noised sums."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from permea import HullClassifier, MomentClassifier, Privacy
from permea.models.hull import (
    TEMPERATURES,
    ClassHulls,
    choose_directions,
    hull_regularization,
    learn_hulls,
)
from permea.models.linear import ridge
from permea.privacy.moments import Moments
from permea.privacy.scatter import ClassScatter

RECORD = Privacy(epsilon=4, delta=1e-5, unit="record", domain=(0, 1))


def hulls_of(covariances, means, *, transform=None, regularization=None):
    eigen = [np.linalg.eigh(one) for one in covariances]
    values = np.stack([w for w, _ in eigen])
    if regularization is None:
        regularization = np.array([hull_regularization(w) for w in values])
    T = np.eye(len(means[0])) if transform is None else transform
    return ClassHulls(T, np.array(means), values, np.stack([v for _, v in eigen]), regularization)


def random_covariance(rng, d):
    root = rng.normal(size=(d, d))
    return root @ root.T + 0.1 * np.eye(d)


def test_images_and_distances_are_those_of_the_linear_machine():
    """004 eq. (33) with k(x, x') = xᵀx', written with the rows themselves."""
    rng = np.random.default_rng(0)
    rows, queries = rng.normal(size=(40, 5)) * [3, 2, 1, 1, 0.1] + 2, rng.normal(size=(7, 5))
    mean = rows.mean(axis=0)
    Y = rows - mean
    hulls = hulls_of([Y.T @ Y / 40], [mean])
    K = Y @ Y.T / 40
    inner = np.linalg.solve(K + hulls.regularization[0] * np.eye(40), Y)
    images = mean + (queries - mean) @ Y.T / 40 @ inner
    np.testing.assert_allclose(hulls.images(queries, 0), images, atol=1e-10)
    np.testing.assert_allclose(
        hulls.distances(queries)[:, 0], np.linalg.norm(queries - images, axis=1), rtol=1e-10
    )


def test_regularization_is_the_fixed_point_of_theorem_1():
    rng = np.random.default_rng(1)
    Y = rng.normal(size=(30, 6)) * [3, 2, 1, 1, 0.1, 0.01]
    Y -= Y.mean(axis=0)
    K = Y @ Y.T / 30
    tau = 2 / (6 * 30) * np.square(Y).sum()
    e = 0.0
    for _ in range(300):
        e = np.square(Y - K @ np.linalg.solve(K + (e + tau) * np.eye(30), Y)).sum() / (6 * 30)
    assert hull_regularization(np.linalg.eigvalsh(Y.T @ Y / 30)) == pytest.approx(e + tau, rel=1e-9)


def test_likelihood_distances_order_as_gaussian_densities():
    rng = np.random.default_rng(2)
    covariances = [random_covariance(rng, 4) for _ in range(3)]
    means, x = rng.normal(size=(3, 4)), rng.normal(size=(20, 4))
    found = np.square(hulls_of(covariances, means).distances(x, "likelihood"))
    density = np.stack(
        [multivariate_normal(m, c).logpdf(x) for m, c in zip(means, covariances, strict=True)], 1
    )
    differences = found + 2 * density
    np.testing.assert_allclose(differences, differences[0, 0], rtol=1e-9)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), radius=st.floats(0.01, 10))
def test_no_image_is_longer_than_the_bound(seed, radius):
    rng = np.random.default_rng(seed)
    T = rng.normal(size=(6, 3))
    hulls = hulls_of([random_covariance(rng, 3)], [rng.normal(size=3)], transform=T)
    z = rng.normal(size=(50, 6))
    z *= radius / np.linalg.norm(z, axis=1, keepdims=True)
    z[0] = radius * np.linalg.svd(T)[0][:, 0]
    longest = np.linalg.norm(hulls.images(hulls.encode(z), 0), axis=1).max()
    assert longest <= hulls.norm_bounds(radius)[0] * (1 + 1e-12)


def test_half_squares_are_those_distances_and_each_of_its_row_alone():
    rng = np.random.default_rng(3)
    T = rng.normal(size=(9, 4))
    hulls = hulls_of([random_covariance(rng, 4) for _ in range(3)], rng.normal(size=(3, 4)),
                     transform=T)  # fmt: skip
    z = rng.normal(size=(311, 9))
    for kind in ("image", "likelihood"):
        numbers = hulls.factors(kind)
        half = hulls.half_squares(z, *numbers)
        squares = np.square(hulls.distances(hulls.encode(z), kind))
        np.testing.assert_allclose(half, 0.5 * squares, rtol=1e-6)
        order = rng.permutation(311)
        np.testing.assert_array_equal(hulls.half_squares(z[order], *numbers), half[order])
        np.testing.assert_array_equal(hulls.half_squares(z[5:6], *numbers), half[5:6])


def gaussian_classes(rng, n, d, C):
    means = rng.normal(size=(C, d))
    roots = [np.eye(d) + 0.15 * rng.normal(size=(d, d)) for _ in range(C)]
    rows = [m + rng.normal(size=(n, d)) @ root for m, root in zip(means, roots, strict=True)]
    return np.concatenate(rows), np.repeat(np.arange(C), n), means, [r.T @ r for r in roots]


def test_exact_sums_give_the_means_and_covariances_of_the_classes():
    rng = np.random.default_rng(4)
    rows, labels, means, covariances = gaussian_classes(rng, 40_000, 4, 3)
    centre = rows.mean(axis=0)
    Z, Y = rows - centre, np.eye(3)[labels]
    moments, P = Moments.of(Z, Y), np.eye(4)
    hulls = learn_hulls(moments, ClassScatter.of(Z, Y, P), ridge(moments))
    for c in range(3):
        T = hulls.transform
        np.testing.assert_allclose(hulls.means[c], (means[c] - centre) @ T, atol=0.05)
        own = hulls.vectors[c] @ (hulls.values[c][:, None] * hulls.vectors[c].T)
        np.testing.assert_allclose(own, T.T @ covariances[c] @ T, atol=0.15)


def test_classes_of_one_shape_are_told_from_noise():
    """With heavy noise on the scatter each class keeps the pooled covariance: the unit matrix."""
    rng = np.random.default_rng(5)
    rows, labels = rng.normal(size=(3000, 6)), np.repeat([0, 1, 2], 1000)
    Z, Y = rows - rows.mean(axis=0), np.eye(3)[labels]
    moments = Moments.of(Z, Y)
    exact, sigma = ClassScatter.of(Z, Y, np.eye(6)), 300.0
    noise = sigma / np.sqrt(2) * rng.normal(size=(3, 6, 6))
    noise = (noise + noise.transpose(0, 2, 1)) / np.sqrt(2)
    noised = ClassScatter(np.eye(6), exact.second + noise, sigma)
    naive = noised.second / 1000
    assert min(np.linalg.eigvalsh(one).min() for one in naive) < 0.3
    hulls = learn_hulls(moments, noised, ridge(moments))
    np.testing.assert_allclose(hulls.values, 1.0, atol=0.25)


def test_drawn_rows_have_exactly_the_moments_of_their_class():
    rng = np.random.default_rng(6)
    covariance, mean = random_covariance(rng, 3), rng.normal(size=3)
    hulls = hulls_of([covariance], [mean])
    drawn = hulls.draw(0, 60, rng)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=1e-12)
    np.testing.assert_allclose(np.cov(drawn.T, bias=True), covariance, atol=1e-10)
    few = hulls.draw(0, 2, rng)
    np.testing.assert_allclose(few.mean(axis=0), mean, atol=1e-12)
    assert hulls.draw(0, 1, rng).shape == (1, 3)
    skewness = ((hulls.draw(0, 20_000, rng) - mean) ** 3).mean(axis=0)
    assert np.all(np.abs(skewness) < 5.5 * np.sqrt(15 * np.diag(covariance) ** 3 / 20_000))


def test_the_temperature_is_that_of_the_smallest_loss():
    rng = np.random.default_rng(7)
    rows, labels, *_ = gaussian_classes(rng, 3000, 4, 3)
    model = HullClassifier(features="identity", n_directions=4, metric="likelihood").fit(
        rows, labels
    )
    probabilities = model.predict_proba(rows)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert probabilities.max(axis=1).mean() == pytest.approx(model.score(rows, labels), abs=0.03)
    losses = np.linspace(2, 1, len(TEMPERATURES))
    model.calibrate(losses, 0.0)
    assert model.temperature_ == TEMPERATURES[-1]
    model.calibrate(losses, 100.0)
    assert model.temperature_ == 1.0, "rows drawn from Gaussians decide where noise hides losses"


def test_curved_noise_free_classes_are_found_and_labels_need_not_be_numbers():
    rng = np.random.default_rng(8)
    rows = np.concatenate([rng.normal(0.3, 0.05, (300, 4)), rng.normal(0.6, 0.05, (300, 4))])
    labels = np.repeat(["ill", "well"], 300)
    model = HullClassifier(privacy=RECORD, features="identity", classes=["ill", "well"],
                           random_state=0).fit(rows, labels)  # fmt: skip
    assert model.score(rows, labels) > 0.95
    assert model.images(rows[:5], label="ill").shape == model.encode(rows[:5]).shape
    scores = model.matching_scores(rows)
    assert np.array_equal(scores.argmax(axis=1), model.distances(rows).argmin(axis=1))


def test_the_ridge_model_beside_the_distances_is_its_log_odds():
    """Weighted by so much that the distances do not count, the decision is that of the ridge."""
    rng = np.random.default_rng(9)
    rows, labels, *_ = gaussian_classes(rng, 400, 4, 3)
    model = HullClassifier(features="identity", metric="likelihood").fit(rows, labels)
    distances = model.distances(rows)
    ridged = MomentClassifier(features="identity", radius=model.radius).fit(rows, labels)
    priors = np.log(model._priors)
    odds = ridged.predict_log_proba(rows) - priors
    alone = model.decision_function(rows)
    model.ridge_weight = 0.5
    wanted = priors + model.temperature_ * (0.5 * odds - 0.5 * np.square(distances))
    wanted -= np.log(np.exp(wanted).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(model.predict_log_proba(rows), wanted, atol=1e-6)
    assert np.abs(model.decision_function(rows) - alone).max() > 0.1
    np.testing.assert_array_equal(model.distances(rows), distances)
    z = rng.normal(size=(70, 4)) / 10
    numbers = model._loss_numbers()
    half = model._half_squares(z, numbers)
    np.testing.assert_array_equal(model._half_squares(z[::-1], numbers), half[::-1])
    np.testing.assert_array_equal(model._half_squares(z[3:4], numbers), half[3:4])


@pytest.mark.parametrize("ridge_weight", [0.0, 0.5])
def test_workers_on_other_machines_compute_losses_with_the_same_numbers(ridge_weight, monkeypatch):
    """A machine whose logarithms are rounded otherwise would move the losses of its rows."""
    rng = np.random.default_rng(9)
    rows, labels, *_ = gaussian_classes(rng, 400, 4, 3)
    options = {"features": "identity", "metric": "likelihood", "ridge_weight": ridge_weight}
    model = HullClassifier(**options).fit(rows, labels)
    z, targets = rng.normal(size=(70, 4)) / 10, np.eye(3)[rng.integers(0, 3, 70)]
    expected, worker = model._losses(z, targets), pickle.loads(pickle.dumps(model._worker()))
    for name in ("class_shares", "calibrate"):
        monkeypatch.setattr(f"permea.models.hull.{name}", None)
    monkeypatch.setattr(ClassHulls, "factors", None)
    np.testing.assert_array_equal(worker._losses(z, targets), expected)
    with pytest.raises(TypeError):
        model._losses(z, targets)


def test_exact_scatter_about_centres_gives_the_same_hulls_as_about_zero():
    rng = np.random.default_rng(10)
    rows, labels, *_ = gaussian_classes(rng, 2000, 4, 3)
    Z, Y = rows - rows.mean(axis=0), np.eye(3)[labels]
    moments = Moments.of(Z, Y)
    model = ridge(moments)
    chosen = choose_directions(moments, model, 4, radius=1.0)
    assert chosen.shape == (7, 4)
    about_zero = learn_hulls(moments, ClassScatter.of(Z, Y, chosen[:4]), model)
    about_means = learn_hulls(moments, ClassScatter.of(Z, Y, chosen), model)
    np.testing.assert_allclose(
        about_means.distances(about_means.encode(Z)), about_zero.distances(about_zero.encode(Z)),
        rtol=1e-6,
    )  # fmt: skip


def test_rows_about_their_class_mean_reach_the_radius():
    """The scale of the directions: typical rows are as long as the radius, and few are shrunk."""
    rng = np.random.default_rng(11)
    rows, labels, *_ = gaussian_classes(rng, 2000, 30, 3)
    Z, Y = rows - rows.mean(axis=0), np.eye(3)[labels]
    moments = Moments.of(Z, Y)
    u = np.hstack([Z, Y]) @ choose_directions(moments, ridge(moments), 30, radius=0.25)
    lengths = np.linalg.norm(u, axis=1)
    assert 0.2 < np.median(lengths) < 0.25
    assert np.median(np.linalg.norm(np.hstack([Z, 0 * Y]) @ choose_directions(
        moments, ridge(moments), 30, radius=0.25), axis=1)) > 1.1 * np.median(lengths)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ridge_weight": -1.0}, "ridge_weight must be"),
        ({"metric": "cosine"}, "metric must be"),
        ({"n_directions": 0}, "n_directions must be"),
        ({"n_directions": 2.5}, "n_directions must be"),
        ({"classes": None}, "classes is missing"),
    ],
)
def test_bad_parameters_are_refused_before_the_charge(options, told):
    from permea import Ledger

    ledger = Ledger()
    model = HullClassifier(
        **{"privacy": RECORD, "classes": [0, 1], "ledger": ledger, "features": "identity"} | options
    )
    with pytest.raises(ValueError, match=told):
        model.fit(np.random.default_rng(0).random((20, 3)), np.arange(20) % 2)
    assert len(ledger) == 0

"""Public features and learning from moments: known answers and honest uncertainty."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from permea.models.features import (
    Chain,
    OrientedGradients,
    PublicNystrom,
    RandomFourier,
    ScaledIdentity,
    SideBySide,
)
from permea.models.linear import bayesian, ridge
from permea.privacy import Privacy
from permea.privacy.moments import Moments, plan_moments

MAPS = [
    ScaledIdentity(domain=(0, 1)),
    RandomFourier(n_frequencies=7),
    PublicNystrom(np.random.default_rng(1).random((5, 16))),
    OrientedGradients(cells=(1, 2), orientations=5),
    Chain([OrientedGradients(cells=2), RandomFourier(n_frequencies=4)]),
    SideBySide([ScaledIdentity(), RandomFourier(n_frequencies=3)], weights=[1, 2]),
]


@pytest.mark.parametrize("feature_map", MAPS, ids=lambda m: type(m).__name__)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([0.0, 0.1, 1.0, 50.0]))
def test_a_map_reads_one_row_at_a_time_and_keeps_its_norm(feature_map, seed, size):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(5, 16)) * size
    phi = feature_map.fit_transform(X)
    assert phi.shape == (5, feature_map.n_features_out_)
    assert np.all(np.linalg.norm(phi, axis=1) <= feature_map.norm_bound_ + 1e-9)
    # fitted on other rows, asked one by one: the same features
    other = feature_map.fit(rng.normal(size=(9, 16)))
    alone = np.vstack([other.transform(row[None]) for row in X])
    np.testing.assert_allclose(alone, phi, atol=1e-12)
    assert feature_map.transform(X.astype(np.float32)).dtype == np.float32


def test_fourier_features_have_norm_one_and_the_gaussian_kernel():
    X = np.random.default_rng(0).normal(size=(30, 4)) / 2
    phi = RandomFourier(n_frequencies=20_000, scale=1.3).fit_transform(X)
    np.testing.assert_allclose(np.linalg.norm(phi, axis=1), 1, atol=1e-12)
    squares = np.square(X[:, None] - X).sum(-1)
    np.testing.assert_allclose(phi @ phi.T, np.exp(-0.5 * 1.3**2 * squares), atol=0.05)


def test_gradients_know_the_direction_and_the_place_of_an_edge():
    image = np.zeros((1, 12, 12))
    image[:, :6] = 1  # bright above, dark below: the gradient points up, 3/4 of a turn
    phi = OrientedGradients(cells=1, orientations=4).fit_transform(image.reshape(1, -1))
    assert phi.argmax() == 3
    turned = OrientedGradients(cells=1, orientations=4).fit_transform(
        np.swapaxes(image, 1, 2).reshape(1, -1)
    )
    assert turned.argmax() == 2


def test_colour_counts_where_its_edges_are_longest():
    """One channel alone varies: the features are those of this channel as a grey image."""
    grey = np.random.default_rng(0).random((4, 6, 9))
    colour = np.stack([np.zeros_like(grey), grey, np.full_like(grey, 0.0)], axis=-1)
    found = OrientedGradients(image_shape=(6, 9, 3)).fit_transform(colour.reshape(4, -1))
    wanted = OrientedGradients(image_shape=(6, 9)).fit_transform(grey.reshape(4, -1))
    np.testing.assert_array_equal(found, wanted)
    equal = np.repeat(grey[..., None], 3, axis=-1).reshape(4, -1)
    np.testing.assert_array_equal(
        OrientedGradients(image_shape=(6, 9, 3)).fit_transform(equal), wanted
    )


def test_square_images_are_known_by_their_number_of_columns_in_grey_and_in_colour():
    X = np.random.default_rng(2).random((3, 192))  # 8 x 8 pixels of three channels
    wanted = OrientedGradients(image_shape=(8, 8, 3)).fit_transform(X)
    np.testing.assert_array_equal(OrientedGradients().fit_transform(X), wanted)
    grey = OrientedGradients(image_shape=(12, 12)).fit_transform(X[:, :144])
    np.testing.assert_array_equal(OrientedGradients().fit_transform(X[:, :144]), grey)


@pytest.mark.parametrize("exponent", [0.375, 0.25])
def test_flatter_roots_are_powers_of_the_shares_with_norm_one(exponent):
    X = np.random.default_rng(1).random((5, 144))
    X[0] = 0.0
    shares = np.square(OrientedGradients().fit_transform(X))
    wanted = shares**exponent
    wanted[1:] /= np.linalg.norm(wanted[1:], axis=1, keepdims=True)
    found = OrientedGradients(exponent=exponent).fit_transform(X)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match="image_shape"):
        OrientedGradients().fit(np.zeros((1, 15)))
    with pytest.raises(ValueError, match="channels"):
        OrientedGradients(image_shape=(4, 4, 2)).fit(np.zeros((1, 16)))
    with pytest.raises(ValueError, match="exponent"):
        OrientedGradients(exponent=0.3).fit(np.zeros((1, 16)))
    with pytest.raises(ValueError, match="inducing_points"):
        PublicNystrom(np.zeros((3, 2))).fit(np.zeros((1, 5)))
    with pytest.raises(ValueError, match="expecting 3 features"):
        ScaledIdentity().fit(np.zeros((1, 3))).transform(np.zeros((1, 4)))


def test_ridge_without_noise_is_ridge_regression():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 6)) + 3
    Y = Z @ rng.normal(size=(6, 2)) + 0.3 * rng.normal(size=(300, 2)) - 1
    model = ridge(Moments.of(Z, Y))
    peer = Ridge(alpha=float(model.regularization[0])).fit(Z, Y)
    np.testing.assert_allclose(model.predict(Z), peer.predict(Z), atol=1e-8)
    # 1/β, the mean squared error, is a fixed point (001 eq. 1.58)
    assert model.regularization[0] == pytest.approx(np.mean((Y - model.predict(Z)) ** 2), rel=1e-4)


def test_noise_raises_the_ridge_and_negative_eigenvalues_do_no_harm():
    rng = np.random.default_rng(0)
    D = 40
    Z = rng.normal(size=(500, D)) / np.sqrt(D)
    Y = Z @ rng.normal(size=(D, 1))
    exact = Moments.of(Z, Y)
    E = rng.normal(size=(D, D)) * 5.0
    noised = Moments(
        exact.second + (E + E.T) / 2, exact.cross, exact.total, exact.outputs, exact.squares,
        exact.size, second_noise=5.0,
    )  # fmt: skip
    assert np.linalg.eigvalsh(noised.second).min() < 0
    assert noised.noise_norm == pytest.approx(np.linalg.norm((E + E.T) / 2, 2), rel=0.15)
    model = ridge(noised)
    assert model.regularization[0] > 0.2 * noised.noise_norm
    assert np.abs(model.predict(Z)).max() < 10 * np.abs(Y).max()


@pytest.mark.parametrize("noise", [0.0, 20.0])
def test_the_uncertainty_covers_what_it_should(noise):
    """95 % intervals hold for new rows, with and without noise; without its share they do not."""
    rng = np.random.default_rng(4)
    D, inside, blind, count = 15, 0, 0, 0
    for _ in range(40):
        weights = rng.normal(size=(D, 1))
        Z, new = rng.normal(size=(600, D)), rng.normal(size=(50, D))
        Y = Z @ weights + 0.5 * rng.normal(size=(600, 1))
        y = new @ weights + 0.5 * rng.normal(size=(50, 1))
        exact = Moments.of(Z, Y)
        E = rng.normal(size=(D, D)) * noise
        noised = Moments(
            exact.second + (E + E.T) / 2, exact.cross + rng.normal(size=(D, 1)) * noise,
            exact.total, exact.outputs, exact.squares, exact.size, noise, noise,
        )  # fmt: skip
        model = bayesian(noised)
        error = np.abs(y - model.predict(new))
        inside += np.sum(error <= 1.96 * np.sqrt(model.variance(new)))
        blind += np.sum(error <= 1.96 * 0.5)
        count += len(new)
    assert 0.93 <= inside / count <= 0.999
    if noise:
        assert blind / count < 0.93


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("n", [500, 3000, 50_000])
def test_intervals_of_a_private_regression_hold(epsilon, n):
    """90 % intervals of an additive model cover new people at every ε and n, on average of runs."""
    rng = np.random.default_rng(int(n + 10 * epsilon))
    inside = []
    for _ in range(6):
        columns = rng.integers(6, size=(n + 1000, 8))
        Z = np.eye(6)[columns].reshape(len(columns), -1) / np.sqrt(8) - 1 / 6 / np.sqrt(8)
        y = Z @ rng.normal(size=48) * 0.4 + 0.15 * rng.normal(size=len(Z))
        moments = release_of_numbers(Z[:n] / 4, y[:n], epsilon, rng)
        model = bayesian(moments)
        error = np.abs(y[n:] - model.predict(Z[n:] / 4)[:, 0])
        inside.append(np.mean(error <= 1.645 * np.sqrt(model.variance(Z[n:] / 4)[:, 0])))
    assert 0.87 <= np.mean(inside) <= (0.96 if n * epsilon > 24_000 else 1.0)


def release_of_numbers(Z, y, epsilon, rng):
    """What a release gives for rows in the radius 1/4, with noise in floats: for tests only."""
    D, r = Z.shape[1], 0.25
    promise = Privacy(epsilon=epsilon, delta=1e-6, unit="record", domain=(0, 1))
    scales = plan_moments(promise, D, 2, outputs="numbers", radius=r).scales
    second, cross, counts = scales.second * r**2, scales.cross * r * np.sqrt(2), scales.counts
    exact = Moments.of(Z, y[:, None])
    E = second * rng.normal(size=(D, D))
    noise = cross * rng.normal(size=(2, D, 1))
    return Moments(
        exact.second + (E + E.T) / 2, exact.cross + noise[0], exact.total + noise[1, :, 0],
        exact.outputs + counts * rng.normal(), np.maximum(exact.squares + counts * rng.normal(), 0),
        exact.size, second, cross, counts,
    )  # fmt: skip

"""Membership mappings as a regressor and as an autoencoder."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split
from sklearn.utils.estimator_checks import parametrize_with_checks

from permea.models import BayesianMembershipMapping, FuzzyModel, ShrunkWarning
from permea.models.membership import MembershipAutoencoder, MembershipMapping

SETTINGS = settings(deadline=None, derandomize=True, max_examples=15)
DISTURBANCES = ["precision", "gamma"]


@parametrize_with_checks(
    [
        MembershipMapping(),
        MembershipMapping(disturbance="gamma"),
        MembershipMapping(inducing="pivots", standardize=False, bandwidth="auto"),
        MembershipAutoencoder(n_components=2),
    ]
)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShrunkWarning)
        check(estimator)


# --- regression -----------------------------------------------------------------------------------


@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_diabetes_is_learned_without_tuning(disturbance):
    X, y = load_diabetes(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    model = MembershipMapping(disturbance=disturbance).fit(X, y)
    linear = LinearRegression().fit(X, y).score(X_test, y_test)
    assert model.score(X_test, y_test) > linear - 0.05


@given(
    seed=st.integers(0, 1000),
    shift=st.floats(-1e4, 1e4),
    unit=st.floats(1e-3, 1e6),
    disturbance=st.sampled_from(DISTURBANCES),
)
@SETTINGS
def test_predictions_move_and_scale_with_the_outputs(seed, shift, unit, disturbance):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(40, 3)), rng.normal(size=(40, 2))
    model = MembershipMapping(disturbance=disturbance)
    before = model.fit(X, Y).predict(X)
    after = model.fit(X, unit * (Y + shift)).predict(X)
    np.testing.assert_allclose(after / unit - shift, before, atol=1e-6 * (1 + abs(shift)))


@given(
    seed=st.integers(0, 1000),
    exponent=st.integers(-20, 20),
    disturbance=st.sampled_from(DISTURBANCES),
)
@SETTINGS
def test_units_of_the_inputs_do_not_matter(seed, exponent, disturbance):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(40, 3)), rng.normal(size=(40, 2))
    other = (X + 3.0) * np.array([1.0, 2.0**exponent, 1.0])
    model = MembershipMapping(disturbance=disturbance)
    before = model.fit(X, Y).predict(X)
    np.testing.assert_allclose(model.fit(other, Y).predict(other), before, atol=1e-6)


def test_attributes_reproduce_the_prediction():
    """(1.60) from the published attributes alone, and (1.58) in the units of the outputs."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 3)), rng.normal(size=(60, 2))
    model = MembershipMapping(standardize=False).fit(X, Y)
    difference = X[:, None, :] - model.inducing_points_[None]
    G = model.scale_ * np.exp(-0.5 * np.einsum("imk,k->im", difference**2, model.input_weights_))
    np.testing.assert_allclose(model.predict(X), G @ model.weights_, atol=1e-8)
    scaled = MembershipMapping().fit(X, 50 * Y)
    error = np.mean((50 * Y - scaled.predict(X)) ** 2)
    assert scaled.precision_ == pytest.approx(1 / error, rel=1e-4)


def test_far_predictions_tend_to_the_mean():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50) + 7
    model = MembershipMapping().fit(X, y)
    np.testing.assert_allclose(model.predict(np.array([[1e8, 0], [-1e300, 1e300]])), y.mean())


SINES = pytest.mark.parametrize(
    ("low", "high", "N"), [(0, 2 * np.pi, 400), (-3, 3, 400), (0, 10, 400), (0, 2 * np.pi, 1500)]
)


@SINES
@pytest.mark.parametrize("model", [MembershipMapping(), BayesianMembershipMapping(), FuzzyModel()])
def test_every_regressor_learns_a_sine_with_its_defaults(model, low, high, N):
    X = np.linspace(low, high, N)[:, None]
    y = np.sin(X[:, 0])
    assert np.abs(model.fit(X, y).predict(X) - y).mean() < 0.01
    between = X[:-1] + 0.5 * (high - low) / N
    assert np.abs(model.predict(between) - np.sin(between[:, 0])).mean() < 0.01


def test_the_widths_of_the_documents_are_a_value_of_the_parameter():
    X = np.linspace(0, 2 * np.pi, 400)[:, None]
    for kind in (MembershipMapping, BayesianMembershipMapping, FuzzyModel):
        model = kind(bandwidth=1).fit(X, np.sin(X[:, 0]))
        scales = model.system_.scales if kind is FuzzyModel else model.mapping_.scales
        np.testing.assert_allclose(scales, 1 / np.ptp(X))


@pytest.mark.parametrize("frequency", [1, 4, 9, 20])
def test_automatic_bandwidth_learns_curves(frequency):
    """One input, where the weights of (1.53) are far too wide."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(300, 1))
    y = np.sin(frequency * X[:, 0])
    noisy = y + 0.1 * rng.normal(size=300)
    assert MembershipMapping(bandwidth="auto").fit(X, noisy).score(X, y) > 0.97


def test_one_output_and_one_column_are_told_apart():
    X = np.linspace(0, 1, 20)[:, None]
    assert MembershipMapping().fit(X, X[:, 0]).predict(X).shape == (20,)
    assert MembershipMapping().fit(X, X).predict(X).shape == (20, 1)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("disturbance", DISTURBANCES)
class TestDegenerateInput:
    def fit(self, disturbance, X, Y, **parameters):
        model = MembershipMapping(disturbance=disturbance, **parameters).fit(X, Y)
        assert np.isfinite(model.predict(X)).all()
        assert np.isfinite(model.predict(1e30 * np.ones_like(X))).all()
        return model

    def test_constant_inputs_predict_the_mean(self, disturbance):
        Y = np.arange(12.0).reshape(6, 2)
        model = self.fit(disturbance, np.ones((6, 3)), Y)
        np.testing.assert_allclose(model.predict(np.ones((1, 3)))[0], Y.mean(axis=0))
        assert (model.input_weights_ == 0).all()

    def test_one_constant_input_changes_nothing(self, disturbance):
        rng = np.random.default_rng(0)
        X, Y = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
        padded = np.column_stack([X, np.full(30, 5.0)])
        with_it = self.fit(disturbance, padded, Y).predict(padded)
        np.testing.assert_allclose(with_it, self.fit(disturbance, X, Y).predict(X), atol=1e-8)

    def test_constant_outputs_are_predicted(self, disturbance):
        X = np.random.default_rng(0).normal(size=(20, 2))
        model = self.fit(disturbance, X, np.full((20, 1), 3.5))
        np.testing.assert_allclose(model.predict(X), 3.5)

    @pytest.mark.parametrize("N", [1, 2, 3])
    def test_very_few_rows(self, disturbance, N):
        X = np.arange(float(N))[:, None]
        model = self.fit(disturbance, X, X)
        assert len(model.inducing_points_) <= N

    def test_duplicate_rows(self, disturbance):
        X = np.repeat(np.arange(4.0)[:, None], 10, axis=0)
        model = self.fit(disturbance, X, X, max_inducing=1.0)
        assert len(model.inducing_points_) <= 4

    def test_more_inducing_points_than_rows_shrink_with_a_warning(self, disturbance):
        X = np.random.default_rng(0).normal(size=(5, 2))
        with pytest.warns(ShrunkWarning, match="max_inducing=9 is more than the 5"):
            self.fit(disturbance, X, X, max_inducing=9)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_numbers_that_are_none(self, disturbance, bad):
        X = np.random.default_rng(0).normal(size=(5, 2))
        X[2, 1] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            MembershipMapping(disturbance=disturbance).fit(X, X)
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            MembershipMapping(disturbance=disturbance).fit(np.nan_to_num(X, posinf=0), X)


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_inducing": 0},
        {"max_inducing": 1.5},
        {"nu": 2.0},
        {"bandwidth": "narrow"},
        {"kappa": 0.0},
        {"disturbance": "laplace"},
        {"inducing": "random"},
        {"input_variance": -1.0},
        {"kernel_variance": 0.0},
        {"gamma_priors": (1, 1)},
        {"gamma_priors": (0.5, 1, 1, 1, 1, 1)},
    ],
)
def test_impossible_parameters_are_refused(parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        MembershipMapping(**parameters).fit(np.eye(3), np.eye(3))


def test_unfitted_models_say_so():
    with pytest.raises(NotFittedError):
        MembershipMapping().predict(np.eye(2))
    with pytest.raises(NotFittedError):
        MembershipAutoencoder().distance(np.eye(2))


# --- layers ---------------------------------------------------------------------------------------


def zeros():
    digits = load_digits()
    return digits.data[digits.target == 0] / 16


def chain(model, Y, depth):
    layers, image = [model.fit(Y)], Y
    for _ in range(depth - 1):
        image = layers[-1].reconstruct(image)
        layers.append(layers[-1].next_layer(Y, image))
    return layers


def test_layers_lose_a_dimension_and_never_gain_inducing_points():
    """001 Algorithm 2, steps 2 and 5, also beyond the last dimension."""
    layers = chain(MembershipAutoencoder(n_components=4), zeros(), 7)
    assert [layer.n_components_ for layer in layers] == [4, 3, 2, 1, 1, 1, 1]
    counts = [layer.n_inducing_ for layer in layers]
    assert counts == sorted(counts, reverse=True)


def test_gamma_layers_keep_m_and_raise_nu():
    """000 Algorithm 2: ν is 2.1, then infinite, and M is the same in every layer."""
    layers = chain(MembershipAutoencoder(n_components=6, disturbance="gamma"), zeros(), 3)
    assert [layer.nu for layer in layers] == [2.1, np.inf, np.inf]
    assert layers[0].mapping_.smoothing > 0 == layers[1].mapping_.smoothing
    assert len({layer.n_inducing_ for layer in layers}) == 1


def test_a_layer_reads_the_image_of_the_one_before():
    Y = zeros()
    first, second = chain(MembershipAutoencoder(n_components=5), Y, 2)
    same = MembershipAutoencoder(n_components=4, max_inducing=first.n_inducing_).fit(Y)
    image = first.reconstruct(Y)
    assert not np.allclose(second.reconstruct(image), same.reconstruct(image))


def test_deeper_images_are_more_abstract():
    """Variance over the training rows falls from layer to layer."""
    Y = zeros()
    image, spread = Y, []
    for layer in chain(MembershipAutoencoder(n_components=10), Y, 8):
        image = layer.reconstruct(image)
        spread.append(image.var(axis=0).sum())
    assert all(later < earlier for earlier, later in pairwise(spread))


def test_constant_features_keep_their_value():
    Y = np.column_stack([zeros(), np.full(len(zeros()), 0.25)])
    image = (
        MembershipAutoencoder().fit(Y).reconstruct(np.random.default_rng(0).normal(size=(3, 65)))
    )
    assert (image[:, -1] == 0.25).all()


def test_seed_variant_is_zero_far_away():
    Y = zeros() + 1
    far = 1e6 * np.ones((1, 64))
    active = np.ptp(Y, axis=0) > 0
    plain = MembershipAutoencoder(standardize=False).fit(Y).reconstruct(far)
    assert not plain[0, active].any()
    np.testing.assert_allclose(MembershipAutoencoder().fit(Y).reconstruct(far)[0], Y.mean(axis=0))

"""Takagi-Sugeno models: inference, layers, membership, rules and explanations."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import gamma as gamma_distribution
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split
from sklearn.utils.estimator_checks import parametrize_with_checks

from permea.models import ShrunkWarning
from permea.models.encoding import leading_directions
from permea.models.fuzzy import (
    ConsequentInference,
    FuzzyAutoencoder,
    FuzzyModel,
    rule_degrees,
)

SETTINGS = settings(deadline=None, derandomize=True, max_examples=25)
PRIOR = 1e-6


@parametrize_with_checks([FuzzyModel(), FuzzyAutoencoder(n_components=2)])
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShrunkWarning)
        check(estimator)


def layer(seed, N=25, M=6, p=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1]])[:, :p] + 0.2 * rng.normal(size=(N, p))
    return rule_degrees(X, X[:M]), Y


# --- inference ------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000))
@SETTINGS
def test_degrees_are_a_partition_of_one(seed):
    rng = np.random.default_rng(seed)
    degrees = rule_degrees(rng.normal(size=(20, 3)) * 10.0 ** rng.integers(-3, 9), np.eye(3))
    assert (degrees >= 0).all()
    np.testing.assert_allclose(degrees.sum(axis=1), 1)


def test_degrees_by_definition():
    X, a = np.array([[0.2, -0.4]]), np.array([[0.0, 0.0], [1.0, 0.5]])
    plain = np.exp(-0.5 * ((X[:, None] - a) ** 2).sum(axis=2))
    np.testing.assert_allclose(rule_degrees(X, a), plain / plain.sum())


@given(seed=st.integers(0, 10_000), N=st.integers(2, 30), M=st.integers(1, 8))
@SETTINGS
def test_free_energy_never_falls(seed, N, M):
    K, Y = layer(seed, N, min(M, N))
    energies = ConsequentInference(K, Y).infer(tol=1e-12, max_iter=200).free_energy
    steps = np.diff(energies)
    assert (steps >= -1e-9 * np.abs(energies[:-1])).all()


def test_free_energy_is_the_average_it_is_defined_as():
    """F = ⟨log p(Y, α, β) − log q(α, β)⟩, by Monte Carlo at alpha = 1e-6."""
    K, Y = layer(1, N=12, M=3, p=1)
    inference = ConsequentInference(K, Y)
    beta = inference.infer(1e-10, 500).precision
    rate = inference.rate(beta)
    Lambda = PRIOR * np.eye(3) + beta * K.T @ K
    posterior = multivariate_normal(
        np.linalg.solve(Lambda, beta * K.T @ Y[:, 0]), np.linalg.inv(Lambda)
    )
    precision = gamma_distribution(inference.shape, scale=1 / rate)
    rng = np.random.default_rng(0)
    alphas, betas = posterior.rvs(40_000, rng), precision.rvs(40_000, rng)
    residual = Y[:, 0] - alphas @ K.T
    log_joint = 0.5 * 12 * np.log(betas / (2 * np.pi)) - 0.5 * betas * (residual**2).sum(axis=1)
    log_joint += multivariate_normal(np.zeros(3), np.eye(3) / PRIOR).logpdf(alphas)
    log_joint += gamma_distribution(PRIOR, scale=1 / PRIOR).logpdf(betas)
    draws = log_joint - posterior.logpdf(alphas) - precision.logpdf(betas)
    error = draws.std(ddof=1) / np.sqrt(len(draws))
    z = abs(draws.mean() - inference.free_energy(beta, rate)) / error
    assert z < norm.isf(0.5e-6)
    worse = inference.free_energy(beta, 2 * rate)  # negative control: another q has another F
    assert abs(draws.mean() - worse) / error > norm.isf(0.5e-6)


@given(seed=st.integers(0, 10_000))
@SETTINGS
def test_posterior_solves_its_equations(seed):
    """(2.150) to (2.154), computed plainly, reproduce themselves at convergence."""
    K, Y = layer(seed)
    result = ConsequentInference(K, Y).infer(tol=1e-12, max_iter=5000)
    beta = result.precision
    Lambda = PRIOR * np.eye(K.shape[1]) + beta * K.T @ K
    means = np.linalg.solve(Lambda, beta * K.T @ Y)
    np.testing.assert_allclose(K @ result.consequents, K @ means, atol=1e-6)
    trace = Y.shape[1] * np.trace(np.linalg.solve(Lambda, K.T @ K))
    b = PRIOR + 0.5 * (np.sum((Y - K @ means) ** 2) + trace)
    assert beta == pytest.approx((PRIOR + 0.5 * Y.size) / b, rel=1e-6)


def test_encoding_is_uncentred():
    Y = np.random.default_rng(0).normal(size=(50, 4)) + np.array([9.0, 0, 0, 0])
    _, V = leading_directions(Y, 2)
    values, vectors = np.linalg.eigh(Y.T @ Y / 50)
    np.testing.assert_allclose(np.abs(V.T @ vectors[:, ::-1][:, :2]), np.eye(2), atol=1e-8)
    _, wide = leading_directions(Y[:3], 3)
    np.testing.assert_allclose(wide.T @ wide, np.eye(3), atol=1e-10)
    assert values[-1] > 50


# --- layers ---------------------------------------------------------------------------------------


def curve(N=200):
    t = np.linspace(0, 3, N)
    return np.column_stack([np.cos(t), np.sin(t), t, t**2])


def test_layers_are_added_while_the_precision_grows():
    kept = set()
    for n_rules in (2, 3, 5, 10):
        model = FuzzyAutoencoder(n_components=1, n_rules=n_rules).fit(curve())
        precisions = model.system_.precisions
        assert all(np.diff(precisions) > 0)
        kept.add(model.n_layers_)
        system, image = model.system_, model.reconstruct(curve())
        K = rule_degrees(image @ system.encoder * system.scales, system.centres)
        another = ConsequentInference(K, curve()).infer(1e-6, 1000).precision
        assert another <= precisions[-1] or model.n_layers_ == model.max_layers
    assert max(kept) > 1  # a case where depth helps, so that the rule is exercised


def test_images_walk_through_all_layers():
    model = FuzzyAutoencoder(n_components=1, n_rules=3).fit(curve())
    system, Y = model.system_, curve()[:5]
    for consequents in system.layers:
        Y = rule_degrees(Y @ system.encoder * system.scales, system.centres) @ consequents
    np.testing.assert_allclose(model.reconstruct(curve()[:5]), Y, atol=1e-9)


def deep_model_002(X, Y, centres, most=10, updates=3000):
    """002 Algorithm 1, steps 3 to 17, line by line, for given rule centres a^m."""

    def degrees(x):  # (2.110)
        exponents = -0.5 * ((x[:, None] - centres) ** 2 @ W)
        K = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        return K / K.sum(axis=1, keepdims=True)

    W = 1 / np.ptp(X, axis=0) ** 2
    _, vectors = np.linalg.eigh(Y.T @ Y / len(Y))
    V = vectors[:, ::-1][:, : X.shape[1]]  # (2.148)
    V = V * np.sign([column[np.abs(column).argmax()] for column in V.T])
    x, kept, best = X, [], 0.0
    while len(kept) < most:
        K, beta = degrees(x), 1.0
        for _ in range(updates):
            Lambda = PRIOR * np.eye(len(centres)) + beta * K.T @ K  # (2.150)
            m = np.linalg.solve(Lambda, beta * K.T @ Y)  # (2.151)
            a = PRIOR + 0.5 * Y.size  # (2.152)
            trace = Y.shape[1] * np.trace(np.linalg.solve(Lambda, K.T @ K))
            b = PRIOR + 0.5 * (np.sum((Y - K @ m) ** 2) + trace)  # (2.153)
            beta = a / b  # (2.154)
        if beta <= best:
            break
        kept, best = [*kept, m], beta
        x = K @ m @ V  # (2.118)

    def predict(x):  # (2.116)
        for m in kept:
            y = degrees(x) @ m
            x = y @ V
        return y

    return len(kept), predict


@pytest.mark.parametrize("clustering", ["scaled", "inputs"])
@pytest.mark.parametrize("seed", range(6))
def test_deep_model_is_002_algorithm_1(seed, clustering):
    """Inputs far from zero: what layers after the first read is compared with the same centres."""
    rng = np.random.default_rng(seed)
    X = rng.uniform([3, -5], [4, -4], size=(60, 2))
    t = X.sum(axis=1)
    Y = np.column_stack([X, np.sin(3 * t), t**2]) + 0.05 * rng.normal(size=(60, 4))
    model = FuzzyModel(n_rules=4, clustering=clustering, bandwidth=1, tol=1e-12, max_iter=3000).fit(
        X, Y
    )
    centres = np.stack([rule.centre for rule in model.rules()])
    n_layers, predict = deep_model_002(X, Y, centres)
    assert model.n_layers_ == n_layers
    np.testing.assert_allclose(model.predict(X[:20]), predict(X[:20]), atol=1e-6)


def test_some_regressions_keep_several_layers():
    kept = [
        FuzzyModel(n_rules=n_rules, bandwidth=1).fit(curve()[:, :1] + 7, curve() + 7).n_layers_
        for n_rules in (2, 3, 5, 10)
    ]
    assert max(kept) > 1


def test_rules_of_inputs_as_they_are_stand_at_means_of_their_rows():
    """002 Algorithm 1, step 2: a fixed point of k-means on the inputs, not on scaled ones."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 2)) * [1, 50] + 4
    model = FuzzyModel(n_rules=6, clustering="inputs").fit(X, X[:, 0])
    a = np.stack([rule.centre for rule in model.rules()])
    nearest = ((X[:, None] - a) ** 2).sum(axis=2).argmin(axis=1)
    means = np.stack([X[nearest == m].mean(axis=0) for m in range(6)])
    np.testing.assert_allclose(a, means, atol=1e-9)
    scaled = np.stack([rule.centre for rule in FuzzyModel(n_rules=6).fit(X, X[:, 0]).rules()])
    assert np.abs(scaled - a).max() > 0.1


def test_model_with_fewer_outputs_than_inputs_has_one_layer():
    X, y = load_diabetes(return_X_y=True)
    assert FuzzyModel(n_rules=10).fit(X, y).n_layers_ == 1


def test_diabetes_is_learned():
    X, X_test, y, y_test = train_test_split(*load_diabetes(return_X_y=True), random_state=0)
    assert FuzzyModel(n_rules=15).fit(X, y).score(X_test, y_test) > 0.3


# --- membership, rules, explanations --------------------------------------------------------------


def threes():
    digits = load_digits()
    return digits.data[digits.target == 3] / 16


def test_membership_is_equation_2_162():
    Y = threes()
    model = FuzzyAutoencoder().fit(Y)
    expected = np.exp(-np.sum((Y - model.reconstruct(Y)) ** 2, axis=1) / (2 * 64))
    np.testing.assert_allclose(model.membership(Y), expected)
    assert model.membership(1e200 * np.ones((1, 64)))[0] == 0


def test_nearest_image_and_highest_membership_name_the_same_class():
    """(2.166) picks the largest membership, the library the smallest distance."""
    digits = load_digits()
    X, y = digits.data / 16, digits.target
    models = [FuzzyAutoencoder(n_components=10).fit(X[:600][y[:600] == c]) for c in range(4)]
    queries = X[600:][y[600:] < 4]
    memberships = np.stack([model.membership(queries) for model in models])
    distances = np.stack([model.distance(queries) for model in models])
    assert np.array_equal(memberships.argmax(axis=0), distances.argmin(axis=0))


def test_rules_tell_centres_consequents_and_regions():
    Y = np.column_stack([threes(), np.full(len(threes()), 0.5)])
    model = FuzzyAutoencoder(n_rules=12).fit(Y)
    rules = model.rules()
    assert [rule.index for rule in rules] == list(range(12))
    assert sum(rule.members for rule in rules) == len(Y)
    for rule in rules:
        assert rule.centre.shape == rule.consequent.shape == (65,)
        assert rule.centre[-1] == 0.5
    system = model.system_
    codes = np.stack([rule.centre[model.active_] for rule in rules]) @ system.encoder
    np.testing.assert_allclose(codes * system.scales, system.centres, atol=1e-8)
    degrees = system.degrees(codes)
    mixture = degrees @ np.stack([rule.consequent for rule in rules])
    if model.n_layers_ == 1:
        np.testing.assert_allclose(np.stack([r.output for r in rules])[:, :-1], mixture[:, :-1])


def test_rules_of_a_query_come_most_fulfilled_first():
    Y = threes()
    model = FuzzyAutoencoder(n_rules=12).fit(Y)
    degrees = [rule.fulfilment for rule in model.rules(Y[4])]
    assert degrees == sorted(degrees, reverse=True)
    assert sum(degrees) == pytest.approx(1)
    centre = model.rules()[7].centre
    assert model.rules(centre)[0].index == 7


def test_explanation_can_be_read():
    Y = threes()
    model = FuzzyAutoencoder(n_rules=12).fit(Y)
    names = [f"pixel {k // 8},{k % 8}" for k in range(64)]
    explanation = model.explain(Y[0], n_rules=3, feature_names=names)
    text = str(explanation)
    assert len(explanation.rules) == 3
    assert 0 < explanation.covered <= 1
    assert text.count("\n") == 3
    assert "pixel" in text
    assert "training rows" in text
    assert explanation.distance == pytest.approx(model.distance(Y[:1])[0])


def test_regression_rules_name_their_answer():
    X, y = load_diabetes(return_X_y=True)
    model = FuzzyModel(n_rules=5).fit(X, y)
    text = str(model.rules(X[0], feature_names=load_diabetes().feature_names)[0])
    assert "then" in text
    assert "fulfilled to" in text
    np.testing.assert_allclose(
        model.predict(np.stack([rule.centre for rule in model.rules()])),
        [rule.output[0] for rule in model.rules()],
    )


def test_explaining_several_points_at_once_is_refused():
    model = FuzzyAutoencoder().fit(threes())
    with pytest.raises(ValueError, match="one by one"):
        model.explain(threes()[:2])


def test_unfitted_and_wrong_input():
    with pytest.raises(NotFittedError):
        FuzzyAutoencoder().rules()
    model = FuzzyAutoencoder(n_components=2).fit(threes())
    with pytest.raises(ValueError, match="features"):
        model.distance(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="NaN"):
        FuzzyAutoencoder().fit(np.full((3, 3), np.nan))


def test_more_rules_than_rows_shrink_with_a_warning():
    with pytest.warns(ShrunkWarning, match="n_rules=50 is more than the 6"):
        FuzzyAutoencoder(n_components=2, n_rules=50).fit(threes()[:6])

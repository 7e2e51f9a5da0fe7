"""The Bayesian membership mapping: what 003 writes, what an estimator owes, what error bars say."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma, gammaln
from scipy.stats import binom, kstest
from sklearn.utils.estimator_checks import parametrize_with_checks

from permea import load, save
from permea.models.bayes import BayesianMembershipMapping, Belief, Statistics, infer

NOISES = ("shared", "per_output", "full")


def problem(seed=0, n_rows=150, n=3, q=2):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_rows, n))
    T = np.column_stack([np.sin(X[:, k % n]) + X[:, 0] for k in range(q)])
    return X, T + random.normal(0, 0.3, T.shape)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [BayesianMembershipMapping(noise=noise) for noise in NOISES]
    + [BayesianMembershipMapping(trend="linear")]
)
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


def dense_inference(R, T, alpha, share, prior, gamma, n_updates):
    """Updates (74) to (77), or (99) to (102), as they are printed, with inverses and traces."""
    Lambda0, a0, b0 = prior
    N, q = T.shape
    gram, cross = share * R.T @ R, share * R.T @ T
    energies = []
    for _ in range(n_updates):
        Lambda = Lambda0 + gamma * gram
        covariance = np.linalg.inv(Lambda)
        m = covariance @ (Lambda0 @ alpha + gamma * cross)
        a = a0 + 0.5 * q * N * share
        misfit = share * np.sum((T - R @ m) ** 2) + q * np.trace(covariance @ gram)
        b = b0 + 0.5 * misfit
        moved = np.sum((m - alpha) * (Lambda0 @ (m - alpha)))
        M = len(m)
        log_ratio = np.linalg.slogdet(Lambda0)[1] - np.linalg.slogdet(Lambda)[1]
        kl_weights = 0.5 * (q * (np.trace(Lambda0 @ covariance) - M - log_ratio) + moved)
        kl_gamma = (
            a0 * np.log(b / b0) - gammaln(a) + gammaln(a0) + (a - a0) * digamma(a)
            - (b - b0) * a / b
        )  # fmt: skip
        fit = 0.5 * q * N * share * (digamma(a) - np.log(b) - np.log(2 * np.pi))
        energies.append(fit - 0.5 * a / b * misfit - kl_weights - kl_gamma)
        gamma = a / b
    return Lambda, m, a, b, energies


def test_inference_in_the_eigenbasis_is_that_of_the_document():
    X, T = problem(q=3)
    model = BayesianMembershipMapping(noise="shared", standardize=False, tol=1e-30, max_iter=25)
    model.fit(X, T)
    R = model.design(X)
    M = R.shape[1]
    prior = (1e-3 * np.eye(M), 1e-3, 1e-3)
    alpha = model.mapping_.coefficients / model.mapping_.scale
    Lambda, m, a, b, energies = dense_inference(R, T, alpha, 1.0, prior, 1.0, 25)
    np.testing.assert_allclose(R @ model.weights_, R @ m, atol=1e-6)
    np.testing.assert_allclose(model.belief_.shape, a)
    np.testing.assert_allclose(model.belief_.rate, b, rtol=1e-6)
    np.testing.assert_allclose(
        R @ model.weight_covariance_ @ R.T, R @ np.linalg.solve(Lambda, R.T), atol=1e-7
    )
    done = len(model.free_energy_)  # it ends early where a step changes nothing, to the last bit
    assert done > 5
    np.testing.assert_allclose(model.free_energy_, energies[:done], rtol=1e-6)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    n_rows=st.integers(2, 60),
    n=st.integers(1, 6),
    q=st.integers(1, 8),
    noise=st.sampled_from(NOISES[:2]),
    trend=st.sampled_from(["none", "linear"]),
)
def test_free_energy_never_falls(seed, n_rows, n, q, noise, trend):
    X, T = problem(seed, n_rows, n, q)
    energies = BayesianMembershipMapping(noise=noise, trend=trend).fit(X, T).free_energy_
    assert np.all(np.diff(energies) >= -1e-9 * np.abs(energies[:-1]))


@settings(deadline=None, derandomize=True, max_examples=40)
@given(seed=st.integers(0, 10**6), share=st.floats(1e-3, 1.0))
def test_any_update_of_any_belief_raises_the_bound(seed, share):
    random = np.random.default_rng(seed)
    R, T = random.normal(size=(30, 4)), random.normal(size=(30, 2))
    values, V = np.linalg.eigh(R.T @ R)
    rows = Statistics(values, V.T @ R.T @ T, float(np.sum(T**2)), 30)
    prior = Belief(random.uniform(0.01, 5, 4), random.normal(size=(4, 2)), 0.5, 0.7)
    _, energies = infer(rows, prior, share=share, noise_precision=random.uniform(0.01, 50))
    assert np.all(np.diff(energies) >= -1e-10 * np.abs(energies[:-1]))


@pytest.mark.parametrize("noise", NOISES)
def test_error_bars_hold_on_new_rows(noise):
    X, T = problem(1, 3000)
    model = BayesianMembershipMapping(noise=noise).fit(X[:1000], T[:1000])
    mean, std = model.predict(X[1000:], return_std=True)
    inside = np.sum(np.abs(T[1000:, 0] - mean[:, 0]) <= std[:, 0])
    low, high = binom.interval(1 - 1e-6, 2000, 0.6827)
    assert low <= inside <= high
    assert kstest((T[1000:, 0] - mean[:, 0]) / std[:, 0], "norm").pvalue > 1e-6
    too_sure = np.sum(np.abs(T[1000:, 0] - mean[:, 0]) <= std[:, 0] / 1.3)
    assert not low <= too_sure <= high  # the test would notice


def test_each_output_has_its_own_error_bar():
    random = np.random.default_rng(2)
    X = random.normal(size=(500, 2))
    T = X + random.normal(0, [0.1, 2.0], (500, 2))
    own = BayesianMembershipMapping().fit(X, T).noise_std_
    np.testing.assert_allclose(own, [0.1, 2.0], rtol=0.25)
    shared = BayesianMembershipMapping(noise="shared").fit(X, T).noise_std_
    assert shared[0] == shared[1]


@settings(deadline=None, derandomize=True, max_examples=15)
@given(st.integers(0, 1000), st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
def test_units_of_the_outputs_do_not_matter(seed, unit, offset):
    X, T = problem(seed, 60)
    units = np.array([unit, 1.0])
    mean, std = BayesianMembershipMapping().fit(X, T).predict(X, return_std=True)
    other = BayesianMembershipMapping().fit(X, T * units + offset)
    mean2, std2 = other.predict(X, return_std=True)
    np.testing.assert_allclose((mean2 - offset) / units, mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(std2 / units, std, rtol=1e-5)


def test_error_bars_grow_far_from_the_rows():
    X, T = problem(3)
    far = np.full((1, 3), 1e6)
    wide = BayesianMembershipMapping().fit(X, T).predict(far, return_std=True)[1][0]
    plain = BayesianMembershipMapping(far="plain").fit(X, T).predict(far, return_std=True)[1][0]
    np.testing.assert_allclose(wide, T.std(axis=0), rtol=0.1)
    assert np.all(plain < 0.7 * wide)


def test_a_trend_finds_what_hides_in_small_directions():
    random = np.random.default_rng(4)
    t = random.normal(size=(400, 1))
    nuisance = 1e4 * random.normal(size=(400, 1))
    X = np.hstack([nuisance + t, nuisance - t])
    with_trend = BayesianMembershipMapping(trend="linear").fit(X, t).score(X, t)
    without = BayesianMembershipMapping().fit(X, t).score(X, t)
    assert with_trend > 0.999
    assert without < 0.5


def test_more_outputs_than_rows():
    X, T = problem(5, n_rows=20, q=50)
    assert BayesianMembershipMapping().fit(X, T).predict(X).shape == (20, 50)
    with pytest.raises(ValueError, match="per_output"):
        BayesianMembershipMapping(noise="full").fit(X, np.random.default_rng(0).random((20, 50)))


@pytest.mark.parametrize("noise", NOISES)
def test_outputs_that_never_vary_come_back(noise):
    X, T = problem(6)
    T[:, 1] = 7.0
    mean, std = BayesianMembershipMapping(noise=noise).fit(X, T).predict(X, return_std=True)
    np.testing.assert_allclose(mean[:, 1], 7.0, atol=0.2)
    assert np.isfinite(std).all()
    alone = BayesianMembershipMapping(noise=noise).fit(X, np.full(len(X), 3.0))
    np.testing.assert_allclose(alone.predict(X), 3.0, atol=1e-6)


def test_no_array_grows_with_outputs_times_squared_inducing_points():
    random = np.random.default_rng(7)
    X, T = random.normal(size=(400, 30)), random.normal(size=(400, 500))
    tracemalloc.start()
    model = BayesianMembershipMapping(noise="shared", max_inducing=200).fit(X, T)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    M = len(model.inducing_points_)
    assert M > 50
    assert peak < 0.2 * 500 * M * M * 8


def test_it_is_saved_only_when_told_to_and_comes_back_equal(tmp_path):
    X, T = problem(8)
    model = BayesianMembershipMapping().fit(X, T)
    with pytest.raises(ValueError, match="include"):
        save(model, tmp_path / "model.permea")
    again = load(save(model, tmp_path / "model.permea", private_rows="include"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_bandwidth_can_be_searched_for():
    random = np.random.default_rng(9)
    X = random.uniform(-1, 1, (200, 1))
    t = np.sin(9 * X[:, 0]) + random.normal(0, 0.05, 200)
    found = BayesianMembershipMapping().fit(X, t).score(X, t)
    assert found > 0.95 > BayesianMembershipMapping(bandwidth=1).fit(X, t).score(X, t)

"""The laws of noise: distribution functions, inverses, moments, and the gain of 002 (2.102)."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_checks import has_mean
from scipy import integrate, stats

from permea.privacy import (
    GaussianNoise,
    OptimalNoise,
    Privacy,
    StaircaseNoise,
    noise_gain,
    release,
)
from permea.privacy.noise import gaussian_delta, gaussian_mu, grid_sigma, grid_slack
from permea.privacy.sampling import SeededBits

LAWS = [
    OptimalNoise(1.3, 0.2, 2.0),
    OptimalNoise(0.7, 0.0, 1.0),
    GaussianNoise(0.5, 1e-3, 2.0),
    GaussianNoise(3.0, 1e-3, 2.0),
    StaircaseNoise(1.5, bound=2.0),
    StaircaseNoise(6.0, bound=0.5),
]
epsilons = st.floats(0.05, 8.0)


@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_moments_agree_with_the_cdf(noise):
    reach = 60 * noise.expected_magnitude()
    v = np.linspace(0, reach, 2_000_001)
    tail = 2 * (1 - noise.cdf(v))  # P(|v| > x), for x >= 0
    assert integrate.trapezoid(tail, v) == pytest.approx(noise.expected_magnitude(), rel=1e-5)
    assert integrate.trapezoid(2 * v * tail, v) == pytest.approx(noise.variance(), rel=1e-5)


@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_cdf_is_symmetric_and_inverse_inverts(noise):
    t = np.linspace(1e-6, 1 - 1e-6, 10_001)
    v = noise.inverse_cdf(t)
    moved = np.abs(v) > 1e-9
    np.testing.assert_allclose(noise.cdf(v[moved]), t[moved], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(noise.cdf(-v[moved]), 1 - t[moved], rtol=1e-9, atol=1e-12)
    assert np.all(np.diff(v) >= 0)


@settings(deadline=None, derandomize=True)
@given(epsilon=epsilons, delta=st.floats(0, 0.9), bound=st.floats(0.01, 100))
def test_point_mass_of_the_optimal_law(epsilon, delta, bound):
    noise = OptimalNoise(epsilon, delta, bound)
    jump = noise.cdf(0.0) - noise.cdf(-1e-300)
    assert jump == pytest.approx(delta, abs=1e-12)
    inside = np.linspace((1 - delta) / 2, (1 + delta) / 2, 7)[1:-1]
    assert np.all(np.abs(noise.inverse_cdf(inside)) <= 1e-12 * bound / epsilon)
    assert noise.expected_magnitude() == pytest.approx((1 - delta) * bound / epsilon)


@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_randomise_adds_noise_of_the_stated_size(noise):
    Y = np.linspace(-3, 3, 200_000).reshape(-1, 4)
    added = noise.randomise(Y, random_state=3) - Y
    magnitude = noise.expected_magnitude()
    assert has_mean(np.abs(added).ravel(), magnitude, noise.variance() - magnitude**2)
    assert has_mean(added.ravel(), 0.0, noise.variance())
    control = 0.5 * added.ravel()  # half the scale is caught
    assert not has_mean(np.abs(control), magnitude, noise.variance() - magnitude**2)


@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_float_sampler_has_the_same_law(noise):
    sample = noise.sample_floats(100_000, SeededBits(4))
    magnitude = noise.expected_magnitude()
    assert has_mean(np.abs(sample), magnitude, noise.variance() - magnitude**2)


def test_randomise_keeps_shape_and_float_type():
    out = OptimalNoise(1.0).randomise(np.zeros((3, 2), dtype=np.float32))
    assert out.shape == (3, 2)
    assert out.dtype == np.float32
    assert OptimalNoise(1.0).randomise([1, 2]).dtype == np.float64
    with pytest.raises(ValueError, match="NaN"):
        OptimalNoise(1.0).randomise([np.nan])


@pytest.mark.parametrize("delta", [1e-6, 1e-8, 1e-10])
def test_measured_gain_over_the_classical_gaussian(delta):
    """002 (2.102): more than four times less noise at delta <= 1e-6."""
    n = 300_000
    zeros = np.zeros(n)
    optimal = OptimalNoise(0.5, delta)
    classical = GaussianNoise(0.5, delta, calibration="classical")
    means, errors = [], []
    for seed, noise in enumerate((classical, optimal)):
        magnitude = np.abs(noise.randomise(zeros, random_state=seed))
        means.append(magnitude.mean())
        errors.append(magnitude.std() / math.sqrt(n) / magnitude.mean())
    measured, expected = means[0] / means[1], float(noise_gain(delta))
    margin = stats.norm.isf(5e-7) * math.hypot(*errors)
    assert abs(measured / expected - 1) <= margin
    assert abs(2 * measured / expected - 1) > margin  # control: optimal noise at half its scale
    assert measured > 4
    assert expected == pytest.approx(
        classical.expected_magnitude() / optimal.expected_magnitude(), rel=1e-12
    )


def test_gain_refuses_what_is_no_delta():
    with pytest.raises(ValueError, match="between 0 and 1"):
        noise_gain([0.0, 0.5])


@settings(deadline=None, derandomize=True, max_examples=50)
@given(epsilon=st.floats(0.01, 20), delta=st.floats(1e-12, 0.3))
def test_analytic_gaussian_is_calibrated(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(mu, epsilon) <= delta
    assert gaussian_delta(mu * (1 + 1e-6), epsilon) > delta


@pytest.mark.parametrize(("mu", "epsilon"), [(0.5, 0.2), (1.0, 1.0), (3.0, 4.0)])
def test_gaussian_delta_is_the_integral_it_stands_for(mu, epsilon):
    def excess(x):
        return max(0.0, stats.norm.pdf(x - mu) - math.exp(epsilon) * stats.norm.pdf(x))

    crossing = epsilon / mu + mu / 2
    value, _ = integrate.quad(excess, crossing, crossing + 40, limit=200, epsabs=1e-14)
    assert gaussian_delta(mu, epsilon) == pytest.approx(value, rel=1e-8)


def test_classical_gaussian_is_refused_where_it_is_not_proven():
    with pytest.raises(ValueError, match="analytic"):
        GaussianNoise(1.0, 1e-5, calibration="classical")
    assert GaussianNoise(2.0, 1e-5).sigma == GaussianNoise(2.0, 1e-5, calibration="analytic").sigma
    classical = math.sqrt(2 * math.log(1.25e5)) / 0.5
    assert GaussianNoise(0.5, 1e-5).sigma == pytest.approx(classical)
    # At epsilon = 20 the classical formula would promise more than it keeps.
    sigma = math.sqrt(2 * math.log(1.25e5)) / 20
    assert gaussian_delta(1 / sigma, 20.0) > 1e-5


def test_classical_gaussian_can_be_asked_for():
    """The noise of a release is that of 002 Result 6, and its cost is that of the real σ."""
    promise = Privacy(epsilon=0.5, delta=1e-5, domain=(0, 2), mechanism="classical-gaussian")
    sigma = 2 * math.sqrt(2 * math.log(1.25e5)) / 0.5
    out = release(np.ones((400, 100)), promise, random_state=0)
    assert out.noise_variance == pytest.approx(np.full(100, sigma**2))
    n, margin = out.data.size, stats.norm.isf(5e-7)
    spread = float(np.mean((out.data - 1) ** 2)) / sigma**2
    assert abs(spread - 1) <= margin * math.sqrt(2 / n)
    assert abs(spread - (7.032 / 9.69) ** 2) > margin * math.sqrt(2 / n)  # the analytic σ
    assert "classical" in str(out.certificate)
    analytic = replace(promise, mechanism="gaussian")
    wider, narrower = (release(np.ones((2, 9)), p).certificate for p in (promise, analytic))
    assert wider.record_epsilon < narrower.record_epsilon


@pytest.mark.parametrize(("sigma", "shift", "epsilon"), [(30.0, 25, 0.7), (200.0, 300, 1.0)])
def test_grid_slack_bounds_the_discrete_gaussian(sigma, shift, epsilon):
    """The exact profile of the discrete Gaussian lies below the bound of the proof note."""
    x = np.arange(-int(40 * sigma), int(40 * sigma) + shift + 1)
    p = np.exp(-(x.astype(float) ** 2) / (2 * sigma**2))
    q = np.exp(-((x - shift).astype(float) ** 2) / (2 * sigma**2))
    exact = np.maximum(p - math.exp(epsilon) * q, 0).sum() / p.sum()
    mu = shift / sigma
    eta, tau = grid_slack(sigma, mu)
    assert exact <= math.exp(eta) * gaussian_delta(mu, epsilon - 2 * eta) + tau
    assert gaussian_delta(mu, epsilon + 2 * eta) * math.exp(-eta) - tau <= exact


def test_grid_sigma_costs_next_to_nothing_and_coarse_grids_are_refused():
    continuous = 1 / gaussian_mu(1.0, 1e-5)
    for coordinates in (1, 784):
        sigma = grid_sigma(1.0, 1e-5, 2.0**30, coordinates) / 2**30
        assert continuous <= sigma <= continuous * (1 + 1e-4)
    with pytest.raises(ValueError, match="resolution"):
        grid_sigma(1.0, 1e-5, 16.0, 784)


def test_staircase_beats_laplace_and_keeps_epsilon():
    for epsilon in (0.1, 1.0, 4.0, 10.0):
        stairs = StaircaseNoise(epsilon)
        assert stairs.expected_magnitude() < OptimalNoise(epsilon).expected_magnitude()
        v = np.linspace(-6, 6, 4001)
        h = 1e-4
        density = (stairs.cdf(v + h) - stairs.cdf(v - h)) / (2 * h)
        moved = (stairs.cdf(v + 1 + h) - stairs.cdf(v + 1 - h)) / (2 * h)
        keep = (density > 1e-9) & (moved > 1e-9)
        assert np.abs(np.log(density[keep] / moved[keep])).max() <= epsilon * (1 + 1e-3) + 1e-3


def test_extreme_promises_are_finite():
    for epsilon in (1e-6, 5000.0):
        for noise in (OptimalNoise(epsilon), StaircaseNoise(epsilon), GaussianNoise(epsilon, 1e-6)):
            assert 0 <= noise.expected_magnitude() < math.inf
            assert np.isfinite(
                noise.randomise(np.zeros(10), random_state=0, resolution=2**20)
            ).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OptimalNoise(0.0), "epsilon"),
        (lambda: OptimalNoise(1.0, 1.0), "delta"),
        (lambda: OptimalNoise(1.0, 0.0, -1.0), "bound"),
        (lambda: GaussianNoise(1.0, 0.0), "delta > 0"),
        (lambda: GaussianNoise(1.0, 0.1, calibration="guess"), "calibration"),
        (lambda: StaircaseNoise(1.0, 0.1), "delta = 0"),
    ],
)
def test_wrong_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()

"""Composition against cases with known answers, and never below the truth."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from permea.privacy import composition
from permea.privacy.composition import Loss, compose, laplace_slack, simple_epsilon, tight_epsilon
from permea.privacy.noise import gaussian_delta


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 16.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_one_laplace_mechanism(epsilon, delta):
    """Its profile is known: δ(τ) = 1 - exp((τ - ε)/2)."""
    known = epsilon + 2 * math.log1p(-delta)
    value = tight_epsilon([Loss("laplace", epsilon)], delta)
    assert known * (1 - 1e-9) <= value <= known + 1e-3 * epsilon
    assert compose([Loss("laplace", epsilon)]) == (epsilon, 0.0)


@settings(deadline=None, derandomize=True)
@given(epsilon=st.floats(0.01, 16), p=st.integers(1, 2000))
def test_without_delta_epsilons_add_up(epsilon, p):
    assert tight_epsilon([Loss("laplace", epsilon, p)], 0.0) == pytest.approx(p * epsilon)
    assert simple_epsilon([Loss("laplace", epsilon, p)]) == pytest.approx(p * epsilon)


@pytest.mark.parametrize(("mu", "times"), [(0.3, 1), (0.3, 16), (0.05, 784)])
def test_gaussians_compose_to_a_gaussian(mu, times):
    value = tight_epsilon([Loss("gaussian", mu, times)], 1e-6)
    assert gaussian_delta(mu * math.sqrt(times), value) == pytest.approx(1e-6, rel=1e-4)
    assert gaussian_delta(mu * math.sqrt(times), value) <= 1e-6


def test_gaussians_by_distributions_agree_with_the_closed_form():
    kinds = (("gaussian", 0.2, 9),)
    closed = tight_epsilon([Loss("gaussian", 0.2, 9)], 1e-5)
    assert composition._compose(kinds).get_epsilon_for_delta(1e-5) == pytest.approx(
        closed, rel=1e-3
    )


def _pure_profile(epsilon, k, total):
    """Exact δ of k pure mechanisms (Kairouz, Oh and Viswanath 2015)."""
    j = np.arange(k + 1)
    loss = (k - 2 * j) * epsilon
    weight = stats.binom.pmf(j, k, special.expit(-epsilon))
    return float(np.sum(weight * np.maximum(0.0, -np.expm1(total - loss))))


@pytest.mark.parametrize(("epsilon", "k"), [(0.5, 1), (0.5, 10), (0.1, 100)])
def test_pure_mechanisms_compose_as_known(epsilon, k):
    value = tight_epsilon([Loss("pure", epsilon, k)], 1e-5)
    assert _pure_profile(epsilon, k, value) <= 1e-5
    assert _pure_profile(epsilon, k, value - 0.02) > 1e-5


def _sampled_profile(losses, total, n, seed):
    """Monte-Carlo δ of composed Laplace mechanisms, with its standard error."""
    rng = np.random.default_rng(seed)
    sums = np.zeros(n)
    for loss in losses:
        for _ in range(loss.times):
            noise = rng.laplace(size=n)
            sums += np.abs(noise + loss.value) - np.abs(noise)
    excess = np.maximum(0.0, -np.expm1(np.minimum(total - sums, 0.0)))
    return excess.mean(), excess.std() / math.sqrt(n)


@pytest.mark.parametrize(
    "losses", [[Loss("laplace", 0.5, 20)], [Loss("laplace", 0.2, 10), Loss("laplace", 1.0, 5)]]
)
def test_laplace_composition_is_a_bound_and_is_tight(losses):
    delta = 1e-2
    value = tight_epsilon(losses, delta)
    mean, error = _sampled_profile(losses, value, 200_000, 7)
    assert mean <= delta + 5 * error
    mean, error = _sampled_profile(losses, 0.97 * value, 200_000, 8)
    assert mean > delta + 5 * error
    assert value < simple_epsilon(losses)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(rate=st.floats(1e-4, 3.0), steps=st.integers(1, 50), share=st.floats(-1, 1))
def test_discrete_laplace_is_dominated_by_the_wider_continuous_pair(rate, steps, share):
    """docs/proofs/composition.md, Lemma 1, on the exact profile."""
    epsilon, level = rate * steps, share * rate * steps
    x = np.arange(-steps - math.ceil(40 / rate), 2 * steps + math.ceil(40 / rate))
    p = math.tanh(rate / 2) * np.exp(-rate * np.abs(x))
    q = math.tanh(rate / 2) * np.exp(-rate * np.abs(x - steps))
    discrete = np.maximum(p - math.exp(level) * q, 0).sum()
    wide = epsilon + laplace_slack(rate)
    assert discrete <= -math.expm1((level - wide) / 2) + 1e-9
    narrow = -math.expm1((level - epsilon) / 2)  # without the slack it can fail, by a little
    assert discrete <= narrow + rate**2


def test_the_slack_is_needed():
    rate, steps = 1.0, 3
    x = np.arange(-60, 60)
    p, q = (math.tanh(0.5) * np.exp(-rate * np.abs(x - s)) for s in (0, steps))
    discrete = np.maximum(p - q, 0).sum()
    assert discrete > -math.expm1(-rate * steps / 2)
    assert discrete <= -math.expm1(-(rate * steps + laplace_slack(rate)) / 2) + 1e-12


def test_point_masses_add_to_delta():
    losses = [Loss("laplace", 0.1, 100, 1e-5)]
    spent = compose(losses)
    assert spent.delta == pytest.approx(1e-3 + 1e-6)
    assert spent.epsilon == pytest.approx(
        tight_epsilon([Loss("laplace", 0.1, 100)], 1e-6), rel=1e-3
    )
    assert tight_epsilon(losses, 5e-4) == math.inf


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0, 16.0])
def test_a_row_of_800_entries_is_composed_quickly(epsilon):
    composition._compose.cache_clear()
    start = time.process_time()
    spent = compose([Loss("laplace", epsilon, 800, 1e-5, 1e-12)])
    assert time.process_time() - start < 2.0
    assert epsilon < spent.epsilon < 800 * epsilon


def test_composition_grows_with_every_mechanism():
    values = [compose([Loss("laplace", 0.5, p)]).epsilon for p in (1, 2, 8, 64, 784)]
    assert values == sorted(values)
    assert compose([]).epsilon == 0.0


def test_large_epsilons_fall_back_to_adding_up():
    assert compose([Loss("laplace", 60.0, 10)]) == (600.0, 0.0)

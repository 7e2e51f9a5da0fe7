"""Attempts to refute (ε,δ) on neighbouring inputs: the mechanisms stand, broken ones fall."""

import math

import numpy as np
import pytest
from privacy_checks import agrees_with_probability, lower, refutes, upper

from permea.privacy import OptimalNoise, Privacy, release

N = 600_000

CASES = [
    Privacy(epsilon=1.0, domain=(0, 1)),
    Privacy(epsilon=1.0, delta=0.02, domain=(0, 1)),
    Privacy(epsilon=0.3, delta=0.02, domain=(-5, 5), bound=2.0),
    Privacy(epsilon=4.0, domain=(0, 1), resolution=16),
    Privacy(epsilon=1.0, domain=(0, 1), mechanism="staircase"),
    Privacy(epsilon=1.0, delta=0.02, domain=(0, 1), mechanism="gaussian"),
    Privacy(epsilon=1.0, delta=0.02, domain=(0, 1), unit="record"),
]


def neighbours(privacy, seed, n=N):
    """Two large samples of a mechanism on one value and on its farthest neighbour."""
    low, high = privacy.domain
    far = low + (privacy.bound or high - low)
    values = (release(np.full((n, 1), x), privacy, random_state=seed + i).data.ravel()
              for i, x in enumerate((low, far)))  # fmt: skip
    return tuple(values)


@pytest.mark.parametrize("privacy", CASES, ids=repr)
def test_the_mechanism_is_not_refuted(privacy):
    first, second = neighbours(privacy, 100)
    assert not refutes(first, second, privacy.epsilon, privacy.delta)


@pytest.mark.parametrize("privacy", CASES, ids=repr)
def test_control_half_the_noise_is_refuted(privacy):
    """The same samples brought to half their noise, claimed at the full promise."""
    low, high = privacy.domain
    far = low + (privacy.bound or high - low)
    first, second = neighbours(privacy, 200)
    broken = low + (first - low) / 2, far + (second - far) / 2
    assert refutes(*broken, privacy.epsilon, privacy.delta)


def test_the_test_is_sharp_in_epsilon():
    privacy = Privacy(epsilon=1.0, domain=(0, 1))
    first, second = neighbours(privacy, 300)
    assert refutes(first, second, 0.95, 0.0)


def test_the_test_is_sharp_in_delta():
    """The point mass is real exposure: a claim of half of it is refuted, its own is not."""
    privacy = Privacy(epsilon=1.0, delta=0.02, domain=(0, 1))
    first, second = neighbours(privacy, 400)
    assert refutes(first, second, 1.0, 0.01)
    assert not refutes(first, second, 1.0, 0.02)


def test_control_bound_read_off_the_data_is_refuted():
    """Noise scaled to the range of the data, instead of the declared one, is told apart."""
    first, second = (
        OptimalNoise(1.0, bound=data_range).randomise(np.zeros(N), random_state=seed)
        for seed, data_range in ((1, 0.2), (2, 1.0))
    )
    assert refutes(first, second, 1.0, 0.0)


def test_rounding_adds_no_more_than_is_accounted_for():
    """Neighbours that straddle grid points, on a coarse grid where one step matters."""
    privacy = Privacy(epsilon=2.0, domain=(0, 8), bound=1.0, resolution=2)
    samples = [
        release(np.full((N, 1), x), privacy, random_state=seed).data.ravel()
        for seed, x in ((1, 0.249), (2, 1.2489))
    ]
    assert not refutes(*samples, 2.0, 0.0)


def _reachable(y, x, scale):
    """Whether the float sampler can give ``y`` for the input ``x``: the low bits tell."""
    noise = OptimalNoise(1.0, bound=scale)
    guess = np.rint(noise.cdf(y - x) * 2.0**52 - 0.5)
    hits = [x + noise.inverse_cdf((guess + k + 0.5) * 2.0**-52) == y for k in range(-2, 3)]
    return np.any(hits, axis=0)


def _low_bits_attack(sampler):
    """Lower bound on P(S|0) and upper bound on P(S|1), S: beyond 3 and reachable from 0."""
    privacy = Privacy(epsilon=1.0, domain=(0, 1), sampler=sampler)
    counts = []
    for seed, x in ((1, 0.0), (2, 1.0)):
        y = release(np.full((N, 1), x), privacy, random_state=seed).data.ravel()
        counts.append(int(np.sum((y > 3) & _reachable(y, 0.0, 1.0))))
    return lower(counts[0], N, 5e-7), upper(counts[1], N, 5e-7)


def test_control_float_sampler_is_refuted_by_its_low_bits():
    least, most = _low_bits_attack("float")
    assert least > math.exp(1.0) * most


def test_the_grid_sampler_withstands_the_same_attack():
    least, most = _low_bits_attack("grid")
    assert least <= math.exp(1.0) * most


def test_all_outputs_lie_on_the_public_grid():
    privacy = Privacy(epsilon=1.0, domain=(0, 1))
    X = np.random.default_rng(0).random((1000, 3))
    steps = release(X, privacy, random_state=0).data * 2**20
    assert np.array_equal(steps, np.rint(steps))
    floats = Privacy(epsilon=1.0, domain=(0, 1), sampler="float")
    steps = release(X, floats, random_state=0).data * 2**20
    assert not np.array_equal(steps, np.rint(steps))


def test_exposed_entries_are_as_many_as_the_certificate_says():
    X = np.random.default_rng(1).integers(0, 2**20, size=(2000, 200)) / 2**20  # on the grid
    out = release(X, Privacy(epsilon=1.0, delta=1e-3, domain=(0, 1)), random_state=2)
    exposed = int((out.data == X).sum())
    expected = out.certificate.exposed_entries
    assert expected == pytest.approx(400.0)
    assert agrees_with_probability(exposed, X.size, expected / X.size)
    assert not agrees_with_probability(exposed, X.size, 2 * expected / X.size)

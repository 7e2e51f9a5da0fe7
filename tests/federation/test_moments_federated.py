"""Ten parties add up their moments: the same model as if their rows lay in one house."""

from dataclasses import replace

import numpy as np
import pytest

from permea.federation.moments import (
    DropOutError,
    add_released,
    aggregate,
    mask,
    mean_message,
    moment_message,
    open_mean,
    open_moments,
)
from permea.models.moments import ridge
from permea.privacy import Privacy
from permea.privacy.bits import SeededBits
from permea.privacy.moments import (
    MomentNoise,
    MomentWall,
    add_noise,
    moment_noise,
    moments_from_steps,
    plan_moments,
    sum_features,
    sum_moments,
)

PROMISE = Privacy(epsilon=1.0, delta=1e-5, unit="record", domain=(0, 1))


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(5000, 12)) / 6
    labels = (phi @ rng.normal(size=(12, 3))).argmax(axis=1)
    return phi, np.eye(3)[labels], np.array_split(rng.permutation(5000), 10)


@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
def test_ten_parties_equal_one_house(world, neighbours):
    phi, Y, parties = world
    plan = plan_moments(PROMISE, 12, 3, neighbours=neighbours)
    first = [
        mean_message(sum_features(phi[rows], plan), plan, 10, SeededBits(i))
        for i, rows in enumerate(parties)
    ]
    mean = open_mean(aggregate(first), plan)
    sums = [sum_moments(phi[rows] - mean, Y[rows], plan) for rows in parties]
    second = [moment_message(s, plan, 10, SeededBits(100 + i)) for i, s in enumerate(sums)]
    federated = open_moments(aggregate(second), plan)

    # one house with the same total noise
    noise = moment_noise(plan, SeededBits(100), shares=10)
    for i in range(1, 10):
        noise = noise + moment_noise(plan, SeededBits(100 + i), shares=10)
    whole = sum_moments(phi - mean, Y, plan)
    central = moments_from_steps(add_noise(whole, noise, plan), plan)
    for name in ("second", "cross", "total", "outputs", "size", "second_noise"):
        assert np.array_equal(getattr(federated, name), getattr(central, name))
    assert np.array_equal(ridge(federated).weights, ridge(central).weights)


def test_the_total_carries_one_noise_and_fully_noised_parties_carry_more(world):
    phi, Y, parties = world
    plan = plan_moments(PROMISE, 12, 3)
    mean = phi.mean(axis=0)
    exact = moments_from_steps(
        add_noise(sum_moments(phi - mean, Y, plan), _no_noise(plan), plan), plan
    )
    together, apart = [], []
    for trial in range(40):
        messages, released = [], []
        for i, rows in enumerate(parties):
            sums = sum_moments(phi[rows] - mean, Y[rows], plan)
            bits = SeededBits(1000 * trial + i)
            messages.append(moment_message(sums, plan, 10, bits))
            released.append(
                moments_from_steps(add_noise(sums, moment_noise(plan, bits), plan), plan)
            )
        together.append(open_moments(aggregate(messages), plan).cross - exact.cross)
        apart.append(add_released(released).cross - exact.cross)
    deviation = plan.scales.cross * plan.radius
    width = 6 / np.sqrt(2 * 40 * 36)
    assert np.std(together) / deviation == pytest.approx(1, abs=width)
    assert np.std(apart) / (deviation * np.sqrt(10)) == pytest.approx(1, abs=width)
    assert add_released(released).cross_noise == pytest.approx(deviation * np.sqrt(10))


def test_drop_outs_within_the_shares_are_borne_and_beyond_them_fail(world):
    phi, Y, parties = world
    plan = plan_moments(PROMISE, 12, 3)
    messages = [
        moment_message(sum_moments(phi[rows], Y[rows], plan), plan, 8, SeededBits(i))
        for i, rows in enumerate(parties)
    ]
    left = open_moments(aggregate(messages[:8]), plan)
    assert left.size == sum(len(rows) for rows in parties[:8])
    with pytest.raises(DropOutError, match="7 of at least 8"):
        aggregate(messages[:7])
    with pytest.raises(DropOutError):
        add_released([])
    with pytest.raises(ValueError, match="different numbers of parties"):
        aggregate([messages[0], replace(messages[1], needed=2)])
    with pytest.raises(ValueError, match="different lengths"):
        aggregate([replace(m, needed=1, words=m.words[i:]) for i, m in enumerate(messages[:2])])


def test_masks_cancel_in_the_sum_and_hide_each_message(world):
    phi, Y, parties = world
    plan = plan_moments(PROMISE, 12, 3)
    messages = [
        moment_message(sum_moments(phi[rows], Y[rows], plan), plan, 4, SeededBits(i))
        for i, rows in enumerate(parties[:4])
    ]
    hidden = []
    for i, message in enumerate(messages):
        pairs = {j: SeededBits(10_000 + 10 * min(i, j) + max(i, j)) for j in range(4) if j != i}
        hidden.append(replace(message, words=mask(message.words, i, pairs)))
    assert np.array_equal(aggregate(hidden).words, aggregate(messages).words)
    assert all(np.mean(h.words == m.words) < 0.01 for h, m in zip(hidden, messages, strict=True))


def test_a_single_party_is_the_centralised_release(world):
    phi, Y, _ = world
    plan = plan_moments(PROMISE, 12, 3)
    wall = MomentWall(plan, random_state=3)
    mean = wall.noise_mean(sum_features(phi, plan))
    central = wall.noise_moments(sum_moments(phi - mean, Y, plan)).moments
    bits = SeededBits(3)
    alone = open_mean(aggregate([mean_message(sum_features(phi, plan), plan, 1, bits)]), plan)
    assert np.array_equal(alone, mean)
    sums = sum_moments(phi - mean, Y, plan)
    again = open_moments(aggregate([moment_message(sums, plan, 1, bits)]), plan)
    assert np.array_equal(again.second, central.second)


def _no_noise(plan):
    D, C = plan.n_features, plan.n_outputs
    shapes = (D, D), (D, C), (plan.tally_size,)
    return MomentNoise(*(np.zeros(shape, dtype=np.int64) for shape in shapes))

"""The wall for moments: what one record can change, what is charged, and twins that break it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_checks import refutes
from scipy import optimize

from permea.privacy import Budget, BudgetExceededError, Certificate, Ledger, Privacy
from permea.privacy import moments as wall
from permea.privacy.composition import tight_epsilon
from permea.privacy.moments import (
    MEAN_STEPS,
    ROW_STEPS,
    SQUARE_STEPS,
    ChargedMoments,
    Scales,
    moment_noise,
    plan_moments,
    squared_mu,
    sum_features,
    sum_moments,
    to_steps,
)
from permea.privacy.sampling import SeededBits

PROMISE = Privacy(epsilon=1.0, delta=1e-5, unit="record", domain=(0, 1))
RELATIONS = ("replace", "add/remove")


def statistic(plan, Z, Y):
    """The released vector without noise, each part divided by its noise: distances are mu."""
    sums = sum_moments(Z, Y, plan)
    above = np.triu_indices(plan.n_features, 1)
    parts = [
        np.diag(sums.second) / plan.scales.second,
        math.sqrt(2) * sums.second[above] / plan.scales.second,
        sums.cross.ravel() / plan.scales.cross,
        sums.counts / plan.scales.counts,
    ]
    return np.concatenate(parts) / SQUARE_STEPS


def worst_pair(plan):
    """Two rows of one class at the worst angle of the proof, or of two classes."""
    second, cross = plan.scales.second**-2, plan.scales.cross**-2
    cosine = -min(1.0, cross / (2 * second))
    one = np.zeros(plan.n_features)
    one[0] = plan.radius
    other = np.zeros(plan.n_features)
    other[:2] = plan.radius * cosine, plan.radius * math.sqrt(1 - cosine**2)
    return one, other


@pytest.mark.parametrize("neighbours", RELATIONS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    length=st.floats(0, 1e6),
    shares=st.tuples(*[st.floats(0.02, 1.0)] * 4),
)
def test_no_neighbour_moves_more_than_the_sensitivity(neighbours, seed, length, shares):
    rng = np.random.default_rng(seed)
    split = tuple(np.array(shares) / sum(shares))
    plan = plan_moments(PROMISE, 4, 3, neighbours=neighbours, split=split)
    limit = squared_mu(plan.scales._replace(mean=math.inf, size=math.inf), neighbours, "classes")
    Z = rng.normal(size=(6, 4)) * rng.choice([1e-3, 1.0, length], size=(6, 1))
    Y = np.eye(3)[rng.integers(3, size=6)]
    whole = statistic(plan, Z, Y)
    if neighbours == "add/remove":
        change = whole - statistic(plan, Z[1:], Y[1:])
    else:
        Z2, Y2 = Z.copy(), Y.copy()
        Z2[0], Y2[0] = rng.normal(size=4) * length, np.eye(3)[rng.integers(3)]
        change = whole - statistic(plan, Z2, Y2)
    assert change @ change <= limit * (1 + 1e-9)


@pytest.mark.parametrize("split", [(0.03, 0.47, 0.48, 0.02), (0.1, 0.2, 0.6, 0.1)])
def test_the_worst_neighbours_reach_the_sensitivity(split):
    """The bound for classes is exact: the search for a worse pair ends at it."""
    plan = plan_moments(PROMISE, 3, 2, split=split)
    limit = squared_mu(plan.scales._replace(mean=math.inf), "replace", "classes")

    def moved(v, labels):
        change = statistic(plan, v[None, :3] * 1e3, np.eye(2)[[0]])
        change = change - statistic(plan, v[None, 3:] * 1e3, np.eye(2)[[labels]])
        return float(change @ change)

    best = max(moved(np.concatenate(worst_pair(plan)), label) for label in (0, 1))
    for label in (0, 1):
        for start in range(6):
            v = np.random.default_rng(start).normal(size=6)
            found = optimize.minimize(
                lambda v, label=label: -moved(v, label), v, method="Nelder-Mead",
                options={"maxiter": 400},
            )  # fmt: skip
            best = max(best, -found.fun)
    assert best <= limit * (1 + 1e-9)
    assert best >= limit * 0.999


def test_a_row_that_comes_reaches_the_sensitivity():
    plan = plan_moments(PROMISE, 3, 2, neighbours="add/remove")
    change = statistic(plan, np.array([[9.0, 0, 0]]), np.eye(2)[[1]])
    limit = squared_mu(plan.scales._replace(mean=math.inf, size=math.inf), "add/remove", "classes")
    assert change @ change == pytest.approx(limit, rel=1e-4)
    assert change @ change <= limit


@settings(max_examples=80, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), q=st.integers(1, 4))
def test_outputs_that_are_numbers_stay_within_their_sensitivity(seed, q):
    rng = np.random.default_rng(seed)
    for neighbours in RELATIONS:
        plan = plan_moments(PROMISE, 3, 1 + q, outputs="numbers", neighbours=neighbours)
        scales = plan.scales._replace(mean=math.inf, size=math.inf)
        limit = squared_mu(scales, neighbours, "numbers")
        Y = np.hstack([np.ones((2, 1)), rng.choice([-9, -0.3, 0.2, 9], size=(2, q))])
        Z = rng.normal(size=(2, 3)) * 9
        change = statistic(plan, Z[:1], Y[:1])
        if neighbours == "replace":
            change = change - statistic(plan, Z[1:], Y[1:])
        assert change @ change <= limit * (1 + 1e-9)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), size=st.floats(1e-12, 1e12), p=st.integers(1, 300))
def test_rows_in_steps_are_never_longer_than_the_norm(seed, size, p):
    rows = np.random.default_rng(seed).normal(size=(3, p)) * size
    for steps in (ROW_STEPS, MEAN_STEPS):
        whole = to_steps(rows, 0.7, steps)
        assert all(sum(int(v) ** 2 for v in row) <= steps**2 for row in whole)
        assert np.array_equal(whole, np.rint(whole))


def test_the_composition_is_the_promise():
    for neighbours in RELATIONS:
        for epsilon in (0.1, 1.0, 8.0):
            promise = replace(PROMISE, epsilon=epsilon)
            plan = plan_moments(promise, 300, 10, neighbours=neighbours)
            got = tight_epsilon([plan.loss], 1e-5)
            assert got <= epsilon * (1 + 1e-6)
            assert got >= epsilon * 0.99  # nothing is wasted
            assert plan.loss.value == pytest.approx(
                math.sqrt(squared_mu(plan.scales, neighbours, "classes"))
            )


def test_sums_do_not_depend_on_order_chunks_or_parties():
    rng = np.random.default_rng(0)
    plan = plan_moments(PROMISE, 20, 4)
    Z, Y = rng.normal(size=(20_000, 20)) / 5, np.eye(4)[rng.integers(4, size=20_000)]
    whole = sum_moments(Z, Y, plan)
    order = rng.permutation(len(Z))
    cuts = np.split(order, np.sort(rng.choice(len(Z), 9, replace=False)))
    parts = [sum_moments(Z[rows], Y[rows], plan) for rows in cuts]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    for name in ("second", "cross", "counts", "weight"):
        assert np.array_equal(getattr(total, name), getattr(whole, name))
    halves = sum_features(Z[:777], plan) + sum_features(Z[777:], plan)
    assert np.array_equal(halves.features, sum_features(Z, plan).features)


@pytest.mark.parametrize("shares", [1, 10])
def test_the_noise_has_the_promised_variance(shares):
    plan = plan_moments(PROMISE, 120, 10)
    total = moment_noise(plan, SeededBits(0), shares=shares)
    for seed in range(1, shares):
        total = total + moment_noise(plan, SeededBits(seed), shares=shares)
    fine = SQUARE_STEPS * plan.refinement(plan.scales.second, SQUARE_STEPS)
    above = total.second[np.triu_indices(120, 1)] / fine
    diagonal = np.diag(total.second) / fine
    assert np.array_equal(total.second, total.second.T)
    # chi-square within six deviations (alpha below 1e-6); the negative control is √2 off
    for sample, scale in (
        (above, plan.scales.second / math.sqrt(2)), (diagonal, plan.scales.second),
        (total.cross.ravel() / (SQUARE_STEPS * plan.refinement(plan.scales.cross, SQUARE_STEPS)),
         plan.scales.cross),
    ):  # fmt: skip
        ratio = np.mean(sample**2) / scale**2
        width = 6 * math.sqrt(2 / sample.size)
        assert abs(ratio - 1) < width
        if sample.size > 1000:
            assert abs(2 * ratio - 1) > width


# --- falsification: one dimension of the release, at the worst direction, judged at (ε, δ) ---


def draws(plan, Z, Y, trials, seed, *, clip=True, scale=1.0, forget_counts=False):
    """Project many noised releases on the direction in which the worst neighbours differ."""
    one, other = worst_pair(plan)
    Y1 = np.eye(plan.n_outputs)[[0]]
    first, second = statistic(plan, one[None] * 9, Y1), statistic(plan, other[None] * 9, Y1)
    if plan.neighbours == "add/remove":
        first, second = statistic(plan, one[None] * 9, Y1), np.zeros_like(first)
    direction = (first - second) / np.linalg.norm(first - second)
    if clip:
        value = statistic(plan, Z, Y) if len(Z) else np.zeros_like(first)
    else:  # the broken twin: rows three times the radius pass as they are
        wide = replace(plan, radius=plan.radius * 3)
        value = statistic(wide, Z, Y) if len(Z) else np.zeros_like(first)
        value[: -plan.n_counts] *= 3
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=trials) * scale  # the sum of all parts along a unit direction
    if forget_counts:  # the broken twin: exact counts, with sensitivities for the other parts
        counts = (sum_moments(Z, Y, plan).counts.sum() if len(Z) else 0) / SQUARE_STEPS
        return value @ direction + noise + 1e3 * counts
    return value @ direction + noise


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_the_mechanism_is_not_refuted_and_its_broken_twins_are(neighbours):
    promise = replace(PROMISE, epsilon=1.0, delta=1e-3)
    # the moments take the whole budget but for a trace
    plan = plan_moments(promise, 3, 2, neighbours=neighbours, split=(1e-6, 0.5, 0.45, 0.049999))
    one, other = worst_pair(plan)
    Y, trials = np.eye(2)[[0]], 400_000
    here = one[None] * 9, Y
    there = (other[None] * 9, Y) if neighbours == "replace" else (np.zeros((0, 3)), Y[:0])

    def refuted(**broken):
        samples = [
            draws(plan, *data, trials, seed, **broken) for seed, data in enumerate((here, there))
        ]
        return refutes(*samples, promise.epsilon, promise.delta)

    assert not refuted()
    assert refuted(clip=False)
    assert refuted(scale=0.6)
    if neighbours == "add/remove":
        assert refuted(forget_counts=True)


def test_the_released_numbers_are_not_refuted():
    """The whole path, discrete noise and all, on the diagonal entry a canary moves most."""
    promise = replace(PROMISE, epsilon=2.0, delta=1e-3)
    plan = plan_moments(promise, 1, 2, neighbours="add/remove", split=(0.01, 0.97, 0.01, 0.01))
    fine = SQUARE_STEPS * plan.refinement(plan.scales.second, SQUARE_STEPS)
    sigma = plan.scales.second * fine
    noise = wall.discrete_gaussian(sigma, 400_000, SeededBits(3)) / fine
    moved = float(sum_moments(np.array([[9.0]]), np.eye(2)[[0]], plan).second[0, 0]) / SQUARE_STEPS
    assert not refutes(noise[:200_000] + moved, noise[200_000:], 2.0, 1e-3)
    assert refutes(noise[:200_000] + 2 * moved, noise[200_000:], 2.0, 1e-3)


# --- the account ---


def released(plan, **options):
    rng = np.random.default_rng(0)
    phi, Y = (
        rng.random((200, plan.n_features)) / 4,
        np.eye(plan.n_outputs)[rng.integers(2, size=200)],
    )
    out = ChargedMoments(plan, **options)
    mean = out.release_mean(sum_features(phi, plan))
    return out.release(sum_moments(phi - mean, Y, plan)), out


def test_one_event_is_charged_before_anything_happens():
    plan = plan_moments(PROMISE, 5, 2)
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5, unit="record"))
    result, _ = released(plan, ledger=ledger)
    assert len(ledger) == 1
    assert ledger.spent.epsilon == 1.0
    assert "1 release" in result.certificate.ledger
    with pytest.raises(BudgetExceededError):
        ChargedMoments(plan, ledger=ledger)
    assert len(ledger) == 1


def test_add_remove_is_charged_for_a_replaced_row():
    plan = plan_moments(PROMISE, 5, 2, neighbours="add/remove")
    ledger = Ledger(Budget(epsilon=3.0, delta=1e-5, unit="record"))
    ChargedMoments(plan, ledger=ledger)
    assert 1.3 < ledger.spent.epsilon < 2.1
    with pytest.raises(BudgetExceededError):
        ChargedMoments(plan, ledger=Ledger(Budget(epsilon=1.0, delta=1e-5, unit="record")))


def test_each_stage_passes_once():
    plan = plan_moments(PROMISE, 5, 2)
    result, out = released(plan)
    with pytest.raises(RuntimeError, match="once"):
        out.release_mean(sum_features(np.zeros((1, 5)), plan))
    with pytest.raises(RuntimeError, match="once"):
        out.release(sum_moments(np.zeros((1, 5)), np.eye(2)[[0]], plan))
    with pytest.raises(RuntimeError, match="the mean first"):
        ChargedMoments(plan).release(sum_moments(np.zeros((1, 5)), np.eye(2)[[0]], plan))
    assert result.certificate.is_private


def test_the_certificate_says_what_neighbours_are():
    replaced, _ = released(plan_moments(PROMISE, 5, 2))
    added, _ = released(plan_moments(PROMISE, 5, 2, neighbours="add/remove"))
    assert "replaced" in str(replaced.certificate)
    assert "added or taken away" in str(added.certificate)
    assert "replaced instead" in str(added.certificate)
    assert replaced.certificate.n_rows == 200
    assert added.certificate.n_rows != 200 or added.moments.size != 200  # noised, not told
    assert Certificate.from_json(added.certificate.to_json()) == added.certificate
    seeded, _ = released(plan_moments(PROMISE, 5, 2), random_state=0)
    assert not seeded.certificate.is_private


@pytest.mark.parametrize(
    ("privacy", "options", "message"),
    [
        (Privacy(epsilon=1, delta=1e-5, domain=(0, 1)), {}, "unit='record'"),
        (Privacy(epsilon=1, unit="record", domain=(0, 1)), {}, "delta > 0"),
        (PROMISE, {"neighbours": "near"}, "neighbours"),
        (PROMISE, {"radius": 0.0}, "radius"),
        (PROMISE, {"split": (0.5, 0.5, 0.5, 0.5)}, "add up to 1"),
        (replace(PROMISE, sampler="float"), {}, "sampler"),
    ],
)
def test_what_cannot_be_promised_is_refused(privacy, options, message):
    with pytest.raises(ValueError, match=message):
        plan_moments(privacy, 5, 2, **options)


def test_too_many_rows_and_wrong_indicators_are_refused():
    plan = plan_moments(PROMISE, 2, 2)
    huge = replace(sum_features(np.zeros((1, 2)), plan), weight=2**92)
    with pytest.raises(OverflowError, match="64 bits"):
        ChargedMoments(plan).release_mean(huge)
    with pytest.raises(ValueError, match="single 1"):
        sum_moments(np.zeros((1, 2)), np.array([[1.0, 1.0]]), plan)


def test_scales_are_in_the_order_of_their_parts():
    assert squared_mu(Scales(1, math.inf, 2, 4, 8), "add/remove", "classes") == pytest.approx(
        1 + 1 / 4 + 1 / 16 + 1 / 64
    )

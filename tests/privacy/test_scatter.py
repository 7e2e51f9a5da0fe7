"""Scatter of classes and losses after the moments: sensitivity, composition, noise, audit."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from permea import HullClassifier, Privacy
from permea.audit.bounds import multi_run_epsilon
from permea.privacy import Ledger
from permea.privacy.composition import tight_epsilon
from permea.privacy.moments import (
    SQUARE_STEPS,
    ChargedMoments,
    plan_moments,
    row_weights,
    squared_mu,
    sum_features,
    sum_moments,
)
from permea.privacy.sampling import SeededBits
from permea.privacy.scatter import add_loss_noise, add_scatter_noise, sum_losses, sum_scatter

NUMBERS = st.floats(-1e3, 1e3, width=64)


def plan(epsilon=1.0, *, delta=1e-5, unit="record", features=3, classes=3, d=2, K=4, **options):
    promise = Privacy(epsilon=epsilon, delta=delta, unit=unit)
    options = {"neighbours": "add/remove", **options}
    return plan_moments(promise, features, classes, n_directions=d, n_losses=K, **options)


@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
def test_all_stages_together_keep_the_promise(neighbours):
    made = plan(neighbours=neighbours)
    assert tight_epsilon([made.loss], 1e-5) == pytest.approx(1.0, abs=1e-3)
    bare = made.scales._replace(scatter=math.inf, losses=math.inf)
    without = squared_mu(bare, neighbours, "classes")
    factor = 1 if neighbours == "add/remove" else 2
    further = factor / made.scales.scatter**2 + 1 / made.scales.losses**2
    assert squared_mu(made.scales, neighbours, "classes") == pytest.approx(without + further)
    assert made.loss.value >= math.sqrt(without + further)


@settings(max_examples=80, deadline=None)
@given(
    data=st.data(), rows=st.integers(1, 6), size=st.floats(0, 1e6),
    neighbours=st.sampled_from(["replace", "add/remove"]),
)  # fmt: skip
def test_a_person_moves_the_scatter_within_the_bound_whatever_the_directions(
    data, rows, size, neighbours
):
    made = plan(unit="person", neighbours=neighbours)
    n_rows = data.draw(st.sampled_from([3, 6]))  # without and with centres of the classes
    P = size * data.draw(arrays(float, (n_rows, 2), elements=NUMBERS))
    sums = []
    for _ in range(2):
        Z = data.draw(arrays(float, (rows, 3), elements=NUMBERS))
        Y = np.eye(3)[data.draw(arrays(int, rows, elements=st.integers(0, 2)))]
        sums.append(sum_scatter(Z, Y, P, made, row_weights(["ann"] * rows)).astype(float))
    for one in sums:
        assert np.linalg.norm(one) <= SQUARE_STEPS
    assert np.linalg.norm(sums[0] - sums[1]) <= math.sqrt(2) * SQUARE_STEPS


def test_the_bounds_are_reached():
    made, P = plan(), np.eye(3)[:, :2]
    Z = np.array([[9.0, 0, 0], [0, 9.0, 0]])
    one, other = (sum_scatter(Z[[k]], np.eye(3)[[k]], P, made).astype(float) for k in (0, 1))
    assert np.linalg.norm(one) == pytest.approx(SQUARE_STEPS, rel=1e-4)
    assert np.linalg.norm(one - other) == pytest.approx(math.sqrt(2) * SQUARE_STEPS, rel=1e-4)


def test_a_row_counted_in_two_classes_would_break_the_bound():
    """Negative control: the promise rests on each row lying in one class."""
    made = plan()
    twice = sum_scatter(np.array([[9.0, 0, 0]]), np.array([[1, 1, 0]]), np.eye(3)[:, :2], made)
    assert np.linalg.norm(twice.astype(float)) > 1.4 * SQUARE_STEPS


@settings(max_examples=80, deadline=None)
@given(data=st.data(), rows=st.integers(1, 5))
def test_a_person_moves_the_losses_by_at_most_one_step_vector(data, rows):
    made = plan(unit="person")
    sums = [
        sum_losses(
            data.draw(arrays(float, (rows, 4), elements=st.floats(-5, 5))), made,
            row_weights(["ann"] * rows),
        ).astype(float)
        for _ in range(2)
    ]  # fmt: skip
    assert max(np.linalg.norm(one) for one in sums) <= SQUARE_STEPS
    assert np.linalg.norm(sums[0] - sums[1]) <= SQUARE_STEPS


def test_sums_are_those_of_the_rows_in_any_order_and_precision():
    rng = np.random.default_rng(0)
    made = plan(features=40, d=7)
    P = np.linalg.qr(rng.normal(size=(40, 7)))[0]
    for kind in (np.float32, np.float64):
        Z = (0.05 * rng.normal(size=(517, 40))).astype(kind)
        Y = np.eye(3)[rng.integers(3, size=517)]
        whole, rest = sum_scatter(Z, Y, P, made), np.delete(np.arange(517), 7)
        term = sum_scatter(Z[[7]], Y[[7]], P, made)
        np.testing.assert_array_equal(whole - sum_scatter(Z[rest], Y[rest], P, made), term)
        order = rng.permutation(517)
        np.testing.assert_array_equal(sum_scatter(Z[order], Y[order], P, made), whole)
        exact = np.einsum("nc,ni,nj->cij", Y, Z @ P, Z @ P)
        np.testing.assert_allclose(whole * made.radius**2 / SQUARE_STEPS, exact, atol=2e-3)


def test_rows_of_the_directions_for_classes_are_centres():
    rng = np.random.default_rng(1)
    made = plan(features=5, d=2)
    Z, Y = 0.03 * rng.normal(size=(60, 5)), np.eye(3)[rng.integers(3, size=60)]
    P, centres = np.linalg.qr(rng.normal(size=(5, 2)))[0], 0.02 * rng.normal(size=(3, 2))
    found = sum_scatter(Z, Y, np.vstack([P, -centres]), made) * made.radius**2 / SQUARE_STEPS
    u = Z @ P - Y @ centres
    np.testing.assert_allclose(found, np.einsum("nc,ni,nj->cij", Y, u, u), atol=1e-4)
    order = rng.permutation(60)
    again = sum_scatter(Z[order], Y[order], np.vstack([P, -centres]), made)
    np.testing.assert_array_equal(again * made.radius**2 / SQUARE_STEPS, found)


def released(made, rows, labels, P, count, seed, share=1.0):
    """Noised scatter and losses (all of them 1) of the same rows, so many times."""
    weak = replace(made, scales=type(made.scales)(*(share * s for s in made.scales)))
    scatter = sum_scatter(rows, np.eye(3)[labels], P, weak)
    losses, source = sum_losses(np.ones((len(rows), 4)), weak), SeededBits(seed)
    found = [
        (add_scatter_noise(scatter, P, weak, source).second, add_loss_noise(losses, weak, source))
        for _ in range(count)
    ]
    return [np.array(part) for part in zip(*found, strict=True)]


def test_the_noise_has_the_planned_law():
    made, P = plan(), np.eye(3)[:, :2]
    scatter, losses = released(made, np.zeros((2, 3)), [0, 1], P, 400, 1)
    unit = made.scales.scatter * made.radius**2
    for noise, sigma in (
        (scatter[:, :, [0, 1], [0, 1]], unit),
        (scatter[:, :, 0, 1], unit / math.sqrt(2)),
        (losses - 2.0, made.scales.losses * 2),
    ):
        assert np.std(noise) == pytest.approx(sigma, rel=5 / math.sqrt(2 * noise.size))
        assert np.mean(noise) == pytest.approx(0, abs=5 * sigma / math.sqrt(noise.size))
    assert np.array_equal(scatter[:, :, 0, 1], scatter[:, :, 1, 0])


def test_each_stage_is_released_once_after_the_moments():
    made, rows, Y = plan(), np.zeros((2, 3)), np.eye(3)[[0, 1]]
    charged, two = ChargedMoments(made), np.zeros((3, 2, 2), np.int64)
    charged.release_mean(sum_features(rows, made))
    before = charged.release(sum_moments(rows, Y, made))
    with pytest.raises(RuntimeError, match="as many directions as planned"):
        charged.release_scatter(np.zeros((3, 3, 3), np.int64), np.eye(3), before)
    with pytest.raises(RuntimeError, match="Scatter follows the moments"):
        charged.release_scatter(two, np.eye(3)[:, :2], replace(before, mean=np.zeros(3)))
    charged.release_scatter(two, np.eye(3)[:, :2], before)
    charged.release_losses(np.zeros(4, np.int64))
    with pytest.raises(RuntimeError, match="paid for once"):
        charged.release_scatter(two, np.eye(3)[:, :2], before)
    with pytest.raises(RuntimeError, match="paid for once"):
        charged.release_losses(np.zeros(4, np.int64))


def test_an_audit_stays_below_the_promise_and_refutes_less_noise():
    """The canary's own entry of the scatter, with its losses: most of this plan's budget."""
    made = plan(8.0, delta=1e-3, further_shares=(0.01, 0.8, 0.1))
    crowd, canary, P = np.zeros((20, 3)), np.array([[1.0, 0.0, 0.0]]), np.eye(3)[:, :2]

    def bound(share):
        sides = []
        for planted in (0, 1):
            rows = np.vstack([crowd, canary]) if planted else crowd
            scatter, losses = released(made, rows, [0] * len(rows), P, 250, 2 + planted, share)
            own = scatter[:, 0, 0, 0] / (made.radius * made.scales.scatter) ** 2
            sides.append(own + losses.sum(axis=1) / (4 * made.scales.losses**2))
        return multi_run_epsilon(*sides, tradeoff="gaussian", delta=1e-3, confidence=0.999)

    assert 2.0 < bound(1.0) <= 8.0
    assert bound(0.5) > 8.0


def test_one_event_covers_all_stages_and_the_certificate_names_them():
    rng = np.random.default_rng(0)
    ledger = Ledger()
    promise = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))
    model = HullClassifier(privacy=promise, features="identity", classes=[0, 1], ledger=ledger)
    model.fit(rng.random((60, 3)), np.arange(60) % 2)
    assert len(ledger) == 1
    text = model.certificate_.released
    assert "second moments of each class in at most 3 directions" in text
    assert "sums of losses" in text
    assert model.certificate_.is_private
    assert not model.holds_private_rows_


def test_noise_that_cannot_be_drawn_is_refused_before_the_charge():
    ledger, promise = Ledger(), Privacy(epsilon=0.01, delta=1e-5, unit="record", domain=(0, 1))
    model = HullClassifier(
        privacy=promise, classes=[0, 1], features="identity", neighbours="add/remove",
        ledger=ledger, dataset="d",
    )  # fmt: skip
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        model.fit(np.eye(4), [0, 1, 0, 1])
    assert len(ledger.events) == 0

"""Gradients after the moments: sensitivity, composition, noise, and an audit that refutes less."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from permea import Privacy
from permea.audit.bounds import multi_run_epsilon
from permea.models.logistic import Logits
from permea.privacy.composition import tight_epsilon
from permea.privacy.moments import (
    SQUARE_STEPS,
    ChargedMoments,
    plan_moments,
    row_weights,
    squared_mu,
    sum_features,
    sum_gradients,
    sum_moments,
)

NORM = math.hypot(1.0, 0.25)


def plan(epsilon=1.0, *, delta=1e-5, unit="record", features=3, classes=2, steps=6, **options):
    promise = Privacy(epsilon=epsilon, delta=delta, unit=unit)
    options = {"neighbours": "add/remove", **options}
    return plan_moments(promise, features, classes, n_gradients=steps, **options)


@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
def test_moments_and_gradients_together_keep_the_promise(neighbours):
    made = plan(neighbours=neighbours)
    assert tight_epsilon([made.loss], 1e-5) == pytest.approx(1.0, abs=1e-3)
    without = squared_mu(made.scales, neighbours, "classes")
    factor = 1 if neighbours == "add/remove" else 4
    together = squared_mu(made.scales, neighbours, "classes", 6)
    assert together == pytest.approx(without + 6 * factor / made.scales.gradient**2)
    assert made.loss.value >= math.sqrt(together)


NUMBERS = st.floats(-1e3, 1e3, width=64)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 6), st.integers(2, 4))
def test_one_person_never_adds_more_than_the_proof_says(data, rows, classes):
    made = plan(unit="person", classes=classes)
    Z = data.draw(arrays(float, (rows, 3), elements=NUMBERS))
    U = data.draw(arrays(float, (rows, made.gradient_shape[1]), elements=NUMBERS))
    added = sum_gradients(Z, U, made, row_weights(["ann"] * rows))
    assert np.linalg.norm(added.astype(float)) <= NORM * SQUARE_STEPS


def test_a_row_adds_its_own_term_in_any_order_and_precision():
    rng = np.random.default_rng(0)
    for classes in (2, 4):
        made = plan(classes=classes, features=33)
        columns = made.gradient_shape[1]
        logits = Logits(rng.normal(size=(33, columns)), rng.normal(size=columns))
        for kind in (np.float32, np.float64):
            Z = rng.normal(size=(517, 33)).astype(kind)
            Y = np.eye(classes)[rng.integers(classes, size=517)]

            def total(rows, Z=Z, Y=Y, logits=logits, made=made):
                return sum_gradients(Z[rows], logits.residuals(Z[rows], Y[rows]), made)

            rest = np.delete(np.arange(517), 7)
            np.testing.assert_array_equal(total(np.arange(517)) - total(rest), total([7]))
            np.testing.assert_array_equal(total(rng.permutation(517)), total(np.arange(517)))


def test_residuals_are_probabilities_minus_indicators():
    rng = np.random.default_rng(0)
    Z, Y = rng.normal(size=(50, 4)), np.eye(3)[rng.integers(3, size=50)]
    logits = Logits(rng.normal(size=(4, 3)), rng.normal(size=3))
    scores = Z @ logits.weights + logits.intercept
    P = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(logits.residuals(Z, Y), (P - Y) / math.sqrt(2), atol=1e-9)
    assert np.linalg.norm(logits.residuals(1e6 * Z, Y), axis=1).max() <= 1 + 1e-9


def released(made, rows, count, seed, share=1.0):
    """Gradients of so many releases, whose residuals are 1."""
    weak = replace(made, scales=type(made.scales)(*(share * s for s in made.scales)))
    found = []
    for k in range(count):
        charged = ChargedMoments(weak, random_state=1000 * seed + k)
        charged.release_mean(sum_features(rows, weak))
        Y = np.eye(2)[[0] * len(rows)]
        charged.release(sum_moments(rows, Y, weak))
        sums = sum_gradients(rows, np.ones((len(rows), 1)), weak)
        found.append([charged.release_gradient(sums)[0] for _ in range(weak.n_gradients)])
        with pytest.raises(RuntimeError, match="as many as were planned"):
            charged.release_gradient(sums)
    return np.array(found), charged


def test_the_noise_has_the_planned_size():
    made = plan(steps=4)
    found, _ = released(made, np.zeros((2, 3)), 300, 1)
    noise = found[:, :, :-1].ravel() / (made.scales.gradient * NORM * made.radius)
    assert np.std(noise) == pytest.approx(1.0, abs=5 / math.sqrt(2 * noise.size))
    assert np.mean(found[:, :, -1]) == pytest.approx(2.0, abs=4 * made.scales.gradient)


def test_an_audit_of_the_gradients_stays_below_the_promise_and_refutes_less_noise():
    """The canary's constant and direction, summed over all gradients: the likelihood ratio."""
    made = plan(8.0, delta=1e-3, further_shares=(0.9, 0.01, 0.01))
    crowd, canary = np.zeros((20, 3)), np.array([[1.0, 0.0, 0.0]])

    def bound(share):
        sides = []
        for planted in (0, 1):
            rows = np.vstack([crowd, canary]) if planted else crowd
            found, _ = released(made, rows, 300, 2 + planted, share)
            constant = found[:, :, -1, 0] * 0.25 * made.radius
            sides.append((found[:, :, 0, 0] + 0.25 * constant).sum(axis=1))
        return multi_run_epsilon(*sides, tradeoff="gaussian", delta=1e-3, confidence=0.999)

    assert 2.0 < bound(1.0) <= 8.0
    assert bound(0.25) > 8.0

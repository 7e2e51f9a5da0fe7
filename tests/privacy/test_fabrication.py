"""Fabricated data (004 Definitions 13-15, Remark 4, Theorem 6)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from permea import KAHMClassifier, KernelAffineHullMachine, Privacy, fabricate

CLAIM = settings(max_examples=10, deadline=None, derandomize=True)


def noised(seed, N=60, p=8, scale=0.3):
    random = np.random.default_rng(seed)
    clean = np.outer(np.linspace(0, 1, N), np.ones(p))
    return clean, clean + random.laplace(scale=scale, size=(N, p))


def smoothed_by_definition(Y, n, steps):
    """004 eq. (80)-(82) with the machine's own weights: Σ_j h^j is divided out of an image."""
    for _ in range(steps):
        machine = KernelAffineHullMachine(n_components=n, tol=1e-10).fit(Y)
        from permea.models.kahm import kernel_matrix

        K = kernel_matrix(machine.codes_)
        sums = K @ np.linalg.solve(K + machine.regularization_ * np.eye(len(Y)), np.ones(len(Y)))
        Y = sums[:, None] * machine.reconstruct(Y)
    return KernelAffineHullMachine(n_components=n, tol=1e-10).fit(Y).reconstruct(Y)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_fabrication_is_the_recursion_of_definition_13(steps):
    _, Y = noised(0)
    made = fabricate(Y, n_components=3, stop=steps, tol=1e-10)
    np.testing.assert_allclose(made.data, smoothed_by_definition(Y, 3, steps), atol=1e-7)
    assert made.n_steps == [steps]


@CLAIM
@given(st.integers(0, 1000))
def test_the_modelling_error_tends_to_zero(seed):
    """Theorem 6."""
    _, Y = noised(seed, N=30, p=4)
    made = fabricate(Y, n_components=2, stop=40)
    errors = [step["error"] for step in made.history[0]]
    assert errors[-1] < 0.05 * errors[0]


def test_fabricated_rows_are_nearer_to_the_truth_than_noised_ones():
    clean, Y = noised(1, N=200)
    made = fabricate(Y, n_components=3)
    kept = np.sqrt(3 / 8)  # noise in three of eight directions stays
    assert np.linalg.norm(made.data - clean) < 1.1 * kept * np.linalg.norm(Y - clean)


def test_the_documents_rule_stops_at_the_error_of_the_original_rows():
    clean, Y = noised(2, N=80)
    clean = clean + np.random.default_rng(0).normal(scale=0.05, size=clean.shape)
    made = fabricate(Y, n_components=3, stop="original", original=clean)
    bound = KernelAffineHullMachine(n_components=3).fit(clean).distance(clean).mean()
    errors = [step["error"] for step in made.history[0]]
    assert errors[-1] <= bound * (1 + 1e-6)
    assert all(error > bound for error in errors[:-1])
    assert made.reads_private_rows


def test_the_discrepancy_rule_removes_the_energy_of_the_noise():
    _, Y = noised(3, N=150)
    made = fabricate(Y, n_components=3, stop="discrepancy", noise_variance=2 * 0.3**2)
    removed = [step["removed"] for step in made.history[0]]
    energy = 8 * 2 * 0.3**2
    assert removed[-1] >= energy or len(removed) == 51
    assert all(value < energy for value in removed[:-1])
    assert not made.reads_private_rows


def test_branches_cover_all_rows_in_their_order():
    _, Y = noised(4, N=90)
    made = fabricate(Y.astype(np.float32), n_components=2, branch_size=30, random_state=0)
    assert made.data.shape == Y.shape
    assert made.data.dtype == np.float32
    assert len(made.n_steps) >= 3
    assert np.corrcoef(made.data[:, 0], Y[:, 0])[0, 1] > 0.5


@pytest.mark.parametrize("stop", [7, "discrepancy"])
def test_a_limit_that_came_before_the_rule_is_said(stop):
    """0.1 named the rule as the reason although the limit of steps had ended the smoothing."""
    _, Y = noised(6, N=60)
    made = fabricate(
        Y,
        n_components=2,
        stop=stop,
        noise_variance=1e6,
        max_steps=3,
        branch_size=20,
        random_state=0,
    )
    assert set(made.n_steps) == {3}
    branches = len(made.n_steps)
    assert f"limit of 3 smoothing steps was reached in {branches} of {branches}" in made.stopped_by


def test_a_rule_that_was_satisfied_is_said_without_a_limit():
    _, Y = noised(7)
    variance = 1e-9
    made = fabricate(Y, n_components=2, stop="discrepancy", noise_variance=variance, max_steps=3)
    assert made.stopped_by == "the energy removed reached the public energy of the noise"


def test_the_branches_of_a_classifier_are_counted_together():
    """0.1 reported the first branch for all."""
    _, Y = noised(8)
    quiet, groups = Y.copy(), [np.arange(0, len(Y), 2), np.arange(1, len(Y), 2)]
    quiet[groups[0]] *= 100  # smoothing removes enough energy from these rows, not from the others
    for order in (groups, groups[::-1]):
        made = fabricate(
            quiet, n_components=2, stop="discrepancy", noise_variance=100, max_steps=1, groups=order
        )
        assert "reached in 1 of 2 branches before" in made.stopped_by


def test_a_certificate_states_no_stop_that_did_not_happen():
    X, y = np.random.default_rng(0).random((24, 3)), np.repeat([0, 1], 12)
    privacy = Privacy(epsilon=2, domain=(0, 1))
    clf = KAHMClassifier(n_components=2, n_layers=1, privacy=privacy, fabricate=60).fit(X, y)
    step = clf.certificate_.steps[0]
    assert "limit of 50 smoothing steps was reached in 2 of 2 branches" in step


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stop": "discrepancy"}, "noise_variance"),
        ({"stop": "original"}, "before the noise"),
        ({"stop": "soon"}, "stop must be"),
        ({"stop": -1}, "stop must be"),
        ({"stop": True}, "stop must be"),
    ],
)
def test_bad_rules_are_explained(arguments, message):
    with pytest.raises(ValueError, match=message):
        fabricate(noised(5)[1], **arguments)


@pytest.mark.parametrize("Y", [np.ones(3), np.array([["a"]]), np.array([[np.nan, 1.0]])])
def test_bad_rows_are_refused(Y):
    with pytest.raises(ValueError, match="Y_noised"):
        fabricate(Y)

"""Probabilities, decisions and warnings from released moments alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, log_loss, roc_auc_score

from permea.models.calibration import calibrate, class_shares, decision
from permea.models.linear import (
    SIGNAL_LIMIT,
    are_classes,
    bayesian,
    noise_share,
    ridge,
    score_moments,
    signal_to_noise,
)
from permea.privacy.moments import Moments


def noised(exact, noise, rng, counts=0.0):
    """Moments of classes with noise as a release has it, of one standard deviation throughout."""
    D, C = exact.cross.shape
    E = rng.normal(size=(D, D)) * noise
    cross = exact.cross + rng.normal(size=(D, C)) * noise
    outputs = exact.outputs + rng.normal(size=C) * counts
    return Moments(
        exact.second + (E + E.T) / 2, cross, cross.sum(axis=1), outputs, outputs, exact.size,
        noise, noise, counts,
    )  # fmt: skip


def noised_numbers(exact, noise, rng):
    """The same for one number as the output."""
    other = noised(exact, noise, rng)
    total = exact.total + rng.normal(size=len(exact.total)) * noise
    return replace(other, total=total, outputs=exact.outputs, squares=exact.squares)


def gaussians(rng, n, C=2, D=10, apart=1.5, shares=None):
    centres = apart * rng.normal(size=(C, D)) / np.sqrt(D)
    y = rng.choice(C, size=n, p=shares)
    return centres[y] + rng.normal(size=(n, D)), y, centres


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000), noise=st.sampled_from([0.0, 5.0, 100.0, 3000.0]),
    C=st.integers(2, 5), counts=st.sampled_from([0.0, 10.0, 1000.0]),
)  # fmt: skip
def test_probabilities_are_probabilities_and_keep_the_order(seed, noise, C, counts):
    rng = np.random.default_rng(seed)
    Z, y, _ = gaussians(rng, 300, C)
    moments = noised(Moments.of(Z, np.eye(C)[y]), noise, rng, counts)
    model = ridge(moments)
    scores = model.predict(Z)
    found = calibrate(moments, model).probabilities(scores)
    assert np.all(np.isfinite(found))
    assert np.all(found >= 0)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    if C == 2:
        order = np.argsort(scores[:, 1] - scores[:, 0])
        assert np.all(np.diff(found[order, 1]) >= 0)
        assert roc_auc_score(y, found[:, 1]) == pytest.approx(
            roc_auc_score(y, scores[:, 1] - scores[:, 0]), abs=1e-9
        )


@pytest.mark.parametrize(("noise", "apart"), [(0.0, 1.0), (40.0, 1.0), (0.0, 2.0), (40.0, 2.0)])
def test_probabilities_are_those_of_gaussian_classes(noise, apart):
    """Without noise Bayes' rule is found; with it, what is found is still calibrated."""
    rng = np.random.default_rng(1)
    Z, y, centres = gaussians(rng, 4000, apart=apart, shares=[0.7, 0.3])
    moments = noised(Moments.of(Z, np.eye(2)[y]), noise, rng)
    model = ridge(moments)
    found = calibrate(moments, model).probabilities(model.predict(Z))[:, 1]
    odds = (Z - centres.mean(axis=0)) @ (centres[1] - centres[0]) + np.log(0.3 / 0.7)
    truth = 1 / (1 + np.exp(-odds))
    assert found.mean() == pytest.approx(truth.mean(), abs=0.02)
    if noise == 0:
        assert np.abs(found - truth).mean() < 0.02
    for part in np.array_split(np.argsort(found), 5):
        assert found[part].mean() == pytest.approx(y[part].mean(), abs=0.05)


def test_without_the_correction_probabilities_are_overconfident():
    """Negative control: moments that deny their noise give a worse log loss."""
    rng = np.random.default_rng(2)
    D = 60
    Z, y, _ = gaussians(rng, 2000, D=D)
    exact = Moments.of(Z, np.eye(2)[y])
    honest, denied = [], []
    for _ in range(5):
        moments = noised(exact, 150.0, rng)
        model = ridge(moments)
        scores = model.predict(Z)
        blind = replace(moments, second_noise=0.0, cross_noise=0.0)
        honest.append(log_loss(y, calibrate(moments, model).probabilities(scores)[:, 1]))
        denied.append(log_loss(y, calibrate(blind, model).probabilities(scores)[:, 1]))
    assert np.mean(honest) < 0.66
    assert np.mean(denied) > np.mean(honest) + 0.05


def test_estimated_covariances_of_scores_are_right_on_average():
    rng = np.random.default_rng(3)
    Z, y, _ = gaussians(rng, 3000, C=3, D=8)
    Z -= Z.mean(axis=0)
    exact = Moments.of(Z, np.eye(3)[y])
    within = np.cov(Z.T, bias=True)
    bent, naive = [], []
    for _ in range(400):
        moments = noised(exact, 200.0, rng)
        model = ridge(moments)
        scores, cross = score_moments(moments, model)
        b = model.weights
        truth = np.trace(b.T @ within @ b), np.trace(b.T @ exact.centred().cross) / len(Z)
        bent.append([np.trace(scores) - truth[0], np.trace(cross) - truth[1]])
        naive.append(np.trace(b.T @ moments.centred().cross) / len(Z) - truth[1])
    mean, error = np.mean(bent, axis=0), np.std(bent, axis=0) / 20
    assert np.all(np.abs(mean) < 4 * error + 0.02 * np.array(truth))  # centring costs 1 %
    assert np.mean(naive) > 10 * error[1]  # negative control


def test_shares_of_classes_survive_noise_and_rare_classes():
    Z = np.zeros((1000, 1))
    exact = Moments.of(Z, np.eye(3)[[0] * 700 + [1] * 299 + [2]])
    np.testing.assert_allclose(class_shares(exact), [0.7, 0.299, 0.001])
    rng = np.random.default_rng(0)
    shares = class_shares(noised(exact, 0.0, rng, counts=30.0))
    assert shares.min() > 0.02
    assert shares.sum() == pytest.approx(1)
    equal = np.array([class_shares(noised(exact, 0.0, rng, counts=1e6)) for _ in range(20)])
    assert np.all(equal > 0)


def test_a_balanced_decision_from_the_release_wins_balanced_accuracy():
    rng = np.random.default_rng(5)
    Z, y, _ = gaussians(rng, 6000, apart=2.0, shares=[0.93, 0.07])
    moments = noised(Moments.of(Z, np.eye(2)[y]), 20.0, rng, counts=20.0)
    model = ridge(moments)
    logs = calibrate(moments, model).log_probabilities(model.predict(Z))
    plain, balanced = (
        balanced_accuracy_score(
            y, (logs + decision(moments, model, class_weight=weight)).argmax(axis=1)
        )
        for weight in (None, "balanced")
    )
    cuts = np.quantile(logs[:, 1], np.linspace(0, 1, 99))
    best = max(balanced_accuracy_score(y, logs[:, 1] > cut) for cut in cuts)
    assert balanced > plain + 0.1
    assert balanced > best - 0.02


def test_decisions_check_their_weights():
    moments = Moments.of(np.arange(4.0)[:, None], np.eye(2)[[0, 0, 0, 1]])
    model = ridge(moments)
    named = decision(moments, model, class_weight={"ill": 3.0}, classes=["healthy", "ill"])
    np.testing.assert_allclose(named, [0, np.log(3)])
    for wrong in ("equal", {"dead": 1.0}, {"ill": 0.0}, {"ill": np.nan}):
        with pytest.raises(ValueError, match="class_weight"):
            decision(moments, model, class_weight=wrong, classes=["healthy", "ill"])


@pytest.mark.parametrize("kind", ["classes", "numbers"])
@pytest.mark.parametrize("noise", [0.0, 30.0])
def test_nothing_to_learn_is_noticed_and_something_is(kind, noise):
    rng = np.random.default_rng(7)
    null, good = [], []
    for _ in range(60):
        Z, y, _ = gaussians(rng, 500, D=25, apart=2.0)
        other = rng.permutation(y)
        for labels, found in ((other, null), (y, good)):
            outputs = np.eye(2)[labels] if kind == "classes" else labels[:, None] - 0.5
            add = noised if kind == "classes" else noised_numbers
            moments = add(Moments.of(Z, outputs), noise, rng)
            model = ridge(moments) if kind == "classes" else bayesian(moments)
            assert are_classes(moments) == (kind == "classes")
            found.append(signal_to_noise(moments, model))
    assert np.mean(np.array(null) < SIGNAL_LIMIT) >= 0.95
    assert np.min(good) > SIGNAL_LIMIT


def test_the_share_of_noise_raises_the_ridge():
    rng = np.random.default_rng(0)
    Z, y, _ = gaussians(rng, 500, D=30)
    exact = Moments.of(Z, np.eye(2)[y])
    little, much = (noised(exact, noise, np.random.default_rng(1)) for noise in (2.0, 200.0))
    assert noise_share(exact) == 0
    assert noise_share(little) < 0.1
    assert noise_share(much) > 0.6
    assert ridge(much).regularization[0] > 200 * ridge(little).regularization[0]

"""Curves of columns from a release: their bands cover a known additive truth."""

import numpy as np
import pytest

from permea.models.explanation import explain, plot_effects
from permea.models.linear import bayesian, ridge
from permea.privacy.moments import Moments

P, K = 6, 5  # columns, bins
GROUPS = {f"x{i}": slice(K * i, K * i + K) for i in range(P)}
NAMES = [f"x{i}_{k}" for i in range(P) for k in range(K)]


def people(rng, n):
    """Rows of one-hot columns, and curves of which the last two are flat."""
    Z = np.eye(K)[rng.integers(K, size=(n, P))].reshape(n, -1) / np.sqrt(P)
    curves = rng.normal(size=(P, K))
    curves -= curves.mean(axis=1, keepdims=True)
    curves[-2:] = 0
    return Z, curves


def noised(Z, Y, noise, rng):
    exact, D = Moments.of(Z - 1 / K / np.sqrt(P), Y), Z.shape[1]
    E = rng.normal(size=(D, D)) * noise
    cross = exact.cross + rng.normal(size=exact.cross.shape) * noise
    classes = Y.shape[1] > 1
    total = cross.sum(axis=1) if classes else exact.total + rng.normal(size=D) * noise
    return Moments(
        exact.second + (E + E.T) / 2, cross, total, exact.outputs, exact.squares, exact.size,
        noise, noise, 0.0,
    )  # fmt: skip


@pytest.mark.parametrize("learn", [ridge, bayesian])
@pytest.mark.parametrize("noise", [0.0, 2.0, 6.0])
def test_bands_cover_the_truth_over_repeated_releases(learn, noise):
    rng = np.random.default_rng(int(noise))
    inside, blind, found, order = [], [], [], []
    for _ in range(25):
        Z, curves = people(rng, 2000)
        y = np.sqrt(P) * Z @ curves.ravel() + rng.normal(size=len(Z))
        moments = noised(Z, y[:, None], noise, rng)
        effects = explain(
            moments, learn(moments), GROUPS, NAMES, mean=np.full(P * K, 1 / K / np.sqrt(P)),
            unit=1 / np.sqrt(P),
        )  # fmt: skip
        for effect in effects:
            error = np.abs(effect.values[:, 0] - curves[int(effect.column[1])])
            inside.append(np.mean(error <= 1.96 * effect.std[:, 0]))
            blind.append(np.mean(error <= 1.96 / np.sqrt(2000 / K)))  # sampling alone
        found.append({e.column for e in effects[-2:]} == {"x4", "x5"})
        order.append(np.max([e.importance[0] - 3 * e.noise[0] for e in effects[-2:]]))
    assert 0.91 <= np.mean(inside) <= 0.999
    assert np.mean(found) > 0.85
    assert np.mean(np.array(order) < 0.05) > 0.9
    if noise > 2:
        assert np.mean(blind) < 0.9  # negative control: a band without the noise


def test_effects_of_classes_are_log_odds():
    rng = np.random.default_rng(0)
    Z, curves = people(rng, 60_000)
    odds = 0.7 * np.sqrt(P) * Z @ curves.ravel()
    y = (rng.random(len(Z)) < 1 / (1 + np.exp(-odds))).astype(int)
    moments = noised(Z, np.eye(2)[y], 2.0, rng)
    effects = explain(
        moments, ridge(moments), GROUPS, NAMES, mean=np.full(P * K, 1 / K / np.sqrt(P)),
        unit=1 / np.sqrt(P),
    )  # fmt: skip
    for effect in effects:
        truth = 0.7 * curves[int(effect.column[1])]
        np.testing.assert_allclose(effect.values[:, 0], truth, atol=0.2)
        assert effect.importance[0] == pytest.approx(truth.std(), abs=0.1)
    three = explain(
        noised(Z, np.eye(3)[y + (Z[:, 0] > 0)], 2.0, rng),
        ridge(noised(Z, np.eye(3)[y + (Z[:, 0] > 0)], 2.0, rng)), GROUPS, NAMES,
    )  # fmt: skip
    assert three[0].values.shape == (K, 3)


def test_a_picture_has_a_panel_per_column():
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    Z, curves = people(rng, 500)
    moments = noised(Z, (np.sqrt(P) * Z @ curves.ravel())[:, None], 1.0, rng)
    figure = plot_effects(explain(moments, ridge(moments), GROUPS, NAMES))
    assert sum(axis.get_visible() for axis in figure.axes) == P

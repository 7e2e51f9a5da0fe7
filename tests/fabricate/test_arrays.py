"""Arrays of numbers: parts of classes hide what classes hide, and are learned from the release."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from permea import HullClassifier, Ledger, Privacy, fabricate_records
from permea.fabricate.arrays import PartedHulls, learn_parts
from permea.privacy.moments import plan_moments
from permea.privacy.scatter import SQUARE_STEPS, ClassScatter, sum_scatter

PROMISE = Privacy(epsilon=8, delta=1e-5, unit="record", domain=(-1, 1))


def fitted(n_parts, epsilon=8.0, **settings):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    side = rng.choice([-1, 1], 4000)
    X = np.column_stack([0.5 * side, 0.3 * (2 * y - 1), 0.25 * side * (2 * y - 1)])
    X = np.clip(np.column_stack([X, np.zeros((4000, 3))]) + 0.1 * rng.normal(size=(4000, 6)), -1, 1)
    promise = Privacy(epsilon=epsilon, delta=1e-5, unit="record", domain=(-1, 1))
    model = PartedHulls(
        privacy=promise, features="identity", classes=[0, 1], n_directions=6, n_parts=n_parts,
        **settings,
    )  # fmt: skip
    return model.fit(X, y), X, y


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 4]))
def test_one_row_moves_the_scatter_of_all_parts_by_no_more_than_the_radius_squared(seed, n_parts):
    rng = np.random.default_rng(seed)
    plan = plan_moments(PROMISE, 5, 3, n_directions=4, n_parts=n_parts)
    model = PartedHulls(n_parts=n_parts)
    P = rng.normal(size=(5 + 3 * n_parts, 4)) * 10 ** rng.uniform(-2, 2)
    Z, Y = rng.normal(size=(7, 5)) * 10 ** rng.uniform(-3, 3), np.eye(3)[rng.integers(0, 3, 7)]
    Z = np.minimum(1.0, plan.radius / np.linalg.norm(Z, axis=1))[:, None] * Z
    parts = model._parts(Z, Y, P)
    assert np.array_equal(parts.reshape(7, 3, n_parts).sum(axis=2), Y)  # one part, of its class
    whole = sum_scatter(Z, parts, P, plan)
    fewer = sum_scatter(Z[1:], model._parts(Z[1:], Y[1:], P), P, plan)
    assert np.linalg.norm((whole - fewer) / SQUARE_STEPS) <= 1 + 1e-9
    turned = model._parts(np.asfortranarray(Z[::-1]), Y[::-1], P)[::-1]
    assert np.array_equal(parts, turned)  # of its row alone


def test_parts_add_up_to_classes_and_cost_the_same():
    four, one = fitted(4)[0], fitted(1)[0]
    assert four.scatter_.second.shape == (8, 7, 7)
    assert np.isclose(four.certificate_.privacy.epsilon, one.certificate_.privacy.epsilon)
    assert four.prepare(6).scales.scatter == pytest.approx(one.prepare(6).scales.scatter, rel=1e-3)


def test_two_clouds_of_a_class_are_found():
    model, X, y = fitted(2)
    rows, places = model.draw_rows(4000, np.random.default_rng(1))
    decoded = (rows + model.mean_) * np.sqrt(6)
    for label in (0, 1):
        drawn, real = decoded[places == label], X[y == label]
        assert np.abs(drawn.mean(axis=0) - real.mean(axis=0)).max() < 0.1
        assert np.mean(np.abs(drawn[:, 0]) < 0.2) < 0.1  # nothing between the clouds
    single, _, _ = fitted(1)
    mixed = (single.draw_rows(4000, np.random.default_rng(1))[0] + single.mean_) * np.sqrt(6)
    assert np.mean(np.abs(mixed[:, 0]) < 0.2) > 0.15


def test_without_noise_means_and_covariances_are_those_of_the_parts():
    rng = np.random.default_rng(0)
    Z, P = rng.normal(size=(3000, 3)), np.zeros((5, 4))
    P[:3, :3], P[3:, 3] = np.eye(3), 2.0
    Z[:1000] *= [1.0, 2.0, 3.0]
    Y = np.repeat(np.eye(2), [1000, 2000], axis=0)
    found, counts = learn_parts(ClassScatter.of(Z, Y, P), np.array([1000.0, 2000.0]))
    assert counts.tolist() == [1000, 2000]
    for label, rows in enumerate((Z[:1000], Z[1000:])):
        drawn = found.decode(found.draw(label, 5000, rng))
        assert np.allclose(drawn.mean(axis=0), rows.mean(axis=0), atol=0.02)
        assert np.allclose(np.cov(drawn.T), np.cov(rows.T), rtol=0.1, atol=0.15)


def test_images_are_drawn_with_contrast_and_stay_in_the_domain():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 1, (600, 12)) > 0.5, rng.integers(0, 2, 600)
    promise, ledger = Privacy(epsilon=8, delta=1e-5, unit="record", domain=(0, 1)), Ledger()
    made = [
        fabricate_records(
            X * 1.0, y, privacy=promise, classes=[0, 1], contrast=contrast, n_parts=2,
            n_directions=8, ledger=ledger, seed=0,
        )
        for contrast in (1.0, 3.0)
    ]  # fmt: skip
    grey = [np.mean((one.data > 0.1) & (one.data < 0.9)) for one in made]
    assert grey[1] < 0.7 * grey[0]
    assert all(one.data.min() >= 0 and one.data.max() <= 1 for one in made)
    assert len(ledger) == 2
    assert "2 parts of each class" in str(made[0].certificate)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [({"n_parts": 3}, "power of two"), ({"n_parts": 0}, "power of two"),
     ({"contrast": 0.5}, "at least 1"), ({"n_directions": 1, "n_parts": 4}, "n_directions")],
)  # fmt: skip
def test_bad_settings_are_refused_before_the_charge(wrong, reason):
    ledger = Ledger()
    with pytest.raises(ValueError, match=reason):
        fabricate_records(
            np.zeros((9, 4)), np.zeros(9), privacy=PROMISE, classes=[0, 1], ledger=ledger, **wrong
        )
    assert len(ledger) == 0


def test_parts_are_hulls():
    assert issubclass(PartedHulls, HullClassifier)
    with pytest.raises(ValueError, match="scatter"):
        PartedHulls().learn(type("Release", (), {"scatter": None})())

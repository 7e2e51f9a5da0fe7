"""Nearest released rows and hidden columns, with a holdout as baseline."""

import numpy as np
import pytest
from mechanisms import NearestRow

from permea.audit import attribute_attack, nearest_row_attack
from permea.audit.signals import class_probabilities


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 5))
    return X[:400], X[400:], rng


@pytest.mark.parametrize("ratio", [True, False])
def test_released_copies_are_found_and_fresh_rows_are_not(rows, ratio):
    members, outside, rng = rows
    copies = members + 0.05 * rng.normal(size=members.shape)
    assert nearest_row_attack(copies, members, outside, ratio=ratio).auc > 0.95
    fresh = nearest_row_attack(rng.normal(size=(400, 5)), members, outside, ratio=ratio)
    assert fresh.auc_interval[0] < 0.5 < fresh.auc_interval[1]


def test_hidden_column_from_released_rows(rows):
    members, outside, rng = rows
    y = np.zeros(400)
    copies = members + 0.01 * rng.normal(size=members.shape)
    leaky = attribute_attack(copies, members, y, outside, y, column=2)
    assert leaky.member_error < 0.05
    assert leaky.gain_interval[0] > 0.5
    fresh = attribute_attack(rng.normal(size=(400, 5)), members, y, outside, y, column=2)
    assert fresh.gain_interval[0] < 0.0 < fresh.gain_interval[1]


def test_a_column_that_everybody_can_guess_is_no_leak():
    """The column follows from the others: guessed well for strangers too, so the gain is zero."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1200, 3))
    X[:, 2] = X[:, 0]
    y = np.zeros(400)
    found = attribute_attack(X[800:], X[:400], y, X[400:800], y, column=2)
    assert found.member_error < 0.3
    assert found.gain_interval[0] < 0.0 < found.gain_interval[1]


def test_hidden_column_from_a_model(rows):
    members, outside, _ = rows
    y = np.arange(400) % 2
    clf = NearestRow().fit(members, y)
    assert attribute_attack(clf, members, y, outside, y, column=0).gain_interval[0] > 0.3


def test_probabilities_from_distances_are_free_of_scale(rows):
    members, outside, _ = rows
    y = np.arange(400) % 3
    plain = class_probabilities(NearestRow().fit(members, y), outside)
    scaled = class_probabilities(NearestRow().fit(10 * members, y), 10 * outside)
    assert np.allclose(plain, scaled)
    assert np.allclose(plain.sum(axis=1), 1.0)


def test_too_few_released_rows():
    with pytest.raises(ValueError, match="two rows"):
        nearest_row_attack([[1.0]], [[1.0]], [[2.0]])

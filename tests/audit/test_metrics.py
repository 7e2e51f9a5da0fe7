"""Rates and intervals against known answers and simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm
from sklearn.metrics import roc_auc_score

from permea.audit.metrics import (
    auc,
    auc_interval,
    best_threshold,
    clopper_pearson,
    evaluate,
    roc,
    tpr_at_fpr,
)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    a=st.lists(st.integers(0, 6), min_size=1, max_size=30),
    b=st.lists(st.integers(0, 6), min_size=1, max_size=30),
)
def test_auc_with_ties_is_scikit_learns(a, b):
    truth = np.r_[np.ones(len(a)), np.zeros(len(b))]
    assert auc(a, b) == pytest.approx(roc_auc_score(truth, a + b))
    false, true = roc(a, b)
    assert np.trapezoid(true, false) == pytest.approx(auc(a, b))


@pytest.mark.parametrize(("k", "n"), [(0, 10), (3, 10), (10, 10), (500, 1000)])
def test_clopper_pearson_ends_have_the_stated_tail(k, n):
    low, high = clopper_pearson(k, n)
    assert binom.sf(k - 1, n, low) == pytest.approx(0.025 if k else 1.0)
    assert binom.cdf(k, n, high) == pytest.approx(0.025 if k < n else 1.0)


@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0])
def test_auc_interval_covers(shift):
    rng = np.random.default_rng(0)
    truth = norm.cdf(shift / np.sqrt(2))
    repeats = 600
    missed = 0
    for _ in range(repeats):
        low, high = auc_interval(auc(rng.normal(shift, 1, 80), rng.normal(0, 1, 120)), 80, 120)
        missed += not low <= truth <= high
    # At a true coverage of 95 % more than 60 misses have probability below 1e-6.
    assert binom.sf(60, repeats, 0.05) < 1e-6
    assert missed <= 60


def test_auc_interval_keeps_a_width_at_the_ends():
    low, high = auc_interval(1.0, 50, 50)
    assert 0.85 < low < 0.99
    assert high == 1.0
    assert auc_interval(0.0, 50, 50) == pytest.approx((0.0, 1 - low))


def test_tpr_is_read_without_interpolation():
    outside = np.arange(100.0)
    members = np.array([98.5, 99.5, 100.5, 0.0])
    assert tpr_at_fpr(members, outside, 0.01) == 0.75
    assert tpr_at_fpr(members, outside, 0.001) == 0.5


def test_best_threshold_separates_and_lies_between():
    assert best_threshold([3.0, 4.0], [1.0, 2.0]) == 2.5


def test_a_threshold_fitted_on_scored_noise_would_flatter():
    """Why thresholds are fitted elsewhere: on the scored rows noise looks like a leak."""
    rng = np.random.default_rng(0)
    honest, flattering = [], []
    for _ in range(200):
        a, b, a2, b2 = rng.normal(size=(4, 30))
        honest.append(evaluate("x", a, b, threshold=best_threshold(a2, b2)).accuracy)
        flattering.append(evaluate("x", a, b, threshold=best_threshold(a, b)).accuracy)
    assert abs(np.mean(honest) - 0.5) < 0.03
    assert np.mean(flattering) > 0.57


def test_evaluate_counts_and_splits_by_class():
    y = np.array([0] * 10 + [1] * 10)
    member, outside = np.r_[np.ones(10), np.arange(10)], np.r_[np.zeros(10), np.arange(10)]
    result = evaluate("x", member, outside, threshold=0.5, y_member=y, y_outside=y)
    assert result.per_class == {"0": 1.0, "1": 0.5}
    assert result.advantage == pytest.approx(19 / 20 - 9 / 20)
    assert result.accuracy == pytest.approx(0.5 + result.advantage / 2)
    assert result.accuracy_interval[0] < result.accuracy < result.accuracy_interval[1]
    assert not evaluate("x", np.ones(5), np.ones(5), threshold=0).applies

"""The wall itself: clipping, grid, float types, errors, memory, records."""

import copy
import json
import math
import pickle
import sys
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_checks import has_mean, refutes

from permea.privacy import (
    Budget,
    BudgetExceededError,
    Certificate,
    Ledger,
    OptimalNoise,
    Privacy,
    release,
    release_pair,
)
from permea.privacy.release import plan

UNIT = Privacy(epsilon=1.0, delta=1e-5, domain=(0, 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_type_and_shape_are_kept(dtype):
    X = np.random.default_rng(0).random((50, 4)).astype(dtype)
    before = X.copy()
    out = release(X, UNIT)
    assert out.data.dtype == dtype
    assert out.data.shape == X.shape
    np.testing.assert_array_equal(X, before)


def test_whole_numbers_become_floats():
    assert (
        release(np.arange(6).reshape(3, 2), Privacy(epsilon=1, domain=(0, 9))).data.dtype == float
    )


def test_seed_repeats_and_no_seed_does_not():
    X = np.full((20, 3), 0.5)
    one, two = release(X, UNIT, random_state=3), release(X, UNIT, random_state=3)
    np.testing.assert_array_equal(one.data, two.data)
    assert not one.certificate.is_private
    assert "not private: seeded" in str(one.certificate)
    assert not np.array_equal(release(X, UNIT).data, release(X, UNIT).data)
    assert release(X, UNIT).certificate.is_private


def test_values_outside_the_domain_are_clipped():
    inside, outside = np.array([[0.0, 1.0]]), np.array([[-1e300, 7.5]])
    same = [release(X, UNIT, random_state=1).data for X in (inside, outside)]
    np.testing.assert_array_equal(*same)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_after_the_ledger_is_charged(bad):
    X = np.zeros((3, 2))
    X[1, 1] = bad
    ledger = Ledger()
    with pytest.raises(ValueError, match="NaN or infinity"):
        release(X, UNIT, ledger=ledger)
    assert [event.status for event in ledger.events] == ["charged"]


@pytest.mark.parametrize("X", [np.zeros(3), np.zeros((0, 2)), np.array([["a", "b"]])])
def test_what_is_no_matrix_of_numbers_is_refused(X):
    with pytest.raises((TypeError, ValueError), match="must be"):
        release(X, UNIT)


def test_expected_magnitude_is_that_of_the_documents():
    """E|v| = (1 - δ) d / ε: 002 (2.85), for several ε, δ and d."""
    for seed, (epsilon, delta, width) in enumerate([(1, 0.0, 1), (0.5, 0.1, 4), (8, 1e-5, 255)]):
        privacy = Privacy(epsilon=epsilon, delta=delta, domain=(0, width))
        X = np.full((100_000, 2), width / 2)
        added = np.abs(release(X, privacy, random_state=seed).data - X).ravel()
        mean = (1 - delta) * width / epsilon
        variance = 2 * (1 - delta) * (width / epsilon) ** 2 - mean**2
        assert has_mean(added, mean, variance)
        assert not has_mean(added, mean / 2, variance)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(data=st.data(), resolution=st.sampled_from([2, 3, 1000, 2**20]))
def test_sensitivity_on_the_grid(data, resolution):
    """No pair of neighbours is further apart than what the noise is calibrated to."""
    width = data.draw(st.floats(1e-3, 1e6))
    bound = width * data.draw(st.floats(0.01, 1.0))
    low = data.draw(st.floats(-1e6, 1e6))
    privacy = Privacy(epsilon=1, domain=(low, low + width), bound=min(bound, (low + width) - low),
                      resolution=resolution)  # fmt: skip
    work = plan(privacy, 1)
    x = low + width * np.array(data.draw(st.lists(st.floats(0, 1), min_size=1, max_size=50)))
    moved = x + privacy.bounds(1)[0]
    steps = work.to_steps(np.stack([x, moved])[:, :, None].reshape(-1, 1)).reshape(2, -1)
    assert np.abs(steps[1] - steps[0]).max() <= work.sensitivity
    assert steps.min() >= 0
    assert steps.max() <= work.ceiling[0]


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    mechanism=st.sampled_from(["optimal", "gaussian"]),
    low=st.sampled_from([-1.0, 0.0, 0.5]),
    clip=st.sampled_from([None, 0.3, 2.0]),
)
def test_sensitivity_of_records(seed, mechanism, low, clip):
    rng = np.random.default_rng(seed)
    lows, highs = np.full(5, low), low + np.array([1.0, 2.0, 0.5, 3.0, 1.0])
    privacy = Privacy(epsilon=1, delta=1e-3, unit="record", domain=(lows, highs),
                      mechanism=mechanism, clip_norm=clip)  # fmt: skip
    work = plan(privacy, 5)
    ends = np.where(rng.random((200, 5)) < 0.5, lows, highs)
    rows = np.concatenate([ends, lows + (highs - lows) * rng.random((200, 5))])
    steps = work.to_steps(rows).astype(float)
    apart = steps[:, None, :] - steps[None, :, :]
    norm = np.linalg.norm(apart, ord=2 if mechanism == "gaussian" else 1, axis=2)
    assert norm.max() <= work.sensitivity
    if clip is None:
        assert norm.max() > 0.4 * work.sensitivity  # and not wastefully far from it


def test_columns_are_noised_in_proportion_to_their_domains():
    privacy = Privacy(epsilon=1, domain=([0, -10], [1, 10]))
    added = release(np.zeros((100_000, 2)), privacy, random_state=0).data
    for column, width in zip(added.T, (1, 20), strict=True):
        assert has_mean(np.abs(column), width, width**2)


def test_records_are_noised_for_the_diameter_of_a_row():
    n, p = 40_000, 4
    laplace = Privacy(epsilon=2, unit="record", domain=(0, 1))
    added = release(np.zeros((n, p)), laplace, random_state=0).data.ravel()
    assert has_mean(np.abs(added), p / 2, (p / 2) ** 2)
    gaussian = Privacy(epsilon=2, delta=1e-5, unit="record", domain=(0, 1), mechanism="gaussian")
    work = plan(gaussian, p)
    added = release(np.zeros((n, p)), gaussian, random_state=0).data.ravel()
    sigma = work.sigma / gaussian.steps
    assert has_mean(added**2, sigma**2, 2 * sigma**4)
    assert sigma == pytest.approx(work.noise.sigma, rel=1e-4)


def test_record_release_is_not_refuted_on_a_whole_row():
    """Both entries of a row change at once; the likeliest direction is their sum."""
    privacy = Privacy(epsilon=1.0, unit="record", domain=(0, 1))
    sums = [
        release(np.full((300_000, 2), x), privacy, random_state=seed).data.sum(axis=1)
        for seed, x in ((0, 0.0), (1, 1.0))
    ]
    assert not refutes(*sums, 1.0, 0.0)
    entry = Privacy(epsilon=1.0, unit="entry", domain=(0, 1))
    sums = [
        release(np.full((300_000, 2), x), entry, random_state=seed).data.sum(axis=1)
        for seed, x in ((0, 0.0), (1, 1.0))
    ]
    assert refutes(*sums, 1.0, 0.0)  # per entry is not per record


def test_clipping_to_a_public_norm():
    privacy = Privacy(epsilon=1e3, unit="record", domain=(0, 1), clip_norm=1.0)
    work = plan(privacy, 3)
    steps = work.to_steps(np.array([[1.0, 1.0, 1.0], [0.1, 0.2, 0.3]])) * work.grid
    np.testing.assert_allclose(steps[0], 1 / 3, atol=1e-5)
    np.testing.assert_allclose(steps[1], [0.1, 0.2, 0.3], atol=1e-5)


def test_memory_does_not_grow_with_the_data():
    X = np.zeros((4000, 784), dtype=np.float32)
    release(X[:10], UNIT)  # tables are built once
    tracemalloc.start()
    out = release(X, UNIT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * out.data.nbytes + 12e6


def test_grids_that_are_too_fine_are_refused():
    with pytest.raises(ValueError, match="too wide for its grid"):
        release(np.zeros((2, 1)), Privacy(epsilon=1, domain=(0, 1e12), bound=1.0))


def test_declared_columns_must_match():
    with pytest.raises(ValueError, match="declared for 2 columns, the data have 3"):
        release(np.zeros((2, 3)), Privacy(epsilon=1, domain=([0, 0], [1, 1])))


def test_pairs_are_noised_with_their_own_bounds():
    n = 50_000
    pair = release_pair(
        np.zeros((n, 2)), np.zeros((n, 1)),
        Privacy(epsilon=1, domain=(0, 1)), Privacy(epsilon=2, domain=(0, 10)), random_state=0,
    )  # fmt: skip
    assert has_mean(np.abs(pair.inputs.data).ravel(), 1, 1)
    assert has_mean(np.abs(pair.outputs.data).ravel(), 5, 25)
    assert not np.array_equal(pair.inputs.data[:, 0], pair.outputs.data[:, 0])


def test_pairs_cost_the_larger_promise_per_entry_and_the_sum_per_record():
    promises = Privacy(epsilon=1, domain=(0, 1)), Privacy(epsilon=2, delta=1e-3, domain=(0, 10))
    per_entry, per_record = Ledger(), Ledger(Budget(epsilon=100, delta=0.1, unit="record"))
    for ledger in (per_entry, per_record):
        pair = release_pair(np.zeros((3, 2)), np.zeros((3, 1)), *promises, ledger=ledger)
    assert (per_entry.spent.epsilon, per_entry.spent.delta) == (2.0, 1e-3)
    assert (per_record.spent.epsilon, per_record.spent.delta) == (4.0, 1e-3)
    assert pair.inputs.certificate.simple_record_epsilon == 4.0
    with pytest.raises(ValueError, match="same unit"):
        release_pair(np.zeros((3, 2)), np.zeros((3, 1)), promises[0],
                     Privacy(epsilon=1, unit="record", domain=(0, 1)))  # fmt: skip
    with pytest.raises(ValueError, match="same number of rows"):
        release_pair(np.zeros((3, 2)), np.zeros((2, 1)), *promises)


def test_budget_is_checked_before_anything_is_computed(monkeypatch):
    ledger = Ledger(Budget(epsilon=1.5, delta=1e-4, unit="entry"))
    release(np.zeros((2, 2)), UNIT, ledger=ledger)

    def touched(*args, **kwargs):
        raise AssertionError("noise was computed after the budget was spent")

    module = sys.modules[plan.__module__]  # the package offers the function of the same name
    monkeypatch.setattr(module, "_noised", touched)
    monkeypatch.setattr(module, "bit_source", touched)
    with pytest.raises(BudgetExceededError, match="Nothing was computed"):
        release(np.zeros((2, 2)), UNIT, ledger=ledger)
    assert len(ledger) == 1


def test_float_sampler_works_and_says_what_it_is():
    privacy = Privacy(epsilon=1, delta=0.1, domain=([0, 0], [1, 4]), sampler="float")
    out = release(np.zeros((50_000, 2)), privacy, random_state=0)
    assert has_mean(np.abs(out.data[:, 1]), 0.9 * 4, (2 * 0.9 - 0.81) * 16)
    certificate = release(np.zeros((2, 2)), privacy).certificate
    assert certificate.is_weakened
    assert "WEAKER" in str(certificate)


def test_certificate_of_a_release():
    certificate = release(np.zeros((100, 784)), UNIT, n_classes=10).certificate
    assert certificate.exposed_entries == pytest.approx(0.784)
    assert certificate.simple_record_epsilon == pytest.approx(784)
    assert certificate.record_epsilon < 400
    assert certificate.record_delta == pytest.approx(784e-5 + 1e-6)
    text = str(certificate)
    told = "per entry; per record; labels; size of each class; 10 classes; number of rows"
    told += "; cryptographic; declared; expected to be released"
    for expected in told.split("; "):
        assert expected in text


def test_narrow_bound_is_not_mistaken_for_a_record():
    """A record may change by the whole domain although an entry is protected for less."""
    narrow = Privacy(epsilon=1, domain=(0, 1), bound=0.1)
    certificate = release(np.zeros((2, 5)), narrow).certificate
    assert certificate.simple_record_epsilon == pytest.approx(50, rel=1e-3)


def test_many_different_columns_stay_an_upper_bound():
    widths = np.linspace(1, 50, 40)
    privacy = Privacy(epsilon=0.1, domain=(np.zeros(40), widths), bound=np.ones(40))
    certificate = release(np.zeros((2, 40)), privacy).certificate
    assert certificate.simple_record_epsilon >= 0.1 * widths.sum() * (1 - 1e-6)
    assert certificate.simple_record_epsilon <= 0.1 * widths.sum() * 1.5


def test_certificate_survives_json_and_grows_by_steps():
    gaussian = Privacy(epsilon=1, delta=1e-5, domain=(0, 1), mechanism="gaussian")
    for privacy in (UNIT, gaussian):
        certificate = release(np.zeros((3, 2)), privacy, ledger=Ledger()).certificate
        longer = certificate.add_step("smoothed twice").add_step("k-means on noised rows")
        assert certificate.steps == ()
        assert longer.steps == ("smoothed twice", "k-means on noised rows")
        assert longer.is_private
        assert Certificate.from_dict(json.loads(longer.to_json())) == longer
        assert "smoothed twice" in str(longer)
        void = longer.void("the stopping rule read the original rows")
        assert not void.is_private
        assert "not private: the stopping rule" in str(void)
        assert json.loads(void.to_json())["is_private"] is False


def test_foreign_certificates_are_refused():
    values = release(np.zeros((3, 2)), UNIT).certificate.to_dict()
    with pytest.raises(ValueError, match="newer format"):
        Certificate.from_dict({**values, "schema": 99})
    with pytest.raises(ValueError, match="unknown"):
        Certificate.from_dict({**values, "surprise": 1})
    with pytest.raises(ValueError, match="informs nobody"):
        Certificate.from_dict(values).add_step("  ")


def test_certificate_and_privacy_are_values():
    certificate = release(np.zeros((3, 2)), UNIT).certificate
    for value in (certificate, UNIT):
        assert copy.deepcopy(value) == value
        assert pickle.loads(pickle.dumps(value)) == value
        assert hash(value) == hash(copy.copy(value))
    assert math.isclose(plan(UNIT, 2).noise.expected_magnitude(),
                        OptimalNoise(1.0, 1e-5).expected_magnitude())  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"seeded": 2**31}, {"seeded": None}, {"seeded": -3}, {"void_reasons": 0},
        {"void_reasons": [1]}, {"n_rows": "x"}, {"n_rows": -1}, {"noise": ["loud"]},
        {"record_epsilon": float("nan")}, {"privacy": None}, {"privacy": {"epsilon": []}},
        {"classes": []}, {"ledger_number": 1.5}, {"noise": "x" * 10**6},
    ],
)  # fmt: skip
def test_a_certificate_from_outside_has_values_of_the_right_type(changes):
    """A number in place of a truth value filled the memory."""
    values = release(np.zeros((3, 2)), UNIT).certificate.to_dict()
    assert not Certificate.from_dict(values).is_verified
    with pytest.raises(ValueError, match=r"certificate|epsilon|privacy"):
        Certificate.from_dict({**values, **changes})


@pytest.mark.parametrize("values", [None, [], "PRIVATE", 7])
def test_what_is_no_table_is_no_certificate(values):
    with pytest.raises(ValueError, match="Not a certificate"):
        Certificate.from_dict(values)


def test_the_name_of_rows_is_found_without_a_warning_about_their_values():
    huge = np.full((3, 2), 0.5, dtype=np.longdouble)
    huge[1, 1] = np.finfo(np.longdouble).max
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Ledger().name_for(None, huge)


def test_a_budget_is_no_truth_value():
    with pytest.raises(TypeError, match="truth"):
        Budget(epsilon=True)

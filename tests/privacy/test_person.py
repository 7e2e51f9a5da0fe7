"""All rows of a person together move the sums no further than one row may."""

import decimal
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_checks import refutes
from scipy import optimize

from permea import MomentClassifier
from permea.privacy import Certificate, Privacy
from permea.privacy.moments import (
    LARGEST_GROUP,
    MEAN_STEPS,
    SQUARE_STEPS,
    ChargedMoments,
    count_rows,
    plan_moments,
    row_weights,
    sum_features,
    sum_moments,
)
from permea.privacy.people import count_people

PERSON = Privacy(epsilon=1.0, delta=1e-5, unit="person")
RELATIONS = ("replace", "add/remove")


def statistic(plan, Z, Y, weights):
    """The released vector without noise, each part divided by its noise: distances are mu."""
    sums = sum_moments(Z, Y, plan, weights)
    above = np.triu_indices(plan.n_features, 1)
    parts = [
        np.diag(sums.second) / plan.scales.second,
        math.sqrt(2) * sums.second[above] / plan.scales.second,
        sums.cross.ravel() / plan.scales.cross,
        sums.counts / plan.scales.counts,
    ]
    first = sum_features(Z, plan, weights)
    size = first.weight / 2**32 if plan.weighted else first.n_units
    parts = [np.concatenate(parts) / SQUARE_STEPS, first.features / MEAN_STEPS / plan.scales.mean]
    return np.concatenate([*parts, [size / plan.scales.size]])


def random_person(rng, plan, weighted):
    m = int(rng.choice([1, 2, 3, 7, 200]))
    Z = rng.normal(size=(m, plan.n_features)) * rng.choice([1e-3, 1.0, 1e6], size=(m, 1))
    if rng.random() < 0.5:  # all rows alike: the largest sums
        Z[:] = Z[0]
    labels = np.full(m, rng.integers(2)) if rng.random() < 0.5 else rng.integers(2, size=m)
    if plan.outputs == "classes":
        Y = np.eye(plan.n_outputs)[labels]
    else:
        Y = rng.choice([-9, -0.3, 0.2, 9], size=(m, plan.n_outputs))
        Y[:, 0] = 1.0
    own = rng.choice([1.0, 0.3, 1e-7, 0.0], size=m) if weighted else 1.0
    return Z, Y, np.full(m, 1.0 / m) * own


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("outputs", ["classes", "numbers"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    weighted=st.booleans(),
    unit=st.sampled_from(["person", "record"]),
    shares=st.tuples(*[st.floats(0.02, 1.0)] * 4),
)
def test_a_person_adds_at_most_what_a_row_may(neighbours, outputs, seed, weighted, unit, shares):
    rng = np.random.default_rng(seed)
    plan = plan_moments(
        replace(PERSON, unit=unit), 3, 3, outputs=outputs, neighbours=neighbours,
        split=tuple(np.array(shares) / sum(shares)), weighted=weighted,
    )  # fmt: skip
    one, other = (random_person(rng, plan, weighted) for _ in range(2))
    if unit == "record":
        one, other = ((Z[:1], Y[:1], w[:1] * len(w)) for Z, Y, w in (one, other))
    change = statistic(plan, *one)
    if neighbours == "replace":
        change = change - statistic(plan, *other)
    assert np.linalg.norm(change) <= plan.mu(neighbours) * (1 + 1e-12)


@pytest.mark.parametrize("split", [(1e-6, 0.47, 0.48, 0.049999), (1e-6, 0.2, 0.6, 0.199999)])
def test_the_search_for_a_worse_person_ends_at_the_bound(split):
    """Two rows of one person against three of another, of any classes."""
    plan = plan_moments(PERSON, 2, 2, split=split)
    limit = plan.mu("replace")

    def moved(v, labels):
        Z, Y = v.reshape(5, 2) * 1e3, np.eye(2)[labels]
        change = statistic(plan, Z[:2], Y[:2], np.full(2, 1 / 2))
        return float(np.linalg.norm(change - statistic(plan, Z[2:], Y[2:], np.full(3, 1 / 3))))

    best = 0.0
    for labels in ([0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 1, 0, 0, 1]):
        for start in range(3):
            v = np.random.default_rng(start).normal(size=10)
            v = np.concatenate([np.tile(v[:2], 2), np.tile(v[2:4], 3)])
            found = optimize.minimize(
                lambda v, labels=labels: -moved(v, labels), v, method="Nelder-Mead",
                options={"maxiter": 600},
            )  # fmt: skip
            best = max(best, -found.fun)
    assert best <= limit
    assert best >= limit * 0.99


def test_truncated_weights_of_the_largest_person_stay_within_their_allowance():
    """Counts of 2¹⁶ - 1 rows fall short of a whole; all of it is in the bound."""
    plan = plan_moments(PERSON, 1, 2, split=(1e-6, 1e-6, 1e-6, 1 - 3e-6))
    m = LARGEST_GROUP - 1
    Y = np.tile(np.eye(2)[[0]], (m, 1))
    change = statistic(plan, np.zeros((m, 1)), Y, np.full(m, 1 / m))
    change = change - statistic(plan, np.zeros((1, 1)), Y[:1], np.ones(1))
    slack = plan.mu("replace") - plan_moments(
        replace(PERSON, unit="record"), 1, 2, split=plan.split
    ).mu("replace")
    assert 0 < np.linalg.norm(change) < 2.0**-15 / plan.scales.counts
    assert slack == pytest.approx(0, abs=1e-4)  # the allowance costs next to nothing


def test_forgotten_weights_are_refuted():
    """Negative control: every row of a person counts in full."""
    promise = replace(PERSON, epsilon=1.0, delta=1e-3)
    plan = plan_moments(promise, 2, 2, neighbours="add/remove", split=(1e-6, 0.5, 0.45, 0.049999))
    Z, Y = np.tile([[9.0, 0.0]], (4, 1)), np.eye(2)[[0] * 4]
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 200_000))
    kept = np.linalg.norm(statistic(plan, Z, Y, row_weights(["ann"] * 4)))
    forgotten = np.linalg.norm(statistic(plan, Z, Y, np.ones(4)))
    assert not refutes(noise[0] + kept, noise[1], 1.0, 1e-3)
    assert refutes(noise[0] + forgotten, noise[1], 1.0, 1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [1, 1000])
def test_a_person_moves_the_sums_by_her_own_term(dtype, m):
    rng = np.random.default_rng(m)
    plan = plan_moments(PERSON, 6, 3)
    groups = np.concatenate([rng.integers(40, size=9000), np.full(m, 99)])
    Z = (rng.normal(size=(len(groups), 6)) / 4).astype(dtype)
    Y = np.eye(3)[rng.integers(3, size=len(groups))]
    w = row_weights(groups)
    hers, order = groups == 99, rng.permutation(len(groups))
    whole = sum_moments(Z[order], Y[order], plan, row_weights(groups[order]))
    others = sum_moments(Z[~hers], Y[~hers], plan, row_weights(groups[~hers]))
    parts = others + sum_moments(Z[hers], Y[hers], plan, w[hers])
    for name in ("second", "cross", "counts", "weight"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))
    assert (whole.n_units, others.n_units) == (41, 40)
    mean = sum_features(Z[order], plan, w[order])
    apart = sum_features(Z[hers], plan, w[hers]) + sum_features(Z[~hers], plan, w[~hers])
    assert np.array_equal(mean.features, apart.features)
    assert mean.n_units == 41


def test_equal_rows_weigh_as_one():
    """A person whose rows are all alike counts as one row does, but for truncation."""
    plan, record = plan_moments(PERSON, 2, 2), plan_moments(replace(PERSON, unit="record"), 2, 2)
    z, y = np.array([[0.2, -0.1]]), np.eye(2)[[1]]
    many = sum_moments(np.tile(z, (4, 1)), np.tile(y, (4, 1)), plan, row_weights(list("aaaa")))
    once = sum_moments(z, y, record)
    for name in ("second", "cross", "counts"):
        difference = getattr(many, name) - getattr(once, name)
        assert np.abs(difference).max() <= 2**-14 * SQUARE_STEPS
    assert many.n_units == once.n_units == 1


def test_weights_of_chunks_are_those_of_the_whole():
    groups = np.random.default_rng(0).integers(30, size=500)
    counted = count_rows(groups[:200]) + count_rows(groups[200:])
    chunks = [row_weights(groups[:200], counted), row_weights(groups[200:], counted)]
    assert np.array_equal(np.concatenate(chunks), row_weights(groups))
    assert row_weights(["a", "b", "a"]).tolist() == [0.5, 1.0, 0.5]
    with pytest.raises(ValueError, match="not counted"):
        row_weights(["new"], counted)


@pytest.mark.parametrize(
    "groups", [[1.0, math.nan], ["a", ""], ["a", "  "], ["a", None], [["a"], ["b"]]]
)
def test_missing_persons_are_refused(groups):
    with pytest.raises(ValueError, match="without missing values"):
        row_weights(np.array(groups, dtype=object) if None in groups else groups)


def test_a_person_counts_once_however_her_id_is_written():
    """A reader of files may give numbers in one chunk and text in the next."""
    ids = np.array([7, 7.0, "7", " 7 ", "7.0", np.float32(7), np.int8(7), np.str_("7")], object)
    assert row_weights(ids).tolist() == [1 / 8] * 8
    assert count_people([*ids, "8", None]) == 2
    assert count_rows(ids[:2]) + count_rows(ids[2:]) == {"7": 8}
    rng = np.random.default_rng(0)
    X, y = rng.random((9, 2)), np.arange(9) % 2
    promise = Privacy(epsilon=1, delta=1e-5, unit="person", domain=(0, 1))
    model = MomentClassifier(privacy=promise, classes=[0, 1], features="identity")
    model.fit_chunks(lambda: [(X[:4], y[:4], [7, 7, 7, 8]), (X[4:], y[4:], ["7"] * 4 + ["8"])])
    assert model.certificate_.n_rows == 2


def test_a_float_that_stands_for_several_ids_is_none():
    """One fraction among ids of 17 digits makes a frame round all of them."""
    for ids in ([2.0**53, 1.5], [math.inf, 1.0], np.array([2**53 + 1, 0.5])):
        assert count_people(ids) <= 1
        with pytest.raises(ValueError, match="as text or integers"):
            row_weights(ids)
    assert row_weights([2**53, 2**53 + 1]).tolist() == [1.0, 1.0]


def test_ids_that_cannot_be_compared_cost_no_error_before_the_charge():
    for odd in (decimal.Decimal("sNaN"), {"Smith"}, np.zeros(2)):
        ids = np.empty(2, dtype=object)
        ids[0], ids[1] = odd, "ann"
        assert count_people(ids) <= 1
        with pytest.raises((ValueError, ArithmeticError)):
            row_weights(ids)


def test_pandas_missing_values_are_missing_persons():
    pandas = pytest.importorskip("pandas")
    for column in (pandas.array([1, None], dtype="Int64"), pandas.to_datetime(["2020-01-01", ""])):
        with pytest.raises(ValueError, match="without missing values"):
            row_weights(column)


def test_a_person_with_too_many_rows_is_refused():
    with pytest.raises(ValueError, match="more than 65536 rows"):
        row_weights(np.zeros(LARGEST_GROUP + 1))


def test_weights_that_the_plan_does_not_cover_are_refused():
    plan, weighted = (plan_moments(PERSON, 2, 2, weighted=choice) for choice in (False, True))
    record = plan_moments(replace(PERSON, unit="record"), 2, 2)
    Z = np.zeros((2, 2))
    with pytest.raises(ValueError, match="needs weights"):
        sum_features(Z, plan)
    for chosen, weights in ((plan, [0.4, 0.6]), (record, [0.5, 0.5]), (plan, [0.0, 1.0])):
        with pytest.raises(ValueError, match="weighted=True"):
            sum_features(Z, chosen, np.array(weights))
    for bad in ([2.0, 1.0], [-0.1, 1.0], [math.nan, 1.0], [1.0]):
        with pytest.raises(ValueError, match="one number in"):
            sum_features(Z, weighted, np.array(bad))
    assert sum_features(Z, weighted, np.array([0.4, 0.0])).weight == int(0.4 * 2**32)


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_the_certificate_speaks_of_persons(neighbours):
    rng = np.random.default_rng(0)
    plan = plan_moments(PERSON, 3, 2, neighbours=neighbours)
    groups = rng.integers(50, size=400)
    phi, Y, w = rng.random((400, 3)) / 3, np.eye(2)[rng.integers(2, size=400)], row_weights(groups)
    charged = ChargedMoments(plan)
    mean = charged.release_mean(sum_features(phi, plan, w))
    out = charged.release(sum_moments(phi - mean, Y, plan, w))
    text = " ".join(str(out.certificate).split())
    assert "all rows of one person" in text
    assert "times what one person adds" in text
    assert "ε = 1 per person" in text
    assert "declared by a schema" in text
    assert ("the number of persons and of features" in text) == (neighbours == "replace")
    assert ("whether there is a person at all" in text) == (neighbours == "add/remove")
    assert (out.moments.size == 50.0) == (neighbours == "replace")  # else it is noised
    assert Certificate.from_json(out.certificate.to_json()) == out.certificate

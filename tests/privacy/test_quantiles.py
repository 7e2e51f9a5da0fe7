"""Counts noised once, and the bin edges read off them: sensitivity, noise, account, accuracy."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_checks import refutes

from permea.privacy import Budget, BudgetExceededError, Certificate, Ledger, Privacy
from permea.privacy.counts import Codes, plan_counts, release_counts, sum_counts
from permea.privacy.gaussian import discrete_gaussian
from permea.privacy.quantiles import (
    BRANCHES,
    CELLS,
    consistent,
    edges_of,
    private_edges,
    tree_codes,
)
from permea.privacy.release import UnreadableRowsError
from permea.privacy.sampling import SeededBits
from permea.tables import Category, Number, Schema

PROMISE = Privacy(epsilon=1.0, delta=1e-5, unit="record", domain=(0, 1))
RELATIONS = ("replace", "add/remove")
LEVELS = [BRANCHES, BRANCHES**2, CELLS]


def vector(cells, plan, weights=None):
    """What rows add to all tables together, in units of one row."""
    parts = sum_counts(Codes(list(cells), weights), plan)
    return np.concatenate(parts).astype(float) / plan.steps


def most(plan):
    """What one unit may move, in units of one row."""
    return plan.loss.value * plan.sigma / plan.steps


@pytest.mark.parametrize("neighbours", RELATIONS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), m=st.integers(1, 40), other=st.integers(1, 40))
def test_no_person_moves_more_than_one_row_may(neighbours, seed, m, other):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, rng.integers(1, 5)).tolist()
    plan = plan_counts(PROMISE, sizes, neighbours=neighbours)
    one, two = (
        vector([rng.integers(-1, size, n) for size in sizes], plan, np.full(n, 1.0 / n))
        for n in (m, other)
    )
    moved = one - two if neighbours == "replace" else one
    assert np.linalg.norm(moved) <= most(plan)


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_the_worst_neighbours_reach_the_sensitivity(neighbours):
    plan = plan_counts(PROMISE, [2, 3, 4], neighbours=neighbours)
    one, two = (vector([np.array([cell])] * 3, plan) for cell in (0, 1))
    moved = one - two if neighbours == "replace" else one
    assert np.linalg.norm(moved) == pytest.approx(most(plan), rel=1e-9)


def test_the_cell_of_a_row_does_not_depend_on_other_rows():
    rng = np.random.default_rng(0)
    grid, values = np.geomspace(1e-3, 1e6, CELLS + 1), rng.lognormal(3, 4, 999)
    together = tree_codes(values, grid)
    for place in (0, 500, 998):
        alone = tree_codes(values[[place]], grid)
        assert all(a[0] == b[place] for a, b in zip(alone, together, strict=True))


def test_the_noise_has_the_promised_variance():
    plan = plan_counts(PROMISE, LEVELS)
    nobody = Codes([np.full(1, -1)] * 3)
    tables = release_counts(lambda: nobody, plan, description="counts", random_state=0).tables
    sample = np.concatenate(tables) * plan.steps / plan.sigma
    width = 6 * math.sqrt(2 / sample.size)  # six deviations; the control is a factor of 4 off
    assert abs(np.mean(sample**2) - 1) < width
    assert abs(np.mean((sample / 2) ** 2) - 1) > width


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_the_mechanism_is_not_refuted_and_its_broken_twins_are(neighbours):
    """Along the direction in which the worst neighbours differ, drawn with the real sampler."""
    promise = replace(PROMISE, delta=1e-3)
    plan = plan_counts(promise, [2, 2], neighbours=neighbours)
    one, two = (vector([np.array([cell])] * 2, plan) for cell in (0, 1))
    if neighbours == "add/remove":
        two = np.zeros_like(one)
    trials, direction = 200_000, (one - two) / np.linalg.norm(one - two)
    noise = discrete_gaussian(plan.sigma, 2 * trials * one.size, SeededBits(1)) / plan.steps
    here, there = noise.reshape(2, trials, -1) @ direction

    def refuted(scale=1.0, rows=1):
        return refutes(
            rows * (one @ direction) + scale * here,
            rows * (two @ direction) + scale * there,
            promise.epsilon, promise.delta,
        )  # fmt: skip

    assert not refuted()
    assert refuted(scale=0.5)
    assert refuted(rows=3)  # a person with three rows of weight 1 each


# --- the account ---


def released(plan, **options):
    rng = np.random.default_rng(0)
    codes = Codes([rng.integers(size, size=200) for size in plan.sizes])
    return release_counts(lambda: codes, plan, description="bin edges", **options)


def test_the_charge_comes_before_the_rows_are_read():
    plan, ledger = plan_counts(PROMISE, [4]), Ledger(Budget(epsilon=1, delta=1e-5, unit="record"))

    def unreadable():
        assert len(ledger) == 1
        raise ValueError("Smith")

    with pytest.raises(UnreadableRowsError) as caught:
        release_counts(unreadable, plan, description="counts", ledger=ledger)
    assert "Smith" not in str(caught.value)
    with pytest.raises(BudgetExceededError):
        released(plan, ledger=ledger)
    assert len(ledger) == 1


def test_add_remove_is_charged_for_a_replaced_row():
    plan, ledger = plan_counts(PROMISE, [4], neighbours="add/remove"), Ledger()
    counts = released(plan, ledger=ledger)
    assert 1.3 < ledger.spent.epsilon < 2.1
    assert "replaced instead" in str(counts.certificate)
    sizes = {released(plan, random_state=seed).certificate.n_rows for seed in range(5)}
    assert len(sizes) > 1  # noised


def test_the_certificate_says_what_was_released():
    counts = released(plan_counts(PROMISE, [4, 4]))
    assert counts.certificate.is_private
    assert counts.certificate.n_rows == 200
    assert "bin edges" in str(counts.certificate)
    assert Certificate.from_json(counts.certificate.to_json()) == counts.certificate
    assert not released(plan_counts(PROMISE, [4]), random_state=0).certificate.is_private


@pytest.mark.parametrize(
    ("privacy", "options", "message"),
    [
        (Privacy(epsilon=1, delta=1e-5, domain=(0, 1)), {}, "unit='record'"),
        (Privacy(epsilon=1, unit="record", domain=(0, 1)), {}, "delta > 0"),
        (PROMISE, {"neighbours": "near"}, "neighbours"),
        (PROMISE, {"sizes": []}, "nothing to count"),
        (replace(PROMISE, sampler="float"), {}, "sampler"),
    ],
)
def test_what_cannot_be_promised_is_refused(privacy, options, message):
    with pytest.raises(ValueError, match=message):
        plan_counts(privacy, **{"sizes": [4], **options})


# --- after the noise ---


def test_consistent_counts_are_the_least_squares_solution():
    """Known answer by the normal equations, for a tree of two levels."""
    rng = np.random.default_rng(0)
    levels = [rng.normal(size=BRANCHES), rng.normal(size=BRANCHES**2)]
    sums = np.kron(np.eye(BRANCHES), np.ones((1, BRANCHES)))
    design = np.vstack([sums, np.eye(BRANCHES**2)])
    expected = np.linalg.lstsq(design, np.concatenate(levels), rcond=None)[0]
    assert np.allclose(consistent(levels), expected)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    bins=st.integers(2, 64),
    kind=st.sampled_from(["noise", "one value", "normal", "nobody"]),
)
def test_edges_increase_strictly_inside_the_range(seed, bins, kind):
    rng = np.random.default_rng(seed)
    low, width = rng.normal(scale=100), rng.uniform(1e-3, 1e6)
    grid = np.linspace(low, low + width, CELLS + 1)
    values = {
        "noise": rng.uniform(low, low + width, 50),
        "one value": np.full(500, low + width / 3),
        "normal": rng.normal(low + width / 2, width / 50, 500),
        "nobody": np.zeros(0),
    }[kind]
    plan = plan_counts(PROMISE, LEVELS)
    tables = sum_counts(Codes(tree_codes(values, grid)), plan)
    noised = [table / plan.steps + rng.normal(scale=20, size=table.size) for table in tables]
    edges = edges_of(noised, grid, bins)
    assert edges.size == bins
    assert np.all(np.diff(edges) > 0)
    assert grid[0] <= edges[0]
    assert edges[-1] <= grid[-1]


def test_edges_are_quantiles_and_a_common_value_takes_one_edge():
    rng = np.random.default_rng(0)
    grid = np.linspace(0, 1000, CELLS + 1)
    plan = plan_counts(PROMISE, LEVELS)
    values = rng.normal(70, 10, 20_000)

    def edges(values, scale=30):
        tables = sum_counts(Codes(tree_codes(values, grid)), plan)
        noised = [table / plan.steps + rng.normal(scale=scale, size=table.size) for table in tables]
        return edges_of(noised, grid, 10)

    expected = (np.arange(10) + 0.5) / 10
    assert np.allclose(
        np.searchsorted(np.sort(values), edges(values)) / 20_000, expected, atol=0.04
    )
    half = np.where(rng.random(20_000) < 0.5, 0.0, values)
    assert np.sum(edges(half) < 30) <= 2  # evenly shared, half of them would lie at the value


# --- tables ---

SCHEMA = Schema(
    {
        "pay": Number(0, 1e6, missing=True),
        "children": Number(0, 4, whole=True),
        "dose": Number(0, 1e6, scale="log"),
        "sex": Category(["f", "m"]),
    },
    person="who",
)
RECORD = Privacy(epsilon=2, delta=1e-6, unit="record")
PERSON = Privacy(epsilon=2, delta=1e-6, unit="person")


def people(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    pay = rng.normal(30_000, 5_000, n)
    return {
        "who": np.arange(n) // 2,
        "pay": np.where(rng.random(n) < 0.1, np.nan, pay),
        "children": rng.integers(0, 5, n),
        "dose": rng.lognormal(1, 1, n),
        "sex": rng.choice(["f", "m"], n),
    }


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("privacy", [RECORD, PERSON], ids=["record", "person"])
def test_edges_of_a_table_follow_its_quantiles(privacy, neighbours):
    frame, ledger = people(), Ledger()
    schema, certificate = private_edges(
        frame, SCHEMA, columns=["pay", "children", "dose"], privacy=privacy, bins=8, ledger=ledger,
        dataset="people", neighbours=neighbours,
    )  # fmt: skip
    assert certificate.is_private
    assert certificate.privacy.unit == privacy.unit
    assert len(ledger) == 1
    for name in ("pay", "dose"):
        reached = np.mean(frame[name][:, None] < np.array(schema.columns[name].edges), axis=0)
        if name == "pay":
            reached /= 0.9  # the others are missing
        assert np.allclose(reached, (np.arange(8) + 0.5) / 8, atol=0.1)
    assert len(schema.columns["children"].edges) == 5
    assert schema.encode(frame).shape[1] == 8 + 1 + 5 + 8 + 2
    assert SCHEMA.columns["pay"].edges is None


def test_a_person_with_many_rows_counts_once():
    """9 in 10 rows are of one person; quantiles of people do not follow her."""
    n = 5000
    who = np.concatenate([np.arange(n), np.full(9 * n, n)])
    pay = np.concatenate([np.random.default_rng(0).normal(30, 3, n), np.full(9 * n, 90.0)])
    schema, certificate = private_edges(
        {"pay": pay}, Schema({"pay": Number(0, 100)}), columns=["pay"], privacy=PERSON, bins=6,
        groups=who,
    )  # fmt: skip
    assert certificate.n_rows == n + 1
    assert schema.columns["pay"].edges[-1] < 50


def test_mistakes_that_are_public_are_told_before_the_charge():
    frame, ledger = people(20), Ledger()
    options = {"columns": ["pay"], "privacy": RECORD, "bins": 4, "ledger": ledger}
    for change, message in [
        ({"columns": ["sex"]}, "'sex' is not a number"),
        ({"columns": ["age"]}, "'age' is not a number"),
        ({"columns": []}, "nothing to count"),
        ({"bins": 1}, "at least 2"),
        ({"groups": frame["who"]}, "unit='person'"),
        ({"privacy": replace(RECORD, delta=0.0)}, "delta > 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            private_edges(frame, SCHEMA, **{**options, **change})
    with pytest.raises(ValueError, match="groups"):
        private_edges(
            {"pay": [1.0]}, Schema({"pay": Number(0, 2)}), **{**options, "privacy": PERSON}
        )
    with pytest.raises(ValueError, match="columns of this table"):
        private_edges({"pay": frame["pay"]}, SCHEMA, **options)
    nobody = {name: column for name, column in frame.items() if name != "who"}
    with pytest.raises(ValueError, match="missing: 'who'"):
        private_edges(nobody, SCHEMA, **{**options, "privacy": PERSON})
    assert len(ledger) == 0


@pytest.mark.parametrize("wrong", ["Smith", None])
def test_what_is_wrong_with_the_rows_is_told_after_the_charge_and_without_a_value(wrong):
    frame, ledger = people(20), Ledger()
    frame["dose"] = [*frame["dose"][:-1], wrong]
    with pytest.raises(UnreadableRowsError) as caught:
        private_edges(
            frame, SCHEMA, columns=["dose"], privacy=RECORD, bins=4, ledger=ledger, dataset="p"
        )
    assert "Smith" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(ledger) == 1

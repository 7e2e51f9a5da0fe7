"""Pairs that a noised criterion picks: what is found, what noise alone gives, what is charged."""

import numpy as np
import pytest

from permea.privacy import Budget, BudgetExceededError, Ledger, Privacy
from permea.privacy.pairs import coarse_cells, interaction, n_cells, pick_pairs
from permea.tables import Category, Date, Number, Schema, YesNo

PROMISE = Privacy(epsilon=1, delta=1e-6, unit="record")
SCHEMA = Schema({**{f"x{i}": Number(0, 1) for i in range(6)}, "y": YesNo()}, label="y")


def either_or(n=5000, seed=0, strength=0.25):
    """The label depends on whether exactly one of x0 and x1 is large, and on x2 by itself."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 6))
    sign = np.where((X[:, 0] > 0.5) ^ (X[:, 1] > 0.5), 1, -1)
    y = rng.random(n) < 0.4 + 0.2 * X[:, 2] + strength * sign
    return {**{f"x{i}": X[:, i] for i in range(6)}, "y": y.astype(int)}


def pairs_of(frame, schema=SCHEMA, **options):
    options = {"k": 2, "privacy": PROMISE, "random_state": 0, **options}
    return pick_pairs(frame, schema, **options)[0].pairs


@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
def test_the_pair_that_interacts_is_found(neighbours):
    assert pairs_of(either_or(), neighbours=neighbours) == (("x0", "x1"),)


def test_no_pair_is_taken_where_columns_act_alone():
    for seed in range(5):
        assert pairs_of(either_or(seed=seed, strength=0.0), random_state=seed) == ()


def test_too_little_budget_finds_nothing_rather_than_anything():
    weak = Privacy(epsilon=0.05, delta=1e-6, unit="record")
    assert pairs_of(either_or(), privacy=weak) == ()


def test_people_with_several_rows():
    frame = either_or(10_000)
    person = Privacy(epsilon=1, delta=1e-6, unit="person")
    assert pairs_of(frame, privacy=person, groups=np.arange(10_000) // 2) == (("x0", "x1"),)


def test_named_pairs_stay_and_are_not_counted_again():
    from dataclasses import replace

    named = replace(SCHEMA, pairs=(("x1", "x0"),))
    assert pairs_of(either_or(), named) == (("x1", "x0"),)


def test_a_target_takes_the_place_of_a_label():
    schema = Schema({**{f"x{i}": Number(0, 1) for i in range(3)}, "y": Number(0, 1)}, target="y")
    rng = np.random.default_rng(0)
    X = rng.random((8000, 3))
    frame = {**{f"x{i}": X[:, i] for i in range(3)}, "y": (X[:, 0] > 0.5) ^ (X[:, 1] > 0.5)}
    frame["y"] = 0.7 * frame["y"] + 0.3 * rng.random(8000)
    assert pairs_of(frame, schema) == (("x0", "x1"),)


@pytest.mark.parametrize("shape", [(2, 2, 2), (4, 4, 2), (7, 16, 3)])
@pytest.mark.parametrize("noise", [0.0, 150.0])
def test_the_criterion_has_the_scale_that_it_says(shape, noise):
    """Without interaction it is about standard normal; noise taken for signal would be far off."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(60):
        one, other = rng.dirichlet(np.ones(shape[0])), rng.dirichlet(np.ones(shape[1]))
        odds = np.exp(rng.normal(size=(shape[0], 1, shape[2])) + rng.normal(size=shape[1:]))
        rate = 26_000 * one[:, None, None] * other[:, None] * odds / odds.sum(2, keepdims=True)
        found.append(interaction(rng.poisson(rate) + rng.normal(scale=noise, size=shape), noise))
    assert -1.5 < np.mean(found) < 0.5  # empty cells make it cautious
    assert 0.5 < np.std(found) < 1.6
    assert max(found) < 4.0


def test_cells_of_every_kind_of_column():
    many = Category([str(n) for n in range(40)], missing=True)
    assert n_cells(many) == 17
    assert coarse_cells(many, np.array([0.0, 14, 15, 39, np.nan])).tolist() == [0, 14, 15, 15, 16]
    assert coarse_cells(YesNo(), np.array([0.0, 1])).tolist() == [0, 1]
    whole = Number(0, 1, whole=True)
    assert max(coarse_cells(whole, np.array([0.0, 1]))) < n_cells(whole)
    uneven = Number(0, 1000, edges=(1, 2, 3, 4, 5))
    assert coarse_cells(uneven, np.array([0.0, 2.5, 3.5, 900])).tolist() == [0, 1, 2, 3]
    day = Date("2000-01-01", "2020-01-01")
    days = np.array([day.first.toordinal(), day.last.toordinal()], dtype=float)
    assert coarse_cells(day, days).tolist() == [0, 3]


def test_one_event_is_charged_and_public_mistakes_before_it():
    frame, ledger = either_or(200), Ledger(Budget(epsilon=1, delta=1e-6, unit="record"))
    with pytest.raises(ValueError, match="k must be"):
        pairs_of(frame, k=0, ledger=ledger)
    with pytest.raises(ValueError, match="declare one"):
        pairs_of(frame, Schema({f"x{i}": Number(0, 1) for i in range(6)}), ledger=ledger)
    with pytest.raises(ValueError, match="columns of this table"):
        pairs_of({"x0": frame["x0"]}, ledger=ledger)
    unlabelled = {name: column for name, column in frame.items() if name != "y"}
    with pytest.raises(ValueError, match="missing: 'y'"):
        pairs_of(unlabelled, ledger=ledger)
    assert len(ledger) == 0
    _, certificate = pick_pairs(frame, SCHEMA, k=1, privacy=PROMISE, ledger=ledger, dataset="a")
    assert certificate.is_private
    assert "15 pairs" in str(certificate)
    with pytest.raises(BudgetExceededError):
        pairs_of(frame, ledger=ledger, dataset="a")
    assert len(ledger) == 1

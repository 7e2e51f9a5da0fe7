"""The ledger adds up, stands by its budget, and keeps its word across files."""

import math
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from permea.privacy import Budget, BudgetExceededError, Ledger, Privacy, release
from permea.privacy.composition import tight_epsilon
from permea.privacy.release import plan

ENTRY = Privacy(epsilon=0.5, delta=1e-6, domain=(0, 1))
RECORD = Privacy(epsilon=0.5, delta=1e-6, domain=(0, 1), unit="record")
X = np.zeros((4, 3))


def test_fits_on_the_same_data_add_up():
    ledger = Ledger()
    for _ in range(3):
        certificate = release(X, ENTRY, ledger=ledger).certificate
    assert ledger.spent.epsilon == pytest.approx(1.5)
    assert ledger.spent.delta == pytest.approx(3e-6)
    assert "3 releases" in certificate.ledger
    assert "ε = 1.5 per entry" in certificate.ledger


def test_disjoint_data_sets_stand_side_by_side():
    ledger = Ledger(Budget(epsilon=1, delta=1e-5, unit="entry"))
    for name in ("north", "south", "north"):
        release(X, ENTRY, ledger=ledger, dataset=name)
    assert ledger.datasets == ("north", "south")
    assert ledger.spent_on("north").epsilon == pytest.approx(1.0)
    assert ledger.spent_on("south").epsilon == pytest.approx(0.5)
    assert ledger.spent.epsilon == pytest.approx(1.0)
    assert ledger.remaining.epsilon == pytest.approx(0.0)
    with pytest.raises(BudgetExceededError):
        release(X, ENTRY, ledger=ledger, dataset="north")
    release(X, ENTRY, ledger=ledger, dataset="south")


@settings(deadline=None, derandomize=True)
@given(epsilons=st.lists(st.floats(0.01, 2), max_size=12), limit=st.floats(0.1, 5))
def test_a_budget_is_never_overrun(epsilons, limit):
    ledger = Ledger(Budget(epsilon=limit, unit="entry"))
    for epsilon in epsilons:
        before = ledger.events
        try:
            ledger.spend(Privacy(epsilon=epsilon, domain=(0, 1)), n_columns=2)
        except BudgetExceededError:
            assert ledger.events == before
        else:
            assert ledger.events[:-1] == before
    assert ledger.spent.epsilon <= limit * (1 + 1e-8)
    assert ledger.spent.epsilon + ledger.remaining.epsilon == pytest.approx(limit)


def test_delta_is_a_budget_too():
    ledger = Ledger(Budget(epsilon=100, delta=1.5e-6, unit="entry"))
    release(X, ENTRY, ledger=ledger)
    with pytest.raises(BudgetExceededError, match="2e-06 per entry"):
        release(X, ENTRY, ledger=ledger)


def test_tight_composition_allows_more_releases():
    small = Privacy(epsilon=0.1, domain=(0, 1))

    def spend_often(ledger):
        for _ in range(60):
            ledger.spend(small, n_columns=1)

    def how_many(composition):
        ledger = Ledger(Budget(epsilon=2, delta=1e-5, unit="entry"), composition=composition)
        with pytest.raises(BudgetExceededError):
            spend_often(ledger)
        return ledger

    basic, tight = how_many("basic"), how_many("tight")
    assert len(basic) == 20
    assert len(tight) > 25
    losses = [loss for event in tight.events for loss in event.unit_losses]
    assert tight_epsilon(losses, 1e-5) <= 2
    assert tight.spent.delta == pytest.approx(1e-5)


def test_units_are_converted():
    per_record = Ledger(Budget(epsilon=10, delta=1e-4, unit="record"))
    release(X, ENTRY, ledger=per_record)
    assert per_record.spent.epsilon == pytest.approx(3 * 0.5)
    assert per_record.spent.delta == pytest.approx(3e-6)
    per_entry = Ledger(Budget(epsilon=10, delta=1e-4, unit="entry"))
    release(X, RECORD, ledger=per_entry)
    assert per_entry.spent.epsilon == pytest.approx(0.5)
    gaussian = Privacy(epsilon=0.5, delta=1e-6, domain=(0, 1), mechanism="gaussian")
    release(X, gaussian, ledger=per_record)
    assert 1.5 + 0.5 < per_record.spent.epsilon < 1.5 + 1.5


def test_an_account_in_a_file_goes_on(tmp_path):
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, budget=Budget(epsilon=1, delta=1e-5, unit="entry"), composition="tight")
    release(X, ENTRY, ledger=ledger, description="first fit")
    again = Ledger(path)
    assert again.events == ledger.events
    assert again.spent == ledger.spent
    assert again.budget == ledger.budget
    assert again.composition == "tight"
    release(X, Privacy(epsilon=0.4, domain=(0, 1)), ledger=again)
    with pytest.raises(BudgetExceededError):
        release(X, ENTRY, ledger=again)
    assert len(ledger) == 2  # both look at the same account


def test_a_budget_is_fixed_when_the_ledger_is_created(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger(path, budget=Budget(epsilon=1, unit="record"))
    for wider in (Budget(epsilon=2, unit="record"), Budget(epsilon=1, unit="entry")):
        with pytest.raises(ValueError, match=r"ε = 1 per record.*was asked for") as refused:
            Ledger(path, budget=wider)
        assert f"{wider.epsilon:g} per {wider.unit}" in str(refused.value)
    with pytest.raises(ValueError, match="basic composition"):
        Ledger(path, composition="tight")
    assert Ledger(path, budget=Budget(epsilon=1, unit="record")).budget == Ledger(path).budget
    unlimited = tmp_path / "unlimited.db"
    Ledger(unlimited)
    with pytest.raises(ValueError, match="no budget"):
        Ledger(unlimited, budget=Budget(epsilon=1))


def test_a_ledger_must_exist_or_be_new_where_that_is_said(tmp_path):
    path = tmp_path / "ledger.db"
    with pytest.raises(ValueError, match="no ledger"):
        Ledger(path, existing=True)
    assert not path.exists()
    Ledger(path, existing=False)
    with pytest.raises(ValueError, match="exists already"):
        Ledger(path, existing=False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ValueError, match="cannot be created"):
        Ledger(tmp_path / "nowhere" / "ledger.db")


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "ledger.json"
    for text in ('{"schema": 1}', " " * 5000 + "{", "[]", "x" * 4096):
        path.write_text(text)
        with pytest.raises(ValueError, match="is not a ledger"):
            Ledger(path)
        assert path.read_text() == text
    path.write_text('{"schema": 1}')
    with pytest.raises(ValueError, match="permea ledger import"):
        Ledger(path)
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE events (a)")
    with pytest.raises(ValueError, match="another database"):
        Ledger(other)
    with pytest.raises(ValueError, match="postgresql"):
        Ledger("mysql://host/ledger")


def test_an_event_says_whether_it_was_released():
    ledger = Ledger(Budget(epsilon=1, delta=1e-5))
    event = plan(ENTRY, 3).event("ward", "a fit")
    receipt = ledger.charge(event)
    assert [one.status for one in ledger.events] == ["charged"]
    assert "charged, never released" in str(ledger)
    assert ledger.spent.epsilon == 0.5
    ledger.released(receipt)
    ledger.released(receipt)  # again changes nothing
    assert [one.status for one in ledger.events] == ["released"]
    assert "never" not in str(ledger)
    assert len(ledger) == 1
    stranger = Ledger(Budget(epsilon=1, delta=1e-5))
    with pytest.raises(ValueError, match="not the one that paid"):
        stranger.released(receipt)


def test_a_release_that_fails_stays_charged():
    ledger = Ledger(Budget(epsilon=1, delta=1e-5))
    bad = X.copy()
    bad[0, 0] = np.nan
    with pytest.raises(ValueError, match="rows"):
        release(bad, ENTRY, ledger=ledger)
    assert [one.status for one in ledger.events] == ["charged"]
    release(X, ENTRY, ledger=ledger)
    with pytest.raises(BudgetExceededError):
        release(X, ENTRY, ledger=ledger)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": -100.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"epsilon": "1"},
        {"epsilon": True},
        {"delta": -1e-9},
        {"delta": 1.5},
        {"unit": "country"},
        {"dataset": ""},
        {"dataset": "a\nb"},
        {"dataset": "rows-of-mine"},
        {"dataset": 7},
        {"description": "a\x1b[2J"},
        {"unit_losses": (("laplace", -1.0, 1, 0.0, 0.0),)},
        {"unit_losses": (("laplace", 1.0, -1, 0.0, 0.0),)},
        {"record_losses": (("gauss", 1.0, 1, 0.0, 0.0),)},
        {"record_losses": (("pure", 1.0),)},
    ],
    ids=str,
)
def test_only_sound_events_are_charged(wrong):
    ledger = Ledger()
    event = replace(plan(ENTRY, 3).event("ward", "a fit"), **wrong)
    with pytest.raises((ValueError, TypeError)):
        ledger.charge(event)
    assert len(ledger) == 0


def test_the_account_is_append_only():
    ledger = Ledger()
    release(X, ENTRY, ledger=ledger)
    with pytest.raises(AttributeError):
        ledger.events = ()
    with pytest.raises(AttributeError):
        ledger.events[0].epsilon = 0.0
    with pytest.raises(AttributeError):
        ledger.budget = None
    assert not hasattr(ledger.events, "append")


def test_budgets_are_checked():
    assert Ledger(RECORD).unit == "record"
    with pytest.raises(TypeError, match="Budget"):
        Ledger(3.0)
    with pytest.raises(ValueError, match="positive epsilon"):
        Budget(epsilon=0)
    with pytest.raises(ValueError, match="unit"):
        Budget(epsilon=1, unit="user")
    with pytest.raises(ValueError, match="composition"):
        Ledger(composition="magic")
    with pytest.raises(ValueError, match="n_columns"):
        Ledger().spend(ENTRY)

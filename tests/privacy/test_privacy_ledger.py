"""The ledger adds up, stands by its budget, and keeps its word across files."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from permea.privacy import Budget, BudgetExceededError, Ledger, Privacy, release
from permea.privacy.composition import tight_epsilon

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
    assert ledger.remaining_for("south").epsilon == pytest.approx(0.5)
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


def test_saved_and_loaded_accounts_go_on(tmp_path):
    path = tmp_path / "ledger.json"
    ledger = Ledger(Budget(epsilon=1, delta=1e-5, unit="entry"), composition="tight")
    release(X, ENTRY, ledger=ledger, description="first fit")
    ledger.save(path)
    again = Ledger.load(path)
    assert again.events == ledger.events
    assert again.spent == ledger.spent
    assert again.budget == ledger.budget
    release(X, Privacy(epsilon=0.4, domain=(0, 1)), ledger=again)
    with pytest.raises(BudgetExceededError):
        release(X, ENTRY, ledger=again)
    assert len(ledger) == 1


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "ledger.json"
    for text in ("{", "[]", json.dumps({"schema": 7})):
        path.write_text(text)
        with pytest.raises(ValueError, match="ledger"):
            Ledger.load(path)


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

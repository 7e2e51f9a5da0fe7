"""The JSON of version 0.1 is brought into a database, every event checked; exports tell no more."""

import json
import math

import numpy as np
import pytest

from permea.privacy import Budget, BudgetExceededError, Ledger, Privacy, release
from permea.privacy.ledger import LedgerError
from permea.privacy.release import plan

PROMISE = Privacy(epsilon=0.5, delta=1e-6, domain=(0, 1))
X = np.zeros((4, 3))


def old_event(dataset="ward", **changed):
    """An event as version 0.1 wrote it."""
    values = plan(PROMISE, 3).event(dataset, "a fit").to_dict()
    return {**values, **changed}


def old_file(path, *events, **changed):
    values = {
        "schema": 1,
        "budget": {"epsilon": 2.0, "delta": 1e-5, "unit": "entry"},
        "composition": "basic",
        "events": list(events),
        **changed,
    }
    path.write_text(json.dumps(values))
    return path


def test_an_old_account_goes_on_in_a_database(tmp_path):
    old = old_file(
        tmp_path / "old.json", old_event("north"), old_event("south"), old_event("north")
    )
    ledger = Ledger.import_json(old, tmp_path / "new.db")
    assert [event.dataset for event in ledger.events] == ["north", "south", "north"]
    assert {event.status for event in ledger.events} == {"released"}
    assert ledger.budget == Budget(epsilon=2, delta=1e-5)
    again = Ledger(tmp_path / "new.db")
    assert again.spent_on("north").epsilon == 1
    for _ in range(2):
        release(X, PROMISE, ledger=again, dataset="north")
    with pytest.raises(BudgetExceededError):
        release(X, PROMISE, ledger=again, dataset="north")
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.import_json(old, tmp_path / "new.db")


def test_names_that_nobody_chose_are_no_claim_of_disjoint_rows(tmp_path):
    old = old_file(tmp_path / "old.json", old_event("data"), old_event("source"), old_event("ward"))
    ledger = Ledger.import_json(old)
    assert ledger.datasets == ("ward",)
    assert ledger.spent_on("ward").epsilon == 1.5


@pytest.mark.parametrize(
    "changed",
    [
        {"epsilon": -100.0},
        {"epsilon": None},
        {"epsilon": "0.5"},
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"delta": 1.5},
        {"delta": -0.1},
        {"unit": "house"},
        {"dataset": ""},
        {"dataset": None},
        {"dataset": "rows-0123456789abcdef\n"},
        {"description": "\x1b[2J"},
        {"mechanism": 3},
        {"unit_losses": [["laplace", -1.0, 1, 0.0, 0.0]]},
        {"unit_losses": [["laplace", 1.0, 0, 0.0, 0.0]]},
        {"unit_losses": [["laplace", 1.0, 1.5, 0.0, 0.0]]},
        {"record_losses": [["magic", 1.0, 1, 0.0, 0.0]]},
        {"record_losses": "laplace"},
        {"record_losses": [7]},
        {"refund": 1.0},
    ],
    ids=str,
)
def test_an_event_that_cannot_be_is_refused(tmp_path, changed):
    old = old_file(tmp_path / "old.json", old_event(), old_event(**changed))
    with pytest.raises(LedgerError, match="Event 2"):
        Ledger.import_json(old, tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"schema": 3},
        {"schema": True},
        {"budget": {"epsilon": -1.0}},
        {"budget": [1]},
        {"composition": "none"},
        {"events": 3},
        {"events": ["x"]},
    ],
    ids=str,
)
def test_what_is_no_account_is_refused(tmp_path, changed):
    with pytest.raises(LedgerError):
        Ledger.import_json(old_file(tmp_path / "old.json", **changed))


def test_files_that_are_no_json_are_refused(tmp_path):
    path = tmp_path / "old.json"
    for content in (b"{", b"[]", b"\xff\xfe", b""):
        path.write_bytes(content)
        with pytest.raises(LedgerError, match="ledger"):
            Ledger.import_json(path)
    with pytest.raises(LedgerError, match="cannot be read"):
        Ledger.import_json(tmp_path / "nothing.json")


def test_an_export_can_be_imported_and_tells_no_secret(tmp_path):
    ledger = Ledger(tmp_path / "l.db", budget=Budget(epsilon=3, delta=1e-5), composition="tight")
    release(X, PROMISE, ledger=ledger, dataset="ward")
    release(X, PROMISE, ledger=ledger)
    ledger.charge(plan(PROMISE, 3).event("ward", "stopped"))
    text = json.dumps(ledger.to_dict(), allow_nan=False)
    assert ledger.events[1].dataset not in text
    assert ledger._chain.key.hex() not in text
    (tmp_path / "export.json").write_text(text)
    again = Ledger.import_json(tmp_path / "export.json", tmp_path / "again.db")
    assert again.id != ledger.id
    assert [event.status for event in again.events] == ["released", "released", "charged"]
    assert again.spent == ledger.spent
    assert again.spent_on("ward") == ledger.spent_on("ward")
    assert (again.budget, again.composition) == (ledger.budget, ledger.composition)

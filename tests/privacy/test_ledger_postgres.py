"""A ledger in a real PostgreSQL server, which the tests start from the system's package."""

import json
import pickle
import sys

import numpy as np
import pytest
from ledger_world import check_releases, event, in_processes, killed_at_random
from postgres_server import PASSWORD

from permea.privacy import Budget, BudgetExceededError, Ledger, Privacy, release
from permea.privacy.ledger_events import LedgerError, TamperedLedgerError

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: permea[postgres]")

HALF = Privacy(epsilon=0.5, domain=(0, 1))
X = np.zeros((4, 3))


def test_an_account_in_postgres_goes_on(server):
    ledger = Ledger(server.url("first"), budget=Budget(epsilon=1.2, unit="entry"))
    certificate = release(X, HALF, ledger=ledger, dataset="ward").certificate
    again = Ledger(server.url("first"))
    assert again.id == ledger.id == certificate.ledger_id
    assert again.events == ledger.events
    assert again.events[0].status == "released"
    assert again.budget == Budget(epsilon=1.2, unit="entry")
    release(X, HALF, ledger=again)
    with pytest.raises(BudgetExceededError):
        release(X, HALF, ledger=ledger, dataset="ward")
    with pytest.raises(LedgerError, match=r"ε = 1.2 .* was asked for"):
        Ledger(server.url("first"), budget=Budget(epsilon=2))
    assert len(Ledger(server.url("second"))) == 0  # another ledger of the same database
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger(server.url("third"), existing=True)


def test_an_account_per_person_goes_on(server):
    ledger = Ledger(server.url("people"), budget=Budget(epsilon=40, unit="person"))
    declared = Privacy(epsilon=0.5, domain=(0, 1), rows_per_person=2)
    release(X, declared, ledger=ledger, dataset="ward")
    again = Ledger(server.url("people"))
    assert again.events == ledger.events
    assert again.spent.epsilon == pytest.approx(2 * 3 * 0.5)
    with pytest.raises(LedgerError, match="rows_per_person"):
        release(X, HALF, ledger=again, dataset="ward")


def test_64_processes_with_50_tries_each(server):
    ledger = Ledger(server.url("crowd"), budget=Budget(epsilon=1000, unit="entry"))
    paid = in_processes(ledger, 64, 50)
    again = Ledger(server.url("crowd"))
    assert len(paid) == len(set(paid)) == 1000
    assert [one.number for one in again.events] == sorted(paid)
    assert again.spent.epsilon == ledger.spent.epsilon == 1000


def test_killed_at_random_moments(server, tmp_path):
    ledger = Ledger(server.url("killed"))
    killed_at_random(ledger, tmp_path, 40, longest=0.1)
    charged, _, marked = check_releases(Ledger(server.url("killed")), tmp_path)
    assert charged > 20
    assert marked < charged
    assert ledger.spent.epsilon == charged


CHANGES = [
    "DELETE FROM permea.events WHERE ledger = '{0}' AND number = 2",
    "DELETE FROM permea.events WHERE ledger = '{0}' AND number = 6",
    "UPDATE permea.events SET body = replace(body, '0.5', '0.1') WHERE ledger = '{0}'",
    "UPDATE permea.events SET time = '2020-01-01' WHERE ledger = '{0}' AND number = 3",
    "UPDATE permea.ledgers SET number = 4 WHERE name = '{0}'",
    "UPDATE permea.ledgers SET genesis = replace(genesis, '3.0', '9.0') WHERE name = '{0}'",
    "UPDATE permea.ledgers SET key = '\\x00' WHERE name = '{0}'",
    "INSERT INTO permea.events SELECT ledger, 0, time, kind, body, previous, hash "
    "FROM permea.events WHERE ledger = '{0}' AND number = 1",
]


@pytest.mark.parametrize(("case", "statement"), list(enumerate(CHANGES)))
def test_changes_by_hand_are_found(server, case, statement):
    name = f"case-{case}"
    ledger = Ledger(server.url(name), budget=Budget(epsilon=3.0))
    for _ in range(3):
        release(X, HALF, ledger=ledger)
    assert server.execute((statement.format(name),)) != [0]
    with pytest.raises(TamperedLedgerError):
        Ledger(server.url(name))


def test_the_tables_themselves_refuse_changes(server):
    Ledger(server.url("fixed")).charge(event())
    with psycopg.connect(server.url().replace("&ledger=default", "")) as connection:
        for statement in (
            "UPDATE permea.events SET body = ''",
            "DELETE FROM permea.events",
            "TRUNCATE permea.events",
            "UPDATE permea.ledgers SET genesis = ''",
            "DELETE FROM permea.ledgers",
        ):
            with pytest.raises(psycopg.errors.RaiseException, match="only ever added"):
                connection.execute(statement)
            connection.rollback()
    assert len(Ledger(server.url("fixed"))) == 1


def test_few_rights_are_enough_to_charge(server):
    Ledger(server.url("shared"), budget=Budget(epsilon=3))
    server.execute(
        ("CREATE ROLE clerk LOGIN PASSWORD 'clerk-word'",),
        ("GRANT USAGE ON SCHEMA permea TO clerk",),
        ("GRANT SELECT, INSERT ON permea.events TO clerk",),
        ("GRANT SELECT, UPDATE ON permea.ledgers TO clerk",),
    )
    url = server.url("shared").replace(f"owner:{PASSWORD}", "clerk:clerk-word")
    ledger = Ledger(url)
    release(X, HALF, ledger=ledger)
    assert len(Ledger(server.url("shared"))) == 1
    with (
        psycopg.connect(url.replace("&ledger=shared", "")) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("DELETE FROM permea.events")


def test_a_password_is_shown_nowhere(server):
    ledger = Ledger(server.url("secret"), budget=Budget(epsilon=1))
    ledger.charge(event())
    texts = [repr(ledger), str(ledger), ledger.where, json.dumps(ledger.to_dict())]
    with pytest.raises(LedgerError) as refused:
        Ledger(server.url("secret"), budget=Budget(epsilon=2))
    texts.append(str(refused.value))
    wrong = server.url("secret").replace(PASSWORD, PASSWORD + "x")
    with pytest.raises(LedgerError, match="cannot be used") as refused:
        Ledger(wrong)
    texts.append(str(refused.value))
    assert refused.value.__cause__ is None
    with pytest.raises(LedgerError) as refused:
        Ledger(f"postgresql://owner@/postgres?password={PASSWORD}&nonsense=1")
    texts.append(str(refused.value))
    for text in texts:
        assert PASSWORD not in text
    assert "***" in ledger.where


def test_a_pickled_ledger_is_the_same_account_elsewhere(server):
    ledger = Ledger(server.url("travels"))
    travelled = pickle.loads(pickle.dumps(ledger))
    travelled.charge(event())
    assert len(ledger) == 1


def test_a_ledger_survives_a_restart_of_the_server(server):
    ledger = Ledger(server.url("restart"))
    ledger.charge(event())
    server.stop()
    with pytest.raises(LedgerError, match="cannot be used"):
        ledger.charge(event())
    server.start()
    ledger.charge(event())
    assert len(ledger) == 2


def test_a_url_without_the_driver_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"permea\[postgres\]"):
        Ledger("postgresql://host/ledgers")


def test_bad_names_of_ledgers_are_refused():
    for name in ("", "a b", "x" * 80, "a;drop"):
        with pytest.raises(LedgerError, match="name of a ledger"):
            Ledger(f"postgresql://host/db?ledger={name}")

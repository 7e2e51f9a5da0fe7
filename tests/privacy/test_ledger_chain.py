"""Whatever is changed in a ledger from outside is found on opening, or by a later certificate."""

import json
import shutil
import sqlite3
import time
from contextlib import closing
from statistics import median

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from permea.privacy import Budget, Certificate, Ledger, Privacy, release
from permea.privacy.ledger_events import Event, LedgerError, TamperedLedgerError
from permea.privacy.ledger_store import Row, imported, row_hash
from permea.privacy.release import plan

PROMISE = Privacy(epsilon=0.25, delta=1e-7, domain=(0, 1))
X = np.zeros((4, 3))
COLUMNS = {
    "ledger": ("genesis", "key", "number", "hash"),
    "events": ("number", "time", "kind", "body", "previous", "hash"),
}


def fill(path):
    """Three releases of two data sets, and one that did not complete."""
    ledger = Ledger(path, budget=Budget(epsilon=3, delta=1e-5, unit="record"))
    for name in ("north", None, "south"):
        release(X, PROMISE, ledger=ledger, dataset=name)
    ledger.charge(plan(PROMISE, 3).event("north", "stopped"))
    return ledger


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("chain") / "ledger.db"
    fill(path)
    return path


def edit(path, *statements):
    """Change a ledger as its holder can: by hand, with the triggers out of the way."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        for (name,) in names.fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(*statement)
        connection.execute("COMMIT")


def stored(path, table):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()


def copied(original, folder):
    path = folder / "copy.db"
    shutil.copy(original, path)
    return path


def test_the_tables_themselves_refuse_changes(original, tmp_path):
    path = copied(original, tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        for statement in (
            "UPDATE events SET body = '{}'",
            "DELETE FROM events WHERE number = 2",
            "UPDATE ledger SET genesis = ''",
            "DELETE FROM ledger",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="ledger"):
                connection.execute(statement)
    assert len(Ledger(path)) == 4


values = st.one_of(
    st.integers(-3, 12),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.binary(max_size=40),
)


@settings(
    deadline=None,
    derandomize=True,
    max_examples=400,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_edit_of_any_stored_field_is_found(original, tmp_path, data):
    path = copied(original, tmp_path)
    table = data.draw(st.sampled_from(sorted(COLUMNS)))
    rows = stored(path, table)
    row = data.draw(st.sampled_from(rows))
    column = data.draw(st.sampled_from(COLUMNS[table]))
    old = row[_position(table, column)]
    new = data.draw(st.one_of(values, _near(old)))
    try:
        edit(path, (f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, row[0])))
    except sqlite3.IntegrityError:
        assume(False)  # the database itself refused it
    assume(stored(path, table) != rows)
    with pytest.raises(LedgerError):
        Ledger(path)


def _position(table, column):
    return COLUMNS[table].index(column) + (table == "ledger")


def _near(old):
    """Values that differ from the old one in one place."""
    if isinstance(old, int):
        return st.integers(old - 1, old + 1)
    join = bytes if isinstance(old, bytes) else "".join

    def changed(index):
        place = index % (len(old) + 1)
        spare = [48] if isinstance(old, bytes) else ["0"]
        return join([*old[:place], *spare, *old[place + 1 :]])

    return st.integers(0, 400).map(changed)


@pytest.mark.parametrize("number", range(1, 8))
def test_a_deleted_event_is_found(original, tmp_path, number):
    path = copied(original, tmp_path)
    edit(path, ("DELETE FROM events WHERE number = ?", (number,)))
    with pytest.raises(TamperedLedgerError, match="nothing is charged"):
        Ledger(path)


def test_a_deleted_event_is_found_when_the_others_move_up(original, tmp_path):
    path = copied(original, tmp_path)
    edit(
        path,
        ("DELETE FROM events WHERE number = 3",),
        ("UPDATE events SET number = number - 1 WHERE number > 3",),
        ("UPDATE ledger SET number = number - 1",),
    )
    with pytest.raises(TamperedLedgerError, match="entry 3"):
        Ledger(path)


@pytest.mark.parametrize(("one", "other"), [(1, 3), (2, 3), (1, 7), (5, 6)])
def test_reordered_events_are_found(original, tmp_path, one, other):
    path = copied(original, tmp_path)
    edit(
        path,
        ("UPDATE events SET number = -1 WHERE number = ?", (one,)),
        ("UPDATE events SET number = ? WHERE number = ?", (one, other)),
        ("UPDATE events SET number = ? WHERE number = -1", (other,)),
    )
    with pytest.raises(TamperedLedgerError):
        Ledger(path)


def test_an_added_event_is_found(original, tmp_path):
    path = copied(original, tmp_path)
    _, time_, kind, body, previous, digest = stored(path, "events")[0]
    for number in (0, -4, 8, 100):
        edit(path, ("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)",
                    (number, time_, kind, body, previous, digest)))  # fmt: skip
        with pytest.raises(TamperedLedgerError):
            Ledger(path)
        edit(path, ("DELETE FROM events WHERE number = ?", (number,)))
    assert len(Ledger(path)) == 4


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("charge", {"epsilon": -100.0}),
        ("charge", {"delta": 2.0}),
        ("released", {"charge": 99}),
        ("released", {"charge": 1}),
        ("released", {"charge": True}),
        ("refund", {"charge": 1}),
    ],
    ids=str,
)
def test_an_impossible_event_is_refused_even_with_the_right_hashes(original, tmp_path, kind, body):
    path = copied(original, tmp_path)
    last = Row(*stored(path, "events")[-1])
    if kind == "charge":
        body = {**json.loads(last.body), **body}
    ledger_id = Ledger(path).id
    row = Row(last.number + 1, last.time, kind, json.dumps(body), last.hash, "")
    row = row._replace(hash=row_hash(ledger_id, row))
    edit(
        path,
        ("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", row),
        ("UPDATE ledger SET number = ?, hash = ?", (row.number, row.hash)),
    )
    with pytest.raises(TamperedLedgerError, match=r"entry 8 is none|release without"):
        Ledger(path)


def test_a_damaged_file_is_refused(original, tmp_path):
    path = copied(original, tmp_path)
    content = path.read_bytes()
    for size in (len(content) // 2, 200, 100, 4096):
        path.write_bytes(content[:size])
        with pytest.raises(LedgerError):
            Ledger(path)


def test_yesterdays_copy_is_found_by_a_later_certificate(tmp_path):
    path, backup = tmp_path / "ledger.db", tmp_path / "backup.db"
    ledger = Ledger(path, budget=Budget(epsilon=3, delta=1e-5, unit="entry"))
    early = release(X, PROMISE, ledger=ledger).certificate
    shutil.copy(path, backup)
    late = release(X, PROMISE, ledger=ledger).certificate
    ledger.check_against(late)
    shutil.copy(backup, path)
    restored = Ledger(path, at_least=early)  # holds together by itself
    assert len(restored) == 1
    read = Certificate.from_json(late.to_json())
    for open_it in (lambda: Ledger(path, at_least=read), lambda: restored.check_against(late)):
        with pytest.raises(TamperedLedgerError, match="older copy was restored"):
            open_it()
    with pytest.raises(TamperedLedgerError, match="older copy"):
        ledger.charge(plan(PROMISE, 3).event("north", "again"))  # the one that was open knows too


def test_a_shortened_ledger_is_found_by_a_certificate(tmp_path):
    """Who deletes the last events and sets the header back has made an older copy."""
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, budget=Budget(epsilon=3, delta=1e-5, unit="entry"))
    release(X, PROMISE, ledger=ledger)
    certificate = release(X, PROMISE, ledger=ledger).certificate
    second = Row(*stored(path, "events")[1])
    edit(
        path,
        ("DELETE FROM events WHERE number > 2",),
        ("UPDATE ledger SET number = 2, hash = ?", (second.hash,)),
    )
    assert len(Ledger(path)) == 1
    with pytest.raises(TamperedLedgerError, match="older copy"):
        Ledger(path, at_least=certificate)
    with pytest.raises(TamperedLedgerError, match="older copy"):
        _ = ledger.spent


def test_a_ledger_written_anew_is_found_by_a_certificate(tmp_path):
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, budget=Budget(epsilon=3, delta=1e-5, unit="entry"))
    early = Ledger(path)
    release(X, PROMISE, ledger=ledger)
    certificate = release(X, PROMISE, ledger=ledger).certificate
    assert early.id == certificate.ledger_id
    rows = [Row(*values) for values in stored(path, "events")]
    cheaper = json.loads(rows[0].body)
    cheaper["epsilon"] = 0.01
    _rewrite(path, ledger.id, [rows[0]._replace(body=json.dumps(cheaper)), *rows[1:]])
    again = Ledger(path)  # every hash is right again
    assert again.spent.epsilon == pytest.approx(0.26)
    with pytest.raises(TamperedLedgerError, match="not the one that was written"):
        again.check_against(certificate)
    with pytest.raises(TamperedLedgerError, match="not the one that was written"):
        Ledger(path, at_least=certificate)


def _rewrite(path, ledger_id, rows):
    """What a holder of the file can do: compute the whole chain anew."""
    chain, previous = [], rows[0].previous
    for row in rows:
        row = row._replace(previous=previous)
        chain.append(row._replace(hash=row_hash(ledger_id, row)))
        previous = chain[-1].hash
    statements = [("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", row) for row in chain]
    edit(path, ("DELETE FROM events",), *statements, ("UPDATE ledger SET hash = ?", (previous,)))


def test_a_new_ledger_in_the_old_place_is_found(tmp_path):
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, budget=Budget(epsilon=1, delta=1e-5))
    certificate = release(X, PROMISE, ledger=ledger).certificate
    path.unlink()
    with pytest.raises(LedgerError, match="no ledger"):
        ledger.charge(plan(PROMISE, 3).event("north", "again"))
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger(path, at_least=certificate)
    assert not path.exists()
    Ledger(path, budget=Budget(epsilon=1, delta=1e-5))
    with pytest.raises(TamperedLedgerError, match="another ledger"):
        ledger.charge(plan(PROMISE, 3).event("north", "again"))
    with pytest.raises(TamperedLedgerError, match="not the one that paid"):
        Ledger(path, at_least=certificate)


def test_a_certificate_without_a_ledger_is_no_evidence():
    with pytest.raises(ValueError, match="names no ledger"):
        Ledger().check_against(release(X, PROMISE).certificate)


def test_ten_thousand_events_are_verified_and_charged_quickly(fast_folder):
    """Verified in under 2 s of the processor, charged in under 20 ms."""
    event = plan(PROMISE, 3).event("north", "one of many")
    names = ["north", "south", None, "east"]
    events = [{**event.to_dict(), "dataset": names[i % 4]} for i in range(10_000)]
    old = {
        "schema": 2,
        "budget": {"epsilon": 1e5, "delta": 0.5, "unit": "record"},
        "composition": "basic",
        "events": [{**one, "status": "released"} for one in events],
    }
    assert len(imported(old)[1]) == 20_000
    path = fast_folder / "many.db"
    Ledger.from_dict(old, path)
    start = time.process_time()
    ledger = Ledger(path)
    took = time.process_time() - start
    assert len(ledger) == 10_000
    assert took < 2.0
    each = []
    for name in names * 10:
        one = Event(**{**event.to_dict(), "dataset": ledger.name_for(name, X)})
        start = time.process_time()
        ledger.charge(one)
        each.append(time.process_time() - start)
    assert median(each) < 0.02
    assert len(Ledger(path)) == 10_040

"""The party decides: what it answers, how much of it, and a log that shows every change."""

import json
import time

import numpy as np
import pytest
from federation_world import SEEDED, blobs, private_party
from hypothesis import given
from hypothesis import strategies as st

from permea.federation import (
    AuditLog,
    AuditLogError,
    Federation,
    Guard,
    Party,
    RefusedError,
    SchemaError,
)
from permea.federation.encryption.protocol import KeyHolder
from permea.federation.errors import QuorumError
from permea.federation.service.config import ConfigError, PartyConfig
from permea.storage import save

X, Y = blobs()
MODEL = private_party("a", X, Y)._classifier


@pytest.fixture
def log(tmp_path):
    made = AuditLog(tmp_path / "audit.jsonl")
    for number in range(4):
        made.append({"queries": number})
    return made


def lines(log):
    return log.path.read_text().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda rows: rows[:-1], "3 entries where there were 4"),
        (lambda rows: [], "0 entries where there were 4"),
        (lambda rows: [rows[0], *rows[2:]], "changed at entry 2"),
        (lambda rows: [rows[1], rows[0], *rows[2:]], "changed at entry 1"),
        (lambda rows: [rows[0].replace('"queries": 0', '"queries": 9'), *rows[1:]], "at entry 1"),
        (lambda rows: [*rows, rows[-1]], "changed at entry 5"),
    ],
)
def test_a_log_that_was_changed_is_noticed(log, change, text):
    before = log.path.stat().st_size
    log.path.write_text("".join(change(lines(log))))
    with pytest.raises(AuditLogError, match=text):
        AuditLog(log.path).entries()
    if log.path.stat().st_size < before:
        with pytest.raises(AuditLogError, match="is shorter"):  # by who has read it before
            log.append({"queries": 5})


def test_another_log_in_its_place_is_noticed(log, tmp_path):
    other = AuditLog(tmp_path / "other.jsonl")
    for number in range(4):
        other.append({"queries": number + 1})
    log.path.write_bytes(other.path.read_bytes())
    with pytest.raises(AuditLogError, match="another log"):
        AuditLog(log.path).entries()


def test_a_crash_while_writing_is_no_change(log):
    head = log.path.with_name("audit.jsonl.head")
    before = head.read_bytes()
    log.append({"queries": 4})
    head.write_bytes(before)  # the crash came between the log and its head
    with open(log.path, "a") as file:
        file.write('{"queries": 5, "cha')  # and another one in the middle of a line
    again = AuditLog(log.path)
    again.append({"queries": 6})
    assert [entry["queries"] for entry in AuditLog(log.path).entries()] == [0, 1, 2, 3, 4, 6]


@given(st.binary(max_size=200))
def test_bytes_at_the_end_never_hide_an_entry(tmp_path_factory, junk):
    log = AuditLog(tmp_path_factory.mktemp("log") / "a.jsonl")
    log.append({"queries": 1})
    with open(log.path, "ab") as file:
        file.write(junk)
    try:
        found = AuditLog(log.path).entries()
    except AuditLogError:
        return
    assert found == [{"queries": 1}]


def test_limits_hold_for_each_client_and_model_and_over_a_restart(tmp_path):
    limits = {"answers": 100, "per_client": 60, "log": tmp_path / "audit.jsonl"}
    guard = Guard(**limits)
    guard.admit("a", 50)
    with pytest.raises(RefusedError, match="50 of 60 queries of this client"):
        guard.admit("a", 11)
    again = Guard(**limits)
    again.admit("b", 50)
    with pytest.raises(RefusedError, match="100 of 100 queries about this model"):
        Guard(**limits).admit("c", 1)
    other = Guard(**limits)
    other.model = "another model"
    other.admit("a", 60)
    entries = AuditLog(tmp_path / "audit.jsonl").entries()
    assert [entry["outcome"] for entry in entries].count("refused") == 2


def test_the_date_moves_no_limit(monkeypatch, tmp_path):
    guard = Guard(per_minute=10, log=tmp_path / "audit.jsonl")
    guard.admit("a", 10)
    now = time.time()
    for date in (now + 86400, now - 86400):
        monkeypatch.setattr(time, "time", lambda date=date: date)
        for one in (guard, Guard(per_minute=10, log=tmp_path / "audit.jsonl")):
            with pytest.raises(RefusedError, match="10 of 10 queries per minute"):
                one.admit("a", 1)
    later = Guard(per_minute=10, log=tmp_path / "audit.jsonl", clock=lambda: time.monotonic() * 2e9)
    later.admit("a", 10)  # a minute later by the steady clock


def test_a_damaged_log_refuses_and_does_not_tell_where_it_is(tmp_path):
    guard = Guard(log=tmp_path / "audit.jsonl")
    guard.admit("a", 1)
    guard.admit("a", 1)
    (tmp_path / "audit.jsonl").write_text("")
    with pytest.raises(RefusedError, match="log of this party is damaged") as caught:
        guard.admit("a", 1)
    assert str(tmp_path) not in str(caught.value)


PARTY = '[party]\nname = "a"\nmodel = "a.permea"\nconsent = "seeded"\n{}\n' + (
    '[server]\naddress = "x:1"\nca = "ca"\nkey = "k"\n'
)


def deployed(folder, text=""):
    save(MODEL, folder / "a.permea")
    (folder / "a.toml").write_text(PARTY.format(text))
    return PartyConfig.from_file(folder / "a.toml").party()


def test_a_deployed_party_answers_distances_and_nothing_else(tmp_path):
    party = deployed(tmp_path)
    with pytest.raises(SchemaError, match="does not permit 'model'; permitted: distances"):
        Federation([party], topology="models").ask(X[:3])
    with pytest.raises(QuorumError, match="does not permit 'encrypted'"):
        Federation([party], encrypted=True, bits=6).ask(X[:3])
    assert Federation([party]).ask(X[:3], client="ward").is_complete
    entries = AuditLog(tmp_path / "a-audit.jsonl").entries()
    told = [(entry["kind"], entry["outcome"]) for entry in entries]
    assert told == [("model", "refused"), ("encrypted", "refused"), ("distances", "accepted")]
    assert "ward" in json.dumps(entries)


def test_an_owner_can_let_the_model_go(tmp_path):
    party = deployed(tmp_path, 'permits = ["model"]')
    answer = Federation([party], topology="models").ask(X[:3])
    assert answer.is_complete
    with pytest.raises(QuorumError, match="does not permit 'distances'"):
        Federation([party]).ask(X[:3])


@pytest.mark.parametrize("line", ["encrypted_only = true", 'permits = ["encrypted"]'])
def test_encrypted_answers_need_the_keys_of_clients(tmp_path, line):
    with pytest.raises(ConfigError, match="client_keys is missing"):
        deployed(tmp_path, line)
    pytest.importorskip("seal")
    federation = Federation([Party("a", MODEL, consent=SEEDED)], encrypted=True, bits=6)
    holder = KeyHolder(federation.terms())
    digest = holder.keys.public.digest
    for keys, known in (([], False), (["00"], False), ([digest], True)):
        party = deployed(tmp_path, f"{line}\nclient_keys = {keys}\n")
        query = holder.query()
        if known:
            assert party.encrypted_distances(X[:2], query, client="aggregator says so")
        else:
            with pytest.raises(RefusedError, match="not among the client keys"):
                party.encrypted_distances(X[:2], query)
    last = AuditLog(tmp_path / "a-audit.jsonl").entries()[-1]
    assert last["client"] == f"key {digest[:16]}"  # the key is who asks


def test_what_may_be_permitted_is_checked():
    with pytest.raises(ValueError, match="permits must be among"):
        Party("a", MODEL, consent=SEEDED, permits=["everything"])
    with pytest.raises(ValueError, match="at least 1"):
        Guard(per_client=0)
    assert np.isfinite(Party("a", MODEL, consent=SEEDED).distances(X[:2])).all()

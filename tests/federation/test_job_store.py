"""Jobs in SQLite: nothing is lost, nothing is answered twice, nothing is blocked."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading

import numpy as np
import pytest

from permea.federation.errors import QuorumError, RefusedError
from permea.federation.service import database
from permea.federation.service.database import FolderInUseError, FolderLock, StoreFullError
from permea.federation.service.queue import JobFailedError, Spool, pack_array
from permea.federation.service.store import (
    MAX_ATTEMPTS,
    JobStore,
    JobUnknownError,
    State,
)

WORKER = """
import os, signal, sys
from permea.federation.service.queue import Spool

def die(job, contents):
    print("working", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

Spool(sys.argv[1]).work(die)
"""


def labels(job, contents):
    """An answer that needs no model."""
    found = np.arange(job.rows)
    return {"labels": pack_array(found), "classes": pack_array(found)}, {"who_answered": ["a"]}


def ask(store, rows=1, **options):
    return store.submit({"queries": b"x"}, rows=rows, client="me", **options)


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def store(tmp_path, clock):
    return JobStore(tmp_path, clock=lambda: clock[0])


def test_a_job_is_answered_once_and_by_the_worker_that_has_it(store):
    name = ask(store)
    first = store.claim()
    assert store.claim() is None  # nobody else gets it
    store.recover()  # its worker is gone
    second = store.claim()
    assert not store.finish(first, {"labels": b"late"}, {})
    assert store.finish(second, {"labels": b"mine"}, {})
    assert not store.finish(second, {"labels": b"again"}, {})
    assert store.contents(store.job(name)) == {"labels": b"mine"}


def test_a_worker_that_is_killed_loses_nothing_and_a_job_that_kills_goes_to_quarantine(tmp_path):
    spool = Spool(tmp_path)
    deadly = spool.submit(np.zeros((1, 2)), client="me")
    for _ in range(MAX_ATTEMPTS):
        done = subprocess.run(
            [sys.executable, "-c", WORKER, str(tmp_path)], capture_output=True, timeout=120
        )
        assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"working\n")
    good = spool.submit(np.zeros((3, 2)), client="me")
    thread = threading.Thread(target=spool.work, args=(labels,), daemon=True)
    thread.start()
    assert spool.wait(good, 60).labels.tolist() == [0, 1, 2]
    with pytest.raises(JobFailedError, match="the program ended 3 times"):
        spool.result(deadly)
    spool.stop()
    thread.join(30)
    assert not thread.is_alive()


def test_an_unexpected_fault_is_tried_again_and_shows_no_value(store, tmp_path, clock):
    spool = Spool(tmp_path, clock=lambda: clock[0])
    name = spool.submit(np.zeros((1, 2)), client="me")

    def fault(job, contents):
        raise MemoryError("row 17.25")

    for _ in range(MAX_ATTEMPTS):
        assert spool.answer_next(fault) == name
        clock[0] += 10
    job = store.job(name)
    assert (job.state, job.reason) == (State.quarantined, "MemoryError")
    assert "queries" in store.contents(job)  # for the operator to look at


@pytest.mark.parametrize("part", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff", b"PK\x03\x04"])
def test_a_damaged_question_goes_to_quarantine_and_blocks_nothing(tmp_path, part):
    from federation_world import blobs, plain_party

    from permea.federation import Federation

    X, y = blobs(n_rows=10)
    federation = Federation([plain_party("a", X, y)])
    spool = Spool(tmp_path)
    store = spool.store
    bad = store.submit({"queries": part}, rows=1, client="me")
    encrypted = store.submit({"queries": pack_array(X), "query": b"null"}, rows=1, client="me")
    good = spool.submit(X, client="me")
    assert [spool.answer_next(federation) for _ in range(3)] == [bad, encrypted, good]
    assert len(spool.result(good).labels) == len(X)
    assert store.job(bad).state is store.job(encrypted).state is State.quarantined


def test_a_full_disk_delays_and_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("permea.federation.service.queue._BEAT", 0.05)
    spool = Spool(tmp_path)
    bad, good = (spool.submit(np.zeros((n, 2)), client="me") for n in (1, 2))
    connection = spool.store.database._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    tried = threading.Event()

    def work(job, contents):
        if job.rows == 1:
            raise RefusedError("no " * 20_000)
        tried.set()
        return {"labels": pack_array(np.zeros(40_000)), "classes": pack_array(np.zeros(1))}, {}

    full = connection.execute(f"PRAGMA max_page_count={pages}").fetchone()[0]
    assert full == pages
    with pytest.raises(StoreFullError, match="Nothing was changed"):
        spool.submit(np.zeros((10_000, 2)), client="me")
    thread = threading.Thread(target=spool.work, args=(work,), daemon=True)
    thread.start()
    assert tried.wait(60)
    assert spool.result(good) is None
    with spool.store.database._lock:
        connection.execute("PRAGMA max_page_count=100000")  # somebody makes room
    assert len(spool.wait(good, 60).labels) == 40_000
    assert spool.store.job(bad).state is State.quarantined
    assert spool.store.job(good).attempts == 1
    spool.stop()
    thread.join(30)


def test_deadlines_follow_a_steady_clock_and_start_again_with_the_machine(
    store, tmp_path, clock, monkeypatch
):
    monkeypatch.setattr("time.time", lambda: 1e12)  # somebody set the clock
    early, late = ask(store, patience=10), ask(store, patience=100)
    clock[0] += 50
    assert store.claim().id == late
    assert store.job(early).state is State.expired
    monkeypatch.setattr(database, "_boot", lambda: "another start")
    clock[0] = 5.0
    again = JobStore(tmp_path, clock=lambda: clock[0])
    again.recover()
    clock[0] += 99
    assert again.claim().id == late


def test_below_the_quorum_no_attempt_is_used_up(store):
    name = ask(store)
    for _ in range(MAX_ATTEMPTS + 2):
        store.postpone(store.claim(), str(QuorumError("1 of 3")), 0.0)
    assert store.job(name).attempts == 0
    assert store.job(name).state is State.queued


def test_a_cancelled_job_keeps_nothing(store):
    name = ask(store)
    job = store.claim()
    assert store.cancel(name).state is State.cancelled
    assert not store.finish(job, {"labels": b"secret"}, {})
    assert store.contents(job) == {}
    done = ask(store)
    store.finish(store.claim(), {"labels": b"x"}, {})
    assert store.cancel(done).state is State.done


def test_a_job_belongs_to_its_asker_and_a_repeated_one_is_the_same(store):
    name = ask(store, asker="a", again="once")
    assert ask(store, asker="a", again="once") == name
    assert ask(store, asker="b", again="once") != name
    with pytest.raises(JobUnknownError, match="no job"):
        store.job(name, "b")
    with pytest.raises(RefusedError, match="1 of your jobs"):
        ask(store, asker="a", most=1)


def test_answers_are_purged_and_leave_no_trace_on_the_disk(store, tmp_path, clock):
    secret = os.urandom(64)
    name = store.submit({"queries": secret}, rows=1, client="me")
    store.finish(store.claim(), {"labels": secret}, {})
    clock[0] += 100
    waiting = ask(store)
    assert store.purge(retention=200) == 0
    assert store.purge(retention=50) == 1
    with pytest.raises(JobUnknownError):
        store.job(name)
    assert store.job(waiting).state is State.queued
    assert not any(secret in path.read_bytes() for path in tmp_path.iterdir())


def test_the_retention_that_was_given_holds_for_every_program(tmp_path):
    assert Spool(tmp_path).retention == 7 * 86400
    Spool(tmp_path, retention=60)
    assert Spool(tmp_path).retention == 60


def test_everything_is_for_the_owner_alone(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    spool = Spool(folder)
    spool.submit(np.zeros((1, 2)), client="me")
    spool.beat()
    spool.stop()
    with FolderLock(folder, "worker"):
        files = {path: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(files) >= 4
    assert set(files.values()) == {0o600}


def test_one_program_at_a_time(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys\nfrom permea.federation.service.database import *\n"
         "lock = FolderLock(sys.argv[1], 'aggregator').take(); print('ready', flush=True); input()",
         str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout.readline() == b"ready\n"
    with pytest.raises(FolderInUseError, match=f"process {holder.pid}.*left alone"):
        FolderLock(tmp_path, "aggregator").take()
    with FolderLock(tmp_path, "worker"):  # another role
        assert holder.poll() is None
    holder.kill()
    holder.wait(30)
    FolderLock(tmp_path, "aggregator").take(timeout=30).release()
    holder.communicate()


def test_what_another_program_changes_is_seen_after_it_has_ended(tmp_path):
    """Locks of SQLite are those of the process: a second connection must not take them away."""
    first, _second = JobStore(tmp_path), JobStore(tmp_path)
    for number in (1, 2):
        program = (
            "import sys\nfrom permea.federation.service.store import JobStore\n"
            "store = JobStore(sys.argv[1])\n"
            "store.submit({}, rows=1, client='another'); store.close()"
        )
        subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=120)
        assert first.counts()["queued"] == number


def test_a_second_aggregator_leaves_the_first_one_alone(tmp_path):
    pytest.importorskip("flwr")
    from flower_world import make_trial

    from permea.federation.service.deploy import Aggregator

    make_trial(tmp_path, {"a": (np.eye(3), np.arange(3))}, quorum=1)
    first = Spool(tmp_path / "state" / "queue")
    first.beat()
    with FolderLock(tmp_path / "state", "aggregator"):
        with pytest.raises(FolderInUseError, match="left alone"):
            Aggregator(tmp_path / "federation.toml").start()
        assert not first.is_stopping
        assert first.last_beat() is not None


def test_signs_of_life_come_from_this_start_of_the_machine(tmp_path):
    spool = Spool(tmp_path)
    assert spool.last_beat() is None
    spool.beat()
    assert 0 <= spool.last_beat() < 60
    os.utime(tmp_path / "alive", (1e12, 1e12))
    assert spool.last_beat() is None


def test_a_file_that_is_no_database_is_named(tmp_path):
    (tmp_path / "service.db").write_bytes(b"something else" * 1000)
    with pytest.raises(database.StoreError, match="move it away"):
        JobStore(tmp_path)
    with pytest.raises(sqlite3.DatabaseError):
        sqlite3.connect(tmp_path / "service.db").execute("SELECT * FROM jobs")

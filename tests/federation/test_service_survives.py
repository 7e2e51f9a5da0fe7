"""Kill, restart, tampered logs, missing extras, refused models: what a service does at night."""

import json
import signal
import socket
import sys

import numpy as np
import psutil
import pytest
from service_world import Served, free_port, private_model, rows

from permea import KAHMClassifier, save
from permea.cli.app import run
from permea.federation.service.backends import load_models
from permea.federation.service.client import ServiceError
from permea.federation.service.database import Database
from permea.federation.service.journal import Journal, JournalError, check, verify

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(600)]
X, Y = rows()


def refused(capsys, *words):
    """Exit code and the one line of a command that fails."""
    code = run(list(map(str, words)))
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return code, text.strip().splitlines()[-1]


def test_every_accepted_job_is_answered_once_though_the_service_is_killed(tmp_path, capsys):
    private_model(tmp_path / "ward.permea", X, Y)
    served = Served(tmp_path, "--model", tmp_path / "ward.permea", tls=False)
    try:
        token = served.token("me", budget=1000)
        client = served.client(token)
        jobs = {client.submit(X[: n + 1]): n + 1 for n in range(20)}
        children = psutil.Process(served.process.pid).children(recursive=True)
        assert served.stop(kill=True) == -signal.SIGKILL
        assert psutil.wait_procs(children, timeout=30)[1] == []
        with pytest.raises(ServiceError, match="cannot be reached"):
            client.about()
        served.start()
        client = served.client(token)
        expected = served.client(token).ask(X).labels
        for job, size in jobs.items():
            assert np.array_equal(client.wait(job, timeout=60).labels, expected[:size])
        assert client.about()["you"]["used"] == sum(jobs.values()) + len(X)  # nothing twice
        assert served.stop() == 0
        assert run(["serve", "verify", "--folder", str(served.state)]) == 0
        _check_cut_log(served, capsys)
    finally:
        served.stop()


def _check_cut_log(served, capsys):
    """A log that was cut is noticed by the command, and by the next start."""
    log = served.state / "audit.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-2]))
    code, line = refused(capsys, "serve", "verify", "--folder", served.state)
    assert (code, "it had" in line) == (7, True)
    code, line = refused(
        capsys, "serve", *map(str, served.words), "--plain-http", "--folder", served.state
    )
    assert (code, "under another name" in line) == (3, True)
    log.rename(log.with_suffix(".cut"))
    assert run(["serve", "token", "create", "x", "--folder", str(served.state)]) == 0
    first = json.loads(log.read_bytes().splitlines()[0])
    assert first["number"] == len(lines) + 1  # the gap stays visible


def test_models_that_promise_nothing_are_refused_unless_they_are_allowed(tmp_path, capsys):
    model = KAHMClassifier(n_components=2, n_layers=2).fit(X, Y)
    path = save(model, tmp_path / "raw.permea", private_rows="include")
    words = ("serve", "--model", path, "--plain-http", "--folder", tmp_path / "s")
    code, line = refused(capsys, *words)
    assert code == 6
    assert "raw rows" in line
    backend = load_models([path], trusted=None, allow_private_rows=True)
    found = backend.ask(X[:5], "me")
    assert np.array_equal(found.labels, model.predict(X[:5]))
    assert found.report["private"] is False


def test_what_is_wrong_is_one_line(tmp_path, capsys):
    model = private_model(tmp_path / "a.permea", X, Y)
    start = ("serve", "--folder", tmp_path / "s", "--model", model)
    cases = {
        "HTTPS needs --certificate": (2, start),
        "for the loopback interface": (2, (*start, "--plain-http", "--host", "0.0.0.0")),
        "Give --certificate and --key": (2, (*start, "--certificate", model)),
        "Give --model FILE": (2, ("serve", "--plain-http")),
        "there is no token": (3, ("serve", "token", "revoke", "x", "--folder", tmp_path / "s")),
    }
    for text, (code, words) in cases.items():
        found, line = refused(capsys, *words)
        assert (found, text.lower() in line.lower()) == (code, True), line
    busy = free_port()
    with socket.create_server(("127.0.0.1", busy)):
        code, line = refused(capsys, *start, "--plain-http", "--port", busy)
    assert (code, "cannot be listened on" in line) == (3, True)


def test_a_missing_extra_is_one_line(monkeypatch, capsys):
    """The service without uvicorn, as after ``pip install permea[cli]``."""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, line = refused(capsys, "serve", "--model", "x")
    assert code == 8
    assert "needs uvicorn" in line
    assert "pip install 'permea[service]'" in line


@pytest.fixture
def journal(tmp_path):
    database = Database(tmp_path)
    made = Journal(tmp_path, database)
    for count in range(5):
        made.add("answered", asker="a", rows=count)
    return tmp_path, database, made


@pytest.mark.parametrize("how", ["changed", "removed", "moved", "added", "cut", "gone", "emptied"])
def test_a_tampered_log_is_found(journal, how):
    folder, database, _ = journal
    path = folder / "audit.jsonl"
    assert verify(folder, database).number == 5
    lines = path.read_bytes().splitlines(keepends=True)
    tampered = {
        "changed": [*lines[:2], lines[2].replace(b'"rows": 2', b'"rows": 1'), *lines[3:]],
        "removed": lines[:2] + lines[3:],
        "moved": [lines[1], lines[0], *lines[2:]],
        "added": [*lines, lines[-1]],
        "cut": lines[:-1],
        "emptied": [],
    }
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(b"".join(tampered[how]))
    with pytest.raises(JournalError):
        verify(folder, database)


def test_the_log_goes_on_after_a_crash_between_line_and_link_or_within_a_line(journal):
    folder, database, made = journal
    before = database.fact("journal")
    made.add("answered", asker="a", rows=9)
    database.set_fact("journal", before)  # the program ended before it kept the link
    made.add("answered", asker="b", rows=1)
    assert check(folder / "audit.jsonl").number == 7
    with open(folder / "audit.jsonl", "ab") as file:
        file.write(b'{"asker": "a", "bef')  # the disk was full
    made.add("answered", asker="c", rows=1)
    with open(folder / "audit.jsonl", "ab") as file:
        file.write(b'{"asker"')
    Journal(folder, database, thorough=True).add("answered", asker="d", rows=1)
    assert verify(folder, database).number == 9


def test_a_line_that_somebody_added_stops_the_log(journal):
    folder, database, made = journal
    with open(folder / "audit.jsonl", "ab") as file:
        file.write(b'{"number": 6, "before": "x", "hash": "y"}\n')
    for attempt in (lambda: made.add("answered"), lambda: Journal(folder, database)):
        with pytest.raises(JournalError, match="after number 5"):
            attempt()

"""What an operator meets, through real processes: garbage, kills, files that others read."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from bad_node import GARBAGE
from flower_world import SLOW_MACHINE, make_trial

pytest.importorskip("flwr")

from permea.cli.app import run
from permea.federation import Federation, Party, QuorumError
from permea.federation.service.config import FederationConfig
from permea.federation.service.deploy import PartyNode, Process, prepare
from permea.federation.service.direct import connected
from permea.federation.service.queue import wait_for
from permea.federation.transport import RetryPolicy

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(900)]
BAD = Path(__file__).with_name("bad_node.py")


@pytest.fixture(scope="module")
def running(digits, tmp_path_factory):
    """Two honest parties, one that replies with garbage, and a folder."""
    X, _, y, _ = digits
    folder = tmp_path_factory.mktemp("faults")
    names = ["a", "b", "bad"]
    make_trial(folder, {name: (X[i::3], y[i::3]) for i, name in enumerate(names)}, quorum=2)
    nodes = [PartyNode(folder / f"{name}.toml") for name in names]
    prepare(nodes[2].config)
    started = []
    try:
        started += [node.start().process for node in nodes[:2]]
        bad = Process("bad", [str(BAD), str(folder / "bad.toml")], folder, folder / "bad.log")
        started.append(bad)
        yield folder, started
    finally:
        for process in started:
            process.stop(kill=True)


def test_garbage_of_one_party_never_ends_a_question(running, digits):
    """Parties were started before the aggregator; each question meets other garbage."""
    folder, _ = running
    X = digits[1][:40]
    config = FederationConfig.from_file(folder / "federation.toml")
    honest = Federation([Party.from_file(name, folder / f"{name}.permea") for name in "ab"])
    retry = RetryPolicy(timeout=60)
    with connected(config, needed=3, timeout=SLOW_MACHINE) as channel:
        federation = Federation.over(channel, quorum=2, retry=retry)
        for _ in GARBAGE:
            answer = federation.ask(X)
            assert answer.who_answered == ("a", "b")
            assert len(answer.missing["bad"]) < 400
            assert "\x1b" not in answer.missing["bad"]
            assert np.array_equal(answer.labels, honest.ask(X).labels)
        models = Federation.over(channel, topology="models", quorum=2, retry=retry)
        with pytest.raises(QuorumError, match="a: The owner of this party does not permit 'model'"):
            models.ask(X)  # set at the aggregator alone: nobody hands a model over
        _check_processes(folder)
    assert port_is_free(config.port)


def _check_processes(folder):
    """State for its owner alone; no token on a command line; a party is one process."""
    files = [path for path in (folder / "state").rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if path.stat().st_mode & 0o077] == []
    assert not list((folder / "state").glob("*.db"))  # messages are not kept
    for process in psutil.Process().children(recursive=True):
        words = process.cmdline()
        assert not any(word.startswith("--token") for word in words)
        if "permea.federation.flower.node" in words:
            assert process.children() == []


def port_is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_children_end_when_the_aggregator_is_killed(running):
    """``kill -9``: the SuperLink and the queue's program end, and the port is free again."""
    folder, _ = running
    config = FederationConfig.from_file(folder / "federation.toml")
    words = [sys.executable, "-m", "permea", "federate", "--config", str(config.path)]
    with open(folder / "aggregator.log", "w") as output:
        parent = subprocess.Popen(words, stdout=output, stderr=output)
    try:
        found = psutil.Process(parent.pid)
        wait_for(lambda: len(found.children()) >= 2, "two children", SLOW_MACHINE, lambda: None)
        children = found.children(recursive=True)
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    assert port_is_free(config.port)


def test_check_says_what_is_wrong_before_the_first_question(running, tmp_path, capsys):
    folder, _ = running
    assert run(["federate", "check", "--config", str(folder / "federation.toml")]) == 0
    told = capsys.readouterr().out
    assert "WRONG" not in told
    assert "server certificate: valid until" in told

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("state", "*-state"))
    (copy / "keys" / "server.key").chmod(0o644)
    (copy / "keys" / "a.pub").write_text("no key")
    shutil.copy(copy / "keys" / "b.key", copy / "keys" / "a.key")
    (copy / "a.permea").write_bytes(b"no model")
    assert run(["federate", "check", "--config", str(copy / "federation.toml")]) == 3
    assert run(["federate", "check", "--node", str(copy / "a.toml")]) == 3
    told = capsys.readouterr().out
    wrong = {line.split(":")[0] for line in told.splitlines() if line.startswith("WRONG")}
    assert {"WRONG server key", "WRONG key of a", "WRONG model", "WRONG aggregator"} <= wrong

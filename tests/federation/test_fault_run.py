"""A long night: kills, stops, a full disk, garbage from one of five parties, and two askers.

``PERMEA_FAULT_MINUTES`` sets how long the faults go on; thirty minutes unless it is set.
"""

import os
import random
import resource
import select
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
from flower_world import make_trial
from service_world import Served

from permea.federation.errors import FederationError
from permea.federation.service.client import ServiceError
from permea.federation.service.deploy import PartyNode
from permea.federation.service.journal import verify
from permea.federation.service.queue import wait_for
from permea.federation.service.store import JobStore, State

MINUTES = float(os.environ.get("PERMEA_FAULT_MINUTES", "30"))
NAMES = ("a", "b", "c", "d")
QUORUM, PATIENCE, CALM = 3, 300, 1200.0
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("processes"),
    pytest.mark.timeout(60 * MINUTES + 3000),
]

GARBAGE = """
import io, itertools, json, sys
import numpy as np
from permea.federation.flower.launch import end_with_parent
from permea.federation.flower.node import Node, serve_node
from permea.federation.flower.replies import party_replies
from permea.federation.service.config import PartyConfig

end_with_parent()
config = PartyConfig.from_file(sys.argv[1])
honest = party_replies(config.party())
huge = io.BytesIO()
np.lib.format.write_array_header_1_0(
    huge, {"descr": "<f8", "fortran_order": False, "shape": (10**13, 3)}
)
said = itertools.cycle([
    {"distances": huge.getvalue(), "fingerprint": "x"},
    {"distances": b"PK\\x03\\x04" + bytes(50), "fingerprint": "x"},
    {"distances": b"", "fingerprint": 7},
    {"distances": "[" * 100000, "fingerprint": "x"},
    {"text": "1e999"},
    {},
    {"failure": "\\x1b[2J" * 100, "final": False},
])
serve_node(Node(config.address, config.ca, config.key,
                lambda: {**honest, "distances": lambda record: next(said)}))
"""


class Asker(threading.Thread):
    """Submits jobs as long as it may, and remembers which were accepted."""

    def __init__(self, served, token, X, seed):
        super().__init__(daemon=True)
        self._served, self._token, self._X = served, token, X
        self._random = random.Random(seed)
        self.accepted, self.refused = {}, 0
        self.done = threading.Event()

    def run(self):
        client = self._served.client(self._token, timeout=30)
        while not self.done.wait(self._random.uniform(0.5, 3.0)):
            size = self._random.randint(1, 20)
            try:
                self.accepted[client.submit(self._X[:size], patience=PATIENCE)] = size
            except FederationError:
                self.refused += 1  # it was told, and nothing was accepted


class Night:
    """The faults, one at a time, and somebody who starts again what has ended."""

    def __init__(self, folder, served, seed):
        self.folder, self.served, self.random = folder, served, random.Random(seed)
        self.nodes = {name: PartyNode(folder / f"{name}.toml").start() for name in NAMES}
        self.log = open(folder / "garbage.log", "wb")  # noqa: SIM115
        self.garbage = None
        self.memory, self.counts, self.next = [], {}, []
        self.keep_running()

    def keep_running(self):
        if self.garbage is None or self.garbage.poll() is not None:
            self.garbage = subprocess.Popen(
                [sys.executable, "-c", GARBAGE, str(self.folder / "liar.toml")],
                stdin=subprocess.PIPE, stdout=self.log, stderr=self.log,
                env={**os.environ, "PERMEA_PARENT": "pipe"},
            )  # fmt: skip
        for name, node in self.nodes.items():
            if node.process.returncode is not None:
                node.stop()
                self.nodes[name] = PartyNode(self.folder / f"{name}.toml").start()
        if self.served.process.poll() is not None:
            self.served.start()
        self.memory.append(psutil.Process(self.served.process.pid).memory_info().rss / 2**20)

    def fault(self):
        """One of each kind, in an order that is drawn anew, and so on."""
        if not self.next:
            self.next = ["kill_service", "kill_party", "stop_party", "kill_worker", "kill_link",
                         "full_disk"]  # fmt: skip
            self.random.shuffle(self.next)
        name = self.next.pop()
        self.counts[name] = self.counts.get(name, 0) + 1
        getattr(self, name)()

    def kill_service(self):
        self.served.stop(kill=True)

    def kill_party(self):
        os.kill(self.nodes[self.random.choice(NAMES)].process.pid, signal.SIGKILL)

    def stop_party(self):
        number = self.nodes[self.random.choice(NAMES)].process.pid
        os.kill(number, signal.SIGSTOP)
        pause(self.random.uniform(1, 10))
        os.kill(number, signal.SIGCONT)

    def _children(self, word):
        family = psutil.Process(self.served.process.pid).children(recursive=True)
        return [one for one in family if any(word in part for part in one.cmdline())]

    def kill_worker(self):
        for one in self._children("flower.server"):
            one.kill()

    def kill_link(self):
        for one in self._children("superlink"):
            one.kill()

    def full_disk(self):
        """Nothing beyond the first page of any file can be written, by none of the processes."""
        family = [psutil.Process(self.served.process.pid)]
        family += family[0].children(recursive=True)
        for limit in (4096, resource.RLIM_INFINITY):
            for one in family:
                if one.is_running():
                    resource.prlimit(one.pid, resource.RLIMIT_FSIZE, (limit, -1))
            if limit == 4096:
                pause(self.random.uniform(2, 8))

    def end(self):
        for node in self.nodes.values():
            node.stop()
        self.garbage.kill()
        self.garbage.wait(30)
        self.log.close()


def pause(seconds):
    select.select([], [], [], seconds)


def test_every_accepted_job_is_answered_or_reported_and_none_twice(digits, tmp_path):
    X, X_test, y, _ = digits
    shares = {name: (X[i::5], y[i::5]) for i, name in enumerate((*NAMES, "liar"))}
    make_trial(tmp_path, shares, quorum=QUORUM, timeout=15)
    PartyNode(tmp_path / "liar.toml").start().stop()  # trains its model
    served = Served(tmp_path, "--federation", tmp_path / "federation.toml", start=False)
    served.state = tmp_path / "state" / "queue"
    tokens = [served.token(f"asker {number}") for number in (1, 2)]
    served.start()
    night = Night(tmp_path, served, seed=25)
    askers = [Asker(served, token, X_test, seed) for seed, token in enumerate(tokens)]
    try:
        for asker in askers:
            asker.start()
        end = time.monotonic() + 60 * MINUTES
        while time.monotonic() < end:
            pause(night.random.uniform(3, 20))
            night.keep_running()
            night.fault()
        for asker in askers:
            asker.done.set()
            asker.join(120)
        night.keep_running()
        store = JobStore(served.state)

        def all_ended():
            night.keep_running()
            counts = store.counts()
            return counts[State.queued] + counts[State.running] == 0

        wait_for(all_ended, "the end of all jobs", CALM, lambda: None)
        print("\nfaults:", night.counts, "jobs:", store.counts(), flush=True)
        _check(served, store, askers, tokens)
        half = len(night.memory) // 2
        assert max(night.memory[half:]) < 1.25 * max(night.memory[:half]) + 50
        database = store.database
        assert served.stop() == 0
        assert verify(served.state, database).number > 0
    finally:
        for asker in askers:
            asker.done.set()
        served.stop(kill=True)
        night.end()


def _check(served, store, askers, tokens):
    """Every job that an asker knows of, and every job that there is."""
    answered = 0
    for asker, token in zip(askers, tokens, strict=True):
        client = served.client(token)
        assert len(asker.accepted) >= 3
        for name, size in asker.accepted.items():
            job = client.status(name)
            if job["state"] != "done":
                assert job["state"] in ("expired", "quarantined")
                assert len(job["reason"]) > 10
                continue
            found = client.wait(name, timeout=60)
            assert len(found.labels) == size
            assert len(found.who_answered) >= QUORUM
            assert "liar" not in found.who_answered
            answered += 1
        mine = store.jobs(token.split("_")[1], limit=100_000)
        assert set(asker.accepted) <= {job.id for job in mine}
        charged = sum(job.rows for job in mine if job.state is State.done)
        assert client.about()["you"]["used"] == charged  # none twice, and none for nothing
    assert answered >= 5
    with pytest.raises(ServiceError):
        served.client(tokens[0]).status("unknown")

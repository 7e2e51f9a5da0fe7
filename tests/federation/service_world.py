"""A service as a process of its own: ``permea serve`` on a loopback port, with TLS and tokens."""

import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from permea import KAHMClassifier, Privacy, save
from permea.federation.service.askers import Askers
from permea.federation.service.client import Client, ServiceError
from permea.federation.service.deploy import free_port
from permea.federation.service.tls import make_trial_certificates

START = 240.0  # seconds that a busy machine may need


def rows(n_rows=90, n_features=4, classes=3):
    """Rows in [0, 1] around one corner for each class."""
    random = np.random.default_rng(7)
    y = np.arange(n_rows) % classes
    centres = random.random((classes, n_features))
    return np.clip(centres[y] + 0.05 * random.normal(size=(n_rows, n_features)), 0, 1), y


def private_model(path, X, y, **options):
    """A private model of rows, in a file."""
    privacy = Privacy(epsilon=50, domain=(0, 1))
    model = KAHMClassifier(n_components=2, n_layers=2, privacy=privacy, **options)
    return save(model.fit(X, y), path)


class Served:
    """A running service."""

    def __init__(self, folder, *words, port=None, tls=True, start=True):
        self.folder, self.port = Path(folder), port or free_port()
        self.words, self.tls = words, tls
        if tls and not (self.folder / "keys").exists():
            make_trial_certificates(self.folder / "keys", [])
        self.state = self.folder / "state"
        self.log = self.folder / "serve.log"
        self.process = None
        if start:
            self.start()

    def start(self):
        keys = self.folder / "keys"
        tls = ["--certificate", keys / "server.crt", "--key", keys / "server.key"]
        words = ["--folder", self.state] if "--federation" not in self.words else []
        command = [
            *(sys.executable, "-m", "permea", "serve", *self.words, *words),
            *("--port", self.port, *(tls if self.tls else ["--plain-http"])),
        ]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)
        deadline = time.monotonic() + START
        while not self._is_up():
            select.select([], [], [], 0.05)
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
        return self

    def _is_up(self):
        try:
            self.client("none")._json("GET", "/health")
        except ServiceError:
            return False
        return True

    @property
    def url(self):
        return f"http{'s' * self.tls}://127.0.0.1:{self.port}"

    def client(self, token, **options):
        ca = self.folder / "keys" / "ca.crt" if self.tls else None
        return Client(self.url, token, ca=ca, **options)

    def token(self, name="me", **options):
        """A new token, as ``permea serve token create`` makes it."""
        askers = Askers(self.state)
        try:
            return askers.create(name, **options)
        finally:
            askers.close()

    def stop(self, *, kill=False):
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        return self.process.wait(60)

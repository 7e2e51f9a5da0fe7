"""Start and stop the processes of a federation: the aggregator's, and a party's."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from permea._files import write_atomically
from permea.federation.errors import FederationError
from permea.federation.flower import launch
from permea.federation.guard import AuditLog
from permea.federation.service.config import FederationConfig, PartyConfig, node_config
from permea.federation.service.database import FolderLock
from permea.federation.service.queue import EncryptedQueue, JobResult, Spool, wait_for
from permea.federation.service.served import ServedParty
from permea.storage import save

_STALE = 60.0  # seconds without a heartbeat after which the queue's program is restarted
_PAUSE = 5.0  # seconds after its start before a program that has ended is started again
_GRACE = 10.0  # seconds a process has to terminate


class DeploymentError(FederationError):
    """A process of the federation did not start, or ended unexpectedly."""


class Process:
    """A child process with its log. It ends with this process, also when this one is killed.

    Parameters
    ----------
    name : str
        For messages.
    command : sequence of str
        Arguments of the Python interpreter.
    folder : Path
        State of Flower.
    log : Path
        File for standard output and error.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.name, self.log = name, log
        environment = {
            **os.environ,
            **launch.QUIET,
            launch.PARENT: "pipe",
            "FLWR_HOME": str(folder / "flower"),
            "PYTHONUNBUFFERED": "1",
        }
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
            self._child = subprocess.Popen(
                [sys.executable, "-P", *command],
                stdin=subprocess.PIPE,  # closed by the system when this process ends
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self.pid = self._child.pid

    @property
    def returncode(self) -> int | None:
        """Exit code; None while it runs."""
        return self._child.poll()

    def check(self) -> None:
        """Raise with the end of the log when the process is gone."""
        if self._child.poll() is not None:
            raise DeploymentError(
                f"{self.name} ended with code {self._child.returncode}. Its log ends with:\n"
                + "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            )

    def descendants(self) -> list[Any]:
        """All processes that it started, and theirs."""
        import psutil

        try:
            return list(psutil.Process(self.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    def wait(self, seconds: float) -> None:
        """Wait until it has ended by itself, or for so many seconds."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(seconds)

    def stop(self, *, kill: bool = False) -> None:
        """End it and everything it started; ``kill`` does not let it clean up."""
        import psutil

        family = self.descendants()
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            self._child.wait(0 if kill else _GRACE)
        except subprocess.TimeoutExpired:
            self._child.kill()
        self._child.wait()
        _, stubborn = psutil.wait_procs(family, timeout=0 if kill else 3)
        for process in stubborn:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(stubborn, timeout=_GRACE)
        if self._child.stdin is not None:
            self._child.stdin.close()


def start_link(config: FederationConfig) -> Process:
    """Start the SuperLink of an aggregator; everything that it writes is for its owner alone."""
    config.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    config.folder.chmod(0o700)
    write_atomically(config.secret_file, secrets.token_hex(32).encode(), private=True)
    options = [
        "--host", config.host, "--port", str(config.port),
        "--ssl-ca-certfile", str(config.ca), "--ssl-certfile", str(config.certificate),
        "--ssl-keyfile", str(config.key), "--enable-supernode-auth",
        "--database", ":flwr-in-memory:",  # messages pass through it, and none is kept
        "--disable-runtime-dependency-installation",
        "--isolation", "process", "--superexec-auth-secret-file", str(config.secret_file),
    ]  # fmt: skip
    command = [str(Path(launch.__file__)), "superlink", *options]
    return Process("the SuperLink", command, config.folder, config.folder / "superlink.log")


def free_port() -> int:
    """An unused port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Aggregator:
    """The SuperLink, the registered keys and the program that processes the queue.

    Parameters
    ----------
    config : path
        ``federation.toml``.
    start_timeout : float, default=120
        Seconds that a start may take.
    """

    def __init__(self, config: str | os.PathLike[str], *, start_timeout: float = 120.0) -> None:
        launch.require_flower()
        self.config = FederationConfig.from_file(config)
        self._start_timeout = start_timeout
        host, _, port = self.config.local_address.rpartition(":")
        self._address = (host, int(port))
        self.control = launch.Control(self.config.local_address, self.config.ca)
        self.spool = Spool(self.config.folder / "queue")
        self._lock = FolderLock(self.config.folder, "aggregator")
        self.link: Process | None = None
        self.program: Process | None = None
        self._started = 0.0

    def start(self) -> Self:
        """Start the SuperLink, register the keys of the parties, start the queue's program."""
        config = self.config
        self._lock.take()  # or leave the aggregator that has it alone
        try:
            self.spool.start()
            self.link = start_link(config)
            wait_for(self._listens, "the SuperLink", self._start_timeout, self.link.check)
            self.control.register(config.node_keys)
            self._run()
        except BaseException:
            self.stop()
            raise
        return self

    def _listens(self) -> bool:
        try:
            socket.create_connection(self._address, 1).close()
        except OSError:
            return False
        return True

    def _run(self) -> None:
        if self.program is not None:
            self.program.stop(kill=True)
        self.control.start_run()
        command = ["-m", "permea.federation.flower.server", str(self.config.path)]
        folder = self.config.folder
        self.program = Process("the queue's program", command, folder, folder / "queue.log")
        self._started = time.monotonic()

    def keep_alive(self) -> None:
        """Raise when the SuperLink has ended; restart the queue's program when it has."""
        if self.link is None or self.program is None:
            raise DeploymentError("The aggregator was not started.")
        self.link.check()
        beat = self.spool.last_beat()
        fresh = time.monotonic() - self._started < max(_STALE, self._start_timeout)
        ended = self.program.returncode is not None and time.monotonic() - self._started > _PAUSE
        if ended or (not fresh and (beat is None or beat > _STALE)):
            self._run()

    def is_stopping(self) -> bool:
        """Whether the service is to end; until then it is kept alive."""
        if not self.spool.is_stopping:
            self.keep_alive()
        return self.spool.is_stopping

    def wait_for_parties(self, names: Sequence[str] | None = None, *, timeout: float) -> None:
        """Wait until these parties, or by default as many as the quorum, are connected."""
        keys, quorum = self.config.keys, self.config.settings.get("quorum")
        needed = quorum or len(keys) if names is None else len(names)

        def connected() -> bool:
            online = self.control.online()
            return len(online & set(keys if names is None else names)) >= needed

        what = f"{needed} parties" if names is None else f"the parties {', '.join(names)}"
        wait_for(connected, what, timeout, self.keep_alive)

    def ask(self, X: ArrayLike, *, client: str, timeout: float) -> JobResult:
        """Queue queries and wait for the answer.

        In an encrypted federation this process is the key holder: the secret key stays in its
        memory.
        """
        if self.config.settings.get("encrypted"):
            queue = EncryptedQueue(self.spool.folder)
            return queue.ask(X, client=client, timeout=timeout, check=self.keep_alive)
        job = self.spool.submit(X, client=client)
        return self.spool.wait(job, timeout, self.keep_alive)

    def stop(self) -> None:
        """End the service after the current job, and every process it started."""
        with suppress(OSError):  # a full disk does not keep the processes alive
            self.spool.stop()
        if self.program is not None:
            self.program.wait(_GRACE)
            self.program.stop()
            self.program = None
        if self.link is not None:
            self.link.stop()
            self.link = None
        self._lock.release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()


def train_model(config: PartyConfig) -> None:
    """Train and save the model of a party with privacy; rows never leave this function."""
    assert config.model is not None
    if config.training is None:
        raise FederationError(
            f"{config.model} does not exist and {config.path.name} has no [train] table. Train "
            "a private model and save it there, or add a [train] table."
        )
    with np.load(config.training.data, allow_pickle=False) as arrays:
        X, y = arrays["X"], arrays["y"]
        people = arrays["groups"] if "groups" in arrays.files else None
    save(config.training.model().fit(X, y, groups=people), config.model)


def prepare(config: PartyConfig) -> None:
    """Train a model if there is none; raise when it may not join, or its log is damaged."""
    AuditLog(config.guard["log"]).entries()
    if config.model is None:
        return
    if not config.model.exists():
        train_model(config)
    config.party()


class PartyNode:
    """The node of a party, or of a reader of secure sums, as a child process.

    Parameters
    ----------
    config : path
        ``clinic-a.toml``.
    """

    def __init__(self, config: str | os.PathLike[str]) -> None:
        launch.require_flower()
        self.config = node_config(Path(config))
        self._node: Process | None = None

    def start(self) -> Self:
        """Train a model if there is none, check that it may join, connect to the aggregator."""
        config = self.config
        if isinstance(config, PartyConfig):
            prepare(config)
        command = ["-m", "permea.federation.flower.node", str(config.path)]
        log = config.folder / f"{config.name}.log"
        self._node = Process(config.name, command, config.folder, log)
        return self

    @property
    def process(self) -> Process:
        """The running node."""
        if self._node is None:
            raise DeploymentError(f"Party {self.config.name!r} was not started.")
        return self._node

    def stop(self, *, kill: bool = False) -> None:
        """End the node and everything it started."""
        if self._node is not None:
            self._node.stop(kill=kill)
            self._node = None


def run_party(config_path: str | os.PathLike[str]) -> int:
    """Serve a party in this process until a signal; what ``permea party --config …`` does.

    A model is trained first where there is none. The party waits for an aggregator that does not
    answer yet, and connects again when it was restarted.
    """
    from permea.federation.flower.node import Node, serve_node

    config = node_config(Path(config_path))
    if isinstance(config, PartyConfig):
        prepare(config)
    served = ServedParty(config.path)
    served.replies()  # what is wrong with the files is told now
    serve_node(Node(config.address, config.ca, config.key, served.replies))
    return 0


def run_federation(
    config_path: str | os.PathLike[str],
    *,
    queries: ArrayLike | None = None,
    client: str = "operator",
    wait_for_parties: float = 600.0,
    timeout: float = 3600.0,
) -> JobResult | None:
    """Run an aggregator; what ``permea federate --engine flower --config …`` does.

    Parameters
    ----------
    config_path : path
        ``federation.toml``.
    queries : array-like of shape (m, p), optional
        Answer these and end. Without queries, serve the queue until a signal stops it.
    client : str
        Name of the client, for the logs of the parties.
    wait_for_parties : float
        Seconds to wait for as many parties as the quorum needs.
    timeout : float
        Seconds to wait for the answer.

    Returns
    -------
    JobResult or None
        The answer to ``queries``.
    """
    with Aggregator(config_path) as aggregator:
        if queries is None:
            _run_until(aggregator.is_stopping)
            return None
        aggregator.wait_for_parties(timeout=wait_for_parties)
        return aggregator.ask(queries, client=client, timeout=timeout)


def _run_until(done: Callable[[], bool]) -> None:
    """Wait for a signal to end, or until ``done``."""
    signalled = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        signalled.set()

    inherited = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not done() and not signalled.wait(0.5):
            pass
    finally:
        for number, handler in inherited.items():
            signal.signal(number, handler)

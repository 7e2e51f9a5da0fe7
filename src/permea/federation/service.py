"""A queue of questions on the aggregator's disk: what was accepted is answered, or says why not.

A job is accepted when its file stands in ``inbox``; it leaves the inbox only after its answer
stands in ``outbox``. Files appear under their final name when they are complete. A crash in
between means that the job is answered again after a restart, never that it is lost.
"""

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea.federation.aggregate import Answer
from permea.federation.errors import FederationError
from permea.federation.federation import Federation

_BEAT = 1.0  # seconds between two signs of life


@dataclass(frozen=True)
class JobResult:
    """The answer to a job as it stands in the outbox."""

    labels: NDArray[Any]
    distances: NDArray[Any] | None
    classes: NDArray[Any]
    report: dict[str, Any]  #: who answered, who did not and why, who is doubtful


class JobFailedError(FederationError):
    """A job could not be answered; the text says why. Its queries are kept in ``failed``."""


class Spool:
    """The folders of the queue.

    Parameters
    ----------
    folder : path
        Created with permissions for its owner alone, because queries may be sensitive.

    Examples
    --------
    >>> import tempfile
    >>> place = tempfile.TemporaryDirectory()
    >>> spool = Spool(place.name)
    >>> job = spool.submit(np.zeros((3, 2)), asker="me")
    >>> spool.waiting() == [job]
    True
    >>> place.cleanup()
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        for name in ("inbox", "outbox", "failed"):
            (self.folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)

    def submit(self, X: ArrayLike, *, asker: str) -> str:
        """Accept queries; returns the name of the job."""
        job = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
        queries = np.asarray(X)
        if queries.dtype not in (np.float32, np.float64):
            queries = queries.astype(np.float64)
        _write_arrays(self.folder / "inbox" / f"{job}.npz", queries=queries, asker=np.array(asker))
        return job

    def waiting(self) -> list[str]:
        """Accepted jobs without an answer, oldest first."""
        return sorted(path.stem for path in (self.folder / "inbox").glob("*.npz"))

    def result(self, job: str) -> JobResult | None:
        """The answer to a job, None while there is none; `JobFailedError` when none will come."""
        report = self.folder / "outbox" / f"{job}.json"
        if not report.exists():
            return None
        said = json.loads(report.read_text(encoding="utf-8"))
        if "error" in said:
            raise JobFailedError(said["error"])
        with np.load(self.folder / "outbox" / f"{job}.npz", allow_pickle=False) as arrays:
            found = arrays.get("distances")
            return JobResult(arrays["labels"], found, arrays["classes"], said)

    def wait(self, job: str, timeout: float, check: Callable[[], None] = lambda: None) -> JobResult:
        """Wait for an answer; ``check`` may raise when there is no hope left."""
        deadline = time.monotonic() + timeout
        while (result := self.result(job)) is None:
            check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"No answer to job {job} within {timeout:g} s; it stays queued.")
            time.sleep(0.1)
        return result

    # ---- the side that answers ---------------------------------------------------------------

    def stop(self) -> None:
        """Ask the service to end after the job in hand."""
        (self.folder / "stop").touch()

    @property
    def is_stopping(self) -> bool:
        """Whether somebody asked the service to end."""
        return (self.folder / "stop").exists()

    def last_beat(self) -> float | None:
        """Seconds since the service gave a sign of life; None when it never has."""
        try:
            return time.time() - (self.folder / "alive").stat().st_mtime
        except FileNotFoundError:
            return None

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Give signs of life while the body runs."""
        done = threading.Event()

        def beat() -> None:
            while not done.is_set():
                (self.folder / "alive").touch()
                done.wait(_BEAT)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def answer_next(self, federation: Federation) -> str | None:
        """Answer the oldest job; returns its name, or None when nobody waits."""
        jobs = self.waiting()
        if not jobs:
            return None
        job = jobs[0]
        inbox = self.folder / "inbox" / f"{job}.npz"
        try:
            with np.load(inbox, allow_pickle=False) as arrays:
                queries, asker = arrays["queries"], str(arrays["asker"])
            answer = federation.ask(queries, asker=asker)
        except (FederationError, ValueError, OSError, KeyError) as error:
            os.replace(inbox, self.folder / "failed" / inbox.name)
            self._report(job, {"error": f"{type(error).__name__}: {error}"})
            return job
        self._deliver(job, answer)
        inbox.unlink()
        return job

    def _deliver(self, job: str, answer: Answer) -> None:
        arrays = {"labels": answer.labels, "classes": answer.classes}
        if answer.distances is not None:
            arrays["distances"] = answer.distances
        _write_arrays(self.folder / "outbox" / f"{job}.npz", **arrays)
        self._report(
            job,
            {
                "who_answered": list(answer.who_answered),
                "partly": list(answer.partly),
                "missing": dict(answer.missing),
                "suspicions": [str(doubt) for doubt in answer.suspicions],
                "complete": answer.is_complete,
            },
        )

    def _report(self, job: str, report: dict[str, Any]) -> None:
        _write_text(self.folder / "outbox" / f"{job}.json", json.dumps(report, ensure_ascii=False))


def serve(federation: Federation, spool: Spool, *, rest: float = 0.2) -> None:
    """Answer jobs until `Spool.stop`."""
    with spool.alive():
        while not spool.is_stopping:
            if spool.answer_next(federation) is None:
                time.sleep(rest)


def _write_arrays(path: Path, **arrays: Any) -> None:
    part = path.with_name(f".{path.name}.part.npz")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def _write_text(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)

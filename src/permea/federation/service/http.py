"""A queue of questions on the aggregator's disk: what was accepted is answered, or says why not.

A job is accepted when its file stands in ``inbox``; it leaves the inbox only after its answer
stands in ``outbox``. Files appear under their final name when they are complete. A crash in
between means that the job is answered again after a restart, never that it is lost.
"""

import io
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._files import write_atomically
from permea._text import safe_json
from permea.federation.aggregate import Answer
from permea.federation.encryption import EvaluationKey
from permea.federation.encryption.queries import EncryptedQuestion, SealedAnswer, Terms
from permea.federation.errors import FederationError, RefusedError
from permea.federation.federation import Federation
from permea.federation.party import status_of

T = TypeVar("T")
_BEAT = 1.0  # seconds between two signs of life


@dataclass(frozen=True)
class JobResult:
    """The answer to a job as it stands in the outbox."""

    labels: NDArray[Any]
    distances: NDArray[Any] | None
    classes: NDArray[Any]
    report: dict[str, Any]  #: who answered, who did not and why, who is doubtful, what is promised


@dataclass(frozen=True)
class SealedResult:
    """The answer to an encrypted job: ciphertexts that the asker alone can open."""

    results: tuple[bytes, ...]
    report: dict[str, Any]


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
        for name in ("inbox", "outbox", "failed", "keys"):
            (self.folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)

    def submit(
        self,
        X: ArrayLike,
        *,
        asker: str,
        question: EncryptedQuestion | None = None,
        evaluation_key: EvaluationKey | None = None,
    ) -> str:
        """Accept queries; returns the name of the job.

        An encrypted question comes with the asker's evaluation key, which is kept for further ones.
        """
        job = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
        queries = np.asarray(X)
        if queries.dtype not in (np.float32, np.float64):
            queries = queries.astype(np.float64)
        arrays = {"queries": queries, "asker": np.array(asker)}
        if question is not None and evaluation_key is not None:
            self._keep(evaluation_key)
            said = question.to_record()
            arrays["public_key"] = np.frombuffer(said.pop("public_key"), dtype=np.uint8)
            arrays["question"] = np.array(json.dumps({**said, "key": evaluation_key.digest}))
        _write_arrays(self.folder / "inbox" / f"{job}.npz", **arrays)
        return job

    def _keep(self, key: EvaluationKey) -> None:
        path = self.folder / "keys" / key.digest
        if not path.exists():
            write_atomically(path, key.to_bytes(), private=True)

    def waiting(self) -> list[str]:
        """Accepted jobs without an answer, oldest first."""
        return sorted(path.stem for path in (self.folder / "inbox").glob("*.npz"))

    def publish(self, terms: Terms) -> None:
        """Let askers read what an encrypted question must be made for."""
        text, path = terms.to_json(), self.folder / "terms.json"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_atomically(path, text.encode("utf-8"))

    def terms(self) -> Terms | None:
        """What an encrypted question must be made for; None until enough parties are known."""
        try:
            return Terms.from_json((self.folder / "terms.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def report(self, job: str) -> dict[str, Any] | None:
        """What is said about a job; None while nothing is, `JobFailedError` when it failed."""
        path = self.folder / "outbox" / f"{job}.json"
        if not path.exists():
            return None
        said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if "error" in said:
            raise JobFailedError(said["error"])
        return said

    def sealed_result(self, job: str) -> SealedResult | None:
        """The answer to an encrypted job, None while there is none."""
        if (said := self.report(job)) is None:
            return None
        with np.load(self.folder / "outbox" / f"{job}.npz", allow_pickle=False) as arrays:
            return SealedResult(tuple(arrays[name].tobytes() for name in sorted(arrays)), said)

    def result(self, job: str) -> JobResult | None:
        """The answer to a job, None while there is none; `JobFailedError` when none will come."""
        if (said := self.report(job)) is None:
            return None
        with np.load(self.folder / "outbox" / f"{job}.npz", allow_pickle=False) as arrays:
            found = arrays.get("distances")
            return JobResult(arrays["labels"], found, arrays["classes"], said)

    def wait(self, job: str, timeout: float, check: Callable[[], None] = lambda: None) -> JobResult:
        """Wait for an answer; ``check`` may raise when there is no hope left."""
        late = f"No answer to job {job} within {timeout:g} s; it stays queued."
        return wait_for(lambda: self.result(job), timeout, late, check)

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
                deliver = self._work(federation, dict(arrays))
        except (FederationError, ValueError, OSError, KeyError) as error:
            os.replace(inbox, self.folder / "failed" / inbox.name)
            self._report(job, {"error": f"{type(error).__name__}: {error}"})
            return job
        deliver(job)
        inbox.unlink()
        return job

    def _work(
        self, federation: Federation, arrays: dict[str, NDArray[Any]]
    ) -> Callable[[str], None]:
        """Answer a job; returns what writes the answer down."""
        queries, asker = arrays["queries"], str(arrays["asker"])
        if federation.settings.encrypted != ("question" in arrays):
            kind = "encrypted" if federation.settings.encrypted else "plain"
            raise RefusedError(f"This federation answers {kind} questions only.")
        if "question" not in arrays:
            answer = federation.ask(queries, asker=asker)
            return lambda job: self._deliver(job, answer, _promised(federation))
        said = json.loads(str(arrays["question"]))
        question = EncryptedQuestion.from_record(
            {**said, "public_key": arrays["public_key"].tobytes()}
        )
        path = self.folder / "keys" / Path(str(said["key"])).name
        sealed = federation.ask_sealed(
            queries, question, EvaluationKey.from_bytes(path.read_bytes()), asker=asker
        )
        return lambda job: self._deliver_sealed(job, sealed, _promised(federation))

    def _deliver_sealed(self, job: str, sealed: SealedAnswer, promised: dict[str, Any]) -> None:
        arrays = {
            f"{index:06d}": np.frombuffer(result, dtype=np.uint8)
            for index, result in enumerate(sealed.results)
        }
        _write_arrays(self.folder / "outbox" / f"{job}.npz", **arrays)
        self._report(job, {**_said(sealed), "suspicions": [], **promised})

    def _deliver(self, job: str, answer: Answer, promised: dict[str, Any]) -> None:
        arrays = {"labels": answer.labels, "classes": answer.classes}
        if answer.distances is not None:
            arrays["distances"] = answer.distances
        _write_arrays(self.folder / "outbox" / f"{job}.npz", **arrays)
        doubts = [str(doubt) for doubt in answer.suspicions]
        self._report(job, {**_said(answer), "suspicions": doubts, **promised})

    def _report(self, job: str, report: dict[str, Any]) -> None:
        write_atomically(self.folder / "outbox" / f"{job}.json", safe_json(report).encode("utf-8"))


def _said(answer: Answer | SealedAnswer) -> dict[str, Any]:
    """On whom an answer rests."""
    return {
        "who_answered": list(answer.who_answered),
        "partly": list(answer.partly),
        "missing": dict(answer.missing),
        "complete": answer.is_complete,
    }


def _promised(federation: Federation) -> dict[str, Any]:
    """What is promised about the rows behind an answer, and whether that was verified."""
    summary = federation.summary()
    return {
        "private": summary.is_private and summary.is_verified,
        "verified": summary.is_verified,
        "status": summary.status,
        "parties": {name: status_of(one) for name, one in federation.certificates.items()},
    }


def serve(federation: Federation, spool: Spool, *, rest: float = 0.2) -> None:
    """Answer jobs until `Spool.stop`; an encrypted federation publishes its terms first."""
    with spool.alive():
        while not spool.is_stopping:
            if federation.settings.encrypted:
                _publish(federation, spool)
            if spool.answer_next(federation) is None:
                time.sleep(rest)


def _publish(federation: Federation, spool: Spool) -> None:
    """Terms follow from the parties that are known; strangers are asked again each time."""
    try:
        spool.publish(federation.terms())
    except FederationError:
        return  # not enough parties yet: a question in the queue is told so


def wait_for(
    find: Callable[[], T | None], timeout: float, late: str, check: Callable[[], None]
) -> T:
    """Wait until something is found; ``check`` may raise when there is no hope left."""
    deadline = time.monotonic() + timeout
    while (found := find()) is None:
        check()
        if time.monotonic() > deadline:
            raise TimeoutError(late)
        time.sleep(0.1)
    return found


def _write_arrays(path: Path, **arrays: Any) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_atomically(path, buffer.getvalue(), private=True)

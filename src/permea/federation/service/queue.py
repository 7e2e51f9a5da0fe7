"""A queue of jobs on the aggregator's disk: each accepted job gets an answer or a reason.

A job is accepted when its file is in ``inbox``; it leaves the inbox only after its answer is in
``outbox``. Files appear under their final name when they are complete. After a crash in between the
job is processed again on restart; it is never lost.

The queue is a folder: on the same machine, or copied there and back by any means. For encrypted
queries it holds the queries, the public key and the evaluation keys, and later ciphertexts of
labels. The secret key is never in that folder.
"""

import io
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._files import write_atomically
from permea._text import safe_json
from permea.federation.aggregate import Answer
from permea.federation.encryption import EvaluationKey, Keys, PublicKey, SecretKey
from permea.federation.encryption.protocol import EncryptedQuery, KeyHolder, Terms
from permea.federation.errors import FederationError, PartyTimeoutError, RefusedError
from permea.federation.federation import Federation
from permea.federation.party import status_of

T = TypeVar("T")
Check = Callable[[], None]
_BEAT = 1.0  # seconds between two heartbeats
_KEY_FILES = ("secret.key", "public.key", "evaluation.key")


def wait_for(find: Callable[[], T | None], what: str, timeout: float, check: Check) -> T:
    """Wait until ``find`` returns something true; ``check`` raises when it never will."""
    deadline = time.monotonic() + timeout
    while not (found := find()):
        check()
        if time.monotonic() > deadline:
            raise PartyTimeoutError(f"Timed out after {timeout:g} s waiting for {what}.")
        time.sleep(0.1)
    return found


@dataclass(frozen=True)
class JobResult:
    """The answer to a job as it is in the outbox."""

    labels: NDArray[Any]
    distances: NDArray[Any] | None
    classes: NDArray[Any]
    report: dict[str, Any]  #: provenance, missing and suspicious parties, what is promised


class JobFailedError(FederationError):
    """A job failed; the text gives the reason. Its queries are kept in ``failed``."""


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
    >>> job = spool.submit(np.zeros((3, 2)), client="me")
    >>> spool.waiting() == [job]
    True
    >>> place.cleanup()
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        for name in ("inbox", "outbox", "failed", "keys"):
            (self.folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)

    # ---- the client's side -------------------------------------------------------------------

    def submit(
        self,
        X: ArrayLike,
        *,
        client: str,
        query: EncryptedQuery | None = None,
        evaluation_key: EvaluationKey | None = None,
    ) -> str:
        """Accept queries; returns the name of the job.

        An encrypted query needs the client's evaluation key, which is kept for further ones.
        """
        job = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
        queries = np.asarray(X)
        if queries.dtype not in (np.float32, np.float64):
            queries = queries.astype(np.float64)
        arrays = {"queries": queries, "client": np.array(client)}
        if query is not None and evaluation_key is not None:
            path = self.folder / "keys" / evaluation_key.digest
            if not path.exists():
                write_atomically(path, evaluation_key.to_bytes(), private=True)
            record = query.to_record()
            arrays["public_key"] = np.frombuffer(record.pop("public_key"), dtype=np.uint8)
            arrays["query"] = np.array(json.dumps({**record, "key": evaluation_key.digest}))
        self._write_arrays("inbox", job, arrays)
        return job

    def terms(self) -> Terms | None:
        """Terms of encrypted queries; None until enough parties are known."""
        try:
            return Terms.from_json((self.folder / "terms.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def outcome(self, job: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        """Arrays and report of a job; None while there are none, `JobFailedError` if it failed."""
        path = self.folder / "outbox" / f"{job}.json"
        if not path.exists():
            return None
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if "error" in report:
            raise JobFailedError(report["error"])
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
            return dict(arrays), report

    def result(self, job: str) -> JobResult | None:
        """The answer to a job, None while there is none; `JobFailedError` if it failed."""
        if (outcome := self.outcome(job)) is None:
            return None
        arrays, report = outcome
        return JobResult(arrays["labels"], arrays.get("distances"), arrays["classes"], report)

    def wait(self, job: str, timeout: float, check: Check = lambda: None) -> JobResult:
        """Wait for an answer; the job stays queued when it is late."""
        return wait_for(lambda: self.result(job), f"job {job}, which stays queued", timeout, check)

    # ---- the aggregator's side ---------------------------------------------------------------

    def waiting(self) -> list[str]:
        """Accepted jobs without an answer, oldest first."""
        return sorted(path.stem for path in (self.folder / "inbox").glob("*.npz"))

    def publish(self, terms: Terms) -> None:
        """Publish the terms of encrypted queries."""
        text, path = terms.to_json(), self.folder / "terms.json"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_atomically(path, text.encode("utf-8"))

    def stop(self) -> None:
        """Make the service end after the current job."""
        (self.folder / "stop").touch()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return (self.folder / "stop").exists()

    def last_beat(self) -> float | None:
        """Seconds since the last heartbeat of the service; None when there was none."""
        try:
            return time.time() - (self.folder / "alive").stat().st_mtime
        except FileNotFoundError:
            return None

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Send heartbeats while the body runs."""
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
        """Process the oldest job; returns its name, or None when the queue is empty."""
        jobs = self.waiting()
        if not jobs:
            return None
        job = jobs[0]
        inbox = self.folder / "inbox" / f"{job}.npz"
        try:
            with np.load(inbox, allow_pickle=False) as arrays:
                found, report = self._answer(federation, dict(arrays))
        except (FederationError, ValueError, OSError, KeyError) as error:
            os.replace(inbox, self.folder / "failed" / inbox.name)
            self._write_report(job, {"error": f"{type(error).__name__}: {error}"})
            return job
        self._write_arrays("outbox", job, found)
        self._write_report(job, report)
        inbox.unlink()
        return job

    def _answer(
        self, federation: Federation, arrays: dict[str, NDArray[Any]]
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays and report that answer a job."""
        queries, client = arrays["queries"], str(arrays["client"])
        if federation.encrypted != ("query" in arrays):
            kind = "encrypted" if federation.encrypted else "plain"
            raise RefusedError(f"This federation answers {kind} queries only.")
        if not federation.encrypted:
            answer = federation.ask(queries, client=client)
            found = {"labels": answer.labels, "classes": answer.classes}
            assert answer.distances is not None
            return {**found, "distances": answer.distances}, _report(federation, answer)
        record = json.loads(str(arrays["query"]))
        query = EncryptedQuery.from_record({**record, "public_key": arrays["public_key"].tobytes()})
        path = self.folder / "keys" / Path(str(record["key"])).name
        key = EvaluationKey.from_bytes(path.read_bytes())
        encrypted = federation.ask_encrypted(queries, query, key, client=client)
        found = {
            f"{index:06d}": np.frombuffer(ciphertext, dtype=np.uint8)
            for index, ciphertext in enumerate(encrypted.ciphertexts)
        }
        return found, _report(federation, encrypted)

    def _write_arrays(self, folder: str, job: str, arrays: dict[str, NDArray[Any]]) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        write_atomically(self.folder / folder / f"{job}.npz", buffer.getvalue(), private=True)

    def _write_report(self, job: str, report: dict[str, Any]) -> None:
        write_atomically(self.folder / "outbox" / f"{job}.json", safe_json(report).encode("utf-8"))


def _report(federation: Federation, answer: Any) -> dict[str, Any]:
    """Provenance of an answer, what is promised about the rows, and whether it was verified."""
    summary = federation.summary()
    found = answer.suspicions if isinstance(answer, Answer) else ()
    return {
        "who_answered": list(answer.who_answered),
        "partly": list(answer.partly),
        "missing": dict(answer.missing),
        "complete": answer.is_complete,
        "suspicions": [str(suspicion) for suspicion in found],
        "private": summary.is_private and summary.is_verified,
        "verified": summary.is_verified,
        "status": summary.status,
        "parties": {name: status_of(one) for name, one in federation.certificates.items()},
    }


def serve(federation: Federation, spool: Spool) -> None:
    """Process jobs until `Spool.stop`; an encrypted federation publishes its terms first."""
    with spool.alive():
        while not spool.is_stopping:
            if federation.encrypted:
                with suppress(FederationError):  # not enough parties yet: the next job says why
                    spool.publish(federation.terms())
            if spool.answer_next(federation) is None:
                time.sleep(0.2)


class EncryptedQueue:
    """The key holder's end of the queue of an encrypted federation.

    Parameters
    ----------
    folder : path
        The queue of the aggregator.
    keys : path, optional
        Private folder of the client, outside of the queue, where a key set is kept between
        programs. By default keys are kept in memory only.

    Examples
    --------
    With an aggregator that serves ``federation-state/queue``::

        queue = EncryptedQueue("federation-state/queue")
        result = queue.ask(X, client="ward 3", timeout=600)
        result.labels, result.report["who_answered"]
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, keys: str | os.PathLike[str] | None = None
    ) -> None:
        self.spool = Spool(folder)
        self._folder = None if keys is None else Path(keys)
        queue = self.spool.folder.resolve()
        if self._folder is not None and self._folder.resolve().is_relative_to(queue):
            raise ValueError(
                f"{self._folder} is inside the aggregator's queue, where the aggregator could read "
                "the secret key. Keep the keys elsewhere."
            )
        self._holder: KeyHolder | None = None
        self._queries: dict[str, EncryptedQuery] = {}

    def submit(
        self, X: ArrayLike, *, client: str, timeout: float = 600.0, check: Check = lambda: None
    ) -> str:
        """Queue an encrypted query; returns the name of the job.

        Waits up to ``timeout`` seconds for the terms, which need as many parties as the quorum.
        """
        what = "the terms: they are published when enough parties are connected"
        terms = wait_for(self.spool.terms, what, timeout, check)
        if self._holder is None or self._holder.terms != terms:  # other terms need other keys
            self._holder = KeyHolder(terms, self._kept_keys(terms))
            self._queries.clear()
        query = self._holder.query()
        queries = terms.schema.check_queries(X)
        key = self._holder.keys.evaluation
        job = self.spool.submit(queries, client=client, query=query, evaluation_key=key)
        self._queries[job] = query
        return job

    def wait(self, job: str, timeout: float, check: Check = lambda: None) -> JobResult:
        """Wait for the answer to a job of this object, and decrypt it."""
        if self._holder is None or job not in self._queries:
            raise KeyError(f"Job {job} was not submitted here, so its key is not known.")
        what = f"job {job}, which stays queued"
        arrays, report = wait_for(lambda: self.spool.outcome(job), what, timeout, check)
        ciphertexts, query = [arrays[n].tobytes() for n in sorted(arrays)], self._queries[job]
        labels, beyond = self._holder.labels(ciphertexts, query)
        return JobResult(labels, None, np.array(query.classes), {**report, "beyond_scale": beyond})

    def ask(
        self, X: ArrayLike, *, client: str, timeout: float, check: Check = lambda: None
    ) -> JobResult:
        """Queue an encrypted query, wait, decrypt."""
        job = self.submit(X, client=client, timeout=timeout, check=check)
        return self.wait(job, timeout, check)

    def _kept_keys(self, terms: Terms) -> Keys | None:
        """Keys of an earlier program for the same terms, or fresh ones that are kept."""
        if self._folder is None:
            return None
        place = self._folder / terms.scheme.fingerprint
        if place.exists():
            return load_keys(place)
        keys = terms.scheme.keygen()
        save_keys(keys, place)
        return keys


def save_keys(keys: Keys, folder: str | os.PathLike[str]) -> None:
    """Write a key set for its owner alone into a new folder."""
    place = Path(folder)
    place.mkdir(parents=True, mode=0o700)
    for key, name in zip(keys, _KEY_FILES, strict=True):
        write_atomically(place / name, key.to_bytes(), private=True)


def load_keys(folder: str | os.PathLike[str]) -> Keys:
    """Read `save_keys`."""
    secret, public, evaluation = ((Path(folder) / name).read_bytes() for name in _KEY_FILES)
    return Keys(SecretKey(secret), PublicKey(public), EvaluationKey(evaluation))

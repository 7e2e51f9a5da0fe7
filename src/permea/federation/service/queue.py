"""The queue between those who ask and the aggregator.

A job is accepted when `Spool.submit` returns. It gets an answer or a reason, whatever happens to
the processes; `permea.federation.service.store` says which states it goes through. Below the quorum
it waits until its deadline.

The folder belongs to the aggregator's account. For encrypted queries it holds the queries, the
public key and the evaluation keys, and later ciphertexts of labels. The secret key is never there.
"""

import io
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._files import write_atomically
from permea._text import safe_json
from permea.federation.aggregate import Answer
from permea.federation.encryption import (
    EncryptionError,
    EvaluationKey,
    Keys,
    PublicKey,
    SecretKey,
)
from permea.federation.encryption.protocol import EncryptedQuery, KeyHolder, Terms
from permea.federation.errors import (
    FederationError,
    PartyTimeoutError,
    QuorumError,
    RefusedError,
    SchemaError,
)
from permea.federation.federation import Federation
from permea.federation.party import status_of
from permea.federation.service.database import FolderLock, StoreError, StoreFullError
from permea.federation.service.decode import read_array
from permea.federation.service.store import RETENTION, Job, JobStore, State

T = TypeVar("T")
Check = Callable[[], None]
Contents = dict[str, bytes]
Work = Callable[[Job, Contents], tuple[Contents, dict[str, Any]]]
_BEAT = 1.0  # seconds between two signs of life
_POLL = 0.05  # seconds between two looks at an empty queue
_PAUSE = 2.0  # seconds until a job below the quorum, or after a fault, is tried again
_INTRODUCE = 1.0  # seconds between two looks for parties that have not introduced themselves
_UPKEEP = 60.0  # seconds between two purges
_OTHER = 60.0  # seconds that the predecessor of a worker may take to end
_KEY_FILES = ("secret.key", "public.key", "evaluation.key")


def wait_for(find: Callable[[], T | None], what: str, timeout: float, check: Check) -> T:
    """Wait until ``find`` returns something true; ``check`` raises when it never will."""
    deadline, pause = time.monotonic() + timeout, 0.01
    while not (found := find()):
        check()
        if time.monotonic() > deadline:
            raise PartyTimeoutError(f"Timed out after {timeout:g} s waiting for {what}.")
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    return found


@dataclass(frozen=True)
class JobResult:
    """The answer to a job."""

    labels: NDArray[Any]
    distances: NDArray[Any] | None
    classes: NDArray[Any]
    report: dict[str, Any]  #: provenance, missing and suspicious parties, what is promised


class JobFailedError(FederationError):
    """A job has no answer; the text gives the reason."""


class Spool:
    """The queue in a folder.

    Parameters
    ----------
    folder : path
        Created for its owner alone, because queries may be sensitive.
    retention : float, optional
        Seconds that answers, and jobs in quarantine, are kept: from now on, by every program that
        uses the folder. A week unless it was ever given.
    **options
        Keywords of `permea.federation.service.store.JobStore`.

    Examples
    --------
    >>> import tempfile
    >>> place = tempfile.TemporaryDirectory()
    >>> spool = Spool(place.name)
    >>> job = spool.submit(np.zeros((3, 2)), client="me")
    >>> spool.waiting() == [job]
    True
    >>> spool.store.close(); place.cleanup()
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, retention: float | None = None, **options: Any
    ) -> None:
        self.folder = Path(folder)
        self.store = JobStore(folder, **options)
        if retention is not None:
            self.store.database.set_fact("retention", str(float(retention)))
        self._wake = threading.Event()  # for a worker in this process

    # ---- the client's side -------------------------------------------------------------------

    def submit(
        self,
        X: ArrayLike,
        *,
        client: str,
        query: EncryptedQuery | None = None,
        evaluation_key: EvaluationKey | None = None,
        **options: Any,
    ) -> str:
        """Accept queries; returns the name of the job.

        An encrypted query needs the client's evaluation key, which is kept for further ones. Takes
        the keywords of `JobStore.submit`.
        """
        queries = np.asarray(X)
        if queries.dtype not in (np.float32, np.float64):
            queries = queries.astype(np.float64)
        contents = {"queries": pack_array(queries)}
        if query is not None and evaluation_key is not None:
            self.store.keep_key(evaluation_key.digest, evaluation_key.to_bytes())
            contents |= pack_query(query, evaluation_key.digest)
            options["kind"] = "encrypted"
        job = self.store.submit(contents, rows=len(queries), client=client, **options)
        self.wake()
        return job

    def terms(self) -> Terms | None:
        """Terms of encrypted queries; None until enough parties are known."""
        text = self.store.database.fact("terms")
        return None if text is None else Terms.from_json(text)

    def outcome(self, job: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        """Arrays and report of a job; None while there are none, `JobFailedError` if it failed."""
        found = self.store.job(job)
        if not found.state.has_ended:
            return None
        if found.state is not State.done:
            raise JobFailedError(f"Job {job} is {found.state.value}: {found.reason}")
        parts = self.store.contents(found)
        return {name: _unpacked(part) for name, part in parts.items()}, found.report

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
        query = "SELECT id FROM jobs WHERE state IN ('queued', 'running') ORDER BY number"
        return [str(name) for (name,) in self.store.database.rows(query)]

    def publish(self, name: str, text: str) -> None:
        """Publish what askers may know before they ask, such as the terms of encrypted queries."""
        if self.store.database.fact(name) != text:
            self.store.database.set_fact(name, text)

    def start(self) -> None:
        """Forget an earlier `stop` and earlier signs of life."""
        for name in ("stop", "alive"):
            (self.folder / name).unlink(missing_ok=True)

    def stop(self) -> None:
        """Make the worker end after the current job."""
        (self.folder / "stop").touch(mode=0o600)
        self.wake()

    def wake(self) -> None:
        """Tell a worker in this process that there is something to do."""
        self._wake.set()

    @property
    def retention(self) -> float:
        """Seconds that answers, and jobs in quarantine, are kept."""
        kept = self.store.database.fact("retention")
        return RETENTION if kept is None else float(kept)

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return (self.folder / "stop").exists()

    def beat(self) -> None:
        """Leave a sign of life, by a steady clock and without needing room on the disk."""
        path = self.folder / "alive"
        path.touch(mode=0o600)
        now = time.monotonic()
        os.utime(path, (now, now))

    def last_beat(self) -> float | None:
        """Seconds since the last sign of life of the worker; None when there was none."""
        try:
            age = time.monotonic() - (self.folder / "alive").stat().st_mtime
        except FileNotFoundError:
            return None
        return age if age >= 0 else None  # a sign from before the machine started

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Leave signs of life while the body runs."""
        done = threading.Event()

        def keep() -> None:
            while not done.is_set():
                with suppress(OSError):
                    self.beat()
                done.wait(_BEAT)

        thread = threading.Thread(target=keep, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def answer_next(
        self,
        work: "Work | Federation",
        record: Callable[[Callable[[], Any]], Any] = lambda action: action(),
    ) -> str | None:
        """Process the oldest job that is due; returns its name, or None when there is none.

        A job that cannot be answered goes to quarantine with the reason. One that lacks parties, or
        failed in a way that nobody expected, is tried again. ``record`` calls what writes the
        outcome, and may do so again.
        """
        job = self.store.claim()
        if job is None:
            return None
        do = FederationWork(self, work) if isinstance(work, Federation) else work
        record(self._outcome(job, do))
        return job.id

    def _outcome(self, job: Job, do: Work) -> Callable[[], Any]:
        """What is to be written about a job after it was worked on."""
        store = self.store
        try:
            contents, report = do(job, store.contents(job))
        except QuorumError as error:
            return partial(store.postpone, job, str(error), _PAUSE)
        except (FederationError, EncryptionError) as error:
            return partial(store.quarantine, job, f"{type(error).__name__}: {error}")
        except (ValueError, KeyError, TypeError) as error:  # whose texts may hold values
            return partial(store.quarantine, job, f"it cannot be read ({type(error).__name__})")
        except Exception as error:  # a fault of this program, or of the machine
            return partial(store.postpone, job, type(error).__name__, _PAUSE, is_fault=True)
        return partial(store.finish, job, contents, report)

    def work(self, work: Work, prepare: Callable[[], None] = lambda: None) -> None:
        """Process jobs until `stop`, as the one worker of the folder.

        A full disk loses nothing: the job stays, and is tried again until there is room.
        """
        with FolderLock(self.folder, "worker").take(timeout=_OTHER), self.alive():
            self._patiently(self.store.recover)
            upkeep = time.monotonic()
            while not self.is_stopping:
                self._wake.clear()
                self._patiently(prepare)
                if self._patiently(lambda: self.answer_next(work, self._patiently)) is None:
                    self._wake.wait(_POLL)
                if time.monotonic() > upkeep:
                    upkeep = time.monotonic() + _UPKEEP
                    self._patiently(lambda: self.store.purge(self.retention))

    def _patiently(self, action: Callable[[], T]) -> T | None:
        """Do something that needs room on the disk, as soon as there is some."""
        while not self.is_stopping:
            try:
                return action()
            except (StoreFullError, StoreError):
                self._wake.wait(_BEAT)
                self._wake.clear()
        return None


def pack_array(array: NDArray[Any]) -> bytes:
    """An array in the npy format, without pickle."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def _unpacked(part: bytes) -> NDArray[Any]:
    """An array of an answer; a ciphertext is its bytes."""
    if part.startswith(b"\x93NUMPY"):
        return read_array(part)
    return np.frombuffer(part, dtype=np.uint8)


def pack_query(query: EncryptedQuery, key: str) -> Contents:
    """What makes a job an encrypted one; ``key`` is the digest of the evaluation key."""
    record = query.to_record()
    public = record.pop("public_key")
    return {"public_key": public, "query": json.dumps({**record, "key": key}).encode("utf-8")}


class FederationWork:
    """How a federation answers a job."""

    def __init__(self, spool: Spool, federation: Federation) -> None:
        self._spool, self._federation = spool, federation
        self._next = 0.0

    def __call__(self, job: Job, parts: Contents) -> tuple[Contents, dict[str, Any]]:
        """Contents and report that answer a job."""
        federation, queries = self._federation, read_array(parts["queries"])
        if federation.encrypted != ("query" in parts):
            kind = "encrypted" if federation.encrypted else "plain"
            raise RefusedError(f"This federation answers {kind} queries only.")
        if not federation.encrypted:
            answer = federation.ask(queries, client=job.client)
            assert answer.distances is not None
            found = {"labels": answer.labels, "classes": answer.classes}
            found["distances"] = answer.distances
            contents = {name: pack_array(array) for name, array in found.items()}
            return contents, report_of(federation, answer)
        query, key = self._encrypted(parts)
        encrypted = federation.ask_encrypted(queries, query, key, client=job.client)
        contents = {f"{index:06d}": one for index, one in enumerate(encrypted.ciphertexts)}
        return contents, report_of(federation, encrypted)

    def _encrypted(self, parts: Contents) -> tuple[EncryptedQuery, EvaluationKey]:
        record = json.loads(parts["query"])
        if not isinstance(record, dict):
            raise RefusedError("The encrypted query cannot be read.")
        key = self._spool.store.key(str(record.get("key")))
        if key is None:
            raise RefusedError("The evaluation key of this query is not here: send it first.")
        public = parts["public_key"]
        query = EncryptedQuery.from_record({**record, "public_key": public})
        return query, EvaluationKey.from_bytes(key)

    def prepare(self) -> None:
        """Publish what the parties introduced themselves with, and the terms of encryption."""
        start, federation = time.monotonic(), self._federation
        if start < self._next:
            return
        try:
            missing = federation.introduce()
            self._spool.publish("about", safe_json(_about(federation, missing)))
            if federation.encrypted:
                self._spool.publish("terms", federation.terms().to_json())
        except (QuorumError, SchemaError):
            self._spool.publish("about", safe_json({}))  # the next job says who is missing
        now = time.monotonic()
        self._next = now + _INTRODUCE + 10 * (now - start)  # one slow party holds nobody up


def _about(federation: Federation, missing: dict[str, str]) -> dict[str, Any]:
    """Rows and classes of a federation, and its parties with their certificates."""
    schema = federation.schema.to_dict()
    return {
        "takes": {
            "n_features": schema["n_features"],
            "columns": schema["feature_names"],
            "classes": schema["classes"],
        },
        "parties": {name: status_of(one) for name, one in federation.certificates.items()},
        "certificates": {name: str(one) for name, one in federation.certificates.items()},
        "missing": missing,
    }


def report_of(federation: Federation, answer: Any) -> dict[str, Any]:
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
    work = FederationWork(spool, federation)
    spool.work(work, work.prepare)


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

    def digest(self, *, timeout: float = 600.0) -> str:
        """Digest of the public key: what parties name in ``client_keys``."""
        return self._held(timeout, lambda: None).keys.public.digest

    def _held(self, timeout: float, check: Check) -> KeyHolder:
        """The holder of keys for the terms of now."""
        what = "the terms: they are published when enough parties are connected"
        terms = wait_for(self.spool.terms, what, timeout, check)
        if self._holder is None or self._holder.terms != terms:  # other terms need other keys
            self._holder = KeyHolder(terms, self._kept_keys(terms))
            self._queries.clear()
        return self._holder

    def submit(
        self, X: ArrayLike, *, client: str, timeout: float = 600.0, check: Check = lambda: None
    ) -> str:
        """Queue an encrypted query; returns the name of the job.

        Waits up to ``timeout`` seconds for the terms, which need as many parties as the quorum.
        """
        holder = self._held(timeout, check)
        query = holder.query()
        queries = holder.terms.schema.check_queries(X)
        key = holder.keys.evaluation
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

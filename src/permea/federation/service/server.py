"""The service behind the HTTP interface: whom it lets in, what it answers at once, what it queues.

`permea.federation.service.http` is the interface itself. Nothing here writes a token, a query or a
label anywhere but into the answer, and for jobs into the database of the service.
"""

import base64
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from permea._text import safe_json
from permea.federation.encryption import EncryptionError, EvaluationKey, PublicKey
from permea.federation.errors import FederationError, RefusedError
from permea.federation.service.askers import Asker, Askers, DeniedError
from permea.federation.service.backends import Answered, Backend, ModelsBackend
from permea.federation.service.database import FolderLock
from permea.federation.service.decode import (
    JSON,
    NPY,
    DecodeError,
    Limits,
    decode,
    read_array,
    read_json,
)
from permea.federation.service.journal import Journal
from permea.federation.service.network import NetworkBackend
from permea.federation.service.oidc import Provider
from permea.federation.service.queue import Contents, FederationWork, Spool, pack_array
from permea.federation.service.store import RETENTION, Job, State

_LATENCIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits of a service.

    Parameters
    ----------
    ask_bytes, text_bytes, job_bytes, key_bytes : int
        Largest body of a question that is answered at once, of a job in JSON or CSV (which take
        much more memory than they have bytes), of any other job, of an evaluation key.
    ask_rows, job_rows : int
        Most rows of a question that is answered at once, and of a job.
    ask_timeout : float
        Seconds until a question over the network is handed back as a job.
    body_timeout : float
        Seconds in which a body must have arrived.
    jobs_each : int
        Unfinished jobs of one asker.
    patience : float
        Longest time in seconds that a job may wait for its answer.
    retention : float
        Seconds that answers are kept.
    store_bytes : int or None
        Largest size of the database.
    """

    ask_bytes: int = 4 << 20
    text_bytes: int = 16 << 20
    job_bytes: int = 64 << 20
    key_bytes: int = 256 << 20
    ask_rows: int = 10_000
    job_rows: int = 1_000_000
    ask_timeout: float = 30.0
    body_timeout: float = 60.0
    jobs_each: int = 100
    patience: float = 86400.0
    retention: float = RETENTION
    store_bytes: int | None = 8 << 30


class Metrics:
    """Counters and times since the service was started, in the text format of Prometheus."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[float] = Counter()
        self._seconds, self._rows, self._start = 0.0, 0, time.monotonic()

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        with self._lock:
            self._requests[route, status] += 1
            self._seconds += seconds
            for bound in _LATENCIES:
                if seconds <= bound:
                    self._buckets[bound] += 1

    def rows(self, count: int) -> None:
        """Count rows that were answered at once."""
        with self._lock:
            self._rows += count

    def text(self, gauges: dict[str, float]) -> str:
        """All of them, and some values of the moment."""
        with self._lock:
            requests, buckets = dict(self._requests), dict(self._buckets)
            seconds, rows = self._seconds, self._rows
        total = sum(requests.values())
        lines = ["# TYPE permea_requests_total counter"]
        lines += [
            f'permea_requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(requests.items())
        ]
        lines.append("# TYPE permea_request_seconds histogram")
        lines += [
            f'permea_request_seconds_bucket{{le="{bound}"}} {buckets.get(bound, 0)}'
            for bound in _LATENCIES
        ]
        lines += [
            f'permea_request_seconds_bucket{{le="+Inf"}} {total}',
            f"permea_request_seconds_sum {seconds:.6f}",
            f"permea_request_seconds_count {total}",
            "# TYPE permea_rows_answered_total counter",
            f"permea_rows_answered_total {rows}",
        ]
        values = {**gauges, "permea_uptime_seconds": time.monotonic() - self._start}
        for kind in dict.fromkeys(name.partition("{")[0] for name in values):
            lines.append(f"# TYPE {kind} gauge")
            lines += [f"{n} {v:g}" for n, v in values.items() if n.partition("{")[0] == kind]
        return "\n".join(lines) + "\n"


@dataclass
class Service:
    """Everything behind the HTTP interface.

    Parameters
    ----------
    backend : Backend
        What answers.
    folder : path
        State of the service, for its owner alone. That of a federation is its queue.
    settings : Settings
        Limits.
    provider : Provider, optional
        An identity provider whose tokens are taken besides our own.
    """

    backend: Backend
    folder: str | os.PathLike[str]
    settings: Settings = field(default_factory=Settings)
    provider: Provider | None = None
    failure: str = ""  #: why the service can answer nothing any more

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.on_failure: Callable[[], None] = lambda: None
        self._lock = FolderLock(self.folder, "service")
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Take the folder, or leave the service that has it alone; start to process jobs."""
        self._lock.take()
        try:
            settings = self.settings
            self.askers = Askers(self.folder)
            self.journal = Journal(self.folder, self.askers.database, thorough=True)
            self.spool = Spool(
                self.folder, retention=settings.retention, max_bytes=settings.store_bytes
            )
            if isinstance(self.backend, NetworkBackend):
                self.backend.start(self._failed)
            else:
                self.spool.start()
                work, prepare = self._work()
                thread = threading.Thread(target=self.spool.work, args=(work, prepare), daemon=True)
                thread.start()
                self._threads.append(thread)
            self.journal.add("started", backend=self.backend.name)
        except BaseException:
            self._lock.release()
            raise

    def stop(self) -> None:
        """End after the current job; unfinished ones are taken up by the next start."""
        if isinstance(self.backend, NetworkBackend):
            self.backend.stop()
        self.spool.stop()
        for thread in self._threads:
            thread.join(30)
        self.journal.add("stopped")
        self.journal.close()
        self.spool.store.close()
        self.askers.close()
        self._lock.release()

    def _failed(self, reason: str) -> None:
        self.failure = reason
        self.journal.add("failed", reason=reason)
        self.on_failure()

    @property
    def encrypted(self) -> bool:
        """Whether labels are computed on ciphertexts."""
        if isinstance(self.backend, NetworkBackend):
            return self.backend.encrypted
        federation = self.backend.federation if isinstance(self.backend, ModelsBackend) else None
        return federation is not None and federation.encrypted

    @property
    def answers_at_once(self) -> bool:
        """Whether questions are answered in this process, without a job."""
        return not isinstance(self.backend, NetworkBackend) and not self.encrypted

    def why_not_ready(self) -> str:
        """Why no question can be answered now; nothing when one can."""
        if self.failure:
            return self.failure
        beat = self.spool.last_beat()
        if beat is None or beat > 60:
            return "the worker does not run"
        if self.backend.takes is None:
            return "not enough parties have introduced themselves"
        return ""

    # ---- who ---------------------------------------------------------------------------------

    def find(self, token: str) -> Asker:
        """The asker of a token of ours, or of the identity provider."""
        if token.startswith("permea_") or self.provider is None:
            return self.askers.find(token)
        return self.provider.find(token, self.askers)

    def enter(self, authorization: str, scope: str) -> Asker:
        """The asker of an ``Authorization`` header whose token is for ``scope``."""
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token or len(token) > 8192:
            raise DeniedError("Send the header 'Authorization: Bearer TOKEN'.")
        return self.find(token.strip()).require(scope)

    # ---- at once -----------------------------------------------------------------------------

    def ask(self, asker: Asker, body: bytes, kind: str) -> Answered:
        """Answer rows at once."""
        settings = self.settings
        rows = decode(body, kind, Limits(rows=settings.ask_rows))
        X = self.backend.rows(rows)
        count = len(rows)
        self.askers.pace(asker, count)
        self.askers.spend(asker, count)
        try:
            answered = self.backend.ask(X, asker.name)
        except Exception as error:
            self.askers.refund(asker, count)
            self.journal.add("failed", asker=asker.id, rows=count, reason=type(error).__name__)
            if isinstance(error, FederationError):
                raise
            raise DecodeError("The rows cannot be used by this model.") from None
        self.metrics.rows(count)
        self.journal.add("answered", asker=asker.id, rows=count)
        return answered

    # ---- jobs --------------------------------------------------------------------------------

    def submit(
        self, asker: Asker, body: bytes, kind: str, *, patience: float, again: str | None
    ) -> Job:
        """Accept a job."""
        contents, rows, what = self._contents(asker, body, kind)
        self.askers.pace(asker, rows)
        name = self.spool.store.submit(
            contents,
            rows=rows,
            client=asker.name,
            asker=asker.id,
            kind=what,
            patience=min(patience, self.settings.patience),
            again=again,
            most=self.settings.jobs_each,
        )
        self.spool.wake()
        self.journal.add("submitted", asker=asker.id, rows=rows, job=name)
        return self.spool.store.job(name)

    def _contents(self, asker: Asker, body: bytes, kind: str) -> tuple[Contents, int, str]:
        """A question as it is kept, its rows, and whether it is an encrypted one."""
        limits = Limits(rows=self.settings.job_rows)
        if self.encrypted:
            return *self._encrypted(asker, body, kind, limits), "encrypted"
        rows = decode(body, kind, limits)
        X = self.backend.rows(rows)
        takes = self.backend.takes
        if takes is not None and takes.tabular:
            return {"body": body, "kind": kind.encode()}, len(rows), "plain"
        return {"queries": pack_array(np.asarray(X))}, len(rows), "plain"

    def _encrypted(
        self, asker: Asker, body: bytes, kind: str, limits: Limits
    ) -> tuple[Contents, int]:
        """An encrypted question: rows, a public key, and the digest of an evaluation key."""
        if kind != JSON:
            raise RefusedError(
                "This service answers encrypted questions only, which permea's client makes: "
                "Client.ask_encrypted."
            )
        values = read_json(body)
        try:
            query = {name: str(values["query"][name]) for name in ("scheme", "classes", "query_id")}
            digest = str(values["key"])
            public = base64.b64decode(values["public_key"], validate=True)
            packed = base64.b64decode(values["queries"], validate=True)
            PublicKey.from_bytes(public)
        except (KeyError, TypeError, ValueError, EncryptionError):
            raise DecodeError("The encrypted question cannot be read.") from None
        rows = decode(packed, NPY, limits)
        if self.spool.store.key_of(digest) != asker.id:
            raise DecodeError("The evaluation key is not here: PUT /v1/keys first.")
        record = json.dumps({**query, "party": 0, "key": digest}).encode("utf-8")
        queries = pack_array(self.backend.rows(rows))
        return {"queries": queries, "query": record, "public_key": public}, len(rows)

    def keep_key(self, asker: Asker, body: bytes) -> str:
        """Keep an evaluation key, which is parsed on receipt; returns its digest."""
        if not self.encrypted:
            raise RefusedError("This service computes on plain rows; it needs no key.")
        try:
            key = EvaluationKey.from_bytes(body)
        except (EncryptionError, ValueError, TypeError, KeyError, RecursionError):
            raise DecodeError("This is not an evaluation key.") from None
        self.spool.store.keep_key(key.digest, body, asker.id)
        self.journal.add("key", asker=asker.id, digest=key.digest)
        return key.digest

    def cancel(self, asker: Asker, name: str) -> Job:
        """Take a job back."""
        job = self.spool.store.cancel(name, asker.id)
        self.journal.add("cancelled", asker=asker.id, job=name)
        return job

    def answer(self, job: Job) -> Answered | list[bytes]:
        """The answer of a finished job: labels, or ciphertexts of them."""
        if job.state is not State.done:
            raise RefusedError(f"The job is {job.state.value}. {job.reason}".strip())
        if job.kind == "encrypted":
            return list(self.spool.store.contents(job).values())
        labels = read_array(self.spool.store.contents(job, "labels")["labels"])
        return Answered(labels=labels, report=job.report)

    def _work(self) -> tuple[Any, Callable[[], None]]:
        """How jobs are answered in this process."""
        backend = self.backend
        if isinstance(backend, ModelsBackend) and backend.federation is not None:
            work = FederationWork(self.spool, backend.federation)
            return work, work.prepare
        return self._answer_job, lambda: None

    def _answer_job(self, job: Job, contents: Contents) -> tuple[Contents, dict[str, Any]]:
        if "queries" in contents:
            X: Any = read_array(contents["queries"])
        else:
            limits = Limits(rows=self.settings.job_rows)
            X = self.backend.rows(decode(contents["body"], contents["kind"].decode(), limits))
        answered = self.backend.ask(X, job.client)
        return {"labels": pack_array(_storable(answered.labels))}, answered.report

    def gauges(self) -> dict[str, float]:
        """Values of the moment for the metrics."""
        found = {
            f'permea_jobs{{state="{state}"}}': float(count)
            for state, count in self.spool.store.counts().items()
        }
        if isinstance(self.backend, NetworkBackend):
            found["permea_parties_connected"] = float(len(self.backend.connected()))
        found["permea_parties"] = float(len(self.backend.parties))
        found["permea_ready"] = float(not self.why_not_ready())
        return found


def _storable(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels as numbers or as texts of a fixed length, which need no pickle."""
    return np.array(labels.tolist())


def as_json(values: Any) -> bytes:
    """JSON without a character that a terminal obeys."""
    return safe_json(values).encode("utf-8")

"""Jobs in SQLite: every accepted job is answered or reported, and none twice.

A job is accepted when `JobStore.submit` returns. It is then in one of these states:

=============  ===================================================================================
queued         waits for the worker, for parties below the quorum, or for another attempt
running        the worker has it; when the worker dies, the next one finds it and tries again
done           its answer can be read until it is purged
quarantined    it cannot be answered; the reason is kept, and later jobs are not held up
expired        its deadline passed before enough parties were there; the reason names them
cancelled      its asker took it back
=============  ===================================================================================

Deadlines are counted by a steady clock, so that setting the clock of the machine changes nothing.
"""

import json
import os
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from permea._text import safe_json, safe_text
from permea.federation.errors import FederationError, RefusedError
from permea.federation.service.database import Database, StoreFullError

MAX_ATTEMPTS = 3  # how often a job may end its worker, or fail in a way that nobody expected
PATIENCE = 3600.0  # seconds until a job that nobody answers expires
RETENTION = 7 * 86400.0  # seconds that answers, and jobs in quarantine, are kept
MOST_KEYS = 8  # evaluation keys of one asker, which take tens of megabytes each
_COLUMNS = (
    "number, id, asker, client, kind, rows, state, attempts, reason, submitted, ended, report"
)


class State(StrEnum):
    """State of a job."""

    queued = "queued"
    running = "running"
    done = "done"
    quarantined = "quarantined"
    expired = "expired"
    cancelled = "cancelled"

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to the job."""
        return self not in (State.queued, State.running)


class JobUnknownError(FederationError):
    """There is no such job, or it belongs to somebody else."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job without its queries and its answer."""

    number: int
    id: str
    asker: str
    client: str
    kind: str  #: "plain" or "encrypted"
    rows: int
    state: State
    attempts: int
    reason: str
    submitted: float  #: seconds since 1970, for people
    ended: float | None
    report: dict[str, Any]  #: provenance: who answered, who is missing and why
    claim: str = ""  #: proves that a worker still has the job

    @classmethod
    def of(cls, row: Iterable[Any], claim: str = "") -> "Job":
        """Read a row of the table."""
        values = dict(zip(_COLUMNS.split(", "), row, strict=True))
        values["report"] = json.loads(values["report"])
        return cls(**{**values, "state": State(values["state"])}, claim=claim)


class JobStore:
    """The jobs of a service in the folder of its database.

    Parameters
    ----------
    folder : path
        Created for its owner alone, because queries may be sensitive.
    max_bytes : int, optional
        Largest size of the database.
    clock : callable, default=time.monotonic
        Seconds; another clock is for tests.

    Examples
    --------
    >>> import tempfile
    >>> place = tempfile.TemporaryDirectory()
    >>> store = JobStore(place.name)
    >>> name = store.submit({"queries": b"..."}, rows=1, client="ward 3")
    >>> job = store.claim()
    >>> store.finish(job, {"labels": b"..."}, {"who_answered": ["a"]})
    True
    >>> store.job(name).state
    <State.done: 'done'>
    >>> store.close(); place.cleanup()
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        max_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.database = Database(folder, max_bytes=max_bytes, clock=clock)
        self._now = clock

    # ---- the asker's side --------------------------------------------------------------------

    def submit(
        self,
        contents: dict[str, bytes],
        *,
        rows: int,
        client: str,
        asker: str = "",
        kind: str = "plain",
        patience: float = PATIENCE,
        again: str | None = None,
        most: int | None = None,
    ) -> str:
        """Accept a job; it is on the disk when this returns its name.

        Parameters
        ----------
        contents : dict of bytes
            Parts of the question.
        rows : int
            Queries in it; they are charged to the budget of the asker, and given back when the job
            ends without an answer.
        client : str
            Name that the parties log.
        asker : str
            Whose job it is: the id of an asker with a budget, or nothing for the operator.
        kind : {"plain", "encrypted"}
            How it is answered.
        patience : float
            Seconds until the job expires.
        again : str, optional
            A word of the asker's by which a repeated submission is recognised: the name of the
            first one is returned, and nothing is charged.
        most : int, optional
            Unfinished jobs that the asker may have.
        """
        now, name = self._now(), secrets.token_hex(16)
        with self.database.transaction() as change:
            if again is not None:
                same = "SELECT id FROM jobs WHERE asker = ? AND again = ?"
                for (known,) in change.execute(same, (asker, again)):
                    return str(known)
            count = "SELECT count(*) FROM jobs WHERE asker = ? AND state IN ('queued', 'running')"
            if most is not None and change.execute(count, (asker,)).fetchone()[0] >= most:
                raise RefusedError(
                    f"{most} of your jobs are not finished, which is the limit. Wait for them, or "
                    "cancel some."
                )
            charge(change, asker, rows)
            number = change.execute(
                "INSERT INTO jobs (id, asker, client, kind, rows, state, submitted, patience, "
                "deadline, again) VALUES (?, ?, ?, ?, ?, 'queued', ?, ?, ?, ?)",
                (name, asker, safe_text(client)[:100], kind, rows, time.time(), patience,
                 now + patience, again),
            ).lastrowid  # fmt: skip
            _keep(change, number, contents)
        return name

    def job(self, name: str, asker: str | None = None) -> Job:
        """A job by its name; one of another asker is as unknown as one that never was."""
        found = self.database.rows(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", name)
        job = Job.of(found[0]) if found else None
        if job is None or asker not in (None, job.asker):
            raise JobUnknownError(f"There is no job {safe_text(name)[:40]}; it may be purged.")
        return job

    def jobs(self, asker: str | None = None, limit: int = 100) -> list[Job]:
        """The latest jobs, of one asker or of all."""
        which, values = ("WHERE asker = ?", (asker,)) if asker is not None else ("", ())
        query = f"SELECT {_COLUMNS} FROM jobs {which} ORDER BY number DESC LIMIT ?"
        return [Job.of(row) for row in self.database.rows(query, *values, limit)]

    def contents(self, job: Job, *parts: str) -> dict[str, bytes]:
        """Parts of the question or of the answer; all that there are, unless some are named."""
        query = "SELECT part, content FROM contents WHERE job = ? ORDER BY part"
        found = dict(self.database.rows(query, job.number))
        return {part: found[part] for part in parts if part in found} if parts else found

    def cancel(self, name: str, asker: str | None = None) -> Job:
        """Take a job back; one that has ended stays as it is."""
        job = self.job(name, asker)
        self._end(job, State.cancelled, "cancelled by its asker", only=("queued", "running"))
        return self.job(name)

    # ---- the worker's side -------------------------------------------------------------------

    def recover(self) -> int:
        """Take over the jobs of a worker that is gone; returns how many.

        Only the one worker of a folder, which holds its lock, may call this. A job that ended its
        worker `MAX_ATTEMPTS` times goes to quarantine.
        """
        running = f"SELECT {_COLUMNS} FROM jobs WHERE state = 'running'"
        left = [Job.of(row) for row in self.database.rows(running)]
        for job in left:
            if job.attempts >= MAX_ATTEMPTS:
                reason = f"the program ended {job.attempts} times while it worked on this job"
                self._end(job, State.quarantined, reason, only=("running",))
        with self.database.transaction() as change:
            change.execute("UPDATE jobs SET state = 'queued', claim = '' WHERE state = 'running'")
        return len(left)

    def claim(self) -> Job | None:
        """The oldest job that is due, now running; None when there is none."""
        now, claim = self._now(), secrets.token_hex(8)
        if not self.database.rows("SELECT 1 FROM jobs WHERE state = 'queued' LIMIT 1"):
            return None
        self.expire()
        due = (
            f"SELECT {_COLUMNS} FROM jobs WHERE state = 'queued' AND not_before <= ? "
            "ORDER BY number LIMIT 1"
        )
        with self.database.transaction() as change:
            row = change.execute(due, (now,)).fetchone()
            if row is None:
                return None
            change.execute(
                "UPDATE jobs SET state = 'running', attempts = attempts + 1, claim = ? "
                "WHERE number = ?",
                (claim, row[0]),
            )
        return self._fresh(row[0], claim)

    def _fresh(self, number: int, claim: str) -> Job:
        row = self.database.rows(f"SELECT {_COLUMNS} FROM jobs WHERE number = ?", number)[0]
        return Job.of(row, claim)

    def finish(self, job: Job, contents: dict[str, bytes], report: dict[str, Any]) -> bool:
        """Keep the answer; False when the job was cancelled meanwhile, and nothing is kept."""
        with self.database.transaction() as change:
            done = change.execute(
                "UPDATE jobs SET state = 'done', reason = '', ended = ?, ended_tick = ?, "
                "report = ? WHERE number = ? AND state = 'running' AND claim = ?",
                (time.time(), self._now(), safe_json(report), job.number, job.claim),
            ).rowcount
            if done:
                change.execute("DELETE FROM contents WHERE job = ?", (job.number,))
                _keep(change, job.number, contents)
        return bool(done)

    def postpone(self, job: Job, reason: str, pause: float, *, is_fault: bool = False) -> None:
        """Queue a job again for lack of parties, or as a fault of which it may have only some."""
        if is_fault and job.attempts >= MAX_ATTEMPTS:
            self.quarantine(job, reason)
            return
        with self.database.transaction() as change:
            change.execute(
                "UPDATE jobs SET state = 'queued', claim = '', not_before = ?, reason = ?, "
                "attempts = attempts - ? WHERE number = ? AND state = 'running' AND claim = ?",
                (self._now() + pause, safe_text(reason)[:1000], 0 if is_fault else 1, job.number,
                 job.claim),
            )  # fmt: skip

    def quarantine(self, job: Job, reason: str) -> None:
        """Put a job aside that cannot be answered; its question is kept until it is purged."""
        self._end(job, State.quarantined, reason, only=("running",))

    def expire(self) -> int:
        """End the jobs whose deadline has passed; returns how many."""
        late = f"SELECT {_COLUMNS} FROM jobs WHERE state = 'queued' AND deadline < ?"
        jobs = [Job.of(row) for row in self.database.rows(late, self._now())]
        for job in jobs:
            reason = f"not answered before its deadline. {job.reason}".strip()
            self._end(job, State.expired, reason, only=("queued",))
        return len(jobs)

    def _end(self, job: Job, state: State, reason: str, *, only: tuple[str, ...]) -> None:
        """End a job without an answer, in one step with giving back what was charged for it."""
        with self.database.transaction() as change:
            ended = change.execute(
                "UPDATE jobs SET state = ?, ended = ?, ended_tick = ?, reason = ? "
                f"WHERE number = ? AND state IN ({', '.join(map(repr, only))})"
                + (" AND claim = ?" if job.claim else ""),
                (state.value, time.time(), self._now(), safe_text(reason)[:1000], job.number,
                 *([job.claim] if job.claim else [])),
            ).rowcount  # fmt: skip
            if ended:
                change.execute(
                    "UPDATE askers SET used = max(0, used - ?) WHERE id = ?", (job.rows, job.asker)
                )
                if state != State.quarantined:
                    change.execute("DELETE FROM contents WHERE job = ?", (job.number,))

    # ---- the operator's side -----------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Jobs in each state."""
        found = self.database.rows("SELECT state, count(*) FROM jobs GROUP BY state")
        return {**dict.fromkeys(State, 0), **{State(state): n for state, n in found}}

    def purge(self, retention: float = RETENTION) -> int:
        """Delete jobs that ended ``retention`` seconds ago, and keys that nobody used since."""
        before = self._now() - retention
        old = "SELECT number FROM jobs WHERE ended_tick < ?"
        with self.database.transaction() as change:
            change.execute(f"DELETE FROM contents WHERE job IN ({old})", (before,))
            gone = change.execute("DELETE FROM jobs WHERE ended_tick < ?", (before,)).rowcount
            change.execute("DELETE FROM keys WHERE tick < ?", (before,))
        if gone:
            self.database.shrink()
        return gone

    # ---- evaluation keys of encrypted jobs ---------------------------------------------------

    def keep_key(self, digest: str, content: bytes, asker: str = "") -> None:
        """Keep an evaluation key for the jobs that name it."""
        with self.database.transaction() as change:
            change.execute(
                "INSERT OR IGNORE INTO keys VALUES (?, ?, ?, ?)",
                (digest, asker, content, self._now()),
            )
            change.execute(
                "DELETE FROM keys WHERE asker = ? AND digest NOT IN "
                "(SELECT digest FROM keys WHERE asker = ? ORDER BY tick DESC LIMIT ?)",
                (asker, asker, MOST_KEYS),
            )

    def key(self, digest: str) -> bytes | None:
        """An evaluation key; using it keeps it from being purged."""
        found = self.database.rows("SELECT content FROM keys WHERE digest = ?", digest)
        with suppress(StoreFullError), self.database.transaction() as change:
            change.execute("UPDATE keys SET tick = ? WHERE digest = ?", (self._now(), digest))
        return bytes(found[0][0]) if found else None

    def key_of(self, digest: str) -> str | None:
        """Whose evaluation key this is; None when there is none."""
        found = self.database.rows("SELECT asker FROM keys WHERE digest = ?", digest)
        return str(found[0][0]) if found else None

    def close(self) -> None:
        """End the connection."""
        self.database.close()


def charge(change: Any, asker: str, rows: int) -> None:
    """Charge answers to the budget of an asker within a transaction, or raise `RefusedError`.

    Someone without an entry, such as the operator on the machine itself, has no budget.
    """
    found = change.execute("SELECT budget, used FROM askers WHERE id = ?", (asker,)).fetchone()
    if found is None:
        return
    budget, used = found
    if budget is not None and used + rows > budget:
        raise RefusedError(
            f"{used} of the {budget} answers of your budget are used; {rows} more are too many. "
            "Ask the operator for another budget."
        )
    change.execute("UPDATE askers SET used = used + ? WHERE id = ?", (rows, asker))


def _keep(change: Any, number: int | None, contents: dict[str, bytes]) -> None:
    change.executemany(
        "INSERT INTO contents VALUES (?, ?, ?)",
        [(number, part, content) for part, content in contents.items()],
    )

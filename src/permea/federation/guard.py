"""What a party answers, how much of it, and a log in which nothing can be changed unnoticed."""

import hashlib
import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from permea._files import write_atomically
from permea._text import safe_json
from permea.federation.errors import FederationError, RefusedError

_WINDOW = 60.0  # seconds over which the rate is counted
_FIRST = "0" * 64  # what the first entry of a log is chained to
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class AuditLogError(FederationError):
    """A log was shortened, or an entry of it was changed."""


def steady_clock() -> float:
    """Seconds that no change of the date moves; where the system has it, since it was started."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _boot() -> str:
    """Name of this run of the system: steady clocks of different runs do not compare."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()[:8]
    except OSError:
        return f"pid-{os.getpid()}"


class AuditLog:
    """An append-only file of JSON lines, each with a hash of itself and of the line before.

    The last hash and the number of entries are kept in a second file (``….head``), so that lines
    that are missing at the end are noticed too. Whoever can write both files can forge both: copy
    the head elsewhere to detect that.

    Parameters
    ----------
    path : path
        The file, for its owner alone. It is shared between processes under a lock.

    Examples
    --------
    >>> import tempfile
    >>> place = tempfile.TemporaryDirectory()
    >>> path = Path(place.name, "audit.jsonl")
    >>> log = AuditLog(path)
    >>> for number in range(3):
    ...     log.append({"queries": number})
    >>> [entry["queries"] for entry in AuditLog(path).entries()]
    [0, 1, 2]
    >>> _ = path.write_text("".join(path.read_text().splitlines(True)[:2]))
    >>> AuditLog(path).entries()
    Traceback (most recent call last):
        ...
    permea.federation.guard.AuditLogError: ... holds 2 entries where there were 3. ...
    >>> place.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._head = self.path.with_name(self.path.name + ".head")
        self._read, self._chain, self._count = 0, _FIRST, 0

    @contextmanager
    def locked(self) -> Iterator["_OpenLog"]:
        """The log under a lock: entries that are new since the last time, and a way to append."""
        import fcntl  # the log is shared between processes, which needs a POSIX lock

        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield _OpenLog(self, file, self._new(file))

    def append(self, values: dict[str, Any]) -> None:
        """Add an entry; it is on disk when this returns."""
        with self.locked() as opened:
            opened.append(values)

    def entries(self) -> list[dict[str, Any]]:
        """All entries, after a check of every hash."""
        fresh = AuditLog(self.path)
        with fresh.locked() as opened:
            return opened.new

    def _new(self, file: BinaryIO) -> list[dict[str, Any]]:
        """Entries since the last time; raises when they do not follow from what was before."""
        if os.fstat(file.fileno()).st_size < self._read:
            raise AuditLogError(_damage(self.path, "is shorter than it was"))
        file.seek(self._read)
        found = []
        for line in file:
            self._read += len(line)
            entry = _entry(line)
            if entry is None:  # cut short by a crash
                continue
            chain = entry.pop("chain")
            if _link(self._chain, entry) != chain:
                raise AuditLogError(_damage(self.path, f"was changed at entry {self._count + 1}"))
            self._chain, self._count = chain, self._count + 1
            found.append(entry)
        self._compare()
        return found

    def _compare(self) -> None:
        """Compare with the head; one entry more is that of a crash between two writes."""
        try:
            head = json.loads(self._head.read_text(encoding="utf-8"))
            count, chain = int(head["entries"]), str(head["chain"])
        except FileNotFoundError:
            count, chain = 0, self._chain if self._count == 0 else ""
            if self._count > 1:
                raise AuditLogError(
                    _damage(self.path, f"has no {self._head.name} beside it")
                ) from None
        except (ValueError, KeyError, TypeError):
            raise AuditLogError(_damage(self._head, "cannot be read")) from None
        if self._count < count:
            text = f"holds {self._count} entries where there were {count}"
            raise AuditLogError(_damage(self.path, text))
        if self._count == count and chain != self._chain:
            raise AuditLogError(_damage(self.path, "is another log than the one before"))

    def _append(self, file: BinaryIO, values: dict[str, Any]) -> None:
        size = file.seek(0, os.SEEK_END)
        before = b"\n" if size and os.pread(file.fileno(), 1, size - 1) != b"\n" else b""
        chain = _link(self._chain, values)
        line = before + safe_json({**values, "chain": chain}).encode("utf-8") + b"\n"
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
        self._read, self._chain, self._count = size + len(line), chain, self._count + 1
        head = {"entries": self._count, "chain": chain}
        write_atomically(self._head, json.dumps(head).encode(), private=True)


class _OpenLog:
    """A locked log: `new` entries, and `append`."""

    def __init__(self, log: AuditLog, file: BinaryIO, new: list[dict[str, Any]]) -> None:
        self._log, self._file, self.new = log, file, new

    def append(self, values: dict[str, Any]) -> None:
        """Add an entry."""
        self._log._append(self._file, values)


def _entry(line: bytes) -> dict[str, Any] | None:
    """The entry of a line; None for a line that was cut short."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    known = isinstance(entry, dict) and isinstance(entry.get("chain"), str)
    return entry if known else None


def _link(chain: str, values: dict[str, Any]) -> str:
    text = json.dumps([chain, json.loads(safe_json(values))], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _damage(path: Path, what: str) -> str:
    return (
        f"The log {path} {what}. Find out why; to begin a new log, move this one and its "
        "….head away."
    )


class Guard:
    """Limits on what is answered, and a log of who asked for how much and when.

    The log holds the time, the name of the client, the kind and the number of queries, and the
    outcome. It never holds a query, a distance or a hash of one: a hash of something guessable is
    as good as the thing. With a log file all limits hold across processes and restarts, because
    they are counted from the log itself. Time is measured by a steady clock: a change of the date
    moves no limit.

    Clients are named by the aggregator, which knows them by their tokens; encrypted queries are
    counted by the client's public key. Limits for all clients together hold whatever it says.

    Parameters
    ----------
    max_batch : int, default=1000
        Queries in one batch.
    per_minute, per_client_per_minute : int or None, default=None
        Queries accepted in any 60 seconds, from all and from one client; None sets no limit.
    answers, per_client : int or None, default=None
        Queries accepted ever about one model, from all and from one client. Whoever gets enough
        answers can train a copy of the model with them.
    log : path, optional
        File to which one line of JSON is appended for each batch, see `AuditLog`.
    clock : callable, optional
        Seconds; another clock is for tests.

    Examples
    --------
    >>> guard = Guard(max_batch=10, per_minute=15, clock=lambda: 0.0)
    >>> guard.admit("hospital", 10)
    >>> guard.admit("hospital", 11)
    Traceback (most recent call last):
        ...
    permea.federation.errors.RefusedError: 11 queries in one batch; this party takes at most 10.
    Send smaller batches.
    >>> guard.admit("hospital", 6)
    Traceback (most recent call last):
        ...
    permea.federation.errors.RefusedError: 10 of 15 queries per minute are used up; ...
    """

    def __init__(
        self,
        *,
        max_batch: int = 1000,
        per_minute: int | None = None,
        per_client_per_minute: int | None = None,
        answers: int | None = None,
        per_client: int | None = None,
        log: str | os.PathLike[str] | None = None,
        clock: Callable[[], float] = steady_clock,
    ) -> None:
        limits = (max_batch, per_minute, per_client_per_minute, answers, per_client)
        if any(limit is not None and limit < 1 for limit in limits):
            raise ValueError("Limits of a guard must be at least 1.")
        self.max_batch, self.per_minute = max_batch, per_minute
        self.per_client_per_minute = per_client_per_minute
        self.answers, self.per_client = answers, per_client
        self.log = None if log is None else Path(log)
        self.model = ""  #: what the answers are about: the model's digest, where there is one
        self._clock, self._boot = clock, _boot()
        self._log = None if log is None else AuditLog(log)
        self._recent: deque[tuple[float, str, int]] = deque()
        self._total: Counter[tuple[str, str]] = Counter()

    def admit(self, client: str, n_queries: int, kind: str = "distances") -> None:
        """Accept a batch and log it, or log why not and raise `RefusedError`."""
        self._decide(str(client)[:100], int(n_queries), kind, "")

    def refuse(self, client: str, n_queries: int, kind: str, reason: str) -> None:
        """Log a request that is refused whatever the limits are, and raise `RefusedError`."""
        self._decide(str(client)[:100], int(n_queries), kind, reason)

    def _decide(self, client: str, n_queries: int, kind: str, reason: str) -> None:
        if self._log is None:
            now = self._clock()
            reason = reason or self._objection(client, n_queries, now)
            self._count(self._entry(client, n_queries, kind, now, reason))
        else:
            try:
                with self._log.locked() as opened:
                    for entry in opened.new:
                        self._count(entry)
                    now = self._clock()
                    reason = reason or self._objection(client, n_queries, now)
                    entry = self._entry(client, n_queries, kind, now, reason)
                    opened.append(entry)
                    self._count(entry)
            except AuditLogError as error:  # others are not told where the log is
                text = "The log of this party is damaged: it answers nothing until its owner looks."
                raise RefusedError(text) from error
        if reason:
            raise RefusedError(reason)

    def _entry(
        self, client: str, n_queries: int, kind: str, now: float, reason: str
    ) -> dict[str, Any]:
        outcome = "refused" if reason else "accepted"
        return {
            "time": time.time(), "boot": self._boot, "up": now, "client": client, "kind": kind,
            "model": self.model, "queries": n_queries, "outcome": outcome,
        }  # fmt: skip

    def _count(self, entry: dict[str, Any]) -> None:
        if entry.get("outcome") != "accepted":
            return
        client, n_queries = str(entry["client"]), int(entry["queries"])
        self._total[str(entry.get("model", "")), client] += n_queries
        if entry.get("boot") == self._boot:
            self._recent.append((float(entry["up"]), client, n_queries))

    def _objection(self, client: str, n_queries: int, now: float) -> str:
        if n_queries < 1:
            return "The batch is empty. Send at least one query."
        if n_queries > self.max_batch:
            return (
                f"{n_queries} queries in one batch; this party takes at most {self.max_batch}. "
                "Send smaller batches."
            )
        while self._recent and self._recent[0][0] <= now - _WINDOW:
            self._recent.popleft()
        minute = sum(count for _, _, count in self._recent)
        own = sum(count for _, who, count in self._recent if who == client)
        ever = {who: count for (model, who), count in self._total.items() if model == self.model}
        for used, limit, what, advice in (
            (minute, self.per_minute, "per minute", "Wait a minute and retry."),
            (own, self.per_client_per_minute, "per minute and client", "Wait a minute and retry."),
            (sum(ever.values()), self.answers, "about this model", "Its owner can allow more."),
            (ever.get(client, 0), self.per_client, "of this client", "The owner can allow more."),
        ):
            if limit is not None and used + n_queries > limit:
                return (
                    f"{used} of {limit} queries {what} are used up; {n_queries} more are too many. "
                    f"{advice}"
                )
        return ""

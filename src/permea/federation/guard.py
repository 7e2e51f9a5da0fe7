"""What a party lets in: bounded batches at a bounded rate, written down without contents."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from permea._text import safe_json
from permea.federation.errors import RefusedError

_WINDOW = 60.0  # seconds over which the rate is counted
_TAIL = 1 << 20  # bytes of the log that are searched for the last minute


class Guard:
    """Limits on queries, and a log of who asked how much and when.

    The log holds the time, the name of the asker, the number of queries and the outcome. It never
    holds a query, a distance or a hash of one: a hash of something guessable is as good as the
    thing. With a log file the rate holds across processes and restarts, because it is counted from
    the log itself.

    Parameters
    ----------
    max_batch : int, default=1000
        Queries in one batch.
    per_minute : int or None, default=None
        Queries accepted in any 60 seconds; None sets no limit.
    log : path, optional
        File to which one line of JSON is appended for each batch.
    clock : callable, default=time.time
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
    permea.federation.errors.RefusedError: 10 of 15 queries per minute are used up; 6 more are too
    many. Wait and ask again.
    """

    def __init__(
        self,
        *,
        max_batch: int = 1000,
        per_minute: int | None = None,
        log: str | os.PathLike[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if max_batch < 1 or (per_minute is not None and per_minute < 1):
            raise ValueError("max_batch and per_minute must be at least 1.")
        self.max_batch = max_batch
        self.per_minute = per_minute
        self.log = None if log is None else Path(log)
        self._clock = clock
        self._memory: list[dict[str, Any]] = []

    def admit(self, asker: str, n_queries: int) -> None:
        """Accept a batch and write it down, or write down why not and raise `RefusedError`."""
        with self._book() as book:
            reason = self._objection(n_queries, book.recent(self._clock() - _WINDOW))
            outcome = "refused" if reason else "accepted"
            book.write(
                {
                    "time": self._clock(),
                    "asker": str(asker)[:100],
                    "queries": int(n_queries),
                    "outcome": outcome,
                }
            )
        if reason:
            raise RefusedError(reason)

    def _objection(self, n_queries: int, used: int) -> str:
        if n_queries < 1:
            return "An empty batch asks nothing."
        if n_queries > self.max_batch:
            return (
                f"{n_queries} queries in one batch; this party takes at most {self.max_batch}. "
                "Send smaller batches."
            )
        if self.per_minute is not None and used + n_queries > self.per_minute:
            return (
                f"{used} of {self.per_minute} queries per minute are used up; {n_queries} more are "
                "too many. Wait and ask again."
            )
        return ""

    @contextmanager
    def _book(self) -> Iterator["_Book"]:
        """The book in memory, or the log file under a lock that other processes respect."""
        if self.log is None:
            yield _Book(self._memory, None)
            return
        import fcntl  # the log is shared between processes, which needs a POSIX lock

        self.log.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.log, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield _Book(_read_tail(file), file)


class _Book:
    """Entries of the last minute and a place to add one."""

    def __init__(self, entries: list[dict[str, Any]], file: TextIO | None) -> None:
        self._entries, self._file = entries, file

    def recent(self, since: float) -> int:
        """Queries accepted since a point in time."""
        self._entries[:] = [entry for entry in self._entries if entry["time"] > since]
        return sum(e["queries"] for e in self._entries if e["outcome"] == "accepted")

    def write(self, entry: dict[str, Any]) -> None:
        """Add an entry; with a file it is on disk when this returns."""
        self._entries.append(entry)
        if self._file is not None:
            size = self._file.seek(0, os.SEEK_END)
            if size and os.pread(self._file.fileno(), 1, size - 1) != b"\n":
                self._file.write("\n")  # end a line that a crash cut short
            self._file.write(safe_json(entry) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())


def _read_tail(file: TextIO) -> list[dict[str, Any]]:
    """Entries at the end of the log; a line that was cut short by a crash is passed over."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL))
    entries = []
    for line in file:
        try:
            entry = json.loads(line)
            entries.append({"time": float(entry["time"]), **entry})
        except (ValueError, KeyError, TypeError):
            continue
    return entries

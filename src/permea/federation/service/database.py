"""An SQLite file for its owner alone, and the lock by which one program at a time uses a folder."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self

from permea.federation.errors import FederationError

_BUSY = 20.0  # seconds to wait for another process's transaction
_PAGE = 4096
_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL,
    asker TEXT NOT NULL, client TEXT NOT NULL, kind TEXT NOT NULL, rows INTEGER NOT NULL,
    state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '',
    claim TEXT NOT NULL DEFAULT '', submitted REAL NOT NULL, ended REAL,
    patience REAL NOT NULL, deadline REAL NOT NULL, not_before REAL NOT NULL DEFAULT 0,
    ended_tick REAL, report TEXT NOT NULL DEFAULT '{}', again TEXT
);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state, number);
CREATE UNIQUE INDEX IF NOT EXISTS jobs_once ON jobs (asker, again);
CREATE TABLE IF NOT EXISTS contents (
    job INTEGER NOT NULL REFERENCES jobs (number), part TEXT NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (job, part)
);
CREATE TABLE IF NOT EXISTS keys (
    digest TEXT PRIMARY KEY, asker TEXT NOT NULL, content BLOB NOT NULL, tick REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS askers (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, hash BLOB NOT NULL, scopes TEXT NOT NULL,
    budget INTEGER, per_minute INTEGER, expires REAL, created REAL NOT NULL,
    revoked INTEGER NOT NULL DEFAULT 0, used INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class FolderInUseError(FederationError):
    """Another program uses the folder; it goes on undisturbed."""


class StoreFullError(FederationError):
    """There is no room for more: the disk is full, or the limit of the queue is reached."""


class StoreError(FederationError):
    """The database cannot be read or written."""


class FolderLock:
    """A lock that ends with its process, however that ends.

    Parameters
    ----------
    folder : path
        Created for its owner alone when missing.
    role : str
        What the program does in the folder; programs of different roles share it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, FolderLock(place, "aggregator"):
    ...     FolderLock(place, "aggregator").take()
    Traceback (most recent call last):
        ...
    permea.federation.service.database.FolderInUseError: Another aggregator uses ...
    """

    def __init__(self, folder: str | os.PathLike[str], role: str) -> None:
        self._folder, self._role = Path(folder), role
        self._file: IO[str] | None = None

    def take(self, timeout: float = 0.0) -> Self:
        """Take the lock, or raise `FolderInUseError` without touching anything.

        ``timeout`` is for a program whose predecessor may still be ending.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self._take()
            except FolderInUseError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.1)

    def _take(self) -> Self:
        import fcntl  # a POSIX lock: the system releases it when the process ends

        make_private(self._folder)
        handle = os.open(self._folder / f"{self._role}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        file = os.fdopen(handle, "r+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = file.read().strip()
            file.close()
            raise FolderInUseError(
                f"Another {self._role} uses {self._folder}"
                f"{f' (process {owner})' if owner.isdigit() else ''}. It was left alone. Stop it "
                "first, or give this one a folder of its own."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file
        return self

    def release(self) -> None:
        """Let another program have the folder."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self if self._file is not None else self.take()

    def __exit__(self, *error: object) -> None:
        self.release()


def make_private(folder: Path) -> None:
    """Make a folder that its owner alone can enter; an existing one of ours is closed to others."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_mode & 0o077 and folder.stat().st_uid == os.geteuid():
        folder.chmod(0o700)


class Database:
    """One SQLite file with the tables of the service; threads and processes may share it.

    Parameters
    ----------
    folder : path
        Where ``service.db`` is; folder and file are for their owner alone.
    durable : bool, default=True
        Whether a transaction is on the disk when it ends. Without, it survives the end of the
        program in any way, and a power cut may lose the last ones.
    max_bytes : int, optional
        Largest size of the file. What would exceed it raises `StoreFullError`, as a full disk does.
    clock : callable, default=time.monotonic
        Seconds that nobody sets forward or back.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        durable: bool = True,
        max_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.clock = Path(folder), clock
        make_private(self.folder)
        path = self.folder / "service.db"
        _create_private(path)
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(
            path, timeout=_BUSY, isolation_level=None, check_same_thread=False
        )
        with self._reported():
            for pragma in (
                "journal_mode=WAL",
                f"synchronous={'FULL' if durable else 'NORMAL'}",
                "secure_delete=ON",
                "foreign_keys=ON",
            ):
                self._connection.execute(f"PRAGMA {pragma}")
            self._connection.executescript(_SCHEMA)
            if max_bytes is not None:
                self._connection.execute(f"PRAGMA max_page_count={max(1, max_bytes // _PAGE)}")
        self._start_anew_after_a_boot()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; other writers wait."""
        with self._lock, self._reported():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What a SELECT finds."""
        with self._lock, self._reported():
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Errors of SQLite in words; they never hold a value."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code is not None and code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                raise StoreFullError(
                    f"There is no room in {self.folder}: the disk is full or the limit of the "
                    "queue is reached. Nothing was changed; free space and try again."
                ) from error
            raise StoreError(
                f"The database in {self.folder} cannot be used ({type(error).__name__}: "
                f"{error}). Check the file, or move it away and start with a new one."
            ) from error

    # ---- facts, and clocks -------------------------------------------------------------------

    def fact(self, name: str) -> str | None:
        """A value by its name."""
        found = self.rows("SELECT value FROM facts WHERE name = ?", name)
        return str(found[0][0]) if found else None

    def set_fact(self, name: str, value: str | None) -> None:
        """Keep a value under its name, or forget it."""
        with self.transaction() as change:
            set_fact(change, name, value)

    def _start_anew_after_a_boot(self) -> None:
        """Steady clocks start at zero with the machine: deadlines are counted again from now."""
        boot = _boot()
        if self.fact("boot") == boot:
            return
        now, wall = self.clock(), time.time()
        with self.transaction() as change:
            change.execute(
                "UPDATE jobs SET deadline = ? + patience, not_before = 0 "
                "WHERE state IN ('queued', 'running')",
                (now,),
            )
            change.execute(
                "UPDATE jobs SET ended_tick = ? - max(0, ? - ended) WHERE ended IS NOT NULL",
                (now, wall),
            )
            change.execute("UPDATE keys SET tick = ?", (now,))
            set_fact(change, "boot", boot)

    def shrink(self) -> None:
        """Remove what was deleted from the disk."""
        with self._lock, self._reported():
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            self._connection.close()


def _create_private(path: Path) -> None:
    """Make the file before SQLite does, for its owner alone.

    One that exists is not opened: closing it would take away the locks that SQLite holds on it for
    other connections of this process.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    if path.is_symlink():
        raise StoreError(f"{path} is a symbolic link. Remove it.")
    path.chmod(0o600)


def set_fact(change: sqlite3.Connection, name: str, value: str | None) -> None:
    """Keep a value within a transaction, or forget it."""
    if value is None:
        change.execute("DELETE FROM facts WHERE name = ?", (name,))
    else:
        change.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))


def _boot() -> str:
    """Which start of the machine this is, where the system tells."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"

"""Where a ledger keeps its rows: in memory, or in one SQLite file.

A store gives transactions. Inside one that writes, nobody else reads or writes the ledger, so the
check of a budget and the charge that follows are one step for all threads and processes.
"""

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from permea.privacy.ledger_chain import Header, Row
from permea.privacy.ledger_events import LedgerError, TamperedLedgerError

BUSY_SECONDS = 120.0  # how long a process waits for its turn
_PAUSE_SECONDS = 0.005


class Session(Protocol):
    """What can be done inside a transaction."""

    def header(self) -> Header:
        """Read what stands above the rows."""

    def rows(self, after: int) -> Sequence[Row]:
        """Read the rows after a number, in their order."""

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows behind the last one."""


class Store(ABC):
    """A place for one ledger, safe for threads and forks of this process."""

    place: str
    """Where it is, for people: without a password."""
    address: str
    """Where it is, for another process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        with _REGISTRY:
            _STORES.add(self)

    @abstractmethod
    def create(self, header: Header, rows: Sequence[Row] = ()) -> bool:
        """Begin a ledger with these rows if there is none; tell whether there was none."""

    @abstractmethod
    def exists(self) -> bool:
        """Tell whether there is a ledger."""

    @abstractmethod
    def transaction(self, *, write: bool) -> AbstractContextManager[Session]:
        """Do all of what is done inside, or nothing of it when an exception leaves."""

    def after_fork(self) -> None:  # noqa: B027  # nothing to forget, unless a store says so
        """Forget, in a new process, what belongs to the old one."""


_STORES: "weakref.WeakSet[Store]" = weakref.WeakSet()
_REGISTRY = threading.RLock()
_held: list[Store] = []


def _before_fork() -> None:
    """Let no process be forked in the middle of a transaction: SQLite does not survive it."""
    _REGISTRY.acquire()
    _held[:] = list(_STORES)
    for store in _held:
        store.lock.acquire()


def _after_fork_in_parent() -> None:
    for store in _held:
        store.lock.release()
    _held.clear()
    _REGISTRY.release()


def _after_fork_in_child() -> None:
    for store in _held:
        store.after_fork()
    _after_fork_in_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


class MemoryStore(Store):
    """Rows of this process alone; they end with it.

    Parameters
    ----------
    header : Header, optional
    rows : sequence of Row
    is_copy : bool
        Whether the rows belong to another process: then they can be read, and not added to.
    """

    place = "in memory"
    address = ""

    def __init__(
        self, header: Header | None = None, rows: Sequence[Row] = (), *, is_copy: bool = False
    ) -> None:
        super().__init__()
        self._header, self._rows = header, list(rows)
        self._owner = -1 if is_copy else os.getpid()

    def create(self, header: Header, rows: Sequence[Row] = ()) -> bool:
        """Begin a ledger if there is none."""
        if self._header is not None:
            return False
        self._header, self._rows = header, list(rows)
        return True

    def exists(self) -> bool:
        """Tell whether there is a ledger."""
        return self._header is not None

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator["MemoryStore"]:
        """Lock out the other threads."""
        if write and self._owner != os.getpid():
            raise RuntimeError(
                "This ledger is a copy in another process: what is charged here would be lost. "
                "Keep the ledger in a file, e.g. Ledger('ledger.db'), which all processes share; "
                "or fit in the process that owns the ledger (n_jobs=1, or a threading backend)."
            )
        with self.lock:
            yield self

    def header(self) -> Header:
        """Read what stands above the rows."""
        assert self._header is not None
        return self._header

    def rows(self, after: int) -> Sequence[Row]:
        """Read the rows after a number."""
        return self._rows[after:]

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows."""
        assert self._header is not None
        self._rows.extend(rows)
        self._header = self._header._replace(number=rows[-1].number, hash=rows[-1].hash)


_TABLES = """
CREATE TABLE ledger (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  genesis TEXT NOT NULL,
  key BLOB NOT NULL,
  number INTEGER NOT NULL,
  hash TEXT NOT NULL
);
CREATE TABLE events (
  number INTEGER PRIMARY KEY,
  time TEXT NOT NULL,
  kind TEXT NOT NULL,
  body TEXT NOT NULL,
  previous TEXT NOT NULL,
  hash TEXT NOT NULL
);
CREATE TRIGGER no_update BEFORE UPDATE ON events
  BEGIN SELECT RAISE(ABORT, 'the events of a ledger are only ever added'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON events
  BEGIN SELECT RAISE(ABORT, 'the events of a ledger are only ever added'); END;
CREATE TRIGGER fixed_genesis BEFORE UPDATE OF id, genesis, key ON ledger
  BEGIN SELECT RAISE(ABORT, 'what a ledger was created with is fixed'); END;
CREATE TRIGGER no_end BEFORE DELETE ON ledger
  BEGIN SELECT RAISE(ABORT, 'what a ledger was created with is fixed'); END;
"""
_INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)"
_SQLITE = threading.RLock()


class SQLiteStore(Store):
    """One file on a local disk, shared by all processes of a machine.

    A connection lives for one transaction, and one transaction at a time runs in a process. SQLite
    does not allow that a connection is open while the process is forked; and a process that opens
    and closes the file by other means gives up the locks of its own connections.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.lock = _SQLITE
        self.path = path.absolute()
        self.place, self.address = str(path), str(self.path)

    def exists(self) -> bool:
        """Tell whether there is a ledger, or another database in its place."""
        if not self.path.exists():
            return False
        with self._connected() as connection:  # a file without tables is about to become a ledger
            return _has_tables(connection)

    def create(self, header: Header, rows: Sequence[Row] = ()) -> bool:
        """Begin a ledger in a file that its owner alone can read, if there is none."""
        with self.lock:
            self._make_file()
            return self._fill(header, rows)

    def _fill(self, header: Header, rows: Sequence[Row]) -> bool:
        with self._connected() as connection:
            _patiently(connection, "PRAGMA journal_mode = WAL")
            _patiently(connection, "BEGIN IMMEDIATE")
            if _has_tables(connection):
                return False
            for statement in _statements(_TABLES):
                connection.execute(statement)
            connection.execute("INSERT INTO ledger VALUES (1, ?, ?, ?, ?)", header)
            connection.executemany(_INSERT, rows)
            connection.execute("COMMIT")
        return True

    def _make_file(self) -> None:
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return
        except OSError as error:
            raise LedgerError(
                f"The ledger {self.place} cannot be created: {error.strerror}. Name a file in a "
                "folder that exists and that you may write to."
            ) from None
        os.close(handle)
        with contextlib.suppress(OSError):  # some file systems do not sync folders
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator["_SQLiteSession"]:
        """Read, or check and charge, in one step."""
        with self._connected() as connection:
            _patiently(connection, "BEGIN IMMEDIATE" if write else "BEGIN")
            yield _SQLiteSession(connection, self.place)
            connection.execute("COMMIT")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with self.lock:
            connection = None
            try:
                connection = sqlite3.connect(
                    f"file:{quote(str(self.path))}?mode=rw",
                    uri=True,
                    timeout=BUSY_SECONDS,
                    isolation_level=None,  # transactions are begun and ended by hand
                )
                connection.execute("PRAGMA synchronous = FULL")
                yield connection
            except sqlite3.Error as error:
                raise self._explained(error) from error
            finally:
                if connection is not None:
                    connection.close()  # takes back what was not committed

    def _explained(self, error: sqlite3.Error) -> LedgerError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if _is_busy(error):
            return LedgerError(
                f"The ledger {self.place} was in use by another process for more than "
                f"{BUSY_SECONDS:g} seconds. Nothing was charged; try again."
            )
        if code == sqlite3.SQLITE_CANTOPEN and not self.path.exists():
            return LedgerError(
                f"There is no ledger {self.place}. Create one with `permea ledger create`, or name "
                "the right file."
            )
        if code == sqlite3.SQLITE_NOTADB:
            return LedgerError(f"{self.place} is not a ledger{self._what_it_is()}")
        if code == sqlite3.SQLITE_CORRUPT or "decode" in str(error):
            return TamperedLedgerError(
                f"The ledger {self.place} is damaged ({error}). Bring back the latest copy that "
                "`permea ledger verify` accepts together with your last certificate."
            )
        return LedgerError(f"The ledger {self.place} cannot be used: {error}. Nothing was charged.")

    def _what_it_is(self) -> str:
        """Recognise the JSON of version 0.1; called when the file is no database."""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            if file.read(64).lstrip()[:1] == b"{":
                return (
                    " of this version: it is JSON, as permea 0.1 kept its ledgers. Bring it into a "
                    f"database once, `permea ledger import {self.place} ledger.db`, and use "
                    "ledger.db from then on."
                )
        return ": it is no SQLite database."


class _SQLiteSession:
    def __init__(self, connection: sqlite3.Connection, place: str) -> None:
        self._connection, self._place = connection, place

    def header(self) -> Header:
        try:
            question = "SELECT genesis, key, number, hash FROM ledger"
            found = _patiently(self._connection, question).fetchall()
        except sqlite3.OperationalError as error:
            if "no such" not in str(error):
                raise
            found = []
        if len(found) != 1:
            raise LedgerError(f"{self._place} is not a ledger: it is another database.")
        return Header(*found[0])

    def rows(self, after: int) -> Sequence[Row]:
        only = "WHERE number > ?" if after else "WHERE ? = 0"  # from the start: all there are
        question = f"SELECT number, time, kind, body, previous, hash FROM events {only}"
        found = self._connection.execute(f"{question} ORDER BY number", (after,))
        return [Row(*values) for values in found]

    def append(self, rows: Sequence[Row]) -> None:
        self._connection.executemany(_INSERT, rows)
        last = (rows[-1].number, rows[-1].hash)
        self._connection.execute("UPDATE ledger SET number = ?, hash = ?", last)


def _has_tables(connection: sqlite3.Connection) -> bool:
    question = "SELECT count(*) FROM sqlite_master"
    return bool(_patiently(connection, question).fetchone()[0])


def _patiently(connection: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
    """Run a statement that takes a lock; wait also where SQLite itself would not."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return connection.execute(statement)
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)


def _is_busy(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _statements(script: str) -> Iterator[str]:
    """Split a script into statements, which a transaction takes one by one."""
    statement = ""
    for line in script.strip().splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def store_for(where: str | os.PathLike[str] | None) -> Store:
    """Give the store that a place names.

    Examples
    --------
    >>> store_for("sqlite:///ledger.db").place
    'ledger.db'
    >>> store_for("mysql://host/ledger")
    Traceback (most recent call last):
        ...
    permea.privacy.ledger_events.LedgerError: A ledger is kept in a file (a path, or
    sqlite:///path) or in PostgreSQL (postgresql://user@host/database), not in 'mysql'.
    """
    if where is None:
        return MemoryStore()
    if not isinstance(where, str | os.PathLike):
        raise TypeError(
            "A ledger takes a place, e.g. 'ledger.db', or a Budget, e.g. Budget(epsilon=3, "
            "unit='entry')."
        )
    text = os.fspath(where)
    scheme, separator, rest = text.partition("://")
    if not isinstance(where, str) or not separator:
        return SQLiteStore(Path(text))
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return SQLiteStore(Path(rest[1:]))
    if scheme in ("postgresql", "postgres"):
        from permea.privacy.ledger_postgres import PostgresStore

        return PostgresStore(text)
    raise LedgerError(
        "A ledger is kept in a file (a path, or sqlite:///path) or in PostgreSQL "
        f"(postgresql://user@host/database), not in {scheme!r}."
    )

"""The chain of a ledger's rows.

A ledger begins with its genesis: a text that holds its id, budget, composition, time of creation
and the digest of its key. Every row after it carries the hash of the row before. Whoever reads the
rows follows the chain from the genesis and thereby finds any row that was altered, deleted,
reordered or added by other means than the ledger's own.
"""

import contextlib
import hashlib
import json
import os
import secrets
import sqlite3
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import quote

from permea.privacy.ledger_events import (
    UNNAMED,
    Account,
    Budget,
    Composition,
    Event,
    LedgerError,
    TamperedLedgerError,
    event_from_dict,
    event_to_json,
)

FORMAT = "permea ledger 2"
Kind = Literal["charge", "released"]


class Row(NamedTuple):
    """One row of a ledger, as it is stored. Rows are only ever added."""

    number: int
    time: str
    kind: str
    body: str
    previous: str
    hash: str


class Header(NamedTuple):
    """What stands above the rows: the genesis, the key, and number and hash of the last row."""

    genesis: str
    key: bytes
    number: int
    hash: str


def new_header(budget: Budget | None, composition: Composition) -> Header:
    """Begin a ledger: a random id and key, and what is fixed for good."""
    key = secrets.token_bytes(32)
    genesis = json.dumps(
        {
            "format": FORMAT,
            "ledger": secrets.token_hex(16),
            "created": now(),
            "budget": None if budget is None else asdict(budget),
            "composition": composition,
            "key": hashlib.sha256(key).hexdigest(),
        },
        sort_keys=True,
    )
    return Header(genesis, key, 0, _genesis_hash(genesis))


def now() -> str:
    """Tell the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def row_hash(ledger_id: str, row: Row) -> str:
    """SHA-256 over everything in a row, the id of its ledger, and the hash of the row before."""
    parts = [FORMAT, ledger_id, row.number, row.time, row.kind, row.body, row.previous]
    return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()


def _genesis_hash(genesis: str) -> str:
    return hashlib.sha256(genesis.encode("utf-8", "surrogatepass")).hexdigest()


class Chain:
    """A ledger as far as it was read and found whole.

    Parameters
    ----------
    header : Header
    place : str
        Where the ledger is, for messages.
    """

    def __init__(self, header: Header, place: str) -> None:
        self.place, self.genesis, self.key = place, header.genesis, header.key
        self.id, self.created, self.account = self._read_genesis(header)
        self.hashes = [_genesis_hash(header.genesis)]  # of row 1, 2, …, behind the genesis

    def _read_genesis(self, header: Header) -> tuple[str, str, Account]:
        try:
            values = json.loads(header.genesis)
            if values["format"] != FORMAT:
                raise LedgerError(
                    f"{self.place} was written in another format ({values['format']!r}) than this "
                    "version of permea reads; update permea."
                )
            if values["key"] != hashlib.sha256(header.key).hexdigest():
                raise self.tampered("its key is not the one it was created with")
            if values["composition"] not in ("basic", "tight"):
                raise ValueError(values["composition"])
            budget = None if values["budget"] is None else Budget(**values["budget"])
            account = Account(budget, values["composition"])
            return str(values["ledger"]), str(values["created"]), account
        except LedgerError:
            raise
        except (ValueError, TypeError, KeyError):
            raise self.tampered("its first entry cannot be read") from None

    @property
    def number(self) -> int:
        """Number of the last row."""
        return len(self.hashes) - 1

    def tampered(self, what: str) -> TamperedLedgerError:
        """Say what was found, and what to do."""
        return TamperedLedgerError(
            f"The ledger {self.place} was changed by other means than permea, or replaced: {what}. "
            "What was spent is not known, so nothing is charged to it. Keep the file as evidence, "
            "and bring back the latest copy that `permea ledger verify` accepts together with your "
            "last certificate."
        )

    def follow(self, header: Header, rows: Iterable[Row]) -> None:
        """Read the rows after the last known one, and check that they continue the chain."""
        if header.genesis != self.genesis or header.key != self.key:
            raise self.tampered("another ledger stands in its place")
        if not isinstance(header.number, int):
            raise self.tampered("the number of its entries was altered")
        if header.number < self.number:
            raise self.tampered(
                f"it has {header.number} entries where it had {self.number}: an older copy"
            )
        for row in rows:
            self.take(row)
        if (self.number, self.hashes[-1]) != (header.number, header.hash):
            raise self.tampered("entries at its end were deleted, added or altered")

    def take(self, row: Row) -> None:
        """Check the next row and enter it into the account."""
        texts = (row.time, row.kind, row.body, row.previous, row.hash)
        sound = isinstance(row.number, int) and all(isinstance(text, str) for text in texts)
        if not sound or (row.number, row.previous) != (self.number + 1, self.hashes[-1]):
            raise self.tampered(
                f"entry {self.number + 1} does not continue what stands before it (an entry was "
                "altered, deleted, added or moved)"
            )
        if row.hash != row_hash(self.id, row):
            raise self.tampered(f"entry {row.number} was altered")
        try:
            self._enter(row)
        except (ValueError, TypeError, KeyError) as error:
            raise self.tampered(f"entry {row.number} is none that permea writes: {error}") from None
        self.hashes.append(row.hash)

    def _enter(self, row: Row) -> None:
        values = json.loads(row.body)
        if row.kind == "charge":
            event = event_from_dict(values)
            self.account.charge(replace(event, number=row.number, time=row.time, status="charged"))
        elif row.kind == "released" and set(values) == {"charge"}:
            self.account.release(values["charge"])
        else:
            raise ValueError("neither a charge nor a release")

    def next_row(self, kind: Kind, body: str, time: str | None = None) -> Row:
        """Give the row that comes next."""
        row = Row(self.number + 1, time or now(), kind, body, self.hashes[-1], "")
        return row._replace(hash=row_hash(self.id, row))

    def charge_row(self, event: Event, time: str | None = None) -> Row:
        """Give the row that charges an event."""
        return self.next_row("charge", event_to_json(event), time)

    def release_row(self, number: int) -> Row:
        """Give the row that marks the charge ``number`` as released."""
        return self.next_row("released", json.dumps({"charge": number}))


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


SCHEMA = 2
_SCHEMA_OF_0_1 = 1
_DEFAULT_NAMES_OF_0_1 = ("data", "source", "federation")  # nobody chose them
_WRITTEN_BY_LEDGER = ("number", "time", "status")


def export(chain: Chain) -> dict[str, Any]:
    """Give plain values without the key and without fingerprints."""
    budget = chain.account.budget
    return {
        "schema": SCHEMA,
        "ledger": chain.id,
        "created": chain.created,
        "number": chain.number,
        "hash": chain.hashes[-1],
        "budget": None if budget is None else asdict(budget),
        "composition": chain.account.composition,
        "events": [_exported(event) for event in chain.account.events],
    }


def _exported(event: Event) -> dict[str, Any]:
    written = {name: getattr(event, name) for name in _WRITTEN_BY_LEDGER}
    return {**written, **event.to_dict(), "dataset": event.dataset if event.is_named else None}


def imported(values: Mapping[str, Any]) -> tuple[Header, list[Row]]:
    """Give header and rows of a new ledger with the events of an old one, each of them checked."""
    schema = values.get("schema") if isinstance(values, Mapping) else None
    if isinstance(schema, bool) or schema not in (_SCHEMA_OF_0_1, SCHEMA):
        raise LedgerError(
            "Not a ledger: the JSON of permea 0.1, or what `permea ledger export` writes, was "
            "expected."
        )
    try:
        budget, events = values["budget"], list(values["events"])
        composition = values["composition"]
        if composition not in ("basic", "tight"):
            raise ValueError("composition must be 'basic' or 'tight'")
        header = new_header(None if budget is None else Budget(**budget), composition)
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"Not a ledger: budget, composition or events: {error}.") from None
    chain, rows = Chain(header, "to be imported"), []
    for position, plain in enumerate(events, start=1):
        try:
            event, is_released = _event_of(plain, schema)
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"Event {position} cannot be imported: {error}") from None
        rows += _entered(chain, event, is_released)
    return header._replace(number=chain.number, hash=chain.hashes[-1]), rows


def _event_of(plain: Any, schema: int) -> tuple[Event, bool]:
    if not isinstance(plain, Mapping):
        raise ValueError("an event is a set of named values.")
    values = dict(plain)
    is_released = True  # version 0.1 wrote its file after the release
    if schema == SCHEMA:
        is_released = values["status"] == "released"
        for name in _WRITTEN_BY_LEDGER:
            values.pop(name, None)
        if values.get("dataset", "") is None:
            values["dataset"] = UNNAMED
    elif values.get("dataset") in _DEFAULT_NAMES_OF_0_1:
        values["dataset"] = UNNAMED
    return event_from_dict(values), is_released


def _entered(chain: Chain, event: Event, is_released: bool) -> list[Row]:
    """Add the rows of an event to a chain."""
    rows = [chain.charge_row(event)]
    chain.take(rows[0])
    if is_released:
        rows.append(chain.release_row(rows[0].number))
        chain.take(rows[1])
    return rows

"""Where a ledger is kept: the chain of its rows, in memory or in a database.

A ledger begins with its genesis: a text that holds its id, budget, composition, time of creation
and the digest of its key. Every row after it carries the hash of the row before. Reading the rows
follows the chain from the genesis and thereby finds any row that was altered, deleted, reordered or
added by other means than the ledger's own.
"""

import contextlib
import hashlib
import json
import os
import secrets
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from permea._files import sync_folder
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


class Row(NamedTuple):
    """One row of a ledger, as it is stored. Rows are only ever added."""

    number: int
    time: str
    kind: str
    body: str
    previous: str
    hash: str


class Header(NamedTuple):
    """The genesis, the key, and number and hash of the last row."""

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
            "created": _now(),
            "budget": None if budget is None else asdict(budget),
            "composition": composition,
            "key": hashlib.sha256(key).hexdigest(),
        },
        sort_keys=True,
    )
    return Header(genesis, key, 0, _genesis_hash(genesis))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def row_hash(ledger_id: str, row: Row) -> str:
    """SHA-256 over everything in a row, the id of its ledger, and the hash of the row before."""
    parts = [FORMAT, ledger_id, row.number, row.time, row.kind, row.body, row.previous]
    return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()


def _genesis_hash(genesis: str) -> str:
    return hashlib.sha256(genesis.encode("utf-8", "surrogatepass")).hexdigest()


class Chain:
    """A ledger as far as it was read and checked.

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

    def charge_row(self, event: Event) -> Row:
        """Give the next row, which charges an event."""
        return self._next_row("charge", event_to_json(event))

    def release_row(self, number: int) -> Row:
        """Give the next row, which marks the charge ``number`` as released."""
        return self._next_row("released", json.dumps({"charge": number}))

    def _next_row(self, kind: str, body: str) -> Row:
        row = Row(self.number + 1, _now(), kind, body, self.hashes[-1], "")
        return row._replace(hash=row_hash(self.id, row))


BUSY_SECONDS = 120.0  # how long a process waits for its turn
_PAUSE_SECONDS = 0.005
LOCK = threading.RLock()  # one transaction at a time in a process

if hasattr(os, "register_at_fork"):  # no fork during a transaction: SQLite does not survive it
    os.register_at_fork(
        before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release
    )


class Store(ABC):
    """A place for one ledger, safe for threads and forks of this process.

    ``place`` says where it is, without a password; ``address`` is what another process needs.
    ``header``, ``rows`` and ``append`` are used inside a transaction.
    """

    place: str
    address: str

    @abstractmethod
    def create(self, header: Header, rows: Sequence[Row] = ()) -> bool:
        """Begin a ledger with these rows if there is none; tell whether there was none."""

    @abstractmethod
    def transaction(self, *, write: bool) -> AbstractContextManager[None]:
        """Do all of what is done inside, or nothing of it when an exception leaves."""

    @abstractmethod
    def header(self) -> Header:
        """Read the header."""

    @abstractmethod
    def rows(self, after: int) -> Sequence[Row]:
        """Read the rows after a number, in their order."""

    @abstractmethod
    def append(self, rows: Sequence[Row]) -> None:
        """Add rows behind the last one."""


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
        self._header, self._rows = header, list(rows)
        self._owner = -1 if is_copy else os.getpid()

    def create(self, header: Header, rows: Sequence[Row] = ()) -> bool:
        """Begin a ledger."""
        self._header, self._rows = header, list(rows)
        return True

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[None]:
        """Lock out the other threads."""
        if write and self._owner != os.getpid():
            raise RuntimeError(
                "This ledger is a copy in another process: what is charged here would be lost. "
                "Keep the ledger in a file, e.g. Ledger('ledger.db'), which all processes share; "
                "or fit in the process that owns the ledger (n_jobs=1, or a threading backend)."
            )
        with LOCK:
            yield

    def header(self) -> Header:
        """Read the header."""
        assert self._header is not None
        return self._header

    def rows(self, after: int) -> Sequence[Row]:
        """Read the rows after a number."""
        return self._rows[after:]

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows."""
        self._rows.extend(rows)
        self._header = self.header()._replace(number=rows[-1].number, hash=rows[-1].hash)


class DatabaseStore(Store):
    """A ledger in a database: the statements are the same in all of them, with ? for values."""

    ledgers: str  #: table of headers
    events: str  #: table of rows
    own_ledger: str  #: condition that chooses this ledger among the headers
    own_events: str  #: condition that chooses the rows of this ledger
    name: str | int  #: key of this ledger in the table of headers
    row_key: tuple[str, ...]  #: values that stand before those of a row
    not_found: str  #: message when there is no such ledger

    @abstractmethod
    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement in the present transaction and give its cursor."""

    def header(self) -> Header:
        """Read the header; `LedgerError` when there is none."""
        columns = f"genesis, key, number, hash FROM {self.ledgers}"
        found = self.execute(f"SELECT {columns} WHERE {self.own_ledger}", (self.name,)).fetchone()
        if found is None:
            raise LedgerError(self.not_found)
        return Header(*found)

    def rows(self, after: int) -> Sequence[Row]:
        """Read the rows after a number; from the start also those with impossible numbers."""
        newer = "number > ?" if after else "? = 0"
        found = self.execute(
            f"SELECT number, time, kind, body, previous, hash FROM {self.events} "
            f"WHERE {self.own_events} AND {newer} ORDER BY number",
            (*self.row_key, after),
        )
        return [Row(*values) for values in found]

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows, and note the last one in the header."""
        marks = ", ".join("?" * (len(self.row_key) + len(Row._fields)))
        for row in rows:
            values = (*self.row_key, *row)
            self.execute(f"INSERT INTO {self.events} VALUES ({marks})", values)
        last = (rows[-1].number, rows[-1].hash, self.name)
        self.execute(
            f"UPDATE {self.ledgers} SET number = ?, hash = ? WHERE {self.own_ledger}", last
        )

    def busy(self) -> LedgerError:
        """The error when another process held the ledger for too long."""
        return LedgerError(
            f"The ledger {self.place} was in use by another process for more than "
            f"{BUSY_SECONDS:g} seconds. Nothing was charged; try again."
        )

    def fill(self, header: Header, rows: Sequence[Row]) -> None:
        """Write the header and the first rows of a new ledger."""
        self.execute(f"INSERT INTO {self.ledgers} VALUES (?, ?, ?, ?, ?)", (self.name, *header))
        if rows:
            self.append(rows)


_APPEND_ONLY = "SELECT RAISE(ABORT, 'the events of a ledger are only ever added')"
_FIXED = "SELECT RAISE(ABORT, 'what a ledger was created with is fixed')"
_TABLES = (
    """CREATE TABLE ledger (id INTEGER PRIMARY KEY CHECK (id = 1), genesis TEXT NOT NULL,
       key BLOB NOT NULL, number INTEGER NOT NULL, hash TEXT NOT NULL)""",
    """CREATE TABLE events (number INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL,
       body TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL)""",
    f"CREATE TRIGGER no_update BEFORE UPDATE ON events BEGIN {_APPEND_ONLY}; END",
    f"CREATE TRIGGER no_delete BEFORE DELETE ON events BEGIN {_APPEND_ONLY}; END",
    f"CREATE TRIGGER fixed BEFORE UPDATE OF id, genesis, key ON ledger BEGIN {_FIXED}; END",
    f"CREATE TRIGGER no_end BEFORE DELETE ON ledger BEGIN {_FIXED}; END",
)


class SQLiteStore(DatabaseStore):
    """One file on a local disk, shared by all processes of a machine.

    A connection lives for one transaction, and one transaction at a time runs in a process. SQLite
    does not allow that a connection is open while the process is forked; and a process that opens
    and closes the file by other means gives up the locks of its own connections.

    Parameters
    ----------
    path : Path
    """

    ledgers, events, own_ledger, own_events = "ledger", "events", "id = ?", "TRUE"
    name, row_key = 1, ()

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.place, self.address = str(path), str(self.path)
        self.not_found = f"{self.place} is not a ledger: it is another database."
        self._connection: sqlite3.Connection | None = None

    def create(self, header: Header, rows: Sequence[Row] = ()) -> bool:
        """Begin a ledger in a file that its owner alone can read, if there is none."""
        with LOCK:
            if self.path.exists():
                with self._connected():
                    if self._has_tables():
                        return False
            self._make_file()
            with self._connected():
                self.execute("PRAGMA journal_mode = WAL")
                self.execute("BEGIN IMMEDIATE")
                if self._has_tables():  # another process was faster
                    return False
                for statement in _TABLES:
                    self.execute(statement)
                self.fill(header, rows)
                self.execute("COMMIT")
            return True

    def _has_tables(self) -> bool:
        return bool(self.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])

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
        sync_folder(self.path.parent)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[None]:
        """Read, or check and charge, in one step."""
        with self._connected():
            self.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            yield
            self.execute("COMMIT")

    @contextmanager
    def _connected(self) -> Iterator[None]:
        with LOCK:
            try:
                self._connection = sqlite3.connect(
                    f"file:{quote(str(self.path))}?mode=rw",
                    uri=True,
                    timeout=BUSY_SECONDS,
                    isolation_level=None,  # transactions are begun and ended by hand
                )
                self.execute("PRAGMA synchronous = FULL")
                yield
            except sqlite3.Error as error:
                raise self._explained(error) from error
            finally:
                if self._connection is not None:
                    self._connection.close()  # takes back what was not committed
                    self._connection = None

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run a statement; wait for a lock also where SQLite itself would not."""
        assert self._connection is not None
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return self._connection.execute(statement, values)
            except sqlite3.OperationalError as error:
                if _code(error) not in _BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _explained(self, error: sqlite3.Error) -> LedgerError:
        code = _code(error)
        if code in _BUSY:
            return self.busy()
        if code == sqlite3.SQLITE_CANTOPEN and not self.path.exists():
            return LedgerError(
                f"There is no ledger {self.place}. Create one with `permea ledger create`, or name "
                "the right file."
            )
        if "no such" in str(error):
            return LedgerError(self.not_found)
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
                    " of this version: it is JSON, as permea 0.1 kept its ledgers. Import it once "
                    f"into a database, `permea ledger import {self.place} ledger.db`, and use "
                    "ledger.db from then on."
                )
        return ": it is no SQLite database."


_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


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
    account = chain.account
    return {
        "schema": SCHEMA,
        "ledger": chain.id,
        "created": chain.created,
        "number": chain.number,
        "hash": chain.hashes[-1],
        "budget": None if account.budget is None else asdict(account.budget),
        "composition": account.composition,
        "events": [
            {name: getattr(event, name) for name in _WRITTEN_BY_LEDGER}
            | event.to_dict()
            | {"dataset": event.dataset if event.is_named else None}
            for event in account.events
        ],
    }


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
        rows.append(chain.charge_row(event))
        chain.take(rows[-1])
        if is_released:
            rows.append(chain.release_row(chain.number))
            chain.take(rows[-1])
    return header._replace(number=chain.number, hash=chain.hashes[-1]), rows


def _event_of(plain: Any, schema: int) -> tuple[Event, bool]:
    """The event, and whether it was released."""
    if not isinstance(plain, Mapping):
        raise ValueError("an event is a set of named values.")
    values = dict(plain)
    is_released = True  # version 0.1 wrote its file after the release
    if schema == SCHEMA:
        is_released = values["status"] == "released"
        values = {name: value for name, value in values.items() if name not in _WRITTEN_BY_LEDGER}
    default = (None,) if schema == SCHEMA else _DEFAULT_NAMES_OF_0_1
    if values.get("dataset", "") in default:
        values["dataset"] = UNNAMED
    return event_from_dict(values), is_released

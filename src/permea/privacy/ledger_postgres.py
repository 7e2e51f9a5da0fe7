"""A ledger in PostgreSQL: one account for all machines of an organisation.

The tables ``permea.ledgers`` and ``permea.events`` hold any number of ledgers by name. A process
that charges one holds the lock of its row in ``permea.ledgers`` until the charge is committed.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlencode

from permea.privacy.ledger_events import LedgerError
from permea.privacy.ledger_store import BUSY_SECONDS, LOCK, DatabaseStore, Header, Row

if TYPE_CHECKING:
    import psycopg

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_CREATION_LOCK = 0x7065726D6561  # "permea": one process at a time creates the tables
_CONNECT_SECONDS = 30
_TABLES = """
CREATE SCHEMA IF NOT EXISTS permea;
CREATE TABLE permea.ledgers (
  name TEXT PRIMARY KEY,
  genesis TEXT NOT NULL,
  key BYTEA NOT NULL,
  number BIGINT NOT NULL,
  hash TEXT NOT NULL
);
CREATE TABLE permea.events (
  ledger TEXT NOT NULL REFERENCES permea.ledgers (name),
  number BIGINT NOT NULL,
  time TEXT NOT NULL,
  kind TEXT NOT NULL,
  body TEXT NOT NULL,
  previous TEXT NOT NULL,
  hash TEXT NOT NULL,
  PRIMARY KEY (ledger, number)
);
CREATE FUNCTION permea.refuse_change() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'the events of a ledger are only ever added'; END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON permea.events
  FOR EACH STATEMENT EXECUTE FUNCTION permea.refuse_change();
CREATE TRIGGER fixed_genesis BEFORE UPDATE OF name, genesis, key ON permea.ledgers
  FOR EACH STATEMENT EXECUTE FUNCTION permea.refuse_change();
CREATE TRIGGER no_end BEFORE DELETE OR TRUNCATE ON permea.ledgers
  FOR EACH STATEMENT EXECUTE FUNCTION permea.refuse_change();
"""


_WRITE = f"SET LOCAL lock_timeout = '{BUSY_SECONDS:g}s'; SET LOCAL synchronous_commit = on"
_READ = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"  # one state for all queries


class PostgresStore(DatabaseStore):
    """One ledger of a PostgreSQL database.

    Parameters
    ----------
    url : str
        ``"postgresql://user@host/database"``, with any parameter that libpq knows; ``ledger=name``
        among them chooses the ledger, ``"default"`` otherwise.
    """

    ledgers, events = "permea.ledgers", "permea.events"
    own_ledger, own_events = "name = ?", "ledger = ?"

    def __init__(self, url: str) -> None:
        self.address = url
        self._driver = _driver()
        self._url, self.name, self.place, self._secrets = _split(url)
        self.row_key = (self.name,)
        self.not_found = (
            f"There is no ledger {self.place}. Create one with `permea ledger create`, or name the "
            "right one."
        )
        self._connection: psycopg.Connection[Any] | None = None
        self._process = os.getpid()
        self._left_behind: list[Any] = []

    def create(self, header: Header, rows: Sequence[Row] = ()) -> bool:
        """Begin a ledger, and the tables for all of them, if there is none."""
        with LOCK, self._explained():
            with self._connected().transaction():
                if self._has_ledger():
                    return False
            with self._connected().transaction():
                self.execute("SELECT pg_advisory_xact_lock(?)", (_CREATION_LOCK,))
                if self._has_ledger():  # another process was faster
                    return False
                if not self._has_tables():
                    self.execute(_TABLES)
                self.fill(header, rows)
                return True

    def _has_tables(self) -> bool:
        found = self.execute("SELECT to_regclass('permea.events') IS NOT NULL").fetchone()
        return bool(found[0])

    def _has_ledger(self) -> bool:
        question = "SELECT 1 FROM permea.ledgers WHERE name = ?"
        return self._has_tables() and bool(self.execute(question, (self.name,)).fetchone())

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[None]:
        """Read one state of the ledger, or lock it, check and charge."""
        with LOCK, self._explained(), self._connected().transaction():
            self.execute(_WRITE if write else _READ)
            if write:  # wait for the row of this ledger, and keep it
                self.execute("SELECT 1 FROM permea.ledgers WHERE name = ? FOR UPDATE", self.row_key)
            yield

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement and give its cursor."""
        assert self._connection is not None
        return self._connection.execute(statement.replace("?", "%s"), values or None)

    def _connected(self) -> "psycopg.Connection[Any]":
        """Give this process's connection; a broken one is replaced."""
        if self._process != os.getpid():  # after a fork; closing it here would close it there
            self._left_behind.append(self._connection)
            self._connection, self._process = None, os.getpid()
        if self._connection is not None and not self._connection.closed:
            try:
                self._connection.execute("SELECT 1")
            except self._driver.OperationalError:  # the server was restarted meanwhile
                self._connection.close()
            else:
                return self._connection
        self._connection = self._driver.connect(
            self._url,
            autocommit=True,  # transactions are begun by name
            prepare_threshold=None,  # works behind a pooler as well
            connect_timeout=_CONNECT_SECONDS,
            application_name="permea ledger",
        )
        return self._connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (self._driver.errors.UndefinedTable, self._driver.errors.InvalidSchemaName):
            raise LedgerError(self.not_found) from None
        except self._driver.errors.LockNotAvailable:
            raise self.busy() from None
        except self._driver.Error as error:
            reason = " ".join(str(error).split())
            for secret in self._secrets:
                reason = reason.replace(secret, "***")
            raise LedgerError(
                f"The ledger {self.place} cannot be used: {reason}. If the connection was lost "
                "during a charge, the charge may stand; nothing was released for it."
            ) from None


def _driver() -> Any:
    try:
        import psycopg
    except ImportError:
        raise ImportError(
            "A ledger in PostgreSQL needs psycopg: pip install 'permea[postgres]'. A ledger in a "
            "file needs nothing more: Ledger('ledger.db')."
        ) from None
    return psycopg


def _split(url: str) -> tuple[str, str, str, tuple[str, ...]]:
    """Give the URL for libpq, the ledger's name, the URL for people, and the texts to hide.

    Examples
    --------
    >>> _split("postgresql://me:pass@host/db?ledger=ward")[:3]
    ('postgresql://me:pass@host/db', 'ward', 'postgresql://me:***@host/db?ledger=ward')
    """
    scheme, _, rest = url.partition("://")
    address, _, query = rest.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    names = [value for key, value in pairs if key == "ledger"] or ["default"]
    if len(names) > 1 or not _NAME.fullmatch(names[0]):
        raise LedgerError(
            "The name of a ledger (ledger=… in the URL) has letters, digits, '.', '_' and '-', at "
            "most 63 of them."
        )
    user, at, host = address.rpartition("@")
    login, colon, password = user.partition(":")
    hidden = {password, unquote(password), *(value for key, value in pairs if "password" in key)}
    known = [(key, value) for key, value in pairs if key != "ledger"]
    seen = [(key, "***" if "password" in key else value) for key, value in pairs]
    return (
        f"{scheme}://{address}" + ("?" + urlencode(known) if known else ""),
        names[0],
        f"{scheme}://{login}{colon and ':***'}{at}{host}"
        + ("?" + urlencode(seen, safe="*/") if seen else ""),
        tuple(sorted(hidden - {""}, key=len, reverse=True)),
    )

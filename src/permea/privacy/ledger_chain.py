"""The chain of a ledger's rows.

A ledger begins with its genesis: a text that holds its id, budget, composition, time of creation
and the digest of its key. Every row after it carries the hash of the row before. Whoever reads the
rows follows the chain from the genesis and thereby finds any row that was altered, deleted,
reordered or added by other means than the ledger's own.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from permea.privacy.ledger_account import Account, Composition
from permea.privacy.ledger_events import (
    Budget,
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

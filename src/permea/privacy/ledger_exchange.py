"""Ledgers as JSON: an export to hand on; the import of exports and of ledgers of 0.1."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from permea.privacy.ledger_chain import Chain, Header, Row, new_header
from permea.privacy.ledger_events import UNNAMED, Budget, Event, LedgerError, event_from_dict

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

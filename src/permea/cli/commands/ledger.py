"""``permea ledger``: the privacy spent on each data set, and whether the ledger is intact."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from permea.cli.app import CHECK, command
from permea.cli.console import AuditError, Console, ModelError, json_file
from permea.cli.options import Unit, make_budget
from permea.cli.signatures import read_certificate
from permea.cli.tables import STREAM, check_output, write_result
from permea.privacy import Certificate, Ledger
from permea.privacy.ledger_events import TamperedLedgerError, budget_text
from permea.storage import load

Where = Annotated[
    str,
    Argument(
        metavar="LEDGER", help="Database file, or postgresql://user@host/database?ledger=name."
    ),
]


class Composition(StrEnum):
    """How events are composed."""

    basic = "basic"
    tight = "tight"


@command("ledger create", panel=CHECK)
def create(
    console: Console,
    ledger: Where,
    epsilon: Annotated[float, Option("--epsilon", "-e", help="Total ε per data set.")],
    delta: Annotated[float, Option(help="Total δ per data set.")] = 0.0,
    unit: Annotated[Unit, Option(help="What ε protects.")] = Unit.entry,
    composition: Annotated[
        Composition,
        Option(help="basic adds up; tight needs releases that were planned in advance."),
    ] = Composition.basic,
) -> None:
    """Create a ledger with a budget, which cannot be changed later.

    Then pass it to train, fabricate and source with --ledger.

    Example:
        permea ledger create ledger.db --epsilon 3 --delta 1e-5 --unit record
    """
    budget = make_budget(epsilon, delta, unit)
    made = Ledger(ledger, budget=budget, composition=composition.value, existing=False)
    console.result(f"{made.where} created: {_limit(made)}", _values(made))


@command("ledger show", panel=CHECK)
def show(console: Console, ledger: Where) -> None:
    """Show what each data set has spent, and every event.

    An event is charged before the rows are read and marked as released afterwards. An event that
    was charged and never released belongs to a run that failed or was stopped; it stays charged.

    Example:
        permea ledger show ledger.db
    """
    found = Ledger(ledger, existing=True)
    console.result(_text(found), _values(found))


@command("ledger verify", panel=CHECK)
def verify(
    console: Console,
    ledger: Where,
    certificate: Annotated[
        list[str] | None,
        Option(
            "--certificate",
            "-c",
            help="Model file or certificate (.json) of a release that was charged to this ledger; "
            "the latest is best (repeat).",
        ),
    ] = None,
) -> None:
    """Check that no event was altered, deleted, added or moved.

    A ledger that was restored from an older copy is consistent by itself: pass the certificate of a
    later release to detect it. The exit code is 7 when the ledger was tampered with.

    Example:
        permea ledger verify ledger.db --certificate model.permea
    """
    evidence = [(path, _certificate(path)) for path in certificate or []]
    try:
        found = Ledger(ledger, existing=True)
        for _, one in evidence:
            found.check_against(one)
    except TamperedLedgerError as error:
        raise AuditError(str(error)) from error
    values = found.to_dict()
    count = len(values["events"])
    text = f"{found.where} is whole: {count} event{'s' * (count != 1)}, "
    text += f"last entry {values['number']}, {values['hash'][:16]}…"
    if evidence:
        text += f"; it holds the events of {', '.join(path for path, _ in evidence)}"
    else:
        text += "; only a certificate shows whether it is the latest copy (--certificate)"
    known = {name: values[name] for name in ("ledger", "number", "hash")}
    paths = [path for path, _ in evidence]
    console.result(text, {**known, "whole": True, "events": count, "certificates": paths})


@command("ledger export", panel=CHECK)
def export(
    console: Console,
    ledger: Where,
    output: Annotated[
        str, Option("--output", "-o", help="JSON file to write; - is standard output.")
    ] = STREAM,
) -> None:
    """Write the ledger as JSON for others: without the key, and without fingerprints of rows.

    Example:
        permea ledger export ledger.db -o ledger.json
    """
    check_output(output, (".json",), inputs=(ledger,))
    found = Ledger(ledger, existing=True)
    if output == STREAM:
        print(json_file(found.to_dict()).decode(), end="")
        return
    write_result(output, json_file(found.to_dict()))
    console.result(
        f"{len(found)} events written to {output}", {"output": output, "events": len(found)}
    )


@command("ledger import", panel=CHECK)
def import_(
    console: Console,
    file: Annotated[
        Path, Argument(help="JSON that permea 0.1 kept, or permea ledger export wrote.")
    ],
    ledger: Where,
) -> None:
    """Import the JSON of permea 0.1 into a new database, which replaces it.

    Every event is checked. Rows that had one of the default names of 0.1 (data, source) count as
    rows without a name, against every data set. Do not use the old file any more.

    Example:
        permea ledger import account.json ledger.db
    """
    made = Ledger.import_json(file, ledger)
    console.result(f"{len(made)} events imported into {made.where}\n{_text(made)}", _values(made))


def _certificate(path: str) -> Certificate:
    """The certificate of a model file, or a certificate itself."""
    if path.lower().endswith(".json"):
        return read_certificate(path, path, None)
    found = getattr(load(path), "certificate_", None)
    if not isinstance(found, Certificate):
        raise ModelError(f"{path} has no certificate.")
    return found


def _text(ledger: Ledger) -> str:
    """The budget, one line per data set and one for rows without a name, and every event."""
    values, events = ledger.to_dict(), ledger.events
    names: list[str | None] = list(ledger.datasets)
    if any(not event.is_named for event in events):
        names.append(None)
    lines = [
        f"Ledger {ledger.where}, created {values['created'][:19]} UTC, id {values['ledger']}",
        f"  {_limit(ledger)}",
        *(f"  {ledger.summary(name)}" for name in names),
        *str(ledger).splitlines()[1:],
    ]
    if left := sum(event.status == "charged" for event in events):
        lines.append(
            f"  {left} event{'s were' if left > 1 else ' was'} charged and never released: a run "
            "failed, was stopped, or is still running. What was charged stays charged."
        )
    return "\n".join(lines)


def _limit(ledger: Ledger) -> str:
    return f"{budget_text(ledger.budget)} for each data set, {ledger.composition} composition"


def _values(ledger: Ledger) -> dict[str, Any]:
    def amount(spent: Any, *names: str) -> dict[str, Any]:
        return {name: getattr(spent, name) for name in ("epsilon", "delta", *names)}

    return {
        "where": ledger.where,
        **ledger.to_dict(),
        "spent": amount(ledger.spent, "unit"),
        "remaining": amount(ledger.remaining, "unit"),
        "datasets": {name: amount(ledger.spent_on(name)) for name in ledger.datasets},
    }

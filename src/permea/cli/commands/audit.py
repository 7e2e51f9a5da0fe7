"""``permea audit``: the mechanism of a certificate on canaries, and attacks on the model itself."""

import json
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from permea.audit import (
    KINDS,
    AttackReport,
    EmpiricalEpsilon,
    attack,
    guarantee_rows,
    mechanism_epsilon,
    why_not_rerun,
)
from permea.audit.report import guarantee_lines
from permea.cli.app import CHECK, command
from permea.cli.commands.predict import Model, feature_columns, load_model
from permea.cli.console import CommandError, Console, ExitCode, plain
from permea.cli.tables import check_output, labels, numbers, read_table, write_whole
from permea.cli.trust import Trusted, trusted_keys
from permea.report.content import METRIC_ATTACKS

Rows = tuple[NDArray[np.float64], NDArray[np.generic]]
RELEASES, CONFIDENCE = 2000, 0.9999


class Attacks(StrEnum):
    """How thorough: seconds, or minutes with shadow models."""

    fast = "fast"
    all = "all"


@command(
    "audit",
    panel=CHECK,
    examples=[
        "permea audit model.permea",
        "permea audit model.permea --members a.csv --outside b.csv --label y",
    ],
)
def audit(
    console: Console,
    model: Model,
    members: Annotated[str | None, typer.Option(help="Rows that trained the model.")] = None,
    outside: Annotated[str | None, typer.Option(help="Rows that did not.")] = None,
    label: Annotated[str | None, typer.Option("--label", "-l", help="Column of classes.")] = None,
    attacks: Annotated[
        Attacks, typer.Option(help="fast, or all with shadow models (minutes).")
    ] = Attacks.fast,
    shadows: Annotated[int, typer.Option(min=2, help="Shadow models of --attacks all.")] = 20,
    releases: Annotated[
        int,
        typer.Option(min=0, help="Releases of the mechanism with and without a canary; 0: none."),
    ] = RELEASES,
    confidence: Annotated[
        float, typer.Option(min=0.5, max=0.9999999, help="Of the bound on ε of the mechanism.")
    ] = CONFIDENCE,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Write the findings as JSON.")
    ] = None,
    max_auc: Annotated[
        float | None,
        typer.Option(help="Exit with code 7 when an attack provably reaches more."),
    ] = None,
    trusted: Trusted = None,
) -> None:
    """Measure what a mechanism leaks at least, and what attacks on a model reach.

    The mechanism of the certificate is run again on made-up canary rows, and its released numbers
    are told apart: a lower bound on ε beside the claim. It says nothing about any table. With
    --members, --outside and --label the model itself is attacked: how well the rows of the two
    tables can be told apart by its answers.

    MODEL, the two tables and this report stay with the owner of the data: what attacks reach is
    computed from the rows themselves.
    """
    tables = _tables(members, outside, label)
    if max_auc is not None and not tables:
        raise CommandError("--max-auc needs --members, --outside and --label.", ExitCode.USAGE)
    if output is not None:
        check_output(output, (".json",), inputs=(model, *tables[:2]))
    classifier = load_model(model, trusted_keys(trusted))
    found = AttackReport(())
    if tables:
        inside, others = (read_rows(classifier, path, tables[2]) for path in tables[:2])
        kinds = METRIC_ATTACKS if attacks is Attacks.fast else KINDS
        console.say(f"{len(kinds)} attacks on {len(inside[0])} members and {len(others[0])} others")
        found = attack(classifier, *inside, *others, kinds=kinds, n_shadows=shadows)
    measured, reason = rerun(classifier, releases, confidence)
    found = _with_claim(found, classifier, measured, reason)
    values = {**found.to_dict(), "mechanism": _mechanism(measured, reason)}
    if output is not None:
        text = json.dumps(plain(values), indent=2, ensure_ascii=False) + "\n"
        write_whole(output, lambda beside: beside.write_text(text, encoding="utf-8"))
    console.result(_page(found, tables, measured, reason), values)
    _judge(found, max_auc)


def _tables(
    members: str | None, outside: str | None, label: str | None
) -> tuple[str, str, str] | tuple[()]:
    """The two tables and the label, or none of them."""
    if members is None or outside is None or label is None:
        if members is outside is label:
            return ()
        raise CommandError("--members, --outside and --label belong together.", ExitCode.USAGE)
    return members, outside, label


def read_rows(classifier: Any, path: str, label: str) -> Rows:
    """Features and labels of a table for an audit."""
    frame = read_table(path)
    y = labels(frame, label, path)
    rows = numbers(frame, feature_columns(classifier, frame, path), path), y
    known = np.asarray(classifier.classes_)
    if not np.isin(y.astype(str), known.astype(str)).any():
        raise CommandError(
            f"{path}: none of the labels in {label!r} is a class of the model. Name the column of "
            "the classes with --label.",
            ExitCode.INPUT,
        )
    return rows


def rerun(model: Any, releases: int, confidence: float) -> tuple[EmpiricalEpsilon | None, str]:
    """What the mechanism of the model's certificate leaks at least, or why that is not known."""
    reason = why_not_rerun(model) if releases else "not asked for"
    if reason:
        return None, reason
    return mechanism_epsilon(model, runs=2 * releases, confidence=confidence), ""


def _with_claim(
    found: AttackReport, model: Any, measured: EmpiricalEpsilon | None, reason: str
) -> AttackReport:
    """The report with the claim of the certificate beside what was measured of its mechanism."""
    certificate = getattr(model, "certificate_", None)
    bounds = () if measured is None else (measured,)
    rows = guarantee_rows(certificate, bounds, not_measured=reason)
    return replace(found, guarantees=rows)


def run_attacks(
    classifier: Any, inside: Rows, others: Rows, kinds: tuple[str, ...], shadows: int
) -> AttackReport:
    """The attacks, with the claim of the certificate and what its mechanism leaks at least."""
    found = attack(classifier, *inside, *others, kinds=kinds, n_shadows=shadows)
    return _with_claim(found, classifier, *rerun(classifier, RELEASES, CONFIDENCE))


def _mechanism(measured: EmpiricalEpsilon | None, reason: str) -> dict[str, Any]:
    return {"not_measured": reason} if measured is None else measured.to_dict()


def _page(
    found: AttackReport, tables: Sequence[str], measured: EmpiricalEpsilon | None, reason: str
) -> str:
    """The findings for a person: what each part is about, then its table."""
    lines = []
    if tables:
        lines = [
            f"Membership inference on this model: rows of {tables[0]} against rows of {tables[1]}",
            str(replace(found, guarantees=())),
            "",
        ]
    lines += ["The mechanism of the certificate, not this model and not any table"]
    if measured is None:
        lines.append(f"no figure: {reason}")
    else:
        lines.append(
            f"run again {measured.trials} times: {measured.note}; the canaries can show at most "
            f"ε = {measured.attainable:.3g} of it"
        )
    return "\n".join([*lines, *guarantee_lines(found.guarantees)])


def _judge(found: AttackReport, max_auc: float | None) -> None:
    """Fail when a claim is refuted or an attack reaches more than is allowed, beyond chance."""
    if any("REFUTES" in row["note"] for row in found.guarantees):
        raise CommandError("The audit refutes the claimed ε.", ExitCode.AUDIT)
    if max_auc is None or not found.attacks:
        return
    best = found.strongest
    if best.applies and best.auc_interval[0] > max_auc:
        raise CommandError(
            f"The attack {best.name} reaches an AUC of {best.auc:.3f} (at least "
            f"{best.auc_interval[0]:.3f} with 95 % confidence), more than {max_auc:g}.",
            ExitCode.AUDIT,
        )

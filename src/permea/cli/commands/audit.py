"""``permea audit``: attack a model with rows that trained it and rows that did not."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from permea.audit import KINDS, AttackReport, EmpiricalEpsilon, attack, guarantee_rows
from permea.cli.app import CHECK, command
from permea.cli.commands.predict import Model, feature_columns, load_model
from permea.cli.console import Console, plain
from permea.cli.errors import CommandError, ExitCode
from permea.cli.files import check_output, write_whole
from permea.cli.tables import labels, numbers, read_table
from permea.report.gather import METRIC_ATTACKS, measured_claim

Rows = tuple[NDArray[np.float64], NDArray[np.generic]]


class Attacks(StrEnum):
    """How thorough: seconds, or minutes with shadow models."""

    fast = "fast"
    all = "all"


Members = Annotated[str, typer.Option("--members", help="Rows that trained the model.")]
Outside = Annotated[str, typer.Option("--outside", help="Rows that did not.")]
Label = Annotated[str, typer.Option("--label", "-l", help="Column of the classes.")]


@command(
    "audit",
    panel=CHECK,
    examples=["permea audit model.permea --members a.csv --outside b.csv --label y"],
)
def audit(
    console: Console,
    model: Model,
    members: Members,
    outside: Outside,
    label: Label,
    attacks: Annotated[
        Attacks, typer.Option(help="fast, or all with shadow models (minutes).")
    ] = Attacks.fast,
    shadows: Annotated[int, typer.Option(min=2, help="Shadow models of --attacks all.")] = 20,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Write the findings as JSON.")
    ] = None,
    max_auc: Annotated[
        float | None,
        typer.Option(help="Exit with code 7 when an attack provably reaches more."),
    ] = None,
) -> None:
    """Attack a model and print what the attacks reach beside what is claimed.

    The label is used by the attacks only. MODEL, the two tables and this report stay with the
    owner of the data: what attacks reach is computed from the rows themselves.
    """
    if output is not None:
        check_output(output, (".json",), inputs=(model, members, outside))
    classifier = load_model(model)
    inside, others = read_rows(classifier, members, label), read_rows(classifier, outside, label)
    kinds = METRIC_ATTACKS if attacks is Attacks.fast else KINDS
    console.say(f"{len(kinds)} attacks on {len(inside[0])} members and {len(others[0])} others")
    found = run_attacks(classifier, inside, others, kinds, shadows)
    if output is not None:
        text = found.to_json() + "\n"
        write_whole(output, lambda beside: beside.write_text(text, encoding="utf-8"))
    console.result(str(found), plain(found.to_dict()))
    _judge(found, max_auc)


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


def run_attacks(
    classifier: Any, inside: Rows, others: Rows, kinds: tuple[str, ...], shadows: int
) -> AttackReport:
    """The attacks, with the claim of the certificate and what the mechanism leaks at least."""
    found = attack(classifier, *inside, *others, kinds=kinds, n_shadows=shadows)
    certificate = getattr(classifier, "certificate_", None)
    measured: tuple[EmpiricalEpsilon, ...] = ()
    if certificate is not None:
        measured = (measured_claim(certificate.privacy, inside[0].shape[1]),)
    return replace(found, guarantees=guarantee_rows(certificate, measured))


def _judge(found: AttackReport, max_auc: float | None) -> None:
    """Fail when a claim is refuted or an attack reaches more than is allowed, beyond chance."""
    if any("REFUTES" in row["note"] for row in found.guarantees):
        raise CommandError("The audit refutes the claimed ε.", ExitCode.AUDIT)
    best = found.strongest
    if max_auc is not None and best.applies and best.auc_interval[0] > max_auc:
        raise CommandError(
            f"The attack {best.name} reaches an AUC of {best.auc:.3f} (at least "
            f"{best.auc_interval[0]:.3f} with 95 % confidence), more than {max_auc:g}.",
            ExitCode.AUDIT,
        )

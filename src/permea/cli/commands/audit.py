"""``permea audit``: the mechanism of a certificate on canaries, and attacks on the model itself."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

from typer import Option

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
from permea.audit.tables import RowsOfTable
from permea.cli.app import CHECK, command
from permea.cli.console import AuditError, Console, UsageError, json_file
from permea.cli.models import load_model
from permea.cli.options import AttackTables, JsonOutput, ModelFile, Trusted
from permea.cli.signatures import certificate_status, trusted_keys
from permea.cli.tables import check_output, write_result
from permea.report.content import METRIC_ATTACKS

RELEASES, CONFIDENCE = 2000, 0.9999
Releases = Annotated[
    int, Option(min=0, help="Releases of the mechanism with and without a canary; 0: none.")
]


class Attacks(StrEnum):
    """How thorough: seconds, or minutes with shadow models."""

    fast = "fast"
    all = "all"


@command("audit", panel=CHECK)
def audit(
    console: Console,
    model: ModelFile,
    tables: AttackTables,
    attacks: Annotated[
        Attacks, Option(help="fast, or all with shadow models (minutes).")
    ] = Attacks.fast,
    shadows: Annotated[int, Option(min=2, help="Shadow models of --attacks all.")] = 20,
    releases: Releases = RELEASES,
    confidence: Annotated[
        float, Option(min=0.5, max=0.9999999, help="Of the bound on ε of the mechanism.")
    ] = CONFIDENCE,
    output: JsonOutput = None,
    max_auc: Annotated[
        float | None, Option(help="Exit with code 7 when an attack provably reaches more.")
    ] = None,
    trusted: Trusted = None,
) -> None:
    """Measure what a mechanism leaks at least, and how far attacks on a model get.

    The mechanism of the certificate is run again on synthetic canary rows, and an attack tells its
    outputs apart: this gives a lower bound on ε beside the claim. It says nothing about any table.
    With --members and --outside the model itself is attacked: how well do its answers separate the
    rows of the two tables? --label names the column of the classes where the model does not know
    it.

    MODEL, the two tables and this report stay with the owner of the data: the results of the
    attacks are computed from the rows themselves.

    Example:
        permea audit model.permea
        permea audit model.permea --members a.csv --outside b.csv
    """
    paths = tables.check()
    if max_auc is not None and not paths:
        raise UsageError("--max-auc needs --members and --outside.")
    if output is not None:
        check_output(output, (".json",), inputs=(model, *paths))
    classifier = load_model(model, trusted_keys(trusted))
    found = AttackReport(())
    if paths:
        given = tables.read(classifier, model)
        kinds = METRIC_ATTACKS if attacks is Attacks.fast else KINDS
        if isinstance(given.model, RowsOfTable):  # noise on a number of a row means nothing
            kinds = tuple(kind for kind in kinds if kind != "label_only")
        sizes = len(given.members[0]), len(given.outside[0])
        console.say(f"{len(kinds)} attacks on {sizes[0]} members and {sizes[1]} others")
        found = attack(given.model, *given.members, *given.outside, kinds=kinds, n_shadows=shadows)
    found, measured, reason = with_claim(found, classifier, releases, confidence)
    values = {
        **certificate_status(getattr(classifier, "certificate_", None)),
        **found.to_dict(),
        "mechanism": {"not_measured": reason} if measured is None else measured.to_dict(),
    }
    if output is not None:
        write_result(output, json_file(values))
    console.result(_text(found, paths, measured, reason), values)
    _fail_if_refuted(found, max_auc)


def with_claim(
    found: AttackReport, model: Any, releases: int = RELEASES, confidence: float = CONFIDENCE
) -> tuple[AttackReport, EmpiricalEpsilon | None, str]:
    """The report with the claim of the certificate beside what was measured of its mechanism.

    Also gives the measurement, or the reason why there is none.
    """
    measured = None
    reason = why_not_rerun(model) if releases else "not asked for"
    if not reason:
        measured = mechanism_epsilon(model, runs=2 * releases, confidence=confidence)
    rows = guarantee_rows(
        getattr(model, "certificate_", None),
        () if measured is None else (measured,),
        not_measured=reason,
    )
    return replace(found, guarantees=rows), measured, reason


def _text(
    found: AttackReport, paths: tuple[str, ...], measured: EmpiricalEpsilon | None, reason: str
) -> str:
    """The findings for a person: what each part is about, then its table."""
    lines = []
    if paths:
        lines = [
            f"Membership inference on this model: rows of {paths[0]} against rows of {paths[1]}",
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


def _fail_if_refuted(found: AttackReport, max_auc: float | None) -> None:
    """Fail when a claim is refuted or an attack reaches more than is allowed, beyond chance."""
    if any("REFUTES" in row["note"] for row in found.guarantees):
        raise AuditError("The audit refutes the claimed ε.")
    if max_auc is None or not found.attacks:
        return
    best = found.strongest
    if best.applies and best.auc_interval[0] > max_auc:
        raise AuditError(
            f"The attack {best.name} reaches an AUC of {best.auc:.3f} (at least "
            f"{best.auc_interval[0]:.3f} with 95 % confidence), more than {max_auc:g}."
        )

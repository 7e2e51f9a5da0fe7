"""``permea report``: what a model promises, achieves and leaks, in one HTML file."""

import shlex
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from sklearn.base import clone
from typer import Option

from permea._version import __version__
from permea.audit import attack
from permea.audit.tables import RowsOfTable
from permea.cli.app import CHECK, command
from permea.cli.commands.audit import RELEASES, Releases, with_claim
from permea.cli.console import Console, UsageError
from permea.cli.models import load_model, schema_of
from permea.cli.options import Attacked, AttackTables, ModelFile, Rows, Trusted, read_json_pairs
from permea.cli.signatures import certificate_status, describe_certificate, trusted_keys
from permea.cli.table_model import TableClassifier, unit_privacy
from permea.cli.tables import check_output, write_result, write_results
from permea.privacy import Privacy
from permea.report import Report, content, model_card, render
from permea.report.assessment import assessment_json
from permea.report.page import render_assessment


class Language(StrEnum):
    """A language of assessments."""

    en = "en"
    de = "de"


@command("report", panel=CHECK)
def report(
    console: Console,
    model: ModelFile,
    tables: AttackTables,
    output: Annotated[str, Option("--output", "-o", help="HTML file.")] = "report.html",
    curve: Annotated[
        bool, Option("--curve", help="Train again at several ε (costs time).")
    ] = False,
    samples: Annotated[
        bool, Option("--samples", help="Show rows before and after. They are REAL rows.")
    ] = False,
    measures: Annotated[
        Path | None, Option(help="JSON with a value and its meaning per name: leakage and others.")
    ] = None,
    releases: Releases = RELEASES,
    title: Annotated[str | None, Option(help="Title of the report.")] = None,
    purpose: Annotated[str, Option(help="What the model is for, as the assessment says it.")] = "",
    assessment: Annotated[
        str | None,
        Option(
            help="File for a data protection impact assessment: .html, or .json in all languages."
        ),
    ] = None,
    language: Annotated[Language, Option(help="Of the assessment in HTML.")] = Language.en,
    card: Annotated[
        str | None, Option("--model-card", help="Model card, Markdown as Hugging Face reads it.")
    ] = None,
    trusted: Trusted = None,
) -> None:
    """Write a report about a model that opens in any browser, without a network.

    A report with the certificate alone can be shown to anybody. With --members and --outside it
    also contains accuracy, attacks and histograms; these are computed from the rows, and the report
    says so. A certificate that no key of --trusted has signed is shown as an unverified claim.

    --assessment writes the section for a data protection impact assessment as a file of its own,
    --model-card a model card.

    Example:
        permea report model.permea -o report.html
        permea report model.permea --assessment dpia.html --language de -o report.html
        permea report model.permea --members a.csv --outside b.csv -o report.html
    """
    paths = tables.check()
    if (curve or samples) and not paths:
        raise UsageError("--curve and --samples need --members and --outside.")
    check_output(output, (".html",), inputs=(model, *paths))
    for beside, endings in ((assessment, (".html", ".json")), (card, (".md",))):
        if beside is not None:
            check_output(beside, endings, inputs=(model, *paths, output))
    classifier = load_model(model, trusted_keys(trusted))
    pairs = {} if measures is None else read_json_pairs(measures, '{"name": ["value", "meaning"]}')
    values: dict[str, Any] = {
        "measures": {name: (str(value), str(text)) for name, (value, text) in pairs.items()}
    }
    values["effects"], curves = _effects(classifier)
    if paths:
        attacked = tables.read(classifier, model)
        console.say("computing accuracy, attacks and histograms ...")
        values |= _from_rows(classifier, attacked, curve=curve, samples=samples, releases=releases)
    certificate = getattr(classifier, "certificate_", None)
    given = {"members": tables.members, "outside": tables.outside, "label": tables.label,
             "trusted": trusted}  # fmt: skip
    words = ["permea", "report", model]
    words += [word for name, text in given.items() if text for word in (f"--{name}", str(text))]
    words += ["--curve"] * curve + ["--samples"] * samples + ["-o", output]
    made = Report(
        title=title or f"Report on {Path(model).name}",
        facts=_facts(classifier),
        certificates={} if certificate is None else {Path(model).name: certificate},
        reproduce=[shlex.join(words), f"# permea {__version__}"],
        purpose=purpose,
        schema=schema_of(classifier),
        **{**values, "charts": [*values.get("charts", ()), *curves]},
    )
    if assessment is None and card is None:
        write_result(output, render(made).encode())  # which may be a pipe
    else:
        write_results(_files(made, output, assessment, language, card))
    best = made.strongest_attack
    console.result(
        f"{describe_certificate(certificate, model)}\nreport written to {Path(output).absolute()}",
        {
            "report": str(Path(output).absolute()),
            **certificate_status(certificate),
            "accuracy": None if made.accuracy is None else made.accuracy.value,
            "attack_auc": None if best is None else best["auc"],
        },
    )


def _files(
    made: Report, output: str, assessment: str | None, language: str, card: str | None
) -> dict[str, bytes]:
    """Everything that is written: the report last."""
    files = {}
    if assessment is not None:
        as_json = Path(assessment).suffix.lower() == ".json"
        text = assessment_json(made) if as_json else render_assessment(made, language)
        files[assessment] = text.encode()
    if card is not None:
        files[card] = model_card(made, name=Path(card).stem).encode()
    return {**files, output: render(made).encode()}


def _facts(classifier: Any) -> dict[str, str]:
    inner, schema = getattr(classifier, "classifier", classifier), schema_of(classifier)
    facts = {"model": type(inner).__name__}
    if schema is None:
        facts["features"] = str(classifier.n_features_in_)
    else:
        facts["columns"] = str(len(schema.features))
        facts["predicts"] = str(schema.label or schema.target)
    if hasattr(classifier, "classes_"):
        facts["classes"] = str(len(classifier.classes_))
    return {**facts, "permea": __version__, "date": date.today().isoformat()}


def _effects(model: Any) -> tuple[list[content.ColumnEffect], list[content.Chart]]:
    """What each column contributes, for a model that adds up the columns of a schema."""
    if schema_of(model) is None or not hasattr(model, "explain"):
        return [], []
    found = model.explain()
    classes: Any = getattr(model, "classes_", ())
    unit = f"contribution to {classes[1]}" if len(classes) == 2 else "contribution"
    return content.effects_of(found, unit)


def _from_rows(
    classifier: Any, attacked: Attacked, *, curve: bool, samples: bool, releases: int
) -> dict[str, Any]:
    """The parts of the report that are computed from the rows, and their names."""
    certificate: Any = getattr(classifier, "certificate_", None)
    if (curve or samples) and certificate is None:
        raise UsageError("--curve and --samples need a model trained with privacy.")
    if samples and certificate.released:
        raise UsageError(
            "--samples shows rows after the noise, and from this model's rows only noised sums "
            "were made."
        )
    model, inside, others = attacked.model, attacked.members, attacked.outside
    found = attack(model, *inside, *others, kinds=content.METRIC_ATTACKS)
    found, _, _ = with_claim(found, classifier, releases)
    charts = [content.roc_chart(found)]
    parts = ["accuracy", "attacks", "histograms"]
    values: dict[str, Any] = {"accuracy": content.accuracy_of(model, *others)}
    if curve:
        privacy = certificate.privacy
        charts.append(content.utility_chart(_trainer(model, inside), privacy, inside, others))
        parts.append("privacy against usefulness")
    charts.append(content.distance_chart(model, inside[0], others[0], key="distances"))
    if samples:
        columns = list(getattr(classifier, "columns", ()))
        values["samples"] = content.samples_of(*inside, certificate.privacy, columns=columns)
        parts.append("rows before and after, which are REAL rows")
    return {
        **values,
        "attacks": found.to_dict(),
        "charts": charts,
        "computed_from_private_rows": parts,
    }


def _trainer(model: Any, inside: Rows) -> Any:
    """Train the same kind of model again with another privacy."""

    def train(privacy: Privacy) -> Any:
        fresh = clone(model)
        if isinstance(model, TableClassifier):
            fresh.set_params(privacy=privacy, classifier__privacy=unit_privacy(privacy))
            fresh.set_params(classifier__ledger=None)
        elif isinstance(model, RowsOfTable):
            fresh.model.set_params(privacy=privacy)
        else:
            fresh.set_params(privacy=privacy, ledger=None)
        return fresh.fit(*inside)

    return train

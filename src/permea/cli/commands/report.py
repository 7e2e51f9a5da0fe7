"""``permea report``: what a model promises, reaches and leaks, in one HTML file."""

import json
import shlex
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer
from sklearn.base import clone

from permea._version import __version__
from permea.cli.app import CHECK, command
from permea.cli.commands.audit import Rows, read_rows, run_attacks
from permea.cli.commands.predict import Model, load_model
from permea.cli.console import CommandError, Console, ExitCode
from permea.cli.table_model import TableClassifier, unit_privacy
from permea.cli.tables import check_output, write_whole
from permea.cli.trust import Trusted, remark, standing, trusted_keys
from permea.privacy import Privacy
from permea.report import Report, content, write_html
from permea.report.content import Chart


@command(
    "report",
    panel=CHECK,
    examples=[
        "permea report model.permea -o report.html",
        "permea report model.permea --members a.csv --outside b.csv --label y -o report.html",
    ],
)
def report(
    console: Console,
    model: Model,
    output: Annotated[str, typer.Option("--output", "-o", help="HTML file.")] = "report.html",
    members: Annotated[str | None, typer.Option(help="Rows that trained the model.")] = None,
    outside: Annotated[str | None, typer.Option(help="Rows that did not.")] = None,
    label: Annotated[str | None, typer.Option("--label", "-l", help="Column of classes.")] = None,
    curve: Annotated[
        bool, typer.Option("--curve", help="Train again at several ε (costs time).")
    ] = False,
    samples: Annotated[
        bool, typer.Option("--samples", help="Show rows before and after. They are REAL rows.")
    ] = False,
    measures: Annotated[
        Path | None,
        typer.Option(help="JSON with a value and its meaning per name: leakage and others."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the report.")] = None,
    trusted: Trusted = None,
) -> None:
    """Write a report about a model that opens anywhere, without a network.

    The certificate alone can be shown to anybody. With --members and --outside the report also
    has accuracy, attacks and histograms; these are computed from the rows, and the report says so.
    A certificate that no key of --trusted has signed is shown as an unverified claim.
    """
    given = [one for one in (members, outside, label) if one is not None]
    if given and len(given) < 3:
        raise CommandError("--members, --outside and --label belong together.", ExitCode.USAGE)
    if (curve or samples) and not given:
        raise CommandError("--curve and --samples need --members and --outside.", ExitCode.USAGE)
    check_output(output, (".html",), inputs=(model, *(p for p in (members, outside) if p)))
    classifier = load_model(model, trusted_keys(trusted))
    values: dict[str, Any] = {"measures": {} if measures is None else _read_measures(measures)}
    if members is not None and outside is not None and label is not None:
        inside, others = (read_rows(classifier, path, label) for path in (members, outside))
        console.say("computing accuracy, attacks and histograms ...")
        values |= _from_rows(classifier, inside, others, curve=curve, samples=samples)
    certificate = getattr(classifier, "certificate_", None)
    made = Report(
        title=title or f"Report on {Path(model).name}",
        facts=_facts(classifier),
        certificates={} if certificate is None else {Path(model).name: certificate},
        reproduce=_commands(model, members, outside, label, output, curve, samples, trusted),
        **values,
    )
    write_whole(output, lambda beside: write_html(made, beside))
    best = made.strongest_attack
    console.result(
        f"{remark(certificate, model)}\nreport written to {Path(output).absolute()}",
        {
            "report": str(Path(output).absolute()),
            **standing(certificate),
            "accuracy": None if made.accuracy is None else made.accuracy.value,
            "attack_auc": None if best is None else best["auc"],
        },
    )


def _facts(classifier: Any) -> dict[str, str]:
    inner = getattr(classifier, "classifier", classifier)
    return {
        "model": type(inner).__name__,
        "features": str(classifier.n_features_in_),
        "classes": str(len(classifier.classes_)),
        "permea": __version__,
        "date": date.today().isoformat(),
    }


def _from_rows(
    classifier: Any, inside: Rows, others: Rows, *, curve: bool, samples: bool
) -> dict[str, Any]:
    """Everything that needs the rows themselves, and the note that says so."""
    found = run_attacks(classifier, inside, others, content.METRIC_ATTACKS, 0)
    charts: list[Chart] = [content.roc_chart(found)]
    private_parts = ["accuracy", "attacks", "histograms"]
    privacy = getattr(getattr(classifier, "certificate_", None), "privacy", None)
    if curve:
        if privacy is None or not isinstance(classifier, TableClassifier):
            raise CommandError("--curve needs a model trained with privacy.", ExitCode.USAGE)
        charts.append(content.utility_chart(_trainer(classifier, inside), privacy, inside, others))
        private_parts.append("privacy against usefulness")
    charts.append(
        content.distance_chart(
            classifier, inside[0], others[0], key="distances", title="Smallest distance"
        )
    )
    values: dict[str, Any] = {
        "accuracy": content.accuracy_of(classifier, *others),
        "attacks": found.to_dict(),
        "charts": charts,
    }
    if samples:
        if privacy is None:
            raise CommandError("--samples needs a model trained with privacy.", ExitCode.USAGE)
        columns = list(getattr(classifier, "columns", ()))
        values["samples"] = content.samples_of(*inside, privacy, columns=columns)
        private_parts.append("rows before and after, which are REAL rows")
    return {**values, "computed_from_private_rows": private_parts}


def _trainer(model: TableClassifier, inside: Rows) -> Any:
    """Train the same kind of model anew with another privacy."""

    def train(privacy: Privacy) -> TableClassifier:
        inner = clone(model.classifier).set_params(privacy=unit_privacy(privacy), ledger=None)
        fresh = TableClassifier(inner, columns=model.columns, label=model.label, privacy=privacy)
        return fresh.fit(*inside)

    return train


def _read_measures(path: Path) -> dict[str, tuple[str, str]]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): (str(value), str(text)) for name, (value, text) in values.items()}
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.", ExitCode.INPUT) from None
    except (ValueError, TypeError, AttributeError):
        raise CommandError(
            f'{path} is not a list of measures; write {{"name": ["value", "meaning"]}}.',
            ExitCode.INPUT,
        ) from None


def _commands(
    model: str,
    members: str | None,
    outside: str | None,
    label: str | None,
    output: str,
    curve: bool,
    samples: bool,
    trusted: Path | None,
) -> list[str]:
    words = ["permea", "report", model]
    given = {"members": members, "outside": outside, "label": label, "trusted": trusted}
    for name, value in given.items():
        words += [] if value is None else [f"--{name}", str(value)]
    words += ["--curve"] * curve + ["--samples"] * samples + ["-o", output]
    return [" ".join(shlex.quote(word) for word in words), f"# permea {__version__}"]

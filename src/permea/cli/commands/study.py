"""``permea study``: privacy, interpretability and transfer of one source over several ε."""

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from typer import Option

from permea import documents
from permea.cli import options, tables
from permea.cli.app import CHECK, command
from permea.cli.console import Console, InputError, UsageError, json_file
from permea.information.study import RULES, TradeOff, trade_off
from permea.report.plots import plot_trade_off

_MISSING = "–"


@dataclass(frozen=True)
class Columns:
    """Which columns are what."""

    label: options.Label
    private: Annotated[
        str | None, Option(help="Private columns, separated by commas; the features by default.")
    ] = None
    interpretable: Annotated[
        str | None,
        Option(help="Columns that explain a row, separated by commas; the classes by default."),
    ] = None
    ids: Annotated[
        list[str] | None, Option("--id", help="Column that is not a feature (repeat).")
    ] = None

    def features(self, frame: pd.DataFrame, what: str) -> list[str]:
        """Columns that are neither label nor id nor explanation."""
        explaining = names_of(self.interpretable)
        left_out = options.ColumnOptions(ids=[*(self.ids or ()), *explaining])
        found = left_out.features(frame, self.label, what)
        # Private columns that are named are no features of the release, which would contain them.
        return [name for name in found if name not in names_of(self.private)]


@dataclass(frozen=True)
class Tables:
    """Where the rows are."""

    target: Annotated[
        str | None, Option(help="Table of the receiver; its label is empty where unknown.")
    ] = None
    test: Annotated[str | None, Option(help="Labelled table to measure accuracies on.")] = None


@command("study", panel=CHECK)
def study(
    console: Console,
    data: options.Data,
    columns: Columns,
    others: Tables,
    epsilons: Annotated[
        str, Option("--epsilon", "-e", help="Values of ε to compare, by commas; inf: no noise.")
    ] = "0.1,0.25,0.5,1,2,10",
    delta: Annotated[float, Option(help="Probability of failure, per entry.")] = 1e-5,
    domain: options.Domain = None,
    domain_file: options.DomainFile = None,
    library: Annotated[
        bool, Option("--library", help="Transfer by the library's method, not the document's.")
    ] = False,
    samples: Annotated[int, Option(min=10, help="Rows used at most for a measure.")] = 5000,
    seed: Annotated[int, Option(help="Of noise, samples and k-means.")] = 0,
    jobs: options.Jobs = -1,
    output: options.JsonOutput = None,
    plot: Annotated[str | None, Option(help="Picture to draw: .svg, .png or .pdf.")] = None,
) -> None:
    """Measure what leaks, what explains and what transfers for several ε (003 Algorithm 9).

    For every ε the source rows get noise, a source model and a target classifier are learned, and
    the privacy leakage, interpretability and transferability are measured in nats. The models that
    the rules of document 003 select are named below the table. Noise is per entry, and repeatable:
    the study stays with the owner of the source and decides with which ε a source is made.

    Example:
        permea study source.csv --label y --domain 0 1 --target few.csv --test test.csv
        permea study source.csv --label y --domain 0 1 -e 0.1,1,inf --plot study.svg -o study.json
    """
    beside = [path for path in (data, others.target, others.test) if path is not None]
    if output is not None:
        tables.check_output(output, (".json",), inputs=tuple(beside))
    if plot is not None:
        tables.check_output(plot, (".svg", ".png", ".pdf"), inputs=tuple(beside))
    values = epsilons_of(epsilons)
    settings = _read(data, columns, others, domain, domain_file)
    console.say(f"{len(settings['X_source'])} source rows, {len(values)} values of ε ...")
    common: dict[str, Any] = {
        "epsilons": values,
        "delta": delta,
        "max_samples": samples,
        "random_state": seed,
    }
    if library:
        result = trade_off(**settings, **common, models=False, transfer={"n_jobs": jobs})
    else:
        result = documents.study_003(**settings, **common, models=False, n_jobs=jobs)
    found = findings(result)
    if output is not None:
        tables.write_result(output, json_file(found))
    if plot is not None:
        picture = io.BytesIO()
        plot_trade_off(result).savefig(picture, format=Path(plot).suffix[1:])
        tables.write_result(plot, picture.getvalue())
    console.result(in_words(found), found)


def names_of(text: str | None) -> list[str]:
    """Column names separated by commas.

    Examples
    --------
    >>> names_of("a, b"), names_of(None)
    (['a', 'b'], [])
    """
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]


def epsilons_of(text: str) -> list[float]:
    """Values of ε, each once and above 0.

    Examples
    --------
    >>> epsilons_of("0.1,inf")
    [0.1, inf]
    """
    try:
        values = [float(item) for item in text.split(",")]
    except ValueError:
        raise UsageError(f"--epsilon takes numbers separated by commas, got {text!r}.") from None
    if not all(value > 0 for value in values) or len(set(values)) < len(values):
        raise UsageError("Every value of --epsilon must be above 0 and stand there once.")
    return values


def _read(
    data: str,
    columns: Columns,
    others: Tables,
    domain: tuple[float, float] | None,
    domain_file: Path | None,
) -> dict[str, Any]:
    """All tables as `trade_off` takes them, features mapped to [0, 1] by their declared ranges."""
    if (domain is None) == (domain_file is None):
        raise UsageError("Give the public ranges by --domain LOW HIGH or by --domain-file.")
    if others.test is not None and others.target is None:
        raise UsageError("--test needs --target: accuracies are those of the transfer.")
    frame = tables.read_table(data)
    named = [*names_of(columns.private), *names_of(columns.interpretable)]
    tables.require_columns(frame, named, data)
    features = columns.features(frame, data)
    low, high = options.PrivacyOptions(domain=domain, domain_file=domain_file).ranges(features)

    def rows(table: pd.DataFrame, what: str) -> NDArray[np.float64]:
        tables.require_columns(table, [*features, columns.label], what)
        scaled = np.asarray((tables.numbers(table, features, what) - low) / (high - low))
        if what == data and (scaled.min() < 0 or scaled.max() > 1):
            raise InputError(
                f"{what} has values outside the declared ranges. Declare wider ones, from what the "
                "features mean; the study would measure the clipping."
            )
        return scaled

    made: dict[str, Any] = {
        "X_source": rows(frame, data),
        "y_source": tables.labels(frame, columns.label, data).astype(str),
        "domain": (0.0, 1.0),
    }
    for role in ("private", "interpretable"):
        if names := names_of(getattr(columns, role)):
            made[role] = pd.DataFrame(tables.numbers(frame, names, data), columns=names)
    if others.target is not None:
        few = tables.read_table(others.target)
        known = few[columns.label] if columns.label in few else pd.Series([""] * len(few))
        texts = np.where(known.notna(), known.astype(str), "")
        made |= {"X_target": rows(few, others.target), "y_target": _like(texts, frame, columns)}
    if others.test is not None:
        test = tables.read_table(others.test)
        labels = tables.labels(test, columns.label, others.test).astype(str)
        made |= {"X_test": rows(test, others.test), "y_test": labels}
    return made


def _like(texts: NDArray[Any], frame: pd.DataFrame, columns: Columns) -> NDArray[Any]:
    """Labels of the target as the source writes them: 3.0, where others are missing, is 3."""
    known = set(frame[columns.label].astype(str))
    same = [text.removesuffix(".0") if text not in known else text for text in texts]
    unknown = sorted({text for text in same if text and text not in known})
    if unknown:
        raise InputError(f"The target has labels that the source lacks: {tables.listed(unknown)}.")
    return np.array(same)


def findings(result: TradeOff) -> dict[str, Any]:
    """Every number of every ε, and the ε that each rule selects."""
    points = [point.figures() for point in result.points]
    selected: dict[str, float] = {}
    for rule, (name, _) in RULES.items():
        if not all(math.isnan(point[name]) for point in points):
            selected[rule] = result.select(rule).epsilon
    return {"points": points, "selected": selected}


def in_words(found: dict[str, Any]) -> str:
    """The points as a table, and the selected ones below."""
    head = ("ε per entry", "leakage", "interpretability", "transferability", "accuracy", "source")
    names = ("privacy_leakage", "interpretability", "transferability", "accuracy",
             "source_accuracy")  # fmt: skip
    lines = ["  ".join(f"{word:>16}" for word in head)]
    for point in found["points"]:
        cells = [f"{point['epsilon']:g}"]
        cells += [_MISSING if math.isnan(point[name]) else f"{point[name]:.4g}" for name in names]
        lines.append("  ".join(f"{cell:>16}" for cell in cells))
    lines += [""]
    for rule, epsilon in found["selected"].items():
        lines.append(f"{rule.replace('_', ' ')}: ε = {epsilon:g} per entry")
    return "\n".join(lines)

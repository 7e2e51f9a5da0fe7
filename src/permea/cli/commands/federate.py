"""``permea federate`` and ``permea party``: one classifier from the models of many owners."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from typer import Argument, Option

from permea._text import safe_text
from permea.audit.signals import is_distance_based
from permea.cli import options, signatures, tables
from permea.cli.app import TOGETHER, command
from permea.cli.console import Console, ExitCode, InputError, RefusedError, UsageError
from permea.cli.models import feature_columns, load_model, model_input, read_rows, schema_of
from permea.federation import ConsentError, Federation, Party
from permea.federation.summary import summarise


@command("federate", panel=TOGETHER)
def federate(
    console: Console,
    models: Annotated[
        list[str] | None, Argument(help="Private model files of the parties.")
    ] = None,
    queries: Annotated[str | None, Option(help="Table to label: .csv, .parquet or -.")] = None,
    output: options.TableOutput = tables.STREAM,
    column: options.NewColumn = "prediction",
    config: Annotated[
        Path | None, Option(help="federation.toml of parties on the network.")
    ] = None,
    disjoint: Annotated[
        bool, Option("--disjoint", help="No two parties hold the same record.")
    ] = False,
    engine: Annotated[
        str | None,
        Option(help="embedded (MODELS are here) or flower (--config); follows from the arguments."),
    ] = None,
    trusted: options.Trusted = None,
) -> None:
    """Label rows by the models of several parties: the nearest class over all of them wins.

    Models that were trained with a schema are combined by the mean of their probabilities,
    weighted by how many rows or people they were learned from. They must share one schema.

    With MODELS the private models are files on this machine; with --config the parties are
    queried over the network, and without --queries their service runs until it is stopped. A
    party's certificate is an unverified claim unless a key of --trusted has signed its model.

    Example:
        permea federate north.permea south.permea --queries new.csv -o out.csv
        permea federate --engine flower --config federation.toml --queries new.csv
    """
    if (config is None) == (not models):
        raise UsageError("Give model files, or --config federation.toml.")
    if engine not in (None, "embedded" if config is None else "flower"):
        raise UsageError(
            f"--engine {engine} does not go with these arguments: embedded takes model files, "
            "flower takes --config federation.toml."
        )
    if config is not None:
        _check_exists(config)
    if queries is None:
        if config is None:
            raise UsageError("What should be labelled? Give --queries FILE.")
        console.say(f"serving the federation of {config}; stop with Ctrl-C")
        _query_network(config, None)
        console.result("stopped", {"stopped": True})
        return
    tables.check_table_output(console, output, queries)
    read = {path: load_model(path, signatures.trusted_keys(trusted)) for path in models or []}
    frame = tables.read_table(queries) if config else read_rows(next(iter(read.values())), queries)
    if config is not None:
        names: list[str] = []
        X = tables.numbers(frame, tables.numeric_columns(frame), queries)
        job = _query_network(config, X)
        answer, values = job.labels, {"report": job.report}
        parties = job.report.get("parties", {}).items()
        text = "\n".join(f"{safe_text(name):<18}{safe_text(said)}" for name, said in parties)
    else:
        names = feature_columns(next(iter(read.values())), frame, queries)
        ask = _query_models if _have_distances(read) else _pool_models
        answer, values, text = ask(read, frame, queries, disjoint)
    result = tables.with_predictions(frame.drop(columns=names), column, answer, queries)
    tables.write_predictions(console, result, output, text, values)


def _have_distances(classifiers: dict[str, Any]) -> bool:
    """Whether the distances of all models are compared; models with a schema are pooled."""
    kinds = {is_distance_based(one) and schema_of(one) is None for one in classifiers.values()}
    if len(kinds) > 1:
        raise UsageError("Models with a schema and models of numbers cannot be combined.")
    return kinds.pop()


def _query_models(
    classifiers: dict[str, Any], frame: pd.DataFrame, what: str, disjoint: bool
) -> tuple[Any, dict[str, Any], str]:
    """Labels by models that are files here (004 Remark 6), values for JSON and text."""
    try:
        parties = [Party(Path(path).stem, model) for path, model in classifiers.items()]
    except ConsentError as error:
        raise RefusedError(error) from error
    federation = Federation(parties, records="disjoint" if disjoint else "unknown")
    names = feature_columns(next(iter(classifiers.values())), frame, what)
    answer = federation.predict(tables.numbers(frame, names, what))
    return answer, *_told(federation.certificates, disjoint)


def _pool_models(
    classifiers: dict[str, Any], frame: pd.DataFrame, what: str, disjoint: bool
) -> tuple[Any, dict[str, Any], str]:
    """Labels by the mean of the parties' probabilities, weighted by their released sizes."""
    models = list(classifiers.values())
    first, classes = models[0], [str(name) for name in models[0].classes_]
    for path, model in classifiers.items():
        if model.holds_private_rows_:
            raise RefusedError(f"{path} was trained without privacy; it does not leave its owner.")
        same_schema = schema_of(model) == schema_of(first)
        if not same_schema or [str(name) for name in model.classes_] != classes:
            raise InputError(
                f"{path} was trained with another schema or other classes than the first model. "
                "Parties train with one schema file."
            )
    X = model_input(first, frame, what)
    sizes = [(getattr(model, "encoder_", None) or model).moments_.size for model in models]
    pooled = np.average([model.predict_proba(X) for model in models], axis=0, weights=sizes)
    certificates = {Path(path).stem: model.certificate_ for path, model in classifiers.items()}
    return first.classes_[pooled.argmax(axis=1)], *_told(certificates, disjoint)


def _told(certificates: Any, disjoint: bool) -> tuple[dict[str, Any], str]:
    """What the parties promise together, as values for JSON and as text."""
    summary = summarise(certificates, "disjoint" if disjoint else "unknown")
    values = {
        "parties": list(certificates),
        "private": summary.is_private and summary.is_verified,
        "verified": summary.is_verified,
        "status": summary.status,
        "certificates": {
            name: signatures.certificate_status(one) for name, one in certificates.items()
        },
    }
    unverified = summary.is_private and not summary.is_verified
    return values, str(summary) + f"\n{signatures.HOW_TO_VERIFY}" * unverified


def _query_network(config: Path, queries: Any) -> Any:
    from permea.federation.service.deploy import run_federation

    return run_federation(config, queries=queries)


@command("party", panel=TOGETHER)
def party(
    console: Console,
    config: Annotated[Path, Option(help="TOML file of this party.")],
) -> None:
    """Serve one party of a federation: it answers queries with distances and nothing else.

    The data and the model stay where they are. Stop with Ctrl-C.

    Example:
        permea party --config clinic-a.toml
    """
    from permea.federation.service.deploy import run_party

    _check_exists(config)
    console.say(f"serving the party of {config}; stop with Ctrl-C")
    code = run_party(config)
    console.result("stopped", {"stopped": True, "code": code})
    if code:
        raise typer.Exit(ExitCode.UNEXPECTED)


def _check_exists(config: Path) -> None:
    if not config.is_file():
        raise InputError(f"{config} does not exist. Check the path.")

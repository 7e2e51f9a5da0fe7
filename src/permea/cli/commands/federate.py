"""``permea federate`` and ``permea party``: one classifier from the models of many owners."""

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from typer import Argument, Option

from permea._text import safe_text
from permea.audit.signals import is_distance_based
from permea.cli import options, signatures, tables
from permea.cli.app import TOGETHER, command
from permea.cli.console import Console, ExitCode, InputError, RefusedError, UsageError
from permea.cli.models import feature_columns, load_model
from permea.federation import ConsentError, Federation, Party


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
    """Label rows by the distances of several parties: the nearest class over all of them wins.

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
    frame = tables.read_table(queries)
    if config is not None:
        names: list[str] = []
        X = tables.numbers(frame, tables.numeric_columns(frame), queries)
        job = _query_network(config, X)
        answer, values = job.labels, {"report": job.report}
        parties = job.report.get("parties", {}).items()
        text = "\n".join(f"{safe_text(name):<18}{safe_text(said)}" for name, said in parties)
    else:
        keys = signatures.trusted_keys(trusted)
        read = {path: load_model(path, keys) for path in models or []}
        _check_distances(read)
        names = feature_columns(next(iter(read.values())), frame, queries)
        answer, values, text = _query_models(read, frame, names, queries, disjoint)
    result = tables.with_predictions(frame.drop(columns=names), column, answer, queries)
    tables.write_predictions(console, result, output, text, values)


def _check_distances(classifiers: dict[str, Any]) -> None:
    """Refuse models that a federation by distances cannot combine, and say what can."""
    without = [path for path, model in classifiers.items() if not is_distance_based(model)]
    if without:
        raise UsageError(
            f"{tables.listed(without)} cannot be combined by distances: a model from moments has "
            "none. Moments of several owners are added up before anything is learned, by "
            "permea.federation.MomentFederation in Python; each owner encodes by the same schema."
        )


def _query_models(
    classifiers: dict[str, Any], frame: pd.DataFrame, names: list[str], what: str, disjoint: bool
) -> tuple[Any, dict[str, Any], str]:
    """Labels by models that are files here (004 Remark 6), values for JSON and text."""
    try:
        parties = [Party(Path(path).stem, model) for path, model in classifiers.items()]
    except ConsentError as error:
        raise RefusedError(error) from error
    federation = Federation(parties, records="disjoint" if disjoint else "unknown")
    answer = federation.predict(tables.numbers(frame, names, what))
    summary = federation.summary()
    values = {
        "parties": list(federation.names),
        "private": summary.is_private and summary.is_verified,
        "verified": summary.is_verified,
        "status": summary.status,
        "certificates": {
            name: signatures.certificate_status(one)
            for name, one in federation.certificates.items()
        },
    }
    unverified = summary.is_private and not summary.is_verified
    return answer, values, str(summary) + f"\n{signatures.HOW_TO_VERIFY}" * unverified


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

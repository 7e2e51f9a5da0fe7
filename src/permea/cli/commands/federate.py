"""``permea federate`` and ``permea party``: one classifier out of many owners' models."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from permea._text import safe_text
from permea.cli.app import TOGETHER, command
from permea.cli.commands.predict import feature_columns, load_model
from permea.cli.console import CommandError, Console, ExitCode, one_line
from permea.cli.tables import FORMATS, STREAM, check_output, numbers, read_table, write_table
from permea.cli.trust import HOW_TO_VERIFY, Trusted, standing, trusted_keys
from permea.federation import ConsentError, Federation, Party
from permea.federation.settings import Summary


@command(
    "federate",
    panel=TOGETHER,
    examples=[
        "permea federate north.permea south.permea --queries new.csv -o out.csv",
        "permea federate --engine flower --config federation.toml --queries new.csv",
    ],
)
def federate(
    console: Console,
    models: Annotated[
        list[str] | None, typer.Argument(help="Private model files of the parties.")
    ] = None,
    queries: Annotated[
        str | None, typer.Option("--queries", help="Table to label: .csv, .parquet or -.")
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="Table to write; - is standard output.")
    ] = STREAM,
    column: Annotated[str, typer.Option(help="Name of the new column.")] = "prediction",
    config: Annotated[
        Path | None, typer.Option(help="federation.toml of parties on the network.")
    ] = None,
    disjoint: Annotated[
        bool, typer.Option("--disjoint", help="No record lies with two parties.")
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(help="embedded (MODELS here) or flower (--config); follows from the others."),
    ] = None,
    trusted: Trusted = None,
) -> None:
    """Label rows by the distances of several parties: the nearest class over all of them wins.

    With MODELS the private models have travelled here; with --config the parties are asked over
    the network, and without --queries their service runs until it is stopped. What a party says of
    itself is an unverified claim unless a key of --trusted has signed its model.
    """
    if (config is None) == (not models):
        raise CommandError("Give model files, or --config federation.toml.", ExitCode.USAGE)
    fitting = "embedded" if config is None else "flower"
    if engine not in (None, fitting):
        raise CommandError(
            f"--engine {engine} does not go with these arguments: embedded takes model files, "
            "flower takes --config federation.toml.",
            ExitCode.USAGE,
        )
    if queries is None:
        if config is None:
            raise CommandError("What is to be labelled? Give --queries FILE.", ExitCode.USAGE)
        _serve(console, config)
        return
    if console.as_json and output == STREAM:
        raise CommandError(
            "--json and the table would mix on standard output; give -o FILE.", ExitCode.USAGE
        )
    check_output(output, FORMATS, inputs=(queries,))
    frame = read_table(queries)
    if config is not None:
        result = _ask_network(config, frame, queries)
        values: dict[str, Any] = {"report": result.report}
        labelled = _labelled(frame, [], column, result.labels)
        text = _parties_text(result.report.get("parties", {}))
    else:
        read = {path: load_model(path, trusted_keys(trusted)) for path in models or []}
        labelled, values, text = _ask_models(read, frame, queries, column, disjoint)
    write_table(labelled, output)
    console.result(
        f"{text}{len(frame)} rows labelled, written to {output}",
        {"output": output, "rows": len(frame), **values},
        stdout_taken=output == STREAM,
    )


def _ask_models(
    classifiers: dict[str, Any], frame: pd.DataFrame, what: str, column: str, disjoint: bool
) -> tuple[pd.DataFrame, dict[str, Any], str]:
    """Label by models that have travelled here (004 Remark 6)."""
    try:
        parties = [Party(Path(path).stem, model) for path, model in classifiers.items()]
    except ConsentError as error:
        raise CommandError(one_line(error), ExitCode.REFUSED) from error
    federation = Federation(parties, records="disjoint" if disjoint else "unknown")
    columns = feature_columns(next(iter(classifiers.values())), frame, what)
    X = numbers(frame, columns, what)
    labelled = _labelled(frame, columns, column, federation.predict(X))
    summary = federation.summary()
    values = {
        "parties": list(federation.names),
        "private": summary.is_private and summary.is_verified,
        "verified": summary.is_verified,
        "status": summary.status,
        "certificates": {
            name: standing(certificate) for name, certificate in federation.certificates.items()
        },
    }
    return labelled, values, f"{summary}\n" + _advice(summary)


def _advice(summary: Summary) -> str:
    """What to do about claims that nobody vouches for."""
    return "" if summary.is_verified or not summary.is_private else f"{HOW_TO_VERIFY}\n"


def _parties_text(parties: dict[str, str]) -> str:
    """How far the promise of each party on the network is believed."""
    return "".join(f"{safe_text(name):<18}{safe_text(said)}\n" for name, said in parties.items())


def _labelled(frame: pd.DataFrame, columns: list[str], column: str, answer: Any) -> pd.DataFrame:
    kept = frame.drop(columns=columns)
    if column in kept.columns:
        raise CommandError(
            f"There is a column {column!r} already; name the new one with --column.",
            ExitCode.USAGE,
        )
    return kept.assign(**{column: np.asarray(answer)})


def _ask_network(config: Path, frame: pd.DataFrame, what: str) -> Any:
    from permea.federation.service.deploy import run_federation

    _must_exist(config)
    columns = [name for name in frame.columns if pd.api.types.is_numeric_dtype(frame[name])]
    result = run_federation(config, queries=numbers(frame, columns, what))
    assert result is not None
    return result


def _serve(console: Console, config: Path) -> None:
    from permea.federation.service.deploy import run_federation

    _must_exist(config)
    console.say(f"serving the federation of {config}; stop with Ctrl-C")
    run_federation(config)
    console.result("stopped", {"stopped": True})


@command("party", panel=TOGETHER, examples=["permea party --config clinic-a.toml"])
def party(
    console: Console,
    config: Annotated[Path, typer.Option(help="TOML file of this party.")],
) -> None:
    """Serve one party of a federation: it answers queries with distances and nothing else.

    The data and the model stay where they are. Stop with Ctrl-C.
    """
    from permea.federation.service.deploy import run_party

    _must_exist(config)
    console.say(f"serving the party of {config}; stop with Ctrl-C")
    code = run_party(config)
    console.result("stopped", {"stopped": True, "code": code})
    if code:
        raise typer.Exit(ExitCode.UNEXPECTED)


def _must_exist(config: Path) -> None:
    if not config.is_file():
        raise CommandError(f"{config} does not exist. Check the path.", ExitCode.INPUT)

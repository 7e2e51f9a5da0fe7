"""``permea schema``: declare the columns of a table before any of its rows is used."""

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from permea.cli import tables
from permea.cli.app import LEARN, command
from permea.cli.console import Console, ExitCode, InputError
from permea.cli.schemas import load_schema, schema_errors
from permea.tables import Schema, check_schema
from permea.tables import draft as draft_schema
from permea.tables.formats import is_dictionary, require_header

SchemaFile = Annotated[
    Path,
    Argument(
        metavar="SCHEMA",
        help="Schema: .toml, a Table Schema (.json), or a REDCap data dictionary (.csv).",
    ),
]


@command("schema draft", panel=LEARN)
def draft(
    console: Console,
    data: Annotated[
        str,
        Argument(help="Table (.csv, .parquet), Table Schema (.json) or REDCap dictionary (.csv)."),
    ],
    output: Annotated[str, Option("--output", "-o", help="TOML file; - is standard output.")] = "-",
) -> None:
    """Write a schema to fill in: the names of the columns and nothing of their values.

    Of a CSV file only the header is read, of a Parquet file only names and declared types; a
    Table Schema or a data dictionary of REDCap is taken over as far as it goes. Ranges
    and lists of values are left open: take them from a data dictionary, a form or a textbook, never
    from the rows.

    Example:
        permea schema draft patients.csv -o patients.toml
    """
    tables.check_output(output, (".toml",), inputs=(data,))
    if is_dictionary(data):
        with schema_errors(Path(data)):
            text = draft_schema(data)
    else:
        found = tables.read_columns(data)
        if isinstance(found, dict):  # CSV, whose first line is taken for the header
            try:
                require_header(list(found), data)
            except ValueError as error:
                raise InputError(error) from error
        text = draft_schema(found)
    names = list(tomllib.loads(text).get("columns", {}))
    if output == tables.STREAM:
        if not console.as_json:
            print(text, end="")
    else:
        tables.write_result(output, text.encode())
    console.result(
        f"{len(names)} columns of {data} written to {output}; no value was read. Replace "
        f'every "?" by what is known, then run: permea schema check {output}',
        {
            "output": output,
            "columns": names,
            "values_read": False,
            **({"schema": text} if output == tables.STREAM else {}),
        },
        stdout_taken=output == tables.STREAM,
    )


@command("schema check", panel=LEARN)
def check(
    console: Console,
    schema: SchemaFile,
    data: Annotated[
        str | None, Argument(help="Table whose column names are compared with the schema.")
    ] = None,
    rows: Annotated[
        bool,
        Option(
            "--rows",
            help="Read the rows of DATA as well and name the columns that do not fit. Its answer "
            "depends on the rows, no noise protects it: for the owner of the table.",
        ),
    ] = False,
) -> None:
    """List what is missing in a schema, what is loose, and how many features it makes.

    With DATA its column names are compared with the schema; values are read with --rows only. The
    exit code is 3 when the schema cannot be used as it is.

    Example:
        permea schema check patients.toml
        permea schema check patients.toml patients.csv
    """
    with schema_errors(schema):
        problems, loose = check_schema(schema)
    values: dict[str, Any] = {"schema": str(schema), "usable": not problems}
    lines = [f"{schema} can be used" if not problems else f"{schema} cannot be used yet"]
    if not problems:
        found = load_schema(schema)
        summary = _summary(found)
        values |= summary
        lines += _describe(summary)
        if found.label is None and found.target is None:
            loose = [*loose, 'training needs label = "column", or target = "column"']
        if data is not None:
            problems = _table_problems(found, data, rows)
            lines.append(f"{data} has {'other columns or values' if problems else 'these columns'}")
    lines += [f"to do: {text}" for text in problems] + [f"loose: {text}" for text in loose]
    console.result(
        "\n".join(lines),
        {**values, "problems": problems, "loose": loose, "values_read": rows and data is not None},
    )
    if problems:
        raise typer.Exit(ExitCode.INPUT)


def _table_problems(schema: Schema, data: str, rows: bool) -> list[str]:
    """What keeps a table from being read by a schema: names of columns, and values if asked for."""
    try:
        schema.check_columns(tables.read_columns(data))
    except ValueError as error:
        return [f"{data}: {error}"]
    if not rows:
        return []
    problems = schema.problems(tables.read_declared_table(data))
    return [f"{data}: {name} has {', '.join(kinds)}" for name, kinds in problems.items()]


def _summary(schema: Schema) -> dict[str, Any]:
    try:
        features: int | None = schema.encoder().n_features_out_
    except ValueError:  # too many; `check` says so
        features = None
    return {
        "columns": len(schema.features),
        "features": features,
        "label": schema.label,
        "classes": [] if schema.label is None else list(schema.classes),
        "target": schema.target,
        "person": schema.person,
    }


def _describe(summary: dict[str, Any]) -> list[str]:
    features = summary["features"] or "too many"
    lines = [
        f"{summary['columns']} columns to learn from, which make {features} features (with the "
        "default grid; permea train chooses the grid by the number of people and ε)"
    ]
    if summary["label"] is not None:
        lines.append(f"label {summary['label']}: {len(summary['classes'])} classes")
    lines += [f"{role} {summary[role]}" for role in ("target", "person") if summary[role]]
    return lines

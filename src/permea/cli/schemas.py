"""Schemas on the command line: reading one, or making one of ``--domain`` and ``--class``."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from typer import Option

from permea.cli.console import InputError, UsageError, one_line
from permea.cli.tables import listed
from permea.tables import Category, Number, Schema, check_schema


@contextmanager
def schema_errors(path: Path) -> Iterator[None]:
    """Turn whatever is wrong with a schema file into one line."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or "it does not exist or is not a file").lower()
        raise InputError(f"{path} cannot be read: {reason}. Check the path.") from error
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8.") from None
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: {one_line(error)}") from error


def load_schema(path: Path) -> Schema:
    """A complete schema from a file."""
    with schema_errors(path):
        problems, _ = check_schema(path)
        if not problems:
            return Schema.load(path)
    more = f", and {len(problems) - 1} more points" if len(problems) > 1 else ""
    raise InputError(
        f"{path} is not complete: {problems[0]}{more}. All of them: permea schema check {path}"
    )


@dataclass(frozen=True)
class SchemaOptions:
    """What is declared about the columns."""

    schema: Annotated[
        Path | None,
        Option(
            "--schema",
            help="Declared columns (permea schema draft): .toml, Table Schema .json, REDCap .csv.",
        ),
    ] = None
    person: Annotated[
        str | None, Option("--person", help="Column that says whose row it is, for --unit person.")
    ] = None
    classes: Annotated[
        list[str] | None,
        Option(
            "--class", help="A class that may occur (repeat); with --schema the label's values."
        ),
    ] = None

    query: Annotated[
        str | None,
        Option(
            "--query",
            help="SQL, with --schema; DATA is then the address of a database: sqlite:///file.db, "
            "postgresql://user@host/database, duckdb:///file.duckdb, or duckdb: for queries over "
            "files.",
        ),
    ] = None

    def load(self, *, predicts: bool = True) -> Schema | None:
        """The schema of ``--schema``, with the person of ``--person``.

        Without a label or a target it is refused, unless nothing is to be predicted.
        """
        if self.schema is None:
            if self.query is not None:
                raise UsageError("--query needs --schema, which says what its columns mean.")
            return None
        if self.classes:
            raise UsageError("With --schema the classes are the values of its label, not --class.")
        found = load_schema(self.schema)
        if predicts and found.label is None and found.target is None:
            raise InputError(
                f'{self.schema} says nothing to predict: add label = "column", or target = '
                '"column" for a number.'
            )
        if self.person is None:
            return found
        try:
            return replace(found, person=self.person)
        except ValueError as error:
            raise UsageError(f"--person {self.person}: {one_line(error)}") from error

    def of_numbers(self, names: list[str], label: str, low: Any, high: Any) -> Schema:
        """The schema that ``--domain``, ``--label``, ``--class`` and ``--person`` stand for."""
        if not self.classes or len(self.classes) < 2:
            raise UsageError(
                "Which classes may occur? Which ones do occur is private, so declare all of them: "
                "--class well --class ill; or give --schema."
            )
        columns: dict[str, Any] = {
            name: Number(float(a), float(b)) for name, a, b in zip(names, low, high, strict=True)
        }
        try:
            columns[label] = Category(tuple(self.classes))
            return Schema(columns, label=label, person=self.person)
        except ValueError as error:
            raise UsageError(one_line(error)) from error


def number_ranges(
    schema: Schema,
) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Feature columns with their ranges, for noise on single entries; numbers only."""
    reasons = {
        "are not numbers": [name for name in schema.features if name not in schema.domain],
        "may be missing": [name for name in schema.domain if schema.columns[name].missing],
    }
    told = [f"{listed(names)} {reason}" for reason, names in reasons.items() if names]
    if told:
        raise UsageError(
            f"--unit entry adds noise to single numbers, but {' and '.join(told)}. Use --unit "
            "record or --unit person, or list these columns under ignored."
        )
    if schema.label is None:
        raise UsageError("--unit entry trains a classifier: the schema needs a label.")
    low, high = np.array(list(schema.domain.values()), dtype=np.float64).T
    return list(schema.domain), low, high

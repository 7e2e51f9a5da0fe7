"""Files that hold a schema: our own TOML, and the formats in which others keep theirs."""

import csv
import dataclasses
import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from permea._files import open_regular
from permea._text import safe_json, safe_text
from permea.tables.columns import KINDS, Column
from permea.tables.frames import column_names
from permea.tables.schema import Schema

TO_FILL_IN = "?"
_ROLES = ("label", "target", "person", "ignored", "pairs", "missing_values")
_LARGEST = 50_000_000  # bytes of a schema file
S = TypeVar("S", bound=Schema)

_HEADER = """\
# What is known about a table before any row is seen. Ranges and lists of values come from a data
# dictionary, a form or a textbook, never from the rows.
"""
_DRAFT_HEADER = """\
# Draft: names of columns{types}. No value was read.
# Replace every "?" by what is known from a data dictionary, a form or a textbook, then run
# permea schema check on this file.
#
# kind = "number"    low = 0, high = 120; also: whole = true, scale = "log", resolution = 0.1
# kind = "category"  values = ["a", "b"]; also: other = true, which allows any other value
# kind = "yesno"     also: yes = ["1"], no = ["0"]
# kind = "date"      first = 2020-01-01, last = 2024-12-31; also: format = "%d/%m/%Y"
# missing = true     in every kind: values may be missing
#
# Columns with a role. Those of person and ignored need no entry below.
# label = "column"      # the class to predict: a category or yesno
# target = "column"     # the number to predict
# person = "column"     # whose row it is
# ignored = ["column"]  # what is not used; "time*" stands for all names that begin with time
"""
_EMPTY: dict[str, dict[str, Any]] = {
    "?": {"kind": TO_FILL_IN},
    "number": {"kind": "number", "low": TO_FILL_IN, "high": TO_FILL_IN},
    "whole": {"kind": "number", "low": TO_FILL_IN, "high": TO_FILL_IN, "whole": True},
    "category": {"kind": "category", "values": TO_FILL_IN},
    "yesno": {"kind": "yesno"},
    "date": {"kind": "date", "first": TO_FILL_IN, "last": TO_FILL_IN},
}


def read_schema(cls: type[S], path: Path) -> S:
    """Read a schema from a file; all problems are in one error."""
    schema, problems = _from_document(cls, _document(path))
    return _or_raise(schema, problems, str(path))


def parse_toml(cls: type[S], text: str) -> S:
    """Read a schema from TOML text."""
    schema, problems = _from_document(cls, _parse(text))
    return _or_raise(schema, problems, "this text")


def check_schema(path: str | os.PathLike[str]) -> tuple[list[str], list[str]]:
    """What is missing or wrong in a schema file, and what is loose.

    Returns
    -------
    problems : list of str
        What keeps the file from being loaded, all of it.
    loose : list of str
        What may be improved; empty while there are problems.
    """
    schema, problems = _from_document(Schema, _document(Path(path)))
    return problems, [] if schema is None else schema.check()


def to_toml(schema: Schema) -> str:
    """A schema as TOML."""
    roles: dict[str, Any] = {}
    for field in dataclasses.fields(schema):
        value = getattr(schema, field.name)
        if field.name != "columns" and value != field.default:
            roles[field.name] = value
    return _write(_HEADER, roles, {name: _fields(col) for name, col in schema.columns.items()})


def draft(table: Any) -> str:
    """TOML to fill in: the names and declared types of a table's columns, nothing of its values.

    Parameters
    ----------
    table : path or table
        A CSV file, of which only the first line is read; a Parquet file, of which only the declared
        types are read; or a pandas, polars or pyarrow table.

    Returns
    -------
    str
        TOML with ``"?"`` wherever a person must say what is known.

    Examples
    --------
    >>> print(draft({"age": [63]}).split("ignored")[-1].splitlines()[-2])
    [columns.age]
    """
    if isinstance(table, str | os.PathLike):
        kinds = _kinds_of_file(Path(table))
    else:
        kinds = _kinds_of_frame(table)
    typed = any(kind != TO_FILL_IN for kind in kinds.values())
    header = _DRAFT_HEADER.format(types=" and their declared types" if typed else "")
    return _write(header, {}, {name: _EMPTY[kind] for name, kind in kinds.items()})


def _document(path: Path) -> dict[str, Any]:
    """What a file says, in the form of our TOML."""
    with open_regular(path) as file:
        data = file.read(_LARGEST)
    text = data.decode("utf-8-sig")
    if path.suffix.lower() == ".json":
        return _from_table_schema(json.loads(text))
    if path.suffix.lower() == ".csv":
        return _from_redcap(text)
    return _parse(text)


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"The schema is not valid TOML: {safe_text(error)}.") from None


def _or_raise(schema: S | None, problems: list[str], source: str) -> S:
    if schema is None:
        told = "".join(f"\n- {problem}" for problem in problems)
        raise ValueError(f"{source} is not a complete schema:{told}")
    return schema


def _from_document(cls: type[S], document: Mapping[str, Any]) -> tuple[S | None, list[str]]:
    """A schema, or None and everything that is wrong with it."""
    tables = document.get("columns", {})
    roles = {name: value for name, value in document.items() if name != "columns"}
    problems = [_unknown(name, _ROLES) for name in roles if name not in _ROLES]
    problems += [f"{name} is to be filled in" for name, value in roles.items() if _open(value)]
    columns: dict[str, Column] = {}
    if not isinstance(tables, dict) or not tables:
        problems.append("there is no column: each needs a table such as [columns.age]")
        tables = {}
    for name, table in tables.items():
        column, found = _column(table)
        problems += [f"{safe_text(name)}: {problem}" for problem in found]
        if column is not None:
            columns[name] = column
    if not problems:
        try:
            return cls(columns, **roles), []
        except (ValueError, TypeError) as error:
            problems.append(str(error))
    return None, problems


def _column(table: Any) -> tuple[Column | None, list[str]]:
    """A column, or None and everything that is wrong with it."""
    kind = str(table.get("kind", TO_FILL_IN)) if isinstance(table, dict) else ""
    if kind not in KINDS:
        said = "is to be filled in" if kind == TO_FILL_IN else "is not known"
        return None, [f"kind {said}: it is one of {', '.join(map(repr, KINDS))}"]
    known = {field.name: field for field in dataclasses.fields(KINDS[kind])}
    given = {name: value for name, value in table.items() if name != "kind"}
    problems = [_unknown(name, known) for name in given if name not in known]
    needed = [n for n, field in known.items() if field.default is dataclasses.MISSING]
    missing = [n for n in known if (n in needed and n not in given) or _open(given.get(n))]
    problems += [f"{name} is to be filled in" for name in missing]
    if problems:
        return None, problems
    try:
        return KINDS[kind](**given), []
    except (ValueError, TypeError) as error:
        return None, [str(error)]


def _open(value: Any) -> bool:
    """Whether a value was left to be filled in; "?" in a list of words is a word."""
    return isinstance(value, str) and value == TO_FILL_IN


def _unknown(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    return f"{safe_text(name)!r} is not known; {hint}"


def _fields(column: Column) -> dict[str, Any]:
    """What a column declares, without what is the default."""
    fields = {
        field.name: getattr(column, field.name)
        for field in sorted(dataclasses.fields(column), key=lambda field: bool(field.kw_only))
        if getattr(column, field.name) != field.default
    }
    return {"kind": column.kind, **fields}


def _write(header: str, roles: Mapping[str, Any], columns: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [header, *(f"{name} = {_value(value)}" for name, value in roles.items())]
    for name, table in columns.items():
        lines += ["", f"[columns.{_key(name)}]"]
        lines += [f"{field} = {_value(value)}" for field, value in table.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """A TOML value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return safe_json(value)  # the escapes of JSON are those of TOML
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value.item() if hasattr(value, "item") else value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else safe_json(name)


def _kinds_of_file(path: Path) -> dict[str, str]:
    if path.suffix.lower() in (".parquet", ".pq"):
        import pyarrow.parquet as parquet

        return _kinds_of_frame(parquet.read_schema(path).empty_table())
    import gzip

    opener = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        return dict.fromkeys(next(csv.reader(file), []), TO_FILL_IN)


def _kinds_of_frame(frame: Any) -> dict[str, str]:
    """Kinds of columns by their declared types alone."""
    names = column_names(frame, ())
    types = getattr(frame, "dtypes", None)
    if types is None and hasattr(frame, "schema"):
        types = frame.schema.types
    listed = [TO_FILL_IN] * len(names) if types is None else [str(kind).lower() for kind in types]
    return {name: _kind(kind) for name, kind in zip(names, listed, strict=True)}


def _kind(declared: str) -> str:
    """The kind of column that a declared type stands for."""
    for beginning, kind in (
        ("bool", "yesno"), ("int", "whole"), ("uint", "whole"), ("float", "number"),
        ("double", "number"), ("halffloat", "number"), ("decimal", "number"), ("date", "date"),
        ("timestamp", "date"), ("category", "category"), ("dictionary", "category"),
        ("enum", "category"),
    ):  # fmt: skip
        if declared.startswith(beginning):
            return kind
    return TO_FILL_IN


def _from_table_schema(document: Any) -> dict[str, Any]:
    raise NotImplementedError


def _from_redcap(text: str) -> dict[str, Any]:
    raise NotImplementedError

"""Files that hold a schema: our own TOML, and the formats in which others keep theirs."""

import csv
import dataclasses
import difflib
import io
import json
import os
import re
import tomllib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from permea._files import open_regular
from permea._text import safe_json, safe_text
from permea.tables.columns import KINDS, Category, Column
from permea.tables.frames import column_names, share_without_letters
from permea.tables.reading import csv_names
from permea.tables.schema import Schema

TO_FILL_IN = "?"
_ROLES = ("label", "target", "person", "ignored", "pairs", "missing_values", "rules")
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
# missing = true     in every kind: values may be missing; with unknown = "missing" they are too
#                    where they cannot be read, which is an error otherwise
#
# Columns with a role. Those of person and ignored need no entry below.
# label = "column"      # the class to predict: a category or yesno
# target = "column"     # the number to predict
# person = "column"     # whose row it is
# ignored = ["column"]  # what is not used; "time*" stands for all names that begin with time
# rules = ["out >= in"] # what holds between numbers or dates; also "a = b + c"
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
        types are read; a pandas, polars or pyarrow table; or a Table Schema or REDCap dictionary,
        whose gaps are left to be filled in.

    Returns
    -------
    str
        TOML with ``"?"`` wherever a person must say what is known.

    Examples
    --------
    >>> print(draft({"age": [63]}).split("ignored")[-1].splitlines()[-2])
    [columns.age]
    """
    if not isinstance(table, str | os.PathLike):
        return _draft(_kinds_of_frame(table), " and their declared types")
    path = Path(table)
    if is_dictionary(path):
        document = _document(path)
        columns = document.pop("columns")
        header = _DRAFT_HEADER.format(types=" and what the dictionary says of them")
        return _write(header, document, columns)
    if path.suffix.lower() in (".parquet", ".pq"):
        import pyarrow.parquet as parquet

        return _draft(_kinds_of_frame(parquet.read_schema(path).empty_table()), " and their types")
    names = csv_names(path)
    require_header(names, str(path))
    return _draft(dict.fromkeys(names, TO_FILL_IN), "")


def require_header(names: Sequence[str], what: str) -> None:
    """Refuse the first line of a CSV file as a header where it seems to be a row of values.

    Examples
    --------
    >>> require_header(["63", "f", "2021-05-06"], "patients.csv")
    Traceback (most recent call last):
        ...
    ValueError: patients.csv begins with a line in which many names have no letter: a row of values,
    it seems. Put a line with the names of the columns above it.
    """
    share = share_without_letters(names)
    if share >= 1 / 3:
        raise ValueError(
            f"{what} begins with a line in which many names have no letter: a row of values, it "
            "seems. Put a line with the names of the columns above it."
        )
    if share > 0:
        warnings.warn(
            "Some names in the first line have no letter. If that line is a row of values and no "
            "header, the draft holds them now: delete it, and put the names of the columns above.",
            stacklevel=3,
        )


def is_dictionary(path: str | os.PathLike[str]) -> bool:
    """Whether a file describes columns of a table, by its name or, if it is CSV, its header."""
    path = Path(path)
    if path.suffix.lower() != ".csv":
        return path.suffix.lower() == ".json"
    try:
        return bool({"Field Type", "field_type"} & set(csv_names(path)))
    except ValueError:  # no table either
        return False


def _draft(kinds: Mapping[str, str], types: str) -> str:
    columns = {name: _EMPTY[kind] for name, kind in kinds.items()}
    typed = any(kind != TO_FILL_IN for kind in kinds.values())
    return _write(_DRAFT_HEADER.format(types=types if typed else ""), {}, columns)


def _document(path: Path) -> dict[str, Any]:
    """What a file says, in the form of our TOML."""
    with open_regular(path) as file:
        data = file.read(_LARGEST)
    reader = _READERS.get(path.suffix.lower(), _parse)
    try:
        return reader(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("A schema must be a text file in UTF-8.") from None
    except (AttributeError, KeyError, TypeError, csv.Error):
        raise ValueError("A part of the schema is not of the form that its format has.") from None


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


# Frictionless Table Schema


def _from_table_schema(text: str) -> dict[str, Any]:
    """A Table Schema, or a data package with one resource, in the form of our TOML.

    Label, target, person, ignored and pairs may stand beside its fields, under the same names.
    """
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"The schema is not valid JSON: {safe_text(error)}.") from None
    if isinstance(document, dict) and len(document.get("resources", ())) == 1:
        document = document["resources"][0].get("schema")
    if not isinstance(document, dict) or not isinstance(document.get("fields"), list):
        raise ValueError('The file is no Table Schema: it has no list of "fields".')
    fields = {str(field["name"]): field for field in document["fields"]}
    ids = document.get("primaryKey", [])
    ids = [ids] if isinstance(ids, str) else list(ids)
    ids += [name for name, field in fields.items() if _constraints(field).get("unique")]
    roles = {name: document[name] for name in _ROLES if name in document}
    if "missingValues" in document:
        roles["missing_values"] = document["missingValues"]
    taken = {document.get(role) for role in ("label", "target", "person")}
    roles["ignored"] = [*roles.get("ignored", ()), *(name for name in ids if name not in taken)]
    columns = {
        name: _from_field(field, optional=name not in taken)
        for name, field in fields.items()
        if name not in roles["ignored"] and name != document.get("person")
    }
    return {**roles, "columns": columns}


def _constraints(field: Mapping[str, Any]) -> dict[str, Any]:
    return dict(field.get("constraints", {}))


def _from_field(field: Mapping[str, Any], *, optional: bool) -> dict[str, Any]:
    """One field of a Table Schema as a table of our TOML."""
    limits = _constraints(field)
    missing = {"missing": True} if optional and not limits.get("required") else {}
    least = limits.get("minimum", limits.get("exclusiveMinimum", TO_FILL_IN))
    most = limits.get("maximum", limits.get("exclusiveMaximum", TO_FILL_IN))
    kind, form = field.get("type", "any"), field.get("format", "default")
    values = limits.get("enum", field.get("categories"))
    if kind == "boolean":
        words = {"yes": field.get("trueValues"), "no": field.get("falseValues")}
        return {"kind": "yesno", **{k: v for k, v in words.items() if v}, **missing}
    if values:
        listed = [value["value"] if isinstance(value, dict) else value for value in values]
        return {"kind": "category", "values": listed, **missing}
    if kind in ("integer", "number", "year"):
        whole = {} if kind == "number" else {"whole": True}
        return {"kind": "number", "low": least, "high": most, **whole, **missing}
    if kind in _DATE_FORMATS:
        form = {"default": _DATE_FORMATS[kind], "any": TO_FILL_IN}.get(form, form)
        dates = {"first": least, "last": most, "format": form}
        return {"kind": "date", **dates, **missing}
    return {"kind": TO_FILL_IN, **missing}


_DATE_FORMATS = {"date": "%Y-%m-%d", "datetime": "%Y-%m-%dT%H:%M:%SZ", "yearmonth": "%Y-%m"}


# REDCap data dictionary


def _from_redcap(text: str) -> dict[str, Any]:
    """A data dictionary of REDCap in the form of our TOML.

    The first field, which REDCap uses as the identifier of a record, is the person. Fields
    marked as identifiers, notes and files are ignored, and so are the columns that an export adds.
    """
    rows = [
        {_REDCAP.get(name, name): (value or "").strip() for name, value in row.items() if name}
        for row in csv.DictReader(io.StringIO(text, newline=""))
    ]
    if not rows or not {"field_name", "field_type"} <= set(rows[0]):
        raise ValueError("The file is no REDCap data dictionary: it lacks its column names.")
    forms = dict.fromkeys(row.get("form_name", "") for row in rows)
    ignored = [
        "redcap_*",
        *(f"{form}_{end}" for form in forms for end in ("complete", "timestamp")),
    ]
    columns: dict[str, Any] = {}
    for row in rows[1:]:
        name, kind = row["field_name"], row["field_type"]
        if row.get("identifier", "").lower() == "y" or kind in ("notes", "file"):
            ignored.append(f"{name}___*" if kind == "checkbox" else name)
        elif kind == "checkbox":
            boxes = {"kind": "yesno", "yes": ["1", "Checked"], "no": ["0", "Unchecked"]}
            codes = (re.sub(r"\W", "_", code.lower()) for code in _choices(row))
            columns |= {f"{name}___{code}": boxes | _optional(row) for code in codes}
        elif kind != "descriptive":
            columns[name] = _from_redcap_field(row) | _optional(row)
    return {"person": rows[0]["field_name"], "ignored": ignored, "columns": columns}


_REDCAP = {
    "Variable / Field Name": "field_name",
    "Form Name": "form_name",
    "Field Type": "field_type",
    "Choices, Calculations, OR Slider Labels": "choices",
    "select_choices_or_calculations": "choices",
    "Text Validation Type OR Show Slider Number": "validation",
    "text_validation_type_or_show_slider_number": "validation",
    "Text Validation Min": "least",
    "text_validation_min": "least",
    "Text Validation Max": "most",
    "text_validation_max": "most",
    "Identifier?": "identifier",
    "Branching Logic (Show field only if...)": "branching_logic",
    "Required Field?": "required_field",
}


def _from_redcap_field(row: Mapping[str, str]) -> dict[str, Any]:
    """One field of a REDCap dictionary as a table of our TOML."""
    kind, form = row["field_type"], row.get("validation", "")
    least, most = row.get("least", ""), row.get("most", "")
    if kind in ("radio", "dropdown"):
        return {"kind": "category", "values": _choices(row) or TO_FILL_IN}
    if kind in ("yesno", "truefalse"):
        return {"kind": "yesno"}
    if kind == "slider":
        ends = {"low": _limit(least or "0"), "high": _limit(most or "100")}
        return {"kind": "number", **ends, "whole": True}
    if kind == "text" and form.startswith("date"):  # exported in this form, however it is shown
        clock = " %H:%M:%S" if "seconds" in form else " %H:%M"
        written = {"format": "%Y-%m-%d" + clock} if form.startswith("datetime") else {}
        first, last = (limit[:10] if _DAY.match(limit) else TO_FILL_IN for limit in (least, most))
        return {"kind": "date", "first": first, "last": last, **written}
    if kind == "calc" or form.startswith(("integer", "number")):
        whole = {"whole": True} if form == "integer" else {}
        return {"kind": "number", "low": _limit(least), "high": _limit(most), **whole}
    return {"kind": TO_FILL_IN}


_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def _choices(row: Mapping[str, str]) -> list[str]:
    """Codes of the choices ``1, Female | 2, Male``."""
    choices = (choice.split(",", 1)[0].strip() for choice in row.get("choices", "").split("|"))
    return [code for code in choices if code]


def _optional(row: Mapping[str, str]) -> dict[str, Any]:
    required = row.get("required_field", "").lower() == "y" and not row.get("branching_logic")
    return {} if required else {"missing": True}


def _limit(text: str) -> float | str:
    """A limit as a number, or to be filled in."""
    try:
        number = float(text)
    except ValueError:
        return TO_FILL_IN
    return int(number) if number.is_integer() else number


_READERS = {".json": _from_table_schema, ".csv": _from_redcap}


# categories that a table declares


def declared_categories(frame: Any, *, missing: bool) -> dict[str, Column]:
    """Columns whose type lists their values: pandas categoricals, pyarrow dictionaries, enums."""
    names = column_names(frame, ())
    if hasattr(frame, "column_names"):  # pyarrow
        lists: list[Any] = [_dictionary(frame.column(place)) for place in range(len(names))]
    else:
        lists = [getattr(kind, "categories", None) for kind in getattr(frame, "dtypes", ())]
    return {
        name: Category(tuple(values), missing=missing)
        for name, values in zip(names, lists, strict=False)
        if values is not None
    }


def _dictionary(column: Any) -> list[Any] | None:
    """All values that the dictionaries of a pyarrow column list, used or not."""
    if not hasattr(column.type, "value_type") or not hasattr(column.type, "index_type"):
        return None
    chunks = column.chunks if hasattr(column, "chunks") else [column]
    return list(dict.fromkeys(value for chunk in chunks for value in chunk.dictionary.to_pylist()))

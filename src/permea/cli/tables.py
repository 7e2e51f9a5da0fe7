"""Reading tables and writing results.

A private table is read without telling anything about its rows: what its values are like is only
known after the ledger was charged, and then with one message for all defects.
"""

import csv
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from permea._files import write_atomically, write_together
from permea._text import safe_cell
from permea.cli.console import (
    CommandError,
    Console,
    InputError,
    OutputError,
    UnavailableError,
    UsageError,
    one_line,
)
from permea.privacy.release import UnreadableRowsError
from permea.tables.frames import share_without_letters
from permea.tables.reading import Chunks, read_chunks

STREAM = "-"
FORMATS = (".csv", ".parquet")
_PARQUET_MAGIC = b"PAR1"


# ---- results -------------------------------------------------------------------------------------


def check_output(path: str, suffixes: tuple[str, ...], *, inputs: tuple[str, ...] = ()) -> None:
    """Find out before any work is done whether a result can be written.

    Parameters
    ----------
    path : str
        Where the result will go; ``-`` is standard output.
    suffixes : tuple of str
        Endings of the formats that can be written; empty for any.
    inputs : tuple of str
        Files that must not be overwritten.
    """
    if path == STREAM:
        return
    target = Path(path)
    folder = target.absolute().parent
    if target.is_dir():
        example = f"{target / 'result'}{suffixes[0] if suffixes else ''}"
        raise OutputError(f"{path} is a folder. Name a file in it, e.g. -o {example}.")
    if suffixes and not is_device(path) and target.suffix.lower() not in suffixes:
        known = " or ".join(suffixes)
        raise UsageError(f"{path}: the ending of an output file says its format; use {known}.")
    for source in inputs:
        exist = source != STREAM and target.exists() and Path(source).exists()
        if exist and os.path.samefile(source, target):
            raise UsageError(
                f"{path} is also the input and would be lost. Choose another name for -o."
            )
    if not folder.is_dir():
        raise OutputError(
            f"The folder {folder} does not exist. Create it, or write elsewhere with -o."
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"You may not write to the folder {folder}. Write elsewhere with -o.")


def check_table_output(console: Console, path: str, *inputs: str | None) -> None:
    """The same for a table, which must not share standard output with JSON."""
    if console.as_json and path == STREAM:
        raise UsageError("--json and the table would mix on standard output; give -o FILE.")
    check_output(path, FORMATS, inputs=tuple(one for one in inputs if one is not None))


def is_device(path: str) -> bool:
    """Whether something other than a regular file is at this path, such as a pipe."""
    return Path(path).exists() and not Path(path).is_file()


@contextmanager
def output_errors(path: object) -> Iterator[None]:
    """Turn an error while writing to ``path`` into one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or one_line(error)
        raise OutputError(
            f"{path} could not be written: {reason}. Nothing was changed; free some space or write "
            "elsewhere with -o."
        ) from error


def write_result(path: str, data: bytes) -> None:
    """Write a file that appears complete or not at all; a device or a pipe gets the bytes."""
    with output_errors(path):
        if is_device(path):
            Path(path).write_bytes(data)
        else:
            write_atomically(path, data)


def write_results(files: dict[str, bytes]) -> None:
    """Write all files or none; the last one is the result that the others belong to."""
    with output_errors(list(files)[-1]):
        write_together({Path(path): data for path, data in files.items()})


def write_table(frame: pd.DataFrame, path: str) -> None:
    """Write a table to a file, or on ``-`` as CSV to standard output."""
    if path == STREAM:
        sys.stdout.write(table_file(frame, path).decode())
    else:
        write_result(path, table_file(frame, path))


def table_file(frame: pd.DataFrame, path: str) -> bytes:
    """The content of a table's file, in the format that its ending says.

    A CSV file may be opened by a spreadsheet, so its text is made harmless by `harmless`. Parquet
    keeps every text as it is.
    """
    if Path(path).suffix.lower() == ".parquet":
        return bytes(frame.to_parquet(None, index=False))
    return harmless(frame).to_csv(index=False, lineterminator="\n").encode()


def harmless(frame: pd.DataFrame) -> pd.DataFrame:
    """Escape names and text cells that a spreadsheet would run or a terminal would obey.

    Numbers, truth values and dates stay as they are.

    Examples
    --------
    >>> harmless(pd.DataFrame({"who": ["=1+1", "ann"], "x": [-1.5, 2.0]})).values.tolist()
    [["'=1+1", -1.5], ['ann', 2.0]]
    """
    shown = frame.rename(columns=lambda name: safe_cell(str(name)))
    for place, kind in enumerate(frame.dtypes):
        if pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_datetime64_any_dtype(kind):
            continue
        cells = frame.iloc[:, place].astype(object)
        safe = cells.map(lambda cell: safe_cell(cell) if isinstance(cell, str) else cell)
        shown.isetitem(place, safe.to_numpy())
    return shown


def write_predictions(
    console: Console, frame: pd.DataFrame, output: str, text: str, values: dict[str, Any]
) -> None:
    """Write a table with predictions, and print the result of the command."""
    write_table(frame, output)
    console.result(
        f"{len(frame)} rows predicted, written to {output}\n{text}",
        {"output": output, "rows": len(frame), **values},
        stdout_taken=output == STREAM,
    )


def with_predictions(frame: pd.DataFrame, column: str, values: Any, what: str) -> pd.DataFrame:
    """The table with one more column."""
    if column in frame.columns:
        raise UsageError(f"{what} already has a column {column!r}; name the new one with --column.")
    return frame.assign(**{column: np.asarray(values)})


def counts_by_class(answer: Any) -> dict[str, int]:
    """How often each class was predicted."""
    names, counts = np.unique(np.asarray(answer).astype(str), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


# ---- reading -------------------------------------------------------------------------------------


def read_table(path: str) -> pd.DataFrame:
    """Read a table from a file or, as ``-``, from standard input.

    Parameters
    ----------
    path : str
        ``.csv`` with a header line, ``.parquet``, or ``-`` for either on standard input.

    Returns
    -------
    pandas.DataFrame
        At least one row, unique column names.
    """
    raw, what, is_parquet = _read_bytes(path)
    return _check_shape(_parse_parquet(raw, what) if is_parquet else _parse_csv(raw, what), what)


def _read_bytes(path: str) -> tuple[bytes, str, bool]:
    """Content of a table's file, its name in messages, and whether it is Parquet."""
    raw = sys.stdin.buffer.read() if path == STREAM else read_file(path)
    what = "Standard input" if path == STREAM else path
    if not raw.strip():
        raise InputError(f"{what} is empty. A header line and rows are needed.")
    suffix = Path(path).suffix.lower()
    if suffix == ".parquet" or raw[:4] == _PARQUET_MAGIC:
        return raw, what, True
    if path == STREAM or suffix in ("", ".csv", ".txt") or Path(path).is_fifo():
        return raw, what, False
    raise InputError(f"{what}: unknown file type {suffix!r}. Save it as CSV or Parquet.")


def read_file(path: str | Path) -> bytes:
    """Content of an input file; an error is one line."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist. Check the path.") from None
    except OSError as error:
        reason = error.strerror
        message = f"{path} cannot be read: {reason}. Check the path and the permissions."
        raise InputError(message) from error


def _parse_csv(raw: bytes, what: str, texts: Sequence[str] = ()) -> pd.DataFrame:
    """A table from CSV, columns of ``texts`` as text; error messages contain no line number."""
    kinds = dict.fromkeys(texts, str)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            header = pd.read_csv(io.BytesIO(raw), header=None, nrows=1, dtype=str)
            frame = pd.read_csv(io.BytesIO(raw), index_col=False, low_memory=False, dtype=kinds)
    except UnicodeDecodeError:
        raise InputError(
            f"{what} is not text in UTF-8. Save it as CSV (UTF-8) or Parquet."
        ) from None
    except (ValueError, pd.errors.ParserWarning):
        raise InputError(
            f"{what} is not a readable CSV file. Every line needs as many values as the header has "
            "names, separated by commas, and every opening quotation mark a closing one."
        ) from None
    _check_unique(pd.Index(header.iloc[0].astype(str).str.strip()), what)
    if len(frame.columns) == 1 and ";" in str(frame.columns[0]):
        raise InputError(f"{what}: the columns seem to be separated by ';'. Save it with commas.")
    return frame


def _parse_parquet(raw: bytes, what: str) -> pd.DataFrame:
    """A table from Parquet."""
    with _readable_parquet(what):
        return pd.read_parquet(io.BytesIO(raw))


def _parquet_columns(raw: bytes, what: str) -> pd.DataFrame:
    """The columns that a Parquet file declares, without any row."""
    with _readable_parquet(what):
        from pyarrow import parquet

        columns: pd.DataFrame = parquet.read_schema(io.BytesIO(raw)).empty_table().to_pandas()
    columns.columns = pd.Index([str(name) for name in columns.columns])
    return columns


@contextmanager
def _readable_parquet(what: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise UnavailableError(
            f'Parquet needs pyarrow: pip install "permea[cli]" ({error.name} is missing).'
        ) from None
    except Exception:  # whatever pyarrow raises may quote a value
        raise InputError(
            f"{what} is not a readable Parquet file: damaged, cut short or another format. "
            "Get a fresh copy, or save it as CSV."
        ) from None


def _check_shape(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    """The table, if it has rows and unique column names."""
    frame.columns = pd.Index([str(name) for name in frame.columns])
    if len(frame) == 0:
        raise InputError(f"{what} has a header but no rows.")
    _check_unique(frame.columns, what)
    return frame


def _check_unique(names: pd.Index, what: str) -> None:
    if names.has_duplicates:
        if share_without_letters(names.tolist()) > 0:
            raise InputError(f"{what}: a name is there twice. Does it begin with names of columns?")
        twice = names[names.duplicated()][0]
        raise InputError(f"{what}: the column {twice!r} is there twice.")


# ---- columns -------------------------------------------------------------------------------------


def require_columns(frame: pd.DataFrame, names: list[str], what: str) -> None:
    """Refuse a table without these columns; the message says which ones it has."""
    missing = [name for name in names if name not in frame.columns]
    names = [str(name) for name in frame.columns]
    if missing and share_without_letters(names) > 0:  # they may be the values of a first row
        raise InputError(
            f"{what} has no column {listed(missing)}. Does it begin with the names of its columns?"
        )
    if missing:
        raise InputError(f"{what} has no column {listed(missing)}. It has: {listed(names)}.")


def numbers(frame: pd.DataFrame, columns: list[str], what: str) -> NDArray[np.float64]:
    """The columns as a matrix; text, categories, dates, gaps and infinities are refused.

    One message names every column that cannot be used.
    """
    require_columns(frame, columns, what)
    problems = _not_numbers(frame[columns])
    named = {name for names in problems.values() for name in names}
    rest = [name for name in columns if name not in named]
    gaps = [name for name in rest if not np.isfinite(_floats(frame[name])).all()]
    _refuse(problems | ({_GAPS: gaps} if gaps else {}), what)
    return frame[columns].to_numpy(dtype=np.float64)


def _floats(values: "pd.Series[float]") -> NDArray[np.float64]:
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)


def numeric_columns(frame: pd.DataFrame) -> list[str]:
    """Names of the columns that hold numbers."""
    return [name for name in frame.columns if pd.api.types.is_numeric_dtype(frame[name])]


_ENCODE = (
    "declare it in a schema (permea schema draft; train --schema FILE --unit record or person), "
    "encode it as 0/1 columns, leave it out with --drop {first}, or pass it through with "
    "--id {first}"
)
_GAPS = (
    "missing or infinite values in {names}: fill them with a constant that does not depend on the "
    "data, or remove the rows"
)
_SOME_TEXT = (
    "text where a number is expected in {names}: correct it, leave the column out with "
    "--drop {first}, or pass it through with --id {first}"
)
_CATEGORIES = "text or categories, not numbers, in {names}: " + _ENCODE
_DATES = "dates in {names}: convert them to numbers such as days since a public date, or " + _ENCODE


def _not_numbers(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Columns that do not hold numbers, by what is wrong with them."""
    found: dict[str, list[str]] = {}
    for name, values in frame.items():
        if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_complex_dtype(values):
            continue
        problem = _CATEGORIES
        if pd.api.types.is_datetime64_any_dtype(values):
            problem = _DATES
        elif not isinstance(values.dtype, pd.CategoricalDtype):
            some = pd.to_numeric(values, errors="coerce").notna().any()
            problem = _SOME_TEXT if some else _CATEGORIES
        found.setdefault(problem, []).append(str(name))
    return found


def _refuse(problems: dict[str, list[str]], what: str) -> None:
    """One message about every column that cannot be used."""
    texts = [text.format(names=listed(names), first=names[0]) for text, names in problems.items()]
    if texts:
        raise InputError(f"{what}: {'; '.join(texts)}.")


def labels(frame: pd.DataFrame, label: str, what: str) -> NDArray[np.generic]:
    """The label column as an array; gaps and fractions are refused."""
    require_columns(frame, [label], what)
    values = frame[label]
    if values.isna().any():
        raise InputError(f"{what}: the label {label!r} is missing in some rows. Remove these rows.")
    array = values.to_numpy()
    if array.dtype.kind == "f":
        check_whole(array, label, what)
    if array.dtype.kind in "fiub":
        return array
    return np.asarray([str(item) for item in array])


def check_whole(values: NDArray[np.float64], label: str, what: str) -> None:
    """Refuse fractions as class labels."""
    if np.any(values != np.floor(values)):
        raise InputError(
            f"{what}: the label {label!r} holds fractions; classes are expected. Name the column "
            "of classes with --label."
        )


def listed(names: list[str], most: int = 8) -> str:
    """Names in quotes, shortened when there are many.

    Examples
    --------
    >>> listed(["a", "b"])
    "'a', 'b'"
    """
    shown = ", ".join(repr(str(name)) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


# ---- private tables ------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrivateTable:
    """A table about whose rows no message says anything.

    ``declared`` has the types of the columns where the file declares them (Parquet) and no rows;
    None where types could only be guessed from the values (CSV).
    """

    frame: pd.DataFrame
    what: str  #: the file, as messages name it
    declared: pd.DataFrame | None

    def numbers(self, columns: list[str]) -> NDArray[np.float64]:
        """The columns as a matrix, NaN where there is no finite number."""
        if self.declared is not None:
            _refuse(_not_numbers(self.declared[columns]), self.what)
        matrix = np.empty((len(self.frame), len(columns)))
        for index, name in enumerate(columns):
            matrix[:, index] = _floats(pd.to_numeric(self.frame[name], errors="coerce"))
        matrix[~np.isfinite(matrix)] = np.nan
        return matrix

    def labels(self, label: str) -> NDArray[np.generic]:
        """The label column; all NaN when some row has no class."""
        try:
            return labels(self.frame, label, self.what)
        except CommandError:
            return np.full(len(self.frame), np.nan)


def read_private_table(path: str, texts: Sequence[str] = ()) -> PrivateTable:
    """Read a table from a file, or as ``-`` from standard input, and tell nothing about its rows.

    Parameters
    ----------
    path : str
        ``.csv`` with a header line, ``.parquet``, or ``-`` for either on standard input.
    texts : sequence of str
        Columns of a CSV file that stay text. Others are numbers if all of their cells are, so one
        row would decide whether 7 and 007 are the same in all others.

    Returns
    -------
    PrivateTable
        At least one row, unique column names. A file with unreadable lines gives one row in which
        everything is missing.
    """
    raw, what, is_parquet = _read_bytes(path)
    if is_parquet:
        declared = _parquet_columns(raw, what)
        try:
            frame = pd.read_parquet(io.BytesIO(raw))
            for name in frame.columns:
                frame[name].to_numpy(dtype=object)  # text is decoded when it is first used
        except Exception:  # whatever pyarrow raises may quote a value
            frame = declared.reindex([0])
        return PrivateTable(_check_shape(frame, what), what, declared)
    header = _parse_csv(_header(raw), what)
    try:
        frame = _parse_csv(raw, what, texts)
    except CommandError:
        frame = header.reindex([0])
    return PrivateTable(_check_shape(frame, what), what, None)


def _header(raw: bytes) -> bytes:
    r"""The lines of a CSV file up to the end of its header, the only public part of it.

    Examples
    --------
    >>> _header(b'"two\nlines",b\n1,2\n')
    b'"two\nlines",b\n'
    """
    lines: list[str] = []

    def taken() -> Iterator[str]:
        for line in io.TextIOWrapper(io.BytesIO(raw), "utf-8", "surrogateescape", newline=""):
            lines.append(line)
            yield line

    with suppress(csv.Error):  # a name of more than 100000 characters, for example
        next((cells for cells in csv.reader(taken()) if any(map(str.strip, cells))), None)
    return "".join(lines).encode("utf-8", "surrogateescape")


NUMBERS_EXPECTED = (
    "numbers inside the declared domain in every feature column, a class in every row, and no "
    "missing values. Use --clip to move values to the ends of the domain, and --id or --drop for "
    "columns that are not features"
)
SCHEMA_EXPECTED = (
    "rows whose values are as the schema declares them: numbers, dates in the declared format, "
    "listed categories, missing values only where declared; a class or a number to predict in "
    "every row, and a person for --unit person. permea schema check SCHEMA DATA --rows names the "
    "columns that do not fit, to the owner of the table"
)


@contextmanager
def one_message_about(path: str, expected: str = NUMBERS_EXPECTED) -> Iterator[None]:
    """Turn any defect of rows that were charged for into the same message."""
    try:
        yield
    except UnreadableRowsError:
        what = "Standard input" if path == STREAM else path
        raise InputError(
            f"{what}: some value or line cannot be used. Which, how many and why is private. "
            f"Expected are {expected}. What was charged to a ledger stays charged."
        ) from None


# ---- tables with a schema ------------------------------------------------------------------------

_IN_MEMORY = 1 << 28  # bytes of a file that is read at once


def open_table(path: str, query: str | None = None) -> Chunks:
    """A table to be read by a schema, chunk by chunk; only the names of its columns are read here.

    Cells of a CSV file stay text: what they are is declared by the schema. With ``query``, ``path``
    is the address of a database.
    """
    if path == STREAM:
        raise InputError("Standard input cannot be read by a schema: give a file.")
    try:
        return read_chunks(path, query=query)
    except ImportError as error:
        raise UnavailableError(error) from error
    except ValueError as error:
        raise InputError(error) from error


def read_columns(path: str) -> Any:
    """The columns of a table without any row: its names, and types where the file declares them."""
    names = open_table(path).names
    if Path(path).is_file() and _is_parquet(path):
        with _readable_parquet(path):
            from pyarrow import parquet

            return parquet.read_schema(path).empty_table()
    return {name: [] for name in names}


def _is_parquet(path: str) -> bool:
    with Path(path).open("rb") as file:
        return file.read(4) == _PARQUET_MAGIC


def read_declared_table(path: str) -> pd.DataFrame:
    """All rows of a table, to be read by a schema."""
    chunks = open_table(path)
    try:
        return pd.concat(chunks(), ignore_index=True)
    except ValueError as error:
        raise InputError(error) from error


def fits_memory(path: str) -> bool:
    """Whether a table is a file that is small enough to be read at once."""
    return Path(path).is_file() and Path(path).stat().st_size <= _IN_MEMORY


def private_rows(chunks: Chunks) -> pd.DataFrame:
    """All rows of a table, without a word about them.

    A table that has none, or that cannot be read to its end, gives one row in which everything is
    missing: a schema refuses it, after the charge.
    """
    try:
        return pd.concat(chunks(), ignore_index=True)
    except ValueError:
        return pd.DataFrame({name: [None] for name in chunks.names})

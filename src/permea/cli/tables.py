"""Tables in and out: CSV and Parquet, checked before anything is computed from them.

Messages name files and columns, never a value, a row or a count. About a table whose rows are kept
private even less is told: see `permea.cli.private_table`.
"""

import io
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from permea._text import safe_cell
from permea.cli.errors import CommandError, ExitCode
from permea.cli.files import STREAM, write_whole

FORMATS = (".csv", ".parquet")
Kind = Literal["csv", "parquet"]
_PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Roles:
    """What the columns of a table are for: features, one label, ids that pass, and the rest."""

    label: str | None = None
    ids: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    def features(self, frame: pd.DataFrame, what: str) -> list[str]:
        """Names of the feature columns, after checking that the others exist."""
        others = [*([] if self.label is None else [self.label]), *self.ids, *self.dropped]
        require_columns(frame, others, what)
        names = [name for name in frame.columns if name not in others]
        if not names:
            raise CommandError(f"{what} has no feature columns left.", ExitCode.INPUT)
        return names


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
    raw, what, kind = read_bytes(path)
    frame = parse_parquet(raw, what) if kind == "parquet" else parse_csv(raw, what)
    return check_shape(frame, what)


def read_bytes(path: str) -> tuple[bytes, str, Kind]:
    """Content of a table's file, what to call it in messages, and its format."""
    raw = _content(path)
    what = "Standard input" if path == STREAM else path
    if not raw.strip():
        raise CommandError(f"{what} is empty. A header line and rows are needed.", ExitCode.INPUT)
    suffix = Path(path).suffix.lower()
    if suffix == ".parquet" or raw[:4] == _PARQUET_MAGIC:
        return raw, what, "parquet"
    if path == STREAM or suffix in ("", ".csv", ".txt") or Path(path).is_fifo():
        return raw, what, "csv"
    raise CommandError(
        f"{what}: unknown kind of file {suffix!r}. Save it as CSV or Parquet.", ExitCode.INPUT
    )


def _content(path: str) -> bytes:
    if path == STREAM:
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        reason = "does not exist. Check the path"
    except IsADirectoryError:
        reason = "is a folder, not a file. Name the file in it"
    except PermissionError:
        reason = "may not be read by you. Check its permissions"
    except OSError as error:
        reason = f"cannot be read: {error.strerror}. Check the disk and the path"
    raise CommandError(f"{path} {reason}.", ExitCode.INPUT)


def parse_csv(raw: bytes, what: str) -> pd.DataFrame:
    """A table from CSV; what is wrong is told without a line number."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            header = pd.read_csv(io.BytesIO(raw), header=None, nrows=1, dtype=str)
            frame = pd.read_csv(io.BytesIO(raw), index_col=False, low_memory=False)
    except UnicodeDecodeError:
        raise CommandError(
            f"{what} is not text in UTF-8. Save it as CSV (UTF-8) or Parquet.", ExitCode.INPUT
        ) from None
    except (ValueError, pd.errors.ParserWarning):
        raise CommandError(
            f"{what} is not a readable CSV file. Every line needs as many values as the header has "
            "names, separated by commas, and every opened quotation mark a closing one.",
            ExitCode.INPUT,
        ) from None
    names = header.iloc[0].astype(str).str.strip()
    if names.duplicated().any():
        twice = names[names.duplicated()].iloc[0]
        raise CommandError(f"{what}: the column {twice!r} is there twice.", ExitCode.INPUT)
    if len(frame.columns) == 1 and ";" in str(frame.columns[0]):
        raise CommandError(
            f"{what}: the columns seem to be separated by ';'. Save it with commas.", ExitCode.INPUT
        )
    return frame


def parse_parquet(raw: bytes, what: str) -> pd.DataFrame:
    """A table from Parquet."""
    try:
        return pd.read_parquet(io.BytesIO(raw))
    except ImportError as error:
        raise CommandError(
            f'Parquet needs pyarrow: pip install "permea[cli]" ({error.name} is missing).',
            ExitCode.UNAVAILABLE,
        ) from None
    except (OSError, ValueError):  # pyarrow's errors derive from these
        raise CommandError(
            f"{what} is not a readable Parquet file: damaged, cut short or another format. "
            "Get a fresh copy, or save it as CSV.",
            ExitCode.INPUT,
        ) from None


def check_shape(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    """The table, once it has rows and a name of its own for every column."""
    frame.columns = [str(name) for name in frame.columns]
    if len(frame) == 0:
        raise CommandError(f"{what} has a header but no rows.", ExitCode.INPUT)
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise CommandError(f"{what}: the column {twice!r} is there twice.", ExitCode.INPUT)
    return frame


def write_table(
    frame: pd.DataFrame, path: str, *, complete: Callable[[Path], object] | None = None
) -> None:
    """Write a table; on ``-`` as CSV to standard output.

    A CSV file may be opened by a spreadsheet, so its text is made harmless by `harmless`. Parquet
    keeps every text as it is. ``complete`` gets the complete file before it takes its name.
    """
    if path == STREAM:
        sys.stdout.write(harmless(frame).to_csv(index=False))
        return

    def write(beside: Path) -> None:
        if Path(path).suffix.lower() == ".parquet":
            frame.to_parquet(beside, index=False)
        else:
            harmless(frame).to_csv(beside, index=False, lineterminator="\n")
        if complete is not None:
            complete(beside)

    write_whole(path, write)


def harmless(frame: pd.DataFrame) -> pd.DataFrame:
    """Give a table whose names and text cells no spreadsheet runs and no terminal obeys.

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


def require_columns(frame: pd.DataFrame, names: list[str], what: str) -> None:
    """Say which columns are missing and which ones there are."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise CommandError(
            f"{what} has no column {listed(missing)}. It has: {listed(frame.columns.tolist())}.",
            ExitCode.INPUT,
        )


def numbers(frame: pd.DataFrame, columns: list[str], what: str) -> NDArray[np.float64]:
    """The columns as a matrix; text, categories, dates, gaps and infinities are refused."""
    for name in columns:
        check_numeric(frame[name], name, what)
    matrix = frame[columns].to_numpy(dtype=np.float64)
    bad = ~np.isfinite(matrix)
    if bad.any():
        first = int(np.flatnonzero(bad.any(axis=0))[0])
        raise CommandError(
            f"{what}: column {columns[first]!r} has missing or infinite values. Fill them with a "
            "constant that does not depend on the data, or leave the rows out.",
            ExitCode.INPUT,
        )
    return matrix


def check_numeric(values: "pd.Series[float]", name: str, what: str) -> None:
    """Refuse a column of another kind than numbers, and say what can be done with it."""
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_complex_dtype(values):
        return
    advice = f"drop it with --drop {name}, or let it pass untouched with --id {name}"
    if isinstance(values.dtype, pd.CategoricalDtype):
        kind = "holds categories; noise on their codes would mean nothing"
    elif pd.api.types.is_datetime64_any_dtype(values):
        kind = "holds dates; turn them into numbers such as days since a public date first"
    else:
        readable = pd.to_numeric(values, errors="coerce").notna()
        if readable.any():
            raise CommandError(
                f"{what}: column {name!r} has text where a number is expected. Correct it, or "
                f"{advice}.",
                ExitCode.INPUT,
            )
        kind = "holds text (categories); noise on their codes would mean nothing"
    raise CommandError(
        f"{what}: column {name!r} {kind}. Encode it as 0/1 columns, {advice}.", ExitCode.INPUT
    )


def labels(frame: pd.DataFrame, label: str, what: str) -> NDArray[np.generic]:
    """The label column as an array; gaps and fractions are refused."""
    require_columns(frame, [label], what)
    values = frame[label]
    if values.isna().any():
        raise CommandError(
            f"{what}: the label {label!r} is missing in some rows. Leave these rows out.",
            ExitCode.INPUT,
        )
    array = values.to_numpy()
    if array.dtype.kind == "f":
        if not np.all(array == np.floor(array)):
            raise CommandError(
                f"{what}: the label {label!r} holds fractions; classes are expected. Name the "
                "column of classes with --label.",
                ExitCode.INPUT,
            )
        return array
    if array.dtype.kind in "iub":
        return array
    return np.asarray([str(item) for item in array])


def listed(names: list[str], most: int = 8) -> str:
    """Names in quotes, shortened when there are many.

    Examples
    --------
    >>> listed(["a", "b"])
    "'a', 'b'"
    """
    shown = ", ".join(repr(str(name)) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"

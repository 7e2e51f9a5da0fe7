"""Results that appear whole or not at all: written beside their place, then renamed."""

import csv
import io
import os
import shutil
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import SafetensorError

from permea._text import safe_cell
from permea.cli.console import CommandError, ExitCode, one_line
from permea.privacy.release import UnreadableRowsError

STREAM = "-"


def check_output(path: str, suffixes: tuple[str, ...], *, inputs: tuple[str, ...] = ()) -> None:
    """Find out before any work is done whether a result can be written.

    Parameters
    ----------
    path : str
        Where the result will go; ``-`` is standard output.
    suffixes : tuple of str
        Endings that name a format that can be written; empty for any.
    inputs : tuple of str
        Files that must not be overwritten.
    """
    if path == STREAM:
        return
    target = Path(path)
    if target.is_dir():
        raise CommandError(
            f"{path} is a folder. Name a file in it, e.g. -o {target / 'result'}"
            f"{suffixes[0] if suffixes else ''}.",
            ExitCode.OUTPUT,
        )
    special = target.exists() and not target.is_file()
    if suffixes and not special and target.suffix.lower() not in suffixes:
        known = " or ".join(suffixes)
        raise CommandError(
            f"{path}: the ending of an output file says its format; use {known}.", ExitCode.USAGE
        )
    for source in inputs:
        exist = source != STREAM and target.exists() and Path(source).exists()
        if exist and os.path.samefile(source, target):
            raise CommandError(
                f"{path} is also the input and would be lost. Choose another name for -o.",
                ExitCode.USAGE,
            )
    _check_folder(target.absolute().parent)


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise CommandError(
            f"The folder {folder} does not exist. Create it, or write elsewhere with -o.",
            ExitCode.OUTPUT,
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CommandError(
            f"The folder {folder} is not writable for you. Write elsewhere with -o.",
            ExitCode.OUTPUT,
        )


@contextmanager
def replacing(path: str | Path, *, secret: bool = False) -> Iterator[Path]:
    """Give a place beside ``path`` to write to, and rename it to ``path`` when all went well.

    The place has a random name and can be read by its owner alone while it is written. A symbolic
    link at ``path`` is replaced, and what it points to is not touched. Whatever goes wrong, an
    interrupt included, the place is removed and ``path`` is as before. With ``secret`` the file can
    be read by its owner alone, and nothing but a file is written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "out.txt")) as beside:
    ...         _ = beside.write_text("done")
    ...     Path(folder, "out.txt").read_text(), len(list(Path(folder).iterdir()))
    ('done', 1)
    """
    target = Path(path)
    device = target.exists() and not target.is_file()
    if device and secret:
        raise CommandError(
            f"{path} is no file, and what would be written is for its owner alone. Name a file "
            "with -o.",
            ExitCode.OUTPUT,
        )
    folder = None if device else target.absolute().parent
    beside: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{target.name}.", suffix=".part")
        os.close(handle)
        beside = Path(name)
        yield beside
        if device:
            with beside.open("rb") as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink)
            return
        _settle(beside, target, secret)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise CommandError(
            f"{path} could not be written: {reason}. Nothing was changed; free some space or write "
            "elsewhere with -o.",
            ExitCode.OUTPUT,
        ) from error
    finally:
        if beside is not None:
            beside.unlink(missing_ok=True)


def _settle(beside: Path, target: Path, secret: bool) -> None:
    """Bring a complete file to the disk and to its name."""
    with beside.open("rb") as written:
        os.fsync(written.fileno())
    beside.chmod(0o600 if secret else _mode(target))
    os.replace(beside, target)


def _mode(target: Path) -> int:
    """Permissions of the file that is replaced, if it is one, or of any new file."""
    if target.exists() and stat.S_ISREG(target.lstat().st_mode):
        return target.stat().st_mode & 0o777
    umask = os.umask(0o077)  # it can only be read by setting it; meanwhile files are private
    os.umask(umask)
    return 0o666 & ~umask


def write_whole(path: str | Path, write: Callable[[Path], object], *, secret: bool = False) -> None:
    """Let ``write`` fill a file that appears at ``path`` only when it is complete."""
    with replacing(path, secret=secret) as beside:
        write(beside)


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


@dataclass(frozen=True)
class PrivateTable:
    """Rows that are read in silence.

    ``typed`` says whether the file declares the kind of each column (Parquet), or whether the kind
    could only be guessed from the values (CSV).
    """

    frame: pd.DataFrame
    what: str  #: the file, as messages name it
    typed: bool

    def numbers(self, columns: list[str]) -> NDArray[np.float64]:
        """The columns as a matrix, NaN where there is no finite number."""
        if self.typed:
            for name in columns:
                check_numeric(self.frame[name].iloc[:0], name, self.what)
        matrix = np.empty((len(self.frame), len(columns)))
        for index, name in enumerate(columns):
            values = pd.to_numeric(self.frame[name], errors="coerce")
            matrix[:, index] = values.to_numpy(dtype=np.float64, na_value=np.nan)
        matrix[~np.isfinite(matrix)] = np.nan
        return matrix

    def labels(self, label: str) -> NDArray[np.generic]:
        """The label column; nothing but NaN when some row has no class."""
        try:
            return labels(self.frame, label, self.what)
        except CommandError:
            return np.full(len(self.frame), np.nan)


def read_private_table(path: str) -> PrivateTable:
    """Read a table from a file, or as ``-`` from standard input, and tell nothing about its rows.

    Parameters
    ----------
    path : str
        ``.csv`` with a header line, ``.parquet``, or ``-`` for either on standard input.

    Returns
    -------
    PrivateTable
        At least one row, unique column names. Lines that cannot be read give one row in which
        everything is missing.
    """
    raw, what, kind = read_bytes(path)
    if kind == "parquet":
        return PrivateTable(check_shape(parse_parquet(raw, what), what), what, typed=True)
    header = parse_csv(_header(raw), what)
    try:
        frame = parse_csv(raw, what)
    except CommandError:
        frame = header.reindex([0])
    return PrivateTable(check_shape(frame, what), what, typed=False)


def _header(raw: bytes) -> bytes:
    r"""The lines of a CSV file up to the end of its header, which is all that is public of it.

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

    with suppress(csv.Error):  # a name of more than 100000 characters, say
        next((cells for cells in csv.reader(taken()) if any(map(str.strip, cells))), None)
    return "".join(lines).encode("utf-8", "surrogateescape")


@contextmanager
def refused_after_charge(what: str) -> Iterator[None]:
    """Turn the refusal of rows that were charged for into the message of `unusable`."""
    try:
        yield
    except UnreadableRowsError:
        raise unusable(what) from None


def unusable(what: str) -> CommandError:
    """The one message about the values of a private table."""
    name = "Standard input" if what == STREAM else what
    return CommandError(
        f"{name}: some value or line cannot be used. Which, how many and why is private. Expected "
        "are numbers inside the declared domain in every feature column, a class in every row, and "
        "nothing missing. Say --clip to move values to the ends of the domain, and --id or --drop "
        "for columns that are no features. What was charged to a ledger stays charged.",
        ExitCode.INPUT,
    )

"""A table whose rows are kept private: nothing is told about its values before the charge.

The header, the kinds of columns that a Parquet file declares and the number of rows are public;
they are checked at once, with messages that help. Everything else depends on the rows: a value that
is missing, is no number, or lies outside the domain, a row without a class, a line that cannot be
read. All of these become missing values here, without a word, and a release refuses missing values
after the ledger was charged, with one message for all of them. So two tables that differ in a row
look the same until the charge.
"""

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from permea.cli.errors import CommandError, ExitCode
from permea.cli.files import STREAM
from permea.cli.tables import check_numeric, check_shape, parse_csv, parse_parquet, read_bytes
from permea.cli.tables import labels as read_labels
from permea.privacy.payment import UnreadableRowsError


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
            return read_labels(self.frame, label, self.what)
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

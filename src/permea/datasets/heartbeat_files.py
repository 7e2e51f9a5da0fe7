"""R-R intervals from files: text and CSV, PhysioNet annotations, and two public data sets."""

import csv
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from permea._arrays import Array
from permea.datasets.files import load_rr
from permea.datasets.heartbeats import TERMS, Recording

Unit = Literal["auto", "s", "ms"]

_INTERVAL_NAMES = ("rr", "rr_sec", "rr_s", "rr_ms", "rri", "ibi", "ibi_sec", "ibi_ms", "nn")
_BEATS = frozenset("NLRBAaJSVrFejnE/fQ?")  # annotation codes of PhysioNet that mark a beat
_LONGEST = 10.0  # intervals are below this in seconds and above it in milliseconds


def read_rr(
    path: str | Path,
    *,
    column: str | None = None,
    time: str | None = None,
    score: str | None = None,
    ratings: Sequence[str] = (),
    unit: Unit = "auto",
    subject: str | None = None,
) -> Recording:
    r"""Read the R-R intervals of one person from a text file.

    Parameters
    ----------
    path : str or Path
        One value per line (lines that start with ``#`` are comments), or CSV with a header line.
    column : str, optional
        Column of intervals in a CSV; without it one of ``rr``, ``rr_sec``, ``rr_ms``, ``ibi``,
        ``nn`` and the like, if exactly one is there.
    time, score : str, optional
        Columns with the time of each beat in seconds, and with a stress score from 0 to 100.
    ratings : sequence of str
        Six columns of NASA-TLX from 0 to 100, in the order of ``TERMS``.
    unit : {"auto", "s", "ms"}
        Of the intervals. ``"auto"`` takes milliseconds when all values are above 10, seconds when
        all are below, and is an error otherwise. 0 and empty cells are lost beats.
    subject : str, optional
        Name of the person; the name of the file without it.

    Returns
    -------
    Recording
        Intervals in seconds.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "ada.txt")
    ...     _ = file.write_text("# milliseconds\n812\n796\n0\n805\n")
    ...     read_rr(file).intervals.tolist()
    [0.812, 0.796, 0.0, 0.805]
    """
    path = Path(path)
    if ratings and len(ratings) != len(TERMS):
        raise ValueError(f"`ratings` needs {len(TERMS)} columns: {', '.join(TERMS)}.")
    table = _read_table(path)
    column = column or _find_interval_column(list(table), path)

    def numbers(name: str | None) -> Array:
        return np.empty(0) if name is None else _numbers(table, name, path)

    return Recording(
        subject or path.stem,
        _to_seconds(numbers(column), unit, path),
        numbers(time),
        numbers(score),
        np.column_stack([numbers(name) for name in ratings]) if ratings else np.empty((0, 6)),
    )


def read_wfdb(
    record: str | Path, *, annotator: str = "atr", subject: str | None = None
) -> Recording:
    """Read R-R intervals from beat annotations in PhysioNet's format.

    Parameters
    ----------
    record : str or Path
        Path of the record without an extension, as in the package ``wfdb``.
    annotator : str
        Extension of the annotation file.
    subject : str, optional
        Name of the person; the name of the record without it.

    Returns
    -------
    Recording
        Intervals between neighbouring beats of every kind; other annotations are ignored.
    """
    try:
        wfdb: Any = import_module("wfdb")
    except ImportError as error:
        raise ImportError(
            "Reading PhysioNet annotations needs wfdb: pip install 'permea[heartbeats]'."
        ) from error
    notes = wfdb.rdann(str(record), annotator)
    if not notes.fs:
        raise ValueError(
            f"{Path(record).name} does not say how often it was sampled. Put its .hea file beside."
        )
    beats = np.array([symbol in _BEATS for symbol in notes.symbol], dtype=bool)
    seconds = np.asarray(notes.sample, dtype=np.float64)[beats] / float(notes.fs)
    if seconds.size < 2:
        raise ValueError(f"{Path(record).name}.{annotator} marks fewer than two beats.")
    return Recording(subject or Path(record).name, np.diff(seconds), seconds[1:])


def load_recordings(name: Literal["cogload1", "stress_predict"]) -> list[Recording]:
    """One recording per person of a public R-R data set that the user has as a file.

    Parameters
    ----------
    name : {"cogload1", "stress_predict"}
        CogLoad1 has 23 people, intervals resampled to about one per second, and NASA-TLX; its 1..5
        scales are mapped to 0..100 and the score is their mean. Stress-Predict has 35 people and
        true inter-beat intervals with gaps; its score is 100 in a stress task and 0 at baseline.

    Returns
    -------
    list of Recording
        `permea.datasets.data_folder` explains where the file must be.
    """
    data = load_rr(name)
    cogload = name == "cogload1"
    owner = data["user" if cogload else "subject"]
    people = []
    for person in np.unique(owner):
        hers = owner == person
        rows = {key: values[hers] for key, values in data.items() if len(values) == len(hers)}
        if cogload:
            scales = rows["tlx"][:, 1:].astype(np.float64)  # the first column is their sum
            ratings = np.where(scales < 0, np.nan, (scales - 1) * 25)
            score = ratings.mean(axis=1)
            recording = Recording(
                f"cogload-{person:02d}", rows["rr_sec"], rows["t_sec"], score, ratings
            )
        else:
            label = rows["label"].astype(np.float64)
            score = np.where(label < 0, np.nan, 100 * label)
            times = rows["t_unix"] - rows["t_unix"][0]
            recording = Recording(f"stress-{person:02d}", rows["ibi_sec"], times, score)
        people.append(recording)
    return people


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_table(path: Path) -> dict[str, list[str]]:
    """Column → cells; a file with one value per line and no header has one column, ``rr``."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise ValueError(f"{path.name} holds no line of data. Expected one R-R interval per line.")
    rows = list(csv.reader(lines, delimiter=";" if ";" in lines[0] else ","))
    header = [name.strip() for name in rows[0]]
    if all(_is_number(name) for name in header):
        if len(header) > 1:
            raise ValueError(
                f"{path.name} has several columns and no header line. Name the columns in its "
                "first line."
            )
        header, rows = ["rr"], [["rr"], *rows]
    uneven = next((n for n, row in enumerate(rows[1:], 1) if len(row) != len(header)), None)
    if uneven is not None or len(rows) == 1:
        where = "no row of data" if len(rows) == 1 else f"another number of cells in row {uneven}"
        raise ValueError(f"{path.name} has {where}; its header names {len(header)} column(s).")
    return {name: list(cells) for name, *cells in zip(*[header, *rows[1:]], strict=True)}


def _numbers(table: dict[str, list[str]], name: str, path: Path) -> Array:
    """A column as numbers; an empty cell is NaN. Errors name the place and never the content."""
    if name not in table:
        raise ValueError(f"{path.name} has no column {name!r}. It has: {', '.join(table)}.")
    values = np.full(len(table[name]), np.nan)
    for row, cell in enumerate(table[name]):
        if cell.strip():
            if not _is_number(cell):
                raise ValueError(f"{path.name}: column {name!r}, row {row + 1} is not a number.")
            values[row] = float(cell)
    return values


def _find_interval_column(names: Sequence[str], path: Path) -> str:
    found = [name for name in names if name.lower() in _INTERVAL_NAMES]
    if len(found) == 1:
        return found[0]
    raise ValueError(
        f"{path.name}: which column holds the intervals? Name it with `column`; there are "
        f"{', '.join(names)}."
    )


def _to_seconds(values: Array, unit: Unit, path: Path) -> Array:
    if unit not in ("auto", "s", "ms"):
        raise ValueError('`unit` must be "auto", "s" or "ms".')
    if np.any(values < 0) or np.any(np.isinf(values)):
        raise ValueError(f"{path.name}: an R-R interval is negative or infinite.")
    if unit == "auto":
        beats = values[values > 0]
        if np.all(beats < _LONGEST):
            unit = "s"
        elif np.all(beats >= _LONGEST):
            unit = "ms"
        else:
            raise ValueError(
                f"{path.name} has intervals above and below {_LONGEST:g}: seconds or "
                'milliseconds? Say so with unit="s" or unit="ms".'
            )
    return values / 1000 if unit == "ms" else values

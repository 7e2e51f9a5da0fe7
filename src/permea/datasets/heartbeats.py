"""From R-R intervals to rows: artefacts, windows, labels, and splits that keep people apart.

Documents 003 §6.3 and 004 §6.2.3 detect mental stress from the intervals between heart beats. A
row is the current interval with its history, ``y^i = [RR^i RR^(i-1) … RR^(i-d)]`` (003 eq. 119);
intervals that an impulse rejection filter calls artefacts are found first, and rows that contain
one are left out. A person is a domain: `permea.datasets.subject_splits` never puts one on both
sides.

References
----------
McNames, Thong, Aboy: Impulse rejection filter for artifact removal in spectral analysis of
biomedical signals, EMBC 2004.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from permea._arrays import Array, Integers, Mask
from permea.datasets.files import load_rr

HISTORY = 216  # three minutes at 72 beats per minute (003 §6.3)
LIMITS = (0.3, 2.0)  # seconds: 200 to 30 beats per minute
TERMS = (
    "mental demand", "physical demand", "temporal demand",
    "own performance", "effort", "frustration",
)  # fmt: skip
_TO_DEVIATION = 1.483  # median absolute deviation → standard deviation of a normal law


@dataclass(frozen=True)
class Recording:
    """The R-R intervals of one person, in the order of time.

    Attributes
    ----------
    subject : str
        Whose heart it is.
    intervals : ndarray of shape (n,)
        R-R intervals in seconds; 0 or NaN where the device lost the beat.
    times : ndarray of shape (n,)
        When each interval ended, in seconds. Without it the intervals are added up.
    score : ndarray of shape (n,)
        Stress score from 0 to 100, NaN where there is none.
    ratings : ndarray of shape (n, 6)
        The six terms of NASA-TLX from 0 to 100, in the order of ``TERMS``; NaN where not rated.
    """

    subject: str
    intervals: Array
    times: Array = field(default_factory=lambda: np.empty(0))
    score: Array = field(default_factory=lambda: np.empty(0))
    ratings: Array = field(default_factory=lambda: np.empty((0, len(TERMS))))

    def __post_init__(self) -> None:
        intervals = np.asarray(self.intervals, dtype=np.float64)
        if intervals.ndim != 1 or not intervals.size:
            raise ValueError("A recording needs a non-empty sequence of R-R intervals.")
        defaults = {
            "times": np.cumsum(np.nan_to_num(intervals)),
            "score": np.full(intervals.size, np.nan),
            "ratings": np.full((intervals.size, len(TERMS)), np.nan),
        }
        object.__setattr__(self, "intervals", intervals)
        for name, default in defaults.items():
            given = np.asarray(getattr(self, name), dtype=np.float64)
            value = given if given.size else default
            if value.shape != default.shape:
                raise ValueError(
                    f"`{name}` has shape {value.shape}, and {default.shape} is needed for "
                    f"{intervals.size} intervals."
                )
            object.__setattr__(self, name, value)


def impulse_rejection(
    intervals: ArrayLike,
    *,
    threshold: float = 4.0,
    width: int = 5,
    limits: tuple[float, float] = LIMITS,
) -> tuple[Array, Mask]:
    r"""Find impulses in a series of intervals and replace them (McNames et al. 2004).

    An interval is an artefact when it is far from the median of the series,
    :math:`D(n) = |x(n) - \mathrm{med}\,x| / (1.483\,\mathrm{med}|x - \mathrm{med}\,x|) > \tau`, or
    when no heart beats like that. It is replaced by the median of its good neighbours.

    Parameters
    ----------
    intervals : array-like of shape (n,)
        R-R intervals in seconds. NaN counts as an artefact.
    threshold : float
        The τ above; larger keeps more. Where more than half of the intervals are equal the
        deviation is 0, and only ``limits`` decide.
    width : int
        Odd number of intervals around an artefact whose median replaces it.
    limits : (float, float)
        Shortest and longest interval of a living heart, in seconds.

    Returns
    -------
    cleaned : ndarray of shape (n,)
        The series with artefacts replaced.
    artefact : ndarray of bool of shape (n,)
        Where they were.

    Examples
    --------
    >>> series = [0.80, 0.82, 0.79, 0.81, 1.63, 0.80, 0.83, 0.0, 0.81]
    >>> cleaned, artefact = impulse_rejection(series)
    >>> artefact.nonzero()[0].tolist(), cleaned[4].item()
    ([4, 7], 0.805)
    """
    x = np.asarray(intervals, dtype=np.float64)
    if x.ndim != 1 or not threshold > 0 or width < 1 or width % 2 == 0:
        raise ValueError("Need a series, a threshold above 0, and an odd width of at least 1.")
    possible = (x >= limits[0]) & (x <= limits[1])  # NaN compares as False
    if not possible.any():
        return np.full_like(x, np.nan), np.ones(x.shape, dtype=bool)
    centre = np.median(x[possible])
    deviation = _TO_DEVIATION * np.median(np.abs(x[possible] - centre))
    artefact = ~possible
    if deviation > 0:
        artefact |= np.abs(x - centre) > threshold * deviation
    good = np.where(artefact, np.nan, x)
    around = sliding_window_view(np.pad(good, width // 2, constant_values=np.nan), width)
    cleaned = good.copy()
    for n in np.flatnonzero(artefact):
        neighbours = around[n][~np.isnan(around[n])]
        cleaned[n] = np.median(neighbours) if neighbours.size else centre
    return cleaned, artefact


@dataclass(frozen=True)
class Windows:
    """Rows of intervals and what belongs to them.

    Attributes
    ----------
    X : ndarray of shape (N, d + 1)
        ``[RR^i RR^(i-1) … RR^(i-d)]`` in seconds: the newest interval comes first.
    subject : ndarray of str of shape (N,)
        Whose row it is.
    position : ndarray of int of shape (N,)
        The index i in the person's recording.
    score, ratings : ndarray of shapes (N,) and (N, 6)
        Of the newest interval.
    stride : int
        Distance between the ends of neighbouring rows.
    """

    X: Array
    subject: NDArray[np.str_]
    position: Integers
    score: Array
    ratings: Array
    stride: int = 1

    @property
    def history(self) -> int:
        """The d of 003 eq. (119)."""
        return int(self.X.shape[1]) - 1

    @property
    def repeats(self) -> int:
        """In how many rows one interval may stand: rows overlap unless ``stride > history``.

        Entry-level noise on the rows promises ε for one *entry*. Somebody who changes one R-R
        interval changes this many entries, so the promise for an interval is at most ε times this.
        """
        return -(-(self.history + 1) // self.stride)

    def __len__(self) -> int:
        return len(self.X)

    def take(self, chosen: NDArray[np.bool_] | Integers) -> "Windows":
        """The chosen rows."""
        return Windows(
            self.X[chosen],
            self.subject[chosen],
            self.position[chosen],
            self.score[chosen],
            self.ratings[chosen],
            self.stride,
        )

    def of(self, *subjects: str) -> "Windows":
        """The rows of some people."""
        return self.take(np.isin(self.subject, subjects))


def make_windows(
    recordings: Recording | Sequence[Recording],
    *,
    history: int = HISTORY,
    stride: int = 1,
    max_gap: float = 5.0,
    threshold: float = 4.0,
    limits: tuple[float, float] = LIMITS,
) -> Windows:
    """All rows ``[RR^i … RR^(i-d)]`` without an artefact and without a gap (003 eq. 119).

    Parameters
    ----------
    recordings : Recording or sequence of Recording
        One per person, or several.
    history : int
        The d above.
    stride : int
        Take the ends of rows at every ``stride``-th interval; ``history + 1`` gives rows that share
        no interval.
    max_gap : float
        Seconds without a beat, beyond the interval itself, that a row may bridge.
    threshold, limits
        See `impulse_rejection`.

    Returns
    -------
    Windows
        Rows of all people, in the order of the recordings and of time.

    Examples
    --------
    >>> beats = Recording("ada", [0.80, 0.82, 0.81, 3.00, 0.79, 0.83, 0.81])
    >>> windows = make_windows(beats, history=2)
    >>> windows.X.tolist()
    [[0.81, 0.82, 0.8], [0.81, 0.83, 0.79]]
    """
    if history < 0 or stride < 1:
        raise ValueError("`history` must be at least 0 and `stride` at least 1.")
    people = [recordings] if isinstance(recordings, Recording) else list(recordings)
    if not people:
        raise ValueError("No recording was given.")
    parts = [_windows_of(person, history, stride, max_gap, threshold, limits) for person in people]
    names = ("X", "subject", "position", "score", "ratings")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Windows(**joined, stride=stride)


def _windows_of(
    recording: Recording,
    history: int,
    stride: int,
    max_gap: float,
    threshold: float,
    limits: tuple[float, float],
) -> Windows:
    x, times = recording.intervals, recording.times
    _, artefact = impulse_rejection(x, threshold=threshold, limits=limits)
    pause = np.diff(times, prepend=times[0]) - np.nan_to_num(x)
    gap = (pause > max_gap) | (np.diff(times, prepend=times[0]) < 0)  # between n - 1 and n
    faults = np.concatenate([[0], np.cumsum(artefact)])
    breaks = np.concatenate([[0], np.cumsum(gap)])
    ends = np.arange(history, x.size)
    whole = (faults[ends + 1] == faults[ends - history]) & (
        breaks[ends + 1] == breaks[ends - history + 1]
    )
    ends = ends[whole & ((ends - history) % stride == 0)]
    rows = x[ends[:, None] - np.arange(history + 1)]
    return Windows(
        rows,
        np.full(ends.size, recording.subject),
        ends,
        recording.score[ends],
        recording.ratings[ends],
        stride,
    )


def labels_from_score(
    score: ArrayLike,
    *,
    threshold: float | Literal["median"] = 50.0,
    subject: ArrayLike | None = None,
) -> Integers:
    """1 where the stress score is above the threshold, 0 where it is not, -1 where there is none.

    Parameters
    ----------
    score : array-like of shape (n,)
        From 0 to 100; NaN where a person was not asked.
    threshold : float or "median"
        A number, or each person's own median over the given scores ("more than usual for her").
    subject : array-like of shape (n,)
        Whose scores they are; needed for "median".

    Examples
    --------
    >>> labels_from_score([10, 80, float("nan"), 50]).tolist()
    [0, 1, -1, 0]
    >>> labels_from_score([10, 20, 80, 90], threshold="median", subject=list("aabb")).tolist()
    [0, 1, 0, 1]
    """
    values = np.asarray(score, dtype=np.float64)
    rated = ~np.isnan(values)
    level = np.full(values.shape, np.nan)
    if threshold == "median":
        if subject is None:
            raise ValueError('threshold="median" needs `subject`: whose median?')
        people = np.asarray(subject)
        for person in np.unique(people[rated]):
            hers = people == person
            level[hers] = np.median(values[hers & rated])
    else:
        level[:] = float(threshold)
    return np.where(rated, (values > level).astype(np.int64), -1)


Unit = Literal["auto", "s", "ms"]

_INTERVAL_NAMES = ("rr", "rr_sec", "rr_s", "rr_ms", "rri", "ibi", "ibi_sec", "ibi_ms", "nn")
_BEATS = frozenset("NLRBAaJSVrFejnE/fQ?")  # annotation codes of PhysioNet that mark a beat
_LONGEST = 10.0  # no interval lasts so many seconds, and none so few milliseconds


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
        all are below, and asks otherwise. 0 and empty cells are lost beats.
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
        Path of the record without an ending, as the package ``wfdb`` wants it.
    annotator : str
        Ending of the annotation file.
    subject : str, optional
        Name of the person; the name of the record without it.

    Returns
    -------
    Recording
        Intervals between neighbouring beats of every kind; other annotations are passed over.
    """
    try:
        wfdb: Any = import_module("wfdb")
    except ImportError as error:
        raise ImportError(
            "Reading PhysioNet annotations needs the package wfdb: pip install wfdb."
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
        See `permea.datasets.data_folder` for where the file is looked for.
    """
    data = load_rr(name)
    make = {"cogload1": _cogload1, "stress_predict": _stress_predict}[name]
    return make(data)


def _cogload1(data: dict[str, NDArray[Any]]) -> list[Recording]:
    people = []
    for user in np.unique(data["user"]):
        hers = data["user"] == user
        scales = data["tlx"][hers, 1:].astype(np.float64)  # the first column is their sum
        ratings = np.where(scales < 0, np.nan, (scales - 1) * 25)
        people.append(
            Recording(
                f"cogload-{user:02d}", data["rr_sec"][hers], data["t_sec"][hers],
                ratings.mean(axis=1), ratings,
            )
        )  # fmt: skip
    return people


def _stress_predict(data: dict[str, NDArray[Any]]) -> list[Recording]:
    people = []
    for subject in np.unique(data["subject"]):
        hers = data["subject"] == subject
        label = data["label"][hers].astype(np.float64)
        score = np.where(label < 0, np.nan, 100 * label)
        times = data["t_unix"][hers] - data["t_unix"][hers][0]
        people.append(Recording(f"stress-{subject:02d}", data["ibi_sec"][hers], times, score))
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


Seed = int | np.random.Generator | None


def subject_splits(
    subjects: ArrayLike, *, n_splits: int = 5, random_state: Seed = None
) -> Iterator[tuple[Integers, Integers]]:
    """Training and test rows such that no person stands on both sides.

    Parameters
    ----------
    subjects : array-like of shape (N,)
        Whose row it is.
    n_splits : int
        Number of splits; everybody is in the test rows of exactly one. As many as there are people
        means that one is left out at a time.
    random_state : int, Generator or None
        Order in which people are dealt out.

    Yields
    ------
    train, test : ndarray of int
        Indices of rows.

    Examples
    --------
    >>> people = np.array(["ada", "ada", "bob", "eve", "eve"])
    >>> for train, test in subject_splits(people, n_splits=3, random_state=0):
    ...     print(np.unique(people[train]), np.unique(people[test]))
    ['ada' 'bob'] ['eve']
    ['bob' 'eve'] ['ada']
    ['ada' 'eve'] ['bob']
    """
    whose = np.asarray(subjects)
    people = np.unique(whose)
    if not 2 <= n_splits <= people.size:
        raise ValueError(
            f"`n_splits` must lie between 2 and the number of people, which is {people.size}."
        )
    dealt = np.random.default_rng(random_state).permutation(people)
    for part in np.array_split(dealt, n_splits):
        test = np.isin(whose, part)
        yield np.flatnonzero(~test), np.flatnonzero(test)


def labelled_part(
    windows: Windows,
    *,
    how: Literal["time", "random"] = "time",
    part: float = 0.5,
    random_state: Seed = None,
) -> tuple[Mask, Mask]:
    """Which rows of one person are labelled, and which are the test.

    Parameters
    ----------
    windows : Windows
        Rows of one person.
    how : {"time", "random"}
        ``"time"``: the first rows are labelled, and rows that share an interval with a labelled one
        are on neither side. ``"random"`` is 003 §6.3.3: rows are drawn, and the test rows are
        shifted copies of labelled ones.
    part : float
        Part of the rows that is labelled.
    random_state : int, Generator or None
        For ``"random"``.

    Returns
    -------
    labelled, test : ndarray of bool of shape (N,)
        Both are False where a row was left out.

    Examples
    --------
    >>> from permea.datasets import Recording, make_windows
    >>> rows = make_windows(Recording("ada", np.linspace(0.8, 0.9, 12)), history=2)
    >>> labelled, test = labelled_part(rows)
    >>> labelled.sum().item(), test.sum().item()
    (5, 3)
    """
    _check_one_person(windows, part)
    count = len(windows)
    first = round(part * count)
    if how == "random":
        labelled = np.zeros(count, dtype=bool)
        labelled[np.random.default_rng(random_state).permutation(count)[:first]] = True
        return labelled, ~labelled
    if how != "time":
        raise ValueError('`how` must be "time" or "random".')
    order = np.argsort(windows.position, kind="stable")
    labelled = np.zeros(count, dtype=bool)
    labelled[order[:first]] = True
    last = windows.position[order[first - 1]] if first else -windows.history - 1
    return labelled, windows.position > last + windows.history


def both_classes(y: NDArray[Any], *sides: Mask, at_least: int = 1) -> bool:
    """Whether every side has both labels 0 and 1, and each at least so often.

    Examples
    --------
    >>> y = np.array([0, 1, 1, 1])
    >>> both_classes(y, np.array([True, True, False, False]))
    True
    >>> both_classes(y, np.array([False, True, True, False]))
    False
    """
    return all(min(np.sum(y[side] == 0), np.sum(y[side] == 1)) >= at_least for side in sides)


def _check_one_person(windows: Windows, part: float) -> None:
    if np.unique(windows.subject).size > 1:
        raise ValueError(
            "`labelled_part` splits the rows of one person; take them with windows.of(name)."
        )
    if not 0 < part < 1:
        raise ValueError("`part` must lie between 0 and 1.")


_RATINGS_AT_REST = np.array([20.0, 15.0, 15.0, 25.0, 20.0, 15.0])
_RATINGS_ADDED = np.array([55.0, 10.0, 50.0, 30.0, 50.0, 45.0])


def make_recordings(
    n_subjects: int = 6,
    *,
    minutes: float = 24.0,
    episode: float = 4.0,
    effect: float = 0.08,
    artefacts: float = 0.002,
    random_state: int | np.random.Generator | None = None,
) -> list[Recording]:
    """Recordings of invented people who rest and work in turns.

    Parameters
    ----------
    n_subjects : int
        Number of people.
    minutes : float
        Length of each recording.
    episode : float
        Minutes of rest, then of work, and so on.
    effect : float
        Seconds by which stress shortens the mean interval; means of people differ by about 0.1.
    artefacts : float
        Probability that a beat is missed (two intervals become one) or lost (0).
    random_state : int, Generator or None
        Seed.

    Returns
    -------
    list of Recording
        With a score and the six ratings of NASA-TLX, constant within an episode.

    Examples
    --------
    >>> people = make_recordings(2, random_state=0)
    >>> [person.subject for person in people]
    ['s01', 's02']
    >>> bool(0.5 < people[0].intervals.mean() < 1.2)
    True
    """
    if n_subjects < 1 or not minutes > 0 or not episode > 0 or not 0 <= artefacts < 1:
        raise ValueError("Need at least one person, positive lengths, and a probability below 1.")
    random = np.random.default_rng(random_state)
    return [
        _recording(f"s{number:02d}", minutes, episode, effect, artefacts, random)
        for number in range(1, n_subjects + 1)
    ]


def _recording(
    name: str,
    minutes: float,
    episode: float,
    effect: float,
    artefacts: float,
    random: np.random.Generator,
) -> Recording:
    mean = random.uniform(0.75, 0.95)
    count = int(minutes * 60 / mean)
    clock = np.arange(count) * mean
    number = (clock // (60 * episode)).astype(np.int64)
    strain = _strain(number, random)
    breath = random.uniform(0.2, 0.3)  # Hz
    depth = random.uniform(0.02, 0.05) * (1 - 0.6 * strain)
    intervals = (
        mean
        - effect * strain
        + depth * np.sin(2 * np.pi * breath * clock)
        + 0.015 * np.sin(2 * np.pi * 0.1 * clock + random.uniform(0, 6))
        + random.normal(scale=0.012, size=count)
    )
    ratings = _RATINGS_AT_REST + np.outer(strain, _RATINGS_ADDED)
    ratings += random.normal(scale=4, size=(number[-1] + 1, len(TERMS)))[number]
    ratings = np.clip(ratings, 0, 100)
    return Recording(
        name, _spoil(intervals, artefacts, random), np.cumsum(intervals), ratings.mean(1), ratings
    )


def _strain(number: NDArray[np.int64], random: np.random.Generator) -> Array:
    """How hard each episode was, from 0 to 1: low at rest, high at work."""
    rest = random.uniform(0.0, 0.2, size=number[-1] + 1)
    work = random.uniform(0.7, 1.0, size=number[-1] + 1)
    by_episode: Array = np.where(np.arange(rest.size) % 2 == 0, rest, work)
    return by_episode[number]


def _spoil(intervals: Array, artefacts: float, random: np.random.Generator) -> Array:
    """Missed beats double an interval, lost ones leave 0."""
    kind = random.random(intervals.size)
    spoilt = np.where(kind < artefacts / 2, 2 * intervals, intervals)
    return np.where(kind > 1 - artefacts / 2, 0.0, spoilt)

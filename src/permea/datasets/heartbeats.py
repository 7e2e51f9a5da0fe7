"""From R-R intervals to rows: recordings, artefacts, windows, labels, and splits by person.

Documents 003 §6.3 and 004 §6.2.3 detect mental stress from the intervals between heart beats. A
row is the current interval with its history, ``y^i = [RR^i RR^(i-1) … RR^(i-d)]`` (003 eq. 119);
intervals that an impulse rejection filter calls artefacts are found first, and rows that contain
one are left out. A person is a domain: `permea.datasets.subject_splits` never puts one on both
sides. Recordings are read from files by `permea.datasets.heartbeat_files`, or simulated by
`permea.datasets.make_recordings`.

References
----------
McNames, Thong, Aboy: Impulse rejection filter for artifact removal in spectral analysis of
biomedical signals, EMBC 2004.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from permea._arrays import Array, Integers, Mask
from permea.privacy.rowwise import row_sums
from permea.tables import Number, Schema, YesNo

HISTORY = 216  # three minutes at 72 beats per minute (003 §6.3)
LIMITS = (0.3, 2.0)  # seconds: 200 to 30 beats per minute
TERMS = (
    "mental demand", "physical demand", "temporal demand",
    "own performance", "effort", "frustration",
)  # fmt: skip
_TO_DEVIATION = 1.483  # median absolute deviation → standard deviation of a normal law
_COLUMNS = ("X", "subject", "position", "score", "ratings")  # what `Windows` has for each row
_RATINGS_AT_REST = np.array([20.0, 15.0, 15.0, 25.0, 20.0, 15.0])
_RATINGS_ADDED = np.array([55.0, 10.0, 50.0, 30.0, 50.0, 45.0])

HRV_SCHEMA = Schema(
    {
        "mean": Number(0.4, 1.4),
        "sdnn": Number(0.005, 0.3, scale="log"),
        "rmssd": Number(0.005, 0.3, scale="log"),
        "mean_change": Number(0.7, 1.4, scale="log"),
        "sdnn_change": Number(0.25, 4, scale="log"),
        "rmssd_change": Number(0.25, 4, scale="log"),
        "stressed": YesNo(),
    },
    label="stressed",
    person="person",
)
"""What `hrv_table` holds: ranges of what hearts do, in seconds, and of changes within a person."""

Seed = int | np.random.Generator | None


@dataclass(frozen=True)
class Recording:
    """The R-R intervals of one person, in the order of time.

    Attributes
    ----------
    subject : str
        Name of the person.
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
    when it is outside ``limits``. It is replaced by the median of its good neighbours.

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
        Shortest and longest plausible interval, in seconds.

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
        Person of each row.
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
        """In how many rows one interval may occur: rows overlap unless ``stride > history``.

        Entry-level noise on the rows protects one *entry* with ε. A change of one R-R interval
        changes this many entries, so an interval is protected with ε times this number.
        """
        return -(-(self.history + 1) // self.stride)

    def __len__(self) -> int:
        return len(self.X)

    def take(self, chosen: NDArray[np.bool_] | Integers) -> "Windows":
        """The chosen rows."""
        columns: dict[str, Any] = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        return replace(self, **columns)

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
    parts: list[tuple[Any, ...]] = []
    for person in people:
        _, artefact = impulse_rejection(person.intervals, threshold=threshold, limits=limits)
        ends = _ends_of_rows(person, artefact, history, max_gap)
        ends = ends[(ends - history) % stride == 0]
        rows = person.intervals[ends[:, None] - np.arange(history + 1)]
        whose = np.full(ends.size, person.subject)
        parts.append((rows, whose, ends, person.score[ends], person.ratings[ends]))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Windows(**dict(zip(_COLUMNS, columns, strict=True)), stride=stride)


def _ends_of_rows(recording: Recording, artefact: Mask, history: int, max_gap: float) -> Integers:
    """Positions i for which the intervals i - history to i have neither artefact nor gap."""
    passed = np.diff(recording.times, prepend=recording.times[0])
    gap = (passed - np.nan_to_num(recording.intervals) > max_gap) | (passed < 0)  # before n
    faults = np.concatenate([[0], np.cumsum(artefact)])
    breaks = np.concatenate([[0], np.cumsum(gap)])
    ends = np.arange(history, artefact.size)
    whole = faults[ends + 1] == faults[ends - history]
    whole &= breaks[ends + 1] == breaks[ends - history + 1]
    return np.asarray(ends[whole])


def labels_from_score(
    score: ArrayLike,
    *,
    threshold: float | Literal["median"] = 50.0,
    subject: ArrayLike | None = None,
) -> Integers:
    """1 where the stress score is above the threshold, 0 where it is not, -1 where it is missing.

    Parameters
    ----------
    score : array-like of shape (n,)
        From 0 to 100; NaN where there is none.
    threshold : float or "median"
        A number, or each person's own median over the given scores ("more than usual").
    subject : array-like of shape (n,)
        Person of each score; needed for "median".

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
            raise ValueError('threshold="median" needs `subject`, the person of each score.')
        people = np.asarray(subject)
        for person in np.unique(people[rated]):
            hers = people == person
            level[hers] = np.median(values[hers & rated])
    else:
        level[:] = float(threshold)
    return np.where(rated, (values > level).astype(np.int64), -1)


def hrv_table(windows: Windows, labels: ArrayLike) -> dict[str, NDArray[Any]]:
    """A table of heart rate variability with one line per row, for models that hide a person.

    A line has the mean interval, its standard deviation (SDNN), the root mean square of successive
    differences (RMSSD), and each of them divided by its median over the rows of that person.
    Everything in a line comes from the recordings of one person. So does what was done before:
    which intervals were artefacts, and which rows have which label. A promise per person
    (``unit="person"``) therefore covers all of it.

    Parameters
    ----------
    windows : Windows
    labels : array-like of shape (N,)
        0 or 1; rows with -1 are left out.

    Returns
    -------
    dict of str to ndarray
        Columns of ``HRV_SCHEMA``, and ``person``.

    Examples
    --------
    >>> beats = Recording("ada", [0.80, 0.84, 0.80, 0.84, 0.80, 0.90], score=[0, 0, 0, 90, 90, 90])
    >>> windows = make_windows(beats, history=2, threshold=9)
    >>> table = hrv_table(windows, labels_from_score(windows.score))
    >>> table["rmssd"].round(3).tolist(), table["stressed"].tolist(), table["person"][0].item()
    ([0.04, 0.04, 0.04, 0.076], [0, 1, 1, 1], 'ada')
    """
    y = np.asarray(labels)
    windows, y = windows.take(y >= 0), y[y >= 0]
    X, count = windows.X, windows.X.shape[1]
    mean = row_sums(X) / count
    steps = X[:, 1:] - X[:, :-1]
    features = {
        "mean": mean[:, 0],
        "sdnn": np.sqrt(row_sums(np.square(X - mean)) / count)[:, 0],
        "rmssd": np.sqrt(row_sums(np.square(steps)) / max(count - 1, 1))[:, 0],
    }
    changes = {f"{name}_change": np.ones(len(X)) for name in features}
    for person in np.unique(windows.subject):
        hers = windows.subject == person
        for name, values in features.items():
            usual = np.median(values[hers])
            changes[f"{name}_change"][hers] = values[hers] / max(usual, 1e-9)
    return {**features, **changes, "stressed": y, "person": windows.subject}


def subject_splits(
    subjects: ArrayLike, *, n_splits: int = 5, random_state: Seed = None
) -> Iterator[tuple[Integers, Integers]]:
    """Training and test rows such that no person is on both sides.

    Parameters
    ----------
    subjects : array-like of shape (N,)
        Person of each row.
    n_splits : int
        Number of splits; every person is in the test rows of exactly one. With as many splits
        as people, one person is left out at a time.
    random_state : int, Generator or None
        For the order of the people.

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
    if np.unique(windows.subject).size > 1:
        raise ValueError(
            "`labelled_part` splits the rows of one person; take them with windows.of(name)."
        )
    if not 0 < part < 1:
        raise ValueError("`part` must lie between 0 and 1.")
    if how not in ("time", "random"):
        raise ValueError('`how` must be "time" or "random".')
    count = len(windows)
    first = round(part * count)
    labelled = np.zeros(count, dtype=bool)
    if how == "random":
        labelled[np.random.default_rng(random_state).permutation(count)[:first]] = True
        return labelled, ~labelled
    order = np.argsort(windows.position, kind="stable")
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


def make_recordings(
    n_subjects: int = 6,
    *,
    minutes: float = 24.0,
    episode: float = 4.0,
    effect: float = 0.08,
    artefacts: float = 0.002,
    random_state: Seed = None,
) -> list[Recording]:
    """Simulate recordings of people who rest and work in turns.

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

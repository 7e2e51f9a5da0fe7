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

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

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

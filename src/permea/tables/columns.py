"""Kinds of columns: how the values of one are read, encoded and decoded by public knowledge alone.

Reading turns values into *positions*: the number itself, the place of a category in its declared
list, the day of a date; NaN where a value is missing. Encoding turns a position into weights of
norm at most 1. Both use only comparisons, table lookups and ``+ - * /`` entry by entry, so what a
value becomes never depends on other rows, to the last bit.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import date, datetime
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from permea._arrays import Array

Values = NDArray[Any]
DEFAULT_BINS = 8
MOST_BINS = 1000
_DECIMAL = re.compile(r"[+-]?\d+(\.\d*)?").fullmatch
_UNKNOWN = -math.inf  # position of a value that cannot be read
MISSING = ("", "?", ".", "NA", "N/A", "<NA>", "NaN", "null", "None")

MISSING_NOT_DECLARED = "missing values (declare missing = true, or fill them in)"
NOT_A_NUMBER = "values that are not numbers"
NOT_DECLARED = "values outside of the declared list (add them, or declare other = true)"
NOT_YES_OR_NO = "values that are neither of the declared words for yes and no"
NOT_A_DATE = "values that are not dates in the declared format"


def _is_nothing(value: object) -> bool:
    """Whether a value is None, NaN, NA or NaT."""
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


class Blanks:
    """Texts, and the numbers that they write, which stand for a missing value."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        self.texts = frozenset(word.strip().casefold() for word in words)
        numbers = (_as_float(word) for word in self.texts)
        self.numbers = frozenset(number for number in numbers if math.isfinite(number))

    def cover(self, value: object) -> bool:
        """Whether a single value is missing: None, NaN, NA, NaT, or one of these."""
        if isinstance(value, str):
            return value.strip().casefold() in self.texts or _as_float(value) in self.numbers
        return _is_nothing(value) or _as_float(value) in self.numbers


@dataclass(frozen=True)
class Column:
    """What is known about a column before any row is seen."""

    missing: bool = field(default=False, kw_only=True)
    unknown: Literal["error", "missing"] = field(default="error", kw_only=True, repr=False)
    kind: ClassVar[str]
    problem: ClassVar[str]

    def _check_missing(self) -> None:
        """What is declared about values that are missing or cannot be read."""
        _require_flags(missing=self.missing)
        _require(self.unknown in ("error", "missing"), 'unknown must be "error" or "missing"')
        _require(
            self.missing or self.unknown == "error", 'unknown = "missing" needs missing = true'
        )

    def read(self, values: Values, blanks: Blanks) -> tuple[Array, list[str]]:
        """Positions of values, NaN where missing, and kinds of problems that were found."""
        positions = self._positions(values, blanks)
        if self.unknown == "missing":
            positions = np.where(positions == _UNKNOWN, math.nan, positions)
        missing = np.isnan(positions)
        problems = []
        if np.any(positions == _UNKNOWN):
            problems.append(self.problem)
        if not self.missing and missing.any():
            problems.append(MISSING_NOT_DECLARED)
        return positions, problems

    def encode(self, positions: Array, out: Array, bins: int) -> None:
        """Write weights into an array of zeros with `width` columns."""
        known = np.flatnonzero(~np.isnan(positions))
        if self.missing:
            out[np.isnan(positions), -1] = 1.0
        self._encode_known(positions[known], known, out, bins)

    def decode(self, weights: Array, bins: int) -> Values:
        """Values that weights stand for; NaN among real numbers, else None, where missing."""
        weights = np.maximum(weights, 0.0)
        values, likely = self._decode_known(weights[:, : self.n_entries(bins)], bins)
        if self.missing and values.dtype.kind == "f":
            values[weights[:, -1] > likely] = math.nan
        elif self.missing:
            values = values.astype(object)
            values[weights[:, -1] > likely] = None
        return values

    def width(self, bins: int) -> int:
        """Number of features."""
        return self.n_entries(bins) + self.missing

    def n_entries(self, bins: int) -> int:
        """Number of features without the one for missing values."""
        raise NotImplementedError

    def entry_names(self, bins: int) -> list[str]:
        """What is written behind the column's name, for each feature but the missing one."""
        raise NotImplementedError

    def _positions(self, values: Values, blanks: Blanks) -> Array:
        raise NotImplementedError

    def _encode_known(self, positions: Array, rows: Values, out: Array, bins: int) -> None:
        raise NotImplementedError

    def _decode_known(self, weights: Array, bins: int) -> tuple[Values, Array]:
        raise NotImplementedError


@dataclass(frozen=True)
class Number(Column):
    """A number in a range.

    Parameters
    ----------
    low, high : float
        The range, from public knowledge and never from the data. Values outside of it are moved
        to its ends.
    whole : bool, default=False
        Whether the numbers are whole.
    scale : {"linear", "log"}, default="linear"
        How the bins are spaced. "log" serves columns with a long tail: the spacing grows in
        proportion to ``value``, or to ``value - low + resolution`` (or 1 if there is none) when
        the range does not begin above 0.
    bins : int or None, default=None
        Number of points of the grid; None leaves it to the encoder.
    edges : sequence of float or None, default=None
        The grid itself, in place of ``scale`` and ``bins``.
    resolution : float or None, default=None
        Step to which the numbers are known; decoded values are multiples of it.
    missing : bool, default=False
        Whether values may be missing.
    unknown : {"error", "missing"}, default="error"
        What becomes of a value that cannot be read; "missing" needs ``missing=True``.

    Examples
    --------
    >>> Number(0, 120, whole=True, bins=5).grid()
    array([  0.,  30.,  60.,  90., 120.])
    >>> Number(1, 1000, scale="log", bins=4).grid().round(9)
    array([   1.,   10.,  100., 1000.])
    """

    low: float
    high: float
    _: KW_ONLY
    whole: bool = False
    scale: Literal["linear", "log"] = "linear"
    bins: int | None = None
    edges: tuple[float, ...] | None = None
    resolution: float | None = None
    kind: ClassVar[str] = "number"
    problem: ClassVar[str] = NOT_A_NUMBER

    def __post_init__(self) -> None:
        low, high, step = self.low, self.high, self.resolution
        _require(_is_number(low) and _is_number(high), "low and high must be numbers")
        _require(low < high, "low must be below high")
        _require(math.isfinite(float(high) - float(low)), "the range is too wide")
        _require(self.scale in ("linear", "log"), 'scale must be "linear" or "log"')
        _require_flags(whole=self.whole)
        self._check_missing()
        require_bins(self.bins)
        if self.whole:
            _require(
                float(low).is_integer() and float(high).is_integer(),
                "a whole column has whole limits",
            )
        if step is not None:
            _require(_is_number(step) and step > 0, "resolution must be above 0")
            _require(
                max(abs(low), abs(high)) / step < 2**53, "resolution is too fine for the range"
            )
            _require(step <= high - low, "resolution must not be wider than the range")
        if self.edges is not None:
            _require(
                isinstance(self.edges, Iterable) and all(map(_is_number, self.edges)),
                "edges must be a list of numbers",
            )
            edges = tuple(float(edge) for edge in self.edges)
            inside = len(edges) >= 2 and self.low <= edges[0] and edges[-1] <= self.high
            rising = all(a < b for a, b in pairwise(edges))
            _require(inside and rising, "edges must be two or more rising numbers in the range")
            object.__setattr__(self, "edges", edges)

    def grid(self, bins: int = DEFAULT_BINS) -> Array:
        """Points between which numbers are interpolated, in rising order."""
        if self.edges is not None:
            return np.array(self.edges)
        low, width = float(self.low), float(self.high) - float(self.low)
        step = 1.0 if self.whole else self.resolution
        count = self.bins or bins
        if step is not None:  # more points than values serve nobody
            count = max(2, min(count, math.floor(width / step + 1e-9) + 1))
        shares = [k / (count - 1) for k in range(count)]
        if self.scale == "log":
            start = low if low > 0 else self.resolution or 1.0
            ratio = min(width / start, 1e12)  # twelve decades
            shares = [math.expm1(share * math.log1p(ratio)) / ratio for share in shares]
        inner = {low + share * width for share in shares[1:-1]} - {low, float(self.high)}
        return np.array([low, *sorted(inner), float(self.high)])

    def n_entries(self, bins: int) -> int:
        """Number of points of the grid."""
        return len(self.grid(bins))

    def entry_names(self, bins: int) -> list[str]:
        """The points of the grid."""
        short = [f"@{point:g}" for point in self.grid(bins)]
        if len(set(short)) == len(short):
            return short
        return [f"@{point!r}" for point in self.grid(bins).tolist()]

    def round(self, numbers: Array) -> Array:
        """Numbers as the column would hold them: on its resolution and in its range."""
        step = 1.0 if self.whole else self.resolution
        if step is not None and math.isclose(round(1 / step) * step, 1.0):
            numbers = np.rint(numbers * round(1 / step)) / round(1 / step)  # 3 / 10, not 3 * 0.1
        elif step is not None:
            numbers = np.rint(numbers / step) * step
        return np.clip(numbers, self.low, self.high)

    def _positions(self, values: Values, blanks: Blanks) -> Array:
        return as_numbers(values, blanks)

    def _encode_known(self, positions: Array, rows: Values, out: Array, bins: int) -> None:
        grid = self.grid(bins)
        x = np.clip(positions, grid[0], grid[-1])
        left = np.clip(np.searchsorted(grid, x, side="right") - 1, 0, len(grid) - 2)
        share = (x - grid[left]) / (grid[left + 1] - grid[left])
        out[rows, left] = 1.0 - share
        out[rows, left + 1] = share

    def _decode_known(self, weights: Array, bins: int) -> tuple[Values, Array]:
        grid = self.grid(bins)
        total = weights.sum(axis=1)
        shares = np.where(total[:, None] > 0, weights, 1.0)  # nothing known: the mean of the grid
        numbers = (shares * grid).sum(axis=1) / shares.sum(axis=1)
        numbers = self.round(numbers)
        return numbers.astype(np.int64) if self._fits_integers() else numbers, total

    def _fits_integers(self) -> bool:
        return self.whole and max(abs(self.low), abs(self.high)) < 2**53  # exact in doubles


@dataclass(frozen=True)
class Choice(Column):
    """A column with a declared list of values: one feature for each."""

    @property
    def names(self) -> tuple[str, ...]:
        """The values, as they are decoded and as class labels."""
        raise NotImplementedError

    def n_entries(self, bins: int) -> int:
        """Number of values."""
        return len(self.names)

    def entry_names(self, bins: int) -> list[str]:
        """The values."""
        return [f"={name}" for name in self.names]

    def _lookup(self, blanks: Blanks) -> "_Lookup":
        raise NotImplementedError

    def _positions(self, values: Values, blanks: Blanks) -> Array:
        lookup = self._lookup(blanks)
        if values.dtype.kind in "biuf" and len(values):
            distinct, which = np.unique(values, return_inverse=True)
            return lookup.read(distinct)[which]
        return lookup.read(values)

    def _encode_known(self, positions: Array, rows: Values, out: Array, bins: int) -> None:
        out[rows, positions.astype(np.int64)] = 1.0

    def _decode_known(self, weights: Array, bins: int) -> tuple[Values, Array]:
        return np.array(self.names, dtype=object)[weights.argmax(axis=1)], weights.max(axis=1)


@dataclass(frozen=True)
class Category(Choice):
    """One of some declared values.

    Parameters
    ----------
    values : sequence of str
        The values. Blanks around them do not count; numbers match however they are written, so
        1, 1.0 and "1" are the same.
    other : bool, default=False
        Whether any other value is allowed and becomes "other". Without it such a value is an error.
    missing : bool, default=False
        Whether values may be missing.
    unknown : {"error", "missing"}, default="error"
        What becomes of a value that cannot be read; "missing" needs ``missing=True``.

    Examples
    --------
    >>> Category(["never", "former", "current"], other=True).names
    ('never', 'former', 'current', 'other')
    """

    values: tuple[str, ...]
    _: KW_ONLY
    other: bool = False
    kind: ClassVar[str] = "category"
    problem: ClassVar[str] = NOT_DECLARED

    def __post_init__(self) -> None:
        _require(
            isinstance(self.values, Iterable) and not isinstance(self.values, str | bytes),
            "values must be a list",
        )
        values = tuple(as_text(value) for value in self.values)
        _require(len(values) > 0, "values must not be empty")
        _require(len(set(values)) == len(values), "values must differ from each other")
        _require_flags(other=self.other)
        self._check_missing()
        _require(not (self.other and "other" in values), '"other" is among the values: remove it')
        object.__setattr__(self, "values", values)

    @property
    def names(self) -> tuple[str, ...]:
        """The values, with "other" last if it is declared."""
        return (*self.values, "other") if self.other else self.values

    def _lookup(self, blanks: Blanks) -> "_Lookup":
        places = {value: float(place) for place, value in enumerate(self.values)}
        return _Lookup(places, blanks, float(len(places)) if self.other else _UNKNOWN)


@dataclass(frozen=True)
class YesNo(Choice):
    """Yes or no.

    Parameters
    ----------
    yes, no : sequence of str
        Words for each, in any case. Decoded values and class labels are the first of them.
    missing : bool, default=False
        Whether values may be missing.
    unknown : {"error", "missing"}, default="error"
        What becomes of a value that cannot be read; "missing" needs ``missing=True``.

    Examples
    --------
    >>> YesNo(yes=["died"], no=["alive"]).names
    ('alive', 'died')
    """

    _: KW_ONLY
    yes: tuple[str, ...] = ("yes", "y", "true", "1")
    no: tuple[str, ...] = ("no", "n", "false", "0")
    kind: ClassVar[str] = "yesno"
    problem: ClassVar[str] = NOT_YES_OR_NO

    def __post_init__(self) -> None:
        for name in ("yes", "no"):
            words = getattr(self, name)
            words = (words,) if isinstance(words, str) else words
            _require(isinstance(words, Iterable), f"{name} must be a list of words")
            object.__setattr__(self, name, tuple(as_text(word) for word in words))
        _require(bool(self.yes) and bool(self.no), "yes and no need a word each")
        both = {word.casefold() for word in self.yes} & {word.casefold() for word in self.no}
        _require(not both, "a word must not stand for both yes and no")
        self._check_missing()

    @property
    def names(self) -> tuple[str, ...]:
        """The first word for no and the first word for yes."""
        return (self.no[0], self.yes[0])

    def _lookup(self, blanks: Blanks) -> "_Lookup":
        places = {**dict.fromkeys(self.no, 0.0), **dict.fromkeys(self.yes, 1.0)}
        return _Lookup(places, blanks, _UNKNOWN, fold=True)


@dataclass(frozen=True)
class Date(Column):
    """A day, from ``first`` to ``last``.

    Parameters
    ----------
    first, last : datetime.date or str
        The range; as text in the form 2024-12-31. Dates outside of it are moved to its ends.
    format : str, default="%Y-%m-%d"
        How dates are written as text, in the codes of `datetime.datetime.strptime`. Text in
        another form is an error, never a guess.
    bins : int or None, default=None
        Number of points of the grid; None leaves it to the encoder.
    missing : bool, default=False
        Whether values may be missing.
    unknown : {"error", "missing"}, default="error"
        What becomes of a value that cannot be read; "missing" needs ``missing=True``.

    Examples
    --------
    >>> Date("2020-01-01", "2024-12-31", format="%d/%m/%Y", bins=3).entry_names(8)
    ['@2020-01-01', '@2022-07-02', '@2024-12-31']
    """

    first: date
    last: date
    _: KW_ONLY
    format: str = "%Y-%m-%d"
    bins: int | None = None
    kind: ClassVar[str] = "date"
    problem: ClassVar[str] = NOT_A_DATE

    def __post_init__(self) -> None:
        for name in ("first", "last"):
            object.__setattr__(self, name, _day(getattr(self, name)))
        _require(self.first < self.last, "first must be before last")
        _require(self.first.year >= 1000, "first must not be before the year 1000")
        _require(isinstance(self.format, str) and len(self.format) < 100, "format must be text")
        self._check_missing()
        try:
            datetime.strptime(self.first.strftime(self.format), self.format)
        except ValueError:
            raise ValueError("format cannot be read; an example is %d/%m/%Y") from None
        require_bins(self.bins)

    @property
    def days(self) -> Number:
        """The same range as a number of days, counted from the first day of year 1."""
        return Number(self.first.toordinal(), self.last.toordinal(), whole=True, bins=self.bins)

    def n_entries(self, bins: int) -> int:
        """Number of points of the grid."""
        return self.days.n_entries(bins)

    def entry_names(self, bins: int) -> list[str]:
        """The points of the grid, as days."""
        return [f"@{date.fromordinal(int(point))}" for point in self.days.grid(bins)]

    def _positions(self, values: Values, blanks: Blanks) -> Array:
        if values.dtype.kind == "M":
            days = values.astype("datetime64[D]")
            numbers = days.astype(np.int64) + float(date(1970, 1, 1).toordinal())
            return np.where(np.isnat(days), np.nan, numbers)
        return _Days(self.format, blanks).read(values)

    def _encode_known(self, positions: Array, rows: Values, out: Array, bins: int) -> None:
        self.days._encode_known(positions, rows, out, bins)

    def _decode_known(self, weights: Array, bins: int) -> tuple[Values, Array]:
        days, total = self.days._decode_known(weights, bins)
        text = [date.fromordinal(day).strftime(self.format) for day in days.tolist()]
        return np.array(text, dtype=object), total


KINDS: Mapping[str, type[Column]] = {kind.kind: kind for kind in (Number, Category, YesNo, Date)}


def as_text(value: object) -> str:
    """Text of a category or an identifier: composed, without blanks around it; 2.0 is 2.

    Examples
    --------
    >>> as_text(" male "), as_text(2.0), as_text(7)
    ('male', '2', '7')
    """
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value).strip()
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    return str(value)


def person_text(value: object) -> str | None:
    """Text of a person's identifier: 7, 7.0, "7.0" and " 7" are the same person.

    None for what identifies nobody: lists and other things without a fixed value, and floats that
    stand for several whole numbers, because their last digits are lost.

    Examples
    --------
    >>> person_text(" 7.0"), person_text(7.0), person_text(2**53), person_text(2.0**53)
    ('7', '7', '9007199254740992', None)
    """
    inexact = isinstance(value, float | np.floating) and not abs(float(value)) < 2**53
    if inexact or getattr(value, "__hash__", None) is None:
        return None
    text = as_text(value)  # without the ".0" that other programs append to whole numbers
    return text[:-2] if text.endswith(".0") and text[:-2].isdecimal() else text


def as_numbers(values: Values, blanks: Blanks) -> Array:
    """Numbers of a column: NaN where missing or infinite, `_UNKNOWN` where there is no number."""
    kind = values.dtype.kind
    if kind in "mM":
        return np.full(len(values), _UNKNOWN)
    try:  # what `float` makes of every value
        if kind in "biuf":
            numbers = values.astype(np.float64)
        else:
            numbers = np.fromiter(map(float, values.tolist()), np.float64, len(values))
        numbers[~np.isfinite(numbers)] = math.nan
    except (TypeError, ValueError, OverflowError):
        numbers = np.array([_as_float(value) for value in values.tolist()], dtype=np.float64)
        unread = np.flatnonzero(numbers == _UNKNOWN)
        numbers[[place for place in unread if blanks.cover(values[place])]] = math.nan
    if blanks.numbers:
        numbers[np.isin(numbers, list(blanks.numbers))] = math.nan
    return numbers


def _as_float(value: Any) -> float:
    """A number, infinite as NaN; `_UNKNOWN` where there is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return _UNKNOWN
    return number if math.isfinite(number) else math.nan


class _Reader(dict[str, float]):
    """Positions of single values. Those of texts are kept, since texts recur."""

    def read(self, values: Values) -> Array:
        """Positions of many values."""
        listed = values.tolist()
        if set(map(type, listed)) == {str}:
            return np.fromiter(map(self.__getitem__, listed), np.float64, len(listed))
        found = [self[value] if type(value) is str else self.find(value) for value in listed]
        return np.array(found, dtype=np.float64)

    def __missing__(self, text: str) -> float:
        self[text] = self.find(text)
        return self[text]

    def find(self, value: Any) -> float:
        raise NotImplementedError


class _Lookup(_Reader):
    """Places of values in a declared list: by their text, else by the number that they are."""

    def __init__(
        self, places: Mapping[str, float], blanks: Blanks, unknown: float, fold: bool = False
    ) -> None:
        super().__init__()
        self._blanks, self._unknown, self._fold = blanks, unknown, fold
        self._places = {word.casefold() if fold else word: at for word, at in places.items()}
        self._numbers = {
            float(word): at for word, at in reversed(self._places.items()) if _DECIMAL(word)
        }

    def find(self, value: Any) -> float:
        value = value.item() if isinstance(value, np.generic) else value
        text = as_text(value)
        place = self._places.get(text.casefold() if self._fold else text)
        if place is None and (not isinstance(value, str) or _DECIMAL(text)):
            place = self._numbers.get(_as_float(value))
        if place is None or _is_nothing(value):
            return math.nan if self._blanks.cover(value) else self._unknown
        return place


class _Days(_Reader):
    """Days of dates, counted from the first day of year 1."""

    def __init__(self, form: str, blanks: Blanks) -> None:
        super().__init__()
        self._form, self._blanks = form, blanks

    def find(self, value: Any) -> float:
        if isinstance(value, np.datetime64):
            value = value.astype("datetime64[D]").item()
        if self._blanks.cover(value):
            return math.nan
        if isinstance(value, date):  # a datetime or a Timestamp too
            return float(value.toordinal())
        try:
            return float(datetime.strptime(value.strip(), self._form).toordinal())
        except (AttributeError, OverflowError, TypeError, ValueError):
            return _UNKNOWN


def _day(value: object) -> date:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return datetime.strptime(str(value), "%Y-%m-%d").date()
    except ValueError:
        raise ValueError("first and last must be dates such as 2024-12-31") from None


def _is_number(value: object) -> bool:
    is_number = isinstance(value, int | float | np.integer | np.floating)
    return is_number and not isinstance(value, bool) and math.isfinite(_as_float(value))


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def require_bins(bins: Any) -> None:
    """Raise an error if a number of bins cannot be one."""
    whole = isinstance(bins, int | np.integer) and not isinstance(bins, bool)
    in_range = bins is None or (whole and 2 <= bins <= MOST_BINS)
    _require(in_range, f"bins must be a whole number from 2 to {MOST_BINS}")


def _require_flags(**flags: object) -> None:
    for name, value in flags.items():
        _require(isinstance(value, bool), f"{name} must be true or false")

"""What is promised, about what: ε, δ, the unit they speak of, and the public domain of the data."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea.privacy.noise import GAUSSIAN_LAWS, MECHANISMS, ClassicalGaussianNoise

Columns = float | tuple[float, ...]
Unit = Literal["entry", "record", "person"]
Sampler = Literal["grid", "float"]

UNITS: dict[str, str] = {
    "entry": "one entry of the data matrix changes by at most the bound",
    "record": "one whole row is replaced by any other row of the domain",
    "person": "all rows of one person are replaced by any other rows, any number of them",
}
SAMPLERS = ("grid", "float")
_NARROWEST = 1e-150  # of a column's domain: its square is still a normal number


@dataclass(frozen=True, kw_only=True, repr=False)
class Privacy:
    """A differential-privacy promise: (ε,δ) *per unit*, for data in a declared public domain.

    Two data sets are neighbours when they differ in one ``unit``. A release ``M`` keeps the promise
    when ``P(M(Y) in S) <= exp(ε) P(M(Y') in S) + δ`` for all neighbours and all sets ``S``
    (002 Def. 2-3, 004 Def. 10-11). Without its unit such a figure means nothing, so the unit is
    part of this object and of everything printed from it.

    Parameters
    ----------
    epsilon : float
        Bound on the privacy loss, positive.
    delta : float, default=0.0
        Probability with which the bound on the loss may fail, in [0, 1). With ``mechanism=
        "optimal"`` it is the probability that an entry is released as it is.
    unit : {"entry", "record", "person"}, default="entry"
        ``"entry"``: one entry changes by at most ``bound`` (the adjacency of the documents).
        ``"record"``: a whole row is replaced by another row of the domain. ``"person"``: all rows
        of a person are replaced, whatever their number; ``groups`` says whose a row is.
    domain : (low, high)
        The public domain of the data, numbers or one number per column. Never read it off the
        data: that would publish their minimum and maximum. Values outside are clipped. Records
        and persons may leave it to a :class:`permea.tables.Schema`.
    bound : float or sequence of float, optional
        The ``d`` of the documents, for ``unit="entry"`` alone; ``high - low`` by default.
    mechanism : {"optimal", "gaussian", "classical-gaussian", "staircase"}, default="optimal"
        ``"optimal"``: Laplace with a point mass δ at zero (002 Result 4); for records it is scaled
        to the L1 diameter of a row. ``"gaussian"``: analytic Gaussian, for records scaled to the L2
        diameter; needs δ > 0. ``"classical-gaussian"``: the wider Gaussian of 002 Result 6, to
        compare with; entries and ε < 1 only. ``"staircase"``: least expected magnitude at δ = 0,
        entries only.
        Other laws: ``permea.privacy.noise.MECHANISMS``.
    clip_norm : float, optional
        For records and persons: rows are shrunk to this public norm (L1 for ``"optimal"``, L2 for
        ``"gaussian"``) around the point of the domain nearest to zero; less noise is needed.
    resolution : int, optional
        Public grid: steps per ``bound`` (per width of the domain for records, per ``clip_norm``
        when given). The default is fine enough to leave no trace in the accuracy.
    sampler : {"grid", "float"}, default="grid"
        ``"float"`` adds floating-point noise, whose least significant bits are known to leak; the
        certificate says so.
    rows_per_person : int, optional
        The most rows that a person has, declared and not counted. Noise on rows with
        ``unit="person"`` needs it; with the other units, it lets a ledger per person be charged.

    Examples
    --------
    >>> Privacy(epsilon=1.0, delta=1e-5, domain=(0, 1))
    Privacy(epsilon=1.0 per entry, delta=1e-05 per entry, domain=(0.0, 1.0), mechanism='optimal')
    >>> Privacy(epsilon=1.0)
    Traceback (most recent call last):
        ...
    ValueError: domain is missing. Declare the public range of the data, e.g. domain=(0, 1) for
    pixels, or domain=(lows, highs) with one number per column. Take it from what the data mean (a
    sensor's range, a scale's ends), not from the data themselves: their minimum and maximum are
    private.
    """

    epsilon: float
    delta: float = 0.0
    unit: Unit = "entry"
    domain: tuple[Columns, Columns] | None = None
    bound: Columns | None = None
    mechanism: str = "optimal"
    clip_norm: float | None = None
    resolution: int | None = None
    sampler: Sampler = "grid"
    rows_per_person: int | None = None

    def __post_init__(self) -> None:
        self._set("epsilon", _number("epsilon", self.epsilon))
        self._set("delta", _number("delta", self.delta))
        if self.epsilon <= 0:
            raise ValueError(
                f"epsilon must be positive, got {self.epsilon:g} per {self.unit}. Smaller means "
                "more private; common choices lie between 0.1 and 10."
            )
        if not 0 <= self.delta < 1:
            raise ValueError(
                f"delta must lie in [0, 1), got {self.delta:g} per {self.unit}. It is the "
                "probability of failure: choose it well below one over the number of units, or 0."
            )
        _choice("unit", self.unit, tuple(UNITS))
        _choice("mechanism", self.mechanism, tuple(MECHANISMS))
        _choice("sampler", self.sampler, SAMPLERS)
        if self.domain is not None or self.unit == "entry":
            self._validate_domain()
        self._validate_bound()
        self._validate_mechanism()
        self._validate_grid()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _declared(self) -> tuple[Columns, Columns]:
        """The domain, where one is needed."""
        if self.domain is None:
            raise ValueError(
                "domain is missing. Declare the public range of the data, e.g. domain=(0, 1) for "
                "pixels, or domain=(lows, highs) with one number per column. Take it from what the "
                "data mean (a sensor's range, a scale's ends), not from the data themselves: their "
                "minimum and maximum are private."
            )
        return self.domain

    def _validate_domain(self) -> None:
        declared = self._declared()
        try:
            low, high = declared
        except (TypeError, ValueError):
            raise ValueError("domain must be a pair (low, high), e.g. domain=(0, 1).") from None
        low, high = _columns("domain low", low), _columns("domain high", high)
        try:
            ordered = bool(np.all(np.asarray(low) < np.asarray(high)))
        except ValueError:
            raise ValueError(
                "domain low and high have different lengths; give one number each, or one per "
                "column in both."
            ) from None
        if not ordered:
            raise ValueError(
                "domain needs low < high in every column. A column with a single possible value "
                "carries no information: drop it before the release."
            )
        if np.any(np.asarray(high) - np.asarray(low) < _NARROWEST):
            raise ValueError(
                f"domain is narrower than {_NARROWEST:g} in a column: values divided by its width "
                "would overflow. Declare the column in another unit."
            )
        self._set("domain", (low, high))

    def _validate_bound(self) -> None:
        if self.bound is None:
            return
        if self.unit != "entry":
            raise ValueError(
                "bound belongs to unit='entry'. For records and persons a row may become any other "
                "row of the domain; shrink the domain, or give clip_norm, to need less noise."
            )
        self._set("bound", _columns("bound", self.bound))
        bound, width = np.asarray(self.bound), self._width()
        try:
            allowed = bool(np.all((bound > 0) & (bound <= width * (1 + 1e-12))))
        except ValueError:
            raise ValueError("bound and domain have different numbers of columns.") from None
        if not allowed:
            raise ValueError(
                "bound must be positive and at most high - low: inside the domain an entry cannot "
                "change by more. Leave it out to protect every change within the domain."
            )

    def _validate_mechanism(self) -> None:
        if self.mechanism in GAUSSIAN_LAWS and self.delta == 0:
            raise ValueError(
                f"mechanism={self.mechanism!r} needs delta > 0: Gaussian noise bounds the privacy "
                f"loss only with probability 1 - delta. Give delta per {self.unit}, or use "
                "mechanism='optimal'."
            )
        if self.mechanism == ClassicalGaussianNoise.name and (
            self.unit != "entry" or self.epsilon >= 1
        ):
            raise ValueError(
                f"mechanism={self.mechanism!r} is proven for epsilon < 1 per entry and serves "
                "unit='entry' only. Use mechanism='gaussian', which keeps every promise with less "
                "noise."
            )
        pure = self.mechanism not in ("optimal", *GAUSSIAN_LAWS)
        if pure and (self.unit != "entry" or self.delta != 0):
            raise ValueError(
                f"mechanism={self.mechanism!r} is for unit='entry' and delta=0. For records and "
                "persons use 'optimal' or 'gaussian'; with delta > 0 per entry use 'optimal'."
            )

    def _validate_grid(self) -> None:
        if self.clip_norm is not None:
            self._set("clip_norm", _number("clip_norm", self.clip_norm))
            if self.unit == "entry" or self.clip_norm <= 0:
                raise ValueError(
                    "clip_norm is a positive public norm of rows and belongs to unit='record' or "
                    "'person'."
                )
        if self.resolution is not None:
            if isinstance(self.resolution, bool) or int(self.resolution) != self.resolution:
                raise ValueError("resolution is a whole number of grid steps, e.g. 2**20.")
            self._set("resolution", int(self.resolution))
            if not 2 <= self.resolution <= 2**40:
                raise ValueError("resolution must lie between 2 and 2**40 grid steps.")
        if self.rows_per_person is not None:
            if isinstance(self.rows_per_person, bool) or (
                int(self.rows_per_person) != self.rows_per_person or self.rows_per_person < 1
            ):
                raise ValueError("rows_per_person is a whole number of rows, at least 1.")
            self._set("rows_per_person", int(self.rows_per_person))

    def _width(self) -> NDArray[np.float64]:
        low, high = (np.asarray(end, dtype=np.float64) for end in self._declared())
        return np.asarray(high - low)

    @property
    def n_columns(self) -> int | None:
        """Number of columns the declaration speaks of; ``None`` when it holds for any number."""
        lengths = [len(v) for v in (*self._declared(), self.bound) if isinstance(v, tuple)]
        return lengths[0] if lengths else None

    @property
    def steps(self) -> int:
        """Grid steps per bound (entry), per width or per ``clip_norm`` (record, person)."""
        return self.resolution or MECHANISMS[self.mechanism].grid_steps

    def lows(self, p: int) -> NDArray[np.float64]:
        """Lower ends of the domain of ``p`` columns."""
        return self._spread("domain", self._declared()[0], p)

    def highs(self, p: int) -> NDArray[np.float64]:
        """Upper ends of the domain of ``p`` columns."""
        return self._spread("domain", self._declared()[1], p)

    def bounds(self, p: int) -> NDArray[np.float64]:
        """The documents' ``d`` of ``p`` columns: ``bound``, or the width of the domain."""
        width = self.highs(p) - self.lows(p)
        if self.bound is None:
            return width
        return np.minimum(self._spread("bound", self.bound, p), width)

    def _spread(self, name: str, value: Columns, p: int) -> NDArray[np.float64]:
        array = np.asarray(value, dtype=np.float64)
        if array.ndim and array.shape != (p,):
            raise ValueError(
                f"{name} is declared for {array.size} columns, the data have {p}. Give one number "
                "for all columns or one per column."
            )
        return np.broadcast_to(array, (p,)).copy()

    def describe(self) -> str:
        """One line for people; every ε and δ names its unit.

        Examples
        --------
        >>> Privacy(epsilon=2, domain=(0, 1), unit="record").describe()
        'ε = 2 per record, δ = 0 per record'
        >>> Privacy(epsilon=1, delta=1e-6, unit="person").describe()
        'ε = 1 per person, δ = 1e-06 per person'
        """
        return f"ε = {self.epsilon:g} per {self.unit}, δ = {self.delta:g} per {self.unit}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; :meth:`from_dict` gives an equal object back."""
        values = asdict(self)
        if self.rows_per_person is None:  # as before it existed: signatures cover this text
            del values["rows_per_person"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from :meth:`to_dict`, also after a trip through JSON.

        Examples
        --------
        >>> import json
        >>> privacy = Privacy(epsilon=1, domain=([0, 0], [1, 5]))
        >>> Privacy.from_dict(json.loads(json.dumps(privacy.to_dict()))) == privacy
        True
        """
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ValueError(f"Unknown entries of a privacy declaration: {', '.join(unknown)}.")
        return cls(**values)

    def __repr__(self) -> str:
        parts = [
            f"epsilon={self.epsilon!r} per {self.unit}",
            f"delta={self.delta!r} per {self.unit}",
        ]
        if self.domain is not None:
            parts.append(f"domain={_short(self.domain)}")
        if self.bound is not None:
            parts.append(f"bound={_short(self.bound)}")
        parts.append(f"mechanism={self.mechanism!r}")
        for name in ("clip_norm", "resolution", "rows_per_person"):
            if getattr(self, name) is not None:
                parts.append(f"{name}={getattr(self, name)!r}")
        if self.sampler != "grid":
            parts.append(f"sampler={self.sampler!r}")
        return f"Privacy({', '.join(parts)})"


def _number(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}.") from None
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number.")
    return number


def _choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def _columns(name: str, value: ArrayLike) -> Columns:
    """A float, or a tuple of floats with one per column."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number or one number per column.") from None
    if array.ndim > 1 or array.size == 0 or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be a finite number, or one finite number per column.")
    return float(array) if array.ndim == 0 else tuple(float(x) for x in array)


def _short(value: object) -> str:
    """Write long per-column declarations in brief."""
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return "(" + ", ".join(_short(v) for v in value) + ")"
    if isinstance(value, tuple) and len(value) > 6:
        return f"({value[0]!r}, …, {value[-1]!r}: {len(value)} columns)"
    return repr(value)

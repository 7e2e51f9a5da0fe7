"""Charge first: the order of every private release.

1. The shape of the rows, which is public, gives the plan of the noise.
2. The ledger is charged for the plan. Nothing else about the rows was looked at so far.
3. The rows are read. Whatever is wrong with them is told from here on only, because an error that
   depends on them is a release of its own.
4. The noised result leaves, the ledger notes it, and the certificate names the ledger's event.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._arrays import Array, Indices, Integers
from permea.privacy.certificate import NOT_PROTECTED, Certificate
from permea.privacy.composition import Loss, compose, failure, laplace_slack, simple_epsilon
from permea.privacy.gaussian import discrete_gaussian
from permea.privacy.ledger import Ledger
from permea.privacy.ledger_events import Event, Receipt
from permea.privacy.noise import (
    GAUSSIAN_LAWS,
    MECHANISMS,
    ClassicalGaussianNoise,
    GaussianNoise,
    Noise,
    OptimalNoise,
    grid_sigma,
    grid_slack,
)
from permea.privacy.people import check_rows_of_people
from permea.privacy.sampling import CHUNK, BitSource, Process, RandomState, bit_source, this_process
from permea.privacy.units import Privacy

if TYPE_CHECKING:
    from permea.privacy.moments import Moments
    from permea.privacy.scatter import ClassScatter


Read = TypeVar("Read")


class UnreadableRowsError(ValueError):
    """Rows that cannot be used, found out after the charge: what is wrong with them is private."""


class PrivacyWarning(UserWarning):
    """A promise that is kept formally and protects next to nothing.

    Raised with δ of one over the number of rows or more, and with ε above 20 per record.
    """


@dataclass(frozen=True)
class Payment:
    """A release that was charged and is still to be made, once and in this process."""

    ledger: Ledger | None = None
    receipt: Receipt | None = None
    _process: Process = field(default_factory=this_process)
    _uses: list[str] = field(default_factory=list)

    def use(self, stage: str = "rows") -> None:
        """Take the payment: every stage is released once, also with threads and forks."""
        self._uses.append(stage)
        if self._uses.count(stage) > 1 or self._process != this_process():
            raise RuntimeError(
                "This release was paid for once, by one process. Fit again to charge a new one."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("A release that was paid for once cannot be copied.")

    def certify(self, certificate: Certificate) -> Certificate:
        """Note the release in the ledger, name its event on the certificate, and warn."""
        warn_if_worthless(certificate)
        if self.ledger is None or self.receipt is None:
            return certificate
        self.ledger.released(self.receipt)
        receipt = self.receipt
        return replace(
            certificate,
            ledger=self.ledger.summary(receipt.event.dataset),
            ledger_id=receipt.ledger_id,
            ledger_number=receipt.number,
            ledger_hash=receipt.hash,
        )


def pay(
    ledger: Ledger | None,
    event: Callable[[str, str], Event],
    dataset: str | None,
    description: str,
    rows: Any = None,
) -> Payment:
    """Charge a planned release before its rows are read, or raise and charge nothing.

    Parameters
    ----------
    ledger : Ledger or None
        Without one, no account is kept.
    event : callable
        Gives the event for a name of the data set and a description.
    dataset : str or None
        The name that the user gave to the rows; None for rows without a name.
    description : str
        For the ledger.
    rows : any, optional
        The rows, for the fingerprint of rows without a name.
    """
    if ledger is None:
        return Payment()
    name = ledger.name_for(dataset, rows)
    return Payment(ledger, ledger.charge(event(name, description)))


def table_shape(X: Any) -> tuple[int, int]:
    """Number of rows and columns, without a look at any value.

    Examples
    --------
    >>> table_shape([[1.0, float("nan")]])
    (1, 2)
    """
    shape: tuple[int, ...] | None = getattr(X, "shape", None)
    if shape is None:
        try:
            shape = np.shape(X)
        except ValueError:  # rows of different lengths
            shape = ()
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            "The rows must be a table with at least one row and one column, and as many values "
            "in every row; a single column is reshaped by array.reshape(-1, 1)."
        )
    return int(shape[0]), int(shape[1])


def read_after_charge(read: Callable[[], Read]) -> Read:
    """Read private rows by ``read`` after the charge; an error tells its kind and no value.

    Examples
    --------
    >>> read_after_charge(lambda: float("Smith"))
    Traceback (most recent call last):
        ...
    permea.privacy.release.UnreadableRowsError: The rows could not be used...
    """
    try:
        with np.errstate(all="ignore"):  # no warning may depend on a row
            return read()
    except UnreadableRowsError:
        raise
    except Exception:
        raise UnreadableRowsError(
            "The rows could not be used, and where and why is private. Expected are finite "
            "numbers without missing values in every column, features without NaN or infinity, "
            "and for every row one label of the declared classes or a finite number; with a "
            "schema, what it declares (its owner may look with Schema.problems, whose answer is as "
            "private as the rows). Prepare the table by rules that do not depend on its values; "
            "what was charged stays charged."
        ) from None


def warn_if_worthless(certificate: Certificate) -> None:
    """Warn about a promise that is kept formally and protects next to nothing."""
    for text in certificate.warnings:
        warnings.warn(text, PrivacyWarning, stacklevel=3)


_NORM_SLACK = 1e-9  # rounding of a computed norm, far above what doubles lose over a row
_MAX_STEPS = 2**48  # up to here doubles place a value within a small part of a grid step
_MAX_LOSSES = 12  # different columns are grouped into at most this many kinds of loss


#: Kinds of release that can keep a promise about a unit; the first needs the least noise.
RELEASES = {"entry": ("rows",), "record": ("moments", "rows"), "person": ("moments", "rows")}


@dataclass(frozen=True)
class Release:
    """What passed the wall, and everything that is known about it.

    There are two kinds: noised rows (``data``) and noised moments (``moments`` about ``mean``).
    Without a promise the rows pass as they are and there is no certificate.
    """

    data: Array = None  # type: ignore[assignment]  #: noised rows, in a release of rows
    certificate: Certificate = None  # type: ignore[assignment]  #: None where nothing is promised
    moments: "Moments" = None  # type: ignore[assignment]  #: noised sums, in a release of moments
    mean: Array = None  # type: ignore[assignment]  #: the noised mean that they are about
    scatter: "ClassScatter | None" = None  #: noised second moments of each class
    noise_variance: Array | None = None  #: of every column of ``data``; public
    groups: list[list[Indices]] | None = None  #: row numbers of the branches of each class

    @property
    def holds_private_rows(self) -> bool:
        """Whether the private rows, or something computed from them without noise, are in here."""
        return self.certificate is None or bool(self.certificate.void_reasons)

    @property
    def noise_ratio(self) -> float:
        """Standard deviation of the noise over the width of the domain, over all columns.

        Examples
        --------
        >>> X = np.zeros((5, 4))
        >>> round(release(X, Privacy(epsilon=1, domain=(0, 10))).noise_ratio, 4)
        1.4142
        """
        if self.certificate is None or self.noise_variance is None:
            return 0.0
        privacy, p = self.certificate.privacy, self.noise_variance.size
        width = privacy.highs(p) - privacy.lows(p)
        return float(np.sqrt((self.noise_variance / np.square(width)).mean()))

    def add_step(self, text: str) -> "Release":
        """The same with a step of post-processing on its certificate."""
        return self._certified(lambda certificate: certificate.add_step(text))

    def void(self, reason: str) -> "Release":
        """The same with a certificate that promises nothing, and says why."""
        return self._certified(lambda certificate: certificate.void(reason))

    def _certified(self, change: Callable[[Certificate], Certificate]) -> "Release":
        certificate = None if self.certificate is None else change(self.certificate)
        return replace(self, certificate=certificate)


@dataclass(frozen=True)
class PairRelease:
    """Inputs and outputs that passed the wall together (002 Def. 1), with one certificate each."""

    inputs: Release
    outputs: Release


@dataclass(frozen=True)
class Plan:
    """Everything public about a release, fixed before the data are looked at.

    ``grid`` and ``origin`` map column ``j`` to whole steps, ``(x - origin) / grid``; ``ceiling`` is
    the largest step of a column; ``sensitivity`` is what one unit can change, in steps (L1 for
    Laplace and staircase, L2 for Gaussian); ``sigma`` is set for Gaussian noise.
    """

    privacy: Privacy
    noise: Noise
    grid: NDArray[np.float64]
    origin: NDArray[np.float64]
    ceiling: NDArray[np.int64]
    sensitivity: float
    sigma: float | None
    unit_losses: tuple[Loss, ...]
    record_losses: tuple[Loss, ...]

    def sample(self, count: int, source: BitSource) -> Integers:
        """Noise in whole steps."""
        if self.sigma is not None:
            return discrete_gaussian(self.sigma, count, source)
        return self.noise.sample_steps(count, int(self.sensitivity), source)

    def variance(self) -> Array:
        """Variance of the noise of each column.

        Examples
        --------
        >>> plan(Privacy(epsilon=2, domain=(0, 1)), 3).variance().round(4)
        array([0.5, 0.5, 0.5])
        """
        return np.asarray(self.noise.variance() * np.square(self.grid / self.grid.max()))

    def event(self, dataset: str, description: str) -> Event:
        """What a ledger is to write down."""
        privacy = self.privacy
        return Event(
            dataset, description, privacy.unit, privacy.epsilon, privacy.delta, privacy.mechanism,
            self.unit_losses, self.record_losses, person_losses=self.person_losses(),
        )  # fmt: skip

    def person_losses(self) -> tuple[Loss, ...]:
        """What a release per entry or record costs a person: every row has noise of its own."""
        if self.privacy.unit == "person" or self.privacy.rows_per_person is None:
            return ()
        rows = self.privacy.rows_per_person
        return tuple(loss._replace(times=rows * loss.times) for loss in self.record_losses)

    def to_steps(self, rows: NDArray[np.float64]) -> Integers:
        """Clip rows to the domain, shrink them to the norm, and round to whole grid steps.

        Whatever the rounding of the doubles, the result lies between 0 and ``ceiling`` (or within
        the norm), which is all that the proof uses. NaN has no whole number and is refused;
        infinity is clipped like every other value.
        """
        p = self.grid.size
        if np.isnan(rows).any():
            raise ValueError("The data contain NaN, which has no place on the grid.")
        rows = np.clip(rows, self.privacy.lows(p), self.privacy.highs(p))
        scaled = (rows - self.origin) / self.grid
        if self.privacy.clip_norm is None:
            return np.clip(np.rint(scaled).astype(np.int64), 0, self.ceiling)
        order = 2 if self.privacy.mechanism == "gaussian" else 1
        norm = np.linalg.norm(scaled, ord=order, axis=1, keepdims=True)
        scaled *= self.privacy.steps / np.maximum(norm, self.privacy.steps)
        return np.trunc(scaled).astype(np.int64)  # towards the origin: no norm grows


def plan(privacy: Privacy, n_columns: int) -> Plan:
    """Calibrate the noise of a release for rows of ``n_columns`` entries.

    Examples
    --------
    >>> plan(Privacy(epsilon=1, domain=(0, 1)), 3).noise.expected_magnitude()
    1.0
    """
    if privacy.unit == "person" and privacy.rows_per_person is None:
        raise ValueError(
            "rows_per_person is missing. Noise on rows grows with the number of rows of a person: "
            "declare the most that anybody has, e.g. Privacy(…, rows_per_person=10). A release of "
            "moments (MomentClassifier) needs no such number, and less noise."
        )
    make = _plan_entry if privacy.unit == "entry" else _plan_record
    made = make(privacy, n_columns)
    if made.ceiling.max() > _MAX_STEPS:
        raise ValueError(
            "The domain is too wide for its grid: more than 2**48 steps. Use a smaller "
            "`resolution`, a larger `bound` or `clip_norm`, or a narrower domain."
        )
    return made


def _plan_entry(privacy: Privacy, p: int) -> Plan:
    """One entry changes by at most its bound: ``steps`` grid steps in every column."""
    lows, width, bounds = privacy.lows(p), privacy.highs(p) - privacy.lows(p), privacy.bounds(p)
    grid = bounds / privacy.steps
    whole = bounds >= width  # then the ends of the domain are grid points
    ceiling = np.where(whole, privacy.steps, np.ceil(width / grid)).astype(np.int64)
    # Rounding may add one step to a difference, except where the whole domain is the bound.
    sensitivity = privacy.steps + (0 if bool(np.all(whole)) else 1)
    epsilon, delta, sigma = privacy.epsilon, privacy.delta, None
    noise: Noise
    unit: tuple[Loss, ...]
    record: tuple[Loss, ...]
    if privacy.mechanism in GAUSSIAN_LAWS:
        sigma = grid_sigma(epsilon, delta, sensitivity)
        if privacy.mechanism == "gaussian":
            noise = GaussianNoise(epsilon, delta, float(bounds.max()), calibration="analytic")
        else:  # wider than it need be, so that what it really costs is less than (ε,δ)
            noise = ClassicalGaussianNoise(epsilon, delta, float(bounds.max()))
            sigma = max(sigma, noise.sigma / noise.bound * sensitivity)
        unit = (_gaussian_loss(sensitivity / sigma, sigma, 1),)
        row_mu = float(np.linalg.norm(ceiling.astype(np.float64))) / sigma
        record = (_gaussian_loss(row_mu, sigma, p),)
    elif privacy.mechanism == "optimal":
        noise = OptimalNoise(epsilon, delta, float(bounds.max()))
        slack = laplace_slack(epsilon / sensitivity)
        unit = (Loss("laplace", epsilon, 1, delta, slack),)
        record = _grouped("laplace", epsilon * (ceiling / sensitivity), delta, slack)
    else:  # a law with ε per change of the bound, and no more known about it
        noise = MECHANISMS[privacy.mechanism](epsilon, delta, float(bounds.max()))
        unit = (Loss("pure", epsilon),)
        record = _grouped("pure", epsilon * np.ceil(ceiling / sensitivity))
    return Plan(privacy, noise, grid, lows, ceiling, sensitivity, sigma, unit, record)


def _plan_record(privacy: Privacy, p: int) -> Plan:
    """A row is replaced: noise for the diameter of the domain, or of the ball of ``clip_norm``.

    All rows of a person together have √m times the L2 diameter of one, and m times its L1 diameter.
    """
    lows, highs, steps = privacy.lows(p), privacy.highs(p), privacy.steps
    gaussian = privacy.mechanism == "gaussian"
    if privacy.clip_norm is None:
        origin, grid = lows, (highs - lows) / steps
        ceiling = np.full(p, steps, dtype=np.int64)
        diameter = steps * (math.sqrt(p) if gaussian else p)
    else:
        origin = np.clip(0.0, lows, highs)
        grid = np.full(p, privacy.clip_norm / steps)
        ceiling = np.ceil((highs - lows) / grid).astype(np.int64)
        # Two vectors in the positive orthant are at most sqrt(2) norms apart, others two.
        one_sided = bool(np.all((lows >= origin) | (highs <= origin)))
        factor = math.sqrt(2.0) if gaussian and one_sided else 2.0
        ball = factor * steps * (1.0 + _NORM_SLACK)
        box = float(np.linalg.norm(ceiling.astype(np.float64), ord=2 if gaussian else 1))
        diameter = min(ball, box)
    return _calibrate_record(privacy, p, origin, grid, ceiling, diameter)


def _calibrate_record(
    privacy: Privacy,
    p: int,
    origin: NDArray[np.float64],
    grid: NDArray[np.float64],
    ceiling: NDArray[np.int64],
    diameter: float,
) -> Plan:
    epsilon, delta = privacy.epsilon, privacy.delta
    rows = (privacy.rows_per_person or 1) if privacy.unit == "person" else 1
    diameter *= math.sqrt(rows) if privacy.mechanism == "gaussian" else rows
    entries = rows * p
    real = float(diameter * grid.max())
    if privacy.mechanism == "gaussian":
        diameter *= 1.0 + _NORM_SLACK
        sigma = grid_sigma(epsilon, delta, diameter, entries)
        loss = (_gaussian_loss(diameter / sigma, sigma, entries),)
        noise: Noise = GaussianNoise(epsilon, delta, real, calibration="analytic")
        return Plan(privacy, noise, grid, origin, ceiling, diameter, sigma, loss, loss)
    # The point mass is split over the entries of a unit: one of them is bare with at most δ.
    entry_delta = float(Fraction(delta) / entries)
    noise = OptimalNoise(epsilon, entry_delta, real)
    loss = (Loss("pure", epsilon, 1, delta),)
    steps = math.ceil(diameter)
    return Plan(privacy, noise, grid, origin, ceiling, steps, None, loss, loss)


def _gaussian_loss(mu: float, sigma: float, coordinates: int) -> Loss:
    eta, tau = grid_slack(sigma, mu, coordinates)
    return Loss("gaussian", mu, 1, tau, eta)


def _grouped(
    kind: Literal["laplace", "pure"], epsilons: ArrayLike, delta: float = 0.0, slack: float = 0.0
) -> tuple[Loss, ...]:
    """One loss per kind of column; many different columns are rounded up into a few kinds."""
    values = np.asarray(epsilons, dtype=np.float64)
    kinds, counts = np.unique(values, return_counts=True)
    if kinds.size > _MAX_LOSSES:
        edges = np.geomspace(kinds[0], kinds[-1], _MAX_LOSSES)
        edges[-1] = kinds[-1]
        rounded = edges[np.searchsorted(edges, np.minimum(values, kinds[-1]))]
        kinds, counts = np.unique(np.maximum(rounded, values.min()), return_counts=True)
    columns = zip(kinds.tolist(), counts.tolist(), strict=True)
    return tuple(Loss(kind, value, times, delta, slack) for value, times in columns)


def release(
    X: ArrayLike,
    privacy: Privacy,
    *,
    random_state: RandomState = None,
    groups: Any = None,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    n_classes: int | None = None,
    description: str = "release of a data matrix",
) -> Release:
    """Give a private version of ``X``, once, with its certificate.

    004 Algorithm 1 and 001 (1.78) on a grid: ``Y⁺ = Y + V`` with independent noise of the law that
    ``privacy`` asks for, every column in steps of its own declared bound.

    Parameters
    ----------
    X : array of shape (n, p)
        The raw rows. Values outside the declared domain are clipped (how many is private and is not
        told); NaN and infinity are refused.
    privacy : Privacy
        The promise.
    random_state : None, int, RandomState or Generator
        ``None`` draws from a cryptographic generator. Anything else is repeatable, and the
        certificate says "not private: seeded".
    groups : array-like of shape (n,), optional
        Whose each row is, for ``unit="person"``. A person with more rows than
        ``privacy.rows_per_person`` is an error, after the charge.
    ledger : Ledger, optional
        Charged before the values are read; raises when the budget does not allow the release.
        What is wrong with the values is told after the charge, and the charge stays.
    dataset : str, optional
        Name of the data set in the ledger: releases of the same rows add up. Rows without a name
        count against every data set of the ledger.
    n_classes : int, optional
        Number of classes whose labels are kept beside the data, for the certificate.
    description : str
        For the ledger.

    Returns
    -------
    Release
        ``data`` (of the float type of ``X``; float64 for whole numbers) and ``certificate``.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).random((100, 3)).astype(np.float32)
    >>> out = release(X, Privacy(epsilon=1.0, delta=1e-5, domain=(0, 1)))
    >>> out.data.shape, out.data.dtype, out.certificate.is_private
    ((100, 3), dtype('float32'), True)
    """
    paid = charge_rows(
        X, privacy, groups=groups, ledger=ledger, dataset=dataset, description=description
    )
    return paid.release(X, random_state=random_state, n_classes=n_classes)


@dataclass(frozen=True)
class ChargedRows:
    """A release of rows that was planned and charged; the rows are read after that."""

    plan: Plan
    payment: Payment
    groups: Any = None  #: whose each row is

    def release(
        self, X: ArrayLike, *, random_state: RandomState = None, n_classes: int | None = None
    ) -> Release:
        """Noise the rows, once."""
        self.payment.use("rows")
        rows = _check_values(X)
        _check_people(self.plan.privacy, self.groups, len(rows))
        source = bit_source(random_state)
        data = _noised(rows, self.plan, source)
        certificate = _certify(self.plan, rows.shape, source.seeded, n_classes)
        certificate = self.payment.certify(certificate)
        return Release(data, certificate, noise_variance=self.plan.variance())


def charge_rows(
    X: Any,
    privacy: Privacy,
    *,
    groups: Any = None,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    description: str = "release of a data matrix",
) -> ChargedRows:
    """Plan a release of rows from their public shape, and charge the ledger for it."""
    require_groups(privacy, groups)
    work = plan(privacy, table_shape(X)[1])
    return ChargedRows(work, pay(ledger, work.event, dataset, description, X), groups)


def require_groups(privacy: Privacy | None, groups: Any) -> None:
    """Ask whose the rows are before anything is charged, where a person is the unit.

    Examples
    --------
    >>> require_groups(Privacy(epsilon=1, unit="person"), None)
    Traceback (most recent call last):
        ...
    ValueError: groups is missing. With unit='person', say whose each row is: groups=ids, one for
    every row.
    """
    if privacy is not None and privacy.unit == "person" and groups is None:
        raise ValueError(
            "groups is missing. With unit='person', say whose each row is: groups=ids, one for "
            "every row."
        )


def _check_people(privacy: Privacy, groups: Any, n_rows: int) -> None:
    if privacy.unit == "person":
        most = privacy.rows_per_person or 1
        read_after_charge(lambda: check_rows_of_people(groups, n_rows, most))


def release_pair(
    X: ArrayLike,
    Y: ArrayLike,
    inputs: Privacy,
    outputs: Privacy,
    *,
    groups: Any = None,
    random_state: RandomState = None,
    ledger: Ledger | None = None,
    dataset: str | None = None,
) -> PairRelease:
    """Give private versions of inputs and outputs, each with its own bounds (002 Def. 1-3).

    Neighbours differ in one entry of either matrix (Def. 2), so per entry the pair keeps the
    larger ε and δ of the two; about a whole record, a row of both, the two add up. Both promises
    must speak of the same unit.

    Examples
    --------
    >>> import numpy as np
    >>> pair = release_pair(
    ...     np.zeros((4, 2)), np.ones((4, 1)),
    ...     Privacy(epsilon=1, domain=(0, 1)), Privacy(epsilon=2, domain=(0, 10)),
    ... )
    >>> pair.outputs.certificate.record_epsilon
    4.0
    """
    if inputs.unit != outputs.unit:
        raise ValueError("Inputs and outputs must be protected per the same unit.")
    require_groups(inputs, groups)
    shapes = table_shape(X), table_shape(Y)
    if shapes[0][0] != shapes[1][0]:
        raise ValueError("Inputs and outputs must have the same number of rows.")
    plans = plan(inputs, shapes[0][1]), plan(outputs, shapes[1][1])
    record = plans[0].record_losses + plans[1].record_losses

    def event(name: str, description: str) -> Event:
        each = [work.person_losses() for work in plans]
        made = _pair_event(inputs, outputs, record, name, description)
        return replace(made, person_losses=each[0] + each[1] if all(each) else ())

    payment = pay(ledger, event, dataset, "release of (inputs, outputs)", X)
    for privacy in (inputs, outputs):
        _check_people(privacy, groups, shapes[0][0])
    source = bit_source(random_state)
    made = []
    for rows, work in zip((_check_values(X), _check_values(Y)), plans, strict=True):
        certificate = _certify(work, rows.shape, source.seeded, None, record)
        made.append(
            Release(
                _noised(rows, work, source),
                payment.certify(certificate),
                noise_variance=work.variance(),
            )
        )
    return PairRelease(*made)


def _check_values(X: ArrayLike) -> NDArray[Any]:
    """Read the rows, after the charge: the errors say what is wrong, never where or how often."""
    rows = np.asarray(X)
    if rows.dtype.kind not in "fiub":
        raise TypeError(
            "The data must be numbers in every column. Encode or drop other columns first."
        )
    if rows.dtype.kind == "f" and not np.all(np.isfinite(rows)):
        raise ValueError(
            "The data contain NaN or infinity. Replace them by a constant that does not depend on "
            "the data, or drop the rows, before the release."
        )
    return rows


def _pair_event(
    inputs: Privacy, outputs: Privacy, record: tuple[Loss, ...], dataset: str, text: str
) -> Event:
    """Per entry the larger of two promises holds (002 Def. 2), per record they add up."""
    combine = max if inputs.unit == "entry" else sum
    epsilon = float(combine((inputs.epsilon, outputs.epsilon)))
    delta = float(combine((inputs.delta, outputs.delta)))
    names = " and ".join(dict.fromkeys((inputs.mechanism, outputs.mechanism)))
    unit = (Loss("pure", epsilon, 1, delta),)
    return Event(dataset, text, inputs.unit, epsilon, delta, names, unit, record)


def _noised(rows: NDArray[Any], work: Plan, source: BitSource) -> Array:
    """Noise row block by row block; the scratch memory does not grow with the data."""
    dtype = rows.dtype if rows.dtype.kind == "f" else np.dtype(np.float64)
    out = np.empty(rows.shape, dtype=dtype)
    block = max(1, CHUNK // rows.shape[1])
    p = rows.shape[1]
    for start in range(0, rows.shape[0], block):
        part = rows[start : start + block].astype(np.float64)
        if work.privacy.sampler == "float":
            clipped = np.clip(part, work.privacy.lows(p), work.privacy.highs(p))
            out[start : start + block] = _float_noised(clipped, work, source)
            continue
        steps = work.to_steps(part)
        steps += work.sample(steps.size, source).reshape(steps.shape)
        out[start : start + block] = steps * work.grid + work.origin
    return out


def _float_noised(clipped: NDArray[np.float64], work: Plan, source: BitSource) -> Array:
    """The documents' way: inverse transform in doubles. Kept for comparison, marked as weaker."""
    noise = work.noise.sample_floats(clipped.size, source).reshape(clipped.shape)
    if work.privacy.clip_norm is not None:
        clipped = work.to_steps(clipped) * work.grid + work.origin
    return np.asarray(clipped + noise * (work.grid / work.grid.max()))


def _certify(
    work: Plan,
    shape: tuple[int, ...],
    seeded: bool,
    n_classes: int | None,
    record_losses: tuple[Loss, ...] | None = None,
) -> Certificate:
    losses = work.record_losses if record_losses is None else record_losses
    privacy = work.privacy
    spent = compose(losses)
    simple = simple_epsilon(losses), failure(losses)
    if privacy.unit != "entry" and record_losses is None:
        spent, simple = (
            type(spent)(privacy.epsilon, privacy.delta),
            (privacy.epsilon, privacy.delta),
        )
    point_mass = work.noise.delta if isinstance(work.noise, OptimalNoise) else 0.0
    return Certificate(
        privacy=privacy, n_rows=int(shape[0]), n_columns=int(shape[1]),
        noise=_noise_text(work), seeded=seeded,
        exposed_entries=float(shape[0] * shape[1] * point_mass),
        record_epsilon=float(spent.epsilon), record_delta=float(spent.delta),
        simple_record_epsilon=float(simple[0]), simple_record_delta=float(simple[1]),
        n_classes=n_classes, not_protected=NOT_PROTECTED,
        classes="" if n_classes is None else "read from the data",
        neighbours=_person_text(privacy),
    )  # fmt: skip


def _person_text(privacy: Privacy) -> str:
    """How neighbours differ in a release of rows per person; the unit says it for the others."""
    if privacy.unit != "person":
        return ""
    most = privacy.rows_per_person
    return f"all rows of one person, at most {most} as declared, are replaced by as many others"


def _noise_text(work: Plan) -> str:
    magnitude = work.noise.expected_magnitude()
    widest = "" if np.all(work.grid == work.grid[0]) else " in the widest column"
    name = work.noise.description
    if work.privacy.mechanism == "optimal" and work.noise.delta == 0:
        name = "Laplace"
    return f"{name}; expected magnitude {magnitude:.4g}{widest}"

"""The entries of a ledger: budgets, events, balances, receipts, and the names of data sets.

Everything that enters a ledger, from this process, from a database or from an imported file, is
checked here: a negative ε, for instance, would increase the budget.
"""

import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, get_args

from permea.privacy.composition import Loss, Spent, failure, simple_epsilon, tight_epsilon
from permea.privacy.units import UNITS, Unit

UNNAMED_PREFIX = "rows-"
UNNAMED = "rows-unnamed"
"""The name of rows that nobody named and that were not at hand for a fingerprint."""

Status = Literal["planned", "charged", "released"]
Composition = Literal["basic", "tight"]
_LOSSES = {"unit_losses", "record_losses", "person_losses"}
_LOSS_KINDS = ("laplace", "gaussian", "pure")
_CHARGED_FIELDS = (
    "dataset", "description", "unit", "epsilon", "delta", "mechanism", "unit_losses",
    "record_losses",
)  # fmt: skip
_ORDER = tuple(UNITS)  # a promise about a unit holds for those before it
_HIDDEN_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")  # characters that people cannot see


class LedgerError(ValueError):
    """A ledger cannot be used: not a ledger, not reachable, or not as it was declared."""


class TamperedLedgerError(LedgerError):
    """A ledger does not hold what was written to it.

    An event was altered, deleted, reordered or added from outside, or the ledger was replaced by an
    older copy.
    """


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a data set may give away in total, per unit.

    Examples
    --------
    >>> Budget(epsilon=3, delta=1e-5, unit="entry")
    Budget(epsilon=3.0 per entry, delta=1e-05 per entry)
    """

    epsilon: float
    delta: float = 0.0
    unit: Unit = "entry"

    def __post_init__(self) -> None:
        if isinstance(self.epsilon, bool) or isinstance(self.delta, bool):
            raise TypeError("epsilon and delta of a budget are numbers, not truth values.")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0 and 0 <= self.delta < 1):
            raise ValueError(
                f"A budget needs a positive epsilon and a delta in [0, 1), per {self.unit}."
            )
        if self.unit not in get_args(Unit):
            known = ", ".join(map(repr, get_args(Unit)))
            raise ValueError(f"The unit of a budget is one of {known}.")
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))

    def __repr__(self) -> str:
        each = f"per {self.unit}"
        return f"Budget(epsilon={self.epsilon!r} {each}, delta={self.delta!r} {each})"


@dataclass(frozen=True)
class Balance:
    """An (ε,δ) with its unit.

    Examples
    --------
    >>> print(Balance(0.5, 0.0, "entry"))
    ε = 0.5 per entry, δ = 0 per entry
    """

    epsilon: float
    delta: float
    unit: Unit

    def __str__(self) -> str:
        return f"ε = {self.epsilon:.6g} per {self.unit}, δ = {self.delta:.3g} per {self.unit}"


@dataclass(frozen=True, repr=False)
class Event:
    """One release, as it is charged.

    The ledger fills in ``number``, ``time`` (UTC) and ``status``: an event is *charged* before the
    rows are read and *released* after. One that stays charged was paid for, and its release did not
    complete. ``person_losses`` is what a release per entry or record costs a person whose most
    rows were declared; without that, it cannot be charged to a budget per person.
    """

    dataset: str
    description: str
    unit: Unit
    epsilon: float
    delta: float
    mechanism: str
    unit_losses: tuple[Loss, ...]
    record_losses: tuple[Loss, ...]
    number: int = field(default=0, compare=False)
    time: str = field(default="", compare=False)
    status: Status = field(default="planned", compare=False)
    person_losses: tuple[Loss, ...] = ()

    @property
    def is_named(self) -> bool:
        """Whether a user named the rows, which is the claim that other names mean other rows."""
        return not is_unnamed(self.dataset)

    def losses(self, unit: Unit) -> tuple[Loss, ...]:
        """What the event costs per ``unit``; a promise per person holds per record and entry."""
        if unit != "person" or self.unit == "person":
            return self.unit_losses if unit == "entry" else self.record_losses
        if not self.person_losses:
            raise LedgerError(
                f"A release per {self.unit} cannot be charged to a budget per person: how many "
                "rows a person has is not declared. Release it with unit='person', or declare "
                "Privacy(rows_per_person=…)."
            )
        return self.person_losses

    def cost(self, unit: Unit) -> Spent:
        """What the event adds to an account per ``unit`` that adds up ε and δ."""
        if _ORDER.index(self.unit) >= _ORDER.index(unit):
            return Spent(self.epsilon, self.delta)
        return _converted(self.losses(unit), self.delta)

    def to_dict(self) -> dict[str, Any]:
        """Give what was charged, as plain values."""
        values = {name: getattr(self, name) for name in _CHARGED_FIELDS}
        if self.person_losses:  # left out otherwise: the text of older events stays as it was
            values["person_losses"] = self.person_losses
        for name in values.keys() & _LOSSES:
            values[name] = [list(loss) for loss in values[name]]
        return values

    def __str__(self) -> str:
        return (
            f"{shown(self.dataset)}: ε = {self.epsilon:g} per {self.unit}, "
            f"δ = {self.delta:g} per {self.unit}, {self.mechanism} ({self.description})"
        )

    def __repr__(self) -> str:
        return f"<Event {self}, {self.status}>"


@dataclass(frozen=True)
class Receipt:
    """Which event of which ledger paid for a release; a certificate carries it."""

    ledger_id: str
    number: int
    hash: str
    event: Event


@lru_cache(maxsize=4096)
def _converted(losses: tuple[Loss, ...], delta: float) -> Spent:
    """What a promise about a smaller unit costs per record, or per person."""
    if math.isinf(simple_epsilon(losses)):  # Gaussian: take its promise at the entries' δ
        return Spent(tight_epsilon(losses, delta), delta)
    return Spent(simple_epsilon(losses), failure(losses))


def is_unnamed(dataset: str) -> bool:
    """Tell whether a name in a ledger stands for rows that nobody named."""
    return dataset.startswith(UNNAMED_PREFIX)


def shown(dataset: str) -> str:
    """Give a data set's name for people; a fingerprint is not shown.

    Two equal fingerprints would tell that two releases were made of the same rows.

    Examples
    --------
    >>> shown("north"), shown("rows-00112233445566778899aabbccddeeff")
    ('north', 'rows without a name')
    """
    return "rows without a name" if is_unnamed(dataset) else dataset


def clean_name(dataset: object) -> str:
    r"""Give the one spelling of a data set's name that a user chose, or say what is wrong with it.

    Examples
    --------
    >>> clean_name(" ward 7 ")
    'ward 7'
    >>> clean_name("ward\n7")
    Traceback (most recent call last):
        ...
    ValueError: The name of a data set must be text that people can see, without line breaks,
    control characters or invisible characters.
    """
    if not isinstance(dataset, str):
        raise TypeError(
            f"The name of a data set must be a text, got {type(dataset).__name__}. Leave it out if "
            "the rows have no name."
        )
    name = unicodedata.normalize("NFC", dataset).strip()
    if not name:
        raise ValueError(
            "The name of a data set must not be empty. Leave it out if the rows have no name."
        )
    if not _visible(name):
        raise ValueError(
            "The name of a data set must be text that people can see, without line breaks, control "
            "characters or invisible characters."
        )
    if name.startswith(UNNAMED_PREFIX):
        raise ValueError(
            f"The name of a data set must not begin with {UNNAMED_PREFIX!r}: such names stand for "
            "rows that nobody named. Choose another."
        )
    return name


def checked_event(event: Event) -> Event:
    """Give the event with plain values, or say why it cannot be charged."""
    if not isinstance(event, Event):
        raise TypeError(f"An Event can be charged, not a {type(event).__name__}.")
    dataset = event.dataset
    if not (isinstance(dataset, str) and _is_fingerprint(dataset)):
        dataset = clean_name(dataset)
    if event.unit not in UNITS:
        raise ValueError(f"The unit of an event must be one of {', '.join(UNITS)}.")
    for name in ("description", "mechanism"):
        text = getattr(event, name)
        if not isinstance(text, str) or not _visible(text):
            raise ValueError(f"The {name} of an event must be text without control characters.")
    return replace(
        event,
        dataset=dataset,
        epsilon=_amount("epsilon", event.epsilon),
        delta=_amount("delta", event.delta, 1.0),
        unit_losses=tuple(_checked_loss(loss) for loss in event.unit_losses),
        record_losses=tuple(_checked_loss(loss) for loss in event.record_losses),
        person_losses=tuple(_checked_loss(loss) for loss in event.person_losses),
        number=0,
        time="",
        status="planned",
    )


def event_from_dict(values: Mapping[str, Any]) -> Event:
    """Build an event from :meth:`Event.to_dict`, also after a trip through JSON, and check it."""
    needed = set(_CHARGED_FIELDS)
    if not isinstance(values, Mapping) or set(values) - {"person_losses"} != needed:
        raise ValueError(f"An event needs exactly the entries {', '.join(_CHARGED_FIELDS)}.")
    plain = dict(values)
    for name in plain.keys() & _LOSSES:
        if not isinstance(plain[name], Sequence) or isinstance(plain[name], str):
            raise ValueError(f"The {name} of an event must be a list.")
        plain[name] = tuple(plain[name])
    return checked_event(Event(**plain))


def event_to_json(event: Event) -> str:
    """Give the one text that stands for an event: what is stored and hashed."""
    return json.dumps(event.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _is_fingerprint(name: str) -> bool:
    return name == UNNAMED or (
        name.startswith(UNNAMED_PREFIX)
        and len(name) >= len(UNNAMED_PREFIX) + 16
        and set(name[len(UNNAMED_PREFIX) :]) <= set("0123456789abcdef")
    )


def _visible(text: str) -> bool:
    return (text.isascii() and text.isprintable()) or not any(
        unicodedata.category(character) in _HIDDEN_CATEGORIES for character in text
    )


def _amount(name: str, value: object, most: float = math.inf) -> float:
    """A finite number that is not negative: what an event can cost."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"The {name} of an event must be a number.") from None
    if isinstance(value, bool | str) or not (math.isfinite(number) and 0 <= number <= most):
        bound = "finite and not negative" if math.isinf(most) else f"between 0 and {most:g}"
        raise ValueError(f"The {name} of an event must be {bound}, got {number:g}.")
    return number


def _checked_loss(values: Sequence[Any]) -> Loss:
    try:
        kind, value, times, delta, slack = values
    except (TypeError, ValueError):
        raise ValueError("A loss has five entries: kind, value, times, delta, slack.") from None
    if kind not in _LOSS_KINDS:
        raise ValueError(f"The kind of a loss must be one of {', '.join(_LOSS_KINDS)}.")
    if isinstance(times, bool) or not hasattr(times, "__index__") or int(times) < 1:
        raise ValueError("A loss counts a whole number of mechanisms, at least one.")
    return Loss(
        kind, _amount("loss", value), int(times), _amount("delta", delta, 1.0),
        _amount("slack", slack),
    )  # fmt: skip


class Account:
    """What every data set has spent.

    The people in rows that nobody named are not known: their events count against every data set.

    Parameters
    ----------
    budget : Budget or None
    composition : {"basic", "tight"}
    """

    def __init__(self, budget: Budget | None, composition: Composition) -> None:
        self.budget, self.composition = budget, composition
        self.unit: Unit = "entry" if budget is None else budget.unit
        self._events: dict[int, Event] = {}
        self._numbers: dict[str, list[int]] = {UNNAMED: []}  # events of each data set
        self._totals: dict[str, Spent] = {}

    @property
    def events(self) -> tuple[Event, ...]:
        """All charges in their order, each with its present status."""
        return tuple(self._events.values())

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names that users gave."""
        return tuple(name for name in self._numbers if name != UNNAMED)

    def status(self, number: int) -> Status | None:
        """Tell whether a charge was released; None for what is no charge."""
        event = self._events.get(number)
        return None if event is None else event.status

    def charge(self, event: Event) -> None:
        """Enter a charge."""
        name = event.dataset if event.is_named else UNNAMED
        self._numbers.setdefault(name, []).append(event.number)
        self._events[event.number] = event
        self._totals.pop(name, None)

    def release(self, number: int) -> None:
        """Enter that a charge was released."""
        if isinstance(number, bool) or self._events[number].status != "charged":
            raise ValueError("a release without its charge")
        self._events[number] = replace(self._events[number], status="released")

    def spent_on(self, dataset: str, extra: Event | None = None) -> Spent:
        """Give what a data set has spent, together with everything that was released unnamed.

        For rows without a name that is what the most spent data set has spent. ``extra`` is one
        more charge of the same rows.
        """
        if not is_unnamed(dataset):
            return self._composed(dataset, extra)
        each = [self._composed(name, extra) for name in self.datasets or (UNNAMED,)]
        return Spent(max(one.epsilon for one in each), max(one.delta for one in each))

    def remaining(self, spent: Spent) -> Balance:
        """Give what is left of the budget (infinite without one)."""
        if self.budget is None:
            return Balance(math.inf, 1.0, self.unit)
        epsilon, delta = self.budget.epsilon - spent.epsilon, self.budget.delta - spent.delta
        return Balance(max(0.0, epsilon), max(0.0, delta), self.unit)

    def summary(self, dataset: str) -> str:
        """Say in one line what a data set has spent; a fingerprint is not shown."""
        unnamed = len(self._numbers[UNNAMED])
        if is_unnamed(dataset):
            text = "rows without a name, counted against every data set: " + _releases(unnamed)
        else:
            text = f"data set {dataset!r}: " + _releases(len(self._numbers.get(dataset, ())))
            text += f" (and {unnamed} of rows without a name)" if unnamed else ""
        text += f", {Balance(*self.spent_on(dataset), self.unit)} in total"
        return text if self.budget is None else f"{text}, of {budget_text(self.budget)}"

    def __str__(self) -> str:
        spent = self.spent_on(UNNAMED)
        head = f"Ledger ({self.composition} composition): spent {Balance(*spent, self.unit)}"
        if self.budget is not None:
            head += f", remaining {self.remaining(spent)}"
        return "\n".join([head, *(f"  {_line(event)}" for event in self.events)])

    def _composed(self, dataset: str, extra: Event | None) -> Spent:
        """Compose the events of a data set, the unnamed ones and ``extra``."""
        names = dict.fromkeys((dataset, UNNAMED))
        totals = [self._total(name) for name in names]
        if extra is not None:
            totals.append(extra.cost(self.unit))
        basic = _added(totals)
        if self.composition == "basic" or self.budget is None:
            return basic
        events = [event for name in names for event in self._of(name)]
        events += [] if extra is None else [extra]
        losses = [loss for event in events for loss in event.losses(self.unit)]
        if not losses:
            return basic
        delta = max(self.budget.delta, failure(losses))
        tight = tight_epsilon(losses, delta)
        fits = basic.delta <= self.budget.delta and basic.epsilon <= tight
        return basic if fits else Spent(tight, delta)

    def _total(self, name: str) -> Spent:
        """What the events of a data set cost when ε and δ are added up."""
        if name not in self._totals:
            self._totals[name] = _added([event.cost(self.unit) for event in self._of(name)])
        return self._totals[name]

    def _of(self, name: str) -> list[Event]:
        return [self._events[number] for number in self._numbers.get(name, ())]


def _added(costs: list[Spent]) -> Spent:
    epsilon = math.fsum(cost.epsilon for cost in costs)
    return Spent(epsilon, min(1.0, math.fsum(cost.delta for cost in costs)))


def _releases(count: int) -> str:
    return "1 release" if count == 1 else f"{count} releases"


def budget_text(budget: Budget | None) -> str:
    """Write a budget for people."""
    if budget is None:
        return "no budget"
    return f"a budget of {Balance(budget.epsilon, budget.delta, budget.unit)}"


def _line(event: Event) -> str:
    state = "released" if event.status == "released" else "charged, never released"
    return f"{event.number} {event.time[:19]} {event} [{state}]"

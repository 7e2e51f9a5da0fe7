"""What the events of a ledger add up to, for each data set and for the worst of them."""

import math
from dataclasses import replace
from typing import Literal

from permea.privacy.composition import Loss, Spent, failure, tight_epsilon
from permea.privacy.ledger_events import UNNAMED, Balance, Budget, Event, Status, is_unnamed
from permea.privacy.units import Unit

Composition = Literal["basic", "tight"]


class _Group:
    """Events of one data set, with what they cost when ε and δ are added up."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._costs: list[Spent] = []
        self._total: Spent | None = None

    def add(self, event: Event, cost: Spent) -> None:
        self.events.append(event)
        self._costs.append(cost)
        self._total = None

    @property
    def total(self) -> Spent:
        if self._total is None:
            self._total = _added(self._costs)
        return self._total


class Account:
    """Who has spent what, by the rows that were read.

    Rows that nobody named may be anybody's: their events count against every data set.

    Parameters
    ----------
    budget : Budget or None
    composition : {"basic", "tight"}
    """

    def __init__(self, budget: Budget | None, composition: Composition) -> None:
        self.budget, self.composition = budget, composition
        self.unit: Unit = "entry" if budget is None else budget.unit
        self._events: dict[int, Event] = {}
        self._groups: dict[str, _Group] = {}
        self._unnamed = _Group()

    @property
    def events(self) -> tuple[Event, ...]:
        """All charges in their order, each with its present status."""
        return tuple(self._events.values())

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names that users gave."""
        return tuple(self._groups)

    def __len__(self) -> int:
        return len(self._events)

    def count(self, dataset: str) -> int:
        """Number of charges under a name; all unnamed ones together for an unnamed data set."""
        return len(self._group(dataset).events)

    def status(self, number: int) -> Status | None:
        """Tell whether a charge was released; None for what is no charge."""
        event = self._events.get(number)
        return None if event is None else event.status

    def charge(self, event: Event) -> None:
        """Enter a charge."""
        group = self._groups.setdefault(event.dataset, _Group()) if event.is_named else None
        (group or self._unnamed).add(event, event.cost(self.unit))
        self._events[event.number] = event

    def release(self, number: int) -> None:
        """Enter that a charge was released."""
        if isinstance(number, bool) or self._events[number].status != "charged":
            raise ValueError("a release without its charge")
        self._events[number] = replace(self._events[number], status="released")

    def spent_on(self, dataset: str) -> Spent:
        """Give what a data set has spent, together with everything that was released unnamed."""
        if is_unnamed(dataset):
            return self.spent()
        return self._composed(self._group(dataset))

    def spent(self, extra: Event | None = None) -> Spent:
        """Give what the most spent data set has spent; ``extra`` counts against all of them."""
        groups = list(self._groups.values()) or [_Group()]
        each = [self._composed(group, extra) for group in groups]
        return Spent(max(one.epsilon for one in each), max(one.delta for one in each))

    def after(self, event: Event) -> Spent:
        """Give what the worst data set would have spent after one more charge."""
        if event.is_named:
            return self._composed(self._group(event.dataset), event)
        return self.spent(event)

    def remaining(self, spent: Spent) -> Balance:
        """Give what is left of the budget (infinite without one)."""
        if self.budget is None:
            return Balance(math.inf, 1.0, self.unit)
        epsilon, delta = self.budget.epsilon - spent.epsilon, self.budget.delta - spent.delta
        return Balance(max(0.0, epsilon), max(0.0, delta), self.unit)

    def summary(self, dataset: str) -> str:
        """Say in one line what a data set has spent; a fingerprint is not shown."""
        count, unnamed = self.count(dataset), self.count(UNNAMED)
        times = "1 release" if count == 1 else f"{count} releases"
        if is_unnamed(dataset):
            text = f"rows without a name, counted against every data set: {times}"
        else:
            text = f"data set {dataset!r}: {times}"
            text += f" (and {unnamed} of rows without a name)" if unnamed else ""
        text += f", {Balance(*self.spent_on(dataset), self.unit)} in total"
        return text if self.budget is None else f"{text}, of {budget_text(self.budget)}"

    def __str__(self) -> str:
        spent = self.spent()
        head = f"Ledger ({self.composition} composition): spent {Balance(*spent, self.unit)}"
        if self.budget is not None:
            head += f", remaining {self.remaining(spent)}"
        return "\n".join([head, *(f"  {_line(event)}" for event in self.events)])

    def _group(self, dataset: str) -> _Group:
        if is_unnamed(dataset):
            return self._unnamed
        return self._groups.get(dataset) or _Group()

    def _composed(self, group: _Group, extra: Event | None = None) -> Spent:
        """Compose the events of a group, the unnamed ones and ``extra``, in the account's unit."""
        totals = [group.total, self._unnamed.total]
        if extra is not None:
            totals.append(extra.cost(self.unit))
        basic = _added(totals)
        if self.composition == "basic" or self.budget is None:
            return basic
        losses = self._losses(group, extra)
        if not losses:
            return basic
        delta = max(self.budget.delta, failure(losses))
        tight = tight_epsilon(losses, delta)
        fits = basic.delta <= self.budget.delta and basic.epsilon <= tight
        return basic if fits else Spent(tight, delta)

    def _losses(self, group: _Group, extra: Event | None) -> list[Loss]:
        events = [*group.events, *self._unnamed.events, *([] if extra is None else [extra])]
        return [loss for event in events for loss in event.losses(self.unit)]


def _added(costs: list[Spent]) -> Spent:
    epsilon = math.fsum(cost.epsilon for cost in costs)
    return Spent(epsilon, min(1.0, math.fsum(cost.delta for cost in costs)))


def budget_text(budget: Budget | None) -> str:
    """Write a budget for people."""
    if budget is None:
        return "no budget"
    return f"a budget of {Balance(budget.epsilon, budget.delta, budget.unit)}"


def _line(event: Event) -> str:
    state = "released" if event.status == "released" else "charged, never released"
    return f"{event.number} {event.time[:19]} {event} [{state}]"

"""The account of what a data set has given away: append-only, composed, with a budget.

A budget is checked before anything is computed. Releases of the same data set add up; releases of
disjoint data sets, named differently, stand side by side (parallel composition), so the account as
a whole has spent what its most spent data set has.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from permea.privacy.composition import Loss, Spent, failure, simple_epsilon, tight_epsilon
from permea.privacy.units import Privacy, Unit

SCHEMA = 1
_FLOAT_SLACK = 1e-9  # sums of floats may miss a budget by rounding; not by more


class BudgetExceededError(ValueError):
    """Raised before a release that the budget does not allow.

    Nothing was computed or spent.
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
        if not (math.isfinite(self.epsilon) and self.epsilon > 0 and 0 <= self.delta < 1):
            raise ValueError(
                f"A budget needs a positive epsilon and a delta in [0, 1), per {self.unit}."
            )
        if self.unit not in ("entry", "record"):
            raise ValueError("The unit of a budget is 'entry' or 'record'.")
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))

    def __repr__(self) -> str:
        each = f"per {self.unit}"
        return f"Budget(epsilon={self.epsilon!r} {each}, delta={self.delta!r} {each})"


@dataclass(frozen=True)
class Event:
    """One release, as it was charged."""

    dataset: str
    description: str
    unit: Unit
    epsilon: float
    delta: float
    mechanism: str
    unit_losses: tuple[Loss, ...]
    record_losses: tuple[Loss, ...]

    def losses(self, unit: Unit) -> tuple[Loss, ...]:
        """What the event costs per ``unit``; a promise per record holds per entry as well."""
        return self.record_losses if unit == "record" else self.unit_losses

    def __str__(self) -> str:
        return (
            f"{self.dataset}: ε = {self.epsilon:g} per {self.unit}, "
            f"δ = {self.delta:g} per {self.unit}, {self.mechanism} ({self.description})"
        )


class Ledger:
    """Append-only account of releases with an optional budget.

    Parameters
    ----------
    budget : Budget or Privacy, optional
        What may be spent per data set. Without one, the ledger only keeps account (per entry).
    composition : {"basic", "tight"}, default="basic"
        ``"basic"`` adds up ε and δ, which holds whatever made you choose the next release.
        ``"tight"`` composes privacy loss distributions at the budget's δ, which holds when the
        parameters of the releases do not depend on earlier results.

    Examples
    --------
    >>> import numpy as np
    >>> from permea.privacy import Privacy, release
    >>> ledger = Ledger(Budget(epsilon=1.5, unit="entry"))
    >>> once = release(np.zeros((5, 2)), Privacy(epsilon=1, domain=(0, 1)), ledger=ledger)
    >>> print(ledger.remaining)
    ε = 0.5 per entry, δ = 0 per entry
    >>> release(np.zeros((5, 2)), Privacy(epsilon=1, domain=(0, 1)), ledger=ledger)
    Traceback (most recent call last):
        ...
    permea.privacy.ledger.BudgetExceededError: This release would bring the data set 'data' to
    ε = 2 per entry, δ = 0 per entry, beyond the budget of ε = 1.5 per entry, δ = 0 per entry.
    Nothing was computed. Ask for less, or account for rows that were never released under a
    data set name of their own.
    """

    def __init__(
        self,
        budget: Budget | Privacy | None = None,
        *,
        composition: Literal["basic", "tight"] = "basic",
    ) -> None:
        if composition not in ("basic", "tight"):
            raise ValueError("composition must be 'basic' or 'tight'.")
        if isinstance(budget, Privacy):
            budget = Budget(epsilon=budget.epsilon, delta=budget.delta, unit=budget.unit)
        if budget is not None and not isinstance(budget, Budget):
            raise TypeError("budget must be a Budget, e.g. Budget(epsilon=3, unit='entry').")
        self._budget, self._composition = budget, composition
        self._events: tuple[Event, ...] = ()
        self._sealed = False

    def __sklearn_clone__(self) -> Self:
        """A cloned estimator charges the same account: copying money is not allowed."""
        return self

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """A ledger in another process can be read there, but not charged."""
        return {**self.__dict__, "_sealed": True}

    @property
    def budget(self) -> Budget | None:
        """What may be spent per data set."""
        return self._budget

    @property
    def unit(self) -> Unit:
        """The unit the account is kept in."""
        return "entry" if self._budget is None else self._budget.unit

    @property
    def events(self) -> tuple[Event, ...]:
        """All releases, in the order they were charged."""
        return self._events

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets that gave something away."""
        return tuple(dict.fromkeys(event.dataset for event in self._events))

    def spend(
        self,
        privacy: Privacy,
        *,
        dataset: str = "data",
        description: str = "release",
        n_columns: int | None = None,
    ) -> Event:
        """Charge a release that keeps ``privacy`` for rows of ``n_columns``, or charge nothing."""
        from permea.privacy.release import plan  # release builds on the ledger

        columns = privacy.n_columns if n_columns is None else n_columns
        if columns is None:
            raise ValueError("n_columns is needed to account for a whole record.")
        return self.charge(plan(privacy, columns).event(str(dataset), str(description)))

    def charge(self, event: Event) -> Event:
        """Charge an event that was worked out elsewhere, or raise and charge nothing."""
        if self._sealed:
            raise RuntimeError(
                "This ledger is a copy in another process: what is charged here would be lost. "
                "Fit in the process that owns the ledger (n_jobs=1, or a threading backend)."
            )
        self._check(event)
        self._events = (*self._events, event)
        return event

    def _check(self, event: Event) -> None:
        if self._budget is None:
            return
        after = self._composed((*self._of(event.dataset), event))
        limit = self._budget
        slack = 1.0 + _FLOAT_SLACK
        if after.epsilon <= limit.epsilon * slack and after.delta <= limit.delta * slack:
            return
        raise BudgetExceededError(
            f"This release would bring the data set {event.dataset!r} to "
            f"{_text(after, self.unit)}, beyond the budget of "
            f"{_text(Spent(limit.epsilon, limit.delta), self.unit)}. Nothing was computed. Ask for "
            "less, or account for rows that were never released under a data set name of their own."
        )

    def _of(self, dataset: str) -> tuple[Event, ...]:
        return tuple(event for event in self._events if event.dataset == dataset)

    def _composed(self, events: tuple[Event, ...]) -> Spent:
        """Basic or tight composition of events on the same rows, in the account's unit."""
        losses = [loss for event in events for loss in event.losses(self.unit)]
        basic = self._basic(events)
        if self._composition == "basic" or self._budget is None or not losses:
            return basic
        delta = max(self._budget.delta, failure(losses))
        tight = tight_epsilon(losses, delta)
        fits = basic.delta <= self._budget.delta and basic.epsilon <= tight
        return basic if fits else Spent(tight, delta)

    def _basic(self, events: tuple[Event, ...]) -> Spent:
        """Add up what each event promised per unit of the account."""
        total_epsilon, total_delta = [], []
        for event in events:
            if event.unit == self.unit or event.unit == "record":
                total_epsilon.append(event.epsilon)
                total_delta.append(event.delta)
                continue
            own = event.losses(self.unit)
            if math.isinf(simple_epsilon(own)):  # Gaussian: take its promise at the entries' δ
                total_delta.append(event.delta)
                total_epsilon.append(tight_epsilon(own, event.delta))
            else:
                total_epsilon.append(simple_epsilon(own))
                total_delta.append(failure(own))
        return Spent(math.fsum(total_epsilon), min(1.0, math.fsum(total_delta)))

    def spent_on(self, dataset: str) -> "Balance":
        """What one data set has spent."""
        return Balance(*self._composed(self._of(dataset)), self.unit)

    @property
    def spent(self) -> "Balance":
        """What the most spent data set has spent: disjoint data sets do not add up."""
        balances = [self.spent_on(name) for name in self.datasets]
        if not balances:
            return Balance(0.0, 0.0, self.unit)
        epsilon = max(balance.epsilon for balance in balances)
        return Balance(epsilon, max(balance.delta for balance in balances), self.unit)

    def remaining_for(self, dataset: str) -> "Balance":
        """What one data set may still spend (infinite without a budget)."""
        if self._budget is None:
            return Balance(math.inf, 1.0, self.unit)
        spent = self.spent_on(dataset)
        epsilon = max(0.0, self._budget.epsilon - spent.epsilon)
        return Balance(epsilon, max(0.0, self._budget.delta - spent.delta), self.unit)

    @property
    def remaining(self) -> "Balance":
        """What the most spent data set may still spend (infinite without a budget)."""
        if self._budget is None:
            return Balance(math.inf, 1.0, self.unit)
        spent, limit = self.spent, self._budget
        return Balance(
            max(0.0, limit.epsilon - spent.epsilon), max(0.0, limit.delta - spent.delta), self.unit
        )

    def summary(self, dataset: str) -> str:
        """One line for a certificate."""
        count = len(self._of(dataset))
        times = "1 release" if count == 1 else f"{count} releases"
        text = f"data set {dataset!r}: {times}, {self.spent_on(dataset)} in total"
        if self._budget is None:
            return text
        limit = Spent(self._budget.epsilon, self._budget.delta)
        return f"{text}, of a budget of {_text(limit, self.unit)}"

    def __len__(self) -> int:
        return len(self._events)

    def __str__(self) -> str:
        head = f"Ledger ({self._composition} composition): spent {self.spent}"
        if self._budget is not None:
            head += f", remaining {self.remaining}"
        return "\n".join([head, *(f"  {event}" for event in self._events)])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "schema": SCHEMA,
            "budget": None if self._budget is None else asdict(self._budget),
            "composition": self._composition,
            "events": [asdict(event) for event in self._events],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from :meth:`to_dict`."""
        if values.get("schema") != SCHEMA:
            raise ValueError("Not a ledger of this version of permea (schema 1 was expected).")
        budget = values["budget"]
        made = cls(None if budget is None else Budget(**budget), composition=values["composition"])
        made._events = tuple(_event(event) for event in values["events"])
        return made

    def save(self, path: str | Path) -> None:
        """Write the account as JSON; it holds no data, only what was promised about them."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        partial = Path(f"{path}.part")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)  # whole or not at all

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an account, to go on with it."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is not a ledger: no valid JSON.") from error
        if not isinstance(values, dict):
            raise ValueError(f"{path} is not a ledger.")
        return cls.from_dict(values)


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
        return _text(Spent(self.epsilon, self.delta), self.unit)


def _text(spent: Spent, unit: Unit) -> str:
    return f"ε = {spent.epsilon:.6g} per {unit}, δ = {spent.delta:.3g} per {unit}"


def _event(values: Mapping[str, Any]) -> Event:
    plain = dict(values)
    for name in ("unit_losses", "record_losses"):
        plain[name] = tuple(Loss(*loss) for loss in plain[name])
    return Event(**plain)

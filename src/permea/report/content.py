"""What a report holds: plain values, gathered elsewhere, drawn elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from permea.privacy import Certificate

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One curve, or the heights of one histogram."""

    name: str
    y: Sequence[float]
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart whose series share their x values.

    ``kind`` is ``"line"`` (points joined), ``"step"`` (a ROC curve) or ``"histogram"`` (``x`` are
    the centres of equal bins).
    """

    key: str
    title: str
    caption: str
    x_label: str
    y_label: str
    x: Sequence[float]
    series: Sequence[Series]
    kind: Literal["line", "step", "histogram"] = "line"
    log_x: bool = False
    y_range: tuple[float, float] | None = None
    reference: tuple[str, float] | None = None  #: a horizontal line with its name
    marked_x: float | None = None  #: the x value this report is about

    def __post_init__(self) -> None:
        if any(len(series.y) != len(self.x) for series in self.series) or len(self.x) < 2:
            raise ValueError(f"Chart {self.key!r} needs two or more x values, and as many y.")
        if self.log_x and min(self.x) <= 0:
            raise ValueError(f"Chart {self.key!r}: a logarithmic axis needs positive x values.")


@dataclass(frozen=True, kw_only=True)
class Samples:
    """The same rows at several stages, per ε: pictures when ``shape`` is given, else numbers."""

    stages: dict[str, dict[str, Array]]  #: ε in words → stage ("noised", …) → rows
    original: Array
    columns: Sequence[str] = ()
    shape: tuple[int, int] | None = None
    domain: tuple[float, float] = (0.0, 1.0)
    chosen: str = ""  #: the ε this report is about


@dataclass(frozen=True)
class Accuracy:
    """Share of right answers on rows that were not trained on, with a 95 % interval."""

    value: float
    interval: tuple[float, float]
    n_rows: int
    per_class: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything one report shows; parts that were not computed are left out.

    Attributes
    ----------
    title : str
        What was made.
    facts : dict
        Model, data, date, version: what an engineer looks for first.
    certificates : dict
        Name → certificate; one per party of a federation. Empty when nothing is promised.
    accuracy : Accuracy or None
        On rows that were not trained on.
    attacks : dict or None
        `permea.audit.AttackReport.to_dict`.
    baseline : str
        What the same model reaches without privacy, in words.
    charts : sequence of Chart
        In the order they are shown.
    samples : Samples or None
        Rows before and after noise and fabrication. Shows real rows: for public data only.
    measures : dict
        Leakage, interpretability, transferability, where computed: name → (value, what it means).
    reproduce : sequence of str
        Commands.
    computed_from_private_rows : sequence of str
        Parts of the report that no noise protects.
    """

    title: str
    facts: dict[str, str] = field(default_factory=dict)
    certificates: dict[str, Certificate] = field(default_factory=dict)
    accuracy: Accuracy | None = None
    attacks: dict[str, Any] | None = None
    baseline: str = ""
    charts: Sequence[Chart] = ()
    samples: Samples | None = None
    measures: dict[str, tuple[str, str]] = field(default_factory=dict)
    reproduce: Sequence[str] = ()
    computed_from_private_rows: Sequence[str] = ()

    @property
    def is_private(self) -> bool:
        """Whether every certificate promises something, and there is one.

        Whether that may be believed is another question: see `is_verified` and `status`.
        """
        return bool(self.certificates) and all(
            certificate.is_private for certificate in self.certificates.values()
        )

    @property
    def is_verified(self) -> bool:
        """Whether every certificate was made by this process or signed by a trusted key."""
        return all(certificate.is_verified for certificate in self.certificates.values())

    @property
    def status(self) -> str:
        """The verdict: "PRIVATE", "unverified claim" or "not private"."""
        if not self.is_private:
            return "not private"
        return "PRIVATE" if self.is_verified else "unverified claim"

    @property
    def weakest(self) -> Certificate | None:
        """The certificate with the largest ε about a whole record.

        Parties hold different rows, so the weakest promise is the promise about everybody.
        """
        return max(self.certificates.values(), key=lambda c: c.record_epsilon, default=None)

    @property
    def strongest_attack(self) -> dict[str, Any] | None:
        """The attack of the largest AUC."""
        applied = [one for one in (self.attacks or {}).get("attacks", []) if not one["note"]]
        return max(applied, key=lambda one: one["auc"], default=None)

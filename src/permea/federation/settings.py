"""What the certificates of the parties promise together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from permea._text import safe_text
from permea.federation.aggregate import AGGREGATIONS, Aggregation
from permea.federation.schema import Label
from permea.federation.transport import Introduction, Patience

Records = Literal["disjoint", "overlapping", "unknown"]
RECORDS = ("disjoint", "overlapping", "unknown")
_COMPOSITION = {
    "disjoint": "every record lies with one party only, so a record gets what its own party "
    "promises and the worst party counts (parallel composition)",
    "overlapping": "a record may lie with several parties, and what they release of it adds up "
    "(sequential composition)",
    "unknown": "nobody has said whether records overlap, so the worst is assumed: a record lies "
    "with all parties and everything adds up",
}


@dataclass(frozen=True, kw_only=True)
class Promise:
    """An (ε,δ) figure and the unit it speaks of."""

    epsilon: float
    delta: float
    unit: str

    def __str__(self) -> str:
        return f"ε = {self.epsilon:.6g} per {self.unit}, δ = {self.delta:.3g} per {self.unit}"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The promise of a federation and of each of its parties.

    Parameters
    ----------
    records : {"disjoint", "overlapping", "unknown"}
        Whether a record may lie with more than one party.
    parties : dict
        Promise of each party in its own unit, or the reasons why there is none.
    record : Promise or None
        What holds for a whole record across the federation; None when some party promises nothing.
    unit : Promise or None
        The same for the common unit of all parties, when they have one.
    worst : str or None
        The party with the largest ε per record.
    unverified : tuple of str
        Parties whose certificate no trusted key has signed, and that was not made here.
    """

    records: Records
    parties: Mapping[str, Promise | str]
    record: Promise | None
    unit: Promise | None
    worst: str | None
    unverified: tuple[str, ...] = ()

    @property
    def is_private(self) -> bool:
        """Whether every party gives a promise; `is_verified` tells whether to believe them all."""
        return self.record is not None

    @property
    def is_verified(self) -> bool:
        """Whether every certificate was made here or is signed by a trusted key."""
        return not self.unverified

    @property
    def status(self) -> str:
        """The verdict on the federation: "PRIVATE", "unverified claim" or "not private"."""
        if not self.is_private:
            return "not private"
        return "PRIVATE" if self.is_verified else "unverified claim"

    def __str__(self) -> str:
        lines = ["Federation of " + ", ".join(self.parties), f"  status          {self.status}"]
        for name, promise in self.parties.items():
            claimed = isinstance(promise, Promise) and name in self.unverified
            lines.append(f"  {name:<16}{promise}{' (unverified claim)' if claimed else ''}")
        if self.record is None:
            lines.append("  together        not private: a party promises nothing")
        else:
            if self.unit is not None and self.unit.unit != "record":
                lines.append(f"  together        {self.unit}")
            lines.append(f"  whole record    {self.record}, worst party: {self.worst}")
        lines.append(f"  because         {_COMPOSITION[self.records]}")
        return "\n".join(lines)


def summarise(introductions: Mapping[str, Introduction], records: Records) -> Summary:
    """Compose the certificates of the parties.

    With disjoint records a change in one record touches one party, so the largest ε and the largest
    δ hold for all (parallel composition); otherwise they add up. Queries and their answers are
    post-processing of the released models and cost nothing.
    """
    certificates = {name: intro.certificate for name, intro in introductions.items()}
    unverified = tuple(
        name for name, known in certificates.items() if known is not None and not known.is_verified
    )
    parties: dict[str, Promise | str] = {}
    for name, certificate in certificates.items():
        if certificate is None:
            parties[name] = "not private: no certificate"
        elif not certificate.is_private:
            parties[name] = "not private: " + safe_text("; ".join(certificate.reasons_not_private))
        else:
            promised = certificate.privacy
            parties[name] = Promise(
                epsilon=promised.epsilon, delta=promised.delta, unit=promised.unit
            )
    promises = {name: p for name, p in parties.items() if isinstance(p, Promise)}
    if len(promises) < len(parties) or not parties:
        return Summary(
            records=records,
            parties=parties,
            record=None,
            unit=None,
            worst=None,
            unverified=unverified,
        )
    per_record = {
        name: Promise(
            epsilon=certificate.record_epsilon, delta=certificate.record_delta, unit="record"
        )
        for name, certificate in certificates.items()
        if certificate is not None
    }
    units = {promise.unit for promise in promises.values()}
    return Summary(
        records=records,
        parties=parties,
        record=_together(per_record, records),
        unit=_together(promises, records) if len(units) == 1 else None,
        worst=max(per_record, key=lambda name: per_record[name].epsilon),
        unverified=unverified,
    )


def _together(promises: Mapping[str, Promise], records: Records) -> Promise:
    """The worst of them for disjoint records, their sum otherwise."""
    epsilons = [promise.epsilon for promise in promises.values()]
    deltas = [promise.delta for promise in promises.values()]
    unit = next(iter(promises.values())).unit
    if records == "disjoint":
        return Promise(epsilon=max(epsilons), delta=max(deltas), unit=unit)
    return Promise(epsilon=math.fsum(epsilons), delta=min(1.0, math.fsum(deltas)), unit=unit)


Topology = Literal["queries", "models"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Choices of a `Federation`, see there for what each of them means.

    Examples
    --------
    >>> Settings(topology="models").quorum is None
    True
    >>> Settings(topology="ring")
    Traceback (most recent call last):
        ...
    ValueError: topology must be one of 'queries', 'models', got 'ring'.
    """

    topology: Topology = "queries"
    aggregation: Aggregation = "min"
    drop: int = 1
    quorum: int | None = None
    patience: Patience = field(default_factory=Patience)
    batch_size: int = 1000
    records: Records = "unknown"
    suspects: Literal["report", "exclude"] = "report"
    classes: Sequence[Label] | None = None
    encrypted: bool = False
    scheme: str = "bfv"
    bits: int = 12
    scale: tuple[float, float] | None = None
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        _choice("topology", self.topology, ("queries", "models"))
        _choice("aggregation", self.aggregation, AGGREGATIONS)
        _choice("records", self.records, RECORDS)
        _choice("suspects", self.suspects, ("report", "exclude"))
        if self.encrypted and self.aggregation != "min":
            raise ValueError("Ciphertexts are aggregated by the minimum only.")
        if self.encrypted and self.topology != "queries":
            raise ValueError(
                "Encrypted distances are computed where the models are: topology must be 'queries'."
            )
        if self.n_jobs == 0:
            raise ValueError("n_jobs must be a number of processes, -1 for all cores, or None.")
        if self.batch_size < 1 or self.drop < 0 or (self.quorum is not None and self.quorum < 1):
            raise ValueError("batch_size and quorum must be at least 1, drop not negative.")


def _choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")

"""What the certificates of the parties promise together."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from permea._text import safe_text
from permea.privacy import Certificate

Records = Literal["disjoint", "overlapping", "unknown"]
_COMPOSITION = {
    "disjoint": "every record lies with one party only, so a record gets what its own party "
    "promises and the worst party counts (parallel composition)",
    "overlapping": "a record may lie with several parties, and what they release of it adds up "
    "(sequential composition)",
    "unknown": "it is not declared whether records overlap, so the worst is assumed: a record lies "
    "with all parties and everything adds up",
}


@dataclass(frozen=True, kw_only=True)
class Promise:
    """An (ε,δ) figure and its unit."""

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
        """Whether every party gives a promise; `is_verified` tells whether all are verified."""
        return self.record is not None

    @property
    def is_verified(self) -> bool:
        """Whether every certificate was made here or is signed by a trusted key."""
        return not self.unverified

    @property
    def status(self) -> str:
        """Status of the federation: "PRIVATE", "unverified claim" or "not private"."""
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


def summarise(certificates: Mapping[str, Certificate | None], records: Records) -> Summary:
    """Compose the certificates of the parties.

    With disjoint records a change in one record affects one party, so the largest ε and the largest
    δ hold for all (parallel composition); otherwise they add up. Queries are post-processing of the
    released models and cost nothing.
    """
    known = {name: c for name, c in certificates.items() if c is not None}
    parties = {name: _promise(certificate) for name, certificate in certificates.items()}
    promises = {name: p for name, p in parties.items() if isinstance(p, Promise)}
    private = bool(parties) and len(promises) == len(parties)
    per_record = {
        name: Promise(epsilon=c.record_epsilon, delta=c.record_delta, unit="record")
        for name, c in known.items()
    }
    same_unit = len({promise.unit for promise in promises.values()}) == 1
    return Summary(
        records=records,
        parties=parties,
        record=_together(per_record, records) if private else None,
        unit=_together(promises, records) if private and same_unit else None,
        worst=max(per_record, key=lambda name: per_record[name].epsilon) if private else None,
        unverified=tuple(name for name, c in known.items() if not c.is_verified),
    )


def _promise(certificate: Certificate | None) -> Promise | str:
    """What a certificate promises in its own unit, or why it promises nothing."""
    if certificate is None:
        return "not private: no certificate"
    if not certificate.is_private:
        return "not private: " + safe_text("; ".join(certificate.reasons_not_private))
    privacy = certificate.privacy
    return Promise(epsilon=privacy.epsilon, delta=privacy.delta, unit=privacy.unit)


def _together(promises: Mapping[str, Promise], records: Records) -> Promise:
    """The worst of them for disjoint records, their sum otherwise."""
    epsilons = [promise.epsilon for promise in promises.values()]
    deltas = [promise.delta for promise in promises.values()]
    unit = next(iter(promises.values())).unit
    if records == "disjoint":
        return Promise(epsilon=max(epsilons), delta=max(deltas), unit=unit)
    return Promise(epsilon=math.fsum(epsilons), delta=min(1.0, math.fsum(deltas)), unit=unit)

"""What was promised, to whom, about what, and what was not: readable by people and by machines."""

import json
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import UnionType
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from permea._text import safe_text
from permea.privacy.units import UNITS, Privacy

SCHEMA = 1
_LONGEST_TEXT = 20_000  # characters of one entry that is read
WORTHLESS_EPSILON = 20.0  # per record: odds of 5·10⁸, which no observer needs

Classes = Literal["", "declared", "read from the data"]

NOT_PROTECTED = (
    "labels, the number of classes and the size of each class",
    "the number of rows and columns",
    "anything computed from the data before this release, such as a choice of features or models",
)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The statement that comes with a release and stays with everything computed from it.

    Parameters
    ----------
    privacy : Privacy
        The promise: ε, δ, unit, domain, bound, mechanism.
    n_rows, n_columns : int
        Shape of what was released; for moments, the number of records or persons in the sums.
    noise : str
        The law of the noise, in words.
    seeded : bool
        Whether the noise can be repeated from a seed. Then nothing is private.
    exposed_entries : float
        How many entries the point mass is expected to release as they are.
    record_epsilon, record_delta : float
        The promise about a whole record: the smaller of tight and simple composition.
    simple_record_epsilon, simple_record_delta : float
        The promise about a whole record by adding up over the entries of a row (ε is infinite when
        adding up gives none).
    n_classes : int or None
        Number of classes whose labels were released beside the data, if any.
    ledger : str
        What the data set has spent in total, when a ledger kept account.
    neighbours : str
        How two neighbouring data sets differ, where it is not what the unit says by itself.
    released : str
        What was released, where it is not rows and columns.
    not_protected, steps, void_reasons : tuple of str
        What the promise does not cover; what was done after the noise; why it does not hold.
    classes : {"", "declared", "read from the data"}
        Where the set of class labels comes from. Read from the data, it is not protected.
    ledger_id, ledger_number, ledger_hash : str, int, str
        Which event of which ledger paid for the release. A ledger that has fewer events than a
        certificate says was restored from an older copy.
    signer : str or None
        Who vouches for the certificate: "" for one that this process made itself, the name of a
        trusted key for one whose signature was checked, None for one that was read from outside.
        It is never written to a file.

    Examples
    --------
    >>> from permea.privacy import Privacy, release
    >>> import numpy as np
    >>> certificate = release(np.zeros((3, 2)), Privacy(epsilon=1, domain=(0, 1))).certificate
    >>> certificate.is_private
    True
    >>> certificate.void("the stopping rule read the original rows").is_private
    False
    >>> Certificate.from_json(certificate.to_json()) == certificate
    True
    """

    privacy: Privacy
    n_rows: int
    n_columns: int
    noise: str
    seeded: bool
    exposed_entries: float
    record_epsilon: float
    record_delta: float
    simple_record_epsilon: float
    simple_record_delta: float
    n_classes: int | None = None
    ledger: str = ""
    not_protected: tuple[str, ...] = NOT_PROTECTED
    steps: tuple[str, ...] = ()
    void_reasons: tuple[str, ...] = ()
    neighbours: str = ""
    released: str = ""
    classes: Classes = ""
    ledger_id: str = ""
    ledger_number: int = 0
    ledger_hash: str = ""
    signer: str | None = field(default="", compare=False)

    @property
    def reasons_not_private(self) -> tuple[str, ...]:
        """Everything that voids the promise; empty when it holds."""
        seeded = ("seeded: who knows the seed can remove the noise",) if self.seeded else ()
        return (*seeded, *self.void_reasons)

    @property
    def is_private(self) -> bool:
        """Whether the promise holds: not seeded, and nothing voided it later."""
        return not self.reasons_not_private

    @property
    def is_verified(self) -> bool:
        """Whether this process made the certificate, or a trusted key signed it."""
        return self.signer is not None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Where the promise is kept formally and protects next to nothing.

        What an entry-level promise means for a whole record stands in the certificate anyway.
        """
        unit, epsilon, delta = self.privacy.unit, self.privacy.epsilon, self.privacy.delta
        found = []
        if delta * self.n_rows >= 1:
            counted = "persons" if unit == "person" else "rows"
            found.append(
                f"δ = {delta:.3g} per {unit} is not below one over the number of {counted}: a "
                f"mechanism that publishes one {unit} as it is would keep this promise"
            )
        if unit != "entry" and epsilon > WORTHLESS_EPSILON:
            found.append(
                f"ε = {epsilon:.4g} per {unit} is above {WORTHLESS_EPSILON:g}: it lets an observer "
                f"be as good as certain about one {unit}"
            )
        return tuple(found)

    @property
    def status(self) -> str:
        """The verdict in a word or two, for a heading or a badge."""
        if not self.is_private:
            return "not private"
        return "PRIVATE" if self.is_verified else "unverified claim"

    @property
    def is_weakened(self) -> bool:
        """Whether noise was drawn in floating point, where its low bits can leak."""
        return self.privacy.sampler == "float"

    def add_step(self, text: str) -> Self:
        """Give a certificate with one more step of post-processing on it."""
        return replace(self, steps=(*self.steps, _sentence(text)))

    def void(self, reason: str) -> Self:
        """Give a certificate that says why the promise does not hold (any longer)."""
        return replace(self, void_reasons=(*self.void_reasons, _sentence(reason)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; infinity is written as the word ``"infinite"``."""
        values = {name: getattr(self, name) for name in _written()}
        values["privacy"] = self.privacy.to_dict()
        for name, value in values.items():
            if isinstance(value, tuple):
                values[name] = list(value)
            elif isinstance(value, float) and value == float("inf"):
                values[name] = "infinite"
        return {"schema": SCHEMA, "is_private": self.is_private, **values}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from :meth:`to_dict`, also after a trip through JSON.

        Values that come from outside may be anything: entries that are missing, unknown or of
        another type raise ValueError, and the result is an unverified claim.

        Examples
        --------
        >>> Certificate.from_dict({"privacy": "good"})
        Traceback (most recent call last):
            ...
        ValueError: Not a certificate: ...
        """
        if not isinstance(values, Mapping):
            raise ValueError("Not a certificate: a table of entries is expected.")
        values = dict(values)
        if values.pop("schema", SCHEMA) != SCHEMA:
            raise ValueError(
                "This certificate was written in a newer format than this version of permea "
                "understands; update permea to read it."
            )
        values.pop("is_private", None)
        names = set(_written())
        values = {**_LATER, **values}  # older certificates do not have these
        if set(values) != names:
            wrong = ", ".join(sorted(set(values) ^ names))
            raise ValueError(f"Not a certificate: missing or unknown entries: {wrong}.")
        try:
            values["privacy"] = Privacy.from_dict(values["privacy"])
        except (TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            raise ValueError("Not a certificate: its promise cannot be read.") from None
        for name, value in values.items():
            if isinstance(value, list):
                values[name] = tuple(value)
            elif value == "infinite":
                values[name] = float("inf")
        hints = get_type_hints(cls)
        misfits = [name for name, value in values.items() if not _conforms(value, hints[name])]
        if misfits:
            raise ValueError(f"Not a certificate: wrong values of {', '.join(sorted(misfits))}.")
        return cls(**values, signer=None)

    def to_json(self) -> str:
        """JSON for machines."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read :meth:`to_json`."""
        return cls.from_dict(json.loads(text))

    def __str__(self) -> str:
        lines = ["Privacy certificate", f"  {self._verdict()}"]
        for name, text in self.entries():
            kept = text.replace(" per ", "\u00a0per\u00a0")  # no figure without its unit on a line
            wrapped = [line.replace("\u00a0", " ") for line in textwrap.wrap(kept, 78)] or [""]
            lines.append(f"  {name:<15}{wrapped[0]}")
            lines += [f"  {'':<15}{more}" for more in wrapped[1:]]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from permea._html import definitions, verdict

        kind = "bad" if not self.is_private else "good" if self.is_verified else "weak"
        return verdict(self._verdict(), kind) + definitions(self.entries(), title="certificate")

    def _verdict(self) -> str:
        if self.is_private:
            weak = " (WEAKER: floating-point noise)" if self.is_weakened else ""
            signed = f" (signed by {self.signer})" if self.signer else ""
            claim = "PRIVATE" if self.is_verified else "unverified claim, signed by no trusted key"
            return f"{claim}: {self.privacy.describe()}{weak}{signed}"
        return "not private: " + safe_text("; ".join(self.reasons_not_private))

    def entries(self) -> list[tuple[str, str]]:
        """What the certificate says, as pairs of a heading and a text."""
        unit = self.privacy.unit
        entries = [
            ("promise", self.privacy.describe()),
            ("unit", f"{unit}: {self.neighbours or UNITS[unit]}"),
            ("whole record", self._record_text()),
            ("domain", self._domain_text()),
            ("noise", self.noise),
            ("sampler", self._sampler_text()),
            ("exposed", self._exposed_text()),
            ("released", self.released or f"{self.n_rows} rows of {self.n_columns} columns"),
            ("not protected", "; ".join(self.not_protected) + self._class_text()),
        ]
        if self.classes:
            entries.append(("class labels", self.classes))
        if self.ledger:
            number = f"; event {self.ledger_number} of this ledger" if self.ledger_number else ""
            entries.append(("ledger", self.ledger + number))
        entries += [("warning", text) for text in self.warnings]
        entries += [(f"step {i}", step) for i, step in enumerate(self.steps, start=1)]
        return [(name, safe_text(text)) for name, text in entries]

    def _record_text(self) -> str:
        """The record-level figure that stands beside every entry-level one."""
        tight = _promise(self.record_epsilon, self.record_delta)
        if self.record_epsilon == self.simple_record_epsilon or self.privacy.unit != "entry":
            return tight
        if self.simple_record_epsilon == float("inf"):
            return f"{tight} (composition over the {self.n_columns} entries of a row)"
        simple = _promise(self.simple_record_epsilon, self.simple_record_delta)
        return (
            f"{tight} (tight composition over {self.n_columns} entries); adding up gives {simple}"
        )

    def _domain_text(self) -> str:
        from permea.privacy.units import _short

        bound = self.privacy.bound
        if self.privacy.domain is None:
            return "declared by a schema of the columns, not read off the data"
        if self.privacy.unit != "entry":
            clip = self.privacy.clip_norm
            extra = "" if clip is None else f"; rows shrunk to the public norm {clip:g}"
        else:
            extra = f"; bound {'= high - low' if bound is None else _short(bound)}"
        return f"{_short(self.privacy.domain)}, declared, not read off the data{extra}"

    def _sampler_text(self) -> str:
        bits = "seeded generator (repeatable)" if self.seeded else "cryptographic generator"
        if self.is_weakened:
            return (
                f"floating point, {bits}. WEAKER: the low bits of floating-point noise depend on "
                "the data and can undo the promise; use sampler='grid'"
            )
        return f"exact integers on a public grid of {self.privacy.steps} steps, {bits}"

    def _exposed_text(self) -> str:
        total = self.n_rows * self.n_columns
        if self.released:
            return "no row and no entry is released as it is"
        if self.exposed_entries == 0:
            return f"none of the {total} entries is released as it is by a point mass"
        return (
            f"{self.exposed_entries:.4g} of {total} entries are expected to be released as they "
            "are (the point mass at zero)"
        )

    def _class_text(self) -> str:
        return "" if self.n_classes is None else f" ({self.n_classes} classes were released)"


_LATER = {
    "neighbours": "", "released": "", "classes": "",
    "ledger_id": "", "ledger_number": 0, "ledger_hash": "",
}  # fmt: skip


def _written() -> list[str]:
    """Fields that are written to files: all but who vouches for them."""
    return [field.name for field in fields(Certificate) if field.name != "signer"]


def _promise(epsilon: float, delta: float) -> str:
    return f"ε = {epsilon:.6g} per record, δ = {delta:.3g} per record"


def _sentence(text: str) -> str:
    text = " ".join(str(text).split())
    if not text:
        raise ValueError("Say in words what was done; an empty text informs nobody.")
    return text


def _conforms(value: Any, hint: Any) -> bool:
    """Whether a value is of the type that an annotation names, and of a sane size."""
    origin = get_origin(hint)
    if origin is UnionType:
        return any(_conforms(value, choice) for choice in get_args(hint))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if origin is tuple:
        each = get_args(hint)[0]
        return isinstance(value, tuple) and all(_conforms(item, each) for item in value)
    if hint is float:
        return type(value) in (int, float) and not math.isnan(value) and value >= 0
    if hint is int:
        return type(value) is int and 0 <= value < 1 << 63
    if hint is str:
        return isinstance(value, str) and len(value) <= _LONGEST_TEXT
    return type(value) is hint

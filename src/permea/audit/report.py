"""The audit on one page: a table of attacks, and the claim beside what was measured."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from permea._files import write_atomically
from permea._text import safe_text
from permea.audit.bounds import EmpiricalEpsilon
from permea.audit.density import DensityTest
from permea.audit.metrics import AttackResult
from permea.audit.reconstruction import AttributeInference
from permea.privacy.moments import RELATIONS

_COLUMNS = ("attack", "AUC", "95 % interval", "accuracy", "advantage", "TPR@1%", "TPR@0.1%")


@dataclass(frozen=True)
class AttackReport:
    """What every attack reached on one classifier.

    Attributes
    ----------
    attacks : tuple of AttackResult
        One per attack, those that do not apply included with the reason.
    membership_inference_score : float or None
        004 eq. 69.
    membership_inference : DensityTest or None
        The same score with its interval, beside the scores of equal samples.
    attributes : tuple of AttributeInference
        Guesses of hidden columns, if requested.
    guarantees : tuple of dict
        Rows of the table that puts claim and measurement side by side.
    protocol : dict
        How the audit was made: shadows, rows, seed, where thresholds came from.
    """

    attacks: tuple[AttackResult, ...]
    membership_inference_score: float | None = None
    attributes: tuple[AttributeInference, ...] = ()
    guarantees: tuple[dict[str, Any], ...] = ()
    protocol: dict[str, Any] = field(default_factory=dict)
    membership_inference: DensityTest | None = None

    def __getitem__(self, name: str) -> AttackResult:
        """Give the result of one attack by its name."""
        for result in self.attacks:
            if result.name == name:
                return result
        known = ", ".join(result.name for result in self.attacks)
        raise KeyError(f"No attack {name!r} in this report; it holds: {known}.")

    @property
    def strongest(self) -> AttackResult:
        """The attack of the largest AUC, which with many attacks is partly luck."""
        return max(self.attacks, key=lambda result: result.auc if result.applies else -1.0)

    def table(self) -> list[dict[str, Any]]:
        """One dictionary per attack, ready for a data frame."""
        return [result.to_dict() for result in self.attacks]

    def _repr_html_(self) -> str:
        from permea._html import table

        rows = [
            (
                one.name.replace("_", " "),
                *(
                    (one.note, "", "")
                    if one.note
                    else (
                        f"{one.auc:.3f}",
                        "{:.3f} to {:.3f}".format(*one.auc_interval),
                        f"{one.advantage:+.3f}",
                    )
                ),
            )
            for one in self.attacks
        ]
        return table(("attack", "AUC (0.5 is guessing)", "95 % interval", "advantage"), rows)

    def to_dict(self) -> dict[str, Any]:
        """Give the whole report in plain values."""
        return {
            "attacks": self.table(),
            "membership_inference_score": self.membership_inference_score,
            "membership_inference": None
            if self.membership_inference is None
            else asdict(self.membership_inference),
            "attributes": [attribute.to_dict() for attribute in self.attributes],
            "guarantees": [dict(row) for row in self.guarantees],
            "protocol": dict(self.protocol),
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """Give the report as JSON, and write it to ``path`` if there is one."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        if path is not None:
            write_atomically(path, f"{text}\n".encode())
        return text

    def __str__(self) -> str:
        lines = _aligned([_COLUMNS, *(_cells(result) for result in self.attacks)])
        if self.membership_inference_score is not None:
            score = self.membership_inference or f"{self.membership_inference_score:.5f}"
            lines += ["", f"membership-inference score {score}"]
        for attribute in self.attributes:
            low, high = attribute.gain_interval
            lines.append(
                f"hidden column {attribute.column}: error {attribute.member_error:.3f} of members, "
                f"{attribute.outside_error:.3f} of others, gain {attribute.gain:+.3f} "
                f"[{low:+.3f}, {high:+.3f}]"
            )
        if self.guarantees:
            lines += ["", *guarantee_lines(self.guarantees)]
        return "\n".join(lines)

    def plot_roc(self, ax: Any = None, names: Sequence[str] | None = None) -> Any:
        """Draw the ROC curves with both axes logarithmic, where small error rates can be seen.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.
        names : sequence of str, optional
            Attacks to draw; all that apply by default.

        Returns
        -------
        matplotlib axes
        """
        if ax is None:
            ax = _new_axes()
        shown = [r for r in self.attacks if r.applies and (names is None or r.name in names)]
        floor = 0.5 / max([result.n_outside for result in shown], default=1000)
        for result in shown:
            false, true = (np.maximum(rate, floor) for rate in result.roc)
            ax.plot(false, true, label=f"{result.name} ({result.auc:.2f})", drawstyle="steps-post")
        ax.plot([floor, 1.0], [floor, 1.0], color="0.6", linestyle=":", label="guessing")
        ax.set(xscale="log", yscale="log", xlim=(floor, 1.0), ylim=(floor, 1.0))
        ax.set(xlabel="false positive rate", ylabel="true positive rate")
        ax.legend(fontsize="small")
        return ax


def _new_axes() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Drawing the ROC curves needs matplotlib; install it with the extra: "
            'pip install "permea[plot]".'
        ) from error
    return Figure(figsize=(5.0, 5.0), layout="constrained").subplots()


def _cells(result: AttackResult) -> tuple[str, ...]:
    if not result.applies:
        return (result.name, "does not apply: " + result.note)
    low, high = result.auc_interval
    return (
        result.name,
        f"{result.auc:.3f}",
        f"[{low:.3f}, {high:.3f}]",
        f"{result.accuracy:.3f}",
        f"{result.advantage:+.3f}",
        *(f"{100 * rate:.1f} %" for rate in result.tpr_at.values()),
    )


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    full = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(len(row[column]) for row in full) for column in range(len(rows[0]))]
    widths[0] = max(len(row[0]) for row in rows)
    pad = ["  ".join(text.ljust(widths[i]) for i, text in enumerate(row)).rstrip() for row in rows]
    return [pad[0], "-" * max(len(pad[0]), 40), *pad[1:]]


def guarantee_rows(
    certificate: Any = None, measured: Sequence[EmpiricalEpsilon] = (), *, not_measured: str = ""
) -> tuple[dict[str, Any], ...]:
    """Put the claimed ε, the record-level ε and the empirical lower bounds in one table.

    Parameters
    ----------
    certificate : permea.privacy.Certificate, optional
        The claim; without it the row says that nothing is claimed.
    measured : sequence of EmpiricalEpsilon
        Lower bounds. One of the same unit and relation as the claim also says whether it refutes
        it: only where the claim's δ is no larger than the one the bound holds for.
    not_measured : str
        Why nothing was measured, for a row that says so.
    """
    rows: list[dict[str, Any]] = []
    claims: dict[str, tuple[float, float]] = {}
    relation = _relation(certificate)
    if certificate is None:
        rows.append(_row("claimed", None, None, "record", "replace", "nothing is claimed"))
    else:
        privacy = certificate.privacy
        claims["record"] = (certificate.record_epsilon, certificate.record_delta)
        claims[privacy.unit] = (privacy.epsilon, privacy.delta)
        void = safe_text("; ".join(certificate.reasons_not_private))
        if certificate.is_private and not certificate.is_verified:
            void = "unverified claim: no trusted key has signed the certificate"
        for unit in dict.fromkeys((privacy.unit, "record")):
            rows.append(_row("claimed", *claims[unit], unit, relation, void))
    for bound in measured:
        claim = claims.get(bound.unit) if bound.neighbours == relation else None
        if claim is not None and claim[1] > bound.delta:
            claim = None
        rows += _measured_rows(bound, None if claim is None else claim[0])
    if not_measured:
        unit = "record" if certificate is None else certificate.privacy.unit
        rows.append(_row("not measured", None, None, unit, relation, not_measured))
    return tuple(rows)


def _relation(certificate: Any) -> str:
    """How two neighbouring data sets of a certificate differ, in a word."""
    said = getattr(certificate, "neighbours", "")
    known = [pair for relations in RELATIONS.values() for pair in relations.items()]
    return next((name for name, text in known if text == said), "replace")


def _measured_rows(bound: EmpiricalEpsilon, claim: float | None) -> list[dict[str, Any]]:
    """A bound, and beside it those of the same audit that assume less or see less."""
    values: list[tuple[float, str]] = [(bound.epsilon, f"{bound.method}, {bound.trials} trials")]
    if bound.assumption:
        values[0] = (bound.epsilon, f"{values[0][1]}, assumes that {bound.assumption}")
        if bound.assumption_free is not None:
            values.append((bound.assumption_free, "the same trials, without assumptions"))
    if bound.black_box is not None:
        values.append((bound.black_box, "from the predictions of the model alone"))
    rows = []
    for epsilon, how in values:
        note = f"{100 * bound.confidence:g} % confidence, {how}"
        if claim is not None:
            note += ", REFUTES the claim" if epsilon > claim else ", agrees with the claim"
        rows.append(_row("at least", epsilon, bound.delta, bound.unit, bound.neighbours, note))
    return rows


def _row(
    kind: str, epsilon: float | None, delta: float | None, unit: str, neighbours: str, note: str
) -> dict[str, Any]:
    known = epsilon is not None and np.isfinite(epsilon)
    return {
        "kind": kind,
        "epsilon": epsilon if known else None,
        "delta": delta,
        "unit": unit,
        "neighbours": neighbours,
        "note": note,
    }


def guarantee_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Write the table of :func:`guarantee_rows`; every ε names its unit and its neighbours.

    Examples
    --------
    >>> for line in guarantee_lines(guarantee_rows()):
    ...     print(line)
    ε        value     δ  unit    neighbours  note
    ----------------------------------------------...
    claimed  no bound  -  record  replace     nothing is claimed
    """
    cells = [("ε", "value", "δ", "unit", "neighbours", "note")]
    for row in rows:
        value = "no bound" if row["epsilon"] is None else f"{row['epsilon']:.3g}"
        delta = "-" if row["delta"] is None else f"{row['delta']:.3g}"
        cells.append((row["kind"], value, delta, row["unit"], row["neighbours"], row["note"]))
    return _aligned(cells)

"""What an audit found: a lower bound on ε with everything that it rests on."""

from dataclasses import asdict, dataclass
from typing import Any

_TRIALS = {"one-run": "canaries", "multi-run": "runs", "white-box": "releases"}


@dataclass(frozen=True)
class EmpiricalEpsilon:
    """A lower bound on ε, with everything that it depends on.

    Attributes
    ----------
    epsilon : float
        The training (or release) leaked at least this much per ``unit``.
    delta : float
        The δ for which the bound holds.
    unit : {"entry", "record"}
        What one ε speaks of.
    neighbours : {"replace", "add/remove"}
        How two neighbouring data sets differ.
    confidence : float
        Probability with which the bound holds, all choices of the audit included.
    method : {"white-box", "one-run", "multi-run"}
        How it was found. "white-box" reads the released numbers themselves.
    trials : int
        Canaries of the one run, or runs or releases of both sides together.
    note : str
        What was run, and what else the bound rests on.
    claim : float or None
        The ε that the mechanism promises at ``delta``, where it is known.
    assumption : str
        What ``epsilon`` rests on besides the sampling; empty for nothing.
    assumption_free : float or None
        The bound that rests on nothing, from the same releases.
    black_box : float or None
        The bound of somebody who sees the answers of the trained model alone.
    attainable : float or None
        The largest ε that the canaries can show of a mechanism that is as declared. It is below the
        claim where the accountant adds up worst cases that no single pair of rows reaches.
    seen_by : str
        Which of the audit's scores gave ``epsilon``.

    Examples
    --------
    >>> found = EmpiricalEpsilon(1.6, 1e-5, "record", "replace", 0.95, "white-box", 8000, claim=1.0)
    >>> found.verdict
    'REFUTES the claim'
    """

    epsilon: float
    delta: float
    unit: str
    neighbours: str
    confidence: float
    method: str
    trials: int
    note: str = ""
    claim: float | None = None
    assumption: str = ""
    assumption_free: float | None = None
    black_box: float | None = None
    attainable: float | None = None
    seen_by: str = ""

    @property
    def verdict(self) -> str:
        """Whether the bound contradicts the claim, where one is known."""
        if self.claim is None:
            return ""
        return "REFUTES the claim" if self.refutes(self.claim) else "agrees with the claim"

    def __str__(self) -> str:
        text = (
            f"leaked at least ε = {self.epsilon:.3g} per {self.unit} at δ = {self.delta:g} "
            f"({self.neighbours} neighbours, {100 * self.confidence:.6g} % confidence, "
            f"{self.method} audit, {self.trials} {_TRIALS[self.method]})"
        )
        if self.claim is not None:
            text += f" and {self.verdict} of ε = {self.claim:g}"
        parts = [text]
        if self.assumption:
            parts.append(f"assumes that {self.assumption}")
        if self.assumption_free is not None and self.assumption:
            parts.append(f"without assumptions at least {self.assumption_free:.3g}")
        if self.black_box is not None:
            parts.append(f"from the answers of the model alone at least {self.black_box:.3g}")
        if self.note:
            parts.append(self.note)
        return "; ".join(parts)

    def refutes(self, epsilon: float) -> bool:
        """Tell whether the audit refutes a claimed ε of the same unit, neighbours and δ."""
        return self.epsilon > epsilon

    def to_dict(self) -> dict[str, Any]:
        """Give plain numbers and strings, ready for JSON."""
        return asdict(self)

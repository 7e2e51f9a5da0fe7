"""How a federation answers: one checked set of choices."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from permea.federation.aggregate import AGGREGATIONS, Aggregation
from permea.federation.schema import Label
from permea.federation.summary import RECORDS, Records
from permea.federation.transport import Patience

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

"""The privacy that a command line declares, and the options that declare it."""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from permea.cli.errors import CommandError, ExitCode, one_line
from permea.cli.tables import listed, read_table, require_columns
from permea.privacy import Budget, Ledger, Privacy


class Unit(StrEnum):
    """What one ε speaks of."""

    entry = "entry"
    record = "record"


class Mechanism(StrEnum):
    """The law of the noise."""

    optimal = "optimal"
    gaussian = "gaussian"
    staircase = "staircase"


PANEL = "Privacy"
Epsilon = Annotated[
    float | None,
    typer.Option("--epsilon", "-e", help="Bound on the privacy loss.", rich_help_panel=PANEL),
]
Delta = Annotated[
    float, typer.Option("--delta", help="Probability of failure.", rich_help_panel=PANEL)
]
UnitOption = Annotated[
    Unit,
    typer.Option("--unit", help="What one ε protects: an entry or a row.", rich_help_panel=PANEL),
]
Domain = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--domain",
        help="Public range LOW HIGH of every feature, from what it means, not from the data.",
        rich_help_panel=PANEL,
    ),
]
DomainFile = Annotated[
    Path | None,
    typer.Option(
        "--domain-file",
        help="Ranges per column: CSV with the columns column, low, high; or JSON.",
        rich_help_panel=PANEL,
    ),
]
MechanismOption = Annotated[
    Mechanism, typer.Option("--mechanism", help="Law of the noise.", rich_help_panel=PANEL)
]
Clip = Annotated[
    bool,
    typer.Option(
        "--clip", help="Clip values outside the domain, not refuse.", rich_help_panel=PANEL
    ),
]
LedgerFile = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        help="Account of what this data set has given away (JSON, grows with each run).",
        rich_help_panel=PANEL,
    ),
]
BudgetOption = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--budget", help="Total ε and δ that a new ledger allows per unit.", rich_help_panel=PANEL
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", help="Repeatable noise: NOT private.", rich_help_panel=PANEL),
]


@dataclass(frozen=True)
class Declaration:
    """ε, δ, unit and domain as typed; becomes a `Privacy` once the columns are known."""

    epsilon: float | None
    delta: float = 0.0
    unit: str = "entry"
    domain: tuple[float, float] | None = None
    domain_file: Path | None = None
    mechanism: str = "optimal"
    clip: bool = False

    def check(self) -> None:
        """Refuse what cannot be meant before a file is read."""
        if self.epsilon is None:
            raise CommandError(
                "How private? Give --epsilon (e.g. 1), --delta, --unit and the public range of "
                "the features with --domain LOW HIGH.",
                ExitCode.USAGE,
            )
        if self.domain is not None and self.domain_file is not None:
            raise CommandError("Give --domain or --domain-file, not both.", ExitCode.USAGE)
        if self.domain is None and self.domain_file is None:
            raise CommandError(
                "The public range of the features is missing: give --domain LOW HIGH, or "
                "--domain-file with one range per column. Take it from what the features mean, "
                "not from the data, whose minimum and maximum are private.",
                ExitCode.USAGE,
            )
        self._build(self.domain or (0.0, 1.0))

    def privacy(self, columns: list[str]) -> Privacy:
        """The declared privacy of the named columns."""
        if self.domain_file is None:
            return self._build(self.domain)
        low, high = read_domains(self.domain_file, columns)
        return self._build((tuple(low.tolist()), tuple(high.tolist())))

    def _build(self, domain: Any) -> Privacy:
        try:
            return Privacy(
                epsilon=self.epsilon,  # type: ignore[arg-type]  # checked by Privacy
                delta=self.delta,
                unit=self.unit,  # type: ignore[arg-type]
                domain=domain,
                mechanism=self.mechanism,  # type: ignore[arg-type]
            )
        except (ValueError, TypeError) as error:
            raise CommandError(one_line(error), ExitCode.USAGE) from error

    def inside(
        self, X: NDArray[np.float64], privacy: Privacy, columns: list[str], what: str
    ) -> NDArray[np.float64]:
        """The rows, once no value lies outside the domain (or ``--clip`` was said)."""
        low, high = privacy.lows(X.shape[1]), privacy.highs(X.shape[1])
        if self.clip:
            return np.asarray(np.clip(X, low, high))
        outside = (np.clip(X, low, high) != X).sum(axis=0)
        if outside.any():
            names = [name for name, count in zip(columns, outside, strict=True) if count]
            raise CommandError(
                f"{what}: {int(outside.sum())} values lie outside the declared domain, in the "
                f"column{'s' * (len(names) > 1)} {listed(names)}. Declare the true public range, "
                "or say --clip to move them to its ends.",
                ExitCode.INPUT,
            )
        return X


def read_domains(path: Path, columns: list[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper ends of the named columns from a CSV or JSON file."""
    frame = _json_domains(path) if path.suffix.lower() == ".json" else read_table(str(path))
    require_columns(frame, ["column", "low", "high"], str(path))
    ends = frame.assign(column=frame["column"].astype(str)).set_index("column")
    missing = [name for name in columns if name not in ends.index]
    if missing:
        raise CommandError(
            f"{path} gives no range for the column{'s' * (len(missing) > 1)} {listed(missing)}. "
            "Every feature needs one.",
            ExitCode.INPUT,
        )
    try:
        chosen = ends.loc[columns, ["low", "high"]].to_numpy(dtype=np.float64)
    except (ValueError, TypeError):
        raise CommandError(f"{path}: low and high must be numbers.", ExitCode.INPUT) from None
    if len(chosen) != len(columns):
        raise CommandError(f"{path} names a column twice.", ExitCode.INPUT)
    return chosen[:, 0], chosen[:, 1]


def _json_domains(path: Path) -> pd.DataFrame:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        rows = [(name, low, high) for name, (low, high) in values.items()]
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.", ExitCode.INPUT) from None
    except (ValueError, TypeError, AttributeError):
        raise CommandError(
            f'{path} is not a list of ranges; write {{"column": [low, high], ...}}.', ExitCode.INPUT
        ) from None
    return pd.DataFrame(rows, columns=["column", "low", "high"])


def open_ledger(
    path: Path | None, budget: tuple[float, float] | None, declaration: Declaration
) -> Ledger | None:
    """The account of this data set: read when it exists, new with a budget when it does not."""
    if path is None:
        if budget is not None:
            raise CommandError("--budget needs a --ledger to keep account in.", ExitCode.USAGE)
        return None
    if path.exists():
        if budget is not None:
            raise CommandError(
                f"{path} exists and has its budget already; leave out --budget.", ExitCode.USAGE
            )
        return Ledger.load(path)
    if budget is None:
        return Ledger()
    unit: Any = declaration.unit
    return Ledger(Budget(epsilon=budget[0], delta=budget[1], unit=unit))

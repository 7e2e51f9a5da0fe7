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

from permea.cli.console import CommandError, ExitCode, one_line
from permea.cli.tables import listed, read_table, require_columns
from permea.privacy import Budget, Ledger, Privacy
from permea.privacy.ledger_events import clean_name
from permea.privacy.noise import MECHANISMS


class Unit(StrEnum):
    """What one ε speaks of."""

    entry = "entry"
    record = "record"


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
Mechanism = Annotated[
    str,
    typer.Option(
        "--mechanism",
        metavar="LAW",
        help=f"Law of the noise: {', '.join(MECHANISMS)}.",
        rich_help_panel=PANEL,
    ),
]
Clip = Annotated[
    bool,
    typer.Option(
        "--clip", help="Clip values outside the domain, not refuse.", rich_help_panel=PANEL
    ),
]
LedgerPlace = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="Account of what was given away: a database file (created if there is none), or "
        "postgresql://user@host/database.",
        rich_help_panel=PANEL,
    ),
]
DatasetName = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        help="Name of the data set in the ledger. Other names mean other people; rows without a "
        "name count against every data set.",
        rich_help_panel=PANEL,
    ),
]
BudgetOption = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--budget",
        help="Total ε and δ that a new ledger allows per unit; fixed for good.",
        rich_help_panel=PANEL,
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
                mechanism=self.mechanism,
            )
        except (ValueError, TypeError) as error:
            raise CommandError(one_line(error), ExitCode.USAGE) from error

    def bounded(self, X: NDArray[np.float64], privacy: Privacy) -> NDArray[np.float64]:
        """The rows inside the domain: ``--clip`` moves other values to its ends.

        Without ``--clip`` they become missing values, which are refused after the charge: whether
        a value lies outside depends on the rows.
        """
        clipped = np.clip(X, privacy.lows(X.shape[1]), privacy.highs(X.shape[1]))
        return np.asarray(clipped if self.clip else np.where(clipped == X, X, np.nan))


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
    where: str | None,
    budget: tuple[float, float] | None,
    declaration: Declaration,
    dataset: str | None = None,
) -> Ledger | None:
    """The account of this data set: opened when it exists, created when it does not."""
    if where is None:
        for name, value in (("--budget", budget), ("--dataset", dataset)):
            if value is not None:
                raise CommandError(f"{name} needs a --ledger to keep account in.", ExitCode.USAGE)
        return None
    try:
        if dataset is not None:
            clean_name(dataset)
        limit = None if budget is None else make_budget(*budget, declaration.unit)
    except ValueError as error:
        raise CommandError(one_line(error), ExitCode.USAGE) from error
    return Ledger(where, budget=limit)


def make_budget(epsilon: float, delta: float, unit: Any) -> Budget:
    """The budget that a command line declares."""
    return Budget(epsilon=epsilon, delta=delta, unit=str(unit))  # type: ignore[arg-type]

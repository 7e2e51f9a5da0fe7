"""Options that several commands share, each declared once.

A dataclass here is a group of options: a command takes it as one parameter (see
`permea.cli.app.Command`).
"""

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from typer import Argument, Option

from permea.audit.tables import by_number
from permea.cli.console import InputError, UsageError
from permea.cli.models import (
    build_classifier,
    families,
    model_input,
    output_column,
    parameters_of,
    read_rows,
    schema_of,
)
from permea.cli.tables import labels, listed, read_file, read_table, require_columns
from permea.privacy import Budget, Ledger, Privacy
from permea.privacy.ledger_events import clean_name
from permea.privacy.noise import MECHANISMS
from permea.privacy.signing import TRUSTED_KEYS_VARIABLE

Data = Annotated[str, Argument(help="Table: .csv, .parquet, or - for standard input.")]
ModelFile = Annotated[str, Argument(metavar="MODEL", help="Model file that permea wrote.")]
Label = Annotated[str, Option("--label", "-l", help="Column of the classes.")]
MaybeLabel = Annotated[str | None, Option("--label", "-l", help="Column of the classes.")]
TableOutput = Annotated[str, Option("--output", "-o", help="Table to write; - is standard output.")]
JsonOutput = Annotated[str | None, Option("--output", "-o", help="Write the findings as JSON.")]
NewColumn = Annotated[str, Option(help="Name of the new column.")]
Jobs = Annotated[int, Option("--jobs", help="Workers; -1 for all cores.")]
Components = Annotated[int, Option("--components", min=1, help="Subspace dimension n.")]
Seed = Annotated[
    int | None, Option("--seed", help="Repeatable noise: NOT private.", rich_help_panel="Privacy")
]
Sign = Annotated[
    Path | None, Option("--sign", metavar="KEY", help="Sign the certificate with this private key.")
]
Trusted = Annotated[
    Path | None,
    Option(
        "--trusted",
        metavar="FILE",
        envvar=TRUSTED_KEYS_VARIABLE,
        help="File of the public keys that you trust.",
    ),
]


class Unit(StrEnum):
    """What ε protects."""

    entry = "entry"
    record = "record"
    person = "person"


class Neighbours(StrEnum):
    """How neighbouring tables differ."""

    replaced = "replace"
    added = "add/remove"


Ranges = tuple[NDArray[np.float64], NDArray[np.float64]]


def _private(*names: str, **settings: Any) -> Any:
    """An option in the panel "Privacy" of the help."""
    return Option(*names, rich_help_panel="Privacy", **settings)


Domain = Annotated[
    tuple[float, float] | None,
    _private(
        "--domain",
        help="Public range LOW HIGH of every feature, from its meaning and not from the data.",
    ),
]
Relation = Annotated[
    Neighbours,
    _private(
        "--neighbours",
        help="For noise on sums: a record or person is replaced, or comes and goes.",
    ),
]
DomainFile = Annotated[
    Path | None,
    _private(
        "--domain-file", help="Ranges per column: CSV with the columns column, low, high; or JSON."
    ),
]


@dataclass(frozen=True)
class PrivacyOptions:
    """ε, δ, unit and domain; they become a `Privacy` once the columns are known."""

    epsilon: Annotated[
        float | None, _private("--epsilon", "-e", help="Bound on the privacy loss.")
    ] = None
    delta: Annotated[float, _private(help="Probability of failure.")] = 0.0
    unit: Annotated[
        Unit,
        _private(help="What ε protects: one entry, one record (row), or one person (all rows)."),
    ] = Unit.entry
    domain: Domain = None
    domain_file: DomainFile = None
    mechanism: Annotated[
        str, _private(metavar="NAME", help=f"Distribution of the noise: {', '.join(MECHANISMS)}.")
    ] = "optimal"
    bound: Annotated[
        float | None,
        _private(
            help="For noise on rows: the most that one value may change and stay hidden, d of "
            "document 002. Without it, any change within the domain.",
        ),
    ] = None
    clip: Annotated[
        bool, _private("--clip", help="Clip values outside the domain instead of refusing them.")
    ] = False

    def check(self, *, alternative: str = "", schema: bool = False) -> None:
        """Refuse incomplete or impossible options before a file is read."""
        if self.epsilon is None:
            raise UsageError(
                "How private? Give --epsilon (e.g. 1), --delta, --unit and what is known about the "
                f"columns: --schema FILE, or --domain LOW HIGH for numbers{alternative}."
            )
        if schema:
            if self.domain is not None or self.domain_file is not None:
                raise UsageError("The ranges are those of --schema; leave out --domain.")
            replace(self, bound=None)._build((0.0, 1.0))
            return
        if self.domain is not None and self.domain_file is not None:
            raise UsageError("Give --domain or --domain-file, not both.")
        if self.domain is None and self.domain_file is None:
            raise UsageError(
                "The public range of the features is missing: give --domain LOW HIGH, or "
                "--domain-file with one range per column, or --schema. Take it from what the "
                "features mean, not from the data, whose minimum and maximum are private."
            )
        if self.domain is not None:
            self._build(self.domain)
        else:
            replace(self, bound=None)._build((0.0, 1.0))

    def ranges(self, columns: list[str]) -> Ranges:
        """Lower and upper ends of the named columns."""
        if self.domain_file is not None:
            return read_domains(self.domain_file, columns)
        low, high = self.domain or (0.0, 1.0)
        return np.full(len(columns), low), np.full(len(columns), high)

    def within(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> Privacy:
        """The declared privacy of columns with these ranges."""
        if len({*low.tolist()}) == len({*high.tolist()}) == 1:
            return self._build((float(low[0]), float(high[0])))
        return self._build((tuple(low.tolist()), tuple(high.tolist())))

    def of_moments(self) -> Privacy:
        """The declared privacy of sums, whose columns a schema declares."""
        if self.delta == 0:
            raise UsageError(
                "Noise on sums needs --delta above 0: the probability of failure, well below one "
                "over the number of people, e.g. --delta 1e-6."
            )
        return self._build(None)

    def _build(self, domain: Any) -> Privacy:
        declared: dict[str, Any] = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit.value,
            "domain": domain,
            "bound": self.bound,
            "mechanism": self.mechanism,
        }
        try:
            return Privacy(**declared)
        except (ValueError, TypeError) as error:
            raise UsageError(error) from error

    def bounded(
        self, X: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The rows inside the domain: ``--clip`` moves other values to its ends.

        Without ``--clip`` they become missing values, which are refused after the charge: whether
        a value lies outside depends on the rows.
        """
        clipped = np.clip(X, low, high)
        return np.asarray(clipped if self.clip else np.where(clipped == X, X, np.nan))


def read_domains(path: Path, columns: list[str]) -> Ranges:
    """Lower and upper ends of the named columns from a CSV or JSON file."""
    if path.suffix.lower() == ".json":
        ranges = read_json_pairs(path, '{"column": [low, high]}')
        rows = [(name, low, high) for name, (low, high) in ranges.items()]
        frame = pd.DataFrame(rows, columns=["column", "low", "high"])
    else:
        frame = read_table(str(path))
    require_columns(frame, ["column", "low", "high"], str(path))
    ends = frame.assign(column=frame["column"].astype(str)).set_index("column")
    missing = [name for name in columns if name not in ends.index]
    if missing:
        raise InputError(
            f"{path} gives no range for the column{'s' * (len(missing) > 1)} {listed(missing)}. "
            "Every feature needs one."
        )
    try:
        chosen = ends.loc[columns, ["low", "high"]].to_numpy(dtype=np.float64)
    except (ValueError, TypeError):
        raise InputError(f"{path}: low and high must be numbers.") from None
    if len(chosen) != len(columns):
        raise InputError(f"{path} names a column twice.")
    return chosen[:, 0], chosen[:, 1]


def read_json_pairs(path: Path, form: str) -> dict[str, tuple[Any, Any]]:
    """A JSON file with two values for each name."""
    try:
        values = json.loads(read_file(path))
        return {str(name): (first, second) for name, (first, second) in values.items()}
    except (ValueError, TypeError, AttributeError):
        raise InputError(f"{path} has another form than {form}.") from None


@dataclass(frozen=True)
class LedgerOptions:
    """The account that is charged before the rows are read."""

    ledger: Annotated[
        str | None,
        _private(
            help="Account of the privacy spent: a database file (created if it does not exist), or "
            "postgresql://user@host/database."
        ),
    ] = None
    budget: Annotated[
        tuple[float, float] | None,
        _private(
            help="Total ε and δ that a new ledger allows per unit; it cannot be changed later."
        ),
    ] = None
    dataset: Annotated[
        str | None,
        _private(
            help="Name of the data set in the ledger. Different names mean different people; rows "
            "without a name count against every data set."
        ),
    ] = None

    def open(self, unit: Unit) -> Ledger | None:
        """Open the ledger, or create it when it does not exist."""
        if self.ledger is None:
            for name, value in (("--budget", self.budget), ("--dataset", self.dataset)):
                if value is not None:
                    raise UsageError(f"{name} needs --ledger.")
            return None
        limit = None if self.budget is None else make_budget(*self.budget, unit)
        try:
            if self.dataset is not None:
                clean_name(self.dataset)
        except ValueError as error:
            raise UsageError(error) from error
        return Ledger(self.ledger, budget=limit)


def make_budget(epsilon: float, delta: float, unit: Unit) -> Budget:
    """The budget that a command line declares."""
    try:
        return Budget(epsilon=epsilon, delta=delta, unit=unit.value)
    except ValueError as error:
        raise UsageError(error) from error


@dataclass(frozen=True)
class ColumnOptions:
    """Columns that are not features."""

    ids: Annotated[
        list[str] | None, Option("--id", help="Column that is not a feature (repeat).")
    ] = None
    drop: Annotated[list[str] | None, Option(help="Column to ignore (repeat).")] = None

    def features(self, frame: pd.DataFrame, label: str | None, what: str) -> list[str]:
        """Names of the feature columns, after checking that the others exist."""
        others = [*([] if label is None else [label]), *(self.ids or ()), *(self.drop or ())]
        require_columns(frame, others, what)
        names = [name for name in frame.columns if name not in others]
        if not names:
            raise InputError(f"{what} has no feature columns left.")
        return names


def share_or_count(text: str) -> float | int:
    """A whole number, or a share of the rows above 0 and at most 1.

    Examples
    --------
    >>> share_or_count("12"), share_or_count("0.5"), share_or_count("1.0")
    (12, 0.5, 1.0)
    """
    value = int(text) if text.strip().isdigit() else float(text)
    if not (value >= 1 if isinstance(value, int) else 0 < value <= 1):
        raise ValueError(text)
    return value


class Disturbance(StrEnum):
    """What a membership mapping assumes of the errors of its outputs."""

    precision = "precision"
    gamma = "gamma"


def _of_rows(name: str, what: str) -> Any:
    """An option that is a share of the rows or a count."""
    return Option(name, parser=share_or_count, metavar="SHARE|COUNT", help=what)


MOMENTS = "moments"
HULLS = "hulls"


class Leaves(StrEnum):
    """What leaves the data owner."""

    auto = "auto"
    moments = "moments"
    rows = "rows"


@dataclass(frozen=True)
class ModelOptions:
    """Which model is trained, from what, and how large it is."""

    model: Annotated[
        str | None,
        Option(
            "--model",
            "--family",
            help=f"Model family: {MOMENTS} (ridge regression, the default for --unit record and "
            f"person); {HULLS} (distances to classes); {', '.join(families())} (kahm is the "
            "default for --unit entry); or package.module:Class, a family of your own.",
        ),
    ] = None
    release: Annotated[
        Leaves,
        Option(
            help="What gets the noise: sums over records or people (moments), or every row. auto "
            "is moments for --unit record and person, rows for entry.",
        ),
    ] = Leaves.auto
    components: Annotated[
        int | None,
        Option("--components", min=1, help="Subspace dimension n; 20, or chosen from moments."),
    ] = None
    layers: Annotated[
        int | None,
        Option(min=1, help="Depth L; 5, or 1 for fuzzy, whose own layers are learned."),
    ] = None
    branch_size: Annotated[
        int | None, Option(min=1, help="Rows of a branch; 1000, more under strong noise.")
    ] = None
    rules: Annotated[
        float | None, _of_rows("--rules", "Rules of a branch, for fuzzy: of its rows, or a number.")
    ] = None
    inducing: Annotated[
        float | None,
        _of_rows("--inducing", "Most inducing points of a branch, for membership (M/N, r_max)."),
    ] = None
    disturbance: Annotated[
        Disturbance | None,
        Option(help="For membership: the model of 001 and 003, or that of 000 (gamma)."),
    ] = None
    kappa: Annotated[
        float | None, Option(help="For membership: smallest smoothing level κ, above 0.")
    ] = None
    nu: Annotated[float | None, Option(help="For membership: degrees of freedom ν, above 2.")] = (
        None
    )
    jobs: Jobs = -1

    def given(self) -> dict[str, Any]:
        """Parameters of the model that were given, by the options that give them."""
        values = {name: getattr(self, name.removeprefix("--").replace("-", "_")) for name in _NAMES}
        return {name: value for name, value in values.items() if value is not None}

    def check(self, *, sums: bool) -> None:
        """Refuse options for parameters that the family does not have, before a file is read."""
        family = self.model or (MOMENTS if sums else "kahm")
        known = set() if family in (MOMENTS, HULLS) else parameters_of(family)
        if unknown := [option for option in self.given() if _NAMES[option] not in known]:
            raise UsageError(f"--family {family} has no {', '.join(unknown)}: leave it out.")

    def of_moments(self, unit: Unit) -> bool:
        """Whether noise is added to sums; refuses what does not go together."""
        if unit is Unit.entry:
            if self.release is Leaves.moments or self.model in (MOMENTS, HULLS):
                raise UsageError(
                    "Noise on sums protects whole records or people: give --unit record or --unit "
                    "person. For --unit entry choose noise on rows and another --family, e.g. kahm."
                )
            return False
        if self.release is not Leaves.rows:
            return True
        if unit is Unit.person:
            raise UsageError(
                "Noise on rows does not protect people who have several of them: leave out "
                "--release rows."
            )
        if self.model in (MOMENTS, HULLS):
            raise UsageError(f"--family {self.model} learns from sums: leave out --release rows.")
        return False

    def build(self, **more: Any) -> Any:
        """An unfitted classifier; ``more`` are further parameters of it."""
        given = {_NAMES[option]: value for option, value in self.given().items()}
        if self.disturbance is not None:
            given["disturbance"] = self.disturbance.value
        return build_classifier(self.model or "kahm", **given, n_jobs=self.jobs, **more)


_NAMES = {  # the parameter that an option gives
    "--components": "n_components",
    "--layers": "n_layers",
    "--branch-size": "branch_size",
    "--rules": "n_rules",
    "--inducing": "max_inducing",
    "--disturbance": "disturbance",
    "--kappa": "kappa",
    "--nu": "nu",
}


Rows = tuple[NDArray[np.float64], NDArray[np.generic]]


@dataclass(frozen=True)
class Attacked:
    """A classifier, rows that trained it and rows that did not, each with labels."""

    model: Any
    members: Rows
    outside: Rows


@dataclass(frozen=True)
class AttackTables:
    """Rows with which a model is attacked: both tables, or none of them."""

    members: Annotated[str | None, Option(help="Rows that trained the model.")] = None
    outside: Annotated[str | None, Option(help="Rows that did not train it.")] = None
    label: Annotated[
        str | None,
        Option("--label", "-l", help="Column of the classes, where the model does not know it."),
    ] = None

    def check(self) -> tuple[str, ...]:
        """The two paths, or nothing when no option was given."""
        if self.members is None or self.outside is None:
            if self.members is self.outside is self.label:
                return ()
            raise UsageError("--members, --outside and --label belong together.")
        return self.members, self.outside

    def read(self, model: Any, path: str) -> Attacked:
        """The tables as what the model is attacked with; ``path`` is the model's file."""
        if not hasattr(model, "classes_"):
            raise UsageError(f"{path} predicts numbers; attacks are for classes.")
        label = self.label or output_column(model)
        if label is None:
            raise UsageError(f"{path} does not know its column of classes: give --label COLUMN.")
        names = self.check()
        frames = [read_rows(model, name) for name in names]
        found = [
            self._labels(model, frame, label, name)
            for frame, name in zip(frames, names, strict=True)
        ]
        parts = [model_input(model, frame, name) for frame, name in zip(frames, names, strict=True)]
        if schema_of(model) is None:
            return Attacked(model, (parts[0], found[0]), (parts[1], found[1]))
        table, inside, outside = by_number(model, *frames)
        return Attacked(table, (inside, found[0]), (outside, found[1]))

    def _labels(self, model: Any, frame: pd.DataFrame, label: str, what: str) -> NDArray[Any]:
        schema = schema_of(model)
        if schema is not None:
            require_columns(frame, [schema.label], what)
            try:
                return np.asarray(schema.labels(frame))
            except ValueError as error:
                raise InputError(f"{what}: {error}") from error
        y = labels(frame, label, what)
        if not np.isin(y.astype(str), np.asarray(model.classes_).astype(str)).any():
            raise InputError(
                f"{what}: none of the labels in {label!r} is a class of the model. Name the "
                "column of the classes with --label."
            )
        return y

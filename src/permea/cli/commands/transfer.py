"""``permea source`` and ``permea transfer``: learn with few labels from another owner's source."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from typer import Argument, Option

from permea.cli import models, options, signatures, tables
from permea.cli.app import LEARN, command
from permea.cli.commands.train import (
    check_person,
    check_roles,
    declared_rows,
    learn_from_sums,
    numbers_as_declared,
    read_numbers,
    report_training,
    warn_about_noise,
)
from permea.cli.console import Console, InputError, ModelError, UsageError
from permea.cli.schemas import SchemaOptions
from permea.cli.table_model import TableClassifier, unit_privacy
from permea.privacy import Privacy
from permea.privacy.signing import TrustedKeys
from permea.storage import load
from permea.transfer import SourceModel, TransferClassifier
from permea.transfer.target import DEFAULT_METHOD, METHODS

Method = StrEnum("Method", {name: name for name in METHODS})  # type: ignore[misc]


@command("source", panel=LEARN)
def source(
    console: Console,
    data: options.Data,
    output: Annotated[str, Option("--output", "-o", help="Source file to write.")],
    declared: options.PrivacyOptions,
    ledger: options.LedgerOptions,
    columns: options.ColumnOptions,
    about: SchemaOptions,
    family: options.ModelOptions,
    label: options.MaybeLabel = None,
    neighbours: options.Relation = options.Neighbours.replaced,
    seed: options.Seed = None,
    sign: options.Sign = None,
) -> None:
    """Make a file from a labelled table that others can learn from.

    With --unit record or person, noise is added once, to the class moments of the declared columns
    (--schema, or --domain and --class). With --unit entry, or with --release rows, noise is added
    to the rows. Classifier, directions, class centres and densities are learned from what was
    released. The file contains the certificate and no row of the table.

    Example:
        permea source data.csv --label y --epsilon 1 --delta 1e-5 --domain 0 1 -o source.permea
        permea source people.csv --schema people.toml -e 1 --delta 1e-6 --unit person -o s.permea
    """
    schema = about.load()
    declared.check(schema=schema is not None)
    check_roles(label, columns, schema)
    moments = family.of_moments(declared.unit)
    if moments and family.model is not None:
        raise UsageError("A source of class moments has no --family: leave it out.")
    family.check(sums=moments)
    tables.check_output(output, (), inputs=(data,))
    key = signatures.signing_key(sign)
    account: dict[str, Any] = {"ledger": ledger.open(declared.unit), "dataset": ledger.dataset}
    if moments:
        if schema is None:
            schema, rows = numbers_as_declared(data, str(label), columns, about, declared)
        else:
            rows = declared_rows(data, about.query, schema, private=True)
        check_person(console, schema, declared.unit)
        settings = {"neighbours": neighbours.value, "random_state": seed, **account}
        model = SourceModel(privacy=declared.of_moments(), schema=schema, **settings)
        what = data if about.query is None else "the query"
        shape = learn_from_sums(console, what, model, rows)
    else:
        privacy, names, xy = read_numbers(data, str(label), columns, declared, schema)
        assert privacy is not None
        name = str(label if schema is None else schema.label)
        inner = SourceModel(privacy=unit_privacy(privacy), release="rows", random_state=seed)
        model = TableClassifier(inner, columns=names, label=name, privacy=privacy)
        shape = _learn_from_rows(console, data, model, family, xy, account)
    models.save_model(model, output, key)
    report_training(console, model, "source", output, shape, key)


def _learn_from_rows(
    console: Console,
    data: str,
    model: TableClassifier,
    family: options.ModelOptions,
    rows: options.Rows,
    account: dict[str, Any],
) -> tuple[int, int]:
    """Noise the rows of numbers; how many rows and columns they have."""
    shape = rows[0].shape
    warn_about_noise(console, model.privacy, shape[1])
    chosen = replace(family, components=min(family.components or 20, shape[1])).build()
    model.classifier.set_params(classifier=chosen)
    console.say(f"learning from {shape[1]} columns of {data} ...")
    with tables.one_message_about(data):
        model.fit(*rows, **account)
    return int(shape[0]), int(shape[1])


@command("transfer", panel=LEARN)
def transfer(
    console: Console,
    source: Annotated[str, Argument(help="File that `permea source` wrote.")],
    target: Annotated[str, Argument(help="Table with few labels: .csv, .parquet, or -.")],
    label: Annotated[
        str, Option("--label", "-l", help="Column of the classes; empty where unknown.")
    ],
    columns: options.ColumnOptions,
    output: options.TableOutput = tables.STREAM,
    new: Annotated[
        str | None, Option(help="Predict the rows of this table, not the target's.")
    ] = None,
    method: Annotated[Method, Option(help="How source and target are combined.")] = Method[
        DEFAULT_METHOD
    ],
    domain: options.Domain = None,
    domain_file: options.DomainFile = None,
    column: options.NewColumn = "prediction",
    who: Annotated[
        bool, Option("--who", help="Add a column that says which side decided.")
    ] = False,
    jobs: options.Jobs = -1,
    seed: Annotated[int, Option(help="For k-means.")] = 0,
    trusted: options.Trusted = None,
) -> None:
    """Label a table that has few labels, with the help of another owner's source file.

    Leave the label empty (or -1) where it is not known. Columns with the names of the source's are
    used as the source used them; a table with other columns is aligned with the source.

    Example:
        permea transfer source.permea target.csv --label y -o predictions.csv
    """
    tables.check_table_output(console, output, source, target, new)
    given, promise, names = _load_source(source, signatures.trusted_keys(trusted))
    frame = models.read_rows(given, target)
    tables.require_columns(frame, [label], target)
    if given.schema is None:
        found = columns.features(frame, label, target)
        entrance = _numbers(
            given, promise, names, frame, found, target,
            lambda X: _ranges(X, found, domain, domain_file),
        )  # fmt: skip
    else:
        entrance = _Entrance(list(given.schema.features), True, None, given)
    rows, features = entrance.rows(frame, target), entrance.features
    classifier = TransferClassifier(
        given,
        method=method.value,
        alignment="identity" if entrance.same else "subspace",
        n_jobs=jobs,
        random_state=seed,
    )
    console.say(f"learning from {len(features)} columns of {target} ...")
    if given.schema is None:
        known = _known_labels(frame[label], target, given.classes_)
    else:
        known = _declared_labels(given, frame, label, target)
    classifier.fit(rows, known)
    if new is None:
        table, what, answer = frame, target, classifier.labels_
    else:
        table, what = models.read_rows(given, new), new
        rows = entrance.rows(table, new)
        answer = classifier.predict(rows)
    result = tables.with_predictions(table.drop(columns=features), column, answer, what)
    if who:
        result = result.assign(decided_by=classifier.who_decided(rows))
    status = signatures.certificate_status(classifier.certificate_)
    tables.write_predictions(
        console,
        result,
        output,
        signatures.describe_certificate(classifier.certificate_, source),
        {
            "predicted": tables.counts_by_class(answer),
            "method": classifier.method,
            "history": [{"step": one.step, "changed": one.changed} for one in classifier.history_],
            **{f"source_{name}": status[name] for name in ("private", "verified", "status")},
        },
    )


@dataclass(frozen=True)
class _Entrance:
    """How tables of the target become what the source can be used with."""

    features: list[str]
    same: bool  #: whether these are the columns of the source
    ranges: options.Ranges | None  #: that are mapped to [0, 1]
    source: SourceModel

    def rows(self, frame: pd.DataFrame, what: str) -> Any:
        """The features of a table: as it is for a source with a schema, else numbers."""
        if self.source.schema is not None:
            return models.model_input(self.source, frame, what)
        return _scaled(tables.numbers(frame, self.features, what), self.ranges)


def _load_source(
    path: str, trusted: TrustedKeys | None
) -> tuple[SourceModel, Privacy | None, list[str] | None]:
    """The source, what was declared about its table, and its columns where they have names."""
    model = load(path, trusted=trusted)
    if isinstance(model, TableClassifier) and isinstance(model.classifier_, SourceModel):
        return model.classifier_, model.privacy, [str(name) for name in model.columns]
    if isinstance(model, SourceModel):
        names = getattr(model, "feature_names_in_", None)
        return model, None, None if names is None else [str(name) for name in names]
    raise ModelError(
        f"{path} holds a {type(model).__name__}, not a source. Make one with permea source."
    )


def _numbers(
    source: SourceModel,
    promise: Privacy | None,
    names: list[str] | None,
    frame: pd.DataFrame,
    features: list[str],
    what: str,
    ranges: Callable[[NDArray[np.float64]], options.Ranges],
) -> _Entrance:
    """Tables of numbers: with the columns of the source and its ranges, or with others."""
    same = len(features) == source.n_features_in_ if names is None else {*names} <= {*features}
    if not same:
        return _Entrance(features, False, ranges(tables.numbers(frame, features, what)), source)
    chosen = names or features
    size = len(chosen)
    declared = None if promise is None else (promise.lows(size), promise.highs(size))
    return _Entrance(chosen, True, declared, source)


def _ranges(
    X: NDArray[np.float64],
    columns: list[str],
    domain: tuple[float, float] | None,
    domain_file: Path | None,
) -> options.Ranges:
    """Ranges that are mapped to [0, 1]; those of the target's own rows where none is declared."""
    if domain_file is not None:
        return options.read_domains(domain_file, columns)
    if domain is not None:
        return np.full(len(columns), domain[0]), np.full(len(columns), domain[1])
    low, high = X.min(axis=0), X.max(axis=0)
    return low, np.where(high > low, high, low + 1)


def _scaled(X: NDArray[np.float64], ranges: options.Ranges | None) -> NDArray[np.float64]:
    return X if ranges is None else np.asarray((X - ranges[0]) / (ranges[1] - ranges[0]))


def _known_labels(values: "pd.Series[Any]", what: str, classes: NDArray[Any]) -> NDArray[Any]:
    """The label column as text, empty where there is none; numbers stay numbers as text."""
    texts = np.full(len(values), "", dtype=object)
    known = values.notna().to_numpy()
    if values.dtype.kind in "fiub":
        as_numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        known = known & (as_numbers != -1)
        tables.check_whole(as_numbers[known], str(values.name), what)
        texts[known] = [str(int(number)) for number in as_numbers[known]]
    else:
        texts[known] = [str(item).strip() for item in values[known]]
        texts[texts == "-1"] = ""
    return texts.astype(str) if classes.dtype.kind in "UO" else texts


def _declared_labels(
    source: SourceModel, frame: pd.DataFrame, label: str, what: str
) -> NDArray[Any]:
    """The label column as the schema of the source reads it, empty where there is none."""
    assert source.schema is not None
    values = frame[label].where(frame[label].astype(str).str.strip() != "-1")
    try:
        known, given, _ = models.known_labels(source, pd.DataFrame({source.schema.label: values}))
    except ValueError as error:
        raise InputError(f"{what}: {error}") from error
    texts = np.full(len(values), "", dtype=object)
    texts[known] = given
    return texts.astype(str)

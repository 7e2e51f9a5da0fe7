"""``permea source`` and ``permea transfer``: learn with few labels from another owner's source."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from typer import Argument, Option

from permea.cli import models, options, signatures, tables
from permea.cli.app import LEARN, command
from permea.cli.commands.train import read_numbers, report_training, warn_about_noise
from permea.cli.console import Console, ModelError
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
    label: options.Label,
    output: Annotated[str, Option("--output", "-o", help="Source file to write.")],
    declared: options.PrivacyOptions,
    ledger: options.LedgerOptions,
    columns: options.ColumnOptions,
    family: options.ModelOptions,
    seed: options.Seed = None,
    sign: options.Sign = None,
) -> None:
    """Make a file from a labelled table that others can learn from.

    Noise is added to the rows once; classifier, directions, class centres and class moments are
    learned from the noised rows. The file contains the certificate and no row of the table.

    Example:
        permea source data.csv --label y --epsilon 1 --delta 1e-5 --domain 0 1 -o source.permea
    """
    declared.check()
    family.rows_name(declared.unit, "source")
    tables.check_output(output, (), inputs=(data,))
    key = signatures.signing_key(sign)
    account = ledger.open(declared.unit)
    privacy, names, rows = read_numbers(data, label, columns, declared)
    assert privacy is not None
    warn_about_noise(console, privacy, len(names))
    inner = SourceModel(
        privacy=unit_privacy(privacy),
        classifier=replace(family, components=min(family.components, len(names))).build(),
        random_state=seed,
    )
    model = TableClassifier(inner, columns=names, label=label, privacy=privacy)
    console.say(f"learning from {len(names)} columns of {data} ...")
    with tables.one_message_about(data):
        model.fit(*rows, ledger=account, dataset=ledger.dataset)
    models.save_model(model, output, key)
    report_training(console, model, "source", output, rows[0].shape, key)


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
    frame = tables.read_table(target)
    features = columns.features(frame, label, target)
    same = len(features) == given.n_features_in_ if names is None else {*names} <= {*features}
    if same:
        features = names or features
        size = len(features)
        ranges = None if promise is None else (promise.lows(size), promise.highs(size))
    else:
        ranges = _ranges(tables.numbers(frame, features, target), features, domain, domain_file)
    rows = _scaled(tables.numbers(frame, features, target), ranges)
    classifier = TransferClassifier(
        given,
        method=method.value,
        alignment="identity" if same else "subspace",
        n_jobs=jobs,
        random_state=seed,
    )
    console.say(f"learning from {len(features)} columns of {target} ...")
    classifier.fit(rows, _known_labels(frame[label], target, given.classes_))
    if new is None:
        table, what, answer = frame, target, classifier.labels_
    else:
        table, what = tables.read_table(new), new
        rows = _scaled(tables.numbers(table, features, new), ranges)
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

"""``permea source`` and ``permea transfer``: hand over what was learned; learn with few labels."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from permea.cli import declaration as declare
from permea.cli.app import LEARN, command
from permea.cli.commands.train import (
    Components,
    Data,
    Dropped,
    Family,
    Ids,
    Label,
    fit_and_save,
    make_classifier,
    read_declared,
)
from permea.cli.console import CommandError, Console, ExitCode
from permea.cli.table_model import TableClassifier, unit_privacy
from permea.cli.tables import (
    FORMATS,
    STREAM,
    Roles,
    check_output,
    numbers,
    read_table,
    refused_after_charge,
    require_columns,
    write_table,
)
from permea.cli.trust import (
    Sign,
    Trusted,
    remark,
    signed_by,
    signing_key,
    standing,
    trusted_keys,
)
from permea.privacy import Privacy
from permea.privacy.signing import TrustedKeys
from permea.storage import load
from permea.transfer import SourceModel, TransferClassifier
from permea.transfer.target import DEFAULT_METHOD, METHODS

Method = StrEnum("Method", {name: name for name in METHODS})  # type: ignore[misc]


@command(
    "source",
    panel=LEARN,
    examples=[
        "permea source data.csv --label y --epsilon 1 --delta 1e-5 --unit entry --domain 0 1"
        " -o source.permea"
    ],
)
def source(
    console: Console,
    data: Data,
    label: Label,
    output: Annotated[str, typer.Option("--output", "-o", help="Artefact to write.")],
    epsilon: declare.Epsilon = None,
    delta: declare.Delta = 0.0,
    unit: declare.UnitOption = declare.Unit.entry,
    domain: declare.Domain = None,
    domain_file: declare.DomainFile = None,
    mechanism: declare.Mechanism = "optimal",
    clip: declare.Clip = False,
    ledger: declare.LedgerPlace = None,
    budget: declare.BudgetOption = None,
    dataset: declare.DatasetName = None,
    seed: declare.Seed = None,
    ids: Ids = None,
    drop: Dropped = None,
    family: Annotated[Family, typer.Option(help="Family of the classifier.")] = Family.kahm,
    components: Components = 20,
    layers: Annotated[int, typer.Option("--layers", min=1, help="Depth L.")] = 5,
    jobs: Annotated[int, typer.Option("--jobs", help="Workers; -1 for all cores.")] = -1,
    sign: Sign = None,
) -> None:
    """Make an artefact of a labelled table that others can learn from.

    The rows are noised once; classifier, directions, class centres and class moments are learned
    from the noised rows. The file carries the certificate and no row of the table.
    """
    declared = declare.Declaration(epsilon, delta, unit, domain, domain_file, mechanism, clip)
    declared.check()
    check_output(output, (), inputs=(data,))
    key = signing_key(sign, console)
    account = declare.open_ledger(ledger, budget, declared, dataset)
    roles = Roles(label, tuple(ids or ()), tuple(drop or ()))
    privacy, columns, X, y = read_declared(data, roles, declared)
    components = min(components, len(columns))
    options = {"n_components": components, "n_layers": min(layers, components), "n_jobs": jobs}
    inner = SourceModel(
        privacy=unit_privacy(privacy),
        classifier=make_classifier(family, None, options),
        random_state=seed,
    )
    model = TableClassifier(inner, columns=columns, label=label, privacy=privacy)
    console.say(f"learning from {len(columns)} columns of {data} ...")
    with refused_after_charge(data):
        fit_and_save(model, X, y, output, account, dataset, key)
    certificate = model.certificate_
    assert certificate is not None
    values = {
        "source": output,
        "rows": X.shape[0],
        "columns": X.shape[1],
        "classes": [str(name) for name in model.classes_],
        **standing(certificate),
        "signed_by": None if key is None else key.name,
        "certificate": certificate.to_dict(),
    }
    console.result(f"{certificate}\nsource written to {output}\n{signed_by(key)}", values)


@command(
    "transfer",
    panel=LEARN,
    examples=["permea transfer source.permea target.csv --label y -o predictions.csv"],
)
def transfer(
    console: Console,
    source: Annotated[str, typer.Argument(help="Artefact that `permea source` wrote.")],
    target: Annotated[str, typer.Argument(help="Table with few labels: .csv, .parquet, or -.")],
    label: Annotated[
        str, typer.Option("--label", "-l", help="Column of the classes; empty where unknown.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="Table to write; - is standard output.")
    ] = STREAM,
    new: Annotated[
        str | None, typer.Option("--new", help="Predict the rows of this table, not the target's.")
    ] = None,
    method: Annotated[
        Method, typer.Option("--method", help="How source and target are brought together.")
    ] = Method[DEFAULT_METHOD],
    domain: declare.Domain = None,
    domain_file: declare.DomainFile = None,
    ids: Ids = None,
    drop: Dropped = None,
    column: Annotated[str, typer.Option(help="Name of the new column.")] = "prediction",
    who: Annotated[
        bool, typer.Option("--who", help="Add a column that says which side decided.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", help="Workers; -1 for all cores.")] = -1,
    seed: Annotated[int, typer.Option("--seed", help="For k-means.")] = 0,
    trusted: Trusted = None,
) -> None:
    """Label a table that has few labels, with the help of another owner's artefact.

    Leave the label empty (or -1) where it is not known. Columns with the names of the source's are
    used as the source used them; a table with other columns is aligned with the source.
    """
    _check_streams(console, output, source, target, new)
    given, promise, names = _load_source(source, trusted_keys(trusted))
    frame = read_table(target)
    reader = _Reader(label, tuple(ids or ()), tuple(drop or ()), names, promise)
    columns, same = reader.columns(frame, target, given.n_features_in_)
    ends = reader.ends(frame, columns, same, domain, domain_file, target)
    rows = reader.rows(frame, columns, ends, target)
    classifier = TransferClassifier(
        given,
        method=method.value,
        alignment="identity" if same else "subspace",
        n_jobs=jobs,
        random_state=seed,
    )
    known = _labels(frame, label, target)
    console.say(f"learning from {len(columns)} columns of {target} ...")
    classifier.fit(rows, _like(known, given.classes_))
    asked, what = (frame, target) if new is None else (read_table(new), new)
    queries = rows if new is None else reader.rows(asked, columns, ends, new)
    answer = classifier.labels_ if new is None else classifier.predict(queries)
    if column in asked.columns:
        raise CommandError(
            f"{what} has a column {column!r} already; name the new one with --column.",
            ExitCode.USAGE,
        )
    result = asked.drop(columns=columns).assign(**{column: answer})
    if who:
        result = result.assign(decided_by=classifier.who_decided(queries))
    write_table(result, output)
    _tell(console, classifier, answer, output, source)


def _check_streams(
    console: Console, output: str, source: str, target: str, new: str | None
) -> None:
    if console.as_json and output == STREAM:
        raise CommandError(
            "--json and the table would mix on standard output; give -o FILE.", ExitCode.USAGE
        )
    inputs = (source, target) if new is None else (source, target, new)
    check_output(output, FORMATS, inputs=inputs)


def _load_source(
    path: str, trusted: TrustedKeys | None
) -> tuple[SourceModel, Privacy | None, list[str] | None]:
    """The artefact, what was declared about its table, and its columns where they have names."""
    model = load(path, trusted=trusted)
    if isinstance(model, TableClassifier) and isinstance(model.classifier_, SourceModel):
        return model.classifier_, model.privacy, [str(name) for name in model.columns]
    if isinstance(model, SourceModel):
        names = getattr(model, "feature_names_in_", None)
        return model, None, None if names is None else [str(name) for name in names]
    raise CommandError(
        f"{path} holds a {type(model).__name__}, not a source. Make one with permea source.",
        ExitCode.MODEL,
    )


class _Reader:
    """Turns tables of the target into matrices, always in the same way."""

    def __init__(
        self,
        label: str,
        ids: tuple[str, ...],
        dropped: tuple[str, ...],
        names: list[str] | None,
        promise: Privacy | None,
    ) -> None:
        self.roles = Roles(label, ids, dropped)
        self.names = names
        self.promise = promise

    def columns(self, frame: pd.DataFrame, what: str, expected: int) -> tuple[list[str], bool]:
        """Feature columns, and whether they are those of the source."""
        features = self.roles.features(frame, what)
        if self.names is not None:
            if set(self.names) <= set(features):
                return self.names, True
            return features, False
        return features, len(features) == expected

    def ends(
        self,
        frame: pd.DataFrame,
        columns: list[str],
        same: bool,
        domain: tuple[float, float] | None,
        domain_file: Path | None,
        what: str,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Ranges that are mapped to [0, 1]; the target's own where nothing is declared."""
        if same:
            if self.promise is None:
                return None
            return self.promise.lows(len(columns)), self.promise.highs(len(columns))
        if domain_file is not None:
            return declare.read_domains(domain_file, columns)
        if domain is not None:
            return np.full(len(columns), domain[0]), np.full(len(columns), domain[1])
        X = numbers(frame, columns, what)
        low, high = X.min(axis=0), X.max(axis=0)
        return low, np.where(high > low, high, low + 1)

    def rows(
        self,
        frame: pd.DataFrame,
        columns: list[str],
        ends: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
        what: str,
    ) -> NDArray[np.float64]:
        """The columns as a matrix in [0, 1]."""
        require_columns(frame, columns, what)
        X = numbers(frame, columns, what)
        return X if ends is None else np.asarray((X - ends[0]) / (ends[1] - ends[0]))


def _labels(frame: pd.DataFrame, label: str, what: str) -> NDArray[Any]:
    """The label column as words; the empty word where there is none."""
    values = frame[label]
    words = np.full(len(values), "", dtype=object)
    known = values.notna().to_numpy()
    if values.dtype.kind in "fiub":
        as_numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        known = known & (as_numbers != -1)
        if np.any(as_numbers[known] != np.floor(as_numbers[known])):
            raise CommandError(
                f"{what}: the label {label!r} holds fractions; classes are expected. Name the "
                "column of classes with --label.",
                ExitCode.INPUT,
            )
        words[known] = [str(int(number)) for number in as_numbers[known]]
    else:
        words[known] = [str(item).strip() for item in values[known]]
        words[words == "-1"] = ""
    return words


def _like(words: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """Words as labels of the kind that the source has; numbers are numbers there too."""
    if classes.dtype.kind in "UO":
        return words.astype(str)
    return words


def _tell(
    console: Console, classifier: Any, answer: NDArray[Any], output: str, source: str
) -> None:
    names, counts = np.unique(np.asarray(answer).astype(str), return_counts=True)
    found = dict(zip(names.tolist(), counts.tolist(), strict=True))
    certificate = classifier.certificate_
    changes = [{"step": one.step, "changed": one.changed} for one in classifier.history_]
    console.result(
        f"{len(answer)} rows predicted, written to {output}\n{remark(certificate, source)}",
        {
            "output": output,
            "rows": len(answer),
            "predicted": found,
            "method": classifier.method,
            "history": changes,
            "source_private": standing(certificate)["private"],
            "source_verified": standing(certificate)["verified"],
            "source_status": standing(certificate)["status"],
        },
        stdout_taken=output == STREAM,
    )

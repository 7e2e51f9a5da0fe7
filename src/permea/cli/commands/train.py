"""``permea train``: a table becomes a model file with its certificate inside."""

from enum import StrEnum
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import permea
from permea.cli import declaration as declare
from permea.cli.app import LEARN, command
from permea.cli.console import CommandError, Console, ExitCode
from permea.cli.table_model import TableClassifier, unit_privacy
from permea.cli.tables import (
    Roles,
    check_output,
    labels,
    numbers,
    read_private_table,
    read_table,
    refused_after_charge,
    write_whole,
)
from permea.cli.trust import Sign, signed_by, signing_key, standing
from permea.privacy import Ledger, Privacy
from permea.privacy.signing import SigningKey
from permea.storage import save


class Family(StrEnum):
    """Model families of the command line."""

    kahm = "kahm"
    membership = "membership"
    fuzzy = "fuzzy"


_CLASSES = {
    Family.kahm: "KAHMClassifier",
    Family.membership: "MembershipClassifier",
    Family.fuzzy: "FuzzyClassifier",
}

Data = Annotated[str, typer.Argument(help="Table: .csv, .parquet, or - for standard input.")]
Label = Annotated[str, typer.Option("--label", "-l", help="Column of the classes.")]
Ids = Annotated[list[str] | None, typer.Option("--id", help="Column that is no feature (repeat).")]
Dropped = Annotated[list[str] | None, typer.Option("--drop", help="Column to ignore (repeat).")]
Components = Annotated[int, typer.Option("--components", min=1, help="Subspace dimension n.")]


@command(
    "train",
    panel=LEARN,
    examples=[
        "permea train data.csv --label y --epsilon 8 --delta 1e-5 --unit entry --domain 0 1"
        " -o model.permea"
    ],
)
def train(
    console: Console,
    data: Data,
    label: Label,
    output: Annotated[str, typer.Option("--output", "-o", help="Model file to write.")],
    epsilon: declare.Epsilon = None,
    delta: declare.Delta = 0.0,
    unit: declare.UnitOption = declare.Unit.entry,
    domain: declare.Domain = None,
    domain_file: declare.DomainFile = None,
    mechanism: declare.Mechanism = "optimal",
    clip: declare.Clip = False,
    fabricate: Annotated[
        bool, typer.Option("--fabricate", help="Learn from fabricated rows (004 Def. 15).")
    ] = False,
    ledger: declare.LedgerPlace = None,
    budget: declare.BudgetOption = None,
    dataset: declare.DatasetName = None,
    seed: declare.Seed = None,
    ids: Ids = None,
    drop: Dropped = None,
    family: Annotated[Family, typer.Option(help="Model family.")] = Family.kahm,
    components: Components = 20,
    layers: Annotated[int, typer.Option("--layers", min=1, help="Depth L.")] = 5,
    jobs: Annotated[int, typer.Option("--jobs", help="Workers; -1 for all cores.")] = -1,
    not_private: Annotated[
        bool,
        typer.Option(
            "--not-private",
            help="Learn from the rows as they are. The file then CONTAINS them.",
        ),
    ] = False,
    single_class: Annotated[
        bool, typer.Option("--single-class", help="Accept one class: a party of a federation.")
    ] = False,
    sign: Sign = None,
) -> None:
    """Train a private classifier on a table and write it to one file.

    The rows are noised once, before anything else sees them; the model file carries the
    certificate that says what is promised, about what, and what is not. With --sign others can
    check who promised it, and that the certificate belongs to the model.
    """
    declared = declare.Declaration(epsilon, delta, unit, domain, domain_file, mechanism, clip)
    _check_wish(declared, not_private, signed=sign is not None)
    check_output(output, (), inputs=(data,))
    key = signing_key(sign, console)
    account = declare.open_ledger(ledger, budget, declared, dataset)
    roles = Roles(label, tuple(ids or ()), tuple(drop or ()))
    privacy, columns, X, y = _read_rows(data, roles, None if not_private else declared)
    options = {
        "n_components": components,
        "n_layers": min(layers, components),
        "fabricate": fabricate,
        "allow_single_class": single_class,
        "n_jobs": jobs,
        "random_state": seed,
    }
    classifier = make_classifier(family, privacy, options)
    model = TableClassifier(classifier, columns=columns, label=label, privacy=privacy)
    console.say(f"training on {len(columns)} columns of {data} ...")
    with refused_after_charge(data):
        fit_and_save(model, X, y, output, account, dataset, key)
    _tell(console, model, output, X.shape, key)


def _check_wish(declared: declare.Declaration, not_private: bool, *, signed: bool) -> None:
    if not_private and signed:
        raise CommandError(
            "--sign signs a promise, and with --not-private there is none.", ExitCode.USAGE
        )
    if not_private and declared.epsilon is not None:
        raise CommandError("Give --epsilon or --not-private, not both.", ExitCode.USAGE)
    if not_private:
        return
    if declared.epsilon is None:
        raise CommandError(
            "How private? Give --epsilon, --delta, --unit and --domain LOW HIGH; or say "
            "--not-private to learn from the rows as they are, which the file then contains.",
            ExitCode.USAGE,
        )
    declared.check()


def _read_rows(
    data: str, roles: Roles, declared: declare.Declaration | None
) -> tuple[Privacy | None, list[str], NDArray[np.float64], NDArray[np.generic]]:
    """The promise, the feature columns, their values and the labels of a table.

    When nothing is promised, bad values are refused here; otherwise after the charge.
    """
    assert roles.label is not None
    if declared is not None:
        return read_declared(data, roles, declared)
    frame = read_table(data)
    columns = roles.features(frame, data)
    return None, columns, numbers(frame, columns, data), labels(frame, roles.label, data)


def read_declared(
    data: str, roles: Roles, declared: declare.Declaration
) -> tuple[Privacy, list[str], NDArray[np.float64], NDArray[np.generic]]:
    """The same with a promise: nothing is told about the values."""
    assert roles.label is not None
    table = read_private_table(data)
    columns = roles.features(table.frame, data)
    privacy = declared.privacy(columns)
    X = declared.bounded(table.numbers(columns), privacy)
    return privacy, columns, X, table.labels(roles.label)


def make_classifier(family: Family, privacy: Privacy | None, options: dict[str, Any]) -> Any:
    """Unfitted classifier of a family for columns that are mapped to [0, 1]."""
    kind = getattr(permea, _CLASSES[family], None)
    if kind is None:
        raise CommandError(
            f"The family {family.value} is not available in permea {permea.__version__}; use "
            "--family kahm.",
            ExitCode.UNAVAILABLE,
        )
    inner = None if privacy is None else unit_privacy(privacy)
    return kind(privacy=inner, **options)


def fit_and_save(
    model: TableClassifier,
    X: NDArray[np.float64],
    y: NDArray[np.generic],
    output: str,
    account: Ledger | None,
    dataset: str | None,
    key: SigningKey | None,
) -> None:
    """Fit, which charges the ledger first, then write the model."""
    model.fit(X, y, ledger=account, dataset=dataset)
    rows = "include" if model.holds_private_rows_ else None
    secret = bool(model.holds_private_rows_)
    write_whole(
        output, lambda beside: save(model, beside, private_rows=rows, sign=key), secret=secret
    )


def _tell(
    console: Console,
    model: TableClassifier,
    output: str,
    shape: tuple[int, ...],
    key: SigningKey | None,
) -> None:
    certificate = model.certificate_
    if certificate is None:
        text = f"NOT private: {output} contains the training rows. Guard it like the data."
    else:
        text = f"{certificate}\nmodel written to {output}\n{signed_by(key)}"
    values = {
        "model": output,
        "rows": shape[0],
        "columns": shape[1],
        "classes": [str(name) for name in model.classes_],
        **standing(certificate),
        "signed_by": None if key is None else key.name,
        "certificate": None if certificate is None else certificate.to_dict(),
    }
    console.result(text, values)

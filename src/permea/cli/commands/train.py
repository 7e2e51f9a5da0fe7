"""``permea train``: a table becomes a model file with its certificate inside."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from typer import Option

from permea.cli import models, options, signatures, tables
from permea.cli.app import LEARN, command
from permea.cli.console import Console, UsageError
from permea.cli.table_model import TableClassifier, unit_privacy
from permea.privacy import Privacy
from permea.privacy.signing import SigningKey


@command("train", panel=LEARN)
def train(
    console: Console,
    data: options.Data,
    label: options.Label,
    output: Annotated[str, Option("--output", "-o", help="Model file to write.")],
    declared: options.PrivacyOptions,
    ledger: options.LedgerOptions,
    columns: options.ColumnOptions,
    family: options.ModelOptions,
    seed: options.Seed = None,
    fabricate: Annotated[
        bool, Option("--fabricate", help="Learn from fabricated rows (004 Def. 15).")
    ] = False,
    not_private: Annotated[
        bool,
        Option(
            "--not-private", help="Learn from the rows as they are. The file then CONTAINS them."
        ),
    ] = False,
    single_class: Annotated[
        bool, Option("--single-class", help="Accept one class: a party of a federation.")
    ] = False,
    sign: options.Sign = None,
) -> None:
    """Train a private classifier on a table and write it to one file.

    Noise is added to the rows once, before anything is learned. The model file contains the
    certificate, which says what is promised, for what, and what is not protected. With --sign,
    others can check who promised it and that the certificate belongs to the model.

    Example:
        permea train data.csv --label y --epsilon 8 --delta 1e-5 --domain 0 1 -o model.permea
    """
    if not_private:
        _check_not_private(declared, sign is not None)
    else:
        declared.check(
            alternative="; or use --not-private to learn from the rows as they are, which the file "
            "then contains"
        )
    tables.check_output(output, (), inputs=(data,))
    key = signatures.signing_key(sign)
    account = ledger.open(declared.unit)
    if not_private:
        privacy, names, rows = None, *_read_plain(data, label, columns)
    else:
        privacy, names, rows = read_private(data, label, columns, declared)
    classifier = family.build(
        privacy=None if privacy is None else unit_privacy(privacy),
        fabricate=fabricate,
        allow_single_class=single_class,
        random_state=seed,
    )
    model = TableClassifier(classifier, columns=names, label=label, privacy=privacy)
    console.say(f"training on {len(names)} columns of {data} ...")
    with tables.one_message_about(data):
        model.fit(*rows, ledger=account, dataset=ledger.dataset)
    models.save_model(model, output, key)
    report_training(console, model, "model", output, rows[0], key)


def _check_not_private(declared: options.PrivacyOptions, signed: bool) -> None:
    if signed:
        raise UsageError("--sign signs a promise, and with --not-private there is none.")
    if declared.epsilon is not None:
        raise UsageError("Give --epsilon or --not-private, not both.")


def _read_plain(
    data: str, label: str, columns: options.ColumnOptions
) -> tuple[list[str], options.Rows]:
    """Names of the feature columns, features and labels; bad values are refused here."""
    frame = tables.read_table(data)
    names = columns.features(frame, label, data)
    return names, (tables.numbers(frame, names, data), tables.labels(frame, label, data))


def read_private(
    data: str, label: str, columns: options.ColumnOptions, declared: options.PrivacyOptions
) -> tuple[Privacy, list[str], options.Rows]:
    """The same with a promise; bad values are refused only after the charge."""
    table = tables.read_private_table(data)
    names = columns.features(table.frame, label, data)
    privacy = declared.privacy(names)
    return privacy, names, (declared.bounded(table.numbers(names), privacy), table.labels(label))


def report_training(
    console: Console,
    model: TableClassifier,
    kind: str,
    output: str,
    X: NDArray[np.float64],
    key: SigningKey | None,
) -> None:
    """Print what was trained and written, with its certificate if there is one."""
    values = {
        kind: output,
        "rows": X.shape[0],
        "columns": X.shape[1],
        "classes": [str(name) for name in model.classes_],
    }
    if model.certificate_ is not None:
        text = f"{kind} written to {output}"
        signatures.certified_result(console, model.certificate_, text, values, key)
        return
    console.result(
        f"NOT private: {output} contains the training rows. Protect it as you protect the data.",
        {**values, **signatures.certificate_status(None), "signed_by": None, "certificate": None},
    )

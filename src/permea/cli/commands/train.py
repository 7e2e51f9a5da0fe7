"""``permea train``: a table becomes a model file with its certificate inside."""

import math
from enum import StrEnum
from typing import Annotated, Any

import pandas as pd
from typer import Option

from permea.cli import models, options, signatures, tables
from permea.cli.app import LEARN, command
from permea.cli.console import Console, InputError, UsageError
from permea.cli.schemas import SchemaOptions, number_ranges
from permea.cli.table_model import TableClassifier, unit_privacy
from permea.compose.classifier import hull_encoder
from permea.models.hull import HullClassifier
from permea.models.moments import MomentClassifier, MomentRegressor
from permea.privacy import Privacy
from permea.privacy.release import plan
from permea.privacy.signing import SigningKey
from permea.tables import Schema
from permea.tables.people import count_units
from permea.tables.reading import Chunks
from permea.tables.schema import unreadable


class Partition(StrEnum):
    """What k-means sees when the rows of a class are split into branches."""

    noised = "noised"
    original = "original"


@command("train", panel=LEARN)
def train(
    console: Console,
    data: options.Data,
    output: Annotated[str, Option("--output", "-o", help="Model file to write.")],
    declared: options.PrivacyOptions,
    ledger: options.LedgerOptions,
    columns: options.ColumnOptions,
    about: SchemaOptions,
    family: options.ModelOptions,
    label: options.MaybeLabel = None,
    neighbours: options.Relation = options.Neighbours.replaced,
    seed: options.Seed = None,
    fabricate: Annotated[
        bool, Option("--fabricate", help="Learn from fabricated rows (004 Def. 15).")
    ] = False,
    fabrication_steps: Annotated[
        int | None, Option(min=0, help="With --fabricate: this many smoothing steps.")
    ] = None,
    partition_on: Annotated[
        Partition,
        Option(
            help="What k-means sees for branches: rows with noise, or the original ones, which is "
            "the order of document 004 and NOT private."
        ),
    ] = Partition.noised,
    not_private: Annotated[
        bool,
        Option(
            "--not-private", help="Learn from the rows as they are. The file then CONTAINS them."
        ),
    ] = False,
    single_class: Annotated[
        bool, Option("--single-class", help="Accept one class: a party of a federation.")
    ] = False,
    class_weight: Annotated[
        list[str] | None,
        Option(
            "--class-weight",
            metavar="CLASS=WEIGHT",
            help="Weight of the rows of a class (repeat), for rare ones; or balanced, for the "
            "decision alone, by the released counts. For --family moments and hulls.",
        ),
    ] = None,
    sign: options.Sign = None,
) -> None:
    """Train a private model on a table and write it to one file.

    With --unit record or person, noise is added once, to sums over all records or people, and every
    --family learns from these; the columns are declared by --schema, or numbers alone by --domain
    and --class. With --unit entry, or --release rows, noise is added to every row. The model file
    contains the certificate, which says what is promised, for what, and what is not protected. With
    --sign, others can check who promised it and that the certificate belongs to the model.

    Example:
        permea train patients.csv --schema patients.toml -e 1 --delta 1e-6 --unit person -o m.permea
        permea train data.csv --label y --epsilon 8 --delta 1e-5 --domain 0 1 -o model.permea
    """
    schema = about.load()
    if not_private:
        _check_not_private(declared, sign is not None)
    else:
        declared.check(
            schema=schema is not None,
            alternative="; or use --not-private to learn from the rows as they are, which the file "
            "then contains",
        )
    check_roles(label, columns, schema)
    of_moments = _of_moments(family, declared, schema, not_private)
    family.check(sums=of_moments)
    weights = _class_weights(class_weight, family, of_moments)
    if fabrication_steps is not None and not fabricate:
        raise UsageError("--fabrication-steps needs --fabricate.")
    if not_private and (fabricate or partition_on is not Partition.noised):
        raise UsageError("--fabricate and --partition-on are about noise: leave out --not-private.")
    tables.check_output(output, (), inputs=(data,))
    key = signatures.signing_key(sign)
    account: dict[str, Any] = {"ledger": ledger.open(declared.unit), "dataset": ledger.dataset}
    model: Any
    shape: tuple[int | None, int]
    if of_moments:
        if fabricate or single_class or partition_on is not Partition.noised:
            raise UsageError(
                "--fabricate, --single-class and --partition-on belong to --release rows."
            )
        promise = None if not_private else declared.of_moments()
        if schema is None:
            schema, rows = numbers_as_declared(data, str(label), columns, about, declared)
        else:
            rows = declared_rows(data, about.query, schema, private=not not_private)
        check_person(console, schema, declared.unit)
        settings = {"privacy": promise, "neighbours": neighbours.value, "random_state": seed}
        what = data if about.query is None else "the query"
        model = _model_of_sums(family, schema, weights, **settings, **account)
        shape = learn_from_sums(console, what, model, rows)
    else:
        name, private = str(label if schema is None else schema.label), not not_private
        numbers = read_numbers(data, name, columns, declared, schema, private=private)
        settings = {
            "fabricate": fabricate if fabrication_steps is None else fabrication_steps,
            "partition_on": partition_on.value, "allow_single_class": single_class,
            "random_state": seed,
        }  # fmt: skip
        model, shape = _learn_from_rows(console, data, name, numbers, family, settings, account)
    models.save_model(model, output, key)
    report_training(console, model, "model", output, shape, key)


def _check_not_private(declared: options.PrivacyOptions, signed: bool) -> None:
    if signed:
        raise UsageError("--sign signs a promise, and with --not-private there is none.")
    if declared.epsilon is not None:
        raise UsageError("Give --epsilon or --not-private, not both.")


def check_roles(label: str | None, columns: options.ColumnOptions, schema: Schema | None) -> None:
    """The schema says what each column is for, or the options do."""
    if schema is None and label is None:
        raise UsageError("What should be predicted? Give --label COLUMN, or --schema FILE.")
    if schema is None:
        return
    if label not in (None, schema.label):
        raise UsageError("The label is that of --schema; leave out --label.")
    if columns.ids or columns.drop:
        raise UsageError(
            "With --schema, columns that are not used are listed in it: ignored = "
            '["column"]. Leave out --id and --drop.'
        )


def _of_moments(
    family: options.ModelOptions,
    declared: options.PrivacyOptions,
    schema: Schema | None,
    not_private: bool,
) -> bool:
    """Whether the model is learned from sums; without a promise a schema needs it."""
    if not not_private:
        return family.of_moments(declared.unit)
    if family.model is None:
        return schema is not None
    return family.model in (options.MOMENTS, options.HULLS)


def check_person(console: Console, schema: Schema, unit: options.Unit) -> None:
    """Rows of people need a person column; with one, ε per record is worth a warning."""
    if unit is options.Unit.person and schema.person is None:
        raise UsageError(
            "--unit person needs the column that says whose row it is: person = "
            '"column" in the schema, or --person COLUMN.'
        )
    if unit is options.Unit.record and schema.person is not None:
        console.warn(
            f"ε is per record, and a person (column {schema.person!r}) may have several: somebody "
            "with m of them is protected by m times that ε. Use --unit person."
        )


def declared_rows(data: str, query: str | None, schema: Schema, *, private: bool) -> Any:
    """A table to be read by its schema; with a promise its values are read after the charge.

    Gives all rows, or chunks of a table that is large or in a database.
    """
    chunks = tables.open_table(data, query)
    try:
        schema.check_columns(dict.fromkeys(chunks.names, ()))
    except ValueError as error:
        raise InputError(f"{chunks.what}: {error}") from error
    if query is not None or not tables.fits_memory(data):
        return chunks
    if private:
        return tables.private_rows(chunks)
    frame = tables.read_declared_table(data)
    problems = schema.problems(frame)
    if problems:
        raise InputError(f"{data}: {unreadable(problems)}")
    return frame


def learn_from_sums(console: Console, what: str, model: Any, rows: Any) -> tuple[int | None, int]:
    """Learn from moments; the numbers of rows (where that is public) and columns."""
    schema, promise, in_memory = model.schema, model.privacy, not isinstance(rows, Chunks)
    draws = hasattr(model, "learn_drawn")  # a family of drawn rows, or a source
    learner = hull_encoder(model) if draws else model
    size = len(rows) if promise is None and in_memory else None
    if promise is not None and model.neighbours == "replace":
        size = count_units(rows, schema, promise.unit)  # however large the file is
        learner.set_params(expected_size=size)
    console.say(f"training on {len(schema.features)} columns of {what} ...")
    with tables.one_message_about(what, tables.SCHEMA_EXPECTED):
        if in_memory:
            learner.fit(rows)
        else:
            learner.fit_chunks(rows)
        if draws:
            model.learn_drawn(learner)
    n_rows = size if promise is None or promise.unit == "record" else None
    return n_rows, len(schema.features)


def _learn_from_rows(
    console: Console,
    data: str,
    label: str,
    table: tuple[Privacy | None, list[str], options.Rows],
    family: options.ModelOptions,
    settings: dict[str, Any],
    account: dict[str, Any],
) -> tuple[TableClassifier, tuple[int, int]]:
    """A classifier of numbers, with noise on each or as they are, and the shape of the table."""
    privacy, names, (X, y) = table
    warn_about_noise(console, privacy, len(names))
    promise = None if privacy is None else unit_privacy(privacy)
    classifier = family.build(privacy=promise, release="rows", **settings)
    model = TableClassifier(classifier, columns=names, label=label, privacy=privacy)
    console.say(f"training on {len(names)} columns of {data} ...")
    with tables.one_message_about(data):
        model.fit(X, y, **account)
    return model, X.shape


def _class_weights(
    given: list[str] | None, family: options.ModelOptions, of_moments: bool
) -> dict[str, float] | str | None:
    """What --class-weight says: "balanced", or a number for some classes."""
    if not given:
        return None
    if not of_moments or family.model not in (None, options.MOMENTS, options.HULLS):
        raise UsageError("--class-weight is for --family moments or hulls, and noise on sums.")
    if given == ["balanced"]:
        return "balanced"
    pairs = [text.rpartition("=") for text in given]
    try:
        weights = {name: float(number) for name, _, number in pairs}
    except ValueError:
        weights = {}
    if len(weights) < len(given) or not all(0 < one < math.inf for one in weights.values()):
        raise UsageError(
            "--class-weight is CLASS=WEIGHT with a number above 0, one for each class, such as "
            "--class-weight well=0.1; or balanced."
        )
    return weights


def _model_of_sums(
    family: options.ModelOptions, schema: Schema, weights: Any, **settings: Any
) -> Any:
    """An unfitted model that learns from moments, of the family that was asked for."""
    if schema.label is None and weights is not None:
        raise UsageError("--class-weight is about classes, and the schema has a target of numbers.")
    if weights is not None:
        settings["class_weight"] = weights
    if schema.label is None and family.model not in (None, options.MOMENTS):
        raise UsageError(
            f"--family {family.model} predicts classes, and the schema has a target of numbers."
        )
    if schema.label is None:
        return MomentRegressor(schema=schema, **settings)
    if family.model in (None, options.MOMENTS):
        return MomentClassifier(schema=schema, **settings)
    if family.model == options.HULLS:
        return HullClassifier(schema=schema, **settings)
    return family.build(schema=schema, **settings)


def numbers_as_declared(
    data: str,
    label: str,
    columns: options.ColumnOptions,
    about: SchemaOptions,
    declared: options.PrivacyOptions,
) -> tuple[Schema, pd.DataFrame]:
    """A table of numbers, and the schema that ``--domain`` and ``--class`` stand for."""
    roles = [label] if about.person is None else [label, about.person]
    table = tables.read_private_table(data, texts=roles)
    tables.require_columns(table.frame, roles, data)
    names = [name for name in columns.features(table.frame, label, data) if name not in roles]
    low, high = declared.ranges(names)
    schema = about.of_numbers(names, label, low, high)
    numbers = declared.bounded(table.numbers(names), low, high)
    frame = pd.DataFrame(numbers, columns=names)
    return schema, frame.assign(**{name: table.frame[name].to_numpy() for name in roles})


def read_numbers(
    data: str,
    label: str,
    columns: options.ColumnOptions,
    declared: options.PrivacyOptions,
    schema: Schema | None = None,
    *,
    private: bool = True,
) -> tuple[Privacy | None, list[str], options.Rows]:
    """The promise, names of the feature columns, features and labels.

    With a promise, bad values are refused only after the charge.
    """
    if schema is not None:
        names, low, high = number_ranges(schema)
        label, columns = str(schema.label), options.ColumnOptions()
    if not private:
        frame = tables.read_table(data)
        names = columns.features(frame, label, data) if schema is None else names
        return None, names, (tables.numbers(frame, names, data), tables.labels(frame, label, data))
    table = tables.read_private_table(data)
    if schema is None:
        names = columns.features(table.frame, label, data)
        low, high = declared.ranges(names)
    tables.require_columns(table.frame, [*names, label], data)
    rows = declared.bounded(table.numbers(names), low, high), table.labels(label)
    return declared.within(low, high), names, rows


def warn_about_noise(console: Console, privacy: Privacy | None, n_columns: int) -> None:
    """Say so when noise on rows hides everything."""
    if privacy is None:
        return
    magnitude = plan(unit_privacy(privacy), n_columns).noise.expected_magnitude()
    if magnitude <= 1:
        return
    advice = " Leave out --release rows: noise is then added to sums." * (privacy.unit == "record")
    console.warn(
        f"the noise on each value is {magnitude:.3g} times as wide as the range of its column, so "
        f"little can be learned from the rows.{advice}"
    )


def report_training(
    console: Console,
    model: Any,
    kind: str,
    output: str,
    shape: tuple[int | None, int],
    key: SigningKey | None,
) -> None:
    """Print what was trained and written, with its certificate if there is one."""
    values = {
        kind: output,
        "rows": shape[0],
        "columns": shape[1],
        "classes": [str(name) for name in getattr(model, "classes_", ())],
    }
    if model.certificate_ is not None:
        text = f"{kind} written to {output}"
        signatures.certified_result(console, model.certificate_, text, values, key)
        return
    console.result(
        f"NOT private: {output} contains the training rows. Protect it as you protect the data.",
        {**values, **signatures.certificate_status(None), "signed_by": None, "certificate": None},
    )

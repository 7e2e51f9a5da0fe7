"""``permea fabricate``: a private table of the same names and types."""

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from typer import Option

from permea.cli import options, signatures, synthetic, tables
from permea.cli.app import LEARN, command
from permea.cli.console import Console, UsageError
from permea.cli.schemas import SchemaOptions
from permea.cli.table_model import from_unit, to_unit, unit_privacy
from permea.fabricate.rows import fabricate as smooth
from permea.privacy import Certificate
from permea.privacy.release import UnreadableRowsError, charge_rows, read_after_charge
from permea.privacy.signing import SigningKey

_BRANCH = 8000  # rows that are smoothed together: a kernel matrix of 512 MB in double precision
_FEW = 3  # fewer rows of a class have no common geometry to be smoothed onto


@command("fabricate", panel=LEARN)
def fabricate(
    console: Console,
    data: options.Data,
    output: Annotated[str, Option("--output", "-o", help="Table to write; - for stdout.")],
    declared: options.PrivacyOptions,
    ledger: options.LedgerOptions,
    columns: options.ColumnOptions,
    about: SchemaOptions,
    wanted: synthetic.SyntheticOptions,
    label: Annotated[
        str | None, Option("--label", "-l", help="Column of the classes, kept as it is.")
    ] = None,
    seed: options.Seed = None,
    whole: Annotated[
        list[str] | None, Option(help="Column of a CSV table to round to whole numbers (repeat).")
    ] = None,
    steps: Annotated[int, Option(min=0, help="Smoothing steps, a public constant.")] = 1,
    noise_only: Annotated[bool, Option("--noise-only", help="Noise without smoothing.")] = False,
    components: options.Components = 20,
    certificate: Annotated[
        str | None,
        Option(help="Certificate file; beside the table as .certificate.json by default."),
    ] = None,
    sign: options.Sign = None,
) -> None:
    """Fabricate a private table that can be used in place of the real one.

    With --schema (and --unit record or person) the table is drawn from noised counts of pairs of
    columns: it has numbers, categories, dates and missing values as the schema declares them, as
    many rows as --rows says, and no row is anybody's. --report writes how good it is, and with
    --holdout, which are real rows that it is not made from, what attacks on it achieve.

    Without a schema, noise is added to every feature once, within its declared domain; then the
    rows of each class are smoothed. Column names and their order stay, and so do the types that a
    Parquet file declares; in a CSV table --whole names the columns of whole numbers, because
    whether a column has a fraction in it depends on its rows. The label and the --id columns are
    copied UNPROTECTED, as the certificate says. With --sign, a signature of table and certificate
    is written beside them as .signature.json.

    Example:
        permea fabricate data.csv --schema data.toml --unit person -e 1 --delta 1e-6 -o made.csv
        permea fabricate data.csv --label y --epsilon 8 --domain 0 1 -o private.csv
    """
    schema = about.load(predicts=False)
    wanted.check(schema)
    if schema is not None:
        if label or whole or columns.ids or columns.drop:
            raise UsageError("The schema says what every column is; leave out --label and others.")
        paths = synthetic.Paths(data, output, certificate, sign, about.query)
        synthetic.fabricate_table(console, paths, schema, declared, ledger, wanted, seed)
        return
    declared.check()
    if declared.unit is options.Unit.person:
        raise UsageError(
            "Without --schema a table is made from noised rows, which does not protect people who "
            "have several of them. Give --schema FILE."
        )
    tables.check_table_output(console, output, data)
    beside = output != tables.STREAM and not tables.is_device(output)
    if sign is not None and not beside:
        raise UsageError("--sign writes a file beside the table; give -o FILE.")
    certificate = certificate or (signatures.certificate_path(output) if beside else None)
    if certificate is not None:
        tables.check_output(certificate, (".json",))
    key = signatures.signing_key(sign)
    account = ledger.open(declared.unit)
    table = tables.read_private_table(data)
    names = columns.features(table.frame, label, data)
    tables.require_columns(table.frame[names], whole or [], data)
    low, high = declared.ranges(names)
    privacy = declared.within(low, high)
    X = to_unit(declared.bounded(table.numbers(names), low, high), privacy)
    classes = np.zeros(len(X), dtype=int) if label is None else table.labels(label)
    with tables.one_message_about(data):
        paid = charge_rows(
            X,
            unit_privacy(privacy),
            ledger=account,
            dataset=ledger.dataset,
            description="fabricated table",
        )
        n_classes = None if label is None else _count_classes(classes)
        out = read_after_charge(lambda: paid.release(X, random_state=seed, n_classes=n_classes))
    released = np.asarray(out.data, dtype=np.float64)
    if not noise_only:
        released = _smooth(released, classes, steps, components)
    made = _as_table(table, names, whole or [], from_unit(released, privacy), columns.drop or [])
    copied = [*([] if label is None else [label]), *(columns.ids or ())]
    paper = replace(
        out.certificate,
        privacy=privacy,
        noise=f"{out.certificate.noise} of the width of each column's domain",
    )
    paper = _with_steps(paper, copied, None if noise_only else steps)
    _write(made, paper, output, certificate, key)
    signatures.certified_result(
        console,
        paper,
        f"{len(made)} fabricated rows written to {output}",
        {"output": output, "rows": len(made), "columns": len(made.columns)},
        key,
        stdout_taken=output == tables.STREAM,
    )


def _count_classes(classes: NDArray[np.generic]) -> int:
    """Number of classes, after the charge; NaN stands for labels that cannot be used."""
    names = np.unique(classes)
    if names.dtype.kind == "f" and np.isnan(names).any():
        raise UnreadableRowsError("Some row has no class.")
    return len(names)


def _smooth(
    noised: NDArray[np.float64], classes: NDArray[np.generic], steps: int, components: int
) -> NDArray[np.float64]:
    made = noised.copy()
    for name in np.unique(classes):
        rows = classes == name
        if rows.sum() < _FEW:
            continue
        made[rows] = smooth(
            noised[rows],
            n_components=min(components, noised.shape[1]),
            stop=steps,
            max_steps=steps,
            branch_size=_BRANCH,
        ).data
    return made


def _as_table(
    table: tables.PrivateTable,
    columns: list[str],
    whole: list[str],
    made: NDArray[np.float64],
    dropped: list[str],
) -> pd.DataFrame:
    """The table with its features replaced.

    The type of a column is declared by the file or by the user, and not seen in the rows.
    """
    fresh = {}
    for index, name in enumerate(columns):
        guessed = np.dtype(np.int64 if name in whole else np.float64)
        dtype = guessed if table.declared is None else table.declared[name].dtype
        fresh[name] = cast_like(made[:, index], dtype).set_axis(table.frame.index)
    return table.frame.drop(columns=dropped).assign(**fresh)


def cast_like(values: NDArray[np.float64], dtype: Any) -> "pd.Series[float]":
    """Convert real numbers to a column's type: integers are rounded, 0/1 is decided at ½.

    Examples
    --------
    >>> import numpy as np
    >>> cast_like(np.array([0.4, 300.2, -3.0]), np.dtype("uint8")).tolist()
    [0, 255, 0]
    """
    series = pd.Series(values)
    if pd.api.types.is_bool_dtype(dtype):
        return (series >= 0.5).astype(dtype)
    if pd.api.types.is_integer_dtype(dtype):
        limits = np.iinfo(getattr(dtype, "numpy_dtype", dtype))
        low, high = float(limits.min), float(np.nextafter(float(limits.max), 0))
        bounded = series.round().clip(low, high if limits.max > 2**53 else limits.max)
        return bounded.astype(dtype)
    return series.astype(dtype)


def _with_steps(paper: Certificate, copied: list[str], steps: int | None) -> Certificate:
    """The certificate with what was done after the release, and what is not protected."""
    if steps is not None:
        paper = paper.add_step(
            f"fabricated per class, {steps} smoothing steps (a public constant); classes of fewer "
            f"than {_FEW} rows stay as they were noised"
        )
    if not copied:
        return paper
    text = "columns that were copied unchanged and unprotected: " + ", ".join(copied)
    return replace(paper, not_protected=(*paper.not_protected, text))


def _write(
    made: pd.DataFrame,
    paper: Certificate,
    output: str,
    certificate: str | None,
    key: SigningKey | None,
) -> None:
    """All files or none: certificate and signature get their names only after the table."""
    files = {} if certificate is None else {certificate: f"{paper.to_json()}\n".encode()}
    if output == tables.STREAM or tables.is_device(output):
        tables.write_table(made, output)
    else:
        table = tables.table_file(made, output)
        if key is not None and certificate is not None:
            files[signatures.signature_path(output)] = signatures.sign_table(
                table, files[certificate], key
            )
        files[output] = table
    if files:
        tables.write_results(files)

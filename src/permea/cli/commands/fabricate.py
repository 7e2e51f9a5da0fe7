"""``permea fabricate``: a private table of the same shape, names, order and types."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from permea.cli import declaration as declare
from permea.cli.app import LEARN, command
from permea.cli.commands.train import Components, Data, Dropped, Ids
from permea.cli.console import CommandError, Console, ExitCode
from permea.cli.table_model import from_unit, to_unit, unit_privacy
from permea.cli.tables import (
    FORMATS,
    STREAM,
    PrivateTable,
    Roles,
    check_output,
    read_private_table,
    refused_after_charge,
    replacing,
    require_columns,
    write_table,
)
from permea.cli.trust import (
    Sign,
    certificate_place,
    signature_place,
    signed_by,
    signed_table,
    signing_key,
    standing,
)
from permea.fabricate.rows import fabricate as smooth
from permea.privacy import Certificate, Ledger, Privacy
from permea.privacy.release import UnreadableRowsError, charge_rows, read_after_charge
from permea.privacy.signing import SigningKey

_BRANCH = 8000  # rows that are smoothed together: a kernel matrix of 512 MB in double precision
_FEW = 3  # rows that share no geometry yet


@command(
    "fabricate",
    panel=LEARN,
    examples=["permea fabricate data.csv --label y --epsilon 8 --domain 0 1 -o private.csv"],
)
def fabricate(
    console: Console,
    data: Data,
    output: Annotated[str, typer.Option("--output", "-o", help="Table to write; - for stdout.")],
    label: Annotated[
        str | None, typer.Option("--label", "-l", help="Column of the classes, kept as it is.")
    ] = None,
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
    whole: Annotated[
        list[str] | None,
        typer.Option("--whole", help="Column of a CSV table to round to whole numbers (repeat)."),
    ] = None,
    steps: Annotated[int, typer.Option(min=0, help="Smoothing steps, a public constant.")] = 1,
    noise_only: Annotated[
        bool, typer.Option("--noise-only", help="Noise without smoothing.")
    ] = False,
    components: Components = 20,
    certificate: Annotated[
        str | None,
        typer.Option(help="Certificate file; beside the table as .certificate.json by default."),
    ] = None,
    sign: Sign = None,
) -> None:
    """Fabricate a private table that can be used in place of the real one.

    Every feature is noised once within its declared domain, then each class is smoothed onto the
    geometry its noised rows share. Column names and their order stay, and the types that a Parquet
    file declares; in a CSV table --whole names the columns of whole numbers, because whether a
    column has a fraction in it depends on its rows. The label and the --id columns pass
    UNPROTECTED, as the certificate says. With --sign, a signature on table and certificate is
    written beside them as .signature.json.
    """
    declared = declare.Declaration(epsilon, delta, unit, domain, domain_file, mechanism, clip)
    declared.check()
    if console.as_json and output == STREAM:
        raise CommandError(
            "--json and the table would mix on standard output; give -o FILE.", ExitCode.USAGE
        )
    check_output(output, FORMATS, inputs=(data,))
    if sign is not None and (output == STREAM or _is_device(output)):
        raise CommandError("--sign writes a file beside the table; give -o FILE.", ExitCode.USAGE)
    key = signing_key(sign, console)
    account = declare.open_ledger(ledger, budget, declared, dataset)
    table = read_private_table(data)
    columns = Roles(label, tuple(ids or ()), tuple(drop or ())).features(table.frame, data)
    require_columns(table.frame[columns], whole or [], data)
    privacy = declared.privacy(columns)
    X = declared.bounded(table.numbers(columns), privacy)
    classes = np.zeros(len(X), dtype=int) if label is None else table.labels(label)
    with refused_after_charge(data):
        released, paper = _through_the_wall(
            to_unit(X, privacy), classes, privacy, account, dataset, seed, label is not None
        )
    if not noise_only:
        released = _smooth(released, classes, steps, components)
        paper = paper.add_step(
            f"fabricated per class, {steps} smoothing steps (a public constant); classes of fewer "
            f"than {_FEW} rows stay as they were noised"
        )
    types = _types(table, columns, whole or [])
    made = _as_table(table.frame, types, from_unit(released, privacy), tuple(drop or ()))
    paper = _say_what_passes(paper, label, tuple(ids or ()))
    _write(made, paper, output, certificate, key)
    _tell(console, paper, output, made, key)


def _through_the_wall(
    X: NDArray[np.float64],
    classes: NDArray[np.generic],
    privacy: Privacy,
    ledger: Ledger | None,
    dataset: str | None,
    seed: int | None,
    labelled: bool,
) -> tuple[NDArray[np.float64], Certificate]:
    """Noise the unit-scaled rows once; the certificate speaks in the units of the table."""
    paid = charge_rows(
        X,
        unit_privacy(privacy),
        ledger=ledger,
        dataset=dataset,
        description="fabricated table",
    )
    n_classes = _count_classes(classes) if labelled else None
    out = read_after_charge(lambda: paid.release(X, random_state=seed, n_classes=n_classes))
    noise = f"{out.certificate.noise} of the width of each column's domain"
    return np.asarray(out.data), replace(out.certificate, privacy=privacy, noise=noise)


def _count_classes(classes: NDArray[np.generic]) -> int:
    """Number of classes, after the charge; NaN stands for labels that cannot be used."""
    names = np.unique(classes)
    if names.dtype.kind == "f" and np.isnan(names).any():
        raise UnreadableRowsError("Some row has no class.")
    return len(names)


def _smooth(
    noised: NDArray[np.float64], classes: NDArray[np.generic], steps: int, components: int
) -> NDArray[np.float64]:
    made = np.empty_like(noised)
    for name in np.unique(classes):
        rows = classes == name
        size = int(rows.sum())
        if size < _FEW:  # too few rows to share a geometry: the noised rows are as good as it gets
            made[rows] = noised[rows]
            continue
        made[rows] = smooth(
            noised[rows],
            n_components=min(components, noised.shape[1]),
            stop=steps,
            max_steps=steps,
            branch_size=_BRANCH,
        ).data
    return made


def _types(table: PrivateTable, columns: list[str], whole: list[str]) -> dict[str, Any]:
    """Public types of the columns: declared by the file or by the user, never seen in the rows."""
    return {
        name: table.frame[name].dtype
        if table.typed
        else np.dtype(np.int64 if name in whole else np.float64)
        for name in columns
    }


def _as_table(
    frame: pd.DataFrame,
    types: dict[str, Any],
    made: NDArray[np.float64],
    dropped: tuple[str, ...],
) -> pd.DataFrame:
    """The table with its features replaced, every column in its own type."""
    fresh = {
        name: pd.Series(cast_like(made[:, index], dtype), index=frame.index)
        for index, (name, dtype) in enumerate(types.items())
    }
    return frame.drop(columns=list(dropped)).assign(**fresh)


def cast_like(values: NDArray[np.float64], dtype: Any) -> "pd.Series[float]":
    """Bring real numbers to a column's type: whole numbers are rounded, 0/1 is decided at ½.

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


def _say_what_passes(paper: Certificate, label: str | None, ids: tuple[str, ...]) -> Certificate:
    passed = ([] if label is None else [label]) + list(ids)
    if not passed:
        return paper
    text = "columns that passed untouched and unprotected: " + ", ".join(passed)
    return replace(paper, not_protected=(*paper.not_protected, text))


def _write(
    made: pd.DataFrame,
    paper: Certificate,
    output: str,
    certificate: str | None,
    key: SigningKey | None,
) -> None:
    """All files or none: certificate and signature get their names only after the table."""
    place = certificate
    if place is None and output != STREAM and not _is_device(output):
        place = certificate_place(output)
    if place is None:
        write_table(made, output)
        return
    check_output(place, (".json",))
    text = f"{paper.to_json()}\n".encode()
    with replacing(place) as beside:
        beside.write_bytes(text)
        if key is None:
            write_table(made, output)
            return
        with replacing(signature_place(output)) as third:
            write_table(
                made,
                output,
                complete=lambda table: third.write_text(signed_table(table, text, key)),
            )


def _is_device(path: str) -> bool:
    return Path(path).exists() and not Path(path).is_file()


def _tell(
    console: Console, paper: Certificate, output: str, made: pd.DataFrame, key: SigningKey | None
) -> None:
    values = {
        "output": output,
        "rows": len(made),
        "columns": len(made.columns),
        **standing(paper),
        "signed_by": None if key is None else key.name,
        "certificate": paper.to_dict(),
    }
    text = f"{paper}\n{len(made)} fabricated rows written to {output}\n{signed_by(key)}"
    console.result(text, values, stdout_taken=output == STREAM)

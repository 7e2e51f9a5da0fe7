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
from permea.cli.console import Console
from permea.cli.errors import CommandError, ExitCode
from permea.cli.files import STREAM, check_output, replacing, write_whole
from permea.cli.table_model import from_unit, to_unit, unit_privacy
from permea.cli.tables import FORMATS, Roles, labels, numbers, read_table, write_table
from permea.privacy import Certificate, Ledger, Privacy, release
from permea.privacy.fabrication import fabricate as smooth

_BRANCH = 8000  # rows that are smoothed together: a kernel matrix of 512 MB in double precision


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
    mechanism: declare.MechanismOption = declare.Mechanism.optimal,
    clip: declare.Clip = False,
    ledger: declare.LedgerFile = None,
    budget: declare.BudgetOption = None,
    seed: declare.Seed = None,
    ids: Ids = None,
    drop: Dropped = None,
    steps: Annotated[int, typer.Option(min=0, help="Smoothing steps, a public constant.")] = 1,
    noise_only: Annotated[
        bool, typer.Option("--noise-only", help="Noise without smoothing.")
    ] = False,
    components: Components = 20,
    certificate: Annotated[
        str | None,
        typer.Option(help="Certificate file; beside the table as .certificate.json by default."),
    ] = None,
) -> None:
    """Fabricate a private table that can be used in place of the real one.

    Every feature is noised once within its declared domain, then each class is smoothed onto the
    geometry its noised rows share. Column names, their order and their types stay; the label and
    the --id columns pass UNPROTECTED, as the certificate says.
    """
    declared = declare.Declaration(epsilon, delta, unit, domain, domain_file, mechanism, clip)
    declared.check()
    if console.as_json and output == STREAM:
        raise CommandError(
            "--json and the table would mix on standard output; give -o FILE.", ExitCode.USAGE
        )
    check_output(output, FORMATS, inputs=(data,))
    account = declare.open_ledger(ledger, budget, declared)
    frame = read_table(data)
    columns = Roles(label, tuple(ids or ()), tuple(drop or ())).features(frame, data)
    privacy = declared.privacy(columns)
    X = declared.inside(numbers(frame, columns, data), privacy, columns, data)
    classes = np.zeros(len(X), dtype=int) if label is None else labels(frame, label, data)
    released, paper = _through_the_wall(
        to_unit(X, privacy), classes, privacy, account, seed, label is not None
    )
    if not noise_only:
        released = _smooth(released, classes, steps, components)
        paper = paper.add_step(f"fabricated per class, {steps} smoothing steps (a public constant)")
    made = _as_table(frame, columns, from_unit(released, privacy), tuple(drop or ()))
    paper = _say_what_passes(paper, label, tuple(ids or ()))
    if account is not None and ledger is not None:
        write_whole(ledger, account.save)
    _write(made, paper, output, certificate)
    _tell(console, paper, output, made)


def _through_the_wall(
    X: NDArray[np.float64],
    classes: NDArray[np.generic],
    privacy: Privacy,
    ledger: Ledger | None,
    seed: int | None,
    labelled: bool,
) -> tuple[NDArray[np.float64], Certificate]:
    """Noise the unit-scaled rows once; the certificate speaks in the units of the table."""
    out = release(
        X,
        unit_privacy(privacy),
        random_state=seed,
        ledger=ledger,
        n_classes=len(np.unique(classes)) if labelled else None,
        description="fabricated table",
    )
    noise = f"{out.certificate.noise} of the width of each column's domain"
    return np.asarray(out.data), replace(out.certificate, privacy=privacy, noise=noise)


def _smooth(
    noised: NDArray[np.float64], classes: NDArray[np.generic], steps: int, components: int
) -> NDArray[np.float64]:
    made = np.empty_like(noised)
    for name in np.unique(classes):
        rows = classes == name
        size = int(rows.sum())
        if size < 3:  # too few rows to share a geometry: the noised rows are as good as it gets
            made[rows] = noised[rows]
            continue
        made[rows] = smooth(
            noised[rows],
            n_components=min(components, noised.shape[1]),
            stop=steps,
            branch_size=_BRANCH,
        ).data
    return made


def _as_table(
    frame: pd.DataFrame, columns: list[str], made: NDArray[np.float64], dropped: tuple[str, ...]
) -> pd.DataFrame:
    """The table with its features replaced, every column in its own type."""
    fresh = {
        name: pd.Series(cast_like(made[:, index], frame[name].dtype), index=frame.index)
        for index, name in enumerate(columns)
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


def _write(made: pd.DataFrame, paper: Certificate, output: str, certificate: str | None) -> None:
    """Both files or none: the certificate gets its name only when the table has got its own."""
    place = certificate
    if place is None and output != STREAM and not _is_device(output):
        place = f"{output}.certificate.json"
    if place is None:
        write_table(made, output)
        return
    check_output(place, (".json",))
    with replacing(place) as beside:
        beside.write_text(paper.to_json() + "\n", encoding="utf-8")
        write_table(made, output)


def _is_device(path: str) -> bool:
    return Path(path).exists() and not Path(path).is_file()


def _tell(console: Console, paper: Certificate, output: str, made: pd.DataFrame) -> None:
    values = {
        "output": output,
        "rows": len(made),
        "columns": len(made.columns),
        "private": paper.is_private,
        "certificate": paper.to_dict(),
    }
    text = f"{paper}\n{len(made)} fabricated rows written to {output}"
    console.result(text, values, stdout_taken=output == STREAM)

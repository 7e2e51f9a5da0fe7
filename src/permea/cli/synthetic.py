"""``permea fabricate --schema``: a synthetic table, its certificate and its report."""

from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from permea._version import __version__
from permea.audit.synthetic import synthetic_risks
from permea.cli import options, signatures, tables
from permea.cli.console import Console, UsageError, one_line
from permea.fabricate.comparison import compare_tables
from permea.fabricate.generator import CHUNK
from permea.fabricate.tables import FabricatedTable
from permea.fabricate.tables import fabricate_table as from_counts
from permea.privacy.moments import Neighbours
from permea.privacy.signing import SigningKey
from permea.report import Report, render
from permea.tables import Schema


@dataclass(frozen=True)
class SyntheticOptions:
    """How many rows, how neighbours differ, and what is written beside the table."""

    rows: Annotated[int | None, Option("--rows", min=1, help="Rows, with --schema.")] = None
    draw_seed: Annotated[
        int | None,
        Option("--draw-seed", help="Repeats the draw after the release; stays private."),
    ] = None
    most_rows: Annotated[
        int | None,
        Option("--most-rows", min=1, help="Most rows of a person, with --unit person; declared."),
    ] = None
    neighbours: options.Relation = options.Neighbours.replaced
    report: Annotated[
        str | None, Option("--report", help="HTML report on the synthetic table.")
    ] = None
    holdout: Annotated[
        str | None,
        Option(help="Real rows that the table is not made from, for a report that is NOT FOR "
               "RELEASE: the real table beside it, and attacks."),
    ] = None  # fmt: skip

    def check(self, schema: Schema | None) -> None:
        """Refuse options that need others, before a file is read."""
        given = self.rows, self.draw_seed, self.report, self.holdout, self.most_rows
        if schema is None and any(one is not None for one in given):
            raise UsageError("--rows, --most-rows, --draw-seed, --report, --holdout need --schema.")
        if self.holdout is not None and self.report is None:
            raise UsageError("--holdout is for the report: give --report FILE too.")


@dataclass(frozen=True)
class Paths:
    """The private table and what is asked of it, and the files that are written."""

    data: str
    output: str
    certificate: str | None
    sign: Path | None
    query: str | None

    @property
    def is_file(self) -> bool:
        """Whether the table goes into a file that others can stand beside."""
        return self.output != tables.STREAM and not tables.is_device(self.output)

    def check(self, console: Console, wanted: SyntheticOptions) -> "Paths":
        """The same with the place of the certificate, if all can be written."""
        tables.check_table_output(console, self.output, self.data, wanted.holdout)
        if self.sign is not None and not self.is_file:
            raise UsageError("--sign writes a file beside the table; give -o FILE.")
        beside = signatures.certificate_path(self.output) if self.is_file else None
        certificate = self.certificate or beside
        for path, ending in ((certificate, ".json"), (wanted.report, ".html")):
            if path is not None:
                tables.check_output(path, (ending,), inputs=(self.data,))
        return replace(self, certificate=certificate)


def fabricate_table(
    console: Console,
    paths: Paths,
    schema: Schema,
    declared: options.PrivacyOptions,
    ledger: options.LedgerOptions,
    wanted: SyntheticOptions,
    seed: int | None,
) -> None:
    """Make the table, and write it with what stands beside it."""
    declared.check(schema=True)
    paths = paths.check(console, wanted)
    key = signatures.signing_key(paths.sign)
    others = _held_out(console, schema, wanted.holdout)
    frame = _rows(paths.data, paths.query, schema)
    made = _made(console, paths.data, frame, schema, declared, ledger, wanted, seed)
    found = {} if others is None else _beside_real_rows(made, frame, schema, others)
    files = {}
    if wanted.report is not None:
        files[wanted.report] = _page(made, found, schema, paths.data)
    _write(made, paths, wanted, key, files)
    n_rows = len(made.data) if wanted.rows is None else wanted.rows
    values = {"output": paths.output, "rows": n_rows, "report": wanted.report,
              "quality": made.quality.to_dict(),
              **{name: part.to_dict() for name, part in found.items()}}  # fmt: skip
    signatures.certified_result(
        console, made.certificate, f"{n_rows} synthetic rows written to {paths.output}", values,
        key, stdout_taken=paths.output == tables.STREAM,
    )  # fmt: skip


def _write(
    made: FabricatedTable,
    paths: Paths,
    wanted: SyntheticOptions,
    key: SigningKey | None,
    files: dict[str, bytes],
) -> None:
    """All files or none; a long Parquet table is written before them, part by part."""
    output, certificate = paths.output, paths.certificate
    if certificate is not None:
        files[certificate] = f"{made.certificate.to_json()}\n".encode()
    if not paths.is_file:
        tables.write_table(made.data, output)
    elif output.endswith(".parquet") and key is None and (wanted.rows or 0) > CHUNK:
        with tables.output_errors(output):
            made.generator.write_parquet(output, wanted.rows or 1, random_state=wanted.draw_seed)
    else:
        table = tables.table_file(made.data, output)
        if key is not None and certificate is not None:
            files[signatures.signature_path(output)] = signatures.sign_table(
                table, files[certificate], key
            )
        files[output] = table
    if files:
        tables.write_results(files)


def _rows(data: str, query: str | None, schema: Schema) -> Any:
    """The private table; nothing but the names of its columns matters before the charge."""
    chunks = tables.open_table(data, query)
    try:
        schema.check_columns(dict.fromkeys(chunks.names, ()))
    except ValueError as error:
        raise UsageError(f"{chunks.what}: {one_line(error)}") from error
    return tables.private_rows(chunks)


def _made(
    console: Console,
    data: str,
    frame: Any,
    schema: Schema,
    declared: options.PrivacyOptions,
    ledger: options.LedgerOptions,
    wanted: SyntheticOptions,
    seed: int | None,
) -> FabricatedTable:
    if declared.unit is options.Unit.entry:
        raise UsageError(
            "--schema makes tables per record or person: give --unit record or person."
        )
    if declared.unit is options.Unit.person and schema.person is None:
        raise UsageError(
            "--unit person needs the column that says whose row it is: person = "
            '"column" in the schema, or --person COLUMN.'
        )
    relation: Neighbours = wanted.neighbours.value
    promise = replace(declared.of_moments(), rows_per_person=wanted.most_rows)
    console.say(f"learning from {len(schema.names)} columns of {data} ...")
    with tables.one_message_about(data, tables.SCHEMA_EXPECTED):
        return from_counts(
            frame, schema, privacy=promise, neighbours=relation, n_rows=wanted.rows,
            ledger=ledger.open(declared.unit), dataset=ledger.dataset, random_state=seed,
            seed=wanted.draw_seed,
        )  # fmt: skip


def _held_out(console: Console, schema: Schema, holdout: str | None) -> Any:
    """Rows that are not learned from; what is wrong with them is said before the charge."""
    if holdout is None:
        return None
    console.warn("with --holdout, report and JSON hold figures of the real rows: NOT FOR RELEASE")
    others = tables.read_declared_table(holdout)
    try:
        schema.check_columns(others)
        schema.read(others, [name for name in schema.names if name != schema.person])
    except ValueError as error:
        raise UsageError(f"{holdout}: {one_line(error)}") from error
    return others


def _beside_real_rows(
    made: FabricatedTable, frame: Any, schema: Schema, others: Any
) -> dict[str, Any]:
    """Comparison and attacks with held-out rows: the real rows are read for them."""
    return {
        "comparison": compare_tables(frame, made.data, schema, others),
        "risks": synthetic_risks(frame, made.data, others, schema, generator=made.generator),
    }


def _page(made: FabricatedTable, found: dict[str, Any], schema: Schema, data: str) -> bytes:
    """The report as HTML."""
    facts = {
        "columns": str(len(schema.names)),
        "permea": __version__,
        "date": date.today().isoformat(),
    }
    page = Report(
        title=f"Synthetic table made from {Path(data).name}",
        facts=facts,
        certificates={"synthetic table": made.certificate},
        quality=made.quality,
        computed_from_private_rows=["beside the real table", "attacks"] if found else [],
        **found,
    )
    return render(page).encode()

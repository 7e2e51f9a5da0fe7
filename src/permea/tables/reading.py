"""Tables in chunks: files, frames and databases, read as often as a method needs.

Column names are known at once. Rows are read only while somebody iterates, so a private fit can
charge its ledger before that; what is wrong with the rows is told then, without any value of them.
Types come from the source and never from values: cells of a CSV file stay text, and whole numbers
of a Parquet file stay whole numbers in chunks with missing values too.
"""

import csv
import gzip
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import unquote

from permea._progress import progress_rows
from permea.tables.frames import share_without_letters

if TYPE_CHECKING:
    import pandas as pd

ROWS = 65536  # rows of a chunk, unless told otherwise
_BLOCK = 1 << 23  # bytes of a CSV file parsed at once: a line must be shorter
_ROWS_READABLE = (
    "Every line needs as many values as the header has names, in UTF-8, and every opening "
    "quotation mark a closing one."
)
_DATABASES = ("sqlite", "postgresql", "postgres", "duckdb")


@dataclass(frozen=True, repr=False)
class Chunks:
    """A table that is read chunk by chunk, any number of times; `read_chunks` makes it.

    Calling it gives an iterator over frames of pandas. Each of ``pieces`` (a file, a partition)
    can be read without the others, so workers can share them: see `split`.

    Attributes
    ----------
    names : tuple of str
        Column names; no row is read for them.
    rows : int
        Most rows of a chunk.
    """

    names: tuple[str, ...]
    pieces: tuple[Any, ...]
    rows: int = ROWS
    what: str = "The table"
    hint: str = ""
    is_part: bool = False  # which may be empty

    def __call__(self) -> "Iterator[pd.DataFrame]":
        """Read the table from its beginning."""
        return progress_rows(self._frames(), desc="reading")

    def __iter__(self) -> "Iterator[pd.DataFrame]":
        return self()

    def __repr__(self) -> str:
        return f"Chunks({len(self.names)} columns)"  # neither rows nor an address with a password

    def _frames(self) -> "Iterator[pd.DataFrame]":
        empty = True
        try:
            for piece in self.pieces:
                for table in _opened(piece, self.names):
                    for start in range(0, len(table), self.rows):
                        empty = False
                        yield _frame(table[start : start + self.rows], self.names)
        except Exception:  # whatever a library raises may quote a value
            raise ValueError(f"{self.what} could not be read to its end. {self.hint}") from None
        if empty and not self.is_part:
            raise ValueError(f"{self.what} has no rows.")

    def select(self, columns: Sequence[str]) -> "Chunks":
        """The same table with some of its columns only; the others are not read."""
        missing = [name for name in columns if name not in self.names]
        if missing:
            raise ValueError(
                f"{self.what} has no column {missing[0]!r}. Check the name, also for spaces and "
                "capital letters."
            )
        return replace(self, names=tuple(columns))

    def split(self, most: int) -> "list[Chunks]":
        """The table as at most ``most`` tables of whole pieces, for workers that share it."""
        pieces: list[Any] = []
        for piece in self.pieces:
            pieces += piece.split() if isinstance(piece, _Fragment) else [piece]
        count = min(most, len(pieces))
        return [replace(self, pieces=tuple(pieces[k::count]), is_part=True) for k in range(count)]


def read_chunks(
    source: Any, *, columns: Sequence[str] | None = None, rows: int = ROWS, query: str | None = None
) -> Chunks:
    r"""Read a table in chunks, from wherever it is.

    Parameters
    ----------
    source : path, frame, dataset or address
        A CSV file (UTF-8, also with gzip; separated by commas, or by semicolons or tabs if the
        header has no comma), a Parquet file or a folder of them; a frame of pandas, Polars or
        Dask; a table or dataset of pyarrow; or, with ``query``, a database:
        ``"sqlite:///file.db"``, ``"postgresql://user@host/database"``, ``"duckdb:///file.duckdb"``,
        or ``"duckdb:"`` for queries over files.
    columns : sequence of str, optional
        Columns to read; all of them by default.
    rows : int, default=65536
        Most rows of a chunk.
    query : str, optional
        What to ask the database, in SQL.

    Returns
    -------
    Chunks
        Call it for an iterator over frames of pandas, as often as needed.

    Raises
    ------
    ValueError
        When the source is of no known kind, has no header, or has two columns of one name. While
        iterating: when rows cannot be read, or there are none.
    ImportError
        When a package is missing; the message names the command that installs it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "visits.csv")
    ...     _ = file.write_text("patient,age\n7,61\n7,62\n8,40\n")
    ...     chunks = read_chunks(file, rows=2)
    ...     chunks.names, [frame["age"].tolist() for frame in chunks()]
    (('patient', 'age'), [['61', '62'], ['40']])
    """
    if rows < 1:
        raise ValueError("rows must be a whole number of at least 1.")
    chunks = _chunks(source, query)
    _check_names(chunks.names, chunks.what)
    chunks = replace(chunks, rows=rows)
    return chunks if columns is None else chunks.select(columns)


def _chunks(source: Any, query: str | None) -> Chunks:
    if isinstance(source, Chunks):
        return source
    if isinstance(source, str | os.PathLike):
        scheme = os.fspath(source).partition(":")[0]
        if scheme in _DATABASES:
            return _database(scheme, os.fspath(source), query)
        if query is not None:
            raise ValueError(
                "query needs the address of a database: 'sqlite:///file.db', 'postgresql://…' or "
                "'duckdb:', which reads files that the query names."
            )
        return _file(Path(source))
    return _in_memory(source)


def _check_names(names: Sequence[str], what: str) -> None:
    counts = Counter(name.strip() for name in names)
    twice = [name for name, count in counts.items() if count > 1]
    if twice and share_without_letters(names) > 0:  # the names may be values of a first row
        raise ValueError(f"{what}: a name is there twice. Does it begin with names of columns?")
    if twice:
        raise ValueError(f"{what}: the column {twice[0]!r} is there twice. Rename one of them.")
    if not names or "" in counts:
        raise ValueError(f"{what} needs a header line with a name for every column.")


# ---- what is in memory, or partitioned -----------------------------------------------------------


def _in_memory(source: Any) -> Chunks:
    kind = type(source).__module__.partition(".")[0]
    if kind == "pyarrow" and hasattr(source, "get_fragments"):
        return _dataset(source, "The dataset")
    if kind == "pyarrow" and hasattr(source, "to_batches"):
        return Chunks(tuple(source.schema.names), (source,))
    if kind in ("dask", "dask_expr") and hasattr(source, "to_delayed"):
        return Chunks(tuple(map(str, source.columns)), tuple(source.to_delayed()))
    if kind in ("pandas", "polars") and hasattr(source, "shape") and hasattr(source, "columns"):
        return Chunks(tuple(map(str, source.columns)), (source,))
    raise ValueError(
        "A table is a path, a DataFrame of pandas, Polars or Dask, a table or dataset of pyarrow, "
        f"or the address of a database with a query; got an object of type {type(source).__name__}."
    )


def _opened(piece: Any, names: Sequence[str]) -> Iterable[Any]:
    """Tables of one piece: what it reads, what it computes to, or itself."""
    if hasattr(piece, "compute"):
        piece = piece.compute()
    return piece(names) if callable(piece) else [piece]


def _frame(table: Any, names: Sequence[str]) -> "pd.DataFrame":
    """A frame of pandas with some columns, whose types are those of the table."""
    if hasattr(table, "to_arrow"):
        table = table.select(names).to_arrow()
    if hasattr(table, "to_pandas"):
        return _from_arrow(table.select(names))  # type: ignore[no-any-return]
    if not all(isinstance(name, str) for name in table.columns):
        table = table.set_axis([str(name) for name in table.columns], axis=1)
    return table[list(names)]  # type: ignore[no-any-return]


def _from_arrow(table: Any) -> Any:
    pa, pd = load_module("pyarrow", "cli"), load_module("pandas", "cli")
    # With missing values they would become floats, which are not exact above 2**53.
    kinds = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    return table.to_pandas(types_mapper=kinds.get)


# ---- files ---------------------------------------------------------------------------------------


def _file(path: Path) -> Chunks:
    if path.is_dir():
        return _parquet(path)
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        reason = (error.strerror or "it cannot be opened").lower()
        raise ValueError(f"{path}: {reason}. Check the path and the permissions.") from None
    if start == b"PAR1":
        return _parquet(path)
    load_module("pyarrow.csv", "cli")
    names, delimiter = _csv_header(path)
    piece = partial(_csv_tables, os.fspath(path), delimiter, names[-1:])
    return Chunks(names, (piece,), what=str(path), hint=_ROWS_READABLE)


def _text(path: str | Path) -> TextIO:
    """A text file, with or without gzip; bytes that are not UTF-8 do not stop it."""
    opened: Any = gzip.open if Path(path).suffix.lower() == ".gz" else open
    return opened(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")  # type: ignore[no-any-return]


def _csv_header(path: Path) -> tuple[tuple[str, ...], str]:
    """Names of the columns and what separates them, from the header alone."""
    try:
        with _text(path) as file:
            line = next((line for line in file if line.strip()), "")
            delimiter = next((mark for mark in ",;\t" if mark in line), ",")
            names = next(csv.reader(chain([line], file), delimiter=delimiter), [])
            "".join(names).encode()
    except (csv.Error, OSError, EOFError, UnicodeEncodeError):
        raise ValueError(
            f"{path} is not CSV in UTF-8, nor Parquet. Save it as one of them."
        ) from None
    return tuple(names), delimiter


def csv_names(path: Path) -> tuple[str, ...]:
    """Names of the columns of a CSV file; nothing but its header is read."""
    names, _ = _csv_header(path)
    _check_names(names, str(path))
    return names


def _csv_tables(
    path: str, delimiter: str, last: Sequence[str], names: Sequence[str]
) -> Iterator[Any]:
    """Batches of text; the types of cells are the schema's business."""
    names = list(dict.fromkeys([*names, *last]))
    pa, reader = load_module("pyarrow", "cli"), load_module("pyarrow.csv", "cli")
    convert = reader.ConvertOptions(
        column_types={name: pa.string() for name in names},
        include_columns=names,
        strings_can_be_null=False,
    )
    parse = reader.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    read = reader.ReadOptions(block_size=_BLOCK)
    with (
        pa.input_stream(path, compression="detect") as stream,
        reader.open_csv(
            stream, read_options=read, parse_options=parse, convert_options=convert
        ) as batches,
    ):
        cell = ""
        for batch in batches:
            cell = batch[last[0]][-1].as_py() if len(batch) else cell
            yield batch
        if cell.endswith(("\n", "\r")):
            raise ValueError("the file ends within quotation marks")


def _parquet(path: Path) -> Chunks:
    datasets = load_module("pyarrow.dataset", "cli")
    try:
        dataset = datasets.dataset(
            os.fspath(path), format="parquet", partitioning="hive", exclude_invalid_files=False
        )
    except Exception:
        raise ValueError(
            f"{path} is not Parquet: damaged, cut short or another format. Get a fresh copy."
        ) from None
    if not dataset.files:
        raise ValueError(f"{path} is a folder without files. Name a folder of Parquet files.")
    return _dataset(dataset, str(path))


def _dataset(dataset: Any, what: str) -> Chunks:
    hint = "A file of it is damaged or cut short, or has other columns. Get a fresh copy."
    pieces = tuple(_Fragment(part, dataset.schema) for part in dataset.get_fragments())
    return Chunks(tuple(dataset.schema.names), pieces, what=what, hint=hint)


@dataclass(frozen=True)
class _Fragment:
    """One file of a dataset, or some row groups of it."""

    fragment: Any
    schema: Any

    def __call__(self, names: Sequence[str]) -> Iterator[Any]:
        in_path = import_module("pyarrow.dataset").get_partition_keys(
            self.fragment.partition_expression
        )
        if not {*self.fragment.physical_schema.names, *in_path}.issuperset(names):
            raise ValueError("a file lacks a column, which would be filled with missing values")
        options = {"batch_size": ROWS, "batch_readahead": 2, "fragment_readahead": 1}
        return self.fragment.to_batches(schema=self.schema, columns=list(names), **options)  # type: ignore[no-any-return]

    def split(self) -> "list[_Fragment]":
        groups = getattr(self.fragment, "split_by_row_group", lambda: [self.fragment])
        return [replace(self, fragment=group) for group in groups()]


# ---- databases -----------------------------------------------------------------------------------

Answer = tuple[tuple[str, ...], Iterable[Any]]  # column names, and tables of rows


def _database(scheme: str, address: str, query: str | None) -> Chunks:
    if query is None:
        raise ValueError("A database needs a query, such as query='SELECT * FROM visits'.")
    query = query.strip().rstrip(";")
    ask = {"sqlite": _sqlite, "duckdb": _duckdb}.get(scheme, _postgres)
    with ask(address, f"SELECT * FROM ({query}) AS permea_query LIMIT 0") as (names, _):
        piece = partial(_query_tables, ask, address, query, names)
    hint = "The database stopped, its columns changed, or a row could not be computed."
    return Chunks(names, (piece,), what="The query", hint=hint)


def _query_tables(
    ask: Any, address: str, query: str, expected: tuple[str, ...], _: Sequence[str]
) -> Iterator[Any]:
    with ask(address, query) as (names, tables):
        if names != expected:
            raise ValueError("two columns of the query have the same name")
        yield from tables


@contextmanager
def _sqlite(address: str, query: str) -> Iterator[Answer]:
    path = Path(unquote(address.removeprefix("sqlite:///")))
    if not path.is_file():
        raise ValueError(f"{path} does not exist. An address is 'sqlite:///' and a path.")
    with (
        _explained((sqlite3.OperationalError, sqlite3.ProgrammingError), sqlite3.Error),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection,
    ):
        cursor = connection.execute(query)
        yield _names(cursor), _fetched(cursor)


@contextmanager
def _postgres(address: str, query: str) -> Iterator[Answer]:
    psycopg = load_module("psycopg", "postgres")
    with (
        _explained(psycopg.errors.ProgrammingError, psycopg.Error),
        closing(psycopg.connect(address, connect_timeout=30)) as connection,
    ):
        connection.read_only = True
        with connection.cursor(name="permea") as cursor:  # rows stay on the server
            cursor.execute(query)
            yield _names(cursor), _fetched(cursor)


@contextmanager
def _duckdb(address: str, query: str) -> Iterator[Answer]:
    duckdb = load_module("duckdb", "sql")
    path = unquote(address.removeprefix("duckdb:").removeprefix("///"))
    with (
        _explained((duckdb.CatalogException, duckdb.ParserException), duckdb.Error),
        closing(duckdb.connect(path or ":memory:", read_only=bool(path))) as connection,
    ):
        reader = connection.sql(query).to_arrow_reader(ROWS)
        yield tuple(reader.schema.names), reader


@contextmanager
def _explained(about_query: Any, every: Any) -> Iterator[None]:
    """Quote the database on syntax and names; other messages may hold values or a password."""
    try:
        yield
    except about_query as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"The database does not understand the query: {reason}") from None
    except every:
        raise ValueError(
            "The database cannot be reached, refuses the login, or cannot answer the query. Check "
            "the address, and run the query with the database's own program."
        ) from None


def _names(cursor: Any) -> tuple[str, ...]:
    if cursor.description is None:
        raise ValueError("The query gives no rows to read: it must be a SELECT.")
    return tuple(column[0] for column in cursor.description)


def _fetched(cursor: Any) -> "Iterator[pd.DataFrame]":
    """Values as the database gives them, each by itself: no type is chosen for a column."""
    frames, names = load_module("pandas", "cli"), _names(cursor)
    while rows := cursor.fetchmany(ROWS):
        yield frames.DataFrame(rows, columns=list(names), dtype=object)


def load_module(name: str, extra: str) -> Any:
    """A module of a package that may be missing."""
    try:
        return import_module(name)
    except ImportError:
        raise ImportError(
            f"Reading this table needs {name.partition('.')[0]}: pip install 'permea[{extra}]'."
        ) from None

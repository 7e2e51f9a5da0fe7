"""Rows from bytes that anybody may have sent: JSON, CSV, Arrow and npy, within limits.

Nothing is unpickled, uncompressed or allocated because a header asks for it. Whatever is wrong
raises `DecodeError` with a text that holds no value from the bytes.
"""

import csv
import io
import json
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from permea.federation.errors import FederationError

JSON = "application/json"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
NPY = "application/x-npy"
MOST_COLUMNS = 100_000
_LONGEST_NAME = 1000
_DTYPES = ("<f4", "<f8", "<i4", "<i8", "|u1", "|i1", "|b1", "<u4", "<i2", "<u2")
_MOST_MESSAGES = 10_000  # of an Arrow stream


class DecodeError(FederationError):
    """Bytes from outside are not the rows that they should be."""


@dataclass(frozen=True)
class Limits:
    """What one request may hold."""

    rows: int = 100_000
    cells: int = 20_000_000


@dataclass(frozen=True)
class Rows:
    """Decoded rows: a matrix of numbers, or columns of numbers and texts.

    Parameters
    ----------
    names : tuple of str or None
        Names of the columns, where they were sent.
    columns : list of arrays
        One for each column, numbers or texts; None when ``matrix`` holds all.
    matrix : ndarray or None
        Numbers, (rows × columns).
    """

    names: tuple[str, ...] | None
    columns: list[NDArray[Any]] | None = None
    matrix: NDArray[Any] | None = None

    def __len__(self) -> int:
        if self.matrix is not None:
            return len(self.matrix)
        return len(self.columns[0]) if self.columns else 0

    @property
    def n_columns(self) -> int:
        """How many columns there are."""
        return len(self.columns or ()) if self.matrix is None else self.matrix.shape[1]

    def numbers(self, wanted: Sequence[str] | None, n_columns: int) -> NDArray[Any]:
        """The columns in the order of ``wanted`` as a matrix of finite numbers."""
        order = self._order(wanted)
        if self.matrix is not None:
            found = self.matrix if order is None else self.matrix[:, order]
        else:
            assert self.columns is not None
            chosen = range(len(self.columns)) if order is None else order
            found = np.column_stack([_as_numbers(self.columns[at]) for at in chosen])
        if found.ndim != 2 or found.shape[1] != n_columns:
            width = found.shape[1] if found.ndim == 2 else "no"
            raise DecodeError(f"The rows have {width} columns; {n_columns} are needed.")
        if not np.isfinite(found).all():
            raise DecodeError("There is a NaN or an infinite number. Impute or drop these rows.")
        return found

    def frame(self, wanted: Sequence[str]) -> Any:
        """The columns of ``wanted`` as a frame, for a model that reads tables by a schema."""
        import pandas as pd

        order = self._order(wanted)
        if self.names is None or order is None:
            raise DecodeError("This model reads columns by name: send them.")
        return pd.DataFrame(
            {name: self._column(at) for name, at in zip(wanted, order, strict=True)}
        )

    def _column(self, at: int) -> NDArray[Any]:
        if self.matrix is not None:
            return np.asarray(self.matrix[:, at])
        assert self.columns is not None
        return self.columns[at]

    def _order(self, wanted: Sequence[str] | None) -> list[int] | None:
        """Where the wanted columns are; None to take all as they come."""
        if wanted is None or self.names is None:
            return None
        place = {name: at for at, name in enumerate(self.names)}
        missing = [name for name in wanted if name not in place]
        if missing:
            raise DecodeError(
                f"{len(missing)} of the {len(wanted)} columns are missing, for example "
                f"{missing[0]!r}. GET /v1/about lists them."
            )
        return [place[name] for name in wanted]


def decode(body: bytes, kind: str, limits: Limits | None = None) -> Rows:
    """Rows from the body of a request.

    Parameters
    ----------
    body : bytes
        What was sent; its size was limited before.
    kind : str
        Media type: `JSON`, `CSV`, `ARROW` or `NPY`.
    limits : Limits, optional
        What one request may hold.

    Examples
    --------
    >>> decode(b'{"columns": ["a", "b"], "rows": [[1, 2], [3, 4]]}', JSON).numbers(["b"], 1)
    array([[2.],
           [4.]])
    """
    limits = limits or Limits()
    readers = {JSON: _from_json, CSV: _from_csv, ARROW: _from_arrow, NPY: _from_npy}
    if kind not in readers:
        raise DecodeError(f"The media type must be one of {', '.join(readers)}.")
    try:
        rows = readers[kind](body, limits)
    except DecodeError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError, OSError,
            RecursionError, csv.Error, struct.error) as error:  # fmt: skip
        raise DecodeError(f"The body is not valid {kind} ({type(error).__name__}).") from None
    _check_size(len(rows), rows.n_columns, limits)
    if rows.names is not None:
        _check_names(rows.names)
    return rows


def _check_size(rows: int, columns: int, limits: Limits) -> None:
    if rows < 1 or columns < 1:
        raise DecodeError("There are no rows: send at least one.")
    if rows > limits.rows or columns > MOST_COLUMNS or rows * columns > limits.cells:
        raise DecodeError(
            f"{rows} rows of {columns} columns are too many; at most {limits.rows} rows and "
            f"{limits.cells} cells are taken at once. Send several jobs."
        )


def _check_names(names: tuple[str, ...]) -> None:
    if len(set(names)) < len(names) or any(len(name) > _LONGEST_NAME for name in names):
        raise DecodeError("Names of columns must differ and be short.")


# ---- JSON and CSV --------------------------------------------------------------------------------


def read_json(body: bytes) -> Any:
    """JSON without NaN and infinity, and not nested deeper than the parser goes."""

    def refuse(word: str) -> Any:
        raise DecodeError("There is a NaN or an infinite number. Impute or drop these rows.")

    try:
        return json.loads(body.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):
        raise DecodeError("The body is not valid JSON.") from None


def _from_json(body: bytes, limits: Limits) -> Rows:
    values = read_json(body)
    if isinstance(values, list):
        values = {"rows": values}
    if not isinstance(values, dict) or not isinstance(values.get("rows"), list):
        raise DecodeError('The JSON must be {"rows": [[…], …]}, with "columns": […] for names.')
    rows, names = values["rows"], values.get("columns")
    if rows and all(isinstance(row, dict) for row in rows):
        names = list(rows[0])
        if any(row.keys() != rows[0].keys() for row in rows):
            raise DecodeError("All rows must have the same columns.")
        rows = [list(row.values()) for row in rows]
    if not rows or not all(isinstance(row, list) and len(row) == len(rows[0]) for row in rows):
        raise DecodeError("There must be at least one row, and all must be equally long.")
    _check_size(len(rows), len(rows[0]), limits)
    if names is not None and (
        not isinstance(names, list)
        or len(names) != len(rows[0])
        or not all(isinstance(name, str) for name in names)
    ):
        raise DecodeError("There must be one name, a text, for each column.")
    return _from_values(None if names is None else tuple(names), rows)


def _from_values(names: tuple[str, ...] | None, rows: list[list[Any]]) -> Rows:
    """Numbers as a matrix, and anything with a text or a gap column by column."""
    kinds = {type(value) for row in rows for value in row}
    if kinds <= {int, float}:
        return Rows(names, matrix=np.array(rows, dtype=np.float64))
    if not kinds <= {int, float, str, bool, type(None)}:
        raise DecodeError("A cell must be a number, a text, true, false or null.")
    return Rows(names, columns=[_objects(column) for column in zip(*rows, strict=True)])


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _from_csv(body: bytes, limits: Limits) -> Rows:
    """A table with names in its first line; cells stay texts until somebody wants numbers."""
    reader = csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""), strict=True)
    names = tuple(next(reader, ()))
    rows = []
    for row in reader:
        if not row:
            continue
        if len(row) != len(names):
            raise DecodeError("All lines of the table must have as many cells as the first one.")
        rows.append(row)
        if len(rows) > limits.rows or len(rows) * len(names) > limits.cells:
            _check_size(len(rows), len(names), limits)
    _check_size(len(rows), len(names), limits)
    return Rows(names, columns=[_objects(column) for column in zip(*rows, strict=True)])


def _as_numbers(column: NDArray[Any]) -> NDArray[np.float64]:
    try:
        if column.dtype == object and any(value is None for value in column):
            raise ValueError
        return column.astype(np.float64)
    except (ValueError, TypeError, OverflowError):
        raise DecodeError("A column holds something that is not a number.") from None


# ---- npy -----------------------------------------------------------------------------------------


def read_array(data: bytes, *, max_ndim: int = 2) -> NDArray[Any]:
    """An array in the npy format whose header and size agree; nothing is allocated before.

    Examples
    --------
    >>> buffer = io.BytesIO()
    >>> np.save(buffer, np.eye(2))
    >>> read_array(buffer.getvalue()).shape
    (2, 2)
    >>> read_array(buffer.getvalue()[:-1])
    Traceback (most recent call last):
        ...
    permea.federation.service.decode.DecodeError: The array does not have the size that its header
    states.
    """
    source = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(source)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(source)
        known = dtype.str in _DTYPES or dtype.kind == "U"
    except Exception:
        raise DecodeError("The bytes are not an array in the npy format.") from None
    if not known or len(shape) > max_ndim or min(shape, default=0) < 0:
        raise DecodeError("The array must hold numbers, in rows and columns.")
    if math.prod(shape) * dtype.itemsize != len(data) - source.tell() or not dtype.itemsize:
        raise DecodeError("The array does not have the size that its header states.")
    flat = np.frombuffer(data, dtype=dtype, offset=source.tell())
    return flat.reshape(shape, order="F" if fortran else "C").copy()


def _from_npy(body: bytes, limits: Limits) -> Rows:
    found = read_array(body)
    if found.ndim != 2 or found.dtype.kind not in "fiub":
        raise DecodeError("The array must hold numbers, in rows and columns.")
    matrix = found if found.dtype in (np.float32, np.float64) else found.astype(np.float64)
    return Rows(None, matrix=matrix)


# ---- Arrow ---------------------------------------------------------------------------------------


def _from_arrow(body: bytes, limits: Limits) -> Rows:
    """An uncompressed stream of plain columns."""
    import pyarrow as pa

    try:
        for metadata in _arrow_messages(body):
            if _is_compressed(metadata):
                raise DecodeError("Compressed Arrow streams are not taken; send it uncompressed.")
        with pa.ipc.open_stream(pa.BufferReader(body)) as stream:
            _check_arrow_types(stream.schema)
            parts, rows = [], 0
            for part in stream:
                part.validate(full=True)
                rows += part.num_rows
                _check_size(max(rows, 1), max(part.num_columns, 1), limits)
                parts.append(part)
                if len(parts) > _MOST_MESSAGES:
                    raise DecodeError("The Arrow stream is in too many pieces.")
        table = pa.Table.from_batches(parts, stream.schema)
    except pa.ArrowException as error:
        raise DecodeError(f"The body is not valid Arrow ({type(error).__name__}).") from None
    columns = [_arrow_column(column) for column in table.columns]
    return Rows(tuple(str(name) for name in table.column_names), columns=columns)


def _check_arrow_types(schema: Any) -> None:
    import pyarrow.types as kinds

    if len(schema) > MOST_COLUMNS:
        raise DecodeError(f"At most {MOST_COLUMNS} columns are taken.")
    plain = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_string,
             kinds.is_large_string, kinds.is_date, kinds.is_timestamp)  # fmt: skip
    for kind in schema.types:
        inner = kind.value_type if kinds.is_dictionary(kind) else kind
        if not any(is_kind(inner) for is_kind in plain):
            raise DecodeError("Arrow columns must be numbers, texts, yes/no or dates.")


def _arrow_column(column: Any) -> NDArray[Any]:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count == 0 and (
        pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    ):
        return np.asarray(column.to_numpy())
    return _objects(column.to_pylist())


def _arrow_messages(body: bytes) -> Iterator[bytes]:
    """Metadata of the messages of a stream."""
    at, count = 0, 0
    while at + 8 <= len(body) and count < _MOST_MESSAGES:
        mark, length = struct.unpack_from("<Ii", body, at)
        if mark != 0xFFFFFFFF or length < 0 or at + 8 + length > len(body):
            raise DecodeError("The body is not a valid Arrow stream.")
        if length == 0:
            return
        metadata = body[at + 8 : at + 8 + length]
        yield metadata
        at, count = at + 8 + length + _body_length(metadata), count + 1


def _body_length(metadata: bytes) -> int:
    """Field 3 of a Message: bytes that follow the metadata."""
    place = _field(metadata, _root(metadata), 3)
    length = 0 if place is None else int(struct.unpack_from("<q", metadata, place)[0])
    if length < 0:
        raise DecodeError("The body is not a valid Arrow stream.")
    return length


def _is_compressed(metadata: bytes) -> bool:
    """Whether a batch, or the batch in a dictionary, has the field that names a compression."""
    message = _root(metadata)
    place, kind = _field(metadata, message, 2), _field(metadata, message, 1)
    if place is None or kind is None:
        return False
    table = place + struct.unpack_from("<I", metadata, place)[0]
    which = metadata[kind]
    if which == 2:  # a dictionary holds its batch in field 1
        inner = _field(metadata, table, 1)
        if inner is None:
            return False
        table = inner + struct.unpack_from("<I", metadata, inner)[0]
    return which in (2, 3) and _field(metadata, table, 3) is not None


def _root(metadata: bytes) -> int:
    return int(struct.unpack_from("<I", metadata, 0)[0])


def _field(metadata: bytes, table: int, number: int) -> int | None:
    """Where a field of a FlatBuffers table is; None when it is absent."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    if vtable < 0:
        raise DecodeError("The body is not a valid Arrow stream.")
    size = struct.unpack_from("<H", metadata, vtable)[0]
    slot = 4 + 2 * number
    if slot + 2 > size:
        return None
    offset = struct.unpack_from("<H", metadata, vtable + slot)[0]
    return table + offset if offset else None

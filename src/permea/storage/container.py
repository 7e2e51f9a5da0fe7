"""Model files as bytes: a safetensors container, read with limits on memory.

The header is JSON and describes every tensor; the bytes of the tensors follow. A file may come from
an untrusted source, so the header is limited before it is parsed, and a tensor is allocated only
after the file was found to hold all of its bytes.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from permea._files import open_regular


class StorageError(ValueError):
    """A model file cannot be written or read, with the reason and what to do."""

    __module__ = "permea.storage"


class RefusedError(ValueError):
    """A value is not what its field is declared to be; ``where`` says which field."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.where: list[str] = []

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.where))}: {self.problem}" if self.where else self.problem


DTYPES = {
    "BOOL": "|b1", "I8": "|i1", "U8": "|u1", "I16": "<i2", "U16": "<u2", "I32": "<i4",
    "U32": "<u4", "I64": "<i8", "U64": "<u8", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_METADATA = "__metadata__"
_PREFIX = 8
MOST_TEXT = 4 << 20  # bytes of the header, beside a share of the numbers
MOST_CONTAINERS = 100_000  # lists and tables in the header
MOST_ITEMS = 400_000  # entries of these
_MOST_DIMENSIONS = 4
_LARGEST_EMPTY = 1 << 16  # sizes of an array that has no entries
_LARGEST = 1e150  # numbers whose squares are numbers

Tensors = dict[str, NDArray[Any]]


def pieces(tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> Iterator[Any]:
    """Bytes of a container, piece by piece; the arrays themselves are not copied.

    Parameters
    ----------
    tensors : mapping of str to ndarray
        In C order and in the byte order of the file.
    metadata : mapping of str to str
        Texts.
    """
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    position = 0
    for name, array in tensors.items():
        place = [position, position + array.nbytes]
        header[name] = {"dtype": _NAMES[array.dtype.str], "shape": list(array.shape),
                        "data_offsets": place}  # fmt: skip
        position += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > _longest_text(position) or not is_sparse(text, position):
        raise StorageError(
            "The model has too many parts for a file. Learn it with a larger branch_size."
        )
    yield len(text).to_bytes(_PREFIX, "little") + text
    for array in tensors.values():
        if array.size:
            yield array.reshape(-1).view(np.uint8).data


def read_container(path: Path) -> tuple[dict[str, str], Tensors]:
    """Read the texts and tensors of a container; `StorageError` for everything that is not one."""
    damaged = StorageError(f"{path} is damaged, cut short or not a model file. Get a fresh copy.")
    try:
        with open_regular(path) as file:
            return _read(file, os.fstat(file.fileno()).st_size)
    except ValueError as reason:
        raise damaged from reason
    except OSError as reason:
        problem = f"cannot be read: {reason.strerror}." if reason.strerror else str(reason)
        raise StorageError(f"{path} {problem}") from reason
    except MemoryError as reason:
        raise StorageError(
            f"{path} holds more numbers than this machine has memory for."
        ) from reason


def _read(file: BinaryIO, size: int) -> tuple[dict[str, str], Tensors]:
    length = int.from_bytes(file.read(_PREFIX), "little")
    n_bytes = size - _PREFIX - length
    if length < 2 or n_bytes < 0 or length > _longest_text(n_bytes):
        raise ValueError("the header does not fit the file")
    text = file.read(length)
    if len(text) != length or not text.isascii() or not is_sparse(text, n_bytes):
        raise ValueError("not a header")
    metadata, places = _layout(parse_json(text), n_bytes)
    del text
    return metadata, {place.name: _array(file, place) for place in places}


def _longest_text(n_bytes: int) -> int:
    return MOST_TEXT + n_bytes // 256


def is_sparse(text: bytes, n_bytes: int) -> bool:
    """Whether the values of a JSON text cannot take much more memory than the text.

    Together with the limit on the text this keeps what is read beside ``n_bytes`` of numbers below
    64 MB, or below an eighth of a file of more than 500 MB.
    """
    extra = n_bytes // 24_576
    containers = text.count(b"{") + text.count(b"[")
    return containers <= MOST_CONTAINERS + extra and text.count(b",") <= MOST_ITEMS + 2 * extra


def parse_json(text: str | bytes) -> Any:
    """Strict JSON: no name twice, no NaN, no infinity; ValueError for anything else.

    Examples
    --------
    >>> parse_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
        ...
    ValueError: a name occurs twice
    """
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError as reason:
        raise ValueError("nested too deeply") from reason


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name occurs twice")
    return table


def _no_constant(word: str) -> Any:
    raise ValueError("not a finite number")


class _Place(NamedTuple):
    """Position, type and shape of a tensor in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def _layout(header: Any, n_bytes: int) -> tuple[dict[str, str], list[_Place]]:
    """Texts and places, which cover the bytes of the file without a gap or an overlap."""
    metadata = header.pop(_METADATA, {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError("not a header")
    places = sorted((_place(name, entry) for name, entry in header.items()), key=lambda p: p[3:])
    position = 0
    for place in places:
        if place.start != position:
            raise ValueError("a gap or an overlap")
        position = place.end
    if position != n_bytes:
        raise ValueError("not all bytes are described")
    return metadata, places


def _place(name: str, entry: Any) -> _Place:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError("not a tensor")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError("an unknown type")
    if not _naturals(shape, _MOST_DIMENSIONS) or not _naturals(offsets, 2) or len(offsets) != 2:
        raise ValueError("not a shape")
    if 0 in shape and max(shape) > _LARGEST_EMPTY:
        raise ValueError("a large array without content")
    itemsize = np.dtype(DTYPES[dtype]).itemsize
    if offsets[1] - offsets[0] != math.prod(shape) * itemsize:
        raise ValueError("the shape does not fit the bytes")
    return _Place(name, DTYPES[dtype], tuple(shape), offsets[0], offsets[1])


def _naturals(values: Any, most: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) <= most
        and all(type(value) is int and 0 <= value < 1 << 62 for value in values)
    )


def _array(file: BinaryIO, place: _Place) -> NDArray[Any]:
    """Read the numbers of one tensor into memory that was checked to be in the file."""
    array = np.empty(math.prod(place.shape), dtype=place.dtype)
    view, filled = array.view(np.uint8).data, 0
    while filled < array.nbytes:
        count = file.readinto(view[filled:])  # type: ignore[attr-defined]
        if not count:
            raise ValueError("the file became shorter")
        filled += count
    return array.reshape(place.shape)


def checksum(array: NDArray[Any]) -> str:
    """SHA-256 of type, shape and content of an array in C order.

    Examples
    --------
    >>> checksum(np.zeros(2)) == checksum(np.zeros((2, 1)))
    False
    """
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    if array.size:
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def all_finite(array: NDArray[Any]) -> bool:
    """Whether no entry is NaN, infinite or so large that its square would be.

    Examples
    --------
    >>> all_finite(np.array([1.0, -2.0])), all_finite(np.array([1.0, np.nan]))
    (True, False)
    >>> all_finite(np.array([1e200]))
    False
    """
    if array.dtype.kind != "f" or not array.size:
        return True
    with np.errstate(invalid="ignore"):
        return bool(float(array.min()) >= -_LARGEST and float(array.max()) <= _LARGEST)

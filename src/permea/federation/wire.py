"""Arrays and JSON in messages from other machines: read within limits, or refused.

Nothing here trusts a length that a message announces: what a header promises must be there.
"""

import io
import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from permea.federation.errors import InvalidReplyError
from permea.storage.container import parse_json

T = TypeVar("T")
LARGEST_TEXT = 1 << 24  # characters of JSON in a message
_KINDS = "fiu"  # floating-point numbers and whole numbers
_NOT_AN_ARRAY = "invalid message: it does not hold the expected array"


def pack_array(array: NDArray[Any]) -> bytes:
    """An array as bytes, without pickle.

    Examples
    --------
    >>> unpack_array(pack_array(np.eye(2)))
    array([[1., 0.],
           [0., 1.]])
    """
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array, order="C"), allow_pickle=False)
    return buffer.getvalue()


def unpack_array(data: Any) -> NDArray[Any]:
    """Read `pack_array`: numbers in at most three dimensions, exactly as many as announced.

    The header is read first, so that nothing is allocated for numbers that are not there.
    """
    if not isinstance(data, bytes):
        raise InvalidReplyError(_NOT_AN_ARRAY)
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError("unknown version")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except Exception:  # the header is a Python literal: its parsers raise errors of many kinds
        raise InvalidReplyError(_NOT_AN_ARRAY) from None
    size = math.prod(shape)
    announced = size * dtype.itemsize
    if dtype.kind not in _KINDS or fortran or len(shape) > 3 or min(shape, default=0) < 0:
        raise InvalidReplyError(_NOT_AN_ARRAY)
    if announced != len(data) - stream.tell():
        raise InvalidReplyError(_NOT_AN_ARRAY)
    return np.frombuffer(data, dtype, size, stream.tell()).reshape(shape).copy()


def unpack_json(text: Any, read: Callable[[Any], T], problem: str) -> T:
    """Values of a JSON text, read by ``read``; any error of either is `InvalidReplyError`.

    Examples
    --------
    >>> unpack_json('{"a": 1}', lambda values: values["a"], "no a")
    1
    >>> unpack_json("[" * 10000, len, "it cannot be read")
    Traceback (most recent call last):
        ...
    permea.federation.errors.InvalidReplyError: invalid reply: it cannot be read
    """
    try:
        if not isinstance(text, str) or len(text) > LARGEST_TEXT:
            raise ValueError("no text of an ordinary size")
        return read(parse_json(text))
    except Exception:  # a reader meets what it never expected in a text from outside
        raise InvalidReplyError(f"invalid reply: {problem}") from None


def pack_json(values: Any) -> str:
    """Values as a JSON text; no NaN, no infinity."""
    return json.dumps(values, allow_nan=False)

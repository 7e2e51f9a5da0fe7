"""A name for rows that nobody named: keyed, and the same for the same rows in any order and dtype.

The fingerprint is computed before a ledger is charged. So it never fails, whatever the rows hold:
an error here would tell about the data for free.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from permea.privacy.ledger_events import UNNAMED, UNNAMED_PREFIX

_CHUNK_BYTES = 1 << 24
_MODULUS = 1 << 256


def fingerprint(rows: Any, key: bytes) -> str:
    """Give ``"rows-<32 hex digits>"`` for a table.

    Parameters
    ----------
    rows : array-like
        Numbers count as doubles, whatever their dtype; anything else counts as its text.
    key : bytes
        Secret of the ledger: without it nobody can test whether a fingerprint is that of some rows.

    Returns
    -------
    str
        ``"rows-unnamed"`` where the rows cannot be read one by one.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(6).reshape(3, 2)
    >>> fingerprint(X, b"key") == fingerprint(X[::-1].astype(np.float32), b"key")
    True
    >>> fingerprint(X, b"key") == fingerprint(X + 1, b"key")
    False
    """
    try:
        total, count = 0, 0
        for row in _encoded(rows):
            total += int.from_bytes(hashlib.blake2b(row, key=key, digest_size=32).digest(), "big")
            count += 1
    except Exception:  # whatever the rows are, naming them must not tell anything about them
        return UNNAMED
    summed = (total % _MODULUS).to_bytes(32, "big") + count.to_bytes(16, "big")
    return UNNAMED_PREFIX + hashlib.blake2b(summed, key=key, digest_size=16).hexdigest()


def _encoded(rows: Any) -> Iterator[bytes]:
    """Every row as bytes, a bounded number of rows at a time."""
    if hasattr(rows, "toarray"):  # sparse: dense a few rows at a time
        table, columns = rows.tocsr(), int(rows.shape[1])
    else:
        table = np.asarray(rows)
        if table.ndim == 0:
            raise ValueError("not a table")
        table = table.reshape(len(table), -1)
        columns = table.shape[1]
    step = max(1, _CHUNK_BYTES // (8 * max(1, columns)))
    for start in range(0, table.shape[0], step):
        part = table[start : start + step]
        part = part.toarray() if hasattr(part, "toarray") else part
        yield from _encoded_part(part)


def _encoded_part(part: NDArray[Any]) -> Iterator[bytes]:
    if part.dtype.kind in "mM":
        part = part.view(np.int64)
    if part.dtype.kind in "biuf":
        for row in _canonical(part):
            yield row.tobytes()
        return
    for cells in part.tolist():
        yield _encoded_cells(cells)


def _encoded_cells(cells: list[Any]) -> bytes:
    """A row of mixed cells; one that holds numbers alone is encoded as numbers."""
    if all(isinstance(cell, bool | int | float | np.number | np.bool_) for cell in cells):
        try:
            return bytes(_canonical(np.asarray(cells, dtype=np.float64)).tobytes())
        except (OverflowError, TypeError, ValueError):  # a whole number beyond the doubles
            pass
    texts = [_text(cell).encode("utf-8", "surrogatepass") for cell in cells]
    return b"text" + b"".join(len(text).to_bytes(8, "big") + text for text in texts)


def _text(cell: Any) -> str:
    if isinstance(cell, bool | int | float | np.number | np.bool_):
        try:
            return repr(float(cell) + 0.0)
        except (OverflowError, TypeError, ValueError):
            return repr(cell)
    return str(cell)


def _canonical(numbers: NDArray[Any]) -> NDArray[np.float64]:
    """Doubles in which equal numbers have equal bytes."""
    values = numbers.astype("<f8") + 0.0  # -0.0 becomes 0.0
    values[np.isnan(values)] = np.nan
    return values

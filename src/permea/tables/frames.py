"""Columns of pandas, polars and pyarrow tables, dictionaries and arrays, as NumPy arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from permea.tables.columns import Values


def column_names(frame: Any, order: Sequence[str]) -> list[str]:
    """Names of the columns of a table; an array without names has the columns of ``order``."""
    if isinstance(frame, np.ndarray):
        if frame.ndim == 2 and frame.shape[1] == len(order):
            return list(order)
        raise ValueError(
            f"An array without column names must have the {len(order)} feature columns of the "
            "schema, in its order. Better give a table with names."
        )
    if isinstance(frame, Mapping):
        return [str(name) for name in frame]
    has_rows = type(frame).__name__ != "LazyFrame"  # which is only a plan for some
    for attribute in ("column_names", "columns"):  # pyarrow has both, and the first are names
        names = getattr(frame, attribute, None) if has_rows else None
        if names is not None:
            return [str(name) for name in names]
    raise ValueError(
        "A table is needed: a pandas, polars (collected) or pyarrow table, or a dictionary of "
        "columns. Files, folders, datasets and databases are read by fit_chunks(read_chunks(…))."
    )


def share_without_letters(names: Sequence[str]) -> float:
    """Share of names in which there is no letter: high where a file begins with a row of values.

    A message that quotes such names would print the values of somebody.

    Examples
    --------
    >>> share_without_letters(["age", "sex"]), share_without_letters(["63", "f", "2021-05-06"])
    (0.0, 0.6666666666666666)
    """
    return sum(not any(map(str.isalpha, name)) for name in names) / max(len(names), 1)


def column_values(frame: Any, name: str, order: Sequence[str]) -> Values:
    """The values of one column, one per row."""
    if isinstance(frame, np.ndarray):
        return np.asarray(frame[:, list(order).index(name)])
    if hasattr(frame, "iloc"):  # pandas: names may be numbers
        column: Any = frame.iloc[:, column_names(frame, order).index(name)]
    else:
        column = frame[name]
    if type(column).__module__.startswith("pyarrow"):
        values = _from_arrow(column)
    elif hasattr(column, "to_numpy"):
        values = np.asarray(column.to_numpy())
    elif isinstance(column, np.ndarray):
        values = column
    else:
        values = _as_array(list(column))
    if values.dtype.kind == "f" and _holds_integers(column):  # one is missing
        values = _as_array(column.to_pylist() if hasattr(column, "to_pylist") else column.to_list())
    if values.dtype.kind == "c":  # of a frame that one complex number turned into them
        raise ValueError(f"The column {name!r} holds complex numbers.")
    if values.ndim != 1:
        raise ValueError(f"The column {name!r} does not have one value per row.")
    return values


def _holds_integers(column: Any) -> bool:
    """Whether a column declares whole numbers: codes of 17 digits are not exact as floats."""
    kind = getattr(column, "type", None) or getattr(column, "dtype", "")
    return str(kind).lower().startswith(("int", "uint"))


def _from_arrow(column: Any) -> Values:
    kind = column.type
    if hasattr(kind, "index_type"):  # `to_numpy` gives missing values of a dictionary its last one
        column = column.cast(kind.value_type)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _as_array(values: list[Any]) -> Values:
    """A list as an array; mixed types stay what they are, where NumPy would make text of them."""
    if values and all(type(value) is float for value in values):
        return np.array(values)
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out

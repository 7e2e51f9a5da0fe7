"""Tables that come in: their numbers, the names of their columns, and words when they fail."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array

from permea.models.base import Array


def table(values: ArrayLike, what: str) -> Array:
    """Numbers of a table, one row per sample; a single column may come as a vector.

    Examples
    --------
    >>> table([1, 2, 3], "hidden").shape
    (3, 1)
    """
    if np.ndim(values) == 1:
        values = np.asarray(values)[:, None]
    return np.asarray(check_array(values, dtype=np.float64, input_name=what))


def column_names(values: Any, prefix: str) -> tuple[str, ...]:
    """Names of the columns of a data frame or series, or numbered ones.

    Examples
    --------
    >>> import numpy as np
    >>> column_names(np.zeros((2, 2)), "hidden")
    ('hidden 1', 'hidden 2')
    """
    if hasattr(values, "columns"):
        return tuple(str(name) for name in values.columns)
    if np.ndim(values) == 1:
        return (str(getattr(values, "name", None) or prefix),)
    return tuple(f"{prefix} {k + 1}" for k in range(np.shape(values)[1]))


def same_rows(**tables: Array) -> None:
    """Raise unless all tables have the same number of rows."""
    lengths = {name: len(values) for name, values in tables.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {count}" for name, count in lengths.items())
        raise ValueError(f"The tables must describe the same rows, in the same order: {told} rows.")

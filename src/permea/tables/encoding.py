"""Features of a table by public knowledge alone, each row of norm at most 1."""

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from permea._arrays import Array
from permea._parallel import batches
from permea.tables.columns import DEFAULT_BINS, require_bins

if TYPE_CHECKING:
    from permea.tables.schema import Schema

MOST_FEATURES = 20_000
_CACHED = 1 << 17  # entries of an array that stays in the cache
MARGIN = 1.0 - 2.0**-40  # more than all roundings of a row's norm together


def default_bins(n_people: int, epsilon: float, n_columns: int) -> int:
    """Number of bins of a number column, from public figures alone.

    A curve that is interpolated between B points misses a smooth one by a multiple of
    :math:`B^{-2}`. With C columns, each bin holds a share of about :math:`1/(C B)` of the sum of
    squares, and noise of relative size :math:`C B/(n ε)` in each of B entries misses the curve by a
    multiple of :math:`C B^{3/2}/(n ε)`. Both are of the same size at
    :math:`B = (n ε / C)^{2/7}`; the result is kept between 3 and 16. An ε above 1 counts as 1: from
    there on, what limits the curve is the number of people rather than the noise.

    Parameters
    ----------
    n_people : int
        Number of people, or of records if the unit is one: public, a guess will do.
    epsilon : float
        ε of the release; infinity without privacy.
    n_columns : int
        Number of feature columns.

    Returns
    -------
    int
        Number of points of the grid.

    Examples
    --------
    >>> default_bins(500, 1.0, 10), default_bins(32561, 1.0, 13), default_bins(10**8, 1.0, 20)
    (3, 9, 16)
    """
    signal = max(float(n_people), 1.0) * min(epsilon, 1.0) / max(n_columns, 1)
    return int(np.clip(np.rint(min(signal, 1e9) ** (2 / 7)), 3, 16))


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns a table into features by its schema. Nothing is learned from the rows.

    A number becomes weights of the points of a public grid: of the two points around it, in
    proportion to its nearness, so the weights sum to 1. A category becomes an indicator, and
    a missing value one too. A pair of columns becomes all products of their features. Every column
    and every pair then has norm at most 1, and all are divided by the square root of how many there
    are, so every row has norm at most 1.

    Parameters
    ----------
    schema : Schema
        What is declared about the table.
    bins : int or None, default=None
        Points of the grid of each number column that does not declare its own; None takes 8.
        `default_bins` has a rule.

    Attributes
    ----------
    n_features_out_ : int
        Number of features.
    norm_bound_ : float
        1.0: no row is longer.
    groups_ : dict of str to slice
        The features of each column; those of a pair are under "a*b".

    Examples
    --------
    >>> from permea.tables import Number, Schema, YesNo
    >>> schema = Schema({"age": Number(0, 100, bins=3), "smoker": YesNo()})
    >>> encoder = TableEncoder(schema).fit()
    >>> encoder.get_feature_names_out().tolist()
    ['age@0', 'age@50', 'age@100', 'smoker=no', 'smoker=yes']
    >>> encoder.transform({"age": [75], "smoker": ["yes"]}).round(3).tolist()
    [[0.0, 0.354, 0.354, 0.0, 0.707]]
    """

    def __init__(self, schema: "Schema", *, bins: int | None = None) -> None:
        self.schema = schema
        self.bins = bins

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Lay out the features. Of the rows, nothing is read but the names of the columns."""
        if X is not None:
            self.schema.check_columns(X, roles=False)
        self.n_features_out_ = _width(self.groups_)
        self.norm_bound_ = 1.0
        self.feature_names_in_ = np.array(self.schema.features, dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def transform(self, X: Any) -> Array:
        """Features of a pandas, polars or pyarrow table or a dictionary of columns.

        Raises
        ------
        ValueError
            When columns are missing, unknown or there twice; when values cannot be read by the
            schema. All columns with problems are named at once, values are not.
        """
        groups = self._layout()
        positions = self.schema.read(X)
        n_rows = len(next(iter(positions.values())))
        Z = np.zeros((n_rows, _width(groups)))
        for part in batches(n_rows, max(1, _CACHED // Z.shape[1])):
            self._encode({name: at[part] for name, at in positions.items()}, Z[part], groups)
        return Z

    def _encode(self, positions: dict[str, Array], Z: Array, groups: dict[str, slice]) -> None:
        """Write the features of rows into zeros."""
        bins = self._bins
        for name, at in positions.items():
            self.schema.columns[name].encode(at, Z[:, groups[name]], bins)
        for first, second in self.schema.pairs:
            products = Z[:, groups[first], None] * Z[:, None, groups[second]]
            Z[:, groups[_pair(first, second)]] = products.reshape(len(Z), -1)
        Z *= MARGIN / math.sqrt(len(groups))

    def inverse_transform(self, X: Any) -> Any:
        """A pandas table of the values that features stand for.

        A number is the mean of the grid by the weights, rounded to the column's resolution; a
        category is the one of the largest weight; a value is missing where that weight is larger.
        """
        import pandas as pd

        Z = np.asarray(X, dtype=np.float64)
        groups = self._layout()
        if Z.ndim != 2 or Z.shape[1] != _width(groups):
            raise ValueError(f"Rows of the {_width(groups)} features of this schema are needed.")
        decoded = {}
        for name in self.schema.features:
            column = self.schema.columns[name]
            values = column.decode(Z[:, groups[name]], self._bins)
            whole = column.kind == "number" and values.dtype == object  # some may be missing
            decoded[name] = pd.Series(values, dtype="Int64" if whole else None)
        return pd.DataFrame(decoded)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the features: column and point, value or "missing"."""
        names: dict[str, list[str]] = {}
        for name in self.schema.features:
            column = self.schema.columns[name]
            entries = column.entry_names(self._bins) + [" missing"] * column.missing
            names[name] = [name + entry for entry in entries]
        for first, second in self.schema.pairs:
            names[_pair(first, second)] = [f"{a}*{b}" for a in names[first] for b in names[second]]
        return np.array([entry for group in names.values() for entry in group], dtype=object)

    @property
    def groups_(self) -> dict[str, slice]:
        """The features of each column and pair."""
        return self._layout()

    @property
    def _bins(self) -> int:
        require_bins(self.bins)
        return DEFAULT_BINS if self.bins is None else int(self.bins)

    def _layout(self) -> dict[str, slice]:
        """The place of every column's and every pair's features."""
        widths = {
            name: self.schema.columns[name].width(self._bins) for name in self.schema.features
        }
        for first, second in self.schema.pairs:
            widths[_pair(first, second)] = widths[first] * widths[second]
        ends = np.cumsum(list(widths.values())).tolist()
        if ends[-1] > MOST_FEATURES:
            widest = max(widths, key=lambda name: widths[name])
            raise ValueError(
                f"The schema makes {ends[-1]} features, and at most {MOST_FEATURES} are possible. "
                f"Most of them, {widths[widest]}, are of {widest!r}: declare the values that "
                "matter, and other = true for the rest."
            )
        return {
            name: slice(end - width, end)
            for (name, width), end in zip(widths.items(), ends, strict=True)
        }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags


def _width(groups: dict[str, slice]) -> int:
    return int(max(group.stop for group in groups.values()))


def _pair(first: str, second: str) -> str:
    return f"{first}*{second}"

"""A synthetic table beside the real one, which is as private as the real rows are."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from permea._arrays import Array, Integers
from permea.tables import Date, Number, Schema
from permea.tables.columns import Choice

NOT_FOR_RELEASE = (
    "NOT FOR RELEASE: computed from the real rows without noise, for the eyes of their owner. "
    "The promise of the certificate does not cover these figures."
)
_BINS = 9  # grid points of a number, for distances between tables


@dataclass(frozen=True)
class TableComparison:
    """A synthetic table beside the real one: NOT for release.

    Attributes
    ----------
    columns : mapping of str to float
        Total variation of each column.
    pairs : mapping of (str, str) to float
        Total variation of each pair of columns.
    correlations : mapping of (str, str) to (float, float)
        Of two numbers: real, synthetic.
    learned : mapping of str to float
        How well a model trained on "real" and on "synthetic" rows does on held-out real ones: AUROC
        for a label (the mean over more than two classes), for a target the share of its variance
        that is predicted (R²).
    note : str
    measure : str
        Which of the two ``learned`` is.
    """

    columns: Mapping[str, float]
    pairs: Mapping[tuple[str, str], float]
    correlations: Mapping[tuple[str, str], tuple[float, float]]
    learned: Mapping[str, float]
    note: str = NOT_FOR_RELEASE
    measure: str = "AUROC"

    @property
    def mean_pair(self) -> float:
        """Mean total variation over all pairs."""
        return float(np.mean(list(self.pairs.values()))) if self.pairs else 0.0

    @property
    def worst_pairs(self) -> list[tuple[tuple[str, str], float]]:
        """Ten pairs of the largest total variation."""
        return sorted(self.pairs.items(), key=lambda item: -item[1])[:10]

    @property
    def worst_correlations(self) -> list[tuple[tuple[str, str], tuple[float, float]]]:
        """Twenty pairs of numbers whose correlations differ most."""
        return sorted(self.correlations.items(), key=lambda at: -abs(at[1][0] - at[1][1]))[:20]

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {
            "note": self.note,
            "columns": dict(self.columns),
            "pairs": [[*pair, value] for pair, value in self.pairs.items()],
            "mean_pair": self.mean_pair,
            "correlations": [[*pair, *both] for pair, both in self.correlations.items()],
            "learned": dict(self.learned),
            "measure": self.measure,
        }


def compare_tables(real: Any, made: Any, schema: Schema, holdout: Any = None) -> TableComparison:
    """How near a synthetic table is to the real one, for the owner of the real one.

    Parameters
    ----------
    real, made : table
    schema : Schema
    holdout : table, optional
        Real rows that the synthetic ones were not learned from: with a label or a target, a model
        trained on synthetic rows and one trained on real rows are tested on them.

    Examples
    --------
    >>> from permea.tables import Number, YesNo
    >>> schema = Schema({"age": Number(0, 100), "ill": YesNo()})
    >>> real = {"age": [10, 90], "ill": ["no", "yes"]}
    >>> found = compare_tables(real, {"age": [10, 90], "ill": ["yes", "no"]}, schema)
    >>> found.columns, found.mean_pair
    ({'age': 0.0, 'ill': 0.0}, 1.0)
    """
    names = [name for name in schema.names if name != schema.person]
    one, two = schema.read(real, names), schema.read(made, names)
    cells = {name: (_cells(schema, name, one[name]), _cells(schema, name, two[name]))
             for name in names}  # fmt: skip
    numbers = [n for n in names if isinstance(schema.columns[n], Number | Date)]
    return TableComparison(
        {name: _variation(*cells[name]) for name in names},
        {
            (a, b): _variation(*(_together(x, y) for x, y in zip(cells[a], cells[b], strict=True)))
            for a, b in combinations(names, 2)
        },
        {
            (a, b): (_correlation(one[a], one[b]), _correlation(two[a], two[b]))
            for a, b in combinations(numbers, 2)
        },
        {} if holdout is None else _learned(real, made, holdout, schema),
        measure="AUROC" if schema.label else "R²",
    )


_MANY = 1 << 20  # more cells than any column has


def _cells(schema: Schema, name: str, positions: Array) -> Integers:
    """The public cell of every value: coarse for numbers; the last one for missing values."""
    column = schema.columns[name]
    if isinstance(column, Choice):
        return np.nan_to_num(positions, nan=_MANY - 1).astype(np.int64)
    number = column.days if isinstance(column, Date) else column
    assert isinstance(number, Number)
    cells = np.searchsorted(number.grid(_BINS)[1:-1], positions, side="right")
    return np.where(np.isnan(positions), _MANY - 1, cells)


def _together(one: Integers, other: Integers) -> Integers:
    return np.asarray(one * _MANY + other)


def _variation(one: Integers, other: Integers) -> float:
    """Total variation between the shares of cells in two tables."""
    _, which = np.unique(np.concatenate([one, other]), return_inverse=True)
    first, second = (
        np.bincount(part, minlength=int(which.max()) + 1) / len(part)
        for part in (which[: len(one)], which[len(one) :])
    )
    return float(0.5 * np.abs(first - second).sum())


def _correlation(one: Array, other: Array) -> float:
    known = ~np.isnan(one + other)
    one, other = one[known], other[known]
    if len(one) < 2 or one.std() == 0 or other.std() == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def _learned(real: Any, made: Any, holdout: Any, schema: Schema) -> dict[str, float]:
    """How well boosting that learned from real and from synthetic rows does on real ones."""
    found = {}
    for name, table in (("real", real), ("synthetic", made)):
        measured = _ranked if schema.label else _explained
        score = measured(table, holdout, schema)
        if score is not None:
            found[name] = score
    return found


def _ranked(table: Any, holdout: Any, schema: Schema) -> float | None:
    """AUROC; of several classes the mean over each against all others that occur in both tables."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    y, truth = schema.labels(table), schema.labels(holdout)
    common = [one for one in schema.classes if (y == one).any() and (truth == one).any()]
    common = [one for one in common if not (truth == one).all()]
    if len(set(y)) < 2 or not common:
        return None
    model = HistGradientBoostingClassifier(random_state=0).fit(_matrix(schema, table), y)
    scores = model.predict_proba(_matrix(schema, holdout))
    places = {one: place for place, one in enumerate(model.classes_)}
    wanted = common[-1:] if len(schema.classes) == 2 else common
    return float(np.mean([roc_auc_score(truth == one, scores[:, places[one]]) for one in wanted]))


def _explained(table: Any, holdout: Any, schema: Schema) -> float | None:
    """Share of the variance of a target that is predicted."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.metrics import r2_score

    if schema.target is None:
        return None
    y, truth = (schema.read(one, [schema.target])[schema.target] for one in (table, holdout))
    known, shown = ~np.isnan(y), ~np.isnan(truth)
    if known.sum() < 2 or shown.sum() < 2:
        return None
    model = HistGradientBoostingRegressor(random_state=0)
    model.fit(_matrix(schema, table)[known], y[known])
    return float(r2_score(truth[shown], model.predict(_matrix(schema, holdout)[shown])))


def _matrix(schema: Schema, table: Any) -> Array:
    at = schema.read(table)
    columns = [at[name] for name in schema.features]
    return np.column_stack([np.zeros(len(c)) if np.isnan(c).all() else c for c in columns])

"""Models that read tables by a schema, as attacks see them: rows by their numbers."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.metaestimators import available_if


class RowsOfTable(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A model that reads tables by a schema, as a classifier of the numbers of rows of one table.

    Attacks work on a matrix. Theirs has one column, the number of the row in ``frame``.

    Parameters
    ----------
    model : classifier with a schema
        The fitted model; clones of this object are fitted to rows of the same table.
    frame : pandas.DataFrame
        All rows that are asked about.
    """

    def __init__(self, model: Any, frame: Any) -> None:
        self.model = model
        self.frame = frame

    def __sklearn_clone__(self) -> "RowsOfTable":
        return RowsOfTable(clone(self.model).set_params(ledger=None), self.frame)

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn from these rows of the table; labels and people are columns of it."""
        self.model.fit(self._rows(X))
        return self

    @property
    def classes_(self) -> NDArray[Any]:
        """Classes of the model."""
        return np.asarray(self.model.classes_)

    @property
    def certificate_(self) -> Any:
        """Certificate of the model."""
        return self.model.certificate_

    def _rows(self, X: ArrayLike) -> Any:
        return self.frame.iloc[np.asarray(X)[:, 0].astype(np.intp)]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Classes of rows, by their numbers."""
        return np.asarray(self.model.predict(self._features(X)))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of rows, by their numbers."""
        return np.asarray(self.model.predict_proba(self._features(X)))

    @available_if(lambda self: hasattr(self.model, "distances"))  # type: ignore[untyped-decorator]
    def distances(self, X: ArrayLike) -> NDArray[np.float64]:
        """Distances of rows to the classes, by their numbers."""
        return np.asarray(self.model.distances(self._features(X)))

    def _features(self, X: ArrayLike) -> Any:
        return self._rows(X)[list(self.model.schema.features)]


def by_number(model: Any, members: Any, outside: Any) -> tuple[RowsOfTable, Any, Any]:
    """A model with a schema as a classifier of the numbers of rows, and the numbers of both tables.

    Examples
    --------
    >>> from permea import MomentClassifier
    >>> from permea.datasets import VISITS_SCHEMA, make_visits
    >>> seen, other = make_visits(200), make_visits(50, seed=1)
    >>> model = MomentClassifier(schema=VISITS_SCHEMA).fit(seen)
    >>> rows, inside, outside = by_number(model, seen, other)
    >>> bool((rows.predict(outside) == model.predict(other)).all())
    True
    """
    import pandas as pd

    frames = [pd.DataFrame(members), pd.DataFrame(outside)]
    places = np.arange(sum(map(len, frames)), dtype=np.float64)[:, None]
    table = RowsOfTable(model, pd.concat(frames, ignore_index=True))
    return table, places[: len(frames[0])], places[len(frames[0]) :]

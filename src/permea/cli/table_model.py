"""A classifier that knows the table it was made from: column names, public ranges, label."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from permea.privacy import Ledger, Privacy


class TableClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of this library on the columns of a table.

    Every column is mapped from its declared public range to [0, 1] first, so that a column in
    metres and one in millimetres count alike. The map is public, so the promise is the same.

    Parameters
    ----------
    classifier : classifier of this library
        Unfitted; its ``privacy`` is for the domain (0, 1).
    columns : sequence of str
        Feature columns, in the order of the matrix.
    label : str
        Name of the label column.
    privacy : Privacy, default=None
        What was declared, in the units of the table; None when nothing was.

    Attributes
    ----------
    classifier_ : classifier
        The fitted one.
    certificate_ : Certificate or None
        In the units of the table.
    holds_private_rows_ : bool
        Whether the training rows can be read out of this object.

    Examples
    --------
    >>> import numpy as np
    >>> from permea import KAHMClassifier
    >>> X, y = np.random.default_rng(0).random((40, 2)) * [1, 100], np.repeat([0, 1], 20)
    >>> declared = Privacy(epsilon=8, domain=((0, 0), (1, 100)))
    >>> inner = KAHMClassifier(n_components=2, n_layers=1, privacy=unit_privacy(declared))
    >>> model = TableClassifier(inner, columns=["a", "b"], label="y", privacy=declared).fit(X, y)
    >>> model.distances(X).shape, model.certificate_.privacy.domain
    ((40, 2), ((0.0, 0.0), (1.0, 100.0)))
    """

    def __init__(
        self, classifier: Any, *, columns: Any, label: str, privacy: Privacy | None = None
    ) -> None:
        self.classifier = classifier
        self.columns = columns
        self.label = label
        self.privacy = privacy

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        ledger: Ledger | None = None,
        dataset: str | None = None,
    ) -> Self:
        """Learn from a matrix with the declared columns.

        Parameters
        ----------
        X : array-like of shape (N, p)
            Rows in the units of the table.
        y : array-like of shape (N,)
            Class labels.
        ledger : Ledger, optional
            Account that is charged before the rows are touched.
        dataset : str, optional
            Name of the rows in the account.

        Returns
        -------
        TableClassifier
            This classifier, fitted.
        """
        inner = clone(self.classifier)
        if self.privacy is not None and inner.privacy != unit_privacy(self.privacy):
            raise ValueError(
                "The classifier must make the promise of the table: privacy=unit_privacy(privacy)."
            )
        self.certificate_, self.holds_private_rows_ = None, True
        if ledger is not None:
            inner.set_params(ledger=ledger, dataset=dataset)
        self.classifier_ = inner.fit(self._to_unit(X), y)
        self.classes_ = self.classifier_.classes_
        self.holds_private_rows_ = self.classifier_.holds_private_rows_
        self.certificate_ = self.classifier_.certificate_
        if self.certificate_ is not None and self.privacy is not None:
            self.certificate_ = replace(
                self.certificate_,
                privacy=self.privacy,
                noise=f"{self.certificate_.noise} of the width of each column's domain",
            )
        self.n_features_in_ = len(self.columns)
        self.feature_names_in_ = np.asarray([str(name) for name in self.columns])
        return self

    def _to_unit(self, X: ArrayLike) -> NDArray[np.float64]:
        """Map the declared public ranges to [0, 1]."""
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.columns):
            raise ValueError(
                f"{len(self.columns)} columns are expected: {', '.join(self.columns[:8])}."
            )
        return to_unit(rows, self.privacy)

    def distances(self, X: ArrayLike) -> NDArray[np.float64]:
        """Distance of each row to each class, in the order of ``classes_``."""
        check_is_fitted(self, "classifier_")
        return np.asarray(self.classifier_.distances(self._to_unit(X)))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class with the smallest distance."""
        check_is_fitted(self, "classifier_")
        return np.asarray(self.classifier_.predict(self._to_unit(X)))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class-matching scores divided by their sum (not calibrated)."""
        check_is_fitted(self, "classifier_")
        return np.asarray(self.classifier_.predict_proba(self._to_unit(X)))


def to_unit(rows: NDArray[np.float64], privacy: Privacy | None) -> NDArray[np.float64]:
    """Map rows from their declared domain to [0, 1]; leave them when nothing is declared."""
    if privacy is None:
        return rows
    low, high = privacy.lows(rows.shape[1]), privacy.highs(rows.shape[1])
    return np.asarray((rows - low) / (high - low))


def from_unit(rows: NDArray[np.float64], privacy: Privacy) -> NDArray[np.float64]:
    """Map rows back from [0, 1] to their declared domain."""
    low, high = privacy.lows(rows.shape[1]), privacy.highs(rows.shape[1])
    return np.asarray(rows * (high - low) + low)


def unit_privacy(privacy: Privacy) -> Privacy:
    """The same promise for rows that were mapped to [0, 1].

    Examples
    --------
    >>> made = unit_privacy(Privacy(epsilon=1, domain=(0, 200), bound=50))
    >>> made.domain, made.bound
    ((0.0, 1.0), 0.25)
    """
    bound: Any = None
    if privacy.bound is not None:
        low, high = (np.asarray(end) for end in privacy.domain or (0.0, 1.0))
        bound = np.minimum(np.asarray(privacy.bound) / (high - low), 1.0).tolist()
    return replace(privacy, domain=(0.0, 1.0), bound=bound)

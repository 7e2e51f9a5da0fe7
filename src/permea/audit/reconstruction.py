"""Whether released rows or models give back what they were made from.

``nearest_row_attack`` tests whether released (noised, fabricated, synthetic) rows lie closer to the
rows they were made from than to rows of the same kind that were never used. ``attribute_attack``
tests whether a hidden column of a row can be guessed better for members than for others. A holdout
is the baseline in both: closeness that any row of the population shows is not a leak.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm
from sklearn.neighbors import NearestNeighbors

from permea._arrays import Array
from permea.audit import signals
from permea.audit.metrics import AttackResult, best_threshold, evaluate


def nearest_row_attack(
    released: ArrayLike,
    X_member: ArrayLike,
    X_outside: ArrayLike,
    *,
    ratio: bool = True,
    random_state: int | None = 0,
) -> AttackResult:
    """Tell members from outside rows by how near the nearest released row is.

    Parameters
    ----------
    released : array-like of shape (n, n_features)
        What was published.
    X_member, X_outside : array-like
        Rows the release was made from, and a holdout of the same population.
    ratio : bool
        Score by the distance to the nearest released row divided by that to the second nearest,
        which does not mistake a dense region for a leak; plain distance if False.
    random_state : int or None
        Decides which half of either side fits the threshold; the other half is scored.
    """
    table = np.asarray(released, dtype=np.float64)
    if len(table) < 2:
        raise ValueError("released needs at least two rows.")
    index = NearestNeighbors(n_neighbors=2).fit(table)

    def closeness(rows: ArrayLike) -> Array:
        near = index.kneighbors(np.asarray(rows, dtype=np.float64))[0]
        if not ratio:
            return np.asarray(-near[:, 0])
        return np.asarray(-near[:, 0] / np.maximum(near[:, 1], np.finfo(float).tiny))

    rng = np.random.default_rng(random_state)
    a, b = rng.permutation(closeness(X_member)), rng.permutation(closeness(X_outside))
    half_a, half_b = len(a) // 2, len(b) // 2
    name = "nearest_row_ratio" if ratio else "nearest_row"
    threshold = best_threshold(a[:half_a], b[:half_b])
    return evaluate(name, a[half_a:], b[half_b:], threshold=threshold)


@dataclass(frozen=True)
class AttributeInference:
    """How well a hidden column is guessed.

    Attributes
    ----------
    column : int
        The hidden column.
    member_error, outside_error : float
        Mean absolute error on members and on the holdout, in units of the column's spread.
    gain : float
        How much smaller the error of members is; zero means that nothing about them was learned
        beyond what holds for the population.
    gain_interval : pair of float
        Its 95 % confidence interval.
    """

    column: int
    member_error: float
    outside_error: float
    gain: float
    gain_interval: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Give plain numbers, ready for JSON."""
        return asdict(self) | {"gain_interval": list(self.gain_interval)}


def attribute_attack(
    source: Any,
    X_member: ArrayLike,
    y_member: ArrayLike,
    X_outside: ArrayLike,
    y_outside: ArrayLike,
    *,
    column: int,
    n_candidates: int = 21,
) -> AttributeInference:
    """Guess one hidden column of members and of holdout rows, and compare.

    From released rows (an array), the guess is the column of the released row that is nearest in
    the other columns. From a classifier it is the candidate value at which the classifier is most
    confident of the row's own label; candidates are quantiles of the holdout's column, so no
    member's value is used.

    Parameters
    ----------
    source : array-like or fitted classifier
        What the attacker sees.
    X_member, y_member, X_outside, y_outside : array-like
        Rows with labels, from the training set and from a holdout.
    column : int
        The hidden column.
    n_candidates : int
        Values tried with a classifier.
    """
    members, others = (np.asarray(rows, dtype=np.float64) for rows in (X_member, X_outside))
    if hasattr(source, "predict"):
        guess = _guess_by_model(source, others[:, column], column, n_candidates)
    else:
        guess = _guess_by_rows(np.asarray(source, dtype=np.float64), column)
    spread = float(others[:, column].std()) or 1.0
    error_in = np.abs(guess(members, np.asarray(y_member)) - members[:, column]) / spread
    error_out = np.abs(guess(others, np.asarray(y_outside)) - others[:, column]) / spread
    gain = float(error_out.mean() - error_in.mean())
    deviation = np.sqrt(error_in.var() / len(error_in) + error_out.var() / len(error_out))
    margin = float(norm.ppf(0.975) * deviation)
    return AttributeInference(
        column,
        float(error_in.mean()),
        float(error_out.mean()),
        gain,
        (gain - margin, gain + margin),
    )


Guess = Callable[[Array, NDArray[Any]], Array]


def _guess_by_rows(released: Array, column: int) -> Guess:
    index = NearestNeighbors(n_neighbors=1).fit(np.delete(released, column, axis=1))

    def guess(rows: Array, labels: NDArray[Any]) -> Array:
        nearest = index.kneighbors(np.delete(rows, column, axis=1))[1][:, 0]
        found: Array = released[nearest, column]
        return found

    return guess


def _guess_by_model(clf: Any, holdout: Array, column: int, n_candidates: int) -> Guess:
    candidates = np.unique(np.quantile(holdout, np.linspace(0, 1, n_candidates)))

    def guess(rows: Array, labels: NDArray[Any]) -> Array:
        best, value = np.full(len(rows), -np.inf), np.full(len(rows), candidates[0])
        trial = rows.copy()
        for candidate in candidates:
            trial[:, column] = candidate
            known = signals.sharpest_signal(clf, trial, labels)
            value = np.where(known > best, candidate, value)
            best = np.maximum(known, best)
        return value

    return guess

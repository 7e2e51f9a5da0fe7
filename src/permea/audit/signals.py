"""Scores of rows from the predictions of a classifier: the input of every attack.

From the most to the least informative these are ``distances(X)`` (n × classes, the distance-based
classifiers of 004 and 001), ``predict_proba``, ``decision_function``, and ``predict`` alone. The
functions here turn each of them into numbers that are larger for rows that look more like training
rows.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from permea._arrays import Array

#: Probabilities are kept this far from 0 and 1 before a logarithm is taken.
PROBABILITY_FLOOR = 1e-12
#: Distances are kept this far from 0 before a logarithm is taken.
DISTANCE_FLOOR = 1e-12


_CACHED = ("predict", "predict_proba", "decision_function", "distances")


class Remembered:
    """A classifier with a cache: each of its methods is called once for one set of rows.

    Many attacks need the same predictions. Methods that the classifier lacks are lacking here too,
    and calls with other rows are not cached.
    """

    def __init__(self, clf: Any, X: Any) -> None:
        self._clf, self._X = clf, X
        self._known: dict[str, Any] = {}

    @property
    def original(self) -> Any:
        """The classifier itself, which can travel to another process."""
        return self._clf

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._clf, name)
        if name not in _CACHED or not callable(value):
            return value

        def cached(X: Any) -> Any:
            if X is not self._X:
                return value(X)
            if name not in self._known:
                self._known[name] = value(X)
            return self._known[name]

        return cached


def is_distance_based(clf: Any) -> bool:
    """Tell whether ``clf`` offers ``distances(X)``."""
    return callable(getattr(clf, "distances", None))


def gives_scores(clf: Any) -> bool:
    """Tell whether ``clf`` predicts more than a label."""
    return is_distance_based(clf) or any(
        callable(getattr(clf, name, None)) for name in ("predict_proba", "decision_function")
    )


def class_positions(clf: Any, y: ArrayLike) -> NDArray[np.intp]:
    """Give the position of each label among the columns of the predictions.

    A label that the classifier has never seen gets −1.
    """
    classes = np.asarray(clf.classes_)
    labels = np.asarray(y)
    order = np.argsort(classes)
    where = np.minimum(np.searchsorted(classes[order], labels), len(classes) - 1)
    positions = order[where]
    return np.where(classes[positions] == labels, positions, -1)


def class_distances(clf: Any, X: ArrayLike) -> Array:
    """Distances of the rows to each class, checked for shape.

    An infinite distance (a class that nobody has) counts as twice the largest finite one.
    """
    distances = np.asarray(clf.distances(X), dtype=np.float64)
    if distances.ndim != 2 or len(distances) != len(np.asarray(X)):
        raise ValueError(
            f"distances(X) must return one row of class distances per row of X; got the shape "
            f"{distances.shape}."
        )
    finite = np.isfinite(distances)
    if finite.all():
        return distances
    return np.where(finite, distances, 2.0 * distances[finite].max(initial=1.0))


def class_probabilities(clf: Any, X: ArrayLike) -> Array:
    """Give each row's class probabilities, from whatever the classifier predicts.

    ``predict_proba`` if there is one; else, from distances, weights proportional to the inverse
    squared distance (free of any scale); else the softmax of ``decision_function``; else the
    predicted label with probability one.
    """
    if callable(getattr(clf, "predict_proba", None)):
        return _finite(np.asarray(clf.predict_proba(X), dtype=np.float64))
    if is_distance_based(clf):
        log_weights = -2.0 * np.log(np.maximum(class_distances(clf, X), DISTANCE_FLOOR))
        return np.asarray(softmax(log_weights, axis=1))
    if callable(getattr(clf, "decision_function", None)):
        decision = np.asarray(clf.decision_function(X), dtype=np.float64)
        if decision.ndim == 1:
            decision = np.column_stack([np.zeros(len(decision)), decision])
        return np.asarray(softmax(decision, axis=1))
    positions = class_positions(clf, clf.predict(X))
    return np.eye(len(clf.classes_))[positions]


def _finite(probabilities: Array) -> Array:
    bad = int(np.sum(~np.isfinite(probabilities).all(axis=1)))
    if bad:
        raise ValueError(
            f"predict_proba of the classifier is not finite for {bad} of {len(probabilities)} "
            "rows, so the rows cannot be ranked. Fix the classifier (it may overflow), or "
            "audit it with the attack 'correctness' alone."
        )
    return probabilities


def of_label(values: Array, positions: NDArray[np.intp], missing: float) -> Array:
    """Pick each row's value in the column of its own label, ``missing`` for unseen labels."""
    picked: Array = values[np.arange(len(values)), np.maximum(positions, 0)]
    return np.where(positions >= 0, picked, missing)


def nearness(clf: Any, X: ArrayLike) -> Array:
    """Minus the smallest class distance of each row (004 eq. 67-68, sign turned)."""
    return np.asarray(-class_distances(clf, X).min(axis=1))


def confidence(clf: Any, X: ArrayLike) -> Array:
    """Largest class probability of each row."""
    return np.asarray(class_probabilities(clf, X).max(axis=1))


def label_logit(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """Give log p_y − log(1 − p_y): the confidence in the row's own label on an open scale.

    For a distance-based classifier without probabilities this is the logarithm of the sum of the
    other classes' inverse squared distances taken off that of the own class.
    """
    P = class_probabilities(clf, X)
    positions = class_positions(clf, y)
    others = P.copy()
    rows = np.flatnonzero(positions >= 0)
    others[rows, positions[rows]] = 0.0
    own = np.maximum(of_label(P, positions, 0.0), PROBABILITY_FLOOR)
    rest = np.maximum(others.sum(axis=1), PROBABILITY_FLOOR)
    return np.asarray(np.log(own) - np.log(rest))


def label_nearness(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """−log of the distance to the row's own class: the sharpest signal from distances."""
    distances = class_distances(clf, X)
    own = of_label(distances, class_positions(clf, y), float(distances.max()))
    return np.asarray(-np.log(np.maximum(own, DISTANCE_FLOOR)))


def sharpest_signal(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """Nearness to the own class if there are distances, the label's logit if not."""
    if is_distance_based(clf):
        return label_nearness(clf, X, y)
    return label_logit(clf, X, y)

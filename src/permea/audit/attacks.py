"""Metric attacks: one number per row from what the classifier answers (001 §3.1).

A row is called a member if the number is above a threshold. 001 uses correctness, loss, confidence
and entropy; the modified entropy (Song and Mittal 2021) adds the label to the entropy; ``distance``
is the membership-inference score's own quantity, for classifiers that answer with distances.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea.audit import signals

Array = NDArray[np.float64]
Metric = Callable[[Any, ArrayLike, ArrayLike], Array]


def correctness(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """1 where the prediction is right, 0 where it is wrong."""
    return np.asarray(np.asarray(clf.predict(X)) == np.asarray(y), dtype=np.float64)


def loss(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """Log probability of the row's own label, which is minus the cross-entropy loss."""
    P = signals.class_probabilities(clf, X)
    own = signals.of_label(P, signals.class_positions(clf, y), 0.0)
    return np.asarray(np.log(np.maximum(own, signals.PROBABILITY_FLOOR)))


def confidence(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """Largest class probability, whatever the label."""
    return signals.confidence(clf, X)


def entropy(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """Minus the entropy of the class probabilities: sure answers point to members."""
    P = signals.class_probabilities(clf, X)
    return np.asarray((P * np.log(np.maximum(P, signals.PROBABILITY_FLOOR))).sum(axis=1))


def modified_entropy(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """Minus the modified entropy: small only if the sure answer is also the right one.

    ``(1 − p_y) log p_y + Σ_{c≠y} p_c log(1 − p_c)``
    """
    P = signals.class_probabilities(clf, X)
    positions = signals.class_positions(clf, y)
    floor = signals.PROBABILITY_FLOOR
    each = P * np.log(np.maximum(1.0 - P, floor))
    own = signals.of_label(P, positions, 0.0)
    own_term = (1.0 - own) * np.log(np.maximum(own, floor))
    return np.asarray(each.sum(axis=1) - signals.of_label(each, positions, 0.0) + own_term)


def distance(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """Minus the smallest class distance (004 eq. 67)."""
    return signals.nearness(clf, X)


#: The metric attacks by name.
METRICS: dict[str, Metric] = {
    "correctness": correctness,
    "loss": loss,
    "confidence": confidence,
    "entropy": entropy,
    "modified_entropy": modified_entropy,
    "distance": distance,
}


def why_not(name: str, clf: Any) -> str:
    """Give the reason why a metric attack does not apply to ``clf``, empty if it does."""
    if name == "distance" and not signals.is_distance_based(clf):
        return "the classifier offers no distances(X)"
    if name != "correctness" and not signals.gives_scores(clf):
        return "the classifier answers with a label alone"
    return ""

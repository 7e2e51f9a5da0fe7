"""Distributions over classes: from scores, calibrated, and balanced to known proportions."""

import numpy as np

from permea.models.base import Array, Indices

_TEMPERATURES = np.geomspace(0.02, 1000, 60)
_LEAST = 1e-4  # a probability below this costs no more: a few wrong labels must not rule


def beliefs(scores: Array, temperature: float = 1.0) -> Array:
    """Probabilities proportional to exp(score / temperature); −∞ is impossible.

    Examples
    --------
    >>> import numpy as np
    >>> beliefs(np.array([[0.0, 0.0, -np.inf]]))
    array([[0.5, 0.5, 0. ]])
    """
    scaled = np.asarray(scores, np.float64) / temperature
    largest = scaled.max(axis=1, keepdims=True)
    values = np.exp(scaled - np.where(np.isfinite(largest), largest, 0))
    total = values.sum(axis=1, keepdims=True)
    return np.where(total > 0, values / np.where(total > 0, total, 1), 1 / scores.shape[1])


def calibrate(scores: Array, labels: Indices) -> tuple[float, float]:
    """Temperature at which the scores explain the labels best, and how well they do.

    Parameters
    ----------
    scores : ndarray of shape (m, C)
        Larger is likelier.
    labels : ndarray of shape (m,)
        Class numbers.

    Returns
    -------
    temperature, loss : float
        The loss is the mean of −log probability of the label. Scores that say nothing about the
        labels get a high temperature and the loss log C.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[9.0, 0.0], [0.0, 9.0], [9.0, 0.0]])
    >>> calibrate(scores, np.array([0, 1, 0]))[1] < calibrate(scores, np.array([0, 1, 1]))[1]
    True
    """
    losses = [float(np.mean(surprise(scores, labels, t))) for t in _TEMPERATURES]
    best = int(np.argmin(losses))
    return float(_TEMPERATURES[best]), losses[best]


def surprise(scores: Array, labels: Indices, temperature: float) -> Array:
    """−log probability of the label of each row, bounded."""
    told = beliefs(scores, temperature)[np.arange(len(labels)), labels]
    return np.asarray(-np.log(np.maximum(told, _LEAST)))


def clearly_less(losses: Array, others: Array) -> bool:
    """Whether losses of the same rows are smaller by more than two standard errors.

    Examples
    --------
    >>> import numpy as np
    >>> clearly_less(np.array([0.1, 0.2, 0.1, 0.3]), np.array([0.5, 0.7, 0.6, 0.6]))
    True
    >>> clearly_less(np.array([0.1, 0.2, 0.1, 0.3]), np.array([0.1, 0.2, 0.1, 9.0]))
    False
    """
    saved = np.asarray(others - losses)
    if len(saved) < 2:
        return bool(saved.sum() > 0)
    return bool(saved.mean() > 2 * saved.std(ddof=1) / np.sqrt(len(saved)))


def balanced(posterior: Array, proportions: Array, n_steps: int = 30) -> Array:
    """Scale classes until their mean probability is as given (Sinkhorn's iteration).

    Classes of proportion zero are left as they are.

    Examples
    --------
    >>> import numpy as np
    >>> skewed = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]])
    >>> balanced(skewed, np.array([0.5, 0.5])).mean(axis=0).round(3)
    array([0.5, 0.5])
    """
    result = np.asarray(posterior, np.float64).copy()
    for _ in range(n_steps):
        now = result.mean(axis=0)
        wanted = (proportions > 0) & (now > 0)
        result[:, wanted] *= proportions[wanted] / now[wanted]
        result /= np.maximum(result.sum(axis=1, keepdims=True), 1e-300)
    return result

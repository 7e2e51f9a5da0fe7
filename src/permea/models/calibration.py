r"""Probabilities and decisions from released moments alone.

A ridge classifier regresses class indicators; its scores order people well and are no
probabilities. The released moments also say how often a class is, where its scores lie on average
and how far all scores spread (:func:`permea.models.linear.score_moments`). Taking the scores of a
class as Gaussian with a common covariance, Bayes' rule gives probabilities whose logarithm is
linear in the scores: linear discriminant analysis on the scores. No row is looked at again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, null_space
from scipy.special import log_softmax

from permea._arrays import Array
from permea.models.linear import LinearModel, score_moments
from permea.privacy.moments import Moments

_MOST_EXPLAINED = 0.7
"""Share of the variance of a score that classes may explain: keeps probabilities from 0 and 1."""
_LEAST_SLOPE = 1e-6  # two classes stay in order even when nothing was learned


@dataclass(frozen=True)
class Calibration:
    """Log-probabilities ``offsets + scores @ slopes``, up to a constant.

    Attributes
    ----------
    slopes : ndarray of shape (C, C)
    offsets, priors : ndarray of shape (C,)
        ``priors`` are the estimated shares of the classes.
    """

    slopes: Array
    offsets: Array
    priors: Array

    def log_probabilities(self, scores: Array) -> Array:
        """Log-probabilities of the classes for scores of shape (n, C)."""
        return np.asarray(log_softmax(self.offsets + scores @ self.slopes, axis=1))

    def probabilities(self, scores: Array) -> Array:
        """Probabilities of the classes for scores of shape (n, C); rows add up to 1."""
        return np.exp(self.log_probabilities(scores))

    @property
    def thresholds(self) -> Array:
        """The probability of each class above which it is more likely than its share."""
        return self.priors


def class_shares(moments: Moments) -> Array:
    """Shares of the classes from noised counts: positive, adding up to 1.

    The counts are drawn to their mean as far as their differences may be noise (James and Stein),
    and none is taken for smaller than the noise.

    Examples
    --------
    >>> import numpy as np
    >>> Z, Y = np.zeros((4, 1)), np.eye(2)[[0, 0, 0, 1]]
    >>> class_shares(Moments.of(Z, Y)).tolist()
    [0.75, 0.25]
    """
    C, noise = len(moments.outputs), moments.squares_noise
    about = moments.outputs - moments.outputs.mean()
    kept = 1.0 - noise**2 * (C - 1) / max(float(about @ about), np.finfo(np.float64).tiny)
    counts = moments.size / C + max(kept, 0.0) * about
    counts = np.maximum(counts, max(noise, 1.0))
    return np.asarray(counts / counts.sum())


def calibrate(moments: Moments, model: LinearModel) -> Calibration:
    """Probabilities for the scores of a ridge classifier, from the moments it was learned from.

    For two classes the probability rises with the difference of the scores, so that the order of
    people is kept.

    Examples
    --------
    >>> import numpy as np
    >>> from permea.models.linear import ridge
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=4000); Z = 2.0 * y[:, None] + rng.normal(size=(4000, 1))
    >>> moments = Moments.of(Z, np.eye(2)[y])
    >>> model = ridge(moments)
    >>> found = calibrate(moments, model).probabilities(model.predict(np.array([[1.0], [2.0]])))
    >>> truth = 1 / (1 + np.exp(-2.0 * (np.array([1.0, 2.0]) - 1.0)))  # of two Gaussians
    >>> bool(np.all(np.abs(found[:, 1] - truth) < 0.03))
    True
    """
    total, cross = score_moments(moments, model)
    shares = class_shares(moments)
    basis = null_space(np.ones((1, len(shares))))  # scores add up to a constant
    whitening = basis @ _inverse_root(basis.T @ total @ basis)
    means = whitening.T @ _positive(cross, basis) / shares  # of the classes, about the mean of all
    explained, axes = eigh((means * shares) @ means.T, driver="evd")
    kept = np.minimum(explained, _MOST_EXPLAINED)
    ratio = kept / np.maximum(explained, np.finfo(np.float64).tiny)
    means = axes @ (np.sqrt(np.maximum(ratio, 0.0))[:, None] * (axes.T @ means))
    within = axes @ (axes.T @ means / (1.0 - kept)[:, None])  # divided by what is within classes
    slopes = np.asarray(whitening @ within, dtype=np.float64)
    if len(shares) == 2:
        slopes = _rising(slopes, float(np.sqrt(np.trace(total))))
    centre = moments.outputs / max(moments.size, 1.0)  # the mean score
    offsets = np.log(shares) - 0.5 * np.sum(means * within, axis=0) - centre @ slopes
    return Calibration(slopes, np.asarray(offsets), shares)


def _inverse_root(matrix: Array) -> Array:
    """F with Fᵀ M F = I; directions without variance are left out."""
    values, vectors = eigh((matrix + matrix.T) / 2, driver="evd")
    tiny = np.finfo(np.float64)
    kept = values > 1e-9 * max(values.max(), tiny.tiny)
    return np.asarray(vectors * np.where(kept, 1.0, 0.0) / np.sqrt(np.where(kept, values, 1.0)))


def _positive(matrix: Array, basis: Array) -> Array:
    """The nearest matrix without negative eigenvalues among those that vanish off the basis."""
    inner = basis.T @ matrix @ basis
    values, vectors = eigh((inner + inner.T) / 2, driver="evd")
    return np.asarray(basis @ ((vectors * np.maximum(values, 0.0)) @ vectors.T) @ basis.T)


def _rising(slopes: NDArray[np.float64], spread: float) -> NDArray[np.float64]:
    """Slopes of two classes, at least a tiny rise per spread of the scores."""
    rise = slopes[1, 1] - slopes[1, 0]
    least = _LEAST_SLOPE / max(spread, np.finfo(np.float64).tiny)
    return slopes if rise >= least else least * np.array([[0.5, -0.5], [-0.5, 0.5]]) / 2


def decision(
    moments: Moments,
    model: LinearModel,
    *,
    class_weight: str | Mapping[Any, float] | None = None,
    classes: Sequence[Any] | None = None,
) -> Array:
    """What is added to the log-probabilities of the classes before the largest is chosen.

    Parameters
    ----------
    moments : Moments
        The release: the threshold follows from it, without a second look at the rows.
    model : LinearModel
    class_weight : {"balanced"}, dict or None
        None chooses the most probable class. "balanced" divides by the shares of the classes, for
        the largest balanced accuracy. A dict gives the weight of a mistake per class; a class that
        it does not name has 1.
    classes : sequence, optional
        The labels that a dict speaks of, in the order of the outputs; by default 0, 1, ….

    Returns
    -------
    offsets : ndarray of shape (C,)

    Examples
    --------
    >>> import numpy as np
    >>> from permea.models.linear import ridge
    >>> moments = Moments.of(np.arange(4.0)[:, None], np.eye(2)[[0, 0, 0, 1]])
    >>> np.exp(decision(moments, ridge(moments), class_weight="balanced")).round(3).tolist()
    [1.333, 4.0]
    >>> decision(moments, ridge(moments), class_weight={1: np.e}).tolist()
    [0.0, 1.0]
    """
    labels = list(range(len(moments.outputs)) if classes is None else classes)
    if class_weight is None:
        return np.zeros(len(labels))
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(
                f"class_weight must be 'balanced', a dict or None, got {class_weight!r}."
            )
        return np.asarray(-np.log(class_shares(moments)))
    unknown = [label for label in class_weight if label not in labels]
    weights = np.array([float(class_weight.get(label, 1.0)) for label in labels])
    if unknown or not (np.all(np.isfinite(weights)) and np.all(weights > 0)):
        raise ValueError(
            f"class_weight needs a positive number for declared classes only; not declared: "
            f"{unknown}."
        )
    return np.asarray(np.log(weights))

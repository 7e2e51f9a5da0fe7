r"""Logistic regression from moments and a few noised gradients of its loss.

Least squares on class indicators is what moments alone can learn. Its weights b are, up to the
mean squared error, those of a linear discriminant (:math:`w = b / \mathrm{mse}`), from which
Newton's method for the logistic loss starts. The loss has the gradient :math:`\sum z (p - y)^T`
and about the Hessian :math:`\mathrm{mse} \cdot S`, because the mean of p (1 - p) is the squared
error of calibrated probabilities: of every step only the gradient is released anew.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh

from permea._arrays import Array
from permea.models.linear import LinearModel
from permea.privacy.moments import Moments
from permea.privacy.rowwise import exp_of_negative, row_product, row_sums

N_STEPS = 6
RIDGE = 1.0  # per spectral norm of the noise on the second moments
GRADIENT_RIDGE = 0.5  # per norm of the noise on a gradient


@dataclass(frozen=True)
class Logits:
    """Scores whose softmax are the probabilities; of two classes the first has score 0."""

    weights: Array
    intercept: Array

    def residuals(self, Z: Array, Y: Array) -> Array:
        """Probabilities minus class indicators, of norm at most 1, each of its row alone.

        For two classes it is one column, for more all of them, divided by √2.

        Examples
        --------
        >>> flat = Logits(np.zeros((3, 1)), np.zeros(1))
        >>> flat.residuals(np.ones((2, 3)), np.eye(2)).tolist()
        [[0.5], [-0.5]]
        """
        scores = row_product(np.asarray(Z, np.float64), self.weights, limbs=2) + self.intercept
        if scores.shape[1] == 1:
            small = exp_of_negative(np.abs(scores))
            return np.asarray(np.where(scores > 0, 1.0, small) / (1.0 + small) - Y[:, 1:])
        powers = exp_of_negative(scores.max(axis=1, keepdims=True) - scores)
        return np.asarray((powers / row_sums(powers) - Y) / math.sqrt(2.0))

    def model(self, like: LinearModel) -> LinearModel:
        """The same as a linear model with one output per class."""
        weights, intercept = self.weights, self.intercept
        if weights.shape[1] == 1:
            weights, intercept = (np.hstack([0 * a, a]) for a in (weights, intercept))
        return replace(like, weights=weights, intercept=intercept, vectors=None, variances=None)


class Newton:
    """Newton's method with the Hessian of the moments.

    Parameters
    ----------
    moments : Moments
        With class indicators as outputs.
    model : LinearModel
        Least squares from the same moments.
    """

    def __init__(self, moments: Moments, model: LinearModel) -> None:
        about = moments.centred()
        values, self._vectors = eigh(about.second, driver="evd", check_finite=False)
        self._values = np.maximum(values, 0.0)
        self._size = max(moments.size, 1.0)
        self._mean = moments.total / self._size
        self._noise_norm = moments.noise_norm
        two = model.weights.shape[1] == 2
        columns = slice(1, 2) if two else slice(None)
        self._factor = 1.0 if two else math.sqrt(2.0)  # of residuals, see Logits.residuals
        self._error = model.error[columns]
        self.logits = self._start(moments, model.weights[:, columns] / self._error, two)

    def _start(self, moments: Moments, weights: Array, two: bool) -> Logits:
        counts = np.maximum(moments.outputs, 1.0)
        means = (moments.cross / counts).T @ weights
        if two:
            prior = np.log(counts[1:] / counts[:1])
            return Logits(weights, np.asarray(prior - means.mean(axis=0)))
        return Logits(weights, np.asarray(np.log(counts) - np.diag(means) / 2))

    def step(self, gradient: Array, noise: float) -> Logits:
        """One step along a gradient, whose last row is that of the intercepts.

        ``noise`` is the standard deviation of the noise on its other entries.
        """
        slopes, sums = self._factor * gradient[:-1], self._factor * gradient[-1]
        ridge = RIDGE * self._noise_norm + GRADIENT_RIDGE * noise * math.sqrt(len(slopes))
        about = self._vectors.T @ (slopes - np.outer(self._mean, sums))
        change = self._vectors @ (about / (self._values + ridge + 1e-9 * self._size)[:, None])
        weights = self.logits.weights - change / self._error
        middle = self.logits.intercept + self._mean @ self.logits.weights
        middle = middle - sums / (self._error * self._size)
        self.logits = Logits(weights, middle - self._mean @ weights)
        return self.logits

r"""Learning that sees sums only: ridge and Bayesian regression from (noised) moments.

The training rows enter a membership mapping through two matrices, :math:`K_{xa}^TK_{xa}` and
:math:`K_{xa}^TY` (001 eq. 1.49, 003 eq. 74-77). Here are the second moments :math:`S = Z^TZ` and
cross moments :math:`C = Z^TY` of features Z, perhaps with noise of a known law on them, and what
can be learned from them. Nothing in this module has rows to look at.

With symmetric noise of standard deviation σ on the diagonal and σ/√2 off it, S is moved by a
matrix of spectral norm about :math:`\sigma\sqrt{2D}`: smaller eigenvalues of S are noise, negative
ones certainly. The ridge is a share of that norm, larger where the cross moments are mostly noise,
plus 1/β (001 eq. 1.58).

Weights learned from noised moments fit the noise too, so what they seem to explain is too much. By
Stein's lemma the expected error of that estimate is known (:func:`score_moments`), and everything
that is said about a model (probabilities, how much it explains) uses the corrected figures.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh

from permea._arrays import Array
from permea.privacy.moments import Moments

MAP_STRENGTH = 0.2
"""The same for features of images and random ones, found on USPS (``moments_tune``)."""
RIDGE_STRENGTH = 0.5
"""Ridge per spectral norm of the noise; found on public data (``docs/methods/moments.md``)."""

SIGNAL_LIMIT = 3.0
"""Below this `signal_to_noise` a model is no better than one learned from noise alone."""

_MAX_STEPS = 200


@dataclass(frozen=True)
class LinearModel:
    """``y = intercept + weightsᵀ z``, with the covariance of the weights when it is known.

    ``variances`` (D, C) are those of the weights in the basis ``vectors`` (D, D); ``error`` (C,)
    is the variance of the disturbance.
    """

    weights: Array
    intercept: Array
    error: Array
    regularization: Array
    vectors: Array | None = None
    variances: Array | None = None
    centre: Array | None = None

    def predict(self, Z: Array) -> Array:
        """Outputs for rows of features."""
        return np.asarray(Z @ self.weights.astype(Z.dtype) + self.intercept.astype(Z.dtype))

    def variance(self, Z: Array) -> Array:
        """Predictive variance of every output: disturbance, sampling and privacy noise."""
        if self.vectors is None or self.variances is None or self.centre is None:
            raise ValueError("Only a Bayesian model knows how uncertain it is.")
        rotated = np.square((Z - self.centre) @ self.vectors)
        return np.asarray(self.error + rotated @ self.variances)


@dataclass(frozen=True)
class _Spectrum:
    """Centred moments in the eigenbasis of S; ``values`` without negative eigenvalues."""

    signed: Array
    values: Array
    vectors: Array
    rotated: Array
    moments: Moments

    @classmethod
    def of(cls, moments: Moments) -> "_Spectrum":
        about_mean = moments.centred()
        values, vectors = eigh(about_mean.second, driver="evd", check_finite=False)
        rotated = vectors.T @ about_mean.cross
        return cls(values, np.maximum(values, 0.0), vectors, rotated, about_mean)

    def squared_error(self, coefficients: Array, variances: Array | None = None) -> Array:
        """Mean of (y - ŷ)² of every output, 001 eq. (1.58), from moments.

        Never below its own standard deviation under the noise: what is not known is not small.
        With the variances of the coefficients (D, C) it is that of the disturbance, as in the EM
        algorithm, plus that standard deviation.
        """
        left = (
            self.moments.squares
            - 2.0 * np.sum(coefficients * self.rotated, axis=0)
            + np.sum(self.values[:, None] * np.square(coefficients), axis=0)
        )
        length = np.sum(np.square(coefficients), axis=0)
        noise = (
            self.moments.squares_noise**2
            + 4.0 * self.moments.cross_noise**2 * length
            + np.square(self.moments.second_noise * length)
        )
        floor = 1e-6 * self.moments.squares + np.sqrt(noise) + np.finfo(np.float64).tiny
        if variances is not None:
            left = left + self.values @ variances + np.sqrt(noise)
        return np.asarray(np.maximum(left, floor) / max(self.moments.size, 1.0))

    def model(self, coefficients: Array, error: Array, regularization: Array) -> LinearModel:
        size = max(self.moments.size, 1.0)
        weights = self.vectors @ coefficients
        mean = self.moments.total / size
        intercept = self.moments.outputs / size - mean @ weights
        return LinearModel(np.asarray(weights), intercept, error, regularization, centre=mean)


def ridge(moments: Moments, *, strength: float = RIDGE_STRENGTH, tol: float = 1e-6) -> LinearModel:
    r"""Ridge regression from moments: :math:`(S_+ + \lambda I)^{-1} C`.

    :math:`\lambda = c\,\sigma\sqrt{2D}/(1-\rho) + 1/\beta`: a share c of the spectral norm of the
    noise on S, where ρ is the share of the noise in :math:`|C|^2`, and the membership mapping's own
    rule, where 1/β is the mean squared error (001 eq. 1.49 and 1.58, σ² = 1), evaluated on the
    noised moments in turn with the weights.

    Parameters
    ----------
    moments : Moments
        About any origin; they are centred here.
    strength : float
        The share c.
    tol : float
        The iteration over β ends when it changes by less than this share of itself.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(500, 3)); Y = Z @ [[1.0], [0.0], [2.0]] + 5
    >>> model = ridge(Moments.of(Z, Y))
    >>> [float(w) for w in model.weights.ravel().round(2) + 0.0], float(model.intercept[0].round(2))
    ([1.0, 0.0, 2.0], 5.0)
    """
    spectrum = _Spectrum.of(moments)
    floor = spectrum.values.size * np.finfo(np.float64).eps * max(spectrum.values.max(), 1e-300)
    base = max(strength * moments.noise_norm / (1.0 - noise_share(moments)), float(floor))
    error: Array = np.ones(moments.cross.shape[1])
    for _ in range(_MAX_STEPS):
        regularization = base + float(error.mean())
        coefficients = spectrum.rotated / (spectrum.values + regularization)[:, None]
        previous, error = error, spectrum.squared_error(coefficients)
        if np.all(np.abs(error - previous) <= tol * previous):
            break
    return spectrum.model(coefficients, error, np.full(error.shape, regularization))


def are_classes(moments: Moments) -> bool:
    """Whether the outputs are class indicators: every row then belongs to exactly one of them."""
    cross, total = moments.cross, moments.total
    size = 1e-6 * (np.abs(cross).max() + np.finfo(np.float64).tiny)
    return cross.shape[1] > 1 and bool(np.all(np.abs(cross.sum(axis=1) - total) <= size))


def output_covariance(moments: Moments) -> Array:
    """Covariance (C, C) of the outputs; numbers are taken as uncorrelated."""
    mean = moments.outputs / max(moments.size, 1.0)
    if are_classes(moments):
        return np.asarray(np.diag(np.maximum(mean, 0.0)) - np.outer(mean, mean))
    return np.diag(moments.centred().squares / max(moments.size, 1.0))


def _centred_noise(moments: Moments) -> Array:
    """Covariance (C, C) of the noise on one row of the centred cross moments."""
    mean, C = moments.outputs / max(moments.size, 1.0), moments.cross.shape[1]
    if are_classes(moments):  # the total is the sum over classes, and its noise theirs
        mixing = np.eye(C) - np.outer(np.ones(C), mean)
        return np.asarray(moments.cross_noise**2 * mixing.T @ mixing)
    return np.asarray(moments.cross_noise**2 * (np.eye(C) + np.outer(mean, mean)))


def noise_share(moments: Moments) -> float:
    """Share of the noise in the sum of squares of the centred cross moments, at most 0.98.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> noise = Moments(np.eye(50), rng.normal(size=(50, 1)), np.zeros(50), np.zeros(1),
    ...                 np.ones(1), 100.0, cross_noise=1.0)
    >>> noise_share(noise) > 0.7
    True
    """
    signal = float(np.square(moments.centred().cross).sum())
    noise = moments.cross.shape[0] * float(np.trace(_centred_noise(moments)))
    return float(min(noise / max(signal, np.finfo(np.float64).tiny), 0.98))


def score_moments(moments: Moments, model: LinearModel) -> tuple[Array, Array]:
    r"""Covariance of the scores, and of scores and outputs, over people: corrected for the noise.

    The weights b = g(S) c are functions of the noised S and c, so bᵀSb and bᵀc are biased. For
    noise E on S with variance σ² on the diagonal and half of it elsewhere, Stein's lemma in the
    eigenbasis of S, where :math:`g[w_i, w_j]` are divided differences of the ridge's filter
    :math:`g(w) = 1/(w_+ + \lambda)`, gives

    .. math:: E[b^TEb] = \sigma^2 \sum_i g_i c_i^2 \Big(\sum_j g[w_i,w_j] + g[w_i,w_i]\Big),
              \qquad E[b^Tf] = \sigma_C^2 \sum_i g_i .

    Parameters
    ----------
    moments : Moments
    model : LinearModel
        What :func:`ridge` learned from them.

    Returns
    -------
    scores : ndarray of shape (C, C)
        Estimated covariance of the scores of a person.
    cross : ndarray of shape (C, C)
        Estimated covariance of scores (rows) and outputs (columns).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(400, 3)); Y = Z @ rng.normal(size=(3, 2))
    >>> moments = Moments.of(Z, Y)
    >>> model = ridge(moments)
    >>> np.allclose(score_moments(moments, model)[0], np.cov(model.predict(Z).T, bias=True))
    True
    """
    spectrum = _Spectrum.of(moments)
    c, w, size = spectrum.rotated, spectrum.signed, max(moments.size, 1.0)
    g = 1.0 / (spectrum.values + float(model.regularization[0]))
    b = g[:, None] * c
    scores = b.T @ (spectrum.values[:, None] * b)
    if moments.second_noise > 0:
        scores = scores - moments.second_noise**2 * (c.T @ ((g * _slopes(w, g))[:, None] * c))
    cross = b.T @ c - g.sum() * _centred_noise(moments)
    return np.asarray(scores / size), np.asarray(cross / size)


def _slopes(w: Array, g: Array) -> Array:
    """Row sums of the divided differences of g(w) = 1/(w₊ + λ), the diagonal counted twice."""
    gaps = w[:, None] - w[None, :]
    close = np.abs(gaps) <= 1e-9 * np.abs(w).max()
    own = np.where(w > 0, -np.square(g), 0.0)
    differences = (g[:, None] - g[None, :]) / np.where(close, 1.0, gaps)
    differences = np.where(close, own[:, None], differences)
    return np.asarray(differences.sum(axis=1) + own)


def signal_to_noise(moments: Moments, model: LinearModel) -> float:
    """By how many standard deviations a model explains more than one learned from noise alone.

    Had features and outputs nothing to do with each other, the cross moments would be sampling and
    privacy noise of a known covariance, and the covariance of scores and outputs a weighted sum of
    squares of it, whose mean and variance are known. Below 3 (`SIGNAL_LIMIT`) there is no reason
    to believe that anything was learned.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(400, 3))
    >>> related, unrelated = (Moments.of(Z, Y) for Y in (Z[:, :1], rng.normal(size=(400, 1))))
    >>> signal_to_noise(related, ridge(related)) > 100
    True
    >>> signal_to_noise(unrelated, ridge(unrelated)) < SIGNAL_LIMIT
    True
    """
    spectrum = _Spectrum.of(moments)
    c, b = spectrum.rotated, spectrum.vectors.T @ model.weights
    g = np.divide(b, c, out=np.zeros_like(b), where=c != 0)
    blocks = _centred_noise(moments) + spectrum.values[:, None, None] * output_covariance(moments)
    expected = float(np.einsum("ia,iaa->", g, blocks))
    variance = 2.0 * float(np.einsum("ia,ib,iab->", g, g, np.square(blocks)))
    explained = float(np.sum(b * c))
    return (explained - expected) / math.sqrt(max(variance, float(np.finfo(np.float64).tiny)))


def bayesian(moments: Moments, *, tol: float = 1e-6) -> LinearModel:
    r"""Bayesian regression from noised moments, with an uncertainty that includes the noise.

    The released moments of one output satisfy
    :math:`\tilde c = \tilde S b + Z^Te + f - Eb` with disturbance e (variance s²), noise f on the
    cross moments and E on the second ones. Given b, the last three have the covariance

    .. math:: s^2 S + (\sigma_C^2 + \tfrac12\sigma_S^2 |b|^2) I
              + \tfrac12\sigma_S^2\, b b^T ,

    whose last term, of rank one, is bounded by the one before it. With a prior
    :math:`b \sim N(0, t^2 I)` every direction of the eigenbasis of the released S has a Gaussian
    posterior; s², |b|² and t² follow from the released moments in turn (empirical Bayes, by the EM
    algorithm). Without noise this is 003 eq. (74)-(77) with a zero prior mean. The error also
    holds a standard deviation of what noise does to it, and the noise of the means.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(400, 2)); Y = Z @ [[1.0], [-1.0]] + 0.1 * rng.normal(size=(400, 1))
    >>> model = bayesian(Moments.of(Z, Y))
    >>> bool(0.09 < np.sqrt(model.variance(Z[:1])).item() < 0.11)
    True
    """
    spectrum = _Spectrum.of(moments)
    w, c = spectrum.values[:, None], spectrum.rotated
    size = max(moments.size, 1.0)
    error: Array = spectrum.moments.squares / size + np.finfo(np.float64).tiny
    rounding = np.finfo(np.float64).eps * w.max() + np.finfo(np.float64).tiny
    spread: Array = np.ones_like(error)  # t²
    length = np.zeros_like(error)  # |b|²
    for _ in range(_MAX_STEPS):
        noise = (w + rounding) * error
        noise = noise + moments.cross_noise**2 + moments.second_noise**2 * length
        precision = np.square(w) / noise + 1.0 / spread
        coefficients, variances = w * c / noise / precision, 1.0 / precision
        length = np.sum(np.square(coefficients), axis=0)
        previous, spread = spread, np.mean(np.square(coefficients) + variances, axis=0)
        spread = np.maximum(spread, np.finfo(np.float64).tiny)
        error = spectrum.squared_error(coefficients, variances)
        if np.all(np.abs(spread - previous) <= tol * previous):
            break
    of_means = moments.squares_noise**2 + moments.cross_noise**2 * length  # of outputs and features
    model = spectrum.model(coefficients, error + of_means / size**2, error / spread)
    return replace(model, vectors=spectrum.vectors, variances=variances)

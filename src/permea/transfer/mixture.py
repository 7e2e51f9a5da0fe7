"""Class densities behind known noise: Gaussian mixtures with the noise taken out of each part.

A noised row is y = x + v with v independent of x and of known covariance. If x is a mixture of
Gaussians N(μ_k, Σ_k), then y is, up to the shape of v, a mixture of N(μ_k, Σ_k + cov(v)) with the
same responsibilities. So a mixture is learned from the noised rows by expectation maximisation,
and cov(v) is subtracted from each of its covariances. What is left describes rows without noise.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.cluster import KMeans

from permea.models.base import Array, Indices

_MOST_DIRECTIONS = 50
_MOST_PARTS = 10
_ROWS_OF_A_PART = 600
_STEPS = 10  # of expectation maximisation
_FLOOR = 0.25  # smallest variance, in units of the smallest that a kept direction has


class ClassMixtures(NamedTuple):
    """One Gaussian mixture per class, in the leading directions of the rows."""

    mean: Array  #: (p,) origin of the codes
    directions: Array  #: (d, p)
    weights: Array  #: (C, K); zero for parts that a class does not have
    centres: Array  #: (C, K, d)
    covariances: Array  #: (C, K, d, d), noise subtracted
    counts: Array  #: (C,) rows that each class was learned from

    def encode(self, Y: Array) -> Array:
        """Coordinates of rows in the directions."""
        return np.asarray((Y - self.mean) @ self.directions.T, np.float64)

    def scores(self, codes: Array) -> Array:
        """Logarithm of the density of each row in each class, shape (m, C)."""
        each = [
            np.logaddexp.reduce(self.part_scores(codes, label), axis=1)
            for label in range(len(self.counts))
        ]
        return np.stack(each, axis=1)

    def part_scores(self, codes: Array, label: int) -> Array:
        """Logarithm of weight times density in each part of one class, shape (m, K)."""
        return _part_scores(
            codes, self.weights[label], self.centres[label], self.covariances[label]
        )

    def adapted(self, codes: Array, posterior: Array, strength: float) -> "ClassMixtures":
        """Mixtures moved towards rows of a target, the source weighing as ``strength`` rows.

        Parameters
        ----------
        codes : ndarray of shape (m, d)
            Target rows.
        posterior : ndarray of shape (m, C)
            Probability of each class for each row.
        strength : float
            Rows that each part of the source counts for (maximum a posteriori).

        Returns
        -------
        ClassMixtures
        """
        weights, centres, covariances = (
            np.array(self.weights), np.array(self.centres), np.array(self.covariances),
        )  # fmt: skip
        for label in range(len(self.counts)):
            mine = np.flatnonzero(posterior[:, label] > 0.01)
            logs = self.part_scores(codes[mine], label)
            shares = np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))
            shares *= posterior[mine, label][:, None]
            for k in np.flatnonzero(self.weights[label]):
                moved = _moved(codes[mine], shares[:, k], self.centres[label, k],
                               self.covariances[label, k], strength)  # fmt: skip
                centres[label, k], covariances[label, k] = moved
            present = self.weights[label] > 0
            total = strength * present.sum() * self.weights[label] + shares.sum(axis=0)
            weights[label] = total * present / np.sum(total * present)
        return self._replace(weights=weights, centres=centres, covariances=covariances)


def _moved(
    codes: Array, share: Array, centre: Array, covariance: Array, strength: float
) -> tuple[Array, Array]:
    """Mean and covariance of ``strength`` rows of the source and the weighted rows given."""
    total = strength + share.sum()
    new = (strength * centre + share @ codes) / total
    shift, rest = centre - new, codes - new
    scatter = strength * (covariance + np.outer(shift, shift)) + (rest * share[:, None]).T @ rest
    return new, scatter / total


def _part_scores(codes: Array, weights: Array, centres: Array, covariances: Array) -> Array:
    scores = np.full((len(codes), len(weights)), -np.inf)
    for k in np.flatnonzero(weights > 0):
        factor = np.linalg.cholesky(covariances[k])
        z = solve_triangular(factor, (codes - centres[k]).T, lower=True, check_finite=False)
        scores[:, k] = np.log(weights[k]) - 0.5 * np.einsum("ij,ij->j", z, z)
        scores[:, k] -= np.log(np.diag(factor)).sum()
    return scores


def kept_directions(variances: Array, noise: Array, n_rows: int, n_features: int) -> int:
    """How many leading directions stand out of the noise.

    The sample covariance of pure noise of variance s over N rows of p entries has eigenvalues up
    to s (1 + √(p/N))² (Marchenko-Pastur); a direction below that is noise.

    Examples
    --------
    >>> import numpy as np
    >>> kept_directions(np.array([9.0, 2.5, 1.1]), np.ones(3), 10_000, 1000)
    2
    """
    edge = noise * (1 + np.sqrt(n_features / n_rows)) ** 2
    floor = 1e-6 * variances[0] if len(variances) else 0.0
    below = np.flatnonzero((variances <= edge) | (variances <= floor))
    found = int(below[0]) if below.size else len(variances)
    return min(found, _MOST_DIRECTIONS)


def fit_mixtures(
    Y: Array, labels: Indices, n_classes: int, directions: Array, noise: Array, *, seed: int = 0
) -> ClassMixtures | None:
    """Learn a mixture for each class from noised rows.

    Parameters
    ----------
    Y : ndarray of shape (N, p)
        Rows as they came through the wall.
    labels : ndarray of shape (N,)
        Class numbers.
    n_classes : int
        C.
    directions : ndarray of shape (n, p)
        Principal directions of ``Y``, largest variance first.
    noise : ndarray of shape (p,)
        Public variance of the noise on each entry.
    seed : int
        For k-means.

    Returns
    -------
    ClassMixtures or None
        None where the noise drowns every direction.
    """
    mean = Y.mean(axis=0, dtype=np.float64)
    codes = np.asarray((Y - mean.astype(Y.dtype)) @ directions.T, np.float64)
    in_codes = (directions * noise) @ directions.T  # covariance of the noise in the directions
    variances = codes.var(axis=0)
    d = kept_directions(variances, np.diag(in_codes), *Y.shape)
    if d == 0:
        return None
    codes, in_codes = codes[:, :d], np.asarray(in_codes[:d, :d], np.float64)
    floor = _FLOOR * float(np.min(variances[:d] - np.diag(in_codes)))
    counts = np.bincount(labels, minlength=n_classes)
    parts = np.clip(counts // _ROWS_OF_A_PART, 1, _MOST_PARTS)
    K = int(parts.max())
    weights, centres = np.zeros((n_classes, K)), np.zeros((n_classes, K, d))
    covariances = np.broadcast_to(np.eye(d), (n_classes, K, d, d)).copy()
    for label in range(n_classes):
        found = _learn_class(codes[labels == label], int(parts[label]), np.cov(codes.T), seed)
        k = len(found[0])
        weights[label, :k], centres[label, :k] = found[0], found[1]
        covariances[label, :k] = [_without_noise(S, in_codes, floor) for S in found[2]]
    return ClassMixtures(mean, directions[:d], weights, centres, covariances, counts)


def _learn_class(codes: Array, K: int, overall: Array, seed: int) -> tuple[Array, Array, Array]:
    """Expectation maximisation; a covariance of few rows is drawn towards the overall one."""
    N, d = codes.shape
    overall = np.atleast_2d(overall)
    shares = np.ones((N, 1))
    if K > 1:
        groups = KMeans(K, n_init=1, max_iter=20, random_state=seed).fit_predict(codes)
        shares = np.eye(K)[groups]
    for _ in range(_STEPS if K > 1 else 1):
        sizes = shares.sum(axis=0) + 1e-9
        weights, centres = sizes / sizes.sum(), (shares.T @ codes) / sizes[:, None]
        covariances = np.empty((K, d, d))
        for k in range(K):
            rest = codes - centres[k]
            own = (rest * shares[:, k : k + 1]).T @ rest / sizes[k]
            trust = sizes[k] / (sizes[k] + d)
            covariances[k] = trust * own + (1 - trust) * overall
        logs = _part_scores(codes, weights, centres, covariances)
        shares = np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))
    return weights, centres, covariances


def _without_noise(covariance: Array, noise: Array, floor: float) -> Array:
    """Σ minus the covariance of the noise, with no eigenvalue below ``floor``."""
    values, vectors = np.linalg.eigh(covariance - noise)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)

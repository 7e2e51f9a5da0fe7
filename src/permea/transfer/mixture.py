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

from permea._parallel import run_parallel
from permea.models.base import Array, Indices

_MOST_DIRECTIONS = 50
_MOST_PARTS = 10
_ROWS_OF_A_PART = 600
_STARTS = 4  # mixtures from different starts; their log-densities are averaged
_START_ROWS = 3000  # rows that a start looks at
_STEPS = 6  # of expectation maximisation
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
    Y: Array,
    labels: Indices,
    n_classes: int,
    directions: Array,
    noise: Array,
    *,
    n_jobs: int | None = None,
    seed: int = 0,
) -> tuple[ClassMixtures, ...]:
    """Learn mixtures of each class from noised rows, from several starts.

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
    n_jobs : int, optional
        Workers.
    seed : int
        For the starts.

    Returns
    -------
    tuple of ClassMixtures
        Empty where the noise drowns every direction.
    """
    mean = Y.mean(axis=0, dtype=np.float64)
    codes = np.asarray((Y - mean.astype(Y.dtype)) @ directions.T, np.float64)
    in_codes = (directions * noise) @ directions.T  # covariance of the noise in the directions
    variances = codes.var(axis=0)
    d = kept_directions(variances, np.diag(in_codes), *Y.shape)
    if d == 0:
        return ()
    in_codes = np.asarray(in_codes[:d, :d], np.float64)
    floor = _FLOOR * float(np.min(variances[:d] - np.diag(in_codes)))
    counts = np.bincount(labels, minlength=n_classes).astype(np.float64)
    parts = np.clip(counts // _ROWS_OF_A_PART, 1, _MOST_PARTS).astype(int)
    by_class = [codes[labels == label, :d] for label in range(n_classes)]
    n_starts = _STARTS if parts.max() > 1 else 1
    tasks = [
        (by_class[label], int(parts[label]), in_codes, floor, seed + start)
        for start in range(n_starts)
        for label in range(n_classes)
    ]
    learned = run_parallel(_learn_class, tasks, n_jobs=n_jobs, desc="mixtures")
    made = []
    for start in range(n_starts):
        found = learned[start * n_classes : (start + 1) * n_classes]
        made.append(_assembled(found, mean, directions[:d], counts))
    return tuple(made)


def _assembled(
    found: list[tuple[Array, Array, Array]], mean: Array, directions: Array, counts: Array
) -> ClassMixtures:
    """The mixtures of all classes side by side; a class may have fewer parts than another."""
    C, K, d = len(found), max(len(weights) for weights, _, _ in found), len(directions)
    weights, centres = np.zeros((C, K)), np.zeros((C, K, d))
    covariances = np.broadcast_to(np.eye(d), (C, K, d, d)).copy()
    for label, (w, m, S) in enumerate(found):
        weights[label, : len(w)] = w
        centres[label, : len(w)] = m
        covariances[label, : len(w)] = S
    return ClassMixtures(mean, directions, weights, centres, covariances, counts)


def _learn_class(
    codes: Array, K: int, noise: Array, floor: float, seed: int
) -> tuple[Array, Array, Array]:
    """Expectation maximisation on noised codes of one class, then the noise is taken out.

    The covariance of a part is drawn towards that of the class, which counts as 2 d rows.
    """
    N, d = codes.shape
    whole = _class_covariance(codes, noise)
    shares = np.ones((N, 1))
    if K > 1:
        random = np.random.RandomState(seed)
        chosen = codes[random.permutation(N)[:_START_ROWS]]
        groups = KMeans(K, n_init=1, max_iter=10, random_state=random).fit(chosen)
        shares = np.eye(K)[groups.predict(codes)]
    for _ in range(_STEPS if K > 1 else 1):
        sizes = shares.sum(axis=0) + 1e-9
        weights, centres = sizes / sizes.sum(), (shares.T @ codes) / sizes[:, None]
        covariances = np.empty((K, d, d))
        for k in range(K):
            rest = codes - centres[k]
            own = (rest * shares[:, k : k + 1]).T @ rest / sizes[k]
            trust = sizes[k] / (sizes[k] + 2 * d)
            covariances[k] = trust * own + (1 - trust) * whole
        if K > 1:
            logs = _part_scores(codes, weights, centres, covariances)
            shares = np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))
    clean = np.stack([_without_noise(S, noise, floor) for S in covariances])
    return weights, centres, clean


def _class_covariance(codes: Array, noise: Array) -> Array:
    """Covariance of a class; a round one of the same size stands in where rows are few."""
    N, d = codes.shape
    own = np.atleast_2d(np.cov(codes.T)) if N > 1 else np.zeros((d, d))
    spread = max(float(np.trace(own)) / d, float(np.trace(noise)) / d, 1e-12)
    trust = N / (N + d)
    return np.asarray(trust * own + (1 - trust) * spread * np.eye(d))


def _without_noise(covariance: Array, noise: Array, floor: float) -> Array:
    """Σ minus the covariance of the noise, with no eigenvalue below ``floor``."""
    values, vectors = np.linalg.eigh(covariance - noise)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)

"""Densities and moments of the classes of a source: what is left of it behind the noise.

A noised row is y = x + v with v independent of x and of known covariance. If x is a mixture of
Gaussians N(μ_k, Σ_k), then y is, up to the shape of v, a mixture of N(μ_k, Σ_k + cov(v)) with the
same responsibilities. So a mixture is learned from the noised rows by expectation maximisation,
and cov(v) is subtracted from each of its covariances. What is left describes rows without noise.
From released moments the hull of each class (`permea.models.hull`) is one Gaussian, in which the
noise was accounted for already.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from permea._arrays import Array, Indices
from permea._parallel import run_parallel
from permea.models.hull import ClassHulls

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
        classes = zip(self.weights, self.centres, self.covariances, strict=True)
        each = [np.logaddexp.reduce(_part_scores(codes, *one), axis=1) for one in classes]
        return np.stack(each, axis=1)

    def adapted(self, codes: Array, posterior: Array, strength: float) -> "ClassMixtures":
        """Mixtures moved towards rows of a target (maximum a posteriori).

        Parameters
        ----------
        codes : ndarray of shape (m, d)
            Target rows.
        posterior : ndarray of shape (m, C)
            Probability of each class for each row.
        strength : float
            Rows that each part of the source counts for.

        Returns
        -------
        ClassMixtures
        """
        moved = self._replace(
            weights=np.array(self.weights), centres=np.array(self.centres),
            covariances=np.array(self.covariances),
        )  # fmt: skip
        for label, own in enumerate(zip(self.weights, self.centres, self.covariances, strict=True)):
            mine = np.flatnonzero(posterior[:, label] > 0.01)
            rows, logs = codes[mine], _part_scores(codes[mine], *own)
            shares = np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))
            shares *= posterior[mine, label][:, None]
            weights, present = own[0], own[0] > 0
            for k in np.flatnonzero(present):
                centre, total = own[1][k], strength + shares[:, k].sum()
                new = (strength * centre + shares[:, k] @ rows) / total
                shift, rest = centre - new, rows - new
                scatter = strength * (own[2][k] + np.outer(shift, shift))
                scatter += (rest * shares[:, k : k + 1]).T @ rest
                moved.centres[label, k], moved.covariances[label, k] = new, scatter / total
            sizes = present * (strength * present.sum() * weights + shares.sum(axis=0))
            moved.weights[label] = sizes / sizes.sum()
        return moved


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
        from sklearn.cluster import KMeans  # here, for a quick `import permea`

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
    return weights, centres, np.stack([at_least(S - noise, floor) for S in covariances])


def _class_covariance(codes: Array, noise: Array) -> Array:
    """Covariance of a class; a round one of the same size stands in where rows are few."""
    N, d = codes.shape
    own = np.atleast_2d(np.cov(codes.T)) if N > 1 else np.zeros((d, d))
    spread = max(float(np.trace(own)) / d, float(np.trace(noise)) / d, 1e-12)
    trust = N / (N + d)
    return np.asarray(trust * own + (1 - trust) * spread * np.eye(d))


def at_least(matrix: Array, floor: float) -> Array:
    """A symmetric matrix whose eigenvalues below ``floor`` are raised to it."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)


_BLOCK = 4096  # rows in double precision at once


class ClassMoments(NamedTuple):
    """What averaging leaves of a class when its rows were noised.

    Noise with mean 0 leaves class means unbiased, and noise that is independent from entry to
    entry adds its variance to the diagonal of the second moment and nothing else. Its law is
    public, so that term is subtracted. Over N rows the error of both falls as 1/√N.
    """

    counts: Array  #: (C,) rows of each class
    means: Array  #: (C, p) mean of y given the class
    seconds: Array | None  #: (C, p, p) mean of y yᵀ given the class, noise subtracted
    noise: Array  #: (p,) variance of the noise on each entry; zero without privacy


def class_moments(
    Y: Array, labels: Indices, n_classes: int, noise: Array, *, seconds: bool = True
) -> ClassMoments:
    """Moments of each class from noised rows.

    Parameters
    ----------
    Y : ndarray of shape (N, p)
        Rows as they came through the wall.
    labels : ndarray of shape (N,)
        Class numbers 0 … C − 1.
    n_classes : int
        C.
    noise : ndarray of shape (p,)
        Public variance of the noise on each entry.
    seconds : bool
        Whether the second moments are wanted: they take C p² numbers.

    Returns
    -------
    ClassMoments

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> clean = np.repeat([[1.0, 0.0]], 200_000, axis=0)
    >>> noised = clean + random.laplace(scale=2.0, size=clean.shape)
    >>> labels = np.zeros(len(clean), dtype=int)
    >>> class_moments(noised, labels, 1, np.full(2, 8.0)).seconds[0].round(0) + 0.0
    array([[1., 0.],
           [0., 0.]])
    """
    p = Y.shape[1]
    counts = np.bincount(labels, minlength=n_classes).astype(np.float64)
    means = np.zeros((n_classes, p))
    squares = np.zeros((n_classes, p, p)) if seconds else None
    for label in range(n_classes):
        mine = np.flatnonzero(labels == label)
        for start in range(0, len(mine), _BLOCK):
            part = np.asarray(Y[mine[start : start + _BLOCK]])
            means[label] += part.sum(axis=0, dtype=np.float64)
            if squares is not None:
                squares[label] += part.T @ part
        means[label] /= max(counts[label], 1)
        if squares is not None:
            squares[label] /= max(counts[label], 1)
            squares[label][np.diag_indices(p)] -= noise
    return ClassMoments(counts, means, squares, np.asarray(noise, np.float64))


def hull_densities(hulls: ClassHulls, counts: Array) -> tuple[ClassMixtures, ClassMoments]:
    """One Gaussian for each class, and its moments, in the coordinates of the hulls.

    Examples
    --------
    >>> import numpy as np
    >>> hulls = ClassHulls(np.eye(2), np.array([[1.0, 0.0]]), np.array([[4.0, 1.0]]),
    ...                    np.eye(2)[None], np.array([1.0]))
    >>> mixtures, moments = hull_densities(hulls, np.array([50.0]))
    >>> mixtures.covariances[0, 0].tolist(), moments.seconds[0].tolist()
    ([[4.0, 0.0], [0.0, 1.0]], [[5.0, 0.0], [0.0, 1.0]])
    """
    C, d = hulls.means.shape
    covariances = np.einsum("cij,cj,ckj->cik", hulls.vectors, hulls.values, hulls.vectors)
    seconds = covariances + hulls.means[:, :, None] * hulls.means[:, None, :]
    mixtures = ClassMixtures(
        np.zeros(d), np.eye(d), np.ones((C, 1)), hulls.means[:, None], covariances[:, None], counts
    )
    return mixtures, ClassMoments(counts, hulls.means, seconds, np.zeros(d))

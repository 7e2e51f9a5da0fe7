r"""Class hulls from moments: the distance to the hull of a class under a promise per person.

A kernel affine hull machine (document 004) with the linear kernel :math:`k(x, x') = x^Tx'` knows
the rows of a class only through their mean m and covariance Σ: the image of a point is
:math:`m + \Sigma(\Sigma + \lambda I)^{-1}(x - m)` (004 eq. 33), and 004 Theorem 1, which sets λ*,
needs the eigenvalues of Σ alone. So hulls can be learned from noised moments, and images,
distances, matching scores and all that is built on them are post-processing of one release.

This file has, in this order: the hulls, how they are learned from moments, and the classifier.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigh, solve_triangular
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from permea._arrays import Array
from permea.models.base import matching_scores
from permea.models.calibration import calibrate, class_shares
from permea.models.linear import LinearModel, score_moments
from permea.models.moment_estimator import LabelledMomentEstimator
from permea.privacy.moments import Moments
from permea.privacy.release import Release
from permea.privacy.rowwise import exp_of_negative, row_product, row_sums
from permea.privacy.scatter import ClassScatter

TEMPERATURES = tuple(2.0 ** (k / 2) for k in range(-7, 5))
"""Factors of half the squared distance whose losses are released, for the probabilities."""
_DRAWN = 10_000  # rows of all classes, to choose among temperatures that noise hides
_LEAST_VALUE = 0.3  # of the covariance of a class, in units of that within all classes
_SPREAD = 1.2  # in the same units
_TYPICAL_LENGTH = 1.05  # of rows about their class, beyond which they are shrunk
_MOST_STEPS = 100


@dataclass(frozen=True)
class ClassHulls:
    """The hull of every class in whitened coordinates x = Tᵀz.

    Attributes
    ----------
    transform : ndarray of shape (D, d)
        T: directions, divided by the standard deviation within classes.
    means : ndarray of shape (C, d)
        Class means.
    values, vectors : ndarray of shape (C, d) and (C, d, d)
        Eigenvalues and eigenvectors (columns) of the covariance of each class.
    regularization : ndarray of shape (C,)
        λ* of each class (004 Theorem 1).

    Examples
    --------
    >>> import numpy as np
    >>> flat = ClassHulls(np.eye(2), np.zeros((1, 2)), np.array([[0.0, 9.0]]), np.eye(2)[None],
    ...                   np.array([1.0]))
    >>> flat.images(np.array([[1.0, 1.0]]), 0).tolist()
    [[0.0, 0.9]]
    >>> flat.distances(np.array([[1.0, 1.0]])).round(4).tolist()
    [[1.005]]
    """

    transform: Array
    means: Array
    values: Array
    vectors: Array
    regularization: Array

    def encode(self, z: Array) -> Array:
        """Whitened coordinates of centred features."""
        return np.asarray(z @ self.transform)

    def decode(self, x: Array) -> Array:
        """The shortest centred features with these coordinates."""
        return np.asarray(np.linalg.lstsq(self.transform.T, x.T, rcond=None)[0].T)

    def images(self, x: Array, label: int) -> Array:
        """Images of points in the hull of one class, in the same coordinates."""
        kept = self.values[label] / (self.values[label] + self.regularization[label])
        rotated = (x - self.means[label]) @ self.vectors[label]
        return np.asarray(self.means[label] + (rotated * kept) @ self.vectors[label].T)

    def distances(self, x: Array, kind: str = "image") -> Array:
        """Distance of every point to every class, shape (n, C): see `HullClassifier`."""
        factors, offsets = self.factors(kind)
        squared = [
            np.square((x - mean) @ (vectors * np.sqrt(factor))).sum(axis=1) + offset
            for mean, vectors, factor, offset in zip(
                self.means, self.vectors, factors, offsets, strict=True
            )
        ]
        return np.asarray(np.sqrt(np.stack(squared, axis=1)))

    def factors(self, kind: str) -> tuple[Array, Array]:
        """Factors of the squared coordinates of each class, and what is added to their sum."""
        if kind == "image":
            share = self.regularization[:, None] / (self.values + self.regularization[:, None])
            return np.square(share), np.zeros(len(self.means))
        floor = min(float(self.values.min()), 1.0)
        return 1.0 / self.values, np.log(self.values / floor).sum(axis=1)

    def half_squares(self, z: Array, factors: Array, offsets: Array) -> Array:
        """Half the squared distances of rows z, each a function of its row alone.

        The last two are what `factors` gives.
        """
        x = row_product(np.asarray(z, np.float64), self.transform, limbs=2)
        columns = []
        for mean, vectors, factor, offset in zip(
            self.means, self.vectors, factors, offsets, strict=True
        ):
            rotated = row_product(x - mean, vectors)
            columns.append(0.5 * (row_sums(rotated * rotated * factor) + offset))
        return np.concatenate(columns, axis=1)

    def norm_bounds(self, radius: float) -> Array:
        """No image of a row of norm at most ``radius`` is longer than this, for each class.

        The linear counterpart of 004 Theorem 2: ‖A(x)‖ ≤ ‖m‖ + μ/(μ + λ*) (‖T‖ r + ‖m‖), with μ
        the largest eigenvalue.
        """
        lengths = np.linalg.norm(self.means, axis=1)
        largest = self.values.max(axis=1)
        longest = radius * float(np.linalg.norm(self.transform, 2))
        return np.asarray(lengths + largest / (largest + self.regularization) * (longest + lengths))

    def n_spread(self) -> int:
        """In how many coordinates a class varies by a fifth more than all classes, on average."""
        return max(1, round(float(np.sum(self.values > _SPREAD, axis=1).mean())))

    def draw(self, label: int, n_rows: int, rng: np.random.Generator) -> Array:
        """Rows of one class drawn from a Gaussian, with exactly its mean and covariance.

        The covariance is exact for more rows than there are coordinates, the mean for two or more.
        """
        normal = rng.normal(size=(n_rows, self.values.shape[1]))
        if n_rows > 1:
            normal -= normal.mean(axis=0)
        if n_rows > normal.shape[1] + 1:
            factor = cholesky(normal.T @ normal / n_rows, lower=True)
            normal = solve_triangular(factor, normal.T, lower=True).T
        return np.asarray(
            self.means[label] + (normal * np.sqrt(self.values[label])) @ self.vectors[label].T
        )


def hull_regularization(values: Array) -> float:
    r"""λ* of 004 Theorem 1 for the linear kernel, from the eigenvalues w of the covariance.

    With :math:`K = YY^T/N` the residual of 004 eq. (21) is
    :math:`R(e) = \frac1p\sum_i w_i \lambda^2/(w_i + \lambda)^2`, :math:`\lambda = e + \tau` and
    :math:`\tau = \frac2p\sum_i w_i` (004 eq. 24 and 28). Its fixed point is found by iteration.

    Examples
    --------
    >>> import numpy as np
    >>> found = hull_regularization(np.ones(4))
    >>> abs(found - 2 - (found / (1 + found)) ** 2) < 1e-9
    True
    """
    tau = 2.0 * float(values.mean())
    error = 0.0
    for _ in range(_MOST_STEPS):
        before, strength = error, error + tau
        error = float(np.mean(values * np.square(strength / (values + strength))))
        if abs(error - before) <= 1e-12 * tau:
            break
    return error + tau


def choose_directions(moments: Moments, model: LinearModel, most: int, radius: float) -> Array:
    """Directions (D + C, d) for the scatter of the classes about their means.

    They span the weights of the ridge model, where classes differ, and then eigenvectors of the
    released second moments whose eigenvalues exceed the spectral norm of the noise: fewer than
    ``most`` where the noise covers the rest. Each is scaled to the root of the deviation within
    classes, half way between rows as they are and whitened rows, and all of them so that rows of
    typical length reach the radius.
    """
    separating = _span(model.weights - model.weights.mean(axis=1, keepdims=True))[:, :most]
    values, vectors = eigh(moments.second, driver="evd", check_finite=False)
    floor = max(moments.noise_norm, 1e-9 * float(values[-1]))
    leading = vectors[:, ::-1][:, : min(most - separating.shape[1], int(np.sum(values > floor)))]
    P = np.hstack([separating, _span(leading - separating @ (separating.T @ leading))])
    means, second = _corrected(moments, P, model)
    whitening, variances = _whitened(moments, P, means, second)
    scales = variances**0.25
    scales *= radius / (_TYPICAL_LENGTH * np.linalg.norm(scales))
    return np.vstack([P @ whitening, -means @ whitening]) * scales


def _span(columns: Array) -> Array:
    """An orthonormal basis of the span of columns."""
    if columns.shape[1] == 0:
        return columns
    left, lengths, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(left[:, lengths > 1e-9 * max(float(lengths[0]), 1e-300)])


def learn_hulls(moments: Moments, scatter: ClassScatter, model: LinearModel) -> ClassHulls:
    """Hulls of all classes from released moments.

    The covariance within all classes whitens the directions. In whitened coordinates it is the unit
    matrix, and a class deviates from it by a matrix whose entries are drawn to 0 as far as they may
    be noise and sampling error (empirical Bayes, one variance of the deviations for each class).
    """
    counts, P = class_shares(moments) * moments.size, scatter.directions[: len(moments.second)]
    means, second = _corrected(moments, P, model)
    own = _about_means(scatter, means, counts, len(P))
    whitening, _ = _whitened(moments, P, means, second, scatter.noise, own)
    deviations = whitening.T @ (own / counts[:, None, None]) @ whitening
    deviations -= np.tensordot(counts / moments.size, deviations, 1)
    products = whitening.T @ whitening
    noises = np.outer(np.diag(products), np.diag(products)) + np.square(products)
    noises *= scatter.noise**2 / 2
    identity = np.eye(len(products))
    eigen = [
        eigh(
            identity + shrink_deviation(deviation, noises / count**2 + (1.0 + identity) / count),
            driver="evd",
        )
        for deviation, count in zip(deviations, counts, strict=True)
    ]
    kept = np.stack([np.maximum(found, _LEAST_VALUE) for found, _ in eigen])
    return ClassHulls(
        P @ whitening, means @ whitening, kept,
        np.ascontiguousarray(np.stack([axes for _, axes in eigen])),
        np.array([hull_regularization(w) for w in kept]),
    )  # fmt: skip


def _about_means(scatter: ClassScatter, means: Array, counts: Array, D: int) -> Array:
    """Scatter (C, d, d) of each class about its mean instead of the centre it was summed about."""
    offsets = means + (scatter.directions[D:] if len(scatter.directions) > D else 0.0)
    return np.asarray(
        scatter.second - counts[:, None, None] * offsets[:, :, None] * offsets[:, None, :]
    )


def _whitened(
    moments: Moments, P: Array, means: Array, second: Array, scatter_noise: float = math.inf,
    scatter: Array | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """A matrix (d, d) that whitens rows along P within classes, and variances (d,).

    The covariance within classes follows from the moments of all rows and from the scatter of the
    classes about their means, each entry weighted by the variance of its noise. The variances are
    those along orthonormal directions, with a multiple of what noise adds to them.
    """
    counts, size = class_shares(moments) * moments.size, moments.size
    within = second - (means.T * counts) @ means
    lengths = np.linalg.norm(P, axis=0)
    noise = np.square(moments.second_noise * np.outer(lengths, lengths))
    if scatter is not None:
        further = len(scatter) * scatter_noise**2
        weights = further / (noise + further) if further > 0 else np.ones_like(noise)
        within = weights * within + (1.0 - weights) * scatter.sum(axis=0)
        noise = weights * noise
    values, vectors = eigh((within + within.T) / 2, P.T @ P, driver="gvd")
    added = np.sqrt(2.0 * len(values) * np.diag(noise))
    values = (np.maximum(values, 0.0) + np.square(vectors).T @ added) / size
    values = np.maximum(values, 1e-4 * values.max() + np.finfo(np.float64).tiny)
    return np.asarray(vectors / np.sqrt(values)), values


def _corrected(moments: Moments, P: Array, model: LinearModel) -> tuple[Array, Array]:
    """Class means (C, d) and second moments (d, d) in the directions P.

    The weights of the ridge model were learned from the same noise. For the part of the directions
    that lies in their span, Stein's lemma corrects both (`permea.models.linear.score_moments`).
    """
    counts, size = class_shares(moments) * moments.size, moments.size
    weights = model.weights - model.weights.mean(axis=1, keepdims=True)
    mixing = np.linalg.pinv(weights, rcond=1e-9) @ P
    inner = weights @ mixing
    rest = P - inner
    scores, cross = score_moments(moments, model)
    centre = inner.T @ moments.total / size
    means = centre + (mixing.T @ cross).T * (size / counts)[:, None]
    means = means + (rest.T @ moments.cross / counts).T
    across = rest.T @ moments.second @ inner
    second = (mixing.T @ scores @ mixing + np.outer(centre, centre)) * size
    second = second + across + across.T + rest.T @ moments.second @ rest
    return np.asarray(means), np.asarray((second + second.T) / 2)


def shrink_deviation(deviation: Array, variance: Array) -> Array:
    """A deviation drawn to 0 entry by entry: variance t² of the truth, ``variance`` of its error.

    t² is the fixed point of the weighted mean of what the squares exceed the error by.
    """
    excess, truth = np.square(deviation) - variance, float(np.mean(np.square(deviation)))
    for _ in range(_MOST_STEPS):
        weights = 1.0 / np.square(variance + truth)
        before, truth = truth, max(float((excess * weights).sum() / weights.sum()), 1e-12)
        if abs(truth - before) <= 1e-6 * truth:
            break
    return np.asarray(deviation * truth / (truth + variance))


class _LossNumbers(NamedTuple):
    """What losses are computed with beside the hulls: one set of numbers for all rows."""

    factors: Array
    offsets: Array
    priors: Array
    odds: tuple[Array, Array] | None


def _brier(half: Array, targets: Array, priors: Array) -> Array:
    """Half the Brier score at each temperature, of half the squared distances."""
    half = half - half.min(axis=1, keepdims=True)
    columns = []
    for temperature in TEMPERATURES:
        powers = exp_of_negative(temperature * half) * priors
        errors = powers / row_sums(powers) - targets
        columns.append(0.5 * row_sums(errors * errors))
    return np.concatenate(columns, axis=1)


class HullClassifier(LabelledMomentEstimator):
    """Classify by the distance to the hull of each class, with a promise per record or person.

    Public features of every row leave the wall once, as noised moments: of all rows, and of each
    class in a few directions. From these follow a mean and a covariance of each class, in
    coordinates in which the covariance within all classes is the unit matrix, and the linear
    kernel affine hull machine of each class (document 004): image, distance, matching score.

    Parameters
    ----------
    privacy, schema, features, bins, expected_size, neighbours, classes, class_weight
        See :class:`permea.MomentClassifier`. ``features`` is "identity" by default: a covariance
        for each class bends the border between classes already.
    n_directions : int, default=80
        Most directions of the features in which the classes are described. Those that noise covers
        are left out.
    metric : {"image", "likelihood"}, default="image"
        "image" is the distance of a point to its image in the hull (004 Def. 2); "likelihood" is
        that of a Gaussian, the square root of -2 log density up to a constant.
    ridge_weight : float, default=0.0
        Weight of the log-odds of the ridge model that the same release gives, beside half the
        squared distance, in probabilities and `predict`; `distances` stay those of the hulls.
    radius : float, default=0.25
        Rows are shrunk to this norm after centring.
    split : (mean, second, cross, counts), default=(0.05, 0.45, 0.43, 0.07)
        Shares of that part of the budget which is for the moments of all rows. Before it, 0.32 of
        the budget goes to the scatter of the classes and 0.02 to the calibration.
    strength, feature_norm, ledger, dataset, random_state
        See :class:`permea.MomentClassifier`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
    hulls_ : ClassHulls
        Mean, covariance and λ* of each class.
    temperature_ : float
        Factor of half the squared distance in the log-probabilities, chosen by released losses.
    norm_bounds_ : ndarray of shape (C,)
        No image of a row is longer than this (004 Theorem 2).
    moments_ : permea.privacy.moments.Moments
    scatter_ : permea.privacy.scatter.ClassScatter
        What was released.
    certificate_ : permea.privacy.Certificate or None
    holds_private_rows_ : bool
    n_features_in_ : int

    See Also
    --------
    permea.MomentClassifier : ridge regression from the same kind of release.
    permea.KAHMClassifier : the machines of the document, with a Gaussian kernel.

    Notes
    -----
    The nearest class has the smallest of `distances`. `predict` names the most probable class,
    which is the same but for classes of unequal size and for ``class_weight``. More layers would
    not help: with a linear kernel the image of a narrower layer is never nearer.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from permea import Privacy
    >>> X, y = load_digits(return_X_y=True)
    >>> promise = Privacy(epsilon=8, delta=1e-5, unit="record", domain=(0, 16))
    >>> clf = HullClassifier(privacy=promise, features="identity", classes=range(10))
    >>> clf = clf.fit(X[:1200], y[:1200])
    >>> clf.score(X[1200:], y[1200:]) > 0.8, clf.certificate_.is_private
    (True, True)
    >>> clf.distances(X[:2]).shape, clf.images(X[:2], label=3).shape == clf.encode(X[:2]).shape
    ((2, 10), True)
    """

    def __init__(
        self,
        *,
        n_directions: int = 80,
        metric: str = "image",
        ridge_weight: float = 0.0,
        features: Any = "identity",
        split: tuple[float, float, float, float] = (0.05, 0.45, 0.43, 0.07),
        **shared: Any,
    ) -> None:
        super().__init__(features=features, split=split, **shared)
        self.n_directions = n_directions
        self.metric = metric
        self.ridge_weight = ridge_weight

    n_losses: int = len(TEMPERATURES)
    _sent: _LossNumbers | None = None  # what a worker got with its task

    def _declare_from(self, labels: NDArray[Any]) -> None:
        self._check_parameters()
        super()._declare_from(labels)

    def _declare(self, n_outputs: int) -> None:
        self._check_parameters()
        super()._declare(n_outputs)

    def _check_parameters(self) -> None:
        if self.metric not in ("image", "likelihood"):
            raise ValueError("metric must be 'image' or 'likelihood'.")
        if not 0 <= self.ridge_weight < math.inf:
            raise ValueError("ridge_weight must be a number of at least 0.")
        if not isinstance(self.n_directions, int | np.integer) or self.n_directions < 1:
            raise ValueError("n_directions must be a whole number of at least 1.")

    # ---- learning from what was released ---------------------------------------------------------

    def choose_directions(self, moments: Moments, most: int) -> Array:
        """Directions (D + C, d) for the scatter of the classes, from what was released."""
        return choose_directions(moments, self._model(moments), most, self.radius)

    def learn(self, released: Release) -> Self:
        """Learn from a release: all of it is post-processing."""
        if released.scatter is None:
            raise ValueError("HullClassifier learns from a release with the scatter of classes.")
        super().learn(released)
        self.scatter_ = released.scatter
        self.hulls_ = learn_hulls(self.moments_, self.scatter_, self.model_)
        self.norm_bounds_ = self.hulls_.norm_bounds(self.radius)
        self.temperature_ = TEMPERATURES[self._likely_temperature()]
        return self

    def _likely_temperature(self) -> int:
        """Place of the temperature with the smallest loss on rows drawn from the hulls."""
        C = len(self.classes_)
        rng, n_rows = np.random.default_rng(0), max(20, _DRAWN // C)
        losses = np.zeros(len(TEMPERATURES))
        for label in range(C):
            codes = self.hulls_.draw(label, n_rows, rng)
            half = np.square(self.hulls_.distances(codes, self.metric)) / 2
            targets = np.repeat(np.eye(C)[[label]], n_rows, axis=0)
            losses += self._priors[label] * _brier(half, targets, self._priors).sum(axis=0)
        return int(losses.argmin())

    def calibrate(self, losses: Array, noise: float) -> None:
        """Choose the temperature by sums of losses; ``noise`` is the deviation of their noise.

        Of those whose loss cannot be told from the smallest, it is the one nearest to the best for
        rows that are drawn from the hulls.
        """
        good = np.flatnonzero(losses <= losses.min() + 3.0 * noise)
        likely = self._likely_temperature()
        self.temperature_ = TEMPERATURES[int(good[np.abs(good - likely).argmin()])]

    def _worker(self) -> Self:
        """A copy with the numbers of its losses: another machine may round logarithms otherwise."""
        worker = super()._worker()
        if hasattr(self, "hulls_"):
            worker._sent = self._loss_numbers()
        return worker

    def _loss_numbers(self) -> _LossNumbers:
        """All numbers of the losses that take more than exact arithmetic to compute."""
        odds = self._ridge_odds() if self.ridge_weight else None
        return _LossNumbers(*self.hulls_.factors(self.metric), self._priors, odds)

    def _losses(self, z: Array, targets: Array) -> Array:
        """Half the Brier score of each row at each temperature, in [0, 1]."""
        numbers = self._loss_numbers() if self._sent is None else self._sent
        return _brier(self._half_squares(z, numbers), targets, numbers.priors)

    # ---- answers ---------------------------------------------------------------------------------

    @property
    def _priors(self) -> Array:
        return class_shares(self.moments_)

    def _ridge_odds(self) -> tuple[Array, Array]:
        """Weights (D, C) and offsets (C,) of the ridge model's part of the log-probabilities."""
        found = calibrate(self.moments_, self.model_)
        offsets = found.offsets - np.log(found.priors) + self.model_.intercept @ found.slopes
        return (
            self.ridge_weight * self.model_.weights @ found.slopes,
            self.ridge_weight * offsets,
        )

    def _half_squares(self, z: Array, numbers: _LossNumbers) -> Array:
        """Half the squared distances, less the ridge model's part, each of its row alone."""
        half = self.hulls_.half_squares(z, numbers.factors, numbers.offsets)
        if numbers.odds is None:
            return half
        weights, offsets = numbers.odds
        return np.asarray(half - row_product(np.asarray(z, np.float64), weights, 2) - offsets)

    def _log_posterior(self, X: Any) -> Array:
        weights, offsets = self._ridge_odds()
        half = [
            0.5 * np.square(self.hull_distances(self.hulls_.encode(z))) - z @ weights - offsets
            for z, _ in self._scores(X)
        ]
        return np.asarray(np.log(self._priors) - self.temperature_ * np.concatenate(half))

    def encode(self, X: Any) -> Array:
        """Whitened coordinates of rows, shape (n, d): where the hulls are."""
        check_is_fitted(self, "hulls_")
        return np.concatenate([self.hulls_.encode(z) for z, _ in self._scores(X)])

    def distances(self, X: Any) -> Array:
        """Distance of each row to each class, shape (n, C) (004 Def. 6)."""
        return self.hull_distances(self.encode(X))

    def hull_distances(self, codes: Array) -> Array:
        """The same for rows that `encode` gave."""
        return self.hulls_.distances(codes, self.metric)

    def draw(
        self, n_rows: int, *, random_state: Any = None
    ) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Rows of each class, in the coordinates of `encode`, and their labels.

        They are Gaussian with exactly the mean and covariance of their class. Nothing but the
        release is read, so a seed here does not concern the promise.
        """
        check_is_fitted(self, "hulls_")
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        rows = [self.hulls_.draw(label, n_rows, rng) for label in range(len(self.classes_))]
        return np.concatenate(rows), np.repeat(self.classes_, n_rows)

    def winning_distances(self, X: Any) -> Array:
        """`distances`; they cost no more than the smallest of them."""
        return self.distances(X)

    def images(self, X: Any, *, label: Any) -> Array:
        """Images of rows in the hull of one class, in the coordinates of `encode`."""
        codes = self.encode(X)
        return self.hulls_.images(codes, int(self._places([label])[0]))

    def matching_scores(self, X: Any) -> Array:
        """Class-matching scores exp(-Γ_c² / Σ_c Γ_c²) (004 Def. 8), between 1/e and 1."""
        return matching_scores(self.distances(X))

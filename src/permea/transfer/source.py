"""Class densities behind known noise: Gaussian mixtures with the noise taken out of each part.

A noised row is y = x + v with v independent of x and of known covariance. If x is a mixture of
Gaussians N(μ_k, Σ_k), then y is, up to the shape of v, a mixture of N(μ_k, Σ_k + cov(v)) with the
same responsibilities. So a mixture is learned from the noised rows by expectation maximisation,
and cov(v) is subtracted from each of its covariances. What is left describes rows without noise.
"""

import math
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array, Indices
from permea._parallel import run_parallel
from permea._validate import Accepted, instance, jobs, random_state, validate_parameters, whole
from permea.compose import KAHMClassifier, ReconstructionClassifier
from permea.privacy import Ledger, Privacy
from permea.privacy.estimator import PrivateEstimator
from permea.transfer.alignment import principal_directions

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


class SourceModel(PrivateEstimator, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Everything about a labelled source that a target can learn from, and no row of it.

    The rows are noised once. From the noised rows alone come: a classifier (000 Alg. 6), the
    latent directions V⁺ (000 §4.2, 001 §1.3.2), the class centres in them (000 eq. 118), and the
    first and second moments of each class with the known noise subtracted. All of it is
    post-processing of one release, so it is one entry in the ledger.

    Parameters
    ----------
    privacy : permea.privacy.Privacy, default=None
        Guarantee with which the rows are perturbed before anything else sees them. None keeps the
        rows as they are, and the artefact then contains them.
    classifier : classifier of this library, default=None
        Unfitted classifier of any family; `KAHMClassifier` when None. Its own ``privacy`` must be
        None: the noise is added here.
    moments_limit : int, default=1024
        Second moments are kept for at most this many features (they take C·p² numbers).
    ledger : permea.privacy.Ledger, default=None
        Account that is charged before the rows are read.
    dataset : str, default=None
        Name of the rows in the ledger. Rows without a name count against every data set.
    n_jobs : int, default=None
        Workers, as joblib counts them, for a classifier that does not say.
    random_state : int, RandomState instance or None, default=None
        For reproducible (hence not private) noise, and for k-means.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Class labels.
    classifier_ : fitted classifier
        Learned from the noised rows.
    directions_ : ndarray of shape (⌈p/2⌉, p)
        V⁺, orthonormal rows; fewer where the rows do not vary in more directions.
    centres_ : ndarray of shape (C, ⌈p/2⌉)
        Median of V⁺y⁺ in each class (000 eq. 118).
    mixtures_ : tuple of permea.transfer.source.ClassMixtures
        Gaussian mixtures of each class from several starts, noise subtracted; empty where the
        noise drowns everything.
    moments_ : permea.transfer.source.ClassMoments
        Moments of each class, noise subtracted.
    certificate_ : permea.privacy.Certificate or None
        What is promised, to whom, about what.
    holds_private_rows_ : bool
        Whether the training rows can be read out of this object.
    n_features_in_ : int
        Number of features p.

    See Also
    --------
    TransferClassifier : what the receiver does with it.

    Examples
    --------
    >>> from permea import Privacy
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> X = X / 16
    >>> source = SourceModel(privacy=Privacy(epsilon=4, delta=1e-5, domain=(0, 1))).fit(X, y)
    >>> source.directions_.shape, source.centres_.shape
    ((32, 64), (10, 32))
    >>> source.certificate_.is_private, source.holds_private_rows_
    (True, False)
    """

    _parameters: ClassVar[Accepted] = {
        "privacy": instance(Privacy) | None,
        "classifier": instance(ReconstructionClassifier) | None,
        "moments_limit": whole(0),
        "ledger": instance(Ledger) | None,
        "dataset": instance(str) | None,
        "n_jobs": jobs,
        "random_state": random_state,
    }

    def __init__(
        self,
        *,
        privacy: Privacy | None = None,
        classifier: Any = None,
        moments_limit: int = 1024,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.privacy = privacy
        self.classifier = classifier
        self.moments_limit = moments_limit
        self.ledger = ledger
        self.dataset = dataset
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Noise the rows and learn from what came through the wall.

        Parameters
        ----------
        X : array-like of shape (N, p)
            Source rows.
        y : array-like of shape (N,)
            Class labels; entry-level noise does not protect them.
        groups : array-like of shape (N,), optional
            Whose each row is; needed for a promise per person.

        Returns
        -------
        SourceModel
            This artefact, fitted.
        """
        validate_parameters(self)
        charged = self._charge(X, "source of a transfer", groups)
        rows, targets = self._read(X, y, check_outputs=check_classification_targets)
        classifier = self._unfitted(rows.shape[1])
        self.classes_, labels = np.unique(targets, return_inverse=True)
        n_classes = len(self.classes_)
        if n_classes < 2 and not classifier.allow_single_class:
            raise ValueError("SourceModel got one class only. Give rows of at least two classes.")
        released = self._release(charged, rows, n_classes).add_step(
            "classifier, directions, centres and moments were learned from the noised rows"
        )
        del X, rows  # from here on there is only what was released
        no_noise = np.zeros(released.data.shape[1])
        self.noise_ = no_noise if charged is None else np.asarray(released.noise_variance)
        self._learn(released.data, labels, n_classes)
        self.classifier_ = classifier.learn(released, targets)
        self._certify(released)
        return self

    def _unfitted(self, n_features: int) -> Any:
        """The classifier to learn."""
        chosen = self.classifier
        if chosen is None:
            most = max(min(20, n_features), 1)  # 000 §5: min(20, p_sr)
            chosen = KAHMClassifier(n_components=most, n_layers=min(5, most), n_jobs=self.n_jobs)
        if chosen.privacy is not None or chosen.fabricate is not False:
            raise ValueError(
                "The classifier of a SourceModel gets rows that are noised already. Leave its "
                "privacy and fabricate at their defaults and give privacy to SourceModel."
            )
        made = clone(chosen)
        if made.random_state is None and self.random_state is not None:
            made.set_params(random_state=self._seed())
        return made

    def _seed(self) -> int:
        """Seed for k-means; the noise does not come from it."""
        if self.random_state is None:
            return 0
        return int(check_random_state(self.random_state).randint(2**31 - 100))

    def _learn(self, data: Array, labels: NDArray[np.intp], n_classes: int) -> None:
        """Directions, centres (000 eq. 118), mixtures and moments of the noised rows."""
        p = data.shape[1]
        self.directions_ = principal_directions(data, math.ceil(p / 2))
        codes = data @ self.directions_.T
        each = [np.median(codes[labels == label], axis=0) for label in range(n_classes)]
        self.centres_ = np.stack(each)
        seconds = p <= self.moments_limit
        self.mixtures_ = fit_mixtures(
            data,
            labels,
            n_classes,
            self.directions_,
            self.noise_,
            n_jobs=self.n_jobs,
            seed=self._seed(),
        )
        self.moments_ = class_moments(data, labels, n_classes, self.noise_, seconds=seconds)

    def distances(self, X: ArrayLike) -> Array:
        """Distance of each row of the source space to each class, shape (m, C)."""
        rows = self._checked(X)
        return np.asarray(self.classifier_.distances(rows))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each row of the source space."""
        rows = self._checked(X)
        return np.asarray(self.classifier_.predict(rows))

    def predict_proba(self, X: ArrayLike) -> Array:
        """Class-matching scores divided by their sum (not calibrated)."""
        rows = self._checked(X)
        return np.asarray(self.classifier_.predict_proba(rows))

    def _checked(self, X: ArrayLike) -> Array:
        check_is_fitted(self, "classifier_")
        return np.asarray(validate_data(self, X, dtype=[np.float64, np.float32], reset=False))

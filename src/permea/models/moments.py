"""Estimators that learn from moments: the rows leave once, as noised sums of public features.

What is learned from the sums is in :mod:`permea.models.linear`.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import add
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array
from permea._parallel import batches
from permea.models.features import (
    Chain,
    FeatureMap,
    OrientedGradients,
    RandomFourier,
    ScaledIdentity,
    map_rows,
)
from permea.models.linear import RIDGE_STRENGTH, LinearModel, bayesian, ridge
from permea.privacy import Ledger, Privacy
from permea.privacy.estimator import FLOATS, PrivateEstimator
from permea.privacy.moments import (
    ChargedMoments,
    FeatureSums,
    MomentPlan,
    Moments,
    MomentSums,
    Neighbours,
    Outputs,
    Split,
    plan_moments,
    sum_features,
    sum_moments,
)
from permea.privacy.release import Release, read_after_charge, table_shape
from permea.privacy.rowwise import shrink_rows

Chunks = Callable[[], Iterable[tuple[ArrayLike, ArrayLike]]]
_KEPT_BYTES = 1 << 29  # features of the first pass that are kept for the second


def feature_map(features: str | Any, domain: tuple[ArrayLike, ArrayLike], n_columns: int) -> Any:
    """The public map that a name or a transformer stands for, ready for rows of ``n_columns``.

    Maps of :mod:`permea.models.features` are told the number of columns. Any other transformer
    must have been fitted already, on public data: it is used as it is and never fitted here.
    """
    named: dict[str, Callable[[], FeatureMap]] = {
        "identity": lambda: ScaledIdentity(domain=domain),
        "fourier": lambda: Chain(
            [ScaledIdentity(domain=domain), RandomFourier(n_frequencies=300, scale=2.0)]
        ),
        "gradients": lambda: Chain([OrientedGradients(), RandomFourier(scale=2.0)]),
    }
    if isinstance(features, str):
        if features not in named:
            raise ValueError(f"features must be one of {sorted(named)} or a transformer.")
        return named[features]().fit_columns(n_columns)
    if isinstance(features, FeatureMap):
        return clone(features).fit_columns(n_columns)
    if not hasattr(features, "transform"):
        raise TypeError("features must be a name or an object with a method `transform`.")
    return features


def column_range(chunks: Chunks) -> tuple[Array, Array]:
    """Range of every column, for learning without a promise; a constant column gets a width."""
    lows, highs = zip(*((np.min(X, axis=0), np.max(X, axis=0)) for X, _ in chunks()), strict=True)
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    return low, np.where(high > low, high, low + 1.0)


_CHUNK = 4096  # rows mapped at once


class _MappedChunks:
    """Features and outputs of chunks of rows, for two passes; half a gibibyte of them is kept."""

    def __init__(self, chunks: Chunks, transform: Callable[[Array], Array], keep: bool) -> None:
        self._chunks, self._transform, self._keep = chunks, transform, keep
        self._kept: list[tuple[Array, ArrayLike]] | None = None

    def __iter__(self) -> Iterator[tuple[Array, ArrayLike]]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[tuple[Array, ArrayLike]] = []
        size = 0
        for X, y in self._chunks():
            phi = self._transform(np.asarray(X))
            size += phi.nbytes
            self._keep = self._keep and size <= _KEPT_BYTES
            kept = [*kept, (phi, y)] if self._keep else []
            yield phi, y
        self._kept = kept if self._keep else None


class _MomentEstimator(PrivateEstimator, BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: features, the release, and the learning after it."""

    _outputs: Outputs

    def __init__(
        self,
        *,
        privacy: Privacy | None = None,
        features: Any = "fourier",
        neighbours: Neighbours = "replace",
        radius: float = 0.25,
        feature_norm: float = 1.0,
        split: tuple[float, float, float, float] = tuple(Split()),  # type: ignore[assignment]
        strength: float = RIDGE_STRENGTH,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        random_state: Any = None,
    ) -> None:
        self.privacy = privacy
        self.features = features
        self.neighbours = neighbours
        self.radius = radius
        self.feature_norm = feature_norm
        self.split = split
        self.strength = strength
        self.ledger = ledger
        self.dataset = dataset
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from rows X and their outputs y: labels, or numbers of shape (n,) or (n, q).

        With ``privacy`` the ledger is charged before a value is read, and the rows are released
        once, as moments.
        """
        charged = self._charge_moments(X, y)
        rows, outputs = self._read(X, y, **self._checks)
        if charged is None:
            self._declare_from(outputs)

        def chunks() -> Iterator[tuple[Array, NDArray[Any]]]:
            for part in batches(len(rows), _CHUNK):
                yield rows[part], outputs[part]

        return self._fit_chunks(chunks, charged, keep=True)

    def fit_chunks(self, chunks: Chunks, *, keep: bool = False) -> Self:
        """Learn from more rows than fit into memory.

        Parameters
        ----------
        chunks : callable
            Called without arguments, twice, for an iterator over (X, y) with the same rows.
        keep : bool
            Keep the features of the first pass, where half a gibibyte suffices.
        """
        X, y = next(iter(chunks()), ((), ()))
        table_shape(X)
        charged = self._charge_moments(X, y, fingerprint=False)
        if charged is None:
            self._declare(_n_numbers(y))
            self.n_features_in_ = np.shape(X)[1]

        def checked() -> Iterator[tuple[Array, ArrayLike]]:
            for X, y in chunks():
                yield self._rows(X), y

        return self._fit_chunks(checked, charged, keep)

    def _charge_moments(
        self, X: Any, y: ArrayLike, fingerprint: bool = True
    ) -> ChargedMoments | None:
        """Plan the release from what is public, and charge it before the rows are read."""
        self._start()
        if self.privacy is None:
            return None
        plan = self.prepare(table_shape(X)[1], _n_numbers(y))
        return ChargedMoments(
            plan, random_state=self.random_state, ledger=self.ledger, dataset=self.dataset,
            description=f"noised moments of {plan.n_features} features",
            rows=X if fingerprint else None,
        )  # fmt: skip

    def _fit_chunks(self, chunks: Chunks, charged: ChargedMoments | None, keep: bool) -> Self:
        """Two passes over chunks of rows: the mean, then the moments about the noised mean."""
        if charged is None:
            return self._learn_exactly(chunks)
        mapped, plan = _MappedChunks(chunks, self._map, keep), charged.plan
        first = read_after_charge(
            lambda: reduce(add, (sum_features(phi, plan) for phi, _ in mapped))
        )
        mean = charged.release_mean(first)

        def second() -> MomentSums:
            parts = ((self._centre(phi, mean), self._targets(y)) for phi, y in mapped)
            return reduce(add, (sum_moments(z, targets, plan) for z, targets in parts))

        return self.learn(charged.release(read_after_charge(second)))

    def _learn_exactly(self, chunks: Chunks) -> Self:
        """The same learning from exact moments, when no privacy is asked for."""
        self.map_ = feature_map(self.features, column_range(chunks), self.n_features_in_)
        mapped = _MappedChunks(chunks, self._map, True)
        sums = ((phi.sum(axis=0, dtype=np.float64), len(phi)) for phi, _ in mapped)
        total, count = reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), sums)
        mean = np.asarray(total / count)

        def moments(phi: Array, y: ArrayLike) -> Moments:
            z, targets = self._centre(phi.astype(np.float64), mean), self._targets(y)
            return Moments.of(z, targets if self._outputs == "classes" else targets[:, 1:])

        exact = reduce(add, (moments(phi, y) for phi, y in mapped))
        return self.learn(Release(moments=exact, mean=mean))

    def _rows(self, X: ArrayLike) -> Array:
        """Rows of a part of the data, checked after the charge."""
        return np.asarray(
            read_after_charge(lambda: validate_data(self, X, dtype=FLOATS, reset=False))
        )

    # ---- the same in three steps, for rows that are held by several parties ---------------------

    def prepare(self, n_columns: int, n_outputs: int = 1) -> MomentPlan:
        """Fix everything public (features, outputs, noise) without looking at a row.

        Parameters
        ----------
        n_columns : int
            Columns of the rows.
        n_outputs : int, default=1
            Numbers to be predicted; a classifier has its declared ``classes`` instead.
        """
        if self.privacy is None or self.privacy.domain is None:
            raise ValueError("A release of moments needs privacy=Privacy(…, unit='record').")
        self._declare(n_outputs)
        self.n_features_in_ = n_columns
        self.map_ = feature_map(self.features, self.privacy.domain, n_columns)
        n_features = self._map(np.zeros((1, n_columns))).shape[1]
        return plan_moments(
            self.privacy, n_features, self._n_outputs(), outputs=self._outputs,
            neighbours=self.neighbours, radius=self.radius, feature_norm=self._norm(),
            split=self.split,
        )  # fmt: skip

    def feature_sums(self, X: ArrayLike, plan: MomentPlan) -> FeatureSums:
        """Exact sum of the features of rows, for the mean. Private: it must be noised."""
        rows = self._rows(X)
        parts = (rows[part] for part in batches(len(rows), _CHUNK))
        return read_after_charge(
            lambda: reduce(add, (sum_features(self._map(part), plan) for part in parts))
        )

    def moment_sums(self, X: ArrayLike, y: ArrayLike, mean: Array, plan: MomentPlan) -> MomentSums:
        """Exact moments of rows about a noised mean. Private: they must be noised."""
        rows, centre = self._rows(X), np.asarray(mean)

        def sums(part: slice) -> MomentSums:
            z = self._centre(self._map(rows[part]), centre)
            return sum_moments(z, self._targets(np.asarray(y)[part]), plan)

        return read_after_charge(lambda: reduce(add, map(sums, batches(len(rows), _CHUNK))))

    def learn(self, released: Release) -> Self:
        """Learn from a release: all of it is post-processing."""
        self._certify(released)
        self.moments_, self.mean_ = released.moments, released.mean
        self.model_ = self._model(released.moments)
        return self

    def _norm(self) -> float:
        own = self.map_.norm_bound_ if isinstance(self.map_, FeatureMap) else self.feature_norm
        return float(own)

    def _map(self, X: Array) -> Array:
        """Features of rows that were clipped to the declared domain, each of its row alone."""
        if self.privacy is None:
            return np.asarray(self.map_.transform(X))
        lows, highs = self.privacy.lows(X.shape[1]), self.privacy.highs(X.shape[1])
        return map_rows(self.map_, np.clip(np.asarray(X, dtype=np.float64), lows, highs))

    def _centre(self, phi: Array, mean: Array) -> Array:
        """z: features about the noised mean, shrunk to the public radius."""
        z = shrink_rows(phi, self._norm())
        z -= mean
        return shrink_rows(z, self.radius)

    def _model(self, moments: Moments) -> LinearModel:
        return ridge(moments, strength=self.strength)

    def _scores(self, X: ArrayLike) -> Iterator[tuple[Array, Array]]:
        """Features and linear outputs, batch by batch."""
        check_is_fitted(self, "model_")
        queries = validate_data(self, X, dtype=FLOATS, reset=False)
        for rows in batches(queries.shape[0], _CHUNK):
            z = self._centre(self._map(queries[rows]), self.mean_)
            yield z, self.model_.predict(z)


def _n_numbers(y: ArrayLike) -> int:
    """Number of outputs of a row, from the shape alone; rows of different lengths have one."""
    try:
        shape = getattr(y, "shape", None) or np.shape(y)
    except ValueError:
        return 1
    return shape[1] if len(shape) == 2 else 1


class MomentClassifier(ClassifierMixin, _MomentEstimator):  # type: ignore[misc]
    """A classifier that hides whole records: ridge regression from moments noised once.

    Public features of every row, centred at a noised mean and clipped to a radius; their second
    moments and their cross moments with class indicators leave the wall once, with Gaussian noise
    on a grid; everything after that is post-processing (001 eq. 1.49: the rows enter a membership
    mapping only through these two matrices).

    Parameters
    ----------
    privacy : permea.privacy.Privacy, optional
        With ``unit="record"`` and δ > 0. None learns from exact moments, without any promise.
    features : {"fourier", "gradients", "identity"} or transformer, default="fourier"
        A public map of one row: see :mod:`permea.models.features`. "gradients" is for images.
    neighbours : {"replace", "add/remove"}, default="replace"
        How neighbouring data sets differ; part of the certificate. Replacing is what
        ``unit="record"`` says elsewhere; DP-SGD libraries mostly speak of add/remove.
    classes : sequence
        The public set of labels, declared and never read from the rows: which labels occur is
        protected. Needed with ``privacy``; without it, the labels that occur.
    radius : float, default=0.25
        Rows are shrunk to this norm after centring. Small radii keep little but the direction
        from the mean, and need less noise.
    feature_norm : float, default=1.0
        Public norm to which rows of a foreign transformer are shrunk.
    split : (mean, second, cross, counts), default=(0.03, 0.47, 0.48, 0.02)
        Shares of the budget.
    strength : float, default=0.2
        Ridge per spectral norm of the noise.
    ledger : permea.privacy.Ledger, optional
        Charged once, before the rows are read; errors about the rows come after that. Its record
        is a replaced row, so add/remove is charged for what it costs when a row is replaced.
    dataset : str, optional
        Name of the rows in the ledger. Rows without a name count against every data set.
    random_state : int, RandomState or None
        Anything but None makes the noise repeatable, hence not private; the certificate says so.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
    certificate_ : permea.privacy.Certificate or None
    moments_ : permea.privacy.moments.Moments
        What was released.
    model_ : permea.models.linear.LinearModel
    holds_private_rows_ : bool
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> promise = Privacy(epsilon=8, delta=1e-5, unit="record", domain=(0, 16))
    >>> clf = MomentClassifier(privacy=promise, features="identity", classes=range(10))
    >>> clf = clf.fit(X[:1200], y[:1200])
    >>> clf.score(X[1200:], y[1200:]) > 0.8, clf.certificate_.is_private
    (True, True)
    """

    _outputs: Outputs = "classes"
    _checks: ClassVar[dict[str, Any]] = {}

    def __init__(self, *, classes: ArrayLike | None = None, **shared: Any) -> None:
        super().__init__(**shared)
        self.classes = classes

    def _declare_from(self, labels: NDArray[Any]) -> None:
        check_classification_targets(labels)
        self._set_classes(labels if self.classes is None else self.classes)

    def _declare(self, n_outputs: int) -> None:
        if self.classes is None:
            raise ValueError(
                "classes is missing. Which labels occur is protected with the rows: declare the "
                "public set of labels, e.g. classes=['healthy', 'ill'], never read it off the data."
            )
        self._set_classes(self.classes)

    def _set_classes(self, labels: ArrayLike) -> None:
        self.classes_ = np.unique(np.asarray(labels))
        if len(self.classes_) < 2:
            raise ValueError(
                f"The number of classes has to be greater than one; got {len(self.classes_)} class"
            )

    def _n_outputs(self) -> int:
        return len(self.classes_)

    def _targets(self, y: ArrayLike) -> Array:
        labels = np.asarray(y)
        places = np.searchsorted(self.classes_, labels)
        places = np.minimum(places, len(self.classes_) - 1)
        if not np.all(self.classes_[places] == labels):
            raise ValueError("y holds labels that are not among the declared classes.")
        return np.eye(len(self.classes_))[places]

    def decision_function(self, X: ArrayLike) -> Array:
        """Regression on the class indicators; for two classes the difference."""
        scores = np.concatenate([scores for _, scores in self._scores(X)])
        return np.asarray(scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Scores cut at a small positive number and divided by their sum; not calibrated."""
        scores = np.concatenate([scores for _, scores in self._scores(X)]).astype(np.float64)
        # a floor that keeps the order of negative scores
        low = np.where(scores > 1e-3, scores, 1e-3 * np.exp(np.minimum(scores / 1e-3 - 1.0, 0.0)))
        return np.asarray(low / low.sum(axis=1, keepdims=True))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class with the largest score."""
        places = np.concatenate([scores.argmax(axis=1) for _, scores in self._scores(X)])
        labels: NDArray[Any] = self.classes_[places]
        return labels


class MomentRegressor(RegressorMixin, _MomentEstimator):  # type: ignore[misc]
    """A regressor that hides whole records, with an uncertainty that includes the noise.

    Parameters
    ----------
    privacy, features, neighbours, feature_norm, split, ledger, dataset, random_state
        See :class:`MomentClassifier`.
    radius : float, default=0.5
        Larger than for classification: the length of a row tells about its output.
    output_domain : (low, high), optional
        The public range of the outputs, numbers or one number per output; needed with privacy.
        Outputs outside are clipped.
    inference : {"bayes", "ridge"}, default="bayes"
        Bayesian regression from noised moments, or ridge as in :class:`MomentClassifier`.
    strength : float
        For ``inference="ridge"``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((4000, 2)); y = X[:, 0] - 0.5 * X[:, 1] + 0.05 * rng.normal(size=4000)
    >>> promise = Privacy(epsilon=2, delta=1e-5, unit="record", domain=(0, 1))
    >>> model = MomentRegressor(privacy=promise, features="identity", output_domain=(-1, 1))
    >>> model.fit(X, y).score(X, y) > 0.8
    True
    >>> mean, std = model.predict(X[:3], return_std=True)
    >>> bool(np.all((0.03 < std) & (std < 0.3)))
    True
    """

    _outputs: Outputs = "numbers"
    _checks: ClassVar[dict[str, Any]] = {"multi_output": True, "y_numeric": True}

    def __init__(
        self,
        *,
        output_domain: tuple[ArrayLike, ArrayLike] | None = None,
        inference: str = "bayes",
        radius: float = 0.5,
        **shared: Any,
    ) -> None:
        super().__init__(radius=radius, **shared)
        self.output_domain = output_domain
        self.inference = inference

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from rows X and outputs y of shape (n,) or (n, q); see `MomentClassifier.fit`."""
        if self.inference not in ("bayes", "ridge"):
            raise ValueError("inference must be 'bayes' or 'ridge'.")
        return super().fit(X, y)

    def _read(self, *given: Any, **checks: Any) -> tuple[Array, NDArray[Any]]:
        rows, outputs = super()._read(*given, **checks)
        self._one_output = outputs.ndim == 1
        return rows, outputs

    def _declare_from(self, outputs: NDArray[Any]) -> None:
        self._read_range(outputs.reshape(len(outputs), -1).astype(np.float64))

    def _read_range(self, outputs: Array) -> None:
        q = outputs.shape[1]
        if self.output_domain is None and self.privacy is not None:
            raise ValueError(
                "output_domain is missing. Declare the public range of the outputs, e.g. "
                "output_domain=(0, 100); never read it off the data."
            )
        ends = (
            (outputs.min(0), outputs.max(0)) if self.output_domain is None else self.output_domain
        )
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (q,)) for end in ends)
        if self.output_domain is not None and not np.all(low < high):
            raise ValueError("output_domain needs low < high for every output.")
        self._middle, half = (low + high) / 2, (high - low) / 2
        self._unit = np.where(half > 0, half, 1.0) * np.sqrt(q)

    def _declare(self, n_outputs: int) -> None:
        self._one_output = n_outputs == 1
        self._read_range(np.empty((0, n_outputs)))

    def _n_outputs(self) -> int:
        return 1 + len(self._middle)

    def _targets(self, y: ArrayLike) -> Array:
        outputs = np.asarray(y, dtype=np.float64).reshape(len(np.asarray(y)), -1)
        scaled = (outputs - self._middle) / self._unit
        if self.privacy is not None:
            box = 1.0 / np.sqrt(len(self._middle))
            scaled = np.clip(scaled, -box, box)
        return np.hstack([np.ones((len(scaled), 1)), scaled])

    def _model(self, moments: Moments) -> LinearModel:
        return bayesian(moments) if self.inference == "bayes" else super()._model(moments)

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Outputs, and with ``return_std`` their predictive standard deviation ("bayes" only)."""
        parts = list(self._scores(X))
        mean = np.concatenate([out for _, out in parts]) * self._unit + self._middle
        shape = (-1,) if self._one_output else mean.shape
        if not return_std:
            return mean.reshape(shape)
        variance = np.concatenate([self.model_.variance(z) for z, _ in parts])
        return mean.reshape(shape), (np.sqrt(variance) * self._unit).reshape(shape)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

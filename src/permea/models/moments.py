"""Estimators that learn from moments: the rows leave once, as noised sums of public features.

What is learned from the sums is in :mod:`permea.models.linear`.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import partial, reduce
from operator import add, mul
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array
from permea._parallel import add_up, batches, sum_parts
from permea.models.calibration import Calibration, calibrate
from permea.models.explanation import Effect, explain
from permea.models.features import (
    Chain,
    FeatureMap,
    OrientedGradients,
    RandomFourier,
    ScaledIdentity,
    map_rows,
)
from permea.models.linear import (
    MAP_STRENGTH,
    RIDGE_STRENGTH,
    SIGNAL_LIMIT,
    LinearModel,
    bayesian,
    ridge,
    signal_to_noise,
)
from permea.models.logistic import N_STEPS, Logits, Newton
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
    count_rows,
    plan_moments,
    row_weights,
    sum_features,
    sum_gradients,
    sum_moments,
)
from permea.privacy.people import count_people
from permea.privacy.release import Release, read_after_charge, table_shape
from permea.privacy.rowwise import shrink_rows
from permea.tables import Schema, default_bins
from permea.tables.frames import column_names, column_values
from permea.tables.reading import Chunks as TableChunks

Result = TypeVar("Result")

_KEPT_BYTES = 1 << 29  # features of the first pass that are kept for the second
_CHUNK = 4096  # rows mapped at once
_MANY_ROWS = 20_000  # or people, from which the logistic loss pays: docs/methods/moments.md
_PIECES = 64  # of the chunks, for workers
_TYPICAL_SIZE = 10_000  # sets the number of bins where the number of rows is not public


class NoiseWarning(UserWarning):
    """What was learned cannot be told from noise."""


class Part(NamedTuple):
    """Some of the rows: a block of a matrix or columns by name, their outputs and weights."""

    rows: Any
    outputs: NDArray[Any]
    weights: Array | None = None  #: None for 1 each

    def take(self, chosen: Any) -> "Part":
        """Some of the rows, by a slice or a mask."""
        rows = self.rows[chosen] if not isinstance(self.rows, dict) else None
        if rows is None:
            rows = {name: column[chosen] for name, column in self.rows.items()}
        weights = None if self.weights is None else self.weights[chosen]
        return Part(rows, self.outputs[chosen], weights)

    def cut(self, size: int) -> "Iterator[Part]":
        """The same in parts of at most ``size`` rows."""
        return map(self.take, batches(len(self.outputs), size))


Parts = Callable[[], Iterable[Part]]
Total = Callable[[Callable[[Part], Any]], Any]
Chunks = Callable[[], Iterable[Any]]


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


def column_range(parts: Parts) -> tuple[Array, Array]:
    """Range of every column, for learning without a promise; a constant column gets a width."""
    blocks = (dense(part.rows) for part in parts())
    lows, highs = zip(*((X.min(axis=0), X.max(axis=0)) for X in blocks), strict=True)
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    return low, np.where(high > low, high, low + 1.0)


def dense(rows: Any) -> Array:
    """A block of rows as an array; blocks of a sparse matrix are small enough for that."""
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)


class _MappedParts:
    """Features, outputs and weights of parts of the rows; half a gibibyte of them is kept."""

    def __init__(self, parts: Parts, transform: Callable[[Any], Array], keep: bool) -> None:
        self._parts, self._transform, self._keep = parts, transform, keep
        self._kept: list[Part] | None = None

    def __iter__(self) -> Iterator[Part]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Part] = []
        size = 0
        for part in self._parts():
            mapped = part._replace(rows=self._transform(part.rows))
            size += mapped.rows.nbytes
            self._keep = self._keep and size <= _KEPT_BYTES
            kept = [*kept, mapped] if self._keep else []
            yield mapped
        self._kept = kept if self._keep else None


class _MomentEstimator(PrivateEstimator, BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: features, the release, and the learning after it."""

    _outputs: Outputs
    moments_: Moments
    model_: LinearModel

    def __init__(
        self,
        *,
        privacy: Privacy | None = None,
        schema: Schema | None = None,
        features: Any = "fourier",
        bins: int | None = None,
        expected_size: int | None = None,
        neighbours: Neighbours = "replace",
        radius: float = 0.25,
        feature_norm: float = 1.0,
        split: tuple[float, float, float, float] = tuple(Split()),  # type: ignore[assignment]
        strength: float | None = None,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        random_state: Any = None,
    ) -> None:
        self.privacy = privacy
        self.schema = schema
        self.features = features
        self.bins = bins
        self.expected_size = expected_size
        self.neighbours = neighbours
        self.radius = radius
        self.feature_norm = feature_norm
        self.split = split
        self.strength = strength
        self.ledger = ledger
        self.dataset = dataset
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from rows X and their outputs y.

        With ``privacy`` the ledger is charged before a value is read, and the rows are released
        once, as moments.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p), or a frame with the columns of ``schema``
            A frame is a pandas or polars frame, a pyarrow table, or a dict of columns.
        y : array-like of shape (n,) or (n, q), optional
            Labels, or numbers. With a schema the default is its label or target column.
        groups : array-like of shape (n,), optional
            Who each row belongs to. The m rows of a person count 1/m each, so that she counts
            once. Needed for ``unit="person"``, where a schema's person column is the default.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows; with ``privacy`` they are clipped to [0, 1].
        """
        self._check_units(groups is not None)
        self._check_columns(X, y, groups)
        charged = self._charge_moments(
            X, y, size=self._public_size(X, groups), weighted=sample_weight is not None
        )
        whole = self._read_part(X, y, groups, sample_weight)
        return self._fit_parts(lambda: whole.cut(_CHUNK), charged, keep=True)

    def fit_chunks(self, chunks: Chunks, *, keep: bool = False, engine: str | None = None) -> Self:
        """Learn from more rows than fit into memory.

        Parameters
        ----------
        chunks : callable
            Called without arguments for an iterator over (X, y) or (X, y, groups), or with a
            schema over frames. It is called two times, and once more to count the rows of each
            person; the rows must be the same each time, and a person with more rows than before is
            refused (not with ``engine``, where files must not change in between).
            `permea.tables.read_chunks` makes one from files, folders, databases and frames.
        keep : bool
            Keep the features of the first pass, where half a gibibyte suffices.
        engine : {"dask"}, optional
            Add up the chunks on the workers of the current Dask client. They must come from
            `permea.tables.read_chunks`, whose parts can be sent to workers.
        """
        if engine is not None and not isinstance(chunks, TableChunks):
            raise TypeError("engine= needs chunks made by permea.tables.read_chunks.")
        X, y, groups = (None, None, None) if self.schema is not None else _first(chunks)
        self._check_units(groups is not None)
        if self.schema is not None and isinstance(chunks, TableChunks):
            self._check_columns(dict.fromkeys(chunks.names), None, None)
            chunks = chunks.select([name for name in chunks.names if name in self.schema.names])
        charged = self._charge_moments(X, y, fingerprint=False, size=self.expected_size)
        if charged is None:
            self._declare(_n_numbers(y))
            self.n_features_in_ = self._n_columns(X)
        counted = self._guarded(lambda: self._count_rows(chunks))
        if isinstance(chunks, TableChunks) and engine is not None and charged is not None:
            worker, pieces = self._worker(), chunks.split(_PIECES)
            return self._release_sums(
                lambda function: sum_parts(
                    partial(worker._sum_chunks, function=function, counted=counted),
                    pieces,
                    engine=engine,
                ),
                charged,
            )

        def parts() -> Iterator[Part]:
            left = Counter(counted)
            for X, y, groups in map(_opened, chunks()):
                people = self._people(X, groups)
                left.subtract(() if counted is None else count_rows(people))
                yield from self._part(X, y, people, counted=counted).cut(_CHUNK)
            if min(left.values(), default=0) < 0:
                raise ValueError("A person has more rows than in the pass before.")

        return self._fit_parts(parts, charged, keep)

    def _charge_moments(
        self, X: Any, y: Any, fingerprint: bool = True, size: int | None = None,
        weighted: bool = False,
    ) -> ChargedMoments | None:  # fmt: skip
        """Plan the release from what is public, and charge it before the rows are read."""
        self._start()
        if self.privacy is None:
            return None
        plan = self.prepare(self._n_columns(X), _n_numbers(y), size=size, weighted=weighted)
        return ChargedMoments(
            plan, random_state=self.random_state, ledger=self.ledger, dataset=self.dataset,
            description=f"noised moments of {plan.n_features} features",
            rows=X if fingerprint else None,
        )  # fmt: skip

    def _fit_parts(self, parts: Parts, charged: ChargedMoments | None, keep: bool) -> Self:
        """Learn from parts of the rows, one after the other."""
        if charged is None:
            return self._learn_exactly(parts)
        mapped = _MappedParts(parts, self._map, keep)
        return self._release_sums(lambda function: reduce(add, map(function, mapped)), charged)

    def _release_sums(self, total: Total, charged: ChargedMoments) -> Self:
        """Two passes over all rows: the mean, then the moments about the noised mean.

        ``total`` adds up a function of mapped parts over all of them.
        """
        plan, worker = charged.plan, self._worker()
        mean = charged.release_mean(read_after_charge(lambda: total(partial(_sum_features, plan))))
        second = partial(worker._sum_part, mean=mean, plan=plan)
        self.learn(charged.release(read_after_charge(lambda: total(second))))
        if plan.n_gradients:
            self._descend(
                lambda logits: charged.release_gradient(
                    read_after_charge(
                        lambda: total(
                            partial(worker._sum_gradient, logits=logits, mean=mean, plan=plan)
                        )
                    )
                )
            )
        return self

    def _descend(self, gradient: Callable[[Logits], tuple[Array, float]]) -> None:
        """Newton's method for the logistic loss, from least squares on."""
        newton = Newton(self.moments_, self.model_)
        for _ in range(N_STEPS):
            newton.step(*gradient(newton.logits))
        self.model_ = newton.logits.model(self.model_)

    def _sum_gradient(self, mapped: Part, logits: Logits, mean: Array, plan: MomentPlan) -> Any:
        z = self._centre(mapped.rows, mean)
        residuals = logits.residuals(z, self._targets(mapped.outputs))
        return sum_gradients(z, residuals, plan, mapped.weights)

    def _worker(self) -> Self:
        """A copy that may be sent to another process: without the ledger."""
        worker = copy(self)
        worker.ledger = None
        return worker

    def _sum_part(self, mapped: Part, mean: Array, plan: MomentPlan) -> MomentSums:
        z, targets = self._centre(mapped.rows, mean), self._targets(mapped.outputs)
        return sum_moments(z, targets, plan, mapped.weights)

    def _sum_chunks(
        self, chunks: Chunks, function: Callable[[Part], Result], counted: Counter[Any] | None
    ) -> Result | None:
        """Add up a function of mapped parts over some of the chunks, perhaps on a worker."""
        wholes = (self._part(*_opened(chunk), counted=counted) for chunk in chunks())
        parts = (part for whole in wholes for part in whole.cut(_CHUNK))
        return add_up(function(p._replace(rows=self._map(p.rows))) for p in parts)

    def _learn_exactly(self, parts: Parts) -> Self:
        """The same learning from exact moments, when no privacy is asked for."""
        domain = None if self.schema is not None else column_range(parts)
        self.map_ = self._make_map(domain, self.n_features_in_, None)
        mapped = _MappedParts(parts, self._map, True)
        sums = reduce(add, (_weighted_sum(part.rows, part.weights) for part in mapped))
        mean = np.asarray(sums[:-1] / sums[-1])

        def moments(part: Part) -> Moments:
            z, targets = self._centre(part.rows.astype(np.float64), mean), self._targets(part[1])
            outputs = targets if self._outputs == "classes" else targets[:, 1:]
            return Moments.of(z, outputs, part.weights)

        exact = reduce(add, map(moments, mapped))
        self.learn(Release(moments=exact, mean=mean))

        def gradient(logits: Logits) -> tuple[Array, float]:
            return reduce(add, (self._exact_gradient(part, logits, mean) for part in mapped)), 0.0

        if self._n_gradients(None):
            self._descend(gradient)
        return self

    def _exact_gradient(self, mapped: Part, logits: Logits, mean: Array) -> Array:
        z = self._centre(mapped.rows.astype(np.float64), mean)
        u = logits.residuals(z, self._targets(mapped.outputs))
        weighted = u if mapped.weights is None else u * mapped.weights[:, None]
        return np.vstack([z.T @ weighted, weighted.sum(axis=0)])

    def _n_gradients(self, size: int | None) -> int:
        """How many gradients follow the moments."""
        return 0

    # ---- reading: after the charge where there is a promise -------------------------------------

    @property
    def _by_person(self) -> bool:
        """Whether the rows of a person share one weight."""
        if self.privacy is None:
            return self.schema is not None and self.schema.person is not None
        return self.privacy.unit == "person"

    def _check_units(self, has_groups: bool) -> None:
        """Refuse people without a promise about them, and the other way round."""
        unit = None if self.privacy is None else self.privacy.unit
        declared = self.schema is not None and self.schema.person is not None
        if unit == "person" and not has_groups and not declared:
            raise ValueError(
                "unit='person' needs to know whose rows they are: give groups=, one id for every "
                "row, or a schema with a person column."
            )
        if unit == "record" and has_groups:
            raise ValueError(
                "groups= says who each row belongs to, and unit='record' protects one row of a "
                "person only. Use unit='person', or leave groups out."
            )

    def _public_size(self, X: Any, groups: Any) -> int | None:
        """Number of units where the relation makes it public: it sets the number of bins."""
        if self.expected_size is not None or self.schema is None or self.neighbours != "replace":
            return self.expected_size
        ids = groups
        if groups is None and self._by_person:
            ids = column_values(X, str(self.schema.person), self.schema.features)
        if ids is None:
            return len(column_values(X, self.schema.features[0], self.schema.features))
        return count_people(ids)

    def _check_columns(self, X: Any, y: Any, groups: Any) -> None:
        """Refuse a frame without the columns of the schema; their names are public."""
        if self.schema is None:
            return
        output = self._output_column()
        if y is None and output is None:
            raise ValueError("Give y, or a schema with a column of the outputs.")
        needed = [output] if y is None else []
        needed += [self.schema.person] if self._by_person and groups is None else []
        self.schema.check_columns(X, roles=False)
        found = column_names(X, self.schema.features)
        if missing := [repr(name) for name in needed if name not in found]:
            raise ValueError(f"The table has no column {', '.join(missing)}.")

    def _n_columns(self, X: Any) -> int:
        return table_shape(X)[1] if self.schema is None else len(self.schema.features)

    def _guarded(self, read: Callable[[], Result]) -> Result:
        return read() if self.privacy is None else read_after_charge(read)

    def _count_rows(self, chunks: Chunks) -> Counter[Any] | None:
        """How many rows each person has, by a pass over all chunks."""
        if not self._by_person:
            return None
        counted: Counter[Any] = Counter()
        for X, _, groups in map(_opened, chunks()):
            counted.update(count_rows(self._people(X, groups)))
        return counted

    def _people(self, X: Any, groups: Any) -> Any:
        """Whose each row is; None where rows stand for themselves."""
        if groups is None and self._by_person and self.schema is not None:
            return self.schema.people(X)
        return groups

    def _read_part(self, X: Any, y: Any, groups: Any, sample_weight: Any) -> Part:
        """All rows, checked."""
        if self.schema is None:
            X, y = self._read(X, y, accept_sparse="csr", **self._checks)
        else:
            self.n_features_in_ = len(self.schema.features)
            self.feature_names_in_ = np.asarray(self.schema.features, dtype=object)
        if self.privacy is None:
            self._declare_from(y if self.schema is None else self._frame_outputs(X, y))
        part = self._guarded(lambda: self._part(X, y, groups, sample_weight))
        if self.privacy is not None or part.weights is None:
            return part
        if not part.weights.any():
            raise ValueError("All weights are zero: nothing is left to learn from.")
        return part.take(part.weights > 0)

    def _part(
        self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None, counted: Any = None
    ) -> Part:
        """Rows with outputs and weights; for a frame by the schema."""
        if self.schema is None:
            rows = validate_data(self, X, dtype=FLOATS, reset=False, accept_sparse="csr")
            outputs = np.empty(rows.shape[0]) if y is None else np.asarray(y)
        else:
            rows, outputs = self._columns(X), self._frame_outputs(X, y)
        people = self._people(X, groups)
        factors: list[Array] = [] if people is None else [row_weights(people, counted)]
        if self._weighted and (self.schema is not None or y is not None):
            factors.append(self._class_weights(outputs))
        if sample_weight is not None:
            factors.append(self._checked_weights(sample_weight, len(outputs)))
        columns = list(rows.values()) if isinstance(rows, dict) else [rows]
        if {column.shape[0] for column in (*columns, *factors)} != {len(outputs)}:
            raise ValueError("Rows, outputs, groups and weights must have the same length.")
        weights = reduce(mul, factors) if factors else None
        return Part(rows, outputs, weights)

    def _output_column(self) -> str | None:
        """The column of a frame that holds the outputs."""
        if self.schema is None:
            return None
        return self.schema.label if self._outputs == "classes" else self.schema.target

    def _frame_outputs(self, X: Any, y: Any) -> NDArray[Any]:
        """Outputs of the rows of a frame: y, or the column that the schema names."""
        assert self.schema is not None
        name = self._output_column()
        if name is None:
            return np.asarray(y)
        frame = X if y is None else {name: np.asarray(y)}
        classes = self._outputs == "classes"
        return self.schema.labels(frame) if classes else self.schema.outputs(frame)

    def _columns(self, X: Any) -> dict[str, NDArray[Any]]:
        """The feature columns of a frame."""
        assert self.schema is not None
        self.schema.check_columns(X, roles=False)
        names = self.schema.features
        return {name: column_values(X, name, names) for name in names}

    def _checked_weights(self, weights: ArrayLike, n_rows: int) -> Array:
        checked = np.asarray(weights, dtype=np.float64)
        if checked.shape != (n_rows,) or not np.all(np.isfinite(checked) & (checked >= 0)):
            raise ValueError("Weights are finite numbers of at least 0, one for every row.")
        return checked if self.privacy is None else np.minimum(checked, 1.0)

    @property
    def _weighted(self) -> bool:
        """Whether rows are weighted by their class."""
        return False

    def _class_weights(self, outputs: NDArray[Any]) -> Array:
        raise NotImplementedError

    # ---- the same in three steps, for rows that are held by several parties ---------------------

    def prepare(
        self, n_columns: int, n_outputs: int = 1, *, size: int | None = None, weighted: bool = False
    ) -> MomentPlan:
        """Fix everything public (features, outputs, noise) without looking at a row.

        Parameters
        ----------
        n_columns : int
            Columns of the rows.
        n_outputs : int, default=1
            Numbers to be predicted; a classifier has its declared ``classes`` instead.
        size : int, optional
            Number of rows or people where it is public, for the number of bins.
        weighted : bool, default=False
            Whether rows have weights of their own, beside those of `class_weight`.
        """
        if self.privacy is None:
            raise ValueError("A release of moments needs privacy=Privacy(…, unit='record').")
        self._declare(n_outputs)
        self.n_features_in_ = n_columns
        if self.schema is None:
            self.privacy.lows(n_columns)  # says so when no domain is declared
        domain = self.privacy.domain
        self.map_ = self._make_map(domain, n_columns, size)
        return plan_moments(
            self.privacy, self._n_features(), self._n_outputs(), outputs=self._outputs,
            neighbours=self.neighbours, radius=self.radius, feature_norm=self._norm(),
            split=self.split, weighted=weighted or self._weighted,
            n_gradients=self._n_gradients(size),
        )  # fmt: skip

    def _make_map(self, domain: Any, n_columns: int, size: int | None) -> Any:
        if self.schema is None:
            return feature_map(self.features, domain, n_columns)
        bins = self.bins
        if bins is None:
            epsilon = math.inf if self.privacy is None else self.privacy.epsilon
            bins = default_bins(size or _TYPICAL_SIZE, epsilon, n_columns)
        return self.schema.encoder(bins=bins)

    def _n_features(self) -> int:
        if self.schema is not None:
            return int(self.map_.n_features_out_)
        return int(self._map(np.zeros((1, self.n_features_in_))).shape[1])

    def feature_sums(
        self, X: Any, plan: MomentPlan, *, y: Any = None, groups: ArrayLike | None = None
    ) -> FeatureSums:
        """Exact sum of the features of rows, for the mean. Private: it must be noised."""

        def sums() -> FeatureSums:
            return reduce(add, (_sum_features(plan, m) for m in self._mapped(X, y, groups)))

        return read_after_charge(sums)

    def moment_sums(
        self, X: Any, y: Any, mean: Array, plan: MomentPlan, *, groups: ArrayLike | None = None
    ) -> MomentSums:
        """Exact moments of rows about a noised mean. Private: they must be noised."""
        centre = np.asarray(mean)

        def sums() -> MomentSums:
            mapped = self._mapped(X, y, groups)
            return reduce(add, (self._sum_part(part, centre, plan) for part in mapped))

        return read_after_charge(sums)

    def _mapped(self, X: Any, y: Any, groups: Any) -> Iterator[Part]:
        """Features of rows that a party holds, part by part."""
        for part in self._part(X, y, groups).cut(_CHUNK):
            yield part._replace(rows=self._map(part.rows))

    def learn(self, released: Release) -> Self:
        """Learn from a release: all of it is post-processing."""
        self._certify(released)
        self.moments_, self.mean_ = released.moments, released.mean
        self.model_ = self._model(released.moments)
        signal = signal_to_noise(self.moments_, self.model_)
        if self.privacy is not None and signal < SIGNAL_LIMIT:
            warnings.warn(
                "The noise may be larger than what is to be learned: how much the model explains "
                f"cannot be told from noise (signal to noise {signal:.1f}, below {SIGNAL_LIMIT:g})."
                " Use more rows, a larger epsilon, fewer columns or fewer bins; for a rare class, "
                "class weights.",
                NoiseWarning,
                stacklevel=3,
            )
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.schema is None
        return tags

    def explain(self) -> list[Effect]:
        """What each column of the schema contributes, the most important first, with its noise.

        For two classes in log-odds of the second, for more in log-probabilities about their mean,
        for numbers in units of the outputs (of half the declared range). With the logistic loss it
        is the least-squares model of the same release that is explained. Rows are shrunk to the
        radius, so the values are those in a row of typical length.
        """
        check_is_fitted(self, "model_")
        if self.schema is None:
            raise ValueError("explain() needs a model of a table: give the estimator a schema.")
        groups, mean = self.map_.groups_, self.mean_
        length = math.sqrt(max(1.0 - float(mean @ mean), 0.0))
        shrunk = min(1.0, self.radius / length) if length > 0 else 1.0
        return explain(
            self.moments_, self._model(self.moments_), groups, self.map_.get_feature_names_out(),
            mean=shrunk * mean, unit=shrunk / math.sqrt(len(groups)),
        )  # fmt: skip

    @property
    def importances_(self) -> dict[str, float]:
        """How much the contribution of each column varies over people, the largest first."""
        return {one.column: float(np.linalg.norm(one.importance)) for one in self.explain()}

    def _norm(self) -> float:
        return float(getattr(self.map_, "norm_bound_", self.feature_norm))

    def _map(self, X: Any) -> Array:
        """Features of rows that were clipped to the declared domain, each of its row alone."""
        if self.schema is not None:
            return np.asarray(self.map_.transform(X))
        rows = dense(X)
        if self.privacy is None:
            return np.asarray(self.map_.transform(rows))
        lows, highs = self.privacy.lows(rows.shape[1]), self.privacy.highs(rows.shape[1])
        return map_rows(self.map_, np.clip(rows.astype(np.float64), lows, highs))

    def _centre(self, phi: Array, mean: Array) -> Array:
        """z: features about the noised mean, shrunk to the public radius."""
        z = shrink_rows(phi, self._norm())
        z -= mean
        return shrink_rows(z, self.radius)

    def _model(self, moments: Moments) -> LinearModel:
        share = self.strength
        if share is None:
            share = RIDGE_STRENGTH if self.schema is not None else MAP_STRENGTH
        return ridge(moments, strength=share)

    def _scores(self, X: Any) -> Iterator[tuple[Array, Array]]:
        """Features and linear outputs, batch by batch."""
        check_is_fitted(self, "model_")
        for part in self._queries(X).cut(_CHUNK):
            z = self._centre(self._map(part.rows), self.mean_)
            yield z, self.model_.predict(z)

    def _queries(self, X: Any) -> Part:
        """Rows to predict; columns of a frame are found by name."""
        if self.schema is not None:
            columns = self._columns(X)
            return Part(columns, np.empty(len(next(iter(columns.values())))))
        rows = validate_data(self, X, dtype=FLOATS, reset=False, accept_sparse="csr")
        self._warn_outside(rows)
        return Part(rows, np.empty(rows.shape[0]))

    def _warn_outside(self, rows: Any) -> None:
        """Warn about columns that look as if they were scaled otherwise than in training."""
        if self.privacy is None or issparse(rows):
            return
        low, high = self.privacy.lows(rows.shape[1]), self.privacy.highs(rows.shape[1])
        share = np.mean((rows < low) | (rows > high), axis=0)
        if bad := np.flatnonzero(share > 0.5).tolist():
            warnings.warn(
                f"More than half of the values of {len(bad)} columns (the first is number "
                f"{bad[0]}) lie outside the declared domain and are clipped. Were these columns "
                "scaled as in training?",
                stacklevel=4,
            )


def _n_numbers(y: Any) -> int:
    """Number of outputs of a row, from the shape alone; rows of different lengths have one."""
    try:
        shape = getattr(y, "shape", None) or np.shape(y)
    except ValueError:
        return 1
    return shape[1] if len(shape) == 2 else 1


def _first(chunks: Chunks) -> tuple[Any, Any, Any]:
    """The first chunk, for its shape."""
    X, y, groups = _opened(next(iter(chunks()), ((), ())))
    table_shape(X)
    return X, y, groups


def _opened(chunk: Any) -> tuple[Any, Any, Any]:
    """Rows, outputs and groups of a chunk; a frame has them in its columns."""
    if isinstance(chunk, tuple):
        return (*chunk, None) if len(chunk) == 2 else chunk
    return chunk, None, None


def _sum_features(plan: MomentPlan, mapped: Part) -> FeatureSums:
    return sum_features(mapped.rows, plan, mapped.weights)


def _weighted_sum(phi: Array, weights: Array | None) -> Array:
    """Sums over rows, with the sum of the weights at the end."""
    w = np.ones(len(phi)) if weights is None else weights
    return np.append(w @ phi.astype(np.float64), w.sum())


class MomentClassifier(ClassifierMixin, _MomentEstimator):  # type: ignore[misc]
    """A classifier that hides whole records: ridge regression from moments noised once.

    Public features of every row, centred at a noised mean and clipped to a radius; their second
    moments and their cross moments with class indicators leave the wall once, with Gaussian noise
    on a grid; everything after that is post-processing (001 eq. 1.49: the rows enter a membership
    mapping only through these two matrices).

    Parameters
    ----------
    privacy : permea.privacy.Privacy, optional
        With ``unit="record"`` or ``"person"`` and δ > 0. None learns from exact moments, without
        any promise.
    schema : permea.tables.Schema, optional
        What is declared about the columns of a table: rows are then frames, encoded by it alone
        (:class:`permea.tables.TableEncoder`), and ``features`` is not used.
    features : {"fourier", "gradients", "identity"} or transformer, default="fourier"
        A public map of one row: see :mod:`permea.models.features`. "gradients" is for images.
    bins : int, optional
        Points of the grid of each number column of the schema; `permea.tables.default_bins` of the
        number of rows or people where it is public.
    expected_size : int, optional
        About how many rows or people there are, if that is public: sets bins and loss of a table
        where the number itself is private or not known yet (add/remove, `fit_chunks`).
    neighbours : {"replace", "add/remove"}, default="replace"
        How neighbouring data sets differ; part of the certificate. Replacing is what
        ``unit="record"`` says elsewhere; DP-SGD libraries mostly speak of add/remove.
    classes : sequence
        The public set of labels, declared and never read from the rows: which labels occur is
        protected. Needed with ``privacy``, where a schema's label column is the default; without
        it, the labels that occur.
    class_weight : "balanced" or dict, optional
        A dict gives the rows of each class a declared weight, divided by the largest, and weights
        the decision alike. It helps to learn about a rare class: with 1 % of the rows in one of two
        classes, a weight of 0.1 for the other raises the AUROC on Adult from 0.81 to 0.85 at ε = 1
        per record (``benchmarks/tables_rare.py``). "balanced" leaves the rows as they are; the
        decision treats the classes as equally frequent, by their released counts.
    radius : float, default=0.25
        Rows are shrunk to this norm after centring. Small radii keep little but the direction
        from the mean, and need less noise.
    feature_norm : float, default=1.0
        Public norm to which rows of a foreign transformer are shrunk.
    loss : {"auto", "squared", "logistic"}, default="auto"
        "logistic" improves least squares by six noised gradients of the logistic loss, for half
        of the budget. "auto" does so for tables (``schema``) whose number n of rows or people is
        public, or expected, when n is at least 20000 and n ε at least 10000: with less, the noise
        costs more than the loss gains.
    split : (mean, second, cross, counts), default=(0.05, 0.43, 0.46, 0.06)
        Shares of the budget.
    strength : float, optional
        Ridge per spectral norm of the noise: 0.5 for tables, 0.2 for other features by default.
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
    calibration_ : permea.models.calibration.Calibration
        From scores to probabilities, for the squared loss.
    loss_ : {"squared", "logistic"}
        What was minimised.
    importances_ : dict of str to float
        How much each column of the schema matters; see `explain`.
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

    A table, with a promise for each person:

    >>> from permea.tables import Category, Number, Schema, YesNo
    >>> columns = {"age": Number(0, 110), "ward": Category(["a", "b"]), "ill": YesNo()}
    >>> schema = Schema(columns, label="ill", person="patient")
    >>> frame = {"patient": [1, 1, 2], "age": [61, 62, 40], "ward": ["a", "b", "a"]}
    >>> frame["ill"] = ["yes", "yes", "no"]
    >>> promise = Privacy(epsilon=1, delta=1e-6, unit="person")
    >>> MomentClassifier(privacy=promise, schema=schema).fit(frame).predict(frame).shape
    (3,)
    """

    _outputs: Outputs = "classes"
    _checks: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        *,
        classes: ArrayLike | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        loss: str = "auto",
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.classes = classes
        self.class_weight = class_weight
        self.loss = loss

    def _n_gradients(self, size: int | None) -> int:
        if self.loss not in ("auto", "squared", "logistic"):
            raise ValueError("loss must be 'auto', 'squared' or 'logistic'.")
        if self.loss != "auto":
            return N_STEPS if self.loss == "logistic" else 0
        if self.schema is None or self.privacy is None or size is None:
            return 0
        pays = size >= _MANY_ROWS and size * self.privacy.epsilon >= _MANY_ROWS / 2
        return N_STEPS if pays else 0

    @property
    def _weighted(self) -> bool:
        return isinstance(self.class_weight, Mapping)

    def _class_weights(self, outputs: NDArray[Any]) -> Array:
        return np.asarray(self._weights_by_class()[self._places(outputs)])

    def _weights_by_class(self) -> Array:
        """Declared weights of the classes, the largest of them 1."""
        declared = self.class_weight
        if not isinstance(declared, Mapping):
            if declared not in (None, "balanced"):
                raise ValueError("class_weight is None, 'balanced' or a number for every class.")
            return np.ones(len(self.classes_))
        named = {str(name): float(weight) for name, weight in declared.items()}
        names = [str(name) for name in self.classes_.tolist()]
        if unknown := sorted(set(named) - set(names)):
            raise ValueError(f"class_weight names {unknown}, which are not declared classes.")
        weights = np.asarray([named.get(name, 1.0) for name in names])
        if not np.all(np.isfinite(weights) & (weights > 0)):
            raise ValueError("class_weight needs a positive number for every class.")
        return np.asarray(weights / weights.max())

    def _declared_classes(self) -> Any:
        if self.classes is None and self.schema is not None and self.schema.label is not None:
            return self.schema.classes
        return self.classes

    def _declare_from(self, labels: NDArray[Any]) -> None:
        check_classification_targets(labels)
        declared = self._declared_classes()
        self._set_classes(labels if declared is None else declared)

    def _declare(self, n_outputs: int) -> None:
        if self._declared_classes() is None:
            raise ValueError(
                "classes is missing. Which labels occur is protected with the rows: declare the "
                "public set of labels, e.g. classes=['healthy', 'ill'], never read it off the data."
            )
        self._set_classes(self._declared_classes())

    def _set_classes(self, labels: ArrayLike) -> None:
        self.classes_ = np.unique(np.asarray(labels))
        if len(self.classes_) < 2:
            raise ValueError(
                f"The number of classes has to be greater than one; got {len(self.classes_)} class"
            )
        self._weights_by_class()

    def _n_outputs(self) -> int:
        return len(self.classes_)

    def _places(self, y: ArrayLike) -> NDArray[Any]:
        """Place of every label among the classes."""
        labels = np.asarray(y)
        places = np.searchsorted(self.classes_, labels)
        places = np.minimum(places, len(self.classes_) - 1)
        if not np.all(self.classes_[places] == labels):
            raise ValueError("y holds labels that are not among the declared classes.")
        return np.asarray(places)

    def _targets(self, y: ArrayLike) -> Array:
        return np.asarray(np.eye(len(self.classes_))[self._places(y)])

    def learn(self, released: Release) -> Self:
        """Learn from a release: all of it is post-processing."""
        super().learn(released)
        self.loss_ = "squared"
        self.calibration_: Calibration = calibrate(self.moments_, self.model_)
        return self

    def _descend(self, gradient: Callable[[Logits], tuple[Array, float]]) -> None:
        super()._descend(gradient)
        self.loss_ = "logistic"

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of `predict_proba`."""
        scores: Array = np.concatenate([scores for _, scores in self._scores(X)]).astype(np.float64)
        if self.loss_ == "squared":
            scores = self.calibration_.log_probabilities(scores)
        return np.asarray(log_softmax(scores - np.log(self._weights_by_class()), axis=1))

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, calibrated from what was released.

        With class weights they are those of the rows as they are, without the weights.
        """
        return np.exp(self.predict_log_proba(X))

    def decision_function(self, X: Any) -> Array:
        """Logarithms of probabilities, with ``class_weight`` weighted; for two classes the odds."""
        check_is_fitted(self, "model_")
        if self.class_weight == "balanced":
            favour = -np.log(self.calibration_.priors)
        else:
            favour = np.log(self._weights_by_class())
        scores = self.predict_log_proba(X) + favour
        return np.asarray(scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class; with ``class_weight`` probabilities are weighted first."""
        scores = self.decision_function(X)
        labels: NDArray[Any] = self.classes_[
            (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        ]
        return labels


class MomentRegressor(RegressorMixin, _MomentEstimator):  # type: ignore[misc]
    """A regressor that hides whole records, with an uncertainty that includes the noise.

    Parameters
    ----------
    privacy, schema, features, bins, neighbours, feature_norm, ledger, dataset, random_state
        See :class:`MomentClassifier`; the default of the outputs is the schema's target.
    expected_size : int, optional
        See :class:`MomentClassifier`.
    radius : float, default=0.5
        Larger than for classification: the length of a row tells about its output.
    split : (mean, second, cross, counts), default=(0.03, 0.47, 0.48, 0.02)
        Shares of the budget; sums of outputs need less than counts of classes.
    output_domain : (low, high), optional
        The public range of the outputs, numbers or one number per output; needed with privacy,
        where a schema's target column is the default. Outputs outside are clipped.
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
        split: tuple[float, float, float, float] = (0.03, 0.47, 0.48, 0.02),
        **shared: Any,
    ) -> None:
        super().__init__(radius=radius, split=split, **shared)
        self.output_domain = output_domain
        self.inference = inference

    def _read_part(self, *given: Any) -> Part:
        whole = super()._read_part(*given)
        self._one_output = whole.outputs.ndim == 1
        return whole

    def _declare_from(self, outputs: NDArray[Any]) -> None:
        self._read_range(outputs.reshape(len(outputs), -1).astype(np.float64))

    def _read_range(self, outputs: Array) -> None:
        q = outputs.shape[1]
        declared = self.output_domain
        if declared is None and self.schema is not None and self.schema.target is not None:
            declared = self.schema.target_domain
        if self.inference not in ("bayes", "ridge"):
            raise ValueError("inference must be 'bayes' or 'ridge'.")
        if declared is None and self.privacy is not None:
            raise ValueError(
                "output_domain is missing. Declare the public range of the outputs, e.g. "
                "output_domain=(0, 100); never read it off the data."
            )
        ends = (outputs.min(0), outputs.max(0)) if declared is None else declared
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (q,)) for end in ends)
        if declared is not None and not np.all(low < high):
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

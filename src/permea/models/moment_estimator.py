"""What estimators that learn from moments share: features, charge, release, reading.

The rows leave once, as noised sums of public features. What is learned from the sums is in
:mod:`permea.models.linear` and :mod:`permea.models.hull`.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import partial, reduce
from operator import add, mul
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array, Integers
from permea._parallel import add_up, check_engine, map_parts, sum_parts
from permea.models.explanation import Effect, explain
from permea.models.features import (
    map_rows,
)
from permea.models.linear import (
    MAP_STRENGTH,
    RIDGE_STRENGTH,
    SIGNAL_LIMIT,
    LinearModel,
    ridge,
    signal_to_noise,
)
from permea.models.logistic import N_STEPS, Logits, Newton
from permea.models.parts import (
    Chunks,
    Counted,
    MappedParts,
    Part,
    Parts,
    Task,
    Total,
    column_range,
    dense,
    feature_map,
    first_chunk,
    n_numbers,
    opened,
)
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
from permea.privacy.scatter import ClassScatter, loss_noise, sum_losses, sum_scatter
from permea.tables import Schema, default_bins
from permea.tables.frames import column_values
from permea.tables.reading import Chunks as TableChunks

Result = TypeVar("Result")

_NO_ROWS = "The table has no rows."
_CHUNK = 4096  # rows mapped at once
_PIECES = 64  # of the chunks, for workers
_TYPICAL_SIZE = 10_000  # sets the number of bins where the number of rows is not public


class NoiseWarning(UserWarning):
    """What was learned cannot be told from noise."""


class MomentEstimator(PrivateEstimator, BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: features, the release, and the learning after it."""

    _outputs: Outputs
    moments_: Moments
    model_: LinearModel
    n_directions: int = 0  #: in which the scatter of each class is released after the moments
    n_losses: int = 0  #: that are released last
    n_parts: int = 1  #: into which each class is divided for the scatter

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
            schema over frames. It is called for every pass (two; four for hulls, one more for each
            gradient of the logistic loss) and once to count the rows of each person; the rows must
            be the same each time: another number of them in the second pass, or a person with more
            rows than were counted, is refused.
            `permea.tables.read_chunks` makes one from files, folders, databases and frames.
        keep : bool
            Keep the features of the first pass, where half a gibibyte suffices.
        engine : {"dask"}, optional
            Add up the chunks on the workers of the current Dask client, with ``privacy``. They must
            come from `permea.tables.read_chunks`, whose parts can be sent to workers.
        """
        if engine is not None and not isinstance(chunks, TableChunks):
            raise TypeError("engine= needs chunks made by permea.tables.read_chunks.")
        check_engine(engine)
        X, y, groups = (None, None, None) if self.schema is not None else first_chunk(chunks)
        self._check_units(groups is not None)
        if self.schema is not None and isinstance(chunks, TableChunks):
            self._check_columns(dict.fromkeys(chunks.names), None, None)
            chunks = chunks.select([name for name in chunks.names if name in self.schema.names])
        charged = self._charge_moments(X, y, fingerprint=False, size=self.expected_size)
        if charged is None:
            self._declare(n_numbers(y))
            self.n_features_in_ = self._n_columns(X)
            engine = None
        worker = self._worker()
        tasks = self._guarded(lambda: worker._tasks(chunks, engine))
        if engine is None or charged is None:
            return self._fit_parts(partial(self._chunk_parts, *tasks[0]), charged, keep)
        return self._release_sums(
            lambda function: sum_parts(partial(worker._sum_chunks, function), tasks, engine=engine),
            charged,
        )

    def _charge_moments(
        self, X: Any, y: Any, fingerprint: bool = True, size: int | None = None,
        weighted: bool = False,
    ) -> ChargedMoments | None:  # fmt: skip
        """Plan the release from what is public, and charge it before the rows are read."""
        self._start()
        if self.privacy is None:
            return None
        plan = self.prepare(self._n_columns(X), n_numbers(y), size=size, weighted=weighted)
        return ChargedMoments(
            plan, random_state=self.random_state, ledger=self.ledger, dataset=self.dataset,
            description=f"noised moments of {plan.n_features} features",
            rows=X if fingerprint else None,
        )  # fmt: skip

    def _fit_parts(self, parts: Parts, charged: ChargedMoments | None, keep: bool) -> Self:
        """Learn from parts of the rows, one after the other."""
        if charged is None:
            return self._learn_exactly(parts)
        mapped = MappedParts(parts, self._map, keep)
        return self._release_sums(lambda function: reduce(add, map(function, mapped)), charged)

    def _release_sums(self, total: Total, charged: ChargedMoments) -> Self:
        """Passes over all rows: the mean, the moments about the noised mean, and what follows.

        ``total`` adds up a function of mapped parts over all of them.
        """
        plan, worker = charged.plan, self._worker()
        features = read_after_charge(lambda: total(partial(_sum_features, plan)))
        mean = charged.release_mean(features)
        second = partial(worker._sum_part, mean=mean, plan=plan)
        released = charged.release(
            read_after_charge(lambda: _of_same_rows(total(second), features))
        )
        if plan.n_directions:
            P = self.choose_directions(released.moments, plan.n_directions)
            scatter = partial(worker._sum_scatter, mean=mean, plan=plan, directions=P)
            sums = read_after_charge(lambda: total(scatter))
            released = charged.release_scatter(sums, P, released)
        self.learn(released)
        if plan.n_losses:
            loss = partial(self._worker()._sum_losses, plan=plan)
            losses = charged.release_losses(read_after_charge(lambda: total(loss)))
            self.calibrate(losses, loss_noise(plan))
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

    def _sum_scatter(
        self, mapped: Part, mean: Array, plan: MomentPlan, directions: Array
    ) -> Integers:
        z, targets = self._centre(mapped.rows, mean), self._targets(mapped.outputs)
        return sum_scatter(z, targets, directions, plan, mapped.weights)

    def _sum_losses(self, mapped: Part, plan: MomentPlan) -> Integers:
        z, targets = self._centre(mapped.rows, self.mean_), self._targets(mapped.outputs)
        return sum_losses(self._losses(z, targets), plan, mapped.weights)

    def choose_directions(self, moments: Moments, most: int) -> Array:
        """Directions (D, d) for the scatter of the classes, from what was released."""
        raise NotImplementedError

    def calibrate(self, losses: Array, noise: float) -> None:
        """Learn from sums of losses; ``noise`` is the standard deviation of their noise."""
        raise NotImplementedError

    def _losses(self, z: Array, targets: Array) -> Array:
        """Losses of rows in [0, 1], each a function of its row alone."""
        raise NotImplementedError

    def _worker(self) -> Self:
        """A copy that may be sent to another process: without the ledger."""
        worker = copy(self)
        worker.ledger = None
        return worker

    def _sum_part(self, mapped: Part, mean: Array, plan: MomentPlan) -> MomentSums:
        z, targets = self._centre(mapped.rows, mean), self._targets(mapped.outputs)
        return sum_moments(z, targets, plan, mapped.weights)

    def _sum_chunks(self, function: Callable[[Part], Result], task: Task) -> Result | None:
        """Add up a function of mapped parts over some of the chunks, perhaps on a worker."""
        parts = self._chunk_parts(*task)
        return add_up(function(p._replace(rows=self._map(p.rows))) for p in parts)

    def _chunk_parts(self, chunks: Chunks, counted: Counted | None) -> Iterator[Part]:
        """Parts of some of the chunks, in which nobody may have more rows than were counted."""
        left = None if counted is None else Counter(counted.here)
        for X, y, groups in map(opened, chunks()):
            people = self._people(X, groups)
            if left is not None:
                left.subtract(count_rows(people))
            everywhere = None if counted is None else counted.everywhere
            yield from self._part(X, y, people, counted=everywhere).cut(_CHUNK)
        if left is not None and min(left.values(), default=0) < 0:
            raise ValueError("A person has more rows than in the pass before.")

    def _learn_exactly(self, parts: Parts) -> Self:
        """The same learning from exact moments, when no privacy is asked for."""
        domain = None if self.schema is not None else column_range(parts)
        self.map_ = self._make_map(domain, self.n_features_in_, None)
        mapped = MappedParts(parts, self._map, True)
        sums = reduce(add, (_weighted_sum(part.rows, part.weights) for part in mapped))
        mean = np.asarray(sums[:-1] / sums[-1])

        def moments(part: Part) -> Moments:
            z, targets = self._centre(part.rows.astype(np.float64), mean), self._targets(part[1])
            outputs = targets if self._outputs == "classes" else targets[:, 1:]
            return Moments.of(z, outputs, part.weights)

        released = Release(moments=reduce(add, map(moments, mapped)), mean=mean)
        if self.n_directions:
            P = self.choose_directions(released.moments, min(self.n_directions, len(mean)))
            scatter = reduce(add, (self._exact_scatter(part, mean, P) for part in mapped))
            released = replace(released, scatter=scatter)
        self.learn(released)
        if self.n_losses:
            self.calibrate(reduce(add, map(self._exact_losses, mapped)), 0.0)

        def gradient(logits: Logits) -> tuple[Array, float]:
            return reduce(add, (self._exact_gradient(part, logits, mean) for part in mapped)), 0.0

        if self._n_gradients(None):
            self._descend(gradient)
        return self

    def _exact_scatter(self, mapped: Part, mean: Array, directions: Array) -> ClassScatter:
        z = self._centre(mapped.rows.astype(np.float64), mean)
        return ClassScatter.of(z, self._targets(mapped.outputs), directions, mapped.weights)

    def _exact_losses(self, mapped: Part) -> Array:
        z = self._centre(mapped.rows.astype(np.float64), self.mean_)
        losses = self._losses(z, self._targets(mapped.outputs))
        weights = np.ones(len(z)) if mapped.weights is None else mapped.weights
        return np.asarray(weights @ losses)

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
        """Number of units where the relation makes it public: it sets the number of bins.

        It never fails, because it comes before the charge; such rows are refused after it.
        """
        if self.expected_size is not None or self.schema is None or self.neighbours != "replace":
            return self.expected_size
        if groups is not None:
            return count_people(groups)
        try:
            if self._by_person:
                return self.schema.n_people(X)
            return len(column_values(X, self.schema.features[0], self.schema.features))
        except Exception:  # text that is not UTF-8, for example; the message may quote it
            return None

    def _check_columns(self, X: Any, y: Any, groups: Any) -> None:
        """Refuse a frame without the columns of the schema; their names are public."""
        if self.schema is None:
            return
        output = self._output_column()
        if y is None and output is None:
            raise ValueError("Give y, or a schema with a column of the outputs.")
        by_column = self._by_person and groups is None
        needed = (output if y is None else None, self.schema.person if by_column else None)
        self.schema.check_columns(X, roles=[name for name in needed if name is not None])

    def _n_columns(self, X: Any) -> int:
        return table_shape(X)[1] if self.schema is None else len(self.schema.features)

    def _guarded(self, read: Callable[[], Result]) -> Result:
        return read() if self.privacy is None else read_after_charge(read)

    def _tasks(self, chunks: Chunks, engine: str | None) -> list[Task]:
        """Pieces of a table for workers, or all of it, and how many rows its people have."""
        pieces = [chunks]
        if engine is not None and isinstance(chunks, TableChunks):
            pieces = [*chunks.split(_PIECES)]
        if not self._by_person:
            return [(piece, None) for piece in pieces]
        counts = map_parts(self._count_chunks, pieces, engine=engine)
        return list(zip(pieces, Counted.of(counts), strict=True))

    def _count_chunks(self, chunks: Chunks) -> Counter[Any]:
        counts: Counter[Any] = Counter()
        for X, _, groups in map(opened, chunks()):
            counts.update(count_rows(self._people(X, groups)))
        return counts

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
        if self.privacy is not None:
            return part
        if not len(part.outputs):
            raise ValueError(_NO_ROWS)
        if part.weights is None:
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
        frame = X if y is None else {name: y}
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

    # ---- the same step by step, for rows that are held by several parties ---------------------

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
        plan = plan_moments(
            self.privacy, self._n_features(), self._n_outputs(), outputs=self._outputs,
            neighbours=self.neighbours, radius=self.radius, feature_norm=self._norm(),
            split=self.split, weighted=weighted or self._weighted,
            n_gradients=self._n_gradients(size), n_losses=self.n_losses,
            n_directions=self._most_directions(), n_parts=self.n_parts,
        )  # fmt: skip
        plan.check_noise()
        return plan

    def _most_directions(self) -> int:
        return min(self.n_directions, self._n_features())

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

    def scatter_sums(
        self, X: Any, y: Any, mean: Array, directions: Array, plan: MomentPlan, *,
        groups: ArrayLike | None = None,
    ) -> Integers:  # fmt: skip
        """Exact scatter of the classes in some directions. Private: it must be noised."""

        def sums() -> Integers:
            mapped = self._mapped(X, y, groups)
            return reduce(add, (self._sum_scatter(p, mean, plan, directions) for p in mapped))

        return read_after_charge(sums)

    def loss_sums(
        self, X: Any, y: Any, plan: MomentPlan, *, groups: ArrayLike | None = None
    ) -> Integers:
        """Exact sums of losses of what was learned. Private: they must be noised."""

        def sums() -> Integers:
            mapped = self._mapped(X, y, groups)
            return reduce(add, (self._sum_losses(part, plan) for part in mapped))

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
        return shrink_rows(z, self.radius, out=z)

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
            n_rows = len(next(iter(columns.values())))
            if not n_rows:
                raise ValueError(_NO_ROWS)
            part = Part(columns, np.empty(n_rows))
            _warn_of_units(self.schema, part.take(slice(0, _CHUNK)).rows)
            return part
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


def _warn_of_units(schema: Schema, columns: dict[str, Any]) -> None:
    """Warn about columns of rows to predict that are hardly what the schema means."""
    if names := schema.mostly_outside(columns):
        warnings.warn(
            f"More than half of the values of {', '.join(map(repr, names))} lie outside the "
            "declared range and are moved to its ends. Are they in the unit of the schema?",
            stacklevel=6,
        )


def _sum_features(plan: MomentPlan, mapped: Part) -> FeatureSums:
    return sum_features(mapped.rows, plan, mapped.weights)


def _of_same_rows(sums: MomentSums, features: FeatureSums) -> MomentSums:
    if sums.weight != features.weight:
        raise ValueError("The table changed between two passes.")
    return sums


def _weighted_sum(phi: Array, weights: Array | None) -> Array:
    """Sums over rows, with the sum of the weights at the end."""
    w = np.ones(len(phi)) if weights is None else weights
    return np.append(w @ phi.astype(np.float64), w.sum())


class LabelledMomentEstimator(ClassifierMixin, MomentEstimator):  # type: ignore[misc]
    """Moments with class indicators as outputs: what classifiers share."""

    _outputs: Outputs = "classes"
    _checks: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        *,
        classes: ArrayLike | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.classes = classes
        self.class_weight = class_weight

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

    def _log_posterior(self, X: Any) -> Array:
        """Log-probabilities, up to a constant for each row, of the weighted rows."""
        raise NotImplementedError

    @property
    def _priors(self) -> Array:
        """Shares of the classes."""
        raise NotImplementedError

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of `predict_proba`."""
        check_is_fitted(self, "model_")
        scores = self._log_posterior(X) - np.log(self._weights_by_class())
        return np.asarray(log_softmax(scores, axis=1))

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, calibrated from what was released.

        With class weights they are those of the rows as they are, without the weights.
        """
        return np.exp(self.predict_log_proba(X))

    def decision_function(self, X: Any) -> Array:
        """Logarithms of probabilities, with ``class_weight`` weighted; for two classes the odds."""
        check_is_fitted(self, "model_")
        if self.class_weight == "balanced":
            favour = -np.log(self._priors)
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

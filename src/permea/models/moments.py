"""Estimators that learn linear models from moments, which leave the wall once.

What is learned from the sums is in :mod:`permea.models.linear`.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from permea._arrays import Array
from permea.models.calibration import Calibration, calibrate
from permea.models.linear import (
    LinearModel,
    bayesian,
)
from permea.models.logistic import N_STEPS, Logits
from permea.models.moment_estimator import LabelledMomentEstimator, MomentEstimator
from permea.models.parts import Part
from permea.privacy.moments import (
    Moments,
    Outputs,
)
from permea.privacy.release import Release

_MANY_ROWS = 20_000  # or people, from which the logistic loss pays: docs/methods/moments.md


class MomentClassifier(LabelledMomentEstimator):
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
    features : {"fourier", "gradients", "edges", "identity"} or transformer, default="fourier"
        A public map of one row: see :mod:`permea.models.features`. "gradients" is for images, and
        "edges" for hulls of images: "gradients" without Fourier features.
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
    >>> from permea import Privacy
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

    def __init__(
        self,
        *,
        loss: str = "auto",
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
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

    def learn(self, released: Release) -> Self:
        """Learn from a release: all of it is post-processing."""
        super().learn(released)
        self.loss_ = "squared"
        self.calibration_: Calibration = calibrate(self.moments_, self.model_)
        return self

    def _descend(self, gradient: Callable[[Logits], tuple[Array, float]]) -> None:
        super()._descend(gradient)
        self.loss_ = "logistic"

    def _log_posterior(self, X: Any) -> Array:
        """Log-probabilities, or scores that are some up to a constant, of the weighted rows."""
        scores: Array = np.concatenate([scores for _, scores in self._scores(X)]).astype(np.float64)
        return scores if self.loss_ == "logistic" else self.calibration_.log_probabilities(scores)

    @property
    def _priors(self) -> Array:
        return self.calibration_.priors


class MomentRegressor(RegressorMixin, MomentEstimator):  # type: ignore[misc]
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
    >>> from permea import Privacy
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

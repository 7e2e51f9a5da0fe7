"""The target's classifier: few labels of its own, a source artefact, and a method."""

from collections.abc import Sequence
from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from permea._arrays import Array, Indices, Mask
from permea._parallel import batches
from permea._validate import (
    Accepted,
    has,
    instance,
    jobs,
    number,
    one_of,
    random_state,
    validate_parameters,
    whole,
)
from permea.models import KernelAffineHullMachine, MembershipAutoencoder, MembershipMapping
from permea.transfer.alignment import Alignment, align
from permea.transfer.centers import CENTRE_DIMENSIONS, fit_centers
from permea.transfer.self_training import DIMENSIONS, self_train
from permea.transfer.source import SourceModel
from permea.transfer.source2target import SOURCE_DIMENSIONS, fit_source2target
from permea.transfer.task import (
    SHARES_OF_ROWS,
    UNLABELLED,
    AlignedSource,
    Iteration,
    Task,
    TransferModel,
)

METHODS: dict[str, Any] = {
    "consensus": self_train,
    "centers": fit_centers,
    "source2target": fit_source2target,
}
SEQUENCES = {  # dimensions of the iterations where none are given
    "consensus": DIMENSIONS,
    "centers": CENTRE_DIMENSIONS,
    "source2target": SOURCE_DIMENSIONS,
}
MODELS = {  # family of the target classifier where none is given
    "consensus": KernelAffineHullMachine(),
    "centers": MembershipAutoencoder(disturbance="gamma"),
    "source2target": MembershipAutoencoder(),
}
DEFAULT_METHOD = "consensus"
_BATCH = 2048  # queries that are answered together


class TransferClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learn a target with few labels with the help of a private source artefact.

    The target may have other features than the source. Rows without label take part in the
    learning. The source's rows are never needed: everything about the source is in the
    artefact and covered by its certificate.

    Parameters
    ----------
    source : SourceModel
        Fitted artefact of the owner of the source.
    method : {"consensus", "centers", "source2target"}, default="consensus"
        "consensus": the library's own, see `permea.transfer.self_training`; self-training with
        experts of source and target. "centers": 000 Algorithm 7, class centres
        align source and target. "source2target": 001 eq. (1.82)-(1.87), a mapping learned from
        source to target.
    alignment : {"auto", "identity", "subspace"}, default="auto"
        How target rows reach the space of the source. "identity": the features are the same; after
        a release of moments they are encoded as the source's are, and everything is learned in
        that space. "subspace": through the latent directions of both sides (001 eq. 1.79). "auto":
        the former for equal numbers of features, else the latter.
    model : estimator with fit, reconstruct and distance, default=None
        Family of the target classifier: the unfitted first layer. None takes the family of the
        method's document. ``dimensions`` decide its ``n_components``; its ``max_inducing`` or
        ``n_rules`` holds where it is not the family's default.
    dimensions : tuple of int, default=None
        Subspace dimensions n|_k of the iterations, non-decreasing; None takes the method's own.
    shares : float or tuple of float, default=None
        M/N of the iterations (000), or r_max (001): inducing points or rules per row, for families
        that have them. None takes that of ``model`` where it was set, and the method's own
        otherwise: 1/10 to 1/4 for "centers", 1/2 for the others.
    n_directions : int, default=None
        n_st, the dimension of the subspace that joins source and target. None takes as many
        directions as the source hands over and the target has.
    mapping : MembershipMapping, default=None
        For "source2target": the unfitted mapping of (1.85). Its ``max_inducing``, where it is a
        share, gives at most 1000 inducing points (1.86).
    n_layers : int, default=5
        Layers L of the target classifier.
    branch_size : int, default=1000
        Nominal rows of a branch of the target classifier.
    unlabelled : object, default=-1
        Label that marks rows without one. Among strings "-1", the empty string, None and NaN mark
        them too.
    n_jobs : int, default=None
        Workers, as joblib counts them.
    random_state : int, RandomState instance or None, default=None
        For k-means.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Classes of the source and of the target's labels.
    labels_ : ndarray of shape (N,)
        Label of each training row in the end; the given ones where there were any.
    history_ : list of Iteration
        Passes over the unlabelled rows: how many labels each changed and, if ``truth`` was given,
        their accuracy.
    alignment_ : permea.transfer.alignment.Alignment
        How target rows reach the space of the source.
    certificate_ : permea.privacy.Certificate or None
        That of the source. There is no guarantee for the target's rows.
    holds_private_rows_ : bool
        True: the target's own rows are in here.
    n_features_in_ : int
        Number of features of the target.

    See Also
    --------
    SourceModel : the artefact.
    permea.report.plots.plot_history : a picture of ``history_``.

    Examples
    --------
    >>> from permea import Privacy
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> X = X / 16
    >>> promise = Privacy(epsilon=2, delta=1e-5, domain=(0, 1))
    >>> source = SourceModel(privacy=promise, random_state=0).fit(X[:1000], y[:1000])
    >>> few = y[1000:1600].copy()
    >>> few[50:] = -1  # unlabelled
    >>> clf = TransferClassifier(source, random_state=0).fit(X[1000:1600], few)
    >>> clf.score(X[1600:], y[1600:]) > 0.85
    True
    """

    _parameters: ClassVar[Accepted] = {
        "method": one_of(*METHODS),
        "alignment": one_of("auto", "identity", "subspace"),
        "model": has("fit", "reconstruct", "distance") | None,
        "dimensions": instance(Sequence, np.ndarray) | None,
        "shares": number(above=0, most=1) | instance(Sequence, np.ndarray) | None,
        "n_directions": whole(1) | None,
        "mapping": instance(MembershipMapping) | None,
        "n_layers": whole(1),
        "branch_size": whole(1),
        "n_jobs": jobs,
        "random_state": random_state,
    }

    def __init__(
        self,
        source: SourceModel,
        *,
        method: str = DEFAULT_METHOD,
        alignment: str = "auto",
        model: Any = None,
        dimensions: tuple[int, ...] | None = None,
        shares: float | tuple[float, ...] | None = None,
        n_directions: int | None = None,
        mapping: MembershipMapping | None = None,
        n_layers: int = 5,
        branch_size: int = 1000,
        unlabelled: object = -1,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.source = source
        self.method = method
        self.alignment = alignment
        self.model = model
        self.dimensions = dimensions
        self.shares = shares
        self.n_directions = n_directions
        self.mapping = mapping
        self.n_layers = n_layers
        self.branch_size = branch_size
        self.unlabelled = unlabelled
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_clone__(self) -> "TransferClassifier":
        """Unfitted copy that keeps the source: the artefact is given, it cannot be fitted again."""
        values = {
            name: value if name == "source" else clone(value, safe=False)
            for name, value in self.get_params(deep=False).items()
        }
        return type(self)(**values)

    def fit(self, X: ArrayLike, y: ArrayLike, *, truth: ArrayLike | None = None) -> Self:
        """Learn from target rows, of which few have labels.

        Parameters
        ----------
        X : array-like of shape (N, p_tg)
            Target rows.
        y : array-like of shape (N,)
            Labels; ``unlabelled`` marks rows without one.
        truth : array-like of shape (N,), optional
            True labels, for the accuracies in ``history_`` and nothing else.

        Returns
        -------
        TransferClassifier
            This classifier, fitted.
        """
        validate_parameters(self)
        if y is None:
            raise ValueError(
                "TransferClassifier requires y to be passed, but the target y is None. Mark rows "
                "without label in it."
            )
        self._check_source()
        rows = self._read(X)
        check_consistent_length(rows, y)
        classes, numbers = number_labels(
            column_or_1d(y, warn=True), self.unlabelled, self.source.classes_
        )
        if np.any(numbers >= 0):
            check_classification_targets(classes[numbers[numbers >= 0]])
        task = self._task(rows, numbers, classes, truth)
        fitted = METHODS[self.method](task, dimensions=self._sequence(), n_layers=self.n_layers)
        return self._keep(task, classes, fitted)

    def _check_source(self) -> None:
        if not isinstance(self.source, SourceModel):
            raise TypeError(
                f"source must be a SourceModel, got {type(self.source).__name__}. Load the file "
                "that its owner saved with permea.load."
            )
        check_is_fitted(self.source, "classifier_")

    def _read(self, X: Any) -> Array:
        """Target rows; those with the columns of a source of moments as the source encodes them."""
        source, schema = self.source, self.source.schema
        if schema is not None:
            if self.alignment == "subspace":
                raise ValueError("A source with a schema serves tables with its columns only.")
            self.n_features_in_ = len(schema.features)
            self.feature_names_in_ = np.asarray(schema.features, dtype=object)
            return source.encode(X)
        rows = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        return source.encode(rows) if self._encodes else np.asarray(rows)

    @property
    def _encodes(self) -> bool:
        """Whether the rows have the columns of a source of moments, and are encoded first."""
        if self.source.encoder_ is None or self.alignment == "subspace":
            return False
        return bool(self.n_features_in_ == self.source.n_features_in_)

    def _sequence(self) -> tuple[int, ...] | None:
        if self.dimensions is None:
            return None
        sequence = tuple(int(n) for n in self.dimensions)
        if not sequence or min(sequence) < 1 or list(sequence) != sorted(sequence):
            raise ValueError(
                "dimensions must be positive whole numbers that do not decrease, such as "
                "(5, 10, 15, 20)."
            )
        return sequence

    def _shares(self) -> tuple[float, ...] | None:
        """M/N of each iteration; None for the method's own, or the model's."""
        if self.shares is None:
            return None
        count = len(SEQUENCES[self.method] if self.dimensions is None else self.dimensions)
        if np.ndim(self.shares) == 0:
            return (float(self.shares),) * count  # type: ignore[arg-type]
        shares = tuple(float(share) for share in self.shares)  # type: ignore[union-attr]
        if (
            len(shares) != count
            or list(shares) != sorted(shares)
            or not (all(0 < share <= 1 for share in shares))
        ):
            raise ValueError(
                f"shares must be {count} numbers above 0 and at most 1 that do not decrease, one "
                "for each of the dimensions, or one number for all."
            )
        return shares

    def _own_share(self) -> bool:
        """Whether the user set the number of inducing points or rules in the model."""
        if self.model is None or self.shares is not None:
            return False
        parameters = signature(type(self.model)).parameters
        values = self.model.get_params(deep=False)
        return any(
            name in values and values[name] != parameters[name].default for name in SHARES_OF_ROWS
        )

    def _task(
        self, rows: Array, numbers: Indices, classes: NDArray[Any], truth: ArrayLike | None
    ) -> Task:
        source = self.source
        alignment = self._alignment(rows)
        if not np.any(numbers >= 0) and not alignment.is_identity:
            raise ValueError(
                "No target row has a label, and source and target have different features: nothing "
                "tells which target class is which. Label at least one row of each class."
            )
        columns = np.searchsorted(classes, source.classes_.astype(classes.dtype))
        aligned = AlignedSource(source, alignment, columns, len(classes))
        known = None
        if truth is not None:
            check_consistent_length(rows, truth)
            known = _numbered_truth(truth, classes)
        family: Any = MODELS[self.method] if self.model is None else self.model
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return Task(
            rows, numbers, len(classes), aligned, known, family, self.branch_size, self.n_jobs,
            int(seed), self._shares(), self._own_share(), self.n_directions, self.mapping,
        )  # fmt: skip

    def _alignment(self, rows: Array) -> Alignment:
        source, p = self.source, self.n_features_in_
        if self.alignment == "identity" and p != source.n_features_in_:
            raise ValueError(
                f"The target has {p} features and the source {source.n_features_in_}: "
                'they cannot be the same. Use alignment="subspace".'
            )
        same = self.alignment != "subspace" and p == source.n_features_in_
        directions = source.directions_ if same else source.column_directions()[0]
        if self.n_directions is not None and self.n_directions > len(directions):
            raise ValueError(
                f"n_directions={self.n_directions} is more than the {len(directions)} latent "
                "directions that the source hands over; SourceModel has a parameter for them."
            )
        return Alignment() if same else align(directions, -1, rows, self.n_directions)

    def _keep(self, task: Task, classes: NDArray[Any], fitted: TransferModel) -> Self:
        self.classes_ = classes
        self.alignment_ = task.source.alignment
        self.fitted_ = fitted
        self.history_: list[Iteration] = fitted.history
        self.certificate_ = self.source.certificate_
        self.holds_private_rows_ = True
        numbers = task.labels.copy()
        free = task.unlabelled
        if free.any():
            numbers[free] = self._nearest(task.rows[free])
        self.labels_ = classes[numbers]
        return self

    def distances(self, X: ArrayLike) -> Array:
        """Distance of each row to each class, all experts combined, shape (m, C).

        For "consensus" these are costs, −log posterior, not lengths.
        """
        rows = self._checked(X)
        return np.concatenate([self.fitted_.combined(parts) for parts in self._parts(rows)])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each target row.

        Parameters
        ----------
        X : array-like of shape (m, p_tg)
            Target rows.

        Returns
        -------
        ndarray of shape (m,)
            Class labels.
        """
        winners = self._nearest(self._checked(X))
        return np.asarray(self.classes_[winners])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Posterior of the classes; for the documents' methods matching scores (004 Def. 8).

        Not calibrated; the most probable class is the predicted one.
        """
        distances = self.distances(X)
        return np.asarray(self.fitted_.probabilities(distances))

    def predict_source(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each target row by the source's classifier alone.

        The row goes through the alignment (001 eq. 1.79) and no further.
        """
        return self.source.predict_space(self.to_source(X))

    def to_source(self, X: ArrayLike) -> Array:
        """Target rows in the space of the source (001 eq. 1.79)."""
        return np.asarray(self.fitted_.source.to_space(self._checked(X)))

    def who_decided(self, X: ArrayLike) -> NDArray[Any]:
        """Name the expert that decided each row.

        Returns
        -------
        ndarray of str, shape (m,)
            "target", "source", or "mapping" for the source through the mapping (001 eq. 1.87).
        """
        deciders = []
        for parts in self._parts(self._checked(X)):
            winners = self.fitted_.combined(parts).argmin(axis=1)
            deciders.append(self.fitted_.deciders(parts, winners))
        return np.concatenate(deciders)

    def _nearest(self, rows: Array) -> Indices:
        """Number of the class that wins each row, batch by batch."""
        found = [self.fitted_.nearest(rows[part]) for part in batches(len(rows), _BATCH)]
        return np.concatenate(found)

    def _parts(self, rows: Array) -> list[dict[str, Array]]:
        """Distances by all experts, batch by batch."""
        return [self.fitted_.parts(rows[part]) for part in batches(len(rows), _BATCH)]

    def _checked(self, X: ArrayLike) -> Array:
        check_is_fitted(self, "fitted_")
        if self.source.schema is not None:
            return self.source.encode(X)
        rows = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self.source.encode(rows) if self._encodes else np.asarray(rows)


def _numbered_truth(truth: ArrayLike, classes: NDArray[Any]) -> Indices:
    """Class numbers of true labels; −1 for an unknown class."""
    values = np.asarray(truth)
    values = values.astype(classes.dtype) if classes.dtype.kind in "UO" else values
    places = np.searchsorted(classes, values).clip(0, len(classes) - 1)
    return np.where(classes[places] == values, places, -1)


def number_labels(
    y: ArrayLike, unlabelled: object, source_classes: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Classes of source and target together, and the class number of each row.

    Parameters
    ----------
    y : array-like of shape (N,)
        Labels of any kind. ``unlabelled`` marks rows without one; among strings and objects the
        empty string, None and NaN do so too.
    unlabelled : object
        The marker, −1 by default; among strings it is compared as text.
    source_classes : ndarray
        Classes the source knows.

    Returns
    -------
    classes, numbers : ndarray, ndarray
        Sorted classes, and for each row its class number or −1.

    Examples
    --------
    >>> import numpy as np
    >>> number_labels(["cat", "", "dog", "-1"], -1, np.array(["cat", "bird"]))
    (array(['bird', 'cat', 'dog'], dtype='<U4'), array([ 1, -1,  2, -1]))
    >>> number_labels([3, -1, 7], -1, np.array([3, 5]))
    (array([3, 5, 7]), array([ 0, -1,  2]))
    """
    values = np.asarray(y)
    if values.ndim != 1:
        raise ValueError(f"Labels must be one column, got shape {values.shape}.")
    free = _without_label(values, unlabelled)
    source_text, target_text = source_classes.dtype.kind in "UO", values.dtype.kind in "UO"
    named: NDArray[Any] = values[~free]
    if target_text and not source_text:
        named = _as_numbers(named)
    elif source_text and named.size and not target_text:
        raise ValueError(
            "The labels of the target are numbers and those of the source are words. Use the same "
            "words for the same classes."
        )
    if np.any(_without_label(source_classes, unlabelled)):
        raise ValueError(
            f"The source has a class {unlabelled!r}, which also marks unlabelled rows. Choose "
            "another marker with unlabelled=… ."
        )
    if source_text:
        named = named.astype(str)
        source_classes = source_classes.astype(str)
    classes = np.union1d(source_classes, named) if named.size else np.unique(source_classes)
    numbers = np.full(len(values), UNLABELLED, dtype=np.intp)
    numbers[~free] = np.searchsorted(classes, named)
    return classes, numbers


def _as_numbers(named: NDArray[Any]) -> NDArray[Any]:
    """Numbers that came in an array of objects or text, as the source's classes are."""
    try:
        values = np.asarray(named.astype(np.float64))
    except (TypeError, ValueError):
        raise ValueError(
            "The labels of the target are words and those of the source are numbers. Use the same "
            "names for the same classes."
        ) from None
    whole = np.all(values == np.floor(values))
    return values.astype(np.int64) if whole else values


def _without_label(values: NDArray[Any], unlabelled: object) -> Mask:
    if values.dtype.kind not in "UO":
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
        if isinstance(unlabelled, str):
            return missing
        return np.asarray(missing | (values == unlabelled))
    marks = {"", str(unlabelled)}
    free = [item is None or item != item or str(item) in marks for item in values.tolist()]
    return np.asarray(free, dtype=bool)

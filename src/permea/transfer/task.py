"""The target problem that every transfer method gets, and the model that each returns."""

import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from permea._arrays import Array, Indices, Mask
from permea.compose import ReconstructionClassifier
from permea.models import KernelAffineHullMachine, MembershipMapping
from permea.models.base import ShrunkWarning, matching_scores
from permea.transfer.alignment import Alignment
from permea.transfer.source import SourceModel

UNLABELLED = -1  # class number of a row without a label
SHARES_OF_ROWS = ("max_inducing", "n_rules")  # parameters of a family that M/N or r_max sets


class Iteration(NamedTuple):
    """One pass over the unlabelled rows."""

    step: str  #: what was done
    changed: int  #: unlabelled rows whose label changed
    accuracy: float | None  #: share of correct labels among the unlabelled, if truth is given


@dataclass(frozen=True)
class AlignedSource:
    """A source applied to target rows; its classes are numbered as the target's are."""

    model: SourceModel
    alignment: Alignment
    columns: Indices  #: class number of each class of the source
    n_classes: int

    @property
    def encodes(self) -> bool:
        """Whether aligned rows have the columns of the source and are encoded as its rows are.

        With the same columns on both sides the rows of the task were encoded already.
        """
        return not self.alignment.is_identity and self.model.encoder_ is not None

    def enter(self, rows: Array) -> Array:
        """Aligned rows in the space of the source; outside its domain they are clipped."""
        if not self.encodes:
            return rows
        with warnings.catch_warnings():  # they are estimates of such rows
            warnings.simplefilter("ignore", UserWarning)
            return self.model.encode(rows)

    def to_space(self, Y: Array) -> Array:
        """Rows of the task in the space of the source."""
        return self.enter(self.alignment.to_source(Y))

    def distances(self, Z: Array) -> Array:
        """Distance of rows of the source space to each class; infinity for unknown classes."""
        known = self.model.space_distances(Z)
        result = np.full((len(Z), self.n_classes), np.inf, dtype=known.dtype)
        result[:, self.columns] = known
        return result

    def class_model(self, label: int) -> Any:
        """Model of one class that the source knows."""
        return self.model.class_models[int(np.flatnonzero(self.columns == label)[0])]


@dataclass(frozen=True)
class Task:
    """Target rows, some of them labelled, a source, and how a target classifier is learned."""

    rows: Array  #: (N, p_tg)
    labels: Indices  #: (N,) class numbers, −1 for unlabelled
    n_classes: int
    source: AlignedSource
    truth: Indices | None = None  #: (N,) true class numbers, for the history only
    model: Any = field(default_factory=KernelAffineHullMachine)  #: unfitted first layer
    branch_size: int = 1000
    n_jobs: int | None = None
    seed: int = 0
    shares: tuple[float, ...] | None = None  #: M/N of each iteration; None for the method's own
    own_share: bool = False  #: the model's own number of inducing points or rules holds
    n_directions: int | None = None  #: n_st; None for as many as both sides have
    mapping: MembershipMapping | None = None  #: unfitted source2target; None for that of 001

    @property
    def unlabelled(self) -> Mask:
        """Rows without a label."""
        return np.asarray(self.labels == UNLABELLED)

    @property
    def labelled_classes(self) -> Indices:
        """Classes that have a labelled row."""
        return np.unique(self.labels[~self.unlabelled])

    def record(self, step: str, before: Indices, now: Indices) -> Iteration:
        """How many labels a pass changed, and how accurate they are."""
        free = self.unlabelled
        changed = int(np.sum(before[free] != now[free]))
        accuracy = None
        if self.truth is not None and free.any():
            accuracy = float(np.mean(now[free] == self.truth[free]))
        return Iteration(step, changed, accuracy)

    def fit_classifier(
        self, Y: Array, labels: Indices, *, n_components: int, n_layers: int, share: float
    ) -> ReconstructionClassifier:
        """Learn a classifier of any family from target rows (001 Alg. 4).

        Parameters
        ----------
        Y : ndarray of shape (N, p)
            Rows.
        labels : ndarray of shape (N,)
            Class numbers; rows with −1 are left out.
        n_components : int
            Subspace dimension; a class with fewer rows takes fewer, without a warning.
        n_layers : int
            Depth L.
        share : float
            Inducing points or rules per row, M/N or r_max, for families that have them; with
            ``own_share`` those of the model hold.

        Returns
        -------
        ReconstructionClassifier
            It may know fewer classes than the task has; see `class_distances`.
        """
        given = labels >= 0
        dimension = max(min(n_components, Y.shape[1]), 1)
        layer = clone(self.model)
        wanted: dict[str, Any] = {"n_components": dimension}
        if not self.own_share:
            wanted.update(dict.fromkeys(SHARES_OF_ROWS, share))
        known = layer.get_params(deep=False)
        layer.set_params(**{name: value for name, value in wanted.items() if name in known})
        classifier = ReconstructionClassifier(
            layer,
            n_layers=n_layers,
            branch_size=self.branch_size,
            allow_single_class=True,
            n_jobs=self.n_jobs,
            random_state=self.seed,
        )
        with warnings.catch_warnings():  # a class with few rows has few dimensions: expected
            warnings.simplefilter("ignore", ShrunkWarning)
            return classifier.fit(Y[given], labels[given])


def class_distances(
    classifier: ReconstructionClassifier, Y: Array, n_classes: int, *, winning: bool = False
) -> Array:
    """Distance of each row to each of all classes; infinity for those without training rows.

    With ``winning`` only the smallest distance of each row is computed for certain; the others may
    be infinite.
    """
    result = np.full((len(Y), n_classes), np.inf, dtype=Y.dtype)
    if len(Y):
        measure = classifier.winning_distances if winning else classifier.distances
        result[:, classifier.classes_] = measure(Y)
    return result


def initial_dimension(labels: Indices) -> int:
    """Dimension of the initial classifier, min(20, min_c N_c − 1), at least one (000 §5).

    Examples
    --------
    >>> import numpy as np
    >>> initial_dimension(np.array([0, 0, 0, 1, 1, 1, 1, -1]))
    2
    """
    counts = np.bincount(labels[labels >= 0])
    return max(min(20, int(counts[counts > 0].min()) - 1), 1)


def initial_labels(task: Task, rows: Array) -> Indices:
    """Labels of all rows by the initial classifier, and by the source for classes it lacks.

    000 §5, item 5: n = min(20, min_c N_c − 1), M/N = 1, one layer. ``rows`` are the target rows in
    the space of the classifier. A class without labelled rows is known through the source only;
    without any label the source alone decides.
    """
    labels = task.labels.copy()
    free = task.unlabelled
    if not free.any():
        return labels
    known = task.labelled_classes
    distances = np.full((int(free.sum()), task.n_classes), np.inf)
    if known.size:
        first = task.fit_classifier(
            rows, task.labels, n_components=initial_dimension(task.labels), n_layers=1, share=1.0
        )
        distances = class_distances(first, rows[free], task.n_classes)
    if known.size < task.n_classes:
        aligned = task.source.to_space(task.rows[free])
        missing = np.setdiff1d(np.arange(task.n_classes), known)
        distances[:, missing] = task.source.distances(aligned)[:, missing]
    labels[free] = distances.argmin(axis=1)
    return labels


class TransferModel:
    """A fitted method: one matrix for each expert, and a rule that combines them.

    Here the smallest distance over all experts counts (000 eq. 121, 001 eq. 1.87).

    Examples
    --------
    >>> import numpy as np
    >>> parts = {"target": np.array([[1.0, 4.0]]), "source": np.array([[3.0, 0.5]])}
    >>> rule = TransferModel()
    >>> rule.combined(parts), rule.deciders(parts, np.array([1]))
    (array([[1. , 0.5]]), array(['source'], dtype='<U6'))
    """

    source: AlignedSource
    history: list[Iteration]  #: passes over the unlabelled rows

    def parts(self, Y: Array) -> dict[str, Array]:
        """Distances of each row to each class, one matrix for each expert."""
        raise NotImplementedError

    def combined(self, parts: dict[str, Array]) -> Array:
        """One distance for each row and class; the smallest wins."""
        return np.asarray(np.minimum.reduce(list(parts.values())))

    def nearest(self, Y: Array) -> Indices:
        """Number of the class with the smallest combined distance."""
        return np.asarray(self.combined(self.parts(Y)).argmin(axis=1))

    def deciders(self, parts: dict[str, Array], winners: Indices) -> NDArray[Any]:
        """Expert with the smallest distance to the winning class; the first of equals."""
        rows = np.arange(len(winners))
        distances = np.stack([part[rows, winners] for part in parts.values()])
        return np.asarray(np.array(list(parts))[distances.argmin(axis=0)])

    def probabilities(self, combined: Array) -> Array:
        """Class-matching scores (004 Def. 8) divided by their sum."""
        scores = matching_scores(combined)
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))

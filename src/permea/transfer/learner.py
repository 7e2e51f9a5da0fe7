"""Several answers to one question: which class is nearest, and whose answer was it."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from permea._arrays import Array, Indices
from permea.compose import ReconstructionClassifier
from permea.compose.classifier import matching_scores
from permea.compose.layers import distance_below
from permea.models import MembershipMapping
from permea.models.base import ShrunkWarning, row_norms
from permea.transfer.alignment import Alignment
from permea.transfer.task import AlignedSource, Iteration, Task

Parts = dict[str, Array]


class FittedMethod(Protocol):
    """What a method leaves behind to answer queries."""

    @property
    def history(self) -> list[Iteration]:
        """Passes over the unlabelled rows."""
        ...

    def parts(self, Y: Array) -> Parts:
        """Distances of each row to each class, one matrix for each voice."""
        ...

    def combined(self, parts: Parts) -> Array:
        """One distance for each row and class; the smallest wins."""
        ...

    def nearest(self, Y: Array) -> Indices:
        """Number of the class that wins each row."""
        ...

    def deciders(self, parts: Parts, winners: Indices) -> NDArray[Any]:
        """Name of the voice that decided each row."""
        ...

    def probabilities(self, combined: Array) -> Array:
        """Numbers between 0 and 1 that rank the classes as the distances do."""
        ...


class NearestVoice:
    """The smallest distance over all voices counts (000 eq. 121, 001 eq. 1.87).

    Examples
    --------
    >>> import numpy as np
    >>> parts = {"target": np.array([[1.0, 4.0]]), "source": np.array([[3.0, 0.5]])}
    >>> rule = NearestVoice()
    >>> rule.combined(parts), rule.deciders(parts, np.array([1]))
    (array([[1. , 0.5]]), array(['source'], dtype='<U6'))
    """

    def parts(self, Y: Array) -> Parts:
        """Distances of each row to each class, one matrix for each voice: each method's own."""
        raise TypeError(f"{type(self).__name__} has no voices of its own")

    def nearest(self, Y: Array) -> Indices:
        """Number of the class of the smallest distance."""
        return np.asarray(self.combined(self.parts(Y)).argmin(axis=1))

    def combined(self, parts: Parts) -> Array:
        """Smallest distance of each row to each class."""
        return np.asarray(np.minimum.reduce(list(parts.values())))

    def deciders(self, parts: Parts, winners: Indices) -> NDArray[Any]:
        """Voice whose distance to the winning class is the smallest; the first of equals."""
        rows = np.arange(len(winners))
        distances = np.stack([part[rows, winners] for part in parts.values()])
        return np.asarray(np.array(list(parts))[distances.argmin(axis=0)])

    def probabilities(self, combined: Array) -> Array:
        """Class-matching scores (004 Def. 8) divided by their sum."""
        scores = matching_scores(combined)
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class TargetModel:
    """A classifier of the target whose answers count all classes, known to it or not."""

    classifier: Any
    n_classes: int

    def distances(self, Y: Array) -> Array:
        """Distance of each row to each class; infinity for classes without rows."""
        return self._numbered(self.classifier.distances, Y)

    def winning(self, Y: Array) -> Array:
        """The same where it is the smallest of its row; the others may be infinite."""
        return self._numbered(self.classifier.winning_distances, Y)

    def _numbered(self, ask: Callable[[Array], Array], Y: Array) -> Array:
        answer = np.full((len(Y), self.n_classes), np.inf, dtype=Y.dtype)
        if len(Y):
            answer[:, self.classifier.classes_] = ask(Y)
        return answer


@dataclass(frozen=True)
class Learner:
    """How a target classifier is learned, whatever the family (001 Alg. 4)."""

    model: Any  #: unfitted first layer of any family
    n_classes: int
    branch_size: int
    n_jobs: int | None
    seed: int

    def fit(
        self, Y: Array, labels: Indices, *, n_components: int, n_layers: int, share: float
    ) -> TargetModel:
        """Learn every class from its rows.

        Parameters
        ----------
        Y : ndarray of shape (N, p)
            Rows.
        labels : ndarray of shape (N,)
            Class numbers; rows with −1 are left out.
        n_components : int
            Subspace dimension; a class with fewer rows takes fewer, silently.
        n_layers : int
            Depth; at most ``n_components``.
        share : float
            Inducing points per row, M/N or r_max, for families that have them.

        Returns
        -------
        TargetModel
        """
        given = labels >= 0
        dimension = max(min(n_components, Y.shape[1]), 1)
        classifier = ReconstructionClassifier(
            self._layer(dimension, share),
            n_layers=min(n_layers, dimension),
            branch_size=self.branch_size,
            allow_single_class=True,
            n_jobs=self.n_jobs,
            random_state=self.seed,
        )
        with warnings.catch_warnings():  # a class with few rows carries few dimensions: expected
            warnings.simplefilter("ignore", ShrunkWarning)
            classifier.fit(Y[given], labels[given])
        return TargetModel(classifier, self.n_classes)

    def _layer(self, dimension: int, share: float) -> Any:
        layer = clone(self.model)
        known = layer.get_params(deep=False)
        wishes = {"n_components": dimension, "max_inducing": share, "n_rules": share}
        return layer.set_params(**{name: wishes[name] for name in wishes if name in known})


def first_dimension(labels: Indices) -> int:
    """Dimension of the initial classifier, min(20, min_c N_c − 1), at least one (000 §5).

    Examples
    --------
    >>> import numpy as np
    >>> first_dimension(np.array([0, 0, 0, 1, 1, 1, 1, -1]))
    2
    """
    counts = np.bincount(labels[labels >= 0])
    return max(min(20, int(counts[counts > 0].min()) - 1), 1)


def first_labels(task: Task, learner: Learner, rows: Array) -> Indices:
    """Labels of all rows by the initial classifier; the source speaks for classes it lacks.

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
        first = learner.fit(
            rows, task.labels, n_components=first_dimension(task.labels), n_layers=1, share=1.0
        )
        distances = first.distances(rows[free])
    if known.size < task.n_classes:
        aligned = task.source.alignment.to_source(task.rows[free])
        missing = np.setdiff1d(np.arange(task.n_classes), known)
        distances[:, missing] = task.source.distances(aligned)[:, missing]
    labels[free] = distances.argmin(axis=1)
    return labels


_CENTRE_DIMENSIONS = (4, 6, 8, 10)  # 000 §5
SHARES = (1 / 10, 1 / 8, 1 / 6, 1 / 4)


@dataclass(frozen=True)
class CentersModel(NearestVoice):
    """Decision of 000 eq. (121): the nearer of the target's and the source's image decides."""

    target: TargetModel
    source: AlignedSource
    alignment: Alignment  #: Vᵗᵍ and V⁺ˢʳ
    target_centres: Array  #: (C, n) m̄ᵗᵍ (131)
    source_centres: Array  #: (C, n) m̄⁺ˢʳ (118); NaN where the source does not know the class
    history: list[Iteration] = field(default_factory=list)

    def parts(self, Y: Array) -> dict[str, Array]:
        """Distances of each row to each class, as either side sees it."""
        return {"target": self.target.distances(Y), "source": self.through_centres(Y)}

    def nearest(self, Y: Array) -> Indices:
        """Class of each row by (121): that of the smallest distance, which alone is computed."""
        parts = {"target": self.target.winning(Y)}
        parts["source"] = self.through_centres(Y, parts["target"].min(axis=1))
        return np.asarray(self.combined(parts).argmin(axis=1))

    def through_centres(self, Y: Array, cutoff: Array | None = None) -> Array:
        """Distance of f_c(y) (120) to its image in class c of the source.

        Distances not below ``cutoff`` are of no interest and may be infinite.
        """
        codes = self.alignment.to_latent(Y)
        answer = np.full((len(Y), self.source.n_classes), np.inf, dtype=Y.dtype)
        shift = self.source_centres - self.target_centres
        for label in np.flatnonzero(np.isfinite(shift).all(axis=1)):
            model = self.source.class_model(int(label))
            moved = self.alignment.from_latent(codes + shift[label].astype(Y.dtype))
            answer[:, label] = (
                model.distance(moved) if cutoff is None else distance_below(model, moved, cutoff)
            )
        return answer


def centre_alignment(task: Task) -> tuple[Alignment, Array]:
    """Vᵗᵍ with V⁺ˢʳ, and the source's class centres numbered as the target's classes.

    For equal dimensions Vᵗᵍ = V⁺ˢʳ (000 Alg. 7, step 2).
    """
    model, given = task.source.model, task.source.alignment
    directions = model.directions_.astype(task.rows.dtype)
    pair = Alignment(directions, directions) if given.is_identity else given
    assert pair.source is not None
    centres = np.full((task.n_classes, pair.source.shape[0]), np.nan)
    centres[task.source.columns] = model.centres_[:, : pair.source.shape[0]]
    return pair, centres


def class_centres(codes: Array, labels: Indices, n_classes: int) -> Array:
    """Median of the codes of each class (000 eq. 119); NaN for a class without rows."""
    centres = np.full((n_classes, codes.shape[1]), np.nan)
    for label in np.unique(labels[labels >= 0]):
        centres[label] = np.median(codes[labels == label], axis=0)
    return centres


def fit_centers(
    task: Task, learner: Learner, *, dimensions: tuple[int, ...] | None, n_layers: int
) -> CentersModel:
    """000 Algorithm 7: label the unlabelled rows by both sides, in iterations of growing detail.

    Parameters
    ----------
    task : Task
        The target problem.
    learner : Learner
        Family and settings of the target classifier.
    dimensions : tuple of int, optional
        The sequence n|_k; (4, 6, 8, 10) when None. M/N goes from 1/10 to 1/4 along with it.
    n_layers : int
        L of the last iteration; the others have one layer (step 5).

    Returns
    -------
    CentersModel
    """
    sequence = _CENTRE_DIMENSIONS if dimensions is None else dimensions
    shares = np.interp(np.linspace(0, 1, len(sequence)), np.linspace(0, 1, len(SHARES)), SHARES)
    alignment, source_centres = centre_alignment(task)
    codes = alignment.to_latent(task.rows)
    labels = first_labels(task, learner, task.rows)  # step 1, (126)
    history = [task.record("first labels", task.labels, labels)]
    centres = class_centres(codes, labels, task.n_classes)  # step 3, (127)
    free = task.unlabelled
    for k, (dimension, share) in enumerate(zip(sequence, shares, strict=True), start=1):
        depth = n_layers if k == len(sequence) else 1
        target = learner.fit(
            task.rows, labels, n_components=dimension, n_layers=depth, share=float(share)
        )  # (128)
        model = CentersModel(target, task.source, alignment, centres, source_centres, history)
        now = labels.copy()
        if free.any():
            now[free] = model.nearest(task.rows[free])  # (130)
        history.append(task.record(f"iteration {k}, n = {dimension}", labels, now))
        labels = now
        centres = class_centres(codes, labels, task.n_classes)  # (131)
    return CentersModel(target, task.source, alignment, centres, source_centres, history)


_SOURCE_DIMENSIONS = (5, 10, 15, 20)  # 001 §1.4
SHARE = 0.5  # r_max
_MOST_INDUCING = 1000  # (1.86)


@dataclass(frozen=True)
class MappingModel(NearestVoice):
    """Decision of 001 eq. (1.87): target, source, or source through the mapping."""

    target: TargetModel
    source: AlignedSource
    mapping: MembershipMapping | None  #: source2target; None when no row could teach it
    history: list[Iteration] = field(default_factory=list)

    def parts(self, Y: Array) -> dict[str, Array]:
        """Distances of each row to each class in the three ways of (1.87)."""
        Z = self.source.alignment.to_source(Y)
        mapped = np.full((len(Y), self.source.n_classes), np.inf, dtype=Z.dtype)
        plain = mapped.copy()
        for label in self.source.columns:
            image = self.source.class_model(label).reconstruct(Z)
            plain[:, label] = row_norms(Z - image)
            if self.mapping is not None:
                mapped[:, label] = row_norms(Z - self.mapping.predict(image))
        return {"target": self.target.distances(Z), "mapping": mapped, "source": plain}


def fit_source2target(
    task: Task, learner: Learner, *, dimensions: tuple[int, ...] | None, n_layers: int
) -> MappingModel:
    """001 eq. (1.82)-(1.86): iterate the target classifier, then learn the mapping.

    Parameters
    ----------
    task : Task
        The target problem.
    learner : Learner
        Family and settings of the target classifier.
    dimensions : tuple of int, optional
        The sequence n|_k; (5, 10, 15, 20) when None.
    n_layers : int
        L.

    Returns
    -------
    MappingModel
    """
    target, labels, history = label_by_target(task, learner, dimensions, n_layers)
    return mapped(task, target, labels, history)


def label_by_target(
    task: Task, learner: Learner, dimensions: tuple[int, ...] | None, n_layers: int
) -> tuple[TargetModel, Indices, list[Iteration]]:
    """Let the target classifier label the rows it then learns from, in iterations (1.82)-(1.83).

    With the same features on both sides nothing here depends on the source.
    """
    Z = task.source.alignment.to_source(task.rows)  # (1.80), (1.81)
    labels = first_labels(task, learner, Z)
    history = [task.record("first labels", task.labels, labels)]
    free = task.unlabelled
    for k, dimension in enumerate(
        _SOURCE_DIMENSIONS if dimensions is None else dimensions, start=1
    ):
        target = learner.fit(
            Z, labels, n_components=dimension, n_layers=n_layers, share=SHARE
        )  # (1.82)
        now = labels.copy()
        if free.any():
            now[free] = target.winning(Z[free]).argmin(axis=1)  # (1.83)
        history.append(task.record(f"iteration {k}, n = {dimension}", labels, now))
        labels = now
    return target, labels, history


def mapped(
    task: Task, target: TargetModel, labels: Indices, history: list[Iteration]
) -> MappingModel:
    """The three voices of (1.87): the target's classifier, the source, and the mapping (1.85)."""
    Z = task.source.alignment.to_source(task.rows)
    return MappingModel(target, task.source, learn_mapping(task.source, Z, labels), history)


def learn_mapping(source: AlignedSource, Z: Array, labels: Indices) -> MembershipMapping | None:
    """source2target (1.85): from images under the source's model of the class to the rows.

    Parameters
    ----------
    source : AlignedSource
        The source.
    Z : ndarray of shape (N, p_sr)
        Target rows in the source space.
    labels : ndarray of shape (N,)
        Class numbers.

    Returns
    -------
    MembershipMapping or None
        M_max = min(⌈N/2⌉, 1000) (1.86). None when the source knows none of the classes.
    """
    images, rows = [], []
    for label in source.columns:
        mine = Z[labels == label]
        if len(mine):
            images.append(source.class_model(label).reconstruct(mine))
            rows.append(mine)
    if not rows:
        return None
    inputs, outputs = np.concatenate(images), np.concatenate(rows)
    limit = min(math.ceil(len(inputs) / 2), _MOST_INDUCING)
    return MembershipMapping(max_inducing=limit).fit(inputs, outputs)

"""Transfer as the documents write it: by class centres (000), by a source2target mapping (001)."""

from dataclasses import dataclass, field
from numbers import Integral

import numpy as np
from sklearn.base import clone

from permea._arrays import Array, Indices
from permea.compose import ReconstructionClassifier
from permea.compose.layers import distance_below
from permea.models import MembershipMapping
from permea.models.base import count_of, row_norms
from permea.transfer.alignment import Alignment
from permea.transfer.task import AlignedSource, Iteration, Task, TransferModel, class_distances


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


CENTRE_DIMENSIONS = (4, 6, 8, 10)  # 000 §5
SHARES = (1 / 10, 1 / 8, 1 / 6, 1 / 4)


@dataclass(frozen=True)
class CentersModel(TransferModel):
    """Decision of 000 eq. (121): the nearer of the target's and the source's image decides."""

    target: ReconstructionClassifier
    source: AlignedSource
    alignment: Alignment  #: Vᵗᵍ and V⁺ˢʳ
    target_centres: Array  #: (C, n) m̄ᵗᵍ (131)
    source_centres: Array  #: (C, n) m̄⁺ˢʳ (118); NaN where the source does not know the class
    history: list[Iteration] = field(default_factory=list)

    def parts(self, Y: Array) -> dict[str, Array]:
        """Distances of each row to each class, by target and by source."""
        return {
            "target": class_distances(self.target, Y, self.source.n_classes),
            "source": self.through_centres(Y),
        }

    def nearest(self, Y: Array) -> Indices:
        """Class of each row by (121): that of the smallest distance, which alone is computed."""
        parts = {"target": class_distances(self.target, Y, self.source.n_classes, winning=True)}
        parts["source"] = self.through_centres(Y, parts["target"].min(axis=1))
        return np.asarray(self.combined(parts).argmin(axis=1))

    def through_centres(self, Y: Array, cutoff: Array | None = None) -> Array:
        """Distance of f_c(y) (120) to its image in class c of the source.

        Distances not below ``cutoff`` may be returned as infinite.
        """
        codes = self.alignment.to_latent(Y)
        answer = np.full((len(Y), self.source.n_classes), np.inf, dtype=Y.dtype)
        shift = self.source_centres - self.target_centres
        for label in np.flatnonzero(np.isfinite(shift).all(axis=1)):
            model = self.source.class_model(int(label))
            latent = codes + shift[label].astype(Y.dtype)
            moved = self.source.enter(self.alignment.from_latent(latent))
            answer[:, label] = (
                model.distance(moved) if cutoff is None else distance_below(model, moved, cutoff)
            )
        return answer


def centre_alignment(task: Task) -> tuple[Alignment, Array]:
    """Vᵗᵍ with V⁺ˢʳ, and the source's class centres numbered as the target's classes.

    For equal dimensions Vᵗᵍ = V⁺ˢʳ (000 Alg. 7, step 2).
    """
    model, given = task.source.model, task.source.alignment
    known: Array = model.centres_
    pair = given
    if given.is_identity:
        directions = model.directions_[: task.n_directions].astype(task.rows.dtype)
        pair = Alignment(directions, directions)
    elif task.source.encodes:
        known = model.column_directions()[1]
    assert pair.source is not None
    centres = np.full((task.n_classes, pair.source.shape[0]), np.nan)
    centres[task.source.columns] = known[:, : pair.source.shape[0]]
    return pair, centres


def class_centres(codes: Array, labels: Indices, n_classes: int) -> Array:
    """Median of the codes of each class (000 eq. 119); NaN for a class without rows."""
    centres = np.full((n_classes, codes.shape[1]), np.nan)
    for label in np.unique(labels[labels >= 0]):
        centres[label] = np.median(codes[labels == label], axis=0)
    return centres


def fit_centers(task: Task, *, dimensions: tuple[int, ...] | None, n_layers: int) -> CentersModel:
    """000 Algorithm 7: label the unlabelled rows by both sides, with growing dimension.

    Parameters
    ----------
    task : Task
        The target problem.
    dimensions : tuple of int, optional
        The sequence n|_k; (4, 6, 8, 10) when None. M/N goes from 1/10 to 1/4 along with it, unless
        the task says otherwise.
    n_layers : int
        L of the last iteration; the others have one layer (step 5).

    Returns
    -------
    CentersModel
    """
    sequence = CENTRE_DIMENSIONS if dimensions is None else dimensions
    own = np.interp(np.linspace(0, 1, len(sequence)), np.linspace(0, 1, len(SHARES)), SHARES)
    shares = own.tolist() if task.shares is None else task.shares
    alignment, source_centres = centre_alignment(task)
    codes = alignment.to_latent(task.rows)
    labels = initial_labels(task, task.rows)  # step 1, (126)
    history = [task.record("initial labels", task.labels, labels)]
    centres = class_centres(codes, labels, task.n_classes)  # step 3, (127)
    free = task.unlabelled
    for k, (dimension, share) in enumerate(zip(sequence, shares, strict=True), start=1):
        depth = n_layers if k == len(sequence) else 1
        target = task.fit_classifier(
            task.rows, labels, n_components=dimension, n_layers=depth, share=share
        )  # (128)
        model = CentersModel(target, task.source, alignment, centres, source_centres, history)
        now = labels.copy()
        if free.any():
            now[free] = model.nearest(task.rows[free])  # (130)
        history.append(task.record(f"iteration {k}, n = {dimension}", labels, now))
        labels = now
        centres = class_centres(codes, labels, task.n_classes)  # (131)
    return CentersModel(target, task.source, alignment, centres, source_centres, history)


SOURCE_DIMENSIONS = (5, 10, 15, 20)  # 001 §1.4
SHARE = 0.5  # r_max
_MOST_INDUCING = 1000  # (1.86)


@dataclass(frozen=True)
class MappingModel(TransferModel):
    """Decision of 001 eq. (1.87): target, source, or source through the mapping."""

    target: ReconstructionClassifier
    source: AlignedSource
    mapping: MembershipMapping | None  #: source2target; None without rows to learn it from
    history: list[Iteration] = field(default_factory=list)

    def parts(self, Y: Array) -> dict[str, Array]:
        """Distances of each row to each class in the three ways of (1.87)."""
        Z = self.source.to_space(Y)
        mapped = np.full((len(Y), self.source.n_classes), np.inf, dtype=Z.dtype)
        plain = mapped.copy()
        for label in self.source.columns:
            image = self.source.class_model(label).reconstruct(Z)
            plain[:, label] = row_norms(Z - image)
            if self.mapping is not None:
                mapped[:, label] = row_norms(Z - self.mapping.predict(image))
        return {
            "target": class_distances(self.target, Z, self.source.n_classes),
            "mapping": mapped,
            "source": plain,
        }


def fit_source2target(
    task: Task, *, dimensions: tuple[int, ...] | None, n_layers: int
) -> MappingModel:
    """001 eq. (1.82)-(1.86): iterate the target classifier, then learn the mapping.

    Parameters
    ----------
    task : Task
        The target problem.
    dimensions : tuple of int, optional
        The sequence n|_k; (5, 10, 15, 20) when None.
    n_layers : int
        L.

    Returns
    -------
    MappingModel
    """
    target, labels, history = label_by_target(task, dimensions, n_layers)
    return mapped(task, target, labels, history)


def label_by_target(
    task: Task, dimensions: tuple[int, ...] | None, n_layers: int
) -> tuple[ReconstructionClassifier, Indices, list[Iteration]]:
    """Iterate: the target classifier labels the rows that it then learns from (1.82)-(1.83).

    With the same features on both sides nothing here depends on the source.
    """
    Z = task.source.to_space(task.rows)  # (1.80), (1.81)
    labels = initial_labels(task, Z)
    history = [task.record("initial labels", task.labels, labels)]
    free = task.unlabelled
    sequence = SOURCE_DIMENSIONS if dimensions is None else dimensions
    shares = (SHARE,) * len(sequence) if task.shares is None else task.shares
    for k, (dimension, share) in enumerate(zip(sequence, shares, strict=True), start=1):
        target = task.fit_classifier(
            Z, labels, n_components=dimension, n_layers=n_layers, share=share
        )  # (1.82)
        now = labels.copy()
        if free.any():
            now[free] = class_distances(target, Z[free], task.n_classes, winning=True).argmin(
                axis=1
            )  # (1.83)
        history.append(task.record(f"iteration {k}, n = {dimension}", labels, now))
        labels = now
    return target, labels, history


def mapped(
    task: Task, target: ReconstructionClassifier, labels: Indices, history: list[Iteration]
) -> MappingModel:
    """The three experts of (1.87): the target's classifier, the source, and the mapping (1.85)."""
    Z = task.source.to_space(task.rows)
    mapping = learn_mapping(task.source, Z, labels, task.mapping)
    return MappingModel(target, task.source, mapping, history)


def learn_mapping(
    source: AlignedSource, Z: Array, labels: Indices, model: MembershipMapping | None = None
) -> MembershipMapping | None:
    """source2target (1.85): from images under the source's model of the class to the rows.

    Parameters
    ----------
    source : AlignedSource
        The source.
    Z : ndarray of shape (N, p_sr)
        Target rows in the source space.
    labels : ndarray of shape (N,)
        Class numbers.
    model : MembershipMapping, optional
        Unfitted. Its ``max_inducing`` holds; as a share it gives at most 1000 inducing points, so
        that the default is M_max = min(⌈N/2⌉, 1000) (1.86).

    Returns
    -------
    MembershipMapping or None
        None when the source knows none of the classes.
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
    mapping = MembershipMapping(bandwidth=1.0) if model is None else clone(model)
    if not isinstance(mapping.max_inducing, Integral):
        limit = count_of("max_inducing", mapping.max_inducing, len(inputs))
        mapping.set_params(max_inducing=min(limit, _MOST_INDUCING))
    return mapping.fit(inputs, outputs)

"""Transfer by a mapping from source to target (document 001, eq. 1.79 to 1.87)."""

from dataclasses import dataclass, field
from numbers import Integral

import numpy as np
from sklearn.base import clone

from permea._arrays import Array, Indices
from permea.compose import ReconstructionClassifier
from permea.models import MembershipMapping
from permea.models.base import count_of, row_norms
from permea.transfer.task import (
    AlignedSource,
    Iteration,
    Task,
    TransferModel,
    class_distances,
    initial_labels,
)

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

"""Transfer through a mapping from source to target (001 §1.3.2, 003 §2.5)."""

import math
from dataclasses import dataclass, field

import numpy as np

from permea.models import MembershipMapping
from permea.models.base import Array, Indices, row_norms
from permea.transfer.decision import NearestVoice
from permea.transfer.learner import Learner, TargetModel, first_labels
from permea.transfer.task import AlignedSource, Iteration, Task

DIMENSIONS = (5, 10, 15, 20)  # 001 §1.4
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
    for k, dimension in enumerate(DIMENSIONS if dimensions is None else dimensions, start=1):
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

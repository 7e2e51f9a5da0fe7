"""Transfer by class centres (document 000, section 4.2, Algorithm 7)."""

from dataclasses import dataclass, field

import numpy as np

from permea._arrays import Array, Indices
from permea.compose import ReconstructionClassifier
from permea.compose.layers import distance_below
from permea.transfer.alignment import Alignment
from permea.transfer.task import (
    AlignedSource,
    Iteration,
    Task,
    TransferModel,
    class_distances,
    initial_labels,
)

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

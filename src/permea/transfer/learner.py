"""The target's own classifier: learned from labelled rows and from rows with adopted labels."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from permea.compose import ReconstructionClassifier
from permea.models.base import Array, Indices
from permea.models.encoding import ShrunkWarning
from permea.transfer.task import Task


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

"""What the receiver has: target rows, few labels, and a source seen through an alignment."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._arrays import Array, Indices, Mask
from permea.transfer.alignment import Alignment
from permea.transfer.source import SourceModel

UNLABELLED = -1  # class number of a row without label


class Iteration(NamedTuple):
    """One pass over the unlabelled rows."""

    step: str  #: what was done
    changed: int  #: unlabelled rows whose label is another one than before
    accuracy: float | None  #: share of right labels among the unlabelled, where truth is given


@dataclass(frozen=True)
class AlignedSource:
    """A source asked about target rows; its classes are numbered as the target's are."""

    model: SourceModel
    alignment: Alignment
    columns: Indices  #: class number of each class of the source
    n_classes: int

    def distances(self, Z: Array) -> Array:
        """Distance of rows of the source space to each class; infinity for unknown classes."""
        known = self.model.classifier_.distances(Z)
        answer = np.full((len(Z), self.n_classes), np.inf, dtype=known.dtype)
        answer[:, self.columns] = known
        return answer

    def class_model(self, label: int) -> Any:
        """Model of one class, or None where the source does not know it."""
        found = np.flatnonzero(self.columns == label)
        return self.model.classifier_.class_models_[found[0]] if found.size else None


@dataclass(frozen=True)
class Task:
    """A target problem: what the methods get."""

    rows: Array  #: (N, p_tg)
    labels: Indices  #: (N,) class numbers, −1 for unlabelled
    n_classes: int
    source: AlignedSource
    truth: Indices | None = None  #: (N,) true class numbers, for the history only

    @property
    def unlabelled(self) -> Mask:
        """Rows without label."""
        return np.asarray(self.labels == UNLABELLED)

    @property
    def labelled_classes(self) -> Indices:
        """Classes that have a labelled row."""
        return np.unique(self.labels[~self.unlabelled])

    def record(self, step: str, before: Indices, now: Indices) -> Iteration:
        """What a pass changed, and how right it is."""
        free = self.unlabelled
        changed = int(np.sum(before[free] != now[free]))
        right = None
        if self.truth is not None and free.any():
            right = float(np.mean(now[free] == self.truth[free]))
        return Iteration(step, changed, right)


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

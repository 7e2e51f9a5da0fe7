"""Several answers to one question: which class is nearest, and whose answer was it."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from permea.compose.classifier import matching_scores
from permea.models.base import Array, Indices
from permea.transfer.task import Iteration

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

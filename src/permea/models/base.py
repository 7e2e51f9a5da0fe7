"""What a model family offers, and the little that all families share.

A family is a scikit-learn estimator with three methods:

``fit(Y)``
    learns from the rows of ``Y`` and returns ``self``;
``reconstruct(Y)``
    the image of each row, an array of the shape of ``Y``;
``distance(Y)``
    the Euclidean distance of each row to its image, one number per row.

That is all that depth, width, classification, privacy, federation and audit need. Three methods are
optional; a family offers them when it can do better than the general way:

``next_layer(Y, image)``
    a fitted model for the layer after this one. ``Y`` are the training rows, ``image`` is what the
    layers so far make of them. Without it, depth clones the model with ``n_components`` lowered by
    one (never below one) and fits it to ``Y``. A family whose layers do not depend on ``image``
    sets the class attribute ``layers_need_images = False``, and it is not computed.
``distance_through(layers, Y, cutoff)`` (a static method)
    the distance of each row to the nearest of its images in a list of fitted layers. Rows whose
    distance is provably not below ``cutoff`` (one number per row) may get infinity instead.
    Without it, depth calls ``reconstruct`` of one layer after the other.
``expect(layers, landmarks)`` (a static method)
    prepares ``distance_through`` for queries that lie about where the landmarks do. It changes how
    fast distances are found, never which.
"""

import math
import warnings
from numbers import Integral
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import validate_data

from permea._arrays import Array

FLOATS = [np.float64, np.float32]  #: types that stay as they are; others become float64


@runtime_checkable
class Reconstructor(Protocol):
    """A model with images of points and distances to them."""

    def fit(self, Y: Array, y: object = None) -> Self:
        """Learn from the rows of ``Y``."""
        ...

    def reconstruct(self, Y: Array) -> Array:
        """Give the image of every row of ``Y``."""
        ...

    def distance(self, Y: Array) -> Array:
        """Give the distance of every row of ``Y`` to its image."""
        ...


class ShrunkWarning(UserWarning):
    """A requested dimension was larger than the data can carry and was lowered."""


def warn_shrunk(name: str, wanted: int, used: int, shape: tuple[int, ...]) -> None:
    """Warn that a parameter was lowered to what rows of this shape can carry."""
    warnings.warn(
        f"{name}={wanted} is more than these {shape[0]} rows of {shape[1]} features can carry; "
        f"{name}={used} is used.",
        ShrunkWarning,
        stacklevel=4,
    )


def count_of(name: str, share: float, N: int) -> int:
    """Turn a share of the N rows (a float) or a count (an integer) into a count.

    Examples
    --------
    >>> count_of("n_rules", 0.5, 9), count_of("n_rules", 4, 9), count_of("n_rules", 1.0, 9)
    (5, 4, 9)
    """
    if isinstance(share, Integral):
        if share > N:
            warnings.warn(
                f"{name}={share} is more than the {N} training rows; {N} is used.",
                ShrunkWarning,
                stacklevel=3,
            )
        return min(int(share), N)
    return max(min(math.ceil(float(share) * N), N), 1)


def row_norms(Y: Array) -> Array:
    """Euclidean norm of every row; rows whose squares overflow are scaled first.

    Examples
    --------
    >>> import numpy as np
    >>> row_norms(np.array([[3.0, 4.0], [3e200, 4e200]]))
    array([5.e+000, 5.e+200])
    """
    with np.errstate(over="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", Y, Y))
    far = np.flatnonzero(np.isinf(norms))
    if far.size:
        scale = np.abs(Y[far]).max(axis=1)
        norms[far] = scale * np.linalg.norm(Y[far] / scale[:, None], axis=1)
    return np.asarray(norms)


class MultiOutputRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A regressor of one output (a vector) or of several (a matrix with one column for each)."""

    def _read(self, X: Array, y: Array, dtype: Any = FLOATS, **checks: Any) -> tuple[Array, Array]:
        """Validated inputs and a matrix of outputs; remembers whether the outputs were a vector."""
        X, y = validate_data(self, X, y, dtype=dtype, multi_output=True, y_numeric=True, **checks)
        Y = np.asarray(y, dtype=X.dtype)
        self._one_output = Y.ndim == 1
        return X, Y.reshape(len(Y), -1)

    def _as_given(self, outputs: Array) -> Array:
        """Outputs in the form of the training outputs: a vector or a matrix."""
        return outputs[:, 0] if self._one_output else outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def matching_scores(distances: Array) -> Array:
    """Class-matching scores of 004 Def. 8 from distances of shape (m, C).

    A class that is infinitely far scores 0; when all distances are zero, all score 1.

    Examples
    --------
    >>> import numpy as np
    >>> matching_scores(np.array([[1.0, 1.0], [0.0, 2.0], [1.0, np.inf]])).round(4)
    array([[0.6065, 0.6065],
           [1.    , 0.3679],
           [0.3679, 0.    ]])
    """
    finite = np.isfinite(distances)
    largest = np.max(distances, axis=1, where=finite, initial=0, keepdims=True)
    largest[largest == 0] = 1
    squared = np.square(np.where(finite, distances / largest, 0))
    total = squared.sum(axis=1, keepdims=True)
    total[total == 0] = 1
    return np.where(finite, np.exp(-squared / total), 0)

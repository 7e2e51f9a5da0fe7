"""What a model family offers, and the little that all families share.

A family is a scikit-learn estimator with three methods:

``fit(Y)``
    learns from the rows of ``Y`` and returns ``self``;
``reconstruct(Y)``
    the image of each row, an array of the shape of ``Y``;
``distance(Y)``
    the Euclidean distance of each row to its image, one number per row.

That is all that depth, width, classification, privacy, federation and audit need. Two methods are
optional; a family offers them when it can do better than the general way:

``next_layer(Y, image)``
    a fitted model for the layer after this one. ``Y`` are the training rows, ``image`` is what the
    layers so far make of them. Without it, depth clones the model with ``n_components`` lowered by
    one (never below one) and fits it to ``Y``. A family whose layers do not look at ``image`` says
    so by a class attribute ``layers_need_images = False`` and saves the work of making it.
``distance_through(layers, Y, cutoff)`` (a static method)
    the distance of each row to the nearest of its images in a list of fitted layers. Rows whose
    distance is provably not below ``cutoff`` (one number per row) may be answered with infinity.
    Without it, depth walks through the layers by ``reconstruct``.
"""

from typing import Protocol, Self, runtime_checkable

import numpy as np

from permea._arrays import Array


@runtime_checkable
class Reconstructor(Protocol):
    """A model that answers: what is your image of y, and how far is y from it."""

    def fit(self, Y: Array, y: object = None) -> Self:
        """Learn from the rows of ``Y``."""
        ...

    def reconstruct(self, Y: Array) -> Array:
        """Give the image of every row of ``Y``."""
        ...

    def distance(self, Y: Array) -> Array:
        """Give the distance of every row of ``Y`` to its image."""
        ...


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

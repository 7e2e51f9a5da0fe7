"""First and second moments of each class, freed from the noise that is known to be in them."""

from typing import NamedTuple

import numpy as np

from permea.models.base import Array, Indices

_BLOCK = 4096  # rows in double precision at once


class ClassMoments(NamedTuple):
    """What averaging leaves of a class when its rows were noised.

    Noise with mean 0 leaves class means unbiased, and noise that is independent from entry to
    entry adds its variance to the diagonal of the second moment and nothing else. Its law is
    public, so that term is subtracted. Over N rows the error of both falls as 1/√N.
    """

    counts: Array  #: (C,) rows of each class
    means: Array  #: (C, p) mean of y given the class
    seconds: Array | None  #: (C, p, p) mean of y yᵀ given the class, noise subtracted
    noise: Array  #: (p,) variance of the noise on each entry; zero without privacy


def class_moments(
    Y: Array, labels: Indices, n_classes: int, noise: Array, *, seconds: bool = True
) -> ClassMoments:
    """Moments of each class from noised rows.

    Parameters
    ----------
    Y : ndarray of shape (N, p)
        Rows as they came through the wall.
    labels : ndarray of shape (N,)
        Class numbers 0 … C − 1.
    n_classes : int
        C.
    noise : ndarray of shape (p,)
        Public variance of the noise on each entry.
    seconds : bool
        Whether the second moments are wanted: they take C p² numbers.

    Returns
    -------
    ClassMoments

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> clean = np.repeat([[1.0, 0.0]], 200_000, axis=0)
    >>> noised = clean + random.laplace(scale=2.0, size=clean.shape)
    >>> labels = np.zeros(len(clean), dtype=int)
    >>> class_moments(noised, labels, 1, np.full(2, 8.0)).seconds[0].round(0) + 0.0
    array([[1., 0.],
           [0., 0.]])
    """
    p = Y.shape[1]
    counts = np.bincount(labels, minlength=n_classes).astype(np.float64)
    means = np.zeros((n_classes, p))
    squares = np.zeros((n_classes, p, p)) if seconds else None
    for label in range(n_classes):
        mine = np.flatnonzero(labels == label)
        for start in range(0, len(mine), _BLOCK):
            part = np.asarray(Y[mine[start : start + _BLOCK]])
            means[label] += part.sum(axis=0, dtype=np.float64)
            if squares is not None:
                squares[label] += part.T @ part
        means[label] /= max(counts[label], 1)
        if squares is not None:
            squares[label] /= max(counts[label], 1)
            squares[label][np.diag_indices(p)] -= noise
    return ClassMoments(counts, means, squares, np.asarray(noise, np.float64))

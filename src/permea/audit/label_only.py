"""Attack on a service that answers with a class and nothing else (Choquette-Choo et al. 2021).

A model is surer about its training rows, so they lie further from its decision boundary. Without a
score the distance to the boundary can still be felt: add noise of growing size to the row and count
how often the label survives.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._progress import progress

Array = NDArray[np.float64]

#: Noise sizes, in units of each column's spread.
SIZES: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4, 0.7, 1.0)


def label_robustness(
    clf: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    spread: ArrayLike | None = None,
    sizes: Sequence[float] = SIZES,
    n_draws: int = 10,
    random_state: int | None = 0,
) -> Array:
    """Share of noisy copies of each row that keep the row's own label.

    Parameters
    ----------
    clf : classifier
        Only ``predict`` is called.
    X, y : array-like
        The rows and their true labels.
    spread : array-like of shape (n_features,), optional
        The unit of the noise in every column; the columns' standard deviation by default. Give the
        same one for rows that are compared.
    sizes : sequence of float
        Noise sizes; size 0 is the plain prediction and counts as one full round.
    n_draws : int
        Copies per size.
    random_state : int or None
        Decides the noise.

    Returns
    -------
    ndarray of shape (n_rows,)
        Between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> X, y = np.array([[0.0], [1.0], [5.0]]), np.array([0, 0, 1])
    >>> robust = label_robustness(KNeighborsClassifier(1).fit(X, y), X, y, spread=[1.0])
    >>> bool(robust[2] >= robust[1])
    True
    """
    rows, labels = np.asarray(X, dtype=np.float64), np.asarray(y)
    unit = rows.std(axis=0) if spread is None else np.asarray(spread, dtype=np.float64)
    rng = np.random.default_rng(random_state)
    kept = np.zeros(len(rows))
    rounds = 0
    for size in progress(sizes, desc="label-only"):
        if size == 0.0:
            kept += n_draws * (np.asarray(clf.predict(rows)) == labels)
        else:
            for _ in range(n_draws):
                noisy = rows + size * unit * rng.standard_normal(rows.shape)
                kept += np.asarray(clf.predict(noisy)) == labels
        rounds += n_draws
    return kept / rounds

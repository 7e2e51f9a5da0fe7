"""What the tests of transfer share."""

import numpy as np


def hide(y, per_class, seed=0):
    """Labels of which all but a few of each class are hidden."""
    random = np.random.default_rng(seed)
    shown = np.concatenate(
        [random.permutation(np.flatnonzero(y == label))[:per_class] for label in np.unique(y)]
    )
    few = np.full(len(y), -1)
    few[shown] = y[shown]
    return few

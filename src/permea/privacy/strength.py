"""How strong the noise of a declared guarantee is: public before any data are seen."""

import numpy as np
from numpy.typing import NDArray

from permea.privacy.release import plan
from permea.privacy.units import Privacy


def noise_variance(privacy: Privacy, n_columns: int) -> NDArray[np.float64]:
    """Variance of the noise that a release adds to each column.

    Examples
    --------
    >>> noise_variance(Privacy(epsilon=2, domain=(0, 1)), 3).round(4)
    array([0.5, 0.5, 0.5])
    """
    work = plan(privacy, n_columns)
    return np.asarray(work.noise.variance() * np.square(work.grid / work.grid.max()))


def noise_ratio(privacy: Privacy, n_columns: int) -> float:
    """Standard deviation of the noise in units of the width of the domain, over all columns.

    Examples
    --------
    >>> round(noise_ratio(Privacy(epsilon=1, domain=(0, 10)), 4), 4)
    1.4142
    """
    width = privacy.highs(n_columns) - privacy.lows(n_columns)
    ratios = noise_variance(privacy, n_columns) / np.square(width)
    return float(np.sqrt(ratios.mean()))

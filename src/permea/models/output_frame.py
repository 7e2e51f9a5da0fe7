"""Coordinates for outputs in which one noise level fits them all.

A Bayesian membership mapping believes that the noise of every output has the same variance. That
holds for no table with ages in years and weights in grams. Outputs are therefore brought into a
frame t' = (t − offset) W first and taken back afterwards. A change of frame changes a density by a
constant factor only, so that an entropy in the old frame is the one in the new frame minus
log|det W|.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from permea.models.base import Array

_NEGLIGIBLE = 1e-12  # share of the largest variance below which a direction counts as constant


class OutputFrame(NamedTuple):
    """An affine change of coordinates of the outputs."""

    offset: Array  #: (q,)
    mix: Array  #: (q, q') W
    unmix: Array  #: (q', q), with W unmix = identity on all that varies
    log_det: float  #: log|det W| on all that varies

    def enter(self, T: Array) -> Array:
        """Outputs in this frame."""
        return np.asarray((T - self.offset) @ self.mix)

    def leave(self, T: Array) -> Array:
        """Outputs in their own units."""
        return np.asarray(T @ self.unmix + self.offset)

    def then(self, mix: Array, unmix: Array, log_det: float) -> "OutputFrame":
        """Append a linear change of coordinates."""
        return OutputFrame(self.offset, self.mix @ mix, unmix @ self.unmix, self.log_det + log_det)

    @property
    def lengths(self) -> Array:
        """What one unit of isotropic deviation in this frame is in each output's own units."""
        return np.asarray(np.sqrt(np.einsum("ij,ij->j", self.unmix, self.unmix)))

    @property
    def dropped(self) -> int:
        """Number of directions that never vary and are left out."""
        return int(self.unmix.shape[1] - self.unmix.shape[0])


def one_unit(T: Array, standardize: bool) -> OutputFrame:
    """Outputs minus their mean, in units of one common standard deviation, or as they are.

    Examples
    --------
    >>> import numpy as np
    >>> frame = one_unit(np.array([[0.0, 0.0], [4.0, 0.0]]), True)
    >>> frame.enter(np.array([[4.0, 0.0]])).round(3)
    array([[1., 0.]])
    """
    q = T.shape[1]
    offset = T.mean(axis=0) if standardize else np.zeros(q)
    unit = float(np.sqrt(np.var(T, axis=0, ddof=1).mean())) if standardize else 1.0
    if unit <= float(np.finfo(np.float64).eps) * float(np.abs(offset).max(initial=0.0)):
        unit = 1.0
    return OutputFrame(offset, np.eye(q) / unit, np.eye(q) * unit, -q * float(np.log(unit)))


def unit_columns(T: Array) -> OutputFrame:
    """Every output that varies, minus its mean, in units of its own standard deviation.

    Examples
    --------
    >>> import numpy as np
    >>> unit_columns(np.array([[0.0, 7.0], [2.0, 7.0]])).mix.shape
    (2, 1)
    """
    offset, spread = T.mean(axis=0), T.std(axis=0, ddof=1)
    kept = spread > 1e3 * np.finfo(np.float64).eps * np.maximum(np.abs(T).max(axis=0), 1e-290)
    units = spread[kept]
    chosen = np.eye(T.shape[1])[:, kept]
    log_det = -float(np.log(units).sum())
    return OutputFrame(offset, chosen / units, (chosen * units).T, log_det)


def unit_directions(T: Array) -> OutputFrame:
    """Principal directions of the outputs, each in units of its own standard deviation.

    Directions without variance, as of outputs that always add up to one, are left out.

    Examples
    --------
    >>> import numpy as np
    >>> T = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    >>> unit_directions(T).dropped
    1
    """
    columns = unit_columns(T)
    covariance = np.atleast_2d(np.cov(columns.enter(T), rowvar=False))
    if columns.mix.shape[1] == 0:
        return columns
    return columns.then(*whitening(covariance))


def whitening(covariance: Array, floor: float | None = None) -> tuple[Array, Array, float]:
    """W, its inverse and log|det W| with Wᵀ S W = I.

    Directions in which S vanishes are left out, or with a ``floor`` kept with that variance.

    Examples
    --------
    >>> import numpy as np
    >>> W, back, log_det = whitening(np.diag([4.0, 0.0]))
    >>> np.abs(W).ravel(), float(round(np.exp(log_det), 3))
    (array([0.5, 0. ]), 0.5)
    >>> whitening(np.diag([4.0, 0.0]), floor=0.25)[0].shape
    (2, 2)
    """
    variances, directions = eigh(covariance)
    if floor is None:
        kept = variances > _NEGLIGIBLE * max(float(variances.max(initial=0.0)), 1e-300)
        variances, directions = variances[kept], directions[:, kept]
    else:
        variances = np.maximum(variances, floor)
    deviations = np.sqrt(variances)
    log_det = -float(np.log(deviations).sum())
    return directions / deviations, (directions * deviations).T, log_det

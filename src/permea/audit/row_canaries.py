"""Canaries for released rows: two matrices that differ in one entry or one row, as far as allowed.

The law of the noise on the grid is known, so the likelihood ratio of the two is. It is a score like
any other: bounds from thresholds on it hold whatever the noise really is.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea.audit.bounds import gaussian_epsilon
from permea.privacy import Privacy
from permea.privacy import release as release_rows
from permea.privacy.noise import StaircaseNoise
from permea.privacy.release import Plan, plan

Array = NDArray[np.float64]
Rows = Callable[[Array], ArrayLike]

_PUBLIC_ENTRIES, _CANARY_ENTRIES = 15, 4  # that are looked at for what the declared law excludes


class RowExperiment:
    """Releases of a small matrix whose first row holds the canary; all other rows are public.

    Parameters
    ----------
    release : callable or None
        Takes a matrix and returns the released one; None for :func:`permea.release`.
    privacy : Privacy
        The promise under audit.
    overshoot : float
        The canaries lie this many widths outside the declared domain. A release that clips does
        not notice.

    Examples
    --------
    >>> experiment = RowExperiment(None, Privacy(epsilon=1, domain=(0, 1)))
    >>> experiment.attainable
    1.0
    """

    def __init__(self, release: Rows | None, privacy: Privacy, *, overshoot: float = 0.5) -> None:
        self._release: Rows = release if release is not None else _library_release(privacy)
        self.privacy = privacy
        self.n_columns = privacy.n_columns or (1 if privacy.unit == "entry" else 2)
        self.plan: Plan = plan(privacy, self.n_columns)
        self.gaussian = privacy.mechanism == "gaussian"
        self.n_rows = 1 + math.ceil(_PUBLIC_ENTRIES / self.n_columns)
        public = np.tile(privacy.lows(self.n_columns), (self.n_rows - 1, 1))
        rows = _worst_rows(privacy, self.n_columns, overshoot)
        self._data = [np.vstack([row, public]) for row in rows]
        self._steps = [self.plan.to_steps(data.copy()).astype(np.float64) for data in self._data]

    @property
    def attainable(self) -> float:
        """The ε that the canaries can show of a mechanism that is as declared."""
        moved = self._steps[1] - self._steps[0]
        if self.plan.sigma is not None:
            return gaussian_epsilon(
                float(np.linalg.norm(moved)) / self.plan.sigma, self.privacy.delta
            )
        share = min(1.0, float(np.abs(moved).sum()) / self.plan.sensitivity)
        if isinstance(self.plan.noise, StaircaseNoise):
            share = math.ceil(share)
        return self.privacy.epsilon * share

    def release(self, planted: bool) -> Array:
        """The released matrix as one vector."""
        released = np.asarray(self._release(self._data[planted].copy()), dtype=np.float64)
        if released.shape != self._data[0].shape:
            raise ValueError(
                f"The release must return a matrix of the shape that it was given, "
                f"{self._data[0].shape}; got {released.shape}."
            )
        return released.ravel()

    def log_ratios(self, released: Array) -> Array:
        """Likelihood ratio under the declared law of the noise."""
        steps = self._in_steps(released)
        densities = [self._log_density(steps - one.ravel()).sum(axis=1) for one in self._steps]
        return np.asarray(densities[1] - densities[0])

    def residuals(self, released: Array) -> Array:
        """Released values about the rows without the canary, in units of the noise.

        The canary's row in the direction in which it moves, some of its entries, and some entries
        of the public rows, whose noise tells a repeated keystream.
        """
        spread = self.plan.sigma or self.plan.sensitivity / self.privacy.epsilon
        apart = (self._in_steps(released) - self._steps[0].ravel()) / spread
        own, public = apart[:, : self.n_columns], apart[:, self.n_columns :]
        parts = [own[:, :_CANARY_ENTRIES], public[:, :_PUBLIC_ENTRIES]]
        if self.n_columns > _CANARY_ENTRIES:
            moved = (self._steps[1] - self._steps[0])[0]
            parts.append((own @ moved / np.linalg.norm(moved))[:, None])
        return np.hstack(parts)

    def _in_steps(self, released: Array) -> Array:
        work = self.plan
        origin, grid = (np.tile(one, self.n_rows) for one in (work.origin, work.grid))
        return np.asarray((released - origin) / grid)

    def _log_density(self, steps: Array) -> Array:
        """Logarithm of the declared law, up to a constant, at a number of grid steps."""
        work, distance = self.plan, np.abs(steps)
        if work.sigma is not None:
            return -0.5 * np.square(steps / work.sigma)
        if isinstance(work.noise, StaircaseNoise):
            stage, within = np.divmod(np.rint(distance), work.sensitivity)
            lower = within >= work.noise.gamma * work.sensitivity
            return -self.privacy.epsilon * (stage + lower)
        rate = self.privacy.epsilon / work.sensitivity
        smooth = (1.0 - work.noise.delta) * math.tanh(rate / 2.0) * np.exp(-rate * distance)
        bare = work.noise.delta * (distance < 0.5)
        return np.asarray(np.log(np.maximum(smooth + bare, 1e-300)))


def _library_release(privacy: Privacy) -> Rows:
    return lambda rows: release_rows(rows, privacy).data


def _worst_rows(privacy: Privacy, p: int, overshoot: float) -> tuple[Array, Array]:
    """Two rows as far apart as the promise allows, before they are clipped."""
    low, high = privacy.lows(p), privacy.highs(p)
    beyond = overshoot * (high - low)
    if privacy.unit == "entry":
        first, second = low.copy(), low.copy()
        bound = privacy.bounds(p)[0]
        first[0] -= beyond[0]
        second[0] = high[0] + beyond[0] if bound >= high[0] - low[0] else low[0] + bound
        return first, second
    origin = np.clip(0.0, low, high)
    one_sided = bool(np.all((low >= origin) | (high <= origin)))
    if privacy.clip_norm is None or not one_sided or p == 1:
        return low - beyond, high + beyond
    # Shrunk to a norm in a corner of the space, rows along two axes are the farthest apart.
    far = np.where(high > origin, high, low)
    first, second = origin.copy(), origin.copy()
    first[0], second[1] = far[0], far[1]
    return first, second

r"""Canaries for released moments: the two data sets that the noise has to work hardest for.

Squared distances of the parts, in units of their noise, add up to μ². For one replaced row z of
norm 1 (in units of the radius) with output y they are, with a, b and c the inverse squared noises
of z zᵀ, z yᵀ and the tally:

* z zᵀ: :math:`a (2 - 2 \cos^2\theta)` for an angle θ between the two rows, largest at 90°;
* z yᵀ: :math:`b (2 - 2 \cos\theta\, y^T y')`, largest at 180° for equal outputs;
* the mean: 4 times its inverse squared noise for opposite features, whatever θ is.

The angle is seen from the mean, which the other rows decide: opposite features :math:`\pm u` appear
at any angle from 90° on when all other rows lie at :math:`\cot(\theta/2)\, v` with v orthogonal to
u. So one pair of rows is the worst for the mean and for the moments at once. θ and the outputs
are found by a search over the public plan; no data are needed. See ``docs/methods/audit.md``.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from permea.audit.bounds import gaussian_epsilon
from permea.compose.moments import MomentClassifier, MomentRegressor
from permea.privacy.moments import MomentPlan, Split, plan_moments

Array = NDArray[np.float64]

MOMENT_ESTIMATORS = (MomentClassifier, MomentRegressor)
_DOMAIN = (-1.0, 1.0)
_CORNER = np.array([1.0, 1.0]) / math.sqrt(2.0)  # features of a corner of the square, norm 1
_ASIDE = np.array([1.0, -1.0]) / math.sqrt(2.0)
_NOISE_OF_MEAN = 0.05  # in units of the norm of the features: decides the number of rows
_FEWEST_ROWS, _MOST_ROWS = 100, 20_000
_CLASSES = (0, 1)
_MEAN, _MOMENTS = slice(0, 2), slice(2, 9)  # places in the released numbers; the tally follows


class _Group(NamedTuple):
    """Equal rows of a data set."""

    features: Array
    output: float
    rows: float


@dataclass(frozen=True)
class MomentCanary:
    """The row that is there, and the row in its place: features, outputs, what they can show.

    ``base`` are the features of all other rows. ``without`` is None where the row is missing.
    """

    planted: Array
    planted_output: float
    without: Array | None
    without_output: float
    base: Array
    mu: float


def worst_canary(plan: MomentPlan) -> MomentCanary:
    """The neighbours whose moments differ most in units of the noise.

    Examples
    --------
    >>> from permea.privacy import Privacy
    >>> promise = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))
    >>> plan = plan_moments(promise, 2, 2)
    >>> bool(abs(worst_canary(plan).mu / plan.loss.value - 1) < 1e-4)
    True
    """
    mean, _, second, cross, tally = (1.0 / scale**2 for scale in plan.scales)
    classes = plan.outputs == "classes"
    if plan.neighbours == "add/remove":
        # The mean is a ratio of two noised numbers, so the share of the row count is not seen.
        square = mean + second + cross + (1.0 if classes else 3.0) * tally
        return MomentCanary(_CORNER, 1.0, None, 0.0, np.zeros(2), math.sqrt(square))
    choices = _CLASSES if classes else tuple(np.linspace(-1.0, 1.0, 41))
    square, cosine, other = max(
        (*_worst_angle(plan, float(other)), float(other)) for other in choices
    )
    aside = math.sqrt((1.0 + cosine) / (1.0 - cosine))  # cot(θ/2)
    mu = math.sqrt(4.0 * mean + square)
    return MomentCanary(_CORNER, 1.0, -_CORNER, other, aside * _ASIDE, mu)


def _worst_angle(plan: MomentPlan, other: float) -> tuple[float, float]:
    """Largest squared distance of the moments, and its cosine: output 1 replaced by ``other``."""
    _, _, second, cross, tally = (1.0 / scale**2 for scale in plan.scales)
    cosines = np.linspace(-1.0, 0.0, 1001)
    if plan.outputs == "classes":
        own, inner = 2.0, float(other == 1.0)
        moved = 2.0 * (1.0 - inner)
    else:  # y = (1, o)/√2, and the tally (1, o, o²)
        own, inner = 1.0 + (1.0 + other**2) / 2.0, (1.0 + other) / 2.0
        moved = (1.0 - other) ** 2 + (1.0 - other**2) ** 2
    squares = (
        second * (2.0 - 2.0 * cosines**2) + cross * (own - 2.0 * inner * cosines) + tally * moved
    )
    at = int(np.argmax(squares))
    return float(squares[at]), float(cosines[at])


class MomentExperiment:
    """Small trainings of a moment estimator with and without the worst canary.

    Parameters
    ----------
    make : callable or estimator
        Gives the estimator under audit; each training gets its own.
    overshoot : float
        The canaries lie this many half-widths outside the declared domain. A mechanism that clips
        does not notice.

    Notes
    -----
    The estimator keeps everything that decides about the noise (promise, relation, radius, split)
    and its code. Its features become the two columns of a square, its classes two, and it gets no
    ledger: the audit is of the mechanism, and made-up rows cost nothing.
    """

    gaussian = True

    def __init__(self, make: Any, *, overshoot: float = 0.5) -> None:
        self._make = make
        model = self._model()
        self._classes = isinstance(model, MomentClassifier)
        self.plan = plan_moments(
            model.privacy, 2, 2, outputs="classes" if self._classes else "numbers",
            neighbours=model.neighbours, radius=model.radius, feature_norm=1.0,
            split=Split(*model.split),
        )  # fmt: skip
        self.canary = worst_canary(self.plan)
        wanted = self.plan.scales.mean / _NOISE_OF_MEAN
        self._others = 2 * int(np.clip(wanted, _FEWEST_ROWS, _MOST_ROWS) / 2)
        self._data = [self._rows(planted, overshoot) for planted in (False, True)]

    @property
    def n_rows(self) -> int:
        """Rows of the data set with the canary."""
        return self._others + 1

    @property
    def attainable(self) -> float:
        """The ε that the canaries can show of a mechanism that is as declared."""
        return gaussian_epsilon(self.canary.mu, self.plan.privacy.delta)

    def _model(self) -> Any:
        """A fresh estimator, reduced to two columns and two classes."""
        make = self._make
        made = clone(make) if not isinstance(make, type) and hasattr(make, "fit") else make()
        if not isinstance(made, MOMENT_ESTIMATORS) or made.privacy is None:
            raise ValueError(
                "A white-box audit of moments needs a MomentClassifier or MomentRegressor with "
                "privacy=…"
            )
        small = {
            "features": "identity",
            "privacy": replace(made.privacy, domain=_DOMAIN),
            "ledger": None,
            "classes": list(_CLASSES),
            "output_domain": _DOMAIN,
            "inference": "ridge",
        }
        known = made.get_params(deep=False)
        return made.set_params(**{name: small[name] for name in small if name in known})

    def _groups(self, planted: bool) -> list[_Group]:
        """The rows of a data set: features, output, and how many there are of the kind."""
        canary, half = self.canary, self._others / 2.0
        # Numbers spread, so that the noised sum of their squares stays positive.
        outputs = (0.0, 0.0) if self._classes else (0.5, -0.5)
        groups = [_Group(canary.base, output, half) for output in outputs]
        if planted:
            groups.append(_Group(canary.planted, canary.planted_output, 1.0))
        elif canary.without is not None:
            groups.append(_Group(canary.without, canary.without_output, 1.0))
        return groups

    def _rows(self, planted: bool, overshoot: float) -> tuple[Array, Array]:
        """Rows and outputs; the columns of a row are its features times √2."""
        rows, outputs = [], []
        for features, output, count in self._groups(planted):
            beyond = 1.0 + overshoot if count == 1 else 1.0
            rows += [features * (math.sqrt(2.0) * beyond)] * int(count)
            outputs += [output] * int(count)
        return np.array(rows), np.array(outputs, dtype=int if self._classes else float)

    def release(self, planted: bool) -> Array:
        """Fit once and read what was released: the mean, then the moments."""
        model = self._model().fit(*self._data[planted])
        moments = model.moments_
        parts = [model.mean_, moments.second[np.triu_indices(2)]]
        if self._classes:
            parts += [moments.cross.T.ravel(), moments.outputs]
        else:
            parts += [moments.total, moments.cross.T.ravel(), moments.outputs, moments.squares]
            if self.plan.neighbours == "add/remove":
                parts.append(np.array([moments.size]))
        return np.concatenate([np.ravel(part) for part in parts]).astype(np.float64)

    def log_ratios(self, released: Array) -> Array:
        """Likelihood ratio of Gaussian noise about the sums that either data set has."""
        without, planted = (self._expected(released, side) for side in (False, True))
        shift = (planted - without) / self._noise()
        middle = (self._observed(released) - (planted + without) / 2.0) / self._noise()
        return np.asarray((shift * middle).sum(axis=1))

    def residuals(self, released: Array) -> Array:
        """About the sums expected from the released mean, and from the exact mean of all rows."""
        observed, noise = self._observed(released), self._noise()
        exact = released.copy()
        exact[:, _MEAN] = self.canary.base
        about_exact = (observed - self._expected(exact, False)) / noise
        about_noised = (observed - self._expected(released, False)) / noise
        return np.hstack([about_noised, about_exact[:, _MOMENTS]])

    def _observed(self, released: Array) -> Array:
        """Released numbers as sums over the rows."""
        sums = released.copy()
        n_rows = self._others + (self.plan.neighbours == "replace")
        sums[:, _MEAN] *= n_rows
        return sums

    def _noise(self) -> Array:
        """Standard deviation of the declared noise on every released number."""
        plan, scales = self.plan, self.plan.scales
        second = scales.second * plan.radius**2 * np.array([1.0, math.sqrt(0.5), 1.0])
        cross = scales.cross * plan.radius * (1.0 if self._classes else math.sqrt(2.0))
        n_tally = 2 if self._classes or plan.neighbours == "replace" else 3
        parts = [np.full(2, scales.mean), second, np.full(4, cross), np.full(n_tally, scales.tally)]
        return np.concatenate(parts)

    def _expected(self, released: Array, planted: bool) -> Array:
        """Exact sums of a data set about each released mean, in the order of ``release``."""
        n_tally = released.shape[1] - _MOMENTS.stop
        return np.asarray(
            sum(
                group.rows * self._terms(group, released[:, _MEAN], n_tally)
                for group in self._groups(planted)
            )
        )

    def _terms(self, group: _Group, mean: Array, n_tally: int) -> Array:
        """What one row of a group adds to every released number."""
        output, z = group.output, group.features - mean
        norms = np.linalg.norm(z, axis=1, keepdims=True)
        z = z * np.minimum(1.0, self.plan.radius / np.maximum(norms, 1e-30))
        if self._classes:
            indicator = np.eye(2)[int(output)]
            weights, tally = indicator, indicator
        else:
            weights = np.array([1.0, output])
            tally = np.array([output, output**2, 1.0])[:n_tally]
        squares = np.column_stack([z[:, 0] ** 2, z[:, 0] * z[:, 1], z[:, 1] ** 2])
        crosses = np.hstack([z * weight for weight in weights])
        own = np.broadcast_to(group.features, z.shape)
        return np.hstack([own, squares, crosses, np.broadcast_to(tally, (len(z), len(tally)))])

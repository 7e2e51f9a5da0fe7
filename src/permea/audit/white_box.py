"""The white box: many small releases of two neighbouring data sets, told apart by their numbers.

The auditor knows both data sets, the plan of the noise and everything that was released, and does
not know which of the two was used: the observer of the definition of differential privacy. Three
scores are computed, because a mechanism that is not as declared may show in any of them:

1. the likelihood ratio of the two data sets under the declared mechanism;
2. a linear direction fitted to a part of the releases (Fisher's discriminant), which sees a
   difference that the declared mechanism does not have;
3. the difference from the nearest of many releases of a public data set, which removes noise that
   is used twice.

Each score has its share of the probability of error, so that the largest bound holds as stated.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import KDTree
from sklearn.base import clone

from permea._arrays import Array
from permea._progress import progress
from permea.audit.bounds import (
    gaussian_epsilon,
    gaussian_scores_p_value,
    multi_run_epsilon,
    shift_epsilon,
)
from permea.models.hull import HullClassifier
from permea.models.moments import MomentClassifier, MomentRegressor
from permea.privacy import Privacy
from permea.privacy import release as release_rows
from permea.privacy.moments import MomentPlan, Split, plan_moments
from permea.privacy.noise import GAUSSIAN_LAWS, StaircaseNoise
from permea.privacy.release import Plan, plan

GAUSSIAN = (
    "the scores are Gaussian with the same variance on both sides, as the declared noise makes them"
)
_SHARES = {"likelihood ratio": 0.8, "fitted direction": 0.1, "comparison of releases": 0.1}
_FIT_SHARE = 0.4  # of the releases, to find the fitted direction
_LEAST_P_VALUE = 1e-4  # below it the scores are not Gaussian
_COMPARISONS = 200  # releases of either side that are compared with public ones
_LEAST_RELEASES = 20
_OVERSHOOT = 0.5  # of the canaries beyond the declared domain: clipping removes it


class Experiment(Protocol):
    """A mechanism on two neighbouring data sets, with and without the canary."""

    @property
    def gaussian(self) -> bool:
        """Whether the declared noise makes the likelihood ratio Gaussian."""
        ...

    def release(self, planted: bool) -> Array:
        """The numbers of one fresh release, of the data set with or without the canary."""
        ...

    def log_ratios(self, released: Array) -> Array:
        """Log likelihood ratio of each release (one per row), with against without."""
        ...

    def residuals(self, released: Array) -> Array:
        """What each release differs from that expected without the canary, in units of noise."""
        ...


class Found(NamedTuple):
    """Bounds from one white-box audit: see :class:`permea.audit.EmpiricalEpsilon`."""

    epsilon: float
    assumption: str
    assumption_free: float
    seen_by: str
    releases: int


def white_box_epsilon(
    experiment: Experiment, *, releases: int = 4000, delta: float, confidence: float = 0.95
) -> Found:
    """Bound ε from ``releases`` releases of either data set, and some more that are compared."""
    if releases < _LEAST_RELEASES:
        raise ValueError(
            f"A white-box audit needs at least {_LEAST_RELEASES} releases of either data set, "
            f"got {releases}."
        )
    comparisons = min(_COMPARISONS, releases // 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about the few rows of the canaries
        compared = _compared(experiment, comparisons)
        pairs = [
            (experiment.release(False), experiment.release(True))
            for _ in progress(range(releases), desc="releases")
        ]
    sides = [np.array(side) for side in zip(*pairs, strict=True)]
    scores = {  # each for the releases without and with the canary
        "likelihood ratio": [experiment.log_ratios(side) for side in sides],
        "fitted direction": _fitted(*(experiment.residuals(side) for side in sides)),
        "comparison of releases": compared,
    }
    free, shifts = {}, {}
    for name, score in scores.items():
        own = 1.0 - _SHARES[name] * (1.0 - confidence)
        free[name] = multi_run_epsilon(*score, delta=delta, confidence=own)
        may_shift = experiment.gaussian and delta > 0 and score is not compared
        if may_shift and gaussian_scores_p_value(*score) > _LEAST_P_VALUE:
            shifts[name] = shift_epsilon(*score, delta=delta, confidence=own)
    kept = free | shifts  # one method for each score: its share of the error is spent once
    seen_by = max(kept, key=lambda name: kept[name])
    assumption = GAUSSIAN if seen_by in shifts else ""
    trials = 2 * releases + 4 * comparisons + 1
    return Found(kept[seen_by], assumption, max(free.values()), seen_by, trials)


def _compared(experiment: Experiment, comparisons: int) -> list[Array]:
    """Each release beside that one of the public data set which is nearest to it.

    Releases of the public data set stand between the others. Noise that any two releases share is
    gone from their difference, and their difference is the smallest.
    """
    public = [experiment.release(False)]
    own: list[list[Array]] = [[], []]
    for _ in progress(range(comparisons), desc="comparisons"):
        for planted in (False, True):
            own[planted].append(experiment.release(planted))
            public.append(experiment.release(False))
    known = experiment.residuals(np.array(public))
    tree = KDTree(known)
    sides = []
    for released in own:
        residuals = experiment.residuals(np.array(released))
        sides.append(residuals - known[tree.query(residuals)[1]])
    return _fitted(*sides)


def _fitted(without: Array, planted: Array) -> list[Array]:
    """Fisher's discriminant, fitted to the first releases and applied to the others."""
    cut = max(2, int(_FIT_SHARE * len(without)))
    shift = planted[:cut].mean(axis=0) - without[:cut].mean(axis=0)
    centred = np.concatenate([side[:cut] - side[:cut].mean(axis=0) for side in (without, planted)])
    covariance = centred.T @ centred / len(centred)
    # Directions without any noise stay usable: they are what a broken mechanism shows.
    floor = 1e-9 * max(float(np.trace(covariance)) / len(shift), 1e-12)
    direction = np.linalg.solve(covariance + floor * np.eye(len(shift)), shift)
    return [without[cut:] @ direction, planted[cut:] @ direction]


MOMENT_ESTIMATORS = (MomentClassifier, MomentRegressor, HullClassifier)
_DOMAIN = (-1.0, 1.0)
_CORNER = np.array([1.0, 1.0]) / math.sqrt(2.0)  # features of a corner of the square, norm 1
_ASIDE = np.array([1.0, -1.0]) / math.sqrt(2.0)
_NOISE_OF_MEAN = 0.05  # in units of the norm of the features: decides the number of rows
_FEWEST_ROWS, _MOST_ROWS = 100, 20_000
_CLASSES = (0, 1)
_CANARY_ROWS = 4  # of a person who is the canary; in her place there is a person with one row
_MEAN, _MOMENTS = slice(0, 2), slice(2, 9)  # places in the released numbers; the rest follows


class _Group(NamedTuple):
    """Equal rows of a data set."""

    features: Array
    output: float
    rows: float


@dataclass(frozen=True)
class MomentCanary:
    """The row that is there, and the row in its place: features, outputs, what they can show.

    ``base`` are the features of all other rows. ``without`` is None where the row is missing. A
    person has several such rows: together they count as one.
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
    mean, _, second, cross, counts = (1.0 / scale**2 for scale in plan.scales[:5])
    classes = plan.outputs == "classes"
    if plan.neighbours == "add/remove":
        # The mean is a ratio of two noised numbers, so the share of the row count is not seen.
        square = mean + second + cross + (1.0 if classes else 3.0) * counts
        square += 1.0 / plan.scales.scatter**2
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
    _, _, second, cross, counts = (1.0 / scale**2 for scale in plan.scales[:5])
    cosines, scatter = np.linspace(-1.0, 0.0, 1001), 1.0 / plan.scales.scatter**2
    if plan.outputs == "classes":
        own, inner = 2.0, float(other == 1.0)
        moved = 2.0 * (1.0 - inner)
    else:  # y = (1, o)/√2, and the counts (1, o, o²)
        own, inner = 1.0 + (1.0 + other**2) / 2.0, (1.0 + other) / 2.0
        moved = (1.0 - other) ** 2 + (1.0 - other**2) ** 2
    squares = (
        second * (2.0 - 2.0 * cosines**2)
        + cross * (own - 2.0 * inner * cosines)
        + counts * moved
        + scatter * (2.0 - 2.0 * inner * cosines**2)
    )
    at = int(np.argmax(squares))
    return float(squares[at]), float(cosines[at])


def new_model(make: Any) -> Any:
    """A fresh unfitted estimator: a clone of one, or what a factory makes."""
    return clone(make) if not isinstance(make, type) and hasattr(make, "fit") else make()


class MomentExperiment:
    """Small trainings of a moment estimator with and without the worst canary.

    Parameters
    ----------
    make : callable or estimator
        Gives the estimator under audit; each training gets its own.

    Notes
    -----
    The estimator keeps everything that decides about the noise (promise, relation, radius, split)
    and its code. Its features become the two columns of a square, its classes two, and it gets no
    ledger: the audit is of the mechanism, and made-up rows cost nothing.
    """

    gaussian = True

    def __init__(self, make: Any) -> None:
        self._make = make
        model = self._model()
        self._classes = not isinstance(model, MomentRegressor)
        self.plan = plan_moments(
            model.privacy, 2, 2, outputs="classes" if self._classes else "numbers",
            neighbours=model.neighbours, radius=model.radius, feature_norm=1.0,
            split=Split(*model.split), n_directions=min(model.n_directions, 2),
            n_losses=model.n_losses,
        )  # fmt: skip
        self.canary = worst_canary(self.plan)
        wanted = self.plan.scales.mean / _NOISE_OF_MEAN
        self._others = 2 * int(np.clip(wanted, _FEWEST_ROWS, _MOST_ROWS) / 2)
        self._data = [self._rows(planted) for planted in (False, True)]
        self.neighbours = self.plan.neighbours
        self.note = (
            f"the estimator's mechanism on {self._others + 1} made-up {self._units} of two "
            "columns; says nothing about other rows, nor about its feature map"
        )
        if getattr(new_model(make), "loss", "squared") != "squared":
            self.note += ", nor about gradients of the logistic loss"

    @property
    def _units(self) -> str:
        return "persons" if self.plan.privacy.unit == "person" else "rows"

    @property
    def attainable(self) -> float:
        """The ε that the canaries can show of a mechanism that is as declared."""
        return gaussian_epsilon(self.canary.mu, self.plan.privacy.delta)

    def _model(self) -> Any:
        """A fresh estimator, reduced to two columns and two classes."""
        made = new_model(self._make)
        if not isinstance(made, MOMENT_ESTIMATORS) or made.privacy is None:
            raise ValueError(
                "A white-box audit of moments needs a MomentClassifier, MomentRegressor or "
                "HullClassifier with privacy=…"
            )
        small = {
            "features": "identity",
            "privacy": replace(made.privacy, domain=_DOMAIN),
            "schema": None,
            "bins": None,
            "class_weight": None,
            "loss": "squared",
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

    def _rows(self, planted: bool) -> dict[str, Array]:
        """Rows and outputs, and whose they are; the columns of a row are its features times √2."""
        rows: list[Array] = []
        outputs: list[float] = []
        people: list[int] = []
        by_person = self.plan.privacy.unit == "person"
        for features, output, count in self._groups(planted):
            beyond = 1.0 + _OVERSHOOT if count == 1 else 1.0
            copies = _CANARY_ROWS if by_person and planted and count == 1 else 1
            rows += [features * (math.sqrt(2.0) * beyond)] * (int(count) * copies)
            outputs += [output] * (int(count) * copies)
            people += np.repeat(len(people) + np.arange(int(count)), copies).tolist()
        y = np.array(outputs, dtype=int if self._classes else float)
        data = {"X": np.array(rows), "y": y}
        return data | ({"groups": np.array(people)} if by_person else {})

    def release(self, planted: bool) -> Array:
        """Fit once and read what was released: the mean, then the moments."""
        model = self._model().fit(**self._data[planted])
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
        n_counts = 2 if self._classes or plan.neighbours == "replace" else 3
        parts = [
            np.full(2, scales.mean),
            second,
            np.full(4, cross),
            np.full(n_counts, scales.counts),
        ]
        return np.concatenate(parts)

    def _expected(self, released: Array, planted: bool) -> Array:
        """Exact sums of a data set about each released mean, in the order of ``release``."""
        n_counts = released.shape[1] - _MOMENTS.stop
        return np.asarray(
            sum(
                group.rows * self._terms(group, released[:, _MEAN], n_counts)
                for group in self._groups(planted)
            )
        )

    def _terms(self, group: _Group, mean: Array, n_counts: int) -> Array:
        """What one row of a group adds to every released number."""
        output, z = group.output, group.features - mean
        norms = np.linalg.norm(z, axis=1, keepdims=True)
        z = z * np.minimum(1.0, self.plan.radius / np.maximum(norms, 1e-30))
        if self._classes:
            indicator = np.eye(2)[int(output)]
            weights, counts = indicator, indicator
        else:
            weights = np.array([1.0, output])
            counts = np.array([output, output**2, 1.0])[:n_counts]
        squares = np.column_stack([z[:, 0] ** 2, z[:, 0] * z[:, 1], z[:, 1] ** 2])
        crosses = np.hstack([z * weight for weight in weights])
        own = np.broadcast_to(group.features, z.shape)
        return np.hstack([own, squares, crosses, np.broadcast_to(counts, (len(z), len(counts)))])


Rows = Callable[[Array], ArrayLike]

_PUBLIC_ENTRIES, _CANARY_ENTRIES = 15, 4  # that are looked at for what the declared law excludes


class RowExperiment:
    """Releases of a small matrix whose first row holds the canary; all other rows are public.

    With ``unit="person"`` the canary has as many rows as were declared.

    Parameters
    ----------
    release : callable or None
        Takes a matrix and returns the released one; None for :func:`permea.release`.
    privacy : Privacy
        The promise under audit.

    Examples
    --------
    >>> experiment = RowExperiment(None, Privacy(epsilon=1, domain=(0, 1)))
    >>> experiment.attainable
    1.0
    """

    neighbours = "replace"

    def __init__(self, release: Rows | None, privacy: Privacy) -> None:
        self._own_rows = (privacy.rows_per_person or 1) if privacy.unit == "person" else 1
        self._release: Rows = release or self._released
        self.privacy = privacy
        self.n_columns = privacy.n_columns or (1 if privacy.unit == "entry" else 2)
        self.plan: Plan = plan(privacy, self.n_columns)
        self.gaussian = privacy.mechanism in GAUSSIAN_LAWS
        n_public = math.ceil(_PUBLIC_ENTRIES / self.n_columns)
        self.n_rows = self._own_rows + n_public
        public = np.tile(privacy.lows(self.n_columns), (n_public, 1))
        rows = _worst_rows(privacy, self.n_columns)
        self._data = [np.vstack([*[row] * self._own_rows, public]) for row in rows]
        self._steps = [self.plan.to_steps(data.copy()).astype(np.float64) for data in self._data]
        self.note = (
            f"the mechanism on {self.n_rows} made-up rows, the number of columns being "
            f"{self.n_columns}; says nothing about other rows"
        )

    def _released(self, rows: Array) -> Array:
        people = np.maximum(np.arange(len(rows)) - self._own_rows, -1)
        return release_rows(rows, self.privacy, groups=people).data

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
        entries = self._own_rows * self.n_columns
        own, public = apart[:, :entries], apart[:, entries:]
        parts = [own[:, :_CANARY_ENTRIES], public[:, :_PUBLIC_ENTRIES]]
        if entries > _CANARY_ENTRIES:
            moved = (self._steps[1] - self._steps[0]).ravel()[:entries]
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
            return np.asarray(-0.5 * np.square(steps / work.sigma))
        if isinstance(work.noise, StaircaseNoise):
            stage, within = np.divmod(np.rint(distance), work.sensitivity)
            lower = within >= work.noise.gamma * work.sensitivity
            return -self.privacy.epsilon * (stage + lower)
        rate = self.privacy.epsilon / work.sensitivity
        smooth = (1.0 - work.noise.delta) * math.tanh(rate / 2.0) * np.exp(-rate * distance)
        bare = work.noise.delta * (distance < 0.5)
        return np.asarray(np.log(np.maximum(smooth + bare, 1e-300)))


def _worst_rows(privacy: Privacy, p: int) -> tuple[Array, Array]:
    """Two rows as far apart as the promise allows, before they are clipped."""
    low, high = privacy.lows(p), privacy.highs(p)
    beyond = _OVERSHOOT * (high - low)
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

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

import warnings
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from permea._progress import progress
from permea.audit.bounds import gaussian_scores_p_value, multi_run_epsilon, shift_epsilon
from permea.privacy.payment import PrivacyWarning

Array = NDArray[np.float64]

GAUSSIAN = (
    "the scores are Gaussian with the same variance on both sides, as the declared noise makes them"
)
_SHARES = {"likelihood ratio": 0.8, "fitted direction": 0.1, "comparison of releases": 0.1}
_FIT_SHARE = 0.4  # of the releases, to find the fitted direction
_LEAST_P_VALUE = 1e-4  # below it the scores are not Gaussian
_COMPARISONS = 200  # releases of either side that are compared with public ones
_LEAST_RELEASES = 20


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


@dataclass(frozen=True)
class Found:
    """Bounds from one white-box audit: see :class:`permea.audit.EmpiricalEpsilon`."""

    epsilon: float
    assumption: str
    assumption_free: float
    seen_by: str
    releases: int


@dataclass(frozen=True)
class _Score:
    """One score of every release of either side."""

    name: str
    without: Array
    planted: Array


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
        warnings.simplefilter("ignore", PrivacyWarning)  # about the few rows of the canaries
        compared = _compared(experiment, comparisons)
        sides = _sides(experiment, releases)
    likelihood = _Score("likelihood ratio", *(experiment.log_ratios(side) for side in sides))
    fitted = _fitted("fitted direction", *(experiment.residuals(side) for side in sides))
    scores = (likelihood, fitted, compared)
    free = {score.name: _threshold_bound(score, delta, confidence) for score in scores}
    gaussian = [score for score in (likelihood, fitted) if _is_gaussian(experiment, score, delta)]
    shifts = {score.name: _shift_bound(score, delta, confidence) for score in gaussian}
    return _summary(free, shifts, 2 * releases + 4 * comparisons + 1)


def _summary(free: dict[str, float], shifts: dict[str, float], releases: int) -> Found:
    """The largest bound of all scores, each by the sharper method that its law allows."""
    best = max(free, key=lambda name: free[name])
    if not shifts:
        return Found(free[best], "", free[best], best, releases)
    # A score keeps one method: its share of the error is spent once.
    kept = {name: shifts.get(name, bound) for name, bound in free.items()}
    seen_by = max(kept, key=lambda name: kept[name])
    assumption = GAUSSIAN if seen_by in shifts else ""
    return Found(kept[seen_by], assumption, free[best], seen_by, releases)


def _sides(experiment: Experiment, releases: int) -> tuple[Array, Array]:
    """Releases without and with the canary, in turn."""
    pairs = [
        (experiment.release(False), experiment.release(True))
        for _ in progress(range(releases), desc="releases")
    ]
    return np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])


def _compared(experiment: Experiment, comparisons: int) -> _Score:
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
    return _fitted("comparison of releases", *sides)


def _fitted(name: str, without: Array, planted: Array) -> _Score:
    """Fisher's discriminant, fitted to the first releases and applied to the others."""
    cut = max(2, int(_FIT_SHARE * len(without)))
    shift = planted[:cut].mean(axis=0) - without[:cut].mean(axis=0)
    centred = np.concatenate([side[:cut] - side[:cut].mean(axis=0) for side in (without, planted)])
    covariance = centred.T @ centred / len(centred)
    # Directions without any noise stay usable: they are what a broken mechanism shows.
    floor = 1e-9 * max(float(np.trace(covariance)) / len(shift), 1e-12)
    direction = np.linalg.solve(covariance + floor * np.eye(len(shift)), shift)
    return _Score(name, without[cut:] @ direction, planted[cut:] @ direction)


def _is_gaussian(experiment: Experiment, score: _Score, delta: float) -> bool:
    if not experiment.gaussian or delta <= 0:
        return False
    return gaussian_scores_p_value(score.without, score.planted) > _LEAST_P_VALUE


def _confidence(score: _Score, confidence: float) -> float:
    return 1.0 - _SHARES[score.name] * (1.0 - confidence)


def _threshold_bound(score: _Score, delta: float, confidence: float) -> float:
    own = _confidence(score, confidence)
    return multi_run_epsilon(score.without, score.planted, delta=delta, confidence=own)


def _shift_bound(score: _Score, delta: float, confidence: float) -> float:
    own = _confidence(score, confidence)
    return shift_epsilon(score.without, score.planted, delta=delta, confidence=own)

"""What several noised values reveal together: composition by privacy loss distributions.

The record-level figure of an entry-level promise is the composition of the ``p`` mechanisms of a
row. Simple composition adds (``p ε``); tight composition convolves the distributions of the privacy
loss. Both are upper bounds; the smaller one is given.
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from scipy import optimize

from permea.privacy.noise import gaussian_delta

RECORD_DELTA = 1e-6
"""The part of δ per record that tight composition may spend, beside the point masses."""

_ROUNDING = 1e-10  # allowance for the rounding of the Fourier transforms, taken off δ
_LARGEST = 50.0  # a Laplace mechanism of a larger ε gains nothing from composition
_CELLS = 400_000  # cells of the composed distribution, for the time it takes


class Loss(NamedTuple):
    """``times`` equal mechanisms, each named by a pair of distributions that dominates it.

    ``"laplace"``: a Laplace pair at distance ``value`` (the ε of one mechanism). ``"gaussian"``: a
    unit Gaussian pair at distance ``value`` (sensitivity / σ). ``"pure"``: anything that keeps ε =
    ``value``. ``delta`` is the probability that a mechanism fails altogether (the point mass).
    ``slack`` is what the grid costs: for ``"laplace"`` it widens the dominating pair, for
    ``"gaussian"`` it is the η of :func:`permea.privacy.noise.grid_slack`.
    """

    kind: Literal["laplace", "gaussian", "pure"]
    value: float
    times: int = 1
    delta: float = 0.0
    slack: float = 0.0


class Spent(NamedTuple):
    """A composed guarantee; the unit belongs to whoever composed it."""

    epsilon: float
    delta: float


def laplace_slack(rate: float) -> float:
    """How much wider the continuous Laplace pair is that dominates the discrete one.

    A discrete Laplace of ``rate`` shifted by ``k`` steps has ε = ``rate k``; its whole privacy
    profile lies below that of the continuous pair at ``rate k + 2 log cosh(rate / 2)``
    (``docs/proofs/composition.md``).

    Examples
    --------
    >>> round(laplace_slack(0.5), 6)
    0.06186
    """
    return max(0.0, rate + 2.0 * (math.log1p(math.exp(-rate)) - math.log(2.0)))


def failure(losses: Iterable[Loss]) -> float:
    """Sum of the point masses: the δ that simple composition gives."""
    return min(1.0, math.fsum(loss.times * loss.delta for loss in losses))


def simple_epsilon(losses: Iterable[Loss]) -> float:
    """Sum of all ε, as adding up gives it; infinite for a Gaussian, which has none at δ = 0.

    Examples
    --------
    >>> simple_epsilon([Loss("laplace", 0.5, 4)])
    2.0
    """
    losses = tuple(losses)
    if any(loss.kind == "gaussian" for loss in losses):
        return math.inf
    return math.fsum(loss.times * loss.value for loss in losses)


def tight_epsilon(losses: Iterable[Loss], delta: float) -> float:
    """The ε of the composition at ``delta``: tight, never below the truth.

    ``delta`` includes the point masses. Gaussians alone have a closed form; Laplace and pure
    mechanisms are composed by ``dp-accounting`` with a pessimistic discretisation.

    Examples
    --------
    >>> tight_epsilon([Loss("laplace", 0.1, 784)], 1e-6) < 0.25 * 78.4
    True
    >>> round(tight_epsilon([Loss("laplace", 0.1, 784)], 0.0), 9)
    78.4
    """
    losses = _merged(losses)
    left = delta - failure(losses)
    simple = simple_epsilon(losses)
    if not losses:
        return 0.0
    if left < -1e-12 * delta:
        return math.inf
    if all(loss.kind == "gaussian" for loss in losses):
        return _gaussian_epsilon(losses, left)
    if left <= 10 * _ROUNDING or any(loss.value > _LARGEST for loss in losses):
        return simple
    slack = math.fsum(loss.times * loss.slack for loss in losses if loss.kind == "gaussian")
    kinds = tuple((loss.kind, _pair_width(loss), loss.times) for loss in losses)
    composed = _compose(kinds).get_epsilon_for_delta(left * math.exp(-slack) - _ROUNDING)
    return min(simple, float(composed) + 2.0 * slack)


def _merged(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """Count equal mechanisms together, in a fixed order."""
    counts: dict[Loss, int] = {}
    for loss in losses:
        single = loss._replace(times=1)
        counts[single] = counts.get(single, 0) + loss.times
    return tuple(sorted(loss._replace(times=times) for loss, times in counts.items()))


def _pair_width(loss: Loss) -> float:
    return loss.value + (loss.slack if loss.kind == "laplace" else 0.0)


def compose(losses: Iterable[Loss], extra_delta: float = RECORD_DELTA) -> Spent:
    """The smaller of simple and tight composition, with the δ at which it holds.

    Examples
    --------
    >>> compose([Loss("laplace", 1.0, 1)]).epsilon
    1.0
    """
    losses = tuple(losses)
    delta = min(1.0, failure(losses) + extra_delta)
    simple, tight = simple_epsilon(losses), tight_epsilon(losses, delta)
    if simple <= tight * (1.0 + 1e-3):
        return Spent(simple, failure(losses))
    return Spent(tight, delta)


def _gaussian_epsilon(losses: tuple[Loss, ...], delta: float) -> float:
    """Gaussians compose to one Gaussian: ``mu² = sum of times mu_i²``."""
    mu = math.sqrt(math.fsum(loss.times * loss.value**2 for loss in losses))
    slack = math.fsum(loss.times * loss.slack for loss in losses)
    target = delta * math.exp(-slack) * (1.0 - 1e-9)
    if target <= 0:
        return math.inf
    if gaussian_delta(mu, 0.0) <= target:
        return 2.0 * slack
    high = 1.0
    while gaussian_delta(mu, high) > target:
        high *= 2.0
    root = optimize.brentq(
        lambda e: math.log(max(gaussian_delta(mu, e), 1e-320) / target), 0.0, high, xtol=1e-12
    )
    return float(root) * (1.0 + 1e-9) + 1e-11 + 2.0 * slack


@lru_cache(maxsize=256)
def _compose(kinds: tuple[tuple[str, float, int], ...]) -> Any:
    """The privacy loss distribution of all mechanisms together, discretised to the safe side."""
    total = math.fsum(value * count for _, value, count in kinds)
    interval = max(min(value for _, value, _ in kinds) / 1000.0, total / _CELLS)
    parts = [_distribution(kind, value, interval).self_compose(n) for kind, value, n in kinds]
    composed = parts[0]
    for part in parts[1:]:
        composed = composed.compose(part)
    return composed


def _distribution(kind: str, value: float, interval: float) -> Any:
    # Imported here: most of what imports this module composes nothing, and it takes half a second.
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    if kind == "laplace":
        return pld.from_laplace_mechanism(1.0 / value, value_discretization_interval=interval)
    if kind == "gaussian":
        return pld.from_gaussian_mechanism(1.0 / value, value_discretization_interval=interval)
    promise = common.DifferentialPrivacyParameters(value, 0.0)
    return pld.from_privacy_parameters(promise, value_discretization_interval=interval)

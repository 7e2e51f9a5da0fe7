"""Laws of noise: the optimal one of the documents, the Gaussian reference, the staircase.

All share one interface: ``cdf``, ``inverse_cdf``, ``expected_magnitude()``, ``variance()``,
``sample_steps`` (whole grid steps, exact) and ``randomise``. ``MECHANISMS`` is the list of laws by
name: whatever is added to it can be chosen by ``Privacy(mechanism=...)`` and by ``--mechanism``.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from permea._arrays import Array, Integers
from permea.privacy.gaussian import discrete_gaussian
from permea.privacy.sampling import (
    CHUNK,
    BitSource,
    RandomState,
    bit_source,
    discrete_laplace,
    discrete_staircase,
    uniforms,
)


class Noise:
    """What the laws of noise share: parameters, the inverse-transform float sampler, the grid.

    Parameters
    ----------
    epsilon, delta : float
        The promise per unit, where a unit changes the value by at most ``bound``.
    bound : float
        The documents' ``d``: the largest change that must stay hidden (a sensitivity).

    Attributes
    ----------
    name : str
        What ``Privacy(mechanism=...)`` calls the law.
    description : str
        What certificates call it.
    grid_steps : int
        Steps of the grid per ``bound``, when none are declared.
    """

    name = ""
    description = ""
    grid_steps = 2**20

    def __init__(self, epsilon: float, delta: float = 0.0, bound: float = 1.0) -> None:
        if not (math.isfinite(epsilon) and epsilon > 0):
            raise ValueError("epsilon (per unit of change `bound`) must be positive and finite.")
        if not 0 <= delta < 1:
            raise ValueError("delta (per unit of change `bound`) must lie in [0, 1).")
        if not (math.isfinite(bound) and bound > 0):
            raise ValueError("bound must be positive: it is the largest change to be hidden.")
        self.epsilon, self.delta, self.bound = float(epsilon), float(delta), float(bound)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(epsilon={self.epsilon:g} and delta={self.delta:g} "
            f"per change of at most bound={self.bound:g})"
        )

    def cdf(self, v: ArrayLike) -> Array:
        """Probability that the noise is at most ``v``."""
        raise NotImplementedError

    def inverse_cdf(self, t: ArrayLike) -> Array:
        """Smallest ``v`` with ``cdf(v) >= t``, for ``t`` in (0, 1)."""
        raise NotImplementedError

    def expected_magnitude(self) -> float:
        """Expected absolute value of the noise."""
        raise NotImplementedError

    def variance(self) -> float:
        """Variance of the noise (its mean is zero)."""
        raise NotImplementedError

    def sample_steps(self, size: int, sensitivity: int, source: BitSource) -> Integers:
        """Draw whole grid steps that hide a change of at most ``sensitivity`` steps, exactly."""
        raise NotImplementedError

    def sample_floats(self, size: int, source: BitSource) -> NDArray[np.float64]:
        """Draw doubles by inverse transform (002 Remark 4). Not safe: see ``docs/pitfalls.md``."""
        return np.asarray(self.inverse_cdf(uniforms(size, source)), dtype=np.float64)

    def randomise(
        self, Y: ArrayLike, random_state: RandomState = None, *, resolution: int | None = None
    ) -> Array:
        """Add independent noise to every entry of ``Y``, on a grid of ``bound / resolution``.

        The entries are rounded to the grid and the noise is whole steps of it, calibrated to
        ``resolution + 1`` steps (rounding moves a difference by at most one). No domain is known
        here, so nothing is clipped; use :func:`permea.privacy.release` for a certified release.
        """
        Y = np.asarray(Y)
        dtype = Y.dtype if Y.dtype.kind == "f" else np.dtype(np.float64)
        if not np.all(np.isfinite(Y)):
            raise ValueError("The data contain NaN or infinity; replace them by a public constant.")
        steps = self.grid_steps if resolution is None else int(resolution)
        grid = self.bound / steps
        source = bit_source(random_state)
        flat, out = Y.reshape(-1), np.empty(Y.size, dtype=dtype)
        for start in range(0, Y.size, CHUNK):
            part = flat[start : start + CHUNK].astype(np.float64)
            noise = self.sample_steps(part.size, steps + 1, source)
            out[start : start + CHUNK] = (np.rint(part / grid) + noise) * grid
        return out.reshape(Y.shape)


class OptimalNoise(Noise):
    """Noise of least expected magnitude: Laplace, with the probability δ of being exactly zero.

    002 Result 4 (2.83)-(2.88), 001 (1.75)-(1.77), 004 Result 1: among laws that satisfy the
    sufficient conditions for (ε,δ) of one entry with a change of at most ``d``,

    ``f(v) = δ Dirac(v) + (1 - δ) ε / (2 d) exp(-ε |v| / d)``

    has the least ``E|v| = (1 - δ) d / ε``. At δ = 0 it is the Laplace law.

    Examples
    --------
    >>> noise = OptimalNoise(epsilon=2.0, delta=0.1, bound=1.0)
    >>> noise.expected_magnitude()
    0.45
    >>> [float(x) for x in noise.cdf([-1e-12, 0.0]).round(3)]
    [0.45, 0.55]
    """

    name = "optimal"
    description = "Laplace, exactly zero with the probability of the point mass"

    @property
    def scale(self) -> float:
        """Scale ``d / ε`` of the Laplace part."""
        return self.bound / self.epsilon

    def cdf(self, v: ArrayLike) -> Array:
        """002 (2.87); right-continuous, so the jump δ at zero is included there."""
        v = np.asarray(v, dtype=np.float64)
        tail = 0.5 * (1.0 - self.delta) * np.exp(-np.abs(v) / self.scale)
        return np.asarray(np.where(v < 0, tail, 1.0 - tail))

    def inverse_cdf(self, t: ArrayLike) -> Array:
        """002 (2.88); zero on the whole interval [(1 - δ)/2, (1 + δ)/2]."""
        t = np.asarray(t, dtype=np.float64)
        tail = np.minimum(2.0 * np.minimum(t, 1.0 - t) / (1.0 - self.delta), 1.0)
        with np.errstate(divide="ignore"):
            return np.asarray(np.sign(t - 0.5) * -self.scale * np.log(tail))

    def expected_magnitude(self) -> float:
        """``E|v| = (1 - δ) d / ε`` (2.85)."""
        return (1.0 - self.delta) * self.scale

    def variance(self) -> float:
        """``E v² = 2 (1 - δ) (d / ε)²``."""
        return 2.0 * (1.0 - self.delta) * self.scale**2

    def sample_steps(self, size: int, sensitivity: int, source: BitSource) -> Integers:
        """Discrete Laplace of rate ``ε / sensitivity`` with the point mass δ at zero."""
        rate = Fraction(self.epsilon) / sensitivity
        return discrete_laplace(rate, size, source, point_mass=self.delta)


class GaussianNoise(Noise):
    """Gaussian noise for (ε,δ), δ > 0.

    ``calibration="classical"``: ``σ = d sqrt(2 log(1.25/δ)) / ε`` (002 Result 5-6), proven for
    ε < 1 alone. ``"analytic"``: the least σ with
    ``Φ(d/2σ - εσ/d) - exp(ε) Φ(-d/2σ - εσ/d) <= δ`` (Balle and Wang 2018), for every ε.
    ``"auto"`` takes the classical one where it is valid and the analytic one elsewhere.

    Examples
    --------
    >>> GaussianNoise(epsilon=0.5, delta=1e-5, bound=1.0).sigma.__round__(3)
    9.69
    >>> GaussianNoise(epsilon=0.5, delta=1e-5, bound=1.0, calibration="analytic").sigma.__round__(3)
    7.032
    """

    name = "gaussian"
    description = "Gaussian, analytic calibration"
    grid_steps = 2**30

    def __init__(
        self, epsilon: float, delta: float, bound: float = 1.0, *, calibration: str = "auto"
    ) -> None:
        super().__init__(epsilon, delta, bound)
        if delta == 0:
            raise ValueError("Gaussian noise needs delta > 0; use OptimalNoise for delta = 0.")
        if calibration not in ("auto", "classical", "analytic"):
            raise ValueError("calibration must be 'auto', 'classical' or 'analytic'.")
        if calibration == "classical" and epsilon >= 1:
            raise ValueError(
                "The classical calibration is proven for epsilon < 1 per unit of change only; "
                "use calibration='analytic'."
            )
        self.calibration = calibration
        if calibration == "classical" or (calibration == "auto" and epsilon < 1):
            self.sigma = self.bound * math.sqrt(2 * math.log(1.25 / delta)) / self.epsilon
        else:
            self.sigma = self.bound / gaussian_mu(self.epsilon, self.delta)

    def cdf(self, v: ArrayLike) -> Array:
        """Normal distribution function."""
        return np.asarray(special.ndtr(np.asarray(v, dtype=np.float64) / self.sigma))

    def inverse_cdf(self, t: ArrayLike) -> Array:
        """Normal quantiles."""
        return np.asarray(special.ndtri(np.asarray(t, dtype=np.float64)) * self.sigma)

    def expected_magnitude(self) -> float:
        """``σ sqrt(2/π)`` (2.100)."""
        return self.sigma * math.sqrt(2.0 / math.pi)

    def variance(self) -> float:
        """Variance ``σ²``."""
        return self.sigma**2

    def sample_steps(self, size: int, sensitivity: int, source: BitSource) -> Integers:
        """Discrete Gaussian of the σ in steps, never below what the grid needs."""
        needed = grid_sigma(self.epsilon, self.delta, sensitivity)
        return discrete_gaussian(max(needed, self.sigma / self.bound * sensitivity), size, source)


class ClassicalGaussianNoise(GaussianNoise):
    """Gaussian noise as document 002 has it, ``σ = d sqrt(2 log(1.25/δ)) / ε`` (Result 5 and 6).

    Proven for ε < 1 alone and refused elsewhere. It is more noise than the promise needs: the
    analytic Gaussian keeps the same (ε,δ) with a smaller σ.

    Examples
    --------
    >>> ClassicalGaussianNoise(epsilon=0.5, delta=1e-5).sigma.__round__(3)
    9.69
    """

    name = "classical-gaussian"
    description = "Gaussian, classical calibration"

    def __init__(self, epsilon: float, delta: float, bound: float = 1.0) -> None:
        super().__init__(epsilon, delta, bound, calibration="classical")


class StaircaseNoise(Noise):
    """The law of least expected magnitude at δ = 0 (Geng and Viswanath 2014).

    Stairs of width ``d`` whose first part ``γ d``, ``γ = 1 / (1 + exp(ε/2))``, is one level ``ε``
    higher than the rest. ``E|v| = d exp(ε/2) / (exp(ε) - 1)``, below the Laplace law's ``d / ε``;
    at small ε the two agree, at large ε the staircase needs far less.

    Examples
    --------
    >>> round(StaircaseNoise(epsilon=4.0).expected_magnitude(), 4)
    0.1379
    >>> OptimalNoise(epsilon=4.0).expected_magnitude()
    0.25
    """

    name = "staircase"
    description = "staircase"

    def __init__(self, epsilon: float, delta: float = 0.0, bound: float = 1.0) -> None:
        super().__init__(epsilon, delta, bound)
        if delta != 0:
            raise ValueError("Staircase noise is for delta = 0; use OptimalNoise for delta > 0.")

    @property
    def gamma(self) -> float:
        """Share of a stair on its higher level."""
        return float(special.expit(-0.5 * self.epsilon))

    def cdf(self, v: ArrayLike) -> Array:
        """Piecewise linear between the ends of the stairs."""
        v = np.asarray(v, dtype=np.float64)
        stage, within = np.divmod(np.abs(v) / self.bound, 1.0)
        ratio, gamma = math.exp(-self.epsilon), self.gamma
        mass = gamma + ratio * (1.0 - gamma)
        inside = np.minimum(within, gamma) + ratio * np.maximum(within - gamma, 0.0)
        tail = 0.5 * np.power(ratio, stage) * (1.0 - (1.0 - ratio) * inside / mass)
        return np.asarray(np.where(v < 0, tail, 1.0 - tail))

    def inverse_cdf(self, t: ArrayLike) -> Array:
        """Inverse of the piecewise linear function."""
        t = np.asarray(t, dtype=np.float64)
        tail = 2.0 * np.minimum(t, 1.0 - t)
        ratio, gamma = math.exp(-self.epsilon), self.gamma
        stage = np.floor(-np.log(tail) / self.epsilon)
        mass = gamma + ratio * (1.0 - gamma)
        inside = (1.0 - tail * np.exp(self.epsilon * stage)) * mass / (1.0 - ratio)
        within = np.where(inside <= gamma, inside, gamma + (inside - gamma) / ratio)
        return np.asarray(np.sign(t - 0.5) * self.bound * (stage + within))

    def expected_magnitude(self) -> float:
        """``E|v| = d exp(ε/2) / (exp(ε) - 1) = d / (2 sinh(ε/2))``."""
        half = math.exp(-0.5 * self.epsilon)  # written so that a large ε does not overflow
        return self.bound * half / -math.expm1(-self.epsilon)

    def variance(self) -> float:
        """Second moment: a geometric stage plus a position inside the stair."""
        ratio, gamma = math.exp(-self.epsilon), self.gamma
        mass = gamma + ratio * (1.0 - gamma)
        first = (gamma**2 + ratio * (1.0 - gamma**2)) / (2.0 * mass)
        second = (gamma**3 + ratio * (1.0 - gamma**3)) / (3.0 * mass)
        stage = ratio / (1.0 - ratio)
        stage_square = ratio * (1.0 + ratio) / (1.0 - ratio) ** 2
        return self.bound**2 * (stage_square + 2.0 * stage * first + second)

    def sample_steps(self, size: int, sensitivity: int, source: BitSource) -> Integers:
        """Discrete staircase with stairs of ``sensitivity`` steps."""
        inner = min(sensitivity, max(1, round(self.gamma * sensitivity)))
        return discrete_staircase(Fraction(self.epsilon), sensitivity, inner, size, source)


#: Laws by name. Those besides "optimal" and the Gaussian ones protect entries with δ = 0: noise
#: from ``sample_steps`` keeps ε for every change of at most ``sensitivity`` steps.
MECHANISMS: dict[str, type[Noise]] = {
    law.name: law for law in (OptimalNoise, GaussianNoise, ClassicalGaussianNoise, StaircaseNoise)
}
GAUSSIAN_LAWS = (GaussianNoise.name, ClassicalGaussianNoise.name)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Least δ for which a Gaussian of ``sensitivity / σ = mu`` keeps ε (Balle and Wang 2018).

    ``δ = Φ(mu/2 - ε/mu) - exp(ε) Φ(-mu/2 - ε/mu)``, the difference taken in logarithms.

    Examples
    --------
    >>> round(gaussian_delta(1.0, 0.0), 4)
    0.3829
    """
    first = float(special.log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu))
    return max(0.0, -math.exp(first) * math.expm1(second - first))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest ``sensitivity / σ`` whose Gaussian keeps (ε,δ); rounded to the safe side."""
    high = 1.0
    while gaussian_delta(high, epsilon) < delta:
        high *= 2.0
    low = high
    while gaussian_delta(low, epsilon) > delta:
        low /= 2.0
    if low == high:
        return low
    root = optimize.brentq(
        lambda mu: math.log(max(gaussian_delta(mu, epsilon), 1e-320)) - math.log(delta), low, high,
        xtol=1e-14, rtol=1e-14,
    )  # fmt: skip
    return float(root) * (1.0 - 1e-9)


def grid_slack(sigma: float, mu: float, coordinates: int = 1) -> tuple[float, float]:
    """How far a discrete Gaussian on the grid may be from the continuous one, as (η, τ).

    Within ``10 σ`` the two densities differ by a factor of at most ``exp(η)``; outside lies at most
    the mass τ. So ``δ_grid(ε) <= exp(η) δ_continuous(ε - 2 η) + τ``: ``docs/proofs/gaussian.md``.
    """
    reach = 10.0
    eta = coordinates * (reach + mu + 1.0 / sigma) / (2.0 * sigma)
    return eta, 4.0 * coordinates * math.exp(-0.5 * reach**2)


def grid_sigma(epsilon: float, delta: float, sensitivity: float, coordinates: int = 1) -> float:
    """Least σ in grid steps whose discrete Gaussian keeps (ε,δ) for an L2 change in steps.

    The analytic calibration, tightened by :func:`grid_slack` for ``coordinates`` changed entries.

    Examples
    --------
    >>> round(grid_sigma(0.5, 1e-5, 2**30) / 2**30, 3)
    7.032
    """
    mu = gaussian_mu(epsilon, delta)
    eta, tau = grid_slack(sensitivity / mu, mu, coordinates)
    if 2.0 * eta > 0.1 * epsilon or tau > 0.1 * delta:
        raise ValueError(
            "The grid is too coarse for Gaussian noise of this size: raise `resolution` "
            "(the default is 2**30) or delta."
        )
    return sensitivity / gaussian_mu(epsilon - 2.0 * eta, (delta - tau) * math.exp(-eta))


def noise_gain(delta: ArrayLike) -> Array:
    """How many times larger classical Gaussian noise is than the optimal one, in magnitude.

    ``r(δ) = 2 / ((1 - δ) sqrt(π)) sqrt(log(1.25/δ))``: 002 (2.102). The ratio does not depend on
    ε, which the classical Gaussian needs below one.

    Examples
    --------
    >>> float(noise_gain(1e-6).round(3))
    4.228
    """
    delta = np.asarray(delta, dtype=np.float64)
    if np.any((delta <= 0) | (delta >= 1)):
        raise ValueError("delta must lie strictly between 0 and 1.")
    return np.asarray(
        2.0 / ((1.0 - delta) * math.sqrt(math.pi)) * np.sqrt(np.log(1.25 / delta)),
        dtype=np.float64,
    )

"""From guesses to a lower bound on ε: the statistics of a privacy audit.

A differentially private mechanism bounds how well an observer can guess which of two neighbouring
inputs it was given. Guessing better than the bound of ε allows proves that ε is larger. Everything
here holds with the stated confidence whatever the scores mean: a poor score gives a weak bound,
never a wrong one. Thresholds and numbers of guesses are corrected for.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import binom, f, kstest, nct, norm

from permea._arrays import Array
from permea.audit.metrics import lower_bound, upper_bound

#: No audit with a realistic number of canaries proves more.
LARGEST_EPSILON = 50.0
_CANDIDATE_THRESHOLDS = 60
_TRIALS = {"one-run": "canaries", "multi-run": "runs", "white-box": "releases"}


def one_run_p_value(
    correct: int, guesses: int, n_canaries: int, epsilon: float, *, delta: float = 0.0
) -> float:
    """Probability bound of guessing this well under (ε,δ) (Steinke et al. 2023, Theorem 5.2).

    Each of ``n_canaries`` fair coins decides one neighbouring choice in a single run; the auditor
    guesses some of the coins and abstains from the rest. With W ~ Binomial(guesses, e^ε/(1+e^ε)),

    ``P[at least `correct` right] ≤ P[W ≥ correct] + 2 m δ max_i P[correct > W ≥ correct − i] / i``.
    """
    rate = 1.0 / (1.0 + np.exp(-epsilon))
    p_value = float(binom.sf(correct - 1, guesses, rate))
    if delta > 0 and correct > 0:
        steps = np.arange(1, correct + 1)
        below = np.cumsum(binom.pmf(correct - steps, guesses, rate))
        p_value += 2.0 * n_canaries * delta * float(np.max(below / steps))
    return min(p_value, 1.0)


def one_run_bound(
    correct: int, guesses: int, n_canaries: int, *, alpha: float, delta: float = 0.0
) -> float:
    """Largest ε that the guesses of one run refute, wrong with probability ≤ ``alpha``.

    Examples
    --------
    All of 100 coins guessed: a fair coin is out of the question, and so is any ε up to 3.5.

    >>> round(one_run_bound(100, 100, 100, alpha=0.05), 2)
    3.49
    >>> one_run_bound(50, 100, 100, alpha=0.05)
    0.0
    """

    def excess(epsilon: float) -> float:
        return one_run_p_value(correct, guesses, n_canaries, epsilon, delta=delta) - alpha

    return _largest_refuted(excess)


def _largest_refuted(excess: Callable[[float], float]) -> float:
    """Root of an increasing function of ε on [0, 50]; 0 if it is positive from the start."""
    if excess(0.0) > 0:
        return 0.0
    if excess(LARGEST_EPSILON) <= 0:
        return LARGEST_EPSILON
    # A little below the root, so that rounding never flatters the bound.
    return max(float(brentq(excess, 0.0, LARGEST_EPSILON, xtol=1e-9)) - 1e-8, 0.0)


def one_run_epsilon(
    scores: ArrayLike,
    coins: ArrayLike,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    shares: Sequence[float] = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02),
) -> tuple[float, int, int]:
    """Bound ε from one run with many canaries.

    The highest scores are guessed heads and as many of the lowest tails, for each share of the
    canaries in ``shares``; the best bound is kept, and each is computed at the error divided by
    their number.

    Returns
    -------
    epsilon : float
        The lower bound.
    correct, guesses : int
        Right guesses and guesses behind it.
    """
    values, heads = np.asarray(scores, dtype=np.float64), np.asarray(coins, dtype=bool)
    if values.shape != heads.shape or values.ndim != 1 or len(values) < 4:
        raise ValueError("scores and coins must be two vectors of the same length, at least 4.")
    order = np.argsort(values, kind="stable")
    alpha = (1.0 - confidence) / len(shares)
    best = (0.0, 0, 0)
    for share in shares:
        half = max(1, int(share * len(values)) // 2)
        correct = int(heads[order[-half:]].sum() + (~heads[order[:half]]).sum())
        # Cheap first: most numbers of guesses cannot beat the best so far.
        if one_run_p_value(correct, 2 * half, len(values), best[0], delta=delta) <= alpha:
            bound = one_run_bound(correct, 2 * half, len(values), alpha=alpha, delta=delta)
            best = max(best, (bound, correct, 2 * half))
    return best


def two_rates_bound(
    caught: int, n_with: int, alarms: int, n_without: int, *, alpha: float, delta: float = 0.0
) -> float:
    """Bound ε by one test: log((P[alarm | with] − δ) / P[alarm | without]), Clopper-Pearson each.

    Examples
    --------
    >>> round(two_rates_bound(900, 1000, 100, 1000, alpha=0.05), 2)
    1.99
    """
    true = lower_bound(caught, n_with, alpha=alpha / 2.0)
    false = upper_bound(alarms, n_without, alpha=alpha / 2.0)
    return float(np.log((true - delta) / false)) if true - delta > false else 0.0


def gaussian_bound(
    caught: int, n_with: int, alarms: int, n_without: int, *, alpha: float, delta: float
) -> float:
    """Bound ε of a mechanism whose trade-off is Gaussian (Nasr et al. 2023).

    μ ≥ Φ⁻¹(1 − FPR) − Φ⁻¹(FNR), then ε(δ) of μ-Gaussian differential privacy. Much tighter than
    :func:`two_rates_bound` at small δ, but a statement about Gaussian mechanisms alone.
    """
    false = upper_bound(alarms, n_without, alpha=alpha / 2.0)
    missed = 1.0 - lower_bound(caught, n_with, alpha=alpha / 2.0)
    mu = float(norm.ppf(1.0 - false) - norm.ppf(missed))
    return gaussian_epsilon(mu, delta) if mu > 0 else 0.0


def gaussian_epsilon(mu: float, delta: float) -> float:
    """ε at δ of μ-Gaussian differential privacy (Balle and Wang 2018; Dong, Roth and Su 2022).

    The root of ``δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)``.

    Examples
    --------
    >>> round(gaussian_epsilon(1.0, 1e-5), 3)
    4.377
    """

    def shortfall(epsilon: float) -> float:
        first = log_ndtr(-epsilon / mu + mu / 2.0)
        second = epsilon + log_ndtr(-epsilon / mu - mu / 2.0)
        return delta - float(np.exp(first) - np.exp(second))

    return _largest_refuted(shortfall)


def shift_epsilon(
    without: ArrayLike, with_canary: ArrayLike, *, delta: float, confidence: float = 0.95
) -> float:
    """Bound ε by the shift between Gaussian scores, in standard deviations.

    If the scores are N(a, s²) without and N(a + μs, s²) with the canary, whoever thresholds them
    tells the two apart as well as μ-Gaussian differential privacy allows, so the mechanism loses at
    least ε(δ) of μ. Student's t has the noncentral law with the parameter μ / √(1/n + 1/m), whose
    lower confidence limit is exact under this assumption: see :func:`gaussian_scores_p_value`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(2, 4000))
    >>> target = gaussian_epsilon(0.5, 1e-5)
    >>> bool(0.85 < shift_epsilon(a, b + 0.5, delta=1e-5) / target < 1)
    True
    """
    low, high = np.asarray(without, dtype=np.float64), np.asarray(with_canary, dtype=np.float64)
    freedom = len(low) + len(high) - 2
    variance = (low.var() * len(low) + high.var() * len(high)) / freedom
    width = float(np.sqrt(1.0 / len(low) + 1.0 / len(high)))
    if variance <= 0 or high.mean() <= low.mean():
        return 0.0
    t = float((high.mean() - low.mean()) / (np.sqrt(variance) * width))
    mu = _noncentrality(t, freedom, 1.0 - confidence) * width
    return gaussian_epsilon(mu, delta) if mu > 1e-6 else 0.0


def _noncentrality(t: float, freedom: int, alpha: float) -> float:
    """Lower confidence limit of the noncentrality of a t value."""

    def excess(noncentrality: float) -> float:
        return float(nct.sf(t, freedom, noncentrality)) - alpha

    spread = float(np.sqrt(1.0 + t * t / (2.0 * freedom)))
    start = t - float(norm.isf(alpha)) * spread  # Johnson and Welch 1940, to first order
    low, high = start - spread, start + spread
    if not (excess(low) < 0 < excess(high)):
        return low
    return float(brentq(excess, low, high, xtol=1e-9))


def gaussian_scores_p_value(without: ArrayLike, with_canary: ArrayLike) -> float:
    """How well scores fit what :func:`shift_epsilon` assumes: normal, with one variance.

    The smaller of two p values, doubled: Kolmogorov and Smirnov's test of the scores about the mean
    of their side (with estimated parameters, hence conservative), and the ratio of the variances.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> gaussian_scores_p_value(rng.normal(size=999), 1 + rng.normal(size=999)) > 0.01
    True
    >>> gaussian_scores_p_value(rng.laplace(size=999), 1 + rng.laplace(size=999)) < 0.01
    True
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (without, with_canary)]
    spreads = [float(side.std(ddof=1)) for side in sides]
    if min(spreads) <= 1e-12 * max(1.0, *(float(np.abs(side).max()) for side in sides)):
        return 0.0
    standard = [(side - side.mean()) / spread for side, spread in zip(sides, spreads, strict=True)]
    shape = float(kstest(np.concatenate(standard), "norm").pvalue)
    ratio = float(f.sf(max(spreads) ** 2 / min(spreads) ** 2, len(sides[0]) - 1, len(sides[1]) - 1))
    return min(1.0, 2.0 * min(shape, 2.0 * ratio))


def multi_run_epsilon(
    without: ArrayLike,
    with_canary: ArrayLike,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    tradeoff: str = "any",
    tuning: float = 0.3,
) -> float:
    """Bound ε from many runs without and with one canary.

    The first share ``tuning`` of the runs chooses threshold and direction, the others are counted:
    no run is used for both, so one test at the full error remains.

    Parameters
    ----------
    without, with_canary : array-like
        One score per run.
    delta, confidence : float
        The δ of the claim that is tested, and the confidence of the bound.
    tradeoff : {"any", "gaussian"}
        ``"any"`` holds for every mechanism; ``"gaussian"`` for Gaussian ones, see
        :func:`gaussian_bound`.
    tuning : float
        Share of the runs that chooses.
    """
    if tradeoff not in ("any", "gaussian"):
        raise ValueError(f"tradeoff must be 'any' or 'gaussian', got {tradeoff!r}.")
    if tradeoff == "gaussian" and delta <= 0:
        raise ValueError(
            "tradeoff='gaussian' needs delta > 0: no Gaussian mechanism has a finite ε at δ = 0."
        )
    low = np.asarray(without, dtype=np.float64)
    high = np.asarray(with_canary, dtype=np.float64)
    cut_low, cut_high = int(tuning * len(low)), int(tuning * len(high))
    if min(cut_low, cut_high) < 1 or len(low) == cut_low or len(high) == cut_high:
        raise ValueError("Too few runs: each side needs some to choose and some to count.")
    bound = gaussian_bound if tradeoff == "gaussian" else two_rates_bound
    alpha = 1.0 - confidence

    def evaluate(first: Array, second: Array, threshold: float, sign: float) -> float:
        # sign −1 raises the alarm below the threshold, and tells "without" from "with".
        alarms, caught = (
            int((sign * first >= sign * threshold).sum()),
            int((sign * second >= sign * threshold).sum()),
        )
        if sign > 0:
            return bound(caught, len(second), alarms, len(first), alpha=alpha, delta=delta)
        return bound(alarms, len(first), caught, len(second), alpha=alpha, delta=delta)

    choices = np.unique(np.concatenate([low[:cut_low], high[:cut_high]]))
    choices = (choices[:-1] + choices[1:]) / 2.0 if len(choices) > 1 else choices
    picked = np.linspace(0, len(choices) - 1, min(len(choices), _CANDIDATE_THRESHOLDS))
    tried = [
        (evaluate(low[:cut_low], high[:cut_high], threshold, sign), threshold, sign)
        for threshold in choices[picked.astype(int)]
        for sign in (1.0, -1.0)
    ]
    _, threshold, sign = max(tried)
    return evaluate(low[cut_low:], high[cut_high:], threshold, sign)


@dataclass(frozen=True)
class EmpiricalEpsilon:
    """A lower bound on ε, with everything that it depends on.

    Attributes
    ----------
    epsilon : float
        The training (or release) leaked at least this much per ``unit``.
    delta : float
        The δ for which the bound holds.
    unit : {"entry", "record"}
        What one ε speaks of.
    neighbours : {"replace", "add/remove"}
        How two neighbouring data sets differ.
    confidence : float
        Probability with which the bound holds, all choices of the audit included.
    method : {"white-box", "one-run", "multi-run"}
        How it was found. "white-box" reads the released numbers themselves.
    trials : int
        Canaries of the one run, or runs or releases of both sides together.
    note : str
        What was run, and what else the bound rests on.
    claim : float or None
        The ε that the mechanism promises at ``delta``, where it is known.
    assumption : str
        What ``epsilon`` rests on besides the sampling; empty for nothing.
    assumption_free : float or None
        The bound that rests on nothing, from the same releases.
    black_box : float or None
        The bound from the predictions of the trained model alone.
    attainable : float or None
        The largest ε that the canaries can show of a mechanism that is as declared. It is below the
        claim where the accountant adds up worst cases that no single pair of rows reaches.
    seen_by : str
        Which of the audit's scores gave ``epsilon``.

    Examples
    --------
    >>> found = EmpiricalEpsilon(1.6, 1e-5, "record", "replace", 0.95, "white-box", 8000, claim=1.0)
    >>> found.verdict
    'REFUTES the claim'
    """

    epsilon: float
    delta: float
    unit: str
    neighbours: str
    confidence: float
    method: str
    trials: int
    note: str = ""
    claim: float | None = None
    assumption: str = ""
    assumption_free: float | None = None
    black_box: float | None = None
    attainable: float | None = None
    seen_by: str = ""

    @property
    def verdict(self) -> str:
        """Whether the bound contradicts the claim, where one is known."""
        if self.claim is None:
            return ""
        return "REFUTES the claim" if self.refutes(self.claim) else "agrees with the claim"

    def __str__(self) -> str:
        text = (
            f"leaked at least ε = {self.epsilon:.3g} per {self.unit} at δ = {self.delta:g} "
            f"({self.neighbours} neighbours, {100 * self.confidence:.6g} % confidence, "
            f"{self.method} audit, {self.trials} {_TRIALS[self.method]})"
        )
        if self.claim is not None:
            text += f" and {self.verdict} of ε = {self.claim:g}"
        parts = [text]
        if self.assumption:
            parts.append(f"assumes that {self.assumption}")
        if self.assumption_free is not None and self.assumption:
            parts.append(f"without assumptions at least {self.assumption_free:.3g}")
        if self.black_box is not None:
            parts.append(f"from the predictions of the model alone at least {self.black_box:.3g}")
        if self.note:
            parts.append(self.note)
        return "; ".join(parts)

    def refutes(self, epsilon: float) -> bool:
        """Tell whether the audit refutes a claimed ε of the same unit, neighbours and δ."""
        return self.epsilon > epsilon

    def to_dict(self) -> dict[str, Any]:
        """Give plain numbers and strings, ready for JSON."""
        return asdict(self)

"""Differential entropy of what is hidden: the part of mutual information that no release moves.

I(t; x) = H(t) − H(t|x). Information leakage is −H(t|x) and needs no H(t). Whoever wants I itself,
to compare across data sets, needs H(t) from samples of t alone, which is harder the more variables
there are. Three estimators are offered, and a check that says when none applies.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree
from scipy.special import digamma, gammaln, logsumexp, ndtri
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.utils import check_array, check_consistent_length

from permea._arrays import Array, Indices
from permea.models.bayes import BayesianMembershipMapping, unit_columns, unit_directions

_NEIGHBOURS = 3
_FEW = 3  # up to so many variables nearest neighbours are the better estimator
_REPEATED = 0.01  # share of repeated values from which a column counts as rounded
METHODS = ("auto", "neighbours", "copula", "gaussian")


@dataclass(frozen=True)
class Entropy:
    """An estimate of H(t) in nats, or the reason why there is none.

    Attributes
    ----------
    nats : float
        The estimate; NaN where there is none.
    method : str
        How it was made.
    reason : str
        Why there is none, or what to keep in mind.
    """

    nats: float
    method: str
    reason: str = ""


def differential_entropy(T: Array, method: str = "auto", *, random_state: int = 0) -> Entropy:
    """Estimate the differential entropy of the rows of ``T``.

    Parameters
    ----------
    T : ndarray of shape (N, q)
        Samples.
    method : {"auto", "neighbours", "copula", "gaussian"}
        "neighbours" is the estimator of Kozachenko and Leonenko on whitened samples: no
        assumption, but biased in many dimensions. "copula" takes every principal coordinate by
        neighbours and their dependence as that of a Gaussian copula. "gaussian" is the entropy of
        a normal distribution with the same covariance: never too small in the limit. "auto" is
        "neighbours" for up to three variables and "copula" beyond.
    random_state : int
        Rounded columns (whose values repeat) are spread evenly over their rounding interval first;
        this seeds the spreading.

    Returns
    -------
    Entropy

    Examples
    --------
    >>> import numpy as np
    >>> T = np.random.default_rng(0).normal(size=(2000, 5))
    >>> truth = 2.5 * np.log(2 * np.pi * np.e)
    >>> all(abs(differential_entropy(T, how).nats - truth) < 0.1 for how in ("copula", "gaussian"))
    True
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}.")
    q = T.shape[1]
    reason = _why_impossible(T)
    if reason:
        return Entropy(math.nan, "none", reason)
    chosen = method if method != "auto" else ("neighbours" if q <= _FEW else "copula")
    T, n_rounded = spread_rounded(T, random_state)
    note = f"{n_rounded} rounded columns were spread over their steps" if n_rounded else ""
    estimate = {"neighbours": _neighbours, "copula": _copula, "gaussian": _gaussian}[chosen]
    return Entropy(estimate(T), chosen, note)


def _why_impossible(T: Array) -> str:
    """Say why the rows of ``T`` have no finite differential entropy, or too few samples."""
    N, q = T.shape
    frame = unit_columns(T)
    if frame.dropped:
        return "a variable never varies"
    if 2 * q + 10 > N:
        return f"{N} rows are too few for {q} variables"
    if unit_directions(T).dropped:
        return "some variables are linear combinations of the others"
    few = [k for k in range(q) if len(np.unique(T[:, k])) <= max(2, min(20, N // 10))]
    if few:
        return f"{len(few)} of {q} variables take a few values only, which have no density"
    return ""


def spread_rounded(T: Array, random_state: int) -> tuple[Array, int]:
    """Spread values that repeat because they were rounded evenly over the rounding interval.

    Examples
    --------
    >>> import numpy as np
    >>> T, n_rounded = spread_rounded(np.array([[1.0], [2.0], [2.0], [4.0]]), 0)
    >>> n_rounded, np.round(T).ravel()
    (1, array([1., 2., 2., 4.]))
    """
    random = np.random.default_rng(random_state)
    T, n_rounded = T.copy(), 0
    for column in T.T:
        values = np.unique(column)
        if len(values) < 2 or 1 - len(values) / len(column) <= _REPEATED:
            continue
        step = float(np.diff(values).min())
        column += random.uniform(-step / 2, step / 2, len(column))
        n_rounded += 1
    return T, n_rounded


def _neighbours(T: Array) -> float:
    """Kozachenko and Leonenko: ψ(N) − ψ(k) + log V_q + q ⟨log ρ_k⟩, on whitened samples."""
    frame = unit_directions(T)
    white = frame.enter(T)
    N, q = white.shape
    k = min(_NEIGHBOURS, N - 1)
    radius = np.asarray(cKDTree(white).query(white, k=k + 1)[0])[:, k]
    log_ball = 0.5 * q * math.log(math.pi) - float(gammaln(0.5 * q + 1))
    logs = float(np.mean(np.log(np.maximum(radius, 1e-300))))
    return float(digamma(N) - digamma(k) + log_ball + q * logs - frame.log_det)


def _copula(T: Array) -> float:
    """Entropies of the principal coordinates, minus the dependence of their Gaussian copula.

    Without whitening first, strong correlations would leave a determinant near zero to estimate.
    """
    N, q = T.shape
    frame = unit_directions(T)
    white = frame.enter(T)
    margins = math.fsum(_neighbours(white[:, [k]]) for k in range(q)) - frame.log_det
    scores = ndtri(rankdata(white, axis=0) / (N + 1))
    _, log_det = np.linalg.slogdet(np.atleast_2d(np.corrcoef(scores, rowvar=False)))
    dependence = -0.5 * (float(log_det) - log_det_bias(N - 1, q) + q * log_det_bias(N - 1, 1))
    return float(margins - dependence)


def _gaussian(T: Array) -> float:
    """½ log|2πe S|, with the bias of log|S| removed."""
    N, q = T.shape
    frame = unit_directions(T)
    normal = 0.5 * q * math.log(2 * math.pi * math.e)
    return float(normal - frame.log_det - 0.5 * log_det_bias(N - 1, q))


def log_det_bias(n: float, q: int) -> float:
    """Expectation of log|S| − log|Σ| for a covariance of q normal variables from n free rows.

    log|S| is smaller than log|Σ| on average, by about q(q + 1)/2n.

    Examples
    --------
    >>> round(log_det_bias(1000, 10), 3)
    -0.055
    """
    digammas = np.asarray(digamma((n - np.arange(q)) / 2))
    return float(digammas.sum()) - q * math.log(n / 2)


def neighbour_information(observed: ArrayLike, hidden: ArrayLike, *, n_neighbors: int = 3) -> float:
    r"""Estimate I(t; x) in nats by nearest neighbours (Kraskov, Stögbauer and Grassberger 2004).

    .. math:: I = \psi(k) + \psi(N) - \langle \psi(n_x + 1) + \psi(n_t + 1) \rangle

    where n_x and n_t count the rows that are closer, in x alone and in t alone, than the k-th
    neighbour is in both (their first estimator, with maximum norms).

    Parameters
    ----------
    observed : array-like of shape (N, n)
        Samples of x.
    hidden : array-like of shape (N, q)
        Samples of t.
    n_neighbors : int
        k.

    Returns
    -------
    float
        Nats. It may be slightly negative where there is nothing to find.

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> t = random.normal(size=(2000, 1))
    >>> estimate = neighbour_information(t + random.normal(size=(2000, 1)), t)
    >>> bool(abs(estimate - 0.5 * np.log(2)) < 0.05)
    True
    """
    X, T = (_standardised(check_array(part, dtype=np.float64)) for part in (observed, hidden))
    check_consistent_length(X, T)
    N = len(X)
    if not 1 <= n_neighbors < N:
        raise ValueError(f"n_neighbors must be between 1 and {N - 1}; got {n_neighbors}.")
    both = np.hstack([X, T])
    tree = cKDTree(both)
    nearest = np.asarray(tree.query(both, k=n_neighbors + 1, p=np.inf)[0])
    radius = np.nextafter(nearest[:, n_neighbors], 0)
    counts = [
        cKDTree(part).query_ball_point(part, radius, p=np.inf, return_length=True)
        for part in (X, T)
    ]  # with the row itself in it: n + 1
    means = sum(float(np.mean(digamma(np.maximum(count, 1)))) for count in counts)
    return float(digamma(n_neighbors) + digamma(N)) - means


def _standardised(part: Array) -> Array:
    spread = part.std(axis=0)
    return np.asarray((part - part.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


_MOST_VALUES = 1000  # distinct hidden rows that are still treated as classes
_FOLDS = 3


@dataclass(frozen=True)
class MutualInformation:
    """I(t; x) as leakage plus entropy, or the reason why it cannot be told.

    Attributes
    ----------
    nats : float
        The estimate; NaN where there is none. Slightly below zero means: nothing was found.
    entropy : float
        H(t) in nats.
    method : str
        How H(t) was estimated: "neighbours", "copula", "gaussian", or "discrete" where t takes few
        values and H(t) is that of their frequencies.
    reason : str
        Why there is no estimate, or what to keep in mind.
    """

    nats: float
    entropy: float
    method: str
    reason: str = ""

    @property
    def bits(self) -> float:
        """The estimate in bits."""
        return self.nats / math.log(2)


def mutual_information(
    leakage: float, model: BayesianMembershipMapping, X: Array, T: Array, entropy: str
) -> MutualInformation:
    """I(t; x) from the leakage in nats, or by classification where t takes few values."""
    values, codes = np.unique(T, axis=0, return_inverse=True)
    if 2 <= len(values) <= min(len(T) // 10, _MOST_VALUES):
        return _of_classes(model, X, T, values, codes.ravel())
    found = differential_entropy(T, entropy)
    return MutualInformation(leakage + found.nats, found.nats, found.method, found.reason)


def _of_classes(
    model: BayesianMembershipMapping, X: Array, T: Array, values: Array, codes: Indices
) -> MutualInformation:
    r"""Discrete t: I ≥ H(t) + ⟨log q(t|x)⟩ for any classifier q, here with q(v|x) ∝ p(v) p(v|x).

    The classifier is scored on rows that it was not fitted to, so the bound holds on average.
    """
    shares = np.bincount(codes) / len(codes)
    entropy = -float(shares @ np.log(shares))
    logs = np.empty(len(T))
    for train, test in KFold(_FOLDS, shuffle=True, random_state=0).split(X):
        fitted = clone(model).fit(X[train], T[train])
        seen = np.bincount(codes[train], minlength=len(values)) + 1.0
        estimate = fitted.frame_.enter(np.asarray(fitted.predict(X[test])))
        gaps = estimate[:, None, :] - fitted.frame_.enter(values)[None, :, :]
        scores = np.log(seen / seen.sum()) - 0.5 * fitted.noise_precision_ * np.einsum(
            "ijk,ijk->ij", gaps, gaps
        )
        scores -= logsumexp(scores, axis=1, keepdims=True)
        logs[test] = scores[np.arange(len(test)), codes[test]]
    return MutualInformation(entropy + float(logs.mean()), entropy, "discrete")

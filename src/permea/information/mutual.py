"""Mutual information itself: leakage plus the entropy of what is hidden."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.model_selection import KFold

from permea.information.entropy import differential_entropy
from permea.models.base import Array, Indices
from permea.models.bayes import BayesianMembershipMapping

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

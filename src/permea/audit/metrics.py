"""How good is an attack? Rates with confidence intervals, never a bare number.

Every function takes the attack's scores of member rows and of outside rows; larger means "more like
a member".
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.stats import beta, norm, rankdata

from permea._arrays import Array

Interval = tuple[float, float]

#: The false positive rates at which the true positive rate is reported.
LOW_RATES = (0.01, 0.001)


def clopper_pearson(successes: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """Exact two-sided confidence interval of a probability.

    Examples
    --------
    >>> low, high = clopper_pearson(0, 100)
    >>> low, round(high, 4)
    (0.0, 0.0362)
    """
    tail = (1.0 - confidence) / 2.0
    return (
        lower_bound(successes, trials, alpha=tail),
        upper_bound(successes, trials, alpha=tail),
    )


def lower_bound(successes: int, trials: int, *, alpha: float) -> float:
    """One-sided Clopper-Pearson lower bound of a probability, wrong with probability ≤ alpha."""
    return 0.0 if successes <= 0 else float(beta.ppf(alpha, successes, trials - successes + 1))


def upper_bound(successes: int, trials: int, *, alpha: float) -> float:
    """One-sided Clopper-Pearson upper bound of a probability, wrong with probability ≤ alpha."""
    if successes >= trials:
        return 1.0
    return float(beta.ppf(1.0 - alpha, successes + 1, trials - successes))


def auc(member: ArrayLike, outside: ArrayLike) -> float:
    """Probability that a member scores above an outside row, ties counted half."""
    a, b = np.asarray(member, dtype=np.float64), np.asarray(outside, dtype=np.float64)
    ranks = rankdata(np.concatenate([a, b]))
    return float((ranks[: len(a)].sum() - len(a) * (len(a) + 1) / 2) / (len(a) * len(b)))


def auc_interval(value: float, n: int, m: int, *, confidence: float = 0.95) -> Interval:
    """Score interval of an AUC from its value and the two sample sizes.

    All θ with ``|value − θ| ≤ z √V(θ)``, V being the exponential-model variance of Hanley and
    McNeil with both sizes replaced by their mean (Newcombe 2006, method 5). Unlike intervals of the
    form estimate ± error it keeps a width when the estimate is 0 or 1.
    """
    z = float(norm.ppf(0.5 + confidence / 2.0))
    mean_size = (n + m) / 2.0

    def excess(theta: float) -> float:
        growth = 1 + (mean_size - 1) * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        variance = theta * (1 - theta) * growth / (n * m)
        return (value - theta) ** 2 - z**2 * variance

    # At 0 and 1 the variance vanishes, so the ends themselves are roots that are not meant.
    tiny = 1e-9
    low = 0.0 if value <= tiny else float(brentq(excess, 0.0, min(value, 1.0 - tiny)))
    high = 1.0 if value >= 1.0 - tiny else float(brentq(excess, max(value, tiny), 1.0))
    return low, high


def roc(member: ArrayLike, outside: ArrayLike) -> tuple[Array, Array]:
    """False and true positive rates as the threshold walks down, from (0, 0) to (1, 1)."""
    a = np.sort(np.asarray(member, dtype=np.float64))
    b = np.sort(np.asarray(outside, dtype=np.float64))
    thresholds = np.unique(np.concatenate([a, b]))[::-1]
    true = (len(a) - np.searchsorted(a, thresholds, side="left")) / len(a)
    false = (len(b) - np.searchsorted(b, thresholds, side="left")) / len(b)
    return np.concatenate([[0.0], false]), np.concatenate([[0.0], true])


def tpr_at_fpr(member: ArrayLike, outside: ArrayLike, rate: float) -> float:
    """Largest true positive rate on the ROC curve with a false positive rate of at most ``rate``.

    No interpolation: with fewer than ``1/rate`` outside rows the curve is read at zero false
    positives.
    """
    false, true = roc(member, outside)
    return float(true[false <= rate].max())


def best_threshold(member: ArrayLike, outside: ArrayLike) -> float:
    """Threshold of the largest balanced accuracy; to be fitted on rows that are not scored.

    It lies half-way between two neighbouring scores, so that it does not depend on one row.
    """
    a = np.sort(np.asarray(member, dtype=np.float64))
    b = np.sort(np.asarray(outside, dtype=np.float64))
    values = np.unique(np.concatenate([a, b]))
    cuts = np.concatenate([values[:1], (values[:-1] + values[1:]) / 2.0, [np.inf]])
    gain = np.searchsorted(b, cuts) / len(b) - np.searchsorted(a, cuts) / len(a)
    return float(cuts[int(np.argmax(gain))])


@dataclass(frozen=True)
class AttackResult:
    """What one attack reached.

    Attributes
    ----------
    name : str
        The attack.
    auc, auc_interval
        Probability that a member scores above an outside row, with its confidence interval.
    accuracy, accuracy_interval
        Balanced accuracy at the threshold that was fitted elsewhere; 0.5 is guessing.
    advantage : float
        True minus false positive rate at that threshold.
    tpr_at : dict
        True positive rate at false positive rates of 1 % and 0.1 %, read off the ROC curve.
    n_member, n_outside : int
        Rows that were scored.
    per_class : dict
        AUC within each class that has at least five rows on both sides.
    roc : pair of ndarrays
        False and true positive rates.
    note : str
        Why the attack does not apply, empty if it does.
    """

    name: str
    auc: float
    auc_interval: Interval
    accuracy: float
    accuracy_interval: Interval
    advantage: float
    tpr_at: dict[float, float]
    n_member: int
    n_outside: int
    per_class: dict[str, float] = field(default_factory=dict)
    roc: tuple[Array, Array] = field(
        default_factory=lambda: (np.array([0.0, 1.0]), np.array([0.0, 1.0])), repr=False
    )
    note: str = ""

    @property
    def applies(self) -> bool:
        """Whether the attack could be carried out."""
        return not self.note

    def to_dict(self) -> dict[str, Any]:
        """Give plain numbers and strings, ready for JSON (the ROC curve is left out)."""
        plain = {key: value for key, value in self.__dict__.items() if key != "roc"}
        plain["tpr_at"] = {str(rate): value for rate, value in self.tpr_at.items()}
        plain["auc_interval"] = list(self.auc_interval)
        plain["accuracy_interval"] = list(self.accuracy_interval)
        return plain


def not_applicable(name: str, reason: str) -> AttackResult:
    """Say that an attack could not be carried out: guessing, with the reason."""
    return AttackResult(name, 0.5, (0.0, 1.0), 0.5, (0.0, 1.0), 0.0, {}, 0, 0, note=reason)


def evaluate(
    name: str,
    member: ArrayLike,
    outside: ArrayLike,
    *,
    threshold: float,
    y_member: ArrayLike | None = None,
    y_outside: ArrayLike | None = None,
    confidence: float = 0.95,
) -> AttackResult:
    """Judge an attack by its scores; ``threshold`` must come from other rows.

    The interval of the balanced accuracy is the mean of the exact intervals of the two rates, each
    at half the error: conservative.
    """
    a, b = np.asarray(member, dtype=np.float64), np.asarray(outside, dtype=np.float64)
    if np.ptp(np.concatenate([a, b])) == 0.0:
        return not_applicable(name, "the classifier's answer is the same for every row")
    value = auc(a, b)
    caught, spared = int((a >= threshold).sum()), int((b < threshold).sum())
    each = 1.0 - (1.0 - confidence) / 2.0
    bounds = zip(
        clopper_pearson(caught, len(a), confidence=each),
        clopper_pearson(spared, len(b), confidence=each),
        strict=True,
    )
    low, high = (sum(pair) / 2.0 for pair in bounds)
    return AttackResult(
        name=name,
        auc=value,
        auc_interval=auc_interval(value, len(a), len(b), confidence=confidence),
        accuracy=(caught / len(a) + spared / len(b)) / 2.0,
        accuracy_interval=(low, high),
        advantage=caught / len(a) + spared / len(b) - 1.0,
        tpr_at={rate: tpr_at_fpr(a, b, rate) for rate in LOW_RATES},
        n_member=len(a),
        n_outside=len(b),
        per_class=_per_class(a, b, y_member, y_outside),
        roc=roc(a, b),
    )


def _per_class(
    a: Array, b: Array, y_member: ArrayLike | None, y_outside: ArrayLike | None
) -> dict[str, float]:
    if y_member is None or y_outside is None:
        return {}
    labels_a, labels_b = np.asarray(y_member), np.asarray(y_outside)
    sides = {label: (a[labels_a == label], b[labels_b == label]) for label in np.unique(labels_a)}
    return {
        str(label): auc(inside, other)
        for label, (inside, other) in sides.items()
        if min(len(inside), len(other)) >= 5
    }

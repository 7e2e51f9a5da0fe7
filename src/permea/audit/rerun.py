"""Audit what a certificate promises: run its mechanism again, on canaries.

A fitted model carries its certificate and the settings of its release, so the same mechanism can be
run on made-up rows. That is a statement about the mechanism and its code, not about the rows that
trained the model: those were released once.
"""

from typing import Any

from sklearn.base import clone

from permea.audit.empirical import empirical_epsilon, release_epsilon
from permea.audit.moment_canaries import MOMENT_ESTIMATORS
from permea.audit.result import EmpiricalEpsilon

_PROMISE = ("epsilon", "delta", "unit")


def why_not_rerun(model: Any) -> str:
    """Give the reason why a model's mechanism cannot be run again, empty if it can.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> why_not_rerun(DummyClassifier())
    'the model has no certificate, so nothing is claimed'
    """
    certificate = getattr(model, "certificate_", None)
    if certificate is None:
        return "the model has no certificate, so nothing is claimed"
    if not certificate.is_private:
        return "the certificate claims nothing: " + "; ".join(certificate.reasons_not_private)
    inner = _released_by(model)
    if getattr(inner, "holds_private_rows_", False) or getattr(inner, "privacy", "") is None:
        return "the settings of the model hold no promise: the certificate does not belong to it"
    own = getattr(inner, "privacy", certificate.privacy)
    if any(getattr(own, name) != getattr(certificate.privacy, name) for name in _PROMISE):
        return (
            f"the certificate says {certificate.privacy.describe()}, the settings of the model say "
            f"{own.describe()}: they do not belong together"
        )
    if certificate.released and not isinstance(inner, MOMENT_ESTIMATORS):
        return (
            f"what was released ({certificate.released}) cannot be released again from a "
            f"{type(inner).__name__}: the settings of its release are not stored with it"
        )
    return ""


def mechanism_epsilon(
    model: Any, *, runs: int | None = None, confidence: float = 0.95
) -> EmpiricalEpsilon:
    """White-box audit of the mechanism that a fitted model's certificate speaks of.

    Parameters
    ----------
    model : fitted estimator
        With ``certificate_``; a classifier of tables is looked into.
    runs : int, optional
        Releases, half of them with either side of the coin; 8000 by default.
    confidence : float
        Probability with which the bound holds.

    Raises
    ------
    ValueError
        If the mechanism cannot be run again; the message says why.

    Examples
    --------
    >>> import numpy as np
    >>> from permea import MomentClassifier, Privacy
    >>> X, y = np.random.default_rng(0).random((500, 3)), np.arange(500) % 2
    >>> promise = Privacy(epsilon=4, delta=1e-3, unit="record", domain=(0, 1))
    >>> clf = MomentClassifier(privacy=promise, classes=[0, 1], features="identity").fit(X, y)
    >>> found = mechanism_epsilon(clf, runs=400)
    >>> found.claim, found.unit, bool(found.epsilon > 1)
    (4.0, 'record', True)
    """
    reason = why_not_rerun(model)
    if reason:
        raise ValueError(f"The mechanism was not run again: {reason}.")
    inner, certificate = _released_by(model), model.certificate_
    if isinstance(inner, MOMENT_ESTIMATORS):
        fresh = clone(inner).set_params(random_state=None)
        return empirical_epsilon(fresh, method="white-box", runs=runs, confidence=confidence)
    return release_epsilon(privacy=certificate.privacy, runs=runs, confidence=confidence)


def _released_by(model: Any) -> Any:
    """The estimator that made the release; a classifier of tables holds one."""
    return getattr(model, "classifier_", model)

"""The lower bound of information leakage that one model reaches, and the best of several models.

003 Algorithm 8: the posterior of a Bayesian membership mapping (Algorithm 7) becomes the prior; one
average row updates it by (99) to (102); the bound at its maximum is (98). A change of coordinates
of the hidden variables adds log|det W|, and log|det W| itself, when W was estimated from residuals,
is too large by a known amount that is taken off.
"""

import math
from typing import NamedTuple

import numpy as np
from sklearn.base import clone

from permea.information.entropy import log_det_bias
from permea.models.base import Array
from permea.models.bayes import BayesianMembershipMapping
from permea.models.output_frame import unit_directions
from permea.models.weight_posterior import Belief, infer

_ROWS_PER_HIDDEN = 10  # a full noise covariance wants so many rows per hidden variable
_ROWS_PER_OBSERVED = 3  # a linear trend wants so many rows per observed variable
_FEW_OBSERVED = 3  # narrow kernels are tried for at most so many observed variables
_ENOUGH_ROWS = 2000  # to choose among models
_NARROW, _USUAL = (1 / 16, 1 / 4), (1.0, 4.0)


class Bound(NamedTuple):
    """What one model reaches."""

    model: BayesianMembershipMapping
    value: float  #: (98) in nats, in the units of the hidden variables
    updates: Array  #: the bound after every update
    contributions: Array  #: (N,) what each row adds; their mean is the value
    score: float  #: the value to be expected on new rows, to choose by


def evaluate(model: BayesianMembershipMapping, X: Array, T: Array) -> Bound:
    """Fit a model from X to T and maximise the bound (003 Algorithm 8).

    Parameters
    ----------
    model : BayesianMembershipMapping
        Not fitted yet.
    X, T : ndarray of shape (N, n) and (N, q)
        Observed and hidden variables.

    Returns
    -------
    Bound
    """
    model.fit(X, T)
    R, outputs = model.design(X), model.frame_.enter(T)
    N, q = outputs.shape
    belief, updates = infer(
        model.statistics(R, outputs),
        model.belief_,
        share=1 / N,
        noise_precision=model.noise_precision_,
        tol=model.tol,
        max_iter=model.max_iter,
    )
    shift = model.frame_.log_det + _correction(model, q)
    value = updates[-1] + shift
    return Bound(
        model=model,
        value=value,
        updates=np.array(updates) + shift,
        contributions=value + _deviations(belief, model.basis_, R, outputs),
        score=value - q * model.effective_weights_ / N,
    )


def _correction(model: BayesianMembershipMapping, q: int) -> float:
    """What log|det W| is too large by on average because W comes from the residuals."""
    if model.noise == "full":
        return 0.5 * log_det_bias(model.residual_rows_, q)
    if model.noise == "per_output":
        return 0.5 * q * log_det_bias(model.residual_rows_, 1)
    return 0.0


def _deviations(belief: Belief, basis: Array, R: Array, outputs: Array) -> Array:
    """What each row adds to (98), about its mean over the rows."""
    turned = R @ basis
    misfit = outputs - turned @ belief.means
    spread = np.einsum("ij,ij,j->i", turned, turned, 1 / belief.precisions)
    loss = np.einsum("ij,ij->i", misfit, misfit) + outputs.shape[1] * spread
    return np.asarray(-0.5 * belief.noise_precision * (loss - loss.mean()))


def candidates(X: Array, T: Array, noise: str) -> list[BayesianMembershipMapping]:
    """Models worth trying: with and without a linear trend, with a few widths of the kernel."""
    (N, n), q = X.shape, T.shape[1]
    if noise == "auto":
        noise = "full" if _ROWS_PER_HIDDEN * q <= N else "per_output"
    trends = ["none", "linear"] if _ROWS_PER_OBSERVED * n <= N else ["none"]
    widths = (*_NARROW, *_USUAL) if n <= _FEW_OBSERVED else _USUAL
    return [
        BayesianMembershipMapping(noise=noise, trend=trend, bandwidth=width)
        for trend in trends
        for width in widths
    ]


def best_bound(models: list[BayesianMembershipMapping], X: Array, T: Array) -> Bound:
    """Evaluate every model and keep the one with the largest score.

    A value in the sample is about one unit per weight, row and output above what new rows would
    give: (98) corrects the noise level for the fitted weights but not the fit itself. Where there
    are very many rows, some of them suffice to choose.
    """
    if not models:
        raise ValueError("There is no model to evaluate: give at least one.")
    if len(models) == 1:
        return evaluate(models[0], X, T)
    enough = max(_ENOUGH_ROWS, _ROWS_PER_OBSERVED * X.shape[1])
    if any(model.noise == "full" for model in models):
        enough = max(enough, _ROWS_PER_HIDDEN * T.shape[1])
    if len(X) <= enough:
        return max((evaluate(model, X, T) for model in models), key=lambda found: found.score)
    rows = np.random.default_rng(0).permutation(len(X))[:enough]
    best = max(models, key=lambda model: evaluate(clone(model), X[rows], T[rows]).score)
    return evaluate(best, X, T)


def bootstrap_interval(
    found: Bound, X: Array, T: Array, count: int, refit: bool, random: np.random.Generator
) -> tuple[float, float]:
    """95 % interval of the value by resampling rows, or by fitting again on halves of them.

    At its maximum the bound does not change, to first order, with the parameters of the model, so
    resampling what the rows contribute suffices. The deviation of a half drawn without replacement
    from the whole has the variance that the whole has from the truth.
    """
    N = len(X)
    if refit:
        values = np.empty(count)
        for index in range(count):
            rows = random.permutation(N)[: N // 2]
            values[index] = evaluate(clone(found.model), X[rows], T[rows]).value
        deviations = values - values.mean()
    else:
        means = [found.contributions[random.integers(0, N, N)].mean() for _ in range(count)]
        deviations = np.array(means) - found.value
    low, high = np.quantile(deviations, [0.025, 0.975])
    return float(found.value - high), float(found.value - low)


def blind_value(noise: str, T: Array) -> float:
    """What the same kind of noise gives somebody who sees nothing: −H of a normal distribution.

    Examples
    --------
    >>> import numpy as np
    >>> T = np.array([[-1.0], [1.0]])
    >>> round(blind_value("shared", T), 4)
    -1.4189
    """
    q = T.shape[1]
    if noise == "full":
        log_det = -2 * unit_directions(T).log_det
    else:
        variances = np.maximum(T.var(axis=0), 1e-200)
        each = np.log(variances) if noise == "per_output" else np.full(q, np.log(variances.mean()))
        log_det = float(each.sum())
    return float(-0.5 * (q * math.log(2 * math.pi * math.e) + log_det))


def unexplained(found: Bound, T: Array) -> Array:
    """Share of the variance of every hidden variable that its noise makes up."""
    return np.asarray(found.model.noise_std_**2 / np.maximum(T.var(axis=0), 1e-200))

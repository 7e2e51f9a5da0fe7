"""Information leakage (003 Algorithm 8): what observed variables tell of hidden ones.

It is approximated from below by the bound (98) of a Bayesian membership mapping, the adversary.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_array

from permea._arrays import Array, Mask
from permea.information.entropy import MutualInformation, log_det_bias, mutual_information
from permea.models.bayes import (
    BayesianMembershipMapping,
    Belief,
    infer,
    unit_columns,
    unit_directions,
)


def table(values: ArrayLike, what: str) -> Array:
    """Numbers of a table, one row per sample; a single column may come as a vector.

    Examples
    --------
    >>> table([1, 2, 3], "hidden").shape
    (3, 1)
    """
    if hasattr(values, "certificate_") or hasattr(values, "certificate"):
        raise TypeError(
            f"{what} must be a table of numbers and is a {type(values).__name__}. Leakage is "
            "measured on pairs of a row and what was released of it: give the released rows. A "
            "release of moments has none, and what a row adds to it is bounded by its promise."
        )
    if np.ndim(values) == 1:
        values = np.asarray(values)[:, None]
    return np.asarray(check_array(values, dtype=np.float64, input_name=what))


def column_names(values: Any, prefix: str) -> tuple[str, ...]:
    """Names of the columns of a data frame or series, or numbered ones.

    Examples
    --------
    >>> import numpy as np
    >>> column_names(np.zeros((2, 2)), "hidden")
    ('hidden 1', 'hidden 2')
    """
    if hasattr(values, "columns"):
        return tuple(str(name) for name in values.columns)
    if np.ndim(values) == 1:
        return (str(getattr(values, "name", None) or prefix),)
    return tuple(f"{prefix} {k + 1}" for k in range(np.shape(values)[1]))


def same_rows(**tables: Array) -> None:
    """Raise unless all tables have the same number of rows."""
    lengths = {name: len(values) for name, values in tables.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {count}" for name, count in lengths.items())
        raise ValueError(f"The tables must describe the same rows, in the same order: {told} rows.")


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


NOISES = ("auto", "full", "per_output", "shared")
_EXACT = 1e-4  # share of the variance left unexplained below which a variable counts as recovered
_FEW_ROWS = 50
_FEWEST_ROWS = 4
_FEW_VALUES = 20


Names = tuple[str, ...]


class LeakageWarning(UserWarning):
    """A leakage has a value, but not the meaning that one might read into it."""


@dataclass(frozen=True)
class InformationLeakage:
    """What was leaked, by how much it may be wrong, and the adversary.

    Attributes
    ----------
    value : float
        IL = I(t; x) − H(t) in nats, approximated from below. Negative for most continuous
        variables; larger means that more is leaked. Differences between releases of the same
        hidden variables are differences of mutual information.
    model : BayesianMembershipMapping
        The adversary: estimates the hidden variables from observed rows.
    gain : float
        ``value`` less that of a normal distribution fitted to the hidden variables alone, with
        noise of the same kind: how much the adversary gains by looking, zero when nothing.
    standard_error : float
        Sampling error of ``value``.
    interval : pair of float or None
        95 % interval by bootstrap, if asked for.
    mutual_information : MutualInformation
        I(t; x) itself, with the estimate of H(t) that it rests on.
    updates : ndarray
        The bound after every update (99) to (102); never falls.
    noise : str
        The noise model in use.
    n_samples : int
        Rows in use.
    names : tuple of str
        The hidden variables in use, without those that never vary.
    notes : tuple of str
        What to keep in mind about the value.
    """

    value: float
    model: BayesianMembershipMapping
    gain: float
    standard_error: float
    interval: tuple[float, float] | None
    mutual_information: MutualInformation
    updates: Array = field(repr=False)
    noise: str
    n_samples: int
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        low, high = self.interval or (
            self.value - 1.96 * self.standard_error,
            self.value + 1.96 * self.standard_error,
        )
        lines = [
            f"information leakage {self.value:.3f} nats [{low:.3f}, {high:.3f}] about "
            f"{len(self.names)} hidden variables, {self.n_samples} rows"
        ]
        shared = self.mutual_information
        if math.isnan(shared.nats):
            lines.append(f"mutual information: not available, {shared.reason}")
        else:
            lines.append(
                f"mutual information {max(shared.nats, 0):.3f} nats = {max(shared.bits, 0):.3f} "
                f"bits (entropy by {shared.method})"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def information_leakage(
    observed: ArrayLike,
    hidden: ArrayLike,
    *,
    noise: str = "auto",
    model: BayesianMembershipMapping | None = None,
    constants: str = "drop",
    names: Sequence[str] | None = None,
    max_samples: int | None = None,
    entropy: str = "auto",
    n_bootstrap: int = 0,
    refit: bool = False,
    random_state: int | None = 0,
) -> InformationLeakage:
    r"""Estimate how much ``observed`` tells about ``hidden`` (003 Algorithm 8, Result 1).

    Problem: from N pairs (x, t) approximate IL = I(t; x) − H(t) without knowing any distribution.
    For every model p(t | x) and every distribution q of its parameters,

    .. math:: IL \ge \Bigl\langle \int q(\theta,\gamma)
              \log\frac{p(\theta,\gamma,t\,|\,x)}{q(\theta,\gamma)} \Bigr\rangle_{p(t,x)}

    (96). The model is a Bayesian membership mapping from x to t; its posterior serves as the prior
    here, and the bound is maximised over q by the updates (99) to (102) with sample averages.

    Parameters
    ----------
    observed : array-like of shape (N, n)
        What is released or seen.
    hidden : array-like of shape (N,) or (N, q)
        What it may tell something about, for the same rows.
    noise : {"auto", "full", "per_output", "shared"}
        What is assumed about the part of t that x does not explain; a closer assumption gives a
        larger bound. "full": its covariance is free. "per_output": independent, with a variance
        for each variable. "shared": one variance for all, in their own units (003). "auto": full
        where there are ten rows per hidden variable, else per_output. The value does not depend on
        the units of t in the first two except by the logarithm of the change of units.
    model : BayesianMembershipMapping, optional
        Model to use; its own ``noise`` counts. By default bandwidths and a linear trend are tried
        and the one with the largest bound, less the number of weights per row, is kept.
        ``BayesianMembershipMapping(noise="shared", standardize=False, bandwidth=1)`` is Algorithm 8
        as written.
    constants : {"drop", "keep"}
        Hidden variables that never vary: leave them out, or keep them as 003 does, which makes
        sense with ``noise="shared"`` only.
    names : sequence of str, optional
        Names of the hidden variables; those of a data frame by default.
    max_samples : int, optional
        Use so many rows at most, drawn at random.
    entropy : {"auto", "neighbours", "copula", "gaussian"}
        Estimator of H(t) for the mutual information; see
        `permea.information.differential_entropy`.
    n_bootstrap : int
        Resamples for an interval; 0 for none.
    refit : bool
        False resamples the contribution of each row, which is right to first order because the
        bound is at its maximum. True fits again on random halves of the rows.
    random_state : int or None
        Seeds subsamples and resamples.

    Returns
    -------
    InformationLeakage
        ``.value`` in nats and ``.model``, the fitted adversary.

    Notes
    -----
    Where x determines t, IL is infinite; the value stays finite and a note says so. Hidden
    variables that never vary are left out. Variables that take a few values only have no density;
    their leakage compares between releases only, and their mutual information is found by
    classification.

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> t = random.normal(0, 5**0.5, (1000, 10))
    >>> x = t + random.normal(0, 1, (1000, 10))
    >>> theory = 5 * np.log(1 + 5) - 5 * np.log(2 * np.pi * np.e * 5)   # 003 Example 1
    >>> leak = information_leakage(x, t)
    >>> bool(abs(leak.value - theory) < 0.3)
    True
    >>> mean, std = leak.model.predict(x, return_std=True)
    >>> mean.shape, std.shape
    ((1000, 10), (1000, 10))
    """
    X, T = _checked(observed, hidden, noise)
    names = column_names(hidden, "hidden") if names is None else tuple(names)
    if len(names) != T.shape[1]:
        raise ValueError(f"{len(names)} names were given for {T.shape[1]} hidden variables.")
    random = np.random.default_rng(random_state)
    if max_samples is not None and max_samples < len(X):
        rows = random.permutation(len(X))[:max_samples]
        X, T = X[rows], T[rows]
    notes: tuple[str, ...] = ()
    if constants == "drop":
        T, names, notes = _without_constants(T, names)
    found = best_bound([clone(model)] if model else candidates(X, T, noise), X, T)
    _keep_names(found.model, observed)
    notes += _notes(found, X, T, names)
    for note in notes:
        warnings.warn(note, LeakageWarning, stacklevel=2)
    interval = None
    if n_bootstrap:
        interval = bootstrap_interval(found, X, T, n_bootstrap, refit, random)
    return InformationLeakage(
        value=found.value,
        model=found.model,
        gain=found.value - blind_value(found.model.noise, T),
        standard_error=float(found.contributions.std(ddof=1)) / math.sqrt(len(X)),
        interval=interval,
        mutual_information=mutual_information(found.value, found.model, X, T, entropy),
        updates=found.updates,
        noise=found.model.noise,
        n_samples=len(X),
        names=names,
        notes=notes,
    )


def _checked(observed: ArrayLike, hidden: ArrayLike, noise: str) -> tuple[Array, Array]:
    if noise not in NOISES:
        raise ValueError(f"noise must be one of {', '.join(NOISES)}; got {noise!r}.")
    X, T = table(observed, "observed"), table(hidden, "hidden")
    same_rows(observed=X, hidden=T)
    if len(X) < _FEWEST_ROWS:
        raise ValueError(
            f"Leakage cannot be estimated from {len(X)} rows: give at least {_FEWEST_ROWS}, "
            "and better some hundreds."
        )
    return X, T


def _keep_names(model: BayesianMembershipMapping, observed: ArrayLike) -> None:
    """Let the adversary know the columns of a data frame, as scikit-learn's estimators do."""
    columns = getattr(observed, "columns", None)
    if columns is not None and all(isinstance(name, str) for name in columns):
        model.feature_names_in_ = np.asarray(columns, dtype=object)


def _without_constants(T: Array, names: Names) -> tuple[Array, Names, tuple[str, ...]]:
    """Leave out hidden variables that never vary: nothing about them can be leaked."""
    varies = np.asarray(unit_columns(T).mix.any(axis=1))
    if varies.all():
        return T, names, ()
    if not varies.any():
        raise ValueError(
            "No hidden variable varies over the rows, so there is nothing that could leak. Check "
            "that the right columns are given as hidden."
        )
    constant = _named(names, ~varies)
    kept_names = tuple(name for name, kept in zip(names, varies, strict=True) if kept)
    return T[:, varies], kept_names, (f"never varies, left out: {constant}",)


def _notes(found: Bound, X: Array, T: Array, names: Names) -> tuple[str, ...]:
    """What to keep in mind about the value."""
    notes = []
    exact = _named(names, unexplained(found, T) < _EXACT)
    if exact:
        notes.append(
            f"recovered almost exactly: {exact}; where the observed rows determine them the "
            "leakage is infinite, and the value is what the model resolves"
        )
    few = _named(names, np.array([len(np.unique(t)) <= _FEW_VALUES for t in T.T]))
    if few and len(T) > _FEW_ROWS:
        notes.append(
            f"few distinct values: {few}; they have no density, so compare the value between "
            "releases of the same variables only"
        )
    if found.model.frame_.dropped:
        notes.append(
            "some hidden variables are linear combinations of the others and were left out of the "
            "density"
        )
    if len(X) < _FEW_ROWS:
        notes.append(f"only {len(X)} rows: the value rests on the prior as much as on the data")
    return tuple(notes)


def _named(names: Names, chosen: Mask) -> str:
    """The chosen names, at most five of them."""
    some = [name for name, yes in zip(names, chosen, strict=True) if yes]
    more = f" and {len(some) - 5} more" if len(some) > 5 else ""
    return ", ".join(some[:5]) + more

"""The adversary at work: how well hidden variables are recovered from what was released.

003 Algorithm 9, step 8: the model that measures privacy leakage estimates the private variables,
and thus simulates an attack. It is judged here on rows it was not fitted to, variable by variable,
beside the guess of somebody who saw no released row at all.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from permea._arrays import Array
from permea.information.leakage import best_bound, candidates, column_names, same_rows, table
from permea.models.bayes import BayesianMembershipMapping

_RESAMPLES = 200
_FEWEST_ROWS = 8


@dataclass(frozen=True)
class AdversaryReport:
    """How well an adversary recovers each hidden variable on rows that it did not learn from.

    Attributes
    ----------
    names : tuple of str
        The hidden variables.
    error : ndarray of shape (q,)
        Root mean squared error of the adversary, in the units of the variable.
    baseline : ndarray of shape (q,)
        The same for the guess "the mean of the other rows".
    recovered : ndarray of shape (q,)
        Share of the variance that the adversary explains, 1 − (error/baseline)². Zero or less
        means that the release was of no use; NaN where a variable did not vary.
    interval : ndarray of shape (q, 2)
        95 % interval of ``recovered`` by resampling the rows.
    within_one_std : ndarray of shape (q,)
        Share of the true values within one standard deviation of the estimate; near 0.68 when the
        adversary knows how sure it may be.
    n_train, n_test : int
        Rows to learn from and rows to be judged on.
    model : BayesianMembershipMapping
        The adversary.
    """

    names: tuple[str, ...]
    error: Array
    baseline: Array
    recovered: Array
    interval: Array
    within_one_std: Array
    n_train: int
    n_test: int
    model: BayesianMembershipMapping

    @property
    def mean_recovered(self) -> float:
        """Share of the variance recovered, averaged over the variables.

        A share below zero counts as zero: an adversary may always guess the mean instead.
        """
        return float(np.nanmean(np.clip(self.recovered, 0, None)))

    def to_frame(self) -> Any:
        """One row per hidden variable, as a pandas data frame."""
        import pandas as pd

        return pd.DataFrame(
            {
                "error": self.error,
                "baseline": self.baseline,
                "recovered": self.recovered,
                "recovered_low": self.interval[:, 0],
                "recovered_high": self.interval[:, 1],
                "within_one_std": self.within_one_std,
            },
            index=list(self.names),
        )

    def __str__(self) -> str:
        lines = [f"adversary, {self.n_train} rows to learn from, {self.n_test} to attack"]
        for k, name in enumerate(self.names):
            low, high = self.interval[k]
            lines.append(
                f"{name}: guessed to ±{self.error[k]:.3g} (without the release ±"
                f"{self.baseline[k]:.3g}), {max(self.recovered[k], 0):.0%} of its variance "
                f"recovered [{max(low, 0):.0%}, {max(high, 0):.0%}]"
            )
        return "\n".join(lines)


def simulate_attack(
    observed: ArrayLike,
    hidden: ArrayLike,
    *,
    model: BayesianMembershipMapping | None = None,
    test_size: float = 0.3,
    random_state: int | None = 0,
) -> AdversaryReport:
    """Let an adversary who knows some rows recover the hidden variables of others.

    Parameters
    ----------
    observed : array-like of shape (N, n)
        What is released.
    hidden : array-like of shape (N,) or (N, q)
        What should stay hidden, for the same rows.
    model : BayesianMembershipMapping, optional
        The adversary; by default the best of several, as in `information_leakage`. It is fitted
        anew, to the rows that the adversary knows.
    test_size : float
        Share of the rows that are attacked.
    random_state : int or None
        Seeds the split and the intervals.

    Returns
    -------
    AdversaryReport

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> secrets = random.normal(size=(400, 2))
    >>> released = secrets[:, [0]] + random.normal(0, 0.5, (400, 1))
    >>> report = simulate_attack(released, secrets)
    >>> bool(report.recovered[0] > 0.7), bool(report.recovered[1] < 0.1)
    (True, True)
    """
    X, T = table(observed, "observed"), table(hidden, "hidden")
    same_rows(observed=X, hidden=T)
    if len(X) < _FEWEST_ROWS:
        raise ValueError(
            f"An attack on {len(X)} rows says nothing: give at least {_FEWEST_ROWS}, better some "
            "hundreds."
        )
    parts = train_test_split(X, T, test_size=test_size, random_state=random_state)
    X_known, X_attacked, T_known, T_attacked = parts
    if model is None:
        adversary = best_bound(candidates(X_known, T_known, "auto"), X_known, T_known).model
    else:
        adversary = clone(model).fit(X_known, T_known)
    estimate, std = adversary.predict(X_attacked, return_std=True)
    squares = (T_attacked - estimate) ** 2
    blind = (T_attacked - T_known.mean(axis=0)) ** 2
    return AdversaryReport(
        names=column_names(hidden, "hidden"),
        error=np.sqrt(squares.mean(axis=0)),
        baseline=np.sqrt(blind.mean(axis=0)),
        recovered=_share(squares.mean(axis=0), blind.mean(axis=0)),
        interval=_interval(squares, blind, np.random.default_rng(random_state)),
        within_one_std=(np.abs(T_attacked - estimate) <= std).mean(axis=0),
        n_train=len(X_known),
        n_test=len(X_attacked),
        model=adversary,
    )


def _share(squares: Array, blind: Array) -> Array:
    """One minus a ratio of squared errors; NaN where the blind guess was never wrong."""
    share = np.full(squares.shape, np.nan)
    np.divide(squares, blind, out=share, where=blind > 0)
    return np.asarray(1 - share)


def _interval(squares: Array, blind: Array, random: np.random.Generator) -> Array:
    """95 % interval of the share recovered, by resampling rows."""
    n = len(squares)
    counts = random.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES) / n
    shares = _share(counts @ squares, counts @ blind)
    return np.asarray(np.quantile(shares, [0.025, 0.975], axis=0).T)

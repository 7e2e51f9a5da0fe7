"""The interpreter: what a row that nobody can read means in terms that people use.

003 Algorithm 9, step 9: the model that measures interpretability estimates the interpretable
parameters of a row, with the uncertainty that it has about them. Here it also says so in words.
"""

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from permea._arrays import Array
from permea.information.leakage import LeakageWarning, column_names, information_leakage, table
from permea.models.bayes import BayesianMembershipMapping

_CLOSE, _FAR = 0.5, 1.5  # typical deviations that still count as usual, and that count as much
_LITTLE = 0.9  # an error bar of this share of the usual spread says little


@dataclass(frozen=True)
class Estimate:
    """One interpretable parameter of one row.

    Attributes
    ----------
    name : str
        The parameter.
    value, std : float
        Estimate and its standard deviation.
    usual, spread : float
        Mean and standard deviation of the parameter over the rows learned from.
    """

    name: str
    value: float
    std: float
    usual: float
    spread: float

    @property
    def known(self) -> float:
        """Share of the variance of the parameter that the row removes, from 0 to 1."""
        if self.spread == 0:
            return 1.0
        return float(np.clip(1 - (self.std / self.spread) ** 2, 0, 1))

    def __str__(self) -> str:
        text = f"{self.name}: {self.value:.3g} ± {self.std:.2g}, {self._compared()}"
        if self.std >= _LITTLE * self.spread > 0:
            return f"{text}; this row says little about it"
        return text

    def _compared(self) -> str:
        """How the estimate compares with what is usual, in words."""
        gap = 0.0 if self.spread == 0 else (self.value - self.usual) / self.spread
        if abs(gap) < _CLOSE:
            return f"about as usual ({self.usual:.3g})"
        degree = "well " if abs(gap) >= _FAR else ""
        side = "above" if gap > 0 else "below"
        return f"{degree}{side} the usual {self.usual:.3g}"


@dataclass(frozen=True)
class Explanation:
    """All interpretable parameters of one row, those that stand out most first."""

    estimates: tuple[Estimate, ...]

    def __str__(self) -> str:
        return "\n".join(str(estimate) for estimate in self.ranked())

    def ranked(self) -> list[Estimate]:
        """Estimates by how many usual deviations they are from what is usual."""

        def stands_out(estimate: Estimate) -> float:
            return abs(estimate.value - estimate.usual) / (estimate.spread or 1.0)

        return sorted(self.estimates, key=stands_out, reverse=True)

    def to_frame(self) -> Any:
        """One row per parameter, in their own order, as a pandas data frame."""
        import pandas as pd

        return pd.DataFrame(
            {
                "value": [estimate.value for estimate in self.estimates],
                "std": [estimate.std for estimate in self.estimates],
                "usual": [estimate.usual for estimate in self.estimates],
                "spread": [estimate.spread for estimate in self.estimates],
                "known": [estimate.known for estimate in self.estimates],
            },
            index=[estimate.name for estimate in self.estimates],
        )


class Interpreter(BaseEstimator):  # type: ignore[misc]
    """Estimate interpretable parameters from rows that have no meaning by themselves.

    Fit it to rows behind the wall (noised, fabricated) or to private ones, beside the parameters
    that are known for them; then ask it what a new row means.

    Parameters
    ----------
    model : BayesianMembershipMapping, default=None
        Model to use; by default the best of several, as in `information_leakage`.
    max_samples : int, default=5000
        Rows used at most, drawn at random.
    random_state : int or None, default=0
        Seeds the draw.

    Attributes
    ----------
    model_ : BayesianMembershipMapping
        The fitted model.
    measure_ : InformationLeakage
        The interpretability measure (003 Def. 11) of the rows learned from.
    names_ : tuple of str
        The parameters; those that never vary are left out.
    usual_, spread_ : ndarray
        Their means and standard deviations over the rows learned from.

    References
    ----------
    Document 003, Definition 11 and Algorithm 9, step 9.

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> rows = random.normal(size=(300, 4))
    >>> effort = 50 + 10 * rows[:, 0] + random.normal(0, 2, 300)
    >>> mood = random.normal(0, 1, 300)
    >>> interpreter = Interpreter().fit(rows, np.column_stack([effort, mood]),
    ...                                 names=("effort", "mood"))
    >>> print(interpreter.explain([2.0, 0, 0, 0]))
    effort: 70.1 ± 2.1, well above the usual 49.8
    mood: ..., about as usual (...); this row says little about it
    """

    def __init__(
        self,
        *,
        model: BayesianMembershipMapping | None = None,
        max_samples: int | None = 5000,
        random_state: int | None = 0,
    ) -> None:
        self.model = model
        self.max_samples = max_samples
        self.random_state = random_state

    def fit(
        self, observed: ArrayLike, parameters: ArrayLike, *, names: tuple[str, ...] | None = None
    ) -> Self:
        """Learn what rows mean.

        Parameters
        ----------
        observed : array-like of shape (N, n)
            Rows.
        parameters : array-like of shape (N,) or (N, q)
            Their interpretable parameters.
        names : sequence of str, optional
            Names of the parameters; those of a data frame by default.

        Returns
        -------
        Interpreter
            This interpreter, fitted.
        """
        values = table(parameters, "parameters")
        names = column_names(parameters, "parameter") if names is None else tuple(names)
        if len(names) != values.shape[1]:
            raise ValueError(f"{len(names)} names were given for {values.shape[1]} parameters.")
        with warnings.catch_warnings():  # what there is to say stays in the notes of the measure
            warnings.simplefilter("ignore", LeakageWarning)
            self.measure_ = information_leakage(
                table(observed, "observed"),
                values,
                names=names,
                model=self.model,
                max_samples=self.max_samples,
                random_state=self.random_state,
            )
        self.model_ = self.measure_.model
        kept = [k for k, name in enumerate(names) if name in self.measure_.names]
        self.names_ = self.measure_.names
        self.usual_ = values[:, kept].mean(axis=0)
        self.spread_ = values[:, kept].std(axis=0, ddof=1)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Estimate the parameters of rows, with standard deviations if asked for."""
        check_is_fitted(self, "model_")
        return self.model_.predict(table(X, "X"), return_std=return_std)

    def explain(self, sample: ArrayLike) -> Explanation:
        """Say what one row means.

        Parameters
        ----------
        sample : array-like of shape (n,)
            One row.

        Returns
        -------
        Explanation
            Prints as one line per parameter, the most unusual first.
        """
        check_is_fitted(self, "model_")
        row = np.asarray(sample, dtype=np.float64)
        if row.ndim != 1:
            raise ValueError(f"explain takes one row; got an array of shape {row.shape}.")
        mean, std = self.model_.predict(row[None, :], return_std=True)
        columns = zip(self.names_, mean[0], std[0], self.usual_, self.spread_, strict=True)
        return Explanation(tuple(Estimate(n, *map(float, rest)) for n, *rest in columns))

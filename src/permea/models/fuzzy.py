"""Deep Takagi-Sugeno fuzzy models: a regressor, and an autoencoder with readable rules."""

import math
import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from permea.models.base import Array, row_norms
from permea.models.encoding import ShrunkWarning
from permea.models.fuzzy_rules import FuzzyExplanation, FuzzyRule, build_rules
from permea.models.fuzzy_system import learn_fuzzy_system, uncentred_directions

_FLOATS = [np.float64, np.float32]

_FUZZY_CONSTRAINTS: dict[str, list[Any]] = {
    "n_rules": [
        Interval(Integral, 1, None, closed="left"),
        Interval(Real, 0, 1, closed="right"),
    ],
    "max_layers": [Interval(Integral, 1, None, closed="left")],
    "tol": [Interval(Real, 0, None, closed="neither")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
}


def _rule_count(n_rules: float | int, N: int) -> int:
    """Turn ``n_rules`` into a number: a share of the rows, or a count."""
    if isinstance(n_rules, Integral):
        if n_rules > N:
            warnings.warn(
                f"n_rules={n_rules} is more than the {N} training rows; {N} is used.",
                ShrunkWarning,
                stacklevel=4,
            )
        return min(int(n_rules), N)
    return max(min(math.ceil(float(n_rules) * N), N), 1)


class FuzzyModel(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Nonlinear regression by Takagi-Sugeno rules with consequents inferred by variational Bayes.

    The rules "if x is near a^m then y = c_m" have Gaussian memberships around centroids of the
    inputs (002 eq. 2.104); the output is the average of the consequents weighted by the normalised
    degrees of fulfilment (2.110 and 2.111). A further layer reads the output of the one before
    through the encoding V (2.116) and is kept only if it raises the precision; that needs at least
    as many outputs as inputs.

    Parameters
    ----------
    n_rules : float or int, default=0.5
        Number M of rules, as a share of the rows or as a count.
    max_layers : int, default=10
        Largest number of layers.
    tol : float, default=1e-6
        Inference ends when the precision changes by less than this share of itself.
    max_iter : int, default=1000
        Largest number of updates in a layer. They cost next to nothing.

    Attributes
    ----------
    system_ : permea.models.fuzzy_system.FuzzySystem
        The learned rules of all layers.
    precision_ : float
        β̂ of the last layer (002 eq. 2.154).
    n_layers_ : int
        Number of layers that were kept.
    n_iter_ : int
        Updates over all layers.
    n_features_in_ : int
        Number of inputs n.

    References
    ----------
    Document 002, section 2.2, Algorithm 1.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = FuzzyModel(n_rules=20).fit(X[:300], y[:300])
    >>> model.score(X[300:], y[300:]) > 0.4
    True
    >>> len(model.rules(X[300])), str(model.rules(X[300])[0])[:4]
    (20, 'rule')
    """

    _parameter_constraints: dict[str, list[Any]] = _FUZZY_CONSTRAINTS

    def __init__(
        self,
        *,
        n_rules: float | int = 0.5,
        max_layers: int = 10,
        tol: float = 1e-6,
        max_iter: int = 1000,
    ) -> None:
        self.n_rules = n_rules
        self.max_layers = max_layers
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Array, y: Array) -> Self:
        """Learn the rules.

        Parameters
        ----------
        X : array-like of shape (N, n)
            Inputs.
        y : array-like of shape (N,) or (N, p)
            Outputs.

        Returns
        -------
        FuzzyModel
            This regressor, fitted.
        """
        self._validate_params()
        X, y = validate_data(self, X, y, dtype=_FLOATS, multi_output=True, y_numeric=True)
        Y = np.asarray(y, dtype=X.dtype)
        self._one_output = Y.ndim == 1
        Y = Y.reshape(len(Y), -1)
        deep = self.max_layers > 1 and Y.shape[1] >= X.shape[1]
        # Distances see differences only: centred inputs keep the digits that differ.
        self.input_mean_ = X.mean(axis=0)
        self.system_ = learn_fuzzy_system(
            X - self.input_mean_,
            Y,
            uncentred_directions(Y, X.shape[1] if deep else 0),
            n_rules=_rule_count(self.n_rules, len(X)),
            max_layers=self.max_layers,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        self.precision_ = self.system_.precisions[-1]
        self.n_layers_ = len(self.system_.layers)
        self.n_iter_ = self.system_.n_iter
        return self

    def predict(self, X: Array) -> Array:
        """Outputs for new inputs.

        Parameters
        ----------
        X : array-like of shape (m, n)
            Inputs.

        Returns
        -------
        ndarray of shape (m,) or (m, p)
            Outputs.
        """
        check_is_fitted(self, "system_")
        outputs = self.system_(self._centred(X))
        return np.asarray(outputs[:, 0] if self._one_output else outputs)

    def rules(
        self, x: Array | None = None, *, feature_names: Sequence[str] | None = None
    ) -> list[FuzzyRule]:
        """Rules of the first layer; with a query ``x``, those it fulfils most come first.

        Parameters
        ----------
        x : array-like of shape (n,), default=None
            One input.
        feature_names : sequence of str, default=None
            Names to print for the inputs.
        """
        check_is_fitted(self, "system_")
        system = self.system_
        centres = np.zeros_like(system.centres)
        np.divide(system.centres, system.scales, out=centres, where=system.scales > 0)
        degrees = None if x is None else system.degrees(self._centred(_one_row(x)))[0]
        return build_rules(
            centres + self.input_mean_,
            system.layers[0],
            system(centres),
            system.members,
            degrees,
            feature_names,
        )

    def _centred(self, X: Array) -> Array:
        X = validate_data(self, X, dtype=_FLOATS, reset=False)
        return np.asarray(np.asarray(X, dtype=self.input_mean_.dtype) - self.input_mean_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


class FuzzyAutoencoder(BaseEstimator):  # type: ignore[misc]
    """Map any point to its image under a deep fuzzy model of its code (002 Def. 8).

    The code Vᵀy holds the leading directions of the uncentred second moment of the training rows
    (2.147 and 2.148); a deep fuzzy model learned from pairs (Vᵀy, y) maps it back (002 Algorithm
    2). The degree to which a point belongs to the training rows is
    μ(y) = exp(−‖y − ŷ‖²/2p) (2.162).

    Features that never vary keep their value in every image and take no part in the rules.

    Parameters
    ----------
    n_components : int, default=20
        Dimension n of the code. It shrinks, with a warning, to what the rows can carry.
    n_rules, max_layers, tol, max_iter
        See `FuzzyModel`. The layers of this model are chosen by their precision; they are not the
        layers of `ConditionallyDeep`, which 002 does not have (``n_layers=1`` there).

    Attributes
    ----------
    system_ : permea.models.fuzzy_system.FuzzySystem
        The learned rules of all layers.
    n_components_ : int
        Dimension of the code in use.
    n_layers_ : int
        Number of layers that were kept.
    precision_ : float
        β̂ of the last layer.
    n_iter_ : int
        Updates over all layers.
    n_features_in_ : int
        Number of features p.

    References
    ----------
    Document 002, sections 2.2.5 and 2.3, Algorithms 2 and 3.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> eights = FuzzyAutoencoder().fit(X[y == 8] / 16)
    >>> inside, outside = eights.membership([X[y == 8][0] / 16, X[y == 0][0] / 16])
    >>> bool(inside > outside)
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "n_components": [Interval(Integral, 1, None, closed="left")],
        **_FUZZY_CONSTRAINTS,
    }

    def __init__(
        self,
        *,
        n_components: int = 20,
        n_rules: float | int = 0.5,
        max_layers: int = 10,
        tol: float = 1e-6,
        max_iter: int = 1000,
    ) -> None:
        self.n_components = n_components
        self.n_rules = n_rules
        self.max_layers = max_layers
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, Y: Array, y: object = None) -> Self:
        """Learn codes and rules from the rows of ``Y``.

        Parameters
        ----------
        Y : array-like of shape (N, p)
            Training rows.
        y : ignored
            For the scikit-learn convention.

        Returns
        -------
        FuzzyAutoencoder
            This autoencoder, fitted.
        """
        self._validate_params()
        Y = validate_data(self, Y, dtype=_FLOATS)
        self.active_ = np.ptp(Y, axis=0) > 0
        self.constant_ = np.where(self.active_, Y.dtype.type(0), Y[0])
        rows = Y[:, self.active_]
        V = uncentred_directions(rows, self.n_components)
        self.n_components_ = V.shape[1]
        if self.n_components_ < self.n_components:
            warnings.warn(
                f"n_components={self.n_components} is more than these {len(Y)} rows of "
                f"{Y.shape[1]} features can carry; n_components={self.n_components_} is used.",
                ShrunkWarning,
                stacklevel=2,
            )
        self.system_ = learn_fuzzy_system(
            rows @ V,
            rows,
            V,
            n_rules=_rule_count(self.n_rules, len(Y)),
            max_layers=self.max_layers,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        self.precision_ = self.system_.precisions[-1]
        self.n_layers_ = len(self.system_.layers)
        self.n_iter_ = self.system_.n_iter
        return self

    def reconstruct(self, Y: Array) -> Array:
        """Image of each row, the output of the last layer (002 Def. 9).

        Parameters
        ----------
        Y : array-like of shape (m, p)
            Any points.

        Returns
        -------
        ndarray of shape (m, p)
            Their images.
        """
        Y = self._validated(Y)
        return self._decoded(self.system_(self._codes(Y)))

    def distance(self, Y: Array) -> Array:
        """Distance of each row to its image.

        Parameters
        ----------
        Y : array-like of shape (m, p)
            Any points.

        Returns
        -------
        ndarray of shape (m,)
            Their distances.
        """
        Y = self._validated(Y)
        return row_norms(Y - self.reconstruct(Y))

    def membership(self, Y: Array) -> Array:
        """Degree to which each row belongs to the fuzzy set of the training rows (2.162)."""
        distance = self.distance(Y)
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.exp(-0.5 * distance**2 / self.n_features_in_))

    def rules(
        self, x: Array | None = None, *, feature_names: Sequence[str] | None = None
    ) -> list[FuzzyRule]:
        """Rules of the first layer, with centres in the original features.

        Parameters
        ----------
        x : array-like of shape (p,), default=None
            One point. With it the rules carry their degree of fulfilment, largest first.
        feature_names : sequence of str, default=None
            Names to print for the features.

        Returns
        -------
        list of FuzzyRule
        """
        check_is_fitted(self, "system_")
        system = self.system_
        codes = np.zeros_like(system.centres)
        np.divide(system.centres, system.scales, out=codes, where=system.scales > 0)
        degrees = None
        if x is not None:
            degrees = system.degrees(self._codes(self._validated(_one_row(x))))[0]
        return build_rules(
            self._decoded(codes @ system.encoder.T),
            self._decoded(system.layers[0]),
            self._decoded(system(codes)),
            system.members,
            degrees,
            feature_names,
        )

    def explain(
        self, x: Array, *, n_rules: int = 5, feature_names: Sequence[str] | None = None
    ) -> FuzzyExplanation:
        """Say how far one point belongs, and which rules and training regions decide it.

        Parameters
        ----------
        x : array-like of shape (p,)
            One point.
        n_rules : int, default=5
            Number of rules to tell.
        feature_names : sequence of str, default=None
            Names to print for the features.

        Returns
        -------
        FuzzyExplanation
        """
        row = _one_row(x)
        rules = self.rules(x, feature_names=feature_names)[:n_rules]
        return FuzzyExplanation(
            membership=float(self.membership(row)[0]),
            distance=float(self.distance(row)[0]),
            rules=tuple(rules),
            covered=sum(rule.fulfilment or 0.0 for rule in rules),
        )

    def _codes(self, Y: Array) -> Array:
        """Codes Vᵀy, kept finite."""
        limit = np.finfo(Y.dtype).max / 1e6 / max(Y.shape[1], 1)
        return np.asarray(np.clip(Y[:, self.active_], -limit, limit) @ self.system_.encoder)

    def _decoded(self, active: Array) -> Array:
        """Rows in all features from their values in the features that vary."""
        image = np.empty((len(active), self.n_features_in_), self.constant_.dtype)
        image[:] = self.constant_
        image[:, self.active_] = active
        return image

    def _validated(self, Y: Array) -> Array:
        check_is_fitted(self, "system_")
        Y = validate_data(self, Y, dtype=_FLOATS, reset=False)
        return np.asarray(Y, dtype=self.constant_.dtype)


def _one_row(x: Array) -> Array:
    """One point as a matrix of one row."""
    row = np.atleast_2d(np.asarray(x))
    if row.shape[0] != 1:
        raise ValueError(f"Expected one point, got {row.shape[0]} rows: ask for them one by one.")
    return row

"""Takagi-Sugeno rules and the variational Bayes inference of their consequents (002 section 2.2).

A zero-order Takagi-Sugeno filter with M rules "if x is near a^m then y = c_m" answers with the
average of the consequents, weighted by how far each rule is fulfilled,

    y = K_xa α,     (K_xa)_m = exp(−½‖x − a^m‖²_W) / Σ_m' exp(−½‖x − a^m'‖²_W).    (2.110, 2.111)

With Gaussian priors on α and a gamma prior on the precision β of the disturbance, the mean-field
posterior is found by updating its factors in turn (2.150 to 2.154), which can only raise the
negative free energy F (2.139).
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array
from permea._validate import Accepted, number, validate_parameters, whole
from permea.models.base import row_norms
from permea.models.encoding import ShrunkWarning
from permea.models.linear_algebra import RidgePath
from permea.models.mapping import k_means, pivot_order, scale_inputs, unit_range_scales

_PRIOR = 1e-6  # a, b and the diagonal of Λ (002 Algorithm 1, step 10)
_CHUNK_ENTRIES = 4_000_000  # rule degrees held at once: bounds the memory of every query


def rule_degrees(X: Array, centres: Array) -> Array:
    """Normalised degrees of fulfilment (002 eq. 2.110) for scaled inputs and rule centres.

    The largest exponent of each row is taken out before the exponential: far from all rules the
    nearest one decides, as it does in the limit of the formula.

    Examples
    --------
    >>> import numpy as np
    >>> rule_degrees(np.array([[0.0], [1e6]]), np.array([[-1.0], [1.0]]))
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    exponents = X @ centres.T
    exponents -= 0.5 * np.einsum("ij,ij->i", centres, centres)
    exponents -= exponents.max(axis=1, keepdims=True)
    degrees = np.exp(exponents, out=exponents)
    degrees /= degrees.sum(axis=1, keepdims=True)
    return np.asarray(degrees)


class Posterior(NamedTuple):
    """Posterior of the consequents and of the precision of one layer."""

    consequents: Array  #: (M, p) posterior means m̂
    precision: float  #: β̂ = â/b̂
    free_energy: list[float]  #: F after each update
    n_iter: int


class ConsequentInference:
    """The updates (2.150) to (2.154) for one layer.

    Λ̂ = Λ + β̂ KᵀK has the eigenvectors of KᵀK whatever β̂ is, so one eigendecomposition serves all
    updates: m̂ solves a ridge regression of strength Λ/β̂, and both traces are sums.
    """

    def __init__(self, K: Array, Y: Array) -> None:
        K, Y = K.astype(np.float64, copy=False), Y.astype(np.float64, copy=False)
        self.N, self.p = Y.shape
        self.M = K.shape[1]
        self.path = RidgePath(K.T @ K, K.T @ Y)
        self.energy = float(np.einsum("ij,ij->", Y, Y))
        self.shape = _PRIOR + 0.5 * self.p * self.N  # â (2.152)

    def rate(self, precision: float) -> float:
        """b̂ of (2.153) for the posterior of α that belongs to β̂."""
        strength = _PRIOR / precision
        squares = self.energy - self.path.inner(strength)
        squares -= strength * self.path.squared_norm(strength)
        rounding = float(np.finfo(np.float64).eps) * self.energy
        values = self.path.values
        trace = self.p * float(np.sum(values / (_PRIOR + precision * values)))
        return float(_PRIOR + 0.5 * (max(squares, rounding) + trace))

    def free_energy(self, precision: float, rate: float) -> float:
        """F of (2.139): α as it is for β̂ = ``precision``, β as it is for b̂ = ``rate``."""
        a, N, p, M = self.shape, self.N, self.p, self.M
        log_beta, beta = float(digamma(a)) - np.log(rate), a / rate
        spectrum = _PRIOR + precision * self.path.values
        data = 0.5 * N * p * (log_beta - np.log(2 * np.pi)) - beta * (rate - _PRIOR)
        means = self.path.squared_norm(_PRIOR / precision)
        consequents = 0.5 * p * (M * np.log(_PRIOR) + M - float(np.log(spectrum).sum()))
        consequents -= 0.5 * _PRIOR * (means + p * float(np.sum(1 / spectrum)))
        prior = _PRIOR * np.log(_PRIOR) - gammaln(_PRIOR) + (_PRIOR - 1) * log_beta - _PRIOR * beta
        entropy = a - np.log(rate) + gammaln(a) + (1 - a) * digamma(a)
        return float(data + consequents + prior + entropy)

    def infer(self, tol: float, max_iter: int) -> Posterior:
        """Update until β̂ nearly converges (002 Algorithm 1, steps 11 to 14)."""
        precision = 1.0
        free_energy: list[float] = []
        while len(free_energy) < max_iter:
            previous, rate = precision, self.rate(precision)
            free_energy.append(self.free_energy(previous, rate))
            precision = self.shape / rate
            if abs(precision - previous) <= tol * previous:
                break
        means = self.path.solve(_PRIOR / precision)
        return Posterior(means, precision, free_energy, len(free_energy))


class FuzzySystem(NamedTuple):
    """A learned deep fuzzy model: everything that its output (2.158 to 2.161) needs."""

    scales: Array  #: (n,) square roots of the diagonal of W
    centres: Array  #: (M, n) rule centres in scaled inputs
    encoder: Array  #: (p, n) V, through which a layer reads the output of the one before
    layers: list[Array]  #: (M, p) consequents of each layer
    precisions: list[float]  #: β̂ of each layer
    free_energies: list[list[float]]  #: F over the updates of each layer
    members: NDArray[np.intp]  #: (M,) number of training inputs nearest to each rule
    n_iter: int  #: updates over all layers that were tried

    def degrees(self, X: Array) -> Array:
        """Normalised degree of fulfilment of every rule."""
        return rule_degrees(scale_inputs(X, self.scales), self.centres)

    def __call__(self, X: Array) -> Array:
        """Output of the last layer, in bounded memory."""
        outputs = np.empty((X.shape[0], self.layers[0].shape[1]), self.layers[0].dtype)
        for rows in self._chunks(X.shape[0]):
            outputs[rows] = self._walk(X[rows])
        return outputs

    def _walk(self, X: Array) -> Array:
        output = self.degrees(X) @ self.layers[0]
        for consequents in self.layers[1:]:
            output = self.degrees(output @ self.encoder) @ consequents
        return output

    def _chunks(self, n_rows: int) -> Iterator[slice]:
        step = max(_CHUNK_ENTRIES // self.centres.shape[0], 1)
        return (slice(start, start + step) for start in range(0, n_rows, step))


def learn_fuzzy_system(
    X: Array,
    Y: Array,
    encoder: Array,
    *,
    n_rules: int,
    max_layers: int,
    tol: float,
    max_iter: int,
) -> FuzzySystem:
    """Learn a deep fuzzy model by 002 Algorithm 1.

    Rule centres are centroids of k-means, W holds the inverse squared ranges. Layers are added
    while the precision grows, and the one that did not raise it is dropped.

    Parameters
    ----------
    X : ndarray of shape (N, n)
    Y : ndarray of shape (N, p)
    encoder : ndarray of shape (p, n)
        V of (2.148). With no columns the model has one layer.
    n_rules : int
        Number M of rules; fewer where the inputs have fewer distinct values.
    max_layers : int
    tol : float
        Inference ends when β̂ changes by less than this share of itself.
    max_iter : int
    """
    scales = unit_range_scales(X)
    scaled = scale_inputs(X, scales)
    order, _ = pivot_order(scaled, n_rules, 0.0, 2.1)
    centres, labels = k_means(scaled, scaled[order])
    if encoder.shape[1] != X.shape[1]:
        max_layers = 1
    layers: list[Array] = []
    precisions: list[float] = []
    free_energies: list[list[float]] = []
    inputs, n_iter = scaled, 0
    while len(layers) < max_layers:
        K = rule_degrees(inputs, centres)
        posterior = ConsequentInference(K, Y).infer(tol, max_iter)
        n_iter += posterior.n_iter
        if precisions and posterior.precision <= precisions[-1]:
            break
        layers.append(posterior.consequents.astype(X.dtype))
        precisions.append(posterior.precision)
        free_energies.append(posterior.free_energy)
        if len(layers) < max_layers:
            inputs = scale_inputs((K @ layers[-1]) @ encoder, scales)
    members = np.bincount(labels, minlength=len(centres))
    return FuzzySystem(scales, centres, encoder, layers, precisions, free_energies, members, n_iter)


def uncentred_directions(Y: Array, n_components: int) -> Array:
    """Leading eigenvectors V of the uncentred second moment of the rows (002 eq. 2.147, 2.148).

    Directions in which the rows have no extent beyond rounding are left out.

    Examples
    --------
    >>> import numpy as np
    >>> abs(uncentred_directions(np.array([[3.0, 4.0], [6.0, 8.0]]), 2)).round(3)
    array([[0.6],
           [0.8]])
    """
    N, p = Y.shape
    gram = Y.T @ Y if p <= N else Y @ Y.T
    values, vectors = np.linalg.eigh(gram)
    values, vectors = values[::-1], vectors[:, ::-1]
    floor = max(N, p) * float(np.finfo(Y.dtype).eps) * 4 * max(float(values.max(initial=0.0)), 0.0)
    kept = min(n_components, int(np.count_nonzero(values > floor)))
    if p <= N:
        return np.ascontiguousarray(vectors[:, :kept])
    directions = Y.T @ vectors[:, :kept]
    return np.asarray(directions / np.linalg.norm(directions, axis=0))


_SHOWN = 4  # features named in a printed rule


@dataclass(frozen=True)
class FuzzyRule:
    """If the input is near ``centre`` then the output is ``consequent`` (002 section 2.2.1.1).

    Printing a rule names the features of its centre that differ most from the average centre.
    """

    index: int  #: number of the rule
    centre: Array  #: rule centre in the original features
    consequent: Array  #: c_m, one number per output
    output: Array  #: what the whole system answers at the centre
    members: int  #: training rows that are nearer to this rule than to any other
    typical: Array  #: average of all rule centres, against which a centre is told apart
    fulfilment: float | None = None  #: normalised degree of fulfilment for a query
    names: tuple[str, ...] | None = None  #: names of the features

    def __str__(self) -> str:
        prominent = np.argsort(-np.abs(self.centre - self.typical), kind="stable")[:_SHOWN]
        names = self.names or tuple(f"x{k}" for k in range(self.centre.size))
        condition = ", ".join(f"{names[k]} ≈ {self.centre[k]:.3g}" for k in sorted(prominent))
        degree = "" if self.fulfilment is None else f", fulfilled to {self.fulfilment:.1%}"
        if self.output.size <= _SHOWN:
            answer = ", ".join(f"{value:.3g}" for value in self.output)
        else:
            answer = f"a point with {self.output.size} features near that centre"
        return (
            f"rule {self.index} ({self.members} training rows{degree}): "
            f"if {condition} then {answer}"
        )


@dataclass(frozen=True)
class FuzzyExplanation:
    """Why a fuzzy autoencoder accepts or rejects one point.

    ``membership`` is the degree to which the point belongs (2.162), ``distance`` how far it is from
    its image, and ``rules`` are those that the point fulfils most, each with its region: the
    training rows that are nearest to its centre.
    """

    membership: float
    distance: float
    rules: tuple[FuzzyRule, ...]  #: most fulfilled first
    covered: float  #: share of all degrees of fulfilment that these rules hold

    def __str__(self) -> str:
        lines = [
            f"membership {self.membership:.4f}, distance to its image {self.distance:.4g}; "
            f"{len(self.rules)} rules hold {self.covered:.1%} of all fulfilment:"
        ]
        return "\n".join(lines + [f"  {rule}" for rule in self.rules])


def build_rules(
    centres: Array,
    consequents: Array,
    outputs: Array,
    members: NDArray[np.intp],
    degrees: Array | None = None,
    names: Sequence[str] | None = None,
) -> list[FuzzyRule]:
    """Assemble the rules of a layer; most fulfilled first when ``degrees`` are given."""
    typical = np.asarray(np.average(centres, axis=0, weights=np.maximum(members, 1)))
    labels = None if names is None else tuple(names)
    rules = [
        FuzzyRule(
            index=m,
            centre=centres[m],
            consequent=consequents[m],
            output=outputs[m],
            members=int(members[m]),
            typical=typical,
            fulfilment=None if degrees is None else float(degrees[m]),
            names=labels,
        )
        for m in range(len(centres))
    ]
    if degrees is not None:
        rules.sort(key=lambda rule: -(rule.fulfilment or 0.0))
    return rules


_FLOATS = [np.float64, np.float32]

_FUZZY_PARAMETERS: Accepted = {
    "n_rules": whole(1) | number(above=0, most=1),
    "max_layers": whole(1),
    "tol": number(above=0),
    "max_iter": whole(1),
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
    system_ : permea.models.fuzzy.FuzzySystem
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

    _parameters: ClassVar[Accepted] = _FUZZY_PARAMETERS

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
        validate_parameters(self)
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
    system_ : permea.models.fuzzy.FuzzySystem
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

    _parameters: ClassVar[Accepted] = {
        "n_components": whole(1),
        **_FUZZY_PARAMETERS,
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
        validate_parameters(self)
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

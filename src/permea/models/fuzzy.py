"""Deep fuzzy models: Takagi-Sugeno rules with inferred consequents (document 002, section 2.2).

A zero-order Takagi-Sugeno filter with M rules "if x is near a^m then y = c_m" has the output

    y = K_xa α,     (K_xa)_m = exp(−½‖x − a^m‖²_W) / Σ_m' exp(−½‖x − a^m'‖²_W),    (2.110, 2.111)

the average of the consequents, weighted by the degree to which each rule is fulfilled. With
Gaussian priors on α and a gamma prior on the precision β of the disturbance, the mean-field
posterior is found by updating its factors in turn (2.150 to 2.154), which can only raise the
negative free energy F (2.139). This file has the estimators, the rules they report, and the
inference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array
from permea._parallel import batches
from permea._validate import Accepted, boolean, number, one_of, validate_parameters, whole
from permea.models.base import FLOATS, MultiOutputRegressor, count_of, row_norms, warn_shrunk
from permea.models.encoding import leading_directions
from permea.models.inducing import (
    best_bandwidth,
    k_means,
    pivot_order,
    rows_to_try,
    scale_inputs,
    unit_range_scales,
    unscale_inputs,
)
from permea.models.linear_algebra import RidgePath

_PRIOR = 1e-6  # a, b and the diagonal of Λ (002 Algorithm 1, step 10)
_CHUNK_ENTRIES = 4_000_000  # rule degrees held at once: bounds the memory of every query
_SHOWN = 4  # features named in a printed rule


@dataclass(kw_only=True, eq=False, repr=False)
class _FuzzyLearner(BaseEstimator):  # type: ignore[misc]
    """The parameters of 002 Algorithm 1, learning by it, and the rules that were learned."""

    n_rules: float | int = 0.5
    max_layers: int = 10
    clustering: str = "scaled"
    tol: float = 1e-6
    max_iter: int = 1000

    _parameters: ClassVar[Accepted] = {
        "n_rules": whole(1) | number(above=0, most=1),
        "max_layers": whole(1),
        "clustering": one_of("scaled", "inputs"),
        "tol": number(above=0),
        "max_iter": whole(1),
    }

    def _learn(
        self, X: Array, Y: Array, encoder: Array, origin: Array, bandwidth: float | str = 1.0
    ) -> Self:
        """Learn a deep fuzzy model from ``X`` to ``Y`` (002 Algorithm 1).

        Rule centres are centroids of k-means, W holds the inverse squared ranges. Layers are added
        while the precision grows, and the one that did not raise it is dropped. They read outputs
        through ``encoder``, V of (2.148); if it has not as many columns as ``X``, there is one.
        All distances are taken between inputs minus ``origin``.
        """
        X = X - origin
        n_rules = count_of("n_rules", self.n_rules, len(X))
        if bandwidth == "auto":
            bandwidth = self._best_bandwidth(X, Y, n_rules)
        scales = unit_range_scales(X) / X.dtype.type(bandwidth)
        scaled, centres, labels = self._place_rules(X, scales, n_rules)
        max_layers = self.max_layers if encoder.shape[1] == X.shape[1] else 1
        kept: list[Posterior] = []
        inputs, n_iter = scaled, 0
        while len(kept) < max_layers:
            K = rule_degrees(inputs, centres)
            posterior = ConsequentInference(K, Y).infer(self.tol, self.max_iter)
            n_iter += posterior.n_iter
            if kept and posterior.precision <= kept[-1].precision:
                break
            kept.append(posterior._replace(consequents=posterior.consequents.astype(X.dtype)))
            if len(kept) < max_layers:
                outputs = (K @ kept[-1].consequents) @ encoder  # x^l (2.118)
                inputs = scale_inputs(outputs - origin, scales)
        self.system_ = FuzzySystem(
            origin=origin,
            scales=scales,
            centres=centres,
            encoder=encoder,
            layers=[layer.consequents for layer in kept],
            precisions=[layer.precision for layer in kept],
            free_energies=[layer.free_energy for layer in kept],
            members=np.bincount(labels, minlength=len(centres)),
            n_iter=n_iter,
        )
        self.precision_ = kept[-1].precision
        self.n_layers_ = len(kept)
        self.n_iter_ = n_iter
        return self

    def _place_rules(self, X: Array, scales: Array, n_rules: int) -> tuple[Array, Array, Array]:
        """Scaled inputs, centres of the rules among them, and the rule nearest to each row."""
        scaled = scale_inputs(X, scales)
        order, _ = pivot_order(scaled, n_rules)
        if self.clustering == "scaled":
            return scaled, *k_means(scaled, scaled[order])
        centres, labels = k_means(X, X[order])
        return scaled, scale_inputs(centres, scales), labels

    def _best_bandwidth(self, X: Array, Y: Array, n_rules: int) -> float:
        """The bandwidth with which rows that are left out are predicted best, by one layer."""
        rows = rows_to_try(len(X))
        n_rules = max(math.ceil(len(X[rows]) / len(X) * n_rules), 1)
        X, Y, ranges = X[rows], Y[rows], unit_range_scales(X[rows])

        def error_of(bandwidth: float) -> float:
            scales = ranges / X.dtype.type(bandwidth)
            scaled, centres, _ = self._place_rules(X, scales, n_rules)
            inference = ConsequentInference(rule_degrees(scaled, centres), Y)
            return inference.left_out(inference.infer(self.tol, self.max_iter).precision)

        return best_bandwidth(error_of)

    def _inputs(self, X: Array) -> Array:
        """Validated inputs of the fuzzy system."""
        raise NotImplementedError

    def _centres(self, inputs: Array) -> Array:
        """Inputs of the fuzzy system in the original features."""
        raise NotImplementedError

    def _outputs(self, outputs: Array) -> Array:
        """Outputs of the fuzzy system in all features."""
        return outputs

    def rules(
        self, x: Array | None = None, *, feature_names: Sequence[str] | None = None
    ) -> "list[FuzzyRule]":
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
        codes = unscale_inputs(system.centres, system.scales) + system.origin
        centres, consequents = self._centres(codes), self._outputs(system.layers[0])
        outputs = self._outputs(system(codes))
        degrees = None if x is None else system.degrees(self._inputs(_one_row(x)))[0]
        typical = np.average(centres, axis=0, weights=np.maximum(system.members, 1))
        rules = [
            FuzzyRule(
                index=m,
                centre=centres[m],
                consequent=consequents[m],
                output=outputs[m],
                members=int(system.members[m]),
                typical=typical,
                fulfilment=None if degrees is None else float(degrees[m]),
                names=None if feature_names is None else tuple(feature_names),
            )
            for m in range(len(centres))
        ]
        return sorted(rules, key=lambda rule: -(rule.fulfilment or 0.0))


@dataclass(kw_only=True, eq=False, repr=False)
class FuzzyModel(MultiOutputRegressor, _FuzzyLearner):
    """Nonlinear regression by Takagi-Sugeno rules with consequents inferred by variational Bayes.

    The rules "if x is near a^m then y = c_m" have Gaussian memberships around centroids of the
    inputs (002 eq. 2.104); the output is the average of the consequents weighted by the normalised
    degrees of fulfilment (2.110 and 2.111). A further layer reads the output of the one before
    through the encoding V (2.116), whose columns have a positive largest entry, and is kept only if
    it raises the precision; that needs at least as many outputs as inputs.

    Parameters
    ----------
    n_rules : float or int, default=0.5
        Number M of rules, as a share of the rows or as a count.
    max_layers : int, default=10
        Largest number of layers.
    clustering : {"scaled", "inputs"}, default="scaled"
        What k-means looks at to place the rules: inputs divided by their ranges, so that their
        units do not matter, or inputs as they are, which is step 2 of Algorithm 1.
    bandwidth : float or "auto", default="auto"
        Factor on the input ranges that W is made of. 1 is step 3 of Algorithm 1, which is wide for
        few inputs. "auto" picks the power of two with which rows that are left out are predicted
        best; with more than 1000 rows, by a fixed choice of 1000 of them.
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

    bandwidth: float | str = "auto"

    _parameters: ClassVar[Accepted] = {"bandwidth": number(above=0) | one_of("auto")}

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
        X, Y = self._read(X, y)
        deep = self.max_layers > 1 and Y.shape[1] >= X.shape[1]
        _, V = leading_directions(Y, X.shape[1] if deep else 0)
        # (2.148) leaves the signs open, and here the layers depend on them.
        largest = np.take_along_axis(V, np.abs(V).argmax(axis=0)[None], axis=0)
        encoder = V * np.sign(largest)
        # Distances depend on differences only: centred inputs keep the digits that differ.
        return self._learn(X, Y, encoder, X.mean(axis=0), self.bandwidth)

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
        return self._as_given(self.system_(self._inputs(X)))

    def _inputs(self, X: Array) -> Array:
        X = validate_data(self, X, dtype=FLOATS, reset=False)
        return np.asarray(X, dtype=self.system_.origin.dtype)

    def _centres(self, inputs: Array) -> Array:
        return inputs


@dataclass(kw_only=True, eq=False, repr=False)
class FuzzyAutoencoder(_FuzzyLearner):
    """Map any point to its image under a deep fuzzy model of its code (002 Def. 8).

    The code Vᵀy holds the leading directions of the uncentred second moment of the training rows
    (2.147 and 2.148); a deep fuzzy model learned from pairs (Vᵀy, y) maps it back (002 Algorithm
    2). The degree to which a point belongs to the training rows is
    μ(y) = exp(−‖y − ŷ‖²/2p) (2.162).

    Parameters
    ----------
    n_components : int, default=20
        Dimension n of the code. It is lowered, with a warning, to what the rows can carry.
    n_rules, max_layers, clustering, tol, max_iter
        See `FuzzyModel`; the inputs are the codes. The layers of this model are chosen by their
        precision; they are not the layers of `ConditionallyDeep`, which 002 does not have
        (``n_layers=1`` there).
    drop_constant : bool, default=True
        Leave features that never vary in the training rows out of the rules: they keep their value
        in every image, and p in (2.152) and (2.153) counts the others only. False models them as
        all others, which is what 002 does.

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

    n_components: int = 20
    drop_constant: bool = True

    _parameters: ClassVar[Accepted] = {"n_components": whole(1), "drop_constant": boolean}

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
        Y = validate_data(self, Y, dtype=FLOATS)
        self.active_ = (np.ptp(Y, axis=0) > 0) | (not self.drop_constant)
        self.constant_ = np.where(self.active_, Y.dtype.type(0), Y[0])
        rows = Y[:, self.active_]
        _, V = leading_directions(rows, self.n_components)
        self.n_components_ = V.shape[1]
        if self.n_components_ < self.n_components:
            warn_shrunk("n_components", self.n_components, self.n_components_, Y.shape)
        return self._learn(rows @ V, rows, V, np.zeros(V.shape[1], V.dtype))

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
        check_is_fitted(self, "system_")
        return self._outputs(self.system_(self._inputs(Y)))

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
        check_is_fitted(self, "system_")
        return row_norms(self._validated(Y) - self.reconstruct(Y))

    def membership(self, Y: Array) -> Array:
        """Degree to which each row belongs to the fuzzy set of the training rows (2.162)."""
        distance = self.distance(Y)
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.exp(-0.5 * distance**2 / self.n_features_in_))

    def explain(
        self, x: Array, *, n_rules: int = 5, feature_names: Sequence[str] | None = None
    ) -> "FuzzyExplanation":
        """Degree to which one point belongs, and the rules and training regions that decide it.

        Parameters
        ----------
        x : array-like of shape (p,)
            One point.
        n_rules : int, default=5
            Number of rules to report.
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

    def _inputs(self, X: Array) -> Array:
        """Codes Vᵀy, kept finite."""
        Y = self._validated(X)
        limit = np.finfo(Y.dtype).max / 1e6 / max(Y.shape[1], 1)
        return np.asarray(np.clip(Y[:, self.active_], -limit, limit) @ self.system_.encoder)

    def _centres(self, inputs: Array) -> Array:
        return self._outputs(inputs @ self.system_.encoder.T)

    def _outputs(self, outputs: Array) -> Array:
        """Rows in all features from their values in the features that vary."""
        image = np.empty((len(outputs), self.n_features_in_), self.constant_.dtype)
        image[:] = self.constant_
        image[:, self.active_] = outputs
        return image

    def _validated(self, Y: Array) -> Array:
        Y = validate_data(self, Y, dtype=FLOATS, reset=False)
        return np.asarray(Y, dtype=self.constant_.dtype)


def _one_row(x: Array) -> Array:
    """One point as a matrix of one row."""
    row = np.atleast_2d(np.asarray(x))
    if row.shape[0] != 1:
        raise ValueError(f"Expected one point, got {row.shape[0]} rows: pass them one by one.")
    return row


@dataclass(frozen=True)
class FuzzyRule:
    """If the input is near ``centre`` then the output is ``consequent`` (002 section 2.2.1.1).

    Printing a rule names the features of its centre that differ most from the average centre.
    """

    index: int  #: number of the rule
    centre: Array  #: rule centre in the original features
    consequent: Array  #: c_m, one number per output
    output: Array  #: output of the whole system at the centre
    members: int  #: training rows that are nearer to this rule than to any other
    typical: Array  #: average of all rule centres, with which a centre is compared
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
    """Why a fuzzy autoencoder accepts or rejects one point: membership, distance and rules.

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


class FuzzySystem(NamedTuple):
    """A learned deep fuzzy model: everything that its output (2.158 to 2.161) needs."""

    origin: Array  #: (n,) subtracted from the inputs of every layer: fewer digits are lost
    scales: Array  #: (n,) square roots of the diagonal of W
    centres: Array  #: (M, n) rule centres, minus the origin and scaled
    encoder: Array  #: (p, n) V, through which a layer reads the output of the one before
    layers: list[Array]  #: (M, p) consequents of each layer
    precisions: list[float]  #: β̂ of each layer
    free_energies: list[list[float]]  #: F over the updates of each layer
    members: NDArray[np.intp]  #: (M,) number of training inputs nearest to each rule
    n_iter: int  #: updates over all layers that were tried

    def degrees(self, X: Array) -> Array:
        """Normalised degree of fulfilment of every rule."""
        return rule_degrees(scale_inputs(X - self.origin, self.scales), self.centres)

    def __call__(self, X: Array) -> Array:
        """Output of the last layer, in bounded memory."""
        outputs = np.empty((X.shape[0], self.layers[0].shape[1]), self.layers[0].dtype)
        for rows in batches(len(X), max(_CHUNK_ENTRIES // self.centres.shape[0], 1)):
            output = self.degrees(X[rows]) @ self.layers[0]
            for consequents in self.layers[1:]:
                output = self.degrees(output @ self.encoder) @ consequents
            outputs[rows] = output
        return outputs


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
        self.K, self.Y = K, Y
        self.N, self.p = Y.shape
        self.M = K.shape[1]
        self.path = RidgePath(K.T @ K, K.T @ Y)
        self.energy = float(np.einsum("ij,ij->", Y, Y))
        self.shape = _PRIOR + 0.5 * self.p * self.N  # â (2.152)

    def rate(self, precision: float) -> float:
        """b̂ of (2.153) for the posterior of α that belongs to β̂."""
        squares = self.path.residual(_PRIOR / precision, self.energy)
        rounding = float(np.finfo(np.float64).eps) * self.energy
        values = self.path.values
        trace = self.p * float(np.sum(values / (_PRIOR + precision * values)))
        return float(_PRIOR + 0.5 * (max(squares, rounding) + trace))

    def left_out(self, precision: float) -> float:
        """Mean squared error on rows that are left out, for a given β̂."""
        return self.path.left_out(_PRIOR / precision, self.K, self.Y)

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

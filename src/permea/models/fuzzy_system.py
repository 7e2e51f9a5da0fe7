"""Takagi-Sugeno rules and the variational Bayes inference of their consequents (002 section 2.2).

A zero-order Takagi-Sugeno filter with M rules "if x is near a^m then y = c_m" answers with the
average of the consequents, weighted by how far each rule is fulfilled,

    y = K_xa α,     (K_xa)_m = exp(−½‖x − a^m‖²_W) / Σ_m' exp(−½‖x − a^m'‖²_W).    (2.110, 2.111)

With Gaussian priors on α and a gamma prior on the precision β of the disturbance, the mean-field
posterior is found by updating its factors in turn (2.150 to 2.154), which can only raise the
negative free energy F (2.139).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln

from permea.models.base import Array
from permea.models.factor import RidgePath
from permea.models.inducing import k_means, pivot_order, unit_range_scales
from permea.models.mapping import scale_inputs

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

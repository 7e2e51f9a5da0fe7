"""Membership mappings, learned analytically (documents 001 section 1.2 and 000 section 2.2).

A membership mapping interpolates between M inducing points with a Gaussian kernel. Two learning
algorithms differ in what they assume of the disturbance of the outputs:

* "precision" (001 Algorithm 1): one precision β, the inverse mean squared error;
* "gamma" (000 Algorithm 1): uncertain inputs, and gamma membership functions for the precision.

Both lead to ridge regression in a whitened kernel, so that one eigendecomposition serves all
updates of β. This file has the estimators first, then the mapping and the two algorithms.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import digamma
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array
from permea._parallel import batches
from permea._validate import (
    Accepted,
    Accepts,
    ParameterError,
    boolean,
    infinity,
    number,
    one_of,
    validate_parameters,
    whole,
)
from permea.models.autoencoder import KernelAutoencoder
from permea.models.base import FLOATS, MultiOutputRegressor, count_of
from permea.models.encoding import Encoding, principal_encoding
from permea.models.inducing import (
    InducingSearch,
    best_bandwidth,
    gaussian_kernel,
    inducing_points,
    pivot_order,
    rows_to_try,
    scale_inputs,
    unit_range_scales,
    unscale_inputs,
)
from permea.models.linear_algebra import RidgePath, jittered_cholesky

_CHUNK_ENTRIES = 4_000_000  # kernel values held at once: bounds the memory of every query
_ONES = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)


def _are_gamma_priors(values: object) -> bool:
    if not isinstance(values, Sequence) or len(values) != len(_ONES):
        return False
    shapes = all(number(least=1).test(value) for value in values[::2])
    return shapes and all(number(above=0).test(value) for value in values[1::2])


_GAMMA_PRIORS = Accepts(
    _are_gamma_priors, "six numbers: a of at least 1 and b above 0 for tau, r and s"
)


@dataclass(kw_only=True, eq=False, repr=False)
class _MappingLearner(BaseEstimator):  # type: ignore[misc]
    """The parameters of both algorithms, and learning by one of them."""

    max_inducing: float | int = 0.5
    disturbance: str = "precision"
    inducing: str = "kmeans"
    standardize: bool = True
    nu: float = 2.1
    kappa: float = 0.1
    input_variance: float = 0.01
    kernel_variance: float = 1.0
    gamma_priors: Sequence[float] = _ONES
    tol: float = 1e-6
    max_iter: int = 1000

    _parameters: ClassVar[Accepted] = {
        "max_inducing": whole(1) | number(above=0, most=1),
        "disturbance": one_of("precision", "gamma"),
        "inducing": one_of("kmeans", "inputs", "pivots"),
        "standardize": boolean,
        "nu": number(above=2) | infinity,
        "kappa": number(above=0),
        "input_variance": number(least=0),
        "kernel_variance": number(above=0),
        "gamma_priors": _GAMMA_PRIORS,
        "tol": number(above=0),
        "max_iter": whole(1),
    }

    def _check_parameters(self) -> None:
        check_smoothing(self.disturbance, self.nu)

    def _learn_outputs(
        self, X: Array, Y: Array, limit: int, bandwidth: float | str = 1.0
    ) -> tuple["Mapping", Array]:
        """Learn the mapping from ``X`` to ``Y`` minus an offset; returns both."""
        offset, unit = np.zeros(Y.shape[1], Y.dtype), 1.0
        if self.standardize:
            offset = np.asarray(Y.mean(axis=0, dtype=np.float64), Y.dtype)
            Y = Y - offset
            unit = math.sqrt(mean_variance(Y))
            if unit <= float(np.finfo(Y.dtype).eps) * float(np.abs(offset).max(initial=0.0)):
                Y, unit = np.zeros_like(Y), 1.0  # the outputs are constant up to rounding
            Y = Y / Y.dtype.type(unit)
        common: dict[str, Any] = {
            "nu": self.nu,
            "inducing": self.inducing,
            "tol": self.tol,
            "max_iter": self.max_iter,
        }
        if self.disturbance == "gamma":
            variance = self.input_variance * (np.var(X, axis=0) if self.standardize else 1.0)
            mapping = learn_gamma_mapping(
                X,
                Y,
                n_inducing=limit,
                input_variance=variance,
                kernel_variance=self.kernel_variance,
                priors=self.gamma_priors,
                bandwidth=bandwidth,
                **common,
            )
        else:
            mapping = learn_precision_mapping(
                X, Y, limit=limit, kappa=self.kappa, bandwidth=bandwidth, **common
            )
        return mapping.in_units(unit), offset


@dataclass(kw_only=True, eq=False, repr=False)
class MembershipMapping(MultiOutputRegressor, _MappingLearner):
    r"""Nonlinear regression by Student-t membership mappings, learned analytically.

    The outputs are modelled as zero-mean Student-t membership mappings with the kernel

    .. math:: k(x, x') = \sigma^2 \exp\bigl(-\tfrac12 \sum_k w_k |x_k - x'_k|^2\bigr),
              \qquad w_k = (\max_i x_k^i - \min_i x_k^i)^{-2}

    (001 eq. 1.15, 1.17, 1.53), interpolated between M inducing points (001 eq. 1.34), and the data
    as output plus disturbance. Every parameter but the bandwidth follows from the data by a
    formula; no gradient is followed, and the same rows always give the same model.

    Parameters
    ----------
    max_inducing : float or int, default=0.5
        Largest number M of inducing points, as a share of the rows or as a count. With
        ``disturbance="precision"`` fewer are used where that many would leave too little smoothing
        (001 Algorithm 1); with ``"gamma"`` this is M.
    disturbance : {"precision", "gamma"}, default="precision"
        "precision": the disturbance has a precision β, the inverse mean squared error
        (001 Algorithm 1). "gamma": inputs are uncertain too, and precision and its scale follow
        gamma membership functions (000 Algorithm 1).
    inducing : {"kmeans", "inputs", "pivots"}, default="kmeans"
        Inducing points are centroids of k-means, in the kernel's own metric or of the inputs in
        their own units (001 eq. 1.51), or training rows picked by a pivoted Cholesky
        factorisation.
    standardize : bool, default=True
        Model the outputs minus their mean, in units of their standard deviation (one number for
        all outputs), so that neither an offset nor the unit of the outputs matters. False models
        them as they are, which is what 000 and 001 do with data between 0 and 1.
    nu : float, default=2.1
        Degrees of freedom ν > 2 (001 eq. 1.52). With ``disturbance="gamma"`` they may be infinite.
    kappa : float, default=0.1
        Smallest smoothing level κ; "precision" only.
    bandwidth : float or "auto", default="auto"
        Factor on the input ranges that w is made of. 1 is 001 eq. (1.53), which is wide for few
        inputs and narrow for many. "auto" picks the power of two with which rows that are left out
        are predicted best; with more than 1000 rows, by a fixed choice of 1000 of them.
    input_variance : float, default=0.01
        Variance σx² of every input; "gamma" only (000 Def. 5). With ``standardize`` it counts in
        units of the variance that the input has in the training rows.
    kernel_variance : float, default=1.0
        σ² of the kernel; "gamma" only (000 Algorithm 1, step 1). In 001 it follows from (1.57).
    gamma_priors : sequence of 6 floats, default=(1, 1, 1, 1, 1, 1)
        a_τ, b_τ, a_r, b_r, a_s, b_s of the gamma membership functions; "gamma" only (000 Algorithm
        1, step 5).
    tol : float, default=1e-6
        The iteration ends when β changes by less than this share of itself.
    max_iter : int, default=1000
        Largest number of updates of β. They cost next to nothing.

    Attributes
    ----------
    inducing_points_ : ndarray of shape (M, n)
        The inducing points a.
    weights_ : ndarray of shape (M, p)
        α of 001 eq. (1.49).
    input_weights_ : ndarray of shape (n,)
        w of the kernel; 0 for an input that never varies.
    scale_ : float
        σ².
    smoothing_ : float
        τ(M, σ²) of 001 eq. (1.54).
    precision_ : float
        β of 001 eq. (1.58), or of 000 eq. (95).
    n_iter_ : int
        Updates of β.
    n_features_in_ : int
        Number of inputs n.

    References
    ----------
    Documents 001 (section 1.2.2, Algorithm 1) and 000 (section 2.2, Algorithm 1).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MembershipMapping().fit(X[:300], y[:300])
    >>> model.score(X[300:], y[300:]) > 0.4
    True
    """

    bandwidth: float | str = "auto"

    _parameters: ClassVar[Accepted] = {"bandwidth": number(above=0) | one_of("auto")}

    def fit(self, X: Array, y: Array) -> Self:
        """Learn the mapping from inputs to outputs.

        Parameters
        ----------
        X : array-like of shape (N, n)
            Inputs.
        y : array-like of shape (N,) or (N, p)
            Outputs.

        Returns
        -------
        MembershipMapping
            This regressor, fitted.
        """
        validate_parameters(self)
        X, Y = self._read(X, y)
        # Kernels depend on differences only: centred inputs keep the digits that differ.
        self.input_mean_ = X.mean(axis=0)
        limit = count_of("max_inducing", self.max_inducing, len(X))
        self.mapping_, self.offset_ = self._learn_outputs(
            X - self.input_mean_, Y, limit, self.bandwidth
        )
        self.n_iter_ = self.mapping_.n_iter
        self.scale_ = self.mapping_.scale
        self.smoothing_ = self.mapping_.smoothing
        self.precision_ = self.mapping_.precision
        return self

    @property
    def inducing_points_(self) -> Array:
        """The inducing points in the units of the inputs."""
        check_is_fitted(self, "mapping_")
        return np.asarray(self.mapping_.inducing_inputs() + self.input_mean_)

    @property
    def input_weights_(self) -> Array:
        """Kernel weights w (001 eq. 1.53)."""
        check_is_fitted(self, "mapping_")
        return np.asarray(self.mapping_.scales**2)

    @property
    def weights_(self) -> Array:
        """Coefficients α (001 eq. 1.49)."""
        check_is_fitted(self, "mapping_")
        return np.asarray(self.mapping_.coefficients / self.mapping_.scale)

    def predict(self, X: Array) -> Array:
        """Outputs for new inputs (001 eq. 1.60).

        Parameters
        ----------
        X : array-like of shape (m, n)
            Inputs.

        Returns
        -------
        ndarray of shape (m,) or (m, p)
            Outputs. Far from all training inputs they tend to the mean of the training outputs,
            or to zero with ``standardize=False``.
        """
        check_is_fitted(self, "mapping_")
        X = validate_data(self, X, dtype=FLOATS, reset=False)
        X = np.asarray(X, dtype=self.input_mean_.dtype)
        return self._as_given(self.mapping_(X - self.input_mean_) + self.offset_)


@dataclass(kw_only=True, eq=False, repr=False)
class MembershipAutoencoder(KernelAutoencoder, _MappingLearner):
    r"""Map any point to its image under membership mappings of its code (001 Def. 2).

    .. math:: G(y) = [F_1(Py) \dots F_p(Py)]^T

    with the leading principal directions of the training rows as the rows of P and membership
    mappings F learned from pairs (P y, y). The following layer of a conditionally deep chain
    learns from pairs (P' ŷ, y), where ŷ is the image under the layers so far, P' has one direction
    less, and M does not grow (001 Algorithm 2; in 000 Algorithm 2 M stays and ν becomes infinite).

    Parameters
    ----------
    n_components : int, default=20
        Subspace dimension n. It is lowered, with a warning, to what the rows can carry.
    max_inducing, disturbance, inducing, standardize, nu, kappa
        See `MembershipMapping`.
    input_variance, kernel_variance, gamma_priors, tol, max_iter
        See `MembershipMapping`.
    drop_constant : bool, default=True
        Leave features that never vary in the training rows out of the model: they keep their value
        in every image, and p in (1.56), (1.58), (67) and (70) counts the others only. False models
        them as all others, which is what 000 and 001 do.

    Attributes
    ----------
    mapping_ : permea.models.membership.Mapping
        The learned mapping from code to image.
    n_inducing_ : int
        Number M of inducing points in use.
    n_components_ : int
        Subspace dimension in use.
    scale_, precision_ : float
        σ² and β.
    n_iter_ : int
        Updates of β.
    n_features_in_ : int
        Number of features p.

    See Also
    --------
    permea.compose.ConditionallyDeep : several autoencoders in a chain, a CDMMA.
    permea.compose.Wide : several chains side by side, a wide CDMMA.

    References
    ----------
    Documents 001 (section 1.2.3, Algorithm 2) and 000 (section 3.1, Algorithm 2).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> eights = MembershipAutoencoder().fit(X[y == 8] / 16)
    >>> near, far = eights.distance(X[y == 8] / 16).mean(), eights.distance(X[y == 0] / 16).mean()
    >>> bool(near < 0.6 * far)
    True
    """

    n_components: int = 20
    drop_constant: bool = True

    _parameters: ClassVar[Accepted] = {"n_components": whole(1), "drop_constant": boolean}

    def fit(self, Y: Array, y: object = None) -> Self:
        """Learn the image of the rows of ``Y`` from their codes.

        Parameters
        ----------
        Y : array-like of shape (N, p)
            Training rows.
        y : ignored
            For the scikit-learn convention.

        Returns
        -------
        MembershipAutoencoder
            This autoencoder, fitted.
        """
        validate_parameters(self)
        Y = validate_data(self, Y, dtype=FLOATS)
        encoding = principal_encoding(Y, self.n_components, drop_constant=self.drop_constant)
        return self._learn(Y, Y, encoding, count_of("max_inducing", self.max_inducing, len(Y)))

    def next_layer(self, Y: Array, image: Array) -> "MembershipAutoencoder":
        """Fit the layer that reads ``image``, the output of the layers so far (001 Alg. 2).

        n_l = max(n − l + 1, 1); M_max is the M of this layer (1.62). In the model of 000, M stays
        and ν is infinite from the second layer on.
        """
        n_components = max(self.n_components_ - 1, min(1, self.n_components_))
        layer: MembershipAutoencoder = clone(self)
        layer.set_params(n_components=max(n_components, 1), max_inducing=self.n_inducing_)
        if self.disturbance == "gamma":
            layer.set_params(nu=math.inf)
        layer.n_features_in_ = self.n_features_in_
        dtype = self.encoding_.mean.dtype
        return layer._learn(
            np.asarray(Y, dtype),
            np.asarray(image, dtype),
            self.encoding_.narrowed(n_components),
            min(self.n_inducing_, len(Y)),
        )

    def _learn(self, Y: Array, source: Array, encoding: Encoding, limit: int) -> Self:
        """Learn the mapping from the codes of ``source`` to the rows of ``Y``."""
        self.encoding_ = encoding
        codes = encoding.centre(source) @ encoding.components
        self.mapping_, self.offset_ = self._learn_outputs(codes, Y[:, encoding.active], limit)
        self.n_components_ = encoding.n_components
        self.n_inducing_ = self.mapping_.points.shape[0]
        self.scale_ = self.mapping_.scale
        self.precision_ = self.mapping_.precision
        self.n_iter_ = self.mapping_.n_iter
        return self

    def _image_weights(self, coordinates: Array) -> Array:
        inputs = scale_inputs(coordinates[:, : self.n_components_], self.mapping_.scales)
        return gaussian_kernel(inputs, self.mapping_.points)

    def _image_map(self) -> tuple[Array, Array]:
        shift = self.offset_ - self.encoding_.mean[self.encoding_.active]
        return self.mapping_.coefficients, shift


def check_smoothing(disturbance: str, nu: float) -> None:
    """Refuse ν = ∞ where the number of inducing points is chosen by the smoothing level."""
    if disturbance == "precision" and math.isinf(nu):
        raise ParameterError(
            "nu=inf makes the smoothing level (1.54) zero for every number of inducing points, and "
            'disturbance="precision" chooses that number by it. Give a finite nu, or '
            'disturbance="gamma".'
        )


class Mapping(NamedTuple):
    """A learned membership mapping: everything that its prediction (001 eq. 1.60) needs."""

    scales: Array  #: (n,) square roots of the kernel weights
    points: Array  #: (M, n) inducing points in scaled inputs
    coefficients: Array  #: (M, p) σ² α
    scale: float  #: σ²
    precision: float  #: β
    smoothing: float  #: τ(M, σ²)
    n_iter: int  #: updates of β
    validation_error: float = math.nan  #: mean squared error on rows left out, if it was asked for

    def in_units(self, unit: float) -> "Mapping":
        """The mapping whose outputs are ``unit`` times these; (1.48) holds for it as well."""
        return self._replace(
            coefficients=self.coefficients * self.coefficients.dtype.type(unit),
            scale=self.scale * unit**2,
            precision=self.precision / unit**2,
            smoothing=self.smoothing * unit**2,
            validation_error=self.validation_error * unit**2,
        )

    def inducing_inputs(self) -> Array:
        """Inducing points in the units of the inputs; zero where an input never varied."""
        return unscale_inputs(self.points, self.scales)

    def __call__(self, X: Array) -> Array:
        """Outputs for rows of inputs, F(x) = G(x) α, in bounded memory."""
        scaled = scale_inputs(X, self.scales)
        outputs = np.empty((len(X), self.coefficients.shape[1]), self.coefficients.dtype)
        for part in batches(len(X), max(_CHUNK_ENTRIES // max(len(self.points), 1), 1)):
            outputs[part] = gaussian_kernel(scaled[part], self.points) @ self.coefficients
        return outputs


def learn_precision_mapping(
    X: Array,
    Y: Array,
    *,
    limit: int,
    kappa: float = 0.1,
    nu: float = 2.1,
    inducing: str = "kmeans",
    bandwidth: float | str = 1.0,
    tol: float = 1e-6,
    max_iter: int = 100,
    validate: bool = False,
) -> Mapping:
    """Learn a membership mapping by 001 Algorithm 1.

    Parameters
    ----------
    X : ndarray of shape (N, n)
    Y : ndarray of shape (N, p)
    limit : int
        Largest number of inducing points, M_max.
    kappa, nu : float
        Smallest smoothing level κ and degrees of freedom ν.
    inducing : {"kmeans", "inputs", "pivots"}
    bandwidth : float or "auto"
        Factor on the ranges that the kernel weights are made of; 1 is (1.53).
    tol : float
        The iteration ends when β changes by less than this share of itself.
    max_iter : int
    validate : bool
        Compute ``validation_error`` for a bandwidth that is given, too.

    Returns
    -------
    Mapping

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> mapping = learn_precision_mapping(X, X**2 - 0.34, limit=25, kappa=1e-3)
    >>> len(mapping.points), bool(np.abs(mapping(X) - X**2 + 0.34).max() < 0.1)
    (3, True)
    """
    common: dict[str, Any] = {
        "kappa": kappa, "nu": nu, "inducing": inducing, "tol": tol, "max_iter": max_iter
    }  # fmt: skip
    validate = validate or bandwidth == "auto"
    if bandwidth == "auto":
        bandwidth = _chosen(learn_precision_mapping, X, Y, "limit", limit, common)
    scales = unit_range_scales(X) / X.dtype.type(bandwidth)
    found = InducingSearch(scale_inputs(X, scales), limit, kappa, nu, inducing, scales).smoothest()
    # Steps 9 to 20 of the algorithm: σ², then α and β in turn until β converges.
    B, tau = found.features, found.smoothing
    variance = mean_variance(Y)
    rounding = float(np.finfo(np.float64).eps) * Y.shape[0]
    scale = 1.0 if tau >= variance else variance / max(tau, rounding)  # (1.57)
    path = RidgePath(B.T @ B, B.T @ Y)
    energy = float(np.einsum("ij,ij->", Y, Y, dtype=np.float64))
    error, n_iter = 1.0, 0  # 1/β
    while n_iter < max_iter:
        n_iter += 1
        previous, squares = error, path.residual(tau + error / scale, energy)
        error = max(squares, rounding * energy) / max(Y.size, 1)  # (1.58)
        if abs(error - previous) <= tol * previous:
            break
    strength = max(tau + error / scale, path.floor)
    Z = path.solve(strength)
    return Mapping(
        scales=scales,
        points=found.points,
        coefficients=solve_triangular(found.factor, Z, lower=True, trans=1, check_finite=False),
        scale=scale,
        precision=1.0 / max(error, float(np.finfo(np.float64).tiny)),
        smoothing=scale * tau,
        n_iter=n_iter,
        validation_error=path.left_out(strength, B, Y) if validate else math.nan,
    )


def _chosen(
    learn: Callable[..., "Mapping"], X: Array, Y: Array, name: str, M: int, common: dict[str, Any]
) -> float:
    """The bandwidth with which rows that are left out are predicted best.

    ``learn`` gets M, in proportion to the rows that are tried, under its ``name``.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> Y = np.sin(9 * X)
    >>> fixed = learn_precision_mapping(X, Y, limit=100, validate=True)
    >>> better = learn_precision_mapping(X, Y, limit=100, bandwidth="auto")
    >>> better.validation_error < 0.1 * fixed.validation_error
    True
    """
    rows = rows_to_try(len(X))
    X, Y, share = X[rows], Y[rows], len(X[rows]) / len(X)
    common = {**common, name: max(math.ceil(share * M), 1), "validate": True}
    return best_bandwidth(lambda width: learn(X, Y, bandwidth=width, **common).validation_error)


def mean_variance(Y: Array) -> float:
    """Sample variance of the outputs, averaged over their dimensions (right side of 1.56)."""
    if Y.shape[0] < 2 or Y.shape[1] == 0:
        return 0.0
    return float(np.var(Y, axis=0, ddof=1, dtype=np.float64).mean())


def learn_gamma_mapping(
    X: Array,
    Y: Array,
    *,
    n_inducing: int,
    nu: float = 2.1,
    input_variance: float | Array = 0.01,
    kernel_variance: float = 1.0,
    priors: Sequence[float] = _ONES,
    inducing: str = "kmeans",
    bandwidth: float | str = 1.0,
    tol: float = 1e-6,
    max_iter: int = 1000,
    validate: bool = False,
) -> Mapping:
    """Learn a membership mapping by 000 Algorithm 1.

    Every input x is known up to a Gaussian of variance σx² only, and the disturbance has the
    precision τ z, whose factors follow gamma membership functions with learned parameters.

    Parameters
    ----------
    X : ndarray of shape (N, n)
    Y : ndarray of shape (N, p)
    n_inducing : int
        Number M of inducing points; fewer where the inputs have fewer distinct values.
    nu : float
        Degrees of freedom ν, may be infinite.
    input_variance : float or ndarray of shape (n,)
        σx², the variance of every input.
    kernel_variance : float
        σ².
    priors : sequence of 6 floats
        a_τ, b_τ, a_r, b_r, a_s, b_s.
    inducing : {"kmeans", "inputs", "pivots"}
    bandwidth : float or "auto"
        Factor on the ranges that the kernel weights are made of; 1 is step 3.
    tol : float
        The iteration ends when β changes by less than this share of itself.
    max_iter : int
    validate : bool
        Compute ``validation_error`` for a bandwidth that is given, too.

    Returns
    -------
    Mapping

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> mapping = learn_gamma_mapping(X, X**2 - 0.34, n_inducing=25, input_variance=1e-4)
    >>> bool(np.abs(mapping(X) - X**2 + 0.34).max() < 0.1)
    True
    """
    common: dict[str, Any] = {
        "nu": nu, "input_variance": input_variance, "kernel_variance": kernel_variance,
        "priors": priors, "inducing": inducing, "tol": tol, "max_iter": max_iter,
    }  # fmt: skip
    validate = validate or bandwidth == "auto"
    if bandwidth == "auto":
        bandwidth = _chosen(learn_gamma_mapping, X, Y, "n_inducing", n_inducing, common)
    scales = unit_range_scales(X) / X.dtype.type(bandwidth)
    scaled = scale_inputs(X, scales)
    points = inducing_points(scaled, pivot_order(scaled, n_inducing)[0], inducing, scales)
    # In scaled inputs every kernel weight is 1 and the variance of input k is w_k σx².
    spread = scales**2 * np.asarray(input_variance, dtype=X.dtype)
    kernel = AveragedKernel.of(scaled, points, np.ones_like(scales), spread)
    system = GammaSystem(gaussian_kernel(points, points), kernel, Y, nu, kernel_variance)

    gammas, n_iter = Gammas.initial(priors), 0
    while n_iter < max_iter:
        n_iter += 1
        previous = gammas.precision
        gammas = gammas.updated(system.objective(previous), Y.size, priors)
        if abs(gammas.precision - previous) <= tol * previous:
            break
    u, c1 = averaged_weights(np.ones_like(scales), spread)
    return Mapping(
        scales=scales * np.sqrt(u),
        points=points * np.sqrt(u),
        coefficients=c1 * system.coefficients(gammas.precision),
        scale=kernel_variance,
        precision=gammas.precision,
        smoothing=kernel_variance * system.smoothing,
        n_iter=n_iter,
        validation_error=system.left_out(gammas.precision, kernel, Y) if validate else math.nan,
    )


class GammaSystem:
    """The linear system of 000 eq. (89) for every value of τ z.

    With the matrices of σ² = 1, K_aa = L Lᵀ and t = (ξ − Tr K_aa⁻¹Φ)/(ν + M − 2), it is ridge
    regression with the matrix L⁻¹ Φ L⁻ᵀ + t I and strength 1/(σ² τ z). ν = ∞ makes t vanish (000
    Algorithm 2).
    """

    def __init__(
        self, Kaa: Array, kernel: "AveragedKernel", Y: Array, nu: float, scale: float = 1.0
    ) -> None:
        M = Kaa.shape[0]
        self.scale = scale
        self.factor = jittered_cholesky(Kaa.copy())
        half = solve_triangular(self.factor, kernel.Phi, lower=True, check_finite=False)
        H = solve_triangular(self.factor, half.T, lower=True, check_finite=False)
        self.smoothing = max(kernel.xi - float(np.trace(H)), 0.0) / (nu + M - 2)
        H = 0.5 * (H + H.T)
        H[np.diag_indices(M)] += self.smoothing
        C = solve_triangular(self.factor, kernel.Psi.T @ Y, lower=True, check_finite=False)
        self.path = RidgePath(H, C)
        self.energy = float(np.einsum("ij,ij->", Y, Y, dtype=np.float64))
        self.rounding = float(np.finfo(np.float64).eps) * max(self.energy, Y.size, 1)

    def objective(self, precision: float) -> float:
        """O of 000 eq. (96).

        With m = K_aa α its four terms are ‖Y‖² − 2⟨Z, C⟩ + ⟨Z, H Z⟩, and H Z = C − Z/(σ² τ z).
        """
        strength = 1 / (self.scale * precision)
        return max(self.path.residual(strength, self.energy), self.rounding)

    def left_out(self, precision: float, kernel: "AveragedKernel", Y: Array) -> float:
        """Mean squared error on rows that are left out; their inputs are counted as certain."""
        B = solve_triangular(self.factor, kernel.Psi.T, lower=True, check_finite=False).T
        return self.path.left_out(1 / (self.scale * precision), B, Y)

    def coefficients(self, precision: float) -> Array:
        """σ² α with α of 000 eq. (89)."""
        Z = self.path.solve(1 / (self.scale * precision))
        return np.asarray(solve_triangular(self.factor, Z, lower=True, trans=1, check_finite=False))


class Gammas(NamedTuple):
    """Shapes and rates of the gamma membership functions of τ, z, r and s (000 Def. 6)."""

    a_tau: float = 1.0
    b_tau: float = 1.0
    a_z: float = 1.0
    b_z: float = 1.0
    a_r: float = 1.0
    b_r: float = 1.0
    a_s: float = 1.0
    b_s: float = 1.0

    @property
    def precision(self) -> float:
        """⟨τ z⟩, the precision β of the disturbance (000 eq. 87 and 95)."""
        return float((self.a_tau / self.b_tau) * (self.a_z / self.b_z))

    @classmethod
    def initial(cls, priors: Sequence[float] = _ONES) -> "Gammas":
        """All ones, then s by (76) and (77) (000 Algorithm 1, steps 5 to 7)."""
        return cls(a_s=priors[4] + 1.0, b_s=priors[5] + 1.0)

    def updated(
        self,
        O: float,  # noqa: E741
        size: int,
        priors: Sequence[float] = _ONES,
    ) -> "Gammas":
        """One round of 000 eq. (67) to (77) for the objective O of (78) and size = N p."""
        prior_tau, rate_tau, prior_r, rate_r, prior_s, rate_s = priors
        a_tau = prior_tau + 0.5 * size
        b_tau = rate_tau + 0.5 * self.a_z / self.b_z * O
        a_z = 1 + 0.5 * size + self.a_r / self.b_r
        b_z = (self.a_r / self.b_r) * (self.a_s / self.b_s) + 0.5 * a_tau / b_tau * O
        a_r = float(prior_r)
        b_r = (
            rate_r
            + (self.a_s / self.b_s) * (a_z / b_z)
            - (digamma(self.a_s) - np.log(self.b_s))
            - 1
            - (digamma(a_z) - np.log(b_z))
        )
        a_s = prior_s + a_r / b_r
        b_s = rate_s + (a_r / b_r) * (a_z / b_z)
        return Gammas(a_tau, b_tau, a_z, b_z, a_r, float(b_r), a_s, b_s)


class AveragedKernel(NamedTuple):
    """Kernel averages over uncertain inputs at σ² = 1 (000 eq. 153 to 155, Appendix D).

        Ψ_im  = ⟨k(x^i, a^m)⟩                = c₁ exp(−½ Σ_k u_k |a^m_k − x^i_k|²),
        Φ_mm' = Σ_i ⟨k(a^m, x^i) k(x^i, a^m')⟩
              = c₂ exp(−¼ Σ_k (w_k − v_k)|a^m_k − a^m'_k|²) (EᵀE)_mm',
                E_im = exp(−½ Σ_k v_k |a^m_k − x^i_k|²),

    with u_k = w_k/(1 + w_k σx²), v_k = w_k/(1 + 2 w_k σx²), c₁ = Π(1 + w_k σx²)^−½ and
    c₂ = Π(1 + 2 w_k σx²)^−½. The second form of Φ is 000 eq. (155), with index k on both of its
    inducing points, after completing the square: the sum over N rows of M² exponentials becomes
    one product of N × M matrices.
    """

    Psi: Array  #: (N, M)
    Phi: Array  #: (M, M)
    xi: float  #: N

    @classmethod
    def of(
        cls, X: Array, A: Array, weights: Array, input_variance: float | Array
    ) -> "AveragedKernel":
        """Averages for inputs ``X``, inducing points ``A``, weights w and variances σx²."""
        u, c1 = averaged_weights(weights, input_variance)
        v, c2 = averaged_weights(weights, 2 * input_variance)
        E = gaussian_kernel(X * np.sqrt(v), A * np.sqrt(v))
        rest = np.sqrt(np.maximum(weights - v, 0) / 2)
        return cls(
            Psi=c1 * gaussian_kernel(X * np.sqrt(u), A * np.sqrt(u)),
            Phi=c2 * gaussian_kernel(A * rest, A * rest) * (E.T @ E),
            xi=float(X.shape[0]),
        )


def averaged_weights(weights: Array, variance: float | Array) -> tuple[Array, float]:
    """Weights and factor of a Gaussian kernel after averaging one side over a Gaussian.

    Examples
    --------
    >>> import numpy as np
    >>> averaged_weights(np.array([1.0, 0.0]), 3.0)
    (array([0.25, 0.  ]), 0.5)
    """
    factors = 1 + weights * variance
    return weights / factors, float(np.exp(-0.5 * np.log(factors).sum()))

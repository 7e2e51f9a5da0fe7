"""Variational learning of membership mappings with a precision for the disturbance (001 Alg. 1).

The outputs of p zero-mean Student-t membership mappings at the N inputs are represented through
their values at M inducing points a, and the data by y = f + v with a Gaussian disturbance of
precision β. The optimal membership function of the values at a is Gaussian (001 Result 1), and its
mean gives

    F(x) = G(x) α,   α = (K_xaᵀ K_xa + τ K_aa + K_aa/β)⁻¹ K_xaᵀ y,          (001 eq. 1.48 to 1.50)

with kernel σ² exp(−½ Σ_k w_k |x_k − a_k|²). With K_aa = σ² L Lᵀ and B = k_xa L⁻ᵀ this is ridge
regression on the features B with strength τ(M, 1) + 1/(β σ²), which is what is computed.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from permea.models.base import Array
from permea.models.factor import RidgePath
from permea.models.inducing import Inducing, find_inducing, gaussian_kernel, unit_range_scales

_SMALLEST_BANDWIDTH, _LARGEST_BANDWIDTH = 2.0**-8, 2.0**8
_PATIENCE = 2  # bandwidths in a row that may fail to improve
_CHUNK_ENTRIES = 4_000_000  # kernel values held at once: bounds the memory of every query


class Mapping(NamedTuple):
    """A learned membership mapping: everything that its prediction (001 eq. 1.60) needs."""

    scales: Array  #: (n,) square roots of the kernel weights
    points: Array  #: (M, n) inducing points in scaled inputs
    coefficients: Array  #: (M, p) σ² α
    scale: float  #: σ²
    precision: float  #: β
    smoothing: float  #: τ(M, σ²)
    n_iter: int  #: updates of β
    validation_error: float = math.nan  #: mean squared error by generalised cross-validation

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
        inputs = np.zeros_like(self.points)
        np.divide(self.points, self.scales, out=inputs, where=self.scales > 0)
        return inputs

    def __call__(self, X: Array) -> Array:
        """Outputs for rows of inputs, F(x) = G(x) α, in bounded memory."""
        scaled = scale_inputs(X, self.scales)
        step = max(_CHUNK_ENTRIES // max(self.points.shape[0], 1), 1)
        if X.shape[0] <= step:
            return gaussian_kernel(scaled, self.points) @ self.coefficients
        image = np.empty((X.shape[0], self.coefficients.shape[1]), self.coefficients.dtype)
        for start in range(0, X.shape[0], step):
            part = slice(start, start + step)
            image[part] = gaussian_kernel(scaled[part], self.points) @ self.coefficients
        return image


def scale_inputs(X: Array, scales: Array) -> Array:
    """Inputs times the square roots of their weights, clipped where squares would overflow.

    Out there every kernel value is zero whatever the exact distance is.
    """
    limit = float(np.sqrt(np.finfo(scales.dtype).max)) / 1e6
    with np.errstate(over="ignore"):
        return np.clip(X * scales, -limit, limit)


def mean_variance(Y: Array) -> float:
    """Sample variance of the outputs, averaged over their dimensions (right side of 1.56)."""
    if Y.shape[0] < 2 or Y.shape[1] == 0:
        return 0.0
    return float(np.var(Y, axis=0, ddof=1, dtype=np.float64).mean())


def learn_precision_mapping(
    X: Array,
    Y: Array,
    *,
    limit: int,
    kappa: float = 0.1,
    nu: float = 2.1,
    inducing: str = "kmeans",
    bandwidth: float = 1.0,
    tol: float = 1e-6,
    max_iter: int = 100,
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
    inducing : {"kmeans", "pivots"}
    bandwidth : float
        Factor on the ranges that the kernel weights are made of; 1 is (1.53).
    tol : float
        The iteration ends when β changes by less than this share of itself.
    max_iter : int

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
    scales = unit_range_scales(X) / X.dtype.type(bandwidth)
    found = find_inducing(scale_inputs(X, scales), limit, kappa, nu, inducing)
    return _fit_precision(found, Y, scales, tol, max_iter)


def _fit_precision(found: Inducing, Y: Array, scales: Array, tol: float, max_iter: int) -> Mapping:
    """Steps 9 to 20 of 001 Algorithm 1: σ², then α and β in turn until β converges."""
    B, tau = found.features, found.smoothing
    variance = mean_variance(Y)
    rounding = float(np.finfo(np.float64).eps) * Y.shape[0]
    scale = 1.0 if tau >= variance else variance / max(tau, rounding)  # (1.57)
    path = RidgePath(B.T @ B, B.T @ Y)
    energy = float(np.einsum("ij,ij->", Y, Y, dtype=np.float64))

    error, n_iter = 1.0, 0  # 1/β
    while n_iter < max_iter:
        n_iter += 1
        strength = max(tau + error / scale, path.floor)
        # ‖Y − BZ‖² = ‖Y‖² − ⟨Z, C⟩ − λ‖Z‖² because (BᵀB + λI) Z = C = BᵀY
        squares = energy - path.inner(strength) - strength * path.squared_norm(strength)
        previous = error
        error = max(squares, rounding * energy) / max(Y.size, 1)  # (1.58)
        if abs(error - previous) <= tol * previous:
            break
    strength = max(tau + error / scale, path.floor)
    Z = path.solve(strength)
    left = 1 - path.trace(strength) / Y.shape[0]
    return Mapping(
        scales=scales,
        points=found.points,
        coefficients=solve_triangular(found.factor, Z, lower=True, trans=1, check_finite=False),
        scale=scale,
        precision=1.0 / max(error, float(np.finfo(np.float64).tiny)),
        smoothing=scale * tau,
        n_iter=n_iter,
        validation_error=error / max(left, rounding) ** 2,
    )


def learn_best_bandwidth(X: Array, Y: Array, **parameters: Any) -> Mapping:
    """Learn with the bandwidth, a power of two, that generalised cross-validation prefers.

    The weights of (1.53) are wide for few inputs and narrow for many, because squared distances
    add up over the inputs. From 1 on, the bandwidth is divided or else multiplied by four while
    that lowers

        GCV = (1/pN) ‖Y − HY‖² / (1 − Tr H / N)²,     H = B (BᵀB + λI)⁻¹ Bᵀ,

    which estimates the error on new rows without leaving any out, and in the end half and double
    of the best are tried. M follows 001 Algorithm 1 for every bandwidth. The estimate can be too
    optimistic about narrow kernels: check the choice on rows of your own.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> fixed = learn_precision_mapping(X, np.sin(9 * X), limit=100)
    >>> better = learn_best_bandwidth(X, np.sin(9 * X), limit=100)
    >>> better.validation_error < 0.1 * fixed.validation_error
    True
    """
    tried = {1.0: learn_precision_mapping(X, Y, bandwidth=1.0, **parameters)}

    def improves(bandwidth: float) -> bool:
        least = min(mapping.validation_error for mapping in tried.values())
        tried[bandwidth] = learn_precision_mapping(X, Y, bandwidth=bandwidth, **parameters)
        return tried[bandwidth].validation_error < least

    def best() -> float:
        return min(tried, key=lambda bandwidth: tried[bandwidth].validation_error)

    for factor in (0.25, 4.0):
        bandwidth, failures = factor, 0
        while failures < _PATIENCE and _SMALLEST_BANDWIDTH <= bandwidth <= _LARGEST_BANDWIDTH:
            failures = 0 if improves(bandwidth) else failures + 1
            bandwidth *= factor
        if best() != 1.0:
            break
    for bandwidth in (best() / 2, best() * 2):
        improves(bandwidth)
    return tried[best()]

"""Where the auxiliary inducing points stand, and how many there are (001 eq. 1.51 to 1.57).

A membership mapping interpolates between M inducing points. 001 Algorithm 1 lowers M from its
maximum by a tenth at a time, with a k-means clustering each time, until the smoothing level

    τ(M, 1) = (Tr K_xx − Tr K_aa⁻¹ K_xaᵀ K_xa) / (ν + M − 2)                         (001 eq. 1.54)

reaches κ. Here one pivoted Cholesky factorisation of the kernel matrix, stopped early, orders the
rows so that its first m rows are good centres for every m at once. It tells where in the sequence
the crossing must be near, and starts every clustering close to its end: two or three short
clusterings take the place of twenty long ones, and nothing is drawn at random.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array

from permea._arrays import Array
from permea.models.linear_algebra import RidgePath, jittered_cholesky

_MAX_LLOYD_STEPS = 100
_SPARE_PIVOTS = 1.25  # how far beyond the crossing the pivots go, for k-means may differ a little


class Inducing(NamedTuple):
    """Inducing points with the matrices of unit scale (σ² = 1) that belong to them."""

    points: Array  #: (M, n) a, in scaled inputs
    factor: Array  #: (M, M) lower triangular L with K_aa = L Lᵀ
    features: Array  #: (N, M) B = K_xa L⁻ᵀ, so that B Bᵀ = K_xa K_aa⁻¹ K_xaᵀ
    smoothing: float  #: τ(M, 1)


def gaussian_kernel(X: Array, A: Array) -> Array:
    """Kernel of unit scale between rows of scaled inputs, exp(−‖x − a‖²/2) (001 eq. 1.17).

    Examples
    --------
    >>> import numpy as np
    >>> gaussian_kernel(np.array([[0.0]]), np.array([[0.0], [2.0]])).round(4)
    array([[1.    , 0.1353]])
    """
    K = X @ A.T
    K -= 0.5 * np.einsum("ij,ij->i", X, X)[:, None]
    K -= 0.5 * np.einsum("ij,ij->i", A, A)[None, :]
    np.minimum(K, 0, out=K)
    return np.asarray(np.exp(K, out=K))


def unit_range_scales(X: Array) -> Array:
    """Square roots of the kernel weights w of 001 eq. (1.53), one over the range of each input.

    An input that never varies has no range. It gets weight 0: it says nothing about any output.
    """
    span = np.ptp(X, axis=0)
    scales = np.zeros_like(span)
    np.divide(1, span, out=scales, where=span > np.finfo(span.dtype).tiny * 4)
    return np.asarray(scales)


def smoothing_level(features: Array, nu: float) -> float:
    """τ(M, 1) of 001 eq. (1.54) from B, whose squared norm is the trace of K_aa⁻¹ K_xaᵀ K_xa."""
    N, M = features.shape
    explained = float(np.einsum("ij,ij->", features, features, dtype=np.float64))
    return float(max(N - explained, 0.0) / (nu + M - 2))


def pivot_order(X: Array, limit: int, kappa: float, nu: float) -> tuple[Array, int]:
    """Rows in the order of a pivoted Cholesky factorisation of their kernel matrix.

    Each pivot is the row that those before it explain worst, so no two pivots coincide. The second
    value is the largest m for which the first m pivots reach τ ≥ κ.
    """
    N = X.shape[0]
    half_norms = 0.5 * np.einsum("ij,ij->i", X, X)
    residual = np.ones(N, dtype=X.dtype)
    rows = np.empty((min(limit, N), N), dtype=X.dtype)
    order = np.empty(rows.shape[0], dtype=np.intp)
    floor = N * float(np.finfo(X.dtype).eps)
    crossing = 1
    for m in range(rows.shape[0]):
        pivot = int(residual.argmax())
        if m and (residual[pivot] <= floor or m > _SPARE_PIVOTS * crossing + 4):
            return order[:m], crossing
        row = X @ X[pivot]
        row -= half_norms
        row -= half_norms[pivot]
        np.exp(np.minimum(row, 0, out=row), out=row)
        row -= rows[:m, pivot] @ rows[:m]
        row /= np.sqrt(residual[pivot])
        rows[m], order[m] = row, pivot
        residual -= row * row
        residual[pivot] = 0
        np.maximum(residual, 0, out=residual)
        if float(residual.sum(dtype=np.float64)) / (nu + m - 1) >= kappa:
            crossing = m + 1
    return order, crossing


def k_means(X: Array, centres: Array) -> tuple[Array, Array]:
    """Lloyd's algorithm from given centres; returns the centroids and the labels.

    A cluster that loses all its rows keeps its centre, so the number of clusters never changes.

    Examples
    --------
    >>> import numpy as np
    >>> centroids, labels = k_means(np.array([[0.0], [1.0], [9.0]]), np.array([[0.0], [1.0]]))
    >>> centroids.ravel(), labels
    (array([0.5, 9. ]), array([0, 0, 1]))
    """
    N = X.shape[0]
    labels = np.full(N, -1)
    for _ in range(_MAX_LLOYD_STEPS):
        gap = X @ centres.T
        gap -= 0.5 * np.einsum("ij,ij->i", centres, centres)
        nearest = gap.argmax(axis=1)
        if np.array_equal(nearest, labels):
            break
        labels = nearest
        sizes = np.bincount(labels, minlength=centres.shape[0]).astype(X.dtype)
        members = csr_array((np.ones(N, X.dtype), labels, np.arange(N + 1)), (N, len(sizes)))
        sums = members.T @ X
        filled = sizes > 0
        centres = centres.copy()
        centres[filled] = sums[filled] / sizes[filled, None]
    return centres, labels


def shrinking_sequence(largest: int) -> list[int]:
    """The values of M that 001 Algorithm 1 tries: ⌈0.9 M⌉, but always at least one less.

    Without "at least one less" the sequence stands still below ten.

    Examples
    --------
    >>> shrinking_sequence(14)
    [14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]
    >>> shrinking_sequence(100)[:5]
    [100, 90, 81, 73, 66]
    """
    values = [largest]
    while values[-1] > 1:
        values.append(min(-(-9 * values[-1] // 10), values[-1] - 1))
    return values


class InducingSearch:
    """Finds M and the inducing points for rows of scaled inputs.

    Parameters
    ----------
    X : ndarray of shape (N, n)
        Inputs multiplied by the square roots of the kernel weights.
    limit : int
        Largest number of inducing points.
    kappa, nu : float
        Smallest smoothing level κ and degrees of freedom ν (001 Algorithm 1, eq. 1.52).
    method : {"kmeans", "pivots"}
        Centroids of k-means, or the pivots themselves, which are training rows.
    """

    def __init__(self, X: Array, limit: int, kappa: float, nu: float, method: str) -> None:
        self.X, self.limit, self.kappa, self.nu, self.method = X, limit, kappa, nu, method
        self.order, self.crossing = pivot_order(X, limit, kappa, nu)

    def at(self, M: int) -> Inducing:
        """The inducing points for one M, or fewer where the rows have fewer distinct values."""
        if self.order.size < M:
            self.order, _ = pivot_order(self.X, M, 0.0, self.nu)
        points = self.X[self.order[:M]]
        if self.method == "kmeans":
            points, _ = k_means(self.X, points)
        factor = jittered_cholesky(gaussian_kernel(points, points))
        features = solve_triangular(
            factor, gaussian_kernel(points, self.X), lower=True, check_finite=False
        ).T
        return Inducing(points, factor, features, smoothing_level(features, self.nu))

    def smoothest(self) -> Inducing:
        """The first M of the shrinking sequence with τ(M, 1) ≥ κ, or M = 1 when there is none.

        The walk starts where the pivots cross κ and goes up or down from there. It ends at an M
        that reaches κ while the next larger one of the sequence does not, which is where the loop
        of 001 Algorithm 1 ends too wherever τ falls with M.
        """
        sequence = shrinking_sequence(self.limit)
        position = int(np.searchsorted([-M for M in sequence], -self.crossing))
        position = min(position, len(sequence) - 1)
        found = self.at(sequence[position])
        if found.smoothing >= self.kappa:
            while position > 0:
                larger = self.at(sequence[position - 1])
                if larger.smoothing < self.kappa:
                    break
                position, found = position - 1, larger
            return found
        while found.smoothing < self.kappa and position < len(sequence) - 1:
            position += 1
            found = self.at(sequence[position])
        return found


def find_inducing(X: Array, limit: int, kappa: float, nu: float, method: str) -> Inducing:
    """Inducing points for scaled inputs ``X``: the largest M up to ``limit`` with τ(M, 1) ≥ κ.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> found = find_inducing(X, 100, 0.1, 2.1, "kmeans")
    >>> len(found.points), found.smoothing >= 0.1
    (2, True)
    """
    return InducingSearch(X, limit, kappa, nu, method).smoothest()


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

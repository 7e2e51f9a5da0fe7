"""Inducing points: where they are placed, and how many there are (001 eq. 1.51 to 1.57).

A membership mapping interpolates between M inducing points. 001 Algorithm 1 lowers M from its
maximum by a tenth at a time, with a k-means clustering each time, until the smoothing level

    τ(M, 1) = (Tr K_xx − Tr K_aa⁻¹ K_xaᵀ K_xa) / (ν + M − 2)                         (001 eq. 1.54)

reaches κ. Here one pivoted Cholesky factorisation of the kernel matrix, stopped early, orders the
rows so that its first m rows are good centres for every m at once. It shows where in the sequence
the crossing must be near, and starts every clustering close to its end: two or three short
clusterings take the place of twenty long ones, and nothing is random. The rules of the fuzzy
models stand at points that are found in the same way.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array

from permea._arrays import Array
from permea.models.linear_algebra import jittered_cholesky

_MAX_LLOYD_STEPS = 100
_SMALLEST_BANDWIDTH, _LARGEST_BANDWIDTH = 2.0**-8, 2.0**8
_MOST_FAILURES = 2  # bandwidths in a row that may fail to improve
_ENOUGH_ROWS = 1000  # to choose a bandwidth
_SPARE_PIVOTS = 1.25  # how far beyond the crossing the pivots go, as k-means may differ a little


class Inducing(NamedTuple):
    """Inducing points with the matrices of unit scale (σ² = 1) that belong to them."""

    points: Array  #: (M, n) a, in scaled inputs
    factor: Array  #: (M, M) lower triangular L with K_aa = L Lᵀ
    features: Array  #: (N, M) B = K_xa L⁻ᵀ, so that B Bᵀ = K_xa K_aa⁻¹ K_xaᵀ
    smoothing: float  #: τ(M, 1)


class InducingSearch:
    """Finds inducing points for scaled inputs: the largest M up to a limit with τ(M, 1) ≥ κ.

    Parameters
    ----------
    X : ndarray of shape (N, n)
        Inputs multiplied by the square roots of the kernel weights.
    limit : int
        Largest number of inducing points.
    kappa, nu : float
        Smallest smoothing level κ and degrees of freedom ν (001 Algorithm 1, eq. 1.52).
    method : {"kmeans", "inputs", "pivots"}
        See `inducing_points`.
    scales : ndarray of shape (n,)
        The square roots of the kernel weights; for "inputs" only.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> found = InducingSearch(X, 100, 0.1, 2.1, "kmeans").smoothest()
    >>> len(found.points), found.smoothing >= 0.1
    (2, True)
    """

    def __init__(
        self,
        X: Array,
        limit: int,
        kappa: float,
        nu: float,
        method: str,
        scales: Array | None = None,
    ) -> None:
        self.X, self.limit, self.kappa, self.nu, self.method = X, limit, kappa, nu, method
        self.scales = np.ones(X.shape[1], X.dtype) if scales is None else scales
        self.order, self.crossing = pivot_order(X, limit, kappa, nu)

    def at(self, M: int) -> Inducing:
        """The inducing points for one M, or fewer where the rows have fewer distinct values."""
        if self.order.size < M:
            self.order, _ = pivot_order(self.X, M)
        points = inducing_points(self.X, self.order[:M], self.method, self.scales)
        factor = jittered_cholesky(gaussian_kernel(points, points))
        features = solve_triangular(
            factor, gaussian_kernel(points, self.X), lower=True, check_finite=False
        ).T
        return Inducing(points, factor, features, smoothing_level(features, self.nu))

    def smoothest(self) -> Inducing:
        """The first M of the shrinking sequence with τ(M, 1) ≥ κ, or M = 1 when there is none.

        The search starts where the pivots cross κ and goes up or down from there. It ends at an M
        that reaches κ while the next larger one of the sequence does not, which is where the loop
        of 001 Algorithm 1 ends too wherever τ falls with M.
        """
        sequence = shrinking_sequence(self.limit)
        position = int(np.searchsorted([-M for M in sequence], -self.crossing))
        position = min(position, len(sequence) - 1)
        found = self.at(sequence[position])
        while found.smoothing >= self.kappa and position > 0:
            larger = self.at(sequence[position - 1])
            if larger.smoothing < self.kappa:
                break
            position, found = position - 1, larger
        while found.smoothing < self.kappa and position < len(sequence) - 1:
            position += 1
            found = self.at(sequence[position])
        return found


def inducing_points(X: Array, pivots: Array, method: str, scales: Array) -> Array:
    """Inducing points in scaled inputs, found from some rows of them.

    Parameters
    ----------
    X : ndarray of shape (N, n)
        Scaled inputs.
    pivots : ndarray of shape (M,)
        Numbers of the rows to start from.
    method : {"kmeans", "inputs", "pivots"}
        "kmeans": centroids of scaled inputs, the metric of the kernel. "inputs": centroids of the
        inputs in their own units (001 eq. 1.51). "pivots": the rows themselves.
    scales : ndarray of shape (n,)
        What the inputs were multiplied by.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [9.0]])
    >>> inducing_points(X, np.array([0, 2]), "kmeans", np.ones(1)).ravel()
    array([0.5, 9. ])
    """
    if method == "kmeans":
        return k_means(X, X[pivots])[0]
    if method == "inputs":
        inputs = unscale_inputs(X, scales)
        return scale_inputs(k_means(inputs, inputs[pivots])[0], scales)
    return np.asarray(X[pivots])


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


def pivot_order(X: Array, limit: int, kappa: float = 0.0, nu: float = 2.1) -> tuple[Array, int]:
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

    An input that never varies has no range. It gets weight 0, as it carries no information.
    """
    span = np.ptp(X, axis=0)
    scales = np.zeros_like(span)
    np.divide(1, span, out=scales, where=span > np.finfo(span.dtype).tiny * 4)
    return np.asarray(scales)


def best_bandwidth(error_of: Callable[[float], float]) -> float:
    """The bandwidth, a power of two, with the smallest error.

    The weights of (1.53) are wide for few inputs and narrow for many, because squared distances
    add up over the inputs. From 1 on, the bandwidth is divided by four while that lowers the error,
    and multiplied by four while that does; in the end half and double of the best are tried.

    Examples
    --------
    >>> best_bandwidth(lambda bandwidth: abs(bandwidth - 0.13))
    0.125
    """
    tried = {1.0: error_of(1.0)}
    for factor in (0.25, 4.0):
        bandwidth, failures, least = factor, 0, tried[1.0]
        while failures < _MOST_FAILURES and _SMALLEST_BANDWIDTH <= bandwidth <= _LARGEST_BANDWIDTH:
            tried[bandwidth] = error_of(bandwidth)
            failures = 0 if tried[bandwidth] < least else failures + 1
            least = min(least, tried[bandwidth])
            bandwidth *= factor
    best = min(tried, key=lambda bandwidth: tried[bandwidth])
    tried.update({bandwidth: error_of(bandwidth) for bandwidth in (best / 2, best * 2)})
    return min(tried, key=lambda bandwidth: tried[bandwidth])


def rows_to_try(N: int) -> slice | Array:
    """Rows on which a bandwidth is chosen: all, or a fixed choice of a thousand.

    Examples
    --------
    >>> rows_to_try(10), len(rows_to_try(10_000))
    (slice(None, None, None), 1000)
    """
    if N <= _ENOUGH_ROWS:
        return slice(None)
    return np.sort(np.random.default_rng(0).permutation(N)[:_ENOUGH_ROWS])


def scale_inputs(X: Array, scales: Array) -> Array:
    """Inputs times the square roots of their weights, clipped where squares would overflow.

    There every kernel value is zero whatever the exact distance is.
    """
    limit = float(np.sqrt(np.finfo(scales.dtype).max)) / 1e6
    with np.errstate(over="ignore"):
        return np.clip(X * scales, -limit, limit)


def unscale_inputs(scaled: Array, scales: Array) -> Array:
    """Scaled inputs in their own units; zero where an input never varied."""
    inputs = np.zeros_like(scaled)
    np.divide(scaled, scales, out=inputs, where=scales > 0)
    return inputs


def smoothing_level(features: Array, nu: float) -> float:
    """τ(M, 1) of 001 eq. (1.54) from B, whose squared norm is the trace of K_aa⁻¹ K_xaᵀ K_xa."""
    N, M = features.shape
    explained = float(np.einsum("ij,ij->", features, features, dtype=np.float64))
    return float(max(N - explained, 0.0) / (nu + M - 2))

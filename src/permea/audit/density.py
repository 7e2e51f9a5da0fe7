r"""Least squares density difference: how far apart two densities are, seen through samples.

The problem: given rows drawn from :math:`p` and rows drawn from :math:`q`, estimate

.. math:: L^2(p, q) = \int (p(x) - q(x))^2\,dx

without estimating the two densities first (Sugiyama et al. 2013). The difference itself is modelled
as :math:`g(x) = \sum_l \theta_l \exp(-\|x - c_l\|^2 / 2\sigma^2)` and fitted by regularised least
squares:

.. math:: \hat\theta = (H + \lambda I)^{-1} \hat h, \qquad
    H_{lm} = (\pi\sigma^2)^{d/2} e^{-\|c_l - c_m\|^2 / 4\sigma^2}, \qquad
    \hat h_l = \operatorname{mean}_p \phi_l - \operatorname{mean}_q \phi_l,

and :math:`\hat L^2 = 2\hat h^\top\hat\theta - \hat\theta^\top H \hat\theta`, which is never
negative.

References
----------
Sugiyama, Kanamori, Suzuki, du Plessis, Liu, Takeuchi (2013), Density-Difference Estimation,
Neural Computation 25(10).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

from permea._arrays import Array

#: Kernel widths and penalties tried, for data scaled to unit spread in every coordinate.
WIDTHS: tuple[float, ...] = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
PENALTIES: tuple[float, ...] = tuple(np.logspace(-6, 1, 15))
_BINS_PER_WIDTH = 100
_CHUNK_ENTRIES = 4_000_000


@dataclass(frozen=True)
class DensityDifference:
    """A fitted density difference.

    Attributes
    ----------
    value : float
        The estimate of the integrated squared difference, in the units of the samples.
    width, penalty : float
        The chosen kernel width σ (in the units of the scaled samples) and penalty λ.
    centers : ndarray of shape (n_centers, n_features)
        The scaled centres of the basis.
    weights : ndarray of shape (n_centers,)
        θ.
    scale : ndarray of shape (n_features,)
        The spread by which each coordinate was divided.
    """

    value: float
    width: float
    penalty: float
    centers: Array
    weights: Array
    scale: Array

    def __call__(self, points: ArrayLike) -> Array:
        """Estimate p − q at each point, in the units of the samples."""
        rows = _as_rows(points, "points") / self.scale
        difference: Array = _basis(rows, self.centers, self.width) @ self.weights
        return difference / float(np.prod(self.scale))


def density_difference(a: ArrayLike, b: ArrayLike, **options: Any) -> float:
    r"""Estimate :math:`\int (p_a(x) - p_b(x))^2\,dx` from samples of both densities.

    Parameters
    ----------
    a, b : array-like of shape (n,) or (n, n_features)
        Samples of the two densities.
    **options
        ``widths``, ``penalties``, ``n_centers``, ``n_folds``, ``centers``, ``standardize``,
        ``random_state``: see :func:`fit_density_difference`.

    Returns
    -------
    float
        The estimate, at least zero. It has the unit of a density: measuring the samples in half the
        unit halves the value of one-dimensional ones.

    Notes
    -----
    A density must exist. Where one sample sits on a single value (the distances of a classifier
    that returns its own training rows, say) the true answer is infinite, and the estimate is a
    large number that the smallest kernel width limits.

    Examples
    --------
    The truth for two unit Gaussians one apart is ``(1 - exp(-1/4)) / sqrt(pi)`` = 0.1248.

    >>> import numpy as np
    >>> from permea.audit import density_difference
    >>> rng = np.random.default_rng(0)
    >>> estimate = density_difference(rng.normal(0, 1, 50000), rng.normal(1, 1, 50000))
    >>> bool(abs(estimate - 0.1248) < 0.005)
    True
    """
    return fit_density_difference(a, b, **options).value


def fit_density_difference(
    a: ArrayLike,
    b: ArrayLike,
    *,
    widths: Sequence[float] = WIDTHS,
    penalties: Sequence[float] = PENALTIES,
    n_centers: int = 200,
    n_folds: int = 5,
    centers: ArrayLike | None = None,
    standardize: bool = False,
    random_state: int | np.random.Generator | None = 0,
) -> DensityDifference:
    """Fit the least squares density difference of two samples.

    Width and penalty are those of the smallest cross-validated loss
    ``θᵀHθ − 2 h_heldoutᵀθ``. One eigendecomposition of H per width serves every penalty and fold.
    In one dimension the samples are counted on a grid of a hundredth of the smallest width, so the
    cost does not grow with their number.

    Parameters
    ----------
    a, b : array-like of shape (n,) or (n, n_features)
        Samples of the two densities.
    widths, penalties : sequences of float
        Candidates, for samples scaled to unit spread.
    n_centers : int
        Number of basis functions: quantiles of both samples together in one dimension, randomly
        drawn rows in more.
    n_folds : int
        Folds of the cross-validation.
    centers : array-like, optional
        The centres of the basis in the units of the samples, instead of ``n_centers``.
    standardize : bool
        Give the value of the scaled samples: a number without unit, comparable between models.
    random_state : int, Generator or None
        Decides folds and drawn centres.

    Returns
    -------
    DensityDifference
        The value, what was chosen, and the difference as a function.
    """
    rows_a, rows_b = _as_rows(a, "a"), _as_rows(b, "b")
    if rows_a.shape[1] != rows_b.shape[1]:
        raise ValueError(
            f"a has {rows_a.shape[1]} columns and b has {rows_b.shape[1]}; both samples must live "
            "in the same space."
        )
    if min(len(rows_a), len(rows_b)) < n_folds:
        raise ValueError(f"Each sample needs at least n_folds={n_folds} rows.")
    rng = np.random.default_rng(random_state)
    scale = _spread(np.concatenate([rows_a, rows_b]))
    rows_a, rows_b = rows_a / scale, rows_b / scale
    if centers is None:
        basis_centers = _choose_centers(np.concatenate([rows_a, rows_b]), n_centers, rng)
    else:
        basis_centers = _as_rows(centers, "centers") / scale
    points, weights = _fold_weights(rows_a, rows_b, n_folds, min(widths), rng)
    width, penalty, theta, value = _select(points, weights, basis_centers, widths, penalties)
    volume = 1.0 if standardize else float(np.prod(scale))
    return DensityDifference(value / volume, width, penalty, basis_centers, theta, scale)


def _as_rows(values: ArrayLike, name: str) -> Array:
    rows = np.asarray(values, dtype=np.float64)
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.size == 0:
        raise ValueError(f"{name} must be a non-empty array of one or two dimensions.")
    if not np.isfinite(rows).all():
        raise ValueError(f"{name} contains NaN or infinity; remove such rows first.")
    return rows


def _spread(rows: Array) -> Array:
    """Standard deviation within the central 98 % of each column, 1 for a constant column."""
    low, high = np.quantile(rows, [0.01, 0.99], axis=0)
    spread: Array = np.std(np.clip(rows, low, high), axis=0)
    spread = np.where(spread > 0, spread, np.std(rows, axis=0))
    tiny = spread <= 1e-12 * np.abs(rows).max(axis=0)
    return np.where(tiny, 1.0, spread)


def _choose_centers(rows: Array, n_centers: int, rng: np.random.Generator) -> Array:
    if rows.shape[1] == 1:
        return np.unique(np.quantile(rows, np.linspace(0, 1, n_centers)))[:, None]
    distinct = np.unique(rows, axis=0)
    picked = rng.choice(len(distinct), size=min(n_centers, len(distinct)), replace=False)
    return distinct[picked]


def _fold_weights(
    rows_a: Array, rows_b: Array, n_folds: int, width: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Points, and the weights that make ĥ of them.

    ``weights @ basis(points)`` is ĥ of everything (first row), of each fold, and of everything but
    each fold.
    """
    points = np.concatenate([rows_a, rows_b])
    where = np.arange(len(points))
    if points.shape[1] == 1:
        grid = width / _BINS_PER_WIDTH
        cells, where = np.unique(np.rint(points[:, 0] / grid), return_inverse=True)
        points = (cells * grid)[:, None]
    weights = np.zeros((2 * n_folds + 1, len(points)))
    for sign, mine in ((1.0, where[: len(rows_a)]), (-1.0, where[len(rows_a) :])):
        folds = rng.permutation(len(mine)) % n_folds
        held_out = np.stack(
            [np.bincount(mine[folds == f], minlength=len(points)) for f in range(n_folds)]
        )
        total = held_out.sum(axis=0)
        counts = np.concatenate([total[None], held_out, total - held_out])
        weights += sign * counts / counts.sum(axis=1, keepdims=True)
    return points, weights


def _basis(points: Array, centers: Array, width: float) -> Array:
    """φ_l(x) = exp(−‖x − c_l‖² / 2σ²)."""
    phi: Array = np.exp(-cdist(points, centers, "sqeuclidean") / (2.0 * width**2))
    return phi


def _weighted_means(points: Array, weights: Array, centers: Array, width: float) -> Array:
    """ĥ for every row of weights, in chunks of bounded memory."""
    step = max(1, _CHUNK_ENTRIES // len(centers))
    h = np.zeros((len(weights), len(centers)))
    for start in range(0, len(points), step):
        part = slice(start, start + step)
        h += weights[:, part] @ _basis(points[part], centers, width)
    return h


def _select(
    points: Array,
    weights: Array,
    centers: Array,
    widths: Sequence[float],
    penalties: Sequence[float],
) -> tuple[float, float, Array, float]:
    """Choose width and penalty by cross-validation; refit on everything."""
    squared = cdist(centers, centers, "sqeuclidean")
    n_features = centers.shape[1]
    best = (np.inf, 0.0, 0.0, np.zeros(len(centers)), 0.0)
    for width in widths:
        H = (np.pi * width**2) ** (n_features / 2) * np.exp(-squared / (4.0 * width**2))
        eigenvalues, U = eigh(H, driver="evd")  # "evr" fails on nearly singular matrices
        eigenvalues = np.maximum(eigenvalues, 0.0)
        h = _weighted_means(points, weights, centers, width) @ U
        whole, (held_out, kept) = h[0], np.split(h[1:], 2)
        for penalty in penalties:
            theta = kept / (eigenvalues + penalty)
            loss = float(np.mean((eigenvalues * theta**2 - 2.0 * held_out * theta).sum(axis=1)))
            if loss < best[0]:
                final = whole / (eigenvalues + penalty)
                value = float((2.0 * whole * final - eigenvalues * final**2).sum())
                best = (loss, float(width), float(penalty), U @ final, value)
    return best[1:]

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
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


@dataclass(frozen=True)
class DensityTest:
    """An estimate beside those of equal densities: the same rows, divided at random.

    Attributes
    ----------
    value : float
        The estimate.
    null_median, null_most : float
        Median and 95 % quantile of the estimates of random divisions: the zero of this score.
    interval : (float, float)
        95 % interval of the density difference, at least 0: twice the estimate less the quantiles
        of estimates from rows drawn with replacement, which takes off their bias.
    p_value : float
        Share of random divisions, the real one included, with an estimate at least as large.
    n_divisions : int
        Random divisions.
    """

    value: float
    null_median: float
    null_most: float
    interval: tuple[float, float]
    p_value: float
    n_divisions: int

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.value:.5f} (95 % interval {low:.5f} to {high:.5f}; equal samples of this size: "
            f"median {self.null_median:.5f}, 95 % below {self.null_most:.5f}; "
            f"p = {self.p_value:.3g})"
        )


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
    sample = _prepare(a, b, n_centers, n_folds, centers, min(widths), random_state)
    weights = _fold_weights(sample.where, sample.n_first, n_folds, len(sample.points), sample.rng)
    chosen = _select(sample.points, weights[None], sample.centers, widths, penalties)
    volume = 1.0 if standardize else float(np.prod(sample.scale))
    return DensityDifference(
        float(chosen.values[0]) / volume, float(chosen.widths[0]), float(chosen.penalties[0]),
        sample.centers, chosen.theta[0], sample.scale,
    )  # fmt: skip


def density_test(
    a: ArrayLike,
    b: ArrayLike,
    *,
    n_divisions: int = 100,
    widths: Sequence[float] = WIDTHS,
    penalties: Sequence[float] = PENALTIES,
    n_centers: int = 200,
    n_folds: int = 5,
    standardize: bool = False,
    random_state: int | np.random.Generator | None = 0,
) -> DensityTest:
    """Compare the density difference of two samples with that of random divisions of all rows.

    The estimate is never negative, so it is not 0 for equal densities: what it is there is shown by
    giving the rows of both samples random sides. The centres stay, and so do the
    eigendecompositions.

    Parameters
    ----------
    a, b : array-like of shape (n,) or (n, n_features)
        Samples of the two densities.
    n_divisions : int
        Random divisions, and samples with replacement for the interval.
    widths, penalties, n_centers, n_folds, standardize, random_state
        See :func:`fit_density_difference`.

    Returns
    -------
    DensityTest

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> same = density_test(rng.normal(size=300), rng.normal(size=300))
    >>> other = density_test(rng.normal(size=300), rng.normal(1, 1, size=300))
    >>> same.p_value > 0.01, other.p_value < 0.01
    (True, True)
    """
    if n_divisions < 1:
        raise ValueError("n_divisions must be at least 1.")
    sample = _prepare(a, b, n_centers, n_folds, None, min(widths), random_state)
    n_all, size, rng = len(sample.where), len(sample.points), sample.rng
    first, second = sample.where[: sample.n_first], sample.where[sample.n_first :]

    def fits(
        draw: Callable[[], NDArray[np.intp]],
        number: int,
        settings: tuple[Sequence[float], Sequence[float]] = (widths, penalties),
    ) -> _Chosen:
        weights = np.stack(
            [_fold_weights(draw(), sample.n_first, n_folds, size, rng) for _ in range(number)]
        )
        return _select(sample.points, weights, sample.centers, *settings)

    def many(
        draw: Callable[[], NDArray[np.intp]], *settings: tuple[Sequence[float], Sequence[float]]
    ) -> Array:
        at_once = max(1, _CHUNK_ENTRIES // ((2 * n_folds + 1) * size))
        steps = [min(at_once, n_divisions - done) for done in range(0, n_divisions, at_once)]
        return np.concatenate([fits(draw, step, *settings).values for step in steps])

    one = fits(lambda: sample.where, 1)
    value, chosen = float(one.values[0]), ([float(one.widths[0])], [float(one.penalties[0])])
    null = many(lambda: sample.where[rng.permutation(n_all)])
    # a row drawn twice may stand in two folds, so width and penalty are not chosen again
    again = many(
        lambda: np.concatenate([rng.choice(side, len(side)) for side in (first, second)]), chosen
    )
    median = float(np.median(null))
    low, high = np.maximum(2 * value - np.quantile(again, [0.975, 0.025]), 0.0)
    volume = 1.0 if standardize else float(np.prod(sample.scale))
    return DensityTest(
        value / volume, median / volume, float(np.quantile(null, 0.95)) / volume,
        (float(low) / volume, float(high) / volume),
        float((1 + np.sum(null >= value)) / (1 + n_divisions)), n_divisions,
    )  # fmt: skip


class _Sample(NamedTuple):
    """Both samples in scaled units: distinct points, where each row is among them, the basis."""

    points: Array
    where: NDArray[np.intp]
    n_first: int
    centers: Array
    scale: Array
    rng: np.random.Generator


def _prepare(
    a: ArrayLike,
    b: ArrayLike,
    n_centers: int,
    n_folds: int,
    centers: ArrayLike | None,
    width: float,
    random_state: int | np.random.Generator | None,
) -> _Sample:
    rows_a, rows_b = _as_rows(a, "a"), _as_rows(b, "b")
    if rows_a.shape[1] != rows_b.shape[1]:
        raise ValueError(
            f"a has {rows_a.shape[1]} columns and b has {rows_b.shape[1]}; both samples must live "
            "in the same space."
        )
    if min(len(rows_a), len(rows_b)) < n_folds:
        raise ValueError(f"Each sample needs at least n_folds={n_folds} rows.")
    rng = np.random.default_rng(random_state)
    rows = np.concatenate([rows_a, rows_b])
    scale = _spread(rows)
    rows = rows / scale
    if centers is None:
        basis_centers = _choose_centers(rows, n_centers, rng)
    else:
        basis_centers = _as_rows(centers, "centers") / scale
    points, where = rows, np.arange(len(rows))
    if rows.shape[1] == 1:
        grid = width / _BINS_PER_WIDTH
        cells, where = np.unique(np.rint(rows[:, 0] / grid), return_inverse=True)
        points = (cells * grid)[:, None]
    return _Sample(points, np.asarray(where, np.intp), len(rows_a), basis_centers, scale, rng)


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
    where: NDArray[np.intp], n_first: int, n_folds: int, size: int, rng: np.random.Generator
) -> Array:
    """Weights of points that make ĥ: of everything, of each fold, of everything but each fold.

    ``weights @ basis(points)`` has them as rows. The first ``n_first`` rows are sample a.
    """
    weights = np.zeros((2 * n_folds + 1, size))
    for sign, mine in ((1.0, where[:n_first]), (-1.0, where[n_first:])):
        folds = rng.permutation(len(mine)) % n_folds
        held_out = np.stack([np.bincount(mine[folds == f], minlength=size) for f in range(n_folds)])
        total = held_out.sum(axis=0)
        counts = np.concatenate([total[None], held_out, total - held_out])
        weights += sign * counts / counts.sum(axis=1, keepdims=True)
    return weights


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


class _Chosen(NamedTuple):
    """For every set of weights: what cross-validation chose, and the fit to everything."""

    losses: Array
    values: Array
    widths: Array
    penalties: Array
    theta: Array


def _select(
    points: Array,
    weights: Array,
    centers: Array,
    widths: Sequence[float],
    penalties: Sequence[float],
) -> _Chosen:
    """Choose width and penalty by cross-validation; refit on everything.

    ``weights`` are those of `_fold_weights`, for B divisions of the rows: (B, 2 F + 1, n).
    """
    squared = cdist(centers, centers, "sqeuclidean")
    n_features, (B, n_rows, _) = centers.shape[1], weights.shape
    best = _Chosen(
        np.full(B, np.inf), np.zeros(B), np.zeros(B), np.zeros(B), np.zeros((B, len(centers)))
    )
    for width in widths:
        H = (np.pi * width**2) ** (n_features / 2) * np.exp(-squared / (4.0 * width**2))
        eigenvalues, U = eigh(H, driver="evd")  # "evr" fails on nearly singular matrices
        eigenvalues = np.maximum(eigenvalues, 0.0)
        means = _weighted_means(points, weights.reshape(B * n_rows, -1), centers, width)
        h = (means @ U).reshape(B, n_rows, -1)
        whole, (held_out, kept) = h[:, 0], np.split(h[:, 1:], 2, axis=1)
        for penalty in penalties:
            theta = kept / (eigenvalues + penalty)
            each = (eigenvalues * theta**2 - 2.0 * held_out * theta).sum(axis=2)
            losses = each.mean(axis=1)
            better = losses < best.losses
            if better.any():
                final = whole[better] / (eigenvalues + penalty)
                best.losses[better] = losses[better]
                best.values[better] = (2.0 * whole[better] * final - eigenvalues * final**2).sum(1)
                best.widths[better], best.penalties[better] = width, penalty
                best.theta[better] = final @ U.T
    return best

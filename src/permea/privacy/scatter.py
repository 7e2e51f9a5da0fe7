r"""Scatter of each class: the last stage of a release of moments.

With z the centred and clipped features of a row (`permea.privacy.moments`), y its class indicators
and P any matrix whose columns are directions, u = Pᵀ(z, y) is shrunk to the same radius r, and for
every class the sum of u uᵀ over its rows gets Gaussian noise on the grid. A row lies in one class,
so it moves the stack of all classes no further than it would move one matrix: by r², and by √2 r²
when it is replaced. The bound holds for every P; P may depend on what was released before, which
costs nothing. The classes may be divided further, by the row and by what was released before: a
row still lies in one part. The rows of P for y hold a centre for each class: about its own mean a
row is short, so the radius can be small beside what varies.

Sums of losses say how well a model that was learned from all this predicts the rows. Proofs:
``docs/proofs/moments.md``.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from permea._arrays import Array, Integers
from permea.privacy import moments as stages
from permea.privacy.moments import ROW_STEPS, SQUARE_STEPS, MomentPlan
from permea.privacy.rowwise import row_product, shrink_rows
from permea.privacy.sampling import BitSource


@dataclass(frozen=True)
class ClassScatter:
    """Scatter matrices: second moments of each class about a centre of its own, in some directions.

    Attributes
    ----------
    directions : ndarray of shape (D, d) or (D + C, d)
        P: a row for every feature and, where classes have centres, one for every class.
    second : ndarray of shape (C, d, d)
        Σ u uᵀ over the rows of each class, with u = Pᵀz or Pᵀ(z, y).
    noise : float
        Standard deviation of the noise on the diagonals (off them the variance is half); 0 for
        none.

    Examples
    --------
    >>> import numpy as np
    >>> Z, Y = np.array([[1.0, 2.0], [3.0, 0.0]]), np.eye(2)
    >>> ClassScatter.of(Z, Y, np.array([[1.0], [0.0]])).second.ravel().tolist()
    [1.0, 9.0]
    """

    directions: Array
    second: Array
    noise: float = 0.0

    @classmethod
    def of(
        cls, Z: Array, Y: Array, directions: Array, weights: Array | None = None
    ) -> "ClassScatter":
        """Moments of rows with class indicators Y, without noise."""
        U = _with_classes(Z, Y, directions) @ directions
        w = np.ones(len(U)) if weights is None else weights
        second = [(U[mine].T * w[mine]) @ U[mine] for mine in Y.T.astype(bool)]
        return cls(directions, np.stack(second))

    def __add__(self, other: "ClassScatter") -> "ClassScatter":
        """Moments of two disjoint sets of rows in the same directions."""
        noise = float(np.hypot(self.noise, other.noise))
        return replace(self, second=self.second + other.second, noise=noise)


def sum_scatter(
    Z: Array, Y: Array, directions: Array, plan: MomentPlan, weights: Array | None = None
) -> Integers:
    """Exact sums of u uᵀ over the rows of each class, in whole steps: private.

    Parameters
    ----------
    Z : ndarray of shape (n, D)
        Centred features.
    Y : ndarray of shape (n, C)
        Class indicators, or indicators of the parts of all classes.
    directions : ndarray of shape (D, d) or (D + C, d)
    plan : MomentPlan
    weights : ndarray of shape (n,), optional
        See `permea.privacy.moments.sum_features`.

    Returns
    -------
    ndarray of shape (C, d, d)
    """
    w = stages.checked_weights(weights, len(Z), plan)
    d = directions.shape[1]
    total = np.zeros((plan.n_outputs * plan.n_parts, d, d), np.int64)
    for part in stages.exact_blocks(len(Z)):
        roots = None if weights is None else np.sqrt(w[part])
        z = _with_classes(shrink_rows(Z[part], plan.radius), Y[part], directions)
        u = row_product(z, directions)
        steps = stages.to_steps(u, plan.radius, ROW_STEPS, roots)
        for label, mine in enumerate(Y[part].T.astype(bool)):
            own = steps[mine]
            total[label] += (own.T @ own).astype(np.int64)
    return total


def _with_classes(Z: Array, Y: Array, directions: Array) -> Array:
    """Rows (z, y) where the directions have rows for classes, else z."""
    return Z if len(directions) == Z.shape[1] else np.hstack([Z, Y])


def sum_losses(losses: Array, plan: MomentPlan, weights: Array | None = None) -> Integers:
    """Exact sums of losses in [0, 1], one column for each, in whole steps: private.

    A row adds a vector of a box whose sides are 1/√K, so it moves all K sums together by at most 1,
    and so does a row that is replaced. A loss that is no number counts as 1, so that it makes no
    error.
    """
    w = stages.checked_weights(weights, len(losses), plan)
    total = np.zeros(plan.n_losses, np.int64)
    side = SQUARE_STEPS / math.sqrt(plan.n_losses)
    for part in stages.exact_blocks(len(losses)):
        bounded = np.clip(np.nan_to_num(losses[part], nan=1.0), 0.0, 1.0)
        total += np.trunc(bounded * w[part, None] * side).sum(axis=0).astype(np.int64)
    return total


def add_scatter_noise(
    sums: Integers, directions: Array, plan: MomentPlan, source: BitSource, *, shares: int = 1
) -> ClassScatter:
    """Sums with noise, in the units of the features."""
    return scatter_from_steps(scatter_steps(sums, plan, source, shares=shares), directions, plan)


def scatter_steps(
    sums: Integers, plan: MomentPlan, source: BitSource, *, shares: int = 1
) -> Integers:
    """Sums with noise, or one of ``shares`` parts of it, in refined steps."""
    scale, d = plan.scales.scatter, sums.shape[1]
    noise = [stages.symmetric_noise(scale, d, plan, source, shares) for _ in sums]
    return np.asarray(sums * plan.refinement(scale, SQUARE_STEPS) + np.stack(noise))


def scatter_from_steps(noised: Integers, directions: Array, plan: MomentPlan) -> ClassScatter:
    """Noised sums in the units of the features."""
    scale = plan.scales.scatter
    grid = plan.radius**2 / (SQUARE_STEPS * plan.refinement(scale, SQUARE_STEPS))
    return ClassScatter(np.asarray(directions, np.float64), noised * grid, scale * plan.radius**2)


def add_loss_noise(sums: Integers, plan: MomentPlan, source: BitSource) -> NDArray[np.float64]:
    """Sums of losses with noise."""
    return losses_from_steps(loss_steps(sums, plan, source), plan)


def loss_steps(sums: Integers, plan: MomentPlan, source: BitSource, *, shares: int = 1) -> Integers:
    """Sums of losses with noise, or one of ``shares`` parts of it, in refined steps."""
    scale = plan.scales.losses
    noise = stages.draw_steps(scale, SQUARE_STEPS, sums.size, plan, source, shares)
    return np.asarray(sums * plan.refinement(scale, SQUARE_STEPS) + noise)


def losses_from_steps(noised: Integers, plan: MomentPlan) -> NDArray[np.float64]:
    """Noised sums in units of a loss."""
    side = SQUARE_STEPS / math.sqrt(plan.n_losses)
    return np.asarray(noised / (side * plan.refinement(plan.scales.losses, SQUARE_STEPS)))


def loss_noise(plan: MomentPlan) -> float:
    """Standard deviation of the noise on every sum of losses."""
    return plan.scales.losses * math.sqrt(plan.n_losses)

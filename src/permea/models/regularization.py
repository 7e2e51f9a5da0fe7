"""Kernel regularised least squares with the strength λ* that 004 Theorem 1 singles out.

Fitting the rows Y (N × p) on kernel matrix K with strength λ leaves the mean squared error

    e(λ) = 1/(pN) ‖Y − K (K + λI)⁻¹ Y‖²_F = λ²/(pN) ‖(K + λI)⁻¹ Y‖²_F          (004 eq. 18, 108)

and λ* is the only solution of λ = e(λ) + τ with τ = 2‖Y‖²_F/(pN) (004 eq. 27-28). The map e ↦
e(e + τ) contracts, so its iteration converges from any start; a secant slope makes it converge in
two or three steps. Each step is one Cholesky factorisation of K + λI.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs

from permea.models.base import Array, Mask
from permea.models.products import product

_BLOCK = 512
_SKETCH = 96  # columns of a sketch


class ShiftedKernel:
    """Solves (K + λI) A = T for several λ, in the memory of K alone.

    The Cholesky factor overwrites the lower triangle; the strict upper triangle keeps K, from
    which the lower one is restored for the next λ.
    """

    def __init__(self, K: Array) -> None:
        self.K = np.asfortranarray(K)
        self._factored = False
        self._potrf: Any = get_lapack_funcs("potrf", (self.K,))
        self._potrs: Any = get_lapack_funcs("potrs", (self.K,))

    def factor(self, regularization: float) -> float:
        """Factorise K + λI and return the λ that was used.

        λ grows tenfold until the factorisation succeeds in the precision of K, which happens only
        where it was too small beside the rounding errors of K (004 wants distinct points and exact
        arithmetic).
        """
        size = self.K.shape[0]
        floor = size * float(np.finfo(self.K.dtype).eps)
        regularization = max(regularization, floor)
        while True:
            if self._factored:
                self._restore()
            np.fill_diagonal(self.K, 1 + regularization)
            factor, info = self._potrf(self.K, lower=1, clean=0, overwrite_a=1)
            self.K, self._factored = factor, True
            if info == 0:
                return regularization
            regularization *= 10

    def solve(self, targets: Array) -> Array:
        """(K + λI)⁻¹ applied to the columns of ``targets``."""
        solution, _ = self._potrs(self.K, np.asfortranarray(targets), lower=1)
        return np.asarray(solution)

    def _restore(self) -> None:
        """Mirror the upper triangle, which still holds K, into the lower one."""
        size = self.K.shape[0]
        for start in range(0, size, _BLOCK):
            stop = min(start + _BLOCK, size)
            block = np.triu(self.K[start:stop, start:stop], 1)
            self.K[start:stop, start:stop] = block + block.T
            self.K[stop:, start:stop] = self.K[start:stop, stop:].T
        self._factored = False


@dataclass(frozen=True)
class Targets:
    """The rows Y = C + 1μᵀ as columns to solve for, with C centred.

    ‖B Y‖²_F for a symmetric B needs B C, B (Cμ) and B 1 only, and B C only through C Cᵀ: any
    ``square`` with the same outer product gives the same error.
    """

    square: Array  #: (N, r) with square · squareᵀ = C Cᵀ
    cross: Array  #: (N,) C μ
    mean_energy: float  #: ‖μ‖²
    size: int  #: p N

    @classmethod
    def of(cls, centred: Array, mean: Array, active: Mask, n_features: int) -> "Targets":
        """Targets for centred rows (active features only) and the mean of all features."""
        return cls(
            square=centred,
            cross=product(centred, mean[active][:, None])[:, 0],
            mean_energy=float(np.dot(mean, mean)),
            size=n_features * centred.shape[0],
        )

    @property
    def threshold(self) -> float:
        """τ = 2‖Y‖²_F/(pN), the smallest that makes the iteration contract (004 eq. 24)."""
        energy = float(np.vdot(self.square, self.square)) + 2 * float(self.cross.sum())
        tiny = float(np.finfo(np.float64).tiny)
        total = energy + self.square.shape[0] * self.mean_energy
        return float(max(2 * total / self.size, tiny))

    def columns(self) -> Array:
        """All columns side by side, ready for one solve."""
        ones = np.ones_like(self.cross)
        return np.asfortranarray(np.column_stack([self.square, self.cross, ones]))

    def error(self, solved: Array, regularization: float) -> float:
        """Mean squared error e(λ) from the solved columns."""
        square, cross, ones = solved[:, :-2], solved[:, -2], solved[:, -1]
        energy = (
            float(np.einsum("ij,ij->", square, square))
            + 2 * float(cross @ ones)
            + self.mean_energy * float(ones @ ones)
        )
        return regularization**2 * energy / self.size

    def sketched(self) -> "Targets":
        """Targets of a few random mixtures of the columns, in single precision.

        Their error has the same expectation; with many columns it is within a per cent or so, at
        a fraction of the cost of a solve.
        """
        r = self.square.shape[1]
        mixing = np.random.default_rng(0).standard_normal((r, _SKETCH)).astype(self.square.dtype)
        square = product(self.square, mixing) / np.sqrt(_SKETCH, dtype=self.square.dtype)
        return Targets(
            square.astype(np.float32), self.cross.astype(np.float32), self.mean_energy, self.size
        )


@dataclass(frozen=True)
class Solution:
    """(K + λ*I)⁻¹ [C, 1] with λ* and how it was found."""

    coefficients: Array  #: (N, r) (K + λ*I)⁻¹ C
    denominators: Array  #: (N,) (K + λ*I)⁻¹ 1
    regularization: float
    error: float
    residual: float  #: |e(λ) − (λ − τ)| / λ at the end
    n_iter: int  #: number of factorisations


@dataclass
class _Iteration:
    """Fixed-point steps e ← e + (R(e) − e)/(1 − c) with a secant estimate of the slope c."""

    tau: float
    error: float
    slope: float = 0.2
    last: tuple[float, float] | None = None
    count: int = 0

    def step(self, value: float) -> float:
        """Take R(e) in, move e on, and return the relative residual |R(e) − e| / λ."""
        residual = abs(value - self.error) / (self.error + self.tau)
        if self.last is not None and self.error != self.last[0]:
            slope = (value - self.last[1]) / (self.error - self.last[0])
            self.slope = float(np.clip(slope, 0.0, 0.9))
        self.last = (self.error, value)
        moved = self.error + (value - self.error) / (1 - self.slope)
        self.error = float(np.clip(moved, 0.0, self.tau / 2))
        self.count += 1
        return residual


def solve_fixed_point(
    K: Array,
    targets: Targets,
    *,
    tol: float = 5e-3,
    max_iter: int = 50,
    start: float | None = None,
    draft_size: int = 500,
) -> Solution:
    """Find λ* of 004 Theorem 1 and solve the regularised least squares problem with it.

    Parameters
    ----------
    K : ndarray of shape (N, N)
        Kernel matrix with unit diagonal. It is overwritten.
    targets : Targets
        The rows to represent.
    tol : float
        The iteration ends when |R(e) − e| is at most ``tol`` times λ.
    max_iter : int
        Most factorisations in full precision.
    start : float, optional
        First value of e; anything in (0, τ/2) leads to the same end.
    draft_size : int
        From this many rows on, λ* is first approached in single precision and from a sketch of
        the columns, and only the last steps are taken in full.

    Returns
    -------
    Solution
    """
    tau = targets.threshold
    iteration = _Iteration(tau, tau / 4 if start is None else min(start, tau / 2))
    kernel = ShiftedKernel(K)
    if K.shape[0] >= draft_size and targets.square.shape[1] > 2 * _SKETCH:
        single = kernel if K.dtype == np.float32 else ShiftedKernel(K.astype(np.float32, order="F"))
        _iterate(single, targets.sketched(), iteration, tol, max_iter, finish=False)
    solved, regularization, residual = _iterate(
        kernel, targets, iteration, tol, max_iter, finish=True
    )
    return Solution(
        coefficients=np.ascontiguousarray(solved[:, :-2]),
        denominators=np.ascontiguousarray(solved[:, -1]),
        regularization=regularization,
        error=targets.error(solved, regularization),
        residual=residual,
        n_iter=iteration.count,
    )


def _iterate(
    kernel: ShiftedKernel,
    targets: Targets,
    iteration: _Iteration,
    tol: float,
    max_iter: int,
    *,
    finish: bool,
) -> tuple[Any, float, float]:
    """Step until the residual is small; a draft ends when the next step would be tiny."""
    columns = targets.columns()
    for _ in range(max_iter):
        before = iteration.error
        regularization = kernel.factor(before + iteration.tau)
        solved = kernel.solve(columns)
        residual = iteration.step(targets.error(solved, regularization))
        moved = abs(iteration.error - before) / regularization
        if residual <= tol or (not finish and iteration.count > 1 and moved <= 10 * tol):
            break
    return solved, regularization, residual

"""The Gaussian kernel on whitened codes, and its value far away from all data."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary, ref

import numpy as np
from scipy.linalg import eigvalsh, get_lapack_funcs
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array, Indices, Mask
from permea._validate import Accepted, number, validate_parameters, whole
from permea.models.base import row_norms
from permea.models.encoding import Encoding, principal_encoding
from permea.models.linear_algebra import product
from permea.models.pruning import head_basis, lower, may_win, nearest_in_chunks, query_chunks


def kernel_matrix(codes: Array) -> Array:
    """Kernel matrix of the training codes (004 eq. 35 and 39), in Fortran order.

    With whitened codes x of dimension n, k(x, x') = exp(−‖x − x'‖² / (2n)).
    """
    n = max(codes.shape[1], 1)
    half_norms = np.einsum("ij,ij->i", codes, codes) / (2 * n)
    K = product(codes / n, codes.T).T  # symmetric: its transpose is itself, in Fortran order
    K -= half_norms[:, None]
    K -= half_norms[None, :]
    np.minimum(K, 0, out=K)
    np.exp(K, out=K)
    np.fill_diagonal(K, 1)
    return K


class KernelRows:
    """Kernel values between queries and fixed training codes, scaled row by row.

    The image of a KAHM is a ratio that is linear in the kernel values above and below, so each row
    may be multiplied by any positive factor. `relative` uses the largest kernel value of the row:
    its result has maximum 1 and never underflows to a row of zeros, however far the query is.

    Examples
    --------
    >>> import numpy as np
    >>> rows = KernelRows(np.array([[0.0], [1.0]]))
    >>> rows.relative(np.array([[0.0], [1e6]])).max(axis=1)
    array([1., 1.])
    """

    def __init__(self, codes: Array) -> None:
        n = max(codes.shape[1], 1)
        half_norms = np.einsum("ij,ij->i", codes, codes) / 2
        self.n_codes = codes.shape[0]
        # [x, −‖x‖²/2, 1] · [q, 1, −‖q‖²/2] / n = −‖x − q‖² / (2n)
        self._augmented = np.vstack([codes.T, -half_norms, np.ones_like(half_norms)]) / n

    def values(self, queries: Array) -> Array:
        """Kernel values as they are; rows far away may underflow to zero."""
        half_norms = np.einsum("ij,ij->i", queries, queries) / 2
        augmented = np.column_stack([queries, np.ones_like(half_norms), -half_norms])
        exponents = augmented @ self._augmented
        np.minimum(exponents, 0, out=exponents)
        return np.asarray(np.exp(exponents, out=exponents))

    def relative(self, queries: Array) -> Array:
        """Kernel values divided by the largest of their row."""
        augmented = np.column_stack([queries, np.ones(queries.shape[0], dtype=queries.dtype)])
        exponents = augmented @ self._augmented[:-1]
        exponents -= exponents.max(axis=1, keepdims=True)
        return np.asarray(np.exp(exponents, out=exponents))


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


def guard_level(machine: "KernelAffineHullMachine") -> float:
    """Smallest Σh over ‖k‖²/max k that 004 eq. (147) allows, with room for rounding at equality."""
    room = 1 - float(np.sqrt(np.finfo(machine.codes_.dtype).eps))
    return room / (machine.regularization_ + machine.largest_eigenvalue_)


class _Layer:
    """One machine of the chain, prepared for queries by code."""

    def __init__(self, machine: "KernelAffineHullMachine", basis: Array) -> None:
        self._machine = ref(machine)  # what is prepared must not keep its machine alive
        self.kernel = KernelRows(machine.codes_)
        ones = np.ones_like(machine.denominators_)
        projected = machine.coefficients_ @ basis
        self.head = np.column_stack([projected, machine.denominators_, ones])
        self.guard = guard_level(machine)

    @property
    def machine(self) -> "KernelAffineHullMachine":
        """The machine, which lives as long as the chain it is asked through."""
        machine = self._machine()
        assert machine is not None
        return machine

    def look(self, codes: Array) -> tuple[Array, Array, Array, Indices]:
        """Kernel values, head coordinates of the images, denominators, and rows to redo."""
        values = self.kernel.values(codes[:, : self.machine.n_components_])
        product = values @ self.head
        denominators, sums = product[:, -2], product[:, -1]
        redo = self._doubtful(values, denominators, sums)
        denominators[redo] = 1
        return values, product[:, :-2] / denominators[:, None], denominators, redo

    def _doubtful(self, values: Array, denominators: Array, sums: Array) -> Indices:
        """Rows that underflow, or whose denominator is below the promise of 004 eq. (147)."""
        tiny = float(np.finfo(values.dtype).tiny) ** 0.5
        redo = sums < tiny
        check = np.flatnonzero(~redo & (denominators < sums * self.guard))
        if check.size:
            rows = values[check]
            floor = np.einsum("ij,ij->i", rows, rows) / rows.max(axis=1)
            redo[check[denominators[check] < floor * self.guard]] = True
        return np.flatnonzero(redo)


class LayeredDistance:
    """A chain of machines, prepared once and asked many times."""

    def __init__(self, layers: "list[KernelAffineHullMachine]") -> None:
        self.encoding = layers[0].encoding_
        self.basis = head_basis(self.encoding.components, layers[0].coefficients_)
        self.layers = [_Layer(machine, self.basis) for machine in layers]

    def __call__(self, Y: Array, cutoff: Array | None) -> Array:
        """Squared distance of each row to the nearest image, or infinity from the cutoff on."""
        n_codes = self.layers[0].kernel.n_codes
        return nearest_in_chunks(self._nearest, Y, cutoff, n_codes)

    def _nearest(self, Y: Array, limit: Array) -> Array:
        centred = self.encoding.centre(Y)
        outside = self.encoding.inactive_energy(Y)
        head = centred @ self.basis
        coordinates: Array = head
        best = np.full(Y.shape[0], np.inf, dtype=Y.dtype)
        for layer in self.layers:
            codes = self.encoding.whiten(coordinates[:, : self.encoding.n_components])
            values, images, denominators, redo = layer.look(codes)
            if redo.size:
                offsets = layer.machine.offset(codes[redo, : layer.machine.n_components_])
                images[redo] = offsets @ self.basis
                lower(best, redo, centred[redo] - offsets, outside)
            alive = may_win(head - images, outside, np.minimum(best, limit))
            alive[redo] = False
            rows = np.flatnonzero(alive)
            if rows.size:
                chosen = values if rows.size == len(values) else values[rows]
                product = chosen @ layer.machine.coefficients_
                product /= denominators[rows, None]
                np.subtract(centred[rows], product, out=product)
                lower(best, rows, product, outside)
            coordinates = images
        return best


_prepared: "WeakKeyDictionary[KernelAffineHullMachine, LayeredDistance]" = WeakKeyDictionary()


def layered_distance(
    layers: "list[KernelAffineHullMachine]", Y: Array, cutoff: Array | None = None
) -> Array:
    """Distance of each row of ``Y`` to the nearest of its images in the chain (004 eq. 53).

    Parameters
    ----------
    layers : list of fitted machines
        A chain made by `KernelAffineHullMachine.next_layer`.
    Y : ndarray of shape (m, p)
        Queries, in the precision of the machines.
    cutoff : ndarray of shape (m,), optional
        Rows whose distance is not below it may be answered with infinity.
    """
    chain = _prepared.get(layers[0])
    if chain is None or len(chain.layers) != len(layers):
        chain = _prepared[layers[0]] = LayeredDistance(layers)
    Y = np.asarray(Y, dtype=layers[0].codes_.dtype)
    return np.asarray(np.sqrt(chain(Y, cutoff)))


class KernelAffineHullMachine(BaseEstimator):  # type: ignore[misc]
    r"""Map any point onto the affine hull of the training rows (004 Def. 1).

    For training rows :math:`Y = [y^1 \dots y^N]^T` with codes :math:`x^i = P y^i`, kernel matrix
    K and regularisation λ*, the image of a point y is the affine combination

    .. math::  A(y) = \frac{\sum_i h^i(Py)\, y^i}{\sum_i h^i(Py)}, \qquad
               h(x) = (K + \lambda^* I)^{-1} [k(x, x^1) \dots k(x, x^N)]^T

    (004 eq. 33 and 38), where :math:`h^i` is the kernel-smoothed membership of a point to the set
    :math:`\{x^i\}`. The distance of y to its image (004 eq. 48) is small near the data and grows
    away from them: that is what compositions of these machines classify by.

    A fitted machine contains its training rows. Saving or serving it releases them, unless they
    went through `permea.privacy` first.

    Parameters
    ----------
    n_components : int, default=20
        Subspace dimension n of the encoding P. It shrinks, with a warning, to what the rows can
        carry.
    tol : float, default=5e-3
        λ* is accepted when its fixed-point equation (004 eq. 41) holds to this fraction of λ.

    Attributes
    ----------
    regularization_ : float
        λ* of 004 Theorem 1.
    residual_ : float
        By what fraction of λ* its equation is missed.
    n_iter_ : int
        Factorisations that were needed to find it.
    n_components_ : int
        The subspace dimension in use.
    norm_bound_ : float
        No image is longer than this (004 Theorem 2). Computed on first use.
    n_features_in_ : int
        Number of features p.

    See Also
    --------
    permea.compose.ConditionallyDeep : several machines in a chain.
    permea.compose.KAHMClassifier : one chain of machines per class.

    Notes
    -----
    The positivity of the denominator (004 eq. 148) rests on a product of two positive semidefinite
    matrices, which need not be positive semidefinite. Where the denominator falls below the bound
    that 004 eq. (147) promises, the weights k/Σk are used: the limit of the formula for large λ,
    still an affine combination, and within the bound of Theorem 2.

    References
    ----------
    Kumar, Moser and Fischer, "On Mitigating the Utility-Loss in Differentially Private Learning"
    (document 004), section 3.

    Examples
    --------
    >>> import numpy as np
    >>> circle = np.array([[np.cos(t), np.sin(t)] for t in np.linspace(0, 6, 50)])
    >>> machine = KernelAffineHullMachine(n_components=2).fit(circle)
    >>> near, far = machine.distance([[1.0, 0.1], [9.0, 9.0]])
    >>> bool(near < 0.6 < 9 < far)
    True
    """

    _parameters: ClassVar[Accepted] = {
        "n_components": whole(1),
        "tol": number(above=0),
    }

    layers_need_images = False  # every layer is learned from the same rows (004 eq. 51)

    def __init__(self, *, n_components: int = 20, tol: float = 5e-3) -> None:
        self.n_components = n_components
        self.tol = tol

    def fit(self, Y: Array, y: object = None) -> Self:
        """Learn the affine hull representation of the rows of ``Y``.

        Parameters
        ----------
        Y : array-like of shape (N, p)
            Training rows.
        y : ignored
            For the scikit-learn convention.

        Returns
        -------
        KernelAffineHullMachine
            This machine, fitted.
        """
        validate_parameters(self)
        Y = validate_data(self, Y, dtype=[np.float64, np.float32])
        return self._learn(Y, principal_encoding(Y, self.n_components))

    def next_layer(self, Y: Array, image: Array) -> "KernelAffineHullMachine | None":
        """Fit the machine with one code dimension less on the same rows (004 eq. 51).

        The encoding is shared: leaving out the last principal direction is all that changes.
        """
        n_components = self.n_components_ - 1
        if n_components < 1:
            return None
        layer = KernelAffineHullMachine(n_components=n_components, tol=self.tol)
        layer.n_features_in_ = self.n_features_in_
        return layer._learn(Y, self.encoding_.narrowed(n_components), start=self.error_)

    def _learn(self, Y: Array, encoding: Encoding, start: float | None = None) -> Self:
        """Solve for the coefficients on a given encoding."""
        centred = encoding.centre(Y)
        codes = encoding.whiten(product(centred, encoding.components))
        K = kernel_matrix(codes)
        targets = Targets.of(centred, encoding.mean, encoding.active, Y.shape[1])
        spread = _largest_eigenvalue(K)
        solution = solve_fixed_point(K, targets, tol=self.tol, start=start)
        self._store(encoding, codes, solution, spread)
        return self

    def _store(self, encoding: Encoding, codes: Array, solution: Solution, spread: float) -> None:
        """Keep what images need, and the facts a user asks for."""
        self.encoding_ = encoding
        self.codes_ = codes
        self.coefficients_ = solution.coefficients
        self.denominators_ = solution.denominators
        self.regularization_ = solution.regularization
        self.error_ = solution.error
        self.residual_ = solution.residual
        self.n_iter_ = solution.n_iter
        self.n_components_ = encoding.n_components
        self.largest_eigenvalue_ = spread

    def reconstruct(self, Y: Array) -> Array:
        """Image of each row in the affine hull of the training rows (004 eq. 33).

        Parameters
        ----------
        Y : array-like of shape (m, p)
            Any points.

        Returns
        -------
        ndarray of shape (m, p)
            Their images.
        """
        return self._images(self._validated(Y))

    def _images(self, Y: Array) -> Array:
        image = np.empty_like(Y)
        mean = self.encoding_.mean[self.encoding_.active]
        for rows in query_chunks(Y.shape[0], self.codes_.shape[0]):
            offset = self.offset(self.encoding_.encode(Y[rows]))
            image[rows] = self.encoding_.placed(offset + mean)
        return image

    def distance(self, Y: Array) -> Array:
        """Distance of each row to its image (004 eq. 48).

        Parameters
        ----------
        Y : array-like of shape (m, p)
            Any points.

        Returns
        -------
        ndarray of shape (m,)
            Their distances.
        """
        Y = self._validated(Y)
        distance = np.empty(Y.shape[0], dtype=Y.dtype)
        for rows in query_chunks(Y.shape[0], self.codes_.shape[0]):
            distance[rows] = row_norms(Y[rows] - self._images(Y[rows]))
        return distance

    @staticmethod
    def distance_through(
        layers: "list[KernelAffineHullMachine]", Y: Array, cutoff: Array | None = None
    ) -> Array:
        """Distance to the nearest image in a chain of machines (004 eq. 52-53).

        Rows whose distance is provably not below ``cutoff`` may be answered with infinity. See
        `permea.models.kahm`.
        """
        return layered_distance(layers, Y, cutoff)

    def weights(self, Y: Array) -> Array:
        """Affine weights of the training rows in each image; every row sums to one."""
        Y = self._validated(Y)
        values, denominator, guarded = self._kernel_rows(self.encoding_.encode(Y))
        K = kernel_matrix(self.codes_)
        K[np.diag_indices_from(K)] += self.regularization_
        weights = np.linalg.solve(K, values.T).T / denominator[:, None]
        weights[guarded] = values[guarded] / values[guarded].sum(axis=1, keepdims=True)
        return weights

    def smooth(self, Y: Array) -> Array:
        """Kernel-smooth the training rows: K (K + λI)⁻¹ Y (004 eq. 81).

        Unlike an image, a smoothed row is not divided by the sum of its weights.

        Parameters
        ----------
        Y : ndarray of shape (N, p)
            The rows this machine was fitted to, in the same order.
        """
        check_is_fitted(self, "codes_")
        solved = np.outer(self.denominators_, self.encoding_.mean)
        solved[:, self.encoding_.active] += self.coefficients_
        return np.asarray(Y - self.regularization_ * solved, dtype=Y.dtype)

    @property
    def norm_bound_(self) -> float:
        """‖Y‖₂ (λ* + μmax(K)) / (λ* + μmin(K)) of 004 eq. (46)."""
        check_is_fitted(self, "codes_")
        K = kernel_matrix(self.codes_)
        spectrum = eigvalsh(K)
        rows = self.encoding_.mean[self.encoding_.active] + self._training_offsets(K)
        constant = self.encoding_.mean[~self.encoding_.active]
        gram = rows @ rows.T + constant @ constant
        length = np.sqrt(max(float(eigvalsh(gram)[-1]), 0.0))
        smallest = max(float(spectrum[0]), 0.0)
        ratio = (self.regularization_ + spectrum[-1]) / (self.regularization_ + smallest)
        return float(length * ratio)

    def _training_offsets(self, K: Array) -> Array:
        """Training rows minus their mean, recovered as (K + λI) times the coefficients."""
        return np.asarray(K @ self.coefficients_ + self.regularization_ * self.coefficients_)

    def _validated(self, Y: Array) -> Array:
        check_is_fitted(self, "codes_")
        Y = validate_data(self, Y, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(Y, dtype=self.codes_.dtype)

    def _kernel_rows(self, codes: Array) -> tuple[Array, Array, Indices]:
        """Kernel values up to a factor per row, their denominators, and the rows to guard."""
        rows = KernelRows(self.codes_)
        values = rows.relative(codes)
        denominator = values @ self.denominators_
        floor = np.einsum("ij,ij->i", values, values)
        floor *= guard_level(self)
        guarded = np.flatnonzero(denominator < floor)
        return values, denominator, guarded

    def offset(self, codes: Array) -> Array:
        """Image minus mean in the active features, for whitened codes of the queries."""
        values, denominator, guarded = self._kernel_rows(codes)
        offset = values @ self.coefficients_
        offset /= denominator[:, None]
        if guarded.size:
            weights = values[guarded] / values[guarded].sum(axis=1, keepdims=True)
            offset[guarded] = weights @ self._training_offsets(kernel_matrix(self.codes_))
        return offset


def _largest_eigenvalue(K: Array, n_steps: int = 12) -> float:
    """Rayleigh quotient after a few power steps: close to μmax(K) and never above it."""
    vector = np.ones(K.shape[0], dtype=K.dtype)
    for _ in range(n_steps):
        vector = product(K.T, (vector / np.linalg.norm(vector))[:, None])[:, 0]
    vector /= np.linalg.norm(vector)
    return float(vector @ product(K.T, vector[:, None])[:, 0])

"""Kernel affine hull machines (document 004, section 3).

A machine codes the training rows by whitened principal coordinates, solves a regularised least
squares problem in the Gaussian kernel of the codes, and maps any point to an affine combination of
the training rows. The regularisation λ* is the fixed point of 004 Theorem 1; it costs a few
Cholesky factorisations, most of them in single precision. This file has, in this order, the
estimator, its kernel, and the search for λ*.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
from scipy.linalg import eigvalsh, get_lapack_funcs
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array, Mask
from permea._validate import Accepted, number, validate_parameters, whole
from permea.models.autoencoder import Draft, KernelAutoencoder
from permea.models.base import FLOATS
from permea.models.encoding import Encoding, principal_encoding
from permea.models.linear_algebra import product

_BLOCK = 512  # rows of a kernel matrix that are mirrored at once
_SKETCH = 96  # columns of a sketch
_MOST_STEPS = 50  # towards λ*, in each precision
_FAINT = {np.dtype(kind): np.finfo(kind).tiny ** 0.5 for kind in (np.float64, np.float32)}


@dataclass(kw_only=True, eq=False, repr=False)
class KernelAffineHullMachine(KernelAutoencoder):
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
        Subspace dimension n of the encoding P. It is lowered, with a warning, to what the rows can
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
    ratio_bound_ : float
        The distance of a point y to its image is less than this times the spectral norm of the
        matrix of its differences y − y^i to the training rows (004 Theorem 3). Computed on first
        use.
    loose_ratio_bound_ : float
        A larger bound of the same ratio, of the size of the rows only.
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

    n_components: int = 20
    tol: float = 5e-3

    _parameters: ClassVar[Accepted] = {"n_components": whole(1), "tol": number(above=0)}
    layers_need_images: ClassVar[bool] = False  # all layers learn from the same rows (004 eq. 51)

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
        Y = validate_data(self, Y, dtype=FLOATS)
        return self._learn(Y, principal_encoding(Y, self.n_components))

    def next_layer(self, Y: Array, image: Array) -> "KernelAffineHullMachine":
        """Fit the machine with one code dimension less on the same rows (004 eq. 51).

        The encoding is shared: leaving out the last principal direction is all that changes. The
        machine with one dimension is followed by itself, as n_l = max(n − l + 1, 1).
        """
        n_components = self.n_components_ - 1
        if n_components < 1:
            return self
        layer = KernelAffineHullMachine(n_components=n_components, tol=self.tol)
        layer.n_features_in_ = self.n_features_in_
        return layer._learn(Y, self.encoding_.narrowed(n_components), start=self.error_)

    def _learn(self, Y: Array, encoding: Encoding, start: float | None = None) -> Self:
        """Solve for the coefficients on a given encoding."""
        centred = encoding.centre(Y)
        self.encoding_ = encoding
        self.n_components_ = encoding.n_components
        self.codes_ = encoding.whiten(product(centred, encoding.components))
        K = kernel_matrix(self.codes_)
        self.largest_eigenvalue_ = _largest_eigenvalue(K)
        targets = Targets.of(centred, encoding.mean, encoding.active, Y.shape[1])
        solution = solve_fixed_point(K, targets, tol=self.tol, start=start)
        self.coefficients_ = solution.coefficients
        self.denominators_ = solution.denominators
        self.regularization_ = solution.regularization
        self.error_ = solution.error
        self.residual_ = solution.residual
        self.n_iter_ = solution.n_iter
        return self

    def _image_weights(self, coordinates: Array) -> Array:
        """Rows w with image = mean + w A, A = ``coefficients_`` = (K + λI)⁻¹ C for centred rows C.

        They are k/Σh. Where Σh is below the bound of 004 eq. (147), the weights k/Σk of the
        training rows, written as (k/Σk)(K + λI) A, take their place.
        """
        values = relative_kernel(self.encoding_.whiten(coordinates), self.codes_)
        columns = np.column_stack([self.denominators_, np.ones_like(self.denominators_)])
        denominators, sums = (values @ columns).T
        least = self._least_share
        # The bound is ‖k‖² times `least`; Σk is cheaper and never smaller, as no k exceeds 1.
        low = np.flatnonzero(denominators < least * sums)
        squares = np.einsum("ij,ij->i", values[low], values[low])
        low = low[denominators[low] < least * squares]
        plain = values[low] / sums[low, None]
        denominators[low] = 1
        values /= denominators[:, None]
        if low.size:
            values[low] = plain @ kernel_matrix(self.codes_) + self.regularization_ * plain
        return values

    def _image_map(self) -> tuple[Array, Array]:
        return self.coefficients_, np.zeros(self.coefficients_.shape[1], self.coefficients_.dtype)

    def _draft_arrays(self, basis: Array) -> tuple[Array, ...]:
        """A in a basis with the denominators and a column of ones; codes for `_draft`."""
        columns = [self.coefficients_ @ basis, self.denominators_, np.ones_like(self.denominators_)]
        codes, scales = _augmented(self.codes_), self.encoding_.scales
        codes[:-2] /= scales[:, None]
        return np.column_stack(columns), codes, np.square(1 / scales) / -2

    def _draft(self, coordinates: Array, columns: Array, *codes: Array) -> Draft:
        """Kernel values instead of weights: what they are divided by is a column of the product.

        Rows for which that is too small, or whose kernel values are rounded to zero, are left to
        `_image_weights`.
        """
        n = self.n_components_
        queries = np.ones((len(coordinates), n + 2), dtype=columns.dtype)
        queries[:, :n] = coordinates[:, :n]
        queries[:, n + 1] = np.square(queries[:, :n]) @ codes[1]
        values = queries @ codes[0]
        np.exp(values, out=values)
        products = values @ columns
        offsets, denominators, sums = products[:, :-2], products[:, -2], products[:, -1]
        certain = denominators >= np.maximum(sums, _FAINT[values.dtype]) * self._least_share
        if not certain.all():
            rare = np.flatnonzero(~certain)
            some = values[rare]  # Σk/max k is cheaper than ‖k/max k‖², and never smaller
            least = self._least_share * np.einsum("ij,ij->i", some, some)
            largest = some.max(axis=1)
            doubtful = (largest > _FAINT[values.dtype]) & (denominators[rare] * largest >= least)
            rare = rare[~doubtful]
            values[rare] = self._image_weights(coordinates[rare])
            offsets[rare] = values[rare] @ columns[:, :-2]
            denominators[rare] = 1
        offsets /= denominators[:, None]
        return Draft(values, denominators, offsets)

    @property
    def _least_share(self) -> float:
        """What 004 eq. (147) promises of Σh as a share of ‖k‖², less rounding errors."""
        rounding = np.sqrt(np.finfo(self.codes_.dtype).eps)
        return float(1 - rounding) / (self.regularization_ + self.largest_eigenvalue_)

    def weights(self, Y: Array) -> Array:
        """Affine weights of the training rows in each image; every row sums to one."""
        Y = self._validated(Y)
        K = kernel_matrix(self.codes_)
        K[np.diag_indices_from(K)] += self.regularization_
        coordinates = self.encoding_.centre(Y) @ self.encoding_.components
        return np.asarray(np.linalg.solve(K, self._image_weights(coordinates).T).T)

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
    def ratio_bound_(self) -> float:
        """(λ* + μmax(K)) / (λ* + μmin(K)) of 004 eq. (49)."""
        return self._bounds().ratio

    @property
    def loose_ratio_bound_(self) -> float:
        """1 + pN² / (2‖Y‖²_F), the right side of 004 eq. (49), which needs no kernel."""
        return self._bounds().loose

    @property
    def norm_bound_(self) -> float:
        """‖Y‖₂ (λ* + μmax(K)) / (λ* + μmin(K)) of 004 eq. (46)."""
        return self._bounds().ratio * self._bounds().length

    def _bounds(self) -> "Bounds":
        """Bounds of 004 Theorems 2 and 3, computed from what the machine keeps."""
        check_is_fitted(self, "codes_")
        if self.codes_ is _bounds_of.get(self, (None, None))[0]:
            return _bounds_of[self][1]
        K = kernel_matrix(self.codes_)
        spectrum = eigvalsh(K)
        mean, active = self.encoding_.mean, self.encoding_.active
        rows = mean[active] + K @ self.coefficients_ + self.regularization_ * self.coefficients_
        gram = rows @ rows.T + mean[~active] @ mean[~active]
        energy = max(float(np.trace(gram)), float(np.finfo(np.float64).tiny))
        smallest = max(float(spectrum[0]), 0.0)
        ratio = (self.regularization_ + spectrum[-1]) / (self.regularization_ + smallest)
        found = Bounds(
            ratio=float(ratio),
            loose=1 + len(mean) * len(K) ** 2 / (2 * energy),
            length=float(np.sqrt(max(float(eigvalsh(gram)[-1]), 0.0))),
        )
        _bounds_of[self] = (self.codes_, found)
        return found


class Bounds(NamedTuple):
    """What 004 Theorems 2 and 3 bound images and distances by."""

    ratio: float  #: (λ* + μmax(K)) / (λ* + μmin(K))
    loose: float  #: 1 + pN²/(2‖Y‖²_F)
    length: float  #: ‖Y‖₂


_bounds_of: "WeakKeyDictionary[KernelAffineHullMachine, tuple[Array, Bounds]]" = WeakKeyDictionary()


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


def relative_kernel(queries: Array, codes: Array) -> Array:
    """Kernel values between queries and training codes, divided by the largest of their row.

    The image of a machine is a ratio that is linear in the kernel values above and below, so each
    row may be multiplied by any positive factor. A row with maximum 1 never underflows to zeros,
    however far the query is.

    Examples
    --------
    >>> import numpy as np
    >>> relative_kernel(np.array([[0.0], [1e6]]), np.array([[0.0], [1.0]])).max(axis=1)
    array([1., 1.])
    """
    # [q, 1] · [x, −‖x‖²/2] / n = (‖q‖² − ‖x − q‖²) / (2n)
    ones = np.ones_like(queries, shape=len(queries))
    exponents = np.column_stack([queries, ones]) @ _augmented(codes)[:-1]
    exponents -= exponents.max(axis=1, keepdims=True)
    return np.asarray(np.exp(exponents, out=exponents))


def _augmented(codes: Array) -> Array:
    """Columns [x, −‖x‖²/2, 1] / n, so that [q, 1, −‖q‖²/2] times them is −‖x − q‖²/(2n)."""
    half_norms = np.einsum("ij,ij->i", codes, codes) / -2
    columns = np.vstack([codes.T, half_norms, np.ones_like(half_norms)])
    return np.asarray(columns / max(codes.shape[1], 1), dtype=codes.dtype)


def _largest_eigenvalue(K: Array, n_steps: int = 12) -> float:
    """Rayleigh quotient after a few power steps: close to μmax(K) and never above it."""
    vector = np.ones(K.shape[0], dtype=K.dtype)
    for _ in range(n_steps):
        vector = product(K.T, (vector / np.linalg.norm(vector))[:, None])[:, 0]
    vector /= np.linalg.norm(vector)
    return float(vector @ product(K.T, vector[:, None])[:, 0])


class Targets(NamedTuple):
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
        cross = product(centred, mean[active][:, None])[:, 0]
        return cls(centred, cross, float(np.dot(mean, mean)), n_features * len(centred))

    @property
    def threshold(self) -> float:
        """τ = 2‖Y‖²_F/(pN), the smallest that makes the iteration contract (004 eq. 24)."""
        energy = float(np.vdot(self.square, self.square)) + 2 * float(self.cross.sum())
        total = energy + self.square.shape[0] * self.mean_energy
        return float(max(2 * total / self.size, np.finfo(np.float64).tiny))

    def columns(self) -> Array:
        """All columns side by side, ready for one solve."""
        ones = np.ones_like(self.cross)
        return np.asfortranarray(np.column_stack([self.square, self.cross, ones]))

    def error(self, solved: Array, regularization: float) -> float:
        """Mean squared error e(λ) from the solved columns."""
        square, cross, ones = solved[:, :-2], solved[:, -2], solved[:, -1]
        energy = float(np.einsum("ij,ij->", square, square)) + 2 * float(cross @ ones)
        energy += self.mean_energy * float(ones @ ones)
        return regularization**2 * energy / self.size

    def sketched(self) -> "Targets":
        """Targets of a few random mixtures of the columns, in single precision.

        Their error has the same expectation; with many columns it is within a per cent or so, at
        a fraction of the cost of a solve.
        """
        r = self.square.shape[1]
        mixing = np.random.default_rng(0).standard_normal((r, _SKETCH)).astype(self.square.dtype)
        square = product(self.square, mixing) / np.sqrt(_SKETCH, dtype=self.square.dtype)
        return self._replace(square=square.astype(np.float32), cross=self.cross.astype(np.float32))


class Solution(NamedTuple):
    """(K + λ*I)⁻¹ [C, 1] with λ* and how it was found."""

    coefficients: Array  #: (N, r) (K + λ*I)⁻¹ C
    denominators: Array  #: (N,) (K + λ*I)⁻¹ 1
    regularization: float
    error: float
    residual: float  #: |e(λ) − (λ − τ)| / λ at the end
    n_iter: int  #: number of factorisations


def solve_fixed_point(
    K: Array,
    targets: Targets,
    *,
    tol: float = 5e-3,
    start: float | None = None,
    draft_size: int = 500,
) -> Solution:
    """Find λ* of 004 Theorem 1 and solve the regularised least squares problem with it.

    λ = e + τ with e = R(e), found by steps e ← e + (R(e) − e)/(1 − c) with a secant estimate of
    the slope c.

    Parameters
    ----------
    K : ndarray of shape (N, N)
        Kernel matrix with unit diagonal. It is overwritten.
    targets : Targets
        The rows to represent.
    tol : float
        The iteration ends when |R(e) − e| is at most ``tol`` times λ.
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
    error = tau / 4 if start is None else min(start, tau / 2)
    slope, last, n_iter = 0.2, (error, error), 0
    kernel = ShiftedKernel(K)
    stages = [(kernel, targets)]
    if K.shape[0] >= draft_size and targets.square.shape[1] > 2 * _SKETCH:
        single = kernel if K.dtype == np.float32 else ShiftedKernel(K.astype(np.float32, order="F"))
        stages.insert(0, (single, targets.sketched()))
    for stage, wanted in stages:
        columns = wanted.columns()
        for _ in range(_MOST_STEPS):
            regularization = stage.factor(error + tau)
            solved = stage.solve(columns)
            value = wanted.error(solved, regularization)
            residual = abs(value - error) / (error + tau)
            if n_iter and error != last[0]:
                slope = float(np.clip((value - last[1]) / (error - last[0]), 0.0, 0.9))
            last = (error, value)
            error = float(np.clip(error + (value - error) / (1 - slope), 0.0, tau / 2))
            n_iter += 1
            moved = abs(error - last[0]) / regularization
            draft_is_done = wanted is not targets and n_iter > 1 and moved <= 10 * tol
            if residual <= tol or draft_is_done:
                break
    return Solution(
        coefficients=np.ascontiguousarray(solved[:, :-2]),
        denominators=np.ascontiguousarray(solved[:, -1]),
        regularization=regularization,
        error=targets.error(solved, regularization),
        residual=residual,
        n_iter=n_iter,
    )


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

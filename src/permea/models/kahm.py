"""Kernel Affine Hull Machines: images in the affine hull of the data (004 section 3)."""

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy.linalg import eigvalsh
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from permea.models.base import Array, Indices, row_norms
from permea.models.encoding import Encoding, principal_encoding
from permea.models.first_look import query_chunks
from permea.models.kahm_layers import guard_level, layered_distance
from permea.models.kernel import KernelRows, kernel_matrix
from permea.models.products import product
from permea.models.regularization import Solution, Targets, solve_fixed_point


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

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
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
        self._validate_params()
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
        `permea.models.kahm_layers`.
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

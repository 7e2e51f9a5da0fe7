"""Matrix products and factorisations that the kernel models share.

Products come from SciPy's BLAS, the library that also factorises: NumPy brings one of its own, and
the threads of one would still be spinning while those of the other start. Every model ends in the
same linear system, (G + λI) Z = C with G symmetric and positive semidefinite, and finds λ by an
iteration that needs ⟨Z, C⟩ and ‖Z‖² only: one eigendecomposition gives both for every λ.
"""

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh, get_blas_funcs

from permea._arrays import Array


def product(A: Array, B: Array) -> Array:
    """A @ B, in C order.

    Examples
    --------
    >>> import numpy as np
    >>> product(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array([[11.]])
    """
    if A.shape[1] == 0 or B.shape[1] == 0:
        return np.zeros((A.shape[0], B.shape[1]), dtype=A.dtype)
    gemm = get_blas_funcs("gemm", (A, B))
    return np.asarray(gemm(1.0, B.T, A.T)).T  # (A B)ᵀ = Bᵀ Aᵀ: no operand is copied


def lower_gram(A: Array) -> Array:
    """Lower triangle of AᵀA (the upper one is zero), in Fortran order."""
    syrk = get_blas_funcs("syrk", (A,))
    return np.asarray(syrk(1.0, A.T, lower=1))


def jittered_cholesky(K: Array) -> Array:
    """Lower Cholesky factor of a kernel matrix with unit diagonal that may be close to singular.

    The diagonal is raised by the rounding error of the matrix, and tenfold again until the
    factorisation succeeds. ``K`` is overwritten.

    Examples
    --------
    >>> import numpy as np
    >>> L = jittered_cholesky(np.ones((3, 3)))
    >>> bool(np.allclose(L @ L.T, 1, atol=1e-12))
    True
    """
    jitter = K.shape[0] * float(np.finfo(K.dtype).eps)
    while True:
        np.fill_diagonal(K, 1 + jitter)
        try:
            return np.asarray(cholesky(K, lower=True, check_finite=False))
        except LinAlgError:
            jitter *= 10


class RidgePath:
    """The solution of (G + λI) Z = C for every λ > 0 from one eigendecomposition of G.

    Parameters
    ----------
    G : ndarray of shape (M, M)
        Symmetric and positive semidefinite up to rounding.
    C : ndarray of shape (M, p)

    Examples
    --------
    >>> import numpy as np
    >>> path = RidgePath(np.diag([1.0, 3.0]), np.array([[2.0], [4.0]]))
    >>> path.solve(1.0).ravel()
    array([1., 1.])
    >>> path.inner(1.0), path.squared_norm(1.0)
    (6.0, 2.0)
    """

    def __init__(self, G: Array, C: Array) -> None:
        values, self._vectors = eigh(G, driver="evd", check_finite=False)
        self.values = np.maximum(values.astype(np.float64), 0)
        self._rotated = self._vectors.T @ C
        self._energies = np.einsum("ij,ij->i", self._rotated, self._rotated, dtype=np.float64)
        self.floor = max(self.values.size * float(np.finfo(G.dtype).eps), 1e-300)
        self.floor *= max(float(self.values.max(initial=0.0)), float(np.finfo(G.dtype).tiny))

    def inner(self, regularization: float) -> float:
        """⟨Z, C⟩."""
        return float(np.sum(self._energies / self._shifted(regularization)))

    def squared_norm(self, regularization: float) -> float:
        """‖Z‖²."""
        return float(np.sum(self._energies / self._shifted(regularization) ** 2))

    def residual(self, regularization: float, energy: float) -> float:
        """‖Y − BZ‖² where G = BᵀB, C = BᵀY and ‖Y‖² = ``energy``, up to rounding errors.

        It is ‖Y‖² − ⟨Z, C⟩ − λ‖Z‖², because GZ = C − λZ.
        """
        used = max(regularization, self.floor)
        return energy - self.inner(used) - used * self.squared_norm(used)

    def trace(self, regularization: float) -> float:
        """Trace of G (G + λI)⁻¹, the number of effective parameters."""
        return float(np.sum(self.values / self._shifted(regularization)))

    def left_out(self, regularization: float, B: Array, Y: Array) -> float:
        """Mean squared error of BZ on every row when Z is learned without that row.

        With H = B (G + λI)⁻¹ Bᵀ and C = BᵀY the residual of a row that is left out is
        (y − ŷ)/(1 − H_ii), where G is BᵀB.

        Examples
        --------
        >>> B, Y = np.array([[1.0], [1.0]]), np.array([[0.0], [2.0]])
        >>> path = RidgePath(B.T @ B, B.T @ Y)
        >>> round(path.left_out(1e-12, B, Y), 6)  # each row is predicted by the other
        4.0
        """
        Q = B @ self._vectors
        divided = 1 / self._shifted(regularization)
        residual = Y - Q @ (self._rotated * divided[:, None])
        kept = 1 - np.einsum("ij,ij,j->i", Q, Q, divided)
        residual /= np.maximum(kept, float(np.sqrt(np.finfo(B.dtype).eps)))[:, None]
        return float(np.mean(np.square(residual, dtype=np.float64)))

    def solve(self, regularization: float) -> Array:
        """Z itself, in the precision of G."""
        divided = self._rotated / self._shifted(regularization)[:, None]
        return np.asarray(self._vectors @ divided.astype(self._vectors.dtype))

    def _shifted(self, regularization: float) -> Array:
        """Eigenvalues of G + λI, with λ never below the rounding error of G."""
        return self.values + max(regularization, self.floor)

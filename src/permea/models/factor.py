"""Two factorisations that the kernel models share: a Cholesky that never fails, a ridge for all λ.

Every model of this package ends in the same linear system, (G + λI) Z = C with G symmetric and
positive semidefinite, and finds λ by an iteration that asks for two numbers of the solution only:
⟨Z, C⟩ and ‖Z‖². One eigendecomposition answers both for every λ at the cost of M additions, so
the iterations of 000, 001 and 002 may run until they converge.
"""

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh

from permea.models.base import Array


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

    def trace(self, regularization: float) -> float:
        """Trace of G (G + λI)⁻¹, the number of effective parameters."""
        return float(np.sum(self.values / self._shifted(regularization)))

    def solve(self, regularization: float) -> Array:
        """Z itself, in the precision of G."""
        divided = self._rotated / self._shifted(regularization)[:, None]
        return np.asarray(self._vectors @ divided.astype(self._vectors.dtype))

    def _shifted(self, regularization: float) -> Array:
        """Eigenvalues of G + λI, with λ never below the rounding error of G."""
        return self.values + max(regularization, self.floor)

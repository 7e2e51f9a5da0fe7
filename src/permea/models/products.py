"""Matrix products by the linear-algebra library that also factorises.

NumPy and SciPy bring a library each, with threads of its own. Where products and factorisations
take turns, the threads of one would still be spinning while those of the other start, and both get
half a core. Learning therefore takes its large products from SciPy's library, as its Cholesky
factors are.
"""

import numpy as np
from scipy.linalg import get_blas_funcs

from permea.models.base import Array


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

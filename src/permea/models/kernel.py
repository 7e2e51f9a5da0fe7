"""The Gaussian kernel on whitened codes, and its value far away from all data."""

import numpy as np

from permea.models.base import Array
from permea.models.products import product


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

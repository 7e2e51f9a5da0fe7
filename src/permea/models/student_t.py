"""The Student-t membership function that membership mappings are made of (000 Def. 1)."""

import math

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import gammaln

from permea.models.base import Array


def log_membership(values: Array, K: Array, nu: float, mean: Array | None = None) -> Array:
    r"""Logarithm of the membership of mapping outputs to a Student-t membership mapping.

    For outputs y at a set of inputs with kernel matrix K and ν > 2 degrees of freedom,

    .. math:: \log\zeta(y) = -\tfrac{\nu + |x|}{2}
              \log\bigl(1 + \tfrac{1}{\nu - 2}(y - m)^T K^{-1} (y - m)\bigr)

    (000 eq. 17). It is 0 at the mean and falls the faster the smaller ν is. The limit for infinite
    ν is Gaussian.

    Parameters
    ----------
    values : ndarray of shape (m, d)
        Outputs y, one set of d of them in each row.
    K : ndarray of shape (d, d)
        Kernel matrix of the d inputs, positive definite.
    nu : float
        Degrees of freedom ν.
    mean : ndarray of shape (d,), default=None
        The mean m; zero when None.

    Returns
    -------
    ndarray of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> log_membership(np.array([[0.0], [1.0]]), np.eye(1), nu=3.0).round(3)
    array([-0.   , -1.386])
    """
    if not nu > 2:
        raise ValueError(f"nu={nu} but the degrees of freedom must be larger than 2 (000 Def. 1).")
    values = np.atleast_2d(values)
    centred = values if mean is None else values - mean
    L = cholesky(K, lower=True)
    solved = solve_triangular(L, centred.T, lower=True)
    distance = np.einsum("ij,ij->j", solved, solved)
    if math.isinf(nu):
        return np.asarray(-0.5 * distance)
    return np.asarray(-0.5 * (nu + values.shape[1]) * np.log1p(distance / (nu - 2)))


def log_integral(K: Array, nu: float) -> float:
    r"""Logarithm of the integral of the membership function over all outputs.

    .. math:: \int \zeta = \frac{\Gamma(\nu/2)}{\Gamma((\nu + d)/2)}
              \,\pi^{d/2}\,(\nu - 2)^{d/2}\,|K|^{1/2}

    000 eq. (143) has the exponent 1/2 on (ν − 2)/ν where d/2 belongs; both agree for d = 1.

    Examples
    --------
    >>> import numpy as np
    >>> round(float(np.exp(log_integral(np.eye(1), 3.0))), 6)
    1.570796
    """
    d = K.shape[0]
    log_determinant = 2 * float(np.log(np.diag(cholesky(K, lower=True))).sum())
    log_gammas = float(gammaln(nu / 2) - gammaln((nu + d) / 2))
    return float(log_gammas + 0.5 * (d * math.log(math.pi * (nu - 2)) + log_determinant))

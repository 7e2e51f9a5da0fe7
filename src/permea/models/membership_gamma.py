"""Variational learning of membership mappings with gamma disturbance and uncertain inputs (000).

Every input x is only known up to a Gaussian of variance σx², and the disturbance has precision τ z
whose factors follow gamma membership functions with parameters that are learned themselves. The
kernel averaged over the uncertain inputs has closed forms (000 Appendix D):

    Ψ_im  = ⟨k(x^i, a^m)⟩                = c₁ exp(−½ Σ_k u_k |a^m_k − x^i_k|²),
    Φ_mm' = Σ_i ⟨k(a^m, x^i) k(x^i, a^m')⟩
          = c₂ exp(−¼ Σ_k (w_k − v_k)|a^m_k − a^m'_k|²) (EᵀE)_mm',
            E_im = exp(−½ Σ_k v_k |a^m_k − x^i_k|²),

with u_k = w_k/(1 + w_k σx²), v_k = w_k/(1 + 2 w_k σx²), c₁ = Π(1 + w_k σx²)^−½ and
c₂ = Π(1 + 2 w_k σx²)^−½ at σ² = 1. The second form of Φ is 000 eq. (155), with index k on both of
its inducing points, after completing the square: the sum over N rows of M² exponentials becomes
one product of N × M matrices.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import digamma

from permea.models.base import Array
from permea.models.factor import RidgePath, jittered_cholesky
from permea.models.inducing import gaussian_kernel, k_means, pivot_order, unit_range_scales
from permea.models.mapping import Mapping, scale_inputs


class AveragedKernel(NamedTuple):
    """Kernel averages over uncertain inputs at σ² = 1 (000 eq. 153 to 155)."""

    Psi: Array  #: (N, M)
    Phi: Array  #: (M, M)
    xi: float  #: N

    @classmethod
    def of(
        cls, X: Array, A: Array, weights: Array, input_variance: float | Array
    ) -> "AveragedKernel":
        """Averages for inputs ``X``, inducing points ``A``, weights w and variances σx²."""
        u, c1 = averaged_weights(weights, input_variance)
        v, c2 = averaged_weights(weights, 2 * input_variance)
        E = gaussian_kernel(X * np.sqrt(v), A * np.sqrt(v))
        rest = np.sqrt(np.maximum(weights - v, 0) / 2)
        return cls(
            Psi=c1 * gaussian_kernel(X * np.sqrt(u), A * np.sqrt(u)),
            Phi=c2 * gaussian_kernel(A * rest, A * rest) * (E.T @ E),
            xi=float(X.shape[0]),
        )


def averaged_weights(weights: Array, variance: float | Array) -> tuple[Array, float]:
    """Weights and factor of a Gaussian kernel after averaging one side over a Gaussian.

    Examples
    --------
    >>> import numpy as np
    >>> averaged_weights(np.array([1.0, 0.0]), 3.0)
    (array([0.25, 0.  ]), 0.5)
    """
    factors = 1 + weights * variance
    return weights / factors, float(np.exp(-0.5 * np.log(factors).sum()))


class Gammas(NamedTuple):
    """Shapes and rates of the gamma membership functions of τ, z, r and s (000 Def. 6)."""

    a_tau: float = 1.0
    b_tau: float = 1.0
    a_z: float = 1.0
    b_z: float = 1.0
    a_r: float = 1.0
    b_r: float = 1.0
    a_s: float = 1.0
    b_s: float = 1.0

    @property
    def precision(self) -> float:
        """⟨τ z⟩, the precision β of the disturbance (000 eq. 87 and 95)."""
        return float((self.a_tau / self.b_tau) * (self.a_z / self.b_z))

    @classmethod
    def initial(cls) -> "Gammas":
        """All ones, then s by (76) and (77) (000 Algorithm 1, steps 5 to 7)."""
        return cls(a_s=1.0 + 1.0, b_s=1.0 + 1.0)

    def updated(self, O: float, size: int) -> "Gammas":  # noqa: E741
        """One round of 000 eq. (67) to (77) for the objective O of (78) and size = N p."""
        a_tau = 1 + 0.5 * size
        b_tau = 1 + 0.5 * self.a_z / self.b_z * O
        a_z = 1 + 0.5 * size + self.a_r / self.b_r
        b_z = (self.a_r / self.b_r) * (self.a_s / self.b_s) + 0.5 * a_tau / b_tau * O
        a_r = 1.0
        b_r = (
            1
            + (self.a_s / self.b_s) * (a_z / b_z)
            - (digamma(self.a_s) - np.log(self.b_s))
            - 1
            - (digamma(a_z) - np.log(b_z))
        )
        a_s = 1 + a_r / b_r
        b_s = 1 + (a_r / b_r) * (a_z / b_z)
        return Gammas(a_tau, b_tau, a_z, b_z, a_r, float(b_r), a_s, b_s)


class GammaSystem:
    """The linear system of 000 eq. (89) for every value of τ z.

    With K_aa = L Lᵀ and t = (ξ − Tr K_aa⁻¹Φ)/(ν + M − 2) it is ridge regression with the matrix
    L⁻¹ Φ L⁻ᵀ + t I and strength 1/(τ z). ν = ∞ makes t vanish (000 Algorithm 2).
    """

    def __init__(self, Kaa: Array, kernel: AveragedKernel, Y: Array, nu: float) -> None:
        M = Kaa.shape[0]
        self.factor = jittered_cholesky(Kaa.copy())
        half = solve_triangular(self.factor, kernel.Phi, lower=True, check_finite=False)
        H = solve_triangular(self.factor, half.T, lower=True, check_finite=False)
        self.smoothing = max(kernel.xi - float(np.trace(H)), 0.0) / (nu + M - 2)
        H = 0.5 * (H + H.T)
        H[np.diag_indices(M)] += self.smoothing
        C = solve_triangular(self.factor, kernel.Psi.T @ Y, lower=True, check_finite=False)
        self.path = RidgePath(H, C)
        self.energy = float(np.einsum("ij,ij->", Y, Y, dtype=np.float64))
        self.rounding = float(np.finfo(np.float64).eps) * max(self.energy, Y.size, 1)

    def objective(self, precision: float) -> float:
        """O of 000 eq. (96).

        With m = K_aa α its four terms are ‖Y‖² − 2⟨Z, C⟩ + ⟨Z, H Z⟩, and H Z = C − Z/(τ z).
        """
        strength = max(1 / precision, self.path.floor)
        value = self.energy - self.path.inner(strength)
        value -= strength * self.path.squared_norm(strength)
        return float(max(value, self.rounding))

    def coefficients(self, precision: float) -> Array:
        """α of 000 eq. (89)."""
        Z = self.path.solve(max(1 / precision, self.path.floor))
        return np.asarray(solve_triangular(self.factor, Z, lower=True, trans=1, check_finite=False))


def learn_gamma_mapping(
    X: Array,
    Y: Array,
    *,
    n_inducing: int,
    nu: float = 2.1,
    input_variance: float | Array = 0.01,
    inducing: str = "kmeans",
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> Mapping:
    """Learn a membership mapping by 000 Algorithm 1.

    Parameters
    ----------
    X : ndarray of shape (N, n)
    Y : ndarray of shape (N, p)
    n_inducing : int
        Number M of inducing points; fewer where the inputs have fewer distinct values.
    nu : float
        Degrees of freedom ν, may be infinite.
    input_variance : float or ndarray of shape (n,)
        σx², the variance of every input.
    inducing : {"kmeans", "pivots"}
    tol : float
        The iteration ends when β changes by less than this share of itself.
    max_iter : int

    Returns
    -------
    Mapping

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> mapping = learn_gamma_mapping(X, X**2 - 0.34, n_inducing=25, input_variance=1e-4)
    >>> bool(np.abs(mapping(X) - X**2 + 0.34).max() < 0.1)
    True
    """
    scales = unit_range_scales(X)
    scaled = scale_inputs(X, scales)
    order, _ = pivot_order(scaled, n_inducing, 0.0, 2.1)
    points = scaled[order]
    if inducing == "kmeans":
        points, _ = k_means(scaled, points)
    # In scaled inputs every kernel weight is 1 and the variance of input k is w_k σx².
    spread = scales**2 * np.asarray(input_variance, dtype=X.dtype)
    kernel = AveragedKernel.of(scaled, points, np.ones_like(scales), spread)
    system = GammaSystem(gaussian_kernel(points, points), kernel, Y, nu)

    gammas, n_iter = Gammas.initial(), 0
    while n_iter < max_iter:
        n_iter += 1
        previous = gammas.precision
        gammas = gammas.updated(system.objective(previous), Y.size)
        if abs(gammas.precision - previous) <= tol * previous:
            break
    u, c1 = averaged_weights(np.ones_like(scales), spread)
    return Mapping(
        scales=scales * np.sqrt(u),
        points=points * np.sqrt(u),
        coefficients=c1 * system.coefficients(gammas.precision),
        scale=1.0,
        precision=gammas.precision,
        smoothing=system.smoothing,
        n_iter=n_iter,
    )

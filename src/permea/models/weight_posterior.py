r"""Variational inference of the weights and the noise of a linear model, in its eigenbasis.

The model of 003 eq. (50) to (53) and (78) to (81) is t_k = G(x) θ_k + e_k for k = 1 … q, with a
normal belief about each θ_k and a gamma belief about the one precision γ of all e_k. Algorithms 7
and 8 of 003 both maximise

    L = ⟨log p(t | θ, γ)⟩ − Σ_k KL(q(θ_k) ‖ p(θ_k)) − KL(q(γ) ‖ p(γ))

over q(θ) q(γ): Algorithm 7 with all N rows, Algorithm 8 with one average row. The belief about θ_k
before the data has the same covariance for every k, a multiple of the identity, and so everything
stays diagonal in the eigenbasis of RᵀR: after ONE eigendecomposition an update costs M additions,
whatever q is, and no array is larger than M × q.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln

from permea.models.base import Array

_LOG_2PI = math.log(2 * math.pi)


class Statistics(NamedTuple):
    """All that the updates need to know of the rows, in the eigenbasis V of RᵀR."""

    values: Array  #: (M,) eigenvalues of RᵀR
    cross: Array  #: (M, q) Vᵀ Rᵀ T
    energy: float  #: ‖T‖²
    n_rows: int  #: N


class Belief(NamedTuple):
    """Normal weights that share one precision per eigendirection, and a gamma noise precision."""

    precisions: Array  #: (M,) eigenvalues of Λ
    means: Array  #: (M, q) Vᵀ m
    shape: float  #: a of the gamma distribution
    rate: float  #: b of the gamma distribution

    @property
    def noise_precision(self) -> float:
        """Expected precision of the noise, a/b."""
        return self.shape / self.rate


class Terms(NamedTuple):
    """What one update of the weights amounts to, in numbers."""

    precisions: Array  #: (M,)
    kept: Array  #: (M,) share of the earlier mean in the new one
    added: Array  #: (M,) factor on the cross products in the new mean
    misfit: float  #: ‖T − R m‖²
    spread: float  #: Tr(Λ⁻¹ RᵀR), once, not q times
    moved: float  #: Σ_k (m_k − m0_k)ᵀ Λ0 (m_k − m0_k)


class _Products(NamedTuple):
    """Row-wise inner products of the earlier means P and the cross products C."""

    PP: Array
    PC: Array
    CC: Array


def infer(
    rows: Statistics,
    prior: Belief,
    *,
    share: float = 1.0,
    noise_precision: float = 1.0,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> tuple[Belief, list[float]]:
    r"""Update weights and noise in turn until the noise precision no longer changes.

    Parameters
    ----------
    rows : Statistics
        The data.
    prior : Belief
        What is believed before.
    share : float
        Weight of every row: 1 gives the updates (74) to (77) of 003, 1/N turns sums into sample
        averages and gives (99) to (102), with m̂ on the right-hand side of (100).
    noise_precision : float
        a/b to start from.
    tol, max_iter
        The iteration ends when a/b changes by less than this share of itself.

    Returns
    -------
    Belief
        The optimal distributions.
    list of float
        L after every update, which never falls. With ``share=1/N`` the last one is (98).

    Examples
    --------
    One weight, one output, three rows of the constant input 1: the mean of t is found.

    >>> import numpy as np
    >>> rows = Statistics(np.array([3.0]), np.array([[6.0]]), 14.0, 3)
    >>> before = Belief(np.array([1e-3]), np.zeros((1, 1)), 1e-3, 1e-3)
    >>> after, energies = infer(rows, before)
    >>> after.means.round(2)
    array([[2.]])
    >>> all(later >= earlier for earlier, later in zip(energies, energies[1:]))
    True
    """
    products = _Products(
        PP=np.einsum("ij,ij->i", prior.means, prior.means),
        PC=np.einsum("ij,ij->i", prior.means, rows.cross),
        CC=np.einsum("ij,ij->i", rows.cross, rows.cross),
    )
    q = rows.cross.shape[1]
    shape = prior.shape + 0.5 * q * rows.n_rows * share  # (76), (101)
    energies: list[float] = []
    for _ in range(max_iter):
        terms = _weights(rows, prior, products, share, noise_precision)
        rate = prior.rate + 0.5 * share * (terms.misfit + q * terms.spread)  # (77), (102)
        energies.append(_free_energy(rows, prior, terms, shape, rate, share))
        previous, noise_precision = noise_precision, shape / rate
        if abs(noise_precision - previous) <= tol * previous:
            break
    means = terms.kept[:, None] * prior.means + terms.added[:, None] * rows.cross
    return Belief(terms.precisions, means, shape, rate), energies


def _weights(
    rows: Statistics, prior: Belief, products: _Products, share: float, gamma: float
) -> Terms:
    """Updates (74), (75) or (99), (100): Λ = Λ0 + γ RᵀR and m = Λ⁻¹ (Λ0 m0 + γ Rᵀ t)."""
    PP, PC, CC = products
    precisions = prior.precisions + gamma * share * rows.values
    kept, added = prior.precisions / precisions, gamma * share / precisions
    lost = gamma * share * rows.values / precisions  # 1 − kept, without cancellation
    inner = kept * PC + added * CC
    squares = kept**2 * PP + 2 * kept * added * PC + added**2 * CC
    misfit = rows.energy - 2 * float(inner.sum()) + float(rows.values @ squares)
    rounding = float(np.finfo(np.float64).eps) * rows.n_rows * rows.energy
    moves = lost**2 * PP - 2 * lost * added * PC + added**2 * CC
    return Terms(
        precisions=precisions,
        kept=kept,
        added=added,
        misfit=max(misfit, rounding),
        spread=float(np.sum(rows.values / precisions)),
        moved=float(prior.precisions @ np.maximum(moves, 0)),
    )


def _free_energy(
    rows: Statistics, prior: Belief, terms: Terms, shape: float, rate: float, share: float
) -> float:
    """L of (68), or of (107) with ``share`` = 1/N, as the sum of its three terms."""
    q, count = rows.cross.shape[1], rows.n_rows * share
    expected_log = float(digamma(shape)) - math.log(rate)  # ⟨log γ⟩
    fit = 0.5 * q * count * (expected_log - _LOG_2PI)
    fit -= 0.5 * shape / rate * share * (terms.misfit + q * terms.spread)
    weights = weight_divergence(prior, terms.precisions, terms.moved, q)
    return float(fit - weights - gamma_divergence(shape, rate, prior.shape, prior.rate))


def weight_divergence(prior: Belief, precisions: Array, moved: float, q: int) -> float:
    """Σ_k KL(q(θ_k) ‖ p(θ_k)) of q normal distributions that share their covariances."""
    ratio = prior.precisions / precisions
    return 0.5 * (q * float(np.sum(ratio - 1 - np.log(ratio))) + moved)


def gamma_divergence(shape: float, rate: float, shape0: float, rate0: float) -> float:
    """KL of Gamma(shape, rate) from Gamma(shape0, rate0).

    Examples
    --------
    >>> gamma_divergence(2.0, 3.0, 2.0, 3.0)
    0.0
    >>> gamma_divergence(2.0, 3.0, 1.0, 3.0) > 0
    True
    """
    return float(
        (shape - shape0) * digamma(shape)
        - gammaln(shape)
        + gammaln(shape0)
        + shape0 * (math.log(rate) - math.log(rate0))
        + shape * (rate0 - rate) / rate
    )

"""Bayesian membership mappings: regression with error bars (document 003, section 3).

The kernel and the inducing points come from a membership mapping; its weights get normal
distributions and the noise a gamma distribution, inferred by variational Bayes (003 Algorithm 7).
The model assumes noise of the same variance for every output, which does not hold for ages in
years beside weights in grams. Outputs are therefore brought into a frame t' = (t − offset) W first
and taken back afterwards. A change of frame changes a density by a constant factor only: an entropy
in the old frame is the one in the new frame minus log|det W|. This file has the estimator, the
frames, and the inference.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
from scipy.linalg import eigh, solve_triangular
from scipy.special import digamma, gammaln
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array
from permea._parallel import batches
from permea._validate import Accepted, boolean, number, one_of, validate_parameters, whole
from permea.models.base import MultiOutputRegressor, count_of
from permea.models.inducing import gaussian_kernel, scale_inputs
from permea.models.linear_algebra import jittered_cholesky
from permea.models.membership import Mapping, learn_precision_mapping

_NEGLIGIBLE = 1e-12  # share of the largest variance below which a direction counts as constant
_CHUNK_ENTRIES = 4_000_000  # kernel values held at once
_MOST_INDUCING = 1000  # 003 Algorithm 8, step 1
_REACH_LEVEL = 0.95  # share of the training rows that lie within reach of the inducing points
_LOG_2PI = math.log(2 * math.pi)


@dataclass(kw_only=True, eq=False, repr=False)
class BayesianMembershipMapping(MultiOutputRegressor):
    r"""Nonlinear regression with error bars by a variational membership-mapping Bayesian model.

    The outputs t of an input x are modelled as

    .. math:: t_k = G(x)\,\theta_k + e_k, \qquad
              \theta_k \sim N(\alpha_k, \Lambda^{-1}), \quad
              e_k \sim N(0, \gamma^{-1}), \quad \gamma \sim \mathrm{Gamma}(a, b)

    (003 eq. 50 to 53), where G(x) holds the kernel values of x at M inducing points and α is what a
    membership mapping learned (003 Algorithm 1, `MembershipMapping`). Mean-field variational
    inference (003 Algorithm 7) gives a normal posterior of every θ_k, a gamma posterior of γ, and a
    lower bound of the evidence that no update lowers.

    Parameters
    ----------
    max_inducing : int, float or None, default=None
        Largest number of inducing points: a count, a share of the rows, or min(⌈N/2⌉, 1000) as in
        003 Algorithm 8.
    noise : {"per_output", "shared", "full"}, default="per_output"
        "shared": one noise variance for all outputs, in their own units (003). "per_output": every
        output has its own. "full": a full noise covariance. The latter two fit once, measure the
        residuals, and fit again in coordinates in which the residuals have unit variance.
    trend : {"none", "linear"}, default="none"
        "linear" gives G(x) the principal coordinates of x beside the kernel values, so that a
        linear relation is found whatever the scales and correlations of the inputs are. "none" is
        003.
    inducing : {"kmeans", "inputs", "pivots"}, default="kmeans"
    standardize : bool, default=True
        With ``noise="shared"``: model the outputs minus their mean in units of one common standard
        deviation. False models them as they are, which is what 003 does. The other kinds of noise
        always standardise.
    bandwidth : float or "auto", default="auto"
    nu : float, default=2.1
    kappa : float, default=0.1
        See `MembershipMapping`.
    prior_precision : float, default=1e-3
        Λ = ``prior_precision`` · I (003 Algorithm 7, step 2).
    prior_shape, prior_rate : float, default=1e-3
        a and b of the prior of γ (step 3).
    far : {"widen", "plain"}, default="widen"
        Error bars of inputs far from all training rows, where every kernel value vanishes: let
        them grow to the spread of the training outputs, or leave them at the noise level, which is
        what (78) to (81) say.
    tol : float, default=1e-6
        The iteration ends when the noise precision changes by less than this share of itself.
    max_iter : int, default=1000

    Attributes
    ----------
    free_energy_ : ndarray
        Negative free energy L (003 eq. 68) after each update, in nats, in the frame of the fit.
    noise_std_ : ndarray of shape (q,)
        Standard deviation of the noise of every output, in its own units.
    noise_precision_ : float
        â/b̂ in the frame of the fit.
    effective_weights_ : float
        Number of weights per output that the data, not the prior, determine.
    belief_ : Belief
        The posterior, diagonal in the eigenbasis ``basis_`` of RᵀR.
    frame_ : OutputFrame
        From outputs to the coordinates of the fit.
    n_iter_ : int
        Updates in the (last) inference.

    References
    ----------
    Document 003, section 3, Algorithm 7, Remarks 2 and 3.

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(-2, 2, (200, 1))
    >>> t = np.column_stack([X[:, 0] ** 2, 100 * X[:, 0]]) + random.normal(0, [0.1, 5], (200, 2))
    >>> model = BayesianMembershipMapping(trend="linear", bandwidth=0.25).fit(X, t)
    >>> mean, std = model.predict([[1.0]], return_std=True)
    >>> bool(abs(mean[0, 0] - 1) < 3 * std[0, 0]), std.round(1)
    (True, array([[0.1, 5.1]]))
    """

    max_inducing: float | int | None = None
    noise: str = "per_output"
    trend: str = "none"
    inducing: str = "kmeans"
    standardize: bool = True
    bandwidth: float | str = "auto"
    nu: float = 2.1
    kappa: float = 0.1
    prior_precision: float = 1e-3
    prior_shape: float = 1e-3
    prior_rate: float = 1e-3
    far: str = "widen"
    tol: float = 1e-6
    max_iter: int = 1000

    _parameters: ClassVar[Accepted] = {
        "max_inducing": whole(1) | number(above=0, most=1) | None,
        "noise": one_of("shared", "per_output", "full"),
        "trend": one_of("none", "linear"),
        "inducing": one_of("kmeans", "inputs", "pivots"),
        "standardize": boolean,
        "bandwidth": number(above=0) | one_of("auto"),
        "nu": number(above=2),
        "kappa": number(above=0),
        "prior_precision": number(above=0),
        "prior_shape": number(above=0),
        "prior_rate": number(above=0),
        "far": one_of("widen", "plain"),
        "tol": number(above=0),
        "max_iter": whole(1),
    }

    def fit(self, X: Array, y: Array) -> Self:
        """Infer weights and noise from inputs and outputs (003 Algorithm 7).

        Parameters
        ----------
        X : array-like of shape (N, n)
            Inputs, what is observed.
        y : array-like of shape (N,) or (N, q)
            Outputs, what is to be estimated.

        Returns
        -------
        BayesianMembershipMapping
            This model, fitted.
        """
        validate_parameters(self)
        X, T = self._read(X, y, dtype=np.float64, ensure_min_samples=2)
        self.input_mean_ = X.mean(axis=0)
        self.frame_ = self._first_frame(T)
        outputs = self.frame_.enter(T)
        self.line_ = unit_directions(X) if self.trend == "linear" else None
        slopes = np.zeros((0, outputs.shape[1]))
        residuals = outputs
        if self.line_ is not None:  # least squares on coordinates whose covariance is I
            line = self.line_.enter(X)
            slopes = line.T @ (outputs - outputs.mean(axis=0)) / (len(X) - 1)
            residuals = outputs - line @ slopes
        self.mapping_ = self._learn_mapping(X - self.input_mean_, residuals)
        R = self._design_of_training(X)
        weights = np.vstack([self.mapping_.coefficients / self.mapping_.scale, slopes])
        self._infer(R, T, weights)
        if self.noise != "shared":
            mix = self._even_out_noise(R, T)
            self._infer(R, T, weights @ mix)
        self.signal_variance_ = np.maximum(T.var(axis=0) - self.noise_std_**2, 0)
        return self

    def _first_frame(self, T: Array) -> "OutputFrame":
        if self.noise == "shared":
            return one_unit(T, self.standardize)
        frame = unit_columns(T) if self.noise == "per_output" else unit_directions(T)
        # Where no output varies there is no unit to measure them in.
        return one_unit(T, True) if frame.mix.shape[1] == 0 else frame

    def _learn_mapping(self, X: Array, T: Array) -> Mapping:
        """Step 1 of 003 Algorithm 7: inducing points, kernel and the prior mean α."""
        limit = min(math.ceil(len(X) / 2), _MOST_INDUCING)
        if self.max_inducing is not None:
            limit = count_of("max_inducing", self.max_inducing, len(X))
        return learn_precision_mapping(
            X,
            T,
            limit=limit,
            kappa=self.kappa,
            nu=self.nu,
            inducing=self.inducing,
            bandwidth=self.bandwidth,
        )

    def _design_of_training(self, X: Array) -> Array:
        """R of (58), the eigenbasis of RᵀR, and the reach of the inducing points."""
        points, kernel = self.mapping_.points, self._kernel(X)
        reach = Reach(jittered_cholesky(gaussian_kernel(points, points)), 0.0)
        self.reach_ = reach._replace(usual=float(np.quantile(reach.lost(kernel), _REACH_LEVEL)))
        R = self._design(X, kernel)
        values, self.basis_ = eigh(R.T @ R, driver="evd", check_finite=False)
        rounding = float(np.finfo(np.float64).eps) * len(values) * float(values[-1])
        self.gram_values_ = np.where(values > rounding, values, 0.0)
        return R

    def _kernel(self, X: Array) -> Array:
        """Kernel of unit scale between rows and the inducing points."""
        scaled = scale_inputs(X - self.input_mean_, self.mapping_.scales)
        return gaussian_kernel(scaled, self.mapping_.points)

    def _design(self, X: Array, kernel: Array) -> Array:
        """G(x) for every row: kernel values (21), and the principal coordinates with a trend."""
        if self.line_ is None:
            return self.mapping_.scale * kernel
        return np.hstack([self.mapping_.scale * kernel, self.line_.enter(X)])

    def design(self, X: Array) -> Array:
        """R of (58) for any rows: G(x), one row for each x.

        Parameters
        ----------
        X : ndarray of shape (m, n)

        Returns
        -------
        ndarray of shape (m, M), or (m, M + n) with a trend
        """
        check_is_fitted(self, "mapping_")
        return self._design(X, self._kernel(X))

    def _infer(self, R: Array, T: Array, weights: Array) -> None:
        """Steps 2 to 7 of 003 Algorithm 7 in the present frame, with prior mean ``weights``."""
        prior = Belief(
            precisions=np.full(len(self.gram_values_), float(self.prior_precision)),
            means=self.basis_.T @ weights,
            shape=float(self.prior_shape),
            rate=float(self.prior_rate),
        )
        rows = self.statistics(R, self.frame_.enter(T))
        self.belief_, energies = infer(rows, prior, tol=self.tol, max_iter=self.max_iter)
        self.free_energy_, self.n_iter_ = np.array(energies), len(energies)
        self.noise_precision_ = self.belief_.noise_precision
        self.noise_std_ = math.sqrt(self._noise_variance()) * self.frame_.lengths
        determined = self.noise_precision_ * self.gram_values_ / self.belief_.precisions
        self.effective_weights_ = float(determined.sum())
        self.residual_rows_ = max(len(T) - self.effective_weights_, 1.0)

    def statistics(self, R: Array, outputs: Array) -> "Statistics":
        """What 003 Algorithms 7 and 8 need to know of outputs in the frame of the fit."""
        cross = self.basis_.T @ (R.T @ outputs)
        cross[self.gram_values_ == 0] = 0  # nothing but rounding error in these directions
        energy = float(np.einsum("ij,ij->", outputs, outputs))
        return Statistics(self.gram_values_, cross, energy, len(outputs))

    def _noise_variance(self) -> float:
        """Expectation of 1/γ, with the mode in place of it where a ≤ 1 leaves none."""
        shape = self.belief_.shape
        return self.belief_.rate / (shape - 1 if shape > 1.5 else shape + 1)

    def _even_out_noise(self, R: Array, T: Array) -> Array:
        """Change to a frame in which the residuals have unit variance; gives the change."""
        residuals = self.frame_.enter(T) - R @ (self.basis_ @ self.belief_.means)
        q = residuals.shape[1]
        if self.noise == "full" and self.residual_rows_ <= q:
            raise ValueError(
                f"A full noise covariance of {q} outputs needs more than {q} rows beyond those "
                f"that determine the weights, and there are {self.residual_rows_:.0f}. Use "
                "noise='per_output' or give more rows."
            )
        covariance = residuals.T @ residuals / self.residual_rows_
        floor = float(np.finfo(np.float64).eps) * len(T)  # the outputs have variance one here
        if self.noise == "per_output":
            covariance = np.diag(np.diag(covariance))
        mix, unmix, log_det = whitening(covariance, floor)
        self.frame_ = self.frame_.then(mix, unmix, log_det)
        return mix

    def predict(self, X: Array, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Estimate the outputs of new inputs (003 Remark 3).

        Parameters
        ----------
        X : array-like of shape (m, n)
            Inputs.
        return_std : bool
            Give the standard deviation of every estimate as well, noise included: about two out of
            three true outputs lie within one of them.

        Returns
        -------
        ndarray of shape (m,) or (m, q)
            Estimates. Far from all training inputs they tend to the mean of the training outputs,
            or to the trend.
        ndarray of the same shape
            Standard deviations, if asked for.
        """
        check_is_fitted(self, "belief_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        weights = self.basis_ @ self.belief_.means
        mean: Array = np.empty((len(X), self.frame_.unmix.shape[1]))
        std: Array | None = np.empty_like(mean) if return_std else None
        size = max(_CHUNK_ENTRIES // max(len(self.mapping_.points), 1), 1)
        for part in batches(len(X), size):
            kernel = self._kernel(X[part])
            R = self._design(X[part], kernel)
            mean[part] = self.frame_.leave(R @ weights)
            if std is not None:
                std[part] = self._deviations(R, kernel)
        if std is None:
            return self._as_given(mean)
        return self._as_given(mean), self._as_given(std)

    def _deviations(self, R: Array, kernel: Array) -> Array:
        """Standard deviations of the estimates at rows with this G(x)."""
        turned = R @ self.basis_
        weight_variance = np.einsum("ij,ij,j->i", turned, turned, 1 / self.belief_.precisions)
        common = (weight_variance + self._noise_variance())[:, None]
        variances = common * self.frame_.lengths**2
        if self.far == "widen":
            variances += self.reach_.lost(kernel)[:, None] * self.signal_variance_
        return np.asarray(np.sqrt(variances))

    @property
    def inducing_points_(self) -> Array:
        """The inducing points in the units of the inputs."""
        check_is_fitted(self, "mapping_")
        return np.asarray(self.mapping_.inducing_inputs() + self.input_mean_)

    @property
    def weights_(self) -> Array:
        """Posterior means m̂ of the weights (003 eq. 75), for outputs minus ``frame_.offset``."""
        check_is_fitted(self, "belief_")
        return np.asarray(self.basis_ @ self.belief_.means @ self.frame_.unmix)

    @property
    def weight_covariance_(self) -> Array:
        """Posterior covariance Λ̂⁻¹ of the weights (003 eq. 74), common to all outputs.

        It belongs to the frame of the fit; times the squares of ``frame_.lengths`` it is that of
        the outputs in their own units.
        """
        check_is_fitted(self, "belief_")
        return np.asarray((self.basis_ / self.belief_.precisions) @ self.basis_.T)


class Reach(NamedTuple):
    """How well the inducing points cover a row: 1 − k(x, a) K_aa⁻¹ k(a, x)."""

    factor: Array  #: (M, M) lower triangular factor of K_aa
    usual: float  #: what most training rows stay below

    def lost(self, kernel: Array) -> Array:
        """0 for rows like those of the training, rising to 1 for rows far from all of them."""
        explained = solve_triangular(self.factor, kernel.T, lower=True, check_finite=False)
        uncovered = 1 - np.einsum("ij,ij->j", explained, explained)
        return np.asarray(np.clip((uncovered - self.usual) / max(1 - self.usual, 1e-12), 0, 1))


class OutputFrame(NamedTuple):
    """An affine change of coordinates of the outputs."""

    offset: Array  #: (q,)
    mix: Array  #: (q, q') W
    unmix: Array  #: (q', q), with W unmix = identity on all that varies
    log_det: float  #: log|det W| on all that varies

    def enter(self, T: Array) -> Array:
        """Outputs in this frame."""
        return np.asarray((T - self.offset) @ self.mix)

    def leave(self, T: Array) -> Array:
        """Outputs in their own units."""
        return np.asarray(T @ self.unmix + self.offset)

    def then(self, mix: Array, unmix: Array, log_det: float) -> "OutputFrame":
        """Append a linear change of coordinates."""
        return OutputFrame(self.offset, self.mix @ mix, unmix @ self.unmix, self.log_det + log_det)

    @property
    def lengths(self) -> Array:
        """What one unit of isotropic deviation in this frame is in each output's own units."""
        return np.asarray(np.sqrt(np.einsum("ij,ij->j", self.unmix, self.unmix)))

    @property
    def dropped(self) -> int:
        """Number of directions that never vary and are left out."""
        return int(self.unmix.shape[1] - self.unmix.shape[0])


def one_unit(T: Array, standardize: bool) -> OutputFrame:
    """Outputs minus their mean, in units of one common standard deviation, or as they are.

    Examples
    --------
    >>> import numpy as np
    >>> frame = one_unit(np.array([[0.0, 0.0], [4.0, 0.0]]), True)
    >>> frame.enter(np.array([[4.0, 0.0]])).round(3)
    array([[1., 0.]])
    """
    q = T.shape[1]
    offset = T.mean(axis=0) if standardize else np.zeros(q)
    unit = float(np.sqrt(np.var(T, axis=0, ddof=1).mean())) if standardize else 1.0
    if unit <= float(np.finfo(np.float64).eps) * float(np.abs(offset).max(initial=0.0)):
        unit = 1.0
    return OutputFrame(offset, np.eye(q) / unit, np.eye(q) * unit, -q * float(np.log(unit)))


def unit_columns(T: Array) -> OutputFrame:
    """Every output that varies, minus its mean, in units of its own standard deviation.

    Examples
    --------
    >>> import numpy as np
    >>> unit_columns(np.array([[0.0, 7.0], [2.0, 7.0]])).mix.shape
    (2, 1)
    """
    offset, spread = T.mean(axis=0), T.std(axis=0, ddof=1)
    kept = spread > 1e3 * np.finfo(np.float64).eps * np.maximum(np.abs(T).max(axis=0), 1e-290)
    units = spread[kept]
    chosen = np.eye(T.shape[1])[:, kept]
    log_det = -float(np.log(units).sum())
    return OutputFrame(offset, chosen / units, (chosen * units).T, log_det)


def unit_directions(T: Array) -> OutputFrame:
    """Principal directions of the outputs, each in units of its own standard deviation.

    Directions without variance, as of outputs that always add up to one, are left out.

    Examples
    --------
    >>> import numpy as np
    >>> T = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    >>> unit_directions(T).dropped
    1
    """
    columns = unit_columns(T)
    covariance = np.atleast_2d(np.cov(columns.enter(T), rowvar=False))
    if columns.mix.shape[1] == 0:
        return columns
    return columns.then(*whitening(covariance))


def whitening(covariance: Array, floor: float | None = None) -> tuple[Array, Array, float]:
    """W, its inverse and log|det W| with Wᵀ S W = I.

    Directions in which S vanishes are left out, or with a ``floor`` kept with that variance.

    Examples
    --------
    >>> import numpy as np
    >>> W, back, log_det = whitening(np.diag([4.0, 0.0]))
    >>> np.abs(W).ravel(), float(round(np.exp(log_det), 3))
    (array([0.5, 0. ]), 0.5)
    >>> whitening(np.diag([4.0, 0.0]), floor=0.25)[0].shape
    (2, 2)
    """
    variances, directions = eigh(covariance, driver="evd")
    if floor is None:
        kept = variances > _NEGLIGIBLE * max(float(variances.max(initial=0.0)), 1e-300)
        variances, directions = variances[kept], directions[:, kept]
    else:
        variances = np.maximum(variances, floor)
    deviations = np.sqrt(variances)
    log_det = -float(np.log(deviations).sum())
    return directions / deviations, (directions * deviations).T, log_det


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
    products = (
        np.einsum("ij,ij->i", prior.means, prior.means),
        np.einsum("ij,ij->i", prior.means, rows.cross),
        np.einsum("ij,ij->i", rows.cross, rows.cross),
    )
    q = rows.cross.shape[1]
    shape = prior.shape + 0.5 * q * rows.n_rows * share  # (76), (101)
    energies: list[float] = []
    for _ in range(max_iter):
        update = _update_weights(rows, prior, products, share, noise_precision)
        rate = prior.rate + 0.5 * share * (update.misfit + q * update.spread)  # (77), (102)
        energies.append(_free_energy(rows, prior, update, shape, rate, share))
        previous, noise_precision = noise_precision, shape / rate
        if abs(noise_precision - previous) <= tol * previous:
            break
    means = update.kept[:, None] * prior.means + update.added[:, None] * rows.cross
    return Belief(update.precisions, means, shape, rate), energies


class _Update(NamedTuple):
    """Figures of one update of the weights."""

    precisions: Array  #: (M,)
    kept: Array  #: (M,) share of the earlier mean in the new one
    added: Array  #: (M,) factor on the cross products in the new mean
    misfit: float  #: ‖T − R m‖²
    spread: float  #: Tr(Λ⁻¹ RᵀR), once, not q times
    moved: float  #: Σ_k (m_k − m0_k)ᵀ Λ0 (m_k − m0_k)


def _update_weights(
    rows: Statistics,
    prior: Belief,
    products: tuple[Array, Array, Array],
    share: float,
    gamma: float,
) -> _Update:
    """Updates (74), (75) or (99), (100): Λ = Λ0 + γ RᵀR and m = Λ⁻¹ (Λ0 m0 + γ Rᵀ t).

    ``products`` are row-wise inner products of the earlier means P and the cross products C.
    """
    PP, PC, CC = products
    precisions = prior.precisions + gamma * share * rows.values
    kept, added = prior.precisions / precisions, gamma * share / precisions
    lost = gamma * share * rows.values / precisions  # 1 − kept, without cancellation
    inner = kept * PC + added * CC
    squares = kept**2 * PP + 2 * kept * added * PC + added**2 * CC
    misfit = rows.energy - 2 * float(inner.sum()) + float(rows.values @ squares)
    rounding = float(np.finfo(np.float64).eps) * rows.n_rows * rows.energy
    moves = lost**2 * PP - 2 * lost * added * PC + added**2 * CC
    return _Update(
        precisions=precisions,
        kept=kept,
        added=added,
        misfit=max(misfit, rounding),
        spread=float(np.sum(rows.values / precisions)),
        moved=float(prior.precisions @ np.maximum(moves, 0)),
    )


def _free_energy(
    rows: Statistics, prior: Belief, update: _Update, shape: float, rate: float, share: float
) -> float:
    """L of (68), or of (107) with ``share`` = 1/N, as the sum of its three update."""
    q, count = rows.cross.shape[1], rows.n_rows * share
    expected_log = float(digamma(shape)) - math.log(rate)  # ⟨log γ⟩
    fit = 0.5 * q * count * (expected_log - _LOG_2PI)
    fit -= 0.5 * shape / rate * share * (update.misfit + q * update.spread)
    ratio = prior.precisions / update.precisions
    weights = 0.5 * (q * float(np.sum(ratio - 1 - np.log(ratio))) + update.moved)  # KL of θ
    return float(fit - weights - gamma_divergence(shape, rate, prior.shape, prior.rate))


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

"""The formulas of 000 and 001, each against the same quantity computed the long way."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import dblquad, quad
from scipy.special import digamma, gammaln
from scipy.stats import multivariate_t, norm

from permea.models.fuzzy import ConsequentInference, FuzzyAutoencoder, FuzzyModel
from permea.models.inducing import (
    InducingSearch,
    best_bandwidth,
    gaussian_kernel,
    unit_range_scales,
)
from permea.models.membership import (
    AveragedKernel,
    Gammas,
    GammaSystem,
    MembershipAutoencoder,
    MembershipMapping,
    averaged_weights,
    learn_gamma_mapping,
    learn_precision_mapping,
    mean_variance,
)
from permea.report.plots import log_membership

SETTINGS = settings(deadline=None, derandomize=True, max_examples=25)
INVERSE = np.linalg.inv  # the long way, for small and well conditioned matrices only


def problem(seed, N=30, n=3, p=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, n)) * np.array([1.0, 10.0, 0.1])[:n]
    Y = np.column_stack([np.sin(X[:, 0]), X.sum(axis=1)])[:, :p]
    return X, Y + 0.1 * rng.normal(size=Y.shape)


class LongWay:
    """001 equations (4.89), (4.90) and (4.105) with explicit inverses."""

    def __init__(self, mapping, X, nu):
        self.mapping = mapping
        self.x, self.a = X * mapping.scales, mapping.points
        self.Kaa = mapping.scale * gaussian_kernel(self.a, self.a)
        self.Kxa = mapping.scale * gaussian_kernel(self.x, self.a)
        trace = mapping.scale * len(X) - np.trace(INVERSE(self.Kaa) @ self.Kxa.T @ self.Kxa)
        self.tau = trace / (nu + len(self.a) - 2)

    def posterior_mean_output(self, Y):
        beta, inverse = self.mapping.precision, INVERSE(self.Kaa)
        K_hat = INVERSE(
            inverse + beta * inverse @ self.Kxa.T @ self.Kxa @ inverse + beta * self.tau * inverse
        )
        m_hat = beta * K_hat @ inverse @ self.Kxa.T @ Y
        return self.Kxa @ inverse @ m_hat

    def direct_output(self, Y):
        middle = self.Kxa.T @ self.Kxa + self.tau * self.Kaa + self.Kaa / self.mapping.precision
        return self.Kxa @ np.linalg.solve(middle, self.Kxa.T @ Y)


@given(seed=st.integers(0, 10_000), kappa=st.sampled_from([0.03, 0.1, 0.5]))
@SETTINGS
def test_prediction_is_the_posterior_mean_of_appendix_4_3(seed, kappa):
    X, Y = problem(seed)
    mapping = learn_precision_mapping(X, Y, limit=15, kappa=kappa)
    long_way = LongWay(mapping, X, nu=2.1)
    assert mapping.smoothing == pytest.approx(long_way.tau, rel=1e-6)
    np.testing.assert_allclose(mapping(X), long_way.posterior_mean_output(Y), atol=1e-6)
    np.testing.assert_allclose(mapping(X), long_way.direct_output(Y), atol=1e-6)


@given(seed=st.integers(0, 10_000))
@SETTINGS
def test_precision_is_the_inverse_mean_squared_error(seed):
    X, Y = problem(seed)
    mapping = learn_precision_mapping(X, Y, limit=15, tol=1e-12)
    assert 1 / mapping.precision == pytest.approx(np.mean((Y - mapping(X)) ** 2), rel=1e-6)


def test_validation_error_leaves_one_row_out_after_the_other():
    """With kernel, inducing points, σ² and β as they are, α is learned without each row."""
    X, Y = problem(6)
    mapping = learn_precision_mapping(X, Y, limit=15, validate=True)
    long_way = LongWay(mapping, X, nu=2.1)
    errors = []
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        Kxa = long_way.Kxa[others]
        middle = Kxa.T @ Kxa + long_way.tau * long_way.Kaa + long_way.Kaa / mapping.precision
        alpha = np.linalg.solve(middle, Kxa.T @ Y[others])
        errors.append(np.mean((Y[i] - long_way.Kxa[i] @ alpha) ** 2))
    assert mapping.validation_error == pytest.approx(np.mean(errors), rel=1e-5)
    assert mapping.validation_error > 1 / mapping.precision  # rows that were learned from


def test_rules_are_validated_on_rows_left_out():
    X, Y = problem(6)
    K = FuzzyModel(n_rules=5).fit(X, Y).system_.degrees(X)
    inference = ConsequentInference(K, Y)
    beta = inference.infer(1e-6, 1000).precision
    errors = []
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        Lambda = 1e-6 * np.eye(K.shape[1]) + beta * K[others].T @ K[others]
        means = np.linalg.solve(Lambda, beta * K[others].T @ Y[others])
        errors.append(np.mean((Y[i] - K[i] @ means) ** 2))
    assert inference.left_out(beta) == pytest.approx(np.mean(errors), rel=1e-4)


@pytest.mark.parametrize("bandwidth", [0.25, 4.0])
def test_bandwidth_is_a_factor_on_the_ranges(bandwidth):
    X, Y = problem(6)
    mapping = learn_precision_mapping(X, Y, limit=15, bandwidth=bandwidth)
    np.testing.assert_allclose(mapping.scales * np.ptp(X, axis=0) * bandwidth, 1)
    gamma = learn_gamma_mapping(X, Y, n_inducing=15, input_variance=0.0, bandwidth=bandwidth)
    np.testing.assert_allclose(gamma.scales * np.ptp(X, axis=0) * bandwidth, 1)
    model = FuzzyModel(bandwidth=bandwidth).fit(X, Y)
    np.testing.assert_allclose(model.system_.scales * np.ptp(X, axis=0) * bandwidth, 1)


@pytest.mark.parametrize("best", [2.0**-6, 0.125, 1.0, 8.0, 64.0])
def test_the_search_finds_the_best_bandwidth(best):
    tried = []

    def error_of(bandwidth):
        tried.append(bandwidth)
        return abs(np.log2(bandwidth / best)) + 1

    assert best_bandwidth(error_of) == best
    assert len(tried) <= 16


def test_a_better_bandwidth_above_is_found_beside_a_good_one_below():
    errors = {0.25: 5.0, 4.0: 1.0, 1.0: 9.0}
    assert best_bandwidth(lambda bandwidth: errors.get(bandwidth, 20.0)) == 4.0


def test_a_mapping_in_other_units_obeys_the_same_equations():
    X, Y = problem(1)
    mapping = learn_precision_mapping(X, Y, limit=15).in_units(30.0)
    long_way = LongWay(mapping, X, nu=2.1)
    assert mapping.smoothing == pytest.approx(long_way.tau, rel=1e-6)
    np.testing.assert_allclose(mapping(X), long_way.posterior_mean_output(30 * Y), atol=1e-5)


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_scale_satisfies_the_variance_rule(factor):
    X, Y = problem(0)
    mapping = learn_precision_mapping(X, factor * Y, limit=15)
    variance = np.var(factor * Y, axis=0, ddof=1).mean()
    assert mean_variance(factor * Y) == pytest.approx(variance)
    assert mapping.smoothing >= variance * (1 - 1e-12)
    assert mapping.scale == 1 or mapping.smoothing == pytest.approx(variance)


def test_weights_are_inverse_squared_ranges():
    X = np.array([[0.0, 5.0, 1.0], [4.0, 5.0, 3.0]])
    np.testing.assert_allclose(unit_range_scales(X) ** 2, [1 / 16, 0, 1 / 4])


def test_smoothing_level_by_definition():
    X, _ = problem(3)
    found = InducingSearch(X * unit_range_scales(X), 15, 0.1, 2.1, "kmeans").smoothest()
    x = X * unit_range_scales(X)
    Kxa, Kaa = gaussian_kernel(x, found.points), gaussian_kernel(found.points, found.points)
    expected = (len(X) - np.trace(INVERSE(Kaa) @ Kxa.T @ Kxa)) / (2.1 + len(found.points) - 2)
    assert found.smoothing == pytest.approx(expected, rel=1e-8)


# --- 000: averages of the kernel over uncertain inputs -------------------------------------------


def monte_carlo_kernel(x, A, weights, variance, n_draws=200_000):
    """Draws of k(x, a) over uncertain x for every inducing point, shape (n_draws, M)."""
    rng = np.random.default_rng(7)
    draws = x + np.sqrt(variance) * rng.normal(size=(n_draws, x.size))
    return gaussian_kernel(draws * np.sqrt(weights), A * np.sqrt(weights))


def z_scores(draws, claimed):
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    return np.abs(draws.mean(axis=0) - claimed) / error


THRESHOLD = norm.isf(0.5e-6 / 16)  # two-sided alpha = 1e-6 over at most 16 comparisons
WEIGHTS, VARIANCE = np.array([0.5, 3.0]), 0.4
POINTS = np.array([[0.0, 0.0], [1.0, -0.5], [-0.7, 0.8]])
INPUT = np.array([0.3, 0.2])


def test_psi_and_phi_are_averages_of_the_kernel():
    kernel = AveragedKernel.of(INPUT[None], POINTS, WEIGHTS, VARIANCE)
    draws = monte_carlo_kernel(INPUT, POINTS, WEIGHTS, VARIANCE)
    products = (draws[:, :, None] * draws[:, None, :]).reshape(len(draws), -1)
    assert z_scores(draws, kernel.Psi[0]).max() < THRESHOLD
    assert z_scores(products, kernel.Phi.ravel()).max() < THRESHOLD
    assert kernel.xi == 1


def test_averages_without_uncertainty_would_be_noticed():
    """Negative control: the plain kernel is not the average."""
    kernel = AveragedKernel.of(INPUT[None], POINTS, WEIGHTS, 0.0)
    draws = monte_carlo_kernel(INPUT, POINTS, WEIGHTS, VARIANCE)
    assert z_scores(draws, kernel.Psi[0]).max() > THRESHOLD


def test_phi_is_equation_155_with_index_k():
    rng = np.random.default_rng(1)
    X, A, w, s2 = rng.normal(size=(9, 3)), rng.normal(size=(4, 3)), np.array([0.2, 1, 2.0]), 0.3
    expected = np.empty((4, 4))
    for m in range(4):
        for k in range(4):
            near = np.exp(-0.25 * np.sum(w * (A[m] - A[k]) ** 2))
            middle = 0.5 * (A[m] + A[k])
            far = np.exp(-np.sum(w * (middle - X) ** 2 / (1 + 2 * w * s2), axis=1)).sum()
            expected[m, k] = near * far / np.sqrt(np.prod(1 + 2 * w * s2))
    np.testing.assert_allclose(AveragedKernel.of(X, A, w, s2).Phi, expected, rtol=1e-12)


@pytest.mark.parametrize("variance", [0.0, 1e-12])
def test_certain_inputs_give_the_plain_kernel(variance):
    X, _ = problem(2)
    A, w = X[:6] + 0.1, unit_range_scales(X) ** 2
    kernel = AveragedKernel.of(X, A, w, variance)
    Kxa = gaussian_kernel(X * np.sqrt(w), A * np.sqrt(w))
    np.testing.assert_allclose(kernel.Psi, Kxa, rtol=1e-8)
    np.testing.assert_allclose(kernel.Phi, Kxa.T @ Kxa, rtol=1e-8)


@pytest.mark.parametrize("nu", [2.1, 5.0, np.inf])
def test_gamma_system_the_long_way(nu):
    """α of (89) and O of (96) from their definitions."""
    X, Y = problem(5)
    w = unit_range_scales(X) ** 2
    A = X[::4]
    Kaa = gaussian_kernel(A * np.sqrt(w), A * np.sqrt(w))
    kernel = AveragedKernel.of(X, A, w, 0.01)
    system = GammaSystem(Kaa, kernel, Y, nu)
    inverse, beta = INVERSE(Kaa), 3.7
    t = (kernel.xi - np.trace(inverse @ kernel.Phi)) / (nu + len(A) - 2)
    alpha = INVERSE(kernel.Phi + t * Kaa + Kaa / beta) @ kernel.Psi.T @ Y
    m = Kaa @ alpha
    O = sum(  # noqa: E741
        y @ y
        - 2 * u @ inverse @ kernel.Psi.T @ y
        + u @ inverse @ kernel.Phi @ inverse @ u
        + t * u @ inverse @ u
        for y, u in zip(Y.T, m.T, strict=True)
    )
    assert system.smoothing == pytest.approx(t, rel=1e-6, abs=1e-12)
    np.testing.assert_allclose(system.coefficients(beta), alpha, rtol=1e-5, atol=1e-7)
    assert system.objective(beta) == pytest.approx(O, rel=1e-6)


def test_infinite_degrees_of_freedom_remove_the_trace_term():
    X, Y = problem(5)
    mapping = learn_gamma_mapping(X, Y, n_inducing=10, nu=np.inf)
    assert mapping.smoothing == 0


def test_gamma_updates_are_stationary_points_of_their_objective():
    """At convergence every update (67) to (77) reproduces itself for the final O."""
    X, Y = problem(8)
    w = unit_range_scales(X) ** 2
    A = X[::3]
    Kaa = gaussian_kernel(A * np.sqrt(w), A * np.sqrt(w))
    system = GammaSystem(Kaa, AveragedKernel.of(X, A, w, 0.01), Y, 2.1)
    gammas = Gammas.initial()
    for _ in range(20_000):
        gammas = gammas.updated(system.objective(gammas.precision), Y.size)
    again = gammas.updated(system.objective(gammas.precision), Y.size)
    np.testing.assert_allclose(again, gammas, rtol=1e-5)
    assert min(gammas) > 0


def gamma_mapping_000(X, Y, a, nu, variance, scale, priors, rounds=20_000):
    """000 Algorithm 1, steps 3 to 13, line by line, for given inducing points."""
    a_tau, b_tau, a_r, b_r, a_s, b_s = priors
    w = 1 / np.ptp(X, axis=0) ** 2
    N, M, p = len(X), len(a), Y.shape[1]
    Kaa = scale * np.exp(-0.5 * ((a[:, None] - a) ** 2 @ w))

    def G(x):  # (83)
        factor = scale / np.prod(np.sqrt(1 + w * variance))
        return factor * np.exp(-0.5 * ((x[:, None] - a) ** 2 @ (w / (1 + w * variance))))

    Psi, xi = G(X), scale * N  # (154), (153)
    Phi = np.empty((M, M))  # (155)
    for m in range(M):
        for k in range(M):
            near = np.exp(-0.25 * np.sum(w * (a[m] - a[k]) ** 2))
            far = (0.5 * (a[m] + a[k]) - X) ** 2 @ (w / (1 + 2 * w * variance))
            Phi[m, k] = near * np.exp(-far).sum() / np.prod(np.sqrt(1 + 2 * w * variance))
    Phi *= scale**2
    t = (xi - np.trace(INVERSE(Kaa) @ Phi)) / (nu + M - 2)
    at, bt, az, bz, ar, br = np.ones(6)
    as_, bs = a_s + ar / br, b_s + (ar / br) * (az / bz)
    for _ in range(rounds):
        alpha = INVERSE(Phi + t * Kaa + Kaa / ((at / bt) * (az / bz))) @ Psi.T @ Y  # (88)
        u = Kaa @ alpha
        v = INVERSE(Kaa) @ u
        O = np.sum(Y**2) - 2 * np.sum(v * (Psi.T @ Y)) + np.sum(v * (Phi @ v))  # noqa: E741
        O += t * np.sum(u * v)  # noqa: E741  (96)
        before = (at / bt) * (az / bz)
        at, bt = a_tau + 0.5 * N * p, b_tau + az / (2 * bz) * O  # (67), (68)
        az, bz = 1 + 0.5 * N * p + ar / br, (ar / br) * (as_ / bs) + at / (2 * bt) * O
        ar, br = (
            a_r,
            (
                b_r
                + (as_ / bs) * (az / bz)
                - digamma(as_)
                + np.log(bs)
                - 1
                - digamma(az)
                + np.log(bz)
            ),
        )  # (73), (74)
        as_, bs = a_s + ar / br, b_s + (ar / br) * (az / bz)  # (76), (77)
        if abs((at / bt) * (az / bz) - before) <= 1e-13 * before:
            break
    alpha = INVERSE(Phi + t * Kaa + Kaa / ((at / bt) * (az / bz))) @ Psi.T @ Y
    return lambda x: G(x) @ alpha


@pytest.mark.parametrize("scale", [1.0, 0.2, 7.0])
@pytest.mark.parametrize("priors", [(1, 1, 1, 1, 1, 1), (2, 0.5, 3, 2, 1.5, 4)])
@pytest.mark.parametrize("nu", [2.1, np.inf])
def test_the_gamma_mapping_is_000_algorithm_1(scale, priors, nu):
    X, Y = problem(2)
    model = MembershipMapping(
        max_inducing=6, disturbance="gamma", standardize=False, nu=nu, input_variance=0.03,
        kernel_variance=scale, gamma_priors=priors, bandwidth=1, tol=1e-13, max_iter=20_000,
    ).fit(X, Y)  # fmt: skip
    # The published points are those of the averaged kernel, which moves no point.
    predict = gamma_mapping_000(X, Y, model.inducing_points_, nu, 0.03, scale, priors)
    np.testing.assert_allclose(model.predict(X), predict(X), atol=1e-6)
    other = gamma_mapping_000(X, Y, model.inducing_points_, nu, 0.03, 3 * scale, (9, 9, 9, 9, 9, 9))
    assert np.abs(model.predict(X) - other(X)).max() > 1e-4  # negative control


def mapping_001(X, Y, a, rounds=500, nu=2.1):
    """001 Algorithm 1, steps 9 to 20, for given inducing points."""
    w = 1 / np.ptp(X, axis=0) ** 2
    kxa = np.exp(-0.5 * ((X[:, None] - a) ** 2 @ w))
    kaa = np.exp(-0.5 * ((a[:, None] - a) ** 2 @ w))
    tau = (len(X) - np.trace(INVERSE(kaa) @ kxa.T @ kxa)) / (nu + len(a) - 2)  # (1.54)
    variance = np.var(Y, axis=0, ddof=1).sum() / Y.shape[1]
    scale = 1.0 if tau >= variance else variance / tau
    Kxa, Kaa, tau, beta = scale * kxa, scale * kaa, scale * tau, 1.0
    for _ in range(rounds):
        alpha = np.linalg.solve(Kxa.T @ Kxa + tau * Kaa + Kaa / beta, Kxa.T @ Y)  # (1.49)
        beta = 1 / np.mean((Y - Kxa @ alpha) ** 2)  # (1.58)
    return scale, beta, Kxa @ alpha


def with_constants():
    rng = np.random.default_rng(4)
    return np.column_stack([rng.normal(size=(40, 3)), np.full(40, 0.5), np.zeros((40, 4))])


@pytest.mark.parametrize("drop", [True, False])
def test_features_that_never_vary_count_where_they_are_asked_to(drop):
    """p of (1.56) and (1.58): all features, as 001 has it, or those that vary."""
    Y = with_constants()
    kept = Y[:, :3] if drop else Y
    model = MembershipAutoencoder(
        n_components=2, max_inducing=8, standardize=False, drop_constant=drop, tol=1e-13
    ).fit(Y)
    codes = (Y - Y.mean(axis=0))[:, model.encoding_.active] @ model.encoding_.components
    scale, beta, image = mapping_001(codes, kept, model.mapping_.inducing_inputs())
    assert model.scale_ == pytest.approx(scale, rel=1e-6)
    assert model.precision_ == pytest.approx(beta, rel=1e-6)
    np.testing.assert_allclose(model.reconstruct(Y)[:, : kept.shape[1]], image, atol=1e-7)
    assert (model.reconstruct(Y)[:, 4:] == 0).all()
    assert (model.reconstruct(Y)[:, 3] == 0.5).all() == drop


def test_features_that_never_vary_count_in_the_precision_of_002():
    Y = with_constants()
    two = [FuzzyAutoencoder(n_components=2, n_rules=5, max_layers=1, drop_constant=drop).fit(Y)
           for drop in (True, False)]  # fmt: skip
    K = two[1].system_.degrees(Y @ two[1].system_.encoder)
    inference = ConsequentInference(K, Y).infer(1e-6, 1000)
    assert two[1].precision_ == pytest.approx(inference.precision)
    assert two[0].precision_ != pytest.approx(two[1].precision_, rel=0.1)


def test_infinite_nu_is_for_the_gamma_model():
    X, Y = problem(1)
    assert MembershipMapping(nu=np.inf, disturbance="gamma").fit(X, Y).smoothing_ == 0
    with pytest.raises(ValueError, match="finite nu"):
        MembershipMapping(nu=np.inf).fit(X, Y)


def test_averaged_prediction_is_psi_times_alpha():
    """(98): the learned mapping predicts G(x) α with G averaged over uncertain inputs (83)."""
    X, Y = problem(4)
    variance = 0.05
    mapping = learn_gamma_mapping(X, Y, n_inducing=12, input_variance=variance)
    w = unit_range_scales(X) ** 2
    A = mapping.inducing_inputs()
    _, c1 = averaged_weights(w, variance)
    Psi = AveragedKernel.of(X, A, w, variance).Psi
    np.testing.assert_allclose(mapping(X), Psi @ (mapping.coefficients / c1), rtol=1e-9)


# --- Student-t membership functions are consistent (000 Appendix C) ------------------------------


KERNEL = np.array([[1.0, 0.6], [0.6, 1.5]])


def log_integral(K, nu):
    """Logarithm of the integral of the membership function over all outputs.

    ∫ζ = Γ(ν/2) / Γ((ν + d)/2) · π^(d/2) (ν − 2)^(d/2) |K|^½. In 000 eq. (143) the factor (ν − 2)/ν
    has the exponent 1/2 where d/2 belongs; both agree for d = 1.
    """
    d = len(K)
    gammas = gammaln(nu / 2) - gammaln((nu + d) / 2)
    return gammas + 0.5 * (d * np.log(np.pi * (nu - 2)) + np.linalg.slogdet(K)[1])


@pytest.mark.parametrize("nu", [2.5, 4.0, 12.0])
def test_marginals_of_the_membership_function_agree(nu):
    def joint(u, y):
        return float(np.exp(log_membership(np.array([[y, u]]), KERNEL, nu))[0])

    def single(y):
        return float(np.exp(log_membership(np.array([[y]]), KERNEL[:1, :1], nu))[0])

    normaliser = quad(single, -np.inf, np.inf)[0]
    total = np.exp(log_integral(KERNEL, nu))
    for y in (-1.5, 0.0, 0.7):
        marginal = quad(joint, -np.inf, np.inf, args=(y,))[0] / total
        assert marginal == pytest.approx(single(y) / normaliser, rel=1e-6)


def test_a_gaussian_marginal_would_be_noticed():
    """Negative control: the marginal keeps the tail of ν, not that of ν = ∞."""

    def joint(u):
        return float(np.exp(log_membership(np.array([[2.0, u]]), KERNEL, 2.5))[0])

    marginal = quad(joint, -np.inf, np.inf)[0] / np.exp(log_integral(KERNEL, 2.5))
    assert abs(marginal - norm.pdf(2.0)) > 0.01 * marginal


def test_integral_of_the_membership_function():
    nu = 6.0

    def joint(u, y):
        return float(np.exp(log_membership(np.array([[y, u]]), KERNEL, nu))[0])

    total = dblquad(joint, -30, 30, -30, 30, epsabs=1e-2)[0]
    assert np.exp(log_integral(KERNEL, nu)) == pytest.approx(total, rel=2e-3)


def test_membership_function_is_a_t_density_up_to_its_integral():
    nu, values = 5.0, np.random.default_rng(0).normal(size=(20, 2))
    density = multivariate_t(shape=KERNEL * (nu - 2) / nu, df=nu).logpdf(values)
    np.testing.assert_allclose(
        log_membership(values, KERNEL, nu) - log_integral(KERNEL, nu), density, rtol=1e-10
    )


def test_infinite_degrees_of_freedom_are_gaussian():
    values = np.random.default_rng(0).normal(size=(5, 2))
    limit = log_membership(values, KERNEL, np.inf)
    np.testing.assert_allclose(log_membership(values, KERNEL, 1e9), limit, rtol=1e-6)


def test_two_degrees_of_freedom_are_refused():
    with pytest.raises(ValueError, match="larger than 2"):
        log_membership(np.zeros((1, 2)), KERNEL, 2.0)

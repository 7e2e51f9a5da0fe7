"""The integer samplers draw from exactly the laws they state; wrong ones are caught."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_checks import (
    agrees_with_cdf,
    agrees_with_probability,
    has_mean,
    has_slope,
    is_symmetric,
    laplace_cdf,
    laplace_pmf,
    same_law,
)
from scipy import special, stats

from permea.privacy.gaussian import _GaussianCells, discrete_gaussian
from permea.privacy.sampling import (
    CryptographicBits,
    ExactTable,
    SeededBits,
    bernoulli,
    bit_source,
    discrete_laplace,
    discrete_staircase,
    exponential,
    uniform_below,
    uniforms,
)

N = 400_000
RATES = [Fraction(1, 2**20), Fraction(3, 1000), 0.3, 5.0]


@pytest.fixture(scope="module", params=RATES, ids=str)
def laplace_case(request):
    rate = request.param
    return float(rate), discrete_laplace(rate, N, SeededBits(11), point_mass=0.01)


def test_laplace_follows_its_exact_cdf(laplace_case):
    rate, sample = laplace_case
    assert agrees_with_cdf(sample, lambda x: laplace_cdf(x, rate, 0.01))


def test_laplace_has_its_point_mass(laplace_case):
    rate, sample = laplace_case
    at_zero = laplace_pmf(0, rate, 0.01)
    assert agrees_with_probability((sample == 0).sum(), N, at_zero)


def test_laplace_is_symmetric(laplace_case):
    assert is_symmetric(laplace_case[1])


def test_laplace_has_its_slope(laplace_case):
    rate, sample = laplace_case
    assert has_slope(sample, rate)


@pytest.mark.parametrize("rate", RATES, ids=str)
def test_control_half_scale_is_caught(rate):
    sample = discrete_laplace(2 * Fraction(rate), N, SeededBits(12), point_mass=0.01)
    rate = float(rate)
    assert not agrees_with_cdf(sample, lambda x: laplace_cdf(x, rate, 0.01))
    if rate < 1:  # at a rate of ten hardly a value leaves zero, and a slope needs values
        assert not has_slope(sample, rate)


def test_control_wrong_point_mass_is_caught():
    rate = 1 / 2**20
    sample = discrete_laplace(Fraction(1, 2**20), N, SeededBits(13), point_mass=0.013)
    assert not agrees_with_probability((sample == 0).sum(), N, laplace_pmf(0, rate, 0.01))


def test_control_shifted_noise_is_caught():
    sample = discrete_laplace(0.3, N, SeededBits(14))
    assert not is_symmetric(sample + (np.arange(N) % 50 == 0))


def test_cryptographic_source_gives_the_same_law():
    rate = Fraction(1, 2**20)
    sample = discrete_laplace(rate, N, CryptographicBits(), point_mass=0.01)
    assert agrees_with_cdf(sample, lambda x: laplace_cdf(x, float(rate), 0.01))
    assert is_symmetric(sample)
    assert has_slope(sample, float(rate))


def _independent(one, other):
    """No more equal values than independent draws have, and no correlation of the signs."""
    agree = np.sign(one) == np.sign(other)
    return agrees_with_probability(agree.sum(), one.size, 0.5) and np.mean(one == other) < 0.01


def test_two_draws_are_independent_and_control_reused_seed_is_caught():
    rate = Fraction(1, 2**20)
    fresh = [discrete_laplace(rate, N, CryptographicBits()) for _ in range(2)]
    reused = [discrete_laplace(rate, N, SeededBits(5)) for _ in range(2)]
    assert _independent(*fresh)
    assert not _independent(*reused)


def test_one_stream_is_not_repeated_within_a_draw():
    sample = discrete_laplace(Fraction(1, 2**20), N, CryptographicBits())
    assert _independent(sample[: N // 2], sample[N // 2 :])


@pytest.mark.parametrize("word_bits", [16, 20])
def test_short_words_exercise_the_exact_remainder(word_bits):
    sample = discrete_laplace(0.7, 60_000, SeededBits(2), point_mass=0.1, word_bits=word_bits)
    assert agrees_with_cdf(sample, lambda x: laplace_cdf(x, 0.7, 0.1))


def test_overflow_of_the_leading_digit_goes_on_exactly():
    rate = Fraction(1, 64)  # one draw in 2900 leaves the table of 512 values
    sample = discrete_laplace(rate, N, SeededBits(3))
    expected = 2 * math.exp(-512 / 64) / (1 + math.exp(-1 / 64))
    far = np.abs(sample) >= 512
    assert agrees_with_probability(far.sum(), N, expected)
    assert np.abs(sample).max() > 600


def test_point_mass_one_and_zero():
    assert not discrete_laplace(0.1, 1000, SeededBits(0), point_mass=1.0).any()
    assert discrete_laplace(Fraction(1, 2**40), 1000, SeededBits(0)).all()


@settings(deadline=None, derandomize=True, max_examples=25)
@given(
    weights=st.lists(st.integers(0, 10**9), min_size=1, max_size=70).filter(any),
    word_bits=st.sampled_from([16, 32, 64]),
)
def test_table_weights_are_exact(weights, word_bits):
    """The columns of the table hold exactly floor(2**w p) of each outcome, and R of the rest."""
    total = sum(weights)
    table = ExactTable(lambda digits: [Decimal(w) / total for w in weights], word_bits)
    capacity = 1 << (word_bits - table._column_bits)
    held = [0] * (1 << table._column_bits)
    for column, (threshold, alias) in enumerate(
        zip(table._threshold.tolist(), table._alias.tolist(), strict=True)
    ):
        held[column] += threshold
        held[alias] += capacity - threshold
    assert sum(held) == 2**word_bits
    assert held[len(weights)] == table.remainder
    for weight, mass in zip(held, weights, strict=False):
        exact = Fraction(mass, total) * 2**word_bits
        assert weight <= exact <= weight + 1


def test_table_of_few_bits_is_exact():
    law = [Decimal("0.12"), Decimal("0.28"), Decimal("0.6")]
    table = ExactTable(lambda digits: law, word_bits=3)
    assert table.remainder == 2  # the floors of 8 p are 0, 2 and 4
    counts = np.bincount(table.draw(20_000, SeededBits(4)), minlength=3)
    assert stats.chisquare(counts, np.array([0.12, 0.28, 0.6]) * counts.sum()).pvalue >= 1e-6
    careless = (np.array([0, 2, 4]) + 2 / 3) / 8  # control: the remainder dealt out evenly
    assert stats.chisquare(counts, careless * counts.sum()).pvalue < 1e-6


def test_coin_of_a_third():
    source = SeededBits(6)
    heads = sum(bernoulli(lambda digits: Decimal(1) / 3, source) for _ in range(20_000))
    assert agrees_with_probability(heads, 20_000, 1 / 3)
    assert not agrees_with_probability(heads, 20_000, 0.36)


def test_coin_goes_on_until_it_is_decided():
    class Fixed:
        seeded = True

        def __init__(self, words):
            self.left = list(words)

        def words(self, count):
            return np.array([self.left.pop(0) for _ in range(count)], dtype=np.uint64)

    def barely_more_than_half(digits):  # the first 64 bits do not decide
        return Decimal(1) / 2 + Decimal(2) ** -100

    assert bernoulli(barely_more_than_half, Fixed([2**63, 0]))
    assert not bernoulli(barely_more_than_half, Fixed([2**63, 2**62]))


@pytest.mark.parametrize("bound", [1, 2, 3, 1000, 2**20, 2**20 + 1])
def test_uniform_below(bound):
    sample = uniform_below(bound, N // 4, SeededBits(8))
    assert sample.min() >= 0
    assert sample.max() < bound
    assert agrees_with_cdf(sample, lambda x: np.clip((np.floor(x) + 1) / bound, 0, 1))


def gaussian_cdf(sigma):
    reach = int(40 * sigma) + 5
    grid = np.arange(-reach, reach + 1)
    mass = np.exp(-(grid**2) / (2 * sigma**2))
    total = np.cumsum(mass) / mass.sum()
    return lambda x: total[np.clip(np.floor(x).astype(int) + reach, 0, 2 * reach)]


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.7, 300.5])
def test_gaussian_follows_its_exact_cdf(sigma):
    sample = discrete_gaussian(sigma, N // 2, SeededBits(21))
    assert agrees_with_cdf(sample, gaussian_cdf(sigma))
    assert is_symmetric(sample)
    wrong = discrete_gaussian(1.1 * sigma, N // 2, SeededBits(21))
    assert not agrees_with_cdf(wrong, gaussian_cdf(sigma))


@pytest.mark.parametrize("sigma", [2.0**20, 1e12])
def test_wide_gaussian_is_normal_on_its_grid(sigma):
    sample = discrete_gaussian(sigma, N // 2, SeededBits(22))
    assert agrees_with_cdf(sample, lambda x: special.ndtr((x + 0.5) / sigma))
    wrong = discrete_gaussian(sigma / 2, N // 2, SeededBits(22))
    assert not agrees_with_cdf(wrong, lambda x: special.ndtr((x + 0.5) / sigma))


@pytest.mark.parametrize("sigma", [2.7, 300.5])
def test_magnitudes_beyond_the_cells_follow_the_same_law(sigma):
    """With cells for one standard deviation only, a third of the draws lie beyond."""
    cells = _GaussianCells(Fraction(sigma), 1)
    sample = cells.draw(N // 100, SeededBits(24), 2.0**-40)
    assert np.mean(np.abs(sample) >= cells.end) > 0.2
    assert agrees_with_cdf(sample, gaussian_cdf(sigma))
    assert is_symmetric(sample)
    cells.end += cells.end // 2  # control: what lies beyond starts too far out
    assert not agrees_with_cdf(cells.draw(N // 100, SeededBits(24), 2.0**-40), gaussian_cdf(sigma))


def test_the_bound_of_a_cell_is_below_all_its_probabilities():
    cells = _GaussianCells(Fraction(1e6), 8)
    for h in range(0, cells.n_cells, 37):
        last = 2**cells.cell_bits - 1
        far = (h << cells.cell_bits) + last
        exponent = -cells.halved * last * (far + (h << cells.cell_bits))
        assert Decimal(cells._least[h] * (1 - 2.0**-40)) < exponential(exponent, 30)


@pytest.mark.parametrize("sigma", [0.8, 50.0, 1000.0, 1e12])
def test_doubles_decide_as_decimals_do(sigma):
    """With a wide band every coin is decided by decimals; not one decision differs."""
    quick = discrete_gaussian(sigma, 1500, SeededBits(23))
    exact = discrete_gaussian(sigma, 1500, SeededBits(23), margin=2.0)
    np.testing.assert_array_equal(quick, exact)


@pytest.mark.parametrize(("epsilon", "bound", "inner"), [(1.0, 8, 3), (3.0, 5, 5), (0.4, 9, 1)])
def test_staircase_follows_its_exact_cdf(epsilon, bound, inner):
    sample = discrete_staircase(epsilon, bound, inner, N // 2, SeededBits(31))
    reach = bound * int(60 / epsilon)
    grid = np.arange(-reach, reach + 1)
    mass = np.exp(-epsilon * ((np.abs(grid) - inner) // bound + 1))
    total = np.cumsum(mass) / mass.sum()

    def cdf(x):
        return total[np.clip(np.floor(x).astype(int) + reach, 0, 2 * reach)]

    assert agrees_with_cdf(sample, cdf)
    assert is_symmetric(sample)
    wrong = discrete_staircase(2 * epsilon, bound, inner, N // 2, SeededBits(31))
    assert not agrees_with_cdf(wrong, cdf)


def test_laplace_agrees_with_opendp():
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    theirs = np.array(dp.m.make_laplace(*space, scale=30.0)([0] * 60_000))
    ours = discrete_laplace(Fraction(1, 30), 60_000, CryptographicBits())
    assert same_law(ours, theirs)
    assert agrees_with_cdf(theirs, lambda x: laplace_cdf(x, 1 / 30))
    assert not same_law(discrete_laplace(Fraction(1, 15), 60_000, CryptographicBits()), theirs)


def test_gaussian_agrees_with_opendp():
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    theirs = np.array(dp.m.make_gaussian(*space, scale=30.0)([0] * 60_000))
    ours = discrete_gaussian(30.0, 60_000, CryptographicBits())
    assert same_law(ours, theirs)
    assert not same_law(discrete_gaussian(36.0, 60_000, CryptographicBits()), theirs)


def test_magnitude_of_the_discrete_law():
    rate, mass = 0.05, 0.02
    sample = np.abs(discrete_laplace(rate, N, SeededBits(41), point_mass=mass))
    mean = (1 - mass) / math.sinh(rate)
    second = (1 - mass) / (2 * math.sinh(rate / 2) ** 2)
    assert has_mean(sample, mean, second - mean**2)
    assert not has_mean(sample, mean * 1.03, second - mean**2)


def test_sources():
    assert not bit_source(None).seeded
    for seed in (0, np.random.RandomState(0), np.random.default_rng(0)):
        assert bit_source(seed).seeded
    first, second = SeededBits(np.random.RandomState(1)), SeededBits(np.random.RandomState(1))
    np.testing.assert_array_equal(first.words(9), second.words(9))
    assert not np.array_equal(CryptographicBits().words(4), CryptographicBits().words(4))
    numbers = uniforms(10_000, SeededBits(0))
    assert 0 < numbers.min() < 0.01 < 0.99 < numbers.max() < 1


def test_cryptographic_bits_are_fair_bit_by_bit():
    words = CryptographicBits().words(100_000)
    for bit in range(64):
        ones = int(((words >> np.uint64(bit)) & np.uint64(1)).sum())
        assert agrees_with_probability(ones, words.size, 0.5, 1e-6 / 64)


def test_scales_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="resolution"):
        discrete_laplace(2.0**-50, 1, SeededBits(0))
    with pytest.raises(ValueError, match="resolution"):
        discrete_gaussian(2.0**50, 1, SeededBits(0))
    with pytest.raises(ValueError, match="positive"):
        discrete_gaussian(0, 1, SeededBits(0))
    with pytest.raises(ValueError, match="probability"):
        discrete_laplace(1.0, 1, SeededBits(0), point_mass=1.5)
    with pytest.raises(ValueError, match="inner"):
        discrete_staircase(1.0, 4, 5, 1, SeededBits(0))

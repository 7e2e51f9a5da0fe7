"""Statistical checks at a false-alarm rate of one in a million, shared by the tests of the wall."""

import math

import numpy as np
from scipy import special, stats

ALPHA = 1e-6


def laplace_pmf(x, rate, mass=0.0):
    x = np.asarray(x, dtype=float)
    return (1 - mass) * math.tanh(rate / 2) * np.exp(-rate * np.abs(x)) + mass * (x == 0)


def laplace_cdf(x, rate, mass=0.0):
    """Distribution function of the discrete Laplace law on the integers, with a point mass."""
    x = np.floor(np.asarray(x, dtype=float))
    q = math.exp(-rate)
    below = np.exp(rate * np.minimum(x, 0)) / (1 + q)
    above = 1 - np.exp(-rate * (np.maximum(x, 0) + 1)) / (1 + q)
    return (1 - mass) * np.where(x < 0, below, above) + mass * (x >= 0)


def agrees_with_cdf(sample, cdf, alpha=ALPHA):
    """Kolmogorov-Smirnov by the bound of Dvoretzky, Kiefer, Wolfowitz and Massart."""
    values, counts = np.unique(sample, return_counts=True)
    n = counts.sum()
    empirical = np.cumsum(counts) / n
    after = np.abs(empirical - cdf(values))
    before = np.abs(empirical - counts / n - cdf(values - 1))
    return max(after.max(), before.max()) <= math.sqrt(math.log(2 / alpha) / (2 * n))


def agrees_with_probability(successes, trials, probability, alpha=ALPHA):
    return stats.binomtest(int(successes), int(trials), probability).pvalue >= alpha


def same_law(one, other, alpha=ALPHA):
    """Two-sample Kolmogorov-Smirnov with each sample within its own bound of the truth."""
    values = np.union1d(one, other)
    distance = np.abs(
        np.searchsorted(np.sort(one), values, side="right") / one.size
        - np.searchsorted(np.sort(other), values, side="right") / other.size
    ).max()
    bound = sum(math.sqrt(math.log(4 / alpha) / (2 * s.size)) for s in (one, other))
    return distance <= bound


def is_symmetric(sample, alpha=ALPHA):
    positive, negative = sample[sample > 0], -sample[sample < 0]
    balanced = agrees_with_probability(positive.size, positive.size + negative.size, 0.5, alpha / 2)
    return balanced and same_law(positive, negative, alpha / 2)


def has_slope(sample, rate, alpha=ALPHA):
    """Log-ratio slope on the grid: n(x + h) against n(x) is a coin of odds exp(-rate h).

    The pairs (x, x + h) are disjoint and lie on one side of zero, and given the total of a pair
    the count of its far half is binomial: an exact test, for several distances h.
    """
    magnitude = np.abs(sample[sample != 0]) - 1
    lags = [1, 2, max(3, round(1 / rate))]
    for lag in lags:
        far = (magnitude // lag) % 2 == 1
        probability = special.expit(-rate * lag)
        if not agrees_with_probability(far.sum(), far.size, probability, alpha / len(lags)):
            return False
    return True


def has_mean(sample, mean, variance, alpha=ALPHA):
    z = (np.mean(sample) - mean) / math.sqrt(variance / len(sample))
    return abs(z) <= stats.norm.isf(alpha / 2)


def upper(successes, trials, alpha):
    if successes == trials:
        return 1.0
    return stats.beta.isf(alpha, successes + 1, trials - successes)


def lower(successes, trials, alpha):
    return 0.0 if successes == 0 else stats.beta.isf(1 - alpha, successes, trials - successes + 1)


def refutes(first, second, epsilon, delta, alpha=ALPHA, bins=60):
    """Whether samples of a mechanism on two neighbours refute (epsilon, delta), in any direction.

    An event is chosen on one half of each sample (bins of a histogram, and single values that
    come up again and again) and judged on the other half by exact binomial bounds.
    """
    return any(
        _refutes_one_way(one, other, epsilon, delta, alpha / 2, bins)
        for one, other in ((first, second), (second, first))
    )


def _refutes_one_way(one, other, epsilon, delta, alpha, bins):
    half = len(one) // 2, len(other) // 2
    train, judge = (one[: half[0]], other[: half[1]]), (one[half[0] :], other[half[1] :])
    values, counts = np.unique(train[0], return_counts=True)
    atoms = values[counts > max(20, len(train[0]) // 2000)]
    edges = np.unique(np.quantile(np.concatenate(train), np.linspace(0, 1, bins + 1)[1:-1]))

    def cells(sample):
        cell = np.searchsorted(edges, sample, side="right")
        place = np.searchsorted(atoms, sample)
        is_atom = (place < atoms.size) & (
            atoms[np.minimum(place, atoms.size - 1)] == sample if atoms.size else False
        )
        return np.where(is_atom, edges.size + 1 + place, cell)

    size = edges.size + 1 + atoms.size
    p, q = (np.bincount(cells(s), minlength=size) / len(s) for s in train)
    event = p > math.exp(epsilon) * q
    hits, misses = (int(event[cells(s)].sum()) for s in judge)
    least = lower(hits, len(judge[0]), alpha / 2)
    most = upper(misses, len(judge[1]), alpha / 2)
    return least > math.exp(epsilon) * most + delta

"""Joint distributions whose mutual information is known in closed form or by integration."""

import math

import numpy as np

ENTROPY = math.log(2 * math.pi * math.e)


def example_1(variance, seed, n_rows=1000):
    """003 Example 1: observed, hidden, and the leakage that theory gives."""
    random = np.random.default_rng(seed)
    t = random.normal(0, math.sqrt(5), (n_rows, 10))
    x = t + random.normal(0, math.sqrt(variance), (n_rows, 10))
    return x, t, 5 * math.log(1 + 5 / variance) - 5 * (ENTROPY + math.log(5))


def gaussians(A, B, seed, n_rows=1000):
    """t = g A and x = t B + noise of unit variance; observed, hidden, leakage, entropy of t."""
    random = np.random.default_rng(seed)
    d = len(A)
    t = random.normal(size=(n_rows, d)) @ A
    x = t @ B + random.normal(size=(n_rows, B.shape[1]))
    S = A.T @ A
    cross = S @ B
    left = S - cross @ np.linalg.solve(B.T @ S @ B + np.eye(B.shape[1]), cross.T)
    leakage = -0.5 * (d * ENTROPY + np.linalg.slogdet(left)[1])
    return x, t, leakage, 0.5 * (d * ENTROPY + np.linalg.slogdet(S)[1])


def integrated(f, deviation):
    """I(u; v) for u ~ N(0, 1) and v = f(u) + normal noise, on a grid."""
    u = np.linspace(-6, 6, 1201)
    weight = np.exp(-u * u / 2)
    weight /= weight.sum()
    centre = f(u)
    v = np.linspace(centre.min() - 8 * deviation, centre.max() + 8 * deviation, 8001)
    density = np.exp(-((v[:, None] - centre) ** 2) / (2 * deviation**2)) @ weight
    density /= density.sum() * (v[1] - v[0])
    positive = density[density > 0]
    entropy = -float(np.sum(positive * np.log(positive)) * (v[1] - v[0]))
    return entropy - 0.5 * (ENTROPY + 2 * math.log(deviation))

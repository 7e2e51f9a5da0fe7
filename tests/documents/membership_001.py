"""001 Algorithm 1 with Definitions 10 and 11 (003 Algorithm 1), as written.

``centroids(x, M)`` is the k-means that (1.51) names; its start is not part of the document.
"""

import math

import numpy as np

STEPS = 1500  # until nothing changes any more


def kernel(x, a, w, variance):
    """(1.17)."""
    return variance * np.exp(-0.5 * sum(w[k] * abs(x[k] - a[k]) ** 2 for k in range(len(w))))


def gram(X, A, w, variance):
    return np.array([[kernel(x, a, w, variance) for a in A] for x in X])


def tau(X, A, w, variance, nu):
    """(1.54)."""
    Kxx = len(X) * variance
    Kaa, Kxa = gram(A, A, w, variance), gram(X, A, w, variance)
    return (Kxx - np.trace(np.linalg.solve(Kaa, Kxa.T @ Kxa))) / (nu + len(A) - 2)


def learn(X, Y, M_max, centroids, nu=2.1, kappa=0.1):
    """Algorithm 1."""
    (N, n), p = X.shape, Y.shape[1]
    w = [(X[:, k].max() - X[:, k].min()) ** -2.0 for k in range(n)]
    M = M_max
    while tau(X, centroids(X, M), w, 1.0, nu) < kappa and M > 1:
        M = min(math.ceil(0.9 * M), M - 1)  # the document's ⌈0.9 M⌉ stands still below ten
    a = centroids(X, M)
    level, variance = tau(X, a, w, 1.0, nu), np.var(Y, axis=0, ddof=1).mean()
    sigma2 = 1.0 if level >= variance else variance / level
    Kaa, Kxa = gram(a, a, w, sigma2), gram(X, a, w, sigma2)
    smoothing = tau(X, a, w, sigma2, nu)
    beta = 1.0

    def alpha():  # (1.49)
        return np.linalg.solve(Kxa.T @ Kxa + smoothing * Kaa + Kaa / beta, Kxa.T @ Y)

    for _ in range(STEPS):
        beta = p * N / np.sum((Y - Kxa @ alpha()) ** 2)  # (1.58)
    return {"alpha": alpha(), "a": a, "w": w, "variance": sigma2, "beta": beta}


def predict(model, X):
    """(1.60)."""
    return gram(X, model["a"], model["w"], model["variance"]) @ model["alpha"]

"""000 Algorithm 1 with (88)-(98) and Appendix D, as written."""

import numpy as np
from scipy.special import digamma

STEPS = 1500  # until nothing changes any more


def psi(X, A, w, sx2):
    """(154) with σ² = 1."""
    factor = np.prod([np.sqrt(1 + wk * sx2) for wk in w])
    return np.array([[np.exp(-0.5 * np.sum(w * (a - x) ** 2 / (1 + w * sx2))) / factor
                      for a in A] for x in X])  # fmt: skip


def phi(X, A, w, sx2):
    """(155) with σ² = 1 and the index k on every inducing point."""
    factor = np.prod([np.sqrt(1 + 2 * wk * sx2) for wk in w])

    def entry(a, b):
        apart = 0.25 * np.sum(w * (a - b) ** 2)
        return sum(
            np.exp(-apart - np.sum(w * (0.5 * (a + b) - x) ** 2 / (1 + 2 * w * sx2))) for x in X
        )

    return np.array([[entry(a, b) for b in A] for a in A]) / factor


def learn(X, Y, M, nu, centroids, sx2=0.01):
    """Algorithm 1."""
    N, p = Y.shape
    w = (X.max(axis=0) - X.min(axis=0)) ** -2.0
    a = centroids(X, M)
    Kaa = np.array([[np.exp(-0.5 * np.sum(w * (s - t) ** 2)) for t in a] for s in a])
    Psi, Phi, xi = psi(X, a, w, sx2), phi(X, a, w, sx2), float(N)
    t = 0.0 if np.isinf(nu) else (xi - np.trace(np.linalg.solve(Kaa, Phi))) / (nu + len(a) - 2)
    at, bt, az, bz, ar, br = (1.0,) * 6
    as_, bs = 1 + ar / br, 1 + (ar / br) * (az / bz)  # step 7
    beta = 1.0

    def alpha():  # (89)
        return np.linalg.solve(Phi + t * Kaa + (bt * bz) / (at * az) * Kaa, Psi.T @ Y)

    for _ in range(STEPS):
        c = alpha()  # K_aa⁻¹ E(m̂) of (93)
        o = np.sum(Y**2) - 2 * np.sum(c * (Psi.T @ Y)) + np.sum(c * (Phi @ c + t * Kaa @ c))  # (96)
        at, bt = 1 + 0.5 * N * p, 1 + az / (2 * bz) * o  # (67), (68)
        az, bz = 1 + 0.5 * N * p + ar / br, (ar / br) * (as_ / bs) + at / (2 * bt) * o  # (70), (71)
        ar = 1.0  # (73)
        br = 1 + (as_ / bs) * (az / bz) - digamma(as_) + np.log(bs) - 1 - digamma(az) + np.log(bz)
        as_ = 1 + ar / br  # (76)
        bs = 1 + (ar / br) * (az / bz)  # (77)
        beta = (at / bt) * (az / bz)  # (95)
    return {"alpha": alpha(), "a": a, "w": w, "sx2": sx2, "beta": beta}


def predict(model, X):
    """(98)."""
    return psi(X, model["a"], model["w"], model["sx2"]) @ model["alpha"]

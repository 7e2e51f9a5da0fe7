"""003 Algorithms 7 and 8, as written, with m̂ in place of m̄ on the right side of (100)."""

import membership_001
import numpy as np
from scipy.special import digamma, gammaln

STEPS = 1500  # until nothing changes any more


def infer(X, T, M_max, centroids):
    """Algorithm 7."""
    mapping = membership_001.learn(X, T, M_max, centroids)
    R = membership_001.gram(X, mapping["a"], mapping["w"], mapping["variance"])
    (N, q), M = T.shape, R.shape[1]
    Lambda0, a0, b0 = 1e-3 * np.eye(M), 1e-3, 1e-3
    ratio = 1.0
    for _ in range(STEPS):
        Lambda = Lambda0 + ratio * R.T @ R  # (74)
        m = np.linalg.solve(Lambda, Lambda0 @ mapping["alpha"] + ratio * R.T @ T)  # (75)
        a = a0 + 0.5 * q * N
        b = b0 + 0.5 * (np.sum((T - R @ m) ** 2)
                        + q * np.trace(np.linalg.solve(Lambda, R.T @ R)))  # fmt: skip
        ratio = a / b
    return {"mapping": mapping, "R": R, "m": m, "Lambda": Lambda, "a": a, "b": b}


def estimate(model, X):
    """(82)."""
    mapping = model["mapping"]
    return membership_001.gram(X, mapping["a"], mapping["w"], mapping["variance"]) @ model["m"]


def leakage(X, T, M_max, centroids):
    """Algorithm 8: (99)-(102), then (98)."""
    post = infer(X, T, M_max, centroids)
    R, mh, Lh, ah, bh = (post[name] for name in ("R", "m", "Lambda", "a", "b"))
    (N, q), M = T.shape, R.shape[1]
    G, C = R.T @ R / N, R.T @ T / N  # ⟨GᵀG⟩ and ⟨Gᵀt⟩
    ratio = ah / bh
    for _ in range(STEPS):
        L = Lh + ratio * G
        m = np.linalg.solve(L, Lh @ mh + ratio * C)
        misfit, trace = np.sum((T - R @ m) ** 2) / N, q * np.trace(np.linalg.solve(L, G))
        a, b = ah + 0.5 * q, bh + 0.5 * misfit + 0.5 * trace
        ratio = a / b
    gap, dets = mh - m, np.linalg.slogdet(Lh)[1] - np.linalg.slogdet(L)[1]
    value = -0.5 * q * np.log(2 * np.pi) + 0.5 * q * (digamma(a) - np.log(b))
    value -= a / (2 * b) * (misfit + trace)
    value -= 0.5 * (np.sum(gap * (Lh @ gap)) + q * np.trace(Lh @ np.linalg.solve(L, np.eye(M))))
    value += 0.5 * q * dets + 0.5 * q * M
    value += -ah * np.log(b / bh) + gammaln(a) - gammaln(ah)
    return value - (a - ah) * digamma(a) + (b - bh) * (a / b)

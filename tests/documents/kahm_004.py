"""004 Definitions 1 and 2, written down equation by equation."""

import numpy as np


def machine(Y, n):
    """Everything that (33) needs: P, θ (36), K (39) and λ* (40)-(43)."""
    N, p = Y.shape
    centred = Y - np.outer(np.ones(N), Y.sum(axis=0) / N)
    values, vectors = np.linalg.eigh(centred.T @ centred / (N - 1))
    P = vectors[:, np.argsort(values)[::-1][:n]].T
    theta = P @ centred.T @ centred @ P.T / (N - 1)

    def kernel(a, b):
        return np.exp(-(a - b) @ np.linalg.solve(theta, a - b) / (2 * n))  # (35)

    K = np.array([[kernel(P @ a, P @ b) for b in Y] for a in Y])
    tau = 2 / (p * N) * np.linalg.norm(Y) ** 2

    def R(e):  # (42)
        return np.linalg.norm(Y - K @ np.linalg.solve(K + (e + tau) * np.eye(N), Y)) ** 2 / (p * N)

    e = tau / 4
    for _ in range(60):  # (43), whose slope is at most one half
        e = R(e)
    return {"Y": Y, "P": P, "kernel": kernel, "K": K, "lambda": e + tau}


def h(model, y):
    """Memberships h^i(Py) of (38)."""
    k = np.array([model["kernel"](model["P"] @ y, model["P"] @ row) for row in model["Y"]])
    return np.linalg.solve(model["K"] + model["lambda"] * np.eye(len(k)), k)


def image(model, y):
    """A(y) of (33)."""
    weights = h(model, y)
    return weights @ model["Y"] / weights.sum()

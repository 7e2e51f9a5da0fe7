"""002 Algorithms 1 and 2 with Definitions 9 and 10 and (2.165)-(2.166), as written."""

import numpy as np

STEPS = 1500  # until nothing changes any more


def degrees(X, a, W):
    """(2.110)."""
    values = np.array([[np.exp(-0.5 * (x - c) @ W @ (x - c)) for c in a] for x in X])
    return values / values.sum(axis=1, keepdims=True)


def infer(K, Y):
    """Steps 10 to 14: (2.150)-(2.154)."""
    (N, p), M = Y.shape, K.shape[1]
    a = b = prior = 1e-6
    beta = 1.0
    for _ in range(STEPS):
        Lambda = prior * np.eye(M) + beta * K.T @ K
        m = np.linalg.solve(Lambda, beta * K.T @ Y)
        trace = np.trace(np.linalg.solve(Lambda, K.T @ K))
        ahat = a + p * N / 2
        bhat = b + 0.5 * sum(np.sum((Y[:, j] - K @ m[:, j]) ** 2) + trace for j in range(p))
        beta = ahat / bhat
    return m, beta


def encoding(Y, n):
    """(2.147), (2.148); the largest entry of a column is positive."""
    values, vectors = np.linalg.eigh(Y.T @ Y / len(Y))
    V = vectors[:, np.argsort(values)[::-1][:n]]
    return V * np.sign([column[np.argmax(abs(column))] for column in V.T])


def learn(X, Y, V, M, centroids):
    """Algorithm 1; the last layer, which did not raise the precision, is dropped (step 16)."""
    a = centroids(X, M)
    W = np.diag([(X[:, k].max() - X[:, k].min()) ** -2.0 for k in range(X.shape[1])])
    layers, inputs, best = [], X, 0.0
    while True:
        K = degrees(inputs, a, W)
        m, beta = infer(K, Y)
        if beta <= best:
            return {"a": a, "W": W, "V": V, "layers": layers, "beta": best}
        layers.append(m)
        best, inputs = beta, (K @ m) @ V  # step 8


def predict(model, X):
    """(2.158)-(2.161) from given inputs of the first layer."""
    for m in model["layers"]:
        output = degrees(X, model["a"], model["W"]) @ m
        X = output @ model["V"]
    return output


def membership(model, y):
    """(2.162) of an autoencoder learned by Algorithm 2."""
    image = predict(model, y[None] @ model["V"])[0]
    return np.exp(-np.sum((y - image) ** 2) / (2 * len(y)))

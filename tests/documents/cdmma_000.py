"""000 Algorithm 2, as written."""

import membership_000
import numpy as np


def learn_deep(Y, n, M, L, centroids):
    """Algorithm 2."""
    values, vectors = np.linalg.eigh(np.cov(Y.T))
    directions = vectors[:, np.argsort(values)[::-1]].T
    layers, current = [], Y
    for number in range(1, L + 1):
        P = directions[: max(n - number + 1, 1)]
        X = current @ P.T
        layers.append((P, membership_000.learn(X, Y, M, 2.1 if number == 1 else np.inf, centroids)))
        current = membership_000.predict(layers[-1][1], X)
    return layers

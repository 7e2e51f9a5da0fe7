"""001 Algorithm 2 with Definitions 12 and 14 (003 Algorithm 2), as written."""

import membership_001
import numpy as np


def learn_deep(Y, n, M_max, L, centroids):
    """Algorithm 2."""
    values, vectors = np.linalg.eigh(np.cov(Y.T))
    directions = vectors[:, np.argsort(values)[::-1]].T
    layers, current = [], Y
    for number in range(1, L + 1):
        P = directions[: max(n - number + 1, 1)]
        X = current @ P.T
        most = len(layers[-1][1]["a"]) if layers else M_max  # (1.62)
        model = membership_001.learn(X, Y, most, centroids)
        layers.append((P, model))
        current = membership_001.predict(model, X)
    return layers


def deep_image(layers, y):
    """(1.63) to (1.65)."""
    images, current = [], y[None]
    for P, model in layers:
        current = membership_001.predict(model, current @ P.T)
        images.append(current[0])
    return min(images, key=lambda found: np.sum((y - found) ** 2))

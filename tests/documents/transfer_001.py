"""001 Algorithm 4 and (1.79)-(1.87) for one branch (S = 1); −1 marks rows without a label."""

import math

import cdmma_001
import membership_001
import numpy as np


def learn_classes(rows, labels, n, ratio, L, centroids):
    """Algorithm 4."""
    found = []
    for c in range(labels.max() + 1):
        Y = rows[labels == c]
        M = math.ceil(ratio * len(Y))
        found.append(cdmma_001.learn_deep(Y, min(n, len(Y) - 1), M, L, centroids))
    return found


def error(layers, y):
    return np.sum((y - cdmma_001.deep_image(layers, y)) ** 2)


def classify(models, y):
    """(1.71)."""
    return int(np.argmin([error(layers, y) for layers in models]))


def aligned(rows, V_sr, V_tg):
    """(1.79) for p_sr ≠ p_tg."""
    return rows @ V_tg.T @ V_sr


def transfer(rows, labels, source, centroids, dimensions, ratio, L):
    """The labels of all rows, and how a new row is classified; ``rows`` in the source's space."""
    known = labels >= 0
    n0 = max(min(20, min(np.bincount(labels[known])) - 1), 1)  # §1.4
    first = learn_classes(rows[known], labels[known], n0, 1.0, 1, centroids)
    now = labels.copy()
    now[~known] = [classify(first, y) for y in rows[~known]]
    for n in dimensions:
        target = learn_classes(rows, now, n, ratio, L, centroids)  # (1.82)
        now[~known] = [classify(target, y) for y in rows[~known]]  # (1.83)
    pairs = [(cdmma_001.deep_image(source[c], y), y)
             for c in range(now.max() + 1) for y in rows[now == c]]  # (1.84)  # fmt: skip
    inputs, outputs = (np.array(side) for side in zip(*pairs, strict=True))
    M_max = min(math.ceil(len(inputs) / 2), 1000)  # (1.86)
    mapping = membership_001.learn(inputs, outputs, M_max, centroids)  # (1.85)

    def final(y):  # (1.87)
        costs = []
        for c in range(now.max() + 1):
            image = cdmma_001.deep_image(source[c], y)
            through = membership_001.predict(mapping, image[None])[0]
            costs.append(
                min(error(target[c], y), *(np.sum((y - z) ** 2) for z in (through, image)))
            )
        return int(np.argmin(costs))

    return now, final

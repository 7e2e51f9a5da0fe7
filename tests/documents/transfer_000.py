"""000 Algorithms 4 and 7 with (118)-(121) for one branch (S = 1); −1 marks rows without a label."""

import math

import cdmma_000
import membership_000
import numpy as np


def learn_classes(rows, labels, n, ratio, L, centroids):
    """Algorithm 4."""
    found = []
    for c in range(labels.max() + 1):
        Y = rows[labels == c]
        M = math.ceil(ratio * len(Y))
        found.append(cdmma_000.learn_deep(Y, min(n, len(Y) - 1), M, L, centroids))
    return found


def image(layers, y):
    """(104) to (106)."""
    images, current = [], y[None]
    for P, model in layers:
        current = membership_000.predict(model, current @ P.T)
        images.append(current[0])
    return min(images, key=lambda one: np.sum((y - one) ** 2))


def error(layers, y):
    return np.sum((y - image(layers, y)) ** 2)


def centres(codes, labels):
    """(118) and (119)."""
    return [np.median(codes[labels == c], axis=0) for c in range(labels.max() + 1)]


def combined(y, target, source, V, m_tg, m_sr):
    """The class of (121) with the transformation (120), for p_sr = p_tg and V of the source."""
    costs = []
    for c, models in enumerate(zip(target, source, strict=True)):
        moved = V.T @ (V @ y - m_tg[c] + m_sr[c])
        costs.append(min(error(models[0], y), error(models[1], moved)))
    return int(np.argmin(costs))


def algorithm_7(rows, labels, source, V, m_sr, centroids, dimensions, ratios, L):
    """The labels of all rows after the iterations, and how a new row is classified."""
    known = labels >= 0
    n0 = max(min(20, min(np.bincount(labels[known])) - 1), 1)  # §5, item 5
    first = learn_classes(rows[known], labels[known], n0, 1.0, 1, centroids)
    now = labels.copy()
    now[~known] = [np.argmin([error(m, y) for m in first]) for y in rows[~known]]  # (126)
    m_tg = centres(rows @ V.T, now)  # (127)
    for k, (n, ratio) in enumerate(zip(dimensions, ratios, strict=True), start=1):
        target = learn_classes(rows, now, n, ratio, L if k == len(ratios) else 1, centroids)
        now[~known] = [combined(y, target, source, V, m_tg, m_sr) for y in rows[~known]]  # (130)
        m_tg = centres(rows @ V.T, now)  # (131)
    return now, lambda y: combined(y, target, source, V, m_tg, m_sr)

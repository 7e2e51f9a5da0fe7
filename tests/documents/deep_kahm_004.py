"""004 Definitions 3 to 8, as written."""

import kahm_004
import numpy as np


def deep_images(Y, n, L, y):
    """M_1(y), ..., M_L(y) of (51)."""
    images, current = [], y
    for layer in range(1, L + 1):
        current = kahm_004.image(kahm_004.machine(Y, n - layer + 1), current)
        images.append(current)
    return images


def deep_image(Y, n, L, y):
    """D(y) of (50) and (52)."""
    return min(deep_images(Y, n, L, y), key=lambda found: np.linalg.norm(y - found))


def wide_image(parts, n, L, y):
    """W(y) of (55) and (56) for the parts that clustering (58) gave."""
    return min((deep_image(Y, n, L, y) for Y in parts), key=lambda m: np.linalg.norm(y - m))


def distance(parts, n, L, y):
    """Γ of (60)."""
    return np.linalg.norm(y - wide_image(parts, n, L, y))


def matching_scores(distances):
    """(63)."""
    return np.exp(-(distances**2) / np.sum(distances**2))

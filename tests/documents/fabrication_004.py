"""004 Result 1, Definitions 13 and 14, Theorems 2 to 5, and (101)-(104), as they are written."""

import deep_kahm_004
import kahm_004
import numpy as np


def inverse_cdf(t, epsilon, delta, d):
    """(76)."""
    if t < (1 - delta) / 2:
        return d / epsilon * np.log(2 * t / (1 - delta))
    if t <= (1 + delta) / 2:
        return 0.0
    return -d / epsilon * np.log(2 * (1 - t) / (1 - delta))


def modelling_error(Y, n):
    """(88)."""
    model = kahm_004.machine(Y, n)
    return sum(np.linalg.norm(y - kahm_004.image(model, y)) for y in Y)


def smoothed(Y, n):
    """One step of (81): the image times the sum of the memberships."""
    model = kahm_004.machine(Y, n)
    return np.array([kahm_004.h(model, y).sum() * kahm_004.image(model, y) for y in Y])


def fabricated(noised, original, n):
    """(89) with M̃ of (92); also M̃."""
    r, current, m = modelling_error(original, n), noised, 1
    while modelling_error(current, n) > r:
        current, m = smoothed(current, n), m + 1
    model = kahm_004.machine(current, n)
    return np.array([kahm_004.image(model, y) for y in current]), m


def ratio_bound(Y, n):
    """The middle and the right side of (49)."""
    model = kahm_004.machine(Y, n)
    spectrum, (N, p) = np.linalg.eigvalsh(model["K"]), Y.shape
    middle = (model["lambda"] + spectrum[-1]) / (model["lambda"] + spectrum[0])
    return middle, 1 + p * N**2 / (2 * np.linalg.norm(Y) ** 2)


def spread(Y, y, order=2):
    """‖[y − y¹ … y − y^N]‖₂ of Theorems 3 and 4, or the Frobenius norm of Theorem 5."""
    return np.linalg.norm(y - Y, ord=order)


def global_image(parties, n, L, y):
    """GW(y) of (101) and (102) for one class; parties without rows of it are left out."""
    images = [deep_kahm_004.wide_image(parts, n, L, y) for parts in parties]
    return min(images, key=lambda found: np.linalg.norm(y - found))

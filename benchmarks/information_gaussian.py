"""Information leakage where the truth is known, beside the nearest-neighbour estimator of Kraskov.

1000 rows a draw, ``--seeds`` draws a case (20). "leakage" is the error of `information_leakage`,
I(t;x) − H(t), which needs no entropy; "I" is the error of its mutual information, with the entropy
as the library estimates it; "Kraskov" is that of `neighbour_information` with k = 3. Errors are
mean ± standard deviation over the draws, in nats; negative means below the truth. The last two
cases have noise that no Gaussian model describes: a lower bound must fall short there.
"""

import math
import time
import warnings

import numpy as np
from common import options_of, size, table

from permea.information import LeakageWarning, information_leakage, neighbour_information

ENTROPY = math.log(2 * math.pi * math.e)


class Case:
    """A way to draw (observed, hidden), and the truth in nats."""

    def __init__(self, name, draw, leakage, entropy):
        self.name, self.draw, self.leakage, self.entropy = name, draw, leakage, entropy

    @property
    def information(self):
        return self.leakage + self.entropy


def example_1(variance, n_rows=1000):
    """003 Example 1: x = t + ω in ten dimensions, t of variance 5, ω of the given variance."""

    def draw(random):
        t = random.normal(0, math.sqrt(5), (n_rows, 10))
        return t + random.normal(0, math.sqrt(variance), (n_rows, 10)), t

    entropy = 5 * (ENTROPY + math.log(5))
    return Case(f"003 Example 1, σ = {variance:g}", draw, 5 * math.log(1 + 5 / variance) - entropy,
                entropy)  # fmt: skip


def gaussian(d, n_rows=1000, scaled=False, seed=5):
    """t and x = t B + noise, correlated Gaussians; the determinants give the truth.

    A and B are drawn once and are far from orthogonal. ``scaled`` brings the hidden variables to
    units that differ by six powers of ten, and rotates the observed ones.
    """
    random = np.random.default_rng(seed)
    A, B = random.normal(size=(d, d)), random.normal(size=(d, d))
    noise = np.eye(d)
    if scaled:
        A = A * np.logspace(-3, 3, d)
        turn = np.linalg.qr(random.normal(size=(d, d)))[0]
        B = (B / np.logspace(-3, 3, d)[:, None]) @ turn
    S = A.T @ A
    cross = S @ B
    left = S - cross @ np.linalg.solve(B.T @ S @ B + noise, cross.T)

    def draw(random):
        t = random.normal(size=(n_rows, d)) @ A
        return t @ B + random.normal(size=(n_rows, d)), t

    entropy = 0.5 * (d * ENTROPY + np.linalg.slogdet(S)[1])
    leakage = -0.5 * (d * ENTROPY + _log_det(left, np.diag(S)))
    kind = "scaled and rotated " if scaled else ""
    return Case(f"{kind}Gaussians, d = {d}", draw, leakage, entropy)


def _log_det(S, units):
    """log|S| for variables in very different units."""
    scale = np.sqrt(units)
    return np.linalg.slogdet(S / scale / scale[:, None])[1] + np.log(units).sum()


def curve(name, f, deviation, n_rows=1000, hidden="output"):
    """u ~ N(0, 1) and v = f(u) + noise; which of them is hidden is up to the caller.

    The density of v is integrated on a grid of 20001 points; v given u is normal.
    """
    information, entropy_v = _integrated(f, deviation)

    def draw(random):
        u = random.normal(size=(n_rows, 1))
        v = f(u) + random.normal(0, deviation, (n_rows, 1))
        return (u, v) if hidden == "output" else (v, u)

    entropy = entropy_v if hidden == "output" else 0.5 * ENTROPY
    return Case(name, draw, information - entropy, entropy)


def _integrated(f, deviation):
    """I(u; v) and H(v) by integrating over a grid of u and of v."""
    u = np.linspace(-6, 6, 2001)
    weight = np.exp(-u * u / 2)
    weight /= weight.sum()
    centre = f(u)
    v = np.linspace(centre.min() - 8 * deviation, centre.max() + 8 * deviation, 20001)
    density = np.zeros_like(v)
    for at, share in zip(centre, weight, strict=True):
        density += share * np.exp(-((v - at) ** 2) / (2 * deviation**2))
    density /= density.sum() * (v[1] - v[0])
    positive = density[density > 0]
    entropy = -float(np.sum(positive * np.log(positive)) * (v[1] - v[0]))
    return entropy - 0.5 * (ENTROPY + 2 * math.log(deviation)), entropy


def curves(n_rows=1000):
    """Nonlinear cases: three whose noise is that of the model, and two whose noise is not."""
    return [
        curve("hidden t = sin 3x + noise", lambda x: np.sin(3 * x), 0.2, n_rows),
        curve("hidden t = x² + noise", lambda x: x**2, 0.2, n_rows),
        curve("hidden t = abs x + noise", np.abs, 0.1, n_rows),
        curve("observed x = tanh 2t + noise", lambda t: np.tanh(2 * t), 0.2, n_rows, "input"),
        curve("observed x = t³ + noise", lambda t: t**3, 0.5, n_rows, "input"),
    ]


def cases():
    yield from (example_1(variance) for variance in (1, 2, 5, 10, 15))
    yield from (gaussian(d) for d in (2, 5, 10, 20))
    yield from (gaussian(d, scaled=True) for d in (2, 5, 10, 20))
    yield from curves()


def measured(case, seeds):
    """Errors and seconds of both estimators over the draws."""
    errors, times = np.empty((3, seeds)), np.zeros(2)
    for seed in range(seeds):
        x, t = case.draw(np.random.default_rng(seed))
        start = time.perf_counter()
        leak = information_leakage(x, t)
        middle = time.perf_counter()
        other = neighbour_information(x, t)
        times += (middle - start, time.perf_counter() - middle)
        errors[:, seed] = (
            leak.value - case.leakage,
            leak.mutual_information.nats - case.information,
            other - case.information,
        )
    return errors, times / seeds


def main():
    parser = options_of(__doc__)
    parser.add_argument("--seeds", type=int, default=size(20, 2))
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore", LeakageWarning)
    rows = []
    for case in cases():
        errors, times = measured(case, seeds)
        means, spreads = errors.mean(axis=1), errors.std(axis=1, ddof=1)
        cells = [f"{mean:+.3f} ± {spread:.3f}" for mean, spread in zip(means, spreads, strict=True)]
        rows.append([case.name, f"{case.information:.3f}", *cells, *(f"{t:.2f}" for t in times)])
    header = ["case", "true I", "leakage", "I", "Kraskov", "ours (s)", "Kraskov (s)"]
    table(header, rows)


if __name__ == "__main__":
    main()

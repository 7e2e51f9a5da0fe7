"""Information leakage where the truth is known, beside the nearest-neighbour estimator of Kraskov.

1000 rows a draw, ``--seeds`` draws a case (20). "leakage" is the error of `information_leakage`,
I(t;x) − H(t), which needs no entropy; "I" is the error of its mutual information, with the entropy
as the library estimates it; "Kraskov" is that of `neighbour_information` with k = 3. Errors are
mean ± standard deviation over the draws, in nats; negative means below the truth. The last two
cases have noise that no Gaussian model describes: a lower bound must fall short there.
"""

import time
import warnings

import numpy as np
from common import options_of, size, table
from information_cases import curves, example_1, gaussian

from permea.information import LeakageWarning, information_leakage, neighbour_information


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

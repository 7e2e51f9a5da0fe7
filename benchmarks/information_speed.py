"""Speed of information leakage: N = 5000 rows of MNIST, M = 1000 inducing points, q = 784.

Pixels with noise of ε = 1 as observed, the pixels themselves as hidden. "003" is Algorithm 8 as
written; ``--search`` adds "default", which tries trends and bandwidths first. Memory is the growth
of the process; q matrices of M × M would take 6.3 GB.
"""

import warnings

import numpy as np
from common import mnist, options_of, peak_memory, seconds, size, table

from permea import Privacy, release
from permea.information import information_leakage
from permea.information.measures import document_model


def main():
    parser = options_of(__doc__)
    parser.add_argument("--search", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    X, _, _, _ = mnist(np.float64, rows=size(5000, 300))
    privacy = Privacy(epsilon=1, delta=1e-5, domain=(0, 1))
    noised = release(X, privacy, random_state=options.seed).data
    ways = {"003": document_model()}
    if options.search:
        ways["default"] = None
    rows = []
    for name, model in ways.items():
        with peak_memory() as memory:
            time, leak = seconds(
                lambda model=model: information_leakage(noised, X, model=model, constants="keep"
                                                        if model else "drop")
            )  # fmt: skip
        fitted = leak.model
        rows.append([name, len(X), len(fitted.inducing_points_), len(leak.names),
                     f"{leak.value:.1f}", f"{time:.1f}", f"{memory['growth']:.0f}"])  # fmt: skip
    table(["model", "N", "M", "q", "leakage (nats)", "time (s)", "memory (MiB)"], rows)


if __name__ == "__main__":
    main()

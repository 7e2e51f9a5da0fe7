"""Time of exact integer noise against numpy's float Laplace, at the size of MNIST.

Run ``python benchmarks/noise_speed.py`` (47 million entries; ``--entries`` for fewer). Prints both
times, their ratio (at most 3 is wanted), and the time of a whole release.
"""

from fractions import Fraction

import numpy as np
from common import options_of, seconds, size, table

from permea.privacy import Privacy, release
from permea.privacy.gaussian import discrete_gaussian
from permea.privacy.sampling import CryptographicBits, discrete_laplace


def main():
    parser = options_of(__doc__)
    parser.add_argument("--entries", type=int, default=size(60_000 * 784, 100_000))
    n = parser.parse_args().entries
    rate = Fraction(1, 2**20)
    reference = seconds(lambda: np.random.default_rng(0).laplace(size=n))[0]
    exact = seconds(lambda: discrete_laplace(rate, n, CryptographicBits(), point_mass=1e-5))[0]
    gaussian = seconds(lambda: discrete_gaussian(2.0**32, n, CryptographicBits()))[0]
    rows = np.zeros((max(1, n // 784), 784), dtype=np.float32)
    privacy = Privacy(epsilon=1.0, delta=1e-5, domain=(0, 1))
    whole = seconds(lambda: release(rows, privacy))[0]
    print(f"{n} entries; the goal is a ratio of at most 3.\n")
    times = {
        "numpy, float Laplace": reference,
        "exact discrete Laplace, cryptographic bits": exact,
        "exact discrete Gaussian, cryptographic bits": gaussian,
        "release: clip, round, noise, certificate": whole,
    }
    table(
        ["what", "seconds", "ratio to numpy"],
        [[name, f"{t:.2f}", f"{t / reference:.2f}"] for name, t in times.items()],
    )


if __name__ == "__main__":
    main()

"""Time of exact integer noise against numpy's float Laplace, at the size of MNIST.

Run ``python benchmarks/noise_speed.py`` (47 million entries; ``--entries`` for fewer). Prints both
times, their ratio (the promise is at most 15), and the time of a whole release.
"""

import argparse
import time
from fractions import Fraction

import numpy as np

from permea.privacy import Privacy, release
from permea.privacy.bits import CryptographicBits
from permea.privacy.sampling import discrete_gaussian, discrete_laplace


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=60_000 * 784)
    n = parser.parse_args().entries
    rate = Fraction(1, 2**20)
    reference = seconds(lambda: np.random.default_rng(0).laplace(size=n))
    exact = seconds(lambda: discrete_laplace(rate, n, CryptographicBits(), point_mass=1e-5))
    few = max(1, n // 10)
    gaussian = 10 * seconds(lambda: discrete_gaussian(2.0**32, few, CryptographicBits()))
    rows = np.zeros((max(1, n // 784), 784), dtype=np.float32)
    privacy = Privacy(epsilon=1.0, delta=1e-5, domain=(0, 1))
    whole = seconds(lambda: release(rows, privacy))
    print(f"entries                                  {n}")
    print(f"numpy float Laplace                      {reference:8.2f} s")
    print(f"exact discrete Laplace, cryptographic    {exact:8.2f} s")
    print(f"exact discrete Gaussian (from a tenth)   {gaussian:8.2f} s")
    print(f"release: clip, round, noise, certificate {whole:8.2f} s")
    print(f"ratio discrete Laplace / numpy           {exact / reference:8.2f}")


if __name__ == "__main__":
    main()

"""One kernel affine hull machine against the matrix product of its own size.

Document 004 Table 11 reports 133 s for N × p = 10⁷ (MATLAB, one laptop). The yardstick here is one
N × N × p product in the same precision, timed in the same run.
"""

import numpy as np
from common import options_of, seconds, size, table

from permea import KernelAffineHullMachine

REPEAT = size(7, 1)


def main():
    options_of(__doc__).parse_args()
    rows = []
    random = np.random.default_rng(0)
    for dtype in (np.float64, np.float32):
        for p in size((784, 10_000, 20_000), (100, 784)):
            Y = random.normal(size=(1000, p)).astype(dtype)
            M = random.normal(size=(1000, 1000)).astype(dtype)
            # not in turns: numpy's idle BLAS threads spin for a while and would slow down scipy's
            floor, _ = seconds(lambda Y=Y, M=M: M @ Y, REPEAT)
            fit, _ = seconds(lambda Y=Y: KernelAffineHullMachine().fit(Y), REPEAT)
            name = np.dtype(dtype).name
            rows.append([name, p, f"{floor:.4f}", f"{fit:.4f}", f"{fit / floor:.1f}"])
    print(f"N = 1000 rows of Gaussian noise (as 004 section 6.4), n = 20; shortest of {REPEAT}.\n")
    table(["precision", "p", "one product, s", "one machine, s", "ratio"], rows)


if __name__ == "__main__":
    main()

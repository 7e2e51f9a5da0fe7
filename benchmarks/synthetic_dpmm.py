"""One run of a generator of `dpmm`, in a process and an environment of its own.

    python synthetic_dpmm.py METHOD EPSILON DELTA SEED ROWS.npz OUT.npz

ROWS.npz holds ``codes``, a matrix of whole numbers, and ``sizes``, how many values every column
has. OUT.npz gets as many synthetic ``codes``, the seconds and the peak of memory
in MiB. `dpmm` wants older versions of other libraries than permea, so it runs apart from it.
"""

import resource
import sys
import time

import numpy as np


def main():
    import pandas as pd
    from dpmm.pipelines import AIMPipeline, MSTPipeline, PrivBayesPipeline

    known = {"MST": MSTPipeline, "AIM": AIMPipeline, "PrivBayes": PrivBayesPipeline}
    method, epsilon, delta, seed, source, result = sys.argv[1:]
    rows = np.load(source)
    frame = pd.DataFrame(rows["codes"], columns=[f"c{k}" for k in range(rows["codes"].shape[1])])
    sizes = {name: int(size) for name, size in zip(frame, rows["sizes"], strict=True)}
    start = time.perf_counter()
    model = known[method](
        epsilon=float(epsilon), delta=float(delta), disable_processing=True, n_jobs=1
    )
    model.fit(frame, sizes, random_state=int(seed))
    made = model.generate(n_records=len(frame), random_state=int(seed))
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    np.savez(result, codes=made[list(frame)].to_numpy(), seconds=took, peak=peak)


if __name__ == "__main__":
    main()

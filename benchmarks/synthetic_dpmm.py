"""One run of a generator of `dpmm`, in a process and an environment of its own.

    python synthetic_dpmm.py METHOD EPSILON DELTA SEED ROWS.npz OUT.npz

ROWS.npz holds ``codes``, a matrix of whole numbers, and ``sizes``, how many values every column
has. OUT.npz gets as many synthetic ``codes``, the processor seconds and the peak of memory in MiB.
`dpmm` wants older versions of other libraries than permea, so it runs apart from it.

MST and PrivBayes run with their defaults. AIM takes hours with its own; here a round has 100
iterations instead of 1000 (the last fit has 1000) and the model at most 1 MB, so that it ends.
"""

import resource
import sys
import time

import numpy as np

ROUND = 100  # iterations of AIM in each round
MEGABYTES = 1  # of the model that AIM builds


def main():
    import pandas as pd
    from dpmm.models.aim import AIM
    from dpmm.pipelines import AIMPipeline, MSTPipeline, PrivBayesPipeline

    known = {"MST": MSTPipeline, "AIM": AIMPipeline, "PrivBayes": PrivBayesPipeline}
    method, epsilon, delta, seed, source, result = sys.argv[1:]
    rows = np.load(source)
    frame = pd.DataFrame(rows["codes"], columns=[f"c{k}" for k in range(rows["codes"].shape[1])])
    sizes = {name: int(size) for name, size in zip(frame, rows["sizes"], strict=True)}
    shorten_rounds(AIM)
    start = time.process_time()
    model = known[method](
        epsilon=float(epsilon), delta=float(delta), disable_processing=True, n_jobs=1,
        max_model_size=MEGABYTES if method == "AIM" else None,
    )  # fmt: skip
    model.fit(frame, sizes, random_state=int(seed))
    made = model.generate(n_records=len(frame), random_state=int(seed))
    took = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    np.savez(result, codes=made[list(frame)].to_numpy(), seconds=took, peak=peak)


def shorten_rounds(mechanism):
    """Give the rounds of AIM fewer iterations, and leave the last fit what it is."""
    original = mechanism._fit

    def fit(self, *args, **options):
        last, self.n_iters = self.n_iters, ROUND
        try:
            return original(self, *args, **options)
        finally:
            self.n_iters = last

    mechanism._fit = fit


if __name__ == "__main__":
    main()

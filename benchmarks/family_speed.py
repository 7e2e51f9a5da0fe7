"""Time, memory and accuracy of the three model families as classifiers of MNIST-60000.

Each family runs in a process of its own, so that the peak memory is its own; n = 20, five layers,
branches of 1000 rows, float32. CPU seconds count both workers and do not depend on what else the
machine does. ``--rows 10000`` makes a smaller run.
"""

import multiprocessing
import time

from common import QUICK, mnist, options_of, peak_memory

from permea.compose import ReconstructionClassifier
from permea.models import FuzzyAutoencoder, KernelAffineHullMachine, MembershipAutoencoder

FAMILIES = {
    "KAHM": (KernelAffineHullMachine(), 5),
    "membership": (MembershipAutoencoder(), 5),
    "membership, pivots": (MembershipAutoencoder(inducing="pivots"), 5),
    "membership, gamma": (MembershipAutoencoder(disturbance="gamma"), 5),
    "fuzzy": (FuzzyAutoencoder(), 1),
}


def run(name, n_rows, n_jobs):
    X, y, X_test, y_test = mnist(rows=n_rows)
    model, n_layers = FAMILIES[name]
    clf = ReconstructionClassifier(
        model, n_layers=n_layers, branch_size=1000, n_jobs=n_jobs, random_state=0
    )
    with peak_memory() as memory:
        start, work = time.perf_counter(), time.process_time()
        clf.fit(X, y)
        fitted, work = time.perf_counter(), time.process_time() - work
        accuracy = clf.score(X_test, y_test)
        done = time.perf_counter()
    times = f"{fitted - start:7.1f} | {work:11.1f} | {done - fitted:8.1f}"
    print(f"| {name:20s} | {times} | {accuracy:8.4f} | {memory['growth']:11.0f} |", flush=True)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    arguments = parser.parse_args()
    print("| family               | fit (s) | CPU fit (s) | test (s) | accuracy | memory (MB) |")
    print(
        "|----------------------|---------|-------------|----------|----------|-------------|",
        flush=True,
    )
    for name in arguments.families:
        task = (name, arguments.rows, arguments.jobs)
        if QUICK:
            run(*task)
            continue
        process = multiprocessing.get_context("spawn").Process(target=run, args=task)
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(process.exitcode)


if __name__ == "__main__":
    main()

"""Time, memory and accuracy of the three model families as classifiers of MNIST-60000.

Each family runs in a process of its own, so that the peak memory is its own; n = 20, five layers,
branches of 1000 rows, float32. ``--rows 10000`` makes a smaller run.
"""

import argparse
import multiprocessing
import resource
import time

from common import mnist

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
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model, n_layers = FAMILIES[name]
    start = time.perf_counter()
    clf = ReconstructionClassifier(model, n_layers=n_layers, n_jobs=n_jobs, random_state=0)
    clf.fit(X, y)
    fitted = time.perf_counter()
    accuracy = clf.score(X_test, y_test)
    done = time.perf_counter()
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    times = f"{fitted - start:7.1f} | {done - fitted:8.1f}"
    print(f"| {name:20s} | {times} | {accuracy:8.4f} | {more:11.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    arguments = parser.parse_args()
    print("| family               | fit (s) | test (s) | accuracy | memory (MB) |")
    print("|----------------------|---------|----------|----------|-------------|", flush=True)
    for name in arguments.families:
        task = (name, arguments.rows, arguments.jobs)
        process = multiprocessing.get_context("spawn").Process(target=run, args=task)
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(process.exitcode)


if __name__ == "__main__":
    main()

"""Time, memory and accuracy of the three model families as classifiers of MNIST-60000.

Run ``python benchmarks/family_speed.py`` (``--rows 10000`` for a smaller run). Needs mnist.npz in
the folder that PERMEA_DATA names. Each family runs in a process of its own, so that the peak
memory is its own; n = 20, five layers, branches of 1000 rows, float32.
"""

import argparse
import multiprocessing
import os
import resource
import time
from pathlib import Path

import numpy as np

from permea.compose import ReconstructionClassifier
from permea.models import KernelAffineHullMachine
from permea.models.fuzzy import FuzzyAutoencoder
from permea.models.membership import MembershipAutoencoder

FAMILIES = {
    "KAHM": (KernelAffineHullMachine(), 5),
    "membership": (MembershipAutoencoder(), 5),
    "membership, pivots": (MembershipAutoencoder(inducing="pivots"), 5),
    "membership, gamma": (MembershipAutoencoder(disturbance="gamma"), 5),
    "fuzzy": (FuzzyAutoencoder(), 1),
}


def load_mnist():
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("PERMEA_DATA", default)) / "mnist.npz"
    if not path.exists():
        raise SystemExit(f"{path} is missing: set PERMEA_DATA to a folder with mnist.npz.")
    data = np.load(path)
    rows = [
        data[k].reshape(len(data[k]), -1).astype(np.float32) / 255 for k in ("x_train", "x_test")
    ]
    return rows[0], data["y_train"], rows[1], data["y_test"]


def run(name, n_rows, n_jobs):
    X, y, X_test, y_test = load_mnist()
    X, y = X[:n_rows], y[:n_rows]
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

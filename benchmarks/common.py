"""What several benchmarks share: data on disk, timers, tables."""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

QUICK = "--quick" in sys.argv


def size(full, quick):
    """The first for a measurement, the second for ``--quick``, which only proves that it runs."""
    return quick if QUICK else full


def options_of(description):
    """Command line of a benchmark; every one knows ``--quick`` and ``--seed``."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--quick", action="store_true", help="a small run, to prove it works")
    options.add_argument("--seed", type=int, default=0, help="of whatever is drawn at random")
    return options


def folder():
    """Where the data lie: the folder that PERMEA_DATA names."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("PERMEA_DATA", default))


def load(name):
    """Arrays of NAME.npz in the folder that PERMEA_DATA names."""
    path = folder() / f"{name}.npz"
    if not path.exists():
        raise SystemExit(f"{path} is missing: set PERMEA_DATA to a folder with {name}.npz.")
    return np.load(path)


def mnist(dtype=np.float32, rows=None):
    """MNIST as X_train, y_train, X_test, y_test pixels in [0, 1]; digits for a quick run."""
    if QUICK:
        return small_images(dtype)
    data = load("mnist")
    X, T = ((data[k].reshape(len(data[k]), -1) / 255).astype(dtype) for k in ("x_train", "x_test"))
    if rows is None or rows >= len(X):
        return X, data["y_train"], T, data["y_test"]
    chosen = np.random.default_rng(0).permutation(len(X))[:rows]
    return X[chosen], data["y_train"][chosen], T, data["y_test"]


def small_images(dtype):
    """Scikit-learn's digits on 28 x 28 pixels: quick runs need no file."""
    from sklearn.datasets import load_digits

    images, y = load_digits(return_X_y=True)
    large = np.kron(images.reshape(-1, 8, 8) / 16, np.ones((3, 3)))
    X = np.pad(large, ((0, 0), (2, 2), (2, 2))).reshape(len(y), -1).astype(dtype)
    print("Quick run on 600 enlarged digits instead of MNIST: its figures mean nothing.\n")
    return X[:600], y[:600], X[600:800], y[600:800]


def seconds(work, repeat=1):
    """Shortest of several timings, and the last result."""
    best = np.inf
    for _ in range(repeat):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


class Kept:
    """Results by name, in a file for temporary files that outlives an interrupted run.

    With ``resume`` what an earlier run left there is taken over. A quick run keeps nothing.
    """

    def __init__(self, name, resume):
        self.path = Path(tempfile.gettempdir()) / f"permea-{name}.json"
        self.done = json.loads(self.path.read_text()) if resume and self.path.exists() else {}

    def __contains__(self, name):
        return name in self.done

    def __getitem__(self, name):
        return self.done[name]

    def __setitem__(self, name, result):
        self.done[name] = result
        if not QUICK:
            self.path.write_text(json.dumps(self.done))


def table(header, rows):
    """Print a Markdown table."""
    print("| " + " | ".join(map(str, header)) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    print(flush=True)


@contextmanager
def peak_memory():
    """Largest growth of this process's resident memory, in MiB, while the block runs."""
    page = os.sysconf("SC_PAGE_SIZE") / 2**20
    measured = {"growth": 0.0}
    done = threading.Event()

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    start = resident()

    def watch():
        while not done.wait(0.01):
            measured["growth"] = max(measured["growth"], resident() - start)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield measured
    finally:
        measured["growth"] = max(measured["growth"], resident() - start)
        done.set()
        watcher.join()

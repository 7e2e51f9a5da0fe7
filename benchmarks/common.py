"""What several benchmarks share: data on disk, timers, tables."""

import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np


def load(name):
    """Arrays of NAME.npz in the folder that PERMEA_DATA names."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("PERMEA_DATA", default)) / f"{name}.npz"
    if not path.exists():
        raise SystemExit(f"{path} is missing: set PERMEA_DATA to a folder with {name}.npz.")
    return np.load(path)


def mnist(dtype=np.float32, rows=None):
    """MNIST as X_train, y_train, X_test, y_test with pixels in [0, 1]."""
    data = load("mnist")
    X, T = ((data[k].reshape(len(data[k]), -1) / 255).astype(dtype) for k in ("x_train", "x_test"))
    if rows is None or rows >= len(X):
        return X, data["y_train"], T, data["y_test"]
    chosen = np.random.default_rng(0).permutation(len(X))[:rows]
    return X[chosen], data["y_train"][chosen], T, data["y_test"]


def seconds(work, repeat=1):
    """Shortest of several timings, and the last result."""
    best = np.inf
    for _ in range(repeat):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


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

"""Classifiers on a Dask cluster: two workers beside one.

The KAHM classifier learns and answers on MNIST (``--rows`` of it), and class hulls learn from made
up rows in Parquet (those of `tables_scale`). Clusters of one and of two worker processes, with one
thread each, take turns. The speed-up in seconds depends on what else the machine does meanwhile;
the CPU seconds of the busiest worker hardly do, and are what the work takes at least when every
worker has a core of its own. Every branch travels to one worker, the fitted model once to each.
"""

import tempfile
import time
import warnings

import joblib
import numpy as np
import pyarrow.dataset
from common import mnist, options_of, size, table
from tables_scale import FILE, SCHEMA, files_of, write_files
from threadpoolctl import threadpool_limits

from permea import HullClassifier, KAHMClassifier
from permea.privacy import Privacy
from permea.tables.reading import read_chunks


def spent(client, work):
    """Seconds, CPU seconds of the busiest worker, and the result."""
    before, start = client.run(time.process_time), time.perf_counter()
    result = work()
    took, after = time.perf_counter() - start, client.run(time.process_time)
    return took, max(after[worker] - before[worker] for worker in after), result


def hulls(folder):
    promise = Privacy(epsilon=1.0, delta=1e-9, unit="record")
    chunks = read_chunks(pyarrow.dataset.dataset(files_of(folder, 10**9)))
    return HullClassifier(privacy=promise, schema=SCHEMA).fit_chunks(chunks, engine="dask")


def imported():
    """Import on a worker what it will need, before anything is timed."""
    import permea

    return permea.KAHMClassifier.__name__, permea.HullClassifier.__name__


def on_workers(n_workers, data, folder):
    """Times of every task on a cluster of so many workers, and the labels of KAHM."""
    from distributed import Client, LocalCluster

    X, y, T = data
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        joblib.parallel_config(backend="dask"),
    ):
        client.run(imported)
        clf = KAHMClassifier(branch_size=500, n_jobs=-1, random_state=0)
        fit = spent(client, lambda: clf.fit(X, y))
        first = spent(client, lambda: clf.predict(T))
        again = spent(client, lambda: clf.predict(T))
        moments = spent(client, lambda: hulls(folder))
        return {
            "KAHM, fit": fit[:2],
            "KAHM, first predictions (the model travels)": first[:2],
            "KAHM, further predictions": again[:2],
            "class hulls, fit": moments[:2],
        }, first[2]


def main():
    parser = options_of(__doc__)
    parser.add_argument("--rows", type=int, default=size(20_000, 600))
    parser.add_argument("--table", type=int, default=size(4_000_000, 2000), help="rows in Parquet")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    X, y, T, _ = mnist(rows=options.rows)
    data = X, y, T[: size(10_000, 200)]
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder, max(FILE, options.table), options.seed)
        alone, expected = on_workers(1, data, folder)
        shared, labels = on_workers(2, data, folder)
    if not np.array_equal(labels, expected):
        raise SystemExit("One worker and two give different labels.")
    print(f"{options.rows} rows of MNIST, {len(data[2])} queries; {options.table} rows of 20 "
          "columns in Parquet. Labels are the same; the goal is 1.7 times.\n")  # fmt: skip
    table(
        ["task", "one worker, s", "two workers, s", "times", "CPU of the one, s",
         "CPU of the busier of two, s", "times, of CPU"],
        [[name, f"{one[0]:.1f}", f"{two[0]:.1f}", f"{one[0] / two[0]:.2f}", f"{one[1]:.1f}",
          f"{two[1]:.1f}", f"{one[1] / two[1]:.2f}"]
         for (name, one), two in zip(alone.items(), shared.values(), strict=True)],
    )  # fmt: skip


if __name__ == "__main__":
    with threadpool_limits(1):
        main()

"""A private fit of a table in Parquet on Dask: two workers beside one.

The rows, the schema and the fit are those of `tables_scale`. Clusters of one and of two worker
processes, with one thread each, take turns. The speed-up in seconds depends on what else the
machine does meanwhile; the CPU seconds of the busiest worker hardly do, and are what the fit takes
at least when every worker has a core of its own.
"""

import os
import tempfile
import time

from common import options_of, size, table
from tables_scale import FILE, fit, write_files
from threadpoolctl import threadpool_limits


def on_workers(folder, n_rows, n_workers):
    """Seconds of a fit after a small one, and CPU seconds of every worker."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        fit(folder, FILE, engine="dask")
        before = client.run(time.process_time)
        seconds, _ = fit(folder, n_rows, engine="dask")
        after = client.run(time.process_time)
        return seconds, [after[worker] - before[worker] for worker in after]


def main():
    parser = options_of(__doc__)
    parser.add_argument("--rows", type=int, default=size(10_000_000, 2000))
    parser.add_argument("--rounds", type=int, default=size(3, 1))
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder, options.rows, options.seed)
        for _ in range(options.rounds):
            load = os.getloadavg()[0]
            one, alone = on_workers(folder, options.rows, 1)
            two, shared = on_workers(folder, options.rows, 2)
            assert (len(alone), len(shared)) == (1, 2)
            rows.append(
                [f"{load:.1f}", f"{one:.1f}", f"{two:.1f}", f"{one / two:.2f}", f"{alone[0]:.1f}",
                 f"{max(shared):.1f}", f"{alone[0] / max(shared):.2f}"]
            )  # fmt: skip
    print(f"{options.rows / 1e6:g} million rows, 130 features; the goal is 1.7 times.\n")
    table(
        ["load of the machine before", "one worker, s", "two workers, s", "times",
         "CPU of the one, s", "CPU of the busier of two, s", "times"],
        rows,
    )  # fmt: skip


if __name__ == "__main__":
    with threadpool_limits(1):
        main()

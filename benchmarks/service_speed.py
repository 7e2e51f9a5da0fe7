"""What the HTTP interface costs: latency and requests per second of `permea serve`.

One process serves one model of 64 columns (digits of scikit-learn, `MomentClassifier` per record)
over TLS on the loopback interface. Clients in other processes keep their connections, and each asks
one row after the other; clients and service share the machine. Beside it: the same model and
scikit-learn's logistic regression called in process, one row at a time. Processor time is that of
the service alone, for each request. ``--seconds N`` for each number of clients;
``--load MINUTES`` runs 64 clients for so long instead and counts errors and memory; ``--resume``
goes on after an interruption.
"""

import json
import multiprocessing
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from common import Kept, options_of, size, table
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from permea import MomentClassifier, Privacy, save
from permea.federation.service.askers import Askers
from permea.federation.service.client import Client
from permea.federation.service.deploy import free_port
from permea.federation.service.tls import make_trial_certificates

PROCESSES = 2  # that clients run in


class Served:
    """A running service, in a folder of its own."""

    def __init__(self, folder, model):
        make_trial_certificates(folder / "keys", [])
        port, keys = free_port(), folder / "keys"
        self.url, self.ca = f"https://127.0.0.1:{port}", keys / "ca.crt"
        command = [
            *(sys.executable, "-m", "permea", "serve", "--model", model, "--port", port),
            *("--certificate", keys / "server.crt", "--key", keys / "server.key"),
            *("--folder", folder / "state"),
        ]
        log = open(folder / "log", "wb")  # noqa: SIM115
        self.process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)
        self.token = Askers(folder / "state").create("benchmark")
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                Client(self.url, self.token, ca=self.ca).about()
                return
            except RuntimeError:
                time.sleep(0.1)
        raise SystemExit((folder / "log").read_text())

    def busy(self):
        """Processor time and resident memory of the service, in seconds and MiB."""
        one = psutil.Process(self.process.pid)
        return sum(one.cpu_times()[:2]), one.memory_info().rss / 2**20

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def clients(url, token, ca, X, count, duration, results):
    """So many clients in this process, each asking one row at a time."""
    times, errors = [[] for _ in range(count)], [0] * count
    end = time.monotonic() + duration

    def ask(number):
        client = Client(url, token, ca=ca)
        row = number
        while time.monotonic() < end:
            start = time.perf_counter()
            try:
                client.ask(X[row % len(X)][None])
            except RuntimeError:
                errors[number] += 1
            times[number].append(time.perf_counter() - start)
            row += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((np.concatenate(times).tolist(), sum(errors)))


def load(served, X, count, duration):
    """Latencies of all requests of ``count`` clients, errors, and seconds per request."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    shares = [len(part) for part in np.array_split(range(count), min(count, PROCESSES))]
    before, _ = served.busy()
    start = time.perf_counter()
    workers = [
        context.Process(
            target=clients,
            args=(served.url, served.token, served.ca, X, share, duration, results),
        )
        for share in shares
    ]
    for worker in workers:
        worker.start()
    found = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    times = np.concatenate([np.array(one) for one, _ in found])
    used, memory = served.busy()
    return {
        "requests": len(times),
        "rate": len(times) / duration,
        "p50": float(np.percentile(times, 50)),
        "p99": float(np.percentile(times, 99)),
        "errors": sum(errors for _, errors in found),
        "cpu": (used - before) / len(times),
        "memory": memory,
        "elapsed": time.perf_counter() - start,
    }


def in_process(model, X, count):
    """Seconds of one call with one row: median, 99th percentile, and processor time."""
    times = []
    start = time.process_time()
    for row in range(count):
        begin = time.perf_counter()
        model.predict(X[row % len(X)][None])
        times.append(time.perf_counter() - begin)
    used = (time.process_time() - start) / count
    return {"rate": 1 / np.mean(times), "p50": float(np.percentile(times, 50)),
            "p99": float(np.percentile(times, 99)), "cpu": used}  # fmt: skip


def row_of(name, one):
    return [name, f"{one['rate']:.0f}", f"{1e3 * one['p50']:.2f}", f"{1e3 * one['p99']:.2f}",
            f"{1e3 * one['cpu']:.2f}", one.get("errors", 0)]  # fmt: skip


def main() -> None:
    parser = options_of(__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=size(20.0, 1.0))
    parser.add_argument("--load", type=float, help="minutes of 64 clients")
    parser.add_argument("--resume", action="store_true")
    chosen = parser.parse_args()
    X, y = load_digits(return_X_y=True)
    X = X / 16
    privacy = Privacy(epsilon=2, delta=1e-5, unit="record", domain=(0, 1))
    model = MomentClassifier(privacy=privacy, classes=tuple(range(10))).fit(X, y)
    kept = Kept("service-speed", chosen.resume)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        served = Served(folder, save(model, folder / "digits.permea"))
        try:
            if chosen.load is not None:
                under_load(served, X, chosen.load)
                return
            for count in size((1, 8, 64), (1, 4)):
                if f"{count}" not in kept:
                    kept[f"{count}"] = load(served, X, count, chosen.seconds)
        finally:
            served.stop()
    calls = size(2000, 50)
    peer = LogisticRegression(max_iter=200).fit(X, y)
    rows = [
        row_of(f"service, {count} client{'s' * (count > 1)}", kept[f"{count}"])
        for count in size((1, 8, 64), (1, 4))
    ]
    rows.append(row_of("the same model in process", in_process(model, X, calls)))
    rows.append(row_of("scikit-learn in process", in_process(peer, X, calls)))
    print(f"One row of {X.shape[1]} columns in each request; {chosen.seconds:g} s each.\n")
    header = ["who answers", "requests per second", "median, ms", "99th percentile, ms",
              "processor time per request, ms", "errors"]  # fmt: skip
    table(header, rows)


def under_load(served, X, minutes):
    """64 clients for a long time: nothing fails, and memory stays."""
    parts, rows = 10, []
    for part in range(parts):
        found = load(served, X, 64, 60 * minutes / parts)
        rows.append([part + 1, found["requests"], found["errors"], f"{1e3 * found['p99']:.1f}",
                     f"{found['memory']:.0f}"])  # fmt: skip
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(f"64 clients for {minutes:g} minutes in {parts} parts.\n")
    table(["part", "requests", "errors", "99th percentile, ms", "memory, MiB"], rows)


if __name__ == "__main__":
    main()

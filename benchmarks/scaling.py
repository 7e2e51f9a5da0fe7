"""How time grows: one machine over N, p and n (004 Table 11, Fig. 17), a classifier over classes.

One kernel affine hull machine on Gaussian noise as in 004 section 6.4, float64, shortest of three;
the document's column is MATLAB on the authors' machine. The exponent is the slope of log time
against log size over the upper half of the sizes. Then the KAHM classifier over rows (10 000 to a
million), classes (2 to 100) and parties (2 to 1000), in processor time. One thread; about a quarter
of an hour. ``--only`` chooses parts.
"""

import resource
import time
import warnings

import numpy as np
from common import options_of, seconds, size, table
from threadpoolctl import threadpool_limits

from permea import KAHMClassifier, KernelAffineHullMachine, Privacy
from permea.federation import Federation, Party

TABLE_11 = {  # N × p: seconds; all with p = 10 N up to the last ones
    10_000: 0.0193, 100_000: 0.1077, 1_000_000: 1.9783, 2_500_000: 10.0412, 4_900_000: 27.2175,
    8_100_000: 101.2839, 10_000_000: 133.0497,
}  # fmt: skip


def machine_time(N, p, n=20):
    Y = np.random.default_rng(0).normal(size=(N, p))
    return seconds(lambda: KernelAffineHullMachine(n_components=n).fit(Y), size(3, 1))[0]


def table_11():
    rows = []
    for entries, published in TABLE_11.items():
        if entries > size(10**7, 10**5):
            break
        N = round(np.sqrt(entries / 10)) if entries < 10**7 else 1000
        took = machine_time(N, entries // N)
        rows.append([entries, f"{N} × {entries // N}", f"{took:.4f}", published,
                     f"{published / took:.0f}"])  # fmt: skip
    print("**One machine by data size**, beside 004 Table 11 (the shapes there are not given).\n")
    table(["N × p", "shape", "seconds", "004, seconds", "times faster"], rows)


def axes():
    rows = []
    for name, values, shape in (
        ("p", size((500, 1000, 2000, 5000, 10_000, 20_000), (50, 100)), lambda v: (500, v)),
        ("N", size((100, 200, 400, 800, 1600, 3200), (50, 100)), lambda v: (v, 1000)),
        ("n", size((5, 10, 20, 50, 100, 200, 400), (5, 10)), lambda v: (1000, 1000, v)),
    ):
        times = [machine_time(*shape(v)) for v in values]
        slope = exponent(values, times)
        text = ", ".join(f"{v}: {t:.3f}" for v, t in zip(values, times, strict=True))
        rows.append([name, text, f"{slope:.2f}"])
    print("**One machine along each axis**, beside 004 Fig. 17; others at N = 500 or 1000, "
          "p = 1000, n = 20.\n")  # fmt: skip
    table(["axis", "value: seconds", "exponent"], rows)


def exponent(values, times):
    """Slope of log time against log size over the upper half of the sizes."""
    half = len(values) // 2
    if half == 0:
        return float("nan")
    return np.polyfit(np.log(values[half - 1 :]), np.log(times[half - 1 :]), 1)[0]


def clouds(n_rows, n_classes, n_features):
    """Float32 rows around random centres, and their labels."""
    random = np.random.default_rng(0)
    y = random.integers(n_classes, size=n_rows)
    X = random.standard_normal((n_rows, n_features), dtype=np.float32)
    X += 2 * random.standard_normal((n_classes, n_features), dtype=np.float32)[y]
    return X, y


def rows_axis():
    """Fit, and predictions for a fixed number of queries, per training row."""
    sizes, rows, fits, asks = size((10_000, 100_000, 1_000_000), (500, 1000)), [], [], []
    for n_rows in sizes:
        X, y = clouds(n_rows, 10, 16)
        clf = KAHMClassifier(n_components=8, n_layers=3, branch_size=400, random_state=0)
        fit, _ = cpu_seconds(lambda clf=clf, X=X, y=y: clf.fit(X, y))
        ask, _ = cpu_seconds(lambda clf=clf, X=X: clf.predict(X[: size(500, 50)]))
        fits.append(fit)
        asks.append(ask)
        rows.append([n_rows, f"{fit:.1f}", f"{1e6 * fit / n_rows:.0f}", f"{ask:.2f}",
                     f"{1e6 * ask / n_rows:.2f}", f"{peak_gib():.2f}"])  # fmt: skip
    print("**Rows**: 16 features, 10 classes, n = 8, L = 3, branches of 400 rows, float32, "
          "500 queries; the limit of memory is 2 GiB. Exponents: "
          f"fit {exponent(sizes, fits):.2f}, predict {exponent(sizes, asks):.2f}.\n")  # fmt: skip
    table(["rows", "fit, CPU s", "fit per row, µs", "predict, CPU s",
           "predict per training row, µs", "peak so far, GiB"], rows)  # fmt: skip


def classes_axis():
    """Rows per class stay the same, so that all grows in proportion at best."""
    counts, rows, fits, asks = size((2, 5, 10, 25, 50, 100), (2, 3)), [], [], []
    for n_classes in counts:
        X, y = clouds(size(500, 50) * n_classes, n_classes, 50)
        clf = KAHMClassifier()
        fits.append(cpu_seconds(lambda clf=clf, X=X, y=y: clf.fit(X, y))[0])
        asks.append(cpu_seconds(lambda clf=clf, X=X: clf.predict(X[:1000]))[0])
        rows.append([n_classes, f"{fits[-1]:.2f}", f"{asks[-1]:.2f}"])
    print(f"**Classes** of {size(500, 50)} rows, 50 features, 1000 queries. Exponents: fit "
          f"{exponent(counts, fits):.2f}, predict {exponent(counts, asks):.2f}.\n")  # fmt: skip
    table(["classes", "fit, CPU s", "predict, CPU s"], rows)


def parties_axis():
    """Rows per party stay the same."""
    promise = Privacy(epsilon=8, delta=1e-5, domain=(-20, 20))
    counts, rows, fits, asks = size((2, 10, 50, 200, 1000), (2, 3)), [], [], []
    for number in counts:
        X, y = clouds(100 * number, 5, 20)
        X = np.clip(X, -20, 20)

        def parties(X=X, y=y, number=number):
            setting = {"n_components": 5, "n_layers": 3, "privacy": promise}
            shares = zip(np.array_split(X, number), np.array_split(y, number), strict=True)
            return [
                Party(f"party {i}", KAHMClassifier(**setting).fit(mine, labels))
                for i, (mine, labels) in enumerate(shares)
            ]

        fit, members = cpu_seconds(parties)
        ask, _ = cpu_seconds(lambda members=members, X=X: Federation(members).ask(X[:200]))
        fits.append(fit)
        asks.append(ask)
        rows.append([number, f"{fit:.2f}", f"{ask:.2f}", f"{1e3 * ask / number:.2f}"])
    print("**Parties** of 100 rows in one process, 20 features, 5 classes, 200 queries. Exponents: "
          f"fit {exponent(counts, fits):.2f}, answer {exponent(counts, asks):.2f}.\n")  # fmt: skip
    table(["parties", "fit, CPU s", "answer, CPU s", "answer per party, ms"], rows)


def cpu_seconds(work):
    """Processor time of one call, and its result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def peak_gib():
    """Largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main():
    parser = options_of(__doc__)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.only:
        PARTS[name]()


PARTS = {
    "rows": rows_axis,
    "table": table_11,
    "axes": axes,
    "classes": classes_axis,
    "parties": parties_axis,
}


if __name__ == "__main__":
    with threadpool_limits(1):
        main()

"""How time grows: one machine over N, p and n (004 Table 11, Fig. 17), a classifier over classes.

One kernel affine hull machine on Gaussian noise as in 004 section 6.4, float64, shortest of three;
the document's column is MATLAB on the authors' machine. The exponent is the slope of log time
against log size over the last half of the sizes. The second table gives the KAHM classifier on
blobs of 1000 rows per class, and a federation of parties with 500 rows each.
"""

import warnings

import numpy as np
from common import options_of, seconds, size, table
from sklearn.datasets import make_blobs

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
        half = len(values) // 2
        slope = np.polyfit(np.log(values[half - 1 :]), np.log(times[half - 1 :]), 1)[0]
        text = ", ".join(f"{v}: {t:.3f}" for v, t in zip(values, times, strict=True))
        rows.append([name, text, f"{slope:.2f}"])
    print("**One machine along each axis**, beside 004 Fig. 17; others at N = 500 or 1000, "
          "p = 1000, n = 20.\n")  # fmt: skip
    table(["axis", "value: seconds", "exponent"], rows)


def classes_and_parties():
    rows = []
    for classes in size((2, 5, 10, 25), (2, 3)):
        X, y = make_blobs(size(1000, 50) * classes, 50, centers=classes, random_state=0)
        clf = KAHMClassifier(n_jobs=2)
        fit, _ = seconds(lambda clf=clf, X=X, y=y: clf.fit(X, y))
        ask, _ = seconds(lambda clf=clf, X=X: clf.predict(X[:2000]))
        rows.append(["classes", classes, f"{fit:.2f}", f"{ask:.2f}"])
    promise = Privacy(epsilon=8, delta=1e-5, domain=(-20, 20))
    for number in size((2, 5, 10, 25), (2, 3)):
        X, y = make_blobs(size(500, 50) * number, 50, centers=5, random_state=0)
        X = np.clip(X, -20, 20)

        def parties(X=X, y=y, number=number):
            shares = zip(np.array_split(X, number), np.array_split(y, number), strict=True)
            return [
                Party(f"party {i}", KAHMClassifier(privacy=promise).fit(rows, labels))
                for i, (rows, labels) in enumerate(shares)
            ]

        fit, members = seconds(parties)
        ask, _ = seconds(lambda members=members, X=X: Federation(members).predict(X[:2000]))
        rows.append(["parties", number, f"{fit:.2f}", f"{ask:.2f}"])
    print("**Classes and parties**, 2000 queries of 50 features.\n")
    table(["axis", "value", "fit, s", "predict, s"], rows)


def main():
    options_of(__doc__).parse_args()
    warnings.simplefilter("ignore")
    table_11()
    axes()
    classes_and_parties()


if __name__ == "__main__":
    main()

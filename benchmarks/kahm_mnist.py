"""The KAHM classifier on MNIST-60000: accuracy, time, memory, beside scikit-learn's peers.

n = 20, L = 5, branches of 1000 rows, float32, two workers. The floor of a prediction is the time of
the two products that its definition needs (codes with training codes, kernel values with rows) for
every layer, branch and class, run by the same workers. Options: ``--without-svc`` (it takes five
minutes), ``--rows N`` for a smaller training set.
"""

import numpy as np
from common import mnist, options_of, peak_memory, seconds, size, table
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from permea import KAHMClassifier
from permea._parallel import run_parallel

QUERIES = size(2048, 256)


def classifier():
    return KAHMClassifier(branch_size=1000, n_jobs=2, random_state=0)


def floor_of(clf, n_queries):
    """Time of the products that the definition of the distances needs."""
    random = np.random.default_rng(0)
    branches = [branch for model in clf.class_models_ for branch in model.branches_]

    def products(n_rows):
        for branch in branches:
            for layer in branch.layers_:
                N, n = layer.codes_.shape
                kernel = random_codes[:n_rows, :n] @ layer.codes_.T
                kernel @ random_rows[:N]

    largest = max(branch.layers_[0].codes_.shape[0] for branch in branches)
    random_codes = random.normal(size=(1024, 20)).astype(np.float32)
    random_rows = random.normal(size=(largest, clf.n_features_in_)).astype(np.float32)
    tasks = [(min(1024, n_queries),)] * max(1, n_queries // 1024)
    return seconds(lambda: run_parallel(products, tasks, n_jobs=2))[0]


def against_peers(X, y, T, t, with_svc):
    peers = {"KAHM": classifier(), "3-NN": KNeighborsClassifier(3, n_jobs=2)}
    if with_svc:
        peers["SVC(rbf, C=10)"] = SVC(C=10)
    rows = []
    for name, clf in peers.items():
        fit, _ = seconds(lambda clf=clf: clf.fit(X, y))
        predict, labels = seconds(lambda clf=clf: clf.predict(T))
        rows.append([name, f"{np.mean(labels == t):.4f}", f"{fit:.1f}", f"{predict:.1f}"])
    print(f"**(b) Beside scikit-learn**, {len(X)} rows, {len(T)} predictions.\n")
    table(["classifier", "accuracy", "fit, s", "predict, s"], rows)
    return peers


def against_the_floor(clf, T):
    queries = T[:QUERIES]
    clf.predict(queries[:256])  # prepare what is prepared once
    floor = floor_of(clf, QUERIES)
    exact, distances = seconds(lambda: clf.distances(queries))
    pruned, labels = seconds(lambda: clf.predict(queries))
    same = np.array_equal(labels, clf.classes_[distances.argmin(axis=1)])
    print(f"**(c) Against the floor** of the products, {QUERIES} queries; labels of both "
          f"{'are identical' if same else 'DIFFER'}.\n")  # fmt: skip
    table(
        ["what", "seconds", "ratio to the floor"],
        [
            ["floor: products of the definition", f"{floor:.2f}", "1.00"],
            ["distances to all classes", f"{exact:.2f}", f"{exact / floor:.2f}"],
            ["predict", f"{pruned:.2f}", f"{pruned / floor:.2f}"],
        ],
    )


def latency(clf, peer, T):
    """Milliseconds of single queries, in turns, on one worker and without a pool."""
    clf.set_params(n_jobs=None)
    peer.set_params(n_jobs=None)
    times = np.array(
        [[seconds(lambda m=model, row=row: m.predict(row[None]))[0] for model in (clf, peer)]
         for row in T[: size(50, 5)]]
    )  # fmt: skip
    clf.set_params(n_jobs=2)
    print(f"**(f) One query**, medians of {len(times)} in turns.\n")
    found = zip(("KAHM", "3-NN"), np.median(times, axis=0), strict=True)
    table(["classifier", "ms"], [[name, f"{1e3 * took:.1f}"] for name, took in found])


def memory_of_predict(clf, T):
    rows = []
    for copies in (1, 3):
        queries = np.tile(T, (copies, 1))
        with peak_memory() as measured:
            clf.predict(queries)
        rows.append([len(queries), f"{measured['growth']:.0f}"])
    print("**(d) Memory of predict**: growth of the process while it runs.\n")
    table(["queries", "peak growth, MiB"], rows)


def scaling(X, y, T):
    rows = []
    order = np.random.default_rng(0).permutation(len(X))
    for n_rows in (10_000, 20_000, 40_000, 60_000):
        if n_rows > len(X):
            break
        part = order[:n_rows]
        fit, clf = seconds(lambda part=part: classifier().fit(X[part], y[part]))
        predict, _ = seconds(lambda clf=clf: clf.predict(T[:QUERIES]))
        per_row = [1e6 * fit / n_rows, 1e6 * predict / n_rows]
        rows.append(
            [n_rows, f"{fit:.1f}", f"{per_row[0]:.0f}", f"{predict:.2f}", f"{per_row[1]:.1f}"]
        )
    print(f"**(e) Growth with N** ({QUERIES} queries): constant time per row means linear.\n")
    table(["N", "fit, s", "fit per row, µs", "predict, s", "predict per row, µs"], rows)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--without-svc", action="store_true")
    options = parser.parse_args()
    X, y, T, t = mnist(rows=options.rows)
    peers = against_peers(X, y, T, t, not options.without_svc)
    clf = peers["KAHM"]
    against_the_floor(clf, T)
    memory_of_predict(clf, T)
    scaling(X, y, T)
    latency(clf, peers["3-NN"], T)


if __name__ == "__main__":
    main()

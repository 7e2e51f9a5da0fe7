"""The documents' transfer methods on MNIST exactly as they are written.

The setting of ``transfer_mnist``, all from `permea.documents`: 000 Algorithm 7 with its gamma
model on both sides ("centers"), 001 eq. (1.79)-(1.87) with its precision model and mapping
("source2target"). 60000 noised training rows are the source, 9000 test rows the target, 1000 are
scored. The lower table follows the labels of the unlabelled rows through the iterations. The
target's iterations of 001 do not depend on the source: the first ε pays for them.

A split takes minutes, so that few are made; the table says how many. What is done is kept in the
folder for temporary files: ``--resume`` takes it from there, ``--minutes 9`` begins no further fit
after so many minutes, ``--points centers:2 source2target:0.1`` measures some points only.
"""

import sys
import time

import numpy as np
from common import Kept, mnist, options_of, size, table
from transfer_mnist import split

from permea import documents
from permea.transfer.source2target import label_by_target, mapped
from permea.transfer.target import number_labels

METHODS = ("centers", "source2target")
SETTINGS = {
    "centers": (documents.source_000, documents.transfer_000),
    "source2target": (documents.source_001, documents.transfer_001),
}
PRINTED = {  # 000 Table 1; 001 Table 1.1 has one figure for every ε up to 1
    "centers": {2: 0.980, 8: 0.988, np.inf: 0.994},
    "source2target": {0.1: 0.951, 0.2: 0.951, 0.5: 0.951, 1: 0.951},
}
POINTS = ("centers:2", "source2target:0.1", "centers:8", "source2target:1")


def make_source(method, X, y, epsilon, seed):
    """The source of a document; without noise where ε is None or infinite."""
    promise = None if epsilon in (None, np.inf) else documents.noise(epsilon)
    setting = SETTINGS[method][0]
    return setting(promise, p=X.shape[1], n_jobs=2, random_state=seed).fit(X, y)


def classifier_of(source, method, seed):
    """The target's classifier of a document, not fitted."""
    return SETTINGS[method][1](source, n_jobs=2, random_state=seed)


def learned(clf, A, few, truth, iterated):
    """The classifier, fitted; the target's iterations of 001 do not depend on the source.

    They are kept in ``iterated``, a dictionary of this split, and serve the source of every ε.
    """
    if clf.method == "centers":
        return clf.fit(A, few, truth=truth)
    classes, numbers = number_labels(few, -1, clf.source.classes_)
    clf.n_features_in_ = A.shape[1]
    task = clf._task(A, numbers, classes, truth)
    if not iterated:
        iterated["target"] = label_by_target(task, clf.dimensions, clf.n_layers)
    return clf._keep(task, classes, mapped(task, *iterated["target"]))


def measured(source, method, T, t, seed, iterated):
    """Accuracy on one split; who decided, the labels' way, and seconds of CPU."""
    start = time.process_time()
    A, truth, few, V, v = split(T, t, seed)
    clf = learned(classifier_of(source, method, seed), A, few, truth, iterated)
    who, counts = np.unique(clf.who_decided(V), return_counts=True)
    said = ", ".join(f"{n} {c / len(V):.0%}" for n, c in zip(who, counts, strict=True))
    steps = " → ".join(f"{step.accuracy:.4f}" for step in clf.history_)
    return float(clf.score(V, v)), said, steps, time.process_time() - start


def main():
    parser = options_of(__doc__)
    parser.add_argument("--points", nargs="+", default=size(POINTS, POINTS[:1]))
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--minutes", type=float, default=np.inf)
    options = parser.parse_args()
    kept = Kept("transfer-as-written", options.resume)
    X, y, T, t = mnist()
    chosen = [(name, float(epsilon)) for name, epsilon in (p.split(":") for p in options.points)]
    start = time.perf_counter()
    iterated = [{} for _ in range(options.splits)]
    for method, epsilon in chosen:
        source = None
        for number in range(options.splits):
            seed = options.seed + number
            point = f"{method} {epsilon:g} {seed}"
            if point in kept or time.perf_counter() - start > 60 * options.minutes:
                continue
            source = source or make_source(method, X, y, epsilon, options.seed)
            kept[point] = measured(source, method, T, t, seed, iterated[number])
            print(point, kept[point], file=sys.stderr, flush=True)
    report(chosen, options, kept)


def report(chosen, options, kept):
    rows, paths = [], []
    for method, epsilon in chosen:
        names = [f"{method} {epsilon:g} {options.seed + n}" for n in range(options.splits)]
        found = [kept[name] for name in names if name in kept]
        if not found:
            continue
        told = [accuracy for accuracy, *_ in found]
        rows.append([f"{epsilon:g}", method, len(found), f"{np.mean(told):.4f}",
                     f"{np.std(told):.4f}", PRINTED[method].get(epsilon, ""), found[-1][1],
                     f"{np.mean([one[3] for one in found]):.0f}"])  # fmt: skip
        paths.append([f"{epsilon:g}", method, found[-1][2]])
    print("Mean over the splits; the last split tells who decided.\n")
    table(["ε per entry", "method", "splits", "accuracy", "± over splits", "document",
           "who decided", "CPU of a target, s"], rows)  # fmt: skip
    print("Share of right labels among the unlabelled rows: initial labels, then each iteration.\n")
    table(["ε per entry", "method", "right labels"], paths)


if __name__ == "__main__":
    main()

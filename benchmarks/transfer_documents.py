"""The documents' transfer methods on MNIST as they are written, and where they lose.

The setting of ``transfer_mnist``, with membership models on both sides: r_max = 0.5, branches of
1000 rows, n and L as documents 000 §5 and 001 §1.4 give them. The lower table follows the labels of
the unlabelled rows through the iterations. The target's iterations of 001 do not depend on the
source: the first ε pays for them, and those after it show the mapping's time alone. What is done is
kept in the folder for temporary files: ``--resume`` takes it from there.
"""

import sys

import numpy as np
from common import Kept, mnist, options_of, seconds, size, table
from transfer_mnist import split

from permea import MembershipClassifier, Privacy, SourceModel, TransferClassifier
from permea.transfer.documents import label_by_target, mapped
from permea.transfer.target import number_labels

METHODS = ("centers", "source2target")

PRINTED = {  # 000 Table 1; 001 §1.4.1.1 has one figure for every ε up to 1
    "centers": {2: 0.980, 8: 0.988},
    "source2target": {0.1: 0.951, 0.5: 0.951, 1: 0.951},
}


def make_source(X, y, epsilon, seed):
    """The source as 001 §1.4 makes it; without noise where ε is None."""
    learner = MembershipClassifier(branch_size=1000, n_layers=size(5, 1), n_jobs=2)
    promise = epsilon and Privacy(epsilon=epsilon, delta=1e-5, domain=(0, 1))
    made = SourceModel(privacy=promise, classifier=learner, n_jobs=2, random_state=seed)
    return made.fit(X, y)


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
        iterated["target"] = label_by_target(task, None, clf.n_layers)
    return clf._keep(task, classes, mapped(task, *iterated["target"]))


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=size([0.1, 0.5, 1, 2, 8], [2]))
    parser.add_argument("--splits", type=int, default=size(5, 1))
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    kept = Kept("transfer-documents", options.resume)
    X, y, T, t = mnist()
    rows, paths = [], []
    iterated = [{} for _ in range(options.splits)]
    for epsilon in options.epsilons:
        source = None
        for method in METHODS:
            point = f"{epsilon:g} {method} {options.seed} {options.splits}"
            if point not in kept:
                source = source or make_source(X, y, epsilon, options.seed)
                kept[point] = measured(source, method, T, t, options, iterated)
            told, said, steps, took = kept[point]
            printed = PRINTED[method].get(epsilon, "")
            rows.append([f"{epsilon:g}", method, f"{np.mean(told):.4f}", f"{np.std(told):.4f}",
                         printed, said, f"{took:.0f}"])  # fmt: skip
            paths.append([f"{epsilon:g}", method, steps])
            print(*rows[-1], steps, file=sys.stderr, flush=True)
    print(f"Mean over {options.splits} split(s); the last split tells who decided.\n")
    table(["ε per entry", "method", "accuracy", "± over splits", "document", "who decided",
           "fit, s"], rows)  # fmt: skip
    print("Share of right labels among the unlabelled rows: initial labels, then each iteration.\n")
    table(["ε per entry", "method", "right labels"], paths)


def measured(source, method, T, t, options, iterated):
    """Accuracies over the splits; who decided and the labels' way in the last; seconds a fit."""
    told, times = [], []
    for number in range(options.splits):
        A, truth, few, V, v = split(T, t, options.seed + number)
        clf = TransferClassifier(source, method=method, n_jobs=2, random_state=number)
        given = (clf, A, few, truth, iterated[number])
        times.append(seconds(lambda given=given: learned(*given))[0])
        told.append(float(clf.score(V, v)))
    who, counts = np.unique(clf.who_decided(V), return_counts=True)
    said = ", ".join(f"{n} {c / len(V):.0%}" for n, c in zip(who, counts, strict=True))
    steps = " → ".join(f"{step.accuracy:.4f}" for step in clf.history_)
    return told, said, steps, float(np.mean(times))


if __name__ == "__main__":
    main()

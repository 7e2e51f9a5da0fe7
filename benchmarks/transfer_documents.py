"""The documents' transfer methods on MNIST as they are written, and where they lose.

The setting of ``transfer_mnist``, with membership models on both sides: r_max = 0.5, branches of
1000 rows, n and L as documents 000 §5 and 001 §1.4 give them. The lower table follows the labels of
the unlabelled rows through the iterations.
"""

import sys

import numpy as np
from common import mnist, options_of, seconds, size, table
from transfer_mnist import split

from permea import MembershipClassifier, Privacy, SourceModel, TransferClassifier

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


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=size([0.1, 0.5, 1, 2, 8], [2]))
    parser.add_argument("--splits", type=int, default=size(5, 1))
    options = parser.parse_args()
    X, y, T, t = mnist()
    rows, paths = [], []
    for epsilon in options.epsilons:
        source = make_source(X, y, epsilon, options.seed)
        for method in ("centers", "source2target"):
            told, times = [], []
            for number in range(options.splits):
                A, truth, few, V, v = split(T, t, options.seed + number)
                clf = TransferClassifier(source, method=method, n_jobs=2, random_state=number)
                work = lambda c=clf, A=A, f=few, r=truth: c.fit(A, f, truth=r)  # noqa: E731
                times.append(seconds(work)[0])
                told.append(clf.score(V, v))
            who, counts = np.unique(clf.who_decided(V), return_counts=True)
            said = ", ".join(f"{n} {c / len(V):.0%}" for n, c in zip(who, counts, strict=True))
            printed = PRINTED[method].get(epsilon, "")
            rows.append([f"{epsilon:g}", method, f"{np.mean(told):.4f}", f"{np.std(told):.4f}",
                         printed, said, f"{np.mean(times):.0f}"])  # fmt: skip
            steps = " → ".join(f"{step.accuracy:.4f}" for step in clf.history_)
            paths.append([f"{epsilon:g}", method, steps])
            print(*rows[-1], steps, file=sys.stderr, flush=True)
    print(f"Mean over {options.splits} split(s); the last split tells who decided.\n")
    table(["ε per entry", "method", "accuracy", "± over splits", "document", "who decided",
           "fit, s"], rows)  # fmt: skip
    print("Share of right labels among the unlabelled rows: first labels, then each iteration.\n")
    table(["ε per entry", "method", "right labels"], paths)


if __name__ == "__main__":
    main()

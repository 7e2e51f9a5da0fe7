"""Private transfer on MNIST: 100 labels, 8900 unlabelled rows, a source of 60000 noised rows.

The setting of 001 §1.4.1.1 and 000 Table 1: the training set is the source, 9000 test rows are the
target with ten labels per class, 1000 are left to score. One noised source for each ε serves all
splits. Peers see the same splits; they use no source. ``--splits``, ``--epsilons`` choose others.
"""

import sys

import numpy as np
from common import mnist, options_of, peak_memory, seconds, size, table
from transfer_baselines import answers, few_labels

from permea import KAHMClassifier, Privacy, SourceModel, TransferClassifier

STATED = {0.1: (0.951, ""), 0.5: (0.951, ""), 1: (0.951, ""), 2: ("", 0.980), 8: ("", 0.988)}


def split(T, t, seed):
    random = np.random.default_rng(100 + seed)  # splits 0 to 2 served to make the method
    order = random.permutation(len(T))
    cut = len(T) * 9 // 10
    few = few_labels(t[order[:cut]], 10, random)
    return T[order[:cut]], t[order[:cut]], few, T[order[cut:]], t[order[cut:]]


def make_source(X, y, epsilon, seed):
    return SourceModel(
        privacy=Privacy(epsilon=epsilon, delta=1e-5, domain=(0, 1)),
        classifier=KAHMClassifier(n_layers=1, branch_size=500, n_jobs=2),
        n_jobs=2,
        random_state=seed,
    ).fit(X, y)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=size([0.1, 0.5, 1, 2, 8], [2]))
    parser.add_argument("--splits", type=int, default=size(5, 1))
    parser.add_argument("--without-peers", action="store_true")
    options = parser.parse_args()
    X, y, T, t = mnist()
    rows = []
    for epsilon in options.epsilons:
        with peak_memory() as memory:
            fit_source, source = seconds(lambda e=epsilon: make_source(X, y, e, options.seed))
        told, alone, times = [], [], []
        for number in range(options.splits):
            A, truth, few, V, v = split(T, t, options.seed + number)
            clf = TransferClassifier(source, n_jobs=2, random_state=number)
            times.append(seconds(lambda c=clf, A=A, f=few, r=truth: c.fit(A, f, truth=r))[0])
            told.append(clf.score(V, v))
            alone.append(np.mean(clf.predict_source(V) == v))
        known = STATED.get(epsilon, ("", ""))
        rows.append([
            f"{epsilon:g}", f"{np.mean(told):.4f}", f"{np.std(told):.4f}",
            clf.fitted_.leading_expert, f"{np.mean(alone):.4f}", *known,
            f"{fit_source:.0f}", f"{np.mean(times):.0f}", f"{memory['growth']:.0f}",
        ])  # fmt: skip
        print(*rows[-1], file=sys.stderr, flush=True)
    print(f"Method consensus, mean over {options.splits} splits; δ = 1e-5 per entry, d = 1.\n")
    table(
        ["ε per entry", "accuracy", "± over splits", "leading source expert",
         "its classifier alone", "001", "000", "source, s", "target, s", "source, MiB"],
        rows,
    )  # fmt: skip
    if not options.without_peers:
        peers(T, t, options)


def peers(T, t, options):
    rows = []
    for name in ("target-only SVM", "self-training", "label spreading"):
        told = []
        for number in range(options.splits):
            A, _, few, V, v = split(T, t, options.seed + number)
            told.append(np.mean(answers(name, A[:2], few[:2], A, few, V) == v))
        rows.append([name, f"{np.mean(told):.4f}", f"{np.std(told):.4f}"])
    print("Peers without a source, the same splits.\n")
    table(["peer", "accuracy", "± over splits"], rows)


if __name__ == "__main__":
    main()

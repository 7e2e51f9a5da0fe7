"""Transfer with whole records of the source hidden: MNIST with 100 labels, and MNIST to USPS.

The splits are those of ``transfer_mnist`` (001 §1.4.1.1 and 000 Table 1) and of
``transfer_mnist_usps``; the source releases class moments of public gradient features once for each
ε, δ = 1e-5 per record, and hands over its file. USPS images are brought
to the source's columns by public means: enlarged to 20 x 20 and framed to 28 x 28. Peers see the
same splits and no source, on pixels and on the same gradient features. Every setting is the default
of the library. ``--tune`` scores rows of the training set instead, which no table scores: the
source is 50000 of them. What is done is kept in the folder for temporary files: ``--resume`` takes
it from there.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from common import QUICK, Kept, mnist, options_of, seconds, size, table
from moments_tune import enlarged_usps
from transfer_baselines import answers, few_labels
from transfer_mnist import split

import permea
from permea import Privacy, SourceModel, TransferClassifier
from permea.models.features import OrientedGradients

PEERS = ("target-only SVM", "self-training", "label spreading")


class Run:
    """Data, options and results of one run."""

    def __init__(self, options):
        self.options = options
        self.kept = Kept("transfer-records", options.resume)
        self.mark = ("quick " if QUICK else "") + ("tune" if options.tune else "test")
        X, y, T, t = mnist()
        cut = size(50_000, 400)
        self.source_rows = (X[:cut], y[:cut]) if options.tune else (X, y)
        self.target_rows = (X[cut:], y[cut:]) if options.tune else (T, t)

    def source(self, features, epsilon, neighbours):
        """A file that holds class moments; that of an interrupted run is taken."""
        key = f"{self.mark} source {features} {epsilon:g} {neighbours}"
        name = "".join(c if c.isalnum() else "-" for c in f"permea-transfer-records-{key}")
        path = Path(tempfile.gettempdir()) / f"{name}.permea"
        if key not in self.kept or not path.exists():
            promise = Privacy(epsilon=epsilon, delta=1e-5, unit="record", domain=(0, 1))
            model = SourceModel(
                privacy=promise, features=features, neighbours=neighbours, classes=range(10)
            )
            time, _ = seconds(lambda: model.fit(*self.source_rows))
            permea.save(model, path)
            self.kept[key] = time
        return permea.load(path), self.kept[key], path.stat().st_size / 2**20

    def score(self, name, number, fit):
        """What ``fit`` measures for a split, measured once."""
        key = f"{self.mark} {name}, split {number}"
        if key not in self.kept:
            self.kept[key] = fit()
            print(key, self.kept[key], file=sys.stderr, flush=True)
        return self.kept[key]


def transferred(source, method, A, few, V, v, number):
    """Accuracy of the transfer, of the source alone, the leading expert, and seconds of the fit."""
    clf = TransferClassifier(source, method=method, random_state=number)
    time, _ = seconds(lambda: clf.fit(A, few))
    alone = float(np.mean(clf.predict_source(V) == v))
    return [clf.score(V, v), alone, getattr(clf.fitted_, "leading_expert", ""), time]


def same_images(run):
    """MNIST: 100 labels, 8900 rows without; 1000 rows are scored."""
    options, rows = run.options, []
    cases = [(f, e, n, m) for f in options.features for e in options.epsilons
             for n in options.neighbours for m in options.methods]  # fmt: skip
    for features, epsilon, neighbours, method in cases:
        source, took, mebibytes = run.source(features, epsilon, neighbours)
        told = []
        for number in range(options.splits):
            A, _, few, V, v = split(*run.target_rows, options.seed + number)
            told.append(run.score(
                f"{features} {epsilon:g} {neighbours} {method}", number,
                lambda s=source, m=method, r=(A, few, V, v, number): transferred(s, m, *r),
            ))  # fmt: skip
        right, alone, experts, times = zip(*told, strict=True)
        rows.append([
            f"{epsilon:g}", neighbours, features, method, f"{np.mean(right):.4f}",
            f"{np.std(right):.4f}", f"{np.mean(alone):.4f}", max(set(experts), key=experts.count),
            f"{took:.0f}", f"{np.mean(times):.0f}", f"{mebibytes:.0f}",
        ])  # fmt: skip
    print(f"MNIST, mean over {options.splits} splits; δ = 1e-5 per record.\n")
    table(["ε per record", "neighbours", "features", "method", "accuracy", "± over splits",
           "source alone", "leading source expert", "source, s", "target, s", "file, MiB"],
          rows)  # fmt: skip


def peers_of_same_images(run):
    rows, edges = [], OrientedGradients()
    for what in ("pixels", "gradient features"):
        for name in run.options.peers:
            told = []
            for number in range(run.options.splits):
                A, _, few, V, v = split(*run.target_rows, run.options.seed + number)
                if what != "pixels":
                    A, V = (edges.fit(A).transform(part) for part in (A, V))
                told.append(run.score(f"{name} {what}", number, lambda n=name, A=A, f=few, V=V, v=v:
                            float(np.mean(answers(n, A[:2], f[:2], A, f, V) == v))))  # fmt: skip
            rows.append([name, what, f"{np.mean(told):.4f}", f"{np.std(told):.4f}"])
    print("Peers without a source, the same splits.\n")
    table(["peer", "on", "accuracy", "± over splits"], rows)


def usps():
    """USPS as images of MNIST's size: training rows and test rows."""
    X, y = enlarged_usps()
    cut = size(7291, 300)
    return X[:cut], y[:cut], X[cut : size(None, 500)], y[cut : size(None, 500)]


def other_images(run):
    """MNIST to USPS: 100 labels, 7191 rows without; 2007 rows are scored."""
    options = run.options
    A, a, T, t = usps()
    edges, told = OrientedGradients().fit(A), {}
    source, *_ = run.source(options.features[0], options.epsilons[0], options.neighbours[0])
    name = f"consensus, ε = {options.epsilons[0]:g} per record ({options.neighbours[0]})"
    for number in range(options.repetitions):
        few = few_labels(a, 10, np.random.default_rng(100 + options.seed + number))
        found = run.score(f"USPS {name}", number, lambda f=few, n=number:
                          transferred(source, "consensus", A, f, T, t, n))  # fmt: skip
        told.setdefault(name, []).append(found[0])
        told.setdefault("its source alone", []).append(found[1])
        for what, rows in (("pixels", lambda X: X), ("gradient features", edges.transform)):
            peer = run.score(f"USPS label spreading {what}", number, lambda f=few, r=rows: float(
                np.mean(answers("label spreading", A[:2], a[:2], r(A), f, r(T)) == t)))  # fmt: skip
            told.setdefault(f"label spreading, {what}", []).append(peer)
    rows = [[k, f"{100 * np.mean(v):.2f}", f"{100 * np.std(v):.2f}"] for k, v in told.items()]
    rows += [
        ["001, ε = 0.1 per entry (as printed)", "92.23", "0.87"],
        ["000, ε = 0.1 per entry (as printed)", "93.01", ""],
    ]
    print(f"MNIST to USPS, {options.repetitions} repetitions, ten labels per class.\n")
    table(["method", "accuracy, %", "±"], rows)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=size([1.0, 2.0, 8.0], [8.0]))
    parser.add_argument(
        "--neighbours", nargs="+", default=size(["replace", "add/remove"], ["replace"])
    )
    parser.add_argument("--features", nargs="+", default=size(["gradients"], ["edges"]))
    parser.add_argument("--methods", nargs="+", default=["consensus"])
    parser.add_argument("--splits", type=int, default=size(5, 1))
    parser.add_argument("--repetitions", type=int, default=size(10, 1))
    parser.add_argument("--peers", nargs="+", default=size(list(PEERS), ["label spreading"]))
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--resume", action="store_true")
    run = Run(parser.parse_args())
    same_images(run)
    if not run.options.tune:
        peers_of_same_images(run)
        other_images(run)


if __name__ == "__main__":
    main()

"""Leakage, interpretability and transferability on MNIST over ε, beside 003 Table 3.

Algorithm 9 by `permea.documents.study_003` in the setting of 003 section 6.1: 60000 images for the
source, 9000 for the target, of which 100 carry labels (10 per class), 1000 test images, d = 1,
δ = 1e-5 per pixel; 5000 samples for the measures; pixels are private, classes are interpretable.
Table 3 has the figures of ε = 0.1 and ε = 10, which are measured by default. ``--library`` learns
the target by the library's own method. ``--source 10000 --target 2000`` takes fewer images,
``--epsilons 0.25 0.5`` measures other ε.
What is done is kept in the folder for temporary files: ``--resume`` takes it from there, and
``--minutes 9`` begins no further ε after so many minutes.
"""

import time
import warnings

import numpy as np
from common import Kept, mnist, options_of, size, table

from permea import documents, trade_off

TABLE_3 = {  # 003 Table 3: leakage, interpretability, transferability, accuracy, source accuracy
    "min_privacy_leakage": (-50.72, -2.14, -664.52, 0.9510, 0.1760),
    "max_interpretability": (362.83, 5.44, 451.93, 0.9920, 0.9950),
    "max_transferability": (362.83, 5.44, 451.93, 0.9920, 0.9950),
}
NAMES = ("privacy_leakage", "interpretability", "transferability", "accuracy", "source_accuracy")
HEADER = ("privacy leakage", "interpretability", "transferability", "transfer accuracy",
          "source accuracy")  # fmt: skip
DIGITS = (2, 2, 2, 4, 4)


def target_split(T, t, size, seed, ordered=False, per_class=10):
    """Target rows with few labels, and 1000 test rows, out of the test images."""
    order = np.random.default_rng(seed).permutation(len(T))
    order = np.arange(len(T))[::-1] if ordered else order
    n_test = min(1000, len(T) // 4)
    test, target = order[:n_test], order[n_test : n_test + size]
    labels = np.full(len(target), -1)
    for label in np.unique(t):
        labels[np.flatnonzero(t[target] == label)[:per_class]] = label
    return T[target], labels, T[test], t[test].astype(int)


def measured(epsilon, data, options):
    """All figures of one ε, and the seconds they took."""
    X, y, (X_target, y_target, X_test, y_test) = data
    start = time.process_time()
    common = {
        "X_target": X_target, "y_target": y_target, "X_test": X_test, "y_test": y_test,
        "epsilons": [epsilon], "max_samples": options.samples, "models": False,
        "random_state": options.seed,
    }  # fmt: skip
    if options.library:
        source = documents.classifier_001(20, n_jobs=2)
        study = trade_off(X, y, classifier=source, transfer={"n_jobs": 2}, **common)
    else:
        study = documents.study_003(X, y, n_jobs=2, **common)
    return {**study.points[0].figures(), "seconds": time.process_time() - start}


def cells(figures):
    return [f"{figures[name]:.{digits}f}" for name, digits in zip(NAMES, DIGITS, strict=True)]


def show(points):
    rows = [[f"{p['epsilon']:g}", *cells(p), f"{p['image_gap']:.2f}", f"{p['seconds']:.0f}"]
            for p in points]  # fmt: skip
    table(["ε per entry", *HEADER, "image gap", "CPU, s"], rows)
    print("Selected models, beside 003 Table 3:\n")
    selected = []
    for rule, reported in TABLE_3.items():
        name, sign = rule.removeprefix("min_").removeprefix("max_"), -1 if "min" in rule else 1
        best = max(points, key=lambda figures: sign * figures[name])
        selected.append([rule, f"ε = {best['epsilon']:g} per entry", *cells(best)])
        selected.append(["003", "", *cells(dict(zip(NAMES, reported, strict=True)))])
    table(["rule", "", *HEADER], selected)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 10])
    parser.add_argument("--source", type=int, default=size(60_000, 600))
    parser.add_argument("--target", type=int, default=9000)
    parser.add_argument("--samples", type=int, default=size(5000, 300))
    parser.add_argument("--library", action="store_true", help="the library's own transfer")
    parser.add_argument("--ordered", action="store_true", help="score the last 1000 images")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--minutes", type=float, default=np.inf)
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    size_of = f"{options.source}-{options.target}-{options.samples}-{options.seed}"
    size_of += "-ordered" if options.ordered else ""
    size_of += "-library" if options.library else ""
    done = Kept(f"information-as-written-{size_of}", options.resume)
    X, y, T, t = mnist(np.float32, rows=options.source)
    data = X, y.astype(int), target_split(T, t, options.target, options.seed, options.ordered)
    start = time.perf_counter()
    for epsilon in sorted(options.epsilons, key=lambda value: -abs(np.log(value))):  # ends first
        if f"{epsilon:g}" in done or time.perf_counter() - start > 60 * options.minutes:
            continue
        done[f"{epsilon:g}"] = measured(epsilon, data, options)
    show([done[f"{epsilon:g}"] for epsilon in options.epsilons if f"{epsilon:g}" in done])


if __name__ == "__main__":
    main()

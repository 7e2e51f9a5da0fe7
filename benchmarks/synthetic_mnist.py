"""Synthetic images of MNIST per record: what a forest learns from them.

60000 images leave once as noised moments (pixels as they are, δ = 1e-5); synthetic images are
drawn from a Gaussian for each class, or for each of two parts of it, and a forest of 100 trees that
is trained on 30000 of them is scored on the 10000 test images; means of several runs with
cryptographic noise. "Without contrast" is the same draw with grey values as the Gaussians give
them. Directions, parts and contrast were chosen on training images 50000 to 55999.
"""

import time
import warnings

import numpy as np
from common import Kept, mnist, options_of, size, table
from sklearn.ensemble import RandomForestClassifier

from permea import Privacy, fabricate_records

ROWS = 30_000
WAYS = {
    "one Gaussian for each class, without contrast": {"n_parts": 1, "contrast": 1.0},
    "one Gaussian for each class": {"n_parts": 1, "contrast": 2.5},
    "two parts of each class": {"n_parts": 2, "contrast": 2.5},
}


def forest(X, y, T, t, seed):
    return RandomForestClassifier(100, random_state=seed, n_jobs=1).fit(X, y).score(T, t)


def one_run(data, epsilon, neighbours, way, seed):
    """Accuracy of a forest on synthetic rows, and seconds until these are made."""
    X, y, T, t = data
    promise = Privacy(epsilon=epsilon, delta=1e-5, unit="record", domain=(0, 1))
    start = time.perf_counter()
    made = fabricate_records(
        X, y, privacy=promise, classes=range(10), neighbours=neighbours,
        n_rows=min(len(y), ROWS), seed=seed, **WAYS[way],
    )  # fmt: skip
    took = time.perf_counter() - start
    assert made.certificate.is_private
    return [forest(made.data.astype(np.float32), made.labels, T, t, seed), took]


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilon", type=float, nargs="*", default=size([1.0, 8.0], [8.0]))
    parser.add_argument("--runs", type=int, default=size(5, 1))
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    data, kept, rows = mnist(), Kept("synthetic-mnist", options.resume), []
    for way in WAYS:
        for neighbours in ("replace", "add/remove"):
            cells = []
            for epsilon in options.epsilon:
                for run in range(options.runs):
                    key = f"{way}, {neighbours}, {epsilon:g}, {options.seed + run}"
                    if key not in kept:
                        kept[key] = one_run(data, epsilon, neighbours, way, options.seed + run)
                found = np.array(
                    [kept[f"{way}, {neighbours}, {epsilon:g}, {options.seed + run}"]
                     for run in range(options.runs)]
                )  # fmt: skip
                cells.append(f"{found[:, 0].mean():.4f} ({found[:, 0].min():.4f})")
            rows.append([way, neighbours, *cells, f"{found[:, 1].mean():.1f}"])
    if "real" not in kept:
        kept["real"] = forest(*data, options.seed)
    rows.append(["real images", "–", *[f"{kept['real']:.4f}"] * len(options.epsilon), "–"])
    header = ["rows", "neighbours", *(f"ε = {e:g} per record" for e in options.epsilon), "s"]
    print(f"Accuracy of a forest, mean of {options.runs} (lowest).\n")
    table(header, rows)


if __name__ == "__main__":
    main()

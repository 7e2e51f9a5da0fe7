"""Optimal noise against Gaussian noise: magnitude and accuracy over ε and δ (002 Fig. 4.1 to 4.4).

Magnitude: the expected absolute value per entry, d = 1; the classical Gaussian is proven for ε < 1
only. Accuracy: `permea.documents.fuzzy_classifier_002` on noised MNIST rows (10000 training rows,
2000 test rows), one noise per cell; the document shows such curves without figures, so there is no
column of its own: its claim is that optimal noise is ahead of the classical Gaussian except where
either noise drowns the data or hardly touches them. What is done is kept in the folder for
temporary files: ``--resume`` takes it from there.
"""

import numpy as np
from common import Kept, mnist, options_of, size, table

from permea import documents
from permea.privacy import GaussianNoise, OptimalNoise

EPSILONS = (0.01, 0.1, 0.5, 0.9, 2.0, 8.0)
DELTAS = (1e-1, 1e-3, 1e-6, 1e-9)


def magnitudes():
    rows = []
    for epsilon in EPSILONS:
        for delta in DELTAS:
            optimal = OptimalNoise(epsilon, delta).expected_magnitude()
            analytic = GaussianNoise(epsilon, delta, calibration="analytic").expected_magnitude()
            line = [f"{epsilon:g}", f"{delta:g}", f"{optimal:.4g}", f"{analytic:.4g}"]
            if epsilon < 1:
                classical = GaussianNoise(
                    epsilon, delta, calibration="classical"
                ).expected_magnitude()
                line += [f"{classical:.4g}", f"{classical / optimal:.2f}"]
            else:
                line += ["not valid", "–"]
            rows.append([*line, f"{analytic / optimal:.2f}"])
    print("**Expected magnitude** of the noise on one entry.\n")
    header = ["ε per entry", "δ per entry", "optimal", "Gaussian, analytic", "Gaussian, classical"]
    table([*header, "classical / optimal", "analytic / optimal"], rows)


def accuracies(seed, resume):
    X, y, T, t = mnist(rows=10_000)
    T, t = T[:2000], t[:2000]
    rows, kept = [], Kept(f"noise-mechanisms-{seed}", resume)

    def accuracy(promise):
        key = repr(promise)
        if key not in kept:
            clf = documents.fuzzy_classifier_002(privacy=promise, random_state=seed)
            kept[key] = float(np.mean(clf.fit(X, y).predict(T) == t))
        return kept[key]

    settings = [(epsilon, 1e-5) for epsilon in (0.01, 0.1, 0.5, 0.9, 2.0, 8.0)]
    settings += [(0.9, delta) for delta in (1e-1, 1e-3, 1e-9)]
    for epsilon, delta in size(settings, [(0.9, 1e-5)]):
        line = [f"{epsilon:g}", f"{delta:g}"]
        for mechanism in ("optimal", "classical-gaussian", "gaussian"):
            if mechanism == "classical-gaussian" and epsilon >= 1:
                line.append("not valid")
                continue
            line.append(f"{accuracy(documents.noise(epsilon, delta, mechanism=mechanism)):.4f}")
        rows.append(line)
    print(f"**Accuracy** of the document's fuzzy classifier; without noise {accuracy(None):.4f}.\n")
    table(["ε per entry", "δ per entry", "optimal noise", "classical Gaussian",
           "analytic Gaussian"], rows)  # fmt: skip


def main():
    parser = options_of(__doc__)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    magnitudes()
    accuracies(options.seed, options.resume)


if __name__ == "__main__":
    main()

"""002 Table 4.1: accuracy on MNIST test images with Gaussian noise, beside a trained network.

The fuzzy classifier is that of `permea.documents`. The document's reference is a convolutional
network; the one here is scikit-learn's multilayer perceptron, trained on the same clean images.
``--rows 10000`` makes a smaller run.
"""

import time

import numpy as np
from common import mnist, options_of, size
from sklearn.neural_network import MLPClassifier

from permea import documents
from permea.compose import ReconstructionClassifier
from permea.models import MembershipAutoencoder

LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
SEED = {
    "002, proposed": (0.9863, 0.9825, 0.9630, 0.9019, 0.7818, 0.6335),
    "002, CNN": (0.9897, 0.9608, 0.8198, 0.6227, 0.4482, 0.3203),
}


def models(n_jobs):
    yield "fuzzy", documents.fuzzy_classifier_002(n_jobs=n_jobs, random_state=0)
    yield (
        "membership",
        ReconstructionClassifier(
            MembershipAutoencoder(), n_layers=5, n_jobs=n_jobs, random_state=0
        ),
    )
    yield (
        "MLP (512, 256)",
        MLPClassifier((512, 256), batch_size=100, max_iter=size(15, 2), random_state=0),
    )


def main():
    parser = options_of(__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    X, y, X_test, y_test = mnist(rows=arguments.rows)
    rng = np.random.default_rng(0)
    tests = [X_test + np.float32(s) * rng.standard_normal(X_test.shape, np.float32) for s in LEVELS]
    print("| noise            |" + "".join(f" {s:6.1f} |" for s in LEVELS) + " time (s) |")
    print("|------------------|" + "--------|" * (len(LEVELS) + 1), flush=True)
    for name, figures in SEED.items():
        print(f"| {name:16s} |" + "".join(f" {f:.4f} |" for f in figures) + "  |", flush=True)
    for name, model in models(arguments.jobs):
        start = time.perf_counter()
        model.fit(X, y)
        figures = [model.score(test, y_test) for test in tests]
        seconds = time.perf_counter() - start
        line = "".join(f" {f:.4f} |" for f in figures)
        print(f"| {name:16s} |{line} {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()

"""MNIST-60000 with whole records hidden: noised moments, beside DP-SGD with Opacus.

δ = 1e-5; means of several runs with cryptographic noise. Nothing was chosen on MNIST
(``moments_tune`` prints what the settings rest on). DP-SGD: a small convolutional network on the
pixels and a linear model on the same gradient features, 15 epochs of batches of 2000 rows, one run
each; its settings are those of Tramèr and Boneh (2021), not searched here. ``--without-dpsgd``
leaves it out. Lines are those of the functions ``by_moments`` here and ``DPSGD.fit`` (with the
network) in ``dpsgd.py``: what a user writes to get a fitted model.
"""

import inspect
import time
import warnings

import numpy as np
from common import mnist, options_of, size
from dpsgd import DELTA, DPSGD, available, small_cnn


def by_moments(X, y, epsilon):
    from permea import MomentClassifier, Privacy

    privacy = Privacy(epsilon=epsilon, delta=1e-5, unit="record", domain=(0, 1))
    return MomentClassifier(privacy=privacy, features="gradients").fit(X, y)


def lines(*functions):
    """Lines of code inside functions, without their heads and empty lines."""
    text = [inspect.getsource(function).splitlines()[1:] for function in functions]
    return sum(1 for one in text for line in one if line.strip())


def moments(epsilons, relations, features, runs):
    from permea.compose.moments import MomentClassifier, feature_map
    from permea.models.features import FeatureMap
    from permea.privacy import Privacy

    class AsItIs(FeatureMap):
        """Features that were made already; the map is public and the same in every run."""

        def _prepare(self, p):
            return p

        def _map(self, X):
            return X

    X, y, X_test, y_test = mnist()
    start = time.perf_counter()
    public = feature_map(features, (0.0, 1.0), X.shape[1])
    X = np.concatenate([public.transform(X[i : i + 4096]) for i in range(0, len(X), 4096)])
    print(f"{X.shape[1]} features of {len(X)} rows: {time.perf_counter() - start:.1f} s, once\n")
    X_test = public.transform(X_test)
    print("| model | ε per record | neighbours | accuracy, mean | lowest | fit (s) | lines |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for epsilon in epsilons:
        for relation in relations:
            scores, seconds = [], []
            promise = Privacy(epsilon=epsilon, delta=DELTA, unit="record", domain=(-1, 1))
            for _ in range(runs):
                start = time.perf_counter()
                clf = MomentClassifier(
                    privacy=promise, features=AsItIs(), neighbours=relation, classes=range(10)
                ).fit(X, y)
                seconds.append(time.perf_counter() - start)
                scores.append(clf.score(X_test, y_test))
                assert clf.certificate_.is_private
            print(
                f"| moments, {features} | {epsilon:g} | {relation} | {np.mean(scores):.4f} "
                f"| {min(scores):.4f} | {np.mean(seconds):.1f} | {lines(by_moments)} |",
                flush=True,
            )


def descent(epsilons, kinds):
    from permea.models.features import OrientedGradients

    warnings.simplefilter("ignore")
    X, y, T, t = mnist()
    edges = OrientedGradients()
    for kind in kinds:
        train, test = (X, T) if kind == "network" else (edges.fit_transform(X), edges.transform(T))
        for epsilon in epsilons:
            network = kind == "network"
            rate, shift = (0.5, 0.5) if network else (4.0, 0.0)
            model = DPSGD(epsilon, network=network, rate=rate, clip=0.1, shift=shift)
            start = time.perf_counter()
            model.fit(train, y)
            took = time.perf_counter() - start
            score = np.mean(model.predict(test) == t)
            written = lines(DPSGD.fit, *([small_cnn] if network else []))
            print(
                f"| DP-SGD, {kind} | {epsilon:g} | add/remove | {score:.4f} | – | {took:.1f} "
                f"| {written} |",
                flush=True,
            )


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilon", type=float, nargs="*", default=size([1.0, 2.0, 8.0], [8.0]))
    parser.add_argument("--neighbours", nargs="*", default=["add/remove", "replace"])
    parser.add_argument("--features", default="gradients")
    parser.add_argument("--runs", type=int, default=size(5, 1))
    parser.add_argument("--without-dpsgd", action="store_true")
    options = parser.parse_args()
    moments(options.epsilon, options.neighbours, options.features, options.runs)
    if not available("opacus"):
        print("\nopacus is not installed here: the rows of DP-SGD are missing.")
    elif not options.without_dpsgd:
        descent(options.epsilon, ["linear", "network"])


if __name__ == "__main__":
    main()

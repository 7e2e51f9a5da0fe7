"""MNIST-60000 with whole records hidden: noised moments, beside DP-SGD with Opacus.

δ = 1e-5; means of several runs with cryptographic noise. Nothing was chosen on MNIST
(``moments_tune`` prints what the settings rest on). DP-SGD: a small convolutional network on the
pixels and a linear model on the same gradient features, 15 epochs of batches of 2000 rows, one run
each, its rate the best of ``dpsgd_rates``. ``--without-dpsgd`` leaves it out. Lines are those of
the functions ``by_moments`` here and ``DPSGD.fit`` (with the network) in ``dpsgd.py``: what a user
writes to get a fitted model. What is done is kept in the folder for temporary files: ``--resume``
takes it from there.
"""

import inspect
import time
import warnings

import numpy as np
from common import Kept, mnist, options_of, size, table
from dpsgd import DELTA, DPSGD, available, small_cnn, tuned


def by_moments(X, y, epsilon):
    from permea import MomentClassifier, Privacy

    privacy = Privacy(epsilon=epsilon, delta=1e-5, unit="record", domain=(0, 1))
    return MomentClassifier(privacy=privacy, features="gradients", classes=range(10)).fit(X, y)


def lines(*functions):
    """Lines of code inside functions, without their heads and empty lines."""
    text = [inspect.getsource(function).splitlines()[1:] for function in functions]
    return sum(1 for one in text for line in one if line.strip())


def moments(todo, features, runs, kept):
    """Fits for each ε and relation, on features that are made once: the map is public."""
    from permea.models.parts import feature_map

    X, y, T, t = mnist()
    start = time.perf_counter()
    public = feature_map(features, (0.0, 1.0), X.shape[1])
    X = np.concatenate([public.transform(X[i : i + 4096]) for i in range(0, len(X), 4096)])
    kept["features"] = [X.shape[1], time.perf_counter() - start]
    T = public.transform(T)
    for key, epsilon, relation in todo:
        fits = [private_fit(X, y, epsilon, relation) for _ in range(runs)]
        scores = [model.score(T, t) for model, _ in fits]
        took = np.mean([seconds for _, seconds in fits])
        kept[key] = [f"{np.mean(scores):.4f}", f"{min(scores):.4f}", f"{took:.1f}"]


def private_fit(X, y, epsilon, relation):
    from permea import MomentClassifier, Privacy
    from permea.models.features import FeatureMap

    class AsItIs(FeatureMap):
        """Features that were made already."""

        def _prepare(self, p):
            return p

        def _map(self, X):
            return X

    promise = Privacy(epsilon=epsilon, delta=DELTA, unit="record", domain=(-1, 1))
    start = time.perf_counter()
    model = MomentClassifier(
        privacy=promise, features=AsItIs(), neighbours=relation, classes=range(10)
    ).fit(X, y)
    assert model.certificate_.is_private
    return model, time.perf_counter() - start


def descent(todo, kind, kept):
    from permea.models.features import OrientedGradients

    X, y, T, t = mnist()
    if kind == "linear on gradients":
        edges = OrientedGradients()
        X, T = edges.fit_transform(X), edges.transform(T)
    for key, epsilon in todo:
        start = time.perf_counter()
        model = tuned(kind, epsilon).fit(X, y)
        took = time.perf_counter() - start
        kept[key] = [f"{np.mean(model.predict(T) == t):.4f}", "–", f"{took:.1f}"]


def fill(options, kept):
    """Measure what is not kept yet; all rows of the table: model, ε, relation, key, lines."""
    rows = []
    for epsilon in options.epsilon:
        for relation in options.neighbours:
            key = f"moments, {options.features}, {epsilon:g}, {relation}, {options.runs}"
            rows.append([f"moments, {options.features}", epsilon, relation, key, lines(by_moments)])
    todo = [(key, epsilon, relation) for _, epsilon, relation, key, _ in rows if key not in kept]
    if todo:
        moments(todo, options.features, options.runs, kept)
    if not available("opacus"):
        print("opacus is not installed here: the rows of DP-SGD are missing.\n")
    elif not options.without_dpsgd:
        for kind in ("linear on gradients", "network on pixels"):
            written = lines(DPSGD.fit, *([small_cnn] if "network" in kind else []))
            keys = [(f"{kind}, {epsilon:g}", epsilon) for epsilon in options.epsilon]
            missing = [pair for pair in keys if pair[0] not in kept]
            if missing:
                descent(missing, kind, kept)
            rows += [[f"DP-SGD, {kind}", e, "add/remove", key, written] for key, e in keys]
    return rows


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilon", type=float, nargs="*", default=size([1.0, 2.0, 8.0], [8.0]))
    parser.add_argument("--neighbours", nargs="*", default=["add/remove", "replace"])
    parser.add_argument("--features", default="gradients")
    parser.add_argument("--runs", type=int, default=size(5, 1))
    parser.add_argument("--without-dpsgd", action="store_true")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = Kept("moments-mnist", options.resume)
    rows = fill(options, kept)
    columns, took = kept["features"]
    print(f"{columns} features of all rows: {took:.1f} s, once\n")
    header = ["model", "ε per record", "neighbours", "accuracy, mean", "lowest", "fit (s)", "lines"]
    table(header, [[m, f"{e:g}", r, *kept[key], count] for m, e, r, key, count in rows])
    times = [options.runs if name.startswith("moments") else 1 for name, *_ in rows]
    spent = sum(n * float(kept[row[3]][2]) for n, row in zip(times, rows, strict=True))
    print(f"The fits alone took {spent / 60:.0f} minutes.")


if __name__ == "__main__":
    main()

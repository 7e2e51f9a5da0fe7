"""MNIST-60000 with whole records hidden: distances to class hulls, and hulls beside ridge.

Add/remove, δ = 1e-5, cryptographic noise, means of several runs. `HullClassifier(features="edges")`
by both metrics, and with the ridge model of the same release beside the likelihood, as
`ridge_weight` does; that ridge model alone; and `MomentClassifier(features="edges")`, a release of
its own (with Fourier features of the edges: ``moments_mnist``). Settings were fixed on USPS and on
held-out rows of MNIST's 60000 (``hulls_tune``). What is done is kept in the folder for temporary
files: ``--resume`` takes it from there.
"""

import time
import warnings

import numpy as np
from common import Kept, mnist, options_of, size, table

DELTA = 1e-5
N_DIRECTIONS = 120
RIDGE_WEIGHT = 0.5


def edges_of(X):
    """Features of all rows, once: the map is public."""
    from permea.models.parts import feature_map

    public = feature_map("edges", (0.0, 1.0), X.shape[1])
    parts = [public.transform(X[i : i + 4096]) for i in range(0, len(X), 4096)]
    return np.concatenate(parts)


def as_they_are():
    """A map that returns features as they were made."""
    from permea.models import features

    class AsTheyAre(features.FeatureMap):
        def _prepare(self, p):
            return p

        def _map(self, X):
            return X

    features._ROWWISE = (*features._ROWWISE, AsTheyAre)  # or each row would be mapped by itself
    return AsTheyAre()


def fitted(kind, X, y, epsilon):
    from permea import HullClassifier, MomentClassifier, Privacy

    promise = Privacy(epsilon=epsilon, delta=DELTA, unit="record", domain=(-1, 1))
    shared = {"privacy": promise, "features": as_they_are(), "neighbours": "add/remove"}
    if kind == "ridge":
        model = MomentClassifier(**shared, classes=range(10))
    else:
        model = HullClassifier(**shared, classes=range(10), n_directions=N_DIRECTIONS)
    model.fit(X, y)
    assert model.certificate_.is_private
    return model


def scores_of(kind, model, T, t):
    """Accuracy of all ways to read one release, and the number of directions or features."""
    if kind == "ridge":
        return {"ridge": model.score(T, t)}, T.shape[1]
    scores = {}
    for metric in ("image", "likelihood"):
        model.metric = metric  # post-processing of the same release
        scores[metric] = float(np.mean(model.distances(T).argmin(axis=1) == t))
    model.ridge_weight = RIDGE_WEIGHT
    scores["both"] = model.score(T, t)
    linear = np.concatenate([scores.argmax(axis=1) for _, scores in model._scores(T)])
    scores["its ridge"] = float(np.mean(linear == t))
    return scores, model.hulls_.means.shape[1]


def timed(work):
    """Seconds by the clock and of the processor, and the result."""
    clock, processor = time.perf_counter(), time.process_time()
    result = work()
    return [time.perf_counter() - clock, time.process_time() - processor], result


def fill(options, kept):
    X, y, T, t = mnist()
    makes, Phi = timed(lambda: edges_of(X))
    Psi = edges_of(T)
    for kind in ("hulls", "ridge"):
        for epsilon in options.epsilon:
            for run in range(options.runs):
                key = f"{kind}, {epsilon:g}, {run}"
                if key not in kept:
                    kept[key] = scores_of(kind, fitted(kind, Phi, y, epsilon), Psi, t)
    if "seconds" not in kept:
        fits, model = timed(lambda: fitted("hulls", Phi, y, options.epsilon[0]))
        predicts, _ = timed(lambda: model.predict(Psi))
        kept["seconds"] = [
            [f"edges of {len(X)} images", *makes],
            [f"fit of {len(X)} rows after that", *fits],
            [f"{len(T)} predictions after that", *predicts],
        ]


NAMES = {
    "image": "hulls, distance to the image", "likelihood": "hulls, likelihood distance",
    "both": "hulls (likelihood) and ridge, one release",
    "its ridge": "ridge of the release of the hulls, alone",
    "ridge": "ridge on the same features, a release of its own",
}  # fmt: skip
PUBLISHED = (
    "scattering and DP-SGD (Tramèr and Boneh 2021): 0.981 at ε = 1.2, 0.985 at 2, 0.987 at 2.9"
)


def report(options, kept):
    rows, sizes = [], []
    for kind in ("hulls", "ridge"):
        done = [
            [kept[f"{kind}, {e:g}, {run}"] for run in range(options.runs)] for e in options.epsilon
        ]
        for way in done[0][0][0]:
            values = [[one[0][way] for one in runs] for runs in done]
            rows.append([NAMES[way], *(f"{np.mean(v):.4f} ({min(v):.4f})" for v in values)])
        if kind == "hulls":
            sizes = [f"{np.mean([one[1] for one in runs]):.0f}" for runs in done]
    print(f"Accuracy on the test rows, mean of {options.runs} (lowest):\n")
    table(["model", *(f"ε = {e:g} per record" for e in options.epsilon)], rows)
    print(f"Directions of the hulls: {', '.join(sizes)} of at most {N_DIRECTIONS}.")
    print(f"Published for comparison, add/remove: {PUBLISHED}.\n")
    seconds = [[what, f"{clock:.1f}", f"{cpu:.1f}"] for what, clock, cpu in kept["seconds"]]
    table(["step", "seconds by the clock", "seconds of the processor"], seconds)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilon", type=float, nargs="*", default=size([1.0, 2.0, 8.0], [8.0]))
    parser.add_argument("--runs", type=int, default=size(5, 1))
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = Kept("hulls-mnist", options.resume)
    fill(options, kept)
    report(options, kept)


if __name__ == "__main__":
    main()

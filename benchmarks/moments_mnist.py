"""MNIST-60000 with whole records hidden: noised moments, beside DP-SGD with Opacus.

Run ``python benchmarks/moments_mnist.py`` (two minutes per ε and relation on two free cores), and
``python benchmarks/moments_mnist.py --dpsgd`` with a Python that has torch and opacus. Needs
mnist.npz (and usps.npz for ``--tune``) in the folder that PERMEA_DATA names.

Nothing was chosen on MNIST. ``--tune`` prints what the settings rest on: USPS digits, enlarged to
20 x 20 and framed to 28 x 28, with the noise scaled to 60000 rows, three random splits.
"""

import os
import time
from pathlib import Path

import numpy as np
from common import load, mnist, options_of, size

DELTA = 1e-5


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
    print("| features | ε per record | neighbours | accuracy, mean | lowest | fit (s) |")
    print("|---|---|---|---|---|---|", flush=True)
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
                f"| {features} | {epsilon:g} | {relation} | {np.mean(scores):.4f} "
                f"| {min(scores):.4f} | {np.mean(seconds):.1f} |",
                flush=True,
            )


def enlarged_usps():
    from scipy.ndimage import zoom

    data = load("usps")
    images = np.concatenate([data["x_train"], data["x_test"]]).reshape(-1, 16, 16)
    larger = np.pad(zoom(images, (1, 1.25, 1.25), order=1), ((0, 0), (4, 4), (4, 4)))
    labels = np.concatenate([data["y_train"], data["y_test"]]).astype(int)
    return larger.reshape(len(larger), -1).clip(0, 1).astype(np.float32), labels


def tune(epsilon):
    """Accuracy on USPS for grids of settings; the noise is that of 60000 rows (add/remove)."""
    from permea.models.features import Chain, OrientedGradients, RandomFourier

    X, y = enlarged_usps()
    print("| cells | directions | frequencies | scale | " + "accuracy by ridge strength |")
    print("|---|---|---|---|---|", flush=True)
    for cells, directions, count, scale in [
        (7, 8, 500, 1.5), ((4, 7), 12, 500, 2.0), ((3, 6), 8, 500, 2.0), ((3, 6), 12, 500, 2.0),
        ((3, 6), 12, 1000, 1.0), ((3, 6), 12, 1000, 1.5), ((3, 6), 12, 1000, 2.0),
        ((3, 6), 12, 1000, 2.5),
    ]:  # fmt: skip
        edges = OrientedGradients(cells=cells, orientations=directions)
        Phi = Chain([edges, RandomFourier(n_frequencies=count, scale=scale)]).fit_transform(X)
        strengths = (0.1, 0.15, 0.2, 0.25, 0.3)
        scores = np.mean([surrogate(Phi, y, epsilon, strengths, seed) for seed in range(3)], axis=0)
        text = ", ".join(f"{s:g}: {a:.4f}" for s, a in zip(strengths, scores, strict=True))
        print(f"| {cells} | {directions} | {count} | {scale} | {text} |", flush=True)
    print("| radius | mean / second / cross / counts | accuracy |\n|---|---|---|")
    Phi = Chain([OrientedGradients(), RandomFourier(n_frequencies=500, scale=2.0)]).fit_transform(X)
    for radius, split in [
        (0.15, (0.03, 0.47, 0.48, 0.02)), (0.25, (0.03, 0.47, 0.48, 0.02)),
        (0.5, (0.03, 0.47, 0.48, 0.02)), (0.25, (0.03, 0.3, 0.65, 0.02)),
        (0.25, (0.03, 0.65, 0.3, 0.02)), (0.25, (0.1, 0.43, 0.43, 0.04)),
    ]:  # fmt: skip
        options = {"radius": radius, "split": split}
        score = np.mean([surrogate(Phi, y, epsilon, (0.2,), s, **options) for s in range(3)])
        print(f"| {radius} | {split} | {score:.4f} |", flush=True)


def surrogate(Phi, y, epsilon, strengths, seed, *, radius=0.25, split=None, target=60_000):
    """One split of public data with noise as on ``target`` rows; in floats, nothing is private."""
    from permea.models.moments import Moments, ridge
    from permea.privacy import Privacy
    from permea.privacy.moments import Split, plan_moments

    rng = np.random.default_rng(seed)
    order = rng.permutation(len(Phi))
    train, test = order[:6500], order[6500:]
    promise = Privacy(epsilon=epsilon, delta=DELTA, unit="record", domain=(0, 1))
    split = split or Split()
    scales = plan_moments(promise, Phi.shape[1], 10, neighbours="add/remove", split=split).scales
    rate = len(train) / target
    D = Phi.shape[1]
    mean = Phi[train].mean(0) + rng.normal(size=D) * scales.mean / target
    Z = (Phi - mean).astype(np.float32)
    Z *= np.minimum(1, radius / np.linalg.norm(Z, axis=1, keepdims=True))
    Y = np.eye(10)[y]
    exact = Moments.of(Z[train], Y[train].astype(np.float32))
    noise = rng.normal(size=(D, D)) * scales.second * radius**2 * rate
    cross = exact.cross + rng.normal(size=(D, 10)) * scales.cross * radius * rate
    noised = Moments(
        exact.second + (noise + noise.T) / 2, cross, cross.sum(1), exact.outputs, exact.squares,
        exact.size, scales.second * radius**2 * rate,
    )  # fmt: skip
    return [
        float((ridge(noised, strength=s).predict(Z[test]).argmax(1) == y[test]).mean())
        for s in strengths
    ]


def dpsgd(epsilons, epochs, runs, kinds):
    try:
        import torch
        from opacus import PrivacyEngine
    except ImportError as missing:
        raise SystemExit(
            f"{missing.name} is missing: install torch and opacus (in an environment of their own) "
            "and run this script with that Python."
        ) from None
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    X, y, X_test, y_test = mnist()
    labels = torch.tensor(y.astype(np.int64))
    print("| model | ε per record (add/remove) | accuracy, mean | lowest | fit (s) |")
    print("|---|---|---|---|---|", flush=True)
    for kind in kinds:
        if kind == "cnn":
            inputs = [torch.tensor(v.reshape(-1, 1, 28, 28)) for v in (X, X_test)]
        else:
            maps = linear_features(X, X_test)
            inputs = [torch.tensor(v) for v in maps]
        for epsilon in epsilons:
            scores, seconds = [], []
            for run in range(runs):
                torch.manual_seed(run)
                start = time.perf_counter()
                model = small_cnn(nn) if kind == "cnn" else nn.Linear(inputs[0].shape[1], 10)
                rate = 0.5 if kind == "cnn" else 4.0
                optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
                loader = DataLoader(TensorDataset(inputs[0], labels), batch_size=2048)
                model, optimiser, loader = PrivacyEngine().make_private_with_epsilon(
                    module=model, optimizer=optimiser, data_loader=loader, epochs=epochs,
                    target_epsilon=epsilon, target_delta=DELTA, max_grad_norm=0.1,
                )  # fmt: skip
                for _ in range(epochs):
                    for rows, truth in loader:
                        optimiser.zero_grad()
                        nn.functional.cross_entropy(model(rows), truth).backward()
                        optimiser.step()
                seconds.append(time.perf_counter() - start)
                model.eval()
                with torch.no_grad():
                    guesses = torch.cat([model(part).argmax(1) for part in inputs[1].split(2000)])
                scores.append(float((guesses.numpy() == y_test).mean()))
            print(
                f"| DP-SGD, {kind} | {epsilon:g} | {np.mean(scores):.4f} | {min(scores):.4f} "
                f"| {np.mean(seconds):.0f} |",
                flush=True,
            )


def small_cnn(nn):
    """The convolutional network of Opacus' MNIST example and of Tramèr and Boneh, with tanh."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Flatten(),
        nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


def linear_features(X, X_test):
    """The gradient features of permea, written to a file by ``--write-features``."""
    path = Path(os.environ.get("PERMEA_FEATURES", "moments_mnist_features.npz"))
    if not path.exists():
        raise SystemExit(f"{path} is missing: make it with --write-features {path} first.")
    stored = np.load(path)
    return stored["train"], stored["test"]


def write_features(path):
    from permea.models.features import OrientedGradients

    X, _, X_test, _ = mnist()
    edges = OrientedGradients()
    np.savez(path, train=edges.fit_transform(X), test=edges.transform(X_test))


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilon", type=float, nargs="*", default=size([1.0, 2.0, 8.0], [8.0]))
    parser.add_argument("--neighbours", nargs="*", default=["add/remove", "replace"])
    parser.add_argument("--features", default="gradients")
    parser.add_argument("--runs", type=int, default=size(5, 1))
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--dpsgd", action="store_true")
    parser.add_argument("--models", nargs="*", default=["cnn", "linear"])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--write-features", metavar="PATH")
    options = parser.parse_args()
    if options.write_features:
        write_features(options.write_features)
    elif options.tune:
        tune(min(options.epsilon))
    elif options.dpsgd:
        dpsgd(options.epsilon, options.epochs, options.runs, options.models)
    else:
        moments(options.epsilon, options.neighbours, options.features, options.runs)


if __name__ == "__main__":
    main()

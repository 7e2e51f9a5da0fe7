"""What the settings of the moment classifier rest on: USPS digits, never MNIST.

The digits are enlarged to 20 x 20 and framed to 28 x 28, the noise is that of 60000 rows
(add/remove), three random splits.
"""

import numpy as np
from common import QUICK, load, options_of, size, table
from sklearn.datasets import load_digits

from permea.models.features import Chain, OrientedGradients, RandomFourier

DELTA = 1e-5


def enlarged_usps():
    from scipy.ndimage import zoom

    if QUICK:
        images, labels = load_digits(return_X_y=True)
        images = np.kron(images.reshape(-1, 8, 8), np.ones((2, 2))) / 16
        return np.pad(images, ((0, 0), (6, 6), (6, 6))).reshape(len(labels), -1), labels
    data = load("usps")
    images = np.concatenate([data["x_train"], data["x_test"]]).reshape(-1, 16, 16)
    larger = np.pad(zoom(images, (1, 1.25, 1.25), order=1), ((0, 0), (4, 4), (4, 4)))
    labels = np.concatenate([data["y_train"], data["y_test"]]).astype(int)
    return larger.reshape(len(larger), -1).clip(0, 1).astype(np.float32), labels


MAPS = [  # cells, directions, frequencies, scale
    (7, 8, 500, 1.5), ((4, 7), 12, 500, 2.0), ((3, 6), 8, 500, 2.0), ((3, 6), 12, 500, 2.0),
    ((3, 6), 12, 1000, 1.0), ((3, 6), 12, 1000, 1.5), ((3, 6), 12, 1000, 2.0),
    ((3, 6), 12, 1000, 2.5),
]  # fmt: skip
SPLITS = [  # radius, shares of the budget
    (0.15, (0.03, 0.47, 0.48, 0.02)), (0.25, (0.03, 0.47, 0.48, 0.02)),
    (0.5, (0.03, 0.47, 0.48, 0.02)), (0.25, (0.03, 0.3, 0.65, 0.02)),
    (0.25, (0.03, 0.65, 0.3, 0.02)), (0.25, (0.1, 0.43, 0.43, 0.04)),
]  # fmt: skip
STRENGTHS = (0.1, 0.15, 0.2, 0.25, 0.3)
SEEDS = range(size(3, 1))


def tune(epsilon):
    """Accuracy for grids of settings; the noise is that of 60000 rows (add/remove)."""
    X, y = enlarged_usps()
    rows = []
    for cells, directions, count, scale in size(MAPS, [(7, 8, 50, 1.5)]):
        edges = OrientedGradients(cells=cells, orientations=directions)
        Phi = Chain([edges, RandomFourier(n_frequencies=count, scale=scale)]).fit_transform(X)
        scores = np.mean([surrogate(Phi, y, epsilon, STRENGTHS, seed) for seed in SEEDS], axis=0)
        rows.append([cells, directions, count, scale, *(f"{score:.4f}" for score in scores)])
    header = ["cells", "directions", "frequencies", "scale"]
    table([*header, *(f"ridge {strength:g}" for strength in STRENGTHS)], rows)
    rows = []
    frequencies = RandomFourier(n_frequencies=size(500, 50), scale=2.0)
    Phi = Chain([OrientedGradients(), frequencies]).fit_transform(X)
    for radius, split in size(SPLITS, SPLITS[:1]):
        options = {"radius": radius, "split": split}
        score = np.mean([surrogate(Phi, y, epsilon, (0.2,), s, **options) for s in SEEDS])
        rows.append([radius, " / ".join(map(str, split)), f"{score:.4f}"])
    table(["radius", "mean / second / cross / counts", "accuracy"], rows)


def surrogate(Phi, y, epsilon, strengths, seed, *, radius=0.25, split=None, target=60_000):
    """One split of public data with noise as on ``target`` rows; in floats, nothing is private."""
    from permea.models.linear import ridge
    from permea.privacy import Privacy
    from permea.privacy.moments import Moments, Split, plan_moments

    rng = np.random.default_rng(seed)
    order = rng.permutation(len(Phi))
    train, test = order[: len(Phi) * 7 // 10], order[len(Phi) * 7 // 10 :]
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


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilon", type=float, default=1.0)
    tune(parser.parse_args().epsilon)


if __name__ == "__main__":
    main()

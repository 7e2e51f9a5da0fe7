"""What the settings of the class hulls for images rest on: USPS and held-out rows, no test rows.

USPS digits, enlarged and framed to 28 x 28 as in ``moments_tune``, 70 % of them for training; or,
with ``--held-out``, MNIST's training rows alone: 20000 of them for training and 10000 for scoring.
The noise is that of 60000 rows (add/remove, δ = 1e-5), means of several draws of it. In floats, so
that nothing here is private.
"""

import numpy as np
from common import load, options_of, size, table
from moments_tune import DELTA, enlarged_usps

RADIUS, MOST = 0.25, size(120, 40)
DEFAULT = (0.05, 0.45, 0.43, 0.07)
SPLITS = (DEFAULT, (0.05, 0.3, 0.58, 0.07), (0.02, 0.5, 0.44, 0.04))


def digits_of(held_out):
    """Images, labels, and how many of them are for training."""
    if not held_out:
        images, labels = enlarged_usps()
        order = np.random.default_rng(0).permutation(len(labels))
        return images[order], labels[order], len(labels) * 7 // 10
    data, order = load("mnist"), np.random.default_rng(0).permutation(60_000)[:30_000]
    images = data["x_train"][order].reshape(30_000, -1) / np.float32(255)
    return images, data["y_train"][order].astype(int), 20_000


class Rows:
    """Centred features of all rows, exact moments of those for training, and noise for 60000."""

    def __init__(self, features, labels, n_train):
        from permea.privacy.moments import Moments

        self.labels, self.n = labels, n_train
        Z = features - features[:n_train].mean(axis=0)
        self.Z = Z * np.minimum(1, RADIUS / np.linalg.norm(Z, axis=1, keepdims=True))
        self.Y = np.eye(10, dtype=np.float32)[labels]
        self.exact = Moments.of(self.Z[:n_train], self.Y[:n_train])

    def scores(self, epsilon, seed, *, split=DEFAULT, most=MOST, centred=True):
        """Accuracy by each metric and with ridge weights 0.25, 0.5 and 1; number of directions."""
        from permea.models.calibration import calibrate
        from permea.models.hull import choose_directions, learn_hulls
        from permea.models.linear import ridge
        from permea.privacy import Privacy
        from permea.privacy.moments import plan_moments

        D, rng = self.Z.shape[1], np.random.default_rng(seed)
        scales = plan_moments(
            Privacy(epsilon=epsilon, delta=DELTA, unit="record", domain=(0, 1)), D, 10,
            neighbours="add/remove", split=split, n_directions=most, n_losses=12, radius=RADIUS,
        ).scales  # fmt: skip
        moments = self.noised(scales, rng)
        model = ridge(moments, strength=0.2)
        A = choose_directions(moments, model, min(most, D), RADIUS)
        scatter = self.scatter(A if centred else np.linalg.qr(A[:D])[0], scales, rng)
        hulls = learn_hulls(moments, scatter, model)
        z, t = self.Z[self.n :], self.labels[self.n :]
        image, likely = (
            0.5 * np.square(hulls.distances(hulls.encode(z), kind))
            for kind in ("image", "likelihood")
        )
        odds = calibrate(moments, model).log_probabilities(model.predict(z))
        found = [-image, -likely, *(weight * odds - likely for weight in (0.25, 0.5, 1.0))]
        return [*(float((one.argmax(axis=1) == t).mean()) for one in found), A.shape[1]]

    def noised(self, scales, rng):
        from permea.privacy.moments import Moments

        D, rate = self.Z.shape[1], self.n / 60_000
        exact, unit = self.exact, RADIUS * rate
        second, cross_noise = scales.second * RADIUS * unit, scales.cross * unit
        noise = rng.normal(size=(D, D)) * second
        cross = exact.cross + rng.normal(size=(D, 10)) * cross_noise
        counts = exact.outputs + rng.normal(size=10) * scales.counts * rate
        return Moments(
            exact.second + (noise + noise.T) / 2, cross, cross.sum(axis=1), counts, counts,
            float(self.n), second, cross_noise, scales.counts * rate,
        )  # fmt: skip

    def scatter(self, A, scales, rng):
        from permea.privacy.rowwise import shrink_rows
        from permea.privacy.scatter import ClassScatter

        joined = np.hstack([self.Z, self.Y]) if len(A) > self.Z.shape[1] else self.Z
        U, Y = shrink_rows(joined[: self.n] @ A, RADIUS), self.Y[: self.n]
        second = ClassScatter.of(U, Y, np.eye(A.shape[1])).second
        sigma = scales.scatter * RADIUS**2 * self.n / 60_000
        noise = rng.normal(size=second.shape) * sigma
        return ClassScatter(A, second + (noise + noise.transpose(0, 2, 1)) / 2, sigma)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilon", type=float, nargs="*", default=size([1.0, 2.0, 8.0], [8.0]))
    parser.add_argument("--draws", type=int, default=size(3, 1))
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    from permea.models.features import OrientedGradients

    images, labels, n_train = digits_of(options.held_out)
    ways = [(f"exponent {e:g}", e, {}) for e in size((0.5, 0.375, 0.25), (0.5,))]
    ways += [("about the mean of all, not scaled", 0.375, {"centred": False})]
    ways += [(f"split {' / '.join(map(str, s))}", 0.375, {"split": s}) for s in SPLITS[1:]]
    ways += [("at most 80 directions", 0.375, {"most": 80})]
    rows, kept = [], {}
    for name, exponent, changed in ways[: size(len(ways), 2)]:
        if exponent not in kept:
            edges = OrientedGradients(cells=size((3, 6), 3), exponent=exponent)
            kept = {exponent: Rows(edges.fit_transform(images), labels, n_train)}
        for epsilon in options.epsilon:
            draws = [kept[exponent].scores(epsilon, s, **changed) for s in range(options.draws)]
            *scores, d = np.mean(draws, axis=0)
            rows.append([name, f"{epsilon:g}", *(f"{one:.4f}" for one in scores), f"{d:.0f}"])
    weights = [f"likelihood, ridge weight {w}" for w in (0.25, 0.5, 1)]
    print(f"{n_train} rows for training, {len(labels) - n_train} for scoring\n")
    table(["edges with", "ε", "image", "likelihood", *weights, "directions"], rows)


if __name__ == "__main__":
    main()

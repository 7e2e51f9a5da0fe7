"""The ridge's strength from the release, and the best one on a grid, from 500 to 50 million rows.

Area under the ROC curve of the ridge with its rule, with the fixed share 0.2 of version 0.1, and
with the best of 25 strengths for these rows (an oracle: it looks at the test rows). Noise per
record, replace-one, δ = 1e-6, drawn in floats. More rows than a table has are the whole table with
the noise of so many rows. Splits are not those of other benchmarks.
"""

import sys

import numpy as np
from common import Kept, options_of, size, table
from sklearn.metrics import roc_auc_score
from tables_common import DELTA, load_table, splits

from permea.models.linear import ridge
from permea.privacy import Privacy
from permea.privacy.moments import Moments, plan_moments

RADIUS, BINS = 0.25, 8
STRENGTHS = np.geomspace(0.03, 30, 25)
ROWS = {"adult": (500, 3000, 26_048, 50_000_000), "support2": (1000, 7284, 50_000_000)}


def noised(Phi, y, n_rows, epsilon, rng):
    """Moments with the noise of ``n_rows`` rows, and the map from features to centred rows."""
    D, rate = Phi.shape[1], len(Phi) / n_rows
    promise = Privacy(epsilon=epsilon, delta=DELTA, unit="record", domain=(0, 1))
    scales = plan_moments(promise, D, 2, radius=RADIUS).scales
    mean = Phi.mean(axis=0) + scales.mean / n_rows * rng.normal(size=D)

    def centre(rows):
        z = rows - mean
        return z * np.minimum(1, RADIUS / np.linalg.norm(z, axis=1, keepdims=True))

    exact = Moments.of(centre(Phi), np.eye(2)[y])
    second, cross = rate * scales.second * RADIUS**2, rate * scales.cross * RADIUS
    counts = rate * scales.counts
    E = second * rng.normal(size=(D, D))
    crosses = exact.cross + cross * rng.normal(size=(D, 2))
    outputs = exact.outputs + counts * rng.normal(size=2)
    moments = Moments(
        exact.second + (E + E.T) / 2, crosses, crosses.sum(axis=1), outputs, outputs, exact.size,
        second, cross, counts,
    )  # fmt: skip
    return moments, centre


def areas(name, n_rows, epsilon, seeds):
    """Means over splits: the rule, the share 0.2, and the best strength of each split's grid."""
    frame, schema = load_table(name)
    Phi = np.asarray(schema.encoder(bins=BINS).transform(frame))
    y = (schema.labels(frame) == schema.classes[1]).astype(int)
    found = []
    for seed, train, test in splits(frame, schema, seeds):
        rows = train[: min(n_rows, len(train))]
        rng = np.random.default_rng(seed)
        moments, centre = noised(Phi[rows], y[rows], n_rows, epsilon, rng)
        values, vectors = np.linalg.eigh(moments.centred().second)
        cross = vectors.T @ moments.centred().cross @ [-1, 1]
        queries = centre(Phi[test])
        rotated = queries @ vectors

        def area(regularization, w=values, c=cross, rows=rotated, labels=y[test]):
            return roc_auc_score(labels, rows @ (c / (np.maximum(w, 0) + regularization)))

        rule = ridge(moments).predict(queries) @ [-1, 1]
        grid = [area(strength * moments.noise_norm) for strength in STRENGTHS]
        old = area(0.2 * moments.noise_norm + 0.1)
        found.append([roc_auc_score(y[test], rule), old, *grid])
    rule, old, *grid = np.mean(found, axis=0)
    return [float(rule), float(old), float(max(grid)), float(STRENGTHS[np.argmax(grid)])]


def main():
    parser = options_of(__doc__)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    kept = Kept("moments-ridge", options.resume)
    seeds = [1000 + options.seed + k for k in range(size(4, 1))]
    lines = []
    for name, counts in ROWS.items():
        for n_rows in size(counts, counts[:1]):
            for epsilon in size((0.5, 1.0, 8.0), (1.0,)):
                key = f"{name} {n_rows} {epsilon} {options.seed}"
                if key not in kept:
                    kept[key] = areas(name, n_rows, epsilon, seeds)
                    print(key, file=sys.stderr, flush=True)
                rule, old, best, at = kept[key]
                cells = (f"{rule:.4f}", f"{old:.4f}", f"{best:.4f}", f"{at:.2f}")
                lines.append([name, n_rows, f"{epsilon:g}", *cells])
    table(
        ["table", "rows", "ε per record", "rule", "share 0.2", "best on the grid", "its share"],
        lines,
    )


if __name__ == "__main__":
    main()

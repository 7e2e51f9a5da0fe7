"""Pairs of columns and bin edges that are chosen privately: what they cost, and what they bring.

A tenth of the budget (of μ², so that both releases together keep ε) goes to the choice, the rest to
the model. AUROC on new rows or people, δ = 1e-6, mean of splits with seeds from 1000, and the
mean difference to the first column with its standard error over the splits. (a) up to two pairs
by `pick_pairs`; "either or" is invented: ten columns, and the label says whether exactly one
of two is large. (b) every range is declared ten times too wide; edges by `private_edges`.
"""

import math
import warnings
from dataclasses import replace

import numpy as np
from common import QUICK, options_of, size, table
from scipy import optimize
from sklearn.metrics import roc_auc_score
from tables_common import DELTA, load_table, splits

from permea.models.moments import MomentClassifier
from permea.privacy import Privacy, pick_pairs, private_edges
from permea.privacy.noise import gaussian_mu
from permea.tables import Number, Schema, YesNo, default_bins

EPSILONS = size((1, 4, 8), (8,))
SHARE = 0.1


def main():
    options = options_of(__doc__).parse_args()
    warnings.simplefilter("ignore")
    seeds = range(1000 + options.seed, 1000 + options.seed + size(5, 1))
    invented = {"either or": either_or()}
    files = (
        {} if QUICK else {name: load_table(name) for name in ("adult", "support2", "framingham")}
    )
    print(f"**(a) Up to two pairs, chosen for {100 * SHARE:g} % of the budget.**\n")
    pairs = [
        [name, epsilon, *compared(with_pairs, frame, schema, epsilon, seeds)]
        for name, (frame, schema) in {**files, **invented}.items()
        for epsilon in EPSILONS
    ]
    table(["table", "ε", "no pairs", "with pairs", "difference", "pairs"], pairs)
    print("**(b) Ranges ten times too wide, and edges at private quantiles.**\n")
    edges = [
        [name, epsilon, *compared(with_edges, frame, wide(schema), epsilon, seeds)[:3],
         f"{np.mean(plain(frame, schema, epsilon, seeds)):.3f}"]
        for name, (frame, schema) in (files or invented).items()
        for epsilon in EPSILONS
    ]  # fmt: skip
    table(["table", "ε", "wide", "private edges", "difference", "true ranges"], edges)


def either_or(n=20_000):
    rng = np.random.default_rng(0)
    X = rng.random((size(n, 1500), 10))
    different = (X[:, 0] > 0.5) ^ (X[:, 1] > 0.5)
    y = rng.random(len(X)) < np.where(different, 0.7, 0.3)
    import pandas as pd

    frame = pd.DataFrame({**{f"x{k}": X[:, k] for k in range(10)}, "y": y.astype(int)})
    return frame, Schema({**{f"x{k}": Number(0, 1) for k in range(10)}, "y": YesNo()}, label="y")


def promise(schema, epsilon):
    unit = "record" if schema.person is None else "person"
    return Privacy(epsilon=epsilon, delta=DELTA, unit=unit)


def part(epsilon, share):
    """The ε at the same δ of a Gaussian release with so much of μ²."""
    mu = math.sqrt(share) * gaussian_mu(epsilon, DELTA)
    return optimize.brentq(lambda e: gaussian_mu(e, DELTA) - mu, 1e-4, epsilon)


def score(frame, schema, epsilon, seed, train, test):
    model = MomentClassifier(
        privacy=promise(schema, epsilon), schema=schema, random_state=seed
    ).fit(frame.iloc[train])
    y = schema.labels(frame.iloc[test]) == schema.classes[1]
    return roc_auc_score(y, model.predict_proba(frame.iloc[test])[:, 1])


def plain(frame, schema, epsilon, seeds):
    return [score(frame, schema, epsilon, *split) for split in splits(frame, schema, seeds)]


def with_pairs(rows, schema, privacy, seed, epsilon):
    return pick_pairs(rows, schema, k=2, privacy=privacy, random_state=seed + 1)[0]


def with_edges(rows, schema, privacy, seed, epsilon):
    columns = [name for name in schema.features if isinstance(schema.columns[name], Number)]
    people = len(rows) if schema.person is None else len(set(schema.people(rows)))
    bins = default_bins(people, epsilon, len(schema.features))
    return private_edges(
        rows, schema, columns=columns, bins=bins, privacy=privacy, random_state=seed + 1
    )[0]


def compared(choose, frame, schema, epsilon, seeds):
    """Without the choice, with it, the difference, and which pairs how often."""
    before, after, chosen = plain(frame, schema, epsilon, seeds), [], {}
    for seed, train, test in splits(frame, schema, seeds):
        privacy = promise(schema, part(epsilon, SHARE))
        found = choose(frame.iloc[train], schema, privacy, seed, epsilon)
        after.append(score(frame, found, part(epsilon, 1 - SHARE), seed, train, test))
        for pair in found.pairs:
            chosen[" × ".join(pair)] = chosen.get(" × ".join(pair), 0) + 1
    gained = np.subtract(after, before)
    error = np.std(gained, ddof=1) / math.sqrt(len(gained)) if len(gained) > 1 else 0.0
    told = ", ".join(f"{pair} ({count})" for pair, count in chosen.items()) or "none"
    return (
        f"{np.mean(before):.3f}",
        f"{np.mean(after):.3f}",
        f"{np.mean(gained):+.3f} ± {error:.3f}",
        told,
    )


def wide(schema):
    """Every number's range ten times as wide, as if little were known."""
    columns = {name: stretched(column) for name, column in schema.columns.items()}
    return replace(schema, columns={**schema.columns, **columns})


def stretched(column):
    if not isinstance(column, Number):
        return column
    width = column.high - column.low
    low = column.low - 4.5 * width if column.scale == "linear" else column.low
    high = column.high + 4.5 * width if column.scale == "linear" else column.low + 10 * width
    return replace(column, low=low, high=high, edges=None, whole=False, resolution=None)


if __name__ == "__main__":
    main()

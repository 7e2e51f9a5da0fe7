"""Synthetic tables of hundreds of columns: which pairs are found, by tables and in halves.

Columns come in blocks of four that depend on each other (three numbers and a category, correlation
about 0.8 within a block), with a label of two values that depends on three blocks; 10000 rows, per
record, δ = 1e-6, replace. "Pairs found" are edges of the tree (mean over labels) within a block; a
perfect tree has three for each block. "Default" is `fabricate_records` as it is, "tables" counts a
table of all pairs whatever the noise, "halves" counts all pairs in halves. One run each; seconds
are of the processor.
"""

import time
import warnings

import numpy as np
import pandas as pd
from common import options_of, size, table

from permea import Privacy, fabricate_records
from permea.fabricate import learn_tables
from permea.tables import Category, Number, Schema, YesNo

WAYS = {
    "default": (learn_tables._LOST, learn_tables._MANY),
    "tables": (np.inf, np.inf),
    "halves": (0.0, 0),
}


def invented(n_columns, n_rows, seed):
    """A table in blocks of four columns, and its schema."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n_rows, n_columns // 4))
    values = 0.9 * np.repeat(hidden, 4, axis=1) + 0.44 * rng.normal(size=(n_rows, n_columns))
    columns, frame = {}, {}
    for k, one in enumerate(values.T):
        name = f"c{k}"
        if k % 4 < 3:
            columns[name], frame[name] = Number(-4, 4), np.clip(one, -4, 4)
        else:
            columns[name] = Category(["low", "middle", "high"])
            frame[name] = np.array(["low", "middle", "high"])[np.digitize(one, [-0.8, 0.3])]
    score = hidden[:, 0] + hidden[:, 1] - hidden[:, 2] + rng.normal(size=n_rows)
    frame["ill"] = np.where(score > 0, "yes", "no")
    return pd.DataFrame(frame), Schema({**columns, "ill": YesNo()}, label="ill")


def found(frame, schema, epsilon, way, seed):
    """Edges within a block, mean over labels, and processor seconds."""
    kept = learn_tables._LOST, learn_tables._MANY
    learn_tables._LOST, learn_tables._MANY = WAYS[way]
    try:
        start = time.process_time()
        promise = Privacy(epsilon=epsilon, delta=1e-6, unit="record")
        made = fabricate_records(frame, schema=schema, privacy=promise, seed=seed)
        took = time.process_time() - start
    finally:
        learn_tables._LOST, learn_tables._MANY = kept
    trees = made.generator.trees
    return np.mean([sum(a // 4 == b // 4 for a, b in t.edges) for t in trees]), took


def main():
    parser = options_of(__doc__)
    parser.add_argument("--columns", type=int, nargs="+", default=size([40, 100, 200, 300], [12]))
    parser.add_argument("--rows", type=int, default=size(10_000, 500))
    parser.add_argument("--epsilon", type=float, nargs="+", default=size([1.0, 4.0], [4.0]))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for n_columns in options.columns:
        frame, schema = invented(n_columns, options.rows, options.seed)
        for epsilon in options.epsilon:
            cells, seconds = [], 0.0
            for way in WAYS:
                count, took = found(frame, schema, epsilon, way, options.seed)
                cells.append(f"{count:.0f}")
                seconds = took if way == "default" else seconds
            rows.append([n_columns, f"{epsilon:g}", *cells, 3 * n_columns // 4, f"{seconds:.1f}"])
    table(["columns", "ε per record", *WAYS, "of", "s"], rows)


if __name__ == "__main__":
    main()

"""What the benchmarks on real tables share: the tables, their schemas, splits and measures.

Adult, SUPPORT2 and Framingham are read from ``tables/NAME.csv.gz`` in the folder that PERMEA_DATA
names; the survey of affairs comes with statsmodels ("included with permission of the author").
Schemas are in ``schemas/NAME.toml``, written from what the columns mean.
"""

import os
from pathlib import Path

import numpy as np
from common import QUICK
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupShuffleSplit, train_test_split

from permea.tables import Category, Number, Schema, YesNo

FOLDER = Path(__file__).parent
TABLES = ("adult", "support2", "framingham", "affairs")
DELTA = 1e-6


def load_table(name):
    """A table as a frame, and its schema; made-up rows for a quick run, which needs no file."""
    schema = Schema.load(FOLDER / "schemas" / f"{name}.toml")
    if QUICK:
        return _made_up(schema), schema
    return (_affairs() if name == "affairs" else _file(name)), schema


def _made_up(schema, rows=600):
    """Values drawn from a schema; the label depends on the first number."""
    import pandas as pd

    print("Quick run on made-up rows: its figures mean nothing.\n")
    rng = np.random.default_rng(0)
    frame = {"PERIOD": rng.integers(1, 4, rows), schema.person or "row": np.arange(rows) // 2}
    for name, column in schema.columns.items():
        if isinstance(column, Number):
            frame[name] = np.round(rng.uniform(column.low, column.high, rows))
        else:
            frame[name] = rng.choice(column.names, rows)
    number = next(iter(schema.domain))
    above = frame[number] + rng.normal(size=rows) > np.median(frame[number])
    frame[schema.label] = np.where(above, schema.classes[1], schema.classes[0])
    known = {*schema.names, "PERIOD"} if schema.person else schema.names
    return pd.DataFrame({name: values for name, values in frame.items() if name in known})


def _file(name):
    import pandas as pd

    default = FOLDER.resolve().parents[1] / "shared" / "data"
    path = Path(os.environ.get("PERMEA_DATA", default)) / "tables" / f"{name}.csv.gz"
    if not path.exists():
        raise SystemExit(f"{path} is missing: set PERMEA_DATA to a folder with tables/{name}.")
    return pd.read_csv(path, index_col=0 if name == "adult" else None, skipinitialspace=True)


def _affairs():
    from statsmodels.datasets import fair

    frame = fair.load_pandas().data
    return frame.assign(affair=(frame["affairs"] > 0).astype(int))


def splits(frame, schema, seeds):
    """Seed, rows to learn from and rows to score, 80 to 20; a person is on one side only."""
    y = schema.labels(frame)
    for seed in seeds:
        if schema.person is None:
            rows = np.arange(len(y))
            yield seed, *train_test_split(rows, test_size=0.2, stratify=y, random_state=seed)
        else:
            people = schema.people(frame)
            parts = GroupShuffleSplit(1, test_size=0.2, random_state=seed)
            yield seed, *next(parts.split(y, groups=people))


def positions(frame, schema, bins):
    """The same public knowledge for methods with bins of their own: a frame, and its ranges.

    A number becomes its place on the public grid, from 0 to the number of intervals, and -1 if it
    is missing; categories stay texts.
    """
    import pandas as pd

    columns, ranges = {}, {}
    read = schema.read(frame)
    for name in schema.features:
        column, at = schema.columns[name], read[name]
        if isinstance(column, Number):
            grid = column.grid(bins)
            places = np.interp(at, grid, np.arange(len(grid)))
            columns[name] = np.where(np.isnan(at), -1.0, places)
            ranges[name] = (-1.0 if column.missing else 0.0, len(grid) - 1.0)
        else:
            assert isinstance(column, Category | YesNo)
            columns[name] = np.where(np.isnan(at), "missing", np.nan_to_num(at).astype(int))
    return pd.DataFrame(columns, index=frame.index), ranges


def calibration_error(y, probability, bins=10):
    """Mean distance of forecast and frequency over ten equal intervals of the forecast."""
    place = np.minimum((probability * bins).astype(int), bins - 1)
    gaps = [abs(np.sum(y[place == k] - probability[place == k])) for k in range(bins)]
    return float(np.sum(gaps) / len(y))


def balanced_accuracy(y, called):
    """Mean of the shares of both classes that are recognised."""
    return float((np.mean(called[y == 1]) + np.mean(~called[y == 0])) / 2)


def measures(y, probability, threshold):
    """AUROC, calibration error and balanced accuracy of forecasts of y = 1."""
    return [
        float(roc_auc_score(y, probability)),
        calibration_error(y, probability),
        balanced_accuracy(y, probability >= threshold),
    ]

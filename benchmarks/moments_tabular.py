"""Tables with whole records hidden: noised moments beside diffprivlib and DP-SGD.

Run ``python benchmarks/moments_tabular.py``; peers that are not installed (diffprivlib, torch with
opacus) are named and left out. Breast cancer and digits come with scikit-learn; diamonds.csv (of
ggplot2) and HI.csv (of Ecdat), as in the package pydataset, are read from the folder that
PERMEA_TABLES names. Domains are round numbers declared here. Stratified 70/30 splits, means over
five. diffprivlib keeps δ = 0, the others δ = 1e-5; a row is added or taken away everywhere.
"""

import os
import time
import warnings
from pathlib import Path

import numpy as np
from common import options_of, size
from dpsgd import DELTA, DPSGD, available
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

from permea.models.moments import MomentClassifier
from permea.privacy import Privacy

CANCER = [
    30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1,
    3, 5, 25, 600, 0.04, 0.15, 0.4, 0.06, 0.1, 0.03,
    40, 50, 260, 4500, 0.3, 1.2, 1.3, 0.3, 0.7, 0.25,
]  # fmt: skip
CLARITIES = ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF")


def tables():
    """Name, rows scaled to [0, 1] by declared domains, labels."""
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", np.clip(X / np.array(CANCER), 0, 1), y
    X, y = load_digits(return_X_y=True)
    yield "digits", X / 16, y
    folder = Path(os.environ.get("PERMEA_TABLES", "."))
    if (folder / "diamonds.csv").exists():
        yield "diamonds (cut)", *diamonds(folder / "diamonds.csv")
    else:
        print(f"diamonds.csv is not in {folder}: set PERMEA_TABLES; left out.")
    if (folder / "HI.csv").exists():
        yield "HI (insured)", *insurance(folder / "HI.csv")
    else:
        print(f"HI.csv is not in {folder}: set PERMEA_TABLES; left out.")


def diamonds(path):
    import pandas as pd

    table = pd.read_csv(path)
    ranges = {"carat": (0, 3), "depth": (50, 75), "table": (50, 75), "price": (0, 20000),
              "x": (3, 10), "y": (3, 10), "z": (2, 6)}  # fmt: skip
    columns = [((table[k] - a) / (b - a)).clip(0, 1) for k, (a, b) in ranges.items()]
    columns += [table["color"] == c for c in "DEFGHIJ"]
    columns += [table["clarity"] == c for c in CLARITIES]
    return np.column_stack(columns).astype(float), pd.factorize(table["cut"], sort=True)[0]


def insurance(path):
    import pandas as pd

    table = pd.read_csv(path)
    ranges = {"whrswk": (0, 80), "experience": (0, 50), "kidslt6": (0, 4), "kids618": (0, 5),
              "husby": (0, 100)}  # fmt: skip
    columns = [((table[k] - a) / (b - a)).clip(0, 1) for k, (a, b) in ranges.items()]
    columns += [table["hhi"] == "yes", table["hispanic"] == "yes"]
    for name in ("education", "race", "region"):
        columns += [table[name] == value for value in sorted(table[name].unique())]
    return np.column_stack(columns).astype(float), (table["whi"] == "yes").to_numpy().astype(int)


def methods(epsilon, classes):
    promise = Privacy(epsilon=epsilon, delta=DELTA, unit="record", domain=(0, 1))
    for features in ("identity", "fourier"):
        yield (
            f"moments, {features}",
            MomentClassifier(
                privacy=promise, features=features, neighbours="add/remove", classes=classes
            ),
        )
    if not available("diffprivlib"):
        return
    from diffprivlib import models

    yield (
        "diffprivlib, logistic",
        lambda X: models.LogisticRegression(
            epsilon=epsilon, data_norm=np.sqrt(X.shape[1]), max_iter=500
        ),
    )
    yield "diffprivlib, naive Bayes", lambda X: models.GaussianNB(epsilon=epsilon, bounds=(0, 1))
    yield (
        "diffprivlib, forest",
        lambda X: models.RandomForestClassifier(
            epsilon=epsilon, bounds=(0, 1), classes=list(classes), n_estimators=10
        ),
    )


def scores(method, X, y, epsilon, runs):
    out = []
    for run in range(runs):
        parts = train_test_split(X, y, test_size=0.3, stratify=y, random_state=run)
        train, test, y_train, y_test = parts
        model = method(train) if not hasattr(method, "fit") else method
        out.append(model.fit(train, y_train).score(test, y_test))
    return out


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilon", type=float, nargs="*", default=size([1.0, 4.0], [4.0]))
    parser.add_argument("--runs", type=int, default=size(5, 1))
    parser.add_argument("--tables", nargs="*")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in ("diffprivlib", "opacus"):
        if not available(name):
            print(f"{name} is not installed here: its rows are missing below.")
    print("| table | ε per record | method | accuracy, mean of runs | seconds per run |")
    print("|---|---|---|---|---|", flush=True)
    for table, X, y in tables():
        if options.tables and not any(wish in table for wish in options.tables):
            continue
        for epsilon in options.epsilon:
            rows = list(methods(epsilon, np.unique(y)))
            if available("opacus"):
                rows.append(("DP-SGD, logistic", DPSGD(epsilon, epochs=size(20, 2))))
            for title, method in rows:
                start = time.perf_counter()
                mean = np.mean(scores(method, X, y, epsilon, options.runs))
                seconds = (time.perf_counter() - start) / options.runs
                print(
                    f"| {table} | {epsilon:g} | {title} | {mean:.4f} | {seconds:.2f} |", flush=True
                )


if __name__ == "__main__":
    main()

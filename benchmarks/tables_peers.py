"""Tables of real people, per record: noised moments beside DP-EBM, diffprivlib and DP-SGD.

AUROC, calibration error (ten intervals) and balanced accuracy on a fifth of the rows, means over
five splits; Framingham's are by person. δ = 1e-6. The same public knowledge for all: schemas
(``schemas/``) give ranges, logarithmic scales and categories; linear methods get our features,
DP-EBM every number as its place on our grid with its range, its bins at its own charge.

- ``MomentClassifier(privacy=…, schema=…)`` as it is, one record replaced, and in a second row one
  added or removed; probabilities and threshold from the release.
- DP-EBM (interpret): defaults; add/remove.
- DP-SGD, logistic: rate by ε and table as ``--tune`` finds it on splits 1000 to 1004, which is not
  charged; 40 epochs of 10 batches, Opacus' accountant; add/remove.
- diffprivlib, logistic: C by ε, the best of 0.001 to 10 on the same splits of three tables taken
  together, not charged either; δ = 0, one replaced.
- Without privacy: logistic regression on the same features, and histogram gradient boosting.

Peers call a person positive above the exact share of the class among the training rows, which is
not charged either. Splits from 1000 on, on which settings were chosen, hold the same rows as those
that are scored here, divided otherwise. Nothing was chosen on "affairs": DP-SGD has the rates of
Framingham there. Options: ``--epsilon``, ``--runs``,
``--tables``, ``--resume`` (what is done is kept in the folder for temporary files), ``--tune``.
"""

import sys
import time
import warnings
from functools import partial

import numpy as np
from common import Kept, options_of, size, table
from dpsgd import DPLogistic, available
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from tables_common import DELTA, TABLES, load_table, measures, positions, splits

from permea import MomentClassifier, Privacy
from permea.tables import default_bins

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
RATES = (0.03, 0.06, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
BEST_RATES = {  # of DP-SGD, by ε; found by ``--tune``
    "adult": (1.0, 2.0, 4.0, 8.0, 8.0),
    "support2": (0.125, 0.5, 1.0, 1.0, 2.0),
    "framingham": (0.25, 0.5, 1.0, 1.0, 2.0),
    "affairs": (0.25, 0.5, 1.0, 1.0, 2.0),  # those of framingham
}
PENALTIES = (0.01, 0.01, 0.03, 0.1, 0.3)  # C of diffprivlib, by ε
TUNED_ON = range(1000, 1005)
NOTES = """\
δ = 1e-6. DP-EBM and DP-SGD hide that a record is added or removed, so the second row is the one to
compare with them; diffprivlib hides a replaced one with δ = 0. Our defaults (ridge, bins, split of
the budget, when the logistic loss is used), the rates of DP-SGD and the penalties of diffprivlib
were chosen on other splits of the same rows, which is not charged; nothing was chosen on
"affairs". The threshold of balanced accuracy is the share of the class: from the release for
permea, the exact one for all others."""


class Data:
    """One table in the forms that the methods want."""

    def __init__(self, name, epsilon):
        self.name, self.epsilon = name, epsilon
        self.frame, self.schema = load_table(name)
        self.y = (self.schema.labels(self.frame) == self.schema.classes[1]).astype(int)
        bins = default_bins(len(self.y), epsilon or 1.0, len(self.schema.features))
        self.features = self.schema.encoder(bins=bins).transform(self.frame)
        self.places, self.ranges = positions(self.frame, self.schema, bins)

    def share(self, rows):
        """Exact share of the class."""
        return self.y[rows].mean()


def ours(neighbours, data, train, test, seed):
    privacy = Privacy(epsilon=data.epsilon, delta=DELTA, unit="record")
    # how many rows there are is known to all methods here, as DP-SGD's rate of sampling is
    model = MomentClassifier(
        privacy=privacy, schema=data.schema, neighbours=neighbours, expected_size=len(train),
        random_state=seed,
    )  # fmt: skip
    model.fit(data.frame.iloc[train])
    forecast = model.predict_proba(data.frame.iloc[test])[:, 1]
    shares = model.moments_.outputs / model.moments_.outputs.sum()
    return forecast, float(np.clip(shares[1], 0.0, 1.0))


def linear(model, data, train, test, seed):
    model.fit(data.features[train], data.y[train])
    return model.predict_proba(data.features[test])[:, 1], data.share(train)


def by_epsilon(settings, epsilon):
    """The setting for the nearest ε."""
    return settings[int(np.argmin(np.abs(np.log(np.divide(EPSILONS, epsilon)))))]


def dpsgd(data, train, test, seed):
    rate = by_epsilon(BEST_RATES[data.name], data.epsilon)
    model = DPLogistic(data.epsilon, DELTA, rate, epochs=40, batches=10, seed=seed)
    return linear(model, data, train, test, seed)


def diffprivlib(data, train, test, seed):
    from diffprivlib.models import LogisticRegression as Private

    C = by_epsilon(PENALTIES, data.epsilon)
    model = Private(epsilon=data.epsilon, data_norm=1.0, C=C, max_iter=500, random_state=seed)
    return linear(model, data, train, test, seed)


def dpebm(data, train, test, seed):
    from interpret.privacy import DPExplainableBoostingClassifier as DPEBM

    X, ranges = data.places, data.ranges
    model = DPEBM(
        feature_names=list(X),
        feature_types=["continuous" if name in ranges else "nominal" for name in X],
        epsilon=data.epsilon, delta=DELTA, privacy_bounds=ranges, n_jobs=1, random_state=seed,
    )  # fmt: skip
    model.fit(X.iloc[train], data.y[train])
    return model.predict_proba(X.iloc[test])[:, 1], data.share(train)


def boosting(data, train, test, seed):
    X = data.places.apply(
        lambda column: column if column.name in data.ranges else column.factorize(sort=True)[0]
    )
    mask = [name not in data.ranges for name in X]
    model = HistGradientBoostingClassifier(categorical_features=mask, random_state=seed)
    model.fit(X.iloc[train], data.y[train])
    return model.predict_proba(X.iloc[test])[:, 1], data.share(train)


OURS = {
    "permea, one replaced": partial(ours, "replace"),
    "permea, add/remove": partial(ours, "add/remove"),
}
PEERS = {
    "DP-EBM": ("interpret", dpebm),
    "DP-SGD, logistic": ("opacus", dpsgd),
    "diffprivlib, logistic": ("diffprivlib", diffprivlib),
}
OPEN = {"logistic": partial(linear, LogisticRegression(C=10, max_iter=500)), "boosting": boosting}


def private_methods():
    found = dict(OURS)
    for name, (library, method) in PEERS.items():
        if available(library):
            found[name] = method
        else:
            print(f"{library} is not installed here: its rows are missing below.")
    return found


def scored(method, data, seeds):
    """Means over splits of the measures, and the seconds of a fit with its forecasts."""
    start, found = time.perf_counter(), []
    parts = list(splits(data.frame, data.schema, seeds))
    for seed, train, test in parts:
        forecast, threshold = method(data, train, test, seed)
        found.append(measures(data.y[test], forecast, threshold))
    took = (time.perf_counter() - start) / len(parts)
    return [*np.mean(found, axis=0).tolist(), float(np.std([m[0] for m in found], ddof=1)), took]


def result(kept, key, method, make, seeds):
    if key not in kept:
        kept[key] = scored(method, make(), seeds)
        print(key, *(f"{value:.4f}" for value in kept[key]), file=sys.stderr, flush=True)
    return kept[key]


def tune(names, epsilons, kept):
    """AUROC of DP-SGD by its rate, on splits that are not used elsewhere."""
    rows = []
    for name in names:
        for epsilon in epsilons:
            found = []
            for rate in RATES:
                model = DPLogistic(epsilon, DELTA, rate, epochs=40, batches=10)
                key = f"tuning, {name}, {epsilon:g}, {rate:g}"
                make, method = partial(Data, name, epsilon), partial(linear, model)
                found.append(result(kept, key, method, make, TUNED_ON)[0])
            rows.append([name, f"{epsilon:g}", *(f"{score:.4f}" for score in found)])
    table(["DP-SGD: table", "ε", *(f"rate {rate:g}" for rate in RATES)], rows)


def report(name, kept, epsilons, seeds):
    """Tables of one data set: AUROC by ε, and the other measures."""
    methods, open_rows = private_methods(), {}
    for title, method in OPEN.items():
        make = partial(Data, name, None)
        open_rows[title] = result(kept, f"{name}, {title}", method, make, seeds)
    found = {
        title: [
            result(kept, f"{name}, {title}, {e:g}", method, partial(Data, name, e), seeds)
            for e in epsilons
        ]
        for title, method in methods.items()
    }
    data = Data(name, 1.0)
    shape = f"{len(data.y)} rows, {len(data.schema.features)} columns"
    print(f"**{name}** ({shape}); without privacy, AUROC: ", end="")
    print(", ".join(f"{title} {row[0]:.4f}" for title, row in open_rows.items()) + ".\n")
    widest = max(row[3] for rows in found.values() for row in rows)
    heads = [f"ε = {epsilon:g}" for epsilon in epsilons]
    lines = [
        [t, *(f"{row[0]:.4f}" for row in rows), f"{rows[0][4]:.1f}"] for t, rows in found.items()
    ]
    table([f"{name}: AUROC per record", *heads, "s"], lines)
    pairs = [
        [t, *(f"{row[1]:.3f} / {100 * row[2]:.1f}" for row in rows)] for t, rows in found.items()
    ]
    pairs += [
        [t, *[f"{row[1]:.3f} / {100 * row[2]:.1f}"] * len(heads)] for t, row in open_rows.items()
    ]
    table([f"{name}: calibration error / balanced accuracy, %", *heads], pairs)
    print(f"AUROC spreads by at most {widest:.4f} over splits (standard deviation).\n", flush=True)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilon", type=float, nargs="+", default=size(EPSILONS, (1.0,)))
    parser.add_argument("--runs", type=int, default=size(5, 2))
    parser.add_argument("--tables", nargs="+", default=size(TABLES, ["affairs"]))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = Kept("tables-tuning" if options.tune else "tables-peers", options.resume)
    if options.tune:
        tune(options.tables, options.epsilon, kept)
        return
    for name in options.tables:
        report(name, kept, options.epsilon, range(options.runs))
    print(NOTES)


if __name__ == "__main__":
    main()

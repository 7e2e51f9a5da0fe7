"""Synthetic tables per record, beside MST and AIM: what is learned from them, how near they are.

Adult, SUPPORT2 and Framingham, δ = 1e-6, a record added or removed (as the peers count). A fifth of
the rows is held out (Framingham by person); the rest gives a synthetic table, on which histogram
boosting is trained. AUROC is that of its forecasts for held-out real rows; total variation is the
mean over all pairs of columns, synthetic against the rows that were learned from, numbers in eight
intervals of the public grid. Means over five splits.

- ``fabricate_records(frame, schema=…)`` as it is.
- "Gaussians": ``fabricate_records(X, y)``, one common covariance of the features of the same
  schema, decoded by the schema; what version 0.1 had.
- MST, AIM, PrivBayes (`dpmm`): numbers in 16 intervals of the public grid, drawn evenly from them.
  With ``--peers PYTHON``, an interpreter that has `dpmm`; each run is given 30 minutes of one
  processor. MST and PrivBayes as they come; AIM with the settings of ``synthetic_dpmm.py``.
- "Real rows": boosting on the rows themselves, without privacy.

Options: ``--epsilon``, ``--runs``, ``--tables``, ``--peers``, ``--peer-methods``, ``--peer-runs``,
``--peer-epsilon``, ``--skip``, ``--resume``.
"""

import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from common import Kept, options_of, peak_memory, size, table
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from tables_common import DELTA, load_table, splits

from permea import Privacy, fabricate_records
from permea.fabricate.comparison import compare_tables
from permea.tables import Number, default_bins

TABLES = ("adult", "support2", "framingham")
EPSILONS = (0.5, 1.0, 4.0)
BINS = 16
CAP = 1800  # processor seconds for one run of a peer
NOTES = """\
Seconds are of the processor; those of "Gaussians" and of MST on Adult were taken the day before, by
the clock. Memory is the growth while the table is made, for the peers the peak of their process.
AIM is short (100 iterations a round, a model of at most 1 MB). Constants of ours (shares of the
stages, bins, smoothing, one tree for all labels) were chosen on splits 1000 to 1005 of Adult and
SUPPORT2, which hold the same rows divided otherwise; the shares and the one tree were looked at on
such splits of Framingham too. The peers were run on one split, at the ε that is shown.
With its defaults AIM was not done on Adult after 30 minutes of a third of a core; MST was not done
on SUPPORT2 after as long, and was not tried again."""


def record(epsilon):
    return Privacy(epsilon=epsilon, delta=DELTA, unit="record")


def ours(frame, schema, epsilon, seed):
    options = {"neighbours": "add/remove", "random_state": seed, "seed": seed}
    return fabricate_records(frame, schema=schema, privacy=record(epsilon), **options).data


def gaussians(frame, schema, epsilon, seed):
    bins = default_bins(len(frame), epsilon, len(schema.features))
    encoder = schema.encoder(bins=bins)
    promise = Privacy(epsilon=epsilon, delta=DELTA, unit="record", domain=(0, 1))
    made = fabricate_records(
        encoder.transform(frame), schema.labels(frame), privacy=promise, classes=schema.classes,
        neighbours="add/remove", random_state=seed,
    )  # fmt: skip
    return encoder.inverse_transform(made.data).assign(**{schema.label: made.labels})


def peer(method, python, frame, schema, epsilon, seed):
    """A table that `dpmm` made, its seconds and its peak of memory; None if it took too long."""
    names = [*schema.features, schema.label]
    codes, sizes = zip(*(coded(schema.columns[n], schema.read(frame, [n])[n]) for n in names),
                       strict=True)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "rows.npz"), Path(folder, "made.npz")
        np.savez(source, codes=np.column_stack(codes), sizes=sizes)
        script = Path(__file__).with_name("synthetic_dpmm.py")
        words = [python, script, method, epsilon, DELTA, seed, source, result]
        run = subprocess.run(
            [str(word) for word in words], preexec_fn=_cap, capture_output=True, text=True
        )
        if run.returncode == -signal.SIGXCPU:
            return None
        if run.returncode:
            raise SystemExit(run.stderr)
        made = np.load(result)
        return decoded(made["codes"], names, schema), float(made["seconds"]), float(made["peak"])


def _cap():
    resource.setrlimit(resource.RLIMIT_CPU, (CAP, CAP + 5))


def coded(column, at):
    """Whole numbers for a peer, and how many there are."""
    if isinstance(column, Number):
        grid = column.grid(BINS + 1)
        code, count = np.searchsorted(grid[1:-1], at, side="right"), len(grid) - 1
    else:
        code, count = np.nan_to_num(at).astype(int), len(column.names)
    return np.where(np.isnan(at), count, code), count + column.missing


def decoded(codes, names, schema):
    import pandas as pd

    rng, out = np.random.default_rng(0), {}
    for name, code in zip(names, codes.T, strict=True):
        column = schema.columns[name]
        if isinstance(column, Number):
            grid = column.grid(BINS + 1)
            place = np.minimum(code, len(grid) - 2)
            drawn = grid[place] + (grid[place + 1] - grid[place]) * rng.random(len(code))
            out[name] = np.where(code == len(grid) - 1, np.nan, column.round(drawn))
        else:
            out[name] = np.array([*column.names, None], dtype=object)[code]
    return pd.DataFrame(out)


def matrix(frame, schema):
    at = schema.read(frame)
    columns = [at[name] for name in schema.features]
    return np.column_stack([np.zeros(len(c)) if np.isnan(c).all() else c for c in columns])


def auroc(made, test, schema):
    """Of boosting that learned from a table, on real rows."""
    choices = [not isinstance(schema.columns[name], Number) for name in schema.features]
    model = HistGradientBoostingClassifier(categorical_features=choices, random_state=0)
    positive = schema.classes[1]
    y = schema.labels(made) == positive
    if y.all() or not y.any():
        return 0.5
    model.fit(matrix(made, schema), y)
    scores = model.predict_proba(matrix(test, schema))[:, 1]
    return float(roc_auc_score(schema.labels(test) == positive, scores))


def distance(made, train, schema):
    """Mean total variation over all pairs of columns."""
    return compare_tables(train, made, schema).mean_pair


def scored(method, name, epsilon, seeds):
    """Means over splits of AUROC, total variation, seconds and MiB, and the spread of AUROC."""
    frame, schema = load_table(name)
    found = []
    for seed, train, test in splits(frame, schema, seeds):
        with peak_memory() as memory:
            start = time.process_time()
            made = method(frame.iloc[train], schema, epsilon, seed)
            took = time.process_time() - start
        if made is None:
            return None
        made, took, peak = made if isinstance(made, tuple) else (made, took, memory["growth"])
        found.append([auroc(made, frame.iloc[test], schema),
                      distance(made, frame.iloc[train], schema), took, peak])  # fmt: skip
    spread = float(np.std([row[0] for row in found], ddof=1)) if len(found) > 1 else 0.0
    return [*np.mean(found, axis=0).tolist(), spread]


def result(kept, key, method, name, epsilon, seeds):
    if key not in kept:
        kept[key] = scored(method, name, epsilon, seeds)
        print(key, kept[key], file=sys.stderr, flush=True)
    return kept[key]


def written(row):
    if row is None:
        return f"none within {CAP // 60} min"
    return f"{row[0]:.3f} / {row[1]:.3f}"


def report(name, kept, options):
    """One table of a data set: methods by ε."""
    methods = {"permea": ours, "Gaussians (0.1)": gaussians}
    rows, costs = [], []
    for title, method in methods.items():
        found = [
            result(kept, f"{name}, {title}, {e:g}", method, name, e, range(options.runs))
            for e in options.epsilon
        ]
        rows.append([f"{title} ({runs_of(options.runs)})", *map(written, found)])
        costs.append([title, f"{found[-1][2]:.1f}", f"{found[-1][3]:.0f}"])
    for title in options.peer_methods if options.peers else ():
        row, cost = [f"{title} ({runs_of(options.peer_runs)})"], None
        for e in options.epsilon:
            skipped = {f"{name}:{title}", f"{name}:{title}:{e:g}"} & set(options.skip)
            if e not in options.peer_epsilon or skipped:
                row.append("not run")
                continue
            key = f"{name}, {title}, {e:g}"
            found = result(
                kept, key, runner(title, options.peers), name, e, range(options.peer_runs)
            )
            row.append(written(found))
            cost = [title, f"{found[2]:.0f}", f"{found[3]:.0f}"] if found else [title, "-", "-"]
        rows.append(row)
        if cost is not None:
            costs.append(cost)
    real = result(kept, f"{name}, real", lambda f, *_: f, name, 1.0, range(options.runs))
    rows.append(["real rows", *[f"{real[0]:.3f} / 0"] * len(options.epsilon)])
    heads = [f"ε = {epsilon:g}" for epsilon in options.epsilon]
    table([f"{name}: AUROC / total variation", *heads], rows)
    table([name, "s", "MiB"], costs)


def runs_of(count):
    return "1 run" if count == 1 else f"{count} runs"


def runner(title, python):
    return lambda frame, schema, epsilon, seed: peer(title, python, frame, schema, epsilon, seed)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilon", type=float, nargs="+", default=size(EPSILONS, (1.0,)))
    parser.add_argument("--runs", type=int, default=size(5, 1))
    parser.add_argument("--tables", nargs="+", default=size(TABLES, ["framingham"]))
    parser.add_argument("--peers", help="a Python interpreter with dpmm")
    parser.add_argument("--peer-methods", nargs="+", default=["MST", "AIM", "PrivBayes"])
    parser.add_argument("--peer-runs", type=int, default=1)
    parser.add_argument("--peer-epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument(
        "--skip", nargs="*", default=[], help="TABLE:METHOD or TABLE:METHOD:EPSILON not to run"
    )
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = Kept("synthetic-peers", options.resume)
    for name in options.tables:
        report(name, kept, options)
    print(NOTES)


if __name__ == "__main__":
    main()

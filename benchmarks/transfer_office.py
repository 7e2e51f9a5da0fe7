"""Office+Caltech, 12 pairs of domains: three labels per class in the target (000 Table 3).

20 source rows per class from amazon, 8 from the others; features are scaled to [0, 1] by public
bounds (SURF counts are standardised per row; network features are clipped at 0 and 5). The
documents' figures are for VGG-FC6 features, which could not be had: read them by rank and gap.
What is done is kept in the folder for temporary files: ``--resume`` takes it from there.
"""

import json
import sys
import tempfile
import time
import warnings
from itertools import permutations
from pathlib import Path

import numpy as np
from common import QUICK, load, options_of, size, table
from joblib import Parallel, delayed, parallel_config
from scipy.stats import rankdata
from transfer_baselines import PEERS as ALL_PEERS
from transfer_baselines import answers, few_labels

from permea import Privacy, SourceModel, TransferClassifier

FILES = {"SURF": "office_caltech10_surf", "EfficientNet": "office_caltech10_efficientnetlite0"}
DOMAINS = ("amazon", "caltech10", "dslr", "webcam")
OURS = [(name, epsilon) for name in ("consensus", "centers", "source2target")
        for epsilon in (0.1, 1, None)]  # fmt: skip
WANTED = ("target-only SVM", "label spreading", "optimal transport (raw rows)",
          "linear transport (raw rows)")  # fmt: skip
PEERS = tuple(name for name in WANTED if name in ALL_PEERS)

PRINTED = (
    ("centers, without privacy", "VGG-FC6", 90.4),
    ("centers, ε = 1 per entry", "VGG-FC6", 89.5),
    ("centers, ε = 0.1 per entry", "VGG-FC6", 89.4),
    ("ILS (1-NN)", "VGG-FC6", 88.5),
    ("CDLS", "VGG-FC6", 85.9),
    ("SVM-t", "VGG-FC6", 84.3),
    ("HFA", "VGG-FC6", 83.7),
    ("MMDT", "VGG-FC6", 80.8),
    ("OBTL", "SURF", 58.9),
    ("ILS (1-NN)", "SURF", 55.6),
    ("CDLS", "SURF", 53.5),
    ("MMDT", "SURF", 52.5),
    ("HFA", "SURF", 48.1),
)


def domain(kind, name):
    """Rows and labels of one domain, scaled to [0, 1]."""
    if QUICK:
        random = np.random.default_rng(DOMAINS.index(name))
        y = np.repeat(np.arange(10), 30)
        return np.clip(random.random((10, 40))[y] + 0.1 * random.normal(size=(300, 40)), 0, 1), y
    data = load(FILES[kind])
    X, y = data[f"x_{name}"].astype(np.float32), data[f"y_{name}"].astype(int)
    if kind == "SURF":
        X = X / np.maximum(X.sum(axis=1, keepdims=True), 1) * 100
        return np.clip(X, 0, 1), y
    return np.clip(X, 0, 5) / 5, y


def pair(kind, source, target, seed):
    """Accuracy of every method on one pair of domains and one choice of labels."""
    start = time.perf_counter()
    warnings.simplefilter("ignore", UserWarning)  # classes of 8 rows carry 7 dimensions
    random = np.random.default_rng(seed)
    X, y = domain(kind, source)
    chosen = few_labels(y, 20 if source == "amazon" else 8, random) >= 0
    A, a = domain(kind, target)
    few = few_labels(a, 3, random)
    free = few < 0
    told = {}
    for name in PEERS:
        told[name] = np.mean(answers(name, X[chosen], y[chosen], A, few, A[free]) == a[free])
    made = {}
    for method, epsilon in OURS:
        if epsilon not in made:
            promise = epsilon and Privacy(epsilon=epsilon, delta=1e-5, domain=(0, 1))
            made[epsilon] = SourceModel(privacy=promise, random_state=seed).fit(
                X[chosen], y[chosen]
            )
        clf = TransferClassifier(made[epsilon], method=method, random_state=seed)
        said = clf.fit(A, few).labels_[free]
        told[f"{method}, ε = {epsilon or '∞'} per entry"] = np.mean(said == a[free])
    return {name: float(value) for name, value in told.items()}, time.perf_counter() - start


class Kept:
    """Results by feature set, pair and split, in a file that outlives an interrupted run."""

    def __init__(self, path, resume):
        self.path = path
        self.done = json.loads(path.read_text()) if resume and path.exists() else {}

    def add(self, key, result):
        self.done[key] = result
        if not QUICK:
            self.path.write_text(json.dumps(self.done))


def named(kind, source, target, seed):
    return f"{kind} {source} {target} {seed}"


def main():
    parser = options_of(__doc__)
    parser.add_argument("--splits", type=int, default=size(20, 1))
    parser.add_argument("--features", nargs="+", default=size(list(FILES), ["SURF"]))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    kept = Kept(Path(tempfile.gettempdir()) / "permea-transfer-office.json", options.resume)
    pairs = list(permutations(size(DOMAINS, DOMAINS[:2]), 2))
    seeds = [options.seed + split for split in range(options.splits)]
    wanted = [(kind, *two, seed) for seed in seeds for kind in options.features for two in pairs]
    missing = [one for one in wanted if named(*one) not in kept.done]
    with parallel_config(backend="loky", inner_max_num_threads=1):
        work = Parallel(n_jobs=options.jobs, return_as="generator")(
            delayed(pair)(*one) for one in missing
        )
        for one, result in zip(missing, work, strict=True):
            kept.add(named(*one), result)
            print(*one, f"{result[1]:.1f} s", file=sys.stderr, flush=True)
    for kind in options.features:
        gathered = {}
        for source, target in pairs:
            each = [kept.done[named(kind, source, target, seed)][0] for seed in seeds]
            mean = {k: 100 * np.mean([told[k] for told in each]) for k in each[0]}
            gathered[f"{source[0]}→{target[0]}"] = mean
        report(kind, gathered, options.splits)
    spent = sum(kept.done[named(*one)][1] for one in wanted)
    print(f"All points took {spent / 60:.0f} minutes of one core.")


def report(kind, gathered, splits):
    methods = list(next(iter(gathered.values())))
    scores = np.array([[told[m] for m in methods] for told in gathered.values()])
    ranks = rankdata(-scores, axis=1)
    rows = [
        [
            m,
            *(f"{v:.1f}" for v in scores[:, i]),
            f"{scores[:, i].mean():.1f}",
            f"{ranks[:, i].mean():.1f}",
        ]
        for i, m in enumerate(methods)
    ]
    rows.sort(key=lambda row: -float(row[-2]))
    print(f"{kind}: accuracy in % on the unlabelled target rows, {splits} split(s) per pair.\n")
    table(["method", *gathered, "mean", "rank"], rows)
    print("Document 000, Table 3, as printed: mean over the 12 pairs.\n")
    table(["method", "features", "mean"], [list(row) for row in PRINTED])


if __name__ == "__main__":
    main()

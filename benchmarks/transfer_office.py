"""Office+Caltech, 12 pairs of domains: three labels per class in the target (000, 001).

20 source rows per class from amazon, 8 from the others; features are scaled to [0, 1] by public
bounds (SURF counts are standardised per row; network features are clipped at 0 and 5). The
documents' figures are for VGG-FC6 features, which could not be had: read them by rank and gap. The
documents' methods are those of `permea.documents`, each with its own source; "consensus" is ours.
What is done is kept in the folder for temporary files: ``--resume`` takes it from there, all but
``--again METHOD``.
"""

import sys
import time
import warnings
from itertools import permutations

import numpy as np
from common import QUICK, Kept, load, options_of, size, table
from joblib import Parallel, delayed, parallel_config
from scipy.stats import rankdata
from transfer_baselines import PEERS as ALL_PEERS
from transfer_baselines import answers, few_labels

from permea import SourceModel, TransferClassifier, documents
from permea.transfer.source2target import label_by_target, mapped
from permea.transfer.target import number_labels

FILES = {"SURF": "office_caltech10_surf", "EfficientNet": "office_caltech10_efficientnetlite0"}
DOMAINS = ("amazon", "caltech10", "dslr", "webcam")
EPSILONS = (0.1, 1, None)
WANTED = ("target-only SVM", "label spreading", "optimal transport (raw rows)",
          "linear transport (raw rows)")  # fmt: skip
PEERS = tuple(name for name in WANTED if name in ALL_PEERS)

VGG, SURF = "VGG-FC6", "SURF"
PRINTED = (  # 000 Tables 4-15 and 001 Tables 1.4-1.15, in the order of the pairs below
    ("centers, ε = ∞ per entry", "000", VGG,
     (84.0, 91.5, 92.2, 92.8, 91.0, 91.2, 91.8, 85.1, 94.8, 92.8, 82.9, 94.4)),
    ("centers, ε = 1 per entry", "000", VGG,
     (84.2, 91.5, 91.7, 92.8, 89.1, 90.6, 91.6, 83.5, 93.3, 92.7, 81.3, 91.5)),
    ("centers, ε = 0.1 per entry", "000", VGG,
     (82.4, 91.8, 91.4, 92.4, 92.2, 90.2, 91.1, 82.6, 92.7, 92.5, 80.0, 93.6)),
    ("source2target, ε = 0.1 per entry", "001", VGG,
     (80.6, 91.2, 89.5, 91.5, 91.6, 91.6, 90.7, 81.4, 88.7, 92.0, 82.3, 89.6)),
    ("SVM-t", "000", VGG,
     (73.9, 89.6, 88.8, 85.1, 89.3, 87.1, 84.6, 76.0, 88.6, 85.7, 73.6, 89.1)),
    ("SVM-t", "001", VGG,
     (73.4, 90.0, 86.9, 84.4, 90.2, 88.8, 84.4, 73.6, 86.9, 84.8, 75.0, 88.9)),
    ("ILS (1-NN)", "both", VGG,
     (83.3, 87.7, 90.7, 89.7, 86.9, 91.4, 88.7, 81.4, 95.5, 88.8, 82.8, 94.5)),
    ("CDLS", "both", VGG,
     (78.1, 86.9, 91.2, 88.0, 86.3, 89.7, 88.1, 77.9, 90.7, 87.4, 78.2, 88.5)),
    ("MMDT", "both", VGG,
     (78.7, 77.1, 82.5, 85.9, 77.9, 82.8, 83.6, 71.8, 86.1, 84.7, 73.6, 85.1)),
    ("HFA", "both", VGG,
     (75.5, 87.1, 87.9, 86.2, 87.0, 86.0, 85.9, 74.8, 86.9, 85.1, 74.4, 87.3)),
    ("OBTL", "both", SURF,
     (41.5, 60.2, 72.4, 54.8, 61.5, 71.1, 54.4, 40.3, 83.2, 55.0, 37.4, 75.0)),
    ("ILS (1-NN)", "both", SURF,
     (43.6, 49.8, 59.7, 55.1, 56.2, 62.9, 55.0, 41.0, 80.1, 54.3, 38.6, 70.8)),
    ("CDLS", "both", SURF,
     (35.3, 60.4, 68.7, 50.9, 59.8, 66.3, 50.7, 34.9, 68.5, 51.8, 33.5, 60.7)),
    ("MMDT", "both", SURF,
     (36.4, 56.7, 64.6, 49.4, 56.5, 63.8, 46.9, 34.1, 74.1, 47.7, 32.2, 67.0)),
    ("HFA", "both", SURF,
     (31.0, 55.1, 57.4, 43.8, 55.6, 58.1, 42.9, 30.9, 60.5, 56.5, 29.0, 56.5)),
)  # fmt: skip


def named(method, epsilon):
    return f"{method}, ε = {epsilon or '∞'} per entry"


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


def through_mapping(clf, A, few, iterated):
    """Labels by 001 (1.87) of the unlabelled rows; the target's iterations serve every source."""
    classes, numbers = number_labels(few, -1, clf.source.classes_)
    clf.n_features_in_ = A.shape[1]
    task = clf._task(A, numbers, classes, None)
    if iterated is None:
        iterated = label_by_target(task, clf.dimensions, clf.n_layers)
    model = mapped(task, *iterated)
    return classes[model.combined(model.parts(A[few < 0])).argmin(axis=1)], iterated


def own_source(promise, *, p, random_state):
    """The library's source; ``p`` is as for those of the documents."""
    return SourceModel(privacy=promise, random_state=random_state)


SETTINGS = {
    "consensus": (own_source, TransferClassifier),
    "centers": (documents.source_000, documents.transfer_000),
    "source2target": (documents.source_001, documents.transfer_001),
}
METHODS = tuple(SETTINGS)
NAMES = (*PEERS, *(named(method, epsilon) for epsilon in EPSILONS for method in METHODS))


def pair(kind, source, target, seed, told=None):
    """Accuracy of every method on one pair of domains and one choice of labels.

    ``told`` has what is known already.
    """
    start = time.perf_counter()
    warnings.simplefilter("ignore", UserWarning)  # classes of 8 rows carry 7 dimensions
    told = dict(told or {})
    random = np.random.default_rng(seed)
    X, y = domain(kind, source)
    chosen = few_labels(y, 20 if source == "amazon" else 8, random) >= 0
    A, a = domain(kind, target)
    few = few_labels(a, 3, random)
    free = few < 0
    for name in PEERS:
        if name not in told:
            said = answers(name, X[chosen], y[chosen], A, few, A[free])
            told[name] = np.mean(said == a[free])
    iterated = None
    for epsilon in EPSILONS:
        missing = [method for method in METHODS if named(method, epsilon) not in told]
        if not missing:
            continue
        promise = epsilon and documents.noise(epsilon)
        for method in missing:
            make, classify = SETTINGS[method]
            made = make(promise, p=X.shape[1], random_state=seed).fit(X[chosen], y[chosen])
            clf = classify(made, random_state=seed)
            if method == "source2target":
                said, iterated = through_mapping(clf, A, few, iterated)
            else:
                said = clf.fit(A, few).labels_[free]
            told[named(method, epsilon)] = np.mean(said == a[free])
    return {name: float(told[name]) for name in NAMES}, time.perf_counter() - start


def key(kind, source, target, seed):
    return f"{kind} {source} {target} {seed}"


def without(result, method):
    """A kept result without one method's figures."""
    told, took = result
    return {name: v for name, v in told.items() if not name.startswith(method or " ")}, took


def main():
    parser = options_of(__doc__)
    parser.add_argument("--splits", type=int, default=size(20, 1))
    parser.add_argument("--features", nargs="+", default=size(list(FILES), ["SURF"]))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--again", metavar="METHOD", help="with --resume: measure this one anew")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    kept = Kept("transfer-office-as-written", options.resume)
    pairs = list(permutations(size(DOMAINS, DOMAINS[:2]), 2))
    seeds = [options.seed + split for split in range(options.splits)]
    wanted = [(kind, *two, seed) for seed in seeds for kind in options.features for two in pairs]
    known = {one: without(kept[key(*one)], options.again) for one in wanted if key(*one) in kept}
    missing = [one for one in wanted if one not in known or not set(NAMES) <= set(known[one][0])]
    with parallel_config(backend="loky", inner_max_num_threads=1):
        work = Parallel(n_jobs=options.jobs, return_as="generator")(
            delayed(pair)(*one, known.get(one, ({}, 0))[0]) for one in missing
        )
        for one, (told, took) in zip(missing, work, strict=True):
            kept[key(*one)] = told, took + known.get(one, ({}, 0))[1]
            print(*one, f"{took:.1f} s", file=sys.stderr, flush=True)
    for kind in options.features:
        gathered = {}
        for source, target in pairs:
            each = [kept[key(kind, source, target, seed)][0] for seed in seeds]
            mean = {k: 100 * np.mean([told[k] for told in each]) for k in each[0]}
            gathered[f"{source[0]}→{target[0]}"] = mean
        report(kind, gathered, options.splits)
    print("As the documents print them: 000 Tables 4-15, 001 Tables 1.4-1.15.\n")
    names = [f"{source[0]}→{target[0]}" for source, target in permutations(DOMAINS, 2)]
    table(
        ["method", "document", "features", *names, "mean"],
        [[method, seed, kind, *row, f"{np.mean(row):.1f}"] for method, seed, kind, row in PRINTED],
    )
    spent = sum(kept[key(*one)][1] for one in wanted)
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


if __name__ == "__main__":
    main()

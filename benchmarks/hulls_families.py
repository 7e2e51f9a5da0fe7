"""The documents' families per record: learned from rows drawn out of noised class moments.

One release per run (`HullClassifier`, add/remove, δ = 1e-5, cryptographic noise) serves the hulls
and all three families. MNIST with edges as features: rows of the training set, scored on its test
rows. Digits and breast cancer: 70/30 splits, beside `MomentClassifier` with the same features and
promise. Defaults everywhere; they were chosen on USPS, on held-out training rows of MNIST, and on
other splits of digits and breast cancer.
What is done is kept in the folder for temporary files: ``--resume`` takes it from there.
"""

import time
import warnings

import numpy as np
from common import Kept, mnist, options_of, size, table

FAMILIES = ("KAHMClassifier", "MembershipClassifier", "FuzzyClassifier")
CANCER = (
    (0,) * 30,
    (30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.25, 0.35, 0.1, 3, 5, 25, 550, 0.04, 0.15, 0.4, 0.06, 0.08,
     0.03, 40, 50, 260, 4300, 0.25, 1.1, 1.3, 0.3, 0.7, 0.21),
)  # fmt: skip
"""Ranges of the columns by what they mean (centimetres and shares), rounded up."""


def small(name, seed):
    from sklearn.datasets import load_breast_cancer, load_digits
    from sklearn.model_selection import train_test_split

    X, y = (load_digits if name == "digits" else load_breast_cancer)(return_X_y=True)
    X, T, y, t = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    return X, y, T, t


def one_run(name, features, epsilon, seed):
    """Accuracies of all models of one run, and seconds of the parts."""
    import permea

    X, y, T, t = mnist() if name == "mnist" else small(name, seed)
    domain = {"mnist": (0, 1), "digits": (0, 16), "cancer": CANCER}[name]
    promise = permea.Privacy(epsilon=epsilon, delta=1e-5, unit="record", domain=domain)
    shared = {
        "privacy": promise, "features": features, "neighbours": "add/remove",
        "classes": np.unique(y).tolist(),
    }  # fmt: skip
    draw = {"rows_per_class": size(1000, 50), "n_jobs": 1}
    found, took = {}, {}

    def score(label, fit):
        start = time.perf_counter()
        model = fit()
        took[label] = time.perf_counter() - start
        assert model.certificate_.is_private
        found[label] = model.score(T, t)
        return model

    if name != "mnist":
        score("MomentClassifier", lambda: permea.MomentClassifier(**shared).fit(X, y))
    hulls = score("HullClassifier", lambda: permea.HullClassifier(**shared).fit(X, y))
    most = hulls.hulls_.n_spread()  # no more layers than dimensions
    depth = {family: {} if family == "FuzzyClassifier" else {"n_layers": min(5, most)}
             for family in FAMILIES}  # fmt: skip
    for family in FAMILIES:
        model = getattr(permea, family)(**draw, **depth[family])
        score(family, lambda model=model: model.learn_drawn(hulls))
    return found, took


def main():
    parser = options_of(__doc__)
    parser.add_argument("--runs", type=int, default=size(5, 1))
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    settings = [
        ("mnist", "edges", 2.0),
        *[(n, f, e) for n in ("digits", "cancer") for f in ("identity", "fourier") for e in (2, 8)],
    ]
    kept = Kept("hulls-families", options.resume)
    rows = []
    for name, features, epsilon in size(settings, settings[1:2]):
        runs = []
        for run in range(options.runs):
            key = f"{name}, {features}, {epsilon:g}, {options.seed + run}"
            if key not in kept:
                kept[key] = one_run(name, features, epsilon, options.seed + run)
            runs.append(kept[key])
        for label in runs[0][0]:
            scores = [found[label] for found, _ in runs]
            seconds = np.mean([took[label] for _, took in runs])
            cells = [f"{np.mean(scores):.4f}", f"{min(scores):.4f}", f"{seconds:.1f}"]
            rows.append([name, features, f"{epsilon:g}", label, *cells])
    table(["data", "features", "ε", "model", "accuracy, mean", "lowest", "fit (s)"], rows)


if __name__ == "__main__":
    main()

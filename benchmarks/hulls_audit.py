"""Audit of class hulls: lower bounds on ε, and membership attacks beside noise on single entries.

White box: trainings on two neighbouring data sets of made-up rows, told apart by all that was
released; broken twins claim the same ε. Attacks: half of scikit-learn's digits are members, the
others are outside; thresholds are fitted on half of either. LiRA and RMIA have 64 shadow models on
random halves of all rows. "At most" is the AUC that the claim allows any attack, from the Gaussian
noise that it stands for. Bounds hold with 95 % confidence. What is done is kept in the
folder for temporary files: ``--resume`` takes it from there.
"""

import sys
import warnings

import numpy as np
from broken_moments import TwoClasses, UnclippedScatter, WeakScatter, factory
from common import Kept, options_of, size, table
from scipy.stats import norm
from sklearn.datasets import load_digits

from permea import (
    FuzzyClassifier,
    HullClassifier,
    KAHMClassifier,
    MembershipClassifier,
    MomentClassifier,
    Privacy,
    audit,
)

DELTA = 1e-5
MECHANISMS = {
    "honest": (HullClassifier, {}),
    "honest, a row is added or removed": (HullClassifier, {"neighbours": "add/remove"}),
    "honest, per person": (HullClassifier, {}),
    "half the noise on the scatter": (WeakScatter, {"neighbours": "add/remove"}),
    "scatter not clipped": (UnclippedScatter, {"neighbours": "add/remove"}),
    "rows counted in two classes": (TwoClasses, {"neighbours": "add/remove"}),
}
KINDS = ("loss", "distance", "lira_online", "lira_offline", "rmia_online")


def record(epsilon):
    return Privacy(epsilon=epsilon, delta=DELTA, unit="record", domain=(0, 16))


def models(epsilon):
    """Model, what it promises, and the classifier."""
    released = {"privacy": record(epsilon), "classes": range(10), "neighbours": "add/remove"}
    entry = Privacy(epsilon=epsilon, delta=DELTA, domain=(0, 16))
    yield "hulls", "record", HullClassifier(features="identity", **released)
    yield "moments", "record", MomentClassifier(features="identity", **released)
    for name, kind in (("KAHM", KAHMClassifier), ("membership", MembershipClassifier),
                       ("fuzzy", FuzzyClassifier)):  # fmt: skip
        yield f"{name}, rows drawn", "record", kind(features="identity", **released)
    yield "KAHM, noised rows", "entry", KAHMClassifier(privacy=entry, n_layers=1, n_components=15)


def bounds(epsilon, releases, seed, kept):
    """One line per mechanism."""
    for name, (kind, settings) in list(MECHANISMS.items())[: size(None, 1)]:
        key = f"bound, {name}, {epsilon:g}, {releases}, {seed}"
        unit = "person" if "person" in name else "record"
        promise = Privacy(epsilon=epsilon, delta=DELTA, unit=unit, domain=(-1, 1))
        if key not in kept:
            make = factory(kind, promise, seed=seed, **settings)
            found = audit.empirical_epsilon(make, runs=2 * releases)
            kept[key] = found.to_dict() | {"verdict": found.verdict}
            print(key, file=sys.stderr, flush=True)
        found = kept[key]
        yield [name, f"{epsilon:g}", f"{found['epsilon']:.2f}", f"{found['attainable']:.2f}",
               found["seen_by"], found["trials"], found["verdict"]]  # fmt: skip


def attacked(name, model, shadows, seed):
    """AUC of every attack, true positives at 1 % false ones, membership-inference score."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    cut = size(len(y) // 2, 100)
    inside, outside = order[:cut], order[cut : 2 * cut]
    fitted = model.fit(X[inside], y[inside])
    report = audit.attack(
        fitted, X[inside], y[inside], X[outside], y[outside], kinds=KINDS, n_shadows=shadows
    )
    most = 1.0
    if hasattr(fitted, "moments_") or getattr(fitted, "encoder_", None) is not None:
        plan = (getattr(fitted, "encoder_", None) or fitted).prepare(X.shape[1])
        most = norm.cdf(plan.loss.value / np.sqrt(2))
    distances = hasattr(fitted, "distances")
    score = audit.membership_inference_score(fitted, X[inside], X[outside], standardize=True)
    return {
        "accuracy": fitted.score(X[outside], y[outside]),
        "auc": {one.name: one.auc for one in report.attacks if one.applies},
        "top": max(one.auc_interval[0] for one in report.attacks if one.applies),
        "tpr": max(one.tpr_at[0.01] for one in report.attacks if one.applies),
        "most": float(most),
        "mis": score if distances else None,
    }


def attacks(epsilons, shadows, seed, kept):
    """One line per model and ε."""
    for epsilon in epsilons:
        for name, unit, model in list(models(epsilon))[: size(None, 1)]:
            key = f"attack, {name}, {epsilon:g}, {shadows}, {seed}"
            if key not in kept:
                kept[key] = attacked(name, model, shadows, seed)
                print(key, file=sys.stderr, flush=True)
            found = kept[key]
            each = [f"{found['auc'][k]:.3f}" if k in found["auc"] else "–" for k in KINDS]
            most = "–" if unit == "entry" else f"{found['most']:.3f}"
            mis = "–" if found["mis"] is None else f"{found['mis']:.4f}"
            yield [name, f"{epsilon:g} per {unit}", f"{found['accuracy']:.3f}", *each,
                   f"{found['tpr']:.3f}", most, mis]  # fmt: skip


def main():
    parser = options_of(__doc__)
    parser.add_argument("--claim", type=float, default=8.0, help="ε of the white box")
    parser.add_argument("--releases", type=int, default=size(1000, 20))
    parser.add_argument("--epsilon", type=float, nargs="*", default=size([1.0, 8.0], [8.0]))
    parser.add_argument("--shadows", type=int, default=size(64, 3))
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kept, seed = Kept("hulls-audit", options.resume), options.seed
    print(
        f"Released moments, scatter and losses at δ = {DELTA:g}: {options.releases} releases on "
        "either side, and those that are compared.\n"
    )
    header = ["mechanism", "claimed ε", "white box: at least", "canaries can show", "seen by",
              "releases in all", "verdict"]  # fmt: skip
    table(header, bounds(options.claim, options.releases, seed, kept))
    print(f"Attacks on models of digits, AUC; {options.shadows} shadow models.\n")
    header = ["model", "ε", "accuracy", *KINDS, "best TPR at 1 % FPR", "AUC at most",
              "mis, standardised"]  # fmt: skip
    table(header, attacks(options.epsilon, options.shadows, seed, kept))


if __name__ == "__main__":
    main()

"""Audit of class hulls: lower bounds on ε, and membership attacks beside noise on single entries.

White box: trainings on two neighbouring data sets of made-up rows, told apart by all that was
released; broken twins claim the same ε. A family of drawn rows and the source of a transfer are
audited by what their certificate speaks of; "noise on rows" is the release of the same ε per entry.
Attacks: half of scikit-learn's digits are members, the others are outside; thresholds are fitted on
half of either. LiRA and RMIA have 64 shadow models on random halves of all rows. "At most" is what
the claim allows any attack, from the Gaussian noise that it stands for; an attack is within it
when the 95 % interval of its AUC reaches down to that. The best rate of true positives is the
largest of all attacks, on 450 rows inside and outside: it may exceed its limit by chance, and a
standard deviation is about 0.008. Bounds hold with 95 % confidence. What is done is kept in the
folder for temporary files: ``--resume`` takes it from there.
"""

import sys
import warnings
from functools import partial

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
    SourceModel,
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
FAMILIES = {"KAHM": KAHMClassifier, "membership": MembershipClassifier, "fuzzy": FuzzyClassifier}
KINDS = ("loss", "distance", "lira_online", "lira_offline", "rmia_online")


def record(epsilon):
    return Privacy(epsilon=epsilon, delta=DELTA, unit="record", domain=(0, 16))


def models(epsilon):
    """Model, what it promises, and the classifier."""
    released = {"privacy": record(epsilon), "classes": range(10), "neighbours": "add/remove"}
    entry = Privacy(epsilon=epsilon, delta=DELTA, domain=(0, 16))
    yield "hulls", "record", HullClassifier(features="identity", **released)
    yield "moments", "record", MomentClassifier(features="identity", **released)
    for name, kind in FAMILIES.items():
        yield f"{name}, rows drawn", "record", kind(features="identity", **released)
    for name, kind in FAMILIES.items():
        yield f"{name}, noise on rows", "entry", kind(privacy=entry, n_layers=1, n_components=15)


def audits(epsilon, releases, seed):
    """Name of every mechanism, and the work that finds its bound."""
    for name, (kind, settings) in MECHANISMS.items():
        unit = "person" if "person" in name else "record"
        promise = Privacy(epsilon=epsilon, delta=DELTA, unit=unit, domain=(-1, 1))
        make = factory(kind, promise, seed=seed, **settings)
        yield name, partial(audit.empirical_epsilon, make, runs=2 * releases)
    for name, kind in {**FAMILIES, "source of a transfer": SourceModel}.items():
        yield f"honest, {name}", partial(of_model, kind, epsilon, releases)
    entry = Privacy(epsilon=epsilon, delta=DELTA, domain=(-1, 1))
    yield (
        "noise on rows, per entry",
        partial(audit.release_epsilon, privacy=entry, runs=2 * releases),
    )


def of_model(kind, epsilon, releases):
    """Bound of the mechanism that the certificate of a fitted model speaks of."""
    X, y = load_digits(return_X_y=True)
    model = kind(privacy=record(epsilon), classes=range(10)).fit(X[:400], y[:400])
    inner = model.classifier_ if isinstance(model, SourceModel) else model
    return audit.mechanism_epsilon(inner, runs=2 * releases)


def bounds(epsilon, releases, seed, kept):
    """One line per mechanism."""
    for name, work in list(audits(epsilon, releases, seed))[: size(None, 1)]:
        key = f"bound, {name}, {epsilon:g}, {releases}, {seed}"
        if key not in kept:
            found = work()
            kept[key] = found.to_dict() | {"verdict": found.verdict}
            print(key, file=sys.stderr, flush=True)
        found = kept[key]
        can = "–" if found["attainable"] is None else f"{found['attainable']:.2f}"
        yield [name, f"{epsilon:g}", f"{found['epsilon']:.2f}", can, found["seen_by"],
               found["trials"], found["verdict"]]  # fmt: skip


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
    most = most_rate = 1.0
    if hasattr(fitted, "moments_") or getattr(fitted, "encoder_", None) is not None:
        mu = (getattr(fitted, "encoder_", None) or fitted).prepare(X.shape[1]).loss.value
        most, most_rate = norm.cdf(mu / np.sqrt(2)), norm.cdf(norm.ppf(0.01) + mu)
    distances = hasattr(fitted, "distances")
    score = audit.membership_inference_score(fitted, X[inside], X[outside], standardize=True)
    return {
        "accuracy": fitted.score(X[outside], y[outside]),
        "auc": {one.name: one.auc for one in report.attacks if one.applies},
        "top": max(one.auc_interval[0] for one in report.attacks if one.applies),
        "tpr": max(one.tpr_at[0.01] for one in report.attacks if one.applies),
        "most": float(most),
        "most_rate": float(most_rate),
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
            mis = "–" if found["mis"] is None else f"{found['mis']:.4f}"
            limits = ["–", "–", "–"]
            if unit != "entry":
                within = "yes" if found["top"] <= found["most"] else "NO"
                limits = [f"{found['most']:.3f}", f"{found['most_rate']:.3f}", within]
            yield [name, f"{epsilon:g} per {unit}", f"{found['accuracy']:.3f}", *each,
                   f"{found['tpr']:.3f}", *limits, mis]  # fmt: skip


def main():
    parser = options_of(__doc__)
    parser.add_argument("--claim", type=float, default=8.0, help="ε of the white box")
    parser.add_argument("--releases", type=int, default=size(2000, 20))
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
              "TPR at most", "within", "mis, standardised"]  # fmt: skip
    table(header, attacks(options.epsilon, options.shadows, seed, kept))


if __name__ == "__main__":
    main()

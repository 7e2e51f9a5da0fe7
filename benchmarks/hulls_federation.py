"""Class hulls of many parties on MNIST per record: moments that add up, beside minima of distances.

60000 rows go to so many parties at random; 540 gradient features, δ = 1e-5, add/remove; means of
several runs with cryptographic noise. "One owner": `HullClassifier` on all rows. "Moments added
up": `MomentFederation` under secure aggregation, one share of the noise from each party. "Minimum
of distances": every party adds all of its noise to its own moments, and the nearest class of the
nearest party wins (004 eq. 104). "Best party": the most accurate of the separate models by itself,
which nobody would know. What is done is kept in the folder for temporary files: ``--resume`` takes
it from there. Features are kept there too.
"""

import sys
import tempfile
import time
import warnings
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
from common import QUICK, Kept, mnist, options_of, size, table

from permea import HullClassifier, Privacy
from permea.federation import Agreement, Federation, MomentFederation, MomentParty, Party
from permea.models import features
from permea.models.features import FeatureMap, OrientedGradients
from permea.privacy import Ledger
from permea.privacy.signing import SigningKey, TrustedKeys

DELTA = 1e-5
NAMES = ("one owner", "moments added up", "minimum of distances")


class AsItIs(FeatureMap):
    """Features that were made already."""

    def _prepare(self, p):
        return p

    def _map(self, X):
        return X


features._ROWWISE += (AsItIs,)  # else rows would be given to it one by one


def gradients():
    """Gradient features of MNIST, from an earlier run where there was one: the map is public."""
    X, y, T, t = mnist()
    public = OrientedGradients(cells=size((3, 6), 3)).fit(X)
    if QUICK:
        return public.transform(X), y, public.transform(T), t
    found = []
    for part, rows in (("train", X), ("test", T)):
        path = Path(tempfile.gettempdir()) / f"permea-gradients-{part}.npy"
        if not path.exists():
            np.save(path, public.transform(rows))
        found.append(np.load(path))
    return found[0], y, found[1], t


def wanted(epsilon):
    promise = Privacy(epsilon=epsilon, delta=DELTA, unit="record", domain=(-1, 1))
    return HullClassifier(
        privacy=promise, features=AsItIs(), classes=range(10), neighbours="add/remove"
    )


def added_up(X, y, shares, epsilon):
    """One model from the noised moments of all parties under secure aggregation."""
    key, model = SigningKey.generate("owner"), wanted(epsilon)
    names = [f"p{i}" for i in range(len(shares))]
    agreement = Agreement.of(model, X.shape[1], parties=names).signed(by=key)
    trusted = TrustedKeys([key.public])
    return MomentFederation(
        [
            MomentParty(
                name, model, X[rows], y[rows], agreement=agreement, trusted=trusted,
                ledger=Ledger(),
            )
            for name, rows in zip(names, shares, strict=True)
        ]
    ).fit()  # fmt: skip


def separately(X, y, T, t, shares, epsilon):
    """Minimum of distances of separately private parties, and the best of them alone."""
    models = [wanted(epsilon).fit(X[rows], y[rows]) for rows in shares]
    assert all(model.certificate_.is_private for model in models)
    federation = Federation([Party(f"p{i}", model) for i, model in enumerate(models)],
                            records="disjoint", batch_size=5000)  # fmt: skip
    return federation.score(T, t), max(model.score(T, t) for model in models)


def equal_sums(model, X, y, shares):
    """Whether the exact sums of the parties add up to those of all rows, in all four stages."""
    plan = model.prepare(X.shape[1])
    P, mean = model.scatter_.directions, model.mean_
    stages = {
        "features": lambda r: model.feature_sums(X[r], plan).features,
        "moments": lambda r: model.moment_sums(X[r], y[r], mean, plan).second,
        "scatter": lambda r: model.scatter_sums(X[r], y[r], mean, P, plan),
        "losses": lambda r: model.loss_sums(X[r], y[r], plan),
    }
    everybody = np.concatenate(shares)
    return {
        name: bool(np.array_equal(reduce(add, map(work, shares)), work(everybody)))
        for name, work in stages.items()
    }


def measure(options, kept):
    X, y, T, t = gradients()
    for run in range(options.runs):
        random = np.random.default_rng([options.seed, run])
        order = random.permutation(len(y))
        key = f"one owner, {options.epsilon:g}, {run}"
        if key not in kept:
            start = time.perf_counter()
            model = wanted(options.epsilon).fit(X, y)
            kept[key] = [model.score(T, t), time.perf_counter() - start]
        for number in options.parties:
            shares = np.array_split(order, number)
            key = f"minimum, {options.epsilon:g}, {number}, {run}"
            if key not in kept:
                start = time.perf_counter()
                kept[key] = [*separately(X, y, T, t, shares, options.epsilon),
                             time.perf_counter() - start]  # fmt: skip
            key = f"added, {options.epsilon:g}, {number}, {run}"
            if number in options.added and key not in kept:
                start = time.perf_counter()
                model = added_up(X, y, shares, options.epsilon)
                took = time.perf_counter() - start
                same = equal_sums(model, X, y, shares) if run == 0 else {}
                kept[key] = [model.score(T, t), took, same]
            print(f"run {run}, {number} parties: done", file=sys.stderr, flush=True)


def mean_of(kept, name, runs, place=0):
    return float(np.mean([kept[f"{name}, {run}"][place] for run in range(runs)]))


def lines(options, kept):
    epsilon, runs = f"{options.epsilon:g}", options.runs
    whole = mean_of(kept, f"one owner, {epsilon}", runs)
    yield [1, f"{whole:.4f}", "–", "–", "–", "–"]
    for number in options.parties:
        name = f"added, {epsilon}, {number}"
        added = f"{mean_of(kept, name, runs):.4f}" if number in options.added else "–"
        nearest = mean_of(kept, f"minimum, {epsilon}, {number}", runs)
        best = mean_of(kept, f"minimum, {epsilon}, {number}", runs, 1)
        yield [number, "–", added, f"{nearest:.4f}", f"{whole - nearest:+.4f}", f"{best:.4f}"]


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilon", type=float, default=size(1.0, 8.0))
    parser.add_argument("--parties", type=int, nargs="*", default=size([2, 5, 10, 30, 100], [2]))
    parser.add_argument("--added", type=int, nargs="*", default=size([10, 100], [2]))
    parser.add_argument("--runs", type=int, default=size(3, 1))
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = Kept("hulls-federation", options.resume)
    measure(options, kept)
    header = ["parties", *NAMES, "lost by the minimum", "best party"]
    print(f"Test accuracy at ε = {options.epsilon:g} per record, mean of {options.runs} runs.\n")
    table(header, lines(options, kept))
    for number in options.added:
        _, took, same = kept[f"added, {options.epsilon:g}, {number}, 0"]
        equal = ", ".join(
            f"{name}: {'equal' if yes else 'NOT equal'}" for name, yes in same.items()
        )
        print(f"{number} parties added up, {took:.0f} s; exact sums against one owner: {equal}.")


if __name__ == "__main__":
    main()

"""Private federated classification on MNIST, beside 004 Tables 8-10.

Three ways to share out 60000 rows (004 §6.3): (1) ten parties with a class each, (2) twenty parties
with half a class each, (3) Q parties with rows drawn at random. Every party adds its own noise
(ε per pixel, δ = 1e-5 per pixel, d = 1) before anything else, n = 20, L = 5, branches of 1000 rows,
float32. The loss is the accuracy of one classifier of all rows minus that of the federation; both
are single runs, each with noise of its own.

Options: ``--epsilon 16 8 4 …`` (the first is used for scenario 3), ``--parties 2 100``,
``--scenarios 1 2 3``.
"""

import warnings

import numpy as np
from common import mnist, options_of, seconds, size, table

from permea import KAHMClassifier
from permea._arrays import Array
from permea._parallel import batches, run_parallel
from permea.federation import Federation, Party
from permea.privacy import Privacy

warnings.simplefilter("ignore")
CENTRAL = {
    1: 0.9478,
    1.5: 0.9629,
    2: 0.9707,
    3: 0.9779,
    4: 0.9798,
    5: 0.9819,
    8: 0.9837,
    16: 0.9851,
}
SEED = {
    1: {1: 0.9460, 1.5: 0.9633, 2: 0.9710, 3: 0.9783, 4: 0.9790, 5: 0.9813, 8: 0.9829, 16: 0.9847},
    2: {1: 0.9384, 1.5: 0.9603, 2: 0.9670, 3: 0.9733, 4: 0.9758, 5: 0.9778, 8: 0.9803, 16: 0.9813},
}
SEED_LOSS_3 = {2: 0.0030, 5: 0.0077, 10: 0.0095, 20: 0.0113, 50: 0.0119, 100: 0.0130}


def train(X: Array, y: Array, epsilon: float) -> KAHMClassifier:
    classifier = KAHMClassifier(
        branch_size=1000,
        privacy=Privacy(epsilon=epsilon, delta=1e-5, domain=(0, 1)),
        allow_single_class=True,
        n_jobs=2,
    ).fit(X, y)
    return classifier.set_params(n_jobs=1)  # queries are shared out instead, see accuracy


def accuracy(model, T, t):
    """Share of right labels; two workers take batches of queries in turn."""
    rows = [(part,) for part in batches(len(T), 1024)]
    ask = model.ask if isinstance(model, Federation) else None
    labels = run_parallel(
        lambda part: ask(T[part]).labels if ask else model.predict(T[part]), rows, n_jobs=2
    )
    return float(np.mean(np.concatenate(labels) == t))


def federation(X, y, shares, epsilon):
    parties = [Party(f"p{i}", train(X[rows], y[rows], epsilon)) for i, rows in enumerate(shares)]
    return Federation(parties, records="disjoint", topology="queries", batch_size=1024)


def shares_of(scenario, y, random):
    by_class = [np.flatnonzero(y == label) for label in range(10)]
    if scenario == 1:
        return by_class
    return [half for rows in by_class for half in np.array_split(random.permutation(rows), 2)]


def by_epsilon(scenario, data, epsilons, central, random):
    X, y, T, t = data
    rows = []
    for epsilon in epsilons:
        shares = shares_of(scenario, y, random)
        fit, fed = seconds(lambda s=shares, e=epsilon: federation(X, y, s, e))
        ask, score = seconds(lambda fed=fed: accuracy(fed, T, t))
        seed = SEED[scenario].get(epsilon)
        lost = f"{CENTRAL[epsilon] - seed:.4f}" if seed else "–"
        rows.append([f"{epsilon:g} per pixel", len(shares), f"{score:.4f}",
                     f"{central[epsilon]:.4f}", f"{central[epsilon] - score:.4f}", seed or "–",
                     lost, f"{fit:.0f}", f"{ask:.0f}"])  # fmt: skip
    print(f"**Scenario {scenario}**, beside Table {7 + scenario}.\n")
    table(["ε", "parties", "accuracy", "one classifier", "loss", "seed: accuracy", "seed: loss",
           "fit, s", "10000 queries, s"], rows)  # fmt: skip
    print(flush=True)


def by_parties(data, epsilon, numbers, central, random):
    X, y, T, t = data
    rows = []
    for number in numbers:
        shares = np.array_split(random.permutation(len(y)), number)
        fit, fed = seconds(lambda s=shares: federation(X, y, s, epsilon))
        ask, score = seconds(lambda fed=fed: accuracy(fed, T, t))
        rows.append([number, f"{score:.4f}", f"{central - score:.4f}",
                     SEED_LOSS_3.get(number, "–"), f"{fit:.0f}", f"{ask:.0f}"])  # fmt: skip
    print(
        f"**Scenario 3**, ε = {epsilon:g} per pixel, one classifier: {central:.4f}, "
        "beside Table 10.\n"
    )
    table(["parties", "accuracy", "loss", "seed: loss", "fit, s", "10000 queries, s"], rows)


def main() -> None:
    parser = options_of(__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[16.0])
    parser.add_argument("--parties", type=int, nargs="+", default=size([2, 10, 100], [2]))
    parser.add_argument("--scenarios", type=int, nargs="+", default=[1, 2, 3])
    chosen = parser.parse_args()
    data = X, y, T, t = mnist()
    random = np.random.default_rng(chosen.seed)
    central = {epsilon: accuracy(train(X, y, epsilon), T, t) for epsilon in chosen.epsilon}
    for scenario in (1, 2):
        if scenario in chosen.scenarios:
            by_epsilon(scenario, data, chosen.epsilon, central, random)
    if 3 in chosen.scenarios:
        first = chosen.epsilon[0]
        by_parties(data, first, chosen.parties, central[first], random)


if __name__ == "__main__":
    main()

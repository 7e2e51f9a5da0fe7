"""Federated classification of fabricated rows of MNIST, beside 004 Tables 8-10.

Everything is `permea.documents`: 60000 rows are shared out as in 004 §6.3, (1) ten parties with a
class each, (2) twenty parties with half a class each, (3) Q parties with rows drawn at random.
Every party partitions its rows, adds noise (ε per pixel, δ = 1e-5 per pixel, d = 1), fabricates
rows by the document's stopping rule, and learns from them (Def. 15), n = 20, L = 5, float32. One
classifier of all rows is the reference. Labels of the federation come from its merged models (101);
a check compares 200 of them with those of the parties' replies (104).

The document repeats scenario 3 ten times. Here ``--repetitions`` says how often; the tables tell.
What is done is kept in the folder for temporary files: ``--resume`` takes it from there, and
``--minutes 9`` begins no further fit after so many minutes.
"""

import sys
import time
import warnings

import numpy as np
from common import Kept, mnist, options_of, size, table

from permea import documents
from permea.federation import Federation, merged

CENTRAL = {1: 0.9478, 1.5: 0.9629, 2: 0.9707, 3: 0.9779, 4: 0.9798, 5: 0.9819, 8: 0.9837,
           16: 0.9851}  # fmt: skip
PRINTED = {
    1: {1: 0.9460, 1.5: 0.9633, 2: 0.9710, 3: 0.9783, 4: 0.9790, 5: 0.9813, 8: 0.9829, 16: 0.9847},
    2: {1: 0.9384, 1.5: 0.9603, 2: 0.9670, 3: 0.9733, 4: 0.9758, 5: 0.9778, 8: 0.9803, 16: 0.9813},
    3: {2: 0.9817, 5: 0.9770, 10: 0.9752, 20: 0.9734, 50: 0.9728, 100: 0.9717},
}
CENTRAL_3 = 0.9847  # 004 Table 10
FIRST = (16, 1, 4, 8, 2, 1.5, 3, 5)  # in this order, in case not all can be measured


def measured(data, epsilon, shares, seed, jobs):
    """Accuracy of the federation, or of one classifier where there is one share; seconds of CPU."""
    X, y, T, t = data
    start = time.process_time()
    setting = documents.fabricated_classifier_004(
        documents.noise(epsilon), allow_single_class=True, n_jobs=jobs, random_state=seed
    )
    parties = documents.parties_004(X, y, shares, setting)
    whole = merged([party.classifier for party in parties])
    labels = whole.predict(T)
    if len(parties) > 1 and not np.array_equal(Federation(parties).ask(T[:200]).labels,
                                               labels[:200]):  # fmt: skip
        raise SystemExit("The merged models and the replies of the parties disagree.")
    return float(np.mean(labels == t)), time.process_time() - start


def points(options):
    """Every run as (name, ε, scenario, Q, repetition), the most telling first."""
    for epsilon in sorted(options.epsilons, key=FIRST.index):
        for scenario in (0, 1, 2):
            yield epsilon, scenario, 0, 0
        if epsilon == options.epsilon_3:
            for repetition in range(options.repetitions):
                for number in options.parties:
                    yield epsilon, 3, number, repetition


def shares_of(point, y, seed):
    _, scenario, number, repetition = point
    if scenario == 0:
        return [np.arange(len(y))]
    return documents.shares_004(scenario, y, n_parties=number, random_state=seed + repetition)


def key(point):
    return " ".join(f"{value:g}" for value in point)


def by_epsilon(scenario, epsilons, done):
    rows = []
    for epsilon in epsilons:
        found = done.get(key((epsilon, scenario, 0, 0))), done.get(key((epsilon, 0, 0, 0)))
        if None in found:
            continue
        (score, spent), (central, _) = found
        stated, one = PRINTED[scenario].get(epsilon), CENTRAL.get(epsilon)
        rows.append([f"{epsilon:g}", f"{score:.4f}", f"{central:.4f}", f"{score - central:+.4f}",
                     f"{stated:.4f}", f"{one:.4f}", f"{stated - one:+.4f}",
                     f"{spent:.0f}"])  # fmt: skip
    print(f"**Scenario {scenario}**, beside Table {7 + scenario}; one run for each ε.\n")
    table(["ε per pixel", "federated", "one classifier", "change", "004: federated",
           "004: one classifier", "004: change", "CPU, s"], rows)  # fmt: skip


def by_parties(options, done):
    central = done.get(key((options.epsilon_3, 0, 0, 0)))
    rows = []
    for number in options.parties:
        found = [done[name] for r in range(options.repetitions)
                 if (name := key((options.epsilon_3, 3, number, r))) in done]  # fmt: skip
        if not found or central is None:
            continue
        score = np.mean([value for value, _ in found])
        stated = PRINTED[3].get(number)
        rows.append([number, len(found), f"{score:.4f}", f"{score - central[0]:+.4f}",
                     f"{stated:.4f}", f"{stated - CENTRAL_3:+.4f}",
                     f"{np.mean([spent for _, spent in found]):.0f}"])  # fmt: skip
    if rows:
        print(f"**Scenario 3**, ε = {options.epsilon_3:g} per pixel, one classifier: "
              f"{central[0]:.4f}; beside Table 10, means of 10 runs.\n")  # fmt: skip
        table(["parties", "runs", "accuracy", "change of accuracy", "004: accuracy",
               "004: change of accuracy", "CPU of a run, s"], rows)  # fmt: skip


def main() -> None:
    parser = options_of(__doc__.splitlines()[0])
    parser.add_argument("--epsilons", type=float, nargs="+", default=size(sorted(FIRST), [16.0]))
    parser.add_argument("--epsilon-3", type=float, default=16.0, help="of scenario 3")
    parser.add_argument("--parties", type=int, nargs="*",
                        default=size([2, 5, 10, 20, 50, 100], [2]))  # fmt: skip
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--minutes", type=float, default=np.inf)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = Kept(f"federation-mnist-{options.seed}", options.resume)
    data = mnist()
    start = time.perf_counter()
    for point in points(options):
        if key(point) in kept or time.perf_counter() - start > 60 * options.minutes:
            continue
        shares = shares_of(point, data[1], options.seed)
        kept[key(point)] = measured(data, point[0], shares, options.seed, options.jobs)
        print(key(point), kept[key(point)], file=sys.stderr, flush=True)
    for scenario in (1, 2):
        by_epsilon(scenario, options.epsilons, kept.done)
    by_parties(options, kept.done)


if __name__ == "__main__":
    main()

"""What a federation costs: time and bytes per query, and how they grow.

(a) In one process: `Federation.distances` beside a plain loop over the same models. (b) Over
Flower's local simulation, with the apps of the deployment: 1000 queries in one batch; the time is
that of the answer, without the start of the simulation. Bytes are those of the messages' contents,
both ways. Digits of scikit-learn, ε = 16 per pixel. Option: ``--repeats N``. A quick run leaves
(b) out.
"""

import logging
import warnings

import numpy as np
from common import options_of, seconds, size, table
from sklearn.datasets import load_digits

from permea import KAHMClassifier
from permea.federation import Federation, Party
from permea.privacy import Privacy

warnings.simplefilter("ignore")
QUERIES = size(1000, 100)


def parties_of(X, y, number):
    privacy = Privacy(epsilon=16, delta=1e-5, domain=(0, 1))
    shares = np.array_split(np.random.default_rng(0).permutation(len(y)), number)
    models = [
        KAHMClassifier(privacy=privacy, allow_single_class=True).fit(X[rows], y[rows])
        for rows in shares
    ]
    return [Party(f"p{index}", model) for index, model in enumerate(models)], models


def loop(models, queries, classes):
    best = np.full((len(queries), len(classes)), np.inf)
    for model in models:
        columns = np.searchsorted(classes, model.classes_)
        best[:, columns] = np.minimum(best[:, columns], model.distances(queries))
    return best


def overhead(X, y, queries, repeats):
    rows = []
    for number in size((2, 10, 50), (2,)):
        parties, models = parties_of(X, y, number)
        fed = Federation(parties)
        same = np.array_equal(fed.distances(queries), loop(models, queries, fed.classes_))
        pairs = [
            (
                seconds(lambda fed=fed: fed.distances(queries))[0],
                seconds(lambda m=models, f=fed: loop(m, queries, f.classes_))[0],
            )
            for _ in range(repeats)
        ]
        ours, plain = np.median(pairs, axis=0)
        ratio = np.median([a / b for a, b in pairs])
        rows.append([number, f"{1e3 * ours / QUERIES:.3f}", f"{1e3 * plain / QUERIES:.3f}",
                     f"{100 * (ratio - 1):.1f} %", "yes" if same else "NO"])  # fmt: skip
    print(f"**(a) In one process**, {QUERIES} queries, medians of {repeats} runs.\n")
    table(["parties", "ms per query", "plain loop, ms", "added", "same distances"], rows)
    print(flush=True)


def over_flower(X, y, queries):
    from permea.federation.flower.app import simulate

    logging.getLogger("flwr").setLevel(logging.ERROR)
    rows = []
    for number, n_classes in ((2, 10), (5, 10), (10, 10), (20, 10), (10, 2), (10, 5)):
        known = y < n_classes
        parties, _ = parties_of(X[known], y[known], number)
        clock = {}
        answer, channel = simulate(parties, queries, batch_size=QUERIES, on_time=clock.update)
        same = np.array_equal(answer.labels, Federation(parties).predict(queries))
        total = (channel.bytes_sent + channel.bytes_received) / QUERIES
        rows.append([number, n_classes, f"{1e3 * clock['seconds'] / QUERIES:.2f}", f"{total:.0f}",
                     f"{channel.bytes_sent / QUERIES / number:.0f}",
                     f"{channel.bytes_received / QUERIES / number:.0f}",
                     "yes" if same else "NO"])  # fmt: skip
    print(f"**(b) Over Flower's simulation**, {QUERIES} queries of {queries.shape[1]} float64.\n")
    table(["parties", "classes", "ms per query", "bytes per query", "to a party", "back",
           "same labels"], rows)  # fmt: skip


def main() -> None:
    parser = options_of(__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=size(5, 1))
    chosen = parser.parse_args()
    X, y = load_digits(return_X_y=True)
    X = X / 16
    queries = X[-QUERIES:]
    overhead(X, y, queries, chosen.repeats)
    if not chosen.quick:
        over_flower(X, y, queries)


if __name__ == "__main__":
    main()

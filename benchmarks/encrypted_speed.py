"""Encrypted arg min: key generation, encryption, evaluation, decryption, sizes, queries per minute.

Run ``python benchmarks/encrypted_speed.py`` (two processes; some minutes), or choose settings:
``python benchmarks/encrypted_speed.py --settings 3x10x8 100x10x8 --jobs 2``. ``--accuracy`` shows
what quantisation costs on digits instead (plain arithmetic, seconds). A setting is
parties × classes × bits, with an optional number of queries: ``3x10x12@1`` has the circuit that is
fastest for one. Without it there is a full batch for each process. All labels are checked against
the plain arg min; the run fails when one differs.
"""

import numpy as np
from common import options_of, peak_memory, seconds, size, table
from sklearn.datasets import load_digits
from sklearn.metrics import pairwise_distances

from permea.federation.encryption import Quantiser, get_scheme, infinity_code, plain_labels

SETTINGS = [
    "3x10x8@1",
    "3x10x12@1",
    "3x10x16@1",
    "10x10x12@1",
    "10x25x12@1",
    "3x10x8",
    "3x10x12",
    "3x10x16",
    "10x10x8",
    "10x10x12",
    "10x25x8",
    "10x25x12",
    "30x10x8",
    "100x10x8",
]
HEADER = [
    "parties × classes × bits",
    "circuit",
    "N, log₂ q",
    "queries",
    "keygen s",
    "encrypt s/party",
    "evaluate s",
    "decrypt s",
    "evaluation key MB",
    "upload MB/party",
    "result MB",
    "memory of evaluation MiB",
    "queries/min",
]


def measure(setting, jobs, seed=0):
    numbers, _, asked = setting.partition("@")
    parties, classes, bits = (int(x) for x in numbers.split("x"))
    scheme = get_scheme("bfv").for_queries(
        int(asked) if asked else None, n_parties=parties, n_classes=classes, bits=bits, n_jobs=jobs
    )
    n_queries = int(asked) if asked else jobs * scheme.batch
    shape = (scheme.n_parties, n_queries, scheme.n_classes)
    codes = np.random.default_rng(seed).integers(0, infinity_code(scheme.bits) + 1, shape)
    keygen, keys = seconds(scheme.keygen)
    encrypt, answers = seconds(
        lambda: [scheme.encrypt(keys.public, row, i) for i, row in enumerate(codes)]
    )
    with peak_memory() as memory:
        evaluate, result = seconds(lambda: scheme.aggregate(keys.evaluation, answers))
    decrypt, labels = seconds(lambda: scheme.decrypt(keys.secret, result))
    if not (labels == plain_labels(codes)).all():
        raise SystemExit(f"{setting}: a decrypted label differs from the plain arg min")
    chosen = scheme.seal_parameters
    mb = [len(x) / 1e6 for x in (keys.evaluation.to_bytes(), answers[0], result)]
    return [
        " × ".join(str(x) for x in (scheme.n_parties, scheme.n_classes, scheme.bits)),
        scheme.circuit,
        f"{chosen.degree}, {chosen.prime_bits * (chosen.n_primes + 1)}",
        n_queries,
        f"{keygen:.2f}",
        f"{encrypt / scheme.n_parties:.2f}",
        f"{evaluate:.2f}",
        f"{decrypt:.3f}",
        f"{mb[0]:.0f}",
        f"{mb[1]:.1f}",
        f"{mb[2]:.2f}",
        f"{memory['growth']:.0f}",
        f"{60 * n_queries / evaluate:.0f}",
    ]


def digits_distances():
    """Distances of 500 held-out digits to the nearest row of each class at each of 3 parties."""
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    order = np.random.default_rng(0).permutation(len(X))
    query, train = order[:500], order[500:]
    distances = np.empty((3, 500, 10))
    for party, rows in enumerate(np.array_split(train, 3)):
        gaps = pairwise_distances(X[query], X[rows])
        for c in range(10):
            distances[party, :, c] = gaps[:, y[rows] == c].min(axis=1)
    return distances, y[query]


def accuracy():
    distances, truth = digits_distances()
    exact = plain_labels(distances)
    rows = [["exact", "", "1.000", f"{np.mean(exact == truth):.3f}"]]
    for bits in (3, 4, 5, 6, 8, 10, 12, 16):
        quantiser = Quantiser(bits=bits, high=8.0)
        labels = plain_labels(quantiser.codes(distances))
        agree, right = np.mean(labels == exact), np.mean(labels == truth)
        rows.append([bits, f"{quantiser.step:.4f}", f"{agree:.3f}", f"{right:.3f}"])
    print("Digits, 3 parties, nearest row of a class, scale [0, 8], 500 queries.\n")
    table(["bits", "step", "equal to exact labels", "accuracy"], rows)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--settings", nargs="+", default=size(SETTINGS, ["2x2x4"]))
    parser.add_argument("--jobs", type=int, default=size(2, 1))
    parser.add_argument("--accuracy", action="store_true")
    options = parser.parse_args()
    if options.accuracy:
        accuracy()
        return
    measure("2x2x4", options.jobs)  # starts the worker processes
    print(f"{options.jobs} processes; a batch for each where the number of queries is not 1.\n")
    table(HEADER, [measure(setting, options.jobs, options.seed) for setting in options.settings])


if __name__ == "__main__":
    main()

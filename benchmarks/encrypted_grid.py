"""Encrypted labels against the plain arg min: 200 cases per setting over parties, classes and bits.

A sixth of the cases each: random codes, many ties, missing classes, all codes equal, codes next to
infinity, and (half of the last sixth) nobody knows any class. A case passes when the decrypted
label is the plain arg min of the quantised distances, ties to the lowest class. Each setting uses
the circuit that is fastest for its cases. The whole grid takes some minutes on two cores;
``--parties``, ``--classes`` and ``--bits`` choose a part of it, ``--cases`` their number. Settings
that are done are kept in the folder for temporary files: ``--resume`` takes them from there.
"""

import itertools
import sys

import numpy as np
from common import Kept, options_of, seconds, size, table

from permea.federation.encryption import get_scheme, infinity_code, plain_labels
from permea.federation.encryption.bfv import fastest_circuit

BATCHES = 4  # ciphertexts of so many are held at once: all of 10 × 25 × 12 would take 20 GB


def cases(generator, n_parties, n_cases, n_classes, bits):
    top, shape = infinity_code(bits), (n_parties, n_cases, n_classes)
    codes = generator.integers(0, top + 1, shape)
    kind = np.arange(n_cases) % 6
    few = generator.integers(0, 3, shape) + generator.integers(0, top - 2, (1, n_cases, 1))
    codes = np.where((kind == 1)[None, :, None], few, codes)
    codes[(generator.random(shape) < 0.5) & (kind == 2)[None, :, None]] = top
    codes[:, kind == 3] = generator.integers(0, top + 1, (1, (kind == 3).sum(), 1))
    codes[:, kind == 4] = top - generator.integers(0, 2, codes[:, kind == 4].shape)
    codes[:, (kind == 5) & (np.arange(n_cases) % 4 == 1)] = top
    return codes


def decrypted(scheme, keys, codes):
    """Labels and seconds of evaluation, a few batches at a time."""
    labels, total, step = [], 0.0, BATCHES * scheme.batch
    for start in range(0, codes.shape[1], step):
        part = codes[:, start : start + step]
        sent = [scheme.encrypt(keys.public, row, i) for i, row in enumerate(part)]
        took, result = seconds(lambda sent=sent: scheme.aggregate(keys.evaluation, sent))
        labels.append(scheme.decrypt(keys.secret, result))
        total += took
    return np.concatenate(labels), total


def measure(n_parties, n_classes, bits, n_cases, jobs, seed):
    circuit = fastest_circuit(n_parties, n_classes, bits, n_cases)
    scheme = get_scheme("bfv")(
        n_parties=n_parties, n_classes=n_classes, bits=bits, circuit=circuit, n_jobs=jobs
    )
    random = np.random.default_rng([n_parties, n_classes, bits, seed])
    codes = cases(random, n_parties, n_cases, n_classes, bits)
    said, took = decrypted(scheme, scheme.keygen(), codes)
    equal = int(np.sum(said == plain_labels(codes)))
    smallest = codes.min(axis=0)
    ties = int(np.sum(np.count_nonzero(smallest == smallest.min(1)[:, None], axis=1) > 1))
    row = [n_parties, n_classes, bits, circuit, -(-n_cases // scheme.batch), n_cases, ties]
    return [*row, f"{equal} of {n_cases}", f"{took:.1f}"]


def main():
    parser = options_of(__doc__)
    parser.add_argument("--parties", nargs="+", type=int, default=size([2, 3, 5, 10], [2]))
    parser.add_argument("--classes", nargs="+", type=int, default=size([2, 10, 25], [2, 3]))
    parser.add_argument("--bits", nargs="+", type=int, default=size([8, 12], [4]))
    parser.add_argument("--cases", type=int, default=size(200, 24))
    parser.add_argument("--jobs", type=int, default=size(2, 1))
    parser.add_argument("--resume", action="store_true")
    chosen = parser.parse_args()
    kept = Kept(f"encrypted-grid-{chosen.cases}-{chosen.seed}", chosen.resume)
    rows = []
    for bits, p, c in itertools.product(chosen.bits, chosen.parties, chosen.classes):
        name = f"{p} {c} {bits}"
        if name not in kept:
            kept[name] = measure(p, c, bits, chosen.cases, chosen.jobs, chosen.seed)
        rows.append(kept[name])
        print(*rows[-1], file=sys.stderr, flush=True)
    table(["parties", "classes", "bits", "circuit", "batches", "cases", "of them ties", "equal",
           "evaluate, s"], rows)  # fmt: skip
    if any(row[-2] != f"{chosen.cases} of {chosen.cases}" for row in rows):
        raise SystemExit("a decrypted label differs from the plain arg min")


if __name__ == "__main__":
    main()

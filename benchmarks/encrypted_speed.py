"""Encrypted arg min: key generation, encryption, evaluation, decryption, sizes, queries per minute.

Run ``python benchmarks/encrypted_speed.py`` (two processes; about 15 minutes), or choose settings:
``python benchmarks/encrypted_speed.py --settings 3x10x8 100x10x8 --jobs 2``. A setting is
parties × classes × bits, with an optional circuit: ``3x10x12:thermometer``. Every row asks one full
batch of queries, checks all labels against the plain arg min, and fails when one differs.
"""

import argparse

import numpy as np
from common import peak_memory, seconds, table

from permea.federation.encryption import get_scheme, infinity_code, plain_labels

SETTINGS = [
    "3x10x8",
    "3x10x8:pairs",
    "3x10x12",
    "3x10x12:thermometer",
    "3x10x16",
    "10x10x8",
    "10x25x8",
    "10x10x12",
    "10x25x12",
    "30x10x8",
    "100x10x8",
]
HEADER = [
    "parties × classes × bits",
    "circuit",
    "N, log₂ q",
    "batch",
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


def make(setting, jobs):
    size, _, circuit = setting.partition(":")
    parties, classes, bits = (int(x) for x in size.split("x"))
    return get_scheme("bfv")(
        n_parties=parties, n_classes=classes, bits=bits, circuit=circuit or "auto", n_jobs=jobs
    )


def measure(setting, jobs):
    scheme = make(setting, jobs)
    shape = (scheme.n_parties, scheme.batch, scheme.n_classes)
    codes = np.random.default_rng(0).integers(0, infinity_code(scheme.bits) + 1, shape)
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
        scheme.batch,
        f"{keygen:.2f}",
        f"{encrypt / scheme.n_parties:.2f}",
        f"{evaluate:.2f}",
        f"{decrypt:.3f}",
        f"{mb[0]:.0f}",
        f"{mb[1]:.1f}",
        f"{mb[2]:.2f}",
        f"{memory['growth']:.0f}",
        f"{60 * scheme.batch / evaluate:.0f}",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", nargs="+", default=SETTINGS)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    measure("2x2x4", options.jobs)  # starts the worker processes
    print(f"One full batch per row, {options.jobs} processes.\n")
    table(HEADER, [measure(setting, options.jobs) for setting in options.settings])


if __name__ == "__main__":
    main()

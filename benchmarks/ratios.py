"""Ratios of times within one run, beside the stored ones: a guard against code that became slow.

``python -m benchmarks check`` measures them anew and fails where one is more than 30 % above the
stored one; ``--store`` keeps the new ones. Both sides of a ratio take turns in one process, on one
thread, and processor time is counted: other work on the machine hardly matters. No file is needed.
"""

import json
import subprocess
import sys
import time
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

STORED = Path(__file__).parent / "ratios.json"
LIMIT = 1.3


def alternately(ours, reference, rounds=7):
    """Ratio of the smallest processor times of two functions that take turns."""
    times = np.full((rounds, 2), np.inf)
    for row in times:
        for column, work in enumerate((ours, reference)):
            start = time.process_time()
            work()
            row[column] = time.process_time() - start
    best = times[1:].min(axis=0)  # the first round prepares what is prepared once
    return float(best[0] / best[1])


def clouds(n_rows, n_features, n_classes=5):
    """Float32 rows of classes that overlap, and their labels."""
    random = np.random.default_rng(0)
    y = random.integers(n_classes, size=n_rows)
    centres = random.normal(size=(n_classes, n_features))
    spread = np.geomspace(3, 0.1, n_features)
    return (centres[y] + random.normal(size=(n_rows, n_features)) * spread).astype(np.float32), y


def classifier():
    """Fit, predictions and one query of the KAHM classifier, beside brute-force neighbours."""
    from sklearn.neighbors import KNeighborsClassifier

    from permea import KAHMClassifier, KernelAffineHullMachine

    X, y = clouds(5000, 400)
    clf = KAHMClassifier(branch_size=500, random_state=0).fit(X[:4000], y[:4000])
    peers = KNeighborsClassifier(3, algorithm="brute").fit(X[:4000], y[:4000])
    M = X[:1000] @ X[:1000].T
    many, one = X[4000:], X[4000:4001]
    yield (
        "KAHM: one machine of 1000 × 400, in products of its size",
        lambda: KernelAffineHullMachine().fit(X[:1000]),
        lambda: M @ X[:1000],
    )
    yield (
        "KAHM: 1000 predictions, in those of 3-NN",
        lambda: clf.predict(many),
        (lambda: peers.predict(many)),
    )
    yield (
        "KAHM: one prediction, in one of 3-NN",
        lambda: clf.predict(one),
        (lambda: peers.predict(one)),
    )


def noise():
    """Exact noise beside numpy's."""
    from permea.privacy.gaussian import discrete_gaussian
    from permea.privacy.sampling import CryptographicBits, discrete_laplace

    n = 2_000_000
    random = np.random.default_rng(0)
    plain = lambda: random.laplace(size=n)  # noqa: E731
    bits = CryptographicBits()
    yield (
        "exact Gaussian noise, in numpy's float Laplace",
        (lambda: discrete_gaussian(2.0**32, n, bits)),
        plain,
    )
    yield (
        "exact Laplace noise, in numpy's float Laplace",
        (lambda: discrete_laplace(Fraction(1, 2**20), n, bits)),
        plain,
    )


def federation():
    """A federation of 50 parties in one process beside a loop over their models."""
    from permea import KAHMClassifier
    from permea.federation import Federation, Party
    from permea.privacy import Privacy

    X, y = clouds(3000, 40)
    promise = Privacy(epsilon=16, delta=1e-5, domain=(-20, 20))
    X = np.clip(X, -20, 20)
    models = [
        KAHMClassifier(n_components=8, privacy=promise).fit(X[part], y[part])
        for part in np.array_split(np.arange(len(X)), 50)
    ]
    together = Federation([Party(f"party {i}", model) for i, model in enumerate(models)])
    yield (
        "federation of 50 parties, in a loop over the models",
        (lambda: together.distances(X[:500])),
        lambda: [model.distances(X[:500]) for model in models],
    )


def encryption():
    """One encrypted query beside a product of two ciphertexts of its parameters."""
    from permea.federation.encryption.bfv import BFV
    from permea.federation.encryption.engine import Engine
    from permea.federation.encryption.scheme import unpack

    for bits in (8, 16):
        scheme = BFV.for_queries(1, n_parties=3, n_classes=10, bits=bits)
        keys = scheme.keygen()
        codes = np.arange(30).reshape(3, 1, 10)
        sent = [scheme.encrypt(keys.public, part, i) for i, part in enumerate(codes)]
        engine = Engine(scheme.seal_parameters, keys.evaluation.parts)
        cipher = engine.load(unpack(sent[0], "ciphertext")[1][0])
        yield (
            f"one encrypted query, 3 × 10 × {bits} bits, in products of ciphertexts",
            lambda scheme=scheme, keys=keys, sent=sent: scheme.aggregate(keys.evaluation, sent),
            lambda engine=engine, cipher=cipher: [engine.multiply(cipher, cipher)],
        )


def starts():
    """Processor time of new interpreters."""

    def run(*words):
        return lambda: subprocess.run([sys.executable, *words], check=True, capture_output=True)

    yield (
        "import permea, in import sklearn",
        run("-c", "import permea"),
        run("-c", "import sklearn"),
    )
    yield (
        "permea --version, in import sklearn",
        run("-m", "permea", "--version"),
        (run("-c", "import sklearn")),
    )


def children_alternately(ours, reference, rounds=5):
    """The same ratio for functions whose work is done in child processes."""
    import resource

    def spent():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    times = np.full((rounds, 2), np.inf)
    for row in times:
        for column, work in enumerate((ours, reference)):
            start = spent()
            work()
            row[column] = spent() - start
    best = times.min(axis=0)
    return float(best[0] / best[1])


def measured():
    """All ratios by name."""
    found = {}
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        for group in (classifier, noise, federation, encryption, starts):
            measure = children_alternately if group is starts else alternately
            for name, ours, reference in group():
                found[name] = round(measure(ours, reference), 3)
                print(f"{found[name]:8.3f}  {name}", file=sys.stderr, flush=True)
    return found


def table_of(found, stored):
    """Markdown lines of new and stored ratios, and the names of those beyond the limit."""
    lines = ["| ratio of processor times | stored | now | now / stored |", "|---|---|---|---|"]
    slow = []
    for name, now in found.items():
        before = stored.get(name)
        change = "new" if before is None else f"{now / before:.2f}"
        lines.append(f"| {name} | {'–' if before is None else before} | {now} | {change} |")
        if before is not None and now > LIMIT * before:
            slow.append(name)
    return lines, slow


def check(store=False):
    """Compare with the stored ratios, or keep new ones; the exit code."""
    found = measured()
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    lines, slow = table_of(found, stored)
    print("\n".join(lines))
    if store:
        STORED.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
        return 0
    gone = sorted(set(stored) - set(found))
    for name in slow:
        print(f"slower than stored by more than 30 %: {name}")
    for name in gone:
        print(f"stored, but not measured any more: {name}")
    return 1 if slow or gone else 0

"""Processor time of a federation in one process as the number of parties grows.

Aggregation of 100 questions (introductions apart), the search for suspicious parties, and rounds of
moments (200 rows and 8 columns per party): with own noise, and with shares of the noise in a secure
sum (up to 250 parties; where seal-python is installed). The last line is the exponent of a power of
the number of parties: 1 is linear growth. Nothing is trained: distances are drawn at random.
"""

import time
import warnings
from importlib.util import find_spec

import numpy as np
from common import options_of, size, table

from permea import MomentClassifier
from permea.federation import Agreement, Federation, MomentFederation, MomentParty, Schema
from permea.federation.aggregate import suspicions
from permea.privacy import Ledger, Privacy
from permea.privacy.signing import SigningKey, TrustedKeys

warnings.simplefilter("ignore")
PARTIES = size((125, 250, 500, 1000), (4, 8))
MOST_ENCRYPTED = 250


class Stub:
    """A party that gives random distances at once."""

    certificate, objections = None, ()

    def __init__(self, number, rng):
        self.name = f"p{number}"
        self.schema = Schema(n_features=3, classes=tuple(range(5)))
        self._found = rng.random((100, 5))

    def distances(self, X, classes=None, *, client=""):
        return self._found[: len(X)]


def processor(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def moments(number, noise, rng):
    promise = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))
    wanted = MomentClassifier(privacy=promise, features="identity", classes=[0, 1])
    names, key = [f"p{index}" for index in range(number)], SigningKey.generate("owner")
    agreed = Agreement.of(wanted, 8, parties=names, noise=noise).signed(by=key)
    trusted = TrustedKeys([key.public])
    X, y = rng.random((200, 8)), rng.integers(0, 2, 200)
    parties = [
        MomentParty(name, wanted, X, y, agreement=agreed, trusted=trusted, ledger=Ledger())
        for name in names
    ]
    return processor(lambda: MomentFederation(parties).fit())


def main():
    options_of(__doc__).parse_args()
    rng = np.random.default_rng(0)
    X, rows = rng.random((100, 3)), []
    for number in PARTIES:
        parties = [Stub(index, rng) for index in range(number)]
        stack = rng.random((number, 100, 5))
        federation = []
        encrypted = find_spec("seal") and number <= MOST_ENCRYPTED
        rows.append([
            number,
            processor(lambda p=parties, f=federation: f.append(Federation(p))),
            processor(lambda f=federation: f[0].ask(X)),
            processor(lambda s=stack, p=parties: suspicions(s, [one.name for one in p], X)),
            moments(number, "own", rng),
            moments(number, "shared", rng) if encrypted else np.nan,
        ])  # fmt: skip
        print(*rows[-1], flush=True)
    found = np.array(rows, dtype=float)
    exponents = []
    for column in found[:, 1:].T:
        known = np.isfinite(column)
        slope = np.polyfit(np.log(found[known, 0]), np.log(column[known] + 1e-9), 1)[0]
        exponents.append(f"{slope:.2f}" if known.sum() > 1 else "–")
    print()
    head = ["parties", "introductions", "100 questions", "suspicions", "own noise", "shared noise"]
    shown = [[f"{v:.0f}" if i == 0 else f"{v:.3f}" for i, v in enumerate(row)] for row in found]
    table(head, [*shown, ["exponent", *exponents]])


if __name__ == "__main__":
    main()

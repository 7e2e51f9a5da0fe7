"""Small parties for tests: seeded, so that a failure can be looked at."""

import warnings

import numpy as np

from permea import KAHMClassifier
from permea.federation import Party
from permea.privacy import Privacy, release

PRIVACY = Privacy(epsilon=16, delta=1e-5, domain=(0, 1))
SEEDED = "seeded"
PLAIN = ("not private", "raw rows")


def train(X, y, **options):
    """A classifier as a party of the tests has it."""
    settings = {"n_components": 10, "n_layers": 3, "allow_single_class": True, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KAHMClassifier(**settings).fit(X, y)


def private_party(name, X, y, seed=0, **options):
    clf = train(X, y, privacy=PRIVACY, random_state=seed, **options)
    return Party(name, clf, consent=SEEDED)


def plain_party(name, X, y, **options):
    return Party(name, train(X, y, **options), consent=PLAIN)


def noised(X, seed):
    """Rows behind the wall, so that all ways to share them out see the same noise."""
    return release(X, PRIVACY, random_state=seed).data


class Fake:
    """A party that answers whatever a test wants."""

    def __init__(self, name, honest, answer=None, schema=None):
        self.name, self._honest, self._answer = name, honest, answer
        self.schema = honest.schema if schema is None else schema
        self.certificate, self.objections = honest.certificate, honest.objections
        self.calls = 0

    def distances(self, X, classes=None, *, client="unknown"):
        self.calls += 1
        honest = self._honest.distances(X, classes)
        return honest if self._answer is None else self._answer(honest, self.calls)


def blobs(n_classes=3, n_rows=40, n_features=4, seed=0):
    """Clouds inside the unit cube."""
    random = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), n_rows)
    centres = random.random((n_classes, n_features))
    return np.clip(centres[y] + 0.08 * random.normal(size=(len(y), n_features)), 0, 1), y

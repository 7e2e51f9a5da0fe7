"""Rule 8 of the wall: what comes after the noise never sees the raw rows.

The release is replaced by one that hands out rows which have nothing to do with the raw ones, and
wipes the raw ones before it returns. If anything behind the wall still reached them, the fitted
classifier would differ from one that was trained on the substitute alone.
"""

import numpy as np
import pytest

import permea.compose.wall as wall
from permea import (
    FuzzyClassifier,
    KAHMClassifier,
    KernelAffineHullMachine,
    MembershipClassifier,
    Privacy,
    ReconstructionClassifier,
)
from permea.privacy import release

PRIVACY = Privacy(epsilon=2, domain=(0, 1))
CLASSIFIERS = {
    "kahm": lambda **p: KAHMClassifier(n_components=3, n_layers=2, branch_size=25, **p),
    "membership": lambda **p: MembershipClassifier(n_components=3, n_layers=2, **p),
    "fuzzy": lambda **p: FuzzyClassifier(n_components=3, branch_size=25, **p),
    "general": lambda **p: ReconstructionClassifier(
        KernelAffineHullMachine(n_components=3), n_layers=2, branch_size=25, **p
    ),
}


@pytest.fixture
def data():
    random = np.random.default_rng(0)
    return random.random((90, 5)), np.repeat([0, 1, 2], 30)


def substitute():
    return np.random.default_rng(99).random((90, 5))


@pytest.fixture
def wiping_release(monkeypatch):
    """A wall that lets a substitute through and fills the raw rows with a poison value."""

    def release_substitute(X, privacy, **kwargs):
        released = release(X, privacy, **kwargs)
        X.setflags(write=True)
        X.fill(1e6)
        return type(released)(substitute(), released.certificate)

    monkeypatch.setattr(wall, "release", release_substitute)


@pytest.mark.parametrize("fabricate", [False, True, "discrepancy"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_nothing_behind_the_wall_reads_raw_rows(data, wiping_release, name, fabricate):
    X, y = data
    private = CLASSIFIERS[name](privacy=PRIVACY, random_state=0, fabricate=fabricate)
    private.fit(X.copy(), y)
    queries = substitute()[:10]
    distances = private.distances(queries)
    assert distances.max() < 10, "the poison of the wiped rows got through"
    again = CLASSIFIERS[name](privacy=PRIVACY, random_state=0, fabricate=fabricate)
    again.fit(np.random.default_rng(5).random(X.shape), y)
    np.testing.assert_array_equal(distances, again.distances(queries))


def test_the_check_itself_can_fail(data, wiping_release):
    """Negative control: the seed's stopping rule reads raw rows, and is caught."""
    X, y = data
    fits = []
    for raw in (X.copy(), np.random.default_rng(5).random(X.shape) * 0.01):
        clf = CLASSIFIERS["kahm"](privacy=PRIVACY, random_state=0, fabricate="original")
        assert not clf.fit(raw, y).certificate_.is_private
        fits.append(clf.holds_private_rows_)
    assert all(fits)


def test_rows_are_touched_once(data, monkeypatch):
    calls = []

    def counting_release(X, privacy, **kwargs):
        calls.append(X.shape)
        return release(X, privacy, **kwargs)

    monkeypatch.setattr(wall, "release", counting_release)
    KAHMClassifier(n_components=3, n_layers=2, privacy=PRIVACY, fabricate=True).fit(*data)
    assert calls == [(90, 5)]


def test_a_private_fit_is_different_every_time_and_a_seeded_one_says_so(data):
    X, y = data
    one, two = (CLASSIFIERS["kahm"](privacy=PRIVACY).fit(X, y) for _ in range(2))
    assert np.any(one.distances(X) != two.distances(X))
    assert one.certificate_.is_private
    seeded = CLASSIFIERS["kahm"](privacy=PRIVACY, random_state=1).fit(X, y)
    assert "not private: seeded" in str(seeded.certificate_)


def test_the_budget_is_checked_before_anything_is_computed(data, monkeypatch):
    from permea.privacy import Budget, BudgetExceededError, Ledger

    ledger = Ledger(budget=Budget(epsilon=3.0, delta=0.0, unit="entry"))
    clf = CLASSIFIERS["kahm"](privacy=PRIVACY, ledger=ledger).fit(*data)
    with pytest.raises(BudgetExceededError):
        clf.fit(*data)

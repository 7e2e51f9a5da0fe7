"""The three families are interchangeable wherever a classifier stands."""

import numpy as np
import pytest
from sklearn.base import clone

from permea import (
    FuzzyClassifier,
    HullClassifier,
    KAHMClassifier,
    Ledger,
    MembershipClassifier,
    Privacy,
    load,
    save,
)

FRONTS = {
    "kahm": KAHMClassifier(),
    "membership": MembershipClassifier(),
    "membership, gamma": MembershipClassifier(disturbance="gamma", n_layers=2),
    "fuzzy": FuzzyClassifier(),
}
REACHED = {"kahm": 0.99, "membership": 0.98, "membership, gamma": 0.96, "fuzzy": 0.97}


@pytest.fixture(params=FRONTS)
def front(request):
    return request.param, clone(FRONTS[request.param])


def test_digits_are_read(front, digits):
    name, clf = front
    X_train, X_test, y_train, y_test = digits
    assert clf.fit(X_train, y_train).score(X_test, y_test) >= REACHED[name]


@pytest.mark.parametrize("fabricate", [False, True])
def test_privacy_and_fabrication_work(front, digits, fabricate, tmp_path):
    _, clf = front
    X_train, X_test, y_train, y_test = digits
    clf.set_params(privacy=Privacy(epsilon=16, delta=1e-5, domain=(0, 1)), fabricate=fabricate)
    clf.fit(X_train, y_train)
    assert clf.score(X_test, y_test) > 0.95
    assert clf.certificate_.is_private
    assert len(clf.certificate_.steps) == int(fabricate)
    again = load(save(clf, tmp_path / "model.permea"))
    np.testing.assert_array_equal(again.distances(X_test[:40]), clf.distances(X_test[:40]))


def test_clones_charge_the_same_ledger(front, blobs):
    _, clf = front
    X, y = blobs
    ledger = Ledger()
    clf.set_params(
        n_components=2,
        n_layers=1,
        ledger=ledger,
        privacy=Privacy(epsilon=1, domain=(-10, 10)),
    )
    for _ in range(3):
        clone(clf).fit(X, y)
    assert len(ledger) == 3
    assert ledger.spent.epsilon == pytest.approx(3)


def test_a_ledger_in_another_process_refuses_to_be_charged(blobs):
    import pickle

    travelled = pickle.loads(pickle.dumps(Ledger()))
    clf = KAHMClassifier(
        n_components=2, n_layers=1, ledger=travelled, privacy=Privacy(epsilon=1, domain=(-9, 9))
    )
    with pytest.raises(RuntimeError, match="copy in another process"):
        clf.fit(*blobs)


def test_memberships_follow_the_distances(digits):
    X_train, X_test, y_train, _ = digits
    clf = FuzzyClassifier().fit(X_train, y_train)
    degrees = clf.memberships(X_test)
    np.testing.assert_allclose(degrees, np.exp(-(clf.distances(X_test) ** 2) / 128))
    np.testing.assert_array_equal(clf.classes_[degrees.argmax(axis=1)], clf.predict(X_test))


def test_an_explanation_names_the_class_the_rules_and_their_regions(digits):
    X_train, X_test, y_train, _ = digits
    clf = FuzzyClassifier(n_rules=12).fit(X_train, y_train)
    for x in X_test[:5]:
        why = clf.explain(x, n_rules=3)
        assert why.label == clf.predict([x])[0]
        assert set(why.memberships) == set(clf.classes_.tolist())
        fulfilments = [rule.fulfilment for rule in why.region.rules]
        assert fulfilments == sorted(fulfilments, reverse=True)
        assert f"class {why.label}" in str(why)
    assert len(clf.rules(3)) == 12
    with pytest.raises(ValueError, match="not one of the classes"):
        clf.rules("three")


@pytest.mark.parametrize(("length", "one_rule"), [(1.0, True), (6.0, False)])
def test_drawn_classes_of_one_shape_have_one_rule_each(length, one_rule, tmp_path):
    """Where classes differ in their means alone, further rules would follow single drawn rows."""
    rng = np.random.default_rng(0)
    y = np.arange(3000) % 3
    lengths = np.ones((3, 4))
    lengths[np.arange(3), np.arange(3)] = length
    X = 0.5 + 0.03 * (2 * np.eye(4)[y] + rng.normal(size=(3000, 4)) * lengths[y])
    promise = Privacy(epsilon=4, delta=1e-5, unit="record", domain=(0, 1))
    hulls = HullClassifier(privacy=promise, classes=range(3), random_state=0).fit(X, y)
    clf = FuzzyClassifier(random_state=0).learn_drawn(hulls)
    assert all((len(clf.rules(label)) == 1) == one_rule for label in range(3))
    assert clf.score(X, y) > hulls.score(X, y) - 0.02
    again = load(save(clf, tmp_path / "model.permea"))
    assert again.n_rules == "auto"
    np.testing.assert_array_equal(again.distances(X[:40]), clf.distances(X[:40]))
    many = FuzzyClassifier(n_rules=0.5, random_state=0).learn_drawn(hulls)
    assert len(many.rules(0)) > 1
    assert many.score(X, y) < clf.score(X, y) - 0.2 or not one_rule

"""The suite on the library's own classifier: what it remembers, and what noise makes it forget."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from permea import KAHMClassifier, Privacy, audit, release


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))[:600]
    return X[order] / 16, y[order]


def scores(clf, X, y):
    kinds = ["loss", "distance", "lira_online", "rmia_online"]
    return audit.attack(
        clf.fit(X[:300], y[:300]), X[:300], y[:300], X[300:], y[300:], kinds=kinds, n_shadows=6
    )


def test_noise_makes_it_forget(digits):
    X, y = digits
    settings = {"n_components": 10, "n_layers": 2}
    open_ = scores(KAHMClassifier(**settings, random_state=0), X, y)
    privacy = Privacy(epsilon=0.5, domain=(0, 1))
    noised = scores(KAHMClassifier(privacy=privacy, **settings, random_state=0), X, y)
    for kind in ("distance", "lira_online"):
        assert open_[kind].auc > 0.75, kind
        assert noised[kind].auc < open_[kind].auc - 0.1, kind
    assert noised.membership_inference_score < open_.membership_inference_score
    claimed = [row for row in noised.guarantees if row["kind"] == "claimed"]
    assert [row["unit"] for row in claimed] == ["entry", "record"]
    assert claimed[0]["epsilon"] == 0.5
    assert claimed[1]["epsilon"] > 0.5


def test_the_librarys_release_keeps_its_promise_and_the_bound_is_tight():
    promise = Privacy(epsilon=1.0, domain=(0, 1))
    bounds = [
        audit.release_epsilon(
            lambda Y: release(Y, promise).data,
            domain=(0, 1),
            n_columns=5,
            canaries=20_000,
            overshoot=1.0,
            random_state=seed,
        ).epsilon
        for seed in range(10)
    ]
    assert sum(bound > 1.0 for bound in bounds) <= 6  # probability below 1e-6 at 5 %
    assert np.mean(bounds) > 0.85


def test_canaries_find_the_rows_that_an_open_classifier_keeps(digits):
    X, y = digits
    clf = KAHMClassifier(n_components=10, n_layers=2, random_state=0)
    found = audit.empirical_epsilon(clf, X, y, canaries=120)
    assert found.epsilon > 1.0
    private = KAHMClassifier(
        n_components=10, n_layers=2, privacy=Privacy(epsilon=0.1, domain=(0, 1)), random_state=0
    )
    assert audit.empirical_epsilon(private, X, y, canaries=120).epsilon < found.epsilon

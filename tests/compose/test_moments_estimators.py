"""Classifier, regressor and fabricated records from noised moments."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.preprocessing import FunctionTransformer

from permea.audit import empirical_epsilon
from permea.audit.bounds import multi_run_epsilon
from permea.fabricate.records import fabricate_records
from permea.models.features import Chain, RandomFourier, ScaledIdentity
from permea.models.linear import MAP_STRENGTH, ridge
from permea.models.moments import MomentClassifier, MomentRegressor
from permea.privacy import Budget, BudgetExceededError, Ledger, Privacy


def promise(epsilon=4.0, **options):
    options = {"delta": 1e-5, "unit": "record", "domain": (0, 16), **options}
    return Privacy(epsilon=epsilon, **options)


def private_classifier(privacy=None, **options):
    options = {"features": "identity", "classes": range(10), **options}
    return MomentClassifier(privacy=privacy or promise(), **options)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:1200], y[:1200], X[1200:], y[1200:]


def test_more_epsilon_is_more_accurate_and_no_noise_is_best(digits):
    X, y, X_test, y_test = digits
    scores = [
        np.mean(
            [
                private_classifier(promise(e), random_state=s).fit(X, y).score(X_test, y_test)
                for s in range(3)
            ]
        )
        for e in (0.1, 2.0, 16.0)
    ]
    plain = MomentClassifier(features="identity").fit(X, y)
    assert scores[0] < scores[1] < scores[2] < plain.score(X_test, y_test) + 0.01
    assert scores[2] > 0.85
    assert plain.certificate_ is None
    assert plain.holds_private_rows_


def test_probabilities_and_scores_agree_with_the_prediction(digits):
    X, y, X_test, _ = digits
    clf = private_classifier(random_state=0).fit(X, y)
    proba = clf.predict_proba(X_test)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert np.array_equal(clf.classes_[proba.argmax(axis=1)], clf.predict(X_test))
    assert np.array_equal(clf.decision_function(X_test).argmax(axis=1), proba.argmax(axis=1))
    two = y < 2
    pair = private_classifier(classes=[0, 1], random_state=0)
    pair.fit(X[two], y[two])
    assert np.array_equal(pair.predict(X) == 1, pair.decision_function(X) > 0)


def test_nothing_after_the_wall_sees_the_rows(digits):
    """Learning again from the release alone gives the same model, bit for bit."""
    X, y, _, _ = digits
    clf = private_classifier(random_state=0).fit(X, y)
    again = ridge(clf.moments_, strength=MAP_STRENGTH)
    assert np.array_equal(again.weights, clf.model_.weights)
    assert not clf.holds_private_rows_
    held = [v for v in vars(clf).values() if isinstance(v, np.ndarray)]
    assert all(len(v) != len(X) for v in held)


def test_rows_outside_the_domain_count_as_rows_on_its_edge(digits):
    X, y, _, _ = digits
    wild = X.copy()
    wild[0] = 1e9
    tame = np.minimum(wild, 16)
    fits = [private_classifier(random_state=0).fit(rows, y) for rows in (wild, tame)]
    assert np.array_equal(fits[0].model_.weights, fits[1].model_.weights)


def test_chunks_give_the_same_model_whatever_their_size(digits):
    X, y, _, _ = digits

    def in_parts(size, keep):
        clf = private_classifier(random_state=5)

        def chunks():
            return ((X[i : i + size], y[i : i + size]) for i in range(0, len(X), size))

        return clf.fit_chunks(chunks, keep=keep).model_.weights

    whole = private_classifier(random_state=5).fit(X, y)
    for size, keep in ((100, False), (977, True)):
        assert np.array_equal(in_parts(size, keep), whole.model_.weights)
    with pytest.raises(ValueError, match="classes="):
        MomentClassifier(privacy=promise()).fit_chunks(lambda: iter([(X, y)]))


def test_the_ledger_is_charged_once_and_first(digits):
    X, y, _, _ = digits
    ledger = Ledger(Budget(epsilon=4.0, delta=1e-5, unit="record"))
    clf = private_classifier(ledger=ledger).fit(X, y)
    assert len(ledger) == 1
    assert "noised moments" in ledger.events[0].description
    assert clf.certificate_.is_private
    with pytest.raises(BudgetExceededError):
        clf.fit(X, y)
    assert len(ledger) == 1


def test_a_foreign_transformer_is_never_fitted_on_private_rows(digits):
    X, y, X_test, y_test = digits

    class Nosy(FunctionTransformer):
        def fit(self, X, y=None):
            raise AssertionError("fitted on private rows")

    nosy = Nosy(lambda X: X / 64)
    clf = private_classifier(promise(16.0), features=nosy, random_state=0).fit(X, y)
    assert clf.score(X_test, y_test) > 0.8
    with pytest.raises(TypeError, match="transform"):
        private_classifier(features=3).fit(X, y)
    with pytest.raises(ValueError, match="features must be"):
        private_classifier(features="magic").fit(X, y)


def test_labels_must_be_declared_ones(digits):
    X, y, _, _ = digits
    with pytest.raises(ValueError, match="declared classes"):
        private_classifier(classes=range(5)).fit(X, y)
    more = private_classifier(classes=range(12), random_state=0).fit(X, y)
    assert len(more.classes_) == 12  # a class without rows is not told from a small one


def test_regression_with_honest_deviations():
    rng = np.random.default_rng(0)
    X = rng.random((20_000, 3))
    y = 10 * np.sin(3 * X[:, 0]) + 5 * X[:, 1] + rng.normal(size=20_000)
    features = Chain([ScaledIdentity(domain=(0, 1)), RandomFourier(n_frequencies=30)])
    model = MomentRegressor(
        privacy=promise(2.0, domain=(0, 1)), features=features, output_domain=(-5, 20),
        random_state=0,
    )  # fmt: skip
    model.fit(X[:15_000], y[:15_000])
    mean, std = model.predict(X[15_000:], return_std=True)
    assert model.score(X[15_000:], y[15_000:]) > 0.7
    inside = np.mean(np.abs(y[15_000:] - mean) <= 1.96 * std)
    assert 0.93 <= inside <= 1.0
    both = clone(model).fit(X, np.column_stack([y, -y]))
    assert both.predict(X[:4]).shape == (4, 2)
    with pytest.raises(ValueError, match="output_domain"):
        MomentRegressor(privacy=promise()).fit(X, y)
    with pytest.raises(ValueError, match="Bayesian"):
        clone(model).set_params(inference="ridge").fit(X, y).predict(X, return_std=True)


def test_fabricated_records_train_a_model_that_works_on_real_rows(digits):
    X, y, X_test, y_test = digits
    made = fabricate_records(X, y, privacy=promise(8.0), classes=range(10), random_state=0)
    assert made.data.shape == X.shape
    assert made.data.min() >= 0
    assert made.data.max() <= 16
    assert "drawn from the mean and covariance of each class" in str(made.certificate)
    learned = MomentClassifier(features="identity").fit(made.data, made.labels)
    assert learned.score(X_test, y_test) > 0.75
    # fabricated rows are nobody's rows: as far from the private ones as new rows are
    nearest = np.sqrt(np.square(made.data[:100, None] - X[None]).sum(-1)).min(1)
    assert nearest.min() > 1.0


def test_fabricated_records_keep_the_shape_of_each_class_and_know_people():
    """One class is long, the other round: a common covariance would make them alike."""
    rng = np.random.default_rng(0)
    long = rng.normal(size=(4000, 2)) * [3.0, 0.3] + 8
    both = np.vstack([long, rng.normal(size=(4000, 2)) * [0.6, 0.6] + [8, 11]])
    labels = np.repeat([0, 1], 4000)
    made = fabricate_records(
        both, labels, privacy=promise(8.0, unit="person"), classes=[0, 1], n_rows=4000,
        groups=np.arange(8000) // 2, random_state=0,
    )  # fmt: skip
    assert made.certificate.privacy.unit == "person"
    spread = [made.data[made.labels == label].std(axis=0) for label in (0, 1)]
    assert spread[0][0] > 3 * spread[0][1]
    assert spread[1][0] < 2 * spread[1][1]
    means = [made.data[made.labels == label].mean(axis=0) for label in (0, 1)]
    np.testing.assert_allclose(means, [[8, 8], [8, 11]], atol=0.3)


def canary_scores(relation, planted, runs, noise_share=1.0):
    """A canary at the clipping radius, alone in its class, seen in the released moments."""
    from dataclasses import replace

    from permea.privacy.moments import ChargedMoments, plan_moments, sum_features, sum_moments

    plan = plan_moments(promise(8.0, delta=1e-3, domain=(0, 1)), 4, 2, neighbours=relation)
    if noise_share != 1.0:
        plan = replace(plan, scales=type(plan.scales)(*(noise_share * s for s in plan.scales)))
    crowd = np.zeros((50, 4))
    row = np.array([[1.0, 0, 0, 0]])
    if relation == "replace":
        rows, labels = np.vstack([crowd, row]), [0] * 50 + [1 if planted else 0]
        rows[-1] = row if planted else row[:, ::-1]
    else:
        rows = np.vstack([crowd, row]) if planted else crowd
        labels = [0] * 50 + [1] * planted
    Y, scores = np.eye(2)[labels], []
    for seed in range(runs):
        wall = ChargedMoments(plan, random_state=2 * seed + planted)
        wall.release_mean(sum_features(rows, plan))
        out = wall.release(sum_moments(rows, Y, plan)).moments
        # the likelihood ratio of the two Gaussians, up to a constant
        unit = plan.radius
        parts = np.array([out.second[0, 0] / unit**2, out.cross[0, 1] / unit, out.outputs[1]])
        if relation == "replace":
            parts -= [out.second[3, 3] / unit**2, out.cross[3, 0] / unit, out.outputs[0]]
        score = float(parts @ np.array(plan.scales[2:5]) ** -2.0)
        scores.append(score)
    return np.array(scores)


@pytest.mark.parametrize("relation", ["replace", "add/remove"])
def test_the_multi_run_audit_stays_below_epsilon_and_finds_the_broken_twin(relation):
    def bound(noise_share):
        sides = [canary_scores(relation, side, 300, noise_share) for side in (False, True)]
        return multi_run_epsilon(*sides, tradeoff="gaussian", delta=1e-3, confidence=0.999)

    honest, broken = bound(1.0), bound(0.25)
    assert 2.0 < honest <= 8.0  # the audit sees something, and not too much
    assert broken > 8.0


def test_the_one_run_audit_stays_below_epsilon(digits):
    X, y, _, _ = digits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = empirical_epsilon(
            private_classifier(promise(4.0)), X, y,
            canaries=150, delta=1e-5, unit="record", neighbours="replace", method="one-run",
        )  # fmt: skip
    assert found.method == "one-run"
    assert found.epsilon <= 4.0

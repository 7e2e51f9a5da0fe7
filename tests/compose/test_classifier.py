"""Classification by distance (004 Definitions 7-8), as scikit-learn users expect it."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from permea import (
    KAHMClassifier,
    KernelAffineHullMachine,
    MembershipClassifier,
    ReconstructionClassifier,
)
from permea.compose import matching_scores


def small(**parameters):
    return KAHMClassifier(**{"n_components": 2, "n_layers": 2, **parameters})


def test_digits_are_read_as_well_as_the_reference_says(digits):
    X_train, X_test, y_train, y_test = digits
    assert KAHMClassifier().fit(X_train, y_train).score(X_test, y_test) >= 0.99


def test_labels_are_those_of_the_distances(digits):
    X_train, X_test, y_train, _ = digits
    clf = KAHMClassifier(branch_size=40, random_state=0).fit(X_train, y_train)
    labels = clf.classes_[clf.distances(X_test).argmin(axis=1)]
    np.testing.assert_array_equal(clf.predict(X_test), labels)


@pytest.mark.parametrize("kind", [KAHMClassifier, MembershipClassifier])
@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    overlap=st.sampled_from([0.3, 1.0, 3.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_labels_are_those_of_the_definition(kind, seed, overlap, dtype):
    """Plain images of every layer of every branch of every class, where no two classes tie."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(4, 1, 150)) / overlap
    X = (centres + random.normal(size=(4, 50, 150)) * np.geomspace(2, 1e-4, 150)).astype(dtype)
    X[1, :, :9] = 0.5  # a class with features that never vary
    queries = np.concatenate([*(X + (X - X[:, ::-1]) * dtype(0.4)), 1e4 * X[0, :5]])
    clf = kind(n_components=6, n_layers=3, branch_size=25, random_state=0)
    clf.fit(X.reshape(-1, 150), np.repeat(np.arange(4), 50))
    nearest = np.full((len(queries), 4), np.inf)
    for label, model in enumerate(clf.class_models_):
        for branch in model.branches_:
            gaps = np.linalg.norm(queries - branch.images(queries), axis=2).min(axis=0)
            nearest[:, label] = np.minimum(nearest[:, label], gaps)
    first, second = np.sort(nearest, axis=1)[:, :2].T
    clear = second - first > 1e-4 * second
    assert clear.mean() > 0.8
    for one in (queries, queries[:1]):  # in one batch and alone
        expected = nearest[: len(one)].argmin(axis=1)
        same = clf.predict(one) == expected
        assert same[clear[: len(one)]].all()
    found = clf.winning_distances(queries).min(axis=1)
    np.testing.assert_allclose(found, first, rtol=1e-3 if dtype == np.float32 else 1e-7)


def test_distances_are_those_of_the_class_models(blobs):
    X, y = blobs
    clf = small(branch_size=15, random_state=0).fit(X, y)
    expected = np.column_stack(
        [
            np.min([branch.distance(X) for branch in model.branches_], axis=0)
            for model in clf.class_models_
        ]
    )
    np.testing.assert_allclose(clf.distances(X), expected, rtol=1e-9)


def test_scores_follow_definition_8(blobs):
    X, y = blobs
    clf = small().fit(X, y)
    squared = clf.distances(X) ** 2
    expected = np.exp(-squared / squared.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(clf.matching_scores(X), expected, rtol=1e-12)
    probabilities = clf.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(clf.classes_[probabilities.argmax(axis=1)], clf.predict(X))
    decision = clf.decision_function(X)
    np.testing.assert_array_equal(clf.classes_[decision.argmax(axis=1)], clf.predict(X))


def test_two_classes_decide_by_sign(blobs):
    X, y = blobs
    clf = small().fit(X[y < 2], y[y < 2])
    decision = clf.decision_function(X)
    assert decision.shape == (len(X),)
    np.testing.assert_array_equal(clf.classes_[(decision > 0).astype(int)], clf.predict(X))


def test_scores_stay_finite_at_the_edges():
    scores = matching_scores(np.array([[0.0, 0.0], [1e200, 2e200], [np.inf, 1.0]]))
    np.testing.assert_allclose(scores, [[1, 1], [np.exp(-0.2), np.exp(-0.8)], [0, np.exp(-1)]])


def test_it_works_in_pipelines_searches_and_cross_validation(blobs):
    X, y = blobs
    pipeline = make_pipeline(MinMaxScaler(), small())
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.9
    search = GridSearchCV(small(), {"n_components": [2, 3], "n_layers": [1, 2]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.9


def test_it_takes_data_frames_and_strings(blobs):
    X, y = blobs
    frame = pd.DataFrame(X, columns=["left", "right"])
    names = np.array(["ash", "beech", "cedar"])[y]
    clf = small().fit(frame, names)
    assert list(clf.feature_names_in_) == ["left", "right"]
    assert set(clf.predict(frame)) <= {"ash", "beech", "cedar"}
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frame[["right", "left"]])


def test_one_sample_of_a_class_is_enough(blobs):
    X, y = blobs
    rows = np.r_[0:40, 40, 80:120]
    clf = small().fit(X[rows], y[rows])
    assert clf.predict(X[[40]])[0] == 1


def test_one_class_is_refused_unless_it_is_meant(blobs):
    X, y = blobs
    with pytest.raises(ValueError, match="one class only"):
        small().fit(X[y == 1], y[y == 1])
    clf = small(allow_single_class=True).fit(X[y == 1], y[y == 1])
    assert clf.distances(X).shape == (len(X), 1)


def test_workers_and_precision_do_not_change_the_labels(digits):
    X_train, X_test, y_train, _ = digits
    one = KAHMClassifier(random_state=0).fit(X_train, y_train)
    two = KAHMClassifier(random_state=0, n_jobs=2).fit(X_train, y_train)
    np.testing.assert_array_equal(one.predict(X_test), two.predict(X_test))
    single = KAHMClassifier(random_state=0).fit(X_train.astype(np.float32), y_train)
    assert single.distances(X_test.astype(np.float32)).dtype == np.float32
    assert np.mean(single.predict(X_test.astype(np.float32)) == one.predict(X_test)) > 0.995


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[1.0, np.nan], [2.0, 3.0]], [0, 1], "NaN"),
        ([[1.0, np.inf], [2.0, 3.0]], [0, 1], "infinity"),
        (np.empty((0, 2)), [], "0 sample"),
        ([["a", "b"], ["c", "d"]], [0, 1], "could not convert|dtype"),
        ([[1.0, 2.0], [2.0, 3.0]], [0], "inconsistent"),
        ([[1.0, 2.0], [2.0, 3.0]], [0.5, 1.7], "Unknown label type"),
        (csr_array(np.eye(2)), [0, 1], "[Ss]parse"),
    ],
)
def test_bad_data_are_refused_and_nothing_is_half_fitted(X, y, message):
    clf = small()
    with pytest.raises((ValueError, TypeError), match=message):
        clf.fit(X, y)
    assert not hasattr(clf, "class_models_")
    assert not hasattr(clf, "classes_")


def test_the_wrong_number_of_features_is_named(blobs):
    X, y = blobs
    with pytest.raises(ValueError, match=r"3 features, but .* 2 features"):
        small().fit(X, y).predict(np.ones((4, 3)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_layers": 0}, "n_layers"),
        ({"n_components": -1}, "n_components"),
        ({"branch_size": 0}, "branch_size"),
        ({"branch_size": "huge"}, "branch_size"),
        ({"fabricate": True}, "needs privacy"),
        ({"privacy": 1.0}, "privacy"),
    ],
)
def test_bad_parameters_are_named(blobs, parameters, message):
    with pytest.raises(ValueError, match=message):
        small(**parameters).fit(*blobs)


def test_a_model_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="model"):
        ReconstructionClassifier(MinMaxScaler()).fit(np.eye(3), [0, 1, 1])


@pytest.mark.parametrize(
    ("rows", "gigabytes"), [(5_000, 0.5), pytest.param(10_000, 2.0, marks=pytest.mark.slow)]
)
def test_one_branch_stays_within_twenty_bytes_per_pair_of_rows(rows, gigabytes):
    """A process of its own, so that its peak memory is its own."""
    import subprocess
    import sys

    program = (
        "import resource, numpy as np\n"
        "from permea import KernelAffineHullMachine\n"
        "base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"Y = np.random.default_rng(0).random(({rows}, 30), dtype=np.float32)\n"
        "KernelAffineHullMachine(n_components=10).fit(Y)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 2**20)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < gigabytes


def test_the_default_model_is_a_kahm(blobs):
    X, y = blobs
    clf = ReconstructionClassifier(n_layers=2).fit(X, y)
    assert isinstance(clf.class_models_[0].branches_[0].layers_[0], KernelAffineHullMachine)

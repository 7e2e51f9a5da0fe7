"""The receiver's classifier: both documents' methods, labels of any kind, and who decided."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from transfer_world import hide

import permea
from permea import (
    FuzzyAutoencoder,
    KernelAffineHullMachine,
    MembershipAutoencoder,
    MembershipMapping,
    Privacy,
    SourceModel,
    TransferClassifier,
)
from permea.storage import StorageError
from permea.transfer import centers, self_training, source2target
from permea.transfer.target import METHODS
from permea.transfer.task import Task, class_distances

METHOD = pytest.mark.parametrize("method", sorted(METHODS))


@pytest.fixture(scope="module")
def world(digits):
    """A source under ε = 4, a target of other rows with 5 labels per class, and new rows."""
    X, T, y, t = digits
    promise = Privacy(epsilon=4, delta=1e-5, domain=(0, 1))
    source = SourceModel(privacy=promise, random_state=0).fit(X[:600], y[:600])
    return source, X[600:900], y[600:900], hide(y[600:900], 5), T[:300], t[:300]


def small(method, **parameters):
    """Parameters of a fit that is quick and does all steps."""
    model = KernelAffineHullMachine()
    return {"method": method, "model": model, "dimensions": (4, 8), "n_layers": 2,
            "random_state": 0, **parameters}  # fmt: skip


def fitted(world, **parameters):
    source, X, y, few, _, _ = world
    return TransferClassifier(source, **parameters).fit(X, few, truth=y)


@pytest.fixture(scope="module", params=sorted(METHODS))
def learned(request, world):
    """Each method once, as small as it gets."""
    return fitted(world, **small(request.param))


def test_the_own_method_beats_the_labels_alone_and_the_source_alone(world):
    _source, X, _, few, T, t = world
    clf = fitted(world, random_state=0)
    alone = permea.KAHMClassifier(n_components=4, n_layers=1).fit(X[few >= 0], few[few >= 0])
    assert clf.method == "consensus"
    assert clf.score(T, t) > alone.score(T, t) + 0.03
    assert clf.score(T, t) >= np.mean(clf.predict_source(T) == t) - 0.01


@pytest.mark.parametrize("method", ["centers", "source2target"])
def test_the_methods_as_the_documents_write_them(world, method):
    clf = fitted(world, method=method, random_state=0)
    assert clf.score(world[4], world[5]) > 0.75


def watched(monkeypatch):
    """Dimension, depth and inducing points or rules of every target classifier that is learned."""
    seen, real = [], Task.fit_classifier

    def watch(self, *args, **kwargs):
        made = real(self, *args, **kwargs)
        values = made.model.get_params()
        share = values.get("max_inducing", values.get("n_rules"))
        seen.append((values["n_components"], made.n_layers, share))
        return made

    monkeypatch.setattr(Task, "fit_classifier", watch)
    return seen


GAMMA = {"model": MembershipAutoencoder(disturbance="gamma")}


@pytest.mark.parametrize(
    ("parameters", "shares"),
    [
        ({}, [1, 1 / 10, 1 / 4]),  # 000 §5: 1 at first, then from 1/10 to 1/4
        ({"shares": (0.2, 0.3)}, [1, 0.2, 0.3]),
        ({"shares": 0.4, "model": MembershipAutoencoder(max_inducing=7)}, [1, 0.4, 0.4]),
        ({"model": MembershipAutoencoder(max_inducing=7)}, [7, 7, 7]),
        ({"model": FuzzyAutoencoder(n_rules=0.3)}, [0.3, 0.3, 0.3]),
        ({"method": "source2target"}, [1, 0.5, 0.5]),  # 001 §1.4: r_max
        ({"method": "source2target", "shares": 0.25}, [1, 0.25, 0.25]),
    ],
)
def test_ratios_of_the_documents_or_those_that_were_given(world, monkeypatch, parameters, shares):
    seen = watched(monkeypatch)
    given = {"method": "centers", "dimensions": (4, 6), "n_layers": 1, "random_state": 0}
    fitted(world, **{**given, **GAMMA, **parameters})
    assert [share for _, _, share in seen] == pytest.approx(shares)


@pytest.mark.parametrize("shares", [(0.3, 0.2), (0.3,), (0.0, 0.5), 1.5])
def test_ratios_that_mean_nothing_are_refused(world, shares):
    with pytest.raises(ValueError, match="shares must be"):
        fitted(world, **small("centers", shares=shares))


def test_the_subspace_has_as_many_dimensions_as_asked_for(world):
    """n_st: leading eigenvectors of both covariances (000 §4.2, 001 §1.3.2), and (1.79)."""
    source, X, _, few, _, _ = world
    settings = {"method": "source2target", "n_layers": 1, "dimensions": (4,), "random_state": 0}
    clf = TransferClassifier(source, alignment="subspace", n_directions=3, **settings).fit(X, few)
    _, vectors = np.linalg.eigh(np.cov(X.T))
    V = vectors[:, ::-1][:, :3].T
    V = V * np.sign([row[np.abs(row).argmax()] for row in V])[:, None]
    np.testing.assert_allclose(clf.alignment_.target, V, atol=1e-8)
    expected = X @ V.T @ source.directions_[:3]
    np.testing.assert_allclose(clf.alignment_.to_source(X), expected, atol=1e-8)
    centers = {**settings, "method": "centers", "model": MembershipAutoencoder()}
    same = TransferClassifier(source, n_directions=3, **centers).fit(X, few)
    assert same.fitted_.source_centres.shape[1] == 3
    np.testing.assert_allclose(same.fitted_.source_centres, source.centres_[:, :3])
    with pytest.raises(ValueError, match="more than the 32 latent directions"):
        TransferClassifier(source, n_directions=33, **settings).fit(X, few)


def test_the_source_hands_over_as_many_directions_as_asked_for(digits):
    X, _, y, _ = digits
    plain = SourceModel(random_state=0).fit(X[:200], y[:200])
    source = SourceModel(n_directions=40, random_state=0).fit(X[:200], y[:200])
    assert (len(plain.directions_), len(source.directions_)) == (32, 40)
    np.testing.assert_allclose(source.directions_[:32], plain.directions_, atol=1e-8)
    assert source.centres_.shape == (10, 40)


def test_the_mapping_is_the_one_that_was_given(world):
    """Its parameters hold; M_max = min(⌈N/2⌉, 1000) of (1.86) is its default."""
    mapping = MembershipMapping(kappa=0.01, standardize=False, max_inducing=9)
    settings = {"method": "source2target", "n_layers": 1, "dimensions": (4,), "random_state": 0}
    made = fitted(world, mapping=mapping, **settings).fitted_.mapping
    assert (made.kappa, made.standardize, made.max_inducing) == (0.01, False, 9)
    assert len(made.inducing_points_) <= 9
    assert not hasattr(mapping, "mapping_")
    usual = fitted(world, mapping=MembershipMapping(kappa=0.01), **settings).fitted_.mapping
    assert usual.max_inducing == 150


def test_given_labels_stay(world, learned):
    source, _, _, few, _, _ = world
    assert np.all(learned.labels_[few >= 0] == few[few >= 0])
    assert learned.certificate_ == source.certificate_


@METHOD
def test_other_features(world, method):
    source, X, _y, few, T, t = world
    half = slice(0, 64, 2)
    clf = TransferClassifier(source, **small(method)).fit(X[:, half], few)
    assert not clf.alignment_.is_identity
    assert clf.score(T[:, half], t) > 0.6
    assert clf.predict_source(T[:, half]).shape == t.shape


@METHOD
def test_words_as_labels(world, method):
    """The same problem with names for the digits has the same answers."""
    source, X, _y, few, T, _ = world
    names = np.array([f"digit {number}" for number in range(10)])
    named = SourceModel(privacy=source.privacy, random_state=0)
    rows = np.random.default_rng(0).random((200, 64))
    classes = np.repeat(np.arange(10), 20)
    named.fit(rows, names[classes])
    plain = SourceModel(privacy=source.privacy, random_state=0).fit(rows, classes)
    words = np.where(few >= 0, names[few], "")
    by_name = TransferClassifier(named, **small(method)).fit(X, words)
    by_number = TransferClassifier(plain, **small(method)).fit(X, few)
    np.testing.assert_array_equal(by_name.predict(T), names[by_number.predict(T)])


@METHOD
def test_classes_without_labels_come_from_the_source(world, method):
    source, X, _y, few, T, t = world
    some = np.where(few >= 7, -1, few)
    clf = TransferClassifier(source, **small(method)).fit(X, some)
    assert list(clf.classes_) == list(range(10))
    found = clf.predict(T[t >= 7]) == t[t >= 7]
    assert found.mean() > 0.5


@METHOD
def test_classes_that_the_source_does_not_know(world, method):
    _, X, y, few, T, t = world
    rows = np.random.default_rng(1).permutation(np.flatnonzero(y < 9))[:200]
    source = SourceModel(random_state=0).fit(X[rows], y[rows])
    clf = TransferClassifier(source, **small(method)).fit(X, few)
    assert list(clf.classes_) == list(range(10))
    assert np.mean(clf.predict(T[t == 9]) == 9) > 0.5


@METHOD
def test_nothing_unlabelled(world, method):
    source, X, y, _, T, t = world
    clf = TransferClassifier(source, **small(method)).fit(X[:200], y[:200])
    assert clf.score(T, t) > 0.9
    assert all(step.changed == 0 for step in clf.history_)


@METHOD
def test_nothing_labelled(world, method):
    """With the same features the source knows all classes; with others nothing identifies them."""
    source, X, _y, few, T, t = world
    nothing = np.full_like(few, -1)
    clf = TransferClassifier(source, **small(method)).fit(X, nothing)
    assert clf.score(T, t) > 0.8
    with pytest.raises(ValueError, match="No target row has a label"):
        TransferClassifier(source, method=method).fit(X[:, :50], nothing)


@METHOD
@pytest.mark.parametrize(
    "model", [KernelAffineHullMachine(), MembershipAutoencoder(), FuzzyAutoencoder()]
)
def test_any_family_on_the_side_of_the_target(world, method, model):
    _, _, _, _, T, t = world
    clf = fitted(world, **small(method, model=model, dimensions=(4,), n_layers=1))
    assert clf.score(T, t) > 0.7  # chance is 0.1; rounding of the processor moves it by some points


def test_the_history_tells_what_happened(world, learned):
    source, X, _y, few, _, _ = world
    clf, method = learned, learned.method
    assert len(clf.history_) >= 2
    assert clf.history_[0].changed == np.sum(few < 0)  # from no label to some label
    assert all(0 <= step.accuracy <= 1 for step in clf.history_)
    assert clf.history_[-1].accuracy > 0.8
    blind = TransferClassifier(source, **small(method)).fit(X, few)
    assert [step.accuracy for step in blind.history_] == [None] * len(blind.history_)
    assert [step.changed for step in blind.history_] == [step.changed for step in clf.history_]


@METHOD
def test_truth_is_for_the_history_only(world, method):
    source, X, y, few, T, _ = world
    clf = TransferClassifier(source, **small(method))
    honest = clf.fit(X, few, truth=y).predict(T)
    lying = clf.fit(X, few, truth=np.roll(y, 1)).predict(T)
    np.testing.assert_array_equal(honest, lying)


def test_who_decided_names_an_expert(world, learned):
    clf, method = learned, learned.method
    T = world[4]
    experts = clf.fitted_.parts(T)
    said = clf.who_decided(T)
    assert set(said) <= set(experts)
    if method in ("centers", "source2target"):
        winners = clf.distances(T).argmin(axis=1)
        for row, name in enumerate(said):
            each = {expert: part[row, winners[row]] for expert, part in experts.items()}
            assert each[name] == min(each.values())


def test_far_from_the_target_the_source_decides(world):
    """Rows of a class that only the source knows are the source's to decide."""
    source, X, y, few, T, t = world
    seen = y < 7
    clf = TransferClassifier(source, **small("centers")).fit(X[seen], few[seen])
    said = clf.who_decided(T[t >= 7])
    assert set(said) <= {"target", "source"}


def test_clones_keep_the_source(learned):
    clf, method = learned, learned.method
    again = clone(clf)
    assert again.source is clf.source
    assert not hasattr(again, "fitted_")
    assert again.get_params()["method"] == method


def test_it_runs_inside_scikit_learn(world):
    source, X, y, _, _, _ = world
    scores = cross_val_score(
        TransferClassifier(source, method="centers", dimensions=(4,), n_layers=1), X, y, cv=2
    )
    assert scores.min() > 0.8


def test_a_file_round_trip_changes_nothing(world, learned, tmp_path):
    clf, T = learned, world[4]
    with pytest.raises(StorageError, match="training rows"):
        permea.save(clf, tmp_path / "clf.permea")
    again = permea.load(permea.save(clf, tmp_path / "clf.permea", private_rows="include"))
    np.testing.assert_array_equal(again.predict(T), clf.predict(T))
    np.testing.assert_array_equal(again.who_decided(T), clf.who_decided(T))
    assert again.history_ == clf.history_


@METHOD
def test_a_source_from_a_file_serves_as_well(world, method, tmp_path):
    source, X, _y, few, T, _ = world
    loaded = permea.load(permea.save(source, tmp_path / "source.permea"))
    first = TransferClassifier(source, **small(method)).fit(X, few).predict(T)
    second = TransferClassifier(loaded, **small(method)).fit(X, few).predict(T)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"dimensions": (9, 4)}, "do not decrease"),
        ({"dimensions": ()}, "do not decrease"),
        ({"alignment": "rotate"}, "alignment"),
        ({"method": "magic"}, "method"),
    ],
)
def test_wrong_parameters(world, parameters, message):
    with pytest.raises(ValueError, match=message):
        fitted(world, **parameters)


def test_a_source_must_be_one(world):
    _, X, _, few, _, _ = world
    with pytest.raises(TypeError, match="SourceModel"):
        TransferClassifier("source.permea").fit(X, few)


def test_the_same_features_must_be_as_many(world):
    source, X, _, few, _, _ = world
    with pytest.raises(ValueError, match="cannot be the same"):
        TransferClassifier(source, alignment="identity").fit(X[:, :20], few)


def test_the_marker_must_not_be_a_class(world):
    _, X, _, few, _, _ = world
    source = SourceModel().fit(X[:40], np.repeat([-1, 1], 20))
    with pytest.raises(ValueError, match="marks unlabelled rows"):
        TransferClassifier(source).fit(X, few)
    labels = np.where(np.arange(len(X)) < 40, np.repeat([-1, 1], len(X) // 2), 99)
    clf = TransferClassifier(source, **small("centers", unlabelled=99)).fit(X, labels)
    assert list(clf.classes_) == [-1, 1]


@pytest.mark.parametrize("y", [["a", "b"], [0.5, 0.25]])
def test_labels_of_another_kind(world, y):
    source, X, _, _, _, _ = world
    with pytest.raises(ValueError, match=r"words|Unknown label type|continuous"):
        TransferClassifier(source).fit(X[:2], y)


# What scikit-learn's checks expect and a classifier with a source cannot do.
DIFFERENCES = {
    "check_classifiers_classes": "words as labels need a source whose classes are words",
    "check_classifiers_one_label": "the source knows other classes than the target's one",
    "check_classifiers_train": "classes of the source that the target has no label of",
}


@pytest.mark.filterwarnings("ignore")
@METHOD
def test_scikit_learn_accepts_it(method):
    X, y = make_blobs(n_samples=300, random_state=0)
    source = SourceModel(classifier=permea.KAHMClassifier(n_components=2, n_layers=1))
    source.fit(StandardScaler().fit_transform(X), y)
    clf = TransferClassifier(source, **small(method, dimensions=(2,), n_layers=1, unlabelled=-999))
    results = check_estimator(clf, on_fail=None, on_skip=None)
    failed = {one["check_name"] for one in results if one["status"] == "failed"}
    assert failed <= set(DIFFERENCES)
    assert sum(one["status"] == "passed" for one in results) > 40


@METHOD
def test_the_work_grows_in_proportion_to_the_unlabelled_rows(world, method, monkeypatch):
    """Rows that are learned from or scored, for N and 2 N rows: twice as many, or the limit."""
    source, X, y, _, _, _ = world
    seen = []
    real_fit = Task.fit_classifier

    def fit(self, Y, labels, **given):
        seen.append(len(Y))
        return real_fit(self, Y, labels, **given)

    def distances(classifier, Y, n_classes, *, winning=False):
        if not winning:
            seen.append(len(Y))
        return class_distances(classifier, Y, n_classes, winning=winning)

    monkeypatch.setattr(Task, "fit_classifier", fit)
    for module in (centers, source2target, self_training):
        monkeypatch.setattr(module, "class_distances", distances)
    totals = []
    for copies in (1, 2):
        random = np.random.default_rng(0)
        rows = np.tile(X, (copies, 1)) + 1e-3 * random.random((copies * len(X), X.shape[1]))
        labels = np.full(copies * len(X), -1)
        labels[: len(X)] = hide(y, 5)
        seen.clear()
        TransferClassifier(source, **small(method)).fit(rows, labels)
        totals.append(sum(seen))
    assert totals[1] < 2.3 * totals[0]

"""Sources that hand over class moments: whole records or people are hidden, and transfer works."""

import numpy as np
import pytest
from transfer_world import hide

import permea
from permea import HullClassifier, KAHMClassifier, MembershipAutoencoder, Privacy, SourceModel
from permea.models.features import PublicNystrom
from permea.privacy import Budget, BudgetExceededError, Ledger
from permea.privacy.moments import ChargedMoments
from permea.privacy.release import ChargedRows
from permea.tables import Category, Number, Schema
from permea.transfer import TransferClassifier, principal_directions, self_training
from permea.transfer.densities import ClassMixtures
from permea.transfer.source import ClassHull

RECORD = Privacy(epsilon=8, delta=1e-5, unit="record", domain=(0, 1))


@pytest.fixture(scope="module")
def halves(digits):
    """Source rows and labels; target rows, their labels and the few that are known."""
    X_train, X_test, y_train, y_test = digits
    return X_train[:900], y_train[:900], X_test[:500], y_test[:500], hide(y_test[:500], 5)


@pytest.fixture(scope="module")
def exact(halves):
    """A source of moments without noise."""
    return SourceModel(release="moments").fit(*halves[:2])


@pytest.fixture(scope="module")
def private(halves):
    return SourceModel(privacy=RECORD, classes=range(10), random_state=0).fit(*halves[:2])


# ---- what the artefact says, with known answers --------------------------------------------------


def test_without_noise_the_moments_are_those_of_the_encoded_rows(exact, halves):
    X, y = halves[:2]
    codes = exact.encode(X)
    means = np.stack([codes[y == c].mean(axis=0) for c in range(10)])
    np.testing.assert_allclose(exact.moments_.means, means, atol=1e-6)
    np.testing.assert_allclose(exact.moments_.counts, np.bincount(y))
    own = np.stack([(codes[y == c].T @ codes[y == c]) / np.sum(y == c) for c in range(10)])
    pooled = np.tensordot(np.bincount(y) / len(y), own, 1)
    estimated = np.tensordot(np.bincount(y) / len(y), exact.moments_.seconds, 1)
    assert np.linalg.norm(estimated - pooled) < 0.2 * np.linalg.norm(pooled)  # values are floored


def test_the_density_of_a_class_is_its_hull(private):
    mixture = private.mixtures_[0]
    hulls = private.encoder_.hulls_
    x = np.random.default_rng(0).normal(size=(5, hulls.means.shape[1]))
    likelihood = np.stack(
        [-0.5 * np.square(x - m) @ (1 / w) - 0.5 * np.log(w).sum()
         for m, w in zip(np.zeros_like(hulls.means), hulls.values, strict=True)], axis=1
    )  # fmt: skip
    straight = ClassMixtures(
        mixture.mean, mixture.directions, mixture.weights, 0 * mixture.centres,
        np.stack([np.diag(w) for w in hulls.values])[:, None], mixture.counts,
    )  # fmt: skip
    np.testing.assert_allclose(straight.scores(x), likelihood)
    turned = np.stack([(x @ v.T) + m for v, m in zip(hulls.vectors, hulls.means, strict=True)])
    found = np.stack([mixture.scores(rows)[:, c] for c, rows in enumerate(turned)], axis=1)
    np.testing.assert_allclose(found, likelihood)


def test_the_hull_of_a_class_is_that_of_the_classifier(private, halves):
    X = halves[2][:20]
    codes = private.encode(X)
    np.testing.assert_allclose(private.distances(X), private.encoder_.distances(X))
    model = private.class_models[3]
    assert isinstance(model, ClassHull)
    np.testing.assert_array_equal(model.reconstruct(codes), private.encoder_.images(X, label=3))
    assert np.mean(private.predict(halves[2]) == halves[3]) > 0.85


def test_directions_and_centres_follow_from_the_densities(exact, halves):
    codes = exact.encode(halves[0])
    assert exact.directions_.shape == (-(-codes.shape[1] // 2), codes.shape[1])
    np.testing.assert_allclose(
        exact.directions_ @ exact.directions_.T, np.eye(len(exact.directions_)), atol=1e-12
    )
    np.testing.assert_allclose(exact.centres_, exact.moments_.means @ exact.directions_.T)


def test_directions_in_the_columns_are_those_of_the_rows():
    """Rows that are so short that none is shrunk: then the second moments are exact."""
    random = np.random.default_rng(3)
    X = 0.5 + 0.05 * random.normal(size=(400, 6)) * [3, 2, 1, 1, 0.5, 0.1]
    y = np.arange(400) % 2
    X[y == 1, 0] += 0.1
    source = SourceModel(release="moments").fit(X, y)
    wide = SourceModel(release="moments", features="fourier").fit(X, y)
    directions, centres = source.column_directions()
    if np.all(np.linalg.norm(source.encoder_._map(X) - source.encoder_.mean_, axis=1) < 0.25):
        np.testing.assert_allclose(directions, principal_directions(X, 3), atol=1e-6)
        means = np.stack([X[y == c].mean(axis=0) for c in (0, 1)])
        np.testing.assert_allclose(centres, means @ directions.T, atol=1e-6)
    with pytest.raises(ValueError, match="features='identity'"):
        wide.column_directions()


# ---- the wall ------------------------------------------------------------------------------------


def test_one_release_of_moments_is_one_event_and_no_row_is_released(halves, monkeypatch):
    def no_rows(*_, **__):
        raise AssertionError("rows were released")

    monkeypatch.setattr(ChargedRows, "release", no_rows)
    ledger = Ledger()
    classifier = KAHMClassifier(n_components=3, n_layers=1, rows_per_class=20)
    source = SourceModel(
        privacy=RECORD, classes=range(10), ledger=ledger, dataset="ward", classifier=classifier
    ).fit(*halves[:2])
    assert [event.dataset for event in ledger.events] == ["ward"]
    certificate = source.certificate_
    assert certificate.is_private
    assert certificate.privacy.unit == "record"
    assert "20 rows of each class were drawn" in " ".join(certificate.steps)
    assert not source.holds_private_rows_


def test_a_spent_budget_stops_it_before_a_value_is_read(halves, monkeypatch):
    def read(self, X):
        assert not np.any(X), "a value was read"  # one row of zeros tells the number of features
        return np.asarray(X)

    monkeypatch.setattr(HullClassifier, "_map", read)
    ledger = Ledger(Budget(epsilon=1, delta=1e-4, unit="record"))
    source = SourceModel(privacy=RECORD, classes=range(10), ledger=ledger)
    with pytest.raises(BudgetExceededError):
        source.fit(*halves[:2])
    assert len(ledger) == 0
    assert not hasattr(source, "classifier_")
    assert source.certificate_ is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "classes is missing"),
        ({"classes": [0, 1], "privacy": Privacy(epsilon=1, delta=1e-5, unit="person",
                                                domain=(0, 1))}, "groups"),
        ({"classes": [0, 1], "classifier": KAHMClassifier(privacy=RECORD)}, "noised already"),
        ({"release": "rows", "schema": Schema({"a": Number(0, 1)})}, "release='moments'"),
    ],
)  # fmt: skip
def test_what_is_missing_is_told_before_the_charge(options, said):
    ledger = Ledger()
    source = SourceModel(**{"privacy": RECORD, "ledger": ledger, **options})
    with pytest.raises(ValueError, match=said):
        source.fit(np.random.default_rng(0).random((20, 3)), np.arange(20) % 2)
    assert len(ledger) == 0


def test_noise_on_rows_stays_available_by_name(halves):
    promise = Privacy(epsilon=8, delta=1e-5, unit="record", domain=(0, 1))
    source = SourceModel(privacy=promise, release="rows", random_state=0).fit(*halves[:2])
    assert source.encoder_ is None
    assert source.moments_.means.shape == (10, 64)
    np.testing.assert_array_equal(source.encode(halves[2]), halves[2])


def test_adjacent_data_sets_differ_by_one_term_in_every_sum(monkeypatch):
    """Replace one record: all exact sums move by what that record adds, whatever the others are."""
    seen = []

    def keep(stage):
        real = getattr(ChargedMoments, stage)

        def kept(self, sums, *given):
            seen.append(sums)
            return real(self, sums, *given)

        monkeypatch.setattr(ChargedMoments, stage, kept)

    for stage in ("release_mean", "release", "release_scatter", "release_losses"):
        keep(stage)

    def sums(X, y):
        seen.clear()
        SourceModel(privacy=RECORD, classes=[0, 1], random_state=0).fit(X, y)
        return list(seen)

    random = np.random.default_rng(5)
    X, y = random.random((40, 3)), np.arange(40) % 2
    other = X.copy()
    other[7] = 1 - other[7]
    (mean, moments, scatter, losses), (mean2, moments2, *_) = sums(X, y), sums(other, y)
    assert len(seen) == 4
    step = np.abs(mean.features - mean2.features)
    assert 0 < np.linalg.norm(step.astype(float)) <= 2 * 2**32
    assert moments.n_units == moments2.n_units == 40
    assert scatter.shape[0] == 2
    assert losses.min() >= 0
    np.testing.assert_array_equal(moments.counts, moments2.counts)
    both = [
        sums(np.r_[rows, X[7:8]], np.r_[labels, y[7]])[0].features.astype(object)
        - sums(rows, labels)[0].features
        for rows, labels in ((X, y), (other[:9], y[:9]))
    ]
    np.testing.assert_array_equal(*both)


def test_the_rows_of_a_person_count_once(halves):
    X, y = halves[0][:300], halves[1][:300]
    promise = Privacy(epsilon=8, delta=1e-5, unit="person", domain=(0, 1))

    def made(times):
        people = np.repeat(np.arange(len(X)), times)
        source = SourceModel(privacy=promise, classes=range(10), random_state=0)
        return source.fit(np.repeat(X, times, axis=0), np.repeat(y, times), groups=people)

    once, four = made(1), made(4)
    np.testing.assert_allclose(four.moments_.counts, once.moments_.counts)
    np.testing.assert_allclose(four.distances(X[:9]), once.distances(X[:9]), rtol=1e-2)
    assert once.certificate_.privacy.unit == "person"


def test_the_file_holds_no_row_and_comes_back(private, halves, tmp_path):
    path = permea.save(private, tmp_path / "source.permea")
    raw = path.read_bytes()
    for row in halves[0][:100]:
        assert row.tobytes() not in raw
        assert row.astype(np.float32).tobytes() not in raw
    again = permea.load(path)
    np.testing.assert_array_equal(again.distances(halves[2]), private.distances(halves[2]))
    clf, same = (
        TransferClassifier(source, dimensions=(5,), random_state=0).fit(halves[2], halves[4])
        for source in (private, again)
    )
    np.testing.assert_array_equal(same.distances(halves[2]), clf.distances(halves[2]))


# ---- transfer ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "least"), [("consensus", 0.88), ("centers", 0.8), ("source2target", 0.8)]
)
def test_every_method_works_in_the_space_of_the_source(private, halves, method, least):
    _, _, X, y, few = halves
    clf = TransferClassifier(private, method=method, random_state=0).fit(X, few)
    assert np.mean(clf.labels_ == y) > least
    assert clf.alignment_.is_identity
    assert clf.n_features_in_ == 64
    np.testing.assert_array_equal(clf.to_source(X[:9]), private.encode(X[:9]))
    np.testing.assert_array_equal(clf.predict_source(X), private.predict(X))
    assert clf.certificate_ == private.certificate_
    assert clf.holds_private_rows_
    assert set(clf.who_decided(X[:50])) <= {"target", "source", "mapping"}
    np.testing.assert_array_equal(clf.predict(X), clf.classes_[clf.distances(X).argmin(axis=1)])


def test_the_source_helps_where_labels_are_few(private, halves):
    _, _, X, y, _ = halves
    few = hide(y, 1)
    wrong = SourceModel(release="moments").fit(halves[0], np.random.default_rng(0).permutation(
        halves[1]))  # fmt: skip
    helped, alone = (
        np.mean(TransferClassifier(s, dimensions=(10,), random_state=0).fit(X, few).labels_ == y)
        for s in (private, wrong)
    )
    assert helped > alone + 0.1


def test_no_label_at_all_is_enough_with_the_same_columns(private, halves):
    X, y = halves[2:4]
    clf = TransferClassifier(private, random_state=0).fit(X, np.full(len(X), -1))
    assert np.mean(clf.labels_ == y) > 0.85


@pytest.mark.parametrize("method", ["consensus", "centers", "source2target"])
def test_other_columns_are_aligned_and_then_encoded(private, halves, method):
    X, few = halves[2][:, 8:], halves[4]
    clf = TransferClassifier(private, method=method, random_state=0).fit(X, few)
    directions, _ = private.column_directions()
    assert clf.alignment_.source.shape[1] == 64
    np.testing.assert_allclose(clf.alignment_.source, directions[: len(clf.alignment_.source)])
    codes = private.encode(clf.alignment_.to_source(X[:9]))
    np.testing.assert_allclose(clf.to_source(X[:9]), codes)
    assert clf.predict(X[:9]).shape == (9,)


def test_other_columns_need_a_source_of_the_columns_themselves(halves):
    X, y, T, _, few = halves
    public = PublicNystrom(np.random.default_rng(0).random((30, 64)))
    source = SourceModel(privacy=RECORD, classes=range(10), features=public).fit(X, y)
    with pytest.raises(ValueError, match="other columns"):
        TransferClassifier(source).fit(T[:, 8:], few)
    same = TransferClassifier(source, dimensions=(5,), random_state=0).fit(T, few)
    assert same.n_features_in_ == 64


def test_a_family_learns_from_drawn_rows(halves):
    classifier = KAHMClassifier(n_components=10, n_layers=2, rows_per_class=60)
    source = SourceModel(
        privacy=RECORD, classes=range(10), classifier=classifier, random_state=0
    ).fit(*halves[:2])
    assert isinstance(source.encoder_, HullClassifier)
    assert not isinstance(source.class_models[0], ClassHull)
    assert np.mean(source.predict(halves[2]) == halves[3]) > 0.8
    clf = TransferClassifier(
        source, method="centers", model=MembershipAutoencoder(), dimensions=(3, 5), random_state=0
    )
    assert clf.fit(halves[2], halves[4]).fitted_.parts(source.encode(halves[2][:3])).keys() == {
        "target", "source",
    }  # fmt: skip


# ---- tables of people ----------------------------------------------------------------------------

SCHEMA = Schema(
    {
        "age": Number(0, 100),
        "pressure": Number(80, 220, missing=True),
        "sex": Category(("f", "m")),
        "ill": Category(("no", "yes")),
    },
    label="ill",
    person="patient",
)


def people(n, seed):
    """Two visits of each patient; the ill are older, with a higher pressure that may be missing."""
    random = np.random.default_rng(seed)
    ill = np.repeat(random.integers(0, 2, n), 2)
    pressure = 120 + 50 * ill + 8 * random.normal(size=2 * n)
    return {
        "age": np.clip(40 + 30 * ill + 8 * random.normal(size=2 * n), 0, 100),
        "pressure": np.where(random.random(2 * n) < 0.2, np.nan, np.clip(pressure, 80, 220)),
        "sex": np.where(random.random(2 * n) < 0.5, "f", "m"),
        "ill": np.where(ill == 1, "yes", "no"),
        "patient": np.repeat([f"p{k}" for k in range(n)], 2),
    }


def test_a_table_of_people_is_transferred():
    promise = Privacy(epsilon=4, delta=1e-5, unit="person")
    source = SourceModel(privacy=promise, schema=SCHEMA).fit(people(600, 0))
    assert source.classes_.tolist() == ["no", "yes"]
    assert source.certificate_.is_private
    target = people(150, 1)
    truth = target.pop("ill")
    few = np.where(np.arange(300) < 16, truth, "")
    clf = TransferClassifier(source, random_state=0).fit(target, few)
    assert np.mean(clf.labels_ == truth) > 0.9
    assert clf.n_features_in_ == 3
    assert np.mean(clf.predict(target) == truth) > 0.9
    del target["age"]
    with pytest.raises(ValueError, match="age"):
        clf.predict(target)
    with pytest.raises(ValueError, match="its columns only"):
        TransferClassifier(source, alignment="subspace").fit(target, few)


def test_proportions_are_those_of_the_target(exact, halves, monkeypatch):
    """The source has all digits equally often; a target with few ones keeps them few."""
    X, y = halves[2:4]
    kept = np.flatnonzero((y != 1) | (np.arange(len(y)) % 8 == 0))
    few = hide(y[kept], 3)

    def labels():
        clf = TransferClassifier(exact, dimensions=(5, 5), random_state=0)
        return clf.fit(X[kept], few).labels_

    found = labels()
    assert abs(np.sum(found == 1) - np.sum(y[kept] == 1)) < 8
    monkeypatch.setattr(self_training, "class_proportions", lambda task: np.full(10, 0.1))
    assert np.sum(labels() == 1) - np.sum(y[kept] == 1) > 12  # what the source's would do
    assert np.mean(found == y[kept]) > 0.95

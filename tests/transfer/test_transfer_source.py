"""The artefact: one spend, no row inside, the same after a trip through a file."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import permea
from permea import FuzzyClassifier, KAHMClassifier, MembershipClassifier, Privacy, SourceModel
from permea.models.kahm import kernel_matrix
from permea.privacy import Budget, BudgetExceededError, Ledger
from permea.storage import StorageError

PROMISE = Privacy(epsilon=2, delta=1e-5, domain=(0, 1))


@pytest.fixture(scope="module")
def small(digits):
    X_train, _, y_train, _ = digits
    return X_train[:400], y_train[:400]


@pytest.fixture(scope="module")
def artefact(small):
    return SourceModel(privacy=PROMISE).fit(*small)


def test_everything_is_one_spend(small):
    ledger = Ledger()
    source = SourceModel(privacy=PROMISE, ledger=ledger, dataset="ward").fit(*small)
    assert len(ledger.events) == 1
    assert ledger.events[0].dataset == "ward"
    assert "ward" in source.certificate_.ledger or source.certificate_.ledger


def test_a_spent_budget_stops_it_before_anything_is_learned(small):
    ledger = Ledger(Budget(epsilon=1, delta=1e-5, unit="entry"))
    source = SourceModel(privacy=PROMISE, ledger=ledger)
    with pytest.raises(BudgetExceededError):
        source.fit(*small)
    assert not hasattr(source, "classifier_")


def test_only_noised_rows_are_learned_from(small, monkeypatch):
    """Replace what passes the wall by constants of its own: nothing else may be left of X."""
    X, y = small
    from permea.privacy.release import ChargedRows

    other = np.random.default_rng(5).random(X.shape)
    real = ChargedRows.release

    def swap(paid, rows, **options):
        return replace(real(paid, rows, **options), data=other.copy())

    monkeypatch.setattr(ChargedRows, "release", swap)
    one = SourceModel(privacy=PROMISE, random_state=0).fit(X, y)
    two = SourceModel(privacy=PROMISE, random_state=0).fit(1 - X, y)
    np.testing.assert_array_equal(one.directions_, two.directions_)
    np.testing.assert_array_equal(one.centres_, two.centres_)
    np.testing.assert_array_equal(one.moments_.seconds, two.moments_.seconds)
    np.testing.assert_array_equal(one.distances(other[:9]), two.distances(other[:9]))


def test_centres_are_the_medians_of_118(small):
    X, y = small
    source = SourceModel().fit(X, y)
    codes = X @ source.directions_.T
    np.testing.assert_allclose(source.centres_[3], np.median(codes[y == 3], axis=0))
    assert source.directions_.shape[0] == 32  # ⌈p_sr/2⌉


def test_moments_are_unbiased_and_the_correction_is_what_makes_them_so(small):
    """Sum of second moments over many entries: mean zero error, five sigma; control without."""
    X, y = small
    X, y = np.tile(X, (40, 1)), np.tile(y, 40)
    source = SourceModel(privacy=PROMISE, random_state=1, classifier=_cheap()).fit(X, y)
    diagonal = np.einsum("cii->ci", source.moments_.seconds)
    truth = np.stack([np.mean(X[y == c] ** 2, axis=0) for c in range(10)])
    variance = source.noise_[0]
    spread = np.sqrt(5 * variance**2 + 4 * variance) / np.sqrt(len(X)) * np.sqrt(10 / 64)
    error = (diagonal - truth).mean()
    assert abs(error) < 5 * spread
    assert abs(error + variance) > 50 * spread  # what it would be without the subtraction


def _cheap():
    return KAHMClassifier(n_components=2, n_layers=1, branch_size=100)


@pytest.mark.parametrize("kind", [KAHMClassifier, MembershipClassifier, FuzzyClassifier])
def test_any_family(small, kind):
    classifier = kind(n_components=5, n_layers=1)
    source = SourceModel(privacy=PROMISE, classifier=classifier, random_state=0).fit(*small)
    assert source.classifier_.certificate_.privacy == PROMISE
    assert source.predict(small[0][:5]).shape == (5,)


def test_a_file_round_trip_changes_nothing(small, artefact, tmp_path):
    path = permea.save(artefact, tmp_path / "source.permea")
    again = permea.load(path)
    np.testing.assert_array_equal(again.distances(small[0]), artefact.distances(small[0]))
    np.testing.assert_array_equal(again.directions_, artefact.directions_)
    np.testing.assert_array_equal(again.moments_.seconds, artefact.moments_.seconds)
    assert again.certificate_ == artefact.certificate_
    assert again.certificate_.is_private


def rows_found(path, X):
    """How many rows stand in a file, in either precision."""
    raw = path.read_bytes()
    found = 0
    for row in X:
        pieces = [row.astype(kind)[start : start + 8] for kind in (np.float64, np.float32)
                  for start in range(0, len(row), 8)]  # fmt: skip
        found += any(np.any(piece) and piece.tobytes() in raw for piece in pieces)
    return found


def test_the_file_holds_no_source_row(small, artefact, tmp_path):
    path = permea.save(artefact, tmp_path / "source.permea")
    assert rows_found(path, small[0][:100]) == 0


def test_the_search_finds_rows_where_they_are(small, tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, small[0][:7].astype(np.float32))
    assert rows_found(path, small[0]) >= 7


def test_a_plain_artefact_is_not_written_by_accident(small, tmp_path):
    source = SourceModel().fit(*small)
    with pytest.raises(StorageError, match="training rows"):
        permea.save(source, tmp_path / "source.permea")


def training_rows(model):
    """The rows that a class model was fitted to, solved for: (K + λI) times the coefficients."""
    layers = [branch.layers_[0] for branch in model.branches_]
    found = []
    for layer in layers:
        K = kernel_matrix(layer.codes_)
        rows = np.repeat(layer.encoding_.mean[None], len(K), axis=0)
        offsets = K @ layer.coefficients_ + layer.regularization_ * layer.coefficients_
        rows[:, layer.encoding_.active] += offsets
        found.append(rows)
    return np.concatenate(found)


def reconstructions(source, X, y):
    """Root mean squared error of the best guesses of each row that the artefact allows.

    The attacker even knows which row of the artefact belongs to whom: the image of the noised row
    under the model of its class, the noised row itself and the class mean are the guesses.
    """
    errors = []
    for label, model in zip(source.classes_, source.classifier_.class_models_, strict=True):
        held = training_rows(model)
        mine = X[y == label]
        images = model.reconstruct(held)
        mean = np.repeat(source.moments_.means[[label]], len(held), axis=0)
        for guess in (held, images, mean):
            distance = np.sqrt(np.square(mine[:, None] - guess[None]).mean(axis=2))
            errors.append(distance.min(axis=1))
    return np.concatenate(errors)


def test_no_row_can_be_reconstructed_better_than_the_others_allow(small, tmp_path):
    """The file against itself: rows that were in it are no easier to guess than rows that were not.

    Under ε = 0.1 the nearest guess of a member is as far off as that of a stranger; without noise
    it is exact, which the control shows.
    """
    X, y = small
    inside, outside = slice(0, 200), slice(200, 400)
    strong = Privacy(epsilon=0.1, delta=0, domain=(0, 1))
    source = SourceModel(privacy=strong, classifier=_one_branch(), random_state=0)
    source.fit(X[inside], y[inside])
    source = permea.load(permea.save(source, tmp_path / "source.permea"))
    members = np.median(reconstructions(source, X[inside], y[inside]))
    strangers = np.median(reconstructions(source, X[outside], y[outside]))
    assert members > 0.8 * strangers
    plain = SourceModel(classifier=_one_branch()).fit(X[inside], y[inside])
    assert np.median(reconstructions(plain, X[inside], y[inside])[: len(X[inside])]) < 0.1


def _one_branch():
    return KAHMClassifier(n_components=5, n_layers=1, branch_size=1000)


@pytest.mark.parametrize("wrong", [KAHMClassifier(privacy=PROMISE), KAHMClassifier(fabricate=True)])
def test_noise_is_added_once(small, wrong):
    with pytest.raises(ValueError, match="noised already"):
        SourceModel(privacy=PROMISE, classifier=wrong).fit(*small)


def test_large_rows_keep_means_only(small):
    source = SourceModel(moments_limit=10).fit(*small)
    assert source.moments_.seconds is None
    assert source.moments_.means.shape == (10, 64)


def test_a_seeded_source_says_that_it_is_not_private(small):
    source = SourceModel(privacy=PROMISE, random_state=3).fit(*small)
    assert not source.certificate_.is_private


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([SourceModel(classifier=KAHMClassifier(n_components=2, n_layers=1))])
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)

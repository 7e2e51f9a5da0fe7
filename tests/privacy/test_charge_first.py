"""Nothing about private values is told before the charge, and no label set is read from them."""

import copy
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.preprocessing import FunctionTransformer

from permea import (
    FuzzyClassifier,
    HullClassifier,
    KAHMClassifier,
    MembershipClassifier,
    MomentClassifier,
    MomentRegressor,
    SourceModel,
    fabricate_records,
    save,
)
from permea.privacy import (
    Budget,
    BudgetExceededError,
    Ledger,
    Privacy,
    PrivacyWarning,
    release,
    release_pair,
)
from permea.privacy.moments import ChargedMoments, plan_moments
from permea.privacy.release import UnreadableRowsError, charge_rows
from permea.storage import StorageError
from permea.tables import Number, Schema, YesNo

ENTRY = Privacy(epsilon=1, domain=(0, 1))
RECORD = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))


def rows_and_labels():
    rng = np.random.default_rng(0)
    return rng.random((60, 4)), np.arange(60) % 2


def by_moments(ledger, X, y):
    model = MomentClassifier(privacy=RECORD, classes=[0, 1], features="identity", ledger=ledger)
    return model.fit(X, y)


def by_regression(ledger, X, y):
    model = MomentRegressor(
        privacy=RECORD, output_domain=(0, 1), features="identity", ledger=ledger
    )
    return model.fit(X, y)


def by_records(ledger, X, y):
    return fabricate_records(X, y, privacy=RECORD, classes=[0, 1], ledger=ledger)


def by_source(ledger, X, y):
    return SourceModel(privacy=RECORD, classes=[0, 1], ledger=ledger).fit(X, y)


def by_chunks(ledger, X, y):
    model = MomentClassifier(privacy=RECORD, classes=[0, 1], features="identity", ledger=ledger)
    return model.fit_chunks(lambda: iter([(X, y)]))


def by_rows(kind):
    def run(ledger, X, y):
        return kind(n_components=2, n_layers=1, privacy=ENTRY, ledger=ledger).fit(X, y)

    return run


WAYS = {
    "release": lambda ledger, X, y: release(X, ENTRY, ledger=ledger),
    "release_pair": lambda ledger, X, y: release_pair(X, X, ENTRY, ENTRY, ledger=ledger),
    "source": lambda ledger, X, y: SourceModel(privacy=ENTRY, ledger=ledger).fit(X, y),
    "kahm": by_rows(KAHMClassifier),
    "membership": by_rows(MembershipClassifier),
    "fuzzy": by_rows(FuzzyClassifier),
    "moments": by_moments,
    "source of moments": by_source,
    "chunks": by_chunks,
    "regression": by_regression,
    "records": by_records,
}
LABELLED = {"moments", "chunks", "records", "source of moments"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrong", ["nan", "infinite", "text"])
def test_what_is_wrong_with_values_is_told_after_the_charge(way, wrong):
    X, y = rows_and_labels()
    if wrong == "text":
        X = X.astype(object)
        X[17, 2] = "Jane Smith, 4711 Main Street"
    else:
        X[17, 2] = np.nan if wrong == "nan" else np.inf
    ledger = Ledger(Budget(epsilon=1000, delta=0.1, unit="entry"))
    with pytest.raises((TypeError, ValueError)) as failed:
        WAYS[way](ledger, X, y)
    assert len(ledger) == 1, "the error came before the charge"
    text = str(failed.value)
    assert "Smith" not in text
    assert "17" not in text


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrong", ["nan", "nothing", "text"])
def test_without_budget_bad_and_good_rows_give_the_same_error(way, wrong):
    """Adjacent tables cannot be told apart when nothing may be spent."""
    X, y = rows_and_labels()
    bad = X.astype(object) if wrong == "text" else X.copy()
    if wrong != "nothing":
        bad[3, 1] = "?" if wrong == "text" else np.nan
    foreign = y.copy()
    foreign[5] = 7
    texts = set()
    for rows, labels in ((X, y), (bad, y), (X, foreign)):
        ledger = Ledger(Budget(epsilon=0.1, delta=1e-6, unit="record"))
        with pytest.raises(BudgetExceededError) as failed:
            WAYS[way](ledger, rows, labels)
        texts.add(str(failed.value))
        assert len(ledger) == 0
    assert len(texts) == 1


@pytest.mark.parametrize("way", sorted(LABELLED))
def test_a_foreign_label_is_told_after_the_charge(way):
    X, y = rows_and_labels()
    y = y.copy()
    y[5] = 4711
    ledger = Ledger(Budget(epsilon=1000, delta=0.1, unit="record"))
    with pytest.raises(ValueError, match="declared classes") as failed:
        WAYS[way](ledger, X, y)
    assert len(ledger) == 1
    assert "4711" not in str(failed.value)


def test_which_labels_occur_is_not_published():
    X, y = rows_and_labels()
    other = y.copy()
    other[0] = 2
    declared = MomentClassifier(privacy=RECORD, classes=[0, 1, 2], features="identity")
    fits = [declared.fit(X, labels).classes_.tolist() for labels in (y, other)]
    assert fits[0] == fits[1] == [0, 1, 2]
    assert declared.certificate_.classes == "declared"
    assert "declared" in dict(declared.certificate_.entries())["class labels"]
    undeclared = MomentClassifier(privacy=RECORD, features="identity")
    with pytest.raises(ValueError, match="classes is missing"):
        undeclared.fit(X, y)
    with pytest.raises(TypeError, match="classes"):
        fabricate_records(X, y, privacy=RECORD)


def test_row_noise_says_that_its_labels_are_read_from_the_data():
    X, y = rows_and_labels()
    clf = KAHMClassifier(n_components=2, n_layers=1, privacy=ENTRY).fit(X, y)
    assert clf.certificate_.classes == "read from the data"
    assert any("labels" in text for text in clf.certificate_.not_protected)


def test_releases_of_rows_without_a_name_add_up_whoever_makes_them():
    X, y = rows_and_labels()
    ledger = Ledger(Budget(epsilon=1.5, unit="entry"))
    WAYS["source"](ledger, X, y)
    with pytest.raises(BudgetExceededError):
        WAYS["kahm"](ledger, X, y)
    with pytest.raises(BudgetExceededError):  # one row less is not another data set
        WAYS["release"](ledger, X[1:], y[1:])
    assert ledger.spent.epsilon == 1


def test_the_certificate_names_the_event_that_paid_for_it():
    X, y = rows_and_labels()
    ledger = Ledger(Budget(epsilon=50, delta=1e-3, unit="record"))
    numbers = []
    for way in ("moments", "kahm", "source"):
        made = WAYS[way](ledger, X, y)
        certificate = made.certificate_
        assert certificate.ledger_id
        assert certificate.ledger_hash
        assert "rows-" not in str(certificate)
        numbers.append(certificate.ledger_number)
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(
    ("epsilon", "delta", "warned"), [(1, 0.5, True), (21, 1e-5, True), (1, 1e-5, False)]
)
def test_a_promise_that_is_kept_and_worthless_is_warned_about(epsilon, delta, warned):
    rng = np.random.default_rng(0)
    X, y = rng.random((100, 3)), np.arange(100) % 2
    privacy = Privacy(epsilon=epsilon, delta=delta, unit="record", domain=(0, 1))
    model = MomentClassifier(privacy=privacy, classes=[0, 1], features="identity")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    assert any(issubclass(one.category, PrivacyWarning) for one in caught) == warned
    assert bool(model.certificate_.warnings) == warned
    assert ("warning" in str(model.certificate_)) == warned


def test_what_was_charged_once_is_released_once():
    from permea.privacy.release import charge_rows

    X, _ = rows_and_labels()
    ledger = Ledger(Budget(epsilon=1, unit="entry"))
    paid = charge_rows(X, ENTRY, ledger=ledger, dataset="ward")
    paid.release(X)
    with pytest.raises(RuntimeError, match="paid for once"):
        paid.release(X)
    assert [event.status for event in ledger.events] == ["released"]


def test_a_fork_between_two_stages_does_not_get_the_second_one_again():
    import os

    from permea.privacy.moments import ChargedMoments, plan_moments, sum_features, sum_moments

    plan = plan_moments(RECORD, 2, 2)
    phi = np.full((4, 2), 0.1)
    wall = ChargedMoments(plan)
    mean = wall.release_mean(sum_features(phi, plan))
    sums = sum_moments(phi - mean, np.eye(2)[[0, 1, 0, 1]], plan)
    child = os.fork()
    if child == 0:
        try:
            wall.release(sums)
        except RuntimeError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert wall.release(sums).certificate.is_private


# --- a second fit that fails, on an estimator that was private ------------------------------------


def refit_source(model, X, y):
    impossible = KAHMClassifier(n_components=2, tol=-1.0)
    model.set_params(privacy=None, classifier=impossible).fit(X, y)


def refit_moments(model, X, y):
    unfit = FunctionTransformer(lambda X: X[:, :0])
    model.set_params(privacy=None, features=unfit).fit(X, y)


def refit_with_a_foreign_label(model, X, y):
    other = np.where(np.arange(len(y)) == 5, 4711, y)
    model.set_params(privacy=replace(RECORD, epsilon=50)).fit(X, other)


@pytest.mark.parametrize(
    ("way", "again"),
    [
        ("source", refit_source),
        ("moments", refit_moments),
        ("regression", refit_moments),
        ("moments", refit_with_a_foreign_label),
        ("chunks", refit_with_a_foreign_label),
    ],
)
def test_a_fit_that_fails_leaves_no_certificate_of_an_earlier_one(way, again, tmp_path):
    """Raw means, the raw range of y and raw labels were saved as PRIVATE after such a fit."""
    X, y = rows_and_labels()
    model = WAYS[way](None, X, y)
    assert model.certificate_.status == "PRIVATE"
    with pytest.raises(Exception):  # noqa: B017, PT011
        again(model, X, y)
    assert model.certificate_ is None
    assert model.holds_private_rows_
    with pytest.raises(StorageError):
        save(model, tmp_path / "model.permea")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda paid: pickle.loads(pickle.dumps(paid))])
def test_a_payment_cannot_be_copied(copied):
    X, _ = rows_and_labels()
    with pytest.raises(TypeError, match="cannot be copied"):
        copied(charge_rows(X, ENTRY))
    with pytest.raises(TypeError, match="cannot be copied"):
        copied(ChargedMoments(plan_moments(RECORD, 2, 2)))
    shallow = copy.copy(charge_rows(X, ENTRY))
    shallow.release(X)
    with pytest.raises(RuntimeError, match="paid for once"):
        copy.copy(shallow).release(X)


ODD_OUTPUTS = {
    "regression": [[0.1] * 59 + ["Smith"], [0.1] * 59 + [10**400], [[0.1]] * 59 + [[0.1, 0.2]]],
    "chunks": [np.zeros(17), [0] * 59 + [[0, 1]], np.array([0] * 59 + [None])],
    "moments": [np.array([0] * 58 + [None, "Smith"], dtype=object), [0] * 59 + [{}]],
}


@pytest.mark.parametrize(("way", "y"), [(way, y) for way, all in ODD_OUTPUTS.items() for y in all])
def test_odd_outputs_give_one_message_after_the_charge(way, y):
    X, _ = rows_and_labels()
    ledger = Ledger(Budget(epsilon=1000, delta=0.1, unit="record"))
    with pytest.raises(UnreadableRowsError) as failed:
        WAYS[way](ledger, X, y)
    assert len(ledger) == 1
    assert "Smith" not in str(failed.value)
    assert not any(letter.isdigit() for letter in str(failed.value))


def test_a_first_chunk_without_rows_is_refused_in_words():
    model = MomentClassifier(privacy=RECORD, classes=[0, 1])
    for none in ([], [(np.zeros((0, 3)), [])]):
        with pytest.raises(ValueError, match="at least one row"):
            model.fit_chunks(lambda none=none: iter(none))


def not_utf8(texts):
    """A column of pyarrow in which one text is no text: reading it fails, quoting the bytes."""
    pa = pytest.importorskip("pyarrow")
    raw = pa.array([text.encode("latin-1") for text in texts], pa.binary())
    return pa.Array.from_buffers(pa.string(), len(texts), raw.buffers())


@pytest.mark.parametrize("ids", [[*"abc", 10**5000], not_utf8([*"abc", "\xe9"])], ids=["long", "é"])
def test_people_that_cannot_be_counted_are_refused_after_the_charge(ids):
    """The number of people sets the number of bins, which is part of what is charged."""
    schema = Schema({"x": Number(0, 1), "y": YesNo()}, label="y", person="id")
    table = {"x": [0.1, 0.2, 0.3, 0.4], "y": [1, 0, 1, 0], "id": ids}
    promise = Privacy(epsilon=1, delta=1e-5, unit="person")
    for kind in (MomentClassifier, HullClassifier, SourceModel):
        ledger = Ledger()
        with pytest.raises(UnreadableRowsError):
            kind(privacy=promise, schema=schema, ledger=ledger, dataset="d").fit(table)
        assert len(ledger.events) == 1


@pytest.mark.parametrize("kind", [MomentClassifier, HullClassifier, SourceModel])
def test_no_warning_depends_on_a_row(kind):
    """Sums of numbers near the largest overflow in both directions, where they are checked."""
    X, y = rows_and_labels()
    X[:3] = 1e308
    said = []
    for last in (1e308, -1e308):
        X[-3:] = last
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kind(privacy=RECORD, classes=[0, 1], features="identity", random_state=0).fit(X, y)
        said.append({one.category for one in caught})
    assert said[0] == said[1]

"""Estimators of moments on tables: schema, people, weights, chunks, files."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler

import permea
from permea import Ledger, MomentClassifier, MomentRegressor, Privacy, Schema
from permea.models.features import ScaledIdentity
from permea.models.moment_estimator import NoiseWarning
from permea.privacy.release import PrivacyWarning, UnreadableRowsError
from permea.tables import Category, Number, YesNo
from permea.tables.reading import read_chunks

SCHEMA = Schema(
    {
        "age": Number(0, 110),
        "sex": Category(["f", "m"]),
        "bp": Number(50, 250, missing=True),
        "died": YesNo(),
    },
    label="died",
    person="pid",
    ignored=["days"],
)
STAY = Schema({**SCHEMA.columns, "days": Number(0, 60)}, target="days", ignored=["died", "pid"])


def people(n=2000, rows=2, seed=0):
    """A table of n persons with so many rows each."""
    rng = np.random.default_rng(seed)
    N = n * rows
    age, sex = np.repeat(rng.uniform(20, 90, n), rows), rng.choice(["f", "m"], N)
    bp = rng.normal(130, 20, N)
    bp[rng.random(N) < 0.1] = np.nan
    died = rng.random(N) < 1 / (1 + np.exp(-(age - 60) / 10 - (sex == "m")))
    table = {"pid": np.repeat(np.arange(n), rows), "age": age, "sex": sex, "bp": bp}
    return pd.DataFrame({**table, "died": np.where(died, "yes", "no"), "days": age / 3})


FRAME = people()


def promise(unit="person", epsilon=1.0):
    return Privacy(epsilon=epsilon, delta=1e-6, unit=unit)


def model(unit="person", epsilon=1.0, **options):
    options = {"random_state": 0, **options}
    return MomentClassifier(privacy=promise(unit, epsilon), schema=SCHEMA, **options)


def quality(fitted, frame=FRAME):
    return roc_auc_score(frame["died"] == "yes", fitted.decision_function(frame))


@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
@pytest.mark.parametrize("unit", ["record", "person"])
def test_a_table_is_learned_by_its_schema_alone(unit, neighbours):
    fitted = model(unit, neighbours=neighbours, random_state=None).fit(FRAME)
    assert quality(fitted) > 0.8
    assert fitted.certificate_.is_private
    assert not fitted.holds_private_rows_
    assert f"per {unit}" in str(fitted.certificate_)
    assert fitted.classes_.tolist() == ["no", "yes"]
    size = len(FRAME) if unit == "record" else 2000
    assert fitted.moments_.size == pytest.approx(size, rel=0 if neighbours == "replace" else 0.2)


def test_frames_of_any_kind_and_explicit_outputs_and_groups_give_the_same_model():
    polars = pytest.importorskip("polars")
    import pyarrow as pa

    names = ["pid", "age", "sex", "bp", "died", "days"]
    fits = [
        model(random_state=0).fit(frame)
        for frame in (
            FRAME,
            FRAME[names[::-1]],
            polars.from_pandas(FRAME),
            pa.Table.from_pandas(FRAME),
            {name: FRAME[name].to_numpy() for name in names},
        )
    ]
    features = FRAME[["age", "sex", "bp"]]
    fits.append(model(random_state=0).fit(features, FRAME["died"], groups=FRAME["pid"]))
    for other in fits[1:]:
        np.testing.assert_array_equal(other.model_.weights, fits[0].model_.weights)


def test_chunks_are_learned_like_the_whole_also_when_a_person_spans_chunks():
    chunks = lambda: (FRAME.iloc[i : i + 501] for i in range(0, len(FRAME), 501))  # noqa: E731
    whole = model(random_state=0, bins=6).fit(FRAME)
    parts = model(random_state=0, bins=6).fit_chunks(chunks)
    np.testing.assert_array_equal(whole.model_.weights, parts.model_.weights)


def test_a_person_who_gains_rows_between_two_passes_is_refused():
    passes = iter([FRAME, FRAME, FRAME.assign(pid=7)])
    with pytest.raises(UnreadableRowsError):
        model().fit_chunks(lambda: iter([next(passes)]))


def test_workers_add_up_what_one_process_does(tmp_path):
    distributed = pytest.importorskip("distributed")
    FRAME.to_parquet(tmp_path / "rows.parquet", row_group_size=500)
    chunks = read_chunks(tmp_path / "rows.parquet")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        parts = model(random_state=0, bins=6).fit_chunks(chunks, engine="dask")
    whole = model(random_state=0, bins=6).fit(FRAME)
    np.testing.assert_array_equal(whole.model_.weights, parts.model_.weights)


def test_a_person_counts_once_however_often_her_rows_are_repeated():
    once = model(random_state=0).fit(people(rows=1))
    often = model(random_state=0).fit(pd.concat([people(rows=1)] * 7))
    assert once.moments_.size == often.moments_.size == 2000
    np.testing.assert_allclose(once.moments_.second, often.moments_.second, atol=0.1)
    rows = model("record", random_state=0).fit(pd.concat([people(rows=1)] * 7))
    assert rows.moments_.size == 14000


def test_people_need_a_promise_about_people_and_the_other_way_round():
    X, y = np.zeros((4, 2)), [0, 1, 0, 1]
    declared = Privacy(epsilon=1, delta=1e-6, unit="record", domain=(0, 1))
    with pytest.raises(ValueError, match="unit='person'"):
        MomentClassifier(privacy=declared, classes=[0, 1]).fit(X, y, groups=[1, 1, 2, 2])
    by_person = Privacy(epsilon=1, delta=1e-6, unit="person", domain=(0, 1))
    with pytest.raises(ValueError, match="whose rows they are"):
        MomentClassifier(privacy=by_person, classes=[0, 1]).fit(X, y)
    with pytest.raises(ValueError, match="domain is missing"):
        MomentClassifier(privacy=promise("record"), classes=[0, 1]).fit(X, y)


def test_column_names_are_checked_before_the_charge_and_values_after_it():
    ledger = Ledger()
    for bad in (FRAME.drop(columns="bp"), FRAME.drop(columns="pid"), FRAME.assign(extra=1)):
        with pytest.raises(ValueError, match="column"):
            model(ledger=ledger).fit(bad)
    for twice in ("pid", "died", "age"):  # the first of two columns would be taken in silence
        with pytest.raises(ValueError, match=f"more than once: '{twice}'"):
            model(ledger=ledger).fit(pd.concat([FRAME, FRAME[[twice]]], axis=1))
    with pytest.raises(ValueError, match=r"missing: 'age', 'died', 'pid'; not in the .* 'extra'"):
        model(ledger=ledger).fit(FRAME.drop(columns=["pid", "age", "died"]).assign(extra=1))
    assert len(ledger.events) == 0
    for column, value in (("sex", "Smith"), ("age", "Smith"), ("pid", None), ("died", "Smith")):
        damaged = FRAME.astype(object)
        damaged.loc[7, column] = value
        with pytest.raises(UnreadableRowsError) as caught:
            model(ledger=ledger).fit(damaged)
        assert "Smith" not in str(caught.value)
    assert len(ledger.events) == 4


def test_columns_are_checked_by_name_at_predict():
    fitted = model().fit(FRAME)
    with pytest.raises(ValueError, match="'bp'"):
        fitted.predict(FRAME[["age", "sex"]])
    shuffled = fitted.predict(FRAME[["sex", "bp", "age"]])
    assert shuffled.tolist() == fitted.predict(FRAME).tolist()
    scaled = Privacy(epsilon=8, delta=1e-6, unit="record", domain=(0, 1))
    X = np.random.default_rng(0).random((200, 3))
    plain = MomentClassifier(privacy=scaled, classes=[0, 1]).fit(X, X[:, 0] > 0.5)
    with pytest.warns(UserWarning, match="outside the declared domain"):
        plain.predict(100 * X)


def test_columns_in_another_unit_are_warned_about_at_predict(recwarn):
    fitted = model().fit(FRAME)
    fitted.predict(FRAME)
    fitted.predict(FRAME.assign(age=np.where(np.arange(len(FRAME)) % 3, FRAME["age"], 1e4)))
    assert not [one for one in recwarn if "unit of the schema" in str(one.message)]
    with pytest.warns(UserWarning, match="values of 'age' lie outside"):
        fitted.predict(FRAME.assign(age=12 * FRAME["age"]))


def test_weights_of_classes_and_rows_are_covered_by_the_promise():
    weights = np.random.default_rng(0).random(len(FRAME))
    light = model(class_weight={"yes": 1, "no": 0.01}).fit(FRAME)
    counts = light.moments_.outputs
    assert counts[0] < 0.1 * counts[1]
    both = model(epsilon=8, class_weight={"yes": 2, "no": 2}).fit(FRAME, sample_weight=weights)
    assert both.moments_.size == pytest.approx(weights.sum() / 2, rel=0.1)
    huge = model(epsilon=8).fit(FRAME, sample_weight=np.full(len(FRAME), 1e9))
    assert huge.moments_.size == pytest.approx(2000, rel=0.1)
    with pytest.raises(UnreadableRowsError):
        model().fit(FRAME, sample_weight=np.full(len(FRAME), np.nan))


def test_probabilities_are_those_of_the_rows_whatever_the_class_weights():
    plain = model(epsilon=8).fit(FRAME)
    weighted = model(epsilon=8, class_weight={"no": 0.3}).fit(FRAME)
    share = np.mean(FRAME["died"] == "yes")
    for fitted in (plain, weighted):
        assert fitted.predict_proba(FRAME)[:, 1].mean() == pytest.approx(share, abs=0.07)
    assert np.mean(weighted.predict(FRAME) == "yes") > np.mean(plain.predict(FRAME) == "yes") + 0.03
    with pytest.raises(ValueError, match="not declared"):
        model(class_weight={"nein": 1.0}).fit(FRAME)


def test_a_balanced_decision_finds_a_rare_class():
    rare = FRAME[(FRAME["died"] == "no") | (FRAME["pid"] % 10 == 0)]
    plain, balanced = model(epsilon=8).fit(rare), model(epsilon=8, class_weight="balanced")
    sick = rare["died"] == "yes"
    found = [np.mean(fit.predict(rare)[sick] == "yes") for fit in (plain, balanced.fit(rare))]
    assert found[1] > found[0] + 0.08


@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
def test_the_logistic_loss_gives_calibrated_probabilities(neighbours):
    fitted = model("record", 8, loss="logistic", neighbours=neighbours).fit(FRAME)
    assert fitted.loss_ == "logistic"
    assert "6 gradients" in fitted.certificate_.released
    truth = (FRAME["died"] == "yes").to_numpy()
    given = fitted.predict_proba(FRAME)[:, 1]
    assert log_loss(truth, given) < 0.46
    for low in (0.0, 0.25, 0.5, 0.75):
        part = (given >= low) & (given < low + 0.25)
        assert given[part].mean() == pytest.approx(truth[part].mean(), abs=0.06)


def test_the_logistic_loss_without_privacy_is_logistic_regression():
    fitted = MomentClassifier(schema=SCHEMA, loss="logistic", radius=2.0).fit(FRAME, groups=None)
    Z = SCHEMA.encoder(fitted.map_.bins).transform(FRAME)
    peer = LogisticRegression(C=1e4, max_iter=2000).fit(Z, FRAME["died"])
    given, expected = fitted.predict_proba(FRAME)[:, 1], peer.predict_proba(Z)[:, 1]
    assert np.abs(given - expected).mean() < 0.01


def test_many_classes_by_the_logistic_loss():
    X, y = load_digits(return_X_y=True)
    declared = Privacy(epsilon=20, delta=1e-5, unit="record", domain=(0, 16))
    options = {"features": "identity", "classes": range(10), "random_state": 0}
    for loss, least in (("squared", 0.85), ("logistic", 0.8)):
        fitted = MomentClassifier(privacy=declared, loss=loss, **options).fit(X[:1200], y[:1200])
        assert fitted.score(X[1200:], y[1200:]) > least


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_model_says_which_columns_matter(loss):
    fitted = model(epsilon=8, loss=loss).fit(FRAME)
    assert list(fitted.importances_)[:2] == ["age", "sex"]
    age = fitted.explain()[0]
    inner = slice(2, -1)  # between 20 and 90, where people are
    assert np.all(np.diff(age.values[inner, 0]) > 0)
    with pytest.raises(ValueError, match="schema"):
        MomentClassifier().fit(np.arange(6.0)[:, None], [0, 1] * 3).explain()


def test_noise_without_signal_is_said():
    with pytest.warns(NoiseWarning, match="fewer columns"):
        model(epsilon=0.05).fit(people(n=60))


def test_sparse_rows_are_learned_like_dense_ones():
    X = np.random.default_rng(0).random((300, 4)) * (np.arange(4) < 2)
    y = X[:, 0] > 0.5
    declared = Privacy(epsilon=4, delta=1e-5, unit="record", domain=(0, 1))
    made = MomentClassifier(privacy=declared, classes=[False, True], random_state=0)
    dense, sparse = made.fit(X, y).predict(X), made.fit(csr_matrix(X), y).predict(csr_matrix(X))
    assert dense.tolist() == sparse.tolist()


def test_a_regression_on_a_table():
    fitted = MomentRegressor(privacy=promise("record"), schema=STAY, random_state=0).fit(FRAME)
    assert fitted.score(FRAME, FRAME["days"]) > 0.8


def test_a_saved_model_knows_its_schema(tmp_path):
    fitted = model().fit(FRAME)
    again = permea.load(permea.save(fitted, tmp_path / "model.permea"))
    assert again.schema == SCHEMA
    np.testing.assert_array_equal(again.predict_proba(FRAME), fitted.predict_proba(FRAME))


def test_a_pipeline_that_fits_on_raw_rows_is_warned_about():
    X = np.random.default_rng(0).random((60, 3))
    declared = Privacy(epsilon=8, delta=1e-5, unit="record", domain=(0, 1))
    last = MomentClassifier(privacy=declared, classes=[False, True])
    with pytest.warns(PrivacyWarning, match="MinMaxScaler"):
        make_pipeline(MinMaxScaler(), last).fit(X, X[:, 0] > 0.5)
    inside = ColumnTransformer([("scaled", MinMaxScaler(), [0]), ("rest", "passthrough", [1, 2])])
    for step in (inside, make_pipeline(FunctionTransformer(), inside), make_union(inside)):
        with pytest.warns(PrivacyWarning, match="fitted MinMaxScaler on"):
            make_pipeline(step, last).fit(X, X[:, 0] > 0.5)
    encoder = Schema({"0": Number(0, 1)}).encoder()
    table = ColumnTransformer([("by schema", encoder, [0]), ("rest", "drop", [1, 2])])
    for harmless in (FunctionTransformer(), ScaledIdentity(domain=(0, 1)), "passthrough", table):
        with warnings.catch_warnings():
            warnings.simplefilter("error", PrivacyWarning)
            make_pipeline(harmless, last).fit(X, X[:, 0] > 0.5)


@pytest.mark.parametrize("person", ["pid", None])
def test_an_empty_table_is_named_as_such(person):
    schema = SCHEMA.with_roles(person=person, ignored=["days", "pid"][: 2 - bool(person)])
    plain = MomentClassifier(schema=schema)
    with pytest.raises(ValueError, match="no rows"):
        plain.fit(FRAME[:0])
    with pytest.raises(ValueError, match="no rows"):
        plain.fit(FRAME).predict(FRAME[:0])
    with pytest.raises(UnreadableRowsError, match=r"Schema\.problems"):
        model().fit(FRAME[:0])

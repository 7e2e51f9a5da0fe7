"""Moment classifiers as ONNX: the graph, run by another program, gives the same answers."""

import sys

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from permea import Certificate, KAHMClassifier, MomentClassifier, Privacy
from permea.datasets import VISITS_SCHEMA, make_visits
from permea.storage import to_onnx
from permea.tables import Category, Date, Number, Schema, YesNo

PERSON = Privacy(epsilon=2, delta=1e-6, unit="person")
SCHEMA = Schema(
    {
        "age": Number(0, 110, whole=True),
        "dose": Number(0.01, 1000, scale="log", missing=True),
        "ward": Category(["a", "b", "7"], other=True),
        "sex": Category(["f", "m"], missing=True),
        "smoker": YesNo(missing=True),
        "admitted": Date("2015-01-01", "2024-12-31"),
        "ill": Category(["no", "mild", "severe"]),
    },
    label="ill", pairs=[("age", "sex"), ("smoker", "ward")],
)  # fmt: skip


def run(made, feeds):
    session = onnxruntime.InferenceSession(made.SerializeToString())
    return session.run(["label", "probabilities"], feeds)


def feeds_of(schema, frame):
    """A table as the inputs of a graph: columns of numbers, days and texts."""
    feeds = {}
    for name in schema.features:
        column = frame[name]
        if schema.columns[name].kind == "date":
            column = pd.to_datetime(column).map(lambda day: day.toordinal())
        if schema.columns[name].kind in ("number", "date"):
            feeds[name] = column.to_numpy(np.float64)[:, None]
        else:
            feeds[name] = column.fillna("").astype(str).to_numpy(dtype=object)[:, None]
    return feeds


def mixed(n=600, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(-5, 120, n)  # some are outside of the range
    return pd.DataFrame({
        "age": age,
        "dose": np.where(rng.random(n) < 0.2, np.nan, rng.lognormal(0, 3, n)),
        "ward": rng.choice(["a", "b", "7", "elsewhere"], n),
        "sex": rng.choice(["f", "m", ""], n),
        "smoker": rng.choice(["yes", "no", "Y", "TRUE", ""], n),
        "admitted": pd.Timestamp("2014-06-01") + pd.to_timedelta(rng.integers(0, 4300, n), "D"),
        "ill": np.select([age > 80, age > 40], ["severe", "mild"], "no"),
    })  # fmt: skip


def assert_same(model, made, frame, feeds):
    label, probabilities = run(made, feeds)
    np.testing.assert_allclose(probabilities, model.predict_proba(frame), atol=1e-9)
    assert (np.asarray(label).astype(str) == model.predict(frame).astype(str)).all()


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("weight", [None, "balanced", {"no": 1, "mild": 0.5, "severe": 0.7}])
def test_a_graph_of_a_table_gives_the_same_labels_and_probabilities(loss, weight):
    if isinstance(weight, dict) and loss == "logistic":
        weight = {**weight, "mild": 1.0}
    promise = Privacy(epsilon=4, delta=1e-5, unit="record")
    model = MomentClassifier(privacy=promise, schema=SCHEMA, loss=loss, class_weight=weight)
    model.fit(mixed())
    new = mixed(200, seed=1).drop(columns="ill")
    assert_same(model, to_onnx(model), new, feeds_of(SCHEMA, new))


def test_a_graph_of_people_carries_its_certificate(tmp_path):
    model = MomentClassifier(privacy=PERSON, schema=VISITS_SCHEMA).fit(make_visits(800))
    made = to_onnx(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == made.SerializeToString()
    (entry,) = made.metadata_props
    assert Certificate.from_json(entry.value).privacy.unit == "person"
    new = pd.DataFrame(make_visits(100, seed=1))[list(VISITS_SCHEMA.features)]
    assert_same(model, made, new, feeds_of(VISITS_SCHEMA, new))


@pytest.mark.parametrize("features", ["identity", "fourier"])
@pytest.mark.parametrize("private", [True, False])
def test_a_graph_of_numbers_gives_the_same(features, private):
    rng = np.random.default_rng(0)
    X = rng.random((900, 4))
    y = (X[:, 0] + X[:, 1] > 1).astype(int) * 3
    promise = Privacy(epsilon=8, delta=1e-5, unit="record", domain=(0, 1)) if private else None
    model = MomentClassifier(privacy=promise, features=features, classes=[0, 3]).fit(X, y)
    new = rng.normal(0.5, 1.0, (50, 4)) if private else rng.random((50, 4))
    label, probabilities = run(to_onnx(model), {"X": new})
    expected = model.predict_proba(new)  # features of numbers are rounded, in single precision
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5, atol=1e-6)
    assert (label == model.predict(new)).all()


def test_a_graph_that_is_wrong_would_be_noticed():
    model = MomentClassifier(privacy=PERSON, schema=VISITS_SCHEMA).fit(make_visits(400))
    new = pd.DataFrame(make_visits(50, seed=1))[list(VISITS_SCHEMA.features)]
    feeds = feeds_of(VISITS_SCHEMA, new)
    other = {**feeds, "age": feeds["age"] + 30}
    assert np.abs(run(to_onnx(model), other)[1] - model.predict_proba(new)).max() > 1e-3


def test_what_cannot_be_written_is_refused():
    X, y = np.random.default_rng(0).random((80, 2)), np.repeat([0, 1], 40)
    with pytest.raises(TypeError, match="fitted MomentClassifier"):
        to_onnx(KAHMClassifier().fit(X, y))
    with pytest.raises(TypeError, match="fitted MomentClassifier"):
        to_onnx(MomentClassifier())
    edges = MomentClassifier(features="edges").fit(np.random.default_rng(0).random((80, 64)), y)
    with pytest.raises(TypeError, match="OrientedGradients"):
        to_onnx(edges)


def test_without_onnx_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"permea\[onnx\]"):
        to_onnx(MomentClassifier())

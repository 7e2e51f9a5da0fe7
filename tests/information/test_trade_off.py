"""003 Algorithm 9 as one study, and its pictures."""

import math

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from permea import KAHMClassifier
from permea.information import (
    information_leakage,
    privacy_leakage,
    simulate_attack,
    transferability,
)
from permea.information.measures import class_images, party_transferability
from permea.information.study import trade_off
from permea.report.plots import (
    plot_estimates,
    plot_explanation,
    plot_leakage_levels,
    plot_recovery,
    plot_subject_boxes,
    plot_trade_off,
)
from permea.transfer.target import METHODS

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
EPSILONS = [0.1, 2, math.inf]


@pytest.fixture(scope="module")
def rows():
    X, y = load_digits(n_class=4, return_X_y=True)
    return X / 16, y


@pytest.fixture(scope="module")
def study(rows):
    X, y = rows
    few = y[300:500].copy()
    few[40:] = -1
    return trade_off(
        X[:300], y[:300], X_target=X[300:500], y_target=few, X_test=X[500:], y_test=y[500:],
        epsilons=EPSILONS, random_state=0,
    )  # fmt: skip


def test_all_measures_rise_with_epsilon_and_transfer_stays_flat(study):
    frame = study.to_frame()
    for name in ("privacy_leakage", "interpretability"):
        assert frame[name].is_monotonic_increasing, name
    assert frame["transferability"].idxmin() == 0
    assert frame["image_gap"].is_monotonic_decreasing
    assert frame["recovered"].iloc[0] < 0.1 < 0.9 < frame["recovered"].iloc[2]
    assert frame["source_accuracy"].iloc[0] < 0.6
    assert np.ptp(frame["accuracy"]) < 0.3 * np.ptp(frame["source_accuracy"])


def test_models_are_selected_by_rule(study):
    assert study.select("min_privacy_leakage").epsilon == 0.1
    assert math.isinf(study.select("max_interpretability").epsilon)
    assert study.select("max_transferability").epsilon > 1
    best = study.select("max_accuracy")
    assert best.accuracy == study.to_frame()["accuracy"].max()
    with pytest.raises(ValueError, match="rule must be one of"):
        study.select("best")


def test_every_point_brings_its_models(study, rows):
    point = study.select("max_interpretability")
    assert point.adversary.mean_recovered > 0.9
    words = str(point.interpreter.explain(rows[0][0]))
    assert "class 0" in words
    assert point.classifier.predict(rows[0][:5]).shape == (5,)
    assert point.source.certificate_ is None
    private = study.select("min_privacy_leakage").source
    assert private.certificate_.privacy.epsilon == 0.1
    assert "0.1" in str(study)


def test_without_target_there_is_leakage_and_interpretability_only(rows):
    X, y = rows
    private = X[:120, 10:12]
    moods = np.random.default_rng(0).normal(size=(120, 1))
    study = trade_off(X[:120], y[:120], private=private, interpretable=moods, epsilons=[1.0],
                      models=False, random_state=0)  # fmt: skip
    point = study.points[0]
    assert point.transferability is None
    assert math.isnan(point.accuracy)
    assert len(point.privacy_leakage.names) == 2
    assert point.interpretability.n_samples == 120
    with pytest.raises(ValueError, match="give X_target"):
        study.select("max_transferability")
    with pytest.raises(ValueError, match="give X_test"):
        study.select("max_accuracy")


def test_bad_input_of_a_study(rows):
    X, y = rows
    with pytest.raises(ValueError, match="together"):
        trade_off(X[:100], y[:100], X_target=X[100:200], epsilons=[1])
    with pytest.raises(ValueError, match="same rows"):
        trade_off(X[:100], y[:100], private=X[:50], epsilons=[1])
    with pytest.raises(ValueError, match="domain"):
        trade_off(16 * X[:100], y[:100], epsilons=[1])
    with pytest.raises(ValueError, match="epsilon"):
        trade_off(X[:100], y[:100], epsilons=[-1])


@pytest.mark.parametrize("method", sorted(METHODS))
def test_images_of_target_rows_by_both_sides(rows, method):
    X, y = rows
    few = y[200:400].copy()
    few[40:] = -1
    study = trade_off(X[:200], y[:200], X_target=X[200:400, ::2], y_target=few, epsilons=[8],
                      transfer={"method": method}, models=False, random_state=0)  # fmt: skip
    classifier = study.points[0].classifier
    by_source, by_target = class_images(classifier, X[200:400, ::2])
    assert by_source.shape == by_target.shape == (200, 64)
    again = transferability(classifier, X[200:400, ::2], max_samples=50)
    assert again.n_samples == 50
    assert np.isfinite(again.value)


def test_the_six_curves_are_drawn(study):
    figure = plot_trade_off(study)
    assert len(figure.axes) == 6
    points = sum(len(line.get_xdata()) for ax in figure.axes for line in ax.lines)
    assert points == 9 * len(EPSILONS)  # three panels with two curves, three with one
    figure.canvas.draw()


def test_samples_boxes_and_bars_are_drawn(study, rows):
    images = plot_leakage_levels([rows[0][0]] * 3, ["a", "b", "c"], shape=(8, 8))
    assert all(len(ax.images) == 1 for ax in images.axes)
    curves = plot_leakage_levels([np.arange(5.0)], ["one"])
    assert len(curves.axes[0].lines) == 1
    boxes = plot_subject_boxes({"transfer": [0.9, 0.8, math.nan], "source": [0.5, 0.6, 0.7]})
    assert [tick.get_text() for tick in boxes.get_xticklabels()] == ["transfer", "source"]
    point = study.points[1]
    bars = plot_explanation(point.interpreter.explain(rows[0][0]))
    assert len(bars.get_yticklabels()) == 4
    shares = plot_recovery(point.adversary)
    assert len(shares.patches) == 20
    assert shares.patches[0].get_width() == max(bar.get_width() for bar in shares.patches)
    line = plot_estimates([1, 2], [-1.0, -2.0], [-1.1, -2.1], error=[0.1, 0.1])
    for drawn in (images, curves, boxes.figure, bars.figure, shares.figure, line.figure):
        drawn.canvas.draw()
    with pytest.raises(ValueError, match="one title"):
        plot_leakage_levels([rows[0][0]], [])
    with pytest.raises(ValueError, match="at least one method"):
        plot_subject_boxes({})


@pytest.fixture(scope="module")
def per_record(digits):
    X, T, y, t = digits
    few = np.where(np.arange(300) < 50, t[:300], -1)
    return trade_off(
        X[:900], y[:900], X_target=T[:300], y_target=few, X_test=T[300:], y_test=t[300:],
        epsilons=[2, math.inf], delta=1e-5, unit="record", source={"classes": range(10)},
        max_samples=150, random_state=0, transfer={"dimensions": (10,)},
    )  # fmt: skip


def test_per_record_nothing_is_measured_on_pairs_that_do_not_exist(per_record):
    """A release of moments has no released row for a row; images, accuracies and draws remain."""
    noised, exact = per_record.points
    for point in (noised, exact):
        assert point.source.encoder_ is not None
        assert point.privacy_leakage is None
        assert point.adversary is None
        assert math.isfinite(point.transferability.value)
        assert math.isfinite(point.image_gap)
        assert point.interpreter.names_ == tuple(f"class {c}" for c in range(10))
    assert exact.accuracy > 0.9
    assert exact.source_accuracy > noised.source_accuracy
    assert exact.interpretability.value > noised.interpretability.value
    assert per_record.select("max_interpretability").epsilon == math.inf
    assert "nan" in str(per_record)
    with pytest.raises(ValueError, match="a release of moments has none"):
        per_record.select("min_privacy_leakage")


def test_per_record_other_parameters_than_classes_are_not_made_up(digits):
    X, _, y, _ = digits
    study = trade_off(
        X[:200], y[:200], interpretable=X[:200, :3], epsilons=[8], delta=1e-5, unit="record",
        source={"classes": range(10)}, random_state=0,
    )  # fmt: skip
    assert study.points[0].interpretability is None
    rows = trade_off(
        X[:100], y[:100], epsilons=[8], delta=1e-5, unit="record", source={"release": "rows"},
        models=False, random_state=0,
    )  # fmt: skip
    assert math.isfinite(rows.points[0].privacy_leakage.value)


def test_an_artefact_is_no_table_of_released_rows(per_record, digits):
    source = per_record.points[0].source
    for measure in (information_leakage, privacy_leakage, simulate_attack):
        with pytest.raises(TypeError, match="release of moments has none"):
            measure(source, digits[0][:900])


def test_transferability_between_parties():
    """003 section 7: any pair of parties; a party that lacks a class is asked about the others."""
    X, y = load_digits(n_class=3, return_X_y=True)
    X = X / 16
    parties = {
        "alike": KAHMClassifier(n_components=5, n_layers=1).fit(X[:200], y[:200]),
        "few": KAHMClassifier(n_components=5, n_layers=1).fit(X[200:230], y[200:230]),
        "two classes": KAHMClassifier(n_components=5, n_layers=1).fit(X[y < 2], y[y < 2]),
    }
    parties["same"] = parties["alike"]
    found = party_transferability(parties, X[300:400])
    assert len(found) == 12
    assert found["alike", "same"].value > found["alike", "few"].value
    assert found["two classes", "alike"].n_samples < found["alike", "same"].n_samples == 100
    stranger = KAHMClassifier(n_components=5, n_layers=1, allow_single_class=True)
    stranger.fit(X[:30], np.full(30, 9))
    pair = {"alike": parties["alike"], "b": stranger}
    assert set(party_transferability(pair, X[:50])) <= {("b", "alike")}
    with pytest.raises(TypeError, match="KAHMClassifier"):
        party_transferability({"a": parties["alike"], "b": LogisticRegression()}, X)

"""The suite on models with a known answer: one remembers everything, one knows nothing."""

import json

import numpy as np
import pytest
from mechanisms import LabelService, NearestRow, noisy_classes
from scipy.stats import norm
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from permea import audit
from permea.audit import attacks
from permea.audit.attacks import METRICS


@pytest.fixture(scope="module")
def remembered():
    X, y = noisy_classes(800, 12)
    clf = NearestRow().fit(X[:400], y[:400])
    return audit.attack(
        clf, X[:400], y[:400], X[400:], y[400:], n_shadows=8, hidden_columns=[0], random_state=1
    )


@pytest.mark.parametrize("kind", audit.KINDS)
def test_nearest_row_with_distances_is_caught_by_every_attack(remembered, kind):
    assert remembered[kind].applies
    assert remembered[kind].auc > 0.9
    assert remembered[kind].accuracy > 0.8


def test_nearest_row_tells_a_hidden_column_and_scores_high(remembered):
    (attribute,) = remembered.attributes
    assert attribute.gain_interval[0] > 0.3
    assert remembered.membership_inference_score > 1.0


def test_scikit_learns_nearest_neighbour_is_caught_where_the_attack_applies():
    X, y = noisy_classes(800, 12)
    clf = KNeighborsClassifier(1).fit(X[:400], y[:400])
    report = audit.attack(clf, X[:400], y[:400], X[400:], y[400:], n_shadows=8)
    blind = {result.name for result in report.attacks if not result.applies}
    # Its probabilities are 0 and 1 for every row: what ignores the label has nothing to read.
    assert blind == {"confidence", "entropy", "distance"}
    for result in report.attacks:
        assert not result.applies or result.auc > 0.9, result.name


def test_a_model_of_independent_noise_gives_one_half_within_its_interval():
    """The members never touched the model: each interval misses 0.5 in one case of 20."""
    X, y = noisy_classes(1200, 4)
    other, labels = noisy_classes(400, 4, seed=9)
    clf = KNeighborsClassifier(5).fit(other, labels)
    report = audit.attack(clf, X[:600], y[:600], X[600:], y[600:], n_shadows=8)
    width = norm.ppf(1 - 1e-6 / 2) / norm.ppf(0.975)
    for result in report.attacks:
        low, high = result.auc_interval
        # Intervals stretched to an error of 1e-6, so that the test fails for a reason only.
        stretched = (0.5 - (high - low) / 2 * width, 0.5 + (high - low) / 2 * width)
        assert not result.applies or stretched[0] < result.auc < stretched[1], result.name
    inside = [r.auc_interval[0] <= 0.5 <= r.auc_interval[1] for r in report.attacks if r.applies]
    assert np.mean(inside) > 0.7


def test_a_label_service_meets_only_label_attacks():
    X, y = noisy_classes(800)
    service = LabelService(KNeighborsClassifier(1).fit(X[:400], y[:400]))
    report = audit.attack(
        service, X[:400], y[:400], X[400:], y[400:], estimator=KNeighborsClassifier(1), n_shadows=2
    )
    applied = {result.name for result in report.attacks if result.applies}
    assert applied == {"correctness", "label_only"}
    assert report["label_only"].auc > 0.9
    assert report.membership_inference_score is None


def test_shadow_data_of_the_attackers_own_scores_every_row():
    X, y = noisy_classes(1500, 10)
    clf = NearestRow().fit(X[:500], y[:500])
    report = audit.attack(
        clf,
        X[:500],
        y[:500],
        X[500:1000],
        y[500:1000],
        shadow_data=(X[1000:], y[1000:]),
        n_shadows=6,
        kinds=["loss", "distance", "label_only", "shadow_tree", "lira_online", "rmia_offline"],
    )
    assert report.protocol["scored_members"] == 500
    for result in report.attacks:
        assert result.auc > 0.9, result.name
        assert result.accuracy > 0.75, result.name


@pytest.mark.parametrize("clf", [LogisticRegression(), LinearSVC(), RandomForestClassifier(10)])
def test_any_classifier_and_text_labels(clf):
    X, y = noisy_classes(240, 3)
    names = np.array(["alpha", "beta", "gamma"])[y]
    clf.fit(X[:120], names[:120])
    report = audit.attack(clf, X[:120], names[:120], X[120:], names[120:], n_shadows=4)
    assert {r.name for r in report.attacks if not r.applies} == {"distance"}
    assert set(report["loss"].per_class) == {"alpha", "beta", "gamma"}


def test_scored_rows_and_rows_that_fit_thresholds_are_disjoint(monkeypatch):
    """Shifting the scores of the scored rows may not move any threshold."""
    X, y = noisy_classes(400, 3)
    clf = KNeighborsClassifier(3).fit(X[:200], y[:200])
    seen = []
    from permea.audit import suite

    def record(name, member, outside, *, threshold, **rest):
        seen.append((np.asarray(member), np.asarray(outside), threshold))
        return original(name, member, outside, threshold=threshold, **rest)

    original = suite.evaluate
    monkeypatch.setattr(suite, "evaluate", record)
    pool = suite._make_pool(X[:200], y[:200], X[200:], y[200:], None, 0)
    plain = METRICS["loss"]
    scored = {row.tobytes() for row in pool.X[pool.scored]}

    def shifted(clf, X, y):
        lift = np.array([row.tobytes() in scored for row in X])
        return plain(clf, X, y) + 100.0 * lift

    audit.attack(clf, X[:200], y[:200], X[200:], y[200:], kinds="loss")
    monkeypatch.setitem(METRICS, "loss", shifted)
    audit.attack(clf, X[:200], y[:200], X[200:], y[200:], kinds="loss")
    (first, _, before), (second, _, after) = seen
    assert np.allclose(second, first + 100.0)
    assert before == after


def test_halves_are_complementary_and_keep_classes():
    y = np.repeat([0, 1, 2], [10, 11, 7])
    inside = attacks.halves(y, 6, np.random.default_rng(0))
    assert (inside.sum(axis=0) == 3).all()
    for mask in inside:
        assert set(y[mask]) == {0, 1, 2}


def test_lira_known_answer():
    """Signals that are N(2,1) inside and N(0,1) outside: the ratio is 2x − 2."""
    rng = np.random.default_rng(0)
    inside = attacks.halves(np.zeros(400), 200, rng)
    signal = rng.normal(size=inside.shape) + 2.0 * inside
    observed = np.linspace(-1, 3, 400)
    ratio = attacks.lira_online(observed, signal, inside)
    assert np.corrcoef(ratio, 2 * observed - 2)[0, 1] > 0.9
    offline = attacks.lira_offline(observed, signal, inside)
    assert np.abs(offline - observed).max() < 1.0


def test_rmia_ranks_among_the_population():
    shadow_likelihood = np.zeros((2, 5))
    inside = np.zeros((2, 5), dtype=bool)
    population = np.array([True, True, True, False, False])
    observed = np.array([-3.0, -2.0, -1.0, 0.0, -2.5])
    score = attacks.rmia(observed, shadow_likelihood, inside, population)
    assert score.tolist() == pytest.approx([1 / 3, 2 / 3, 1.0, 1.0, 1 / 3])


def test_report_is_readable_by_people_and_machines(remembered, tmp_path):
    text = str(remembered)
    assert "TPR@0.1%" in text
    assert "nothing is claimed" in text
    loaded = json.loads(remembered.to_json(tmp_path / "report.json"))
    assert loaded["attacks"][0]["name"] == "correctness"
    assert json.loads((tmp_path / "report.json").read_text()) == loaded
    assert remembered.strongest.auc == max(r.auc for r in remembered.attacks)
    with pytest.raises(KeyError, match="it holds"):
        remembered["magic"]


def test_roc_picture_is_logarithmic(remembered):
    ax = remembered.plot_roc(names=["loss", "lira_online"])
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert len(ax.lines) == 3


def test_missing_matplotlib_names_the_extra(remembered, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"permea\[plot\]"):
        remembered.plot_roc()


def test_claim_and_measurement_stand_side_by_side():
    from permea.privacy import Privacy, release

    certificate = release(np.zeros((4, 3)), Privacy(epsilon=1, domain=(0, 1))).certificate
    high = audit.EmpiricalEpsilon(2.0, 0.0, "entry", "replace", 0.95, "one-run", 500)
    low = audit.EmpiricalEpsilon(2.0, 0.0, "record", "replace", 0.95, "one-run", 500)
    other = audit.EmpiricalEpsilon(9.0, 0.0, "record", "add/remove", 0.95, "one-run", 500)
    rows = audit.guarantee_rows(certificate, [high, low, other])
    assert [row["unit"] for row in rows] == ["entry", "record", "entry", "record", "record"]
    assert rows[0]["epsilon"] == 1.0
    assert rows[1]["epsilon"] > 1.0
    assert "REFUTES" in rows[2]["note"]
    assert "agrees" in rows[3]["note"]
    assert "claim" not in rows[4]["note"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kinds": "magic"}, "Unknown attacks"),
        ({"X_outside": np.zeros((5, 6)), "y_outside": np.zeros(5)}, "at least 20"),
        ({"y_member": np.zeros(3)}, "one label per row"),
    ],
)
def test_errors(change, message):
    X, y = noisy_classes(100, 2)
    arguments = {"X_member": X[:50], "y_member": y[:50], "X_outside": X[50:], "y_outside": y[50:]}
    with pytest.raises(ValueError, match=message):
        audit.attack(KNeighborsClassifier(1).fit(X[:50], y[:50]), **(arguments | change))


def test_probabilities_that_overflowed_are_named():
    class Overflowed(NearestRow):
        def predict_proba(self, X):
            return np.where(np.arange(len(X))[:, None] == 0, np.nan, 0.5) * np.ones((1, 2))

    X, y = noisy_classes(40, 3)
    with pytest.raises(ValueError, match="not finite for 1 of 40 rows"):
        audit.attack(
            Overflowed().fit(X[:20], y[:20]), X[:20], y[:20], X[20:], y[20:], kinds=["loss"]
        )

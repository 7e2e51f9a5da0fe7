"""``permea audit``: the mechanism that the model used, or no figure at all."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import permea
from permea import KAHMClassifier, MomentClassifier, Privacy
from permea.privacy.moments import Scales, plan_moments

PROMISE = Privacy(epsilon=4, delta=1e-3, unit="record", domain=(0, 1))
QUICK = ("--releases", 200, "--confidence", 0.999999)


def rows(n=300):
    rng = np.random.default_rng(0)
    X = rng.random((n, 3))
    return X, np.where(X[:, 0] > 0.5, "yes", "no")


def trained():
    clf = MomentClassifier(privacy=PROMISE, classes=["no", "yes"], features="identity")
    return clf.fit(*rows())


@pytest.fixture
def moments(shell):
    """A model from noised moments, and two tables that trained nothing."""
    permea.save(trained(), shell.folder / "moments.permea")
    for name, seed in (("a.csv", 1), ("b.csv", 2)):
        rng = np.random.default_rng(seed)
        frame = pd.DataFrame(rng.random((60, 3)), columns=["c0", "c1", "c2"])
        frame.assign(y=rng.choice(["no", "yes"], 60)).to_csv(shell.folder / name, index=False)
    return shell


TABLES = ("--members", "a.csv", "--outside", "b.csv", "--label", "y")


def test_the_mechanism_of_the_certificate_is_run_again(moments):
    done = moments("audit", "moments.permea", *QUICK, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["attacks"] == []
    assert (found["status"], found["private"], found["verified"]) == (
        "unverified claim",
        False,
        False,
    )
    mechanism = found["mechanism"]
    assert (mechanism["method"], mechanism["unit"], mechanism["claim"]) == (
        "white-box",
        "record",
        4,
    )
    assert mechanism["delta"] == 1e-3  # version 0.1 noised rows instead
    assert 0 < mechanism["epsilon"] <= 4
    assert "mechanism" in mechanism["note"]


def test_the_figures_say_what_they_are_about(moments):
    done = moments("audit", "moments.permea", *TABLES, *QUICK)
    assert done.code == 0, done.err
    assert "Membership inference on this model: rows of a.csv against rows of b.csv" in done.out
    assert "The mechanism of the certificate, not this model and not any table" in done.out
    assert "says nothing about other rows" in done.out
    assert "at least" in done.out
    assert "without assumptions" in done.out
    assert "unverified claim" in done.out


def test_a_mechanism_with_half_the_noise_fails_a_pipeline(moments, monkeypatch):
    def weak(*words, **options):
        plan = plan_moments(*words, **options)
        return replace(plan, scales=Scales(*(scale / 2 for scale in plan.scales)))

    monkeypatch.setattr("permea.models.moment_estimator.plan_moments", weak)
    done = moments("audit", "moments.permea", *QUICK, "-o", "found.json")
    assert done.code == 7
    assert "refutes the claimed ε" in done.err
    kept = json.loads((moments.folder / "found.json").read_text())
    assert kept["mechanism"]["epsilon"] > 4
    assert any("REFUTES" in row["note"] for row in kept["guarantees"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda clf: clf.set_params(random_state=0).fit(*rows()), "seeded"),
        (lambda clf: clf.set_params(privacy=None).fit(*rows()), "no certificate"),
        (lambda clf: _grafted(clf, epsilon=0.01), "do not belong together"),
        (lambda clf: _grafted(clf.set_params(privacy=None).fit(*rows())), "does not belong to it"),
    ],
)
def test_no_figure_where_the_mechanism_cannot_be_run_again(shell, change, reason):
    clf = trained()
    permea.save(change(clf), shell.folder / "model.permea", private_rows="include")
    done = shell("audit", "model.permea", *QUICK)
    assert done.code == 0, done.err
    assert "no figure" in done.out
    assert reason in done.out
    assert "at least" not in done.out


def _grafted(clf, epsilon=4):
    """A certificate of another model, or of another promise."""
    other = MomentClassifier(privacy=PROMISE, classes=["no", "yes"], features="identity").fit(
        *rows()
    )
    promise = replace(other.certificate_.privacy, epsilon=epsilon)
    clf.certificate_ = replace(other.certificate_, privacy=promise, record_epsilon=epsilon)
    return clf


def test_rows_are_audited_as_rows(shell):
    X, y = rows()
    entry = Privacy(epsilon=1, domain=(0, 1))
    clf = KAHMClassifier(privacy=entry, n_components=2, n_layers=1).fit(X, y)
    permea.save(clf, shell.folder / "rows.permea")
    done = shell("audit", "rows.permea", "--releases", 1000, "--json")
    found = json.loads(done.out)["mechanism"]
    assert (found["method"], found["unit"], found["claim"]) == ("white-box", "entry", 1)
    assert 0.3 < found["epsilon"] <= 1.0


def test_words_that_do_not_fit_together(moments):
    wrong = moments("audit", "moments.permea", "--members", "a.csv")
    assert (wrong.code, "belong together" in wrong.err) == (2, True)
    wrong = moments("audit", "moments.permea", "--max-auc", 0.6)
    assert (wrong.code, "--max-auc needs" in wrong.err) == (2, True)
    skipped = moments("audit", "moments.permea", *TABLES, "--releases", 0)
    assert skipped.code == 0
    assert "no figure: not asked for" in skipped.out


def test_a_report_needs_no_distances(moments):
    done = moments("report", "moments.permea", *TABLES, "--releases", 100)
    assert done.code == 0, done.err
    page = (moments.folder / "report.html").read_text()
    assert "Largest class probability" in page
    assert "the most frequent class alone" in page
    assert "AUROC" in page


def test_probabilities_for_every_class(moments):
    done = moments("predict", "moments.permea", "a.csv", "--probabilities", "-o", "out.csv")
    assert done.code == 0, done.err
    out = pd.read_csv(moments.folder / "out.csv")
    assert list(out.columns) == ["y", "prediction", "probability_no", "probability_yes"]
    assert np.allclose(out.filter(like="probability_").sum(axis=1), 1)
    done = moments("predict", "moments.permea", "a.csv", "--distances", "-o", "out.csv")
    assert (done.code, "--probabilities" in done.err) == (2, True)

"""Adversary and interpreter: what they recover, what they say, and how sure they may be."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from permea import load, save
from permea.information import (
    Interpreter,
    interpretability,
    privacy_leakage,
    simulate_attack,
)
from permea.models.bayes import BayesianMembershipMapping


def people(n_rows=800, seed=0, noise=1.0):
    """Heart rates that depend on age and weight, released with noise."""
    random = np.random.default_rng(seed)
    secrets = pd.DataFrame(
        {"age": random.uniform(20, 80, n_rows), "weight": random.normal(75, 12, n_rows),
         "height": random.normal(170, 9, n_rows)}
    )  # fmt: skip
    rates = 220 - secrets["age"].to_numpy() + random.normal(0, noise, n_rows)
    return np.column_stack([rates, random.normal(size=n_rows)]), secrets


def test_the_adversary_recovers_what_leaks_and_nothing_else():
    released, secrets = people()
    report = simulate_attack(released, secrets)
    assert report.names == ("age", "weight", "height")
    assert report.recovered[0] > 0.99
    assert np.all(report.recovered[1:] < 0.05)
    assert np.all(report.interval[:, 0] <= report.recovered)
    assert np.all(report.recovered <= report.interval[:, 1])
    assert report.n_train + report.n_test == 800
    frame = report.to_frame()
    assert frame.loc["age", "error"] < 0.1 * frame.loc["age", "baseline"]
    assert "age: guessed to ±" in str(report)


def test_the_adversary_knows_how_sure_it_is():
    released, secrets = people(3000, noise=8.0)
    report = simulate_attack(released, secrets)
    low, high = binom.interval(1 - 1e-6, report.n_test, 0.6827)
    for k in (1, 2):  # normal secrets; age is uniform
        assert low <= report.within_one_std[k] * report.n_test <= high


def test_noise_defeats_the_adversary():
    shares = [simulate_attack(*people(noise=noise)).recovered[0] for noise in (0.1, 10, 300)]
    assert shares[0] > 0.99 > shares[1] > 0.5
    assert shares[2] < 0.1


def test_an_attack_is_judged_on_other_rows():
    """Negative control: with as many weights as rows, the rows learned from look recovered."""
    random = np.random.default_rng(1)
    X, secret = random.normal(size=(60, 30)), random.normal(size=(60, 1))
    greedy = BayesianMembershipMapping(trend="linear", max_inducing=1.0, kappa=1e-9)
    assert greedy.fit(X, secret).score(X, secret) > 0.5
    assert simulate_attack(X, secret, model=greedy).recovered[0] < 0.1


def test_secrets_that_do_not_vary_are_reported_as_such():
    released, secrets = people(100)
    report = simulate_attack(released, secrets.assign(height=170.0))
    assert np.isnan(report.recovered[2])
    assert np.isfinite(report.mean_recovered)


def test_bad_input_of_the_attack():
    with pytest.raises(ValueError, match="at least 8"):
        simulate_attack(np.zeros((5, 1)), np.zeros((5, 1)))
    with pytest.raises(ValueError, match="same rows"):
        simulate_attack(np.zeros((20, 1)), np.zeros((10, 1)))


def fitted():
    random = np.random.default_rng(2)
    rows = random.normal(size=(500, 6))
    scores = pd.DataFrame(
        {
            "mental demand": 50 + 20 * np.tanh(rows[:, 0]) + random.normal(0, 3, 500),
            "effort": 40 - 10 * rows[:, 1] + random.normal(0, 3, 500),
            "frustration": random.normal(30, 10, 500),
        }
    )
    return Interpreter().fit(rows, scores), rows, scores


def test_the_interpreter_explains_one_row_in_words():
    interpreter, _, _ = fitted()
    sample = np.zeros(6)
    sample[1] = -2.5
    said = interpreter.explain(sample)
    lines = str(said).splitlines()
    assert lines[0].startswith("effort: 6")
    assert "well above the usual 40" in lines[0]
    by_name = {line.split(":")[0]: line for line in lines}
    assert "about as usual" in by_name["mental demand"]
    assert "says little" in by_name["frustration"]
    assert "says little" not in by_name["effort"]
    frame = said.to_frame()
    assert list(frame.index) == ["mental demand", "effort", "frustration"]
    assert frame.loc["effort", "known"] > 0.8
    assert frame.loc["frustration", "known"] < 0.2


def test_the_interpreter_is_measured_and_predicts_many_rows():
    interpreter, rows, scores = fitted()
    mean, std = interpreter.predict(rows, return_std=True)
    assert mean.shape == std.shape == scores.shape
    assert interpreter.measure_.names == tuple(scores.columns)
    assert np.corrcoef(mean[:, 1], scores["effort"])[0, 1] > 0.9


def test_the_interpreter_survives_saving(tmp_path):
    interpreter, rows, _ = fitted()
    again = load(save(interpreter, tmp_path / "interpreter.permea", private_rows="include"))
    assert str(again.explain(rows[0])) == str(interpreter.explain(rows[0]))


def test_bad_input_of_the_interpreter():
    interpreter, rows, scores = fitted()
    with pytest.raises(ValueError, match="one row"):
        interpreter.explain(rows[:2])
    with pytest.raises(ValueError, match="2 names were given for 3"):
        Interpreter().fit(rows, scores.to_numpy(), names=("a", "b"))
    with pytest.raises(ValueError, match="features"):
        interpreter.explain(np.zeros(5))


def test_measures_fall_with_noise():
    random = np.random.default_rng(3)
    rows = random.random((400, 8))
    classes = np.eye(2)[(rows[:, 0] > 0.5).astype(int)]
    released = [rows + random.laplace(0, scale, rows.shape) for scale in (0.05, 0.5, 5)]
    leaks = [privacy_leakage(noised, rows).value for noised in released]
    meanings = [interpretability(noised, classes).value for noised in released]
    assert np.all(np.diff(leaks) < 0)
    assert np.all(np.diff(meanings) < 0)


def test_measures_are_those_of_the_document():
    random = np.random.default_rng(4)
    rows = random.random((100, 5))
    rows[:, 4] = 0.0  # a pixel that is always black stays in the measure
    leak = privacy_leakage(rows + random.laplace(0, 1, rows.shape), rows)
    assert leak.noise == "shared"
    assert len(leak.names) == 5
    assert privacy_leakage(rows, rows, max_samples=50).n_samples == 50

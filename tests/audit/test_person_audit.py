"""Audits whose canaries are persons with several rows."""

import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from permea import MomentClassifier, MomentRegressor, Privacy, audit, release
from permea.audit.empirical import mechanism_epsilon, release_epsilon
from permea.audit.report import guarantee_rows

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks import broken_moments as broken

SURE = 1.0 - 1e-6
PERSON = Privacy(epsilon=4.0, delta=1e-5, unit="person", domain=(-1, 1))


@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
@pytest.mark.parametrize(
    ("kind", "refuted"), [(MomentClassifier, False), (broken.ForgottenWeights, True)]
)
def test_forgotten_weights_are_refuted_and_the_mechanism_is_not(kind, refuted, neighbours):
    make = broken.factory(kind, PERSON, neighbours=neighbours)
    found = audit.empirical_epsilon(make, runs=200, confidence=SURE)
    assert found.refutes(4.0) == refuted
    assert (found.unit, found.claim, found.neighbours) == ("person", 4.0, neighbours)
    assert "made-up persons" in found.note


def test_an_honest_mechanism_shows_most_of_its_claim():
    found = audit.empirical_epsilon(broken.factory(MomentClassifier, PERSON), runs=400)
    assert 0.6 * 4 < found.epsilon <= 4
    numbers = count()

    def regressor():
        own = np.random.default_rng([1, next(numbers)])
        return MomentRegressor(privacy=PERSON, output_domain=(-1, 1), random_state=own)

    # 400 runs show 3.1 ± 0.35 at the usual confidence; the noise of these is fixed.
    assert 0.5 * 4 < audit.empirical_epsilon(regressor, runs=400).epsilon <= 4


@pytest.mark.parametrize("mechanism", ["gaussian", "optimal"])
def test_noise_on_all_rows_of_a_person(mechanism):
    promise = replace(PERSON, rows_per_person=30, mechanism=mechanism, epsilon=1.0)
    honest = release_epsilon(privacy=promise, runs=800, confidence=SURE)
    assert not honest.refutes(1.0)
    assert honest.unit == "person"
    one_row = replace(promise, unit="record", rows_per_person=None)

    def too_little(rows):
        return release(rows, one_row).data

    assert release_epsilon(too_little, privacy=promise, runs=800, confidence=SURE).refutes(1.0)
    with pytest.raises(ValueError, match="white box"):
        release_epsilon(too_little, privacy=promise, method="one-run")


def test_persons_are_canaries_of_a_training():
    """A nearest neighbour keeps all rows of a person; the mean of her scores tells."""

    class Nearest(KNeighborsClassifier):
        def fit(self, X, y, groups):
            assert len(groups) == len(X)
            return super().fit(X, y)

    rng = np.random.default_rng(0)
    groups = rng.integers(300, size=900)
    X, y = rng.normal(size=(900, 4)), rng.integers(0, 2, 900)
    for neighbours in ("replace", "add/remove"):
        found = audit.empirical_epsilon(
            Nearest(1), X, y, groups=groups, canaries=100, neighbours=neighbours
        )
        assert found.epsilon > 1.0
        assert "per person" in str(found)
    with pytest.raises(ValueError, match="groups"):
        audit.empirical_epsilon(Nearest(1), X, y, unit="person")
    with pytest.raises(ValueError, match="persons"):
        audit.empirical_epsilon(Nearest(1), X, y, groups=groups, canaries=200)


def test_the_report_compares_a_claim_per_person():
    rng = np.random.default_rng(0)
    X, y, groups = rng.uniform(-1, 1, (400, 2)), rng.integers(0, 2, 400), np.arange(400) // 4
    for neighbours in ("replace", "add/remove"):
        model = MomentClassifier(
            privacy=PERSON, classes=[0, 1], features="identity", neighbours=neighbours
        ).fit(X, y, groups=groups)
        measured = mechanism_epsilon(model, runs=60, confidence=SURE)
        rows = guarantee_rows(model.certificate_, [measured])
        assert [row["unit"] for row in rows[:2]] == ["person", "record"]
        assert {row["neighbours"] for row in rows} == {neighbours}
        assert "agrees with the claim" in rows[2]["note"]

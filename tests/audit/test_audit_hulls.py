"""Audit of class hulls: near the claim of the honest mechanism, above that of broken ones."""

import sys
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from permea import (
    FuzzyClassifier,
    HullClassifier,
    KAHMClassifier,
    Ledger,
    MembershipClassifier,
    Privacy,
    audit,
)
from permea.audit import white_box
from permea.audit.bounds import multi_run_epsilon
from permea.audit.white_box_hulls import HullExperiment
from permea.models import moment_estimator
from permea.privacy.moments import plan_moments
from permea.privacy.sampling import SeededBits
from permea.privacy.scatter import add_scatter_noise, sum_scatter

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks import broken_moments as broken

SURE = 1.0 - 1e-6


def promise(epsilon, unit="record"):
    return Privacy(epsilon=epsilon, delta=1e-5, unit=unit, domain=(-1, 1))


@pytest.fixture
def scatter_has_most(monkeypatch):
    """Nine tenths of the budget on the scatter, so that few releases show what is wrong there."""
    plans = partial(plan_moments, further_shares=(0.01, 0.9, 0.02))
    for module in (moment_estimator, white_box):
        monkeypatch.setattr(module, "plan_moments", plans)


@pytest.mark.parametrize(
    ("kind", "refuted"),
    [
        (HullClassifier, False),
        (broken.WeakScatter, True),
        (broken.UnclippedScatter, True),
    ],
)
def test_broken_scatter_is_refuted_and_honest_scatter_is_not(kind, refuted, scatter_has_most):
    make = broken.factory(kind, promise(20), neighbours="add/remove")
    found = audit.empirical_epsilon(make, runs=120, confidence=SURE)
    assert found.method == "white-box"
    assert found.refutes(20) == refuted
    assert found.epsilon > 6


@pytest.mark.parametrize(("label", "refuted"), [([1, 0], False), ([1, 1], True)])
def test_a_row_counted_in_two_classes_is_refuted(label, refuted):
    """The canary is the only row; the score is the likelihood ratio of what really happens."""
    plan = plan_moments(promise(8), 2, 2, neighbours="add/remove", n_directions=2,
                        further_shares=(0.01, 0.97, 0.01))  # fmt: skip
    source, sides = SeededBits(0), []
    for planted in (0, 1):
        sums = planted * sum_scatter(np.array([[9.0, 0]]), np.array([label]), np.eye(2), plan)
        found = [add_scatter_noise(sums, np.eye(2), plan, source).second for _ in range(2000)]
        sides.append(np.array(found)[:, :, 0, 0] @ label)
    bound = multi_run_epsilon(*sides, tradeoff="gaussian", delta=1e-5, confidence=SURE)
    assert (bound > 8) == refuted
    assert bound > 4


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_training_that_counts_a_row_in_two_classes_is_refuted(scatter_has_most):
    make = broken.factory(broken.TwoClasses, promise(20), neighbours="add/remove")
    assert audit.empirical_epsilon(make, runs=2000, confidence=SURE).refutes(20)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
def test_the_bound_of_honest_hulls_is_near_their_claim(neighbours):
    make = broken.factory(HullClassifier, promise(8), neighbours=neighbours)
    found = audit.empirical_epsilon(make, runs=600, confidence=0.999)
    assert 0.45 * 8 < found.epsilon <= 8
    assert 0.9 * 8 < found.attainable <= 8  # the losses of the canary are not the largest
    assert (found.claim, found.unit, found.neighbours) == (8, "record", neighbours)


def test_the_expected_sums_are_those_of_every_stage():
    experiment = HullExperiment(broken.factory(HullClassifier, promise(1)))
    residuals = experiment.residuals(np.array([experiment.release(False) for _ in range(80)]))
    assert residuals.shape[1] == 17 + 7 + HullClassifier.n_losses  # 7 are about the exact mean
    own = np.delete(residuals, range(17, 24), axis=1)
    assert np.abs(own.mean(axis=0)).max() < 5.5 / np.sqrt(80)
    assert np.abs(own[:, 2:].std(axis=0) - 1).max() < 5.5 / np.sqrt(160)


def test_people_are_canaries_of_hulls():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (400, 2)), rng.integers(0, 2, 400)
    model = HullClassifier(privacy=promise(4, "person"), classes=[0, 1], features="identity")
    model.fit(X, y, groups=np.arange(400) // 4)
    found = audit.mechanism_epsilon(model, runs=40, confidence=SURE)
    assert (found.unit, found.claim) == ("person", 4)
    assert not found.refutes(4)


@pytest.mark.parametrize("kind", [KAHMClassifier, MembershipClassifier, FuzzyClassifier])
def test_the_mechanism_of_drawn_families_is_that_of_their_encoder(kind):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (300, 2)), rng.integers(0, 2, 300)
    model = kind(
        n_layers=1, privacy=promise(4), classes=[0, 1], features="identity", rows_per_class=40,
        ledger=Ledger(),
    ).fit(X, y)  # fmt: skip
    assert audit.why_not_rerun(model) == ""
    found = audit.mechanism_epsilon(model, runs=40, confidence=SURE)
    assert found.claim == 4
    assert not found.refutes(4)
    assert len(model.ledger) == 1  # made-up rows are not charged
    rows = audit.guarantee_rows(model.certificate_, [found])
    assert any("agrees with the claim" in row["note"] for row in rows)


def fresh_noise():
    """Hulls whose fits have noise of their own each, and the same in every run of a test.

    A shadow model is a clone of the attacked one: with a seed it would have its very noise.
    """
    numbers = count()

    class Fresh(HullClassifier):
        def _charge_moments(self, *given, **options):
            self.random_state = next(numbers)
            return super()._charge_moments(*given, **options)

    return Fresh


def test_attacks_know_hulls_and_stay_within_the_claim():
    """All attacks, with LiRA, on rows of pure noise, which a model can only have memorised."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (4000, 3)), rng.integers(0, 2, 4000)
    inside, outside = slice(2000), slice(2000, None)
    model = fresh_noise()(privacy=promise(1), classes=[0, 1], features="identity")
    model.fit(X[inside], y[inside])
    report = audit.attack(
        model, X[inside], y[inside], X[outside], y[outside], n_shadows=8,
        kinds=["loss", "distance", "lira_online", "lira_offline", "rmia_online"],
    )  # fmt: skip
    assert all(report[name].applies for name in ("distance", "lira_online"))
    bound = np.exp(1) / (1 + np.exp(1))  # accuracy under ε = 1
    assert all(one.accuracy < bound for one in report.attacks)
    drawn = KAHMClassifier(n_components=2, n_layers=1, rows_per_class=40, random_state=0)
    drawn.learn_drawn(model)
    for one in (model, drawn):
        # The noise is fixed; other noise scored 0.0005 in the mean, and at most 0.007 in 40 fits.
        score = audit.membership_inference_score(one, X[inside], X[outside], standardize=True)
        assert 0 <= score < 0.1
    keeps = KNeighborsClassifier(1).fit(X[inside], y[inside])
    seen = NearestDistance(keeps)
    assert audit.membership_inference_score(seen, X[inside], X[outside], standardize=True) > 0.1


class NearestDistance:
    """Distance to the nearest row of training: what the score must find."""

    def __init__(self, neighbours):
        self.neighbours = neighbours
        self.classes_ = neighbours.classes_

    def distances(self, X):
        near, _ = self.neighbours.kneighbors(X)
        return np.repeat(near, 2, axis=1)

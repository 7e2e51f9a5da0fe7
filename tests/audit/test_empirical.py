"""The auditor audited: below ε at the nominal rate, tight, and it rejects what is broken."""

import numpy as np
import pytest
from mechanisms import NearestRow, NoisyMeans, laplace_release, noisy_classes
from scipy.stats import binom

from permea.audit import (
    empirical_epsilon,
    gaussian_epsilon,
    multi_run_epsilon,
    one_run_bound,
    one_run_epsilon,
    one_run_p_value,
    release_epsilon,
)


def test_one_run_known_answer():
    # Without δ the bound is exactly that of a binomial with success rate e^ε / (1 + e^ε).
    epsilon = one_run_bound(90, 100, 100, alpha=0.05)
    assert binom.sf(89, 100, 1 / (1 + np.exp(-epsilon))) == pytest.approx(0.05, rel=1e-4)


def test_delta_only_weakens():
    bounds = [one_run_bound(90, 100, 100, alpha=0.05, delta=d) for d in (0, 1e-6, 1e-4, 1e-3)]
    assert bounds == sorted(bounds, reverse=True)
    assert one_run_p_value(90, 100, 100, 1.0, delta=1.0) == 1.0


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_one_run_on_laplace_is_valid_and_tight(epsilon):
    rng = np.random.default_rng(0)

    def audit(n):
        coins = rng.random(n) < 0.5
        return one_run_epsilon(coins + rng.laplace(0, 1 / epsilon, n), coins)[0]

    # More than 28 of 200 wrong bounds have probability below 1e-6 if the rate is 5 %.
    assert binom.sf(28, 200, 0.05) < 1e-6
    assert sum(audit(2000) > epsilon for _ in range(200)) <= 28
    assert np.mean([audit(50_000) for _ in range(10)]) > 0.9 * epsilon


def test_the_count_of_wrong_bounds_notices_a_wrong_mechanism():
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(100):
        coins = rng.random(2000) < 0.5
        wrong += one_run_epsilon(coins + rng.laplace(0, 0.5, 2000), coins)[0] > 1.0
    assert wrong > 95


def test_choosing_the_best_of_many_guess_counts_is_paid_for():
    """Coins and scores without relation: any positive bound is wrong, at most 5 % may be."""
    rng = np.random.default_rng(1)
    wrong = sum(
        one_run_epsilon(rng.normal(size=400), rng.random(400) < 0.5)[0] > 0 for _ in range(600)
    )
    assert wrong <= 60  # above 60 of 600: probability below 1e-6 at 5 %


def test_multi_run_is_valid_and_tight_for_laplace_and_gaussian():
    rng = np.random.default_rng(0)
    laplace, gaussian = [], []
    target = gaussian_epsilon(1.0, 1e-5)
    for _ in range(40):
        a, b = rng.laplace(0, 1, (2, 20000))
        laplace.append(multi_run_epsilon(a, 1 + b))
        a, b = rng.normal(0, 1, (2, 20000))
        gaussian.append(multi_run_epsilon(a, 1 + b, delta=1e-5, tradeoff="gaussian"))
    # More than 12 of 40 wrong: probability below 1e-6 at a rate of 5 %.
    assert binom.sf(12, 40, 0.05) < 1e-6
    assert np.sum(np.array(laplace) > 1.0) <= 12
    assert np.sum(np.array(gaussian) > target) <= 12
    assert np.mean(laplace) > 0.85
    assert np.mean(gaussian) > 0.85 * target


def test_gaussian_tradeoff_needs_a_delta():
    with pytest.raises(ValueError, match="delta > 0"):
        multi_run_epsilon(np.zeros(9), np.ones(9), tradeoff="gaussian")


def test_gaussian_epsilon_solves_its_equation():
    from scipy.stats import norm

    for mu, delta in [(0.3, 1e-3), (1.0, 1e-5), (4.0, 1e-8)]:
        e = gaussian_epsilon(mu, delta)
        solved = norm.cdf(-e / mu + mu / 2) - np.exp(e) * norm.cdf(-e / mu - mu / 2)
        assert solved == pytest.approx(delta, rel=1e-4)


class TestRelease:
    def test_honest_release_agrees(self):
        rng = np.random.default_rng(0)
        found = release_epsilon(laplace_release(1.0, rng), domain=(0, 1), n_columns=4)
        assert 0.8 < found.epsilon < 1.0
        assert (found.unit, found.neighbours) == ("entry", "replace")

    def test_record_is_the_sum_over_entries_and_the_unit_is_named(self):
        rng = np.random.default_rng(0)
        found = [
            release_epsilon(
                laplace_release(1.0, rng),
                domain=(0, 1),
                n_columns=4,
                unit="record",
                statistic=lambda rows: np.clip(rows, 0, 1).sum(axis=1),
                random_state=seed,
            )
            for seed in range(20)
        ]
        assert sum(one.refutes(4.0) for one in found) <= 9  # probability below 1e-6 at 5 %
        assert np.mean([one.epsilon for one in found]) > 3.0
        assert "per record" in str(found[0])
        assert "replace neighbours" in str(found[0])

    def test_half_the_noise_is_rejected(self):
        rng = np.random.default_rng(0)
        found = release_epsilon(laplace_release(1.0, rng, scale=0.5), domain=(0, 1))
        assert found.refutes(1.0)

    def test_missing_clip_is_rejected_and_a_clip_is_not(self):
        rng = np.random.default_rng(0)
        broken = laplace_release(1.0, rng, clip=False)
        assert release_epsilon(broken, domain=(0, 1), overshoot=2.0).refutes(1.0)
        honest = laplace_release(1.0, rng)
        assert not release_epsilon(honest, domain=(0, 1), overshoot=2.0).refutes(1.0)

    def test_reused_seed_is_rejected(self):
        def repeated(Y):
            return Y + np.random.default_rng(3).laplace(0, 1.0, Y.shape)

        found = release_epsilon(repeated, domain=(0, 1), method="multi-run", canaries=600)
        assert found.refutes(3.0)
        fresh = laplace_release(1.0, np.random.default_rng(3))
        assert not release_epsilon(fresh, domain=(0, 1), method="multi-run", canaries=600).refutes(
            1.0
        )


class TestTraining:
    def data(self):
        rng = np.random.default_rng(0)
        return rng.random((900, 3)), rng.integers(0, 2, 900)

    @pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
    def test_raw_rows_left_in_the_model_are_found(self, neighbours):
        X, y = self.data()
        leaky = NoisyMeans(epsilon=1.0, keep_rows=True)
        found = empirical_epsilon(leaky, X, y, canaries=280, neighbours=neighbours)
        # Three entries of ε = 1: 3 per record is claimed.
        assert found.refutes(3.0)
        assert neighbours in str(found)

    def test_noisy_rows_stay_below_the_claim(self):
        X, y = self.data()
        wrong = sum(
            empirical_epsilon(
                NoisyMeans(epsilon=0.5, random_state=seed), X, y, canaries=280, random_state=seed
            ).refutes(1.5)
            for seed in range(20)
        )
        assert wrong <= 9  # above 9 of 20: probability below 1e-6 at 5 %

    def test_reused_seed_shows_between_runs(self):
        X, y = self.data()
        settings = {"method": "multi-run", "runs": 120, "unit": "entry", "domain": (0, 1)}
        repeated = empirical_epsilon(
            NoisyMeans(epsilon=1.0, means=True, random_state=7), X[:60], y[:60], **settings
        )
        fresh = empirical_epsilon(NoisyMeans(epsilon=1.0, means=True), X[:60], y[:60], **settings)
        assert repeated.refutes(1.0)
        assert not fresh.refutes(1.0)

    def test_entries_of_a_model_that_keeps_rows(self):
        X, y = self.data()
        found = empirical_epsilon(NearestRow, X, y, canaries=280, unit="entry", domain=(0, 1))
        assert found.epsilon > 3.0
        assert found.unit == "entry"

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"unit": "table"}, "unit must be"),
            ({"unit": "entry", "neighbours": "add/remove", "domain": (0, 1)}, "not defined"),
            ({"unit": "entry"}, "declared domain"),
            ({"method": "three-run"}, "method must be"),
            ({"canaries": 10_000}, "ask for fewer"),
        ],
    )
    def test_errors(self, options, message):
        X, y = self.data()
        with pytest.raises(ValueError, match=message):
            empirical_epsilon(NearestRow(), X, y, **({"canaries": 50} | options))


def test_labels_without_relation_are_not_called_a_leak():
    X, y = noisy_classes(600, 2)

    class Constant(NearestRow):
        def distances(self, X):
            return np.tile(np.random.default_rng(0).random(len(X))[:, None], (1, 2))

    assert empirical_epsilon(Constant(), X, y, canaries=150).epsilon == 0.0

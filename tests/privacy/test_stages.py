"""Counts in stages: one budget, sensitivity whatever is chosen, one event, charged first."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_checks import refutes

from permea.privacy import Budget, BudgetExceededError, Ledger, Privacy
from permea.privacy.composition import tight_epsilon
from permea.privacy.counts import Codes, sum_counts
from permea.privacy.gaussian import discrete_gaussian
from permea.privacy.release import UnreadableRowsError
from permea.privacy.sampling import SeededBits
from permea.privacy.stages import MOST_CELLS, ChargedCounts, Stage, plan_stages

PROMISE = Privacy(epsilon=1.0, delta=1e-3, unit="record")
STAGES = [Stage(0.25, 2), Stage(0.75, 3)]
RELATIONS = ("replace", "add/remove")


def moved(plan, cells, other=None, weights=None):
    """What rows, in place of others or of none, move all stages by, in units of the noise."""
    parts = []
    for place, stage in enumerate(plan.stages):
        sizes = (3,) * plan.most[place].n_tables
        counted = replace(stage, sizes=sizes)
        one = np.concatenate(sum_counts(Codes(cells[place], weights), counted))
        two = 0 if other is None else np.concatenate(sum_counts(Codes(*other[place]), counted))
        parts.append((one - two) / stage.sigma)
    return np.concatenate(parts)


def rows_of(rng, m):
    return [[rng.integers(-1, 3, m) for _ in range(stage.n_tables)] for stage in STAGES]


@pytest.mark.parametrize("neighbours", RELATIONS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), m=st.integers(1, 30), n=st.integers(1, 30))
def test_nobody_moves_all_stages_further_than_the_loss_says(neighbours, seed, m, n):
    rng = np.random.default_rng(seed)
    plan = plan_stages(PROMISE, STAGES, neighbours=neighbours)
    other = None
    if neighbours == "replace":
        other = [(cells, np.full(n, 1.0 / n)) for cells in rows_of(rng, n)]
    change = moved(plan, rows_of(rng, m), other, np.full(m, 1.0 / m))
    assert np.linalg.norm(change) <= plan.loss.value


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_the_worst_neighbours_reach_the_loss(neighbours):
    plan = plan_stages(PROMISE, STAGES, neighbours=neighbours)
    one = [[np.array([0])] * stage.n_tables for stage in STAGES]
    two = [([np.array([1])] * stage.n_tables, None) for stage in STAGES]
    change = moved(plan, one, two if neighbours == "replace" else None)
    assert np.linalg.norm(change) == pytest.approx(plan.loss.value, rel=1e-9)
    assert tight_epsilon([plan.loss], PROMISE.delta) == pytest.approx(PROMISE.epsilon, rel=1e-2)
    assert tight_epsilon([plan.loss], PROMISE.delta) <= PROMISE.epsilon


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_adaptive_stages_are_not_refuted_and_broken_twins_are(neighbours):
    """The second stage counts what the first one makes look large, with the real sampler."""
    plan = plan_stages(PROMISE, [Stage(0.4, 1), Stage(0.6, 1)], neighbours=neighbours)
    first, second = plan.stages
    trials = 200_000
    one, two = np.array([1.0, 0.0]), np.array([0.0, float(neighbours == "replace")])

    def scores(row, scale, seed):
        bits = SeededBits(seed)
        noise = [discrete_gaussian(s.sigma, 2 * trials, bits) / s.steps for s in plan.stages]
        a = row + scale * noise[0].reshape(-1, 2)
        turned = a[:, :1] < a[:, 1:]  # which of two tables is counted next
        b = np.where(turned, row[::-1], row) + scale * noise[1].reshape(-1, 2)
        b = np.where(turned, b[:, ::-1], b)  # the analyst knows which it was
        direction = one - two
        return a @ direction / first.noise**2 + b @ direction / second.noise**2

    def refuted(scale):
        pair = scores(one, scale, 1), scores(two, scale, 2)
        return refutes(*pair, PROMISE.epsilon, PROMISE.delta)

    assert not refuted(1.0)
    assert refuted(0.5)


def test_the_noise_of_every_stage_is_the_planned_one():
    charged = ChargedCounts(plan_stages(PROMISE, STAGES), description="counts", random_state=0)
    nobody = np.array([-1])
    for stage, planned in enumerate(STAGES):
        sizes = [5000] * planned.n_tables
        tables = charged.release(stage, sizes, lambda p=planned: Codes([nobody] * p.n_tables))
        sample = np.concatenate(tables) / charged.noise(stage)
        width = 6 * math.sqrt(2 / sample.size)
        assert abs(np.mean(sample**2) - 1) < width
        assert abs(np.mean((sample / 2) ** 2) - 1) > width


def test_more_than_was_planned_is_refused():
    plan = plan_stages(PROMISE, STAGES)
    read = lambda: Codes([np.array([0])] * 3)  # noqa: E731
    charged = ChargedCounts(plan, description="counts")
    with pytest.raises(RuntimeError, match="no more tables"):
        charged.release(0, [3] * 3, read)
    with pytest.raises(RuntimeError, match="one after another"):
        charged.release(1, [3], read)
    with pytest.raises(ValueError, match="cells"):
        charged.release(0, [MOST_CELLS + 1], read)
    charged.release(0, [3], lambda: Codes([np.array([0])]))
    with pytest.raises(RuntimeError):
        charged.release(0, [3], lambda: Codes([np.array([0])]))
    with pytest.raises(RuntimeError, match="Not all stages"):
        charged.certificate(1)


def test_one_event_before_any_row_is_read():
    ledger = Ledger(Budget(epsilon=1, delta=1e-3, unit="record"))
    plan = plan_stages(PROMISE, STAGES)
    charged = ChargedCounts(plan, description="counts", ledger=ledger)
    assert len(ledger) == 1

    def unreadable():
        raise ValueError("Smith")

    with pytest.raises(UnreadableRowsError) as caught:
        charged.release(0, [3], unreadable)
    assert "Smith" not in str(caught.value)
    with pytest.raises(BudgetExceededError):
        ChargedCounts(plan, description="counts", ledger=ledger)
    assert len(ledger) == 1
    assert ledger.spent.epsilon == pytest.approx(1, rel=1e-2)


def test_the_number_of_units_is_known_only_where_it_is_public():
    for neighbours, expected in zip(RELATIONS, (4, None), strict=True):
        plan = plan_stages(PROMISE, [Stage(1.0, 1)], neighbours=neighbours)
        charged = ChargedCounts(plan, description="counts")
        charged.release(0, [2], lambda: Codes([np.array([0, 1, 1, -1])]))
        assert charged.public_size == expected


@pytest.mark.parametrize(
    ("stages", "message"),
    [([], "share"), ([Stage(0.5, 1)], "sum to 1"), ([Stage(1.0, 0)], "at least one table")],
)
def test_wrong_shares_are_refused(stages, message):
    with pytest.raises(ValueError, match=message):
        plan_stages(PROMISE, stages)

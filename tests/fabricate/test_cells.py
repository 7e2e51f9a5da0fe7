"""Cells of columns: public, by comparisons, and drawn back into the declared range."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from permea.fabricate.cells import fine_cells, join_cells, smoothed
from permea.tables import Category, Date, Number, YesNo

COLUMNS = [
    Number(0, 10),
    Number(-5, 5, missing=True),
    Number(0, 120, whole=True),
    Number(1, 1e6, scale="log", whole=True),
    Number(0.5, 100, scale="log"),
    Number(0, 9.9, resolution=0.3),
    Number(0, 1e5, edges=[0, 1, 1000, 1e5]),
    Number(0, 100, edges=[10, 20, 30], whole=True, missing=True),
    Category(["a", "b", "c"], other=True, missing=True),
    YesNo(),
    Date("2020-01-01", "2024-12-31", missing=True),
]


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
def test_what_is_drawn_from_a_cell_lies_in_it_and_in_the_range(column):
    cells, rng = fine_cells(column), np.random.default_rng(0)
    which = np.repeat(np.arange(cells.count), 20)
    drawn = cells.draw(which, rng)
    assert np.array_equal(cells.of(drawn), which)
    if isinstance(column, Number):
        known = drawn[~np.isnan(drawn)]
        assert column.low <= known.min()
        assert known.max() <= column.high
        assert np.allclose(column.round(known), known)
        assert not np.any(np.signbit(known) & (known == 0))


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_cell_of_a_value_does_not_depend_on_other_values(column, seed):
    rng = np.random.default_rng(seed)
    cells = fine_cells(column)
    values = cells.draw(rng.integers(cells.count, size=50), rng)
    together = cells.of(values)
    assert all(cells.of(values[[k]])[0] == together[k] for k in (0, 25, 49))
    assert together.min() >= 0
    assert together.max() < cells.count


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), noise=st.floats(0.1, 1000), most=st.integers(1, 32))
def test_bins_are_a_partition_whatever_the_noise(column, seed, noise, most):
    rng, cells = np.random.default_rng(seed), fine_cells(column)
    counts = rng.poisson(50, cells.count) + noise * rng.normal(size=cells.count)
    bins = join_cells(cells, counts, noise, most)
    assert set(bins.of_fine.tolist()) == set(range(bins.count))
    assert np.bincount(bins.of_fine, bins.shares) == pytest.approx(np.ones(bins.count))
    assert bins.shares.min() >= 0
    if cells.is_ordered:
        assert np.all(np.diff(bins.of_fine) >= 0)
    which = bins.draw(rng.integers(bins.count, size=100), rng)
    assert which.max() < cells.count


def test_a_value_that_stands_out_keeps_its_own_bin():
    cells = fine_cells(Number(0, 100))
    values = np.concatenate([np.zeros(6000), np.random.default_rng(0).uniform(1, 100, 4000)])
    counts = np.bincount(cells.of(values), minlength=cells.count) + np.random.default_rng(1).normal(
        scale=10, size=cells.count
    )
    bins = join_cells(cells, counts, 10.0, 8)
    assert np.sum(bins.of_fine == bins.of_fine[0]) == 1
    assert 6 <= bins.count <= 12


def test_smoothing_keeps_what_noise_cannot_explain_and_spreads_the_rest():
    rng = np.random.default_rng(0)
    flat = smoothed(100 + rng.normal(scale=10, size=64), np.ones(64), 10.0)
    assert np.std(flat) < 3
    spike = np.full(64, 100.0)
    spike[17] = 1000
    kept = smoothed(spike + rng.normal(scale=10, size=64), np.ones(64), 10.0)
    assert kept[17] > 900
    assert smoothed(-np.ones(5), np.ones(5), 1.0).min() >= 0

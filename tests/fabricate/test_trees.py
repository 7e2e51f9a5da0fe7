"""Trees of dependences: fitted to counts, drawn exactly, redrawn given what is kept."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from permea.fabricate.trees import Tree, fit_tree, fitted, pair_strength, spanning_tree, to_simplex


def a_tree(seed=0):
    rng = np.random.default_rng(seed)
    given_ = {1: rng.dirichlet(np.ones(3), 2), 2: rng.dirichlet(np.ones(2), 3)}
    return Tree(0, np.array([0.3, 0.7]), ((1, 0), (2, 1)), given_)


def probability(tree, row):
    p = tree.shares[row[tree.root]]
    for column, parent in tree.edges:
        p = p * tree.given[column][row[parent], row[column]]
    return float(p)


def distance(tree, rows):
    """Total variation between drawn rows and what the tree says, over all cells together."""
    cells = list(product(range(2), range(3), range(2)))
    found = [np.mean((rows == np.array(cell)).all(1)) for cell in cells]
    return 0.5 * sum(abs(f - probability(tree, c)) for f, c in zip(found, cells, strict=True))


def test_drawn_rows_follow_the_tree():
    tree = a_tree()
    rows = tree.draw(40_000, np.random.default_rng(0))
    assert distance(tree, rows) < 0.01
    assert distance(a_tree(1), rows) > 0.05  # the control: another tree


def test_redrawn_rows_follow_the_tree_and_keep_what_is_kept():
    tree, rng = a_tree(), np.random.default_rng(0)
    rows = tree.draw(60_000, rng)
    kept = rng.random(rows.shape) < [0.9, 0.2, 0.5]
    again = tree.redraw(rows, kept, rng)
    assert np.array_equal(again[kept], rows[kept])
    assert distance(tree, again) < 0.012
    shuffled = rows.copy()  # the control: columns redrawn without a look at the others
    shuffled[:, 1] = rng.permutation(shuffled[:, 1])
    assert distance(tree, shuffled) > 0.05


def test_redrawing_is_by_the_conditional_distribution():
    tree, rng = a_tree(), np.random.default_rng(1)
    rows = np.tile([1, 0, 1], (50_000, 1))
    again = tree.redraw(rows, np.tile([True, False, True], (50_000, 1)), rng)
    expected = np.array([probability(tree, (1, k, 1)) for k in range(3)])
    counts = np.bincount(again[:, 1], minlength=3)
    assert stats.chisquare(counts, expected / expected.sum() * counts.sum()).pvalue > 1e-6


@settings(max_examples=50, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), a=st.integers(1, 6), b=st.integers(1, 6))
def test_fitted_tables_have_the_marginals_that_are_given(seed, a, b):
    rng = np.random.default_rng(seed)
    rows, columns = (100 * rng.dirichlet(np.ones(n)) for n in (a, b))
    table = fitted(rng.normal(100 / (a * b), 20, (a, b)), rows, columns)
    assert table.min() >= 0
    assert table.sum(0) == pytest.approx(columns, abs=0.5)
    assert table.sum() == pytest.approx(100)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30), st.floats(0.1, 1e3))
def test_the_projection_is_the_nearest_point(values, total):
    values = np.array(values)
    nearest = to_simplex(values, total)
    assert nearest.min() >= 0
    assert nearest.sum() == pytest.approx(total)
    rng = np.random.default_rng(0)
    for other in total * rng.dirichlet(np.ones(len(values)), 20):
        assert (values - nearest) @ (other - nearest) <= 1e-6 * max(1, np.abs(values).max() * total)


def test_the_spanning_tree_is_the_best_of_all():
    rng = np.random.default_rng(0)
    S = rng.random((5, 5))
    S = S + S.T
    best = max(
        sum(S[edge] for edge in edges)
        for edges in combinations(list(combinations(range(5), 2)), 4)
        if connected(edges)
    )
    assert sum(S[edge] for edge in spanning_tree(S)) == pytest.approx(best)


def connected(edges):
    reached = {0}
    for _ in range(5):
        reached |= {v for edge in edges if set(edge) & reached for v in edge}
    return len(reached) == 5


def test_noise_is_not_taken_for_dependence():
    rng, size = np.random.default_rng(0), 5000
    rows = columns = np.full(8, size / 8)
    independent = np.outer(rows, columns) / size
    strengths = [
        pair_strength(independent + rng.normal(scale=40, size=(8, 8)), rows, columns, 40.0)
        for _ in range(300)
    ]
    error = np.std(strengths) / np.sqrt(300)
    assert abs(np.mean(strengths)) < 5 * error
    uncorrected = np.mean(strengths) + 64 * 40**2 / (2 * independent[0, 0])
    assert uncorrected > 50 * error


def test_a_cell_that_no_parent_has_is_drawn_by_the_marginal():
    table, marginals = np.array([[5.0, 5], [0, 0]]), [np.array([10.0, 0]), np.array([5.0, 5])]
    tree = fit_tree([(1, 0)], {1: table}, marginals)
    assert tree.given[1].sum(1) == pytest.approx([1, 1])

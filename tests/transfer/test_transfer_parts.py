"""The pieces that the methods are made of, each against a case with a known answer."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from permea import KAHMClassifier, SourceModel
from permea.models.base import row_norms
from permea.transfer import densities as mixture
from permea.transfer.alignment import Alignment
from permea.transfer.centers import class_centres, fit_centers
from permea.transfer.densities import fit_mixtures, kept_directions
from permea.transfer.experts import (
    DensityExpert,
    SourceEnsemble,
    calibrate,
    losses,
    match_proportions,
    mean_densities,
    softmax,
    stack,
)
from permea.transfer.self_training import _SelfTraining, neighbourhood, self_train
from permea.transfer.source2target import fit_source2target, learn_mapping
from permea.transfer.target import number_labels
from permea.transfer.task import AlignedSource, Task

SETTINGS = settings(deadline=None, derandomize=True, max_examples=30)


@pytest.fixture(scope="module")
def problem():
    """Three clouds in four dimensions, seen by a source and, shifted, by a target."""
    random = np.random.default_rng(0)
    centres = 3 * random.normal(size=(3, 4))
    y = np.repeat(np.arange(3), 40)
    X = centres[y] + 0.5 * random.normal(size=(120, 4))
    source = SourceModel(classifier=KAHMClassifier(n_components=2, n_layers=1)).fit(X, y)
    rows = centres[y] + 0.3 + 0.5 * random.normal(size=(120, 4))
    labels = np.where(np.arange(120) % 40 < 4, y, -1)
    aligned = AlignedSource(source, Alignment(), np.arange(3), 3)
    return Task(rows, labels, 3, aligned, y)


def test_centres_move_target_rows_onto_the_source(problem):
    """f_c of (120): a target row at the target's centre goes to the source's centre."""
    task = problem
    model = fit_centers(task, dimensions=(2,), n_layers=1)
    V = model.alignment.source
    assert V.shape == (2, 4)
    moved = model.alignment.from_latent(
        model.target_centres[1] - model.target_centres[1] + model.source_centres[1]
    )
    np.testing.assert_allclose(moved, V.T @ model.source_centres[1])
    query = task.rows[:5]
    shifted = (query @ V.T - model.target_centres[2] + model.source_centres[2]) @ V  # (120)
    expected = task.source.class_model(2).distance(shifted)
    np.testing.assert_allclose(model.parts(query)["source"][:, 2], expected)


def test_the_combined_decision_is_the_minimum_of_121(problem):
    task = problem
    model = fit_centers(task, dimensions=(2,), n_layers=1)
    parts = model.parts(task.rows)
    expected = np.minimum(parts["target"], parts["source"])
    np.testing.assert_array_equal(model.combined(parts), expected)


def test_the_race_names_the_class_of_121(problem):
    """Distances that cannot win are not computed; the class is the same."""
    task = problem
    model = fit_centers(task, dimensions=(3,), n_layers=2)
    by_all = model.combined(model.parts(task.rows)).argmin(axis=1)
    np.testing.assert_array_equal(model.nearest(task.rows), by_all)


def test_centres_are_medians_and_missing_classes_have_none():
    codes = np.array([[0.0], [1.0], [8.0], [5.0]])
    found = class_centres(codes, np.array([0, 0, 0, 2]), 3)
    assert found[0] == 1.0
    assert np.isnan(found[1]).all()


def test_only_the_last_iteration_is_deep(problem, monkeypatch):
    task = problem
    depths = []
    real = Task.fit_classifier

    def watch(self, *args, n_layers, **kwargs):
        depths.append(n_layers)
        return real(self, *args, n_layers=n_layers, **kwargs)

    monkeypatch.setattr(Task, "fit_classifier", watch)
    fit_centers(task, dimensions=(2, 2, 3), n_layers=2)
    assert depths == [1, 1, 1, 2]  # initial classifier, then k = 1, 2, 3 (000 Alg. 7, step 5)
    depths.clear()
    fit_source2target(task, dimensions=(2, 3), n_layers=2)
    assert depths == [1, 2, 2]


@pytest.mark.parametrize("method", [fit_centers, fit_source2target, self_train])
def test_transfer_has_as_many_layers_as_asked_for(problem, method):
    """000 and 001: n_l = max(n - l + 1, 1), also with L above n."""
    model = method(problem, dimensions=(2,), n_layers=4)
    for wide in model.target.class_models_:
        for branch in wide.branches_:
            assert [layer.n_components_ for layer in branch.layers_] == [2, 1, 1, 1]


def test_the_three_ways_of_1_87(problem):
    task = problem
    model = fit_source2target(task, dimensions=(2, 3), n_layers=1)
    query = task.rows[::9]
    parts = model.parts(query)
    image = task.source.class_model(1).reconstruct(query)
    np.testing.assert_allclose(parts["source"][:, 1], row_norms(query - image))
    mapped = model.mapping.predict(image)
    np.testing.assert_allclose(parts["mapping"][:, 1], row_norms(query - mapped))


@pytest.mark.parametrize(("rows", "limit"), [(7, 4), (120, 60)])
def test_the_mapping_has_at_most_half_as_many_inducing_points_as_rows(problem, rows, limit):
    task = problem
    mapping = learn_mapping(task.source, task.rows[:rows], task.truth[:rows])
    assert mapping.max_inducing == limit  # (1.86)


def test_a_source_that_knows_no_class_teaches_no_mapping(problem):
    task = problem
    unknown = AlignedSource(task.source.model, Alignment(), np.array([], dtype=int), 3)
    assert learn_mapping(unknown, task.rows, task.truth) is None


@SETTINGS
@given(m=st.integers(1, 30), C=st.integers(2, 6), seed=st.integers(0, 999))
def test_balance_gives_the_proportions_and_keeps_rows_normalised(m, C, seed):
    random = np.random.default_rng(seed)
    posterior = random.dirichlet(np.ones(C), size=m) + 1e-3
    posterior /= posterior.sum(axis=1, keepdims=True)
    wanted = random.dirichlet(5 * np.ones(C))
    result = match_proportions(posterior, wanted, n_steps=500)
    np.testing.assert_allclose(result.sum(axis=1), 1)
    np.testing.assert_allclose(result.mean(axis=0), wanted, atol=0.02)


def test_balance_without_proportions_changes_nothing():
    posterior = np.array([[0.9, 0.1], [0.7, 0.3]])
    np.testing.assert_allclose(match_proportions(posterior, np.zeros(2)), posterior)


def test_calibration_finds_the_temperature_of_the_scores():
    """Labels drawn from softmax(s / 3): the best temperature is 3, and noise gets a high one."""
    random = np.random.default_rng(0)
    scores = 4 * random.normal(size=(20_000, 4))
    chances = softmax(scores, 3.0).cumsum(axis=1)
    labels = (random.random((20_000, 1)) > chances).sum(axis=1)
    assert 2.5 < calibrate(scores, labels) < 3.6
    unrelated = random.integers(0, 4, 20_000)
    temperature = calibrate(scores, unrelated)
    assert temperature > 100
    assert abs(losses(scores, unrelated, temperature).mean() - np.log(4)) < 0.01


def test_impossible_everywhere_is_uniform():
    np.testing.assert_allclose(softmax(np.full((2, 4), -np.inf)), 0.25)


def test_a_source_is_used_in_the_rounds_only_where_it_beats_label_propagation(problem):
    """Separate clouds need no source; a signal among many disturbances does."""
    task = problem
    assert self_train(task, dimensions=(2,), n_layers=1).ensemble is None
    random = np.random.default_rng(0)
    y = np.arange(1200) % 2
    scales = np.r_[1.0, np.full(19, 3.0)]
    rows = scales * random.normal(size=(1200, 20)) + 6 * np.outer(y, np.eye(20)[0])
    source = SourceModel(classifier=KAHMClassifier(n_components=2, n_layers=1))
    source.fit(rows[:800], y[:800])
    few = np.where(np.arange(400) < 40, y[800:], -1)
    aligned = AlignedSource(source, Alignment(), np.arange(2), 2)
    hidden = Task(rows[800:], few, 2, aligned, y[800:])
    model = self_train(hidden, dimensions=(2,), n_layers=1)
    assert model.ensemble is not None
    assert np.mean(model.nearest(rows[800:]) == y[800:]) > 0.98


@pytest.mark.parametrize(("per_class", "used"), [(20, False), (35, True)])
def test_a_source_without_errors_is_used_though_easy_rows_do_not_show_it(problem, per_class, used):
    """Three rows more that are wrong would be 5 % of 60 and 3 % of 105."""
    task = problem
    known = replace(task, labels=np.where(np.arange(120) % 40 < per_class, task.truth, -1))
    model = self_train(known, dimensions=(2,), n_layers=1)
    assert (model.ensemble is not None) == used


@pytest.mark.parametrize(("order", "alone"), [([0, 1, 2], True), ([1, 2, 0], False)])
def test_mixtures_are_pooled_only_with_an_expert_that_is_clearly_better(problem, order, alone):
    """Mixtures at the places of other classes are worse than the class means."""
    model = copy(problem.source.model)
    model.mixtures_ = tuple(one._replace(centres=one.centres[order]) for one in model.mixtures_)
    training = _SelfTraining(replace(problem, source=replace(problem.source, model=model)))
    assert (training.leading == "mixtures") == alone
    assert (training.ensemble.weights == (1.0,)) == alone


def test_an_ensemble_is_a_linear_pool_of_its_experts(problem):
    task = problem
    moments = task.source.model.moments_
    members = tuple(
        DensityExpert((mean_densities(moments, np.zeros(4), np.eye(4)[:d]),), task.source)
        for d in (2, 4)
    )
    together = SourceEnsemble(members, (2.0, 3.0), (0.3, 0.7))
    each = [softmax(one.scores(task.rows), t) for one, t in zip(members, (2.0, 3.0), strict=True)]
    expected = np.average(each, axis=0, weights=together.weights)
    np.testing.assert_allclose(np.exp(together.scores(task.rows)), expected)
    moved = together.adapted(task.rows, np.eye(3)[task.truth], 20.0)
    assert moved.weights == together.weights
    assert not np.allclose(moved.scores(task.rows), together.scores(task.rows))


def test_stacking_finds_the_weights_of_the_pool_that_drew_the_labels():
    """Labels from 0.8 p + 0.2 q: expectation maximisation finds the weights, from any start."""
    random = np.random.default_rng(0)
    p, q = random.dirichlet(np.full(3, 0.3), size=(2, 20_000))
    chances = (0.8 * p + 0.2 * q).cumsum(axis=1)
    labels = (random.random((20_000, 1)) > chances).sum(axis=1)
    weights = stack([p, q], labels)
    np.testing.assert_allclose(weights, [0.8, 0.2], atol=0.02)
    np.testing.assert_allclose(stack([p[:0], q[:0]], labels[:0]), 0.5)


def test_the_mixture_takes_the_noise_out(monkeypatch):
    """Covariances of two parts behind noise of up to 4 times their size, to 15 %."""
    monkeypatch.setattr(mixture, "_MOST_PARTS", 2)
    random = np.random.default_rng(0)
    N, scales = 40_000, np.array([2.0, 1.0])
    centres = np.array([[-6.0, 0.0], [6.0, 0.0]])
    clean = centres[np.arange(N) % 2] + scales * random.normal(size=(N, 2))
    noised = clean + random.laplace(scale=np.sqrt(2), size=(N, 2))
    (made, *_) = fit_mixtures(noised, np.zeros(N, int), 1, np.eye(2), np.full(2, 4.0))
    np.testing.assert_allclose(np.sort(made.centres[0, :, 0]), [-6, 6], atol=0.2)
    for covariance in made.covariances[0]:
        np.testing.assert_allclose(np.diag(covariance), scales**2, rtol=0.15)
    assert np.var(noised[:, 1]) > 4  # what the second would be with the noise in it


def test_drowned_directions_are_not_kept():
    random = np.random.default_rng(1)
    noise = np.full(50, 9.0)
    rows = random.normal(size=(200, 50)) * 3
    assert fit_mixtures(rows, np.arange(200) % 2, 2, np.eye(50), noise) == ()
    assert kept_directions(np.array([5.0, 1.0]), np.zeros(2), 100, 2) == 2


def test_adaptation_moves_a_density_towards_the_target(problem):
    task = problem
    (mixtures,) = task.source.model.mixtures_
    codes = mixtures.encode(task.rows)
    moved = mixtures.adapted(codes, np.eye(3)[task.truth], strength=20)
    truth = codes[task.truth == 1].mean(axis=0)
    before = np.linalg.norm(mixtures.centres[1, 0] - truth)
    after = np.linalg.norm(moved.centres[1, 0] - truth)
    assert after == pytest.approx(before * 20 / 60)  # 20 rows of the source against 40


def test_spreading_reaches_the_cloud_of_a_label_and_no_other():
    random = np.random.default_rng(0)
    rows = np.r_[random.normal(size=(60, 2)), random.normal(size=(60, 2)) + 20]
    near = neighbourhood(rows, np.random.RandomState(0))
    start = np.zeros((120, 2))
    start[0, 0] = start[60, 1] = 1
    spread = near.propagate(start, 0.99, 300)
    assert np.all(spread[:60].argmax(axis=1) == 0)
    assert np.all(spread[60:].argmax(axis=1) == 1)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_graphs_of_few_or_equal_rows(n):
    near = neighbourhood(np.ones((n, 3)), np.random.RandomState(0))
    assert near.graph.shape == (n, n)
    assert np.isfinite(near.propagate(np.ones((n, 2)), 0.5, 3)).all()


def test_rows_beyond_a_graph_of_bounded_size_are_assigned_to_its_members(monkeypatch):
    """The two labelled rows are members, and their labels reach every row of their clouds."""
    from permea.transfer import self_training as neighbours

    monkeypatch.setattr(neighbours, "_MOST_ROWS", 50)
    random = np.random.default_rng(0)
    rows = np.r_[random.normal(size=(60, 2)), random.normal(size=(60, 2)) + 20]
    start = np.zeros((120, 2))
    start[0, 0] = start[119, 1] = 1
    near = neighbourhood(rows, np.random.RandomState(0), np.array([0, 119]))
    assert near.graph.shape == (50, 50)
    assert {0, 119} <= set(near.members)
    np.testing.assert_array_equal(np.sort(np.r_[near.members, near.others]), np.arange(120))
    np.testing.assert_allclose(near.assignment.sum(axis=1), 1)
    spread = near.propagate(start, 0.99, 300)
    assert np.all(spread[:60].argmax(axis=1) == 0)
    assert np.all(spread[60:].argmax(axis=1) == 1)
    np.testing.assert_array_equal(near.propagate(start, 0.5, 0), start)


@pytest.mark.parametrize(
    ("y", "source", "numbers"),
    [
        ([2, -1, 0], [0, 1, 2], [2, -1, 0]),
        (["b", None, ""], ["a", "b"], [1, -1, -1]),
        (np.array(["1", "", "0"], dtype=object), [0, 1], [1, -1, 0]),
        ([1.0, np.nan, 0.0], [0, 1], [1, -1, 0]),
        ([-1, -1], ["a", "b"], [-1, -1]),
    ],
)
def test_numbers_for_labels(y, source, numbers):
    assert number_labels(y, -1, np.array(source))[1].tolist() == numbers

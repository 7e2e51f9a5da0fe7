"""Heart beats: artefacts are found, rows are whole, labels are told, people stay apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from permea.datasets import (
    HRV_SCHEMA,
    Recording,
    both_classes,
    hrv_table,
    impulse_rejection,
    labelled_part,
    labels_from_score,
    make_recordings,
    make_windows,
    subject_splits,
)

steady = settings(deadline=None, derandomize=True, max_examples=50)


def beats(count=60, seed=0, **more):
    return Recording("ada", np.random.default_rng(seed).normal(0.8, 0.02, count), **more)


# --- recordings


def test_a_recording_fills_in_what_was_not_given():
    person = Recording("ada", [0.8, 0.9])
    assert person.times.tolist() == [0.8, pytest.approx(1.7)]
    assert np.isnan(person.score).all()
    assert person.ratings.shape == (2, 6)


@pytest.mark.parametrize(
    ("name", "value"), [("times", [1.0]), ("score", [1.0] * 5), ("ratings", np.ones((2, 3)))]
)
def test_a_recording_refuses_parts_of_another_length(name, value):
    with pytest.raises(ValueError, match=f"`{name}` has shape"):
        Recording("ada", [0.8, 0.9], **{name: value})


def test_an_empty_recording_is_refused():
    with pytest.raises(ValueError, match="non-empty"):
        Recording("ada", [])


# --- impulse rejection


@steady
@given(st.integers(0, 2**31), st.integers(1, 4))
def test_planted_impulses_are_found_and_replaced(seed, planted):
    random = np.random.default_rng(seed)
    clean = random.normal(0.8, 0.02, 200).clip(0.74, 0.86)  # three deviations: none is an impulse
    where = random.choice(200, planted, replace=False)
    spoilt = clean.copy()
    spoilt[where] *= 2
    cleaned, artefact = impulse_rejection(spoilt, threshold=5)
    assert set(np.flatnonzero(artefact)) == set(where)
    np.testing.assert_array_equal(cleaned[~artefact], clean[~artefact])
    assert np.abs(cleaned[where] - 0.8).max() < 0.1


@steady
@given(st.floats(0.5, 1.5), st.integers(0, 2**31))
def test_the_filter_does_not_depend_on_the_scale_of_the_clock(factor, seed):
    series = np.random.default_rng(seed).standard_t(2, 100) * 0.02 + 0.8
    free = {"limits": (-1e9, 1e9)}
    _, here = impulse_rejection(series, **free)
    _, there = impulse_rejection(series * factor, **free)
    np.testing.assert_array_equal(here, there)


def test_lost_and_impossible_beats_are_artefacts_whatever_the_threshold():
    series = np.array([0.8, 0.81, 0.0, np.nan, 2.5, 0.79, 0.2])
    _, artefact = impulse_rejection(series, threshold=1e9)
    assert artefact.tolist() == [False, False, True, True, True, False, True]


def test_a_smaller_threshold_rejects_more():
    series = np.random.default_rng(0).standard_t(3, 500) * 0.03 + 0.8
    counts = [impulse_rejection(series, threshold=t)[1].sum() for t in (2, 4, 8)]
    assert counts[0] > counts[1] > counts[2] >= 0


def test_a_recording_of_artefacts_alone_leaves_nothing():
    cleaned, artefact = impulse_rejection([0.0, 9.0, np.nan])
    assert artefact.all()
    assert np.isnan(cleaned).all()


def test_equal_intervals_are_judged_by_the_limits_alone():
    _, artefact = impulse_rejection([0.8] * 5 + [0.9, 0.0])
    assert artefact.tolist() == [False] * 6 + [True]


def test_filter_arguments_are_checked():
    for wrong in ({"threshold": 0}, {"width": 4}, {"width": 0}):
        with pytest.raises(ValueError, match="odd width"):
            impulse_rejection([0.8, 0.9], **wrong)


# --- windows


@steady
@given(st.integers(0, 20), st.integers(1, 8), st.integers(0, 2**31))
def test_a_row_is_the_newest_interval_and_its_history(history, stride, seed):
    person = beats(40, seed)
    windows = make_windows(person, history=history, stride=stride, threshold=1e9)
    for row, i in zip(windows.X, windows.position, strict=True):
        np.testing.assert_array_equal(row, person.intervals[i - history : i + 1][::-1])
    assert len(windows) == len(range(history, 40, stride))


@steady
@given(st.lists(st.integers(0, 79), max_size=6), st.integers(0, 10))
def test_no_row_contains_an_artefact_and_none_is_lost_without_one(places, history):
    intervals = np.random.default_rng(1).uniform(0.78, 0.82, 80)
    intervals[places] = 0.0
    windows = make_windows(Recording("ada", intervals), history=history, threshold=1e9)
    assert (windows.X > 0).all()
    expected = [i for i in range(history, 80) if (intervals[i - history : i + 1] > 0).all()]
    assert windows.position.tolist() == expected


def test_rows_do_not_bridge_a_pause_that_is_too_long():
    intervals = np.full(20, 0.8)
    times = np.cumsum(intervals)
    times[10:] += 30  # half a minute without a beat, before interval 10
    person = Recording("ada", intervals, times)
    assert make_windows(person, history=4).position.tolist() == [*range(4, 10), *range(14, 20)]
    assert len(make_windows(person, history=4, max_gap=60)) == 16


def test_a_clock_that_goes_back_ends_a_row():
    person = Recording("ada", np.full(10, 0.8), np.r_[np.arange(5), np.arange(5)])
    assert make_windows(person, history=4).position.tolist() == [4, 9]


@steady
@given(st.integers(0, 30), st.integers(1, 40))
def test_repeats_bounds_how_often_an_interval_is_released(history, stride):
    person = Recording("ada", np.linspace(0.7, 0.9, 150))
    windows = make_windows(person, history=history, stride=stride, threshold=1e9)
    _, counts = np.unique(windows.X, return_counts=True)
    assert counts.max() <= windows.repeats
    if stride > history:
        assert windows.repeats == 1


def test_several_people_are_joined_and_can_be_taken_apart():
    people = make_recordings(3, minutes=5, random_state=0)
    windows = make_windows(people, history=10)
    assert set(windows.subject) == {"s01", "s02", "s03"}
    alone = make_windows(people[1], history=10)
    np.testing.assert_array_equal(windows.of("s02").X, alone.X)
    assert len(windows.of("s01", "s03")) == len(windows) - len(alone)
    np.testing.assert_array_equal(alone.ratings, people[1].ratings[alone.position])


def test_the_documents_row_has_217_entries():
    assert make_windows(make_recordings(1, random_state=0)[0]).X.shape[1] == 217


def test_window_arguments_are_checked():
    with pytest.raises(ValueError, match="stride"):
        make_windows(beats(), stride=0)
    with pytest.raises(ValueError, match="history"):
        make_windows(beats(), history=-1)
    with pytest.raises(ValueError, match="No recording"):
        make_windows([])
    assert len(make_windows(beats(10))) == 0  # shorter than its history: no rows, no error


# --- labels


def test_labels_of_a_score():
    assert labels_from_score([0, 30, 31, np.nan], threshold=30).tolist() == [0, 0, 1, -1]


def test_a_person_s_own_median_ignores_the_others_and_the_unrated():
    score = [1, 2, 3, np.nan, 70, 80, 90]
    labels = labels_from_score(score, threshold="median", subject=list("aaaabbb"))
    assert labels.tolist() == [0, 0, 1, -1, 0, 0, 1]
    with pytest.raises(ValueError, match="needs `subject`, the person of each score"):
        labels_from_score(score, threshold="median")


# --- splits


@steady
@given(st.lists(st.sampled_from("abcdefg"), min_size=10, max_size=60), st.integers(0, 2**31))
def test_nobody_stands_on_both_sides_and_everybody_is_tested_once(people, seed):
    people = np.array(people)
    count = len(np.unique(people))
    if count < 2:
        with pytest.raises(ValueError, match="number of people"):
            next(subject_splits(people, n_splits=2))
        return
    tested = []
    for train, test in subject_splits(people, n_splits=min(3, count), random_state=seed):
        assert not set(people[train]) & set(people[test])
        assert sorted([*train, *test]) == list(range(len(people)))
        tested += test.tolist()
    assert sorted(tested) == list(range(len(people)))


@steady
@given(st.integers(0, 12), st.integers(1, 5), st.floats(0.1, 0.9), st.integers(0, 2**31))
def test_a_split_in_time_shares_no_interval(history, stride, part, seed):
    windows = make_windows(beats(100, seed), history=history, stride=stride, threshold=1e9)
    labelled, test = labelled_part(windows, part=part)
    assert not (labelled & test).any()
    used = {i - k for i in windows.position[labelled] for k in range(history + 1)}
    asked = {i - k for i in windows.position[test] for k in range(history + 1)}
    assert not used & asked


def test_a_random_split_does_share_intervals():
    windows = make_windows(beats(100), history=10)
    labelled, test = labelled_part(windows, how="random", random_state=0)
    assert (labelled ^ test).all()
    assert labelled.sum() == round(len(windows) / 2)
    used = {i - k for i in windows.position[labelled] for k in range(11)}
    asked = {i - k for i in windows.position[test] for k in range(11)}
    assert len(used & asked) > 80  # the reason why the other split exists


def test_the_table_of_a_person_depends_on_her_recording_alone():
    """To the last bit: other people, before or after her, change nothing."""
    people = make_recordings(4, minutes=8, episode=2, random_state=0)

    def table_of(recordings):
        windows = make_windows(recordings, history=29, stride=7)
        y = labels_from_score(windows.score, threshold="median", subject=windows.subject)
        table = hrv_table(windows, y)
        hers = table.pop("person") == "s02"
        return {name: column[hers] for name, column in table.items()}

    alone = table_of(people[1:2])
    for others in (people, people[::-1], people[1:]):
        for name, column in table_of(others).items():
            assert np.array_equal(column, alone[name]), name


def test_the_table_fits_its_schema_and_leaves_out_rows_without_label():
    windows = make_windows(make_recordings(2, minutes=8, random_state=0), history=29, stride=30)
    y = labels_from_score(windows.score, threshold=45)
    y[0] = -1
    table = hrv_table(windows, y)
    assert len(table["mean"]) == len(windows) - 1
    assert HRV_SCHEMA.encode(table).shape[0] == len(windows) - 1
    assert set(HRV_SCHEMA.labels(table)) <= {"no", "yes"}
    assert np.allclose(table["sdnn"], windows.X[1:].std(axis=1))
    for name in ("mean", "sdnn", "rmssd"):
        usual = [
            np.median(table[f"{name}_change"][table["person"] == who]) for who in ("s01", "s02")
        ]
        assert np.allclose(usual, 1)


def test_labelled_part_wants_one_person_and_a_part():
    windows = make_windows(make_recordings(2, minutes=4, random_state=0), history=5)
    with pytest.raises(ValueError, match="one person"):
        labelled_part(windows)
    with pytest.raises(ValueError, match="between 0 and 1"):
        labelled_part(windows.of("s01"), part=1)
    with pytest.raises(ValueError, match='"time" or "random"'):
        labelled_part(windows.of("s01"), how="weekday")


def test_both_classes_counts_on_every_side():
    y = np.array([0, 0, 1, 1, -1])
    everything, first = np.ones(5, bool), np.array([1, 0, 1, 0, 0], bool)
    assert both_classes(y, everything, first)
    assert not both_classes(y, everything, first, at_least=2)


# --- the generator


def test_stress_shortens_the_interval_and_people_differ_more_than_states():
    people = make_recordings(12, random_state=0)
    change, means = [], []
    for person in people:
        _, artefact = impulse_rejection(person.intervals)
        stressed = person.score > 45
        calm, busy = (person.intervals[~artefact & side].mean() for side in (~stressed, stressed))
        change.append(calm - busy)
        means.append(calm)
    assert min(change) > 0.02
    assert np.ptp(means) > 0.1


def test_the_generator_spoils_as_often_as_it_says_and_repeats_itself():
    one, two = (make_recordings(4, artefacts=0.05, random_state=5) for _ in range(2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.intervals, b.intervals)
    found = np.mean([impulse_rejection(person.intervals)[1].mean() for person in one])
    assert 0.035 < found < 0.065
    assert (
        impulse_rejection(make_recordings(1, artefacts=0, random_state=0)[0].intervals)[1].sum()
        == 0
    )
    with pytest.raises(ValueError, match="at least one person"):
        make_recordings(0)


def test_ratings_are_on_their_scale_and_constant_within_an_episode():
    person = make_recordings(1, minutes=16, episode=4, random_state=0)[0]
    assert person.ratings.min() >= 0
    assert person.ratings.max() <= 100
    assert len(np.unique(person.ratings, axis=0)) == 4

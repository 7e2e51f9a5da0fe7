"""The stress application on invented people: knowledge helps, nothing helps where there is none."""

import doctest
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from permea.datasets import make_recordings

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "stress"


@pytest.fixture(scope="module")
def example():
    """The modules of the example, imported as its scripts import them."""
    sys.path.insert(0, str(FOLDER))
    try:
        import people
        import steps

        yield people, steps
    finally:
        sys.path.remove(str(FOLDER))


def gains(example, recordings):
    people, steps = example
    setting = people.Setting(history=29, max_gap=5.0, threshold=45.0)
    chosen = people.people_of(recordings, setting)
    her, source = steps.source_of(chosen, 1.0, seed=0)
    assert source.certificate_.privacy.epsilon == 1
    results = [steps.transfer(source, who, "time") for who in chosen if who is not her]
    return {
        method: [result[method][1] - result["source"][1] for result in results]
        for method in steps.METHODS
    }


def test_transfer_at_epsilon_one_beats_the_source_for_most(example):
    found = gains(example, make_recordings(6, minutes=14, episode=2, random_state=1))
    for method in example[1].METHODS:
        assert len(found[method]) == 5
        assert np.mean(np.array(found[method]) > 0) > 0.5
        assert example[1].over_people(found[method])[1] > 0  # the interval excludes zero


def test_a_model_that_hides_people_works_on_new_people(example):
    people, steps = example
    recordings = make_recordings(200, minutes=12, episode=2, random_state=1)
    table = people.crowd(recordings, people.SETTINGS["synthetic"])
    areas, certificate = steps.hide_people(table, 8.0, seed=0)
    assert certificate.privacy.unit == "person"
    assert certificate.n_rows == 160  # people, not windows
    assert steps.over_people(areas)[1] > 0.75
    drowned, _ = steps.hide_people(table, 0.01, seed=0)
    assert steps.over_people(drowned)[0] < steps.over_people(areas)[0] - 0.1
    assert steps.hide_people(table, np.inf)[1] is None


def test_nothing_is_gained_where_stress_leaves_no_trace(example):
    calm = make_recordings(6, minutes=14, episode=2, effect=0.0, random_state=1)
    shuffled = [
        type(person)(person.subject, np.random.default_rng(0).permutation(person.intervals),
                     score=person.score, ratings=person.ratings)
        for person in calm
    ]  # fmt: skip
    for found in gains(example, shuffled).values():
        _, low, high = example[1].over_people(found)
        assert low < 0.1
        assert high < 0.25


def test_a_person_too_short_or_of_one_class_is_left_out(example):
    people, _ = example
    good, short = make_recordings(1, minutes=14, episode=2, random_state=0)[0], beats("short", 40)
    one_class = beats("calm", 400)
    setting = people.Setting(history=9, max_gap=5.0, threshold=45.0)
    names = [who.name for who in people.people_of([good, short, one_class], setting)]
    assert names == [good.subject]


def beats(name, count):
    person = make_recordings(1, minutes=10, random_state=3)[0]
    return type(person)(name, person.intervals[:count], score=np.zeros(count))


def test_an_interval_over_people_covers_the_mean_as_often_as_it_says(example):
    _, steps = example
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        _, low, high = steps.over_people(random.normal(0.1, 1, 30))
        hits += low <= 0.1 <= high
    assert 0.87 < hits / 300 < 0.99


def test_examples_in_the_example_hold(example):
    for module in example:
        found = doctest.testmod(module)
        assert found.attempted > 0
        assert found.failed == 0


def test_gains_are_counted_with_an_exact_interval(example):
    better, count, low, high = example[1].how_many_gain([0.5] * 10, [0.6] * 10)
    assert (better, count, high) == (10, 10, 1.0)
    assert low == pytest.approx(0.025 ** (1 / 10))  # Clopper-Pearson, ten of ten


def test_the_pipeline_runs_on_files(tmp_path):
    paths = []
    for person in make_recordings(3, minutes=12, episode=2, random_state=0):
        path = tmp_path / f"{person.subject}.csv"
        lines = (
            f"{1000 * rr:.0f},{s:.1f}" for rr, s in zip(person.intervals, person.score, strict=True)
        )
        path.write_text("rr_ms,stress\n" + "\n".join(lines))
        paths.append(str(path))
    words = ["--files", *paths, "--score", "stress", "--history", "19", "--threshold", "45"]
    words += ["--figure", str(tmp_path / "box.svg")]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "pipeline.py"), *words],
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-1500:]
    assert "per R-R interval" in done.stdout
    assert "per person" in done.stdout
    assert "consensus minus source" in done.stdout
    assert "Privacy certificate" in done.stdout
    assert (tmp_path / "box.svg").stat().st_size > 1000
    refused = subprocess.run(
        [sys.executable, str(FOLDER / "pipeline.py"), "--files", *paths],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "--score" in refused.stderr

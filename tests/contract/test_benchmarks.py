"""The page of benchmarks says what the benchmarks printed, and nothing else."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as runner  # noqa: E402


def test_the_page_matches_the_stored_results():
    assert runner.PAGE.read_text() == runner.page(), "run: python -m benchmarks report"


@pytest.mark.parametrize("name", runner.names())
def test_every_benchmark_says_what_it_measures(name):
    assert runner.title(name) != name
    assert "def main(" in (runner.FOLDER / f"{name}.py").read_text()


def test_results_belong_to_benchmarks_that_exist():
    stored = {path.stem for path in runner.RESULTS.glob("*.json")}
    assert stored <= set(runner.names())

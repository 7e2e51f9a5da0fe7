"""The page of benchmarks says what the benchmarks printed, and nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as runner  # noqa: E402
from benchmarks import glance, ratios  # noqa: E402


@pytest.mark.parametrize("name", runner.HEADS)
def test_the_page_matches_the_stored_results(name):
    assert (runner.DOCS / name).read_text() == runner.page(name), "run: python -m benchmarks report"


def test_results_at_a_glance_are_those_that_are_stored():
    shown = (runner.DOCS / "results.md").read_text()
    assert shown == glance.page(), "run: python -m benchmarks report"
    assert glance.STALE not in shown, "a benchmark prints other rows: adapt benchmarks/glance.py"


def test_the_figures_of_the_readme_are_those_that_are_stored():
    readme = (ROOT / "README.md").read_text()
    assert glance.START in readme
    assert readme == glance.with_readme_block(readme), "run: python -m benchmarks report"
    assert glance.STALE not in readme


def test_every_result_stands_on_one_page():
    pages = [runner.page(name) for name in runner.HEADS]
    for path in runner.RESULTS.glob("*.json"):
        command = f"$ python benchmarks/{path.stem}.py"
        assert sum(f"{command}\n" in page or f"{command} " in page for page in pages) == 1


@pytest.mark.parametrize("name", runner.names())
def test_every_benchmark_says_what_it_measures(name):
    assert runner.title(name) != name
    assert "def main(" in (runner.FOLDER / f"{name}.py").read_text()


def test_the_fast_ones_exist():
    assert set(runner.names()) >= FAST


def test_results_belong_to_benchmarks_that_exist():
    stored = {path.stem for path in runner.RESULTS.glob("*.json")}
    assert stored <= set(runner.names())


# One of every subject; all others are proved by the slow tests.
FAST = {
    "audit_mis", "encrypted_grid", "federation_speed", "hulls_mnist", "information_example1",
    "kahm_single", "moments_tabular", "noise_mechanisms", "stress_private", "synthetic_peers",
    "tables_peers", "transfer_records",
}  # fmt: skip


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in runner.names()],
)
def test_every_benchmark_runs_quickly_and_keeps_nothing(name, tmp_path):
    words = [sys.executable, "-m", "benchmarks", "run", name, "--quick"]
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **threads, "PERMEA_DATA": str(tmp_path)}
    before = {path: path.stat().st_mtime_ns for path in runner.RESULTS.glob("*.json")}
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "\n|---" in done.stdout
    assert before == {path: path.stat().st_mtime_ns for path in runner.RESULTS.glob("*.json")}


@pytest.mark.parametrize("name", runner.beside.COMPARISONS)
def test_differences_from_the_documents_are_computed_and_explained(name):
    path = runner.RESULTS / f"{name}.json"
    assert name in runner.names()
    if path.exists():  # raises where figures are missing, or differ without a sentence
        kept = json.loads(path.read_text())
        assert "| difference |" in runner.section(kept) or "as_written" not in kept


def test_a_difference_beyond_its_noise_needs_a_sentence(monkeypatch):
    output = "| ε | ours | theirs |\n|---|---|---|\n| 1 | 0.90 | 0.95 |"
    silent = runner.beside.Columns("a claim", "ours", "theirs", ("ε",), scored=10_000)
    monkeypatch.setitem(runner.beside.COMPARISONS, "toy", (silent,))
    with pytest.raises(ValueError, match="no sentence why"):
        runner.beside.compared("toy", output)
    near = output.replace("0.90", "0.949")
    assert "-0.001" in runner.beside.compared("toy", near)
    with pytest.raises(ValueError, match="no figures"):
        runner.beside.compared("toy", near.replace("ours", "yours"))


def test_several_seeds_become_mean_and_deviation():
    first, second = "| a | 0.50 | x |\ntext", "| a | 0.70 | y |\ntext"
    assert runner.averaged([first, second]) == "| a | 0.60 ± 0.14 | x / y |\ntext"
    assert runner.averaged([first]) == first


def test_figures_come_from_the_stored_tables(tmp_path):
    stored = {path.stem for path in runner.RESULTS.glob("*.json")}
    drawn = runner.figures.draw_all(tmp_path)
    wanted = {f"benchmark-{name}.svg" for name in stored & set(runner.figures.FIGURES)}
    assert {path.name for path in drawn} == wanted
    assert all("<svg" in path.read_text() for path in drawn)


def test_tables_are_read_back():
    text = "words\n| a | b |\n|---|---|\n| 1 | x |\n\n| c |\n|---|\n| 2 |"
    assert runner.figures.tables(text) == [[{"a": "1", "b": "x"}], [{"c": "2"}]]
    assert runner.figures.number("0.98 ± 0.01") == 0.98


def test_a_ratio_that_grew_by_more_than_30_percent_is_named():
    stored = {"steady": 1.0, "slow": 0.5, "gone": 1.0}
    lines, slow = ratios.table_of({"steady": 1.29, "slow": 0.66, "fresh": 7.0}, stored)
    assert slow == ["slow"]
    assert lines[-1] == "| fresh | – | 7.0 | new |"
    assert set(json.loads(ratios.STORED.read_text())) >= {"import permea, in import sklearn"}

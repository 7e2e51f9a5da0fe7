"""docs/reproduction.md has every table and figure of the documents, and says what was measured."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as runner  # noqa: E402
from benchmarks import beside, figures, reproduction  # noqa: E402

WANTED = [
    *(f"000 Table {k}" for k in range(1, 16)), "000 Figure 8",
    *(f"001 Table 1.{k}" for k in range(1, 17)), "001 Figure 3.1", "001 Figure 3.2",
    *(f"002 Table 4.{k}" for k in range(1, 5)), *(f"002 Figure 4.{k}" for k in range(1, 5)),
    "002 Figure 2.1",
    *(f"003 Table {k}" for k in range(3, 18)), *(f"003 Figure {k}" for k in (3, 4, 6)),
    *(f"004 Table {k}" for k in range(3, 12)), *(f"004 Figure {k}" for k in range(12, 18)),
]  # fmt: skip


def test_the_page_matches_the_stored_results():
    written = (ROOT / "docs" / "reproduction.md").read_text()
    assert written == reproduction.page(), "run: python -m benchmarks report"


def test_every_table_and_figure_with_numbers_has_one_row():
    rows = [claim.where for claim in reproduction.claims()]
    assert sorted(rows) == sorted(WANTED)


@pytest.mark.parametrize("claim", reproduction.claims(), ids=lambda claim: claim.where)
def test_rows_are_complete(claim):
    where, what, state, figures, written, why, command = reproduction.row_of(claim)
    assert what
    assert state in ("reproduced", "differs", "stand-in", "not done")
    assert claim.benchmark in ("", *runner.names())
    assert bool(figures) == (written != "–")
    if state == "reproduced":
        assert figures, f"{where} is said to be reproduced without a figure"
    else:
        assert why or command, f"{where} says neither why nor how to run it"
    assert all((ROOT / path).is_file() for path in claim.checks)


def test_a_difference_needs_a_sentence(monkeypatch):
    output = "| ε | ours | theirs |\n|---|---|---|\n| 1 | 0.90 | 0.95 |"
    silent = beside.Columns("a claim", "ours", "theirs", ("ε",), scored=10_000)
    monkeypatch.setitem(beside.COMPARISONS, "toy", (silent,))
    monkeypatch.setattr(reproduction, "stored", lambda name: {"output": output})
    claim = reproduction.Claim("004 Table 0", "a toy", "toy", ("a claim",))
    with pytest.raises(ValueError, match="no sentence says why"):
        reproduction.row_of(claim)
    told = reproduction.Claim("004 Table 0", "a toy", "toy", ("a claim",), why="Because.")
    assert reproduction.row_of(told)[2:6] == [
        "differs", "ε = 1: 0.90, document 0.95", "earlier", "Because."
    ]  # fmt: skip
    monkeypatch.setattr(reproduction, "stored", lambda name: {"output": output.replace("90", "95")})
    assert reproduction.row_of(claim)[2] == "reproduced"
    monkeypatch.setattr(reproduction, "stored", lambda name: None)
    assert reproduction.row_of(claim)[2] == "not done"


def test_claims_of_an_order_differ_only_below():
    order = beside.Columns("order", "ours", "theirs", ("ε",), noise=0.01, above=True)
    assert not order.beyond("0.9", "0.5")
    assert not order.beyond("0.495", "0.5")
    assert order.beyond("0.4", "0.5")


def test_default_regression_is_within_five_per_cent_of_tuned_peers():
    """On every problem of the stored result, beside the better of two tuned peers."""
    problems = figures.tables(reproduction.stored("regression_peers")["output"])
    assert len(problems) >= 4
    for rows in problems:
        error = {row["model"]: float(row["error"]) for row in rows}
        best = min(error["KernelRidge, searched"], error["GaussianProcess, likelihood"])
        assert error["MembershipMapping()"] <= 1.05 * best
        assert error["BayesianMembershipMapping()"] <= 1.09 * best
        assert error["FuzzyModel()"] <= 1.09 * best

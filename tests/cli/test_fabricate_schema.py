"""``permea fabricate --schema``: a synthetic table, what stands beside it, and who is told what."""

import json

import numpy as np
import pandas as pd
import pytest

from permea.cli.app import run
from permea.privacy import Certificate
from permea.tables import Category, Number, Schema, YesNo

SCHEMA = Schema(
    {
        "age": Number(18, 100, whole=True),
        "dose": Number(0, 5, resolution=0.25, missing=True),
        "ward": Category(["a", "b"], other=True),
        "ill": YesNo(yes=["1"], no=["0"]),
    },
    label="ill",
    person="patient",
)
PROMISE = ["--epsilon", "4", "--delta", "1e-6", "--unit", "person"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for name, n in (("data", 900), ("other", 300)):
        dose = np.where(rng.random(n) < 0.2, None, rng.integers(0, 20, n) / 4)
        frame = {"patient": np.arange(n) // 3 + 10_000, "age": rng.integers(18, 100, n),
                 "dose": dose, "ward": rng.choice(["a", "b", "=c"], n),
                 "ill": rng.integers(0, 2, n)}  # fmt: skip
        pd.DataFrame(frame).to_csv(tmp_path / f"{name}.csv", index=False)
    SCHEMA.save(tmp_path / "data.toml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fabricate(*words):
    return run(["fabricate", "data.csv", "--schema", "data.toml", *PROMISE, "--quiet", *words])


def test_the_table_its_certificate_and_its_report(folder):
    assert fabricate("-o", "made.csv", "--report", "made.html", "--rows", "500") == 0
    made = pd.read_csv(folder / "made.csv", dtype={"ill": str})
    assert list(made) == ["patient", *SCHEMA.columns]
    assert len(made) == 500
    assert not SCHEMA.problems(made)
    assert made["patient"].max() <= 500  # new identifiers
    assert set(made["ill"]) == {"0", "1"}
    assert set(made["ward"]) <= {"a", "b", "other"}
    paper = Certificate.from_json((folder / "made.csv.certificate.json").read_text())
    assert paper.is_private
    assert "NOT FOR RELEASE" not in (folder / "made.html").read_text()


def test_held_out_rows_give_a_report_for_the_owner(folder, capsys):
    words = ["-o", "made.csv", "--report", "made.html", "--holdout", "other.csv", "--json"]
    assert fabricate(*words) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"quality", "comparison", "risks"} <= set(found)
    assert "NOT FOR RELEASE" in found["comparison"]["note"]
    assert "NOT FOR RELEASE" in found["risks"]["note"]
    assert 0.0 < found["risks"]["generator_auc"] < 1.0
    page = (folder / "made.html").read_text()
    assert "NOT FOR RELEASE" in page
    assert "linkability" in page


@pytest.mark.parametrize("wrong", ["nowhere", "values", "columns"])
def test_wrong_rows_held_out_are_told_before_anything_is_charged(folder, capsys, wrong):
    other = pd.read_csv(folder / "other.csv")
    if wrong == "values":
        other.astype({"age": object}).assign(age="Smith").to_csv("wrong.csv", index=False)
    elif wrong == "columns":
        other.drop(columns="age").to_csv("wrong.csv", index=False)
    words = ["-o", "made.csv", "--report", "made.html", "--ledger", "l.db", "--budget", "4", "1e-6"]
    assert fabricate(*words, "--holdout", "wrong.csv") != 0
    assert "wrong.csv" in capsys.readouterr().err
    assert fabricate(*words, "--holdout", "other.csv") == 0  # all of the budget is left


def test_a_long_table_goes_to_parquet_in_parts(folder, monkeypatch):
    monkeypatch.setattr("permea.cli.synthetic.CHUNK", 100)
    assert fabricate("-o", "made.parquet", "--rows", "1000", "--draw-seed", "1") == 0
    one = pd.read_parquet(folder / "made.parquet")
    assert len(one) == 1000
    assert fabricate("-o", "again.parquet", "--rows", "1000", "--draw-seed", "1") == 0
    assert not one.equals(pd.read_parquet(folder / "again.parquet"))  # another release


def test_a_repeated_draw_and_a_repeated_release_are_different_things(folder):
    for name in ("one.csv", "two.csv"):
        assert fabricate("-o", name, "--seed", "0", "--draw-seed", "1") == 0
    assert (folder / "one.csv").read_bytes() == (folder / "two.csv").read_bytes()
    paper = Certificate.from_json((folder / "one.csv.certificate.json").read_text())
    assert not paper.is_private  # the noise can be repeated


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--label", "ill"], "leave out --label"),
        (["--holdout", "other.csv"], "give --report"),
        (["--unit", "entry"], "--unit record"),
        (["--delta", "0"], "--delta above 0"),
        (["--domain", "0", "1"], "leave out --domain"),
        (["--report", "made.csv"], "html"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(folder, capsys, words, message):
    before = set(folder.iterdir())
    assert fabricate("-o", "made.csv", *words) != 0
    assert message in capsys.readouterr().err
    assert set(folder.iterdir()) == before


def test_options_of_synthetic_tables_need_a_schema(folder, capsys):
    assert run(["fabricate", "data.csv", "-o", "m.csv", "--rows", "5", "--quiet"]) != 0
    assert "need --schema" in capsys.readouterr().err


def test_a_value_that_cannot_be_read_is_charged_and_not_told(folder, capsys):
    text = (folder / "data.csv").read_text().replace("10005,", "10005,Smith", 1)
    (folder / "data.csv").write_text(text)
    assert fabricate("-o", "made.csv", "--ledger", "ledger.db", "--budget", "4", "1e-6") != 0
    assert "Smith" not in capsys.readouterr().err
    assert not (folder / "made.csv").exists()
    assert fabricate("-o", "made.csv", "--ledger", "ledger.db") != 0
    assert "budget" in capsys.readouterr().err.lower()


def test_what_is_written_comes_through_the_wall(folder, monkeypatch):
    """With a blind release, two tables give the same files."""
    from permea.privacy.stages import ChargedCounts

    release = ChargedCounts.release

    def blind(self, stage, sizes, read):
        def nothing():
            codes = read()
            return codes._replace(cells=[np.zeros(10, np.int64)] * len(sizes), weights=None)

        return release(self, stage, sizes, nothing)

    words = ["--seed", "0", "--draw-seed", "0", "--neighbours", "add/remove", "--report", "m.html"]
    files = ("made.csv", "made.csv.certificate.json", "m.html")

    def written():
        assert fabricate("-o", "made.csv", *words) == 0
        return [(folder / name).read_bytes() for name in files]

    seen = written()
    monkeypatch.setattr(ChargedCounts, "release", blind)
    one = written()
    other = pd.read_csv(folder / "other.csv").assign(age=50)
    other.to_csv(folder / "data.csv", index=False)
    assert written() == one
    assert seen != one

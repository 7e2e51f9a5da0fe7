"""The demo: one story, all of its files, and the commands that it names at its end."""

import json

import pandas as pd
import pytest

from permea.datasets import HOSPITALS, VISITS_SCHEMA, make_visits

from .conftest import Shell


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    shell = Shell(tmp_path_factory.mktemp("demo"))
    return shell, shell("demo", "--json"), shell.folder / "permea-demo"


def test_the_story_has_the_figures_of_three_ways(played):
    _, done, folder = played
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert said["private"]
    assert (said["epsilon"], said["unit"]) == (1.0, "person")
    assert said["auroc"] > 0.7
    assert said["attack_auc"] < 0.6  # fails
    ordinary = said["beside"]["random forest, no privacy"]
    assert ordinary["attack_auc"] > 0.7  # succeeds where nothing is promised
    assert said["report"] == str(folder / "report.html")


def test_the_files_are_those_that_it_names(played):
    _, _, folder = played
    for name in HOSPITALS:
        rows = pd.read_csv(folder / f"{name}.csv")
        assert rows["patient"].duplicated().any()
        assert not VISITS_SCHEMA.problems(rows)
    new = pd.read_csv(folder / "new-patients.csv")
    assert not set(new["patient"]) & set(rows["patient"])
    assert len(pd.read_csv(folder / "predictions.csv")) == len(new)
    assert pd.read_csv(folder / "synthetic.csv").columns[0] == "patient"
    assert "Folgenabschätzung" in (folder / "assessment-de.html").read_text()
    assert json.loads((folder / "assessment.json").read_text())["status"] == "PRIVATE"


def test_the_report_says_what_both_releases_add_up_to(played):
    page = (played[2] / "report.html").read_text()
    assert "add up to ε = 2 per person" in page
    assert "noise on every number" in page
    assert 'lang="de"' in page


def test_the_next_commands_run(played):
    shell, _, folder = played
    shown = shell("show", folder / "model.permea", "--trusted", folder / "trusted.keys")
    assert "PRIVATE" in shown.out
    trained = shell(
        "train", folder / "north.csv", "--schema", folder / "visits.toml", "--unit", "person",
        "--epsilon", 1, "--delta", "1e-6", "-o", "north.permea",
    )  # fmt: skip
    assert trained.code == 0, trained.err
    exported = shell("export", "north.permea", "-o", "north.onnx", "--json")
    assert json.loads(exported.out)["inputs"] == list(VISITS_SCHEMA.features)
    drafted = shell("schema", "draft", folder / "north.csv", "-o", "your.toml")
    assert drafted.code == 0, drafted.err


def test_a_file_in_the_way_is_told_in_one_line(tmp_path):
    (tmp_path / "taken").write_text("")
    done = Shell(tmp_path)("demo", "-o", "taken")
    assert done.code == 5
    assert len(done.err.strip().splitlines()) == 1
    assert Shell(tmp_path)("demo", "-o", "old.html").code == 2  # a file, in version 0.1


def test_visits_are_repeatable_and_fit_their_schema():
    one, again = make_visits(300), make_visits(300)
    pd.testing.assert_frame_equal(pd.DataFrame(one), pd.DataFrame(again))
    assert VISITS_SCHEMA.problems(one) == {}
    frame = pd.DataFrame(one)
    per_person = frame.groupby("patient")
    assert per_person.size().max() > 1
    assert (per_person["hospital"].nunique() == 1).all()
    assert frame["creatinine"].isna().any()

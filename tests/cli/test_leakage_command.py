"""``permea leakage`` as a user types it."""

import json

import numpy as np
import pandas as pd
import pytest

from permea.cli.console import ExitCode

TYPED = ("leakage", "released.csv", "--private", "age,weight", "--public", "hr1,hr2")


@pytest.fixture
def folder(shell):
    random = np.random.default_rng(0)
    age, weight = random.uniform(20, 80, 300), random.normal(75, 10, 300)
    pd.DataFrame(
        {
            "hr1": 220 - age + random.normal(0, 2, 300),
            "hr2": random.normal(size=300),
            "age": age,
            "weight": weight,
        }
    ).to_csv(shell.folder / "released.csv", index=False)
    return shell


def test_the_form_that_people_type(folder):
    done = folder(*TYPED)
    assert done.code == 0, done.err
    assert "information leakage" in done.out
    assert "bits" in done.out
    assert "age: guessed to ±" in done.out


def test_json_tells_what_leaks(folder):
    done = folder(*TYPED, "--json")
    said = json.loads(done.out)
    assert said["recovered"]["age"]["recovered"] > 0.95
    assert said["recovered"]["weight"]["recovered"] < 0.05
    assert said["mutual_information_bits"] > 2
    low, high = said["leakage_interval"]
    assert low < said["leakage_nats"] < high


def test_findings_go_to_a_file_and_a_pipeline_may_fail(folder):
    done = folder(*TYPED, "-o", "found.json", "--bootstrap", 50, "--max-recovered", 0.9)
    assert done.code == ExitCode.AUDIT
    assert "age" in done.err
    assert json.loads((folder.folder / "found.json").read_text())["rows"] == 300
    assert folder(*TYPED, "--max-recovered", 0.9999).code == 0


def test_private_columns_in_a_table_of_their_own(folder):
    whole = pd.read_csv(folder.folder / "released.csv")
    whole[["hr1", "hr2"]].to_csv(folder.folder / "public.csv", index=False)
    whole[["age", "weight"]].to_csv(folder.folder / "people.csv", index=False)
    typed = (
        "leakage",
        "public.csv",
        "--private",
        "age,weight",
        "--secrets",
        "people.csv",
        "--json",
    )
    apart, together = folder(*typed), folder(*TYPED, "--json")
    assert json.loads(apart.out) == json.loads(together.out)
    whole.head(100).to_csv(folder.folder / "people.csv", index=False)
    done = folder(*typed)
    assert done.code == ExitCode.INPUT
    assert "300 rows" in done.err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--private", "shoe"), ExitCode.INPUT, "shoe"),
        (("--private", "age", "--public", "age"), ExitCode.USAGE, "private and public"),
        (("--private", ","), ExitCode.USAGE, "at least one"),
        (("--private", "age,age"), ExitCode.USAGE, "twice"),
        (("--private", "age", "-o", "found.txt"), ExitCode.USAGE, "json"),
    ],
)
def test_bad_input_is_one_line(folder, words, code, told):
    before = folder.files()
    done = folder("leakage", "released.csv", *words)
    assert done.code == code, done.err
    assert told in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert folder.files() == before


def test_text_in_a_private_column_is_refused(folder):
    whole = pd.read_csv(folder.folder / "released.csv").assign(name="x")
    whole.to_csv(folder.folder / "released.csv", index=False)
    done = folder("leakage", "released.csv", "--private", "name")
    assert done.code == ExitCode.INPUT
    assert "name" in done.err

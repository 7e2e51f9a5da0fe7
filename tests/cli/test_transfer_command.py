"""``permea source`` and ``permea transfer`` as two owners type them."""

import json

import numpy as np
import pandas as pd
import pytest

import permea
from permea.storage import load

from .conftest import table

PRIVATE = ("--epsilon", 8, "--delta", 1e-5, "--unit", "entry", "--domain", 0, 1)
COLUMNS = ["height", "weight", "smoker", "score"]


@pytest.fixture
def owners(shell):
    """A source artefact made from data.csv, and new.csv with few labels left."""
    done = shell("source", "data.csv", "--label", "y", "--id", "id", *PRIVATE, "-o", "s.permea")
    assert done.code == 0, done.err
    frame = pd.read_csv(shell.folder / "new.csv")
    frame.assign(y=frame["y"].where(frame.index < 12)).to_csv(
        shell.folder / "target.csv", index=False
    )
    return shell, frame


def test_the_artefact_is_private_and_says_so(owners):
    shell, _ = owners
    source = load(shell.folder / "s.permea")
    assert source.certificate_.is_private
    assert not source.holds_private_rows_


def test_few_labels_become_many(owners):
    shell, truth = owners
    done = shell("transfer", "s.permea", "target.csv", "--label", "y", "--id", "id", "--who",
                 "-o", "out.csv")  # fmt: skip
    assert done.code == 0, done.err
    out = pd.read_csv(shell.folder / "out.csv")
    assert list(out.columns) == ["id", "y", "prediction", "decided_by"]
    assert np.mean(out["prediction"] == truth["y"]) > 0.95
    assert set(out["decided_by"]) <= {"target", "source"}
    assert np.all(out["prediction"][:12] == truth["y"][:12])


def test_other_columns_are_aligned(owners):
    shell, truth = owners
    frame = pd.read_csv(shell.folder / "target.csv")
    other = pd.DataFrame(
        {
            "cm": 100 + 90 * frame["height"],
            "kg": 40 + 80 * frame["weight"],
            "points": 10 * frame["score"],
            "y": frame["y"],
        }
    )
    other.to_csv(shell.folder / "other.csv", index=False)
    done = shell("transfer", "s.permea", "other.csv", "--label", "y", "-o", "out.csv")
    assert done.code == 0, done.err
    out = pd.read_csv(shell.folder / "out.csv")
    assert np.mean(out["prediction"] == truth["y"]) > 0.9


def test_new_rows_and_json(owners):
    shell, truth = owners
    truth.drop(columns="y").to_csv(shell.folder / "fresh.csv", index=False)
    done = shell("transfer", "s.permea", "target.csv", "--label", "y", "--id", "id", "--new",
                 "fresh.csv", "--method", "centers", "--json", "-o", "out.csv")  # fmt: skip
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert (said["rows"], said["method"]) == (80, "centers")
    assert (said["source_private"], said["source_status"]) == (False, "unverified claim")
    assert said["history"][0]["changed"] == 68
    out = pd.read_csv(shell.folder / "out.csv")
    assert np.mean(out["prediction"] == truth["y"]) > 0.9


def test_a_signed_artefact_is_known_by_its_key(shell):
    line = shell("keys", "create", "north", "-o", "north.key").out
    (shell.folder / "trusted.keys").write_text(line)
    made = shell("source", "data.csv", "--label", "y", "--id", "id", *PRIVATE,
                 "--sign", "north.key", "-o", "s.permea")  # fmt: skip
    assert made.code == 0, made.err
    assert "signed by north" in made.out
    done = shell("transfer", "s.permea", "new.csv", "--label", "y", "--id", "id",
                 "--trusted", "trusted.keys", "--json", "-o", "out.csv")  # fmt: skip
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert (said["source_private"], said["source_status"]) == (True, "PRIVATE")


def test_an_artefact_of_the_library_works_as_well(shell):
    frame = pd.read_csv(shell.folder / "data.csv")
    promise = permea.Privacy(epsilon=8, delta=1e-5, domain=(0, 1))
    source = permea.SourceModel(privacy=promise).fit(frame[COLUMNS], frame["y"])
    permea.save(source, shell.folder / "lib.permea")
    done = shell("transfer", "lib.permea", "new.csv", "--label", "y", "--id", "id", "-o", "out.csv")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nothing.permea", "new.csv", "--label", "y", "-o", "o.csv"), 4, "is not a file"),
        (("model.permea", "new.csv", "--label", "y", "-o", "o.csv"), 4, "not a source"),
    ],
)
def test_what_is_no_source(trained, words, code, said):
    done = trained("transfer", *words)
    assert done.code == code
    assert said in done.err
    assert "Traceback" not in done.err


def test_wrong_labels_and_columns(owners):
    shell, _ = owners
    frame = pd.read_csv(shell.folder / "target.csv")
    frame.assign(y=0.5).to_csv(shell.folder / "half.csv", index=False)
    done = shell("transfer", "s.permea", "half.csv", "--label", "y", "--id", "id", "-o", "o.csv")
    assert (done.code, "fractions" in done.err) == (3, True)
    done = shell("transfer", "s.permea", "target.csv", "--label", "nope", "-o", "o.csv")
    assert (done.code, "nope" in done.err) == (3, True)
    frame.assign(prediction=1).to_csv(shell.folder / "twice.csv", index=False)
    done = shell("transfer", "s.permea", "twice.csv", "--label", "y", "--id", "id", "-o", "o.csv")
    assert (done.code, "--column" in done.err) == (2, True)


def test_a_source_needs_a_promise(shell):
    done = shell("source", "data.csv", "--label", "y", "--id", "id", "-o", "s.permea")
    assert done.code == 2
    assert "--epsilon" in done.err
    assert not (shell.folder / "s.permea").exists()


DECLARED = ("--epsilon", 8, "--delta", 1e-5, "--domain", 0, 1, "--class", "ill", "--class", "well")


def few_labels(shell, name="data.csv"):
    """Rows of 400 people with two rows each; few labels are left in target.csv."""
    people = table(800, 3)
    people.assign(id=[f"p{n // 2}" for n in range(800)]).to_csv(shell.folder / name, index=False)
    truth = pd.read_csv(shell.folder / "new.csv")
    left = truth.assign(y=truth["y"].where(truth.index < 12))
    left.to_csv(shell.folder / "target.csv", index=False)
    return truth


@pytest.mark.parametrize("unit", ["record", "person"])
def test_class_moments_of_a_table_serve_a_target(shell, unit):
    truth = few_labels(shell)
    who = ("--person", "id") if unit == "person" else ("--id", "id")
    made = shell("source", "data.csv", "--label", "y", *who, *DECLARED, "--unit", unit,
                 "--neighbours", "add/remove", "--ledger", "l.db", "--budget", 20, 1e-4,
                 "--dataset", "ward", "-o", "s.permea")  # fmt: skip
    assert made.code == 0, made.err
    assert f"ε = 8 per {unit}" in made.out
    source = load(shell.folder / "s.permea")
    assert source.certificate_.is_private
    assert source.certificate_.privacy.unit == unit
    for extra in ((), ("--new", "new.csv")):
        done = shell("transfer", "s.permea", "target.csv", "--label", "y", "--who", *extra,
                     "-o", "out.csv")  # fmt: skip
        assert done.code == 0, done.err
        out = pd.read_csv(shell.folder / "out.csv")
        assert np.mean(out["prediction"] == truth["y"]) > 0.9
        assert set(out["decided_by"]) <= {"target", "source"}


def test_how_many_rows_there_are_is_told_where_it_is_public(shell):
    few_labels(shell)
    common = ("source", "data.csv", "--label", "y", *DECLARED, "-o", "s.permea", "--json")
    told = [
        json.loads(shell(*common, *words).out)["rows"]
        for words in (
            ("--id", "id", "--unit", "record"),
            ("--id", "id", "--unit", "record", "--neighbours", "add/remove"),
            ("--person", "id", "--unit", "person"),
        )
    ]
    assert told == [800, None, None]


def test_a_source_with_a_schema_serves_its_columns_only(shell):
    few_labels(shell)
    words = ("source", "data.csv", "--label", "y", "--id", "id", *DECLARED, "--unit", "record")
    assert shell(*words, "-o", "s.permea").code == 0
    target = pd.read_csv(shell.folder / "target.csv")
    target.drop(columns="score").to_csv(shell.folder / "less.csv", index=False)
    done = shell("transfer", "s.permea", "less.csv", "--label", "y", "-o", "out.csv")
    assert (done.code, "lacks 1 of the 4 columns" in done.err) == (3, True)
    target.assign(y="dead").to_csv(shell.folder / "other.csv", index=False)
    done = shell("transfer", "s.permea", "other.csv", "--label", "y", "-o", "out.csv")
    assert (done.code, "dead" in done.err) == (3, False)


def test_noise_on_rows_per_record_is_asked_for_by_name(shell):
    words = ("source", "data.csv", "--label", "y", "--id", "id", *PRIVATE[:-3])
    by_name = (*words, "--unit", "record", "--domain", 0, 1, "--release", "rows")
    done = shell(*by_name, "-o", "s.permea")
    assert done.code == 0, done.err
    assert load(shell.folder / "s.permea").classifier_.encoder_ is None

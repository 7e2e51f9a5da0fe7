"""The command line as a user drives it: tables in, a private model, tables and a report out."""

import json

import numpy as np
import pandas as pd
import pytest

import permea
from permea.cli.commands.fabricate import cast_like
from permea.privacy import Ledger
from permea.privacy.release import plan

from .conftest import PRIVATE, Shell

TRAIN = ("train", "data.csv", "--label", "y", "--id", "id", *PRIVATE, "-o", "model.permea")


def test_a_user_walks_through(shell):
    """CSV in, private model, fabricated CSV, predictions, audit, report."""
    trained = shell(*TRAIN)
    assert trained.code == 0, trained.err
    assert "PRIVATE: ε = 8 per entry" in trained.out
    assert "per record" in trained.out  # never an entry-level figure alone

    fabricated = shell(
        "fabricate", "data.csv", "--label", "y", "--id", "id", "-e", 8, "--domain", 0, 1,
        "--whole", "smoker", "-o", "private.csv",
    )  # fmt: skip
    assert fabricated.code == 0, fabricated.err
    raw, made = (pd.read_csv(shell.folder / name) for name in ("data.csv", "private.csv"))
    assert list(made.columns) == list(raw.columns)
    assert list(made.dtypes) == list(raw.dtypes)
    pd.testing.assert_frame_equal(made[["id", "y"]], raw[["id", "y"]])
    assert (made["height"] != raw["height"]).all()
    paper = json.loads((shell.folder / "private.csv.certificate.json").read_text())
    assert paper["is_private"]
    assert any("id" in item for item in paper["not_protected"])

    predicted = shell("predict", "model.permea", "new.csv", "-o", "out.csv")
    assert predicted.code == 0, predicted.err
    out, new = pd.read_csv(shell.folder / "out.csv"), pd.read_csv(shell.folder / "new.csv")
    assert list(out.columns) == ["id", "y", "prediction"]
    assert (out["id"] == new["id"]).all()
    assert (out["prediction"] == new["y"]).mean() > 0.9

    audited = shell(
        "audit", "model.permea", "--members", "data.csv", "--outside", "new.csv", "--label", "y"
    )
    assert audited.code == 0, audited.err
    assert "claimed" in audited.out
    assert "at least" in audited.out  # the measured bound stands beside the claim

    reported = shell(
        "report", "model.permea", "--members", "data.csv", "--outside", "new.csv", "--label", "y",
        "-o", "report.html",
    )  # fmt: skip
    assert reported.code == 0, reported.err
    page = (shell.folder / "report.html").read_text()
    assert "ε = 8 per entry" in page
    assert "For the owner of the data" in page
    assert not [name for name in shell.files() if ".part" in name]


def test_parquet_in_and_out_keeps_every_type(shell):
    frame = pd.read_csv(shell.folder / "data.csv").assign(
        age=np.arange(120, dtype=np.uint8) % 2,
        member=lambda f: f["smoker"] == 1,
        kind=pd.Categorical(["a", "b"] * 60),
    )
    frame["score"] = frame["score"].astype(np.float32)
    frame.to_parquet(shell.folder / "data.parquet", index=False)
    done = shell(
        "fabricate", "data.parquet", "--label", "y", "--id", "id", "--id", "kind",
        "--epsilon", 4, "--domain", 0, 1, "-o", "private.parquet",
    )  # fmt: skip
    assert done.code == 0, done.err
    made = pd.read_parquet(shell.folder / "private.parquet")
    read = pd.read_parquet(shell.folder / "data.parquet")
    assert list(made.columns) == list(read.columns)
    assert list(made.dtypes) == list(read.dtypes)


def test_whole_numbers_stay_within_their_type():
    made = cast_like(np.array([-1e9, 0.49, 1e9]), np.dtype("int16"))
    assert made.tolist() == [-(2**15), 0, 2**15 - 1]
    assert cast_like(np.array([0.2, 0.9]), np.dtype(bool)).tolist() == [False, True]
    assert cast_like(np.array([1e30]), np.dtype("int64")).iloc[0] > 2**62


def test_streams_and_json(trained):
    text = (trained.folder / "new.csv").read_text()
    piped = trained.process("predict", "model.permea", "-", stdin=text)
    assert piped.code == 0
    assert piped.out.splitlines()[0] == "id,y,prediction"
    assert len(piped.out.splitlines()) == 81
    quiet = trained("predict", "model.permea", "new.csv", "--quiet")
    assert quiet.err == ""
    assert quiet.out == piped.out
    made = trained.process(
        "fabricate", "-", "-l", "y", "--id", "id", "-e", 4, "--domain", 0, 1, "-o", "-", stdin=text
    )
    assert made.code == 0
    assert len(made.out.splitlines()) == 81
    answer = trained("predict", "model.permea", "new.csv", "-o", "json.csv", "--json")
    assert json.loads(answer.out)["rows"] == 80
    assert answer.err == ""
    mixed = trained("predict", "model.permea", "new.csv", "--json")
    assert mixed.code == 2


def test_columns_are_found_by_name_in_any_order(trained):
    frame = pd.read_csv(trained.folder / "new.csv")
    frame[frame.columns[::-1]].to_csv(trained.folder / "turned.csv", index=False)
    straight = trained("predict", "model.permea", "new.csv").out
    turned = trained("predict", "model.permea", "turned.csv").out
    last = [[line.split(",")[-1] for line in text.splitlines()] for text in (straight, turned)]
    assert last[0] == last[1]


def test_the_saved_model_is_a_classifier_of_the_library(trained):
    model = permea.load(trained.folder / "model.permea")
    frame = pd.read_csv(trained.folder / "new.csv")
    assert model.distances(frame[list(model.columns)]).shape == (80, 2)
    assert model.certificate_.is_private
    assert not model.holds_private_rows_


@pytest.mark.parametrize(
    ("words", "depth", "dimensions"),
    [
        (("--family", "fuzzy"), 1, [2]),  # 002 has one, whose own layers are learned
        (("--family", "fuzzy", "--layers", 3), 3, [2, 1, 1]),
        (("--family", "membership"), 5, [2, 1, 1, 1, 1]),
        (("--family", "kahm", "--layers", 4), 4, [2, 1, 1, 1]),
    ],
)
def test_the_depth_is_that_of_the_family_or_what_was_asked_for(shell, words, depth, dimensions):
    done = shell("train", "data.csv", "--label", "y", "--id", "id", *PRIVATE, "--components", 2,
                 "--jobs", 1, *words, "-o", "m.permea")  # fmt: skip
    assert done.code == 0, done.err
    model = permea.load(shell.folder / "m.permea").classifier_
    assert model.n_layers == depth
    (branch,) = model.class_models_[0].branches_
    assert [layer.n_components_ for layer in branch.layers_] == dimensions


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("--family", "fuzzy", "--rules", 7, "--branch-size", 30),
         {"n_rules": 7, "branch_size": 30}),
        (("--family", "fuzzy", "--rules", 0.2), {"n_rules": 0.2}),
        (("--family", "membership", "--inducing", 0.25, "--kappa", 0.05, "--nu", 3),
         {"max_inducing": 0.25, "kappa": 0.05, "nu": 3.0}),
        (("--family", "membership", "--disturbance", "gamma", "--nu", "inf"),
         {"disturbance": "gamma", "nu": np.inf}),
        (("--fabricate", "--fabrication-steps", 2), {"fabricate": 2}),
    ],
)  # fmt: skip
def test_what_the_documents_name_can_be_set(shell, words, values):
    done = shell("train", "data.csv", "--label", "y", "--id", "id", *PRIVATE, "--components", 2,
                 "--jobs", 1, *words, "-o", "m.permea")  # fmt: skip
    assert done.code == 0, done.err
    model = permea.load(shell.folder / "m.permea").classifier_
    assert {name: getattr(model, name) for name in values} == values
    assert model.certificate_.is_private


def test_the_order_of_the_document_is_not_private(shell):
    done = shell("train", "data.csv", "--label", "y", "--id", "id", *PRIVATE, "--components", 2,
                 "--branch-size", 30, "--partition-on", "original", "-o", "m.permea",
                 "--json")  # fmt: skip
    assert done.code == 0, done.err
    assert not json.loads(done.out)["private"]


def test_a_bound_makes_the_noise_smaller(shell):
    """d of 002: the mean magnitude of the noise is (1 - delta) d / epsilon."""
    words = ("train", "data.csv", "--label", "y", "--id", "id", "--components", 2, "-e", 8,
             "--delta", 0.01, "--domain", 0, 2, "-o", "m.permea")  # fmt: skip
    done = shell(*words, "--bound", 0.5)
    assert done.code == 0, done.err
    model = permea.load(shell.folder / "m.permea")
    assert model.certificate_.privacy.bound == 0.5
    assert model.classifier.privacy.bound == 0.25  # of columns that were mapped to [0, 1]
    magnitude = plan(model.classifier.privacy, 4).noise.expected_magnitude()
    assert np.max(magnitude) == pytest.approx(0.99 * 0.25 / 8, rel=1e-3)
    refused = shell(*words, "--bound", 3)
    assert (refused.code, "bound must be positive" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--rules", 5), "--family kahm has no --rules"),
        (("--family", "fuzzy", "--kappa", 1), "--family fuzzy has no --kappa"),
        (("--family", "fuzzy", "--rules", 1.5), "Invalid value for '--rules'"),
        (("--fabrication-steps", 2), "needs --fabricate"),
        (("--unit", "record", "--class", "ill", "--class", "well", "--layers", 2),
         "--family moments has no --layers"),
        (("--unit", "record", "--class", "ill", "--class", "well", "--family", "hulls", "--nu", 2),
         "--family hulls has no --nu"),
        (("--family", "membership", "--nu", "inf"), "finite nu"),
    ],
)  # fmt: skip
def test_options_that_a_family_does_not_have_are_refused(shell, words, told):
    words = ("train", "data.csv", "--label", "y", "--id", "id", *PRIVATE, *words, "-o", "m.permea")
    before = shell.files()
    done = shell(*words, "--ledger", "l.db", "--budget", 20, 0.1)
    assert done.code != 0
    assert told in done.err
    assert "m.permea" not in shell.files()
    if "l.db" in shell.files():
        assert Ledger(shell.folder / "l.db").spent.epsilon == 0
    assert set(before) <= set(shell.files())


def test_ranges_per_column_make_units_irrelevant(shell):
    """Metres or millimetres: the declared range decides, not the number."""
    frame = pd.read_csv(shell.folder / "data.csv")
    new = pd.read_csv(shell.folder / "new.csv")
    for part, name in ((frame, "mm.csv"), (new, "mm_new.csv")):
        part.assign(height=part["height"] * 1e6).to_csv(shell.folder / name, index=False)
    ranges = {name: [0, 1] for name in ("weight", "smoker", "score")} | {"height": [0, 1e6]}
    (shell.folder / "ranges.json").write_text(json.dumps(ranges))
    common = ("--label", "y", "--id", "id", "-e", 8, "--seed", 3)
    assert shell("train", "data.csv", *common, "--domain", 0, 1, "-o", "a.permea").code == 0
    second = shell("train", "mm.csv", *common, "--domain-file", "ranges.json", "-o", "b.permea")
    assert second.code == 0, second.err
    assert "not private" in second.out  # seeded, and it says so
    a = shell("predict", "a.permea", "new.csv", "--distances").out
    b = shell("predict", "b.permea", "mm_new.csv", "--distances").out
    read = [[[float(v) for v in line.split(",")[-2:]] for line in text.splitlines()[1:]]
            for text in (a, b)]  # fmt: skip
    assert np.allclose(*read, rtol=1e-4)


def test_a_ledger_keeps_account_and_stops_in_time(shell):
    words = ("fabricate", "data.csv", "-l", "y", "--id", "id", "-e", 4, "--domain", 0, 1,
             "--ledger", "account.json")  # fmt: skip
    first = shell(*words, "--budget", 6, 0, "-o", "one.csv")
    assert first.code == 0, first.err
    before = shell.files()
    second = shell(*words, "-o", "two.csv")
    assert second.code == 6
    assert "budget" in second.err
    assert shell.files() == before


def test_without_privacy_only_in_words(shell):
    refused = shell("train", "data.csv", "--label", "y", "--id", "id", "-o", "model.permea")
    assert refused.code == 2
    assert "--not-private" in refused.err
    said = shell("train", "data.csv", "-l", "y", "--id", "id", "--not-private", "-o", "m.permea")
    assert said.code == 0
    assert "NOT private" in said.out
    assert (shell.folder / "m.permea").stat().st_mode & 0o077 == 0  # for its owner alone
    federated = shell("federate", "m.permea", "--queries", "new.csv", "-o", "out.csv")
    assert federated.code == 6


def test_federation_of_model_files(trained):
    frame = pd.read_csv(trained.folder / "data.csv")
    for name, part in (("north", frame[::2]), ("south", frame[1::2])):
        part.to_csv(trained.folder / f"{name}.csv", index=False)
        done = trained("train", f"{name}.csv", "-l", "y", "--id", "id", *PRIVATE,
                       "-o", f"{name}.permea")  # fmt: skip
        assert done.code == 0, done.err
    done = trained(
        "federate", "north.permea", "south.permea", "--disjoint", "--queries", "new.csv",
        "-o", "together.csv",
    )  # fmt: skip
    assert done.code == 0, done.err
    out = pd.read_csv(trained.folder / "together.csv")
    assert (out["prediction"] == out["y"]).mean() > 0.9
    wrong = trained("federate", "north.permea", "--engine", "flower", "--queries", "new.csv")
    assert wrong.code == 2
    assert "flower takes --config" in wrong.err


def test_an_audit_can_fail_a_pipeline(shell):
    """A model without privacy keeps its rows, and the attack finds them."""
    shell("train", "data.csv", "-l", "y", "--id", "id", "--not-private", "-o", "bare.permea")
    words = ("audit", "bare.permea", "--members", "data.csv", "--outside", "new.csv", "-l", "y")
    assert shell(*words, "--max-auc", 1.0).code == 0
    failed = shell(*words, "--max-auc", 0.01, "-o", "found.json")
    assert failed.code == 7
    assert json.loads((shell.folder / "found.json").read_text())["attacks"]


@pytest.mark.parametrize("words", [("--help",), ("train", "--help"), ("--version",)])
def test_help_and_version(trained, words):
    done = trained(*words)
    assert done.code == 0
    assert "permea" in done.out


def test_shell_completion_knows_the_commands(trained):
    done = trained.process(
        environment={"_PERMEA_COMPLETE": "complete_bash", "COMP_WORDS": "permea tr",
                     "COMP_CWORD": "1"}
    )  # fmt: skip
    assert "train" in done.out


def test_without_the_extra_one_clear_line(tmp_path):
    (tmp_path / "typer.py").write_text("raise ImportError('gone', name='typer')\n")
    done = Shell(tmp_path).process("demo", environment={"PYTHONPATH": str(tmp_path)})
    assert done.code == 8
    assert "permea[cli]" in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_accuracy_has_the_majority_and_auroc_beside_it(trained):
    done = trained("predict", "model.permea", "new.csv", "-o", "known.csv", "--json")
    said = json.loads(done.out)
    share = pd.read_csv(trained.folder / "new.csv")["y"].value_counts(normalize=True).max()
    assert said["majority"] == pytest.approx(share)
    assert said["accuracy"] > 0.9
    assert said["auroc"] > 0.9
    text = trained("predict", "model.permea", "new.csv", "-o", "known.csv").out
    assert "majority class" in text
    assert "AUROC" in text

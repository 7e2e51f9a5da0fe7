"""``permea study`` as a user types it (003 Algorithm 9)."""

import json

import numpy as np
import pandas as pd
import pytest

from permea import documents
from permea.cli.console import ExitCode

TYPED = ("study", "source.csv", "--label", "y", "--domain", 0, 2, "-e", "0.5,inf", "--samples", 60,
         "--jobs", 1)  # fmt: skip


@pytest.fixture
def folder(shell):
    random = np.random.default_rng(0)
    y = np.arange(120) % 2
    X = np.clip(0.5 + y[:, None] + random.normal(0, 0.2, (120, 4)), 0, 2)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y, age=30 + 10 * y, id=range(120))
    frame[:60].to_csv(shell.folder / "source.csv", index=False)
    frame[60:90].assign(y=[*y[60:70], *[None] * 20]).to_csv(shell.folder / "few.csv", index=False)
    frame[90:].to_csv(shell.folder / "test.csv", index=False)
    shell.frame = frame
    return shell


def test_the_study_is_that_of_the_document(folder):
    words = (*TYPED, "--id", "id", "--id", "age", "--target", "few.csv", "--test", "test.csv")
    done = folder(*words, "-o", "found.json", "--plot", "study.svg", "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert said == json.loads((folder.folder / "found.json").read_text())
    assert "<svg" in (folder.folder / "study.svg").read_text()
    frame, features = folder.frame, list("abcd")
    X, y = frame[features].to_numpy() / 2, frame["y"].astype(str).to_numpy()
    few = np.where(np.arange(60, 90) < 70, y[60:90], "")
    study = documents.study_003(
        X[:60], y[:60], epsilons=[0.5, np.inf], X_target=X[60:90], y_target=few, X_test=X[90:],
        y_test=y[90:], max_samples=60, models=False, random_state=0, n_jobs=1,
    )  # fmt: skip
    for ours, theirs in zip(said["points"], study.points, strict=True):
        for name, value in theirs.figures().items():
            if name == "epsilon":
                assert ours[name] == ("infinite" if np.isinf(value) else value)
            elif name != "recovered":
                assert ours[name] == pytest.approx(value, rel=1e-6), name
    assert said["selected"]["max_interpretability"] == "infinite"
    assert said["selected"]["min_privacy_leakage"] == 0.5
    assert set(said["selected"]) >= {"max_interpretability", "max_transferability"}


def test_private_and_interpretable_columns_without_a_target(folder):
    typed = (*TYPED, "--id", "id", "--interpretable", "age", "--private", "d")
    done = folder(*typed)
    assert done.code == 0, done.err
    assert "min privacy leakage: ε = 0.5 per entry" in done.out
    assert "max interpretability: ε = inf per entry" in done.out
    assert "max transferability" not in done.out
    assert "–" in done.out


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (("-e", "0.1,zero"), "numbers separated by commas", ExitCode.USAGE),
        (("-e", "0.1,0"), "above 0", ExitCode.USAGE),
        (("--test", "test.csv"), "--test needs --target", ExitCode.USAGE),
        (("--domain-file", "ranges.csv"), "--domain LOW HIGH or by --domain-file", ExitCode.USAGE),
        (("--private", "salary"), "salary", ExitCode.INPUT),
        (("-o", "found.txt"), ".json", ExitCode.USAGE),
        (("--id", "id", "--domain", 0, 1), "outside", ExitCode.INPUT),
    ],
)
def test_bad_input_is_one_line(folder, words, message, code):
    done = folder(*TYPED, *words)
    assert done.code == code, done.err
    assert message in done.err
    assert done.err.count("\n") == 1

"""A new family is one file: all parts of the library and the command line work on it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from toy_family import PrincipalSubspace

from permea import ConditionallyDeep, ReconstructionClassifier, Wide
from permea.models.base import Reconstructor
from permea.privacy import Privacy


def test_it_is_a_family():
    assert isinstance(PrincipalSubspace(), Reconstructor)


def test_depth_works(digits):
    Y = digits[0]
    deep = ConditionallyDeep(PrincipalSubspace(6), n_layers=3).fit(Y)
    assert [layer.n_components for layer in deep.layers_] == [6, 5, 4]
    np.testing.assert_allclose(deep.distance(Y), deep.layers_[0].distance(Y))


def test_width_works(digits):
    Y = digits[0]
    wide = Wide(PrincipalSubspace(6), branch_size=300, random_state=0).fit(Y)
    each = np.stack([branch.distance(Y) for branch in wide.branches_])
    np.testing.assert_allclose(wide.distance(Y), each.min(axis=0))


@pytest.mark.parametrize("fabricate", [False, True])
@pytest.mark.parametrize("privacy", [None, Privacy(epsilon=8, domain=(0, 1))])
def test_classification_and_privacy_work(digits, privacy, fabricate):
    X_train, X_test, y_train, y_test = digits
    if privacy is None and fabricate:
        return
    clf = ReconstructionClassifier(
        PrincipalSubspace(8), n_layers=2, privacy=privacy, fabricate=fabricate
    )
    assert clf.fit(X_train, y_train).score(X_test, y_test) > 0.9


@pytest.fixture
def permea(tmp_path, digits):
    """The command in a folder with two tables and the file of the family."""
    shutil.copy(Path(__file__).with_name("toy_family.py"), tmp_path)
    X_train, X_test, y_train, y_test = digits
    for name, X, y in (("data.csv", X_train, y_train), ("new.csv", X_test, y_test)):
        frame = pd.DataFrame(X, columns=[f"c{k}" for k in range(X.shape[1])])
        frame.assign(y=y).to_csv(tmp_path / name, index=False)

    def run(*words, families="toy_family"):
        return subprocess.run(
            [sys.executable, "-m", "permea", *map(str, words)], cwd=tmp_path, text=True,
            capture_output=True, check=False, env={**os.environ, "PERMEA_FAMILIES": families},
        )  # fmt: skip

    run.folder = tmp_path
    return run


def test_the_command_line_trains_and_uses_it(permea):
    """One file outside of the library, and no edit in it."""
    done = permea(
        "train", "data.csv", "--label", "y", "-e", 8, "--domain", 0, 1, "--components", 8,
        "--layers", 2, "--model", "toy_family:PrincipalSubspace", "-o", "m.permea", families="",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = permea("predict", "m.permea", "new.csv", "-o", "out.csv", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "unverified claim"
    out = pd.read_csv(permea.folder / "out.csv")
    assert (out["prediction"] == out["y"]).mean() > 0.9
    done = permea("report", "m.permea", "--members", "data.csv", "--outside", "new.csv",
                  "--label", "y", "-o", "r.html")  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_model_file_does_not_choose_the_code_that_is_loaded(permea):
    model = ("train", "data.csv", "--label", "y", "--not-private", "--components", 2, "--layers", 1)
    own = ("--model", "toy_family:PrincipalSubspace", "-o", "m.permea")
    assert permea(*model, *own).returncode == 0
    refused = permea("predict", "m.permea", "new.csv", families="")
    assert refused.returncode == 4
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("toy", "no model family 'toy'"),
        ("toy_family:Nothing", "not a model family"),
        ("no_such_module:Model", "cannot be imported"),
        ("json:JSONDecoder", "not a model family"),
    ],
)
def test_a_wrong_family_is_one_line(permea, name, said):
    done = permea("train", "data.csv", "--label", "y", "--not-private", "--model", name,
                  "-o", "m.permea", families="")  # fmt: skip
    assert done.returncode == 2
    assert said in done.stderr

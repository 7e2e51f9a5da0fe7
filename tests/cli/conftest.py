"""A user's folder: two tables with ids, names and a label, and the command itself."""

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from permea.cli.app import run

ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200", "NO_COLOR": "1"}


@dataclass
class Outcome:
    """What a run left behind, as a user sees it."""

    code: int
    out: str
    err: str


class Shell:
    """Types commands in a folder; in this process where that makes no difference to the user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words) -> Outcome:
        """Run a command here: its exit code and everything that it printed."""
        out, err = io.StringIO(), io.StringIO()
        progress = os.environ.get("PERMEA_PROGRESS")
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = run([str(word) for word in words])
        if progress is not None:
            os.environ["PERMEA_PROGRESS"] = progress
        return Outcome(code, out.getvalue(), err.getvalue())

    def process(self, *words, stdin=None, prepare=None, environment=None) -> Outcome:
        """Run a command in a process of its own, as a shell does."""
        done = subprocess.run(
            [sys.executable, "-m", "permea", *map(str, words)],
            cwd=self.folder,
            env={**ENVIRONMENT, **(environment or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=240,
            preexec_fn=prepare,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def files(self) -> dict[str, bytes]:
        """Everything in the folder, hidden files included, to see what changed."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }


def table(n_rows: int, seed: int) -> pd.DataFrame:
    """Two classes in four columns of different kinds, with an id and a text label."""
    random = np.random.default_rng(seed)
    label = random.integers(0, 2, n_rows)
    centre = np.where(label == 1, 0.75, 0.25)
    return pd.DataFrame(
        {
            "id": [f"p{number:04d}" for number in range(n_rows)],
            "height": np.clip(centre + 0.1 * random.normal(size=n_rows), 0, 1),
            "weight": np.clip(1 - centre + 0.1 * random.normal(size=n_rows), 0, 1),
            "smoker": label.astype(np.int64),
            "score": np.clip(centre + 0.1 * random.normal(size=n_rows), 0, 1).astype(np.float32),
            "y": np.where(label == 1, "ill", "well"),
        }
    )


@pytest.fixture
def shell(tmp_path):
    table(120, 1).to_csv(tmp_path / "data.csv", index=False)
    table(80, 2).to_csv(tmp_path / "new.csv", index=False)
    return Shell(tmp_path)


PRIVATE = ("--epsilon", 8, "--delta", 1e-5, "--unit", "entry", "--domain", 0, 1)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with a private model in it, made by the command line."""
    folder = tmp_path_factory.mktemp("trained")
    table(120, 1).to_csv(folder / "data.csv", index=False)
    table(80, 2).to_csv(folder / "new.csv", index=False)
    shell = Shell(folder)
    done = shell("train", "data.csv", "--label", "y", "--id", "id", *PRIVATE, "-o", "model.permea")
    assert done.code == 0, done.err
    return shell

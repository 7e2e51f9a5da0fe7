"""Commands and files on pages: every console block of README, tutorial and guides is run.

Each block runs in a folder of its own with small made-up files of the names that it reads. What
needs a server, a network or minutes is checked for its form here, and run by the test named beside.
"""

import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from permea.datasets import VISITS_SCHEMA, make_visits
from permea.tables import Schema

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from cli.conftest import Shell  # noqa: E402
from contract.test_doc_names import wrong  # noqa: E402

PAGES = [ROOT / "README.md", ROOT / "docs/tutorial.md", *sorted((ROOT / "docs/howto").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: beginnings of commands that run elsewhere, and where
ELSEWHERE = {
    "make demo": "tests/cli/test_demo.py",
    "make test": "itself",
    "make ": "Makefile",
    "pip install": "tests/contract/test_packaging.py",
    "python examples/stress/": "tests/datasets/test_heartbeats_example.py",
    "python -m benchmarks": "tests/contract/test_benchmarks.py",
    "python benchmarks/": "tests/contract/test_benchmarks.py",
    "scripts/make_trial_certificates.sh": "tests/federation/test_flower_deploy.py",
    "permea federate --engine flower": "tests/federation/test_flower_deploy.py",
    "permea federate --config": "tests/federation/test_flower_deploy.py",
    "permea federate agree": "tests/federation/test_network_training.py",
    "permea federate train": "tests/federation/test_network_training.py",
    "permea federate check": "tests/federation/test_network_training.py",
    "python -m venv": "tests/federation/test_deployment_files.py",
    "useradd": "tests/federation/test_deployment_files.py",
    "cp deploy/": "tests/federation/test_deployment_files.py",
    "systemctl": "tests/federation/test_deployment_files.py",
    "permea party": "tests/federation/test_flower_deploy.py",
    "permea serve": "tests/federation/test_service.py",
    "(umask": "tests/federation/test_service.py",
    "ask": "tests/federation/test_service.py",
    "permea train postgresql://": "tests/tables/test_reading.py",
}


def blocks():
    for path in PAGES:
        found = FENCE.findall(path.read_text())
        for number, (language, code) in enumerate(found):
            if language in ("console", "bash", "sh", "toml"):
                yield pytest.param(language, code, id=f"{path.stem}-{number}")


def commands(code):
    """The commands of a block, without prompts, comments and what they print."""
    lines = [line.strip() for line in re.sub(r"\\\n\s*", "", code).splitlines()]
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [re.sub(r"\s+#.*$", "", line) for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Files that guides name: tables of numbers, of visits, models, keys, a ledger, a family."""
    shell = Shell(tmp_path_factory.mktemp("world"))
    folder, rng = shell.folder, np.random.default_rng(0)

    def numbers(label="y", n=120):
        y = np.arange(n) % 2
        columns = {c: np.clip(0.3 + 0.4 * y + 0.1 * rng.normal(size=n), 0, 1) for c in "abc"}
        return pd.DataFrame({**columns, label: y})

    for name in ("data", "new", "train", "holdout", "target", "source", "few", "test"):
        numbers().to_csv(folder / f"{name}.csv", index=False)
    for name in ("hospital", "clinic", "tomorrow"):
        rows = numbers("diagnosis").assign(patient=[f"p{i}" for i in range(120)])
        rows.to_csv(folder / f"{name}.csv", index=False)
    people = pd.DataFrame(rng.normal(size=(60, 4)), columns=["age", "weight", "hr1", "hr2"])
    people.to_csv(folder / "released.csv", index=False)
    people.to_csv(folder / "people.csv", index=False)
    (folder / "ranges.csv").write_text("column,low,high\na,0,1\nb,0,1\nc,0,1\n")
    (folder / "data.toml").write_text(
        'label = "y"\n'
        + "".join(f"[columns.{c}]\nkind='number'\nlow=0\nhigh=1\n" for c in "abc")
        + '[columns.y]\nkind = "category"\nvalues = ["0", "1"]\n'
    )
    shutil.copy(ROOT / "tests/contract/toy_family.py", folder / "my_models.py")
    visits = pd.DataFrame(make_visits(500)).drop(columns="hospital")
    visits.to_csv(folder / "patients.csv", index=False)
    (folder / "patients.toml").write_text(VISITS_SCHEMA.to_toml())
    learned = ("--label", "y", "--epsilon", 8, "--delta", "1e-5", "--unit", "record",
               "--domain", 0, 1, "--class", 0, "--class", 1)  # fmt: skip
    for name in ("model", "north", "south"):
        assert shell("train", "data.csv", *learned, "-o", f"{name}.permea").code == 0
    assert shell("keys", "create", "clinic", "--output", "clinic.key").code == 0
    (folder / "clinic.pub").write_text(shell("keys", "public", "clinic.key").out)
    assert shell("keys", "trust", "trusted.keys", "clinic.pub").code == 0
    made = ("source", "hospital.csv", "--label", "diagnosis", "--id", "patient", "--epsilon", 8,
            "--domain", 0, 1, "-o", "source.permea")  # fmt: skip
    assert shell(*made).code == 0
    assert shell("ledger", "create", "old.db", "--epsilon", 3, "--unit", "record").code == 0
    assert shell("ledger", "export", "old.db", "--output", "account.json").code == 0
    return folder


def prepare(world, folder, code):
    """Copy the files that a block reads, in the form that its commands expect."""
    text = " ".join(commands(code))
    written = set(re.findall(r"(?:-o|--output|--report|>|keys trust)\s+([\w.-]+)", text))
    for path in world.iterdir():
        if path.name in text and path.name not in written - {"patients.toml"}:
            shutil.copy(path, folder / path.name)
    if "my_models" in text:
        shutil.copy(world / "my_models.py", folder)
    if "patients.toml" in text:  # tables of visits under the names of other tables
        rows = pd.read_csv(world / "patients.csv")
        for name in ("new", "train", "rest"):
            rows.to_csv(folder / f"{name}.csv", index=False)
    if "hospital.toml" in text:
        schema = VISITS_SCHEMA.to_toml()
        (folder / "hospital.toml").write_text(schema)
        shutil.copy(world / "patients.csv", folder / "hospital.csv")
    if "--id id" in text:
        for name in ("data.csv", "new.csv"):
            rows = pd.read_csv(world / name).assign(id=[f"p{i}" for i in range(120)])
            rows.to_csv(folder / name, index=False)
    if "--label ill" in text:
        pd.read_csv(world / "data.csv").rename(columns={"y": "ill"}).to_csv(
            folder / "patients.csv", index=False
        )


def run(shell, command, world):
    """Run one line as a shell would: variables in front, output into a file behind."""
    line, _, target = command.partition(" > ")
    words = shlex.split(line)
    variables = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    assert words.pop(0) == "permea"
    if words[0] in ("audit", "report"):
        words += ["--releases", "0"]  # of the mechanism, which take minutes
    own = "my_models" in command  # a family of the reader's own is registered in a process
    done = shell.process(*words, environment=variables) if own else shell(*words)
    if target:
        (shell.folder / target.strip()).write_text(done.out)
    if words[:2] == ["schema", "draft"]:  # the reader fills in what the draft leaves open
        shutil.copy(world / "patients.toml", shell.folder / words[words.index("-o") + 1])
    return done


@pytest.mark.parametrize(("language", "code"), blocks())
def test_blocks_do_what_they_say(language, code, world, tmp_path):
    if language == "toml":
        values = tomllib.loads(code)
        assert values
        if "columns" in values:
            assert Schema.from_toml(code).features
        return
    prepare(world, tmp_path, code)
    shell = Shell(tmp_path)
    for command in commands(code):
        where = next((ELSEWHERE[one] for one in ELSEWHERE if command.startswith(one)), None)
        if where is not None:
            assert where == "itself" or (ROOT / where).exists()
            if command.startswith(("permea", "make", "python")) and " -m venv " not in command:
                assert wrong(command, ROOT / "README.md") == ""
            continue
        done = run(shell, command, world)
        assert done.code == 0, f"{command}: {done.err}"


def test_a_wrong_command_is_noticed(world, tmp_path):
    shutil.copy(world / "data.csv", tmp_path / "data.csv")
    assert run(Shell(tmp_path), "permea train data.csv --label y -o m.permea", world).code != 0
    assert wrong("permea train data.csv --epsilonn 8", ROOT / "README.md")

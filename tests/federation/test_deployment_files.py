"""The units, the image and the compose file name what exists, and systemd accepts the units."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from permea.cli.app import all_commands

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMMANDS = {one.name: one for one in all_commands()}


def check_command(words):
    """A command of the command line, with options that it has."""
    command = COMMANDS[words[0]]
    known = {f"--{one.name.replace('_', '-')}" for one in command.parameters}
    assert {word for word in words[1:] if word.startswith("--")} <= known


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_systemd_accepts_the_units(unit, tmp_path):
    text = unit.read_text()
    (start,) = re.findall(r"^ExecStart=/opt/permea/bin/permea (.*)$", text, re.MULTILINE)
    check_command(start.split())
    for line in ("Restart=always", "UMask=0077", "StateDirectoryMode=0700", "User=permea"):
        assert line in text
    if shutil.which("systemd-analyze") is None:
        return
    name = unit.name.replace("@.", "@clinic-a.")
    here = text.replace("/opt/permea/bin/permea", shutil.which("true"))
    (tmp_path / name).write_text(re.sub(r"^(User|Group)=permea$", r"\1=root", here, flags=re.M))
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / name], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_the_compose_file_runs_commands_that_exist():
    values = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = values["services"]
    assert set(services) == {"aggregator", "serve", "party", "ledger"}
    for name in ("aggregator", "serve", "party"):
        check_command(services[name]["command"])
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["read_only"]
    used = {s for one in services.values() for s in one.get("secrets", [])}
    assert used == set(values["secrets"])


def test_the_image_installs_extras_that_exist():
    text = (DEPLOY / "Containerfile").read_text()
    (extras,) = re.findall(r"\.\[([\w,]+)\]", text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    for word in re.findall(r"^COPY (?!--)(.*) \./?\w*$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in word.split())
    assert "USER 10001" in text

"""The way of a newcomer: clone, ``make demo``, an own table; only commands of the README.

Needs the package index; prints what it took. Times are those of the processor, so that other work
on the machine does not count.
"""

import json
import os
import re
import resource
import shutil
import subprocess
import time
from pathlib import Path
from urllib.parse import unquote, urlparse
from urllib.request import Request, urlopen

import pandas as pd
import pytest

from permea.datasets import VISITS_SCHEMA, make_visits

ROOT = Path(__file__).resolve().parents[2]
MOST_SECONDS, MOST_BYTES = 60, 1.2e9


def commands():
    """Commands of the README in their order, without comments."""
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [re.sub(r"\s+#.*$", "", line.removeprefix("$ ")) for line in lines]


def download(shell):
    """How many bytes the set-up downloads: sizes of the files that pip chooses for the lock."""
    report = shell.folder / "pip.json"
    shell(
        ".venv/bin/python -m pip install --dry-run --ignore-installed --no-deps --quiet "
        f"--report {report} -r requirements.lock"
    )
    total = 0
    for one in json.loads(report.read_text())["install"]:
        address = one["download_info"]["url"]
        if address.startswith("file:"):
            total += Path(unquote(urlparse(address).path)).stat().st_size
        else:
            with urlopen(Request(address, method="HEAD"), timeout=60) as reply:
                total += int(reply.headers["content-length"])
    return total


@pytest.fixture
def shell(tmp_path):
    """A clone, and a way to type commands in it with a bare PATH."""
    subprocess.run(["git", "clone", "-q", ROOT, tmp_path / "permea"], check=True, timeout=60)
    environment = {
        "HOME": str(tmp_path), "LANG": "C.UTF-8",
        "PATH": f"{tmp_path}/permea/.venv/bin:{Path(shutil.which('python3')).parent}:/usr/bin:/bin",
        **{name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "UV_"))},
    }  # fmt: skip

    def typed(command):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(
            command, shell=True, cwd=tmp_path / "permea", env=environment, text=True,
            capture_output=True, check=False, timeout=1500,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{command}: {used:.0f} s of the processor, {time.monotonic() - start:.0f} s")
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout, used

    typed.folder = tmp_path / "permea"
    return typed


def test_the_readme_has_the_commands_of_the_way():
    words = [command.split()[:2] for command in commands()]
    assert words[:2] == [["make", "demo"], ["make", "test"]]
    assert ["permea", "schema"] in words
    assert ["permea", "train"] in words
    assert ["permea", "report"] in words


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_way_of_a_newcomer(shell):
    first, *rest = [command for command in commands() if command != "make test"]
    told, _ = shell(first)
    downloaded = download(shell)
    print(f"downloaded {downloaded / 1e6:.0f} MB")
    assert 0 < downloaded < MOST_BYTES
    told, seconds = shell(first)  # after the set-up
    assert seconds < MOST_SECONDS
    next_ones = [line.strip() for line in told.partition("next:")[2].splitlines() if line.strip()]
    assert len(next_ones) == 3
    for command in next_ones[:2]:
        shell(command)
    rows = pd.DataFrame(make_visits(1500, seed=7)).drop(columns="hospital")
    new = pd.DataFrame(make_visits(300, seed=8)).drop(columns="hospital")
    rows.to_csv(shell.folder / "patients.csv", index=False)
    new.to_csv(shell.folder / "new.csv", index=False)
    for command in rest:
        shell(command)
        if command.startswith("permea schema draft"):
            draft = (shell.folder / "patients.toml").read_text()
            assert '"?"' in draft
            VISITS_SCHEMA.save(shell.folder / "patients.toml")  # what its reader fills in
    assert "What is promised, and to whom?" in (shell.folder / "report.html").read_text()
    assert "Residual risk" in (shell.folder / "dpia.html").read_text()

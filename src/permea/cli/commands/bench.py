"""``permea bench``: the seeds' tables and the speed figures, from a checkout of the project."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

import permea
from permea.cli.app import START, command
from permea.cli.console import Console
from permea.cli.errors import CommandError, ExitCode


@command("bench", panel=START, examples=["permea bench list", "permea bench run family_speed"])
def bench(
    console: Console,
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Passed on: list, run NAME, report.")
    ] = None,
) -> None:
    """Run benchmarks of the project, which come with its checkout and not with the package.

    Without arguments the benchmarks are listed.
    """
    root = Path(permea.__file__).resolve().parents[2]
    if not (root / "benchmarks" / "__main__.py").is_file():
        raise CommandError(
            "The benchmarks are not part of the installed package. Run this command from a "
            "checkout of the project (pip install -e .).",
            ExitCode.UNAVAILABLE,
        )
    environment = {**os.environ, "PYTHONPATH": str(root)}
    words = [sys.executable, "-m", "benchmarks", *(arguments or ["list"])]
    code = subprocess.run(words, cwd=root, env=environment, check=False).returncode
    if code:
        raise CommandError(
            f"The benchmark ended with code {code}; its own message stands above.",
            ExitCode.UNEXPECTED,
        )

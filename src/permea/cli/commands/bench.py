"""``permea bench``: the benchmarks, from a checkout of the project."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import permea
from permea.cli.app import START, command
from permea.cli.console import CommandError, Console, UnavailableError


@command("bench", panel=START)
def bench(
    console: Console,
    arguments: Annotated[
        list[str] | None, Argument(help="list, run NAME (-- options of its own), report.")
    ] = None,
    quick: Annotated[
        bool, Option("--quick", help="A small run to see that it works; nothing is kept.")
    ] = False,
    repeat: Annotated[int, Option(min=1, metavar="K", help="Seeds 0 to K-1; keeps mean ± sd.")] = 1,
) -> None:
    """Run benchmarks of the project, which come with its checkout and not with the package.

    Without arguments the benchmarks are listed.

    Example:
        permea bench list
        permea bench run family_speed --quick
        permea bench report
    """
    root = Path(permea.__file__).resolve().parents[2]
    if not (root / "benchmarks" / "__main__.py").is_file():
        raise UnavailableError(
            "The benchmarks are not part of the installed package. Run this command from a "
            "checkout of the project (pip install -e .)."
        )
    environment = {**os.environ, "PYTHONPATH": str(root)}
    options = [*(["--quick"] if quick else []), "--repeat", str(repeat)]
    words = [sys.executable, "-m", "benchmarks", *options, *_split(arguments or ["list"])]
    code = subprocess.run(words, cwd=root, env=environment, check=False).returncode
    if code:
        raise CommandError(f"The benchmark ended with code {code}; its own message is above.")


def _split(words: list[str]) -> list[str]:
    """``run NAME --option`` with the ``--`` back that the shell's parser took away."""
    first = next((i for i, word in enumerate(words) if word.startswith("-")), None)
    return words if first is None else [*words[:first], "--", *words[first:]]

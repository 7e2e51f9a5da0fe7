"""The commands themselves: documented, found by being there, and the demo."""

import re
from pathlib import Path

import pytest

from permea.cli.app import all_commands
from permea.cli.console import ExitCode

COMMANDS = {one.name: one for one in all_commands()}
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "command-line.md"


def test_the_commands_are_there():
    wanted = {"demo", "train", "predict", "fabricate", "audit", "federate", "party", "report",
              "bench", "source", "transfer", "leakage", "study", "keys create", "keys public",
              "keys trust", "keys list", "keys verify", "show"}  # fmt: skip
    assert wanted <= set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_and_an_example_that_parses(trained, name):
    done = trained(*name.split(), "--help")
    assert done.code == 0
    assert "Example:" in COMMANDS[name].help
    examples = COMMANDS[name].help.partition("Example:\n")[2].splitlines()
    assert examples
    for example in map(str.strip, examples):
        assert example.startswith(f"permea {name}")
        for option in re.findall(r"(?<=\s)--?[a-z-]+", example):
            assert option in done.out, option


def test_exit_codes_are_documented():
    listed = re.findall(r"^\| ([\d, ]+) \|", PAGE.read_text(), re.MULTILINE)
    assert {int(code) for entry in listed for code in entry.split(",")} == {*map(int, ExitCode)}


def test_options_on_the_page_exist():
    options = {option for one in COMMANDS.values() for option in _options(one)}
    for option in set(re.findall(r"`(--[a-z-]+)", PAGE.read_text())):
        assert option in options | {"--help", "--install-completion"}, option


def _options(one):
    found = set()
    for parameter in one.parameters:
        found.add("--" + parameter.name.replace("_", "-"))
        for extra in getattr(parameter.annotation, "__metadata__", ()):
            found |= set(getattr(extra, "param_decls", None) or ())
            found.add(getattr(extra, "default", None))
    return {option for option in found if isinstance(option, str)}

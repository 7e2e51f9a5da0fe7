"""Write docs/commands.md from the commands themselves. Every build of the site does it.

python scripts/command_reference.py
"""

from pathlib import Path
from typing import Any

import typer

from permea.cli.app import PANELS, all_commands, build

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
HEAD = (
    "# Commands\n\n"
    "All commands and options, written from the code by `scripts/command_reference.py`. The guide\n"
    "[command line](howto/command-line.md) says how they work together, and lists the exit codes.\n"
    "Every command also takes `--json` (print the result as JSON), `--quiet` (print data and\n"
    "errors only), `--debug` (show the traceback of an error) and `--help`. Documents 000 to 004\n"
    "are listed under [references](references.md).\n"
)
COMMON = {"json", "quiet", "debug", "help"}


def drawn() -> str:
    """The whole page."""
    root = typer.main.get_command(build())
    parts = [HEAD]
    for panel in PANELS:
        parts.append(f"\n## {panel}\n")
        for one in all_commands():
            if one.panel == panel:
                parts.append(_section(one.name, _click(root, one.name.split()), one.help))
    return "".join(parts)


def _click(command: Any, words: list[str]) -> Any:
    for word in words:
        command = command.commands[word]
    return command


def _section(name: str, command: Any, text: str) -> str:
    told, _, examples = text.partition("\b\n")
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name not in COMMON]
    usage = " ".join(["permea", name, *map(_metavar, arguments)])
    lines = [f"\n### permea {name}\n", told.strip(), "", "```text", f"{usage} [options]", "```", ""]
    rows = [(_metavar(p), p) for p in arguments] + [(_names(p), p) for p in options]
    if rows:
        lines += ["| | | default |", "|---|---|---|"]
        lines += [f"| {head} | {_cell(p.help or '')} | {_default(p)} |" for head, p in rows]
        lines.append("")
    shown = [line.strip() for line in examples.splitlines() if line.strip() not in ("", "Example:")]
    lines += ["```text", *(f"$ {line}" for line in shown), "```", ""]
    return "\n".join(lines)


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _names(parameter: Any) -> str:
    """Names of an option, with what it takes."""
    names = " ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    if parameter.is_flag:
        return names
    choices = getattr(parameter.type, "choices", None)
    if choices:
        return f"{names} {', '.join(str(getattr(one, 'value', one)) for one in choices)}"
    return f"{names} {str(parameter.type.name).strip('<>').replace(' RANGE', '')}"


def _default(parameter: Any) -> str:
    value = parameter.default
    if getattr(parameter, "required", False):
        return "needed"
    if value is None or value is False or callable(value) or value in ((), []):
        return ""
    return f"`{getattr(value, 'value', value)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(drawn())

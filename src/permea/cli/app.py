"""Builds the application from its commands, and turns every failure into one line."""

import importlib
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer
import typer.core
from typer import Option

from permea._text import safe_text
from permea._version import __version__
from permea.cli import commands
from permea.cli.console import CommandError, Console, ExitCode, one_line
from permea.cli.models import import_own_families
from permea.privacy import BudgetExceededError
from permea.storage import StorageError

START, LEARN, CHECK, TOGETHER = "Start", "Learn and release", "Measure and explain", "Together"
PANELS = (START, LEARN, CHECK, TOGETHER)
GROUPS = {  # help of the first word of commands such as "keys create"
    "keys": "Create keys that sign certificates, and list the keys that you trust.",
    "schema": "Declare the columns of a table: ranges, categories, label, person.",
    "ledger": "Show, verify and export the privacy that was spent on each data set.",
    "serve token": "Create, list and revoke the tokens of those who ask a service.",
}
# What the parser raises. Older versions of typer take the class from the package click, newer ones
# bring their own copy of it; this gives the right one in both.
_UsageError: Any = typer.BadParameter.__base__


JsonOption = Annotated[bool, Option("--json", help="Print the result as JSON.")]
QuietOption = Annotated[bool, Option("--quiet", "-q", help="Print data and errors only.")]
DebugOption = Annotated[bool, Option("--debug", help="Show the traceback of an error.")]
COMMON = {"json": JsonOption, "quiet": QuietOption, "debug": DebugOption}


@dataclass(frozen=True)
class Command:
    """One command: its name, what it does, and where the help lists it.

    The function takes a `Console` first. A parameter that is annotated with a dataclass stands for
    a group of options, one for each field (see `permea.cli.options`).
    """

    name: str
    function: Callable[..., None]
    panel: str

    @property
    def help(self) -> str:
        """The docstring; its last paragraph, the examples, keeps its lines."""
        *text, examples = inspect.getdoc(self.function).split("\n\n")  # type: ignore[union-attr]
        return "\n\n".join([*(" ".join(one.split()) for one in text), f"\b\n{examples}"])

    @property
    def groups(self) -> dict[str, Any]:
        """Parameters that stand for a group of options, with the dataclass of each."""
        own = inspect.signature(self.function, eval_str=True).parameters
        return {name: one.annotation for name, one in own.items() if is_dataclass(one.annotation)}

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Every argument and option of the command: its own, those of groups, the common ones."""
        found: list[inspect.Parameter] = []
        for one in list(inspect.signature(self.function, eval_str=True).parameters.values())[1:]:
            if not is_dataclass(one.annotation):
                found.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
                continue
            hints = get_type_hints(one.annotation, include_extras=True)
            found += [_option(f.name, hints[f.name], f.default) for f in fields(one.annotation)]
        return found + [_option(name, kind, False) for name, kind in COMMON.items()]

    def __call__(self, *, json: bool, quiet: bool, debug: bool, **values: Any) -> None:
        """Run the command with the values of its `parameters`."""
        for name, group in self.groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        console = Console(as_json=json, quiet=quiet)
        try:
            with console.warnings():
                self.function(console, **values)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise _ReaderGone from error
        except KeyboardInterrupt as error:  # typer would swallow the message
            raise _Interrupted from error


def _option(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def command(name: str, *, panel: str) -> Callable[[Callable[..., None]], Command]:
    """Make a function with a `Console` as first argument a command of the application.

    The last paragraph of its docstring begins with ``Example:`` and shows how it is used.
    """
    return lambda function: Command(name, function, panel)


def all_commands() -> list[Command]:
    """Every command in the modules of `permea.cli.commands`, panel by panel."""
    found: list[Command] = []
    for module in pkgutil.iter_modules(commands.__path__, commands.__name__ + "."):
        members = vars(importlib.import_module(module.name)).values()
        found += [member for member in members if isinstance(member, Command)]
    return sorted(found, key=lambda one: (PANELS.index(one.panel), one.name != "train", one.name))


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"permea {__version__}")
        raise typer.Exit


def build() -> typer.Typer:
    """The whole application."""
    app = typer.Typer(
        name="permea",
        help="Learn from data that may not leave its owner: private, federated, audited.",
        epilog="Exit codes: 0 done, 1 unexpected, 2 command line, 3 data, 4 model file, 5 output, "
        "6 refused for privacy, 7 audit or signature failed, 8 not installed, 130 interrupted.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        version: Annotated[
            bool, Option("--version", callback=_show_version, is_eager=True, help="Show version.")
        ] = False,
    ) -> None:
        pass

    commands_ = all_commands()
    alone = {one.name: one for one in commands_}
    groups: dict[str, typer.Typer] = {"": app}

    def place(path: str, panel: str) -> typer.Typer:
        """The group of some first words; a command of that name runs when no other word follows."""
        if path not in groups:
            own = alone.get(path)
            groups[path] = made = typer.Typer(cls=_Group, no_args_is_help=own is None)
            if own is not None:
                made.callback(invoke_without_command=True)(_typed(own, is_group=True))
            before, _, name = path.rpartition(" ")
            text = GROUPS[path] if own is None else own.help
            shown = None if before else panel
            place(before, panel).add_typer(made, name=name, help=text, rich_help_panel=shown)
        return groups[path]

    prefixes = {one.name.rpartition(" ")[0] for one in commands_}
    for one in commands_:
        group, _, name = one.name.rpartition(" ")
        if one.name in prefixes:
            place(one.name, one.panel)
            continue
        where = place(group, one.panel)
        register = where.command(name, help=one.help, rich_help_panel=None if group else one.panel)
        register(_typed(one))
    return app


class _Group(typer.core.TyperGroup):
    """A group whose own command may take arguments: a first word that names a command is no one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options, and the arguments where no command follows."""
        every = self.params
        own = [one for one in every if one.param_type_name == "argument"]
        if own and args and args[0] in self.commands:
            self.params = [one for one in every if one not in own]
        elif own:
            ctx.allow_interspersed_args = True  # options may follow arguments
        try:
            return list(super().parse_args(ctx, args))
        finally:
            self.params = every


def _typed(one: Command, *, is_group: bool = False) -> Callable[..., None]:
    """A function that runs a command, with the signature from which typer makes its options.

    That of a group does nothing when the name of a further command follows.
    """

    def call(ctx: typer.Context, **values: Any) -> None:
        if not is_group or ctx.invoked_subcommand is None:
            one(**values)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    context = inspect.Parameter("ctx", kind, annotation=typer.Context)
    parameters = [context, *one.parameters]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are one line on standard error."""
    try:
        import_own_families()
        result = build()(args=list(arguments), prog_name="permea", standalone_mode=False)
        sys.stdout.flush()
        return int(result or 0)
    except _ReaderGone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.DONE)
    except (Exception, KeyboardInterrupt, _Interrupted, _Terminated) as error:
        if "--debug" in arguments:
            print(safe_text(traceback.format_exc(), lines=True), file=sys.stderr, end="")
        message, code = _explain(error)
        if message:
            print(f"permea: error: {message}", file=sys.stderr)
        return int(code)


class _Interrupted(BaseException):
    """The user stopped the command."""


class _Terminated(BaseException):
    """The system stopped the process."""


class _ReaderGone(Exception):
    """The reader of standard output closed the pipe, which is no error."""


def stop(number: int, frame: Any) -> None:
    """Handle SIGTERM: unwind the stack, so that temporary files are removed."""
    raise _Terminated


_EXIT_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (BudgetExceededError, ExitCode.REFUSED),
    (StorageError, ExitCode.MODEL),
    (ImportError, ExitCode.UNAVAILABLE),
    (ValueError, ExitCode.INPUT),
    (TypeError, ExitCode.INPUT),
)


def _explain(error: BaseException) -> tuple[str, int]:
    """One line and an exit code for any exception."""
    if isinstance(error, CommandError):
        return str(error), error.code
    if isinstance(error, typer.Exit):
        return "", error.exit_code
    if isinstance(error, _UsageError):
        return _usage(error), ExitCode.USAGE
    if isinstance(error, _Terminated):
        return "Stopped by the system. Nothing was written.", ExitCode.TERMINATED
    if isinstance(error, _Interrupted | KeyboardInterrupt | typer.Abort):
        return "Interrupted. Nothing was written.", ExitCode.INTERRUPTED
    if isinstance(error, MemoryError):
        return "Not enough memory. Use fewer rows or smaller branches.", ExitCode.UNEXPECTED
    for kind, code in _EXIT_CODES:
        if isinstance(error, kind):
            return one_line(error), code
    text = one_line(error) or type(error).__name__
    return f"{type(error).__name__}: {text}. Run again with --debug to see where.", 1


def _usage(error: Any) -> str:
    """What the parser did not understand; nothing when it printed the help instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "permea"
    text = one_line(error.format_message()).rstrip(".")
    return f"{text}{'' if text.endswith('?') else '.'} See {path} --help."

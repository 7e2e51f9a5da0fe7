"""Builds the command line out of its commands and turns every failure into one line."""

import contextlib
import importlib
import inspect
import os
import pkgutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from permea._text import safe_text
from permea._version import __version__
from permea.cli import commands
from permea.cli.console import CommandError, Console, ExitCode, one_line

START, LEARN, CHECK, TOGETHER = "Start", "Learn and release", "Measure and explain", "Together"
PANELS = (START, LEARN, CHECK, TOGETHER)
GROUPS = {  # commands of two words, such as "keys create", and what the first word is about
    "keys": "Make keys that sign certificates, and list the keys that you trust.",
    "ledger": "Show, check and export what was spent of a data set's privacy.",
}
# What the parser raises. Older versions of typer take the class from the package click, newer ones
# bring their own copy of it: asking typer gives the right one in both.
_UsageError: Any = typer.BadParameter.__base__


@dataclass(frozen=True)
class Command:
    """One command: what it is called, what it does, and how people type it."""

    name: str
    function: Callable[..., None]
    panel: str
    examples: tuple[str, ...]

    @property
    def help(self) -> str:
        """The docstring's text and the examples."""
        paragraphs = inspect.cleandoc(self.function.__doc__ or "").split("\n\n")
        text = "\n\n".join(" ".join(one.split()) for one in paragraphs)
        lines = "\n".join(f"  {example}" for example in self.examples)
        return f"{text}\n\n\b\nExample:\n{lines}"


def command(
    name: str, *, panel: str, examples: Sequence[str]
) -> Callable[[Callable[..., None]], Command]:
    """Make a function with a `Console` as first argument a command of the application."""

    def decorate(function: Callable[..., None]) -> Command:
        return Command(name, function, panel, tuple(examples))

    return decorate


def all_commands() -> list[Command]:
    """Every command that stands in `permea.cli.commands`, panel by panel."""
    found: list[Command] = []
    for module in pkgutil.iter_modules(commands.__path__, commands.__name__ + "."):
        members = vars(importlib.import_module(module.name)).values()
        found += [member for member in members if isinstance(member, Command)]
    return sorted(found, key=lambda one: (PANELS.index(one.panel), one.name != "train", one.name))


JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print data and errors only.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def _with_common_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``--json``, ``--quiet`` and ``--debug`` to a command's own options."""

    def call(json: bool, quiet: bool, debug: bool, **values: Any) -> None:
        try:
            function(Console(as_json=json, quiet=quiet), **values)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise _ReaderGone from error
        except KeyboardInterrupt as error:  # the frameworks below would swallow the message
            raise _Interrupted from error

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in (("json", JsonOption), ("quiet", QuietOption), ("debug", DebugOption))
    ]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + common
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    return call


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
            bool,
            typer.Option("--version", callback=_show_version, is_eager=True, help="Show version."),
        ] = False,
    ) -> None:
        pass

    groups: dict[str, typer.Typer] = {}
    for one in all_commands():
        group, _, name = one.name.rpartition(" ")
        if group and group not in groups:
            groups[group] = typer.Typer(no_args_is_help=True)
            app.add_typer(groups[group], name=group, help=GROUPS[group], rich_help_panel=one.panel)
        place = groups[group] if group else app
        register = place.command(name, help=one.help, rich_help_panel=None if group else one.panel)
        register(_with_common_options(one.function))
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code; errors are one line on standard error."""
    debug = "--debug" in arguments
    try:
        with _termination_interrupts():
            result = build()(args=list(arguments), prog_name="permea", standalone_mode=False)
            sys.stdout.flush()
        return int(result or 0)
    except _ReaderGone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.DONE)
    except (Exception, KeyboardInterrupt, _Interrupted, _Terminated) as error:
        if debug:
            print(safe_text(traceback.format_exc(), lines=True), file=sys.stderr, end="")
        message, code = _explain(error)
        if message:
            print(f"permea: error: {message}", file=sys.stderr)
        return int(code)


class _Interrupted(BaseException):
    """The user asked the command to end."""


class _Terminated(BaseException):
    """The system asked the process to end."""


class _ReaderGone(Exception):
    """The reader of a pipe has seen enough; that is no failure of ours."""


@contextlib.contextmanager
def _termination_interrupts() -> Iterator[None]:
    """Let a request to end unwind the stack, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _explain(error: BaseException) -> tuple[str, int]:
    """One line and an exit code for whatever was raised."""
    from permea.privacy import BudgetExceededError
    from permea.storage import StorageError

    known: list[tuple[type[BaseException], ExitCode]] = [
        (BudgetExceededError, ExitCode.REFUSED),
        (StorageError, ExitCode.MODEL),
        (ImportError, ExitCode.UNAVAILABLE),
        (ValueError, ExitCode.INPUT),
        (TypeError, ExitCode.INPUT),
    ]
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
    for kind, code in known:
        if isinstance(error, kind):
            return one_line(error), code
    text = one_line(error) or type(error).__name__
    return f"{type(error).__name__}: {text}. Run again with --debug to see where.", 1


def _usage(error: Any) -> str:
    """Say what the parser did not understand; nothing when it has shown the help instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "permea"
    text = one_line(error.format_message()).rstrip(".")
    return f"{text}{'' if text.endswith('?') else '.'} See {path} --help."

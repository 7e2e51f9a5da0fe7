"""What every command uses to print results, and how it fails: one line and an exit code."""

import math
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from permea._text import safe_json, safe_text


class ExitCode(IntEnum):
    """Exit codes of every ``permea`` command."""

    DONE = 0  #: the command succeeded
    UNEXPECTED = 1  #: a defect, or not enough memory; ``--debug`` shows where
    USAGE = 2  #: the command line itself is wrong: option, ε, δ, unit, domain
    INPUT = 3  #: a data file is missing, unreadable, or not what was declared
    MODEL = 4  #: a model file is missing, damaged, foreign, or of another version
    OUTPUT = 5  #: the result cannot be written; an existing file is unchanged
    REFUSED = 6  #: refused for privacy: private rows, or the budget is spent
    AUDIT = 7  #: an audit found more than allowed, a refuted claim, or no trusted signature
    UNAVAILABLE = 8  #: an optional part is not installed
    INTERRUPTED = 130  #: stopped by the user; no incomplete file is left
    TERMINATED = 143  #: stopped by the system; no incomplete file is left


class CommandError(Exception):
    """A failure that the user can do something about.

    Each kind of failure is a subclass with the exit code of the process.

    Parameters
    ----------
    message : str or exception
        What was wrong, what was expected, what to do. Never a private value.
    """

    code = ExitCode.UNEXPECTED

    def __init__(self, message: object) -> None:
        super().__init__(one_line(message))


class UsageError(CommandError):
    """The command line itself is wrong."""

    code = ExitCode.USAGE


class InputError(CommandError):
    """A data file cannot be used."""

    code = ExitCode.INPUT


class ModelError(CommandError):
    """A model file cannot be used."""

    code = ExitCode.MODEL


class OutputError(CommandError):
    """The result cannot be written."""

    code = ExitCode.OUTPUT


class RefusedError(CommandError):
    """Refused for privacy."""

    code = ExitCode.REFUSED


class AuditError(CommandError):
    """An audit or a signature failed."""

    code = ExitCode.AUDIT


class UnavailableError(CommandError):
    """An optional part is not installed."""

    code = ExitCode.UNAVAILABLE


def one_line(message: object) -> str:
    r"""Fold a message into one line without control characters.

    Examples
    --------
    >>> one_line("first\n  second")
    'first second'
    """
    return safe_text(" ".join(str(message).split()))


class Console:
    """Prints for a person, or with ``--json`` for a program.

    Names may come from untrusted files, so control characters are printed as visible escapes.

    Parameters
    ----------
    as_json : bool
        Print the result as one JSON object.
    quiet : bool
        Print nothing but data, JSON and errors, and draw no progress bar.
    """

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.warned: list[str] = []
        if quiet:
            os.environ["PERMEA_PROGRESS"] = "0"

    def say(self, text: str) -> None:
        """Print a progress message for a person."""
        if not self.quiet and not self.as_json:
            print(safe_text(text, lines=True), file=sys.stderr, flush=True)

    def warn(self, text: object) -> None:
        """Print a warning for a person, once; ``result`` repeats it for a program."""
        line = one_line(text)
        if line not in self.warned:
            self.warned.append(line)
            self.say(f"warning: {line}")

    @contextmanager
    def warnings(self) -> Iterator[None]:
        """Print warnings of the library as lines of this command."""
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *place, **more: self.warn(message)
            yield

    def result(self, text: str, values: dict[str, Any], *, stdout_taken: bool = False) -> None:
        """Print the result: ``values`` for a program, ``text`` for a person.

        When standard output already carries data, the text goes to standard error.
        """
        if self.as_json:
            warned = {"warnings": self.warned} if self.warned else {}
            print(safe_json(plain(values | warned)))
        elif not self.quiet:
            shown = safe_text(text, lines=True)
            print(shown, file=sys.stderr if stdout_taken else sys.stdout)


def json_file(values: dict[str, Any]) -> bytes:
    """The content of a JSON file with these values."""
    return f"{safe_json(plain(values), indent=2)}\n".encode()


def plain(value: Any) -> Any:
    """Convert to values that JSON can represent; infinities become text.

    Examples
    --------
    >>> plain({"a": (1, float("inf"))})
    {'a': [1, 'infinite']}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("infinite" if value > 0 else "-infinite")
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    return str(value)

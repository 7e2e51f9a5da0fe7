"""How a command fails: one readable line and an exit code that means something."""

import math
import os
import sys
from enum import IntEnum
from typing import Any

from permea._text import safe_json, safe_text


class ExitCode(IntEnum):
    """Exit codes of every ``permea`` command."""

    DONE = 0  #: the command did what was asked
    UNEXPECTED = 1  #: a defect, or no memory; ``--debug`` shows where
    USAGE = 2  #: the command line itself is wrong: option, ε, δ, unit, domain
    INPUT = 3  #: a data file is missing, unreadable, or not what was declared
    MODEL = 4  #: a model file is missing, damaged, foreign, or of another version
    OUTPUT = 5  #: the result cannot be written; what was there before is untouched
    REFUSED = 6  #: private rows or a spent budget are in the way
    AUDIT = 7  #: an audit found more than is allowed, a refuted claim, or no trusted signature
    UNAVAILABLE = 8  #: this installation has no such part
    INTERRUPTED = 130  #: stopped by the user; nothing is left half-written
    TERMINATED = 143  #: stopped by the system; nothing is left half-written


class CommandError(Exception):
    """A failure that the user can do something about.

    Parameters
    ----------
    message : str
        What was wrong, what was expected, what to do. Never a private value.
    code : ExitCode
        The kind of failure.
    """

    def __init__(self, message: str, code: ExitCode) -> None:
        super().__init__(one_line(message))
        self.code = code


def one_line(message: object) -> str:
    r"""Fold a message into one line without control characters.

    Examples
    --------
    >>> one_line("first\n  second")
    'first second'
    """
    return safe_text(" ".join(str(message).split()))


class Console:
    """Speaks to a person, or with ``--json`` to a program, or with ``--quiet`` to nobody.

    Names may come from files of strangers, so control characters are printed as visible escapes.

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
        if quiet:
            os.environ["PERMEA_PROGRESS"] = "0"

    def say(self, text: str) -> None:
        """Tell a person what is going on."""
        if not self.quiet and not self.as_json:
            print(safe_text(text, lines=True), file=sys.stderr, flush=True)

    def result(self, text: str, values: dict[str, Any], *, stdout_taken: bool = False) -> None:
        """Give the result: ``values`` to a program, ``text`` to a person.

        When standard output carries data already, a person reads the text on standard error.
        """
        if self.as_json:
            print(safe_json(plain(values)))
        elif not self.quiet:
            shown = safe_text(text, lines=True)
            print(shown, file=sys.stderr if stdout_taken else sys.stdout)


def plain(value: Any) -> Any:
    """Values that JSON knows; infinities become words.

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

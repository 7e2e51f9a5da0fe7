"""How a command fails: one readable line and an exit code that means something."""

from enum import IntEnum

from permea._text import safe_text


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

"""What a command prints: results on standard output, everything else on standard error."""

import math
import os
import sys
from typing import Any

from permea._text import safe_json, safe_text


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

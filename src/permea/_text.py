"""Text from files, tables and other parties, made harmless before it is printed or written.

A class name or a column name may come from anybody. On a terminal a control character can move the
cursor and repaint what was printed before; in a spreadsheet a cell that begins with ``=`` is run as
a formula.
"""

import json
import re
from typing import Any

# C0 and C1 control characters, DEL, marks that change the direction of text, the two separators
# that end a line, characters of no width that hide a difference, and halves of surrogate pairs.
_DANGEROUS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff"
    "\ufff9-\ufffb\ud800-\udfff]"
)
_FORMULA = tuple("=+-@＝＋－＠")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def safe_text(value: object, *, lines: bool = False) -> str:
    r"""Write control characters as visible escapes.

    Parameters
    ----------
    value : object
        What to print; its ``str`` is taken.
    lines : bool, default=False
        Whether ends of lines are meant and stay as they are.

    Returns
    -------
    str
        The text without any character that a terminal or a browser obeys.

    Examples
    --------
    >>> print(safe_text("\x1b[2Jall is well"))
    \x1b[2Jall is well
    """
    text = str(value)
    if lines:
        return "\n".join(_DANGEROUS.sub(_escape, line) for line in text.split("\n"))
    return _DANGEROUS.sub(_escape, text)


def safe_cell(text: str) -> str:
    r"""Make text harmless as a cell of a table that a spreadsheet may open.

    Control characters become visible escapes. An apostrophe is put before text that begins with
    ``=``, ``+``, ``-`` or ``@``, unless all of it is a number.

    Examples
    --------
    >>> safe_cell("=1+1"), safe_cell("-1.5"), safe_cell("well")
    ("'=1+1", '-1.5', 'well')
    """
    text = safe_text(text)
    if text.lstrip().startswith(_FORMULA) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def safe_json(values: Any, **options: Any) -> str:
    r"""Write JSON that reads back unchanged and holds no character that a terminal obeys.

    Takes the keywords of :func:`json.dumps`; NaN and infinity raise ValueError unless allowed.

    Examples
    --------
    >>> print(safe_json({"name": "\x9b2J", "ε": 1}))
    {"name": "\u009b2J", "ε": 1}
    """
    text = json.dumps(values, **{"ensure_ascii": False, "allow_nan": False, **options})
    return "\n".join(_DANGEROUS.sub(_escape_json, line) for line in text.split("\n"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _escape_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"

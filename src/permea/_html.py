"""Small pieces of HTML for notebooks. Everything that is shown is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from permea._text import safe_text

_COLOURS = {"good": "#116329", "weak": "#6f4400", "bad": "#8a1c12"}


def text(value: object) -> str:
    """A value as HTML text, without characters that a browser obeys.

    Examples
    --------
    >>> text("<b>")
    '&lt;b&gt;'
    """
    return escape(safe_text(value))


def verdict(words: object, kind: str) -> str:
    """A line that stands out; ``kind`` is "good", "weak" or "bad"."""
    return (
        f'<p style="border-left:4px solid {_COLOURS[kind]};padding-left:.6em;margin:.4em 0">'
        f"<strong>{text(words)}</strong></p>"
    )


def definitions(pairs: Iterable[tuple[object, object]], *, title: str = "") -> str:
    """Headings and texts as a table of two columns; folded under ``title`` if there is one."""
    rows = "".join(
        f'<tr><th style="text-align:left;vertical-align:top">{text(name)}</th>'
        f'<td style="text-align:left">{text(value)}</td></tr>'
        for name, value in pairs
    )
    return _folded(f"<table>{rows}</table>", title, open=False)


def table(
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    title: str = "",
    open: bool = True,
) -> str:
    """A table with a heading for each column.

    Examples
    --------
    >>> table(["a"], [["<1>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;1&gt;</td></tr></tbody></table>'
    """
    heads = "".join(f"<th>{text(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{text(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    made = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return made if open and not title else _folded(made, title or "all of it", open=open)


def _folded(made: str, title: str, *, open: bool) -> str:
    if not title:
        return made
    return f"<details{' open' if open else ''}><summary>{text(title)}</summary>{made}</details>"

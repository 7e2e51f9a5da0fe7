"""Renders a report as one HTML file that needs no network, with the templates beside this file."""

import base64
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from permea._arrays import Array
from permea._files import write_atomically
from permea._text import safe_json, safe_text
from permea._version import __version__
from permea.report.assessment import answers, assess
from permea.report.chances import best_guess, odds
from permea.report.content import Report
from permea.report.svg import Layout, number
from permea.report.words import LANGUAGES, Words

if TYPE_CHECKING:
    from jinja2 import Environment

HOW_TO_VERIFY = (
    "No trusted key has signed this certificate, so nothing shows who wrote it or that it belongs "
    "to this model. The owner signs with --sign KEY; the reader lists the public key in a file and "
    "passes it with --trusted."
)
LITTLE_PROTECTION = 3.0  #: from this ε on, the best guess is right in 95 % of cases
NO_PROTECTION = 10.0  #: from this ε on, the best guess is practically certain


def write_html(report: Report, path: str | Path) -> Path:
    """Write the report to one file.

    Parameters
    ----------
    report : Report
        What to show.
    path : path
        Where; it appears only when it is complete. A symbolic link there is replaced, not followed.

    Returns
    -------
    pathlib.Path
        The file.
    """
    return write_atomically(path, render(report).encode("utf-8"))


def render(report: Report) -> str:
    """The report as HTML.

    Raises
    ------
    ImportError
        When Jinja2 is not installed.

    Examples
    --------
    >>> "NOT PRIVATE" in render(Report(title="A model without privacy"))
    True
    """
    sections = {
        "promise": ("What is promised", True),
        "alternatives": ("Beside other ways on the same rows", report.alternatives),
        "attacks": ("What attacks achieve", report.attacks),
        "quality": ("How near the synthetic table is to the release", report.quality),
        "comparison": ("Beside the real table", report.comparison),
        "risks": ("What the synthetic table tells about people", report.risks),
        "utility": ("Privacy against usefulness", report.charts_of("utility")),
        "accuracy": ("Accuracy", report.accuracy and report.accuracy.per_class),
        "effects": ("What each column contributes", report.effects),
        "samples": ("Rows before and after", report.samples),
        "distances": ("Training rows and others", report.charts_of("distances")),
        "measures": (
            "Leakage, interpretability, transferability",
            report.measures or report.charts_of(""),
        ),
        "assessment": ("For a data protection impact assessment", report.certificates),
        "reproduce": ("How to reproduce", report.reproduce),
    }
    shown = {key: title for key, (title, content) in sections.items() if content}
    return (
        _environment()
        .get_template("report.html")
        .render(
            report=report,
            sections=shown,
            answers=answers(report, Words("en")),
            assessments=[assess(report, language) for language in LANGUAGES],
        )
    )


def render_assessment(report: Report, language: str = "en") -> str:
    """The assessment of `permea.report.assessment.assess` as an HTML page of its own.

    Examples
    --------
    >>> '<html lang="de">' in render_assessment(Report(title="A model"), "de")
    True
    """
    template = _environment().get_template("assessment_page.html")
    return template.render(report=report, one=assess(report, language))


@cache
def _environment() -> "Environment":
    """The templates; all text is escaped, and control characters are made visible."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise ImportError(
            "The report needs Jinja2, which is not installed. Install it with: "
            "pip install 'permea[cli]'"
        ) from error
    environment = Environment(
        loader=PackageLoader("permea.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_neutral,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "best_guess": best_guess,
        "json": safe_json,
        "layout": Layout,
        "number": number,
        "odds": odds,
        "percent": lambda share: f"{100 * share:.1f} %",
        "picture": lambda rows, shape, domain: png_address(strip(rows, shape, domain)),
    }
    environment.globals |= {
        "version": __version__,
        "how_to_verify": HOW_TO_VERIFY,
        "little_protection": LITTLE_PROTECTION,
        "no_protection": NO_PROTECTION,
    }
    return environment


def _neutral(value: object) -> object:
    """Text without control characters; what a macro of the templates returned stays as it is."""
    return value if hasattr(value, "__html__") else safe_text(value, lines=True)


def png_address(picture: Array) -> str:
    """A picture with values in [0, 1], dark on white, as an address for ``<img src>``.

    Parameters
    ----------
    picture : ndarray of shape (height, width)
        0 is white and 1 is black; values outside are clipped.

    Returns
    -------
    str
        ``data:image/png;base64,…``

    Examples
    --------
    >>> png_address(np.zeros((2, 2)))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    levels = np.clip(np.rint(255 * (1 - picture)), 0, 255).astype(np.uint8)
    height, width = levels.shape
    rows = np.hstack([np.zeros((height, 1), np.uint8), levels])  # no filter on any row
    data = (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + _chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(data).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def strip(rows: Array, shape: tuple[int, int], domain: tuple[float, float]) -> Array:
    """Several rows as pictures side by side, one white column between them.

    Examples
    --------
    >>> strip(np.ones((3, 4)), (2, 2), (0.0, 1.0)).shape
    (2, 8)
    """
    low, high = domain
    pictures = (np.asarray(rows, dtype=np.float64) - low) / (high - low)
    gap = np.zeros((shape[0], 1))
    return np.hstack([part for row in pictures for part in (row.reshape(shape), gap)][:-1])

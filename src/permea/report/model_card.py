"""Model cards in the format of the Hugging Face hub: Markdown with a head of YAML."""

import json
import re
from pathlib import Path

from permea._files import write_atomically
from permea._text import safe_text
from permea._version import __version__
from permea.report.assessment import Section, answers, assess
from permea.report.content import Report
from permea.report.words import Words

_START = """```python
from permea import load

model = load("model.permea")  # load(…, trusted=keys) verifies who signed its certificates
labels = model.predict(table)
```"""
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|])")
_NOT_FOR_RELEASE = (
    "> **For the owner of the data.** Figures under *Evaluation* were computed from the private "
    "rows, and no noise protects them. Do not publish this card with them."
)


def model_card(report: Report, *, name: str = "model", license: str = "other") -> str:
    """The model card of what a report is about.

    Parameters
    ----------
    report : Report
        With ``purpose`` and ``schema`` where they are known.
    name : str
        Name of the model on the hub.
    license : str
        Identifier of the licence that its owner gives it, as the hub lists them.

    Returns
    -------
    str
        Markdown.

    Examples
    --------
    >>> card = model_card(Report(title="Who comes back?"), name="readmission")
    >>> card.splitlines()[:2], "## Evaluation" in card
    (['---', 'library_name: permea'], True)
    """
    found = assess(report)
    sections = {section.key: section for section in found.sections}
    parts = [
        f"---\n{_head(report, name, license)}---",
        f"# {_plain(report.title)}",
        *([_NOT_FOR_RELEASE] if report.computed_from_private_rows else []),
        "\n\n".join(f"**{question}** {_plain(text)}" for question, text in found.answers),
        "## Model details",
        "\n".join(f"- {_plain(name)}: {_plain(text)}" for name, text in report.facts.items())
        or f"- permea: {__version__}",
        "## Uses",
        _section(sections["purpose"]),
        "## Bias, risks and limitations",
        *(f"### {sections[key].title}\n\n{_section(sections[key])}"
          for key in ("unprotected", "residual", "criteria")),
        "## How to get started with the model",
        _START,
        "## Training details",
        f"### {sections['data'].title}\n\n{_section(sections['data'])}",
        f"### Privacy\n\n{_section(sections['promise'])}\n\n{_certificates(report)}",
        "## Evaluation",
        dict(answers(report, Words()))[Words()("questions.good")],
        "## Validity",
        _section(sections["void"]),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def write_model_card(report: Report, path: str | Path, *, license: str = "other") -> Path:
    """Write the model card of a report; ``README.md`` is the name that the hub expects."""
    card = model_card(report, name=_slug(report.title), license=license)
    return write_atomically(path, card.encode())


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "model"


def _head(report: Report, name: str, license: str) -> str:
    """The YAML in front; texts are written as JSON, which is YAML too."""
    lines = [
        "library_name: permea",
        f"license: {json.dumps(license)}",
        'tags: ["differential-privacy", "tabular-classification", "permea"]',
        'pipeline_tag: "tabular-classification"',
    ]
    found = report.accuracy
    if found is not None:
        metrics = [("accuracy", found.value)]
        if found.auroc is not None:
            metrics.append(("roc_auc", found.auroc))
        lines += [
            "model-index:",
            f"- name: {json.dumps(name)}",
            "  results:",
            "  - task: {type: tabular-classification}",
            '    dataset: {name: "rows that were not used for training", type: private}',
            "    metrics:",
            *(f"    - {{type: {kind}, value: {value:.4f}}}" for kind, value in metrics),
        ]
    return "\n".join(lines) + "\n"


def _plain(text: object) -> str:
    """Text that Markdown shows as it is."""
    return _MARKS.sub(r"\\\1", safe_text(text))


def _section(section: Section) -> str:
    parts = [_plain(text) for text in section.paragraphs]
    if section.items:
        parts.append("\n".join(f"- {_plain(item)}" for item in section.items))
    if section.rows:
        lines = [section.head, ("---",) * len(section.head)]
        table = ["| " + " | ".join(row) + " |" for row in lines]
        table += ["| " + " | ".join(_plain(text) for text in row) + " |" for row in section.rows]
        parts.append("\n".join(table))
    return "\n\n".join(parts)


def _certificates(report: Report) -> str:
    """Every certificate as people read it."""
    return "\n\n".join(f"```text\n{one}\n```" for one in report.certificates.values())

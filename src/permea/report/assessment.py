"""The section of a report for a data protection impact assessment, and its first screen.

Both say in plain sentences what certificates and attacks say in figures, in English or German. They
are plain values first: the templates show them, `write_assessment` writes them as HTML or JSON.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import NormalDist
from typing import Any

from permea._files import write_atomically
from permea._text import safe_json, safe_text
from permea._version import __version__
from permea.privacy import Certificate
from permea.report.content import Report
from permea.report.words import LANGUAGES, Words
from permea.tables import Date, Number, Schema
from permea.tables.columns import Choice, Column

SCHEMA = "permea assessment 1"
_SHOWN = 12  # values of a category


@dataclass(frozen=True)
class Section:
    """One heading of the assessment with what stands under it.

    Attributes
    ----------
    key, title : str
    paragraphs, items : tuple of str
        Sentences, and the items of a list.
    head : tuple of str
        Headings of a table; empty where there is none.
    rows : tuple of tuple of str
        Its rows.
    """

    key: str
    title: str
    paragraphs: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Assessment:
    """What a data protection officer reads, in one language.

    Attributes
    ----------
    language, title : str
    answers : tuple of (str, str)
        The questions of the first screen with an answer each.
    sections : tuple of Section
    care : str
        What was computed from private rows, and who may therefore read this; often empty.
    """

    language: str
    title: str
    answers: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    care: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return asdict(self)


def assess(report: Report, language: str = "en") -> Assessment:
    """Say for a data protection impact assessment what a report found.

    Parameters
    ----------
    report : Report
        Its ``purpose``, ``schema`` and ``holders`` are used here; the rest as in the report.
    language : {"en", "de"}

    Examples
    --------
    >>> found = assess(Report(title="A model without privacy"), "de")
    >>> found.answers[3][0], [section.title for section in found.sections][:2]
    ('Ist etwas ungültig?', ['Zweck', 'Datenkategorien'])
    """
    words = Words(language)
    parts = {
        "purpose": _purpose, "data": _data, "promise": _promise, "unprotected": _unprotected,
        "residual": _residual, "criteria": _criteria, "holders": _holders, "void": _void,
        "signatures": _signatures,
    }  # fmt: skip
    sections = tuple(
        Section(key, words(f"sections.{key}"), **make(report, words)) for key, make in parts.items()
    )
    care = words("assessment.care") if report.computed_from_private_rows else ""
    return Assessment(language, words("title"), tuple(answers(report, words)), sections, care)


def answers(report: Report, words: Words) -> Iterable[tuple[str, str]]:
    """The four questions of the first screen, each with its answer in plain sentences."""
    found = {
        "promise": promised(report, words),
        "good": how_good(report, words),
        "attacks": attacked(report, words),
        "void": validity(report, words),
    }
    return [(words(f"questions.{key}"), text) for key, text in found.items()]


def promised(report: Report, words: Words) -> str:
    """What is promised, to whom."""
    weakest = report.weakest
    if weakest is None:
        return words("answers.nothing")
    privacy = weakest.privacy
    promise = words.promise(privacy.unit, privacy.epsilon, privacy.delta)
    if not report.is_private:
        return words("answers.void_promise", promise=promise)
    guess = words.guess(privacy.epsilon, privacy.delta)
    text = words("answers.promise", to=words(f"to.{privacy.unit}"), guess=guess, promise=promise)
    if privacy.unit == "entry":
        text += " " + words("answers.row", record=_of_record(weakest, words))
    return f"{text} {report.remark}".strip()


def _of_record(certificate: Certificate, words: Words) -> str:
    return words.promise("record", certificate.record_epsilon, certificate.record_delta)


def how_good(report: Report, words: Words) -> str:
    """How often predictions are right, beside the most frequent class."""
    found = report.accuracy
    if found is None:
        return words("answers.not_good")
    share = words.percent(found.value)
    told = [words("answers.accuracy", accuracy=share, rows=found.n_rows)]
    if found.majority is not None:
        told.append(words("answers.majority", majority=words.percent(found.majority)))
    if found.auroc is not None:
        told.append(words("answers.auroc", auroc=words.number(found.auroc, ".3f")))
    return " ".join(told)


def attacked(report: Report, words: Words) -> str:
    """What the strongest attack reached, and whether chance reaches it too."""
    best = report.strongest_attack
    if best is None:
        return words("answers.not_attacked" if report.is_private else "answers.not_attacked_void")
    low, high = best["auc_interval"]
    auc, low_text, high_text = (words.number(one, ".3f") for one in (best["auc"], low, high))
    applied = [one for one in (report.attacks or {})["attacks"] if not one["note"]]
    said = words(
        "answers.attacked", count=len(applied), name=best["name"].replace("_", " "), auc=auc,
        low=low_text, high=high_text,
    )  # fmt: skip
    by_chance = best["auc"] - _widening(len(applied)) * (best["auc"] - low) <= 0.5
    return f"{said} {words('answers.fails' if by_chance else 'answers.succeeds')}"


def _widening(count: int) -> float:
    """How much wider an interval of 95 % must be for the best of so many attacks (Bonferroni)."""
    normal = NormalDist()
    return normal.inv_cdf(1 - 0.025 / count) / normal.inv_cdf(0.975)


def validity(report: Report, words: Words) -> str:
    """Whether a promise is void, and whether somebody vouches for it."""
    if not report.certificates:
        return words("answers.no_certificate")
    if not report.is_private:
        reasons = "; ".join(words.of_certificate(one) for one in report.reasons_not_private)
        return words("answers.broken", reasons=safe_text(reasons))
    return words("answers.intact" if report.is_verified else "answers.unverified")


# ---- the sections --------------------------------------------------------------------------------


def _purpose(report: Report, words: Words) -> dict[str, Any]:
    return {"paragraphs": (report.purpose or words("assessment.no_purpose"),)}


def _data(report: Report, words: Words) -> dict[str, Any]:
    schema = report.schema
    if schema is None:
        weakest = report.weakest
        if weakest is None:
            return {"paragraphs": (words("assessment.no_data"),)}
        return {"paragraphs": (words("assessment.no_schema", columns=weakest.n_columns),)}
    return {
        "paragraphs": (words("assessment.data"),),
        "head": tuple(words.entry("assessment.head_data")),
        "rows": tuple(_columns(schema, words)),
    }


def _columns(schema: Schema, words: Words) -> Iterable[tuple[str, ...]]:
    roles: dict[str, str] = words.entry("assessment.roles")
    kinds: dict[str, str] = words.entry("assessment.kinds")
    for name, column in schema.columns.items():
        role = {schema.label: "label", schema.target: "target"}.get(name, "feature")
        yield name, kinds[column.kind], _declared(column, words), roles[role]
    if schema.person is not None and schema.person not in schema.columns:
        identifier = words("assessment.identifier")
        yield schema.person, kinds["person"], identifier, roles["person"]
    for name in schema.ignored:
        yield name, "", "", roles["ignored"]


def _declared(column: Column, words: Words) -> str:
    """The declared values of a column, in words."""
    if isinstance(column, Number):
        ends = (words.number(float(end), "g") for end in (column.low, column.high))
        text = words("assessment.range", low=next(ends), high=next(ends))
    elif isinstance(column, Date):
        text = words("assessment.range", low=column.first, high=column.last)
    elif isinstance(column, Choice):
        names = column.names
        text = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    else:
        text = ""
    return words("assessment.may_be_missing", values=text) if column.missing else text


def _promise(report: Report, words: Words) -> dict[str, Any]:
    weakest, told = report.weakest, [promised(report, words)]
    if weakest is not None and report.is_private:
        privacy = weakest.privacy
        told.append(
            words(
                "assessment.epsilon",
                because=words(f"because.{privacy.unit}"),
                odds=words.odds(privacy.epsilon),
                delta=words.number(privacy.delta, ".3g"),
            )
        )
        stated = weakest.neighbours or dict(weakest.entries())["unit"].partition(": ")[2]
        told.append(words("assessment.neighbours", neighbours=words.of_certificate(stated)))
    return {"paragraphs": tuple(told)}


def _unprotected(report: Report, words: Words) -> dict[str, Any]:
    weakest = report.weakest
    if weakest is None or not report.is_private:
        return {"paragraphs": (promised(report, words),)}
    listed = {item for one in report.certificates.values() for item in one.not_protected}
    order = sorted(listed, key=lambda item: (item not in weakest.not_protected, item))
    return {"items": tuple(words.of_certificate(item) for item in order)}


def _residual(report: Report, words: Words) -> dict[str, Any]:
    return {"paragraphs": (attacked(report, words), words("assessment.residual"))}


def _criteria(report: Report, words: Words) -> dict[str, Any]:
    told, weakest = [words("assessment.criteria")], report.weakest
    if weakest is None or not report.is_private:
        told.append(words("assessment.criteria_open"))
    elif weakest.privacy.unit == "entry":
        told.append(words("assessment.criteria_entry", record=_of_record(weakest, words)))
    elif report.risks is None:
        privacy = weakest.privacy
        told.append(
            words(
                "assessment.criteria_bounded",
                because=words(f"because.{privacy.unit}"),
                guess=words.guess(privacy.epsilon, privacy.delta),
            )
        )
    if report.risks is None:
        return {"paragraphs": tuple(told)}
    names: dict[str, str] = words.entry("assessment.names")
    rows = tuple(
        (
            names.get(one.name.lower(), one.name), words.percent(one.success),
            words.percent(one.control), words.percent(one.excess),
            words("assessment.yes" if one.is_explained_by_chance else "assessment.no"),
        )
        for one in report.risks.risks
    )  # fmt: skip
    head = tuple(words.entry("assessment.head_criteria"))
    return {"paragraphs": tuple(told), "head": head, "rows": rows}


def _holders(report: Report, words: Words) -> dict[str, Any]:
    held = "reader_holds" if report.is_private else "reader_holds_rows"
    default = (
        (words("assessment.owner"), words("assessment.owner_holds")),
        (words("assessment.reader"), words(f"assessment.{held}")),
    )
    head = tuple(words.entry("assessment.head_holders"))
    return {"head": head, "rows": tuple(report.holders) or default}


def _void(report: Report, words: Words) -> dict[str, Any]:
    return {"paragraphs": (f"{words('questions.void')} {validity(report, words)}",)}


def _signatures(report: Report, words: Words) -> dict[str, Any]:
    return {"items": tuple(f"{who}: ____________________" for who in
                           words.entry("assessment.signatures"))}  # fmt: skip


# ---- files ---------------------------------------------------------------------------------------


def assessment_json(report: Report) -> str:
    """The assessment in every language, with certificates and attacks as they are, as JSON."""
    values = {
        "schema": SCHEMA,
        "permea": __version__,
        "date": date.today().isoformat(),
        "title": report.title,
        "status": report.status,
        "certificates": {name: one.to_dict() for name, one in report.certificates.items()},
        "attacks": report.attacks,
        "risks": None if report.risks is None else report.risks.to_dict(),
        "data": None if report.schema is None else report.schema.to_toml(),
        "texts": {language: assess(report, language).to_dict() for language in LANGUAGES},
    }
    return safe_json(json.loads(json.dumps(values, default=str)), indent=2) + "\n"


def write_assessment(report: Report, path: str | Path, *, language: str = "en") -> Path:
    """Write the assessment: ``.html`` in one language, ``.json`` in all of them.

    Parameters
    ----------
    report : Report
    path : path
        The ending says the format.
    language : {"en", "de"}
        Of the HTML page.

    Returns
    -------
    pathlib.Path
        The file.
    """
    from permea.report.page import render_assessment

    suffix = Path(path).suffix.lower()
    if suffix not in (".html", ".json"):
        raise ValueError(f"{path}: an assessment is written as .html or .json.")
    text = assessment_json(report) if suffix == ".json" else render_assessment(report, language)
    return write_atomically(path, text.encode())

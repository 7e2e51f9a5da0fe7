"""What newcomers meet: words, reference pages, files of the repository."""

import dataclasses
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import permea
from permea.cli.app import all_commands
from permea.privacy import Certificate
from permea.tables.columns import KINDS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "scripts"))

import command_reference  # noqa: E402
import http_reference  # noqa: E402

PAGES = [
    path
    for path in [*DOCS.rglob("*.md"), ROOT / "README.md"]
    if not {"_build", "generated", "auto_gallery"} & set(path.parts)
]
WORDS = dict(re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", (DOCS / "glossary.md").read_text(), re.M))
#: words that earlier versions used in a sense of their own, and what they stood for
PRIVATE_WORDS = (
    "voices", "chorus", "first look", "the asker", "whom to doubt", "crack-free",
    "tally",
)  # fmt: skip


def test_the_glossary_is_short_and_in_order():
    assert 20 <= len(WORDS) <= 40
    order = [word.replace("δ", "delta").replace("ε", "epsilon").lower() for word in WORDS]
    order = [word.removeprefix("the ") if word == "the wall" else word for word in order]
    assert order == sorted(order)


@pytest.mark.parametrize("word", WORDS)
def test_every_word_of_the_glossary_is_used(word):
    others = " ".join(path.read_text().lower() for path in PAGES if path.stem != "glossary")
    for part in word.lower().split(", "):
        assert part in others


@pytest.mark.parametrize("word", PRIVATE_WORDS)
def test_no_page_uses_a_private_word(word):
    pattern = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
    assert [path.name for path in PAGES if pattern.search(path.read_text())] == []


def test_the_page_of_commands_has_every_command_and_option():
    page = command_reference.drawn()
    for one in all_commands():
        assert f"\n### permea {one.name}\n" in page
        for parameter in one.parameters:
            for extra in getattr(parameter.annotation, "__metadata__", ()):
                for name in getattr(extra, "param_decls", None) or ():
                    assert f"`{name}`" in page or name in ("--json", "--quiet", "-q", "--debug")


def test_the_page_of_the_http_api_has_every_route():
    requests = {row[0] for row in http_reference.routes()}
    assert {"`GET /health`", "`POST /v1/ask`", "`DELETE /v1/jobs/{name}`"} <= requests
    assert all(row[1] for row in http_reference.routes())  # each says what it does


def test_the_page_of_files_has_every_entry():
    page = (DOCS / "files.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    written = {field.name for field in dataclasses.fields(Certificate)} - {"signer"}
    assert written | {"schema", "is_private"} <= named
    for kind, column in KINDS.items():
        (row,) = re.findall(rf"^\| `{kind}` \| (.+) \|$", page, re.MULTILINE)
        fields = {one.name for one in dataclasses.fields(column) if one.init}
        assert set(re.findall(r"`(\w+)`", row)) == fields


def test_the_citation_is_that_of_this_version():
    values = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert values["version"] == permea.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert values["license"] == project["license"]
    assert {"cff-version", "message", "title", "authors"} <= set(values)


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda p: p.stem)
def test_issue_templates_are_forms(path):
    values = yaml.safe_load(path.read_text())
    if path.stem == "config":
        assert values["contact_links"]
        return
    assert {"name", "description", "body"} <= set(values)
    identifiers = [one["id"] for one in values["body"] if one["type"] != "markdown"]
    assert len(identifiers) == len(set(identifiers)) > 0


NOTEBOOKS = sorted((ROOT / "examples").rglob("*.ipynb"))


def test_there_are_two_notebooks():
    assert len(NOTEBOOKS) == 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_and_come_without_outputs(path, tmp_path, monkeypatch):
    book = json.loads(path.read_text())
    assert book["nbformat"] == 4
    monkeypatch.chdir(tmp_path)
    names, shown = {"__name__": "__main__"}, []
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        shown += run_cell("".join(cell["source"]), names)
    views = [one._repr_html_() for one in shown if hasattr(one, "_repr_html_")]
    assert len(views) >= 2


def run_cell(source, names):
    """Run a cell; the value of its last expression, as a notebook shows it."""
    import ast

    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
    if last is None:
        return []
    return [eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)]

"""Pages: links lead somewhere, snippets are not stale, the reference is complete."""

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.figures import FIGURES  # noqa: E402

import permea  # noqa: E402

DOCS = ROOT / "docs"
PAGES = sorted(
    path
    for path in [*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("examples/**/*.md")]
    if not {"_build", "generated", "auto_gallery"} & set(path.parts)
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
ROOMS = ("audit", "datasets", "federation", "information", "transfer")


def named(path):
    return str(path.relative_to(ROOT))


def prose(path):
    return FENCE.sub("", path.read_text())


def anchor(heading):
    """The anchor that the site gives a heading: words in lower case, joined by hyphens."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def anchors(path):
    return {anchor(text) for text in re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)}


def made_by_the_gallery(target):
    """Gallery pages and pictures exist when the site is built; their scripts exist always."""
    found = re.search(
        r"auto_gallery/(?:images/sphx_glr_)?(plot_\w+?)(?:_\d{3}\.png|\.rst)$", target
    )
    return target.endswith("auto_gallery/index.rst") or (
        found is not None and (DOCS / "gallery" / f"{found[1]}.py").is_file()
    )


def broken_links(path):
    for target in LINK.findall(prose(path)):
        if re.match(r"(https?|mailto):", target):
            continue  # checked offline: the form is all there is to check
        place, _, fragment = target.partition("#")
        aim = (path.parent / place).resolve() if place else path
        if made_by_the_gallery(place):
            continue
        if not aim.exists() or (fragment and fragment not in anchors(aim)):
            yield target


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_links_lead_somewhere(path):
    drawn = {f"figures/benchmark-{name}.svg" for name in FIGURES}  # by the build of the site
    assert [link for link in broken_links(path) if link not in drawn] == []


def test_the_link_check_finds_what_is_broken(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A title\n[a](#a-title) [b](gone.md) [c](#nowhere) [d](https://x.example)\n")
    assert list(broken_links(page)) == ["gone.md", "#nowhere"]


SNIPPETS = [
    pytest.param(code, id=f"{named(path)}-{number}")
    for path in PAGES
    for number, (language, code) in enumerate(FENCE.findall(path.read_text()))
    if language in ("python", "py") and ">>>" not in code
]


PROGRAMS = [
    pytest.param(path.read_text(), id=named(path))
    for folder in ("benchmarks", "examples", "docs/gallery")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


@pytest.mark.parametrize("code", [*SNIPPETS, *PROGRAMS])
def test_snippets_and_programs_are_python_and_import_what_exists(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("permea"):
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"


@pytest.mark.parametrize("room", ROOMS)
def test_the_reference_names_everything_public(room):
    module = importlib.import_module(f"permea.{room}")
    text = (DOCS / "api.md").read_text()
    words = [name for name in module.__all__ if not name.isupper()]  # no constants
    assert [name for name in words if not re.search(rf"^\s+{name}$", text, re.MULTILINE)] == []


def test_the_reference_names_only_what_exists():
    module, missing = permea, []
    for line in (DOCS / "api.md").read_text().splitlines():
        if line.startswith(".. currentmodule:: "):
            module = importlib.import_module(line.split(":: ")[1])
        elif re.fullmatch(r"   [A-Za-z_][\w.]*", line):
            place, _, name = line.strip().rpartition(".")
            home = importlib.import_module(f"{module.__name__}.{place}") if place else module
            missing += [] if hasattr(home, name) else [f"{home.__name__}.{name}"]
    assert missing == []


DOCUMENT = re.compile(r"(?<![\d.,_])00[0-4]\b")
AUTHORS = r"[A-Z][\w-]+(?: et al\.|(?:, [A-Z][\w-]+)*,? and [A-Z][\w-]+)"
CITATION = re.compile(rf"({AUTHORS})\s+\(?((?:19|20)\d\d)\b")


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=named)
def test_pages_that_cite_documents_say_where_they_are_listed(path):
    if path in PAGES and path.name != "references.md":
        cites = DOCUMENT.search(prose(path)) or CITATION.search(prose(path))
        assert not cites or "references.md" in path.read_text()


def citations():
    for path in [*PAGES, *ROOT.glob("src/**/*.py"), *ROOT.glob("benchmarks/*.py")]:
        for authors, year in CITATION.findall(" ".join(path.read_text().split())):
            yield re.match(r"[\w-]+", authors)[0], year


def test_every_cited_paper_is_listed():
    listed = [line for line in (DOCS / "references.md").read_text().splitlines() if line[:1] == "*"]
    cited = set(citations())
    assert len(cited) > 15
    assert [
        (author, year)
        for author, year in sorted(cited)
        if not any(author in line and f"({year})" in line for line in listed)
    ] == []


def test_no_page_is_lost():
    index = (DOCS / "index.md").read_text()
    listed = {line.strip() for line in index.splitlines()}
    for path in PAGES:
        if path.is_relative_to(DOCS) and path.stem != "index":
            name = path.relative_to(DOCS).with_suffix("").as_posix()
            folder = f"{name.rpartition('/')[0]}/*"
            assert name in listed or folder in listed, f"{name} is in no table of contents"

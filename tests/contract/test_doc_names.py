"""Pages name only what exists: modules, classes, parameters, files, benchmarks, commands."""

import ast
import importlib
import inspect
import re
import sys
from functools import cache
from pathlib import Path

import pytest
import typer

import permea
from permea.cli.app import build

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "permea"
sys.path.insert(0, str(ROOT))
PAGES = sorted(
    path
    for path in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("examples/**/*.md")]
    if not {"_build", "generated", "auto_gallery"} & set(path.parts)
    and path.name not in ("CHANGELOG.md", "benchmarks.md")  # history; printed by the benchmarks
)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
FILE = re.compile(r"[\w./-]*\w\.(?:py|md|sh|svg)|[\w-]+(?:/[\w-]+)*/")
TEST = re.compile(r"^ *def (test_\w+)", re.MULTILINE)
KEYWORD = re.compile(r"(?<![\w=])([A-Za-z_]\w*)=(?!=)")

ROLE = re.compile(r":(?:func|class|meth|attr|mod):`~?([\w.]+)`|\b(permea(?:\.[a-zA-Z_]\w*)+)")
#: Names that a page may use although src does not define them.
ELSEWHERE = {
    *("LogisticRegression", "MinMaxScaler", "PCA", "RidgeClassifier", "cryptography", "print"),
    *("CERTIFICATE_VERIFY_FAILED", "PGPASSWORD", "None", "True", "False", "false"),
    *(
        "ca.crt",
        "clinic.key",
        "clinic.pub",
        "federation.toml",
        "reader.toml",
        "training.toml",
    ),  # files of a reader
    *("permea.ledgers", "permea.events"),  # tables in PostgreSQL
    *("shadow_svm", "shadow_tree", "shadow_network"),  # joined from two words in the code
}


def named(path):
    return str(path.relative_to(ROOT))


def spans(path):
    return SPAN.findall(FENCE.sub("", path.read_text()))


@cache
def vocabulary():
    """Every name that src defines or imports: modules, classes, functions, parameters, attributes.

    Also strings that look like names (choices such as "gradients"), and what benchmarks are called.
    """
    words = {part for path in SRC.rglob("*.py") for part in path.relative_to(SRC).parts}
    words = {word.removesuffix(".py") for word in words} | {"permea"} | set(sys.stdlib_module_names)
    for path in [*SRC.rglob("*.py"), *ROOT.glob("examples/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef):  # constants and fields, no variables
                words |= {n.id for one in node.body for n in ast.walk(one) if is_assigned(one, n)}
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                words.add(node.name)
            elif isinstance(node, ast.arg):
                words.add(node.arg)
            elif isinstance(node, ast.Attribute):
                words.add(node.attr)
            elif isinstance(node, ast.keyword):
                words.add(node.arg)
            elif isinstance(node, ast.alias):
                words |= set(node.name.split("."))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                words |= {node.value} if re.fullmatch(r"[\w-]+", node.value) else set()
    words |= {
        name for path in ROOT.glob("tests/**/*.py") for name in TEST.findall(path.read_text())
    }
    return words | {path.stem for path in ROOT.glob("benchmarks/*.py")}


def is_assigned(statement, node):
    return isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(node, ast.Name)


@cache
def classes():
    """Classes of src by name, with the attributes that they or their bases define or set."""
    found = {}
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                own = {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef)}
                own |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
                own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
                known = found.setdefault(node.name, (set(), set()))
                known[0].update(own)
                known[1].update(bases)
    return found


def attributes(name):
    """Attributes of a class and its bases; None where a base is not ours."""
    own, bases = classes()[name]
    words = set(own)
    for base in bases:
        words |= attributes(base) if base in classes() else set()
    return words


def resolves(dotted):
    """Whether a dotted name that begins with permea imports."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for number, part in enumerate(parts[cut:]):
            if not hasattr(thing, part):
                last = isinstance(thing, type) and number == len(parts[cut:]) - 1
                return last and thing.__name__ in classes() and part in attributes(thing.__name__)
            thing = getattr(thing, part)
        return True
    return False


@cache
def commands():
    """Commands of the command line by their words, each with its options."""
    found = {}

    def walk(words, command):
        options = {text for p in command.params for text in (*p.opts, *p.secondary_opts)}
        found[words] = options | {"--help"}
        for name, inner in getattr(command, "commands", {}).items():
            walk((*words, name), inner)

    walk(("permea",), typer.main.get_command(build()))
    return found


def wrong_command(text):
    """What `permea …` names that the command line does not have."""
    words = re.split(r"\s+\|\s+|\s+", text)
    place = ("permea",)
    while len(words) > len(place) and (*place, words[len(place)]) in commands():
        place = (*place, words[len(place)])
    options = set().union(*(commands()[place[:n]] for n in range(1, len(place) + 1)))
    rest = words[len(place) :]
    if len(place) == 1 and rest and rest[0].islower() and rest[0].isalpha():
        return f"permea {rest[0]}"
    unknown = [word for word in rest if word.startswith("--") and word.split("=")[0] not in options]
    return " ".join(unknown)


def all_options():
    printed = [
        path.read_text() for path in [*ROOT.glob("benchmarks/*.py"), *ROOT.glob("examples/**/*.py")]
    ]
    printed += [path.read_text() for path in SRC.rglob("*.py")]
    return set().union(*commands().values()) | set(re.findall(r"--[a-z][\w-]*", " ".join(printed)))


def wrong(span, page):
    """What a piece of code on a page names that does not exist; empty when all is well."""
    text = span.strip()
    if text.startswith("permea "):
        return wrong_command(text)
    if found := re.match(r"make ([a-z-]+)", text):
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return "" if found[1] in targets else text
    if found := re.match(r"python -m benchmarks (?:run|show) (\w+)", text):
        name = found[1]
        return "" if name.isupper() or (ROOT / "benchmarks" / f"{name}.py").is_file() else text
    if text.startswith("--"):
        word = re.split(r"[ =]", text)[0]
        return "" if word in all_options() else word
    if FILE.fullmatch(text.split("::")[0].removeprefix("python ")):
        place = text.split("::")[0].removeprefix("python ")
        starts = (ROOT, page.parent, SRC, SRC.parent, ROOT / "scripts", ROOT / "docs")
        anywhere = [*SRC.rglob("*.py"), *ROOT.glob("tests/**/*.py")] if "/" not in place else []
        known = any((start / place).exists() for start in starts)
        return "" if known or any(path.name == place for path in anywhere) else text
    return wrong_name(text, page)


def wrong_name(text, page):
    found = NAME.match(text)
    if not found or text[found.end() : found.end() + 1] not in ("", "(", "=", "["):
        return ""  # mathematics, a shell line, a value
    name = found[0]
    if text in ELSEWHERE or (ROOT / text).exists():
        return ""
    parts = name.split(".")
    if parts[0] == "permea":
        return "" if resolves(name) else name
    if parts[0] in ELSEWHERE:
        return ""
    if parts[0] in classes() and len(parts) == 2 and parts[1] not in attributes(parts[0]):
        return "" if hasattr(getattr(permea, parts[0], None), parts[1]) else name
    shown = re.findall(r"^(?:>>> )?(\w+) = ", page.read_text(), re.MULTILINE)  # by its examples
    unknown = [part for part in parts if part not in vocabulary() | ELSEWHERE | set(shown)]
    if unknown:
        return name
    thing = getattr(permea, parts[0], None)
    if thing is not None and len(parts) == 1 and text[found.end() :].startswith("("):
        accepted = inspect.signature(thing).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
            for word in KEYWORD.findall(top_level(text[found.end() :])):
                if word not in accepted:
                    return f"{name}({word}=)"
    return ""


def top_level(call):
    """The arguments of a call, without what stands in inner brackets."""
    depth, kept = 0, []
    for letter in call:
        depth -= letter in ")]}"
        if depth == 1 or (depth == 0 and letter in "()"):
            kept.append(letter)
        depth += letter in "([{"
    return "".join(kept)


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_names_on_pages_exist(path):
    assert [f"`{span}`: {bad}" for span in spans(path) if (bad := wrong(span, path))] == []


def test_the_check_finds_what_does_not_exist():
    page = ROOT / "README.md"
    for good in (
        "permea.privacy.release", "Privacy", "Privacy(epsilon=1)", "n_components", "make test",
        "permea train --epsilon", "permea ledger show", "docs/index.md", "certificate_", "x ≤ 1",
        "python -m benchmarks run kahm_mnist", "--json", "KAHMClassifier.predict",
    ):  # fmt: skip
        assert wrong(good, page) == "", good
    for bad in (
        "permea.privacy.gone", "Privatsphere", "Privacy(eps=1)", "n_componentz", "make coffee",
        "permea trane", "permea train --epsilom", "docs/gone.md", "KAHMClassifier.gone_",
        "python -m benchmarks run gone", "--no-such-option",
    ):  # fmt: skip
        assert wrong(bad, page) != "", bad


@pytest.mark.parametrize("path", sorted(SRC.rglob("*.py")), ids=named)
def test_modules_that_docstrings_name_exist(path):
    docstrings = (
        ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    )
    found = {one or other for text in docstrings for one, other in ROLE.findall(text)}
    named_here = {name for name in found if name.startswith("permea.")}
    known = ELSEWHERE | {"permea.toml"}
    assert [name for name in sorted(named_here - known) if not resolves(name)] == []

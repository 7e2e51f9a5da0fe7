"""The architecture page is drawn from the code; `make check` finds the tests of a change."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import changed_tests  # noqa: E402
import import_graph  # noqa: E402
import supply_chain  # noqa: E402

PAGE = import_graph.PAGE.read_text()
HOP = re.compile(r"^\d+\. `([\w/.]+\.py):([\w.]+)`", re.MULTILINE)
WALKS = {
    part.partition("\n")[0]: HOP.findall(part)
    for part in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
    if HOP.search(part)
}


def test_the_page_shows_the_imports_of_the_code():
    shown = import_graph.BLOCK.search(PAGE)[0]
    assert shown == import_graph.drawn(), "run: python scripts/import_graph.py --write"


def test_every_room_is_described_once():
    described = re.findall(r"^\| `permea\.(\w+)`", PAGE, re.MULTILINE)
    assert sorted(described) == sorted(import_graph.imports())


def test_a_circle_is_found():
    with pytest.raises(ValueError, match="circle: a, b"):
        import_graph.in_order({"a": {"b"}, "b": {"a"}, "c": set()})


def definition(file, name):
    """The node of a function, class or method; None when it does not exist."""
    node = ast.parse((import_graph.SOURCE / file).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for part in name.split("."):
        inner = (n for n in ast.walk(node) if isinstance(n, kinds) and n.name == part)
        node = next(inner, None)
        if node is None:
            return None
    return node


def test_there_are_three_walks():
    assert len(WALKS) == 3


@pytest.mark.parametrize("walk", WALKS)
def test_every_hop_exists_and_is_named_by_an_earlier_one(walk):
    hops = WALKS[walk]
    assert 2 <= len(hops) <= 10
    before = ""
    for file, name in hops:
        node = definition(file, name)
        assert node is not None, f"{file}:{name} does not exist"
        words = [part.lstrip("_") for part in name.split(".")]  # its own name, or that of its class
        assert not before or any(word in before for word in words), f"nothing names {file}:{name}"
        before += ast.unparse(node)


@pytest.mark.parametrize(
    ("changed", "test"),
    [
        ("src/permea/models/kahm.py", "tests/models/test_kahm.py"),
        ("src/permea/models/kahm.py", "src/permea/models/kahm.py"),  # its doctests
        ("src/permea/privacy/noise.py", "tests/privacy/test_noise_laws.py"),
        ("tests/models/test_fuzzy.py", "tests/models/test_fuzzy.py"),
        ("tests/conftest.py", "tests"),
        ("docs/choose.md", "docs/choose.md"),
        ("docs/choose.md", "tests/contract/test_doc_names.py"),
    ],
)
def test_a_change_is_led_to_its_tests(changed, test):
    assert (ROOT / changed).exists()
    assert (ROOT / test).exists()
    assert test in changed_tests.tests_of(changed)


def test_the_bill_of_materials_lists_the_lock_file():
    found = supply_chain.sbom()
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    pins = {one["purl"] for one in found["components"]}
    assert len(pins) == len(found["components"]) > 50
    numpy = next(one for one in found["components"] if one["name"] == "numpy")
    assert numpy["scope"] == "required"
    assert "BSD" in numpy["licenses"][0]["license"]["name"]
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert {re.match(r"[\w.-]+", line)[0] for line in lines if "==" in line} == {
        one["name"] for one in found["components"]
    }


def test_licences_are_told_and_copyleft_is_marked():
    table = supply_chain.licences()
    assert re.search(r"^\| scikit-learn \| [\d.]+ \| BSD", table, re.MULTILINE)
    assert supply_chain.COPYLEFT.search("GNU Lesser General Public License v3")
    assert not supply_chain.COPYLEFT.search("Apache-2.0")

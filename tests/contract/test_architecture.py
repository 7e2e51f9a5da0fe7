"""The house rules that a machine can check."""

import importlib
import pkgutil
import sys
from pathlib import Path

import pytest

import permea

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from import_graph import imported_rooms, room_of

ROOT = Path(permea.__file__).parent
# What stands right may import what stands left; rooms on the same step do not see each other.
STEPS = [
    {"tables"},
    {"privacy"},
    {"models"},
    {"fabricate"},
    {"compose"},
    {"transfer", "datasets"},
    {"information", "audit"},
    {"federation"},
    {"report", "documents"},
    {"cli"},  # a thin shell over all the others
]
STEP_OF = {room: step for step, rooms in enumerate(STEPS) for room in rooms}
SHARED = {"_version", "_progress", "_parallel", "_files", "_text", "_html", "_arrays", "_validate"}
ABOVE_ALL = {"__init__", "__main__"}
SERVES_ALL_MODELS = {"storage"}  # may see models, privacy, compose and transfer; seen from above


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    room = room_of(path)
    if room in ABOVE_ALL:
        return
    for other in imported_rooms(path) - SHARED - {room}:
        if other in SERVES_ALL_MODELS:
            assert STEP_OF[room] >= 6, f"{path.name} must not import permea.{other}"
        elif room in SERVES_ALL_MODELS:
            assert STEP_OF[other] <= 6, f"{path.name} must not import permea.{other}"
        else:
            assert room not in SHARED, f"{path.name} is shared ground and must not import {other}"
            assert STEP_OF[other] < STEP_OF[room], f"permea.{room} must not import permea.{other}"


def test_every_room_has_its_place():
    known = set(STEP_OF) | SHARED | ABOVE_ALL | SERVES_ALL_MODELS
    assert {room_of(path) for path in FILES} <= known


@pytest.mark.parametrize("name", sorted(permea.__all__))
def test_public_names_are_documented(name):
    thing = getattr(permea, name)
    if name == "__version__":
        return
    assert thing.__doc__, f"permea.{name} has no docstring"
    assert len(thing.__doc__.strip().splitlines()) > 1, f"permea.{name}: one line is not enough"
    reference = (ROOT.parent.parent / "docs" / "api.md").read_text()
    assert name in reference, f"permea.{name} is missing in docs/api.md"


def test_every_module_can_be_imported_and_says_what_it_is():
    for module in pkgutil.walk_packages(permea.__path__, "permea."):
        if module.name == "permea.__main__":
            continue
        assert importlib.import_module(module.name).__doc__, module.name

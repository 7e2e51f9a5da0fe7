"""The rooms of permea and which of them import which, as a table for docs/architecture.md.

python scripts/import_graph.py          print the table
python scripts/import_graph.py --write  put it into docs/architecture.md
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "permea"
PAGE = ROOT / "docs" / "architecture.md"
BLOCK = re.compile(r"(?<=<!-- import graph -->\n).*(?=<!-- end of import graph -->)", re.DOTALL)


def room_of(path: Path) -> str:
    """The folder below src/permea that a file lies in, or the file itself."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Rooms that a file imports at run time (imports for type checkers do not count)."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = [ast.Pass()]
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = ["permea", *path.relative_to(SOURCE).parts][: -node.level] if node.level else []
            module = ".".join([*start, node.module] if node.module else start)
            names += [f"{module}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("permea.")}


def imports() -> dict[str, set[str]]:
    """For every room, the rooms that its files import; files beside the rooms are left out."""
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for path in SOURCE.rglob("*.py"):
        if room_of(path) in rooms:
            found[room_of(path)] |= imported_rooms(path) & rooms - {room_of(path)}
    return found


def in_order(found: dict[str, set[str]]) -> list[str]:
    """Rooms from the bottom up: each after all that it imports; the alphabet decides ties."""
    order: list[str] = []
    while left := sorted(set(found) - set(order)):
        ready = [room for room in left if found[room] <= set(order)]
        if not ready:
            raise ValueError(f"These rooms import each other in a circle: {', '.join(left)}.")
        order.append(ready[0])
    return order


def drawn() -> str:
    """The graph as a table with one row per room and one column per imported room."""
    found = imports()
    order = in_order(found)
    used = [room for room in order if any(room in others for others in found.values())]
    lines = ["| | " + " | ".join(used) + " |", "|---" * (len(used) + 1) + "|"]
    for room in reversed(order):
        cells = ("●" if other in found[room] else "" for other in used)
        lines.append(f"| **{room}** | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(BLOCK.sub(lambda _: drawn(), PAGE.read_text()))
    else:
        print(drawn(), end="")

"""Name the tests that a change touches, one argument of pytest per line.

Changed is what differs from the last commit; if nothing does, what the last commit changed. With an
argument, such as ``main``, it is what differs from there. ``make check`` runs what this prints:

* a changed file under ``src``: its doctests, and the tests of the same room that import it or a
  name that it defines; without any, those that bear its name, then those of the files that use it;
* a changed test: itself; a changed helper of tests: all tests of its folder;
* a changed page: its examples, and the tests of pages;
* always: the rules of the house, and one family from end to end.
"""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = [f"tests/contract/test_{name}.py" for name in ("architecture", "toy_family")]
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
PAGES = [f"tests/contract/test_{name}.py" for name in ("docs", "doc_names")]


def git(*words: str) -> list[str]:
    """Lines that git prints; none when it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files(base: str | None = None) -> list[str]:
    """Files that differ from ``base``, or from the last commit or the one before; that exist."""
    new = git("ls-files", "--others", "--exclude-standard")
    names = git("diff", "--name-only", base or "HEAD") + new
    names = names or git("diff", "--name-only", "HEAD~1")
    return [name for name in dict.fromkeys(names) if (ROOT / name).is_file()]


def imported(path: Path) -> set[str]:
    """Modules and names that a file imports, each by its last word and in full."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {alias.name for alias in node.names}
    return found


def defined(path: Path) -> set[str]:
    """Public functions and classes that a file defines."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    body = ast.parse(path.read_text()).body
    return {node.name for node in body if isinstance(node, kinds) and node.name[0] != "_"}


def users(module: str, names: set[str], files: list[Path]) -> list[str]:
    """Files that import a module or one of its names."""
    return [str(path.relative_to(ROOT)) for path in files if imported(path) & (names | {module})]


def tests_of_source(name: str) -> list[str]:
    """Doctests of a source file and the tests nearest to it."""
    module = name.removeprefix("src/").removesuffix(".py").replace("/", ".")
    room = f"tests/{module.split('.')[1]}/"
    tests = users(module, defined(ROOT / name), TESTS)
    mirrored = [test for test in tests if test.startswith(room)]
    if not mirrored:
        stem = Path(name).stem.strip("_")
        mirrored = [str(t.relative_to(ROOT)) for t in (ROOT / room).glob(f"test_*{stem}*.py")]
    if not (mirrored or tests):  # a part of other modules: their tests
        near = sorted((ROOT / name).parent.glob("[!_]*.py"))
        for other in users(module, defined(ROOT / name), near):
            tests += users(other[4:-3].replace("/", "."), defined(ROOT / other), TESTS)
        tests = [test for test in tests if test.startswith(room)] or tests
    return [name, *(mirrored or tests)]


def tests_of(name: str) -> list[str]:
    """Tests that a changed file concerns."""
    path = ROOT / name
    if name.startswith("src/permea/") and path.suffix == ".py":
        return tests_of_source(name)
    if name.startswith("tests/") and path.suffix == ".py":
        return [name] if path.name.startswith("test_") else [str(path.parent.relative_to(ROOT))]
    if path.suffix == ".md":
        doctests = [name] if name.startswith("docs/") or name == "README.md" else []
        return [*doctests, *PAGES]
    return []


def chosen(base: str | None = None) -> list[str]:
    """Everything to run, without repetition."""
    found = [test for name in changed_files(base) for test in tests_of(name)]
    return list(dict.fromkeys([*ALWAYS, *found]))


if __name__ == "__main__":
    print("\n".join(chosen(*sys.argv[1:])))

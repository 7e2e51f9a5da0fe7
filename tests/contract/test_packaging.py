"""What a user gets from ``pip install``: the wheel, its extras, and no lock file.

The fast tests install the wheel without extras and with ``[cli]``; ``make test-slow`` adds every
other extra. Two extras are resolved but not installed, because they take gigabytes or pin versions
that go with nothing else: ``tfhe`` and ``peers``.
"""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import permea

SOURCE = Path(permea.__file__).parent
ROOT = SOURCE.parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
MODULE_OF = {  # where the name that is imported is not the name that is installed
    "concrete-python": "concrete",
    "dp-accounting": "dp_accounting",
    "pyjwt": "jwt",
    "scikit-learn": "sklearn",
    "seal-python": "seal",
}
NOT_IMPORTED = {
    "neurokit2": "the example and the benchmarks of heart beats use it",
    "pyarrow": "pandas reads Parquet with it",
    "setuptools": "concrete-python needs an old one",
}
LOADER = re.compile("(import|load)_module")  # functions that import a module by name
PARTS = {"cli": "cli"}  # folders whose files may import what their extra brings at once
FOR_USERS = (
    *("cli", "plot", "federated", "service", "encrypted", "tfhe", "heartbeats"),
    *("dask", "postgres", "sql"),
)
RESOLVED_ONLY = ("tfhe", "peers")


def modules(requirements):
    """Names that are imported after installing some requirements."""
    names = [re.match(r"[\w.-]+", one).group() for one in requirements]
    return {MODULE_OF.get(name, name) for name in names}


CORE = modules(PROJECT["dependencies"])
OPTIONAL = {name: modules(EXTRAS[name]) for name in FOR_USERS}


def imports_of(tree):
    """Pairs (module, whether it is imported as soon as the file is)."""
    inside = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(outer, ast.If) and "TYPE_CHECKING" in ast.unparse(outer.test))
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        elif isinstance(node, ast.Call) and re.search(
            r"(import|load)_module", ast.unparse(node.func)
        ):
            names = [one.value for one in node.args[:1] if isinstance(one, ast.Constant)]
        for name in names:
            top = name.split(".")[0]
            if top not in sys.stdlib_module_names and top != "permea":
                yield top, id(node) not in inside


FILES = {path: list(imports_of(ast.parse(path.read_text()))) for path in SOURCE.rglob("*.py")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_import_is_declared(path):
    """0.1 imported click, which a dependency happened to bring until it did not."""
    part = PARTS.get(path.relative_to(SOURCE).parts[0])
    at_once = CORE | OPTIONAL.get(part, set())
    for name, when_imported in FILES[path]:
        allowed = at_once if when_imported else CORE.union(*OPTIONAL.values())
        assert name in allowed, f"{path.name} imports {name}, which pyproject.toml does not declare"


def test_every_declared_dependency_is_used():
    used = {name for found in FILES.values() for name, _ in found}
    declared = CORE.union(*OPTIONAL.values())
    assert declared - used - set(NOT_IMPORTED) == set()


# ---- the wheel, in environments of its own -------------------------------------------------------

EVERY_HELP = """
import sys, typer
from permea.cli.app import build, run

def paths(command, before=()):
    for name, child in getattr(command, "commands", {}).items():
        yield (*before, name)
        yield from paths(child, (*before, name))

found = [(), *paths(typer.main.get_command(build()))]
failed = [words for words in found if run([*words, "--help"]) != 0]
assert len(found) > 10, found
sys.exit(f"no help for {failed}" if failed else 0)
"""
SMALL_FIT = """
import numpy as np
from permea import KAHMClassifier, Privacy
X, y = np.random.default_rng(0).random((30, 3)), np.repeat([0, 1], 15)
clf = KAHMClassifier(n_components=2, n_layers=1, privacy=Privacy(epsilon=4, domain=(0, 1)))
assert clf.fit(X, y).certificate_.is_private
"""
OFFLINE = ("dns error", "error sending request", "tcp connect", "failed to connect", "timed out")


def uv(*words):
    """Run uv, which resolves against the package index and never sees the lock file."""
    program = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if program is None:
        pytest.skip("uv is not installed; it comes with permea[test]")
    done = subprocess.run(
        [program, *map(str, words)], capture_output=True, text=True, check=False, timeout=280
    )
    if done.returncode != 0 and any(sign in done.stderr.lower() for sign in OFFLINE):
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
    return next(folder.glob("*.whl"))


@pytest.fixture
def install(wheel, tmp_path):
    """Install the wheel with some extras into a fresh environment; gives a way to run Python."""

    def installed(*extras, more=()):
        place = tmp_path / "fresh"
        uv("venv", "--quiet", "--python", sys.executable, place)
        python = place / "bin" / "python"
        what = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
        uv("pip", "install", "--quiet", "--python", python, what, *more)

        def run(*words, program=python):
            return subprocess.run(
                [program, *words], capture_output=True, text=True, check=False, cwd=tmp_path,
                timeout=120, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            )  # fmt: skip

        run.program = place / "bin" / "permea"
        return run

    return installed


def succeeds(done):
    assert done.returncode == 0, done.stdout + done.stderr


def asks_for_the_extra(done):
    assert done.returncode == 8, done.stderr
    assert "permea[cli]" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_wheel_alone_learns_and_says_what_the_command_needs(install):
    run = install()
    succeeds(run("-c", SMALL_FIT))
    asks_for_the_extra(run(program=run.program))
    asks_for_the_extra(run("train", "--help", program=run.program))


def test_the_command_line_starts_with_the_newest_of_everything(install):
    run = install("cli")
    succeeds(run("-c", EVERY_HELP))
    succeeds(run("--version", program=run.program))
    wrong = run("train", "--epsilonn", "8", program=run.program)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("permea: error: ")
    assert len(wrong.stderr.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("extra", [e for e in FOR_USERS if e not in ("cli", *RESOLVED_ONLY)])
@pytest.mark.parametrize("cli", [False, True], ids=["alone", "with cli"])
def test_every_extra_installs_with_and_without_the_command_line(install, extra, cli):
    run = install(extra, *(["cli"] if cli else []))
    for name in sorted(OPTIONAL[extra]):
        succeeds(run("-c", f"import permea, {name}"))
    if cli:
        succeeds(run("-c", EVERY_HELP))
    elif run("-c", "import typer, pandas").returncode != 0:
        asks_for_the_extra(run(program=run.program))


@pytest.mark.slow
def test_the_oldest_command_line_library_starts_too(install):
    (bound,) = [one for one in EXTRAS["cli"] if one.startswith("typer")]
    oldest = re.search(r">=([\d.]+)", bound).group(1)
    run = install("cli", more=[f"typer=={oldest}"])
    succeeds(run("-c", EVERY_HELP))
    assert run("train", program=run.program).returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_every_extra_resolves(wheel, tmp_path, extra):
    uv("venv", "--quiet", "--python", sys.executable, tmp_path / "fresh")
    uv(
        "pip", "install", "--dry-run", "--python", tmp_path / "fresh" / "bin" / "python",
        f"{wheel}[{extra}]",
    )  # fmt: skip

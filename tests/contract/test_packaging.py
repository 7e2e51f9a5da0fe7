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
    "mlflow-skinny": "mlflow",
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
    *("dask", "postgres", "sql", "onnx", "mlflow"),
)
RESOLVED_ONLY = ("tfhe", "peers")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


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


EVERY_NAME = """
import importlib, pkgutil, permea
for name in permea.__all__:
    getattr(permea, name)
for module in pkgutil.iter_modules(permea.__path__):
    if module.name not in ("cli", "__main__"):
        room = importlib.import_module(f"permea.{module.name}")
        for name in getattr(room, "__all__", ()):
            assert hasattr(room, name), (module.name, name)
"""
MISSING_EXTRAS = """
import numpy as np
from importlib import import_module
from permea import Ledger, MomentClassifier, Privacy, Schema
from permea.tables import Number, YesNo, read_chunks

schema = Schema({"a": Number(0, 1), "b": YesNo()}, label="b")
table = {"a": [0.5] * 4, "b": ["yes", "no"] * 2}
promise = Privacy(epsilon=1, delta=1e-6, unit="record")
report = import_module("permea.report")
model = MomentClassifier(schema=schema).fit(table)
distributed = MomentClassifier(privacy=promise, schema=schema)
tries = {
    "cli": lambda: report.render(report.Report(title="")),
    "plot": lambda: import_module("permea.report.plots").plot_noise(np.zeros(16), [1]),
    "federated": lambda: import_module("permea.federation.flower.launch").require_flower(),
    "encrypted": lambda: import_module("permea.federation.encryption").get_scheme("bfv")(
        n_parties=2, n_classes=2, bits=8).keygen(),
    "dask": lambda: import_module("permea._parallel").check_engine("dask"),
    "postgres": lambda: Ledger("postgresql://nobody@localhost/none"),
    "sql": lambda: read_chunks("duckdb:", query="SELECT 1"),
    "heartbeats": lambda: import_module("permea.datasets").read_wfdb("none"),
    "onnx": lambda: import_module("permea.storage").to_onnx(model),
    "service": lambda: import_module("permea.federation.service.http").require_service(),
    "mlflow": lambda: import_module("permea.report.tracking").log_report(report.Report(title="")),
}
for extra, attempt in tries.items():
    try:
        attempt()
    except ImportError as error:
        text = str(error)
        print(extra, f"permea[{extra}]" in text and len(text.splitlines()) == 1, text)
    except Exception as error:
        print(extra, False, repr(error))
    else:
        print(extra, False, "nothing was missing")
"""


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
    succeeds(run("-c", EVERY_NAME))
    told = run("-c", MISSING_EXTRAS)
    succeeds(told)
    lines = told.stdout.strip().splitlines()
    assert len(lines) >= 10
    assert [line for line in lines if line.split()[1] != "True"] == []
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


def test_the_metadata_names_the_versions_that_are_tested():
    named = {re.search(r"3\.\d+", one)[0] for one in PROJECT["classifiers"] if ":: 3." in one}
    assert named == set(PYTHONS)


def interpreters():
    """Interpreters of this machine for the versions in the metadata: this one, and what is found.

    Shims of version managers fail when they are run, so the places of pyenv are searched too.
    """
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {own: sys.executable}
    for version in PYTHONS:
        places = [shutil.which(f"python{version}")]
        places += sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
        for place in filter(None, places):
            done = subprocess.run(
                [place, "-c", "import sys; print(*sys.version_info[:2], sep='.')"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode == 0 and done.stdout.strip() == version:
                found.setdefault(version, place)
    return found


INTERPRETERS = interpreters()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", sorted(INTERPRETERS))
def test_the_wheel_learns_on_every_python_that_can_be_had(wheel, tmp_path, version):
    place = tmp_path / "fresh"
    uv("venv", "--quiet", "--python", INTERPRETERS[version], place)
    uv("pip", "install", "--quiet", "--python", place / "bin" / "python", f"{wheel}[cli]")
    for code in (SMALL_FIT, EVERY_NAME, EVERY_HELP):
        done = subprocess.run(
            [place / "bin" / "python", "-c", code], capture_output=True, text=True, check=False,
            cwd=tmp_path, timeout=300, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )  # fmt: skip
        succeeds(done)


@pytest.mark.slow
def test_the_source_distribution_installs_too(tmp_path):
    uv("build", "--quiet", "--sdist", "--out-dir", tmp_path, ROOT)
    uv("venv", "--quiet", "--python", sys.executable, tmp_path / "fresh")
    python = tmp_path / "fresh" / "bin" / "python"
    (source,) = tmp_path.glob("*.tar.gz")
    uv("pip", "install", "--quiet", "--python", python, f"{source}[cli]")
    for code in (SMALL_FIT, EVERY_NAME, EVERY_HELP):
        succeeds(
            subprocess.run(
                [python, "-c", code],
                capture_output=True,
                text=True,
                check=False,
                cwd=tmp_path,
                timeout=200,
                env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            )
        )


TRACKING = """
import json, mlflow
from permea import KAHMClassifier, Privacy
from permea.datasets import load_iris
from permea.report import Report, content
from permea.report.tracking import log_report

iris = load_iris()
promise = Privacy(epsilon=9, delta=1e-5, domain=(0, 1))
model = KAHMClassifier(n_components=2, n_layers=1, privacy=promise).fit(iris.X, iris.y)
report = Report(title="iris", certificates={"model": model.certificate_},
                accuracy=content.accuracy_of(model, iris.X, iris.y))
with mlflow.start_run() as run:
    log_report(report, model)
kept = mlflow.get_run(run.info.run_id)
assert kept.data.params["permea.unit"] == "entry", kept.data.params
assert float(kept.data.params["permea.epsilon"]) == 9
assert abs(kept.data.metrics["permea.accuracy"] - report.accuracy.value) < 1e-9
assert kept.data.tags["permea.status"] == "PRIVATE"
names = {one.path for one in mlflow.MlflowClient().list_artifacts(run.info.run_id, "permea")}
files = ("report.html", "assessment.json", "model-card.md", "certificate-0.json", "model.permea")
for name in files:
    assert f"permea/{name}" in names, names
try:
    log_report(Report(title="open", computed_from_private_rows=["attacks"]))
except ValueError as error:
    assert "attacks" in str(error)
else:
    raise AssertionError("a report from private rows was logged")
"""


@pytest.mark.slow
def test_reports_are_logged_to_mlflow(install, tmp_path):
    run = install("mlflow")
    store = f"import os\nos.environ['MLFLOW_TRACKING_URI'] = 'file://{tmp_path}/runs'\n"
    store += "os.environ['MLFLOW_ALLOW_FILE_STORE'] = 'true'\n"
    succeeds(run("-c", store + TRACKING))


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

"""List, run and report the benchmarks.

    python -m benchmarks list
    python -m benchmarks run NAME [NAME …] [-- options of the benchmark]
    python -m benchmarks run --all
    python -m benchmarks report

Each benchmark is a script of its own in this folder that prints Markdown. ``run`` starts it in a
fresh process and keeps what it printed, with the command, the versions, the machine and the time it
took, in ``benchmarks/results``. ``report`` renders ``docs/benchmarks.md`` from these files alone.
"""

import argparse
import ast
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
PAGE = FOLDER.parent / "docs" / "benchmarks.md"
LIBRARIES = ("numpy", "scipy", "scikit-learn", "permea")
SUPPORT = {"__init__", "__main__", "common"}


def names():
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in SUPPORT)


def title(name):
    docstring = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text())) or name
    return docstring.splitlines()[0].rstrip(".")


def machine():
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        model = platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of {model}, {memory:.0f} GiB"


def run(name, options):
    """Run one benchmark in a fresh process and keep what it printed."""
    command = ["python", f"benchmarks/{name}.py", *options]
    print(f"\n== {' '.join(command)}", flush=True)
    start = time.perf_counter()
    lines = []
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parent), "PERMEA_PROGRESS": "0"}
    with subprocess.Popen(
        [sys.executable, str(FOLDER / f"{name}.py"), *options],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode:
        sys.exit(f"{name} failed with exit code {process.returncode}; nothing was kept.")
    RESULTS.mkdir(exist_ok=True)
    kept = {
        "name": name,
        "title": title(name),
        "command": " ".join(command),
        "date": date.today().isoformat(),
        "seconds": round(time.perf_counter() - start, 1),
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            **{library: importlib.metadata.version(library) for library in LIBRARIES},
        },
        "output": "".join(lines).strip(),
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")


def page():
    """docs/benchmarks.md as the stored results give it."""
    parts = [
        "# Benchmarks\n\n"
        "Every figure on this page was printed by the command above it; the page is rendered from "
        "the stored\noutputs by `python -m benchmarks report`, and a test checks that it matches "
        "them.\n"
    ]
    for path in sorted(RESULTS.glob("*.json")):
        kept = json.loads(path.read_text())
        versions = ", ".join(f"{name} {version}" for name, version in kept["versions"].items())
        parts.append(
            f"\n## {kept['title']}\n\n```console\n$ {kept['command']}\n```\n\n{kept['output']}\n\n"
            f"*{kept['date']}, {kept['seconds']} s, {kept['machine']}; {versions}.*\n"
        )
    return "".join(parts)


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=["list", "run", "report"], nargs="?", default="list")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    words = sys.argv[1:]
    options = words[words.index("--") + 1 :] if "--" in words else []
    arguments = parser.parse_args(words[: words.index("--")] if "--" in words else words)
    if arguments.action == "list":
        for name in names():
            print(f"{name:28} {title(name)}")
    elif arguments.action == "report":
        PAGE.write_text(page())
        print(f"wrote {PAGE}")
    else:
        unknown = sorted(set(arguments.names) - set(names()))
        if unknown or not (arguments.names or arguments.all):
            parser.error(f"unknown or missing benchmark: {' '.join(unknown)}; see list")
        for name in names() if arguments.all else arguments.names:
            run(name, options)
        PAGE.write_text(page())


if __name__ == "__main__":
    main()

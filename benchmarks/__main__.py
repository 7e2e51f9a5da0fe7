"""List, run and report the benchmarks.

    python -m benchmarks list
    python -m benchmarks run NAME [NAME …] [--quick] [--repeat K] [-- options of the benchmark]
    python -m benchmarks run --all [--quick]
    python -m benchmarks run --speed
    python -m benchmarks report
    python -m benchmarks check [--store]

Each benchmark is a script of its own in this folder that prints Markdown. ``run`` starts it in a
fresh process and keeps what it printed, with the command, the seeds, the versions, the machine and
the time it took, in ``benchmarks/results``. ``--repeat K`` runs it with the seeds 0 … K-1 and keeps
mean ± standard deviation of every cell that is a number. ``--quick`` proves in less than a minute
that a benchmark works; nothing of it is kept. ``--speed`` runs all whose figures are times, one
after the other. ``check`` compares ratios of times with the stored ones and fails where one became
more than 30 % slower. ``report`` renders ``docs/benchmarks.md``, ``docs/speed.md`` and
``docs/results.md`` from the stored files alone.
"""

import argparse
import ast
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

from benchmarks import beside, figures, glance, ratios, reproduction, speed_notes

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
DOCS = FOLDER.parent / "docs"
LIBRARIES = ("numpy", "scipy", "scikit-learn", "permea")
SUPPORT = {
    "__init__",
    "__main__",
    "beside",
    "broken_moments",
    "common",
    "dpsgd",
    "figures",
    "glance",
    "ratios",
    "reproduction",
    "speed_notes",
    "synthetic_anonymeter",
    "synthetic_dpmm",
    "tables_common",
}
OTHER_SPEED = {"kahm_mnist", "kahm_single", "scaling"}  # besides those named NAME_speed
HEADS = {
    "benchmarks.md": "# Benchmarks\n\n"
    "Every figure on this page was printed by the command above it; the page is rendered from the "
    "stored\noutputs by `python -m benchmarks report`, and a test checks that it matches them. The "
    "figures are drawn from the same files by that command and by `make docs`. Seconds on "
    "this page were mostly taken beside other work; times of a machine that did nothing else "
    "have\n[a page of their own](speed.md). What differs from the documents, and why, is on the "
    "page [what we could not reproduce](not_reproduced.md); 000 to 004 are listed under\n"
    "[references](references.md); [what is reproduced](reproduction.md) lists their tables. The "
    "figures of `consensus` in `transfer_office`, `transfer_baselines`, `stress` and "
    "`information_mnist` were measured before the weights of the source's experts were stacked, "
    "and those of the documents' methods in `transfer_office`, `transfer_ablation`, "
    "`transfer_usps_mnist` and `family_noise_robustness` with the library's own settings, "
    "before these benchmarks took them from `permea.documents`.\n",
    "speed.md": "# Speed\n\n"
    "Time and memory of everything, beside scikit-learn's peers, the document's own timing (004 "
    "Table 11) and the\nfloor that matrix products of the same size set. `python -m benchmarks run "
    "--speed` runs all of it; the page is rendered from what was stored. Ratios are taken "
    "within one run; seconds are those of the machine named below each table. 000 to 004 are "
    "listed under\n[references](references.md).\n",
}


def names():
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in SUPPORT)


def is_speed(name):
    return name.endswith("_speed") or name in OTHER_SPEED


def is_as_written(name):
    """Whether a benchmark takes its settings from `permea.documents`."""
    lines = (FOLDER / f"{name}.py").read_text().splitlines()
    imports = [line for line in lines if line.startswith(("from permea import", "from transfer_"))]
    return any("documents" in line for line in imports)


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


def printed(name, options):
    """Run one benchmark in a fresh process; what it printed."""
    lines = []
    places = os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": places, "PERMEA_PROGRESS": "0"}
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
    return "".join(lines).strip()


def averaged(outputs):
    """Outputs of the same benchmark for several seeds as one, numbers as mean ± deviation.

    >>> averaged(["| a | 0.50 |", "| a | 0.70 |"])
    '| a | 0.60 ± 0.14 |'
    """
    if len(outputs) == 1:
        return outputs[0]
    merged = []
    for lines in zip(*(output.splitlines() for output in outputs), strict=True):
        if len(set(lines)) == 1:
            merged.append(lines[0])
            continue
        cells = zip(*(line.split("|") for line in lines), strict=True)
        merged.append("|".join(_merged_cell([cell.strip() for cell in same]) for same in cells))
    return "\n".join(merged)


def _merged_cell(cells):
    if not cells[0]:
        return ""
    if len(set(cells)) == 1:
        return f" {cells[0]} "
    try:
        values = [float(cell) for cell in cells]
    except ValueError:
        return f" {' / '.join(dict.fromkeys(cells))} "
    digits = max(len(cell.partition(".")[2]) for cell in cells)
    return f" {statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f} "


def run(name, options, repeat=1, quick=False):
    """Run one benchmark and keep what it printed, unless it was a quick run."""
    words = [*(["--quick"] if quick else []), *options]
    command = " ".join(["python", f"benchmarks/{name}.py", *words])
    print(f"\n== {command}", flush=True)
    start = time.perf_counter()
    seeds = list(range(repeat))
    if repeat == 1:
        outputs = [printed(name, words)]
    else:
        outputs = [printed(name, [*words, "--seed", str(seed)]) for seed in seeds]
        command += f" --seed S, S = 0 … {repeat - 1}"
    if quick:
        return
    RESULTS.mkdir(exist_ok=True)
    kept = {
        "name": name,
        "title": title(name),
        "command": command,
        "seeds": seeds,
        "date": date.today().isoformat(),
        "seconds": round(time.perf_counter() - start, 1),
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            **{library: importlib.metadata.version(library) for library in LIBRARIES},
        },
        "as_written": is_as_written(name),
        "output": averaged(outputs),
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")


def page(name):
    """A page of the documentation as the stored results give it."""
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    mine = [kept for kept in results if is_speed(kept["name"]) == (name == "speed.md")]
    notes = speed_notes.notes() if name == "speed.md" else ""
    return "".join([HEADS[name], notes, *map(section, mine)])


def section(kept):
    versions = ", ".join(f"{name} {version}" for name, version in kept["versions"].items())
    picture = ""
    if kept["name"] in figures.FIGURES:
        picture = f"![{kept['title']}](figures/benchmark-{kept['name']}.svg)\n\n"
    comparison = beside.compared(kept["name"], kept["output"], "as_written" in kept)
    return (
        f"\n## {kept['title']}\n\n```console\n$ {kept['command']}\n```\n\n{kept['output']}\n\n"
        f"{comparison}{picture}"
        f"*{kept['date']}, {kept['seconds']} s, {kept['machine']}; {versions}.*\n"
    )


def write_pages():
    for name in HEADS:
        (DOCS / name).write_text(page(name))
    (DOCS / "results.md").write_text(glance.page())
    readme = FOLDER.parent / "README.md"
    readme.write_text(glance.with_readme_block(readme.read_text()))
    (DOCS / "reproduction.md").write_text(reproduction.page())


def chosen(arguments):
    """Names of the benchmarks that the command line asks for."""
    if arguments.all:
        return names()
    return [name for name in names() if is_speed(name)] if arguments.speed else arguments.names


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "action", choices=["list", "run", "report", "check"], nargs="?", default="list"
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--store", action="store_true", help="keep the ratios of check")
    parser.add_argument("--repeat", type=int, default=1, metavar="K")
    words = sys.argv[1:]
    options = words[words.index("--") + 1 :] if "--" in words else []
    arguments = parser.parse_args(words[: words.index("--")] if "--" in words else words)
    if arguments.action == "list":
        for name in names():
            print(f"{name:28} {title(name)}")
    elif arguments.action == "check":
        sys.exit(ratios.check(arguments.store))
    elif arguments.action == "report":
        write_pages()
        drawn = figures.draw_all(DOCS / "figures")
        print(f"wrote {', '.join([*HEADS, 'results.md'])} in {DOCS} and {len(drawn)} figures")
    else:
        unknown = sorted(set(arguments.names) - set(names()))
        if unknown or not chosen(arguments):
            parser.error(f"unknown or missing benchmark: {' '.join(unknown)}; see list")
        for name in chosen(arguments):
            run(name, options, max(1, arguments.repeat), arguments.quick)
        if not arguments.quick:
            write_pages()


if __name__ == "__main__":
    main()

"""Figures of the benchmark page, drawn from the tables that the stored results hold."""

import json
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Figure:
    """Columns of one table of a result as curves over another column."""

    text: str  #: first header cell and a word of the table that is meant
    x: str
    curves: dict[str, str]  #: label: column
    y_label: str
    only: tuple[str, str] | None = None  #: rows whose column (first) says so (second)
    log_x: bool = False


FIGURES = {
    "private_mnist": Figure(
        "ε per entry", "ε per entry",
        {
            "004": "004 accuracy", "document's order": "document's order: accuracy",
            "ours": "ours: accuracy",
        },
        "accuracy on MNIST, noised rows", ("rows", "noised"), True,
    ),
    "kahm_mnist": Figure(
        "N", "N", {"fit": "fit, s", "2048 predictions": "predict, s"}, "seconds",
    ),
    "scaling": Figure(
        "N × p", "N × p", {"004": "004, seconds", "ours": "seconds"}, "seconds for one machine",
        None, True,
    ),
    "private_digits": Figure(
        "ε per entry", "ε per entry",
        {"noised": "noised: accuracy", "fabricated": "fabricated, ours: accuracy"},
        "accuracy on digits", ("n", "20"), True,
    ),
}  # fmt: skip


def tables(output):
    """Markdown tables of a text, each as a list of dictionaries.

    >>> tables("text\\n| a | b |\\n|---|---|\\n| 1 | 2 |")
    [[{'a': '1', 'b': '2'}]]
    """
    found, header = [], None
    for line in output.splitlines():
        if not line.startswith("|"):
            header = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if header is None:
            header = cells
            found.append([])
        elif not set("".join(cells)) <= {"-", ":"}:
            found[-1].append(dict(zip(header, cells, strict=False)))
    return found


def draw(name, folder):
    """Draw the figure of one benchmark, if it has one and was run; its path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    stored = RESULTS / f"{name}.json"
    if name not in FIGURES or not stored.exists():
        return None
    wanted = FIGURES[name]
    candidates = [t for t in tables(json.loads(stored.read_text())["output"]) if wanted.x in t[0]]
    if not candidates:
        raise ValueError(f"{name} has no table with a column {wanted.x!r}: change FIGURES.")
    rows = candidates[0]
    if wanted.only:
        rows = [row for row in rows if row[wanted.only[0]] == wanted.only[1]]
    figure, axes = plt.subplots(figsize=(6, 3.2))
    for label, column in wanted.curves.items():
        points = [(number(row[wanted.x]), number(row[column])) for row in rows if row[column]]
        axes.plot(*zip(*points, strict=True), marker="o", label=label)
    axes.set_xlabel(wanted.x)
    axes.set_ylabel(wanted.y_label)
    if wanted.log_x:
        axes.set_xscale("log")
    axes.legend(frameon=False)
    path = Path(folder) / f"benchmark-{name}.svg"
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)
    return path


def number(cell):
    """The first number of a cell like ``0.98 ± 0.01``."""
    return float(cell.split()[0])


def draw_all(folder):
    """Every figure whose benchmark was run."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    return [path for path in (draw(name, folder) for name in FIGURES) if path is not None]

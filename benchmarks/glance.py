"""The page "Results at a glance": one table per question, every figure out of a stored result.

A cell names a benchmark, the heading of the first column of one of its tables, the beginning of a
row and a column. ``python -m benchmarks report`` looks all of them up and writes docs/results.md.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
STALE = "not in the stored result"
HEAD = (
    "# Results at a glance\n\n"
    "One table per question. Every figure is taken from the stored output of the command below its "
    "table, by\n`python -m benchmarks report`; a test compares them. All of the outputs, with "
    "dates, machines and versions, are on the pages of\n[benchmarks](benchmarks.md) and "
    "[speed](speed.md), and what differs from the documents 000 to 004 "
    "([references](references.md)) on\n[what we could not reproduce](not_reproduced.md). "
    "AUROC: 0.5 is guessing, 1 is perfect.\n"
)


@dataclass(frozen=True)
class Cell:
    """Where one figure stands."""

    benchmark: str
    heading: str
    row: str
    column: str
    nth: int = 0  #: of the tables with this heading


@dataclass(frozen=True)
class Question:
    """One question with its table: a label and cells per line, texts where nothing is looked up."""

    title: str
    answer: str
    head: tuple[str, ...]
    lines: tuple[tuple[str | Cell, ...], ...]

    @property
    def benchmarks(self):
        found = [cell.benchmark for line in self.lines for cell in line if isinstance(cell, Cell)]
        return list(dict.fromkeys(found))


def row(label, *cells):
    return (label, *cells)


def across(benchmark, heading, first, columns, nth=0):
    return [Cell(benchmark, heading, first, column, nth) for column in columns]


def _tables_peers(first):
    tables = ("adult", "support2", "framingham", "affairs")
    return [Cell("tables_peers", f"{t}: AUROC per record", first, "ε = 1") for t in tables]


def _synthetic(first):
    tables = ("adult", "support2", "framingham")
    return [
        Cell("synthetic_peers", f"{t}: AUROC / total variation", first, "ε = 1") for t in tables
    ]


_PERSON = ("ε = 1 per person", "ε = 4 per person")
_IMAGES = ("ε = 1 per record", "ε = 2 per record", "ε = 8 per record")
_SGD = ("1 | add/remove", "2 | add/remove", "8 | add/remove")
_STRESS = ("ε = 1 per person", "ε = 4 per person", "ε = 8 per person", "no privacy")
_ATTACKS = ("test accuracy", "loss", "distance", "lira_online")
_SCALE = ("CPU seconds", "peak, MiB", "AUROC")

QUESTIONS = (
    Question(
        "How good is a model that hides a whole person?",
        "Framingham, up to three examinations of each of 4434 people; AUROC for a cardiovascular "
        "event on people that the model has not seen, ± over ten splits, δ = 1e-6.",
        ("way", *_PERSON),
        tuple(
            row(label, *across("tables_person", "AUROC", first, _PERSON))
            for label, first in (
                ("permea: all rows of a person count as one", "rows weighted 1/m"),
                ("first examination only", "first examination only"),
                ("group privacy for three rows", "group privacy, three rows"),
                ("no privacy, logistic regression", "no privacy, logistic"),
            )
        ),
    ),
    Question(
        "How does that compare with other libraries, per record?",
        "AUROC at ε = 1 per record, means over splits. DP-EBM and DP-SGD hide that a record is "
        "added or removed, which the second line compares with; diffprivlib hides a replaced one. "
        "δ = 1e-6, for diffprivlib 0.",
        ("way", "Adult", "SUPPORT2", "Framingham", "affairs"),
        tuple(
            row(label, *_tables_peers(first))
            for label, first in (
                ("permea, one record replaced", "permea, one replaced"),
                ("permea, add/remove", "permea, add/remove"),
                ("DP-EBM (interpret)", "DP-EBM"),
                ("DP-SGD, logistic (Opacus)", "DP-SGD, logistic"),
                ("diffprivlib, logistic", "diffprivlib, logistic"),
            )
        ),
    ),
    Question(
        "And on images?",
        "MNIST-60000 with whole records hidden, δ = 1e-5; accuracy on the test rows, in brackets "
        "the lowest of five. Deep networks with DP-SGD win on larger images: permea has none.",
        ("way", *_IMAGES),
        (
            row("permea: class hulls and ridge, add/remove", *across(
                "hulls_mnist", "model", "hulls (likelihood) and ridge, one release", _IMAGES)),
            row("permea: ridge from moments, add/remove", *[
                Cell("moments_mnist", "model", f"moments, gradients | {e}", "accuracy, mean")
                for e in _SGD]),
            row("DP-SGD, linear on the same gradients, add/remove", *[
                Cell("moments_mnist", "model", f"DP-SGD, linear on gradients | {e}",
                     "accuracy, mean") for e in _SGD]),
            row("DP-SGD, network on pixels, add/remove", *[
                Cell("moments_mnist", "model", f"DP-SGD, network on pixels | {e}",
                     "accuracy, mean") for e in _SGD]),
        ),
    ),
    Question(
        "Can a synthetic table take the place of the real one?",
        "AUROC of a model trained on the synthetic table and tested on real rows, and the mean "
        "total variation of all pairs of columns (0 is best), at ε = 1 per record (add/remove), "
        "δ = 1e-6.",
        ("way", "Adult", "SUPPORT2", "Framingham"),
        tuple(
            row(label, *_synthetic(first))
            for label, first in (
                ("permea", "permea (5 runs)"),
                ("MST", "MST (1 run)"),
                ("AIM, short", "AIM (1 run)"),
                ("PrivBayes", "PrivBayes (1 run)"),
                ("the real rows", "real rows"),
            )
        ),
    ),
    Question(
        "What does a federation lose?",
        "MNIST at ε = 1 per record, δ = 1e-5, divided among ten parties; accuracy.",
        ("one owner of all rows", "moments of ten parties added up",
         "ten models, nearest class wins", "best party alone"),
        ((*across("hulls_federation", "parties", "1", ("one owner",)),
          *across("hulls_federation", "parties", "10", (
              "moments added up", "minimum of distances", "best party"))),),
    ),
    Question(
        "What do attacks reach?",
        "Shares of right guesses about who was in the training data of digits; 0.5 is guessing. "
        "Noise is per entry here, the weaker way.",
        ("ε per entry", "test accuracy", "loss", "distance", "shadow models (LiRA)"),
        tuple(
            row(label, *across("audit_tables", "ε per entry", first, _ATTACKS, nth=1))
            for label, first in (("no privacy", "none"), ("10", "10"), ("5", "5"), ("1", "1"))
        ),
    ),
    Question(
        "Would an audit notice a broken promise?",
        "What the white-box audit finds at least, of a claim of ε = 1 per record.",
        ("mechanism", "ε at least", "verdict"),
        tuple(
            row(first, *across("audit_mechanisms", "mechanism", first,
                               ("white box: at least", "verdict")))
            for first in ("honest", "half the noise", "no clipping", "centred at the exact mean",
                          "keystream used for two releases")
        ),
    ),
    Question(
        "How large may a table be?",
        "A private fit of 20 columns in Parquet, one process, ε = 1 per record, δ = 1e-9.",
        ("rows", "processor time, s", "peak memory, MiB", "AUROC"),
        tuple(
            row(first, *across("tables_scale", "rows", first, _SCALE))
            for first in ("5 million", "50 million")
        ),
    ),
    Question(
        "Few labels of my own, and somebody else's model?",
        "MNIST to USPS with ten labels per class; accuracy in %.",
        ("way", "accuracy, %"),
        tuple(
            row(first, Cell("transfer_records", "method", first, "accuracy, %"))
            for first in ("consensus, ε = 1 per record (replace)", "its source alone",
                          "label spreading, pixels", "label spreading, gradient features")
        ),
    ),
    Question(
        "Does it help with heart beats?",
        "AUROC for stress on people that the model has not seen, from heart rate variability. With "
        "21 and 32 people there is not enough to learn from; with 200 simulated ones there is.",
        ("people", *_STRESS),
        tuple(
            row(f"{first}", *across("stress_private", "set", first, _STRESS, nth=1))
            for first in ("cogload1", "stress_predict", "synthetic")
        ),
    ),
    Question(
        "Do the figures of the documents hold?",
        "Accuracy on MNIST with noise on rows, beside 004 Table 5.",
        ("ε per entry", "as printed in 004", "measured"),
        tuple(
            row(epsilon, *across("private_mnist", "ε per entry", f"{epsilon} | 20 | noised",
                                 ("004 accuracy", "document's order: accuracy")))
            for epsilon in ("1", "4", "16")
        ),
    ),
)  # fmt: skip


START, END = "<!-- figures: python -m benchmarks report -->", "<!-- end of figures -->"
IN_README = (
    (
        "a whole **person** hidden: AUROC on Framingham, ε = 1 per person, δ = 1e-6",
        Cell("tables_person", "AUROC", "rows weighted 1/m", "ε = 1 per person"),
        (("without privacy", Cell("tables_person", "AUROC", "no privacy, logistic",
                                  "ε = 1 per person")),),
    ),
    (
        "a whole **record** hidden: AUROC on Adult, ε = 1 per record, δ = 1e-6 (add/remove)",
        Cell("tables_peers", "adult: AUROC per record", "permea, add/remove", "ε = 1"),
        tuple(
            (name, Cell("tables_peers", "adult: AUROC per record", first, "ε = 1"))
            for name, first in (("DP-SGD", "DP-SGD, logistic"), ("DP-EBM", "DP-EBM"),
                                ("diffprivlib", "diffprivlib, logistic"))
        ),
    ),
    (
        "a whole **image** hidden: accuracy on MNIST, ε = 1 per record, δ = 1e-5 (add/remove)",
        Cell("hulls_mnist", "model", "hulls (likelihood) and ridge, one release",
             "ε = 1 per record"),
        (("DP-SGD, best here", Cell("moments_mnist", "model",
                                    "DP-SGD, linear on gradients | 1 | add/remove",
                                    "accuracy, mean")),),
    ),
)  # fmt: skip


def readme_block():
    """The three figures of the README, with the commands that print them."""
    lines = [START, "| | permea | beside it | `python -m benchmarks run …` |", "|---|---|---|---|"]
    for what, ours, others in IN_README:
        beside = ", ".join(f"{name} {_first(look_up(cell))}" for name, cell in others)
        cells = [ours, *(cell for _, cell in others)]
        commands = " ".join(f"`{name}`" for name in dict.fromkeys(one.benchmark for one in cells))
        lines.append(f"| {what} | **{_first(look_up(ours))}** | {beside} | {commands} |")
    return "\n".join([*lines, END])


def _first(text):
    """The mean, without the deviation or the lowest run behind it."""
    return text if text == STALE else text.split()[0]


def with_readme_block(text):
    """A README with its figures as they are stored."""
    before, _, rest = text.partition(START)
    return before + readme_block() + rest.partition(END)[2]


@cache
def tables(benchmark):
    """The tables in the stored output of a benchmark: lists of rows of cells, headings first."""
    found, current = [], []
    output = json.loads((RESULTS / f"{benchmark}.json").read_text())["output"]
    for line in [*output.splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if set("".join(cells)) - set("-: "):
                current.append(cells)
        elif current:
            found.append(current)
            current = []
    return found


def look_up(cell):
    """The text of a cell; `STALE` where the stored result has it no longer."""
    if isinstance(cell, str):
        return cell
    if not (RESULTS / f"{cell.benchmark}.json").exists():
        return STALE
    fitting = [one for one in tables(cell.benchmark) if one[0][0] == cell.heading]
    if len(fitting) <= cell.nth or cell.column not in fitting[cell.nth][0]:
        return STALE
    head, *rows = fitting[cell.nth]
    for one in rows:
        if " | ".join([*one, ""]).startswith(f"{cell.row} | "):
            return one[head.index(cell.column)]
    return STALE


def page():
    return HEAD + "".join(map(section, QUESTIONS))


def section(question):
    rows = [question.head, ["---"] * len(question.head)]
    rows += [[look_up(cell) for cell in line] for line in question.lines]
    made = "\n".join("| " + " | ".join(one) + " |" for one in rows)
    commands = "\n".join(
        "$ " + json.loads((RESULTS / f"{name}.json").read_text())["command"]
        for name in question.benchmarks
        if (RESULTS / f"{name}.json").exists()
    )
    return f"\n## {question.title}\n\n{question.answer}\n\n{made}\n\n```console\n{commands}\n```\n"

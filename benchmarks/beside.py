"""Our figures beside the documents': the difference, and one sentence where they differ.

A comparison names columns or rows of the tables that a stored result holds, so that nothing on the
page is written by hand but the sentence. ``noise`` is what two honest runs may differ by; for an
accuracy on ``scored`` rows it is two standard errors of the difference. A difference beyond it
without a sentence is an error.
"""

import math
from dataclasses import dataclass

from benchmarks.figures import number, tables


@dataclass(frozen=True)
class Columns:
    """Two columns of one table, row by row."""

    what: str
    ours: str
    theirs: str | dict[str, float]  #: a column, or the printed figures by the row's first keys
    keys: tuple[str, ...]  #: columns that name a row
    noise: float = 0.0
    why: str = ""
    scored: int = 0
    tables: int = 9  #: how many of the tables with these columns are meant
    above: bool = False  #: the claim is that ours is not below theirs

    def gap(self, ours, theirs):
        """How far a figure is from what is claimed."""
        difference = number(ours) - number(theirs)
        return max(-difference, 0.0) if self.above else abs(difference)

    def beyond(self, ours, theirs):
        """Whether that is more than two honest runs may differ by."""
        return self.gap(ours, theirs) > _noise(self, number(theirs)) + 1e-12

    def pairs(self, found):
        fitting = [rows for rows in found if {self.ours, *self.keys} <= set(rows[0])]
        for rows in fitting[: self.tables]:
            for row in rows:
                name = ", ".join(f"{key} = {row[key]}" for key in self.keys)
                if isinstance(self.theirs, dict):
                    theirs = self.theirs.get(", ".join(row[key] for key in self.keys), "")
                else:
                    theirs = row.get(self.theirs, "")
                if _is_number(theirs) and _is_number(row[self.ours]):
                    yield name, row[self.ours], str(theirs)


@dataclass(frozen=True)
class Rows:
    """Two rows of one table, column by column."""

    what: str
    ours: str  #: first cell of our row
    theirs: str  #: first cell of the document's row
    noise: float = 0.0
    why: str = ""
    scored: int = 0

    gap, beyond, above = Columns.gap, Columns.beyond, False

    def pairs(self, found):
        for rows in found:
            first = next(iter(rows[0]))
            by_name = {row[first]: row for row in rows}
            if not {self.ours, self.theirs} <= set(by_name):
                continue
            for column in list(rows[0])[1:]:
                ours, theirs = by_name[self.ours][column], by_name[self.theirs][column]
                if ours and theirs:
                    yield column if "ε" in column else f"{first} {column}", ours, theirs


LITERAL = (
    "A classifier labels the rows that it then learns from, and first mistakes stay: see what we "
    "could not reproduce."
)
OTHER_DATA = (
    "Other recordings than the document's, which are not public: read the order, not the level."
)
OTHER_IMAGES = (
    "Other images and other features, because the document's are not public: read ranks and gaps, "
    "not levels."
)
COMPARISONS = {
    "audit_mis": (
        Rows("004 Table 5, mis", "10000 rows each", "004 Table 5", 0.003,
             "The document does not say how widths and penalties of its estimator were chosen."),
    ),
    "private_mnist": (
        Columns("004 Table 5, accuracy, document's order", "document's order: accuracy",
                "004 accuracy", ("ε per entry", "rows"), scored=10_000),
        Columns("004 Table 5, accuracy, noise first", "ours: accuracy", "004 accuracy",
                ("ε per entry", "rows"), scored=10_000),
        Columns("004 Table 5, mis, document's order", "document's order: mis", "004 mis",
                ("ε per entry", "rows"), 0.003,
                "The table compares with the first 3000 test rows, which are the easier ones: "
                "see the ablation audit_mis."),
    ),
    "federation_mnist": (
        Columns("004 Tables 8 and 9, accuracy, federated", "federated", "004: federated",
                ("ε per pixel",), 0.0034),
        Columns("004 Tables 8 and 9, change by federation", "change", "004: change",
                ("ε per pixel",), 0.0034),
        Columns("004 Table 10, change by federation", "change of accuracy",
                "004: change of accuracy", ("parties",), 0.0034),
    ),
    "information_mnist": (
        Columns("003 Table 3, privacy leakage in nats", "privacy leakage",
                {"0.1": -50.72, "10": 362.83}, ("ε per entry",), 7.0,
                "Number and choice of the inducing points and the width of the kernel change it by "
                "more than this difference: see the ablation information_ablation."),
        Columns("003 Table 3, interpretability in nats", "interpretability",
                {"0.1": -2.14, "10": 5.44}, ("ε per entry",), 0.33,
                "Other rows change it by 0.2, another number of inducing points by 1.4: see the "
                "ablation information_ablation."),
        Columns("003 Table 3, transferability in nats", "transferability",
                {"0.1": -664.52, "10": 451.93}, ("ε per entry",), 1.0,
                "It depends on the rows of a branch of the source and on the numbers of rows: see "
                "what we could not reproduce."),
        Columns("003 Table 3, accuracy of transfer", "transfer accuracy",
                {"0.1": 0.951, "10": 0.992}, ("ε per entry",), scored=1000,
                why="Which 1000 rows are scored and labelled moves it by more than this: see "
                    "what we could not reproduce."),
    ),
    "kahm_peers": (
        Columns("004 Table 3, accuracy in %", "accuracy, %", "004 accuracy", ("classifier",), 1.0,
                OTHER_IMAGES),
        Columns("004 Table 4, AUC", "AUC", "004 AUC", ("classifier",), 0.003, OTHER_IMAGES),
    ),
    "scaling": (
        Columns("004 Table 11, seconds", "seconds", "004, seconds", ("N × p",), 0.0,
                "Another language and another machine."),
    ),
    "stress": (
        Columns("003 Table 17, accuracy of transfer, median", "consensus",
                {"cogload1, random, 0.1": 0.9647, "stress_predict, random, 0.1": 0.9647},
                ("set", "split", "ε per entry"), 0.02, OTHER_DATA, tables=1),
    ),
    "stress_private": (
        Columns("004 Table 7, accuracy, noised", "noised: accuracy", "noised: 004",
                ("(ε per entry, n)",), 0.01, OTHER_DATA),
        Columns("004 Table 7, accuracy, fabricated", "fabricated: accuracy", "fabricated: 004",
                ("(ε per entry, n)",), 0.01, OTHER_DATA),
    ),
    "stress_fabricated": (
        Columns("004 Table 7, accuracy, fabricated", "fabricated: accuracy", "fabricated: 004",
                ("(ε per entry, n)",), 0.01, OTHER_DATA),
        Columns("004 Table 7, accuracy, noised", "noised: accuracy", "noised: 004",
                ("(ε per entry, n)",), 0.01, OTHER_DATA),
        Columns("004 Table 7, mis, fabricated", "fabricated: mis", "fabricated: 004 mis",
                ("(ε per entry, n)",), 0.003, OTHER_DATA),
        Columns("004 Table 7, mis, noised", "noised: mis", "noised: 004 mis",
                ("(ε per entry, n)",), 0.003, OTHER_DATA),
    ),
    "fuzzy_peers": (
        Columns("002 Table 4.2, accuracy in %", "accuracy, %", "002 groceries", ("classifier",),
                1.0, OTHER_IMAGES),
        Columns("002 Table 4.3, accuracy in %", "accuracy, %", "002 Caltech-101", ("classifier",),
                1.0, OTHER_IMAGES),
        Columns("002 Table 4.4, accuracy in %", "accuracy, %", "002 Caltech-256", ("classifier",),
                1.0, OTHER_IMAGES),
    ),
    "family_noise_robustness": (
        Rows("002 Table 4.1, accuracy", "fuzzy", "002, proposed", scored=10_000),
    ),
    "transfer_mnist": (
        Columns("001 Table 1.1, accuracy", "accuracy", "001", ("ε per entry",), 0.0062,
                "Ours is the library's own method: it gains where the source survives the noise."),
        Columns("000 Table 1, accuracy", "accuracy", "000", ("ε per entry",), 0.0062,
                "Ours is the library's own method."),
    ),
    "transfer_documents": (
        Columns("001 Table 1.1 and 000 Table 1, accuracy, as written", "accuracy", "document",
                ("method", "ε per entry"), scored=1000, why=LITERAL),
    ),
    "noise_mechanisms": (
        Columns("002 Figure 2.1, gain r(δ)", "classical / optimal",
                {"0.5, 0.1": 1.993, "0.5, 0.001": 3.020, "0.5, 1e-06": 4.228, "0.5, 1e-09": 5.164},
                ("ε per entry", "δ per entry"), 0.01),
        Columns("002 Figures 4.1 and 4.2, accuracy, optimal not below the classical Gaussian",
                "optimal noise", "classical Gaussian", ("ε per entry", "δ per entry"),
                scored=2000, above=True),
    ),
    "information_example1": (
        Columns("003 Figure 3, leakage in nats beside theory", "003 (error)", "theory", ("σ",),
                0.2),
    ),
    "transfer_usps_documents": (
        Columns("000 Table 2 and 001 Table 1.2, accuracy in %, as written", "accuracy, %",
                "document, %", ("method", "ε per entry"), 1.7,
                "One choice of labels moves it by about 0.9; what first labels get wrong stays."),
    ),
    "transfer_mnist_usps": (
        Columns("000 Table 2, accuracy in %, the library's own method", "accuracy, %",
                {"consensus, ε = 0.1 per entry": 93.01}, ("method",), 0.6,
                "Ours is the library's own method."),
        Columns("001 Table 1.2, accuracy in %", "accuracy, %",
                {"consensus, ε = 0.1 per entry": 92.23}, ("method",), 0.6,
                "Ours is the library's own method."),
    ),
    "transfer_usps_mnist": (
        Columns("001 Table 1.3, accuracy in %", "consensus, %", "001, %", ("labels",), 0.4,
                "Ours starts higher and rises less: see what we could not reproduce."),
        Columns("001 Table 1.3, the document's method on 60000 rows, accuracy in %",
                "source2target, %", "001, %", ("labels",), 0.4,
                "The document does not say how many target rows it has, nor which are labelled."),
    ),
}  # fmt: skip


def _is_number(cell):
    """Whether a cell begins with a number.

    >>> _is_number("0.98 ± 0.01"), _is_number("not valid"), _is_number("")
    (True, False, False)
    """
    try:
        float(str(cell).split()[0])
    except (ValueError, IndexError):
        return False
    return True


def headed(output, words):
    """Tables whose heading, the text before them, has some words.

    >>> headed("**One**\\n| a |\\n|---|\\n| 1 |\\n\\n**Two**\\n| a |\\n|---|\\n| 2 |", "Two")
    [[{'a': '2'}]]
    """
    found, heading, block = [], "", []
    for line in [*output.splitlines(), ""]:
        if line.startswith("|"):
            block.append(line)
        elif block:
            found += tables("\n".join(block)) if words in heading else []
            heading, block = line, []
        else:
            heading += line
    return found


def _decimals(cell):
    return len(cell.split()[0].partition(".")[2])


def _noise(comparison, share):
    """What two runs may differ by around a share of right answers."""
    if not comparison.scored:
        return comparison.noise
    return 2 * math.sqrt(2 * share * (1 - share) / comparison.scored)


def compared(name, output, complete=True):
    """Markdown that sets the figures of a result beside the documents'; empty without any.

    A result may have some of the points only, and then lacks the figures of some comparisons. With
    ``complete`` it must have those of one at least.

    >>> print(compared("kahm_peers", "| classifier | accuracy, % | 004 accuracy |\\n|---|---|---|"
    ...                "\\n| KAHM | 92.30 | 92.29 |"))
    | beside the document | ours | document | difference |
    |---|---|---|---|
    | 004 Table 3, accuracy in %: classifier = KAHM | 92.30 | 92.29 | +0.01 |
    <BLANKLINE>
    <BLANKLINE>
    """
    lines, sentences = [], []
    found = tables(output)
    for comparison in COMPARISONS.get(name, ()):
        beyond = False
        pairs = list(comparison.pairs(found))
        for row, ours, theirs in pairs:
            difference = number(ours) - number(theirs)
            digits = max(_decimals(ours), _decimals(theirs))
            cells = (f"{comparison.what}: {row}", ours, theirs, f"{difference:+.{digits}f}")
            lines.append("| " + " | ".join(cells) + " |")
            beyond = beyond or comparison.beyond(ours, theirs)
        if beyond and not comparison.why:
            raise ValueError(f"{name}, {comparison.what}: beyond its noise, and no sentence why.")
        if beyond:
            sentences.append(f"*{comparison.what}*: {comparison.why}")
    if not lines and complete and name in COMPARISONS:
        raise ValueError(f"{name} has no figures for any comparison: change COMPARISONS.")
    if not lines:
        return ""
    head = ["| beside the document | ours | document | difference |", "|---|---|---|---|"]
    return "\n".join([*head, *lines, "", *(f"{sentence}\n" for sentence in sentences), ""])

"""Every table and figure with numbers in the five documents, and what became of it here.

``python -m benchmarks report`` renders ``docs/reproduction.md`` from the stored results. The state
of a row is computed: *reproduced* when every figure lies within the noise that
`benchmarks.beside` states, *differs* when one does not, *not done* when nothing is stored. Only
sentences are written by hand, and a difference without one is an error.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import beside
from benchmarks.figures import number, tables

RESULTS = Path(__file__).parent / "results"
DOCUMENTS = {"000": 15 + 1, "001": 16 + 2, "002": 4 + 5, "003": 15 + 3, "004": 9 + 6}
HEAD = """# What is reproduced

Every table and figure with numbers in the five documents, one row each. The page is rendered from the stored results of the
[benchmarks](benchmarks.md) by `python -m benchmarks report`, and a test checks that it matches them. 000 to 004 are listed under
[references](references.md); why something differs is told at length on the page [what we could not reproduce](not_reproduced.md).

| state | meaning |
|---|---|
| reproduced | every figure that was measured lies within the noise of two honest runs |
| differs | at least one does not; the sentence says why |
| stand-in | the document's data are not public; the same comparison on public data, for ranks and gaps |
| not done | could be run, and was not |

"As written" says whether everything was configured by `permea.documents`; *earlier* marks results from before, with the library's own
settings where the two differ (standardised outputs, features that never vary left out, k-means of scaled inputs).
Every ε is per entry.
"""  # noqa: E501


@dataclass(frozen=True)
class Claim:
    """One table or figure."""

    where: str
    what: str
    benchmark: str = ""  #: whose stored result is read
    labels: tuple[str, ...] = ()  #: comparisons of that benchmark, by the start of their text
    only: str = ""  #: rows of the comparison whose name contains this
    state: str = ""  #: where it is not computed
    why: str = ""  #: beside the sentences of the comparisons
    command: str = ""  #: where it is not that of the benchmark
    checks: tuple[str, ...] = field(default=())  #: tests that show it, in place of a benchmark


SAME_SETTINGS = ("private_mnist", "kahm_peers", "scaling")  # had those of permea.documents before
NOT_PUBLIC = (
    "The features are not public; `fuzzy_peers` has one point, ε = 0.1 and δ = 1e-6, on others."
)
OFFICE = "VGG features and splits are not public; read the ranks of EfficientNet features."
PAIRS = [f"{a}→{b}" for a in "acdw" for b in "acdw" if a != b]
NAMES = {"a": "amazon", "c": "caltech256", "d": "dslr", "w": "webcam"}


def _office(document, first, row, what):
    """Twelve tables, one for each pair of domains."""
    head = "" if document != "001" else "1."
    for place, pair in enumerate(PAIRS):
        source, target = (NAMES[letter] for letter in pair.split("→"))
        yield Claim(
            f"{document} Table {head}{first + place}", f"{source} → {target}, {what}",
            "transfer_office", (f"{row}: {pair}",), state="stand-in", why=OFFICE,
        )  # fmt: skip


def claims():
    """All rows, document by document."""
    return [*_of_000(), *_of_001(), *_of_002(), *_of_003(), *_of_004()]


def _of_000():
    return [
        Claim("000 Figure 8", "accuracy on MNIST over ε (a curve)", "transfer_documents",
              ("001 Table 1.1 and 000 Table 1",), "centers",
              why="Measured at ε = 2 and 8 only."),
        Claim("000 Table 1", "MNIST, ε = 2, 8 and ∞", "transfer_documents",
              ("001 Table 1.1 and 000 Table 1",), "centers"),
        Claim("000 Table 2", "MNIST → USPS, ε = 0.1", "transfer_usps_documents", ("000 Table 2",),
              "centers", why="The library's own method: `transfer_mnist_usps`."),
        Claim("000 Table 3", "Office+Caltech, mean of twelve pairs", "transfer_office",
              ("centers, ε = 0.1: mean",), state="stand-in", why=OFFICE),
        *_office("000", 4, "centers, ε = 0.1", "class centres, ε = 0.1"),
    ]  # fmt: skip


def _of_001():
    return [
        Claim("001 Table 1.1", "MNIST, ε = 0.1 to 1", "transfer_documents",
              ("001 Table 1.1 and 000 Table 1",), "source2target"),
        Claim("001 Table 1.2", "MNIST → USPS, ε = 0.1", "transfer_usps_documents",
              ("000 Table 2",), "source2target",
              why="The library's own method: `transfer_mnist_usps`."),
        Claim("001 Table 1.3", "USPS → MNIST, 100 to 500 labels", "transfer_usps_mnist",
              ("001 Table 1.3, the document's method",),
              why="Run with three of the five numbers of labels."),
        *_office("001", 4, "source2target, ε = 0.1", "source2target, ε = 0.1"),
        Claim("001 Table 1.16", "how often each method is best", "transfer_office",
              ("source2target, ε = 0.1: mean",), state="stand-in", why=OFFICE),
        Claim("001 Figure 3.1", "membership attacks by metrics over ε", "audit_tables",
              state="stand-in", why="The fabricated patients' data are not public; two public "
              "tables stand in. As there, no attack does better than guessing under noise."),
        Claim("001 Figure 3.2", "membership attacks by shadow models over ε", "audit_tables",
              state="stand-in", why="As for Figure 3.1."),
    ]  # fmt: skip


def _of_002():
    fuzzy = (
        "As there, the fuzzy classifier is first and optimal noise costs it less than the "
        "classical Gaussian, which costs far less than there: 10 classes in place of 25 to 257."
    )
    tables_4 = "ranks of the fuzzy classifier, and optimal beside classical Gaussian noise"
    return [
        Claim("002 Figure 2.1", "gain r(δ) over the classical Gaussian", "noise_mechanisms",
              ("002 Figure 2.1",), checks=("tests/privacy/test_noise_laws.py",)),
        Claim("002 Table 4.1", "accuracy on noisy MNIST digits", "family_noise_robustness",
              ("002 Table 4.1",)),
        Claim("002 Table 4.2", f"groceries: {tables_4}", "fuzzy_peers", ("002 Table 4.2",),
              state="stand-in", why=fuzzy),
        Claim("002 Table 4.3", f"Caltech-101: {tables_4}", "fuzzy_peers", ("002 Table 4.3",),
              state="stand-in", why=fuzzy),
        Claim("002 Table 4.4", f"Caltech-256: {tables_4}", "fuzzy_peers", ("002 Table 4.4",),
              state="stand-in", why=fuzzy),
        Claim("002 Figure 4.1", "MNIST over ε: optimal beside Gaussian noise (curves)",
              "noise_mechanisms", ("002 Figures 4.1 and 4.2",),
              why="10000 training rows, one noise for each point; the claim is the order."),
        Claim("002 Figure 4.2", "MNIST over δ: optimal beside Gaussian noise (curves)",
              "noise_mechanisms", ("002 Figures 4.1 and 4.2",),
              why="10000 training rows, one noise for each point; the claim is the order."),
        Claim("002 Figure 4.3", "groceries over ε (curves)", state="not done", why=NOT_PUBLIC),
        Claim("002 Figure 4.4", "groceries over δ (curves)", state="not done", why=NOT_PUBLIC),
    ]  # fmt: skip


def _of_003():
    stress = "The recordings are not public; CogLoad1 and Stress-Predict stand in."
    rows = [
        Claim("003 Figure 3", "leakage of Gaussian variables beside theory",
              "information_example1", ("003 Figure 3",)),
        Claim("003 Figure 4", "trade-off curves on MNIST", "information_mnist",
              ("003 Table 3",), why="Their ends are Table 3."),
        Claim("003 Table 3", "measures and accuracies on MNIST", "information_mnist",
              ("003 Table 3",)),
    ]  # fmt: skip
    for place, pair in enumerate(PAIRS):
        source, target = (NAMES[letter] for letter in pair.split("→"))
        rows.append(Claim(
            f"003 Table {4 + place}", f"{source} → {target}, models selected by a measure",
            state="not done", why="Principal components of VGG features, which are not public; "
            "Algorithm 9 was not run on the features that stand in.",
            command="`permea study` on any table",
        ))  # fmt: skip
    rows += [
        Claim("003 Table 16", "how often each method is best", state="not done",
              why="As for Tables 4 to 15."),
        Claim("003 Figure 6", "accuracies on 48 people (box plots)", "stress",
              ("003 Table 17",), state="stand-in", why=stress),
        Claim("003 Table 17", "measures and accuracies of stress detection", "stress",
              ("003 Table 17",), state="stand-in", why=stress),
    ]  # fmt: skip
    return rows


def _of_004():
    groceries = "Features of the grocery images are not public."
    return [
        Claim("004 Table 3", "accuracy on groceries beside peers", "kahm_peers",
              ("004 Table 3",), state="stand-in"),
        Claim("004 Table 4", "area under the curve beside peers", "kahm_peers", ("004 Table 4",),
              state="stand-in", why="KAHM's score is best in the document and fourth here, "
              "because Definition 8 divides by the distances to all classes: over the distance to "
              "the nearest other class it is first (`kahm_scores`)."),
        Claim("004 Table 5", "private MNIST: accuracy and score", "private_mnist",
              ("004 Table 5, accuracy, document's order", "004 Table 5, mis, document's order"),
              why="Five of the fourteen settings."),
        Claim("004 Table 6", "private groceries: accuracy and score", state="not done",
              why=groceries + " Fabrication was not measured on those that stand in."),
        Claim("004 Table 7", "private stress detection: accuracy and score", "stress_fabricated",
              ("004 Table 7",), state="stand-in"),
        Claim("004 Table 8", "federation, a class with one party", "federation_mnist",
              ("004 Tables 8 and 9",), "Scenario 1"),
        Claim("004 Table 9", "federation, a class with two parties", "federation_mnist",
              ("004 Tables 8 and 9",), "Scenario 2"),
        Claim("004 Table 10", "federation of Q parties", "federation_mnist", ("004 Table 10",)),
        Claim("004 Table 11", "time by data size", "scaling", ("004 Table 11",)),
        Claim("004 Figure 12", "MNIST with fabricated rows (Table 5 as a picture)",
              "private_mnist", ("004 Table 5, accuracy, document's order",)),
        Claim("004 Figure 13", "histograms of distances on MNIST", "private_mnist",
              ("004 Table 5, mis, document's order",), why="Drawn in the gallery."),
        Claim("004 Figure 14", "losses by fabrication in % (Tables 6 and 7 as a picture)",
              "stress_fabricated", ("004 Table 7",), state="stand-in"),
        Claim("004 Figure 15", "histograms of distances on groceries", state="stand-in",
              why=groceries + " The gallery draws them for digits.", command="`make docs`"),
        Claim("004 Figure 16", "federation (Tables 8 to 10 as a picture)", "federation_mnist",
              ("004 Tables 8 and 9", "004 Table 10")),
        Claim("004 Figure 17", "time over p, n and N", "scaling", ("004 Table 11",)),
    ]  # fmt: skip


def stored(name):
    """The stored result of a benchmark, or None."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if name and path.exists() else None


def office(output, label):
    """Our EfficientNet figure and the document's VGG figure of one method and pair (or mean)."""
    row, column = label.split(": ")
    method = f"{row} per entry"
    _, network = (found for found in tables(output) if "rank" in found[0])
    printed = next(found for found in tables(output) if "document" in found[0])
    mine, theirs = (
        next(one[column] for one in rows if one["method"] == method) for rows in (network, printed)
    )
    return [(label, mine, theirs, abs(number(mine) - number(theirs)), None)]


def pairs_of(claim, output):
    """(name, ours, theirs, gap, comparison) of every figure of a claim."""
    if claim.benchmark == "transfer_office":
        return office(output, claim.labels[0])
    found, headed = [], beside.headed(output, claim.only) if claim.only else []
    for comparison in beside.COMPARISONS.get(claim.benchmark, ()):
        if not comparison.what.startswith(claim.labels or ("–",)):
            continue
        for name, ours, theirs in comparison.pairs(headed or tables(output)):
            if headed or claim.only in name:
                gap = comparison.gap(ours, theirs)
                found.append((f"{comparison.what}: {name}", ours, theirs, gap, comparison))
    return found


def row_of(claim):
    """State, figures, sentence and command of one claim."""
    result = stored(claim.benchmark)
    found = [] if result is None else pairs_of(claim, result["output"])
    beyond = [one for one in found if one[4] is None or one[4].beyond(one[1], one[2])]
    state = claim.state
    if not state and claim.benchmark:
        state = "not done" if not found else "differs" if beyond else "reproduced"
    sentences = list(dict.fromkeys(one[4].why for one in beyond if one[4] and one[4].why))
    why = " ".join([claim.why, *(s for s in sentences if s not in claim.why)]).strip()
    if state == "differs" and not why:
        raise ValueError(f"{claim.where} differs from the document, and no sentence says why.")
    figures = ""
    if found:
        name, ours, theirs, _, how = max(found, key=lambda one: one[3])
        other = how.theirs if how and how.above else "document"  # another column of ours
        count = f"{len(found)} figures; farthest: " if len(found) > 1 else ""
        figures = f"{count}{name.split(': ')[-1]}: {ours}, {other} {theirs}"
    command = claim.command or (f"`python -m benchmarks run {claim.benchmark}`"
                                if claim.benchmark else "–")  # fmt: skip
    written = "–"
    if result is not None and found:
        same = result.get("as_written") or claim.benchmark in SAME_SETTINGS
        written = "yes" if same else "earlier"
    return [claim.where, claim.what, state, figures, written, why, command]


def page():
    """``docs/reproduction.md``."""
    rows = [row_of(claim) for claim in claims()]
    counts = {state: sum(row[2] == state for row in rows)
              for state in ("reproduced", "differs", "stand-in", "not done")}  # fmt: skip
    lines = [HEAD, ", ".join(f"{count} {state}" for state, count in counts.items()) + ".\n"]
    head = ["where", "what", "state", "figures", "as written", "why, and what to know", "command"]
    lines += ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"

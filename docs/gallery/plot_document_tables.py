"""
The tables of document 004 as pictures
======================================

From the stored results of the benchmarks, beside what the document prints: accuracy and score of
classifiers of noised and of fabricated rows (Fig. 12), what fabrication costs and saves in per cent
(Fig. 14), and what a federation loses (Fig. 16). Every ε is per entry. The commands and settings
stand on the page of benchmarks.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

root = next(
    folder for folder in [Path.cwd(), *Path.cwd().parents] if (folder / "benchmarks").is_dir()
)
sys.path.insert(0, str(root))

from benchmarks.figures import number, tables
from benchmarks.reproduction import stored


def rows_with(name, column):
    """Rows of all tables of a stored result that have a column."""
    result = stored(name)
    found = [] if result is None else tables(result["output"])
    return [row for rows in found if column in rows[0] for row in rows if row[column]]


figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for kind, colour in (("noised", "C0"), ("fabricated", "C1")):
    rows = [row for row in rows_with("private_mnist", "004 mis") if row["rows"] == kind]
    across = [number(row["ε per entry"]) for row in rows]
    for ax, ours, theirs in (
        (left, "document's order: accuracy", "004 accuracy"),
        (right, "document's order: mis", "004 mis"),
    ):
        ax.semilogx(across, [number(row[ours]) for row in rows], "o-", color=colour,
                    label=f"{kind}: here")  # fmt: skip
        ax.semilogx(across, [number(row[theirs]) for row in rows], "x--", color=colour,
                    label=f"{kind}: 004")  # fmt: skip
left.set(xlabel="ε per entry", ylabel="accuracy on MNIST", title="004 Fig. 12(a)")
right.set(xlabel="ε per entry", ylabel="membership-inference score", title="004 Fig. 12(b)")
left.legend(fontsize="small")

# %%
# What fabrication costs in accuracy and saves in score, in per cent: CogLoad1 here, the document's
# own recordings there.

rows = rows_with("stress_fabricated", "fabricated: 004 mis")
figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
for ax, title, suffixes in (
    (axes[0], "here, CogLoad1", ("accuracy", "mis")),
    (axes[1], "004 Fig. 14(b)", ("004", "004 mis")),
):  # fmt: skip
    places = np.arange(len(rows))
    for shift, suffix, label in zip((-0.2, 0.2), suffixes, ("accuracy", "score"), strict=True):
        lost = [
            100 * (1 - number(row[f"fabricated: {suffix}"]) / number(row[f"noised: {suffix}"]))
            for row in rows
        ]
        ax.bar(places + shift, lost, 0.4, label=label)
    ax.set_xticks(places, [row["(ε per entry, n)"] for row in rows], rotation=45)
    ax.set(title=title, xlabel="(ε per entry, n)", ylabel="reduction by fabrication, %")
    ax.legend(fontsize="small")

# %%
# What is lost when rows stay with their owners (Fig. 16).

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
rows = rows_with("federation_mnist", "004: federated")
half = len(rows) // 2
for scenario, part in ((1, rows[:half]), (2, rows[half:])):
    across = [number(row["ε per pixel"]) for row in part]
    left.plot(across, [number(row["federated"]) for row in part], "o-", label=f"{scenario}: here")
    left.plot(across, [number(row["004: federated"]) for row in part], "x--",
              label=f"{scenario}: 004")  # fmt: skip
left.set(xlabel="ε per pixel", ylabel="accuracy", title="scenarios 1 and 2")
left.legend(fontsize="small")
rows = rows_with("federation_mnist", "004: change of accuracy")
parties = [number(row["parties"]) for row in rows]
for column, style, label in (
    ("change of accuracy", "o-", "here"), ("004: change of accuracy", "x--", "004"),
):  # fmt: skip
    right.semilogx(parties, [number(row[column]) for row in rows], style, label=label)
right.set(xlabel="parties", ylabel="change of accuracy", title="scenario 3")
right.legend(fontsize="small")

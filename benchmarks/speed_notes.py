"""What stands on the page of speed before the tables: guarded ratios, and what did not pay."""

import json

from benchmarks import ratios

TRIED = """
* Bounding the part of an image outside of a draft by singular values of the coefficients: on MNIST
  the bound is some hundred times what it bounds, and rules out nothing.
* Principal directions of the images as directions of a draft: 36 of them leave 22 % of the layers
  open, 16 directions of other branches' centres beside the 20 of the code leave 7 %.
* 24, 32 or 48 directions beside those of the code instead of 16: fewer images are computed in full,
  and the time is the same; 16 need the least memory.
* Other sizes of the blocks of queries, from an eighth to twice as many: the same time, or more.
* Ruling out whole branches by features that never vary in them: 6 % of the branches.
* One circuit of thresholds over all distances for encrypted labels: the same rings hold many times
  as many queries when each party sends one candidate instead of a distance per class
  (`encrypted_grid`).
* Rejection from Laplace noise for the exact Gaussian law: it takes an exponential for every draw,
  where cells need a comparison for nearly all of them (`noise_speed`).

## What was considered and not built

* Kernel values of a layer from those of the layer before: the query of a layer is the image under
  the layer before, so nothing is shared.
* λ* from codes alone or by an eigendecomposition: after the first layer of a branch one
  factorisation is enough already, as the search starts at the error of the layer before.
* Factorising in single precision and refining the solution in double: by its operation count no
  gain for a hundred columns, which is what tables have.
"""


def guarded():
    """The stored ratios as a table."""
    if not ratios.STORED.exists():
        return ""
    stored = json.loads(ratios.STORED.read_text())
    lines = "\n".join(f"| {name} | {value:.2f} |" for name, value in stored.items())
    return (
        "\n## Ratios that are guarded\n\n```console\n$ make bench-check\n```\n\n"
        "Processor time on one thread, both sides in turns; no file is needed. The command "
        "measures them anew and\nfails where one is more than 30 % above the stored one.\n\n"
        f"| ratio | stored |\n|---|---|\n{lines}\n"
    )


def notes():
    """Everything before the first table."""
    return f"{guarded()}\n## What was tried and did not pay\n{TRIED}"

"""Risks of synthetic tables: our attacks beside those of anonymeter, with copies as the control.

2000 rows of Adult are learned from per record (δ = 1e-6), 2000 others are the control; further
tables are the synthetic one with a share of its rows replaced by copies of real ones. "Risk" is
what an attack gets right about people in the table beyond others, 0 for a table that copies nobody;
`anonymeter` (Giomi et al. 2023) measures the same three with 500 attacks of its own, with
``--peers PYTHON``, an interpreter that has it. Membership is an AUC, 0.5 for guessing. One run.
"""

import json
import subprocess
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from common import options_of, size, table

from permea import Privacy, fabricate_records
from permea.audit.synthetic import synthetic_risks
from permea.tables import Category, Number, Schema, YesNo

ATTACKS = ("singling out", "linkability", "inference")


def rows(count, seed):
    """Real rows, and others, of Adult; invented ones in a quick run."""
    rng = np.random.default_rng(seed)
    if size(True, False):
        from tables_common import load_table

        frame, schema = load_table("adult")
        frame = frame.iloc[rng.permutation(len(frame))[: 2 * count]]
    else:
        n = 2 * count
        frame = pd.DataFrame({f"x{k}": rng.random(n) for k in range(5)})
        frame = frame.assign(ward=rng.choice(["a", "b"], n), ill=rng.choice(["yes", "no"], n))
        columns = {f"x{k}": Number(0, 1) for k in range(5)}
        schema = Schema({**columns, "ward": Category(["a", "b"]), "ill": YesNo()}, label="ill")
    frame = frame[list(schema.names)].reset_index(drop=True)
    return frame.head(count), frame.tail(count).reset_index(drop=True), schema


def by_anonymeter(python, tables, secret):
    """Risk and interval of each attack."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{k}.csv") for k in range(3)]
        for path, one in zip(paths, tables, strict=True):
            one.to_csv(path, index=False)
        result = Path(folder, "risks.json")
        script = Path(__file__).with_name("synthetic_anonymeter.py")
        words = [python, script, *paths, secret, result]
        subprocess.run([str(word) for word in words], check=True, capture_output=True)
        return json.loads(result.read_text())


def main():
    parser = options_of(__doc__)
    parser.add_argument("--rows", type=int, default=size(2000, 100))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--copies", type=float, nargs="+", default=[0.0, 0.1, 0.5, 1.0])
    parser.add_argument("--peers", help="a Python interpreter with anonymeter")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    real, other, schema = rows(options.rows, options.seed)
    promise = Privacy(epsilon=options.epsilon, delta=1e-6, unit="record")
    made = fabricate_records(real, schema=schema, privacy=promise, n_rows=len(real), seed=0)
    lines = []
    for share in options.copies:
        count = round(share * len(real))
        drawn = pd.concat([real.head(count), made.data.head(len(real) - count)], ignore_index=True)
        found = synthetic_risks(real, drawn, other, schema)
        ours = [f"{risk.excess:.3f}{'' if risk.is_explained_by_chance else ' *'}"
                for risk in found.risks]  # fmt: skip
        theirs = ["not run"] * 3
        if options.peers:
            risks = by_anonymeter(options.peers, (real, drawn, other), schema.label)
            theirs = [f"{risks[name][0]:.3f}{' *' if risks[name][1] > 0 else ''}"
                      for name in ATTACKS]  # fmt: skip
        low, high = found.membership_interval
        auc = f"{found.membership_auc:.3f} [{low:.3f}, {high:.3f}]"
        for name, one, two in zip(ATTACKS, ours, theirs, strict=True):
            lines.append([f"{share:.0%}", name, one, two, auc])
    table(["copies", "attack", "risk", "risk by anonymeter", "membership, AUC"], lines)
    print("* more than chance explains, with 95 % confidence.")


if __name__ == "__main__":
    main()

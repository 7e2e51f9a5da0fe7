"""Up to 50 million rows of 20 columns in Parquet: time and memory of a private fit.

The rows are made up (12 numbers, 5 categories, 2 yes/no columns and a label) and written to a
temporary folder in files of a million. Every size is fitted in a process of its own, in two passes
over the files. The floor is what any method of moments must do at least: `pandas.read_parquet` of
every file and one matrix product of as many features. All processes compute on one thread. CPU
seconds stand beside the seconds because they depend less on other work. What is done is kept in the
folder for temporary files: ``--resume`` takes it from there.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
from common import QUICK, Kept, options_of, size, table
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from permea.models.moments import MomentClassifier
from permea.privacy import Privacy
from permea.tables import Category, Number, Schema, YesNo
from permea.tables.reading import read_chunks

FILE = size(1_000_000, 1000)  # rows
SIZES = [FILE * files for files in size((5, 10, 25, 50), (2, 4))]
NUMBERS = [f"number{k}" for k in range(12)]
CATEGORIES = [f"category{k}" for k in range(5)]
FLAGS = ["flag0", "flag1"]
VALUES = ["low", "middle", "high", "very high", "unknown", "refused"]
SCHEMA = Schema(
    {
        **{name: Number(-4, 4) for name in NUMBERS},
        **{name: Category(VALUES) for name in CATEGORIES},
        **{name: YesNo() for name in FLAGS},
        "label": YesNo(),
    },
    label="label",
)
BINS = 8


def make_rows(n_rows, seed):
    """Columns of text, numbers and truth values, and a label that depends on some of them."""
    rng = np.random.default_rng(seed)
    columns = {name: rng.standard_normal(n_rows, dtype=np.float32) for name in NUMBERS}
    codes = {name: rng.integers(0, len(VALUES), n_rows, dtype=np.int8) for name in CATEGORIES}
    signal = np.abs(columns["number0"]) + columns["number1"] + (codes["category0"] == 2) - 1.0
    for name, code in codes.items():
        columns[name] = pa.DictionaryArray.from_arrays(code, VALUES).cast(pa.string())
    for name in FLAGS:
        columns[name] = rng.random(n_rows, dtype=np.float32) < 0.3
    chance = 1.0 / (1.0 + np.exp(-2.0 * signal))
    label = (rng.random(n_rows, dtype=np.float32) < chance).astype(np.int8)
    columns["label"] = pa.DictionaryArray.from_arrays(label, ["no", "yes"]).cast(pa.string())
    return pa.table(columns)


def files_of(folder, n_rows):
    return sorted(map(str, Path(folder).glob("*.parquet")))[: n_rows // FILE]


def fit(folder, n_rows, engine=None):
    """Seconds of a private fit, and the model."""
    promise = Privacy(epsilon=1.0, delta=1e-9, unit="record")
    clf = MomentClassifier(privacy=promise, schema=SCHEMA, bins=BINS)
    chunks = read_chunks(pyarrow.dataset.dataset(files_of(folder, n_rows)))
    start = time.perf_counter()
    clf.fit_chunks(chunks, engine=engine)
    return time.perf_counter() - start, clf


def fit_alone(folder, n_rows):
    """The same in a process of its own, with its largest memory in MiB and its AUROC."""
    words = [sys.executable, __file__, "--child", str(folder), "--rows", str(n_rows)]
    words += ["--quick"] if QUICK else []
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def child(folder, n_rows):
    seconds, clf = fit(folder, n_rows)
    cpu = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    new = make_rows(size(200_000, 2000), 10**6).to_pandas()
    score = roc_auc_score(new["label"] == "yes", clf.predict_proba(new)[:, 1])
    print(json.dumps([seconds, cpu, peak, score]))


def floor(folder, n_rows):
    """Seconds to read every file by pandas and multiply as many features once."""
    block = np.random.default_rng(0).random(
        (min(FILE, 50_000), SCHEMA.encoder(BINS).n_features_out_)
    )
    start, cpu = time.perf_counter(), time.process_time()
    for file in files_of(folder, n_rows):
        frame = pd.read_parquet(file)
        for _ in range(0, len(frame), len(block)):
            block.T @ block
    return time.perf_counter() - start, time.process_time() - cpu


def write_files(folder, n_rows, seed):
    for number in range(n_rows // FILE):
        rows = make_rows(FILE, [seed, number])
        pq.write_table(rows, f"{folder}/{number:03d}.parquet", row_group_size=FILE // 4)


def sizes_table(folder, sizes, kept):
    rows = []
    for n_rows in sizes:
        if str(n_rows) not in kept:
            kept[str(n_rows)] = [*fit_alone(folder, n_rows), *floor(folder, n_rows)]
        seconds, cpu, peak, score, least, least_cpu = kept[str(n_rows)]
        rows.append(
            [f"{n_rows / 1e6:g} million", f"{seconds:.0f}", f"{cpu:.0f}", f"{n_rows / seconds:.0f}",
             f"{peak:.0f}", f"{score:.3f}", f"{least:.0f}", f"{least_cpu:.0f}",
             f"{n_rows / least:.0f}", f"{cpu / least_cpu:.1f}"]
        )  # fmt: skip
    features = SCHEMA.encoder(BINS).n_features_out_
    print(f"**One process**, {features} features, ε = 1 per record; the limit is 1024 MiB.\n")
    table(
        ["rows", "seconds", "CPU seconds", "rows per second", "peak, MiB", "AUROC", "floor, s",
         "floor, CPU s", "floor, rows per second", "CPU, times the floor"],
        rows,
    )  # fmt: skip


def main():
    parser = options_of(__doc__)
    parser.add_argument("--rows", type=int, default=SIZES[-1], help="of the largest table")
    parser.add_argument("--child", metavar="FOLDER", help="used by the benchmark itself")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    if options.child:
        return child(options.child, options.rows)
    sizes = [n_rows for n_rows in SIZES if n_rows <= options.rows]
    kept = Kept("tables-scale", options.resume)
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder, max(sizes), options.seed)
        sizes_table(folder, sizes, kept)
    return None


if __name__ == "__main__":
    with threadpool_limits(1):
        main()

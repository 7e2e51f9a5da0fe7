"""Private transfer in the setting of 001 section 1.4.1.1: slow, with files PERMEA_DATA names."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.semi_supervised import LabelSpreading

from permea import KAHMClassifier, Privacy, SourceModel, TransferClassifier

DATA = Path(os.environ.get("PERMEA_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.slow
def test_a_private_source_beats_label_spreading_on_mnist():
    """60000 source rows at ε = 2, 9000 target rows with ten labels per class, 1000 to score."""
    data = np.load(DATA / "mnist.npz")
    X, T = (data[k].reshape(-1, 784).astype(np.float32) / 255 for k in ("x_train", "x_test"))
    y, t = data["y_train"], data["y_test"]
    random = np.random.default_rng(7)
    order = random.permutation(len(T))
    A, a, V, v = T[order[:9000]], t[order[:9000]], T[order[9000:]], t[order[9000:]]
    few = np.full(len(a), -1)
    for label in range(10):
        chosen = random.choice(np.flatnonzero(a == label), 10, replace=False)
        few[chosen] = label
    source = SourceModel(
        privacy=Privacy(epsilon=2, delta=1e-5, domain=(0, 1)),
        classifier=KAHMClassifier(n_layers=1, branch_size=500, n_jobs=2),
        n_jobs=2,
        random_state=0,
    ).fit(X, y)
    clf = TransferClassifier(source, n_jobs=2, random_state=0).fit(A, few)
    spread = LabelSpreading(kernel="knn", n_neighbors=10).fit(A, few)
    ours, theirs = clf.score(V, v), spread.score(V, v)
    assert ours > theirs
    assert ours >= 0.97  # 0.98 is the target of the mean over five splits; one has 1000 rows

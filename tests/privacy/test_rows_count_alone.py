"""What one row adds to the released sums is a function of that row alone, to the last bit."""

import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.preprocessing import FunctionTransformer

from permea.compose.moments import MomentClassifier
from permea.models.features import (
    Chain,
    OrientedGradients,
    PublicNystrom,
    RandomFourier,
    ScaledIdentity,
    SideBySide,
)
from permea.privacy import Privacy

WIDE = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 255))
POINTS = np.random.default_rng(1).random((9, 784))
MAPS = {
    "identity": "identity",
    "fourier": Chain([ScaledIdentity(domain=(0, 255)), RandomFourier(n_frequencies=16)]),
    "raw fourier": RandomFourier(n_frequencies=16),
    "gradients": Chain([OrientedGradients(), RandomFourier(n_frequencies=16)]),
    "nystrom": Chain([ScaledIdentity(domain=(0, 255)), PublicNystrom(POINTS)]),
    "beside": SideBySide([ScaledIdentity(domain=(0, 255)), RandomFourier(n_frequencies=4)]),
}


def rows(n, dtype):
    X = np.random.default_rng(0).integers(0, 256, size=(n, 784))
    return X.astype(dtype), np.arange(n) % 3


def sums(features, X, y):
    """All integers that the noise is added to."""
    model = MomentClassifier(
        privacy=WIDE, features=features, neighbours="add/remove", classes=[0, 1, 2]
    )
    plan = model.prepare(X.shape[1])
    first = model.feature_sums(X, plan)
    mean = np.full(plan.n_features, 0.01)  # any public centre
    second = model.moment_sums(X, y, mean, plan)
    return [first.features, second.second, second.cross, second.tally]


def differ_by(features, X, y, at):
    """Whether an inserted row changes the sums by its own, and a permutation by nothing."""
    whole = sums(features, X, y)
    alone = sums(features, X[at : at + 1], y[at : at + 1])
    without = sums(features, np.delete(X, at, axis=0), np.delete(y, at))
    order = np.random.default_rng(2).permutation(len(X))
    permuted = sums(features, X[order], y[order])
    inserted = all(np.array_equal(a - b, c) for a, b, c in zip(whole, without, alone, strict=True))
    return inserted and all(np.array_equal(a, b) for a, b in zip(whole, permuted, strict=True))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", MAPS)
def test_an_inserted_row_changes_the_sums_by_its_own(name, dtype):
    X, y = rows(300, dtype)
    assert all(differ_by(MAPS[name], X, y, at) for at in (0, 137, 299))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_attack_on_eight_thousand_rows_finds_nothing(dtype):
    """The configuration in which version 0.1 was told apart: chunks, 784 columns, 0 to 255."""
    X, y = rows(8000, dtype)
    assert differ_by(MAPS["raw fourier"], X, y, 0)


def test_control_the_product_of_version_0_1_depends_on_the_neighbours():
    X, _ = rows(8000, np.float32)
    W = np.random.default_rng(3).normal(size=(784, 16)).astype(np.float32)
    shifted = X[1:] @ W
    assert not np.array_equal((X @ W)[1:], shifted) or not np.array_equal(
        (X[:4096] @ W)[4095:], X[4095:4096] @ W
    )


@pytest.mark.parametrize("name", ["raw fourier", "gradients", "nystrom"])
def test_layout_and_dtype_change_nothing(name):
    X, y = rows(64, np.float64)
    wide = np.zeros((64, 1568))
    wide[:, ::2] = X
    views = [np.asfortranarray(X), wide[:, ::2], X.astype(np.float32), X[::-1][::-1]]
    expected = sums(MAPS[name], X, y)
    for view in views:
        for a, b in zip(expected, sums(MAPS[name], view, y), strict=True):
            assert np.array_equal(a, b)


SCRIPT = """
import hashlib, sys
sys.path.insert(0, {folder!r})
import numpy as np
import test_rows_count_alone as t
digest = hashlib.sha256()
for dtype in (np.float32, np.float64):
    X, y = t.rows(150, dtype)
    for name in ("raw fourier", "gradients"):
        assert t.differ_by(t.MAPS[name], X, y, 77), name
        for part in t.sums(t.MAPS[name], X, y):
            digest.update(part.tobytes())
print(digest.hexdigest())
"""


def test_threads_and_kernels_of_the_linear_algebra_change_nothing():
    folder = os.path.dirname(__file__)
    seen = set()
    for threads in ("1", "2"):
        for kernel in ("Haswell", "Sandybridge"):
            words = {"OPENBLAS_NUM_THREADS": threads, "OPENBLAS_CORETYPE": kernel}
            run = subprocess.run(
                [sys.executable, "-c", SCRIPT.format(folder=folder)],
                env={**os.environ, **words}, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert run.returncode == 0, run.stderr
            seen.add(run.stdout)
    assert len(seen) == 1


def test_a_transformer_that_looks_at_the_batch_is_given_one_row_at_a_time():
    by_the_batch = FunctionTransformer(lambda X: X / (1 + X.max()))
    X, y = rows(40, np.float64)
    assert differ_by(by_the_batch, X + 1, y, 7)


def test_very_large_features_are_shrunk_and_move_nothing_beyond_one_row():
    """A replaced row moved the released mean from 1.6 to millions, in version 0.1."""
    promise = Privacy(epsilon=5, delta=1e-5, unit="record", domain=(0, 705))
    X = np.zeros((500, 2))
    other = X.copy()
    other[0] = 705.0
    y = np.arange(500) % 2
    means = []
    for data in (X, other):
        model = MomentClassifier(
            privacy=promise, features=FunctionTransformer(np.exp), classes=[0, 1], random_state=0
        ).fit(data, y)
        means.append(model.mean_)
    assert np.abs(means[0] - means[1]).max() <= 2 * model.feature_norm / 500


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused_where_reals_become_integers(bad):
    promise = Privacy(epsilon=5, delta=1e-5, unit="record", domain=(0, 1))
    broken = FunctionTransformer(lambda X: np.where(X > 0.5, bad, X))
    X = np.zeros((50, 2))
    X[3] = 1.0
    model = MomentClassifier(privacy=promise, features=broken, classes=[0, 1])
    with pytest.raises(ValueError, match="finite"):
        model.fit(X, np.arange(50) % 2)

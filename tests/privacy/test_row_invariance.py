"""What one row adds to the sums depends on that row alone, to the last bit.

Neighbours differ by one row. The proof needs that the exact sums then differ by that row's terms
and by nothing else: not by what a linear-algebra library makes of the others because they moved
up by one place.
"""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.preprocessing import FunctionTransformer

from permea import MomentClassifier, MomentRegressor
from permea.models.features import (
    Chain,
    FeatureMap,
    OrientedGradients,
    PublicNystrom,
    RandomFourier,
    ScaledIdentity,
    SideBySide,
)
from permea.privacy import Budget, Ledger, Privacy
from permea.privacy.moments import plan_moments, sum_features, sum_moments, to_steps
from permea.tables import Category, Number, Schema

CLASSES = 3
POINTS = np.random.default_rng(5).uniform(0, 255, size=(12, 64))
MAPS = {
    "identity": "identity",
    "fourier": "fourier",
    "gradients": Chain([OrientedGradients(), RandomFourier(n_frequencies=20)]),
    "raw fourier": RandomFourier(n_frequencies=16),
    "edges": OrientedGradients(cells=(1, 2), orientations=6),
    "flatter edges": OrientedGradients(cells=2, orientations=5, exponent=0.375),
    "colour": OrientedGradients(image_shape=(4, 4, 4), cells=2, orientations=5, exponent=0.25),
    "points": PublicNystrom(POINTS, scale=0.002),
    "both": SideBySide([ScaledIdentity(domain=(0, 255)), RandomFourier(n_frequencies=5)]),
}


def promise(high=255.0, **options):
    return Privacy(
        **{"epsilon": 1.0, "delta": 1e-5, "unit": "record", "domain": (0, high)} | options
    )


def exact_sums(X, y, features, *, estimator=MomentClassifier, domain=255.0):
    """Everything that is summed over the rows, as one vector of whole numbers."""
    declared = {"classes": range(CLASSES)}
    if estimator is MomentRegressor:
        declared = {"output_domain": (0, CLASSES)}
    model = estimator(
        privacy=promise(domain), features=features, neighbours="add/remove", **declared
    )
    plan = model.prepare(X.shape[1])
    first = model.feature_sums(X, plan)
    mean = np.linspace(-0.05, 0.05, plan.n_features)
    second = model.moment_sums(X, y, mean, plan)
    parts = (first.features, [first.n_units], second.second, second.cross, second.counts)
    return np.concatenate([np.ravel(part) for part in parts])


def table(n, p, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(0, 255, size=(n, p)).astype(np.float32), rng.integers(CLASSES, size=n)


def assert_one_row(sums, X, y, places=(0, 1, 7)):
    """Sums with and without a row differ by what the row adds alone; order does not matter."""
    whole = sums(X, y)
    for place in (*places, len(X) - 1):
        rest = np.delete(np.arange(len(X)), place)
        alone = sums(X[[place]], y[[place]])
        np.testing.assert_array_equal(whole - sums(X[rest], y[rest]), alone)
    order = np.random.default_rng(1).permutation(len(X))
    np.testing.assert_array_equal(sums(X[order], y[order]), whole)
    return whole


@pytest.mark.parametrize("name", MAPS)
def test_one_row_more_adds_its_own_terms_in_any_place_order_layout_and_precision(name):
    """4100 rows: the end of a chunk of 4096 lies between them."""
    X, y = table(4100, 64)

    def sums(X, y):
        return exact_sums(X, y, MAPS[name])

    whole = assert_one_row(sums, X, y, places=(0, 4095))
    wide = np.zeros((len(X), 128))
    wide[:, ::2] = X
    for same in (X.astype(np.float64), np.asfortranarray(X), wide[:, ::2]):
        np.testing.assert_array_equal(sums(same, y), whole)
    backwards = np.ascontiguousarray(X[::-1], dtype=np.float64)[::-1]
    np.testing.assert_array_equal(sums(backwards, y), whole)


def test_numbers_as_outputs_add_their_own_terms():
    X, y = table(700, 64, seed=2)
    assert_one_row(lambda X, y: exact_sums(X, y, "fourier", estimator=MomentRegressor), X, y / 1.7)


# --- the attack as it was found: 784 columns, 8000 rows, every number of threads and kernel -------

SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from threadpoolctl import threadpool_info
import test_row_invariance as tests

X, y = tests.table(8000, 784)
moved = {}
for kind in (np.float32, np.float64):
    rows = X.astype(kind)
    whole = tests.assert_one_row(
        lambda X, y: tests.exact_sums(X, y, tests.RandomFourier(n_frequencies=16)), rows, y, (3,)
    )
    moved[kind.__name__] = tests.largest_move(rows, y)
blas = [lib for lib in threadpool_info() if lib["internal_api"] == "openblas"]
print(json.dumps({
    "sums": [str(v) for v in whole[::7]], "control": moved,
    "kernels": [(lib["architecture"], lib["num_threads"]) for lib in blas],
}))
"""


def by_the_library(X, y):
    """The sums as version 0.1 made them: products and cosines of NumPy on the whole array."""
    W = np.random.default_rng(0).normal(scale=1.5, size=(X.shape[1], 16)).astype(X.dtype)
    phases = X @ W
    phi = np.hstack([np.cos(phases), np.sin(phases)]) / X.dtype.type(4.0)
    plan = plan_moments(promise(), 32, CLASSES, neighbours="add/remove")
    moments = sum_moments(phi, np.eye(CLASSES)[y], plan)
    parts = (sum_features(phi, plan).features, moments.second, moments.cross, moments.counts)
    return np.concatenate([np.ravel(part) for part in parts])


def largest_move(X, y):
    """By how much the terms of all other rows change when the first row leaves, in such sums."""
    changed = by_the_library(X, y) - by_the_library(X[1:], y[1:]) - by_the_library(X[:1], y[:1])
    return int(np.abs(changed).max())


def kernels():
    """Two kernels of OpenBLAS that this processor can run."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("The kernels of OpenBLAS that are compared are those of x86-64.")
    features = np._core._multiarray_umath.__cpu_features__
    if not (features.get("AVX2") and features.get("FMA3")):
        pytest.skip("This processor runs one of the two kernels only.")
    return "Haswell", "Nehalem"


def test_the_attack_finds_nothing_with_any_kernel_number_of_threads_and_precision():
    """The control, float32 products of the library, is found by the same check."""
    results = []
    for kernel in kernels():
        for threads in ("1", "2"):
            environment = {
                **os.environ, "OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": threads,
            }  # fmt: skip
            done = subprocess.run(
                [sys.executable, "-c", SCRIPT, str(Path(__file__).parent)],
                env=environment, capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-2000:]
            results.append(json.loads(done.stdout))
            if not results[-1]["kernels"]:
                pytest.skip("NumPy does not use OpenBLAS here.")
            assert results[-1]["kernels"][0] == [kernel, int(threads)]
    assert all(result["sums"] == results[0]["sums"] for result in results)
    row = 2**32  # what one row can move an entry by
    assert max(result["control"]["float32"] for result in results) > row / 100


def test_a_seeded_fit_does_not_depend_on_order_layout_or_precision():
    """The same noise on the same sums: the release is the same to the last bit."""
    X, y = table(5000, 64, seed=3)
    order = np.random.default_rng(4).permutation(len(X))

    def released(X, y):
        model = MomentClassifier(
            privacy=promise(), features=RandomFourier(n_frequencies=16), neighbours="add/remove",
            classes=range(CLASSES), random_state=0,
        )  # fmt: skip
        return model.fit(X, y).moments_

    whole = released(X, y)
    for other in (
        released(X[order], y[order]),
        released(np.asfortranarray(X), y),
        released(X.astype(np.float64), y),
    ):
        np.testing.assert_array_equal(other.second, whole.second)
        np.testing.assert_array_equal(other.cross, whole.cross)


# --- transformers that nobody vouches for ---------------------------------------------------------


class OfTheBatch(FeatureMap):
    """A map that breaks its word: what it makes of a row depends on the others."""

    def _prepare(self, p):
        return p

    def _map(self, X):
        return X / (1.0 + np.abs(X).max()) / np.sqrt(X.shape[1])


class Overridden(ScaledIdentity):
    """A class of this library with another ``transform``."""

    def transform(self, X):
        return super().transform(np.asarray(X) / len(X))


def library_product(X):
    return np.cos(X.astype(np.float32) @ np.full((X.shape[1], 8), 0.37, dtype=np.float32)) / 3


@pytest.mark.parametrize(
    "features",
    [
        OfTheBatch(),
        Overridden(domain=(0, 255)),
        Chain([OfTheBatch(), RandomFourier(n_frequencies=4)]),
        SideBySide([ScaledIdentity(domain=(0, 255)), OfTheBatch()]),
        FunctionTransformer(lambda X: (X - X.min()) / (1 + X.sum())),
        FunctionTransformer(library_product),
    ],
    ids=["own", "derived", "in a chain", "side by side", "of the batch", "by the library"],
)
def test_transformers_from_elsewhere_see_one_row_at_a_time(features):
    X, y = table(60, 16, seed=6)
    assert_one_row(lambda X, y: exact_sums(X, y, features), X, y)


def test_a_transformer_gets_one_row_and_cannot_keep_it():
    seen = []

    def spoil(X):
        seen.append(X.shape)
        X *= 0.001
        return X

    X, y = table(20, 4, seed=7)
    before = X.copy()
    exact_sums(X, y, FunctionTransformer(spoil))
    np.testing.assert_array_equal(X, before)
    assert set(seen) == {(1, 4)}


# --- values that are no numbers -------------------------------------------------------------------


def test_one_row_of_huge_features_does_not_move_the_mean():
    """exp(705) is a finite number whose square is not: the row is shrunk like any other."""
    X = np.full((350, 2), 0.5)
    X[-1] = 705.0
    y = np.arange(350) % CLASSES
    model = MomentClassifier(
        privacy=promise(705.0, epsilon=8.0), features=FunctionTransformer(np.exp),
        classes=range(CLASSES),
    ).fit(X, y)  # fmt: skip
    assert model.certificate_.is_private
    assert np.abs(model.mean_ - np.sqrt(0.5)).max() < 0.5  # exp(0.5) twice, shrunk to norm 1
    assert np.isfinite(model.moments_.second).all()


@pytest.mark.parametrize("function", [np.exp, lambda X: np.where(X > 9, np.nan, X)])
def test_features_that_are_not_finite_are_refused_after_the_charge(function):
    """The error depends on the rows, so it is paid for, and it tells nothing about them."""
    X = np.full((50, 2), 0.5)
    X[7] = 800.0
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5, unit="record"))
    model = MomentClassifier(
        privacy=promise(800.0), features=FunctionTransformer(function), classes=range(CLASSES),
        ledger=ledger,
    )  # fmt: skip
    with pytest.raises(ValueError, match="NaN or infinity") as caught, np.errstate(over="ignore"):
        model.fit(X, np.arange(50) % CLASSES)
    assert not any(letter.isdigit() for letter in str(caught.value))
    assert len(ledger) == 1


def test_the_step_to_whole_numbers_refuses_what_is_no_number():
    plan = plan_moments(promise(), 2, 2, outputs="numbers")
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="NaN or infinity"):
            to_steps(np.array([[bad, 0.0]]), 1.0, 2**16)
        with pytest.raises(ValueError, match="NaN or infinity"):
            sum_moments(np.zeros((1, 2)), np.array([[1.0, bad]]), plan)
    huge = to_steps(np.array([[1e308, -1e308], [5e-324, 0.0]]), 1.0, 2**16)
    assert huge.tolist() == [[46340.0, -46340.0], [0.0, 0.0]]


@pytest.mark.parametrize("last", [True, 5, "five", 0.5])
def test_the_type_of_one_label_does_not_change_the_labels_of_other_rows(last):
    """NumPy makes numbers of [True, 5] and texts of [True, "five"]; a label stays what it is."""
    label = Category(["True", "False"], other=True)
    schema = Schema({"x": Number(0, 1), "y": label}, label="y")
    model = MomentClassifier(privacy=promise(), schema=schema)
    plan = model.prepare(1)
    rows = {"x": [0.2, 0.4, 0.6]}
    sums = model.moment_sums(rows, [True, False, last], np.zeros(plan.n_features), plan)
    assert (sums.counts[:2] / 2**32).tolist() == [1, 1 + (last is True)]


def test_a_sparse_row_that_reaches_into_another_is_refused_after_the_charge():
    """A column number outside the matrix would be written into the row after it."""
    from scipy.sparse import csr_matrix

    from permea.privacy.release import UnreadableRowsError

    rows = csr_matrix(np.eye(6))
    rows.indices[2] = 7
    ledger = Ledger()
    promise = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))
    model = MomentClassifier(
        privacy=promise, features="identity", classes=[0, 1], ledger=ledger, dataset="rows"
    )
    with pytest.raises(UnreadableRowsError):
        model.fit(rows, [0, 1] * 3)
    assert len(ledger) == 1

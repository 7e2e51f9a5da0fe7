"""Fixtures that several rooms share."""

import os
import time

os.environ.setdefault("PERMEA_PROGRESS", "0")

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

START, SECONDS = time.monotonic(), float(os.environ.get("PERMEA_TEST_SECONDS", "inf"))


def pytest_runtest_setup(item):
    """`make check` starts no further test when its time is over; `make test` runs them all."""
    if time.monotonic() - START > SECONDS:
        pytest.skip("left to `make test`: the time of `make check` is over")


@pytest.fixture(scope="session")
def digits():
    """Scikit-learn's digits in [0, 1], 60/40, stratified: the split the figures refer to."""
    X, y = load_digits(return_X_y=True)
    return train_test_split(X / 16, y, test_size=0.4, stratify=y, random_state=0)


@pytest.fixture
def blobs():
    """Three overlapping clouds in the plane."""
    random = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    y = np.repeat(np.arange(3), 40)
    return centres[y] + random.normal(size=(120, 2)), y


@pytest.fixture(scope="module")
def server():
    """A PostgreSQL server of its own."""
    from postgres_server import running

    with running() as server:
        yield server

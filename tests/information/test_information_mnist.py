"""The measures of 003 section 6.1 on MNIST: slow, with the files that PERMEA_DATA names."""

import os
from pathlib import Path

import numpy as np
import pytest

from permea import Privacy, release
from permea.information import interpretability, privacy_leakage

DATA = Path(os.environ.get("PERMEA_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.slow
def test_leakage_and_interpretability_rise_with_epsilon():
    """003 Fig. 4, and the two ends of Table 3 (which used 5000 samples)."""
    data = np.load(DATA / "mnist.npz")
    chosen = np.random.default_rng(0).permutation(60000)[:1500]
    X = data["x_train"][chosen].reshape(1500, -1) / 255
    classes = np.eye(10)[data["y_train"][chosen]]
    leaks, meanings = [], []
    for epsilon in (0.1, 0.5, 2, 10):
        privacy = Privacy(epsilon=epsilon, delta=1e-5, domain=(0, 1))
        noised = release(X, privacy, random_state=0).data
        leaks.append(privacy_leakage(noised, X).value)
        meanings.append(interpretability(noised, classes).value)
    assert np.all(np.diff(leaks) > 0)
    assert np.all(np.diff(meanings) > 0)
    assert abs(leaks[0] - -50.72) < 30
    assert abs(leaks[-1] - 362.83) < 30
    assert abs(meanings[0] - -2.14) < 0.2
    assert abs(meanings[-1] - 5.44) < 1

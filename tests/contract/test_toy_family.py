"""A new family is one class: depth, width and classification work on it with no edit elsewhere."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from permea import ConditionallyDeep, ReconstructionClassifier, Wide
from permea.models.base import Reconstructor
from permea.privacy import Privacy


class PrincipalSubspace(BaseEstimator):
    """The nearest point of a principal subspace."""

    def __init__(self, n_components=2):
        self.n_components = n_components

    def fit(self, Y, y=None):
        self.mean_ = Y.mean(axis=0)
        self.basis_ = np.linalg.svd(Y - self.mean_, full_matrices=False)[2][: self.n_components]
        return self

    def reconstruct(self, Y):
        return self.mean_ + (Y - self.mean_) @ self.basis_.T @ self.basis_

    def distance(self, Y):
        return np.linalg.norm(Y - self.reconstruct(Y), axis=1)


def test_it_is_a_family():
    assert isinstance(PrincipalSubspace(), Reconstructor)


def test_depth_works(digits):
    Y = digits[0]
    deep = ConditionallyDeep(PrincipalSubspace(6), n_layers=3).fit(Y)
    assert [layer.n_components for layer in deep.layers_] == [6, 5, 4]
    np.testing.assert_allclose(deep.distance(Y), deep.layers_[0].distance(Y))


def test_width_works(digits):
    Y = digits[0]
    wide = Wide(PrincipalSubspace(6), branch_size=300, random_state=0).fit(Y)
    each = np.stack([branch.distance(Y) for branch in wide.branches_])
    np.testing.assert_allclose(wide.distance(Y), each.min(axis=0))


@pytest.mark.parametrize("fabricate", [False, True])
@pytest.mark.parametrize("privacy", [None, Privacy(epsilon=8, domain=(0, 1))])
def test_classification_and_privacy_work(digits, privacy, fabricate):
    X_train, X_test, y_train, y_test = digits
    if privacy is None and fabricate:
        return
    clf = ReconstructionClassifier(
        PrincipalSubspace(8), n_layers=2, privacy=privacy, fabricate=fabricate
    )
    assert clf.fit(X_train, y_train).score(X_test, y_test) > 0.9

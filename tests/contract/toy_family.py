"""A model family in one file, as somebody outside of the library would write it."""

import numpy as np
from sklearn.base import BaseEstimator

from permea.storage import register_family
from permea.storage.classes import COUNT, floats


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


register_family(
    PrincipalSubspace,
    n_components=COUNT,
    fitted={"mean_": floats("p"), "basis_": floats("n", "p")},
)

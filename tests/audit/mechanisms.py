"""Small mechanisms and models with a known answer, for testing the auditor itself."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin


class NearestRow(ClassifierMixin, BaseEstimator):
    """1-NN that answers with distances: the worst model there is."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.X_, self.y_ = np.asarray(X), np.asarray(y)
        return self

    def distances(self, X):
        squares = (X**2).sum(1)[:, None] + (self.X_**2).sum(1) - 2 * X @ self.X_.T
        squares[squares < 1e-9] = 0.0
        full = np.sqrt(squares)
        return np.stack([full[:, self.y_ == c].min(axis=1) for c in self.classes_], axis=1)

    def predict(self, X):
        return self.classes_[self.distances(X).argmin(axis=1)]


class NoisyMeans(ClassifierMixin, BaseEstimator):
    """Nearest class mean of rows in [0, 1]^p, each entry with Laplace(1/ε) noise: ε per entry.

    ``means=False`` keeps every noisy row instead of their means. ``scale`` multiplies the noise
    (0.5 is broken), ``keep_rows`` leaves the raw rows inside.
    """

    def __init__(self, *, epsilon=1.0, scale=1.0, means=False, keep_rows=False, random_state=None):
        self.epsilon = epsilon
        self.scale = scale
        self.means = means
        self.keep_rows = keep_rows
        self.random_state = random_state

    def fit(self, X, y):
        rng = np.random.default_rng(self.random_state)
        noisy = np.clip(X, 0, 1) + rng.laplace(0, self.scale / self.epsilon, np.shape(X))
        self.classes_ = np.unique(y)
        rows = np.asarray(X) if self.keep_rows else noisy
        labels = np.asarray(y)
        if self.means:
            rows = np.stack([rows[labels == c].mean(axis=0) for c in self.classes_])
            labels = self.classes_
        self.inner_ = NearestRow().fit(rows, labels)
        return self

    def distances(self, X):
        return self.inner_.distances(X)

    def predict(self, X):
        return self.classes_[self.distances(X).argmin(axis=1)]


class LabelService:
    """A classifier that answers with a label and nothing else."""

    def __init__(self, clf):
        self.clf = clf
        self.classes_ = clf.classes_

    def predict(self, X):
        return self.clf.predict(X)


def laplace_release(epsilon, rng, *, scale=1.0, clip=True):
    """Release of [0, 1] entries with ε per entry, or broken by ``scale`` or a missing clip."""

    def release(Y):
        inside = np.clip(Y, 0, 1) if clip else Y
        return inside + rng.laplace(0, scale / epsilon, Y.shape)

    return release


def noisy_classes(n=1200, n_classes=20, n_features=6, seed=0):
    """Rows whose label has nothing to do with them: a model can only remember."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n_features)), rng.integers(0, n_classes, n)

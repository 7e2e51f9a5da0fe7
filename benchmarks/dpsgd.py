"""DP-SGD with Opacus as a scikit-learn classifier, for the benchmarks that compare with it."""

import importlib

import numpy as np
from common import size
from sklearn.base import BaseEstimator, ClassifierMixin

DELTA = 1e-5
EPOCHS = size(15, 2)
SETTINGS = {  # on MNIST
    "network on pixels": {"network": True, "clip": 0.1},
    "linear on gradients": {"clip": 0.1, "shift": 0.0},
    "linear on pixels": {"clip": 1.0},
}
BEST_RATES = {  # by ε; found by ``dpsgd_rates``
    "network on pixels": {1.0: 2.0, 8.0: 4.0},
    "linear on gradients": {1.0: 64.0, 8.0: 256.0},
    "linear on pixels": {1.0: 0.25, 8.0: 1.0},
}


def tuned(kind, epsilon):
    """DP-SGD on MNIST with the rate that was best at the nearest ε."""
    rates = BEST_RATES[kind]
    nearest = min(rates, key=lambda known: abs(np.log(known / epsilon)))
    return DPSGD(epsilon, rate=rates[nearest], **SETTINGS[kind])


def available(name):
    """Whether a library is installed and imports."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


class DPSGD(ClassifierMixin, BaseEstimator):
    """A linear model, or a small convolutional network for 28 x 28 images; add/remove a row."""

    def __init__(
        self, epsilon=1.0, network=False, rate=1.0, clip=1.0, shift=0.5, epochs=EPOCHS, seed=0
    ):
        self.epsilon = epsilon
        self.network = network
        self.rate = rate
        self.clip = clip
        self.shift = shift
        self.epochs = epochs
        self.seed = seed

    def fit(self, X, y):
        import torch
        from opacus import PrivacyEngine
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(self.seed)
        self.classes_, codes = np.unique(y, return_inverse=True)
        linear = torch.nn.Linear(X.shape[1], len(self.classes_))
        model = small_cnn(torch.nn) if self.network else linear
        optimiser = torch.optim.SGD(model.parameters(), lr=self.rate, momentum=0.9)
        data = TensorDataset(self._tensor(X), torch.tensor(codes))
        loader = DataLoader(data, batch_size=max(64, len(X) // 30))
        model, optimiser, loader = PrivacyEngine().make_private_with_epsilon(
            module=model, optimizer=optimiser, data_loader=loader, epochs=self.epochs,
            target_epsilon=self.epsilon, target_delta=DELTA, max_grad_norm=self.clip,
        )  # fmt: skip
        for _ in range(self.epochs):
            for rows, truth in loader:
                if len(rows):
                    optimiser.zero_grad()
                    torch.nn.functional.cross_entropy(model(rows), truth).backward()
                    optimiser.step()
        self.model_ = model.eval()
        return self

    def _tensor(self, X):
        import torch

        rows = torch.tensor(np.asarray(X) - self.shift, dtype=torch.float32)
        return rows.reshape(-1, 1, 28, 28) if self.network else rows

    def predict_proba(self, X):
        import torch

        with torch.no_grad():
            parts = [self.model_(part).softmax(1).numpy() for part in self._tensor(X).split(2000)]
        return np.concatenate(parts).astype(float)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def small_cnn(nn):
    """The convolutional network of Opacus' MNIST example and of Tramèr and Boneh, with tanh."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Flatten(),
        nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


class DPLogistic(ClassifierMixin, BaseEstimator):
    """Logistic regression by DP-SGD for two classes, on rows of norm at most 1; add/remove a row.

    The gradients of single rows have a closed form, so NumPy is some hundred times faster than a
    framework; noise per step by Opacus' accountant, rows drawn by Poisson sampling, momentum 0.9.
    """

    def __init__(self, epsilon=1.0, delta=1e-6, rate=1.0, epochs=15, batches=30, clip=1.0, seed=0):
        self.epsilon = epsilon
        self.delta = delta
        self.rate = rate
        self.epochs = epochs
        self.batches = batches
        self.clip = clip
        self.seed = seed

    def fit(self, X, y):
        from opacus.accountants.utils import get_noise_multiplier

        noise = get_noise_multiplier(
            target_epsilon=self.epsilon, target_delta=self.delta, sample_rate=1 / self.batches,
            epochs=self.epochs,
        )  # fmt: skip
        self.classes_, codes = np.unique(y, return_inverse=True)
        rng = np.random.default_rng(self.seed)
        rows = np.hstack([X, np.ones((len(X), 1))])
        lengths = np.linalg.norm(rows, axis=1)
        weights, velocity = np.zeros((2, rows.shape[1]))
        for _ in range(self.epochs * self.batches):
            drawn = np.flatnonzero(rng.random(len(rows)) < 1 / self.batches)
            residual = 1 / (1 + np.exp(-rows[drawn] @ weights)) - codes[drawn]
            residual /= np.maximum(1, np.abs(residual) * lengths[drawn] / self.clip)
            gradient = residual @ rows[drawn] + rng.normal(size=len(weights)) * noise * self.clip
            velocity = 0.9 * velocity + gradient * self.batches / len(rows)
            weights = weights - self.rate * velocity
        self.coef_ = weights
        return self

    def predict_proba(self, X):
        p = 1 / (1 + np.exp(-(X @ self.coef_[:-1] + self.coef_[-1])))
        return np.column_stack([1 - p, p])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

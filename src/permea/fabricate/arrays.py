"""Rows of numbers that look like those of each class: several Gaussians for every class.

A class of images is no ellipsoid. So each class is divided by the signs of its leading coordinates,
about its mean, in directions that were released before; a row lies in one part of one class, and
the scatter of all parts costs what the scatter of the classes costs (`permea.privacy.scatter`). A
constant coordinate beside the others makes the count and the mean of each part entries of the same
matrix.
"""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from permea._arrays import Array, Integers
from permea.models.calibration import class_shares
from permea.models.hull import (
    ClassHulls,
    HullClassifier,
    choose_directions,
    hull_regularization,
    shrink_deviation,
)
from permea.models.moment_estimator import LabelledMomentEstimator
from permea.models.parts import Part
from permea.privacy.moments import MomentPlan
from permea.privacy.release import Release
from permea.privacy.rowwise import row_product, shrink_rows
from permea.privacy.scatter import ClassScatter, sum_scatter

_CONSTANT = 0.5  # of the radius: the constant coordinate of every row
_LEAST_VALUE = 0.3  # of the covariance of a part, in units of that within all parts


class PartedHulls(HullClassifier):
    """`HullClassifier` whose classes are divided into parts: what synthetic rows are drawn from.

    Parameters
    ----------
    n_parts : int, default=1
        Parts of each class, a power of two.
    **shared
        See :class:`permea.HullClassifier`.

    Attributes
    ----------
    hulls_ : ClassHulls
        A Gaussian for every part of every class, class by class.
    counts_ : ndarray of shape (C, n_parts)
        Released numbers of rows.
    """

    n_losses: int = 0

    def __init__(self, *, n_parts: int = 1, **shared: Any) -> None:
        super().__init__(**shared)
        self.n_parts = n_parts

    def _check_parameters(self) -> None:
        super()._check_parameters()
        whole = isinstance(self.n_parts, int | np.integer) and self.n_parts > 0
        if not whole or self.n_parts & (self.n_parts - 1):
            raise ValueError("n_parts must be a power of two: 1, 2, 4, …")
        if self.n_directions < self._n_bits():
            raise ValueError(
                f"{self.n_parts} parts need n_directions of at least {self._n_bits()}."
            )

    def _most_directions(self) -> int:
        return super()._most_directions() + 1  # the constant

    def _n_bits(self) -> int:
        return int(self.n_parts).bit_length() - 1

    def choose_directions(self, moments: Any, most: int) -> Array:
        """Directions (D + C K, d) for K parts of each class; the last one is the constant."""
        room = math.sqrt(1.0 - _CONSTANT**2) * self.radius
        P = choose_directions(moments, self._model(moments), most - 1, room)
        C = len(self.classes_)
        rows = np.vstack([P[:-C], np.repeat(P[-C:], self.n_parts, axis=0)])
        constant = np.zeros((len(rows), 1))
        constant[len(P) - C :] = _CONSTANT * self.radius
        return np.hstack([rows, constant])

    def _sum_scatter(
        self, mapped: Part, mean: Array, plan: MomentPlan, directions: Array
    ) -> Integers:
        z, targets = self._centre(mapped.rows, mean), self._targets(mapped.outputs)
        parts = self._parts(shrink_rows(z, plan.radius), targets, directions)
        return sum_scatter(z, parts, directions, plan, mapped.weights)

    def _parts(self, z: Array, targets: Array, directions: Array) -> Array:
        """Indicators (n, C K) of the part of each row: a function of its row and the release."""
        n_bits = self._n_bits()
        first = np.zeros((len(z), targets.shape[1] * self.n_parts))
        first[:, :: self.n_parts] = targets
        leading = directions[:, directions.shape[1] - 1 - n_bits : -1]  # those that vary most
        signs = row_product(np.hstack([z, first]), leading) > 0 if n_bits else np.zeros((len(z), 0))
        place = np.asarray(signs @ (1 << np.arange(n_bits)), np.intp)
        own = np.eye(self.n_parts)[place]
        return np.asarray((targets[:, :, None] * own[:, None, :]).reshape(len(z), -1))

    def learn(self, released: Release) -> Self:
        """Learn from a release: all of it is post-processing."""
        if released.scatter is None:
            raise ValueError("Parts of classes are learned from a release with their scatter.")
        LabelledMomentEstimator.learn(self, released)
        self.scatter_ = released.scatter
        sizes = class_shares(self.moments_) * self.moments_.size
        self.hulls_, counts = learn_parts(self.scatter_, sizes)
        self.counts_ = counts.reshape(len(sizes), -1)
        return self

    def draw_rows(self, n_rows: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.intp]]:
        """Centred features and the places of their classes, in the proportions of the release."""
        counts = self.counts_.ravel()
        places = rng.choice(len(counts), size=n_rows, p=counts / counts.sum())
        codes = np.empty((n_rows, self.hulls_.means.shape[1]))
        for place in np.unique(places):
            mine = places == place
            codes[mine] = self.hulls_.draw(int(place), int(mine.sum()), rng)
        return self.hulls_.decode(codes), np.asarray(places // self.n_parts, np.intp)


def learn_parts(scatter: ClassScatter, sizes: Array) -> tuple[ClassHulls, Array]:
    """A Gaussian for every part of every class, and the number of rows in it.

    ``sizes`` are the released numbers of rows of the classes: more precise than sums over parts.
    Means are drawn to the class's, and covariances to that within all parts, as far as what they
    deviate by may be noise and sampling error (empirical Bayes).
    """
    second, P, C = scatter.second, scatter.directions, len(sizes)
    n_groups, D, d = len(second), len(P) - len(second), P.shape[1] - 1
    constant = float(P[-1, -1])
    shares = np.maximum(second[:, -1, -1].reshape(C, -1), 1e-3 * constant**2)
    counts = (sizes[:, None] * shares / shares.sum(axis=1, keepdims=True)).ravel()
    raw = second[:, :-1, -1] / (constant * counts[:, None])
    errors = np.square(scatter.noise / (math.sqrt(2.0) * constant * counts))[:, None]
    truth = np.maximum(np.mean(np.square(raw) - errors, axis=0), 0.0)
    means = raw * (truth / (truth + errors + np.finfo(np.float64).tiny))
    own = second[:, :-1, :-1] - counts[:, None, None] * means[:, :, None] * means[:, None, :]

    values, vectors = eigh(own.sum(axis=0) / counts.sum(), driver="evd")
    floor = scatter.noise * math.sqrt(n_groups * d) / counts.sum()
    whitening = vectors / np.sqrt(np.maximum(values, max(floor, 1e-4 * float(values[-1]))))
    deviations = whitening.T @ (own / counts[:, None, None]) @ whitening
    identity = np.eye(d)
    deviations -= identity
    products = whitening.T @ whitening
    noises = np.outer(np.diag(products), np.diag(products)) + np.square(products)
    noises *= scatter.noise**2 / 2
    eigen = [
        eigh(
            identity + shrink_deviation(one, noises / count**2 + (1.0 + identity) / count),
            driver="evd",
        )
        for one, count in zip(deviations, counts, strict=True)
    ]
    kept = np.stack([np.maximum(found, _LEAST_VALUE) for found, _ in eigen])
    hulls = ClassHulls(
        P[:D, :-1] @ whitening, (means - P[D:, :-1]) @ whitening, kept,
        np.ascontiguousarray(np.stack([axes for _, axes in eigen])),
        np.array([hull_regularization(w) for w in kept]),
    )  # fmt: skip
    return hulls, counts

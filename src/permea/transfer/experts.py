"""Distributions over classes: from scores, calibrated, and balanced to known proportions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from permea._arrays import Array, Indices
from permea.transfer.source import ClassMixtures, ClassMoments
from permea.transfer.task import AlignedSource, Task

_TEMPERATURES = np.geomspace(0.02, 1000, 60)
_LEAST = 1e-4  # a probability below this costs no more: a few wrong labels must not rule


def beliefs(scores: Array, temperature: float = 1.0) -> Array:
    """Probabilities proportional to exp(score / temperature); −∞ is impossible.

    Examples
    --------
    >>> import numpy as np
    >>> beliefs(np.array([[0.0, 0.0, -np.inf]]))
    array([[0.5, 0.5, 0. ]])
    """
    scaled = np.asarray(scores, np.float64) / temperature
    largest = scaled.max(axis=1, keepdims=True)
    values = np.exp(scaled - np.where(np.isfinite(largest), largest, 0))
    total = values.sum(axis=1, keepdims=True)
    return np.where(total > 0, values / np.where(total > 0, total, 1), 1 / scores.shape[1])


def calibrate(scores: Array, labels: Indices) -> tuple[float, float]:
    """Temperature at which the scores explain the labels best, and how well they do.

    Parameters
    ----------
    scores : ndarray of shape (m, C)
        Larger is likelier.
    labels : ndarray of shape (m,)
        Class numbers.

    Returns
    -------
    temperature, loss : float
        The loss is the mean of −log probability of the label. Scores that say nothing about the
        labels get a high temperature and the loss log C.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[9.0, 0.0], [0.0, 9.0], [9.0, 0.0]])
    >>> calibrate(scores, np.array([0, 1, 0]))[1] < calibrate(scores, np.array([0, 1, 1]))[1]
    True
    """
    losses = [float(np.mean(surprise(scores, labels, t))) for t in _TEMPERATURES]
    best = int(np.argmin(losses))
    return float(_TEMPERATURES[best]), losses[best]


def surprise(scores: Array, labels: Indices, temperature: float) -> Array:
    """−log probability of the label of each row, bounded."""
    told = beliefs(scores, temperature)[np.arange(len(labels)), labels]
    return np.asarray(-np.log(np.maximum(told, _LEAST)))


def clearly_less(losses: Array, others: Array) -> bool:
    """Whether losses of the same rows are smaller by more than two standard errors.

    Examples
    --------
    >>> import numpy as np
    >>> clearly_less(np.array([0.1, 0.2, 0.1, 0.3]), np.array([0.5, 0.7, 0.6, 0.6]))
    True
    >>> clearly_less(np.array([0.1, 0.2, 0.1, 0.3]), np.array([0.1, 0.2, 0.1, 9.0]))
    False
    """
    saved = np.asarray(others - losses)
    if len(saved) < 2:
        return bool(saved.sum() > 0)
    return bool(saved.mean() > 2 * saved.std(ddof=1) / np.sqrt(len(saved)))


def balanced(posterior: Array, proportions: Array, n_steps: int = 30) -> Array:
    """Scale classes until their mean probability is as given (Sinkhorn's iteration).

    Classes of proportion zero are left as they are.

    Examples
    --------
    >>> import numpy as np
    >>> skewed = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]])
    >>> balanced(skewed, np.array([0.5, 0.5])).mean(axis=0).round(3)
    array([0.5, 0.5])
    """
    result = np.asarray(posterior, np.float64).copy()
    for _ in range(n_steps):
        now = result.mean(axis=0)
        wanted = (proportions > 0) & (now > 0)
        result[:, wanted] *= proportions[wanted] / now[wanted]
        result /= np.maximum(result.sum(axis=1, keepdims=True), 1e-300)
    return result


RICHEST = "mixtures"  # the form that keeps most of the source
_DIRECTIONS = (10, 20, 40)  # of the target, in which the source's moments are looked at
_MEAN_DIRECTIONS = 50
_DISCERNMENT = 5.0  # how much less a voice counts in a chorus for a larger loss


@dataclass(frozen=True)
class DensityVoice:
    """Class densities of the source, in the common space; averaged where there are several."""

    mixtures: tuple[ClassMixtures, ...]  #: all in the same directions
    source: AlignedSource

    def encode(self, Y: Array) -> Array:
        """Codes of target rows."""
        return self.mixtures[0].encode(self.source.alignment.to_source(Y))

    def scores(self, codes: Array) -> Array:
        """Logarithm of prior times density, shape (m, C of the source)."""
        counts = np.maximum(self.mixtures[0].counts, 1)
        each = [mixtures.scores(codes) for mixtures in self.mixtures]
        return np.asarray(np.mean(each, axis=0) + np.log(counts / counts.sum()))

    def adapted(self, codes: Array, posterior: Array, strength: float) -> "DensityVoice":
        """The same voice after it has heard target rows."""
        own = posterior[:, self.source.columns]
        moved = tuple(one.adapted(codes, own, strength) for one in self.mixtures)
        return DensityVoice(moved, self.source)


@dataclass(frozen=True)
class ClassifierVoice:
    """The source's classifier, asked through the alignment."""

    source: AlignedSource

    def encode(self, Y: Array) -> Array:
        """Target rows in the source space."""
        return self.source.alignment.to_source(Y)

    def scores(self, codes: Array) -> Array:
        """Minus half the squared distance to each class."""
        return np.asarray(-0.5 * np.square(self.source.model.classifier_.distances(codes)))

    def adapted(self, codes: Array, posterior: Array, strength: float) -> "ClassifierVoice":
        """Itself: its rows stay where they are."""
        return self


@dataclass(frozen=True)
class Chorus:
    """Several forms of the source at once: their beliefs are averaged, better ones count more."""

    members: tuple[Any, ...]
    temperatures: tuple[float, ...]  #: of each member's belief
    weights: tuple[float, ...]  #: positive, sum 1
    ends: tuple[int, ...]  #: first column of the codes that belongs to the next member

    def encode(self, Y: Array) -> Array:
        """Codes of all members, side by side."""
        return np.hstack([member.encode(Y) for member in self.members])

    def scores(self, codes: Array) -> Array:
        """Logarithm of the averaged belief, shape (m, C of the source)."""
        total = np.zeros((len(codes), 1))
        parts = zip(self.members, self.temperatures, self.weights, self._own(codes), strict=True)
        for member, temperature, weight, own in parts:
            total = total + weight * beliefs(member.scores(own), temperature)
        return np.asarray(np.log(np.maximum(total, 1e-300)))

    def adapted(self, codes: Array, posterior: Array, strength: float) -> "Chorus":
        """The same voices after they have heard target rows."""
        moved = tuple(
            member.adapted(own, posterior, strength)
            for member, own in zip(self.members, self._own(codes), strict=True)
        )
        return replace(self, members=moved)

    def _own(self, codes: Array) -> list[Array]:
        return np.split(codes, self.ends[:-1], axis=1)


def chorus(
    members: dict[str, Any], temperatures: Sequence[float], losses: Sequence[Array]
) -> Chorus:
    """Voices together, each with the weight exp(−5 loss) before normalisation."""
    mean = np.array([one.mean() for one in losses])
    weights = np.exp(-_DISCERNMENT * (mean - mean.min()))
    widths = [len(member.mixtures[0].directions) for member in members.values()]
    return Chorus(
        tuple(members.values()), tuple(temperatures), tuple(weights / weights.sum()),
        tuple(np.cumsum(widths)),
    )  # fmt: skip


def voices(task: Task, mean: Array, directions: Array) -> dict[str, Any]:
    """Every form in which the source can be heard.

    Parameters
    ----------
    task : Task
        The target problem.
    mean, directions : ndarray of shape (p,) and (n, p)
        Mean and principal directions of the target rows.

    Returns
    -------
    dict of str to voice
        With other features than the target's the classifier is all there is. With the same
        features: mixtures; means and covariances in directions of the target, where most of the
        noise is not; and means alone.
    """
    source = task.source
    if not source.alignment.is_identity:
        return {"classifier": ClassifierVoice(source)}
    model = source.model
    found: dict[str, Any] = {}
    if model.mixtures_:
        found[RICHEST] = DensityVoice(model.mixtures_, source)
    centred = np.asarray(task.rows - mean, np.float64)
    for d in _DIRECTIONS:
        if model.moments_.seconds is not None and d <= len(directions):
            codes = centred @ directions[:d].T
            made = moment_densities(model.moments_, mean, directions[:d], np.cov(codes.T))
            found[f"covariances in {d} directions"] = DensityVoice((made,), source)
    few = directions[:_MEAN_DIRECTIONS]
    found["means"] = DensityVoice((mean_densities(model.moments_, mean, few),), source)
    return found


def mean_densities(moments: ClassMoments, mean: Array, directions: Array) -> ClassMixtures:
    """Round densities about the class means: the nearest mean wins.

    The noise of a mean has the same expected energy for each class of the same size; it is
    subtracted through the normalisation of the scores (log-densities differ by ½ s d / N_c).
    """
    means = np.asarray((moments.means - mean) @ directions.T)
    C, d = means.shape
    noise = np.square(directions) @ moments.noise
    energy = (noise.sum() / np.maximum(moments.counts, 1)).clip(0)
    weights = np.exp(0.5 * (energy - energy.max()))[:, None]
    unit = np.broadcast_to(np.eye(d), (C, 1, d, d)).copy()
    return ClassMixtures(mean, directions, weights, means[:, None], unit, moments.counts)


def moment_densities(
    moments: ClassMoments, mean: Array, directions: Array, total: Array
) -> ClassMixtures:
    """A Gaussian per class whose covariance is trusted as far as the noise allows.

    Covariances are compared with the pooled one, W = total − between, where ``total`` is the
    covariance of the target rows. The difference counts with the weight 1 − (energy of the noise
    in it) / (its energy), at least zero (James-Stein); both energies are taken in units of W.

    Parameters
    ----------
    moments : ClassMoments
        Of the source, with second moments.
    mean, directions : ndarray of shape (p,) and (d, p)
        Origin and axes of the codes.
    total : ndarray of shape (d, d)
        Covariance of the target's codes.

    Returns
    -------
    ClassMixtures
        With one part per class.
    """
    assert moments.seconds is not None
    V, d = np.asarray(directions, np.float64), len(directions)
    means = (moments.means - mean) @ V.T
    noise = (V * moments.noise) @ V.T
    counts = np.maximum(moments.counts, 1)
    prior = counts / counts.sum()
    spread = means - prior @ means
    between = (spread * prior[:, None]).T @ spread - noise * np.sum(prior / counts)
    pooled = _at_least(np.atleast_2d(total) - between, 0.05 * float(np.diag(total).min()))
    L = np.linalg.cholesky(pooled)
    A = _in_units_of(L, noise)
    covariances = np.empty((len(means), 1, d, d))
    for label, count in enumerate(counts):
        shift = V @ moments.means[label]
        second = V @ moments.seconds[label] @ V.T
        own = second - np.outer(shift, shift) + noise / count
        difference = _in_units_of(L, own - pooled)
        of_noise = np.trace(A) ** 2 + np.sum(A * A) + 2 * (np.trace(A) * d + np.trace(A))
        weight = max(0.0, 1 - of_noise / count / max(float(np.sum(difference**2)), 1e-300))
        values, vectors = np.linalg.eigh(np.eye(d) + weight * difference)
        root = L @ (vectors * np.sqrt(np.clip(values, 0.1, 10)))
        covariances[label, 0] = root @ root.T
    ones = np.ones((len(means), 1))
    return ClassMixtures(mean, directions, ones, means[:, None], covariances, moments.counts)


def _in_units_of(L: Array, matrix: Array) -> Array:
    """L⁻¹ M L⁻ᵀ: a symmetric matrix in units of the covariance L Lᵀ."""
    half = solve_triangular(L, matrix, lower=True)
    return np.asarray(solve_triangular(L, half.T, lower=True))


def _at_least(matrix: Array, floor: float) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)


def on_all_classes(scores: Array, columns: Indices, n_classes: int) -> Array:
    """Scores of the source's classes among all classes; others get the average belief.

    A class that the source has never seen is neither supported nor ruled out.
    """
    answer = np.empty((len(scores), n_classes))
    largest = scores.max(axis=1, keepdims=True)
    shared = largest + np.log(np.mean(np.exp(scores - largest), axis=1, keepdims=True))
    answer[:] = shared
    answer[:, columns] = scores
    return answer

"""Experts of the source and the linear opinion pool that combines experts.

An expert maps a row to a distribution over classes, p_k(c | x) ∝ exp(s_k(c, x) / T_k). The
temperature T_k, and the weights of several experts, maximise the likelihood of labelled rows that
the experts were not trained on: see `calibrate` and `stack`.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from permea._arrays import Array, Indices
from permea.transfer.densities import ClassMixtures, ClassMoments, at_least
from permea.transfer.task import AlignedSource, Task

MIXTURES = "mixtures"  #: name of the expert that keeps most of the source
_TEMPERATURES = np.geomspace(0.02, 1000, 60)
_LEAST = 1e-4  # smallest likelihood of a label: a few wrong labels must not set the temperature
_DIRECTIONS = (10, 20, 40)  # of the target, in which class covariances of the source are used
_MEAN_DIRECTIONS = 50
_STACKING_STEPS = 200


def softmax(scores: Array, temperature: float = 1.0) -> Array:
    """Probabilities proportional to exp(score / temperature); −∞ is impossible.

    Examples
    --------
    >>> import numpy as np
    >>> softmax(np.array([[0.0, 0.0, -np.inf]]))
    array([[0.5, 0.5, 0. ]])
    """
    scaled = np.asarray(scores, np.float64) / temperature
    largest = scaled.max(axis=1, keepdims=True)
    values = np.exp(scaled - np.where(np.isfinite(largest), largest, 0))
    total = values.sum(axis=1, keepdims=True)
    return np.where(total > 0, values / np.where(total > 0, total, 1), 1 / scores.shape[1])


def calibrate(scores: Array, labels: Indices) -> float:
    """Temperature at which the scores give the labels the largest likelihood.

    Scores that do not depend on the labels get a high temperature.

    Parameters
    ----------
    scores : ndarray of shape (m, C)
        Larger is likelier.
    labels : ndarray of shape (m,)
        Class numbers.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[9.0, 0.0], [0.0, 9.0], [9.0, 0.0]])
    >>> calibrate(scores, np.array([0, 1, 0])) < calibrate(scores, np.array([0, 1, 1]))
    True
    """
    means = [losses(scores, labels, t).mean() for t in _TEMPERATURES]
    return float(_TEMPERATURES[int(np.argmin(means))])


def losses(scores: Array, labels: Indices, temperature: float) -> Array:
    """−log likelihood of the label of each row, bounded."""
    likelihood = softmax(scores, temperature)[np.arange(len(labels)), labels]
    return np.asarray(-np.log(np.maximum(likelihood, _LEAST)))


def smaller_loss(first: Array, second: Array) -> bool:
    """Whether losses of the same rows are smaller by more than two standard errors.

    Examples
    --------
    >>> import numpy as np
    >>> smaller_loss(np.array([0.1, 0.2, 0.1, 0.3]), np.array([0.5, 0.7, 0.6, 0.6]))
    True
    >>> smaller_loss(np.array([0.1, 0.2, 0.1, 0.3]), np.array([0.1, 0.2, 0.1, 9.0]))
    False
    """
    saved = np.asarray(second - first)
    if len(saved) < 2:
        return bool(saved.sum() > 0)
    return bool(saved.mean() > 2 * saved.std(ddof=1) / np.sqrt(len(saved)))


def stack(posteriors: list[Array], labels: Indices) -> Array:
    r"""Weights of experts in a linear pool: stacking by expectation maximisation.

    .. math:: w = \arg\max_{w \ge 0,\ \sum w = 1} \prod_i \sum_k w_k\, p_k(y_i | x_i)

    The logarithm is concave, so the maximum does not depend on the start. Each expert counts as
    one row of its own in the prior (Dirichlet): without labels all weights are the same.

    Parameters
    ----------
    posteriors : list of ndarray of shape (m, C)
        Distributions over classes of each expert at rows that it was not trained on.
    labels : ndarray of shape (m,)
        Class numbers of these rows.

    Returns
    -------
    ndarray of shape (K,)

    Examples
    --------
    >>> import numpy as np
    >>> good, bad = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.5, 0.5], [0.5, 0.5]])
    >>> stack([good, bad], np.array([0, 1])).round(2)
    array([0.62, 0.38])
    """
    likelihood = np.stack([one[np.arange(len(labels)), labels] for one in posteriors])
    weights = np.full(len(posteriors), 1 / len(posteriors))
    for _ in range(_STACKING_STEPS):
        shares = weights[:, None] * likelihood
        shares /= np.maximum(shares.sum(axis=0), 1e-300)
        weights = (shares.sum(axis=1) + 1) / (shares.sum() + len(weights))
    return weights


def match_proportions(posterior: Array, proportions: Array, n_steps: int = 30) -> Array:
    """Scale classes until their mean probability is as given (Sinkhorn's iteration).

    Classes of proportion zero are left as they are.

    Examples
    --------
    >>> import numpy as np
    >>> skewed = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]])
    >>> match_proportions(skewed, np.array([0.5, 0.5])).mean(axis=0).round(3)
    array([0.5, 0.5])
    """
    result = np.asarray(posterior, np.float64).copy()
    for _ in range(n_steps):
        now = result.mean(axis=0)
        wanted = (proportions > 0) & (now > 0)
        result[:, wanted] *= proportions[wanted] / now[wanted]
        result /= np.maximum(result.sum(axis=1, keepdims=True), 1e-300)
    return result


@dataclass(frozen=True)
class DensityExpert:
    """Class densities of the source; averaged where there are several."""

    mixtures: tuple[ClassMixtures, ...]  #: all in the same directions
    source: AlignedSource

    def scores(self, Y: Array) -> Array:
        """Logarithm of prior times density at target rows, shape (m, C of the source)."""
        codes = self.mixtures[0].encode(self.source.to_space(Y))
        counts = np.maximum(self.mixtures[0].counts, 1)
        each = [mixtures.scores(codes) for mixtures in self.mixtures]
        return np.asarray(np.mean(each, axis=0) + np.log(counts / counts.sum()))

    def adapted(self, Y: Array, posterior: Array, strength: float) -> "DensityExpert":
        """The expert after maximum a posteriori adaptation to target rows."""
        codes = self.mixtures[0].encode(self.source.to_space(Y))
        own = posterior[:, self.source.columns]
        moved = tuple(one.adapted(codes, own, strength) for one in self.mixtures)
        return DensityExpert(moved, self.source)


@dataclass(frozen=True)
class ClassifierExpert:
    """The source's classifier, applied through the alignment."""

    source: AlignedSource

    def scores(self, Y: Array) -> Array:
        """Minus half the squared distance of target rows to each class of the source."""
        rows = self.source.to_space(Y)
        return np.asarray(-0.5 * np.square(self.source.model.space_distances(rows)))


@dataclass(frozen=True)
class SourceEnsemble:
    """Linear pool of the source's experts."""

    members: tuple[Any, ...]
    temperatures: tuple[float, ...]
    weights: tuple[float, ...]  #: positive, sum 1

    def scores(self, Y: Array) -> Array:
        """Logarithm of the pooled probability at target rows, shape (m, C of the source)."""
        total = np.zeros((len(Y), 1))
        for one, t, weight in zip(self.members, self.temperatures, self.weights, strict=True):
            total = total + weight * softmax(one.scores(Y), t)
        return np.asarray(np.log(np.maximum(total, 1e-300)))

    def adapted(self, Y: Array, posterior: Array, strength: float) -> "SourceEnsemble":
        """The ensemble with its densities adapted to target rows; a classifier stays as it is."""
        moved = [
            one.adapted(Y, posterior, strength) if isinstance(one, DensityExpert) else one
            for one in self.members
        ]
        return replace(self, members=tuple(moved))


def source_experts(task: Task, mean: Array, directions: Array) -> dict[str, Any]:
    """Every expert that the source artefact provides.

    Parameters
    ----------
    task : Task
        The target problem.
    mean, directions : ndarray of shape (p,) and (n, p)
        Mean and principal directions of the target rows.

    Returns
    -------
    dict of str to expert
        With other features than the target's, the classifier is the only one. With the same
        features: mixtures; means and covariances in directions of the target, which contain little
        of the noise; and means alone.
    """
    source = task.source
    if not source.alignment.is_identity:
        return {"classifier": ClassifierExpert(source)}
    model = source.model
    found: dict[str, Any] = {}
    if model.mixtures_:
        found[MIXTURES] = DensityExpert(model.mixtures_, source)
    centred = np.asarray(task.rows - mean, np.float64)
    for d in _DIRECTIONS:
        if model.moments_.seconds is not None and d <= len(directions):
            codes = centred @ directions[:d].T
            made = moment_densities(model.moments_, mean, directions[:d], np.cov(codes.T))
            found[f"covariances in {d} directions"] = DensityExpert((made,), source)
    few = directions[:_MEAN_DIRECTIONS]
    found["means"] = DensityExpert((mean_densities(model.moments_, mean, few),), source)
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
    pooled = at_least(np.atleast_2d(total) - between, 0.05 * float(np.diag(total).min()))
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


def on_all_classes(scores: Array, source: AlignedSource) -> Array:
    """Scores of the source's classes among all classes; others get the mean probability.

    A class that the source does not know is neither supported nor ruled out.
    """
    largest = scores.max(axis=1, keepdims=True)
    shared = largest + np.log(np.mean(np.exp(scores - largest), axis=1, keepdims=True))
    result = np.repeat(shared, source.n_classes, axis=1)
    result[:, source.columns] = scores
    return result

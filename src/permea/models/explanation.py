r"""What an additive model learned, column by column, with a band for what is not known.

A linear model on the features of a table adds up one contribution per column: a curve over the bins
of a number, a value per category. Curves, their uncertainty (sampling, privacy noise and the
shrinkage of the ridge) and the importance of a column follow from the release alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from permea._arrays import Array
from permea.models.calibration import calibrate
from permea.models.linear import (
    LinearModel,
    _centred_noise,
    _Spectrum,
    are_classes,
    output_covariance,
    score_moments,
)
from permea.privacy.moments import Moments


@dataclass(frozen=True)
class Effect:
    """What one column contributes to K predicted quantities.

    Attributes
    ----------
    column : str
    features : tuple of str
        The k bins or categories.
    values, std : ndarray of shape (k, K)
        Contribution at each of them, about that of the mean person when the mean is known, and its
        standard deviation.
    importance : ndarray of shape (K,)
        Standard deviation of the contribution over people.
    noise : ndarray of shape (K,)
        The importance that sampling and privacy noise alone would give the column.
    """

    column: str
    features: tuple[str, ...]
    values: Array
    std: Array
    importance: Array
    noise: Array


def explain(
    moments: Moments,
    model: LinearModel,
    groups: Mapping[str, slice],
    names: Sequence[str],
    *,
    mean: Array | None = None,
    unit: float = 1.0,
) -> list[Effect]:
    """Effects of the columns, the most important first.

    For two classes they are in units of log-odds of the second class, for more classes of the
    log-probability of each about their mean, for numbers in units of the outputs.

    Parameters
    ----------
    moments : Moments
    model : LinearModel
        What was learned from them.
    groups : dict of str to slice
        The features of every column.
    names : sequence of str
        Names of all features.
    mean : ndarray of shape (D,), optional
        The released mean of the features.
    unit : float
        The value of a feature where its bin or category applies fully: 1/√P for P columns.

    Examples
    --------
    >>> import numpy as np
    >>> from permea.models.linear import ridge
    >>> rng = np.random.default_rng(0)
    >>> X = np.hstack([np.eye(2)[rng.integers(2, size=900)] for _ in range(2)])
    >>> moments = Moments.of(X, X[:, :1] + 0.1 * rng.normal(size=(900, 1)))
    >>> columns, names = {"a": slice(0, 2), "b": slice(2, 4)}, ["a0", "a1", "b0", "b1"]
    >>> first, second = explain(moments, ridge(moments), columns, names, mean=X.mean(0))
    >>> first.column, bool(abs(first.values[0, 0] - 0.5) < 0.05), bool(second.importance[0] < 0.02)
    ('a', True, True)
    """
    spectrum, directions = _Spectrum.of(moments), _directions(moments, model)
    weights = model.weights @ directions
    noise, variances = _variances(spectrum, moments, model, directions)
    centre = np.zeros(len(weights)) if mean is None else np.asarray(mean)
    effects = []
    for column, part in groups.items():
        at = unit * np.eye(part.stop - part.start) - centre[part]
        vectors = spectrum.vectors[part]
        std = np.sqrt(np.square(at @ vectors) @ variances)
        second = spectrum.moments.second[part, part] / max(moments.size, 1.0)
        own = np.einsum("ia,ij,ja->a", weights[part], second, weights[part])
        spread = np.einsum("id,ij,jd->d", vectors, second, vectors) @ noise
        floor = np.maximum(spread, 0.0)
        importance = np.sqrt(np.maximum(own - floor, 0.0))
        features = tuple(str(name) for name in names[part])
        effects.append(
            Effect(column, features, at @ weights[part], std, importance, np.sqrt(floor))
        )
    return sorted(effects, key=lambda effect: -float(np.square(effect.importance).sum()))


def _directions(moments: Moments, model: LinearModel) -> Array:
    """Combinations (C, K) of the scores that are explained."""
    if not are_classes(moments):
        return np.eye(moments.cross.shape[1])
    slopes = calibrate(moments, model).slopes
    if slopes.shape[1] == 2:
        return np.asarray(slopes[:, 1:] - slopes[:, :1])
    return np.asarray(slopes - slopes.mean(axis=1, keepdims=True))


def _variances(
    spectrum: _Spectrum, moments: Moments, model: LinearModel, directions: Array
) -> tuple[Array, Array]:
    """Variances (D, K) of the weights in the eigenbasis: by noise, and with shrinkage.

    The weights are b = g c with c = w b₀ + noise of variance n, so that b - b₀ has the variance g²n
    and the bias (1 - g w) b₀. The variance of b₀ over directions is estimated from c as well.
    """
    w, c = spectrum.values[:, None], spectrum.rotated @ directions
    b = spectrum.vectors.T @ model.weights @ directions
    g = 1.0 / (w + float(model.regularization[0]))
    if model.variances is not None:
        g = np.divide(b, c, out=np.zeros_like(b), where=c != 0)
    g = np.broadcast_to(g, c.shape)
    total, cross = score_moments(moments, model)
    spread = output_covariance(moments)
    left = _along(spread - cross - cross.T + total, directions)
    left = np.clip(left, 0.05 * _along(spread, directions), _along(spread, directions))
    known = _along(_centred_noise(moments), directions) + w * left
    half = 0.5 * moments.second_noise**2 * len(w)  # times the variance of b₀: noise of E b₀
    truth = np.sum(g**2 * (c**2 - known), axis=0) / np.sum(g**2 * (w**2 + half), axis=0)
    truth = np.maximum(truth, np.mean(b**2, axis=0))
    noise = g**2 * (known + half * truth)
    return np.asarray(noise), np.asarray(noise + np.square(1.0 - g * w) * truth)


def _along(matrix: Array, directions: Array) -> Array:
    """uᵀ M u for every direction u."""
    return np.asarray(np.einsum("ck,cd,dk->k", directions, matrix, directions))


def plot_effects(effects: Sequence[Effect], *, output: int = 0, columns: int = 3) -> Any:
    """Curves with bands of two standard deviations, as a matplotlib figure (extra ``[plot]``).

    Examples
    --------
    >>> import numpy as np
    >>> two, one = np.ones((2, 1)), np.ones(1)
    >>> effect = Effect("age", ("20", "40"), two, two, one, one)
    >>> figure = plot_effects([effect])
    >>> figure.axes[0].get_title()
    'age'
    """
    from matplotlib.figure import Figure

    rows = -(-len(effects) // columns)
    figure = Figure(figsize=(4 * columns, 2.6 * rows), layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    for axis, effect in zip(axes, effects, strict=False):
        places, value = np.arange(len(effect.features)), effect.values[:, output]
        band = 2.0 * effect.std[:, output]
        axis.fill_between(places, value - band, value + band, alpha=0.3)
        axis.plot(places, value, marker="o", markersize=3)
        axis.axhline(0.0, linewidth=0.5, color="black")
        labels = [name.removeprefix(f"{effect.column}_") for name in effect.features]
        axis.set_xticks(places, labels, rotation=90, fontsize=6)
        axis.set_title(effect.column, fontsize=9)
    for axis in axes[len(effects) :]:
        axis.set_visible(False)
    return figure

"""Likelihood-ratio attacks: LiRA (Carlini et al. 2022) and RMIA (Zarifzadeh et al. 2024).

Both ask if the audited model's answer about a row looks more like the answers of models trained
with the row or without it. They need many refits; closed-form models make those cheap.

All functions take ``observed`` (the audited model's signal per row), ``shadow`` (the shadows'
signals, shadows × rows) and ``inside`` (which rows trained which shadow).
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import norm

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: From this many shadows on either side, each row gets its own variance (Carlini et al. 2022).
ENOUGH_FOR_OWN_VARIANCE = 32
_SMALLEST_DEVIATION = 1e-6


def _moments(shadow: Array, chosen: Mask) -> tuple[Array, Array]:
    """Mean and deviation of each row's signal over the chosen shadows."""
    count = chosen.sum(axis=0)
    mean = np.where(chosen, shadow, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = np.where(chosen, (shadow - mean) ** 2, 0.0)
    if count.min() >= ENOUGH_FOR_OWN_VARIANCE:
        variance = squares.sum(axis=0) / (count - 1)
    else:
        degrees = np.maximum(count - 1, 0).sum()
        variance = np.full(shadow.shape[1], squares.sum() / max(degrees, 1))
    return mean, np.sqrt(np.maximum(variance, _SMALLEST_DEVIATION**2))


def lira_online(observed: Array, shadow: Array, inside: Mask) -> Array:
    """Log likelihood ratio of the two Gaussians "row was in" and "row was out".

    With fewer than 32 shadows on a side one variance is shared by all rows.

    Returns
    -------
    ndarray of shape (n_rows,)
        Above zero: more likely a member.
    """
    mean_in, deviation_in = _moments(shadow, inside)
    mean_out, deviation_out = _moments(shadow, ~inside)
    ratio = norm.logpdf(observed, mean_in, deviation_in)
    return np.asarray(ratio - norm.logpdf(observed, mean_out, deviation_out))


def lira_offline(observed: Array, shadow: Array, inside: Mask) -> Array:
    """How many deviations the signal is above what models without the row answer.

    A monotone function of the one-sided p-value of the offline attack; no shadow that knew the row
    is used.
    """
    mean_out, deviation_out = _moments(shadow, ~inside)
    return np.asarray((observed - mean_out) / deviation_out)


def rmia(
    observed: Array,
    shadow: Array,
    inside: Mask,
    population: Mask,
    *,
    offline: bool = False,
    gamma: float = 1.0,
    interpolation: float = 0.3,
) -> Array:
    """Share of population rows that the row beats by a factor ``gamma`` in relative likelihood.

    The likelihood of a row under the audited model is divided by its mean over the shadows; the
    score is the share of population rows z with ratio(x) ≥ γ ratio(z).

    Parameters
    ----------
    observed, shadow : ndarrays
        Log likelihoods, not signals of any scale.
    inside : ndarray
        Which rows trained which shadow.
    population : ndarray of bool, shape (n_rows,)
        Rows known not to be members, to compare with.
    offline : bool
        Use only shadows that did not know the row, and correct their mean towards one:
        ``((1 + a) p_out + 1 − a) / 2``. Meant for probabilities; for other likelihoods the plain
        mean over the shadows outside is used (``interpolation=1``).
    gamma, interpolation : float
        γ and a of Zarifzadeh et al. 2024.
    """
    weight = ~inside if offline else np.ones_like(inside)
    count = np.maximum(weight.sum(axis=0), 1)
    typical = logsumexp(shadow, axis=0, b=weight / count)
    if offline:
        typical = np.logaddexp(
            typical + np.log((1 + interpolation) / 2),
            np.log((1 - interpolation) / 2) if interpolation < 1 else -np.inf,
        )
    ratio = observed - typical
    rivals = np.sort(ratio[population]) + np.log(gamma)
    return np.asarray(np.searchsorted(rivals, ratio, side="right") / len(rivals))


def without(number: int, shadow: Array, inside: Mask) -> tuple[Array, Array, Mask, Mask]:
    """Take one shadow out to stand for the audited model, whose members are then known.

    Returns its signal, the other shadows' signals and masks, and who its members are. Thresholds
    are fitted this way, on rows that are not scored.
    """
    others = np.arange(len(shadow)) != number
    return shadow[number], shadow[others], inside[others], inside[number]

"""Minima of distances that skip what cannot win."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from permea.models.base import Array


def distance_below(model: Any, Y: Array, cutoff: Array) -> Array:
    """Distance of each row, exact wherever it is below ``cutoff``.

    Models that know how to stop early offer ``distance_below``; for the others this is their
    ``distance``.
    """
    if hasattr(model, "distance_below"):
        return np.asarray(model.distance_below(Y, cutoff))
    return np.asarray(model.distance(Y))


def nearest_first(models: Sequence[Any], order: Array, Y: Array, cutoff: Array) -> Array:
    """Distance of each row to each of several models, exact for the smallest of its row.

    Each row is shown first to the model that ``order`` names for it. The distance found there is
    the cutoff for the others, which then mostly need a first look only.

    Parameters
    ----------
    models : sequence of fitted models
        The m models that compete.
    order : ndarray of shape (n,)
        Index of the model to ask first, a guess: a bad one costs time, never a wrong minimum.
    Y : ndarray of shape (n, p)
        Queries.
    cutoff : ndarray of shape (n,)
        Distances not below it are not of interest.

    Returns
    -------
    ndarray of shape (n, m)
        Distances, with infinity where a model was found to be out of the race.
    """
    distances = np.full((Y.shape[0], len(models)), np.inf, dtype=Y.dtype)
    for index, model in enumerate(models):
        rows = np.flatnonzero(order == index)
        if rows.size:
            distances[rows, index] = distance_below(model, Y[rows], cutoff[rows])
    best = np.minimum(distances.min(axis=1), cutoff)
    for index, model in enumerate(models):
        rows = np.flatnonzero(order != index)
        if rows.size:
            found = distance_below(model, Y[rows], best[rows])
            distances[rows, index] = found
            best[rows] = np.minimum(best[rows], found)
    return distances


def nearest_centre(Y: Array, centres: Array) -> tuple[Array, Array]:
    """Index of the nearest centre for each row, and all squared distances up to a row constant."""
    squared = -2 * (Y @ centres.T)
    squared += np.einsum("ij,ij->i", centres, centres)
    return squared.argmin(axis=1), squared

"""Invented people with invented hearts, for tests and for pages that anybody can run.

A beat's interval is a person's own mean, less what stress takes from it, plus respiratory sinus
arrhythmia, which stress damps, a slow wave, and noise. That is a caricature: it has the features
that make the task hard (people differ more than states do) and none of the data that may not be
copied.
"""

import numpy as np
from numpy.typing import NDArray

from permea.datasets.heartbeats import TERMS, Array, Recording

_RATINGS_AT_REST = np.array([20.0, 15.0, 15.0, 25.0, 20.0, 15.0])
_RATINGS_ADDED = np.array([55.0, 10.0, 50.0, 30.0, 50.0, 45.0])


def make_recordings(
    n_subjects: int = 6,
    *,
    minutes: float = 24.0,
    episode: float = 4.0,
    effect: float = 0.08,
    artefacts: float = 0.002,
    random_state: int | np.random.Generator | None = None,
) -> list[Recording]:
    """Recordings of invented people who rest and work in turns.

    Parameters
    ----------
    n_subjects : int
        Number of people.
    minutes : float
        Length of each recording.
    episode : float
        Minutes of rest, then of work, and so on.
    effect : float
        Seconds by which stress shortens the mean interval; means of people differ by about 0.1.
    artefacts : float
        Probability that a beat is missed (two intervals become one) or lost (0).
    random_state : int, Generator or None
        Seed.

    Returns
    -------
    list of Recording
        With a score and the six ratings of NASA-TLX, constant within an episode.

    Examples
    --------
    >>> people = make_recordings(2, random_state=0)
    >>> [person.subject for person in people]
    ['s01', 's02']
    >>> bool(0.5 < people[0].intervals.mean() < 1.2)
    True
    """
    if n_subjects < 1 or not minutes > 0 or not episode > 0 or not 0 <= artefacts < 1:
        raise ValueError("Need at least one person, positive lengths, and a probability below 1.")
    random = np.random.default_rng(random_state)
    return [
        _recording(f"s{number:02d}", minutes, episode, effect, artefacts, random)
        for number in range(1, n_subjects + 1)
    ]


def _recording(
    name: str,
    minutes: float,
    episode: float,
    effect: float,
    artefacts: float,
    random: np.random.Generator,
) -> Recording:
    mean = random.uniform(0.75, 0.95)
    count = int(minutes * 60 / mean)
    clock = np.arange(count) * mean
    number = (clock // (60 * episode)).astype(np.int64)
    strain = _strain(number, random)
    breath = random.uniform(0.2, 0.3)  # Hz
    depth = random.uniform(0.02, 0.05) * (1 - 0.6 * strain)
    intervals = (
        mean
        - effect * strain
        + depth * np.sin(2 * np.pi * breath * clock)
        + 0.015 * np.sin(2 * np.pi * 0.1 * clock + random.uniform(0, 6))
        + random.normal(scale=0.012, size=count)
    )
    ratings = _RATINGS_AT_REST + np.outer(strain, _RATINGS_ADDED)
    ratings += random.normal(scale=4, size=(number[-1] + 1, len(TERMS)))[number]
    ratings = np.clip(ratings, 0, 100)
    return Recording(
        name, _spoil(intervals, artefacts, random), np.cumsum(intervals), ratings.mean(1), ratings
    )


def _strain(number: NDArray[np.int64], random: np.random.Generator) -> Array:
    """How hard each episode was, from 0 to 1: low at rest, high at work."""
    rest = random.uniform(0.0, 0.2, size=number[-1] + 1)
    work = random.uniform(0.7, 1.0, size=number[-1] + 1)
    by_episode: Array = np.where(np.arange(rest.size) % 2 == 0, rest, work)
    return by_episode[number]


def _spoil(intervals: Array, artefacts: float, random: np.random.Generator) -> Array:
    """Missed beats double an interval, lost ones leave 0."""
    kind = random.random(intervals.size)
    spoilt = np.where(kind < artefacts / 2, 2 * intervals, intervals)
    return np.where(kind > 1 - artefacts / 2, 0.0, spoilt)

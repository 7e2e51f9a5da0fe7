"""Splits of rows of heart beats: between people, and between what one person has labelled.

Two traps wait here. A person on both sides of a split is recognised by her heart, not by her
stress: `subject_splits` keeps people apart. And neighbouring rows share all but one interval, so a
row whose neighbour is labelled is no test of anything: `labelled_part` can leave a gap of a whole
history between the two sides. The seeds' protocol draws at random (003 §6.3.3), and remains.
"""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea.datasets.heartbeats import Integers, Windows

Mask = NDArray[np.bool_]
Seed = int | np.random.Generator | None


def subject_splits(
    subjects: ArrayLike, *, n_splits: int = 5, random_state: Seed = None
) -> Iterator[tuple[Integers, Integers]]:
    """Training and test rows such that no person stands on both sides.

    Parameters
    ----------
    subjects : array-like of shape (N,)
        Whose row it is.
    n_splits : int
        Number of splits; everybody is in the test rows of exactly one. As many as there are people
        means that one is left out at a time.
    random_state : int, Generator or None
        Order in which people are dealt out.

    Yields
    ------
    train, test : ndarray of int
        Indices of rows.

    Examples
    --------
    >>> people = np.array(["ada", "ada", "bob", "eve", "eve"])
    >>> for train, test in subject_splits(people, n_splits=3, random_state=0):
    ...     print(np.unique(people[train]), np.unique(people[test]))
    ['ada' 'bob'] ['eve']
    ['bob' 'eve'] ['ada']
    ['ada' 'eve'] ['bob']
    """
    whose = np.asarray(subjects)
    people = np.unique(whose)
    if not 2 <= n_splits <= people.size:
        raise ValueError(
            f"`n_splits` must lie between 2 and the number of people, which is {people.size}."
        )
    dealt = np.random.default_rng(random_state).permutation(people)
    for part in np.array_split(dealt, n_splits):
        test = np.isin(whose, part)
        yield np.flatnonzero(~test), np.flatnonzero(test)


def labelled_part(
    windows: Windows,
    *,
    how: Literal["time", "random"] = "time",
    part: float = 0.5,
    random_state: Seed = None,
) -> tuple[Mask, Mask]:
    """Which rows of one person are labelled, and which are the test.

    Parameters
    ----------
    windows : Windows
        Rows of one person.
    how : {"time", "random"}
        ``"time"``: the first rows are labelled, and rows that share an interval with a labelled one
        are on neither side. ``"random"`` is 003 §6.3.3: rows are drawn, and the test rows are
        shifted copies of labelled ones.
    part : float
        Part of the rows that is labelled.
    random_state : int, Generator or None
        For ``"random"``.

    Returns
    -------
    labelled, test : ndarray of bool of shape (N,)
        Both are False where a row was left out.

    Examples
    --------
    >>> from permea.datasets import Recording, make_windows
    >>> rows = make_windows(Recording("ada", np.linspace(0.8, 0.9, 12)), history=2)
    >>> labelled, test = labelled_part(rows)
    >>> labelled.sum().item(), test.sum().item()
    (5, 3)
    """
    _check_one_person(windows, part)
    count = len(windows)
    first = round(part * count)
    if how == "random":
        labelled = np.zeros(count, dtype=bool)
        labelled[np.random.default_rng(random_state).permutation(count)[:first]] = True
        return labelled, ~labelled
    if how != "time":
        raise ValueError('`how` must be "time" or "random".')
    order = np.argsort(windows.position, kind="stable")
    labelled = np.zeros(count, dtype=bool)
    labelled[order[:first]] = True
    last = windows.position[order[first - 1]] if first else -windows.history - 1
    return labelled, windows.position > last + windows.history


def both_classes(y: NDArray[Any], *sides: Mask, at_least: int = 1) -> bool:
    """Whether every side has both labels 0 and 1, and each at least so often.

    Examples
    --------
    >>> y = np.array([0, 1, 1, 1])
    >>> both_classes(y, np.array([True, True, False, False]))
    True
    >>> both_classes(y, np.array([False, True, True, False]))
    False
    """
    return all(min(np.sum(y[side] == 0), np.sum(y[side] == 1)) >= at_least for side in sides)


def _check_one_person(windows: Windows, part: float) -> None:
    if np.unique(windows.subject).size > 1:
        raise ValueError(
            "`labelled_part` splits the rows of one person; take them with windows.of(name)."
        )
    if not 0 < part < 1:
        raise ValueError("`part` must lie between 0 and 1.")

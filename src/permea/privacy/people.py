"""Whose each row is: how many rows a person has, and what each of them weighs."""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._arrays import Integers
from permea.tables.columns import person_text

LARGEST_GROUP = 2**16  # rows of one person that the proof covers


def count_rows(groups: ArrayLike) -> Counter[Any]:
    """How many rows each person has; counts of chunks add up. Private, like ``groups``.

    Ids are compared as text, as those of a schema's person column are: 7, 7.0 and " 7" are one
    person, and so is somebody whose id one chunk holds as a number and another one as text.

    Examples
    --------
    >>> count_rows(["ann", "bob", "ann"]) + count_rows(["ann"])
    Counter({'ann': 3, 'bob': 1})
    """
    return Counter(_person_ids(groups))


def person_places(groups: ArrayLike) -> Integers:
    """A number for the person of every row; no id depends on those of other rows.

    Examples
    --------
    >>> person_places(["ann", "bob", "ann"]).tolist()
    [0, 1, 0]
    """
    places: dict[Any, int] = {}
    return np.array([places.setdefault(one, len(places)) for one in _person_ids(groups)], np.int64)


def count_people(groups: ArrayLike) -> int:
    """How many persons there are, which is public where neighbours replace one.

    Rows without a person do not count. It never fails, because it may be called before a charge;
    wrong ids are refused after it. Ids are compared as by :func:`count_rows`.

    Examples
    --------
    >>> count_people(["ann", "bob", "ann", None]), count_people([["ann"], ["bob", "cid"]])
    (2, 0)
    >>> count_people([7, 7.0, " 7", "8"])
    2
    """
    try:
        people = np.asarray(groups, dtype=object)
        known = [who for who in people if not _is_missing(who)] if people.ndim == 1 else []
        return len({*map(person_text, known)} - {None})
    except Exception:  # whatever an id raises when it is compared
        return 0


def check_rows_of_people(groups: ArrayLike, n_rows: int, most: int) -> None:
    """Check, after a charge, that every row has a person and nobody has more than ``most`` rows.

    Examples
    --------
    >>> check_rows_of_people(["ann", "bob", "ann"], 3, 2)
    """
    counted = count_rows(groups)
    if counted.total() != n_rows:
        raise ValueError("groups must name one person for every row.")
    if max(counted.values()) > most:
        raise ValueError("A person has more rows than rows_per_person declares.")


def row_weights(groups: ArrayLike, counted: Counter[Any] | None = None) -> NDArray[np.float64]:
    """Weight 1/m of each row of a person with m rows.

    Parameters
    ----------
    groups : array-like of shape (n,)
        Whose each row is: numbers or texts, compared as by :func:`count_rows`. A missing one
        (None, NaN, an empty text) is an error, and so is a float too large to be told from others.
    counted : Counter, optional
        Rows of each person, when these rows are one chunk of several: see :func:`count_rows`.

    Examples
    --------
    >>> row_weights(["ann", "bob", "ann"])
    array([0.5, 1. , 0.5])
    """
    people = _person_ids(groups)
    rows = Counter(people) if counted is None else counted
    if any(person not in rows for person in people):
        raise ValueError("These rows are of persons whose rows were not counted before.")
    shares = np.array([rows[person] for person in people], dtype=np.float64)
    if np.any(shares > LARGEST_GROUP):
        raise ValueError(
            f"A person has more than {LARGEST_GROUP} rows, which the proof does not cover. Leave "
            "out rows by a rule that looks at one person at a time."
        )
    return 1.0 / shares


def _person_ids(groups: ArrayLike) -> list[str]:
    people = np.asarray(groups, dtype=object)  # as they are: no id depends on the other rows
    known = people.ndim == 1 and not any(map(_is_missing, people))
    ids = [person_text(person) for person in people] if known else [None]
    if None in ids:
        raise ValueError(
            "groups must name one person for every row, without missing values, and numbers of "
            "2**53 or more as text or integers. Leave out rows of unknown persons, or count each "
            "as a person of its own."
        )
    return [str(one) for one in ids]


def _is_missing(person: Any) -> bool:
    try:
        return person is None or bool(person != person) or not str(person).strip()
    except TypeError:  # pandas.NA
        return True

"""From the distances of many parties to labels, and to a list of suspicious parties."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from permea._arrays import Array
from permea.federation.errors import InvalidReplyError, MissingPartiesWarning, SuspicionWarning

Aggregation = Literal["min", "trimmed", "median"]
AGGREGATIONS = ("min", "trimmed", "median")
_ENOUGH = 20  # distinct queries before a party can be suspicious
_NEARLY_ALL = 0.95  # of the queries
_MUCH_NEARER = 0.1  # of the distance of the next party to the same class


def check_distances(values: Any, shape: tuple[int, int]) -> Array:
    """The distances of a reply, or `InvalidReplyError` when no distance function can give them."""
    array = np.asarray(values)
    problem = ""
    if array.dtype not in (np.float32, np.float64):
        problem = "distances are not floating-point numbers"
    elif array.shape != shape:
        problem = f"distances of shape {array.shape} instead of {shape}"
    elif np.isnan(array).any():
        problem = "NaN among the distances"
    elif (array < 0).any():
        problem = "negative distances"
    if problem:
        raise InvalidReplyError(f"invalid reply: {problem}")
    return array


def combine(stack: Array, how: Aggregation = "min", *, drop: int = 1) -> Array:
    """One distance per query and class from those of the parties, shape (parties, m, C).

    ``"min"`` is the global classifier (004 eq. 101-104): the nearest party decides, so one
    malicious party decides everything. ``"trimmed"`` drops the ``drop`` smallest distances of each
    query and class: it tolerates ``drop`` malicious parties wherever more than ``drop`` parties
    know the class, and for classes known by fewer it takes the largest distance there is.
    ``"median"`` takes the (lower) median of the parties that know the class: it tolerates a
    minority. Both ignore some of what a single expert party knows, so they cost accuracy when
    parties hold different parts of a class.

    Examples
    --------
    >>> stack = np.array([[[0.0, 0.0]], [[3.0, 1.0]], [[4.0, 2.0]]])  # the first one is malicious
    >>> combine(stack)
    array([[0., 0.]])
    >>> combine(stack, "trimmed")
    array([[3., 1.]])
    >>> combine(stack, "median")
    array([[3., 1.]])
    """
    if how == "min":
        return np.asarray(stack.min(axis=0))
    ordered = np.sort(stack, axis=0)  # ∞ of parties that lack a class comes last
    known = np.isfinite(ordered).sum(axis=0)
    wanted = np.full_like(known, drop) if how == "trimmed" else (known - 1) // 2
    index = np.clip(np.minimum(wanted, known - 1), 0, None)
    return np.asarray(np.take_along_axis(ordered, index[None], axis=0)[0])


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """Behaviour that a fitted model hardly shows: a reason to investigate, not a proof."""

    party: str
    reason: str

    def __str__(self) -> str:
        return f"{self.party}: {self.reason}"


def suspicions(stack: Array, names: Sequence[str], queries: Array) -> tuple[Suspicion, ...]:
    """Parties whose distances look fabricated, for one batch of queries.

    Three signs are checked, on distinct queries only: distances of exactly zero, a distance that
    does not depend on the query, and a class to which a party is ten times nearer than every other
    party that knows the class, for nearly all queries. A class that one party alone knows cannot be
    compared, and a party that divides its distances by two shows none of the signs.
    """
    _, distinct = np.unique(queries, axis=0, return_index=True)
    if len(distinct) < _ENOUGH:
        return ()
    stack = stack[:, distinct]
    nearest, second = np.full((2, *stack.shape[1:]), np.inf)
    first = stack.argmin(axis=0)
    for own in stack:  # the two smallest, in one pass
        second = np.minimum(second, np.maximum(nearest, own))
        nearest = np.minimum(nearest, own)
    found = []
    for index, name in enumerate(names):
        others = np.where(first == index, second, nearest)
        found += [Suspicion(party=name, reason=text) for text in _signs(stack[index], others)]
    return tuple(found)


def _signs(distances: Array, others: Array) -> list[str]:
    """Signs of one party: its distances, and the smallest of the others, both (m × C)."""
    known = np.isfinite(distances).all(axis=0)
    if not known.any():
        return []
    own, signs = distances[:, known], []
    zeros = int(np.count_nonzero(own.min(axis=1) == 0))
    if zeros > len(own) // 10:
        signs.append(f"replies with a distance of exactly 0 to {zeros} of {len(own)} queries")
    if np.any(np.ptp(own, axis=0) == 0):
        signs.append("gives the same distance whatever the query is")
    shared = known & np.isfinite(others).all(axis=0)
    much_nearer = distances[:, shared] <= _MUCH_NEARER * others[:, shared]
    classes = int(np.count_nonzero(much_nearer.mean(axis=0) >= _NEARLY_ALL))
    if classes:
        signs.append(
            f"is ten times nearer than every other party to {classes} of {shared.sum()} classes, "
            "nearly whatever the query is"
        )
    return signs


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Which parties a result is based on.

    Parameters
    ----------
    parties : tuple of str
        All parties of the federation, in order.
    answered : ndarray of shape (m, parties)
        Which party's reply each result is based on.
    missing : dict
        Reason for each party that did not reply to every query.
    """

    parties: tuple[str, ...]
    answered: NDArray[np.bool_]
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def who_answered(self) -> tuple[str, ...]:
        """Parties that replied to every query."""
        return tuple(np.asarray(self.parties)[self.answered.all(axis=0)].tolist())

    @property
    def partly(self) -> tuple[str, ...]:
        """Parties that replied to some queries and not to others."""
        some = self.answered.any(axis=0) & ~self.answered.all(axis=0)
        return tuple(np.asarray(self.parties)[some].tolist())

    @property
    def is_complete(self) -> bool:
        """Whether every party replied to every query."""
        return bool(self.answered.all())


@dataclass(frozen=True, kw_only=True)
class Answer(Provenance):
    """Labels, and what they are based on.

    Parameters
    ----------
    labels : ndarray of shape (m,)
        Class of each query (004 eq. 104).
    distances : ndarray of shape (m, C) or None
        Distance to each class over the parties that replied; None from an encrypted federation.
    classes : ndarray of shape (C,)
        Columns of ``distances``.
    nearest_party : ndarray of shape (m,) or None
        Index of the party whose distance decided, q̂ of 004 eq. (102); None under robust or
        encrypted aggregation.
    suspicions : tuple of Suspicion
        Parties whose replies look fabricated.
    parties, answered, missing
        See `Provenance`.
    """

    labels: NDArray[Any]
    distances: Array | None
    classes: NDArray[Any]
    nearest_party: NDArray[np.intp] | None = None
    suspicions: tuple[Suspicion, ...] = ()

    def __str__(self) -> str:
        lines = [f"{len(self.labels)} queries answered by {', '.join(self.who_answered) or 'none'}"]
        lines += [f"missing: {name}: {reason}" for name, reason in self.missing.items()]
        lines += [f"suspicious: {suspicion}" for suspicion in self.suspicions]
        return "\n".join(lines)


def reasons_text(missing: Mapping[str, str]) -> str:
    """Why parties are missing, in one line."""
    return "; ".join(f"{name}: {reason}" for name, reason in missing.items())


def warned(answer: Answer) -> Answer:
    """Warn callers who use the numbers alone about what these are based on."""
    if answer.missing:
        text = f"Parties are missing: {reasons_text(answer.missing)}"
        warnings.warn(text, MissingPartiesWarning, stacklevel=3)
    for suspicion in answer.suspicions:
        warnings.warn(f"Suspicious party: {suspicion}", SuspicionWarning, stacklevel=3)
    return answer

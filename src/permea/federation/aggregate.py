"""From the distances of many parties to one answer, and to a word about whom to doubt."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from permea._arrays import Array
from permea.compose import matching_scores
from permea.federation.errors import LyingError, MissingPartiesWarning, SuspicionWarning
from permea.federation.schema import Label

Aggregation = Literal["min", "trimmed", "median"]
AGGREGATIONS = ("min", "trimmed", "median")
_ENOUGH = 20  # distinct queries before anything is said about a party
_NEARLY_ALL = 0.95  # of the queries
_MUCH_NEARER = 0.1  # of the distance of the next party to the same class


def check_distances(values: Any, n_queries: int, n_classes: int) -> Array:
    """The distances of a reply, or `LyingError` when no distance function can give them."""
    array = np.asarray(values)
    if array.dtype not in (np.float32, np.float64):
        raise LyingError("lying: distances are not floating-point numbers")
    if array.shape != (n_queries, n_classes):
        raise LyingError(
            f"lying: distances of shape {array.shape} instead of {(n_queries, n_classes)}"
        )
    if np.isnan(array).any():
        raise LyingError("lying: NaN among the distances")
    if (array < 0).any():
        raise LyingError("lying: negative distances")
    return array


def combine(stack: Array, how: Aggregation = "min", *, drop: int = 1) -> Array:
    """One distance per query and class from those of the parties, shape (parties, m, C).

    ``"min"`` is the global classifier (004 eq. 101-104): the nearest party decides, so one liar
    decides everything. ``"trimmed"`` passes over the ``drop`` smallest distances of each query and
    class: it withstands ``drop`` liars wherever more than ``drop`` parties know the class, and for
    classes known by fewer it must believe the largest distance it has. ``"median"`` takes the
    (lower) median of the parties that know the class: it withstands a minority. Both give away some
    of what a single expert party knows, so they cost accuracy when parties hold different parts of
    a class.

    Examples
    --------
    >>> stack = np.array([[[0.0, 0.0]], [[3.0, 1.0]], [[4.0, 2.0]]])  # the first one lies
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
    """Something that an honest model hardly does. It is a reason to look, not a proof."""

    party: str
    reason: str

    def __str__(self) -> str:
        return f"{self.party}: {self.reason}"


def suspicions(stack: Array, names: Sequence[str], queries: Array) -> tuple[Suspicion, ...]:
    """Parties whose distances look made up, for one batch of queries.

    Three signs are looked at, on distinct queries only: distances of exactly zero, a distance that
    does not depend on the query, and a class to which a party is ten times nearer than every other
    party that knows the class, for nearly all queries. A class that one party alone knows cannot be
    compared, and a liar who divides honest distances by two shows none of the signs.
    """
    _, distinct = np.unique(queries, axis=0, return_index=True)
    if len(distinct) < _ENOUGH:
        return ()
    stack = stack[:, distinct]
    found = []
    for index, name in enumerate(names):
        others = np.min(np.delete(stack, index, axis=0), axis=0, initial=np.inf)
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
        signs.append(f"answers a distance of exactly 0 to {zeros} of {len(own)} queries")
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


class Rests:
    """On whom an answer rests: what the tables of `Answer` say in words."""

    parties: tuple[str, ...]
    answered: NDArray[np.bool_]

    @property
    def who_answered(self) -> tuple[str, ...]:
        """Parties that every label rests on."""
        return tuple(np.asarray(self.parties)[self.answered.all(axis=0)].tolist())

    @property
    def partly(self) -> tuple[str, ...]:
        """Parties that answered some queries and not others."""
        some = self.answered.any(axis=0) & ~self.answered.all(axis=0)
        return tuple(np.asarray(self.parties)[some].tolist())

    @property
    def is_complete(self) -> bool:
        """Whether every party answered every query."""
        return bool(self.answered.all())


@dataclass(frozen=True, kw_only=True)
class Answer(Rests):
    """Labels, and what they rest on.

    Parameters
    ----------
    labels : ndarray of shape (m,)
        Class of each query (004 eq. 104).
    distances : ndarray of shape (m, C) or None
        Distance to each class over the parties that answered; None from an encrypted federation.
    classes : ndarray of shape (C,)
        Columns of ``distances``.
    parties : tuple of str
        All parties of the federation, in order.
    answered : ndarray of shape (m, parties)
        Which party's distances each label rests on.
    nearest_party : ndarray of shape (m,) or None
        Index of the party whose distance decided, q̂ of 004 eq. (102); None under robust or
        encrypted aggregation.
    missing : dict
        Reason for each party that did not answer every query.
    suspicions : tuple of Suspicion
        Parties that look as if they lied.
    """

    labels: NDArray[Any]
    distances: Array | None
    classes: NDArray[Any]
    parties: tuple[str, ...]
    answered: NDArray[np.bool_]
    nearest_party: NDArray[np.intp] | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    suspicions: tuple[Suspicion, ...] = ()

    def matching_scores(self) -> Array:
        """Class-matching scores (004 Def. 8) of the global distances."""
        if self.distances is None:
            raise ValueError("An encrypted federation gives labels only.")
        return matching_scores(self.distances)

    def __str__(self) -> str:
        lines = [f"{len(self.labels)} queries answered by {', '.join(self.who_answered) or 'none'}"]
        lines += [f"missing: {name}: {reason}" for name, reason in self.missing.items()]
        lines += [f"doubtful: {suspicion}" for suspicion in self.suspicions]
        return "\n".join(lines)


def class_array(classes: Sequence[Label]) -> NDArray[Any]:
    """Labels as an array of their own kind."""
    return np.array(list(classes))


def join_answers(parts: Sequence[Answer], missing: Mapping[str, str]) -> Answer:
    """One answer out of those to the batches."""
    first = parts[0]
    doubts: dict[str, Suspicion] = {}
    for part in parts:
        for doubt in part.suspicions:
            doubts.setdefault(f"{doubt.party} {doubt.reason[:20]}", doubt)
    return Answer(
        labels=np.concatenate([part.labels for part in parts]),
        distances=None if first.distances is None else _rows(parts, "distances"),
        classes=first.classes,
        parties=first.parties,
        answered=_rows(parts, "answered"),
        nearest_party=None if first.nearest_party is None else _rows(parts, "nearest_party"),
        missing=dict(missing),
        suspicions=tuple(doubts.values()),
    )


def _rows(parts: Sequence[Answer], name: str) -> Any:
    return np.concatenate([getattr(part, name) for part in parts])


def quorum_text(answered: int, needed: int, missing: Mapping[str, str]) -> str:
    """Why there is no answer."""
    reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
    return f"{answered} parties answered, {needed} are needed. Missing: {reasons or 'nobody'}"


def warned(answer: Answer) -> Answer:
    """Tell callers who only look at the numbers what the numbers rest on."""
    if answer.missing:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in answer.missing.items())
        warnings.warn(f"Parties are missing: {reasons}", MissingPartiesWarning, stacklevel=3)
    for doubt in answer.suspicions:
        warnings.warn(f"Party to be doubted: {doubt}", SuspicionWarning, stacklevel=3)
    return answer

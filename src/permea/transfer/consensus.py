"""Labels that agree with those of near rows: spreading over a graph of nearest neighbours."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from permea._arrays import Array, Indices
from permea.transfer.alignment import principal_directions
from permea.transfer.experts import (
    RICHEST,
    balanced,
    beliefs,
    calibrate,
    chorus,
    clearly_less,
    on_all_classes,
    surprise,
    voices,
)
from permea.transfer.learner import Learner, Parts, TargetModel
from permea.transfer.task import AlignedSource, Iteration, Task

_NEIGHBOURS = 10
_MOST_ROWS = 20_000  # members of a graph: the search stays affordable however many rows there are


class Neighbourhood(NamedTuple):
    """A symmetric, normalised graph over some of the rows; the others listen to its members."""

    members: Indices  #: numbers of the rows that take part
    graph: sparse.csr_array  #: (n, n) D^(−1/2) W D^(−1/2)
    others: Indices  #: numbers of the rows that do not
    listening: sparse.csr_array  #: (rows that do not, n) weights of their nearest members, sum 1

    def spread(self, start: Array, alpha: float, n_steps: int) -> Array:
        """Mix each member's distribution with its neighbours': F ← α S F + (1 − α) F₀.

        The others are mixed once, with what their nearest members have in the end.
        """
        first = start[self.members]
        current = first
        for _ in range(n_steps):
            current = alpha * (self.graph @ current) + (1 - alpha) * first
        mixed = start.copy()
        mixed[self.members] = current
        if n_steps and self.others.size:
            heard = self.listening @ current
            mixed[self.others] = alpha * heard + (1 - alpha) * start[self.others]
        return mixed


class Memory(NamedTuple):
    """What the members of a graph believe in the end, for rows that come later."""

    codes: Array  #: (n, d)
    posterior: Array  #: (n, C)

    def vote(self, codes: Array) -> Array:
        """Mean belief of the nearest members, nearer ones counting more, shape (m, C)."""
        return np.asarray(_nearest(self.codes, codes) @ self.posterior)


def _nearest(members: Array, codes: Array) -> sparse.csr_array:
    """Weights of the nearest members of each row, shape (m, n); nearer ones count more, sum 1."""
    m, n, k = len(codes), len(members), min(_NEIGHBOURS, len(members))
    if not m:
        return sparse.csr_array((m, n))
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(members)
    distances, near = search.kneighbors(codes)
    reach = np.maximum(distances[:, -1:], np.sqrt(np.finfo(members.dtype).tiny))
    weights = np.exp(-np.square(distances / reach))
    weights /= weights.sum(axis=1, keepdims=True)
    return sparse.csr_array((weights.ravel(), near.ravel(), k * np.arange(m + 1)), shape=(m, n))


def neighbourhood(
    codes: Array, random: np.random.RandomState, labelled: Indices | None = None
) -> Neighbourhood:
    """Graph of the nearest neighbours of each row.

    Edges weigh exp(−‖x − x'‖² / (s s')), where s is the distance of a row to its farthest
    neighbour, so that dense and sparse regions count alike. With more rows than a graph can hold,
    the labelled ones and a random choice of the others take part, the rest listens to them, and the
    cost of everything stays linear.

    Parameters
    ----------
    codes : ndarray of shape (N, d)
        Rows.
    random : RandomState
        For the choice.
    labelled : ndarray of int, optional
        Numbers of rows that must take part.

    Returns
    -------
    Neighbourhood

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.r_[np.zeros((6, 1)), np.ones((6, 1)) * 9] + np.linspace(0, 1, 12)[:, None]
    >>> near = neighbourhood(rows, np.random.RandomState(0))
    >>> near.graph.shape
    (12, 12)
    """
    members = _chosen(len(codes), random, labelled)
    others = np.setdiff1d(np.arange(len(codes)), members, assume_unique=True)
    chosen = codes[members]
    listening = _nearest(chosen, codes[others])
    n, k = len(chosen), min(_NEIGHBOURS, len(chosen) - 1)
    if k < 1:
        return Neighbourhood(members, sparse.csr_array((n, n)), others, listening)
    search = NearestNeighbors(n_neighbors=k + 1, algorithm="brute").fit(chosen)
    distances, near = search.kneighbors(chosen)
    own = near == np.arange(n)[:, None]
    own[~own.any(axis=1), -1] = True  # among many duplicates a row may not find itself
    distances, near = distances[~own].reshape(n, k), near[~own].reshape(n, k)
    reach = np.maximum(distances[:, -1:], np.sqrt(np.finfo(codes.dtype).tiny))
    weights = np.exp(-np.square(distances) / (reach * reach[near][:, :, 0]))
    rows = np.repeat(np.arange(n), k)
    W = sparse.csr_array((weights.ravel(), (rows, near.ravel())), shape=(n, n))
    W = W.maximum(W.T)
    scale = sparse.diags_array(1 / np.sqrt(np.maximum(W.sum(axis=1), 1e-300)))
    return Neighbourhood(members, sparse.csr_array(scale @ W @ scale), others, listening)


def _chosen(N: int, random: np.random.RandomState, labelled: Indices | None) -> Indices:
    """Numbers of the rows that take part: all, or the labelled ones and some others."""
    if N <= _MOST_ROWS:
        return np.arange(N)
    order = random.permutation(N)
    if labelled is not None:
        known = np.isin(order, labelled)
        order = np.concatenate([order[known], order[~known]])
    return np.sort(order[:_MOST_ROWS])


DIMENSIONS = (10, 20, 20, 20, 20)
_DIRECTIONS = 100  # in which the target is learned
_NEIGHBOUR_DIRECTIONS = 50
_ENOUGH_ROWS = 40_000  # rows are scored in two parts, in up to five when there are fewer
_STRENGTH = 200.0  # rows that a part of the source counts for when it is adapted
_MIXING = 0.8  # share of the neighbours in a belief while the source is silent
_LESS_MIXING = 0.5  # and when it speaks
_DEFERENCE = 0.25  # weight of the target's belief when its labels came from a certain source
_FIRST_MIXING = 0.9
_FIRST_TRUST = 0.01  # weight of the source beside a label when labels start to spread
_CERTAIN = 0.2  # below this loss there is one round: more would teach the target its own mistakes
_BEYOND_DOUBT = 0.04  # loss, were three more rows wrong, below which it is heard in any case
_CONVINCING = 0.5  # largest loss on the labelled rows of a source that is heard in the rounds


@dataclass(frozen=True)
class ConsensusModel:
    """Beliefs of the target and of the source, multiplied."""

    mean: Array
    directions: Array
    target: TargetModel
    target_temperature: float
    target_weight: float  #: exponent of the target's belief
    memory: Memory  #: beliefs of the training rows
    mixing: float  #: share of the nearest training rows in the target's belief
    voice: Any  #: None when the source convinced by its first word only
    source_temperature: float
    source: AlignedSource
    heard_as: str  #: the form in which the source was heard
    history: list[Iteration] = field(default_factory=list)

    def parts(self, Y: Array) -> Parts:
        """−log belief of each voice, shape (m, C) each."""
        codes = (Y - self.mean) @ self.directions.T
        codes = np.asarray(codes, Y.dtype)
        scores = -0.5 * np.square(self.target.distances(codes))
        own = beliefs(scores, self.target_temperature)
        if self.mixing:
            near = self.memory.vote(codes[:, : self.memory.codes.shape[1]])
            own = (1 - self.mixing) * own + self.mixing * near
        parts = {"target": self.target_weight * _costs(own)}
        if self.voice is not None:
            other = self.voice.scores(self.voice.encode(Y))
            other = on_all_classes(other, self.source.columns, self.source.n_classes)
            parts["source"] = _costs(beliefs(other, self.source_temperature))
        return parts

    def combined(self, parts: Parts) -> Array:
        """Sum of the costs: the product of the beliefs."""
        return np.asarray(np.sum(list(parts.values()), axis=0))

    def nearest(self, Y: Array) -> Indices:
        """Number of the class of the smallest cost."""
        return np.asarray(self.combined(self.parts(Y)).argmin(axis=1))

    def deciders(self, parts: Parts, winners: Indices) -> NDArray[Any]:
        """Voice that put most between the winner and the second best."""
        total = self.combined(parts)
        rows = np.arange(len(winners))
        total[rows, winners] = np.inf
        second = total.argmin(axis=1)
        margins = [part[rows, second] - part[rows, winners] for part in parts.values()]
        return np.asarray(np.array(list(parts))[np.argmax(margins, axis=0)])

    def probabilities(self, combined: Array) -> Array:
        """Normalised product of the beliefs."""
        return beliefs(-combined)


def _costs(probabilities: Array) -> Array:
    return np.asarray(-np.log(np.maximum(probabilities, 1e-12)))


def fit_consensus(
    task: Task, learner: Learner, *, dimensions: tuple[int, ...] | None, n_layers: int
) -> ConsensusModel:
    """Label the unlabelled rows in rounds, then learn from all rows.

    Parameters
    ----------
    task : Task
        The target problem.
    learner : Learner
        Family and settings of the target classifier.
    dimensions : tuple of int, optional
        Subspace dimension of each round; (10, 20, 20, 20, 20) when None.
    n_layers : int
        Layers of the last target classifier; the rounds have one.

    Returns
    -------
    ConsensusModel
    """
    sequence = DIMENSIONS if dimensions is None else dimensions
    return _Rounds(task, learner).run(sequence, n_layers)


class _Rounds:
    """The rounds of one fit."""

    def __init__(self, task: Task, learner: Learner) -> None:
        self.task, self.learner = task, learner
        self.random = np.random.RandomState(learner.seed)
        self.mean = task.rows.mean(axis=0, dtype=np.float64).astype(task.rows.dtype)
        self.directions = principal_directions(task.rows, _DIRECTIONS)
        self.codes = np.asarray((task.rows - self.mean) @ self.directions.T, task.rows.dtype)
        near, labelled = self.codes[:, :_NEIGHBOUR_DIRECTIONS], np.flatnonzero(~task.unlabelled)
        self.near: Neighbourhood = neighbourhood(near, self.random, labelled)
        self.proportions = class_proportions(task)
        self.given = np.eye(task.n_classes)[np.maximum(task.labels, 0)]

    def run(self, sequence: tuple[int, ...], n_layers: int) -> ConsensusModel:
        task = self.task
        self.heard_as, self.voice, self.temperature, losses = self.best_voice()
        self.heard = self.voice.encode(task.rows)
        knows_all = len(task.source.columns) == task.n_classes  # else it would outvote the unknown
        loss = float(losses.mean())
        convincing = knows_all and loss < _CONVINCING
        beyond_doubt = knows_all and (losses.sum() + 3) / len(losses) < _BEYOND_DOUBT
        self.speaks = (convincing and self.tells_more_than_neighbours(losses)) or beyond_doubt
        posterior = self.first_beliefs()
        certain = self.speaks and loss < _CERTAIN
        self.weight = _DEFERENCE if certain else 1.0
        self.mixing = 0.0 if certain else _LESS_MIXING if self.speaks else _MIXING
        sequence = sequence[-1:] if certain else sequence
        labels = self.adopted(posterior)
        if not self.proportions.any():  # unknown: what the labels and their neighbours say
            self.proportions = np.bincount(labels, minlength=task.n_classes) / len(labels)
        history = [task.record("first labels", task.labels, labels)]
        own_temperature = 1.0
        for k, dimension in enumerate(sequence, start=1):
            posterior, own_temperature = self.round(labels, posterior, dimension)
            now = self.adopted(posterior)
            history.append(task.record(f"round {k}, n = {dimension}", labels, now))
            labels = now
        near = self.codes[self.near.members, :_NEIGHBOUR_DIRECTIONS]
        memory = Memory(near, posterior[self.near.members])
        depth = min(n_layers, sequence[-1])
        target = self.fit_target(np.ones(len(labels), bool), labels, sequence[-1], depth)
        voice = self.voice.adapted(self.heard, posterior, _STRENGTH) if self.speaks else None
        return ConsensusModel(
            self.mean, self.directions, target, own_temperature, self.weight, memory, self.mixing,
            voice, self.temperature, task.source, self.heard_as, history,
        )  # fmt: skip

    def best_voice(self) -> tuple[str, Any, float, Array]:
        """The form of the source that explains the labelled rows best, and its losses on them.

        They are few: a form that averages more of the source away replaces the mixtures only when
        it is better by more than chance explains, and then all forms speak together.
        """
        task = self.task
        known = np.flatnonzero(np.isin(task.labels, task.source.columns))
        offered = voices(task, self.mean, self.directions)
        if not known.size:  # nothing to choose by: the richest form, at a cautious temperature
            name = next(iter(offered))
            return name, offered[name], 4.0, np.zeros(1)
        own = np.searchsorted(task.source.columns, task.labels[known])
        heard = {name: _heard(voice, task.rows[known], own) for name, voice in offered.items()}
        name = min(heard, key=lambda one: heard[one][1].mean())
        if RICHEST in heard and not clearly_less(heard[name][1], heard[RICHEST][1]):
            name = RICHEST
        if name == RICHEST or len(offered) == 1:
            return name, offered[name], *heard[name]
        together = chorus(offered, *zip(*heard.values(), strict=True))
        return f"chorus led by {name}", together, *_heard(together, task.rows[known], own)

    def tells_more_than_neighbours(self, source: Array) -> bool:
        """Whether the source explains labelled rows clearly better than labels that spread to them.

        ``source`` are its losses on the labelled rows that it knows. Labels spread from four fifths
        of the rows to the others; with a class of one label there is nothing to compare with.
        """
        task = self.task
        known = np.flatnonzero(~task.unlabelled)
        counts = np.bincount(task.labels[known], minlength=task.n_classes)
        if not known.size or counts.min() < 2:
            return True
        n_parts = min(5, len(known))
        part = self.random.permutation(len(known)) % n_parts
        told = np.zeros((len(known), task.n_classes))
        for held_out in range(n_parts):
            start = np.zeros((len(task.rows), task.n_classes))
            start[known[part != held_out]] = self.given[known[part != held_out]]
            told[part == held_out] = self.spread_labels(start)[known[part == held_out]]
        scores = np.log(np.maximum(told, 1e-300))
        temperature, _ = calibrate(scores, task.labels[known])
        return clearly_less(source, surprise(scores, task.labels[known], temperature))

    def spread_labels(self, start: Array) -> Array:
        """Beliefs after each row has listened to its neighbours; even where no label arrives."""
        spread = self.near.spread(start, _FIRST_MIXING, 60) + 1e-300
        return np.asarray(spread / spread.sum(axis=1, keepdims=True))

    def first_beliefs(self) -> Array:
        """Labels spread over the neighbours, with the source as a weak or a strong opinion."""
        task = self.task
        missing = len(task.labelled_classes) < task.n_classes
        source = balanced(beliefs(self.source_scores(self.voice), self.temperature),
                          self.proportions)  # fmt: skip
        if self.speaks or missing:
            return self.with_given(source)
        start = _FIRST_TRUST * source
        start[~task.unlabelled] = self.given[~task.unlabelled]
        return self.with_given(self.spread_labels(start))

    def source_scores(self, voice: Any, rows: Any = slice(None)) -> Array:
        scores = voice.scores(self.heard[rows])
        return on_all_classes(scores, self.task.source.columns, self.task.n_classes)

    def with_given(self, posterior: Array) -> Array:
        """Beliefs with the labelled rows as they are labelled."""
        return np.where(self.task.unlabelled[:, None], posterior, self.given)

    def adopted(self, posterior: Array) -> Indices:
        return np.where(self.task.unlabelled, posterior.argmax(axis=1), self.task.labels)

    def round(self, labels: Indices, posterior: Array, dimension: int) -> tuple[Array, float]:
        """Score every row by what was learned without it, then let all voices agree."""
        N = len(labels)
        n_parts = int(np.clip(_ENOUGH_ROWS // max(N, 1), 2, 5))
        part = self.random.permutation(N) % n_parts
        own = np.zeros((N, self.task.n_classes))
        source = np.zeros_like(own)
        for held_out in range(n_parts):
            learn, score = part != held_out, part == held_out
            if not learn.any() or not score.any():
                continue
            target = self.fit_target(learn, labels, dimension, 1)
            own[score] = -0.5 * np.square(target.distances(self.codes[score]))
            if self.speaks:
                heard = self.voice.adapted(self.heard[learn], posterior[learn], _STRENGTH)
                source[score] = self.source_scores(heard, score)
        own_temperature, _ = calibrate(own, labels)
        agreed = beliefs(own, own_temperature) ** self.weight
        if self.speaks:
            self.temperature, _ = calibrate(source, labels)
            agreed *= beliefs(source, self.temperature)
        agreed /= np.maximum(agreed.sum(axis=1, keepdims=True), 1e-300)
        agreed = balanced(self.with_given(agreed), self.proportions)
        mixed = self.near.spread(agreed, self.mixing, 20 if self.mixing else 0)
        mixed /= np.maximum(mixed.sum(axis=1, keepdims=True), 1e-300)
        return self.with_given(balanced(mixed, self.proportions)), own_temperature

    def fit_target(self, rows: Any, labels: Indices, dimension: int, n_layers: int) -> TargetModel:
        return self.learner.fit(
            self.codes[rows], labels[rows], n_components=dimension, n_layers=n_layers, share=0.5
        )


def _heard(voice: Any, rows: Array, labels: Indices) -> tuple[float, Array]:
    """Best temperature of a voice, and its losses on labelled rows at it."""
    scores = voice.scores(voice.encode(rows))
    temperature, _ = calibrate(scores, labels)
    return temperature, surprise(scores, labels, temperature)


def class_proportions(task: Task) -> Array:
    """Proportions that labels are balanced to: the source's, where it is like the target.

    The number of rows of each class is not protected by the wall and comes with the artefact. A
    source with other features, or without some of the classes, says nothing about the proportions
    of the target: zeros, and what the given labels and their neighbours say is kept instead.
    """
    proportions = np.zeros(task.n_classes)
    if task.source.alignment.is_identity and len(task.source.columns) == task.n_classes:
        counts = task.source.model.moments_.counts
        proportions[task.source.columns] = counts / counts.sum()
    return proportions

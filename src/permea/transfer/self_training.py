r"""Self-training with source and target experts: ``method="consensus"``.

Beside a usable source the posterior of a row is a product of two experts,

.. math:: p(c | x) \propto p_t(c | x)^{a}\; p_s(c | x), \qquad
          p_s(c | x) = \sum_j w_j\, p_j(c | x), \qquad
          w = \arg\max_w \sum_{i\ \text{labelled}} \log \sum_j w_j\, p_j(y_i | x_i).

p_t is a classifier of the target. p_s is a linear pool of the source's experts j (class densities,
or its classifier), whose weights w maximise the likelihood of the labelled target rows, none of
which an expert of the source was trained on: stacking. The source's mixtures are its only expert
unless another one explains the labelled rows better by more than two standard errors. Without a
usable source the posterior is p_t mixed with the vote of neighbouring rows. Self-training
alternates between the labels that are most probable under this posterior and a target classifier
that is fitted to these labels; rows are scored by classifiers that were fitted without them. How
far the source is trusted is decided by its likelihood on the labelled rows, with the constants of
`Settings`.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from permea._arrays import Array, Indices
from permea.compose import ReconstructionClassifier
from permea.transfer.alignment import principal_directions
from permea.transfer.experts import (
    MIXTURES,
    SourceEnsemble,
    calibrate,
    match_proportions,
    on_all_classes,
    smaller_loss,
    softmax,
    source_experts,
    stack,
)
from permea.transfer.experts import losses as losses_of
from permea.transfer.task import AlignedSource, Iteration, Task, TransferModel, class_distances

DIMENSIONS = (10, 20, 20, 20, 20)
_DIRECTIONS = 100  # principal directions in which the target is learned
_NEIGHBOUR_DIRECTIONS = 50
_NEIGHBOURS = 10
_MOST_ROWS = 20_000  # members of the graph: bounds the cost of the neighbour search
_ENOUGH_ROWS = 40_000  # rows are scored in two folds, in up to five when there are fewer


@dataclass(frozen=True)
class Settings:
    """Constants of the method; losses are means of −log probability of the labelled rows.

    ``benchmarks/transfer_constants.py`` switches off one at a time and measures what each is worth.
    """

    strength: float = 200.0  #: rows that a component of the source counts for when it is adapted
    usable_loss: float = 0.5  #: a source with a larger loss is used for the initial labels only
    certain_loss: float = 0.2  #: below it there is one round
    sure_loss: float = 0.04  #: used in any case if its loss stays below this with 3 more errors
    certain_exponent: float = 0.25  #: exponent a of the target expert beside a certain source
    mixing: float = 0.8  #: share of the neighbours in the target expert without a usable source
    propagation: float = 0.9  #: share of the neighbours when given labels are propagated
    initial_weight: float = 0.01  #: of an unusable source beside a given label when propagated


SETTINGS = Settings()


class Neighbourhood(NamedTuple):
    """Symmetric, normalised graph over some of the rows; the others are assigned to its members."""

    members: Indices  #: numbers of the rows in the graph
    graph: sparse.csr_array  #: (n, n) D^(−1/2) W D^(−1/2)
    others: Indices  #: numbers of the other rows
    assignment: sparse.csr_array  #: (other rows, n) weights of their nearest members, sum 1

    def propagate(self, start: Array, alpha: float, n_steps: int) -> Array:
        """Label propagation: F ← α S F + (1 − α) F₀ over the members of the graph.

        The other rows are mixed once, with the result of their nearest members.
        """
        first = start[self.members]
        current = first
        for _ in range(n_steps):
            current = alpha * (self.graph @ current) + (1 - alpha) * first
        mixed = start.copy()
        mixed[self.members] = current
        if n_steps and self.others.size:
            near = self.assignment @ current
            mixed[self.others] = alpha * near + (1 - alpha) * start[self.others]
        return mixed


class NeighbourVote(NamedTuple):
    """Codes and posteriors of the members of the graph, to vote on new rows."""

    codes: Array  #: (n, d)
    posterior: Array  #: (n, C)

    def __call__(self, codes: Array) -> Array:
        """Mean posterior of the nearest members, closer ones weighted more, shape (m, C)."""
        return np.asarray(_nearest(self.codes, codes) @ self.posterior)


def _nearest(members: Array, codes: Array) -> sparse.csr_array:
    """Weights of the nearest members of each row, shape (m, n); closer ones weigh more, sum 1."""
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
    it has the labelled ones and a random choice of the others, and the rest is assigned to its
    members, so that the cost stays linear.

    Parameters
    ----------
    codes : ndarray of shape (N, d)
        Rows.
    random : RandomState
        For the random choice.
    labelled : ndarray of int, optional
        Numbers of rows that must be in the graph.

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
    assignment = _nearest(chosen, codes[others])
    n, k = len(chosen), min(_NEIGHBOURS, len(chosen) - 1)
    if k < 1:
        return Neighbourhood(members, sparse.csr_array((n, n)), others, assignment)
    search = NearestNeighbors(n_neighbors=k + 1, algorithm="brute").fit(chosen)
    distances, near = search.kneighbors(chosen)
    own = near == np.arange(n)[:, None]
    own[~own.any(axis=1), -1] = True  # among many duplicates a row may be missing from its own list
    distances, near = distances[~own].reshape(n, k), near[~own].reshape(n, k)
    reach = np.maximum(distances[:, -1:], np.sqrt(np.finfo(codes.dtype).tiny))
    weights = np.exp(-np.square(distances) / (reach * reach[near][:, :, 0]))
    rows = np.repeat(np.arange(n), k)
    W = sparse.csr_array((weights.ravel(), (rows, near.ravel())), shape=(n, n))
    W = W.maximum(W.T)
    scale = sparse.diags_array(1 / np.sqrt(np.maximum(W.sum(axis=1), 1e-300)))
    return Neighbourhood(members, sparse.csr_array(scale @ W @ scale), others, assignment)


def _chosen(N: int, random: np.random.RandomState, labelled: Indices | None) -> Indices:
    """Numbers of the rows in the graph: all, or the labelled ones and some others."""
    if N <= _MOST_ROWS:
        return np.arange(N)
    order = random.permutation(N)
    if labelled is not None:
        known = np.isin(order, labelled)
        order = np.concatenate([order[known], order[~known]])
    return np.sort(order[:_MOST_ROWS])


@dataclass(frozen=True)
class SelfTrainedModel(TransferModel):
    """Product of the target's expert and of the source's."""

    mean: Array
    directions: Array
    target: ReconstructionClassifier
    target_temperature: float
    target_exponent: float
    vote: NeighbourVote
    mixing: float  #: share of the neighbours' vote in the target's expert
    ensemble: SourceEnsemble | None  #: None if the source served for the initial labels only
    source_temperature: float
    source: AlignedSource
    leading_expert: str  #: expert of the source with the largest weight
    history: list[Iteration] = field(default_factory=list)

    def parts(self, Y: Array) -> dict[str, Array]:
        """−log posterior of each expert, shape (m, C) each."""
        codes = np.asarray((Y - self.mean) @ self.directions.T, Y.dtype)
        distances = class_distances(self.target, codes, self.source.n_classes)
        own = softmax(-0.5 * np.square(distances), self.target_temperature)
        if self.mixing:
            near = self.vote(codes[:, : self.vote.codes.shape[1]])
            own = (1 - self.mixing) * own + self.mixing * near
        parts = {"target": self.target_exponent * _costs(own)}
        if self.ensemble is not None:
            scores = on_all_classes(self.ensemble.scores(Y), self.source)
            parts["source"] = _costs(softmax(scores, self.source_temperature))
        return parts

    def combined(self, parts: dict[str, Array]) -> Array:
        """Sum of the costs: the product of the posteriors."""
        return np.asarray(np.sum(list(parts.values()), axis=0))

    def deciders(self, parts: dict[str, Array], winners: Indices) -> NDArray[Any]:
        """Expert with the largest margin between the winner and the second best."""
        total = self.combined(parts)
        rows = np.arange(len(winners))
        total[rows, winners] = np.inf
        second = total.argmin(axis=1)
        margins = [part[rows, second] - part[rows, winners] for part in parts.values()]
        return np.asarray(np.array(list(parts))[np.argmax(margins, axis=0)])

    def probabilities(self, combined: Array) -> Array:
        """Normalised product of the posteriors."""
        return softmax(-combined)


def _costs(probabilities: Array) -> Array:
    return np.asarray(-np.log(np.maximum(probabilities, 1e-12)))


def _normalised(values: Array) -> Array:
    """Rows divided by their sums; even where a row is zero."""
    return np.asarray((values + 1e-300) / (values + 1e-300).sum(axis=1, keepdims=True))


def self_train(
    task: Task, *, dimensions: tuple[int, ...] | None, n_layers: int
) -> SelfTrainedModel:
    """Label the unlabelled rows in rounds, then learn from all rows.

    Parameters
    ----------
    task : Task
        The target problem.
    dimensions : tuple of int, optional
        Subspace dimension of each round; (10, 20, 20, 20, 20) when None.
    n_layers : int
        Layers of the last target classifier; those of the rounds have one.

    Returns
    -------
    SelfTrainedModel
    """
    return _SelfTraining(task).run(DIMENSIONS if dimensions is None else dimensions, n_layers)


class _SelfTraining:
    """State of one fit."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.known = np.flatnonzero(~task.unlabelled)
        self.random = np.random.RandomState(task.seed)
        self.mean = task.rows.mean(axis=0, dtype=np.float64).astype(task.rows.dtype)
        self.directions = principal_directions(task.rows, _DIRECTIONS)
        self.codes = np.asarray((task.rows - self.mean) @ self.directions.T, task.rows.dtype)
        self.graph = neighbourhood(self.codes[:, :_NEIGHBOUR_DIRECTIONS], self.random, self.known)
        self.proportions = class_proportions(task)
        self.given = np.eye(task.n_classes)[np.maximum(task.labels, 0)]
        self.leading, self.ensemble, self.temperature, losses = self.stack_source()
        knows_all = len(task.source.columns) == task.n_classes  # others would lose to the known
        self.loss = float(losses.mean())
        sure = (losses.sum() + 3) / len(losses) < SETTINGS.sure_loss
        usable = knows_all and self.loss < SETTINGS.usable_loss and self.beats_propagation(losses)
        self.usable = usable or (knows_all and sure)

    def run(self, sequence: tuple[int, ...], n_layers: int) -> SelfTrainedModel:
        task = self.task
        posterior = self.initial_posterior()
        certain = self.usable and self.loss < SETTINGS.certain_loss
        self.exponent = SETTINGS.certain_exponent if certain else 1.0
        self.mixing = 0.0 if self.usable else SETTINGS.mixing
        shares = (0.5,) * len(sequence) if task.shares is None else task.shares
        if certain:  # more rounds would train the target on its own errors
            sequence, shares = sequence[-1:], shares[-1:]
        labels = self.most_probable(posterior)
        if not self.proportions.any():  # unknown: estimated from the initial labels
            self.proportions = np.bincount(labels, minlength=task.n_classes) / len(labels)
        history = [task.record("initial labels", task.labels, labels)]
        own_temperature = 1.0
        for k, (dimension, share) in enumerate(zip(sequence, shares, strict=True), start=1):
            posterior, own_temperature = self.round(labels, posterior, dimension, share)
            now = self.most_probable(posterior)
            history.append(task.record(f"round {k}, n = {dimension}", labels, now))
            labels = now
        near = self.codes[self.graph.members, :_NEIGHBOUR_DIRECTIONS]
        vote = NeighbourVote(near, posterior[self.graph.members])
        every = np.ones(len(labels), bool)
        target = self.fit_target(every, labels, sequence[-1], n_layers, shares[-1])
        ensemble = self.adapted(posterior) if self.usable else None
        return SelfTrainedModel(
            self.mean, self.directions, target, own_temperature, self.exponent, vote, self.mixing,
            ensemble, self.temperature, task.source, self.leading, history,
        )  # fmt: skip

    def stack_source(self) -> tuple[str, SourceEnsemble, float, Array]:
        """Leading expert, ensemble, its temperature and its losses on the labelled rows.

        The mixtures keep most of the source: they are pooled with experts that keep less only if
        one of these explains the labelled rows better by more than chance.
        """
        task = self.task
        offered = source_experts(task, self.mean, self.directions)
        known = np.flatnonzero(np.isin(task.labels, task.source.columns))
        labels = np.searchsorted(task.source.columns, task.labels[known])
        scores = {name: expert.scores(task.rows[known]) for name, expert in offered.items()}
        at = {name: calibrate(one, labels) if known.size else 4.0 for name, one in scores.items()}
        each = {name: losses_of(scores[name], labels, at[name]) for name in offered}
        if MIXTURES in each and not any(smaller_loss(one, each[MIXTURES]) for one in each.values()):
            offered = {MIXTURES: offered[MIXTURES]}
        weights = stack([softmax(scores[name], at[name]) for name in offered], labels)
        ensemble = SourceEnsemble(
            tuple(offered.values()), tuple(at[name] for name in offered), tuple(weights.tolist())
        )
        leading = list(offered)[int(weights.argmax())]
        if not known.size:
            return leading, ensemble, 1.0, np.zeros(1)
        pooled = ensemble.scores(task.rows[known])
        temperature = calibrate(pooled, labels)
        return leading, ensemble, temperature, losses_of(pooled, labels, temperature)

    def beats_propagation(self, source: Array) -> bool:
        """Whether the source explains labelled rows better than labels propagated to them.

        ``source`` are its losses on the labelled rows of classes that it knows. Labels are
        propagated from four fifths of the labelled rows to the others; with a class of one label
        there is nothing to compare with.
        """
        task, known = self.task, self.known
        counts = np.bincount(task.labels[known], minlength=task.n_classes)
        if not known.size or counts.min() < 2:
            return True
        fold = self.random.permutation(len(known)) % min(5, len(known))
        held_out = np.zeros((len(known), task.n_classes))
        for k in np.unique(fold):
            start = np.zeros((len(task.rows), task.n_classes))
            start[known[fold != k]] = self.given[known[fold != k]]
            held_out[fold == k] = self.propagated(start)[known[fold == k]]
        scores, labels = np.log(np.maximum(held_out, 1e-300)), task.labels[known]
        return smaller_loss(source, losses_of(scores, labels, calibrate(scores, labels)))

    def propagated(self, start: Array) -> Array:
        """Labels propagated over the graph; even where no label arrives."""
        return _normalised(self.graph.propagate(start, SETTINGS.propagation, 60))

    def initial_posterior(self) -> Array:
        """That of a usable source; else the given labels, propagated over the graph."""
        task = self.task
        scores = on_all_classes(self.ensemble.scores(task.rows), task.source)
        source = match_proportions(softmax(scores, self.temperature), self.proportions)
        if self.usable or len(task.labelled_classes) < task.n_classes:
            return self.with_given(source)
        start = self.with_given(SETTINGS.initial_weight * source)
        return self.with_given(self.propagated(start))

    def with_given(self, posterior: Array) -> Array:
        """Posterior with probability one for the given labels."""
        return np.where(self.task.unlabelled[:, None], posterior, self.given)

    def most_probable(self, posterior: Array) -> Indices:
        return np.where(self.task.unlabelled, posterior.argmax(axis=1), self.task.labels)

    def adapted(self, posterior: Array, rows: Any = slice(None)) -> SourceEnsemble:
        return self.ensemble.adapted(self.task.rows[rows], posterior[rows], SETTINGS.strength)

    def round(
        self, labels: Indices, posterior: Array, dimension: int, share: float
    ) -> tuple[Array, float]:
        """Score every row by experts fitted without it, and combine their posteriors."""
        N, C = len(labels), self.task.n_classes
        fold = self.random.permutation(N) % int(np.clip(_ENOUGH_ROWS // max(N, 1), 2, 5))
        own, source = np.zeros((N, C)), np.zeros((N, C))
        for k in np.unique(fold):
            learn, score = fold != k, fold == k
            target = self.fit_target(learn, labels, dimension, 1, share)
            own[score] = -0.5 * np.square(class_distances(target, self.codes[score], C))
            if self.usable:
                scores = self.adapted(posterior, learn).scores(self.task.rows[score])
                source[score] = on_all_classes(scores, self.task.source)
        own_temperature = calibrate(own, labels)
        agreed = softmax(own, own_temperature) ** self.exponent
        if self.usable:
            self.temperature = calibrate(source, labels)
            agreed *= softmax(source, self.temperature)
        agreed = match_proportions(self.with_given(_normalised(agreed)), self.proportions)
        mixed = _normalised(self.graph.propagate(agreed, self.mixing, 20 if self.mixing else 0))
        return self.with_given(match_proportions(mixed, self.proportions)), own_temperature

    def fit_target(
        self, rows: Any, labels: Indices, dimension: int, n_layers: int, share: float
    ) -> ReconstructionClassifier:
        return self.task.fit_classifier(
            self.codes[rows], labels[rows], n_components=dimension, n_layers=n_layers, share=share
        )


def class_proportions(task: Task) -> Array:
    """Class proportions of the target: those of a source of noised rows with the same features.

    Entry-level noise does not protect the number of rows of each class, which is in the artefact.
    Zeros where the source lacks features or classes, and after a release of moments, whose hulls
    need no proportions; they are then estimated from the initial labels.
    """
    proportions, model = np.zeros(task.n_classes), task.source.model
    same = task.source.alignment.is_identity and len(task.source.columns) == task.n_classes
    if same and model.encoder_ is None:
        counts = model.moments_.counts
        proportions[task.source.columns] = counts / counts.sum()
    return proportions

"""What the certificates of the parties promise together."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._arrays import Array
from permea._parallel import batches
from permea._progress import progress
from permea._text import safe_text
from permea.federation.aggregate import (
    Aggregation,
    Answer,
    Suspicion,
    check_distances,
    class_array,
    combine,
    join_answers,
    quorum_text,
    suspicions,
    warned,
)
from permea.federation.encryption.queries import SealedQuestions
from permea.federation.errors import FederationError, LyingError, QuorumError, SchemaError
from permea.federation.party import Party, spread
from permea.federation.schema import Label, Schema, agree
from permea.federation.settings import Records, Settings, Summary, Topology, summarise
from permea.federation.transport import (
    Channel,
    Failure,
    Introduction,
    LocalChannel,
    Outcome,
    Patience,
    Reply,
    persist,
)
from permea.privacy import Certificate

if TYPE_CHECKING:
    from permea.federation.moments import MomentParty


class Federation(SealedQuestions):
    """A classifier made of the distances of many parties (004 eq. 101-104, 002 §2.3).

    Each party keeps its data and its model; a query gets from each of them its distance to each
    class, ∞ for a class it lacks (Remark 5). The smallest distance over the parties counts, and the
    nearest class wins:

        GC(y) = argmin_c min_q Γ_{c,q}(y).

    Parameters
    ----------
    parties : sequence of Party
        Parties in this process; for parties elsewhere see `Federation.over`, for parties that learn
        a model together see `MomentParty`.
    topology : {"queries", "models"}, default="queries"
        What travels: queries to the parties, or once and for all the private models to the
        aggregator, after which no party sees a query (Remark 6).
    aggregation : {"min", "trimmed", "median"}, default="min"
        How the distances of the parties are combined, see `permea.federation.aggregate.combine`.
    drop : int, default=1
        Liars that ``aggregation="trimmed"`` withstands.
    quorum : int, optional
        Parties that must answer; all of them by default. With fewer, `QuorumError` is raised; with
        enough but not all, the answer says so.
    patience : Patience, optional
        Time-out, attempts and back-off for each batch.
    batch_size : int, default=1000
        Queries that travel together.
    records : {"disjoint", "overlapping", "unknown"}, default="unknown"
        Whether one record may lie with several parties; it decides how their promises compose.
    suspects : {"report", "exclude"}, default="report"
        What to do with a party that looks as if it lied.
    classes : sequence of labels, optional
        The classes there are. A party that claims any other is not believed. By default the union
        of what the parties know.
    encrypted : bool, default=False
        Compute the labels on ciphertexts; nothing but labels comes out.
    scheme : str, default="bfv"
        Encryption scheme, see `permea.federation.encryption`.
    bits : int, default=12
        Bits of an encrypted distance.
    scale : (low, high), optional
        Public scale of encrypted distances; the diameter of the declared domain by default.
    n_jobs : int, optional
        Processes that evaluate ciphertexts; one by default, -1 for all cores.

    Attributes
    ----------
    schema : Schema
        Features and classes of the federation.
    last_answer : Answer or None
        What the last call of `ask`, `predict` or `distances` rests on.

    Examples
    --------
    >>> import numpy as np
    >>> from permea import KAHMClassifier
    >>> from permea.privacy import Privacy
    >>> X, y = np.random.default_rng(0).random((60, 3)), np.repeat([0, 1, 2], 20)
    >>> def train(rows):
    ...     privacy = Privacy(epsilon=8, domain=(0, 1))
    ...     clf = KAHMClassifier(n_components=2, n_layers=2, privacy=privacy)
    ...     return clf.fit(X[rows], y[rows])
    >>> fed = Federation([Party("clinic-a", train(y < 2)), Party("clinic-b", train(y > 0))])
    >>> fed.classes_
    array([0, 1, 2])
    >>> fed.distances(X).shape
    (60, 3)
    >>> answer = fed.ask(X)
    >>> answer.who_answered
    ('clinic-a', 'clinic-b')
    """

    def __init__(
        self,
        parties: Sequence["Party | MomentParty"],
        *,
        topology: Topology = "queries",
        aggregation: Aggregation = "min",
        drop: int = 1,
        quorum: int | None = None,
        patience: Patience | None = None,
        batch_size: int = 1000,
        records: Records = "unknown",
        suspects: Literal["report", "exclude"] = "report",
        classes: Sequence[Label] | None = None,
        encrypted: bool = False,
        scheme: str = "bfv",
        bits: int = 12,
        scale: tuple[float, float] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        chosen = {key: value for key, value in locals().items() if key not in ("self", "parties")}
        chosen["patience"] = patience or Patience()
        if not parties:
            raise ValueError("A federation needs at least one party.")
        if len({party.name for party in parties}) < len(parties):
            raise ValueError("Two parties have the same name. Names tell who answered.")
        self._start(LocalChannel(parties), Settings(**chosen))
        if failed := self._introduce():
            raise SchemaError("; ".join(f"{name}: {reason}" for name, reason in failed.items()))

    @classmethod
    def over(
        cls, channel: Channel, *, pause: Callable[[float], None] = time.sleep, **settings: Any
    ) -> Self:
        """A federation of parties that ``channel`` reaches; parties may join and leave.

        Takes the same keywords as `Federation`. Parties introduce themselves when they are first
        asked; one that disagrees with those before it is left out, and the answer says why.
        ``pause`` waits between attempts.
        """
        federation = cls.__new__(cls)
        federation._start(channel, Settings(**settings), pause)
        return federation

    def _start(
        self, channel: Channel, settings: Settings, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._channel, self.settings, self._pause = channel, settings, pause
        self._known: dict[str, Introduction] = {}
        self._hosted: dict[str, Party] = {}
        self._strangers: dict[str, str] = {}
        self.last_answer: Answer | None = None

    # ---- who takes part ----------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """All parties, in order."""
        return self._channel.names

    @property
    def schema(self) -> Schema:
        """Features and classes that the introduced parties agree on."""
        return agree({name: known.schema for name, known in self._known.items()})

    @property
    def classes_(self) -> NDArray[Any]:
        """Classes of the federation, in the order of the columns of `distances`."""
        return class_array(self.schema.classes)

    @property
    def certificates(self) -> dict[str, Certificate | None]:
        """Certificate of each party; None where nothing is promised.

        What a party says of itself over a network is an unverified claim.
        """
        return {name: known.certificate for name, known in self._known.items()}

    @property
    def who_answered(self) -> tuple[str, ...]:
        """Parties that the last answer rests on."""
        return () if self.last_answer is None else self.last_answer.who_answered

    def summary(self) -> Summary:
        """What the certificates of the parties promise together."""
        return summarise(self._known, self.settings.records)

    def _introduce(self) -> dict[str, str]:
        """Shake hands with the parties that are not known yet; give reasons for those who fail."""
        strangers = [name for name in self.names if name not in self._known]
        outcomes = self._persist(self._channel.introduce, strangers)
        failed = {}
        for name in strangers:
            reason = self._objection(name, outcomes[name])
            if reason:
                failed[name] = safe_text(reason)
        if self.settings.topology == "models":
            failed |= self._host([n for n in self._known if n not in self._hosted])
        self._strangers = dict(failed)
        return failed

    def _objection(self, name: str, outcome: Outcome) -> str:
        """Take a party in and return nothing, or say why not."""
        if isinstance(outcome, Failure):
            return outcome.reason
        schemas = {known: intro.schema for known, intro in self._known.items()}
        try:
            agree({**schemas, name: outcome.schema})
        except SchemaError as error:
            return str(error)
        if self.settings.classes is not None:
            unknown = [
                label for label in outcome.schema.classes if label not in self.settings.classes
            ]
            if unknown:
                return f"claims {len(unknown)} classes that this federation does not have"
        self._known[name] = outcome
        return ""

    def _host(self, names: Sequence[str]) -> dict[str, str]:
        """Fetch the models of parties, once (Remark 6)."""
        failed = {}
        for name, outcome in self._persist(self._channel.fetch, names).items():
            if isinstance(outcome, Failure):
                failed[name] = safe_text(outcome.reason)
                del self._known[name]
            else:
                self._hosted[name] = outcome
        return failed

    def _persist(self, call: Any, names: Sequence[str]) -> dict[str, Outcome]:
        timeout = self.settings.patience.timeout
        return persist(lambda some: call(some, timeout), names, self.settings.patience, self._pause)

    # ---- questions ---------------------------------------------------------------------------

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each query (004 eq. 104); warns when parties are missing or doubtful."""
        return warned(self.ask(X)).labels

    def distances(self, X: ArrayLike) -> Array:
        """Distance of each query to each class over the parties (004 eq. 101)."""
        if self.settings.encrypted:
            raise ValueError("An encrypted federation gives labels only; use predict.")
        found = warned(self.ask(X)).distances
        assert found is not None
        return found

    def matching_scores(self, X: ArrayLike) -> Array:
        """Class-matching scores of 004 Def. 8 of the global distances."""
        self.distances(X)
        assert self.last_answer is not None
        return self.last_answer.matching_scores()

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Share of queries with the right label."""
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def ask(self, X: ArrayLike, *, asker: str = "unknown") -> Answer:
        """Labels, distances, and what they rest on.

        Parameters
        ----------
        X : array-like of shape (m, p)
            Queries.
        asker : str
            Who asks; parties write it into their logs.

        Returns
        -------
        Answer
            With the parties that answered, those that did not and why, and those to doubt.
        """
        if self.settings.encrypted:
            return self._ask_in_secret(X, asker)
        missing = self._introduce()
        if not self._known:
            raise QuorumError(quorum_text(0, self._needed(), missing))
        schema = self.schema
        queries = schema.check_queries(X)
        slices = list(batches(len(queries), self.settings.batch_size))
        parts = [
            self._batch(queries[rows], schema, asker, missing)
            for rows in progress(slices, desc="batches")
        ]
        self.last_answer = join_answers(parts, missing)
        return self.last_answer

    def _needed(self) -> int:
        return len(self.names) if self.settings.quorum is None else self.settings.quorum

    def _batch(self, queries: Array, schema: Schema, asker: str, missing: dict[str, str]) -> Answer:
        """Answer one batch; who fails is noted in ``missing`` and left alone from then on."""
        names = [name for name in self._known if name not in missing]
        classes_of = {name: self._known[name].schema.classes for name in names}
        outcomes = self._replies(names, queries, asker)
        replies: dict[str, Array] = {}
        for name in names:
            try:
                own = self._believed(name, outcomes[name], len(queries))
            except (LyingError, SchemaError) as error:
                missing[name] = safe_text(error)
            else:
                replies[name] = spread(own, classes_of[name], schema.classes)
        self._check_quorum(replies, missing)
        return self._decided(queries, replies, class_array(schema.classes), missing)

    def _replies(self, names: Sequence[str], queries: Array, asker: str) -> dict[str, Outcome]:
        channel = self._reachable(names)
        return self._persist(lambda some, wait: channel.ask(some, queries, asker, wait), names)

    def _reachable(self, names: Sequence[str]) -> Channel:
        """The way to the parties, or to their models when those have travelled here."""
        if self.settings.topology == "models":
            return LocalChannel([self._hosted[name] for name in names])
        return self._channel

    def _believed(self, name: str, outcome: Outcome, n_queries: int) -> Array:
        """Distances of a party to its classes, if they can be true."""
        if isinstance(outcome, Failure):
            raise LyingError(outcome.reason)
        assert isinstance(outcome, Reply)
        schema = self._known[name].schema
        if outcome.fingerprint != schema.fingerprint:
            del self._known[name]  # it may introduce itself anew before the next question
            raise SchemaError("answers under another schema than it introduced itself with")
        return check_distances(outcome.distances, n_queries, len(schema.classes))

    def _check_quorum(self, replies: Collection[Any], missing: Mapping[str, str]) -> None:
        if not replies or len(replies) < self._needed():
            raise QuorumError(quorum_text(len(replies), self._needed(), missing))

    def _decided(
        self,
        queries: Array,
        replies: dict[str, Array],
        classes: NDArray[Any],
        missing: dict[str, str],
    ) -> Answer:
        """Minimum over parties, minimum over classes."""
        doubts: tuple[Suspicion, ...] = ()
        while True:
            stack = np.stack(list(replies.values()))
            found = suspicions(stack, list(replies), queries)
            doubts += tuple(doubt for doubt in found if doubt not in doubts)
            if not found or self.settings.suspects == "report":
                break
            for doubt in found:
                replies.pop(doubt.party, None)
                missing[doubt.party] = f"excluded: {doubt.reason}"
            self._check_quorum(replies, missing)
        distances = combine(stack, self.settings.aggregation, drop=self.settings.drop)
        label = distances.argmin(axis=1)
        nearest = None
        if self.settings.aggregation == "min":
            order = np.array([self.names.index(name) for name in replies])
            nearest = order[stack[:, np.arange(len(queries)), label].argmin(axis=0)]
        return Answer(
            labels=classes[label],
            distances=distances,
            classes=classes,
            parties=self.names,
            answered=self._tick(replies, len(queries)),
            nearest_party=nearest,
            suspicions=doubts,
        )

    def _tick(self, replies: Collection[str], n_queries: int) -> NDArray[np.bool_]:
        return np.tile([name in replies for name in self.names], (n_queries, 1))

    def fit_moments(self) -> Any:
        """One model from the noised moments of all parties, as if their rows lay in one place.

        What is learned, how the noise is made and how many parties must answer is said by the
        `Agreement` that all parties hold. Each call is one round, which every party charges to its
        ledger.

        Returns
        -------
        MomentClassifier or MomentRegressor
            Fitted, with the certificate of the release.

        Raises
        ------
        DropOutError
            When fewer parties than the agreement asks for (or a larger ``quorum``) answered.
        """
        from permea.federation.moments import MomentRounds

        channel = self._channel
        if not isinstance(channel, LocalChannel):
            raise FederationError("fit_moments needs parties in this process.")

        def ask(work: Callable[[Any], Any], names: Sequence[str]) -> Mapping[str, Outcome]:
            return self._persist(lambda some, wait: channel.work(work, some, wait), names)

        return MomentRounds(channel.parties(), ask, self.settings.quorum).fit()

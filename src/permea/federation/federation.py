"""The global classifier: one query to many parties, in the clear or on ciphertexts."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray

from permea._arrays import Array
from permea._parallel import batches
from permea._progress import progress
from permea._text import safe_text
from permea.compose import ReconstructionClassifier, matching_scores
from permea.federation import aggregate
from permea.federation.aggregate import Aggregation, Answer, Suspicion, reasons_text
from permea.federation.answering import AnsweringParties
from permea.federation.encryption import EvaluationKey, get_scheme, protocol
from permea.federation.encryption.protocol import EncryptedAnswer, EncryptedQuery, Terms
from permea.federation.errors import FederationError, QuorumError, SchemaError
from permea.federation.merging import merged
from permea.federation.party import Party, align_classes
from permea.federation.schema import Label, Schema, agree
from permea.federation.summary import Records, Summary, summarise
from permea.federation.transport import (
    Channel,
    Failure,
    Introduction,
    LocalChannel,
    Outcome,
    Request,
    RetryPolicy,
)
from permea.privacy import Certificate

Topology = Literal["queries", "models"]
Suspects = Literal["report", "exclude"]


class _Decision(NamedTuple):
    """One batch of an exchange in the clear."""

    distances: Array
    labels: NDArray[np.intp]
    nearest_party: NDArray[np.intp] | None
    suspicions: tuple[Suspicion, ...]


class Federation:
    """A classifier made of the distances of many parties (004 eq. 101-104, 002 §2.3).

    Each party keeps its data and its model, and replies to a query with its distance to each
    class, ∞ for a class it lacks (Remark 5). The smallest distance over the parties counts, and the
    nearest class wins:

        GC(y) = argmin_c min_q Γ_{c,q}(y).

    Parameters
    ----------
    parties : sequence of Party, or Channel
        Parties in this process, or a channel to parties elsewhere, see `Federation.over`. For
        parties that learn one model together see `MomentFederation`.
    topology : {"queries", "models"}, default="queries"
        What is transferred: queries to the parties, or once and for all the private models to the
        aggregator, after which no party sees a query (Remark 6).
    aggregation : {"min", "trimmed", "median"}, default="min"
        How the distances of the parties are combined, see `permea.federation.aggregate.combine`.
    drop : int, default=1
        Malicious parties that ``aggregation="trimmed"`` tolerates.
    quorum : int, optional
        Parties that must reply; all of them by default. With fewer, `QuorumError` is raised; with
        enough but not all, the answer names those that are missing.
    retry : RetryPolicy, optional
        Time-out, attempts and back-off for each batch.
    batch_size : int, default=1000
        Queries in one message.
    records : {"disjoint", "overlapping", "unknown"}, default="unknown"
        Whether one record may lie with several parties; it decides how their promises compose.
    suspects : {"report", "exclude"}, default="report"
        What to do with a party whose replies look fabricated.
    classes : sequence of labels, optional
        The classes there are. A party that claims any other is left out. By default the union of
        the parties' classes.
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
    answering : AnsweringParties
        With ``encrypted``: the parties that every question is answered by.
    last_answer : Answer or None
        Result of the last call of `ask`, `predict` or `distances`.

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
        parties: Sequence[Party] | Channel,
        *,
        topology: Topology = "queries",
        aggregation: Aggregation = "min",
        drop: int = 1,
        quorum: int | None = None,
        retry: RetryPolicy | None = None,
        batch_size: int = 1000,
        records: Records = "unknown",
        suspects: Suspects = "report",
        classes: Sequence[Label] | None = None,
        encrypted: bool = False,
        scheme: str = "bfv",
        bits: int = 12,
        scale: tuple[float, float] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.topology, self.aggregation, self.drop, self.quorum = (
            topology,
            aggregation,
            drop,
            quorum,
        )
        self.retry, self.batch_size = retry or RetryPolicy(), batch_size
        self.records, self.suspects, self.classes = records, suspects, classes
        self.encrypted, self.scheme, self.bits = encrypted, scheme, bits
        self.scale, self.n_jobs = scale, n_jobs
        self._check_options()
        self._known: dict[str, Introduction] = {}
        self._agreed: Schema | None = None
        self._hosted: dict[str, Party] = {}
        self._excluded: dict[str, str] = {}
        self.answering = AnsweringParties()
        self.last_answer: Answer | None = None
        if not isinstance(parties, Sequence):
            self._channel: Channel = parties
            return
        if not parties:
            raise ValueError("A federation needs at least one party.")
        if len({party.name for party in parties}) < len(parties):
            raise ValueError("Two parties have the same name. Give each party a name of its own.")
        if not all(hasattr(party, "distances") for party in parties):
            raise TypeError("Each party must be a Party; use MomentFederation for MomentParty.")
        self._channel = LocalChannel(parties)
        if failed := self._introduce():
            raise SchemaError(reasons_text(failed))

    def _check_options(self) -> None:
        for name, choices in (
            ("topology", Topology),
            ("aggregation", Aggregation),
            ("records", Records),
            ("suspects", Suspects),
        ):
            if getattr(self, name) not in get_args(choices):
                allowed = ", ".join(map(repr, get_args(choices)))
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}.")
        if self.encrypted and self.aggregation != "min":
            raise ValueError("Ciphertexts are aggregated by the minimum only.")
        if self.encrypted and self.topology != "queries":
            raise ValueError(
                "Encrypted distances are computed where the models are: topology must be 'queries'."
            )
        if self.n_jobs == 0:
            raise ValueError("n_jobs must be a number of processes, -1 for all cores, or None.")
        if self.batch_size < 1 or self.drop < 0 or (self.quorum is not None and self.quorum < 1):
            raise ValueError("batch_size and quorum must be at least 1, drop not negative.")

    @classmethod
    def over(cls, channel: Channel, **options: Any) -> Self:
        """A federation of parties that ``channel`` reaches; parties may join and leave.

        Takes the same keywords as `Federation`. Parties introduce themselves before the first
        query; one that disagrees with those before it is left out, and the answer says why.
        """
        return cls(channel, **options)

    # ---- the parties -------------------------------------------------------------------------

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
        return np.array(self.schema.classes)

    @property
    def certificates(self) -> dict[str, Certificate | None]:
        """Certificate of each party; None where nothing is promised.

        What a party states about itself over a network is an unverified claim.
        """
        return {name: known.certificate for name, known in self._known.items()}

    @property
    def who_answered(self) -> tuple[str, ...]:
        """Parties that the last answer is based on."""
        return () if self.last_answer is None else self.last_answer.who_answered

    def summary(self) -> Summary:
        """What the certificates of the parties promise together."""
        return summarise(self.certificates, self.records)

    def introduce(self) -> dict[str, str]:
        """Let parties introduce themselves that have not yet; returns why some do not take part."""
        return self._introduce()

    def _introduce(self) -> dict[str, str]:
        """Request introductions of parties not known yet; returns the reasons of those excluded."""
        new = [name for name in self.names if name not in self._known]
        outcomes = self.retry.run(self._channel.introduce, new)
        objections = {name: self._objection(name, outcomes[name]) for name in new}
        self._excluded = {name: safe_text(why) for name, why in objections.items() if why}
        if self.topology == "models":
            self._host([name for name in self._known if name not in self._hosted])
        return dict(self._excluded)

    def _objection(self, name: str, outcome: Outcome) -> str:
        """Register a party and return nothing, or say why not."""
        if isinstance(outcome, Failure):
            return outcome.reason
        try:
            agreed = self._agreed_with(name, outcome.schema)
        except SchemaError as error:
            return str(error)
        if self.classes is not None:
            unknown = [label for label in outcome.schema.classes if label not in self.classes]
            if unknown:
                return f"claims {len(unknown)} classes that this federation does not have"
        self._known[name], self._agreed = outcome, agreed
        return ""

    def _agreed_with(self, name: str, schema: Schema) -> Schema:
        """What the known parties agree on, and one more; without a look at all of them again."""
        if not self._known:
            return agree({name: schema})
        first = next(iter(self._known))
        return agree({first: self.schema if self._agreed is None else self._agreed, name: schema})

    def _host(self, names: Sequence[str]) -> None:
        """Fetch the models of parties, once (Remark 6)."""
        for name, outcome in self.retry.run(self._channel.fetch, names).items():
            if isinstance(outcome, Failure):
                self._excluded[name] = safe_text(outcome.reason)
                del self._known[name]
                self._agreed = None
            else:
                self._hosted[name] = outcome

    # ---- queries -----------------------------------------------------------------------------

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each query (004 eq. 104); warns when parties are missing or suspicious."""
        return aggregate.warned(self.ask(X)).labels

    def distances(self, X: ArrayLike) -> Array:
        """Distance of each query to each class over the parties (004 eq. 101)."""
        if self.encrypted:
            raise ValueError("An encrypted federation gives labels only; use predict.")
        found = aggregate.warned(self.ask(X)).distances
        assert found is not None
        return found

    def matching_scores(self, X: ArrayLike) -> Array:
        """Class-matching scores of 004 Def. 8 of the global distances."""
        return matching_scores(self.distances(X))

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Share of queries with the right label."""
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def merged(self) -> ReconstructionClassifier:
        """One classifier of the models that the parties handed over (004 eq. 101, Remark 6).

        For ``topology="models"``. Its model of a class is the global machine GW of that class:
        ``merged().class_models_[c].reconstruct(Y)`` is the global image, that of the nearest party,
        and its labels are those of `predict` with ``aggregation="min"``.

        Returns
        -------
        ReconstructionClassifier
        """
        if self.topology != "models":
            raise ValueError("Only models that were handed over can be merged: topology='models'.")
        self._check_quorum(self._known, self._introduce())
        return merged([party.classifier for party in self._hosted.values()])

    def ask(self, X: ArrayLike, *, client: str = "unknown") -> Answer:
        """Labels, distances, and what they are based on.

        Parameters
        ----------
        X : array-like of shape (m, p)
            Queries.
        client : str
            Name of the client; parties write it into their logs.

        Returns
        -------
        Answer
            With the parties that replied, those that did not and why, and suspicious ones.
        """
        ask = self._ask_on_ciphertexts if self.encrypted else self._ask_in_the_clear
        self.last_answer = ask(X, client)
        return self.last_answer

    def _ask_in_the_clear(self, X: ArrayLike, client: str) -> Answer:
        missing = self._introduce()
        self._check_quorum(self._known, missing)
        schema = self.schema
        queries = schema.check_queries(X)
        read = partial(self._read, schema.classes)
        parts, provenance = self._collect(queries, client, self.batch_size, read, self._decide)
        distances, labels, nearest, found = zip(*parts, strict=True)
        unique: dict[tuple[str, str], Suspicion] = {}
        for one in chain.from_iterable(found):
            unique.setdefault((one.party, one.reason[:20]), one)
        classes = np.array(schema.classes)
        return Answer(
            labels=classes[np.concatenate(labels)],
            distances=np.concatenate(distances),
            classes=classes,
            nearest_party=np.concatenate(nearest) if self.aggregation == "min" else None,
            suspicions=tuple(unique.values()),
            **provenance,
        )

    def _ask_on_ciphertexts(self, X: ArrayLike, client: str) -> Answer:
        """All three roles in this process: the labels are those of three programs."""
        holder = protocol.KeyHolder(self.terms(n_queries=max(1, len(np.asarray(X)))))
        query = holder.query()
        found = self._encrypted_labels(X, holder.terms, query, holder.keys.evaluation, client)
        labels, _ = holder.labels(found.ciphertexts, query)
        return Answer(
            labels=labels,
            distances=None,
            classes=np.array(query.classes),
            parties=found.parties,
            answered=found.answered,
            missing=found.missing,
        )

    def terms(self, n_queries: int | None = None) -> Terms:
        """What key holder, parties and aggregator agree on before anything is encrypted.

        The public scale is the one given, or the diameter of the declared domain. ``n_queries``
        that are known beforehand help to choose the fastest circuit.
        """
        missing = self._introduce()
        self._check_quorum(self._known, missing)
        schema = self.schema
        if self.classes is not None:
            schema = replace(schema, classes=tuple(self.classes))
        if self.scale is None and schema.diameter is None:
            raise SchemaError(
                "An encrypted federation needs a public scale of distances. Give "
                "scale=(low, high), or let the parties declare the domain of their features; never "
                "take it from data."
            )
        scheme = get_scheme(self.scheme).for_queries(
            n_queries,
            n_parties=len(self.names),
            n_classes=1 + len(schema.classes),  # the first one is "beyond the scale"
            bits=self.bits,
            scale=(0.0, schema.diameter) if self.scale is None else self.scale,
            n_jobs=effective_n_jobs(self.n_jobs),
        )
        return Terms(scheme, schema, self.names)

    def ask_encrypted(
        self,
        X: ArrayLike,
        query: EncryptedQuery,
        evaluation_key: EvaluationKey,
        *,
        client: str = "unknown",
    ) -> EncryptedAnswer:
        """The aggregator's part of an encrypted query: labels that only the key holder can read.

        Parameters
        ----------
        X : array-like of shape (m, p)
            Queries; the parties compute on them in the clear.
        query, evaluation_key : EncryptedQuery, EvaluationKey
            Of the key holder. There is no secret key on this side.
        client : str
            Name of the client; parties write it into their logs.
        """
        terms = self.terms()
        terms.require(query)
        terms.scheme.check_evaluation_key(evaluation_key)
        return self._encrypted_labels(X, terms, query, evaluation_key, client)

    def _encrypted_labels(
        self, X: ArrayLike, terms: Terms, query: EncryptedQuery, key: EvaluationKey, client: str
    ) -> EncryptedAnswer:
        scheme = terms.scheme

        def read(name: str, reply: Any, request: Request) -> bytes:
            return protocol.check_reply(scheme, key, reply, request, name)

        def decide(replies: dict[str, bytes], missing: dict[str, str], request: Request) -> bytes:
            return protocol.aggregate_replies(scheme, key, replies, request)

        queries, size = terms.schema.check_queries(X), terms.batch_size(self.batch_size)
        parts, provenance = self._collect(queries, client, size, read, decide, query)
        return EncryptedAnswer(ciphertexts=tuple(parts), **provenance)

    # ---- the exchange with the parties, in the clear and encrypted ---------------------------

    def _collect(
        self,
        queries: Array,
        client: str,
        batch_size: int,
        read: Callable[..., Any],
        decide: Callable[..., Any],
        query: EncryptedQuery | None = None,
    ) -> tuple[list[Any], dict[str, Any]]:
        """Send batches to the parties, check the replies and the quorum, decide each batch.

        A party that fails is noted as missing and gets no further batch of these queries.
        """
        missing, parts, answered = dict(self._excluded), [], []
        index = {name: i for i, name in enumerate(self.names)}
        slices = list(batches(len(queries), batch_size))
        for number, rows in enumerate(progress(slices, desc="batches")):
            names, batch = [name for name in self._known if name not in missing], queries[rows]
            request = Request(batch, client)
            if query is not None:
                part = query.part(number)
                parties = {name: replace(part, party=index[name]) for name in names}
                request = replace(request, encrypted=parties)
            replies: dict[str, Any] = {}
            for name, outcome in self._replies(names, request).items():
                try:
                    if isinstance(outcome, Failure):
                        raise FederationError(outcome.reason)
                    replies[name] = read(name, outcome, request)
                except FederationError as error:
                    missing[name] = safe_text(error)
            self._check_quorum(replies, missing)
            if query is not None:
                self.answering.agree(replies, self.names)
            parts.append(decide(replies, missing, request))
            answered.append(np.tile([name in replies for name in self.names], (len(batch), 1)))
        provenance = {"parties": self.names, "missing": missing}
        return parts, {**provenance, "answered": np.concatenate(answered)}

    def _replies(self, names: Sequence[str], request: Request) -> dict[str, Outcome]:
        channel = self._channel
        if self.topology == "models":
            channel = LocalChannel([self._hosted[name] for name in names])
        return self.retry.run(lambda some, timeout: channel.ask(some, request, timeout), names)

    def _check_quorum(self, replies: Collection[Any], missing: Mapping[str, str]) -> None:
        needed = len(self.names) if self.quorum is None else self.quorum
        if not replies or len(replies) < needed:
            raise QuorumError(
                f"{len(replies)} parties answered, {needed} are needed. "
                f"Missing: {reasons_text(missing) or 'none'}"
            )

    def _read(self, classes: Sequence[Label], name: str, reply: Any, request: Request) -> Array:
        """Distances of a party to ``classes``, if they can be true."""
        schema = self._known[name].schema
        if reply.fingerprint != schema.fingerprint:
            del self._known[name]  # it may introduce itself again before the next query
            self._agreed = None
            raise SchemaError("replies under another schema than it introduced itself with")
        shape = len(request.queries), len(schema.classes)
        found = aggregate.check_distances(reply.distances, shape)
        return align_classes(found, schema.classes, classes)

    def _decide(
        self, replies: dict[str, Array], missing: dict[str, str], request: Request
    ) -> _Decision:
        """Minimum over parties, minimum over classes."""
        queries = request.queries
        reported: tuple[Suspicion, ...] = ()
        while True:
            stack = np.stack(list(replies.values()))
            found = aggregate.suspicions(stack, list(replies), queries)
            reported += tuple(one for one in found if one not in reported)
            if not found or self.suspects == "report":
                break
            for one in found:
                replies.pop(one.party, None)
                missing[one.party] = f"excluded: {one.reason}"
            self._check_quorum(replies, missing)
        distances = aggregate.combine(stack, self.aggregation, drop=self.drop)
        label = distances.argmin(axis=1)
        nearest = None
        if self.aggregation == "min":
            place = {name: index for index, name in enumerate(self.names)}
            order = np.array([place[name] for name in replies])
            nearest = order[stack[:, np.arange(len(queries)), label].argmin(axis=0)]
        return _Decision(distances, label, nearest, reported)

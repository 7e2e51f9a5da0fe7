"""Encrypted questions to a federation: terms first, then ciphertexts, then labels for the asker."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._parallel import batches
from permea._progress import progress
from permea.federation.aggregate import Answer, class_array
from permea.federation.errors import LyingError
from permea.federation.schema import Schema
from permea.federation.settings import Settings
from permea.federation.transport import Channel, Failure, Introduction, Outcome
from permea.models.base import Array

if TYPE_CHECKING:
    from permea.federation.encrypted import EncryptedQuestion, SealedAnswer, Terms
    from permea.federation.encryption import EvaluationKey


class SealedQuestions:
    """The part of `Federation` that works on ciphertexts; it holds no secret key."""

    settings: Settings
    last_answer: Answer | None
    _channel: Channel
    _known: dict[str, Introduction]
    _strangers: dict[str, str]

    if TYPE_CHECKING:

        @property
        def names(self) -> tuple[str, ...]: ...  # noqa: D102
        @property
        def schema(self) -> Schema: ...  # noqa: D102
        def _introduce(self) -> dict[str, str]: ...
        def _check_quorum(self, replies: Collection[Any], missing: Mapping[str, str]) -> None: ...
        def _persist(self, call: Any, names: Sequence[str]) -> dict[str, Outcome]: ...
        def _tick(self, replies: Collection[str], n_queries: int) -> NDArray[np.bool_]: ...

    def terms(self, n_queries: int | None = None) -> "Terms":
        """What asker, parties and aggregator agree on before anything is encrypted.

        ``n_queries`` that are known beforehand help to choose the fastest circuit.
        """
        from permea.federation.encrypted import make_terms

        missing = self._introduce()
        self._check_quorum(self._known, missing)
        schema, chosen = self.schema, self.settings
        if chosen.classes is not None:
            schema = replace(schema, classes=tuple(chosen.classes))
        return make_terms(
            schema,
            self.names,
            scheme=chosen.scheme,
            bits=chosen.bits,
            scale=chosen.scale,
            n_jobs=chosen.n_jobs,
            n_queries=n_queries,
        )

    def ask_sealed(
        self,
        X: ArrayLike,
        question: "EncryptedQuestion",
        evaluation_key: "EvaluationKey",
        *,
        asker: str = "unknown",
    ) -> "SealedAnswer":
        """The aggregator's part of an encrypted question: labels that only the asker can open.

        Parameters
        ----------
        X : array-like of shape (m, p)
            Queries; the parties compute on them in the clear.
        question, evaluation_key : EncryptedQuestion, EvaluationKey
            Of the asker. There is no secret key on this side.
        asker : str
            Who asks; parties write it into their logs.
        """
        terms = self.terms()
        terms.require(question)
        return self._seal(X, terms, question, evaluation_key, asker)

    def _seal(
        self,
        X: ArrayLike,
        terms: "Terms",
        question: "EncryptedQuestion",
        key: "EvaluationKey",
        asker: str,
    ) -> "SealedAnswer":
        from permea.federation.encrypted import SealedAnswer

        queries = terms.schema.check_queries(X)
        missing = dict(self._strangers)
        slices = list(batches(len(queries), terms.batch_size(self.settings.batch_size)))
        results, answered = [], []
        for number, rows in enumerate(progress(slices, desc="encrypted batches")):
            result, ticks = self._sealed_batch(
                terms, question.part(number), key, queries[rows], asker, missing
            )
            results.append(result)
            answered.append(ticks)
        return SealedAnswer(tuple(results), self.names, np.concatenate(answered), missing)

    def _sealed_batch(
        self,
        terms: "Terms",
        question: "EncryptedQuestion",
        key: "EvaluationKey",
        queries: Array,
        asker: str,
        missing: dict[str, str],
    ) -> tuple[bytes, NDArray[np.bool_]]:
        """Ciphertexts of one batch; who fails is noted in ``missing`` and stands in as ∞."""
        from permea.federation.encrypted import check_reply, gather

        index = {name: i for i, name in enumerate(self.names) if name not in missing}
        size = len(queries)

        def ask(some: Sequence[str], wait: float | None) -> Mapping[str, Outcome]:
            few = {name: index[name] for name in some}
            return self._channel.ask_encrypted(few, queries, question, asker, wait)

        replies: dict[int, bytes] = {}
        for name, outcome in self._persist(ask, list(index)).items():
            try:
                if isinstance(outcome, Failure):
                    raise LyingError(outcome.reason)
                replies[index[name]] = check_reply(
                    terms.scheme, key, outcome, index[name], size, question.query_id
                )
            except LyingError as error:
                missing[name] = str(error)
        self._check_quorum(replies, missing)
        result = gather(terms.scheme, key, replies, size, question.query_id)
        return result, self._tick([self.names[i] for i in replies], size)

    def _ask_in_secret(self, X: ArrayLike, asker: str) -> Answer:
        """All three roles in this process: the labels are those of a federation of many."""
        from permea.federation.encrypted import Asker, name_labels

        terms = self.terms(n_queries=max(1, len(np.asarray(X))))
        role = Asker(terms)
        question = role.question()
        sealed = self._seal(X, terms, question, role.evaluation_key, asker)
        labels, _ = name_labels(role.open(sealed.results, question), question.classes)
        self.last_answer = Answer(
            labels=labels,
            distances=None,
            classes=class_array(question.classes),
            parties=self.names,
            answered=sealed.answered,
            missing=sealed.missing,
        )
        return self.last_answer

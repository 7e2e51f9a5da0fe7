"""A round of questions whose distances nobody but their own party sees (001 ch. 2).

Three roles share public terms and messages, and nothing else:

* the **asker** (`Asker`) makes the keys, asks, and is the only one who can decrypt a label;
* a **party** (`encrypt_reply`) encrypts its quantised distances under the asker's public key;
* the **aggregator** (`gather`) finds the winning class on ciphertexts with the evaluation keys.

In one process `Federation` plays all three; over Flower they are three programs.

Every party encrypts one more column before those of the classes: the last finite code, for "beyond
the scale". It wins when no class is nearer than the end of the public scale. The asker is told so
and warned, instead of being given the first of many classes that all tie there.
"""

import json
import secrets
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray

from permea._arrays import Array
from permea._parallel import batches
from permea._progress import progress
from permea.federation.aggregate import Answer, Rests, class_array
from permea.federation.encryption import (
    EncryptionError,
    EvaluationKey,
    Keys,
    MismatchError,
    PublicKey,
    Quantiser,
    Scheme,
    get_scheme,
    infinity_code,
)
from permea.federation.errors import LyingError, ScaleWarning, SchemaError
from permea.federation.schema import Label, Schema
from permea.federation.settings import Settings
from permea.federation.transport import Channel, Failure, Introduction, Outcome

_PACKED = 8  # full ciphertext batches that travel in one message at most


@dataclass(frozen=True)
class Terms:
    """What the roles agree on before anything is encrypted: public numbers and names only.

    Parameters
    ----------
    scheme : Scheme
        For as many parties as the federation has, whether they are reachable or not.
    schema : Schema
        Features and classes of the federation.
    parties : tuple of str
        Names, in the order of their index in the scheme.
    """

    scheme: Scheme
    schema: Schema
    parties: tuple[str, ...]

    def to_json(self) -> str:
        """Serialise."""
        said = {
            "scheme": self.scheme.to_json(),
            "schema": self.schema.to_dict(),
            "parties": list(self.parties),
        }
        return json.dumps(said, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read `to_json`."""
        said = json.loads(text)
        scheme = read_scheme(said["scheme"])
        return cls(scheme, Schema.from_dict(said["schema"]), tuple(said["parties"]))

    def batch_size(self, largest: int) -> int:
        """Queries per message: full ciphertexts where ``largest`` allows for them."""
        packed = int(getattr(self.scheme, "batch", 1))
        if largest < packed:
            return largest
        return packed * min(largest // packed, _PACKED)

    def require(self, question: "EncryptedQuestion") -> None:
        """Raise unless a question was made under these terms."""
        same = question.scheme.fingerprint == self.scheme.fingerprint
        if not same or question.classes != self.schema.classes:
            raise SchemaError(
                "The question was made under other terms (parties, classes, bits, scale or "
                "scheme). Read the terms of the federation again and ask again."
            )


def make_terms(
    schema: Schema,
    parties: Sequence[str],
    *,
    scheme: str,
    bits: int,
    scale: tuple[float, float] | None,
    n_jobs: int | None = None,
    n_queries: int | None = None,
) -> Terms:
    """Terms on a public scale: the one given, or the diameter of the declared domain.

    ``n_queries`` that are known beforehand help to choose the fastest circuit.
    """
    if scale is None:
        if schema.diameter is None:
            raise SchemaError(
                "An encrypted federation needs a public scale of distances. Give "
                "scale=(low, high), or let the parties declare the domain of their features; never "
                "take it from data."
            )
        scale = (0.0, schema.diameter)
    made = get_scheme(scheme).for_queries(
        n_queries,
        n_parties=len(parties),
        n_classes=1 + len(schema.classes),  # the first says: beyond the scale
        bits=bits,
        scale=scale,
        n_jobs=effective_n_jobs(n_jobs),
    )
    return Terms(made, schema, tuple(parties))


def read_scheme(text: str, *, n_jobs: int = 1) -> Scheme:
    """The scheme that public parameters name."""
    try:
        return get_scheme(str(json.loads(text)["scheme"])).from_json(text, n_jobs=n_jobs)
    except (KeyError, TypeError) as error:
        raise MismatchError("these are not the public parameters of a scheme") from error


@dataclass(frozen=True)
class EncryptedQuestion:
    """What a party needs to answer in secret: public things only."""

    scheme: Scheme
    public_key: PublicKey
    classes: tuple[Label, ...]
    query_id: str

    def part(self, index: int) -> "EncryptedQuestion":
        """The question of one batch; ciphertexts of different batches do not mix."""
        return replace(self, query_id=f"{self.query_id}/{index}")

    def to_record(self) -> dict[str, Any]:
        """Plain values for a message."""
        return {
            "scheme": self.scheme.to_json(),
            "public_key": self.public_key.to_bytes(),
            "classes": json.dumps(list(self.classes)),
            "query_id": self.query_id,
        }

    @classmethod
    def from_record(cls, values: Mapping[str, Any]) -> Self:
        """Read `to_record`."""
        return cls(
            read_scheme(str(values["scheme"])),
            PublicKey.from_bytes(bytes(values["public_key"])),
            tuple(json.loads(str(values["classes"]))),
            str(values["query_id"]),
        )


@dataclass(frozen=True)
class SealedAnswer(Rests):
    """What the aggregator hands back: ciphertexts of labels, and on whom they rest.

    Parameters
    ----------
    results : tuple of bytes
        One message for each batch.
    parties, answered, missing
        As in `Answer`.
    """

    results: tuple[bytes, ...]
    parties: tuple[str, ...]
    answered: NDArray[np.bool_]
    missing: Mapping[str, str] = field(default_factory=dict)


class Asker:
    """The asker: makes the keys, asks, decrypts. No other object holds a secret key.

    Parameters
    ----------
    terms : Terms
        Of the federation.
    keys : Keys, optional
        A key set that was made for the same terms; drawn afresh by default.
    """

    def __init__(self, terms: Terms, keys: Keys | None = None) -> None:
        self.terms = terms
        self._keys = terms.scheme.keygen() if keys is None else keys
        terms.scheme.check_keys(self._keys)

    @property
    def evaluation_key(self) -> EvaluationKey:
        """What the aggregator needs."""
        return self._keys.evaluation

    @property
    def keys(self) -> Keys:
        """The whole key set, to be kept where nobody else reads."""
        return self._keys

    def question(self) -> EncryptedQuestion:
        """A new question under the asker's public key."""
        terms = self.terms
        return EncryptedQuestion(
            terms.scheme, self._keys.public, terms.schema.classes, secrets.token_hex(8)
        )

    def open(self, results: Sequence[bytes], question: EncryptedQuestion) -> NDArray[np.intp]:
        """Class index of every query of a question, from the ciphertexts of its batches.

        -1 stands for "beyond the scale": nobody is nearer than its end.
        """
        decrypt, secret = self.terms.scheme.decrypt, self._keys.secret
        parts = [
            decrypt(secret, result, query_id=question.part(index).query_id)
            for index, result in enumerate(results)
        ]
        return np.concatenate(parts) - 1


def name_labels(indices: NDArray[np.intp], classes: Sequence[Label]) -> tuple[NDArray[Any], int]:
    """Labels of class indices, with a warning when some lie beyond the scale; and how many do."""
    beyond = int(np.count_nonzero(indices < 0))
    if beyond:
        warnings.warn(
            f"{beyond} of {len(indices)} queries are farther from every class than the public "
            f"scale reaches; their label {classes[0]!r} says nothing. Agree on a wider scale.",
            ScaleWarning,
            stacklevel=3,
        )
    return class_array(classes)[np.maximum(indices, 0)], beyond


def encrypt_reply(distances: Array, index: int, question: EncryptedQuestion) -> bytes:
    """At the party: distances to the question's classes, quantised on the public scale, encrypted.

    A distance beyond the scale gets the last finite code, that of the column "beyond the scale"
    which stands first and wins such ties.
    """
    low, high = question.scheme.quantiser.low, question.scheme.quantiser.high
    quantiser = Quantiser(bits=question.scheme.bits, low=low, high=high, overflow="clip")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # clipping is what is wanted here
        codes = quantiser.codes(distances)
    end = np.full((len(codes), 1), infinity_code(question.scheme.bits) - 1)
    codes = np.hstack([end, codes])
    return question.scheme.encrypt(
        question.public_key, codes, party=index, query_id=question.query_id
    )


def check_reply(
    scheme: Scheme, key: EvaluationKey, message: Any, index: int, n_queries: int, query_id: str
) -> bytes:
    """A party's ciphertext, or `LyingError` when it does not belong to the question."""
    if not isinstance(message, bytes):
        raise LyingError("lying: the reply is not a ciphertext")
    try:
        scheme.check_ciphertext(key, message, index, n_queries, query_id)
    except EncryptionError as error:
        raise LyingError(f"lying: {error}") from None
    return message


def gather(
    scheme: Scheme,
    key: EvaluationKey,
    replies: Mapping[int, bytes],
    n_queries: int,
    query_id: str,
) -> bytes:
    """At the aggregator: ciphertexts by index of the party to the encrypted labels.

    A party that gave none stands in as one that knows no class: ∞ everywhere (Remark 5), encrypted
    under the same public key. So one missing party neither spoils a question nor needs new keys.
    """
    ciphertexts = [
        replies[index]
        if index in replies
        else scheme.absent(key, index, n_queries, query_id=query_id)
        for index in range(scheme.n_parties)
    ]
    return scheme.aggregate(key, ciphertexts)


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

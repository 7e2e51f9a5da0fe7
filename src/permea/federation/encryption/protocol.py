"""The exchange of an encrypted query, in which a distance is known to its own party only.

001 ch. 2. Three roles share public terms and messages, and nothing else:

* the **key holder** (`KeyHolder`) makes the keys and is the only one who can decrypt a label;
* a **party** (`encrypt_reply`) encrypts its quantised distances under the holder's public key;
* the **aggregator** (`aggregate_replies`) finds the winning class on ciphertexts with the
  evaluation keys.

In one process `Federation` plays all three; over Flower they are three programs.

Every party encrypts one more column before those of the classes: the last finite code, for "beyond
the scale". It wins when no class is nearer than the end of the public scale. The key holder is
warned about it, instead of getting the first of many classes that all tie there.
"""

import json
import secrets
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from permea._arrays import Array
from permea.federation.aggregate import Provenance
from permea.federation.encryption import EncryptionError, MismatchError, get_scheme, infinity_code
from permea.federation.encryption.scheme import EvaluationKey, Keys, PublicKey, Scheme
from permea.federation.errors import InvalidReplyError, ScaleWarning, SchemaError
from permea.federation.schema import Label, Schema

if TYPE_CHECKING:
    from permea.federation.transport import Request

_PACKED = 8  # full ciphertext batches in one message at most


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
        values = {
            "scheme": self.scheme.to_json(),
            "schema": self.schema.to_dict(),
            "parties": list(self.parties),
        }
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read `to_json`."""
        values = json.loads(text)
        scheme = read_scheme(values["scheme"])
        return cls(scheme, Schema.from_dict(values["schema"]), tuple(values["parties"]))

    def batch_size(self, largest: int) -> int:
        """Queries per message: full ciphertexts where ``largest`` allows for them."""
        packed = int(getattr(self.scheme, "batch", 1))
        return largest if largest < packed else packed * min(largest // packed, _PACKED)

    def require(self, query: "EncryptedQuery") -> None:
        """Raise unless a query was made under these terms."""
        same = query.scheme.fingerprint == self.scheme.fingerprint
        if not same or query.classes != self.schema.classes:
            raise SchemaError(
                "The query was made under other terms (parties, classes, bits, scale or scheme). "
                "Read the terms of the federation again and send a new query."
            )


def read_scheme(text: str) -> Scheme:
    """The scheme that public parameters name."""
    try:
        return get_scheme(str(json.loads(text)["scheme"])).from_json(text)
    except (KeyError, TypeError) as error:
        raise MismatchError("these are not the public parameters of a scheme") from error


@dataclass(frozen=True)
class EncryptedQuery:
    """What a party needs to encrypt its distances: public values only."""

    scheme: Scheme
    public_key: PublicKey
    classes: tuple[Label, ...]
    query_id: str
    party: int = 0  #: index in the scheme of the party that gets this query

    def part(self, index: int) -> "EncryptedQuery":
        """The query of one batch; ciphertexts of different batches do not mix."""
        return replace(self, query_id=f"{self.query_id}/{index}")

    def to_record(self) -> dict[str, Any]:
        """Plain values for a message."""
        return {
            "scheme": self.scheme.to_json(),
            "public_key": self.public_key.to_bytes(),
            "classes": json.dumps(list(self.classes)),
            "query_id": self.query_id,
            "party": self.party,
        }

    @classmethod
    def from_record(cls, values: Mapping[str, Any]) -> Self:
        """Read `to_record`."""
        return cls(
            read_scheme(str(values["scheme"])),
            PublicKey.from_bytes(bytes(values["public_key"])),
            tuple(json.loads(str(values["classes"]))),
            str(values["query_id"]),
            int(values["party"]),
        )


@dataclass(frozen=True, kw_only=True)
class EncryptedAnswer(Provenance):
    """What the aggregator returns: one ciphertext of labels per batch, and its provenance."""

    ciphertexts: tuple[bytes, ...]


class KeyHolder:
    """Makes the keys and the queries, and decrypts. No other object holds a secret key.

    Parameters
    ----------
    terms : Terms
        Of the federation.
    keys : Keys, optional
        A key set that was made for the same terms; a new one by default.
    """

    def __init__(self, terms: Terms, keys: Keys | None = None) -> None:
        self.terms = terms
        self.keys = terms.scheme.keygen() if keys is None else keys
        terms.scheme.check_keys(self.keys)

    def query(self) -> EncryptedQuery:
        """A new query under the holder's public key."""
        terms = self.terms
        return EncryptedQuery(
            terms.scheme, self.keys.public, terms.schema.classes, secrets.token_hex(8)
        )

    def labels(
        self, ciphertexts: Sequence[bytes], query: EncryptedQuery
    ) -> tuple[NDArray[Any], int]:
        """Labels of a query, and how many of them are meaningless: beyond the public scale."""
        decrypt, secret = self.terms.scheme.decrypt, self.keys.secret
        found = [
            decrypt(secret, ciphertext, query_id=query.part(index).query_id)
            for index, ciphertext in enumerate(ciphertexts)
        ]
        indices = np.concatenate(found) - 1
        beyond = int(np.count_nonzero(indices < 0))
        if beyond:
            warnings.warn(
                f"{beyond} of {len(indices)} queries are farther from every class than the public "
                f"scale reaches; their label {query.classes[0]!r} is meaningless. Agree on a wider "
                "scale.",
                ScaleWarning,
                stacklevel=3,
            )
        return np.array(query.classes)[np.maximum(indices, 0)], beyond


def encrypt_reply(distances: Array, query: EncryptedQuery) -> bytes:
    """At the party: distances to the query's classes, quantised on the public scale, encrypted.

    A distance beyond the scale gets the last finite code, that of the column "beyond the scale"
    which comes first and wins such ties.
    """
    scheme, quantiser = query.scheme, query.scheme.quantiser
    exact = np.asarray(distances, dtype=np.float64)
    on_scale = np.clip(exact, quantiser.low, quantiser.high)
    codes = quantiser.codes(np.where(np.isposinf(exact), np.inf, on_scale))
    end = np.full((len(codes), 1), infinity_code(scheme.bits) - 1)
    codes = np.hstack([end, codes])
    return scheme.encrypt(query.public_key, codes, party=query.party, query_id=query.query_id)


def check_reply(
    scheme: Scheme, key: EvaluationKey, reply: Any, request: "Request", name: str
) -> bytes:
    """A party's ciphertext, or `InvalidReplyError` when it does not belong to the query."""
    assert request.encrypted is not None
    query, n_queries = request.encrypted[name], len(request.queries)
    if not isinstance(reply, bytes):
        raise InvalidReplyError("invalid reply: it is not a ciphertext")
    try:
        scheme.check_ciphertext(key, reply, query.party, n_queries, query.query_id)
    except EncryptionError as error:
        raise InvalidReplyError(f"invalid reply: {error}") from None
    return reply


def aggregate_replies(
    scheme: Scheme, key: EvaluationKey, replies: Mapping[str, bytes], request: "Request"
) -> bytes:
    """At the aggregator: ciphertexts of the parties to the encrypted labels.

    A missing party is replaced by one that knows no class: ∞ everywhere (Remark 5), encrypted
    under the same public key. So a missing party neither spoils a query nor needs new keys.
    """
    assert request.encrypted is not None
    queries, n_queries = request.encrypted, len(request.queries)
    query_id = next(iter(queries.values())).query_id
    absent = set(range(scheme.n_parties)) - {queries[name].party for name in replies}
    filled = [scheme.absent(key, index, n_queries, query_id=query_id) for index in sorted(absent)]
    return scheme.aggregate(key, [*replies.values(), *filled])

"""What a node replies, by kind of message, and how the aggregator reads it.

The kinds of a party with a model: ``introduce`` (schema and certificate), ``distances`` (queries
in, distances out), ``encrypted`` (queries and a public key in, ciphertexts out) and ``model``
(Remark 6). A node replies to nothing else. Contents are plain values: bytes, texts and numbers.
"""

from collections.abc import Callable, Mapping
from typing import Any

from permea.federation import transport
from permea.federation.encryption.protocol import EncryptedQuery
from permea.federation.errors import FederationError, InvalidReplyError, RefusedError
from permea.federation.party import Party
from permea.federation.schema import Schema
from permea.federation.transport import Failure, Introduction, Outcome, Reply
from permea.federation.wire import pack_array, pack_json, unpack_array, unpack_json
from permea.privacy import Certificate

RECORD = "permea"  # the one record of every message
Record = Mapping[str, Any]
Replies = Mapping[str, Callable[[Record], dict[str, Any]]]


# ---- at the node -----------------------------------------------------------------------------


def party_replies(party: Party) -> Replies:
    """The replies of a party with a model."""

    def distances(record: Record) -> dict[str, Any]:
        found = party.distances(unpack_array(record["queries"]), client=str(record["client"]))
        return {"distances": pack_array(found), "fingerprint": party.schema.fingerprint}

    def encrypted(record: Record) -> dict[str, Any]:
        queries, query = unpack_array(record["queries"]), EncryptedQuery.from_record(record)
        client = str(record["client"])
        return {"ciphertext": party.encrypted_distances(queries, query, client=client)}

    return {
        "introduce": lambda _: pack_introduction(party),
        "distances": distances,
        "encrypted": encrypted,
        "model": lambda _: {"model": transport.model_bytes(party)},
    }


def reply_values(find: Callable[[], Replies], kind: str, record: Record) -> dict[str, Any]:
    """The reply to one message; an error becomes a reason that tells no detail of the node."""
    try:
        replies = find()
        if kind not in replies:
            raise RefusedError(f"This node does not reply to messages of kind {kind!r}.")
        return replies[kind](record)
    except Exception as error:
        text = str(error) if isinstance(error, FederationError) else type(error).__name__
        return {"failure": text, "final": isinstance(error, transport.FINAL)}


def pack_introduction(party: Party) -> dict[str, Any]:
    """Schema and certificate of a party."""
    certificate = None if party.certificate is None else party.certificate.to_dict()
    values = {"schema": party.schema.to_dict(), "certificate": certificate}
    return {"text": pack_json(values), "name": party.name}


# ---- at the aggregator -----------------------------------------------------------------------


def unpack_introduction(_: str, record: Record) -> Introduction:
    """Read and check `pack_introduction`."""

    def read(values: Any) -> Introduction:
        certificate = values["certificate"]
        known = None if certificate is None else Certificate.from_dict(certificate)
        return Introduction(Schema.from_dict(values["schema"]), known)

    return unpack_json(record["text"], read, "the introduction cannot be read")


def _unpack_model(name: str, record: Record) -> Party:
    try:
        return transport.hosted_party(name, record["model"])
    except Exception:  # whatever a file from outside makes of the reader
        raise InvalidReplyError("invalid reply: it is no model") from None


UNPACK: dict[str, Callable[[str, Any], Any]] = {
    "introduce": unpack_introduction,
    "distances": lambda _, r: Reply(unpack_array(r["distances"]), str(r["fingerprint"])[:100]),
    "encrypted": lambda _, record: bytes(record["ciphertext"]),
    "model": _unpack_model,
}


def read_reply(unpack: Callable[[str, Any], Any] | None, name: str, record: Record) -> Outcome:
    """What a node replied, or a `Failure`; nothing that a node sends raises here."""
    try:
        if "failure" in record:
            return Failure(str(record["failure"])[:300], bool(record.get("final", False)))
        return record if unpack is None else unpack(name, record)
    except FederationError as error:
        return Failure.of(error)
    except Exception:
        return Failure("invalid reply: it cannot be read", True)

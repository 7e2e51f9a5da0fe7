"""The same federation on Flower: query messages to SuperNodes, distances back.

A `ClientApp` answers four kinds of message, and nothing else: ``query.introduce`` (schema and
certificate), ``query.distances`` (queries in, distances out), ``query.encrypted`` (queries and a
public key in, ciphertexts out) and ``query.model`` (Remark 6). The
server side is a `FlowerChannel`, so that everything about agreement, faults and aggregation is the
code of `Federation`. Deployment and local simulation run the same apps.
"""

import io
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from permea._arrays import Array
from permea.federation.errors import FederationError, LyingError
from permea.federation.party import Party
from permea.federation.schema import Schema
from permea.federation.transport import FINAL, Failure, Introduction, Outcome, Reply
from permea.privacy import Certificate
from permea.storage import StorageError, load

if TYPE_CHECKING:
    from permea.federation.encryption.queries import EncryptedQuestion

RECORD = "permea"  # the one record of every message
_NEVER = 365 * 86400.0  # seconds a message stays valid when there is no time-out


def require_flower() -> None:
    """Raise a helpful error unless Flower is installed."""
    try:
        import flwr  # noqa: F401
    except ImportError:
        raise ImportError(
            "A federation over the network needs Flower: pip install 'permea[federated]'."
        ) from None


# ---- what travels ----------------------------------------------------------------------------


def pack_array(array: NDArray[Any]) -> bytes:
    """An array as bytes, without pickle.

    Examples
    --------
    >>> unpack_array(pack_array(np.eye(2)))
    array([[1., 0.],
           [0., 1.]])
    """
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def unpack_array(data: bytes) -> NDArray[Any]:
    """Read `pack_array`; anything else is a lie."""
    try:
        return np.asarray(np.load(io.BytesIO(data), allow_pickle=False))
    except (ValueError, OSError, EOFError, TypeError):
        raise LyingError("lying: a message does not hold the array it should") from None


def pack_introduction(party: Party) -> dict[str, Any]:
    """Schema, certificate and objections of a party."""
    certificate = None if party.certificate is None else party.certificate.to_dict()
    said = {"schema": party.schema.to_dict(), "certificate": certificate}
    return {"text": json.dumps({**said, "objections": list(party.objections)}), "name": party.name}


def unpack_introduction(values: Mapping[str, Any]) -> Introduction:
    """Read `pack_introduction`, distrusting it."""
    try:
        said = json.loads(str(values["text"]))
        certificate = said["certificate"]
        return Introduction(
            Schema.from_dict(said["schema"]),
            None if certificate is None else Certificate.from_dict(certificate),
            tuple(str(word) for word in said["objections"]),
        )
    except (KeyError, TypeError, ValueError):
        raise LyingError("lying: the introduction cannot be read") from None


# ---- at the party ----------------------------------------------------------------------------


def make_client_app(find_party: Callable[[Any], Party]) -> Any:
    """A Flower ``ClientApp`` that lets a party answer.

    Parameters
    ----------
    find_party : callable
        Takes the Flower context of the node and gives its party.
    """
    require_flower()
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    def answer(message: Any, context: Any, work: Callable[[Party, Any], dict[str, Any]]) -> Any:
        try:
            values = work(find_party(context), message.content[RECORD])
        except Exception as error:
            known = isinstance(error, FederationError)
            text = str(error) if known else type(error).__name__  # no detail of the party's insides
            values = {"failure": text, "final": isinstance(error, FINAL)}
        return Message(RecordDict({RECORD: ConfigRecord(values)}), reply_to=message)

    @app.query("introduce")
    def introduce(message: Any, context: Any) -> Any:
        return answer(message, context, lambda party, _: pack_introduction(party))

    @app.query("distances")
    def distances(message: Any, context: Any) -> Any:
        return answer(message, context, _distances)

    @app.query("encrypted")
    def encrypted(message: Any, context: Any) -> Any:
        return answer(message, context, _encrypted)

    @app.query("model")
    def model(message: Any, context: Any) -> Any:
        return answer(message, context, lambda party, _: {"model": _model_bytes(party)})

    return app


def _distances(party: Party, question: Any) -> dict[str, Any]:
    queries = unpack_array(question["queries"])
    found = party.distances(queries, asker=str(question["asker"]))
    return {"distances": pack_array(found), "fingerprint": party.schema.fingerprint}


def _encrypted(party: Party, question: Any) -> dict[str, Any]:
    from permea.federation.encryption.queries import EncryptedQuestion

    queries, asker = unpack_array(question["queries"]), str(question["asker"])
    secret = EncryptedQuestion.from_record(question)
    ciphertext = party.encrypted_distances(queries, int(question["index"]), secret, asker=asker)
    return {"ciphertext": ciphertext}


def _model_bytes(party: Party) -> bytes:
    with tempfile.TemporaryDirectory(prefix="permea-") as folder:
        return party.hand_over(Path(folder) / "model.permea").read_bytes()


# ---- at the aggregator -----------------------------------------------------------------------


class FlowerChannel:
    """Parties behind a Flower ``Grid``.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The connection that Flower gives to a server app.
    names : sequence of str
        Names of the parties that belong to the federation.
    nodes : callable, optional
        Gives the node of each party that is connected. By default the names under which the keys
        of the nodes were registered count; what a node says of itself does not.
    """

    def __init__(
        self,
        grid: Any,
        names: Sequence[str],
        nodes: Callable[[], Mapping[str, int]] | None = None,
    ) -> None:
        self._grid = grid
        self._names = tuple(names)
        self._nodes = nodes if nodes is not None else lambda: registered_nodes(grid)
        self.bytes_sent = 0
        self.bytes_received = 0

    @property
    def names(self) -> tuple[str, ...]:
        """All parties that belong to the federation."""
        return self._names

    def introduce(self, names: Sequence[str], timeout: float | None) -> dict[str, Outcome]:
        """One round of messages that ask for schema and certificate."""
        return self._round("introduce", names, {}, timeout, unpack_introduction)

    def ask(
        self, names: Sequence[str], queries: Array, asker: str, timeout: float | None
    ) -> dict[str, Outcome]:
        """One round of messages that ask for distances."""
        question = {"queries": pack_array(queries), "asker": asker}
        return self._round("distances", names, question, timeout, _unpack_reply)

    def ask_encrypted(
        self,
        index: Mapping[str, int],
        queries: Array,
        question: "EncryptedQuestion",
        asker: str,
        timeout: float | None,
    ) -> dict[str, Outcome]:
        """One round of messages that ask for encrypted distances."""
        said = {"queries": pack_array(queries), "asker": asker, **question.to_record()}
        own = {name: {"index": place} for name, place in index.items()}
        return self._round(
            "encrypted", list(index), said, timeout, lambda values: bytes(values["ciphertext"]), own
        )

    def fetch(self, names: Sequence[str], timeout: float | None) -> dict[str, Outcome]:
        """One round of messages that ask for the models."""
        outcomes = self._round("model", names, {}, timeout, lambda values: values["model"])
        return {name: _hosted(name, outcome) for name, outcome in outcomes.items()}

    def _round(
        self,
        kind: str,
        names: Sequence[str],
        question: dict[str, Any],
        timeout: float | None,
        unpack: Callable[[Any], Any],
        own: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    ) -> dict[str, Outcome]:
        """Send one message to each party and read what comes back in time.

        ``own`` is what the messages of single parties say besides.
        """
        from flwr.app import ConfigRecord, Message, RecordDict

        if not names:
            return {}
        nodes = self._nodes()
        outcomes: dict[str, Outcome] = {
            name: Failure("no answer in time" if name in nodes else "not connected")
            for name in names
        }
        names_of = {nodes[name]: name for name in names if name in nodes}
        messages = [
            Message(
                RecordDict({RECORD: ConfigRecord({**question, **own.get(name, {})})}),
                dst_node_id=node,
                message_type=f"query.{kind}",
                ttl=_NEVER if timeout is None else timeout,
            )
            for node, name in names_of.items()
        ]
        self.bytes_sent += len(messages) * _size(question)
        for reply in self._grid.send_and_receive(messages, timeout=timeout):
            name = names_of.get(reply.metadata.src_node_id)
            if name is not None:
                outcomes[name] = self._read(reply, unpack)
        return outcomes

    def _read(self, reply: Any, unpack: Callable[[Any], Any]) -> Outcome:
        if reply.has_error():
            return Failure(f"the party's app failed (Flower error {reply.error.code})")
        try:
            values = reply.content[RECORD]
            self.bytes_received += _size(values)
            if "failure" in values:
                return Failure(str(values["failure"])[:300], bool(values.get("final", False)))
            return unpack(values)
        except (LyingError, FederationError) as error:
            return Failure.of(error)
        except (KeyError, TypeError, ValueError, AttributeError):
            return Failure("lying: the reply cannot be read", True)


def registered_nodes(grid: Any) -> dict[str, int]:
    """Connected nodes by the name under which the aggregator registered their keys."""
    return {node.name: node.node_id for node in grid.get_nodes() if node.name}


def claimed_nodes(grid: Any, timeout: float) -> dict[str, int]:
    """Nodes by the name they give themselves: for simulations, where nobody has a key."""
    from flwr.app import ConfigRecord, Message, RecordDict

    messages = [
        Message(
            RecordDict({RECORD: ConfigRecord({})}),
            dst_node_id=node,
            message_type="query.introduce",
        )
        for node in grid.get_node_ids()
    ]
    return {
        str(reply.content[RECORD]["name"]): reply.metadata.src_node_id
        for reply in grid.send_and_receive(messages, timeout=timeout)
        if not reply.has_error() and "name" in reply.content[RECORD]
    }


def _unpack_reply(values: Any) -> Reply:
    return Reply(unpack_array(values["distances"]), str(values["fingerprint"]))


def _hosted(name: str, outcome: Outcome) -> Outcome:
    """A model that has travelled here, as a party of this process."""
    if isinstance(outcome, Failure):
        return outcome
    with tempfile.TemporaryDirectory(prefix="permea-") as folder:
        path = Path(folder) / "model.permea"
        try:
            path.write_bytes(outcome)
            model = load(path)
            return Party(name, model, consent=_given(model))
        except (StorageError, FederationError, TypeError, AttributeError, ValueError):
            return Failure("lying: what it sent is no model", True)


def _given(model: Any) -> tuple[str, ...]:
    """Consent was the owner's to give, and was given before the model left the house."""
    from permea.federation.party import objections

    return objections(model)


def _size(values: Mapping[str, Any]) -> int:
    """Bytes of the contents of a record."""
    contents: Iterable[Any] = values.values()
    return sum(len(v) if isinstance(v, bytes | str) else 8 for v in contents)

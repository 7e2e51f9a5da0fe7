"""The same federation on Flower: query messages to SuperNodes, distances back.

A `ClientApp` handles four kinds of message, and nothing else: ``query.introduce`` (schema and
certificate), ``query.distances`` (queries in, distances out), ``query.encrypted`` (queries and a
public key in, ciphertexts out) and ``query.model`` (Remark 6). The server side is a
`FlowerChannel`, so that everything about agreement, faults and aggregation is the code of
`Federation`. Deployment and local simulation run the same apps.
"""

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea.federation import transport
from permea.federation.aggregate import Answer
from permea.federation.encryption.protocol import EncryptedQuery
from permea.federation.errors import FederationError, InvalidReplyError, PartyTimeoutError
from permea.federation.federation import Federation
from permea.federation.flower.launch import be_quiet, require_flower
from permea.federation.party import Party
from permea.federation.schema import Schema
from permea.federation.service.config import FederationConfig, PartyConfig
from permea.federation.service.queue import Spool, serve
from permea.federation.transport import Failure, Introduction, Outcome, Reply, Request
from permea.privacy import Certificate
from permea.storage import StorageError

RECORD = "permea"  # the one record of every message
_NEVER = 365 * 86400.0  # seconds a message stays valid when there is no time-out
_START = 300.0  # seconds that a busy machine may need to start a simulation


# ---- messages --------------------------------------------------------------------------------


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
    """Read `pack_array`; anything else is invalid."""
    try:
        return np.asarray(np.load(io.BytesIO(data), allow_pickle=False))
    except (ValueError, OSError, EOFError, TypeError, MemoryError, OverflowError):
        raise InvalidReplyError("invalid message: it does not hold the expected array") from None


def pack_introduction(party: Party) -> dict[str, Any]:
    """Schema and certificate of a party."""
    certificate = None if party.certificate is None else party.certificate.to_dict()
    values = {"schema": party.schema.to_dict(), "certificate": certificate}
    return {"text": json.dumps(values), "name": party.name}


def unpack_introduction(_: str, record: Mapping[str, Any]) -> Introduction:
    """Read and check `pack_introduction`."""
    try:
        values = json.loads(str(record["text"]))
        certificate = values["certificate"]
        return Introduction(
            Schema.from_dict(values["schema"]),
            None if certificate is None else Certificate.from_dict(certificate),
        )
    except (KeyError, TypeError, ValueError, RecursionError):
        raise InvalidReplyError("invalid reply: the introduction cannot be read") from None


def _unpack_model(name: str, record: Mapping[str, Any]) -> Party:
    try:
        return transport.hosted_party(name, record["model"])
    except (StorageError, FederationError, TypeError, AttributeError, ValueError):
        raise InvalidReplyError("invalid reply: it is no model") from None


_UNPACK: dict[str, Callable[[str, Any], Any]] = {
    "introduce": unpack_introduction,
    "distances": lambda _, r: Reply(unpack_array(r["distances"]), str(r["fingerprint"])),
    "encrypted": lambda _, record: bytes(record["ciphertext"]),
    "model": _unpack_model,
}


# ---- at the party ----------------------------------------------------------------------------


def make_client_app(find_party: Callable[[Any], Party]) -> Any:
    """A Flower ``ClientApp`` that replies for a party.

    Parameters
    ----------
    find_party : callable
        Takes the Flower context of the node and gives its party.
    """
    require_flower()
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.clientapp import ClientApp

    def reply(work: Callable[[Party, Any], dict[str, Any]], message: Any, context: Any) -> Any:
        try:
            values = work(find_party(context), message.content[RECORD])
        except Exception as error:
            known = isinstance(error, FederationError)
            text = str(error) if known else type(error).__name__  # no internal detail of the party
            values = {"failure": text, "final": isinstance(error, transport.FINAL)}
        return Message(RecordDict({RECORD: ConfigRecord(values)}), reply_to=message)

    app = ClientApp()
    for kind, work in {
        "introduce": lambda party, _: pack_introduction(party),
        "distances": _distances,
        "encrypted": _encrypted,
        "model": lambda party, _: {"model": transport.model_bytes(party)},
    }.items():
        app.query(kind)(partial(reply, work))
    return app


def _distances(party: Party, record: Any) -> dict[str, Any]:
    found = party.distances(unpack_array(record["queries"]), client=str(record["client"]))
    return {"distances": pack_array(found), "fingerprint": party.schema.fingerprint}


def _encrypted(party: Party, record: Any) -> dict[str, Any]:
    queries, query = unpack_array(record["queries"]), EncryptedQuery.from_record(record)
    ciphertext = party.encrypted_distances(queries, query, client=str(record["client"]))
    return {"ciphertext": ciphertext}


def make_node_app() -> Any:
    """The ``ClientApp`` of a deployed party; its configuration file is named by its own node."""
    be_quiet()

    def find_party(context: Any) -> Party:
        return PartyConfig.from_file(str(context.node_config["permea-config"])).party()

    return make_client_app(find_party)


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
        of the nodes were registered count; what a node claims about itself does not.
    """

    def __init__(
        self,
        grid: Any,
        names: Sequence[str],
        nodes: Callable[[], Mapping[str, int]] | None = None,
    ) -> None:
        self._grid = grid
        self.names = tuple(names)
        self._nodes = nodes if nodes is not None else lambda: registered_nodes(grid)
        self.bytes_sent = 0
        self.bytes_received = 0

    def introduce(self, names: Sequence[str], timeout: float | None) -> dict[str, Outcome]:
        """Request schema and certificate."""
        return self._exchange("introduce", {name: {} for name in names}, timeout)

    def ask(
        self, names: Sequence[str], request: Request, timeout: float | None
    ) -> dict[str, Outcome]:
        """Request distances, or their ciphertexts."""
        common = {"queries": pack_array(request.queries), "client": request.client}
        if request.encrypted is None:
            return self._exchange("distances", dict.fromkeys(names, common), timeout)
        own = {name: request.encrypted[name].to_record() for name in names}
        records = {name: {**common, **own[name]} for name in names}
        return self._exchange("encrypted", records, timeout)

    def fetch(self, names: Sequence[str], timeout: float | None) -> dict[str, Outcome]:
        """Request the models."""
        return self._exchange("model", {name: {} for name in names}, timeout)

    def _exchange(
        self, kind: str, records: Mapping[str, dict[str, Any]], timeout: float | None
    ) -> dict[str, Outcome]:
        """Send one message to each party and read the replies that arrive in time."""
        from flwr.app import ConfigRecord, Message, RecordDict

        if not records:
            return {}
        nodes = self._nodes()
        outcomes: dict[str, Outcome] = {
            name: Failure("no reply in time" if name in nodes else "not connected")
            for name in records
        }
        names_of = {nodes[name]: name for name in records if name in nodes}
        messages = [
            Message(
                RecordDict({RECORD: ConfigRecord(records[name])}),
                dst_node_id=node,
                message_type=f"query.{kind}",
                ttl=_NEVER if timeout is None else timeout,
            )
            for node, name in names_of.items()
        ]
        self.bytes_sent += sum(_size(records[name]) for name in names_of.values())
        for reply in self._grid.send_and_receive(messages, timeout=timeout):
            name = names_of.get(reply.metadata.src_node_id)
            if name is not None:
                outcomes[name] = self._read(kind, name, reply)
        return outcomes

    def _read(self, kind: str, name: str, reply: Any) -> Outcome:
        if reply.has_error():
            return Failure(f"the party's app failed (Flower error {reply.error.code})")
        try:
            record = reply.content[RECORD]
            self.bytes_received += _size(record)
            if "failure" in record:
                return Failure(str(record["failure"])[:300], bool(record.get("final", False)))
            return _UNPACK[kind](name, record)
        except FederationError as error:
            return Failure.of(error)
        except (KeyError, TypeError, ValueError, AttributeError):
            return Failure("invalid reply: it cannot be read", True)


def registered_nodes(grid: Any) -> dict[str, int]:
    """Connected nodes by the name under which the aggregator registered their keys."""
    return {node.name: node.node_id for node in grid.get_nodes() if node.name}


def claimed_nodes(grid: Any, timeout: float) -> dict[str, int]:
    """Nodes by the name they give themselves: for simulations, where no keys are registered."""
    from flwr.app import ConfigRecord, Message, RecordDict

    content = RecordDict({RECORD: ConfigRecord({})})
    messages = [
        Message(content, dst_node_id=node, message_type="query.introduce")
        for node in grid.get_node_ids()
    ]
    return {
        str(reply.content[RECORD]["name"]): reply.metadata.src_node_id
        for reply in grid.send_and_receive(messages, timeout=timeout)
        if not reply.has_error() and "name" in reply.content[RECORD]
    }


def _size(record: Mapping[str, Any]) -> int:
    """Bytes of the contents of a record."""
    return sum(len(v) if isinstance(v, bytes | str) else 8 for v in record.values())


def make_server_app(main: Callable[[Any, Any], None]) -> Any:
    """A Flower ``ServerApp`` that runs ``main(grid, context)``."""
    require_flower()
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp

    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def run(grid: Grid, context: Context) -> None:
        main(grid, context)

    return app


def make_queue_app() -> Any:
    """The ``ServerApp`` of a deployed aggregator: it processes the jobs in the queue."""
    be_quiet()

    def main(grid: Any, context: Any) -> None:
        config = FederationConfig.from_file(str(context.run_config["config"]))
        federation = Federation.over(FlowerChannel(grid, tuple(config.keys)), **config.settings)
        serve(federation, Spool(config.folder / "queue"))

    return make_server_app(main)


def simulate(
    parties: Sequence[Party],
    X: ArrayLike,
    *,
    on_time: Callable[[dict[str, float]], None] = lambda times: None,
    **options: Any,
) -> tuple[Answer, FlowerChannel]:
    """Answer queries over Flower's local simulation, with the apps of the deployment.

    Parameters
    ----------
    parties : sequence of Party
        One for each simulated node.
    X : array-like of shape (m, p)
        Queries.
    on_time : callable
        Gets ``{"seconds": …}``: the time of the answer without the start of the simulation.
    **options
        Keywords of `Federation.over`.

    Returns
    -------
    answer : Answer
        As `Federation.ask` gives it.
    channel : FlowerChannel
        With the number of bytes that were sent and received.
    """
    require_flower()
    be_quiet()
    from flwr.simulation import run_simulation

    result: list[tuple[Answer, FlowerChannel]] = []

    def main(grid: Any, _: Any) -> None:
        deadline = time.monotonic() + _START
        while len(list(grid.get_node_ids())) < len(parties):  # nodes appear one by one
            if time.monotonic() > deadline:
                raise PartyTimeoutError(f"Timed out after {_START:g} s waiting for the nodes.")
            time.sleep(0.05)
        nodes = claimed_nodes(grid, timeout=_START)
        channel = FlowerChannel(grid, [party.name for party in parties], lambda: nodes)
        start = time.perf_counter()
        answer = Federation.over(channel, **options).ask(X, client="simulation")
        on_time({"seconds": time.perf_counter() - start})
        result.append((answer, channel))

    run_simulation(
        server_app=make_server_app(main),
        client_app=make_client_app(
            lambda context: parties[int(context.node_config["partition-id"])]
        ),
        num_supernodes=len(parties),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    if not result:
        raise RuntimeError("The simulation ended without an answer; see its log above.")
    return result[0]

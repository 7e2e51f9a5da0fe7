"""The same federation on Flower: query messages to SuperNodes, distances back.

What a party replies is in `permea.federation.flower.replies`; a deployed party is a
`permea.federation.flower.node.Node`, a simulated one a ``ClientApp``. The server side is a
`FlowerChannel`, so that everything about agreement, faults and aggregation is the code of
`Federation`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from numpy.typing import ArrayLike

from permea.federation.aggregate import Answer
from permea.federation.answering import AnsweringParties
from permea.federation.errors import PartyTimeoutError
from permea.federation.federation import Federation
from permea.federation.flower.grid import exchange
from permea.federation.flower.launch import be_quiet, require_flower
from permea.federation.flower.replies import (
    RECORD,
    UNPACK,
    Replies,
    party_replies,
    read_reply,
    reply_values,
)
from permea.federation.party import Party
from permea.federation.service.config import FederationConfig
from permea.federation.service.queue import Spool, serve
from permea.federation.transport import Failure, Outcome, Request
from permea.federation.wire import pack_array

_NEVER = 365 * 86400.0  # seconds a message stays valid when there is no time-out
_UNAVAILABLE = 3  # what Flower replies for a node that is gone
_START = 300.0  # seconds that a busy machine may need to start a simulation


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

    def reply(kind: str, message: Any, context: Any) -> Any:
        def find() -> Replies:
            return party_replies(find_party(context))

        values = reply_values(find, kind, message.content[RECORD])
        return Message(RecordDict({RECORD: ConfigRecord(values)}), reply_to=message)

    app = ClientApp()
    for kind in ("introduce", "distances", "encrypted", "model"):
        app.query(kind)(partial(reply, kind))
    return app


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
        self.grid = grid
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

    def send(
        self, kind: str, records: Mapping[str, dict[str, Any]], timeout: float | None
    ) -> dict[str, Outcome]:
        """Send a message of any kind to each party; outcomes are records, or failures."""
        return self._exchange(kind, records, timeout)

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
        messages = {
            name: Message(
                RecordDict({RECORD: ConfigRecord(records[name])}),
                dst_node_id=nodes[name],
                message_type=f"query.{kind}",
                ttl=_NEVER if timeout is None else timeout,
            )
            for name in records
            if name in nodes
        }
        self.bytes_sent += sum(_size(records[name]) for name in messages)
        for name, reply in exchange(self.grid, messages, timeout):
            outcomes[name] = self._read(kind, name, reply, nodes[name])
        return outcomes

    def _read(self, kind: str, name: str, reply: Any, node: int) -> Outcome:
        if isinstance(reply, Exception):
            return Failure(f"invalid reply: {type(reply).__name__}", True)
        if reply.has_error():
            if reply.error.code == _UNAVAILABLE:
                return Failure("went away before it replied")
            return Failure(f"the party's app failed (Flower error {reply.error.code})")
        if reply.metadata.src_node_id != node:
            return Failure("invalid reply: another node sent it", True)
        record = reply.content.get(RECORD)
        if record is None:
            return Failure("invalid reply: it cannot be read", True)
        self.bytes_received += _size(record)
        return read_reply(UNPACK.get(kind), name, record)


def registered_nodes(grid: Any) -> dict[str, int]:
    """Connected nodes by the name under which the aggregator registered their keys."""
    return {node.name: node.node_id for node in grid.get_nodes() if node.name}


def claimed_nodes(grid: Any, timeout: float) -> dict[str, int]:
    """Nodes by the name they give themselves: for simulations, where no keys are registered."""
    from flwr.app import ConfigRecord, Message, RecordDict

    content = RecordDict({RECORD: ConfigRecord({})})
    messages = {
        str(node): Message(content, dst_node_id=node, message_type="query.introduce")
        for node in grid.get_node_ids()
    }
    return {
        str(reply.content[RECORD]["name"]): reply.metadata.src_node_id
        for _, reply in exchange(grid, messages, timeout)
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


def run_queue(grid: Any, config: FederationConfig) -> None:
    """The program of a deployed aggregator: it processes the jobs in the queue."""
    federation = Federation.over(FlowerChannel(grid, tuple(config.keys)), **config.settings)
    federation.answering = AnsweringParties(config.folder / "answering.json")
    serve(federation, Spool(config.folder / "queue"))


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

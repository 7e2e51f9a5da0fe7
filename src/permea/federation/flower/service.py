"""What Flower starts: the party's app at each node, the queue at the aggregator, a simulation."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import ArrayLike

from permea.federation.aggregate import Answer
from permea.federation.errors import FederationError
from permea.federation.federation import Federation
from permea.federation.flower.app import (
    FlowerChannel,
    claimed_nodes,
    make_client_app,
    require_flower,
)
from permea.federation.flower.launch import be_quiet
from permea.federation.party import Party
from permea.federation.service.config import FederationConfig, PartyConfig
from permea.federation.service.http import Spool, serve

_START = 300.0  # seconds that a busy machine may need to start a simulation


def make_node_app() -> Any:
    """The ``ClientApp`` of a deployed party; its configuration file is named by its own node."""
    be_quiet()
    return make_client_app(_party_of_node)


def _party_of_node(context: Any) -> Party:
    config = PartyConfig.from_file(str(context.node_config["permea-config"]))
    return config.party(guard=config.make_guard())


def make_queue_app() -> Any:
    """The ``ServerApp`` of a deployed aggregator: it answers what stands in the queue."""
    be_quiet()
    return make_server_app(_serve_queue)


def _serve_queue(grid: Any, context: Any) -> None:
    config = FederationConfig.from_file(str(context.run_config["config"]))
    federation = Federation.over(FlowerChannel(grid, tuple(config.keys)), **config.settings)
    serve(federation, Spool(config.folder / "queue"))


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


def _wait_for_nodes(grid: Any, number: int) -> None:
    """Simulated nodes appear one by one after the server app has started."""
    deadline = time.monotonic() + _START
    while len(list(grid.get_node_ids())) < number:
        if time.monotonic() > deadline:
            raise FederationError(f"The simulated nodes did not appear within {_START:g} s.")
        time.sleep(0.05)


def simulate(
    parties: Sequence[Party],
    X: ArrayLike,
    *,
    asker: str = "simulation",
    on_time: Callable[[dict[str, float]], None] = lambda times: None,
    **settings: Any,
) -> tuple[Answer, FlowerChannel]:
    """Answer queries over Flower's local simulation, with the apps of the deployment.

    Parameters
    ----------
    parties : sequence of Party
        One for each simulated node.
    X : array-like of shape (m, p)
        Queries.
    asker : str
        Who asks.
    on_time : callable
        Gets ``{"seconds": …}``: the time of the answer without the start of the simulation.
    **settings
        Keywords of `Federation.over`.

    Returns
    -------
    answer : Answer
        As `Federation.ask` gives it.
    channel : FlowerChannel
        With the number of bytes that travelled.
    """
    require_flower()
    be_quiet()
    from flwr.simulation import run_simulation

    result: list[tuple[Answer, FlowerChannel]] = []

    def main(grid: Any, _: Any) -> None:
        _wait_for_nodes(grid, len(parties))
        nodes = claimed_nodes(grid, timeout=_START)
        channel = FlowerChannel(grid, [party.name for party in parties], lambda: nodes)
        start = time.perf_counter()
        answer = Federation.over(channel, **settings).ask(X, asker=asker)
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

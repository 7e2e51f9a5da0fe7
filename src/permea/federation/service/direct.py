"""A connection to the parties for one program: no queue, the answer comes to the caller."""

import math
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from permea.federation.errors import PartyTimeoutError
from permea.federation.flower import launch
from permea.federation.flower.app import FlowerChannel, registered_nodes
from permea.federation.flower.grid import connect
from permea.federation.service.config import FederationConfig
from permea.federation.service.deploy import start_link
from permea.federation.service.queue import wait_for

_START = 240.0  # seconds that a busy machine may need to start the SuperLink
_OTHERS = 5.0  # seconds to wait for further parties when enough are connected


@contextmanager
def connected(
    config: FederationConfig,
    *,
    needed: int | None = None,
    timeout: float = 120.0,
    names: Sequence[str] = (),
) -> Iterator[FlowerChannel]:
    """A channel to the parties of a federation.

    The SuperLink is started where none listens, and ends with the block; one that runs already,
    for a queue or a service, is used and left alone.

    Parameters
    ----------
    config : FederationConfig
        Of the aggregator.
    needed : int, optional
        Parties to wait for; by default the quorum, or all. `PartyTimeoutError` when they are not
        there after ``timeout`` seconds.
    timeout : float
        Seconds for the parties to connect.
    names : sequence of str, optional
        Parties that count, for a training, which needs the reader of sums too; by default all
        parties.
    """
    link = None if listens(config) else start_link(config)
    try:
        if link is not None:
            wait_for(lambda: listens(config), "the SuperLink", _START, link.check)
        control = launch.Control(config.local_address, config.ca)
        control.register(config.node_keys)
        control.start_run()
        with connect(config.local_address, config.ca, config.secret_file) as grid:
            channel = FlowerChannel(grid, tuple(config.keys))
            wanted = needed or config.settings.get("quorum") or len(config.keys)
            everyone, required = set(names or config.keys), set(config.node_keys) - set(config.keys)
            _wait_for_parties(grid, everyone, wanted, required if names else set(), timeout)
            yield channel
    finally:
        if link is not None:
            link.stop()


def listens(config: FederationConfig) -> bool:
    """Whether something listens on the port of a SuperLink."""
    host, _, port = config.local_address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def _wait_for_parties(
    grid: object, names: set[str], needed: int, required: set[str], timeout: float
) -> None:
    """Wait for all; go on without some when enough have been there for a while."""
    start, enough = time.monotonic(), math.inf
    while True:
        there, now = set(registered_nodes(grid)), time.monotonic()
        if required <= there and len(names & there) >= needed:
            enough = min(enough, now)
            if names <= there or now > enough + _OTHERS:
                return
        elif now > start + timeout:
            missing = ", ".join(sorted((names | required) - there))
            raise PartyTimeoutError(
                f"Timed out after {timeout:g} s: {len(names & there)} of {needed} parties are "
                f"connected. Missing: {missing}."
            )
        time.sleep(0.1)

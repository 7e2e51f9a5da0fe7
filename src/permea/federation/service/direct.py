"""A connection to the parties for one program: no queue, the answer comes to the caller."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from permea.federation.errors import PartyTimeoutError
from permea.federation.flower import launch
from permea.federation.flower.app import FlowerChannel, registered_nodes
from permea.federation.flower.grid import connect
from permea.federation.service.config import FederationConfig
from permea.federation.service.deploy import start_link
from permea.federation.service.queue import wait_for


@contextmanager
def connected(
    config: FederationConfig, *, needed: int | None = None, timeout: float = 120.0
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
        Seconds for a start, and again for the parties.
    """
    link = None if listens(config) else start_link(config)
    try:
        if link is not None:
            wait_for(lambda: listens(config), "the SuperLink", timeout, link.check)
        control = launch.Control(config.local_address, config.ca)
        control.register(config.keys)
        control.start_run()
        with connect(config.local_address, config.ca, config.secret_file) as grid:
            channel = FlowerChannel(grid, tuple(config.keys))
            wanted = needed or config.settings.get("quorum") or len(config.keys)
            _wait_for_parties(grid, set(config.keys), wanted, timeout)
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


def _wait_for_parties(grid: object, names: set[str], needed: int, timeout: float) -> None:
    end = time.monotonic() + timeout
    while len(there := names & set(registered_nodes(grid))) < needed:
        if time.monotonic() > end:
            raise PartyTimeoutError(
                f"Timed out after {timeout:g} s: {len(there)} of {needed} parties are connected. "
                f"Missing: {', '.join(sorted(names - there))}."
            )
        time.sleep(0.1)

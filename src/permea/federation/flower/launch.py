"""Start and control Flower's SuperLink, with restrictions that Flower lacks.

Flower serves the parties (``/v1/fleet``) and its operator (``/v1/control``, ``/v1/runtime``) on one
port, and without a paid extension it does not authenticate the operator: anyone who reaches the
port could register a key or start a program. Here everything but ``/v1/fleet`` is served on the
loopback interface only. Programs are not run by Flower at all: the aggregator's takes its task with
a secret (`permea.federation.flower.grid`), and a party's node replies to messages and runs nothing
(`permea.federation.flower.node`).

The file imports nothing of the library, so that a process can be started from it quickly::

    python -P launch.py superlink --port 9443 …
"""

import asyncio
import contextlib
import hashlib
import ipaddress
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Environment that switches telemetry and update checks off."""

PARENT = "PERMEA_PARENT"
"""Environment variable of a child process whose standard input is a pipe from its parent."""
_GRACE = 5.0  # seconds that a process has to clean up when its parent is gone

APP_FILES = {
    "pyproject.toml": """\
[project]
name = "permea-federation"
version = "1.0.0"
description = "Queries to parties, distances back"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "permea"

[tool.flwr.app.components]
serverapp = "permea_apps.apps:none"
clientapp = "permea_apps.apps:none"
""",
    "permea_apps/__init__.py": '"""The apps of a permea federation."""\n',
    "permea_apps/apps.py": "none = None\n",
}
"""What Flower wants to see before it begins a run: a program, which nobody runs."""

Scope = MutableMapping[str, Any]
Send = Callable[[Any], Awaitable[None]]


def require_flower() -> None:
    """Raise a helpful error unless Flower is installed."""
    try:
        import flwr  # noqa: F401
    except ImportError:
        raise ImportError(
            "A federation over the network needs Flower: pip install 'permea[federated]'."
        ) from None


def be_quiet() -> None:
    """Switch telemetry and update checks off for this process and its children."""
    os.environ.update(QUIET)
    telemetry = sys.modules.get("flwr.supercore.telemetry")
    if telemetry is not None:  # Flower was imported before
        telemetry.FLWR_TELEMETRY_ENABLED = "0"  # type: ignore[attr-defined]


def app_bundle() -> bytes:
    """The program as Flower packs it; the same bytes on every machine."""
    from flwr.cli.build import build_fab_from_files

    files = {name: text.encode() for name, text in APP_FILES.items()}
    return bytes(build_fab_from_files(files)[0])


class FleetOnly:
    """Middleware that serves remote clients the paths of the parties and nothing else.

    Parameters
    ----------
    app : ASGI application
        The protected application.
    """

    def __init__(self, app: Callable[[Scope, Any, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        """Reply 403 to a remote request for any other path."""
        if scope["type"] == "lifespan" or _allowed(scope):
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 403, "headers": []})
        await send({"type": "http.response.body", "body": b"served on the loopback interface only"})


def _allowed(scope: Scope) -> bool:
    """Whether a request is for the parties' paths or comes from the loopback interface."""
    if scope["type"] != "http":
        return False
    if str(scope.get("path", "")).startswith("/v1/fleet/"):
        return True
    try:
        return ipaddress.ip_address((scope.get("client") or ("",))[0]).is_loopback
    except ValueError:
        return False


class HoldEmptyPulls:
    """Middleware that holds a request for messages until there is one, or for a moment.

    Flower replies at once that there is nothing, so whoever waits asks again and again: slow, or a
    load. Here the reply waits for the next message that arrives, up to `HOLD` seconds.

    Parameters
    ----------
    app : ASGI application
        The application of the SuperLink, in one process.
    hold : float, optional
        Seconds that an empty reply is held.
    """

    def __init__(
        self, app: Callable[[Scope, Any, Send], Awaitable[None]], hold: float | None = None
    ) -> None:
        self._app, self._hold = app, HOLD if hold is None else hold
        self._arrived: dict[str, asyncio.Event] = {}
        self._waking: dict[str, asyncio.TimerHandle] = {}

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        """Pass a request on; repeat one for messages when something has arrived."""
        path = str(scope.get("path", ""))
        if scope["type"] != "http" or path not in _PULLS:
            await self._app(scope, receive, send)
            if path in _WAKES:
                self._wake_soon(_WAKES[path])
            return
        body = await _body(receive)
        end = time.monotonic() + self._hold
        while True:
            arrived = self._arrived.setdefault(path, asyncio.Event())
            reply: list[Any] = []
            await self._app(dict(scope), _repeat(body), _keep(reply))
            left = end - time.monotonic()
            if left <= 0 or not _is_empty(reply):
                break
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(arrived.wait(), left)
        for part in reply:
            await send(part)

    def _wake_soon(self, path: str) -> None:
        """Repeat the held requests when what arrives in several requests is complete."""
        if path in self._waking:
            self._waking[path].cancel()
        loop = asyncio.get_running_loop()
        self._waking[path] = loop.call_later(_TOGETHER, self._wake, path)

    def _wake(self, path: str) -> None:
        self._waking.pop(path, None)
        if path in self._arrived:
            self._arrived.pop(path).set()


HOLD = 1.0
"""Seconds that a request for messages is held while there are none."""
_TOGETHER = 0.015  # seconds without a further part after which a message is complete
_PULLS = {"/v1/fleet/pull-messages", "/v1/runtime/pull-messages"}
_WAKES = {
    "/v1/runtime/push-messages": "/v1/fleet/pull-messages",
    "/v1/runtime/push-object": "/v1/fleet/pull-messages",
    "/v1/fleet/push-messages": "/v1/runtime/pull-messages",
    "/v1/fleet/push-object": "/v1/runtime/pull-messages",
}  # a request for one brings what requests for the other wait for


async def _body(receive: Any) -> bytes:
    """All of a request's body."""
    parts, more = [], True
    while more:
        event = await receive()
        parts.append(event.get("body", b""))
        more = event.get("more_body", False)
    return b"".join(parts)


def _repeat(body: bytes) -> Any:
    """A ``receive`` that gives a body once, and then waits as for a client that stays."""
    events = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if not events:
            await asyncio.Event().wait()
        return events.pop()

    return receive


def _keep(reply: list[Any]) -> Send:
    """A ``send`` that keeps a reply."""

    async def send(event: Any) -> None:
        reply.append(event)

    return send


def _is_empty(reply: list[Any]) -> bool:
    """Whether a reply says: done, and there are no messages."""
    return reply[0].get("status") == 200 and not any(part.get("body") for part in reply)


def superlink() -> None:
    """Run a SuperLink that serves its operator on the loopback interface only."""
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    inherited = extensions.get_middleware
    extensions.get_middleware = lambda: (
        Middleware(FleetOnly), Middleware(HoldEmptyPulls), *inherited()
    )  # fmt: skip
    flower_superlink()


def end_with_parent() -> None:
    """End this process when its parent does, also when the parent was killed.

    The parent holds the other end of the pipe that is the standard input here; the system closes
    it with the parent. Nothing happens in a process that was started from a terminal.
    """
    if os.environ.pop(PARENT, "") != "pipe":
        return

    def watch() -> None:
        while os.read(0, 1024):
            continue
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Control:
    """A connection to the Control API of a SuperLink on this machine.

    Parameters
    ----------
    address : str
        ``host:port``.
    ca : Path
        Certificate of the authority that signed the SuperLink's.
    """

    def __init__(self, address: str, ca: Path) -> None:
        require_flower()
        self._address, self._ca = address, ca

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        from flwr.supercore.control.control_http_client import ControlHttpClient
        from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor

        client = ControlHttpClient.from_server_address(
            server_address=self._address,
            insecure=False,
            root_certificates=self._ca.read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )
        try:
            yield client
        finally:
            client.close()

    def nodes(self) -> dict[str, Any]:
        """Registered nodes by the name of their party."""
        from flwr.proto.control_pb2 import ListNodesRequest

        with self._client() as client:
            found = client.ListNodes(ListNodesRequest()).nodes_info
        return {node.name: node for node in found if not node.unregistered_at}

    def online(self) -> set[str]:
        """Names of the parties whose nodes are connected."""
        return {name for name, node in self.nodes().items() if node.status == "online"}

    def register(self, keys: Mapping[str, Path]) -> None:
        """Make the registered keys those of ``keys``: add the new, remove what is gone."""
        from flwr.proto.control_pb2 import RegisterNodeRequest, UnregisterNodeRequest

        wanted = {name: public_key_bytes(path) for name, path in keys.items()}
        known = self.nodes()
        with self._client() as client:
            for name, node in known.items():
                if wanted.get(name) != node.public_key:
                    client.UnregisterNode(UnregisterNodeRequest(node_id=node.node_id))
            for name, key in wanted.items():
                if name not in known or known[name].public_key != key:
                    client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))

    def start_run(self) -> int:
        """Begin a run on the SuperLink, for `permea.federation.flower.grid.connect`."""
        from flwr.common.serde import fab_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.supercore.fab import Fab

        bundle = app_bundle()
        fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
        with self._client() as client:
            return int(client.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id)


def public_key_bytes(path: Path) -> bytes:
    """A public key as Flower keeps it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = serialization.load_ssh_public_key(path.read_bytes())
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError(f"{path} is not an elliptic-curve key; make one with ssh-keygen -t ecdsa.")
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


if __name__ == "__main__":
    os.umask(0o077)  # the database holds messages: for its owner alone
    be_quiet()
    end_with_parent()
    {"superlink": superlink}[sys.argv.pop(1)]()

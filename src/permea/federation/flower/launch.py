"""Start and control Flower's SuperLink and SuperNode, with two restrictions that Flower lacks.

Flower serves the parties (``/v1/fleet``) and its operator (``/v1/control``, ``/v1/runtime``) on one
port, and without a paid extension it does not authenticate the operator: anyone who reaches the
port could register a key or start a program on every node. Here everything but ``/v1/fleet`` is
served on the loopback interface only. And a SuperNode runs any program that the SuperLink sends;
here it runs the one program of this library and ignores all others.

The file imports nothing of the library, so that a process can be started from it quickly::

    python -P launch.py superlink --port 9443 …
    python -P launch.py supernode --superlink host:9443 …
"""

import contextlib
import hashlib
import ipaddress
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Environment that switches telemetry and update checks off."""

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
serverapp = "permea_apps.apps:server_app"
clientapp = "permea_apps.apps:client_app"

[tool.flwr.app.config]
config = ""
""",
    "permea_apps/__init__.py": '"""The apps of a permea federation."""\n',
    "permea_apps/apps.py": '''\
"""What runs at the parties and at the aggregator: code of the installed library."""

from permea.federation.flower.app import make_node_app, make_queue_app

client_app = make_node_app()
server_app = make_queue_app()
''',
}
"""The program that Flower distributes: it only names code that every party has installed."""

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


def superlink() -> None:
    """Run a SuperLink that serves its operator on the loopback interface only."""
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    inherited = extensions.get_middleware
    extensions.get_middleware = lambda: (Middleware(FleetOnly), *inherited())
    flower_superlink()


def supernode() -> None:
    """Run a SuperNode that ignores every program but ours."""
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    expected = hashlib.sha256(app_bundle()).hexdigest()
    node: Any = start_client_internal
    inherited = node.get_fused_config_from_fab

    def checked(content: Any, run: Any) -> Any:
        if not isinstance(content, bytes) or hashlib.sha256(content).hexdigest() != expected:
            print("Ignored a program that is not the one of this federation.", file=sys.stderr)
            raise node.RunNotRunningException
        return inherited(content, run)

    node.get_fused_config_from_fab = checked
    flower_supernode()


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

        wanted = {name: _public_key(path) for name, path in keys.items()}
        known = self.nodes()
        with self._client() as client:
            for name, node in known.items():
                if wanted.get(name) != node.public_key:
                    client.UnregisterNode(UnregisterNodeRequest(node_id=node.node_id))
            for name, key in wanted.items():
                if name not in known or known[name].public_key != key:
                    client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))

    def start_run(self, config: Path) -> int:
        """Start the program of this library on the SuperLink; returns the number of the run."""
        from flwr.common.serde import fab_to_proto, user_config_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.supercore.fab import Fab

        bundle = app_bundle()
        fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
        request = StartRunRequest(
            fab=fab_to_proto(fab),
            override_config=user_config_to_proto({"config": str(config)}),
        )
        with self._client() as client:
            return int(client.StartRun(request).run_id)


def _public_key(path: Path) -> bytes:
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
    be_quiet()
    role = sys.argv.pop(1)
    {"superlink": superlink, "supernode": supernode}[role]()

"""Start Flower's SuperLink and SuperNode with the two doors closed that Flower leaves open.

Flower serves the parties (``/v1/fleet``) and its operator (``/v1/control``, ``/v1/runtime``) on one
port, and without a paid extension it asks the operator for no password: whoever reaches the port
could register a key or start a program on every node. Here everything but ``/v1/fleet`` is answered
on the loopback interface only. And a SuperNode runs whatever program the SuperLink sends; here it
runs the one program of this library and ignores all others.

The file imports nothing of the library, so that a process can be started from it quickly::

    python -P flower_launch.py superlink --port 9443 …
    python -P flower_launch.py supernode --superlink host:9443 …
"""

import hashlib
import ipaddress
import os
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""No process of a federation tells anybody that it runs."""

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

from permea.federation.flower_service import make_node_app, make_queue_app

client_app = make_node_app()
server_app = make_queue_app()
''',
}
"""The program that travels: it only names code that every party has installed itself."""

Scope = MutableMapping[str, Any]
Send = Callable[[Any], Awaitable[None]]


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
    """Middleware that serves strangers the paths of the parties and nothing else.

    Parameters
    ----------
    app : ASGI application
        What is protected.
    """

    def __init__(self, app: Callable[[Scope, Any, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        """Answer 403 to a request from elsewhere that is not meant for parties."""
        if scope["type"] == "lifespan" or _allowed(scope):
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 403, "headers": []})
        await send({"type": "http.response.body", "body": b"only on the aggregator itself"})


def _allowed(scope: Scope) -> bool:
    if scope["type"] != "http":
        return False
    path, client = str(scope.get("path", "")), scope.get("client")
    return path.startswith("/v1/fleet/") or (client is not None and _is_loopback(client[0]))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
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


if __name__ == "__main__":
    be_quiet()
    role = sys.argv.pop(1)
    {"superlink": superlink, "supernode": supernode}[role]()

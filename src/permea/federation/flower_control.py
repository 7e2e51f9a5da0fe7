"""What the operator of an aggregator tells its SuperLink: which keys belong, what to run."""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from permea.federation.flower_app import require_flower
from permea.federation.flower_launch import app_bundle


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

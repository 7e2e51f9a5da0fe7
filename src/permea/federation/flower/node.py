"""A party on the network: one process that holds the model and replies to every message.

It speaks Flower's Fleet protocol as a SuperNode does (TLS, requests signed with the key of the
node), and nothing else: no program that a SuperLink sends is run, no port is opened, no process is
started. ``python -m permea.federation.flower.node party.toml`` serves one party.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from permea._text import safe_text
from permea.federation.errors import FederationError
from permea.federation.flower.grid import LARGEST_MESSAGE, contents_of
from permea.federation.flower.launch import be_quiet, end_with_parent, require_flower
from permea.federation.flower.replies import RECORD, Replies, reply_values

_PAUSE = 0.01  # seconds between two requests for messages, which a SuperLink of permea holds
_RETRY = (0.2, 5.0)  # seconds between two attempts to connect: at first, and at most
_HEARTBEAT = 10.0  # seconds between signs of life; without any for twice as long a node is gone
_AGAIN = 60.0  # seconds after which the same trouble is printed again


class NodeError(FederationError):
    """A node cannot connect, and further attempts would not help."""


class Node:
    """The connection of a party to a SuperLink.

    Parameters
    ----------
    address : str
        ``host:port`` of the SuperLink.
    ca, key : Path
        Certificate of the authority that signed the SuperLink's, and the private key of the node.
    find_replies : callable
        Gives what the node replies with now; called for every message.
    largest : int
        Bytes of contents that are taken in one message.
    """

    def __init__(
        self,
        address: str,
        ca: Path,
        key: Path,
        find_replies: Callable[[], Replies],
        *,
        largest: int = LARGEST_MESSAGE,
    ) -> None:
        require_flower()
        self._address, self._ca, self._key = address, ca, key
        self._find_replies, self._largest = find_replies, largest
        self._stopped = threading.Event()
        self._told: tuple[str, float] = ("", 0.0)

    def stop(self) -> None:
        """Make `run` return after the current message."""
        self._stopped.set()

    def run(self) -> None:
        """Connect, reply, connect again when the SuperLink was restarted; until `stop`."""
        while not self._stopped.is_set():
            with self._client() as client:
                node = self._activated(client)
                if node is not None:
                    self._serve(client, node)

    # ---- the connection --------------------------------------------------------------------------

    def _client(self) -> Any:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key
        from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
        from flwr.supernode.fleet_http_client import FleetHttpClient
        from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

        try:
            key = load_ssh_private_key(self._key.read_bytes(), None)
        except ValueError:
            raise NodeError(f"{self._key} is not a private key in OpenSSH format.") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise NodeError(f"{self._key} is no elliptic-curve key: ssh-keygen -t ecdsa -b 384.")
        self._public = key.public_key()
        return FleetHttpClient.from_server_address(
            self._address,
            False,
            self._ca.read_bytes(),
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(key, self._public),
            ],
        )

    def _activated(self, client: Any) -> Any:
        """The node as the SuperLink knows it; waits for a SuperLink, and for it to know the key."""
        import httpx
        from flwr.proto.fleet_pb2 import ActivateNodeRequest
        from flwr.proto.node_pb2 import Node as NodeNumber
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes
        from flwr.supercore.task_identity import TaskIdentity

        request = ActivateNodeRequest(
            public_key=public_key_to_bytes(self._public),
            heartbeat_interval=_HEARTBEAT,
        )
        pause, longest = _RETRY
        while not self._stopped.is_set():
            try:
                number = client.ActivateNode(request).node_id
            except httpx.HTTPStatusError as error:
                self._tell(f"Waiting: the aggregator does not accept this key{_reason(error)}.")
            except httpx.TransportError as error:
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    raise NodeError(
                        f"{self._address} does not prove who it is (CERTIFICATE_VERIFY_FAILED): "
                        f"its certificate was not signed by {self._ca}, or names another host."
                    ) from None
                self._tell(f"Waiting for the aggregator at {self._address}: {error}.")
            else:
                TaskIdentity.task_id, TaskIdentity.run_id = 0, 0
                TaskIdentity.node_id = number
                self._tell(f"Connected to {self._address} as node {number}.")
                return NodeNumber(node_id=number)
            self._stopped.wait(pause)
            pause = min(longest, 1.5 * pause)
        return None

    def _tell(self, text: str) -> None:
        """Print a state once, and again when it lasts."""
        known, when = self._told
        if text != known or time.monotonic() > when + _AGAIN:
            self._told = text, time.monotonic()
            print(text, flush=True)

    # ---- messages --------------------------------------------------------------------------------

    def _serve(self, client: Any, node: Any) -> None:
        """Look for messages and reply, until the SuperLink does not know the node any more."""
        import httpx
        from flwr.proto.fleet_pb2 import DeactivateNodeRequest, PullMessagesRequest

        beats = _Heartbeat(client, node)
        beats.start()
        pause, longest = _RETRY
        try:
            while not self._stopped.is_set():
                try:
                    found = client.PullMessages(PullMessagesRequest(node=node))
                    for proto, tree in zip(
                        found.messages_list, found.message_object_trees, strict=False
                    ):
                        self._reply(client, node, proto, tree)
                    pause = _RETRY[0]
                except httpx.HTTPStatusError as error:
                    if error.response.status_code < 500:
                        self._tell(f"The aggregator refused a request{_reason(error)}.")
                        return
                    self._stopped.wait(pause)
                    pause = min(longest, 1.5 * pause)
                except httpx.TransportError as error:
                    self._tell(f"The aggregator at {self._address} is gone: {error}.")
                    return
                except Exception as error:  # whatever is no message of this protocol
                    self._tell(f"A message of the aggregator is damaged: {type(error).__name__}.")
                    self._stopped.wait(pause)
                self._stopped.wait(_PAUSE)
        finally:
            beats.stop()
            if self._stopped.is_set():
                try:
                    client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))
                except httpx.HTTPError:
                    print("The aggregator was not told of the end of this node.", flush=True)

    def _reply(self, client: Any, node: Any, proto: Any, tree: Any) -> None:
        """Take one message, reply to it, and send the reply; a bad message ends nothing."""
        from flwr.app import ConfigRecord, Message, RecordDict
        from flwr.common.serde import message_from_proto

        head = message_from_proto(proto)
        kind, started = safe_text(head.metadata.message_type)[6:40], time.monotonic()
        try:
            message = self._taken(client, node, proto, tree)
            values = reply_values(self._find_replies, kind, message.content[RECORD])
        except Exception as error:
            print(f"A message of kind {kind!r} cannot be read: {type(error).__name__}", flush=True)
            values = {"failure": "the message cannot be read", "final": True}
        reply = Message(RecordDict({RECORD: ConfigRecord(values)}), reply_to=head)
        self._send(client, node, head.metadata.run_id, reply, time.monotonic() - started)
        print(f"Replied: {kind}{' (refused)' if 'failure' in values else ''}", flush=True)

    def _taken(self, client: Any, node: Any, proto: Any, tree: Any) -> Any:
        """The contents of a message, up to the largest size."""
        run = proto.metadata.run_id
        return contents_of(client, node, run, tree, largest=self._largest)

    def _send(self, client: Any, node: Any, run: int, reply: Any, seconds: float) -> None:
        """Send a reply: what it is first, then the contents that the SuperLink lacks."""
        from flwr.app.message import remove_content_from_message
        from flwr.common.serde import message_to_proto
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from flwr.supercore.inflatable.inflatable_object import (
            get_all_nested_objects,
            get_object_tree,
            no_object_id_recompute,
        )
        from flwr.supercore.inflatable.inflatable_protobuf_utils import (
            make_push_object_fn_protobuf,
        )
        from flwr.supercore.inflatable.inflatable_utils import push_objects

        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            answer = client.PushMessages(
                PushMessagesRequest(
                    node=node,
                    messages_list=[message_to_proto(remove_content_from_message(reply))],
                    message_object_trees=[get_object_tree(reply)],
                    clientapp_runtime_list=[seconds],
                )
            )
            push_objects(
                get_all_nested_objects(reply),
                make_push_object_fn_protobuf(client.PushObject, node, run, answer.session_id),
                object_ids_to_push=set(answer.objects_to_push),
            )


class _Heartbeat:
    """Tells the SuperLink that the node is there, also while it computes."""

    def __init__(self, client: Any, node: Any) -> None:
        self._client, self._node = client, node
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        import httpx
        from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest

        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=_HEARTBEAT)
        while not self._done.wait(_HEARTBEAT / 3):
            try:
                self._client.SendNodeHeartbeat(request)
            except httpx.HTTPError as error:
                print(f"A heartbeat failed: {type(error).__name__}", flush=True)


def _reason(error: Any) -> str:
    """What the SuperLink says about a refusal."""
    from flwr.supercore.error import FlowerError

    known = FlowerError.from_json(error.response.text)
    said = f"HTTP {error.response.status_code}" if known is None else known.message
    return f" ({said})"


def serve_node(node: Node) -> None:
    """Run a node in the main thread until a signal stops it."""

    def stop(number: int, frame: FrameType | None) -> None:
        node.stop()

    inherited = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        node.run()
    finally:
        for number, handler in inherited.items():
            signal.signal(number, handler)


def main(config: str) -> None:
    """Serve the party of a configuration file until a signal, or the end of the parent process."""
    from permea.federation.service.config import node_config
    from permea.federation.service.served import ServedParty

    be_quiet()
    end_with_parent()
    served = ServedParty(Path(config))
    served.replies()  # what is wrong with the files is told now
    known = node_config(Path(config))
    serve_node(Node(known.address, known.ca, known.key, served.replies))


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except FederationError as error:
        sys.exit(str(error))

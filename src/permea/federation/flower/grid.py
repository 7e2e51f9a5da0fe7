"""The aggregator's connection to a SuperLink: a program of the library without a process of Flower.

Flower starts a process for every program, hands it a token on its command line, and looks for
replies every three seconds. Here the process that needs a connection takes the task itself, with a
secret from a file that only its owner can read, and looks for replies many times a second.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from permea.federation.errors import PartyTimeoutError
from permea.federation.flower.launch import require_flower

LARGEST_MESSAGE = 256 << 20
"""Bytes of contents that are taken in one message, by a party and by the aggregator."""
_PAUSES = (0.01, 0.25)  # seconds between two looks for replies: at first, and at most
_TAKING = 0.1  # seconds between two attempts to take the task


def exchange(
    grid: Any, messages: Mapping[str, Any], timeout: float | None
) -> Iterator[tuple[str, Any]]:
    """Send one message to each party; yields names and replies as they arrive.

    A reply that Flower cannot read is yielded as the exception; it takes no other reply with it.
    """
    end = None if timeout is None else time.monotonic() + timeout
    numbers = list(grid.push_messages(list(messages.values())))
    waiting = {number: name for number, name in zip(numbers, messages, strict=False) if number}
    pause, longest = _PAUSES
    while waiting:
        found = _replies(grid, list(waiting))
        for number, reply in found:
            if number in waiting:
                yield waiting.pop(number), reply
        if not waiting or (end is not None and time.monotonic() > end):
            return
        pause = _PAUSES[0] if found else min(longest, 1.5 * pause)
        time.sleep(pause if end is None else max(0.0, min(pause, end - time.monotonic())))


def _replies(grid: Any, numbers: list[str]) -> list[tuple[str, Any]]:
    """Replies that have arrived, by the number of the message that they reply to."""
    if not hasattr(grid, "_runtime_client"):  # a simulation in this process
        return [(one.metadata.reply_to_message_id, one) for one in grid.pull_messages(numbers)]
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest

    answer = grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=numbers))
    found = []
    for proto, tree in zip(answer.messages_list, answer.message_object_trees, strict=True):
        try:
            reply = _inflated(grid, proto.metadata.message_id, tree)
        except Exception as error:  # whatever a node sent instead of a message
            reply = error
        found.append((proto.metadata.reply_to_message_id, reply))
    return found


def _inflated(grid: Any, number: str, tree: Any) -> Any:
    """One reply, as Flower's own grid takes it."""
    message = contents_of(grid._runtime_client, grid.node, grid.run.run_id, tree)
    message.metadata.__dict__["_message_id"] = number
    return message


def contents_of(
    client: Any, node: Any, run: int, tree: Any, *, largest: int = LARGEST_MESSAGE
) -> Any:
    """The message that consists of the objects of a tree, up to a size."""
    from flwr.app import Message
    from flwr.supercore.inflatable.inflatable_protobuf_utils import (
        make_confirm_message_received_fn_protobuf,
        make_pull_object_fn_protobuf,
    )
    from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree

    pull, taken = make_pull_object_fn_protobuf(client.PullObject, node, run), [0]

    def limited(number: str) -> bytes:
        content: bytes = pull(number)
        taken[0] += len(content)
        if taken[0] > largest:
            raise ValueError("the message is larger than is taken")
        return content

    return pull_and_inflate_object_from_tree(
        tree,
        limited,
        make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, run),
        return_type=Message,
    )


@contextmanager
def connect(address: str, ca: Path, secret: Path, *, timeout: float = 60.0) -> Iterator[Any]:
    """The grid of a run that `Control.start_run` began, until the block ends.

    Parameters
    ----------
    address : str
        ``host:port`` of the SuperLink on this machine.
    ca, secret : Path
        Certificate of the authority that signed the SuperLink's, and the secret it was started
        with.
    timeout : float
        Seconds to wait for the task.
    """
    require_flower()
    from flwr.common.constant import SubStatus
    from flwr.common.serde import run_from_proto
    from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid import HttpGrid

    certificates = ca.read_bytes()
    token = _take_task(address, certificates, secret.read_bytes(), timeout)
    grid = HttpGrid(address, insecure=False, root_certificates=certificates, token=token)
    client = grid._runtime_client
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    status, details = SubStatus.FAILED, "ended by an error"
    try:
        task = client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        grid.set_run(run_from_proto(task.run))
        yield grid
        status, details = SubStatus.COMPLETED, ""
    finally:
        grid._retry_invoker.max_tries = 1  # a SuperLink that is gone must not hold the end up
        try:
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
        except Exception as error:
            print(f"The SuperLink did not hear of the end of this program: {type(error).__name__}")
        if heartbeat.is_running:
            heartbeat.stop()
        grid.close()


def _take_task(address: str, certificates: bytes, secret: bytes, timeout: float) -> str:
    """The token of the pending run."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.interceptors import (
        RuntimeVersionHttpInterceptor,
        SuperExecAuthHttpInterceptor,
    )
    from flwr.supercore.runtime import RuntimeHttpClient

    client = RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=False,
        root_certificates=certificates,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="SuperExec"),
            SuperExecAuthHttpInterceptor(
                master_secret=secret,
                protected_methods=frozenset(["/flwr.proto.Runtime/AcquireTask"]),
            ),
        ],
    )
    end = time.monotonic() + timeout
    try:
        while True:
            wanted = AcquireTaskRequest(supported_task_types={TaskType.SERVER_APP})
            found = client.AcquireTask(wanted)
            if found.HasField("task") and found.token:
                return str(found.token)
            if time.monotonic() > end:
                raise PartyTimeoutError(f"Timed out after {timeout:g} s waiting for the program.")
            time.sleep(_TAKING)
    finally:
        client.close()

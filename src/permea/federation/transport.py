"""How parties are reached: introductions, replies, failures, time-outs and retries."""

import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from permea._arrays import Array
from permea.federation.errors import FederationError, InvalidReplyError, RefusedError, SchemaError
from permea.federation.party import Party, objections
from permea.federation.schema import Schema
from permea.privacy import Certificate
from permea.storage import load

if TYPE_CHECKING:
    from permea.federation.encryption.protocol import EncryptedQuery

FINAL = (InvalidReplyError, RefusedError, SchemaError)
"""Failures that the same request would only meet again."""


@dataclass(frozen=True)
class Introduction:
    """What a party states about itself before it gets a query."""

    schema: Schema
    certificate: Certificate | None


@dataclass(frozen=True)
class Request:
    """A batch of queries, the client that sends it, and for encryption a query for each party."""

    queries: Array
    client: str
    encrypted: "Mapping[str, EncryptedQuery] | None" = None


@dataclass(frozen=True)
class Reply:
    """Distances to the party's own classes, and the schema under which they were computed."""

    distances: Any
    fingerprint: str


@dataclass(frozen=True)
class Failure:
    """Why there is no reply."""

    reason: str
    final: bool = False  #: retrying would not help

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Describe an error; messages from outside are cut short and kept on one line."""
        text = " ".join(str(error).split())[:300]
        if not isinstance(error, FederationError):
            text = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return cls(text, isinstance(error, FINAL))


Outcome = Any  # Introduction, Reply, ciphertext, model, or Failure: what comes back from a party


class Channel(Protocol):
    """A way to reach parties: in this process, or over a network."""

    @property
    def names(self) -> tuple[str, ...]:
        """All parties that belong to the federation."""
        ...

    def introduce(self, names: Sequence[str], timeout: float | None) -> Mapping[str, Outcome]:
        """Request schema and certificate."""
        ...

    def ask(
        self, names: Sequence[str], request: Request, timeout: float | None
    ) -> Mapping[str, Outcome]:
        """Request distances, or ciphertexts of them."""
        ...

    def fetch(self, names: Sequence[str], timeout: float | None) -> Mapping[str, Outcome]:
        """Request the models themselves (Remark 6)."""
        ...


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Time-out, number of attempts and back-off of a request.

    Parameters
    ----------
    timeout : float or None, default=None
        Seconds an attempt may take; None waits for ever and starts no thread.
    attempts : int, default=1
        How often a request is sent to a party that failed.
    backoff : float, default=0.5
        Pause before the second attempt in seconds; it doubles with every further one.
    sleep : callable, default=time.sleep
        Waits for so many seconds; another one is for tests.

    Examples
    --------
    >>> RetryPolicy(attempts=4, backoff=0.5).pauses
    (0.5, 1.0, 2.0)
    """

    timeout: float | None = None
    attempts: int = 1
    backoff: float = 0.5
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False, compare=False)

    def __post_init__(self) -> None:
        timeout_valid = self.timeout is None or self.timeout > 0
        if self.attempts < 1 or self.backoff < 0 or not timeout_valid:
            raise ValueError("attempts must be at least 1, timeout positive, backoff not negative.")

    @property
    def pauses(self) -> tuple[float, ...]:
        """Seconds to wait before each further attempt."""
        return tuple(self.backoff * 2.0**k for k in range(self.attempts - 1))

    def run(
        self,
        request: Callable[[Sequence[str], float | None], Mapping[str, Outcome]],
        names: Sequence[str],
    ) -> dict[str, Outcome]:
        """Send a request to ``names``, and again to those that failed, until attempts run out.

        A party without any outcome has failed too. Final failures are not retried.
        """
        outcomes: dict[str, Outcome] = {}
        pending = list(names)
        for pause in (0.0, *self.pauses):
            if not pending:
                break
            if pause:
                self.sleep(pause)
            got = request(pending, self.timeout)
            outcomes |= {name: got.get(name, Failure("no reply")) for name in pending}
            failed = {name: o for name, o in outcomes.items() if isinstance(o, Failure)}
            pending = [name for name, failure in failed.items() if not failure.final]
        return outcomes


class LocalChannel:
    """Parties in this process.

    Parameters
    ----------
    parties : sequence of Party
        Or anything with ``name``, ``schema``, ``certificate`` and ``distances``.
    """

    def __init__(self, parties: Sequence[Any]) -> None:
        self._parties: dict[str, Any] = {party.name: party for party in parties}

    @property
    def names(self) -> tuple[str, ...]:
        """All parties."""
        return tuple(self._parties)

    def introduce(self, names: Sequence[str], timeout: float | None) -> dict[str, Outcome]:
        """Read schema and certificate from the parties."""
        return self._run(lambda p: Introduction(p.schema, p.certificate), names, timeout)

    def ask(
        self, names: Sequence[str], request: Request, timeout: float | None
    ) -> dict[str, Outcome]:
        """Call one party after the other, or all at once when there is a time-out to keep."""

        def reply(party: Any) -> Any:
            queries, client = request.queries, request.client
            if request.encrypted is not None:
                query = request.encrypted[party.name]
                return party.encrypted_distances(queries, query, client=client)
            return Reply(party.distances(queries, client=client), party.schema.fingerprint)

        return self._run(reply, names, timeout)

    def fetch(self, names: Sequence[str], timeout: float | None) -> dict[str, Outcome]:
        """Write the models to files and read them back, as a network would transfer them."""
        return self._run(lambda p: hosted_party(p.name, model_bytes(p)), names, timeout)

    def _run(
        self, work: Callable[[Any], Any], names: Sequence[str], timeout: float | None
    ) -> dict[str, Outcome]:
        return run_calls({name: partial(work, self._parties[name]) for name in names}, timeout)


def model_bytes(party: Party, client: str = "aggregator") -> bytes:
    """A party's model file, if its owner permits that it leaves."""
    party.require("model", client)
    party.note(client, "model")
    with tempfile.TemporaryDirectory(prefix="permea-") as folder:
        return party.hand_over(Path(folder) / "model.permea").read_bytes()


def hosted_party(name: str, model: bytes) -> Party:
    """A transferred model as a party of this process, without a guard.

    Consent was its owner's to give, and was given before the model left.
    """
    with tempfile.TemporaryDirectory(prefix="permea-") as folder:
        path = Path(folder) / "model.permea"
        path.write_bytes(model)
        model = load(path)
    return Party(name, model, consent=objections(model))


def run_calls(calls: Mapping[str, Callable[[], Any]], timeout: float | None) -> dict[str, Outcome]:
    """Run calls and catch what they raise; with a time-out each has a thread of its own.

    A thread cannot be stopped from outside, so a call that hangs is left behind as a daemon and its
    late result is discarded.
    """
    if timeout is None:
        return {name: _caught(call) for name, call in calls.items()}
    outcomes: dict[str, Outcome] = dict.fromkeys(calls, Failure(f"no reply within {timeout:g} s"))

    def work(name: str, call: Callable[[], Any]) -> None:
        outcomes[name] = _caught(call)

    threads = [threading.Thread(target=work, args=item, daemon=True) for item in calls.items()]
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(outcomes)


def _caught(call: Callable[[], Any]) -> Outcome:
    try:
        return call()
    except Exception as error:  # no error of a party may end the federation
        return Failure.of(error)

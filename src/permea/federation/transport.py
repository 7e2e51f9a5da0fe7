"""What can go wrong in a federation, by name."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from permea._arrays import Array
from permea.federation.errors import FederationError, LyingError, RefusedError, SchemaError
from permea.federation.party import Party
from permea.federation.schema import Schema
from permea.privacy import Certificate

if TYPE_CHECKING:
    from permea.federation.encryption.queries import EncryptedQuestion

FINAL = (LyingError, RefusedError, SchemaError)
"""Failures that the same question would only meet again."""


@dataclass(frozen=True)
class Introduction:
    """What a party says of itself before it is asked anything."""

    schema: Schema
    certificate: Certificate | None
    objections: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reply:
    """Distances to the party's own classes, and the schema under which they were computed."""

    distances: Any
    fingerprint: str


@dataclass(frozen=True)
class Failure:
    """Why there is no reply."""

    reason: str
    final: bool = False  #: asking again would not help

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Describe an error; messages of strangers are cut short and kept on one line."""
        text = " ".join(str(error).split())[:300]
        if not isinstance(error, FederationError):
            text = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return cls(text, isinstance(error, FINAL))


Outcome = Any  # Introduction, Reply, a model, or Failure: what a channel brings back for a party


class Channel(Protocol):
    """A way to reach parties: in this process, or over a network."""

    @property
    def names(self) -> tuple[str, ...]:
        """All parties that belong to the federation."""
        ...

    def introduce(self, names: Sequence[str], timeout: float | None) -> Mapping[str, Outcome]:
        """Ask for schema and certificate."""
        ...

    def ask(
        self, names: Sequence[str], queries: Array, asker: str, timeout: float | None
    ) -> Mapping[str, Outcome]:
        """Ask for distances."""
        ...

    def ask_encrypted(
        self,
        index: Mapping[str, int],
        queries: Array,
        question: "EncryptedQuestion",
        asker: str,
        timeout: float | None,
    ) -> Mapping[str, Outcome]:
        """Ask for encrypted distances; ``index`` gives each party its place in the scheme."""
        ...

    def fetch(self, names: Sequence[str], timeout: float | None) -> Mapping[str, Outcome]:
        """Ask for the models themselves (Remark 6)."""
        ...


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long and how often a party is asked.

    Parameters
    ----------
    timeout : float or None, default=None
        Seconds an attempt may take; None waits for ever and starts no thread.
    attempts : int, default=1
        How often a party that failed is asked.
    backoff : float, default=0.5
        Pause before the second attempt in seconds; it doubles with every further one.

    Examples
    --------
    >>> Patience(attempts=4, backoff=0.5).pauses
    (0.5, 1.0, 2.0)
    """

    timeout: float | None = None
    attempts: int = 1
    backoff: float = 0.5

    def __post_init__(self) -> None:
        if (
            self.attempts < 1
            or self.backoff < 0
            or (self.timeout is not None and self.timeout <= 0)
        ):
            raise ValueError("attempts must be at least 1, timeout positive, backoff not negative.")

    @property
    def pauses(self) -> tuple[float, ...]:
        """Seconds to wait before each further attempt."""
        return tuple(self.backoff * 2.0**k for k in range(self.attempts - 1))


def persist(
    ask: Callable[[Sequence[str]], Mapping[str, Outcome]],
    names: Sequence[str],
    patience: Patience,
    pause: Callable[[float], None] = time.sleep,
) -> dict[str, Outcome]:
    """Ask ``names``, and those that failed again after a pause, until patience ends.

    A party that gave no outcome at all is a failure too. Final failures are not asked again.
    """
    outcomes: dict[str, Outcome] = {}
    open_names = list(names)
    for seconds in (0.0, *patience.pauses):
        if not open_names:
            break
        if seconds:
            pause(seconds)
        got = ask(open_names)
        for name in open_names:
            outcomes[name] = got.get(name, Failure("no answer"))
        open_names = [
            name
            for name in open_names
            if isinstance(outcomes[name], Failure) and not outcomes[name].final
        ]
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
        """Read schema and certificate off the parties."""
        calls = {name: _call(_introduction, self._parties[name]) for name in names}
        return run_calls(calls, timeout)

    def ask(
        self, names: Sequence[str], queries: Array, asker: str, timeout: float | None
    ) -> dict[str, Outcome]:
        """Ask one party after the other, or all at once when there is a time-out to keep."""

        def reply(party: Party) -> Reply:
            return Reply(party.distances(queries, asker=asker), party.schema.fingerprint)

        return run_calls({n: _call(reply, self._parties[n]) for n in names}, timeout)

    def ask_encrypted(
        self,
        index: Mapping[str, int],
        queries: Array,
        question: "EncryptedQuestion",
        asker: str,
        timeout: float | None,
    ) -> dict[str, Outcome]:
        """Ask for encrypted distances; ``index`` gives each party its place in the scheme."""

        def reply(name: str) -> bytes:
            party: Party = self._parties[name]
            return party.encrypted_distances(queries, index[name], question, asker=asker)

        return run_calls({name: _call(reply, name) for name in index}, timeout)

    def work(
        self, work: Callable[[Any], Any], names: Sequence[str], timeout: float | None
    ) -> dict[str, Outcome]:
        """Let parties do something at home."""
        return run_calls({n: _call(work, self._parties[n]) for n in names}, timeout)

    def parties(self) -> dict[str, Any]:
        """The parties by name."""
        return dict(self._parties)

    def fetch(self, names: Sequence[str], timeout: float | None) -> dict[str, Outcome]:
        """Let the models be written to files and read back, as they would travel."""
        return run_calls({n: _call(travel, self._parties[n]) for n in names}, timeout)


def travel(party: Party) -> Party:
    """The party's model after a trip through a file, guarded by nobody."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory(prefix="permea-") as folder:
        path = party.hand_over(Path(folder) / "model.permea")
        return Party.from_file(party.name, path, consent=party.objections)


def _introduction(party: Party) -> Introduction:
    return Introduction(party.schema, party.certificate, tuple(getattr(party, "objections", ())))


def _call(function: Callable[[Any], Any], argument: Any) -> Callable[[], Any]:
    return lambda: function(argument)


def run_calls(calls: Mapping[str, Callable[[], Any]], timeout: float | None) -> dict[str, Outcome]:
    """Run calls and catch what they raise; with a time-out each has a thread of its own.

    A thread cannot be stopped from outside, so a call that hangs is left behind as a daemon and its
    late result is thrown away.
    """
    if timeout is None:
        return {name: _caught(call) for name, call in calls.items()}
    results: SimpleQueue[tuple[str, Outcome]] = SimpleQueue()

    def work(name: str, call: Callable[[], Any]) -> None:
        results.put((name, _caught(call)))

    for name, call in calls.items():
        threading.Thread(target=work, args=(name, call), daemon=True).start()
    outcomes: dict[str, Outcome] = {
        name: Failure(f"no answer within {timeout:g} s") for name in calls
    }
    deadline = time.monotonic() + timeout
    for _ in calls:
        try:
            name, outcome = results.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        outcomes[name] = outcome
    return outcomes


def _caught(call: Callable[[], Any]) -> Outcome:
    try:
        return call()
    except Exception as error:  # whatever a party does must not bring the federation down
        return Failure.of(error)


def n_bytes(queries: Array, n_classes: int) -> int:
    """Bytes of numbers that travel for a batch: the queries there, the distances back."""
    return int(queries.nbytes + len(queries) * n_classes * np.dtype(queries.dtype).itemsize)

"""Rounds of a federation of moments: questions, how they reach parties, and what was done so far.

A channel carries a question to parties and brings messages back. With shared noise the messages are
ciphertexts under a key of the *reader*, who gets their total and nothing else; the *server* adds up
and has no key. `LocalMoments` plays all roles in one process; over a network they are three
programs (`permea.federation.flower.moments`, `permea.federation.sum_reader`).
"""

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from permea._arrays import Array
from permea._files import write_atomically
from permea.federation.agreement import Agreement
from permea.federation.errors import FederationError, RefusedError, SchemaError
from permea.federation.messages import Message
from permea.federation.moment_party import MomentParty
from permea.federation.transport import Outcome, run_calls
from permea.federation.wire import pack_array, unpack_array
from permea.privacy.moments import MomentPlan, Moments
from permea.privacy.release import Release
from permea.privacy.scatter import ClassScatter

if TYPE_CHECKING:
    from permea.federation.encryption import PublicKey
    from permea.federation.encryption.secure_sum import SecureSum

STAGES = ("mean", "moments", "scatter", "losses")
_N_MOMENTS = len(fields(Moments))


@dataclass(frozen=True)
class Question:
    """One stage of a round, as every party is asked about it.

    Parameters
    ----------
    stage : {"mean", "moments", "scatter", "losses"}
        What is asked for.
    round_id : str
        Name of the round.
    shares : int
        Number of shares of the noise.
    agreement : str
        Digest of the agreement.
    arrays : tuple of ndarray
        Public numbers that the stage is about: the mean, the directions, the released totals.
    """

    stage: str
    round_id: str
    shares: int
    agreement: str
    arrays: tuple[Array, ...] = ()


@dataclass(frozen=True)
class Total:
    """A total that was opened, of which parties, and how many units they have together."""

    values: Any
    names: tuple[str, ...]
    n_units: int


def stage_size(plan: MomentPlan, stage: str, n_directions: int = 0) -> int:
    """Length of a message.

    Examples
    --------
    >>> from permea.privacy import Privacy
    >>> from permea.privacy.moments import plan_moments
    >>> promise = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))
    >>> plan = plan_moments(promise, 10, 2)
    >>> stage_size(plan, "mean")
    11
    """
    D, d = plan.n_features, n_directions
    return {
        "mean": D + 1,
        "moments": D * (D + 1) // 2 + D * plan.n_outputs + plan.n_counts,
        "scatter": plan.n_outputs * d * (d + 1) // 2,
        "losses": plan.n_losses,
    }[stage]


def totals_of(released: Release) -> tuple[Array, ...]:
    """Released totals as arrays, for a question about losses."""
    moments, scatter = released.moments, released.scatter
    assert scatter is not None
    numbers = [getattr(moments, one.name) for one in fields(Moments)]
    numbers += [scatter.directions, scatter.second, scatter.noise]
    return tuple(np.asarray(part, dtype=np.float64) for part in numbers)


def reply_to(party: MomentParty, question: Question) -> Message:
    """The message of a party; it checks everything that the question says."""
    head = question.round_id, question.shares
    about: Callable[..., Message]
    if question.stage == "mean" and not question.arrays:
        return party.mean_message(*head, agreement=question.agreement)
    if question.stage in ("moments", "scatter") and len(question.arrays) == 1:
        about = party.moment_message if question.stage == "moments" else party.scatter_message
        return about(*head, question.arrays[0], agreement=question.agreement)
    if question.stage == "losses" and len(question.arrays) == _N_MOMENTS + 3:
        moments = Moments(*question.arrays[:_N_MOMENTS])  # type: ignore[arg-type]
        scatter = ClassScatter(*question.arrays[_N_MOMENTS:])  # type: ignore[arg-type]
        released = Release(moments=moments, scatter=scatter)
        return party.loss_message(*head, released, agreement=question.agreement)
    raise RefusedError("This is not a question of a round of moments.")


class MomentChannel(Protocol):
    """A way to reach the parties of a federation of moments, and a reader of their totals."""

    @property
    def names(self) -> tuple[str, ...]:
        """All parties, in the order of their place in a sum."""
        ...

    @property
    def agreement(self) -> Agreement:
        """What all parties hold."""
        ...

    @property
    def seeded(self) -> bool:
        """Whether the noise of any party can be repeated."""
        ...

    def blank(self) -> Any:
        """An estimator as agreed, prepared and without rows."""
        ...

    def public_key(self, question: Question, scheme: "SecureSum") -> "PublicKey":
        """A key of the reader for one stage."""
        ...

    def ask(
        self,
        question: Question,
        names: Sequence[str],
        timeout: float | None,
        encryption: "tuple[SecureSum, PublicKey] | None",
    ) -> Mapping[str, Outcome]:
        """Messages of the parties; ciphertexts where there is a key."""
        ...

    def open(self, question: Question, scheme: "SecureSum", total: bytes, of: Total) -> Total:
        """The values of a total, from the reader, who opens one for each stage."""
        ...


class LocalMoments:
    """Parties in this process, which is the reader and the server too.

    Parameters
    ----------
    parties : sequence of MomentParty
        Parties with rows. Public facts are read from them (agreement, plan); rows are not.
    """

    def __init__(self, parties: Sequence[MomentParty]) -> None:
        if not parties or not all(isinstance(party, MomentParty) for party in parties):
            raise FederationError("MomentFederation needs parties with rows: MomentParty.")
        self.parties = {party.name: party for party in parties}
        if len(self.parties) < len(parties):
            raise ValueError("Two parties have the same name. Give each party a name of its own.")
        self.agreement = _common_agreement(parties)
        self._secrets: dict[str, Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All parties."""
        return tuple(self.parties)

    @property
    def seeded(self) -> bool:
        """Whether any party is."""
        return any(party.seeded for party in self.parties.values())

    def blank(self) -> Any:
        """An estimator like that of the first party."""
        return next(iter(self.parties.values())).blank()

    def public_key(self, question: Question, scheme: "SecureSum") -> "PublicKey":
        """A fresh key."""
        self._secrets[question.stage], public = scheme.keygen()
        return public

    def ask(
        self,
        question: Question,
        names: Sequence[str],
        timeout: float | None,
        encryption: "tuple[SecureSum, PublicKey] | None",
    ) -> dict[str, Outcome]:
        """Call the parties, one after the other or with a time-out."""
        index = {name: place for place, name in enumerate(self.names)}

        def work(name: str) -> Message:
            return encrypted(reply_to(self.parties[name], question), encryption, index[name])

        return run_calls({name: partial(work, name) for name in names}, timeout)

    def open(self, question: Question, scheme: "SecureSum", total: bytes, of: Total) -> Total:
        """Decrypt."""
        return replace(of, values=scheme.decrypt(self._secrets.pop(question.stage), total))


def encrypted(
    message: Message, encryption: "tuple[SecureSum, PublicKey] | None", place: int
) -> Message:
    """A message as it leaves its party: under the key of the reader, where there is one."""
    if encryption is None:
        return message
    scheme, public = encryption
    return replace(message, values=scheme.encrypt(public, message.values, place))


@dataclass
class Journal:
    """What a server knows of its round, in a file, so that a restart goes on with it.

    It holds totals, which are released, and with own noise messages, which are released too. The
    file is for its owner alone, and `remove` deletes it when a model was made.

    Parameters
    ----------
    path : Path or None
        The file; None keeps nothing.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "round.json"
    ...     first = Journal(path)
    ...     first.begin("3f", "digest")
    ...     first.done("mean", [Message(np.array([1, -2]), 3, 2)], 2, {"c": "not connected"})
    ...     again = Journal(path)
    ...     again.resume("digest"), again.stage("mean")[0][0].values.tolist(), again.missing
    ('3f', [1, -2], {'c': 'not connected'})
    """

    path: Path | None = None
    _values: dict[str, Any] = field(default_factory=dict)

    def resume(self, agreement: str) -> str | None:
        """The round that was begun under an agreement; None when there is none."""
        if self.path is None or not self.path.exists():
            return None
        self._values = json.loads(self.path.read_text(encoding="utf-8"))
        return str(self._values["round"]) if self._values["agreement"] == agreement else None

    def begin(self, round_id: str, agreement: str) -> None:
        """Note a new round before anybody is asked."""
        self._values = {"round": round_id, "agreement": agreement, "missing": {}, "stages": {}}
        self._write()

    def stage(self, stage: str) -> tuple[list[Message], int] | None:
        """Messages of a stage that is over, and how many parties replied."""
        known = self._values.get("stages", {}).get(stage)
        if known is None:
            return None
        messages = [
            Message(unpack_array(base64.b64decode(one["values"])), one["units"], one["needed"],
                    self._values["agreement"], self._values["round"])
            for one in known["messages"]
        ]  # fmt: skip
        return messages, int(known["replied"])

    @property
    def missing(self) -> dict[str, str]:
        """Parties that left the round, and why."""
        return dict(self._values.get("missing", {}))

    def done(
        self, stage: str, messages: Sequence[Message], replied: int, missing: Mapping[str, str]
    ) -> None:
        """Note a stage that is over."""
        self._values["stages"][stage] = {
            "messages": [
                {
                    "values": base64.b64encode(pack_array(one.values)).decode(),
                    "units": one.n_units,
                    "needed": one.needed,
                }
                for one in messages
            ],
            "replied": replied,
        }
        self._values["missing"] = dict(missing)
        self._write()

    def remove(self) -> None:
        """Delete the file: the round is over."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        if self.path is not None:
            os.makedirs(self.path.parent, mode=0o700, exist_ok=True)
            write_atomically(self.path, json.dumps(self._values).encode(), private=True)


def _common_agreement(parties: Sequence[MomentParty]) -> Agreement:
    first, *others = parties
    for party in others:
        if different := first.agreement.differences(party.agreement):
            raise SchemaError(
                f"{first.name!r} and {party.name!r} hold different agreements: they differ in "
                f"{', '.join(different)}. Parties learn together under one agreement."
            )
    return first.agreement

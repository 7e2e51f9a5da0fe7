"""Moments over Flower: what parties, reader and server send each other.

Three kinds of message more: ``moments`` (a question to a party), ``sum_key`` and ``sum_open`` (to
the reader). The server side is a channel for `MomentFederation`, so that rounds, drop-outs and
certificates are the code of one process.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from permea.federation.agreement import Agreement, AgreementError, parsed_object
from permea.federation.errors import FederationError, InvalidReplyError, RefusedError
from permea.federation.flower.app import FlowerChannel
from permea.federation.flower.replies import Record, Replies
from permea.federation.guard import AuditLog
from permea.federation.messages import Message
from permea.federation.moment_party import MomentParty
from permea.federation.moment_rounds import (
    Question,
    Total,
    encrypted,
    reply_to,
    stage_size,
)
from permea.federation.transport import Failure, Outcome
from permea.federation.wire import pack_array, pack_json, unpack_array
from permea.privacy.signing import Signature, TrustedKeys

if TYPE_CHECKING:
    from permea.federation.encryption import PublicKey
    from permea.federation.encryption.secure_sum import SecureSum
    from permea.federation.sum_reader import SumReader

_MOST_ARRAYS = 16


# ---- at a party ------------------------------------------------------------------------------


def moment_replies(
    party: MomentParty, readers: TrustedKeys | None, *, log: AuditLog | None = None
) -> Replies:
    """The replies of a party with rows.

    Parameters
    ----------
    party : MomentParty
        It checks what a question says, and charges its ledger.
    readers : TrustedKeys or None
        Readers whose keys the party encrypts with. Without one, only agreements in which every
        party adds all of the noise are served.
    log : AuditLog, optional
        Where every question is noted, with its outcome.
    """

    def note(question: Question, outcome: str) -> None:
        if log is not None:
            about = {"stage": question.stage[:20], "round": question.round_id[:64]}
            log.append({"time": time.time(), "kind": "moments", **about, "outcome": outcome})

    def moments(record: Record) -> dict[str, Any]:
        question = _question(record)
        try:
            found = answered(question, record)
        except Exception:
            note(question, "refused")
            raise
        note(question, "answered")
        return found

    def answered(question: Question, record: Record) -> dict[str, Any]:
        encryption = None
        if party.agreement.noise == "shared":
            encryption = _encryption(party, readers, question, record)
        message = reply_to(party, question)
        place = party.agreement.parties.index(party.name)
        message = encrypted(message, encryption, place)
        values = message.values
        return {
            "values": values if isinstance(values, bytes) else pack_array(values),
            "n_units": int(message.n_units),
            "needed": int(message.needed),
            "agreement": message.agreement,
            "round": message.round_id,
            "seeded": party.seeded,
        }

    return {"moments": moments}


def _question(record: Record) -> Question:
    count = record["arrays"]
    if not isinstance(count, int) or not 0 <= count <= _MOST_ARRAYS:
        raise InvalidReplyError("invalid message: it does not hold a question")
    arrays = tuple(unpack_array(record[f"array{index}"]) for index in range(count))
    return Question(
        str(record["stage"]), str(record["round"]), int(record["shares"]),
        str(record["agreement"]), arrays,
    )  # fmt: skip


def _encryption(
    party: MomentParty, readers: TrustedKeys | None, question: Question, record: Record
) -> "tuple[SecureSum, PublicKey]":
    """The sum that a message is part of, and the reader's key for it."""
    from permea.federation.encryption import EncryptionError, PublicKey
    from permea.federation.encryption.secure_sum import SecureSum
    from permea.federation.sum_reader import check_sum_key

    if readers is None or "public_key" not in record:
        raise RefusedError(
            "Shares of the noise leave this party encrypted for a reader that it knows: name the "
            "reader's public key in [moments]."
        )
    try:
        public = PublicKey.from_bytes(record["public_key"])
        signature = Signature.from_dict(parsed_object(record["signature"]))
    except (EncryptionError, ValueError, TypeError):
        raise RefusedError("The reader's key cannot be read.") from None
    check_sum_key(readers, party.agreement, question.round_id, question.stage, public, signature)
    d = question.arrays[0].shape[1] if question.stage == "scatter" and question.arrays else 0
    size = stage_size(party.agreement.plan, question.stage, d)
    return SecureSum(n_parties=len(party.agreement.parties), n_values=size), public


# ---- at the reader ---------------------------------------------------------------------------


def reader_replies(reader: "SumReader") -> Replies:
    """The replies of the reader of secure sums."""

    def key(record: Record) -> dict[str, Any]:
        _check_digest(reader.agreement, record)
        public, signature = reader.public_key(
            str(record["round"]), str(record["stage"]), int(record["n_values"])
        )
        return {"public_key": public.to_bytes(), "signature": pack_json(signature.to_dict())}

    def opened(record: Record) -> dict[str, Any]:
        _check_digest(reader.agreement, record)
        of = Total(None, tuple(map(str, record["names"])), int(record["n_units"]))
        total = reader.open(str(record["round"]), str(record["stage"]), record["total"], of)
        return {
            "values": pack_array(total.values),
            "names": list(total.names),
            "n_units": total.n_units,
        }

    return {"sum_key": key, "sum_open": opened}


def _check_digest(agreement: Agreement, record: Record) -> None:
    if record["agreement"] != agreement.digest:
        raise RefusedError("The request names another agreement than the one of this reader.")


# ---- at the server ---------------------------------------------------------------------------


def check_agreed(agreement: Agreement, estimator: Any) -> None:
    """Raise unless an estimator is the one that was agreed on."""
    own = Agreement.of(
        estimator, agreement.n_columns, parties=agreement.parties, noise=agreement.noise,
        noise_shares=agreement.noise_shares, least_parties=agreement.least_parties,
        rounds=agreement.rounds, n_targets=agreement.n_targets,
    )  # fmt: skip
    if different := agreement.differences(own):
        raise AgreementError(
            f"The agreement and the training file differ in {', '.join(different)}."
        )


class FlowerMoments:
    """A channel of `MomentFederation` to parties behind a Flower grid.

    Parameters
    ----------
    channel : FlowerChannel
        To the parties of the agreement.
    agreement : Agreement
        What all parties hold.
    estimator : estimator
        What is learned, not fitted; it must match the agreement.
    reader : str
        Name of the node of the reader, for shared noise.
    timeout : float or None
        Seconds for the reader's replies.

    Attributes
    ----------
    seen : dict
        What was sent to each role, and by whom, line by line.
    """

    def __init__(
        self,
        channel: FlowerChannel,
        agreement: Agreement,
        estimator: Any,
        *,
        reader: str = "reader",
        timeout: float | None = 120.0,
    ) -> None:
        check_agreed(agreement, estimator)
        self.agreement, self.names = agreement, agreement.parties
        self._channel, self._estimator = channel, estimator
        self._reader, self._timeout = reader, timeout
        self._signed: dict[str, str] = {}
        self._seeded: set[str] = set()
        self.seen: dict[str, list[str]] = {"server": [], "reader": [], "each party": []}

    @property
    def seeded(self) -> bool:
        """Whether any party says that its noise can be repeated."""
        return bool(self._seeded)

    def blank(self) -> Any:
        """The estimator, prepared."""
        settings = self._estimator.get_params(deep=False)
        blank = type(self._estimator)(**settings)
        blank.prepare(self.agreement.n_columns, self.agreement.n_targets)
        return blank

    def public_key(self, question: Question, scheme: "SecureSum") -> "PublicKey":
        """Ask the reader for the key of a stage."""
        from permea.federation.encryption import EncryptionError, PublicKey

        record = self._ask_reader("sum_key", question, {"n_values": scheme.n_values})
        try:
            public = PublicKey.from_bytes(record["public_key"])
            self._signed[question.stage] = str(record["signature"])
        except (KeyError, TypeError, EncryptionError):
            raise InvalidReplyError("The reader's key cannot be read.") from None
        return public

    def ask(
        self,
        question: Question,
        names: Sequence[str],
        timeout: float | None,
        encryption: "tuple[SecureSum, PublicKey] | None",
    ) -> dict[str, Outcome]:
        """Send a question to parties; outcomes are messages or failures."""
        record: dict[str, Any] = {
            "stage": question.stage,
            "round": question.round_id,
            "shares": question.shares,
            "agreement": question.agreement,
            "arrays": len(question.arrays),
        }
        packed = [pack_array(np.asarray(array)) for array in question.arrays]
        record |= {f"array{index}": data for index, data in enumerate(packed)}
        if encryption is not None:
            record["public_key"] = encryption[1].to_bytes()
            record["signature"] = self._signed[question.stage]
        sent = self._channel.send("moments", dict.fromkeys(names, record), timeout)
        found = {name: self._message(name, sent[name], question, encryption) for name in names}
        self._note(question, found, packed, encryption is not None)
        return found

    def _message(
        self,
        name: str,
        outcome: Outcome,
        question: Question,
        encryption: "tuple[SecureSum, PublicKey] | None",
    ) -> Outcome:
        """A party's reply as a message, or why it is none."""
        if isinstance(outcome, Failure):
            return outcome
        try:
            if outcome["seeded"] is True:
                self._seeded.add(name)
            values: Any = outcome["values"]
            units = outcome["n_units"]
            if encryption is None:
                values = self._clear_values(values, question)
            if isinstance(units, bool) or not isinstance(units, int) or units < 0:
                raise InvalidReplyError("invalid reply: it names no number of units")
            return Message(
                values, units, outcome["needed"], str(outcome["agreement"]), str(outcome["round"])
            )
        except FederationError as error:
            return Failure.of(error)
        except (KeyError, TypeError):
            return Failure("invalid reply: it cannot be read", True)

    def _clear_values(self, data: Any, question: Question) -> Any:
        values = unpack_array(data)
        d = question.arrays[0].shape[1] if question.stage == "scatter" else 0
        size = stage_size(self.agreement.plan, question.stage, d)
        if values.shape != (size,) or values.dtype != np.int64:
            raise InvalidReplyError("invalid reply: it is no message of this stage")
        return values

    def open(self, question: Question, scheme: "SecureSum", total: bytes, of: Total) -> Total:
        """Let the reader open a total."""
        record = self._ask_reader(
            "sum_open", question,
            {"total": total, "names": list(of.names), "n_units": of.n_units},
        )  # fmt: skip
        try:
            names, units = tuple(map(str, record["names"])), record["n_units"]
            values = unpack_array(record["values"])
        except (KeyError, TypeError):
            raise InvalidReplyError("The reader's total cannot be read.") from None
        if values.shape != (scheme.n_values,) or values.dtype != np.int64:
            raise InvalidReplyError("The reader's total has the wrong length.")
        if not set(names) <= set(self.names) or not isinstance(units, int):
            raise InvalidReplyError("The reader's total is of other parties.")
        self.seen["reader"].append(
            f"{question.stage}: 1 ciphertext of {_size(len(total))}, and in it the total of "
            f"{len(names)} parties: {scheme.n_values} noised numbers"
        )
        self.seen["server"].append(f"{question.stage}: the opened total")
        return Total(values, names, units)

    def _ask_reader(self, kind: str, question: Question, rest: Mapping[str, Any]) -> Any:
        record = {
            "stage": question.stage,
            "round": question.round_id,
            "agreement": question.agreement,
            **rest,
        }
        outcome = self._channel.send(kind, {self._reader: record}, self._timeout)[self._reader]
        if isinstance(outcome, Failure):
            raise FederationError(f"The reader of the sums did not help: {outcome.reason}")
        return outcome

    def _note(
        self, question: Question, found: Mapping[str, Outcome], sent: list[bytes], hidden: bool
    ) -> None:
        messages = [one for one in found.values() if isinstance(one, Message)]
        n_bytes = sum(
            len(one.values) if isinstance(one.values, bytes) else one.values.nbytes
            for one in messages
        )
        what = "ciphertexts" if hidden else "messages with all of the noise"
        who = ", ".join(name for name, one in found.items() if isinstance(one, Message)) or "nobody"
        self.seen["server"].append(
            f"{question.stage}: {len(messages)} {what}, {_size(n_bytes)} in all, from {who}"
        )
        about = {
            "mean": "the agreement's digest and the name of the round",
            "moments": "the noised mean",
            "scatter": "directions that follow from the noised moments",
            "losses": "the noised totals",
        }[question.stage]
        self.seen["each party"].append(f"{question.stage}: {about}, {_size(sum(map(len, sent)))}")


def _size(n_bytes: int) -> str:
    """A number of bytes for people.

    Examples
    --------
    >>> _size(532480)
    '520.0 kB'
    """
    return f"{n_bytes / 1024:.1f} kB"

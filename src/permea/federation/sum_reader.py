"""The reader of secure sums: makes the keys, opens one total for each stage of a round.

It never gets the message of a single party: these go, encrypted under its key, to the server, which
has no key. So reader and server must be different people on different machines. What the reader is
trusted for is to open nothing else; what the server is trusted for is to send it the sum. A server
that sends one party's ciphertext instead gets that message, with its share of the noise, once for
each stage; the agreement says how much that is ("a reader of a single party's message").
"""

import threading
from dataclasses import dataclass, field, replace
from typing import Any

from permea.federation.agreement import Agreement, AgreementError
from permea.federation.encryption import EncryptionError, PublicKey, SecretKey
from permea.federation.encryption.scheme import unpack
from permea.federation.encryption.secure_sum import SecureSum
from permea.federation.errors import InvalidReplyError, RefusedError
from permea.federation.moment_rounds import STAGES, Total, stage_size
from permea.privacy.signing import Signature, SigningKey, TrustedKeys, canonical

PURPOSE = "sum key"  # what a signature on a public key is for


@dataclass
class _Stage:
    """The keys of one stage, and the total that was opened with them."""

    scheme: SecureSum
    secret: SecretKey
    public: PublicKey
    total: Total | None = None


@dataclass
class _Rounds:
    lock: Any = field(default_factory=threading.Lock)
    stages: dict[tuple[str, str], _Stage] = field(default_factory=dict)


class SumReader:
    """Keys and totals of the rounds of one agreement.

    Parameters
    ----------
    agreement : Agreement
        What the owners signed.
    trusted : TrustedKeys
        Keys whose signature on the agreement the reader accepts.
    key : SigningKey
        Signs the public keys. Parties know its public half, and encrypt under no other key: a
        server that makes keys of its own reads nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from permea import MomentClassifier
    >>> from permea.privacy import Privacy
    >>> promise = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))
    >>> wanted = MomentClassifier(privacy=promise, features="identity", classes=[0, 1])
    >>> owner, key = SigningKey.generate("owner"), SigningKey.generate("reader")
    >>> agreed = Agreement.of(wanted, n_columns=3, parties=["a", "b"]).signed(by=owner)
    >>> reader = SumReader(agreed, TrustedKeys([owner.public]), key)
    >>> public, signature = reader.public_key("r1", "mean", agreed.n_features + 1)
    >>> known = TrustedKeys([key.public])
    >>> check_sum_key(known, agreed, "r1", "mean", public, signature)
    >>> scheme = SecureSum(n_parties=2, n_values=agreed.n_features + 1)
    >>> parts = [scheme.encrypt(public, np.arange(scheme.n_values), place) for place in (0, 1)]
    >>> total = scheme.aggregate(public, parts)
    >>> reader.open("r1", "mean", total, Total(None, ("a", "b"), 7)).values.tolist()[:3]
    [0, 2, 4]
    """

    def __init__(self, agreement: Agreement, trusted: TrustedKeys, key: SigningKey) -> None:
        if not agreement.signers(trusted):
            raise AgreementError("No trusted key has signed the agreement of this reader.")
        if agreement.noise != "shared":
            raise AgreementError("With own noise nothing is encrypted, and no reader is needed.")
        self.agreement, self._key = agreement, key
        self._rounds = _Rounds()

    def public_key(self, round_id: str, stage: str, n_values: int) -> tuple[PublicKey, Signature]:
        """The key of a stage, always the same one, and a signature that says what it is for."""
        self._check(stage, n_values)
        with self._rounds.lock:
            known = self._rounds.stages.get((round_id, stage))
            if known is None:
                self._check_rounds(round_id)
                scheme = SecureSum(n_parties=len(self.agreement.parties), n_values=n_values)
                known = _Stage(scheme, *scheme.keygen())
                self._rounds.stages[round_id, stage] = known
        if known.scheme.n_values != n_values:
            raise RefusedError("The total of this stage has another length.")
        statement = _statement(self.agreement, round_id, stage, known.public)
        return known.public, self._key.sign(statement, purpose=PURPOSE)

    def open(self, round_id: str, stage: str, total: bytes, of: Total) -> Total:
        """Decrypt the total of a stage; a further request gets the total that was opened first.

        Two totals of one stage would differ by the message of a single party.
        """
        with self._rounds.lock:
            known = self._rounds.stages.get((round_id, stage))
            if known is None:
                raise RefusedError("The keys of this stage are not here: begin a new round.")
            if known.total is None:
                self._check_total(total, of)
                try:
                    known.total = replace(of, values=known.scheme.decrypt(known.secret, total))
                except EncryptionError as error:
                    raise InvalidReplyError(f"The total cannot be opened: {error}") from None
            return known.total

    def _check(self, stage: str, n_values: int) -> None:
        plan = self.agreement.plan
        if stage not in STAGES or not isinstance(n_values, int):
            raise RefusedError("There is no such stage in a round of moments.")
        if not 1 <= n_values <= stage_size(plan, stage, plan.n_directions):
            raise RefusedError("The agreement knows no total of this length in this stage.")

    def _check_rounds(self, round_id: str) -> None:
        rounds = {name for name, _ in self._rounds.stages}
        if round_id not in rounds and len(rounds) >= self.agreement.rounds:
            raise RefusedError(f"All {self.agreement.rounds} rounds of the agreement are used up.")

    def _check_total(self, total: bytes, of: Total) -> None:
        """What a total says about itself; a server that forges it is not detected by this."""
        names, least = set(of.names), self.agreement.least_parties
        if len(names) < len(of.names) or not names <= set(self.agreement.parties):
            raise RefusedError("The total names parties that the agreement does not know.")
        try:
            header, _ = unpack(total, "sum")
        except EncryptionError as error:
            raise InvalidReplyError(f"The total cannot be read: {error}") from None
        if header.get("summands") != len(names) or len(names) < least:
            raise RefusedError(f"A total is opened when it is of at least {least} parties.")


def check_sum_key(
    readers: TrustedKeys,
    agreement: Agreement,
    round_id: str,
    stage: str,
    public: PublicKey,
    signature: Signature,
) -> None:
    """At a party: raise unless a trusted reader made this key for this stage."""
    statement = _statement(agreement, round_id, stage, public)
    if readers.signer(statement, signature, purpose=PURPOSE) is None:
        raise RefusedError(
            "The key that this message should be encrypted with is not signed by the reader that "
            "this party knows. Whoever made it could read the message."
        )


def _statement(agreement: Agreement, round_id: str, stage: str, public: PublicKey) -> bytes:
    return canonical(
        {
            "agreement": agreement.digest,
            "round": round_id,
            "stage": stage,
            "key": public.digest,
        }
    )

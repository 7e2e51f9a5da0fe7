"""The two stages by which a federation of `MomentParty` learns one model."""

import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from permea.federation.agreement import Agreement
from permea.federation.errors import FederationError, MissingPartiesWarning, SchemaError
from permea.federation.moment_party import MomentParty
from permea.federation.moments import (
    Message,
    add_released,
    aggregate,
    check_answered,
    open_mean,
    open_moments,
)
from permea.federation.transport import Failure, Outcome
from permea.models.base import Array
from permea.models.moments import Moments
from permea.privacy.moments import MomentPlan, NoisedMoments, certify
from permea.privacy.payment import warn_if_worthless

if TYPE_CHECKING:
    from permea.federation.encryption import PublicKey
    from permea.federation.encryption.additive import SecureSum

Ask = Callable[[Callable[[MomentParty], Any], Sequence[str]], Mapping[str, Outcome]]
_STEPS = {
    "own": "{n} parties noised their moments fully, each on its own; the sum carries the noise of "
    "all of them",
    "shared": "{n} parties added shares of the noise sized for {shares} of them, in a secure "
    "aggregation; the promise holds for whoever sees totals only and for up to {spare} colluding "
    "parties",
}


class _Sealed(NamedTuple):
    """A party's message for the one who adds up: its words are encrypted."""

    words: bytes
    n_rows: int
    needed: int
    agreement: str
    round_id: str


class _Stage(NamedTuple):
    """What came of a stage: messages, or their total, and how many parties are in it."""

    messages: list[Message]
    answered: int


class MomentRounds:
    """One model from the moments of many parties, under the agreement that all of them hold.

    Parameters
    ----------
    parties : mapping of str to MomentParty
        Public facts are read off them (agreement, plan); rows are not.
    ask : callable
        Takes a function of a party and names; returns an outcome for each name.
    quorum : int, optional
        Parties that must answer, where the federation asks for more than the agreement does.
    """

    def __init__(
        self, parties: Mapping[str, MomentParty], ask: Ask, quorum: int | None = None
    ) -> None:
        if not all(isinstance(party, MomentParty) for party in parties.values()):
            raise FederationError("fit_moments needs parties with rows of their own: MomentParty.")
        self.agreement = _common_agreement(parties)
        self._parties, self._ask = parties, ask
        self._least = max(self.agreement.least_parties, quorum or 1)
        self._first = next(iter(parties.values()))
        self._missing: dict[str, str] = {}

    @property
    def plan(self) -> MomentPlan:
        """The noise that was agreed on."""
        return self.agreement.plan

    def fit(self) -> Any:
        """Both stages, and the learning after them."""
        name, needed = secrets.token_hex(8), self.agreement.noise_shares
        terms = {"agreement": self.agreement.digest}
        first = self._stage(
            name, _mean_words(self.plan), lambda party: party.mean_message(name, needed, **terms)
        )
        mean = self._opened_mean(first)
        second = self._stage(
            name,
            _moment_words(self.plan),
            lambda party: party.moment_message(name, needed, mean, **terms),
        )
        moments = self._opened_moments(second)
        if self._missing:
            text = f"Parties are missing: {self._reasons()}"
            warnings.warn(text, MissingPartiesWarning, stacklevel=3)
        return self._learned(moments, mean, second.answered)

    def _stage(self, name: str, n_words: int, work: Callable[[MomentParty], Message]) -> _Stage:
        """Messages of the parties that answered; with shared noise their total alone."""
        names = [party for party in self._parties if party not in self._missing]
        if self.agreement.noise == "own":
            messages = list(self._answers(work, names, name).values())
            return _Stage(messages, len(messages))
        return self._total(work, names, name, n_words)

    def _answers(
        self, work: Callable[[MomentParty], Any], names: Sequence[str], round_id: str
    ) -> dict[str, Any]:
        """Answers under this agreement and to this round; who gives no such answer is missing."""
        found = {}
        for name, outcome in self._ask(work, names).items():
            reason = outcome.reason if isinstance(outcome, Failure) else ""
            if not reason and not self._answers_this(outcome, round_id):
                reason = "answered another round, or under another agreement"
            if reason:
                self._missing[name] = reason
            else:
                found[name] = outcome
        check_answered(len(found), self._least, self._reasons())
        return found

    def _answers_this(self, answer: Message | _Sealed, round_id: str) -> bool:
        said = answer.agreement, answer.round_id, answer.needed
        return said == (self.agreement.digest, round_id, self.agreement.noise_shares)

    def _reasons(self) -> str:
        return "; ".join(f"{name}: {reason}" for name, reason in self._missing.items())

    def _total(
        self,
        work: Callable[[MomentParty], Message],
        names: Sequence[str],
        round_id: str,
        n_words: int,
    ) -> _Stage:
        """The total of the messages by additive encryption: no single one is seen by anybody."""
        from permea.federation.encryption.additive import SecureSum

        scheme = SecureSum(n_parties=len(self._parties), n_words=n_words)
        secret, public = scheme.keygen()  # the reader of the total
        place = {name: index for index, name in enumerate(self._parties)}

        def reply(party: MomentParty) -> _Sealed:
            return _sealed(work(party), scheme, public, place[party.name])

        found = self._answers(reply, names, round_id)
        total = scheme.aggregate(public, [sealed.words for sealed in found.values()])  # the server
        rows = sum(sealed.n_rows for sealed in found.values())
        words = scheme.decrypt(secret, total)
        return _Stage([Message(words, rows, self.agreement.noise_shares)], len(found))

    def _opened_mean(self, stage: _Stage) -> Array:
        """The noised mean, no longer than rows of features are: noise may carry it outside."""
        summed = aggregate([replace(message, needed=1) for message in stage.messages])
        mean = open_mean(summed, self.plan)
        length = float(np.linalg.norm(mean))
        return mean * min(1.0, self.plan.feature_norm / length) if length else mean

    def _opened_moments(self, stage: _Stage) -> Moments:
        plan = self.plan
        if sum(message.n_rows for message in stage.messages) > plan.most_rows():
            raise OverflowError(f"More than {plan.most_rows()} rows do not fit into 64 bits.")
        if self.agreement.noise == "own":
            return add_released([open_moments(message, plan) for message in stage.messages])
        moments = open_moments(stage.messages[0], plan)
        # more parties than shares: their noise is in the total, and the model is told
        wider = float(np.sqrt(stage.answered / self.agreement.noise_shares))
        return replace(
            moments,
            second_noise=wider * moments.second_noise,
            cross_noise=wider * moments.cross_noise,
            squares_noise=wider * moments.squares_noise,
        )

    def _learned(self, moments: Moments, mean: Array, answered: int) -> Any:
        seeded = any(party.seeded for party in self._parties.values())
        agreement, shares = self.agreement, self.agreement.noise_shares
        text = _STEPS[agreement.noise].format(n=answered, shares=shares, spare=answered - shares)
        certificate = (
            certify(self.plan, moments, seeded)
            .add_step(f"agreement {agreement.digest}; each party charged its own ledger first")
            .add_step(text)
            .add_step(agreement.collusion_text(answered))
        )
        if answered > agreement.least_parties and agreement.noise == "shared":
            least = agreement.collusion_text()
            certificate = certificate.add_step(f"had only the least number answered: {least}")
        warn_if_worthless(certificate)
        return self._first.blank().learn(
            NoisedMoments(moments, np.asarray(mean, np.float64), certificate)
        )


def _sealed(message: Message, scheme: "SecureSum", public: "PublicKey", place: int) -> _Sealed:
    """At the party: its message encrypted; the number of rows is public, or 0."""
    return _Sealed(
        scheme.encrypt(public, message.words, place), message.n_rows, message.needed,
        message.agreement, message.round_id,
    )  # fmt: skip


def _mean_words(plan: MomentPlan) -> int:
    return plan.n_features + 1


def _moment_words(plan: MomentPlan) -> int:
    D = plan.n_features
    return D * (D + 1) // 2 + D * plan.n_outputs + plan.tally_size


def _common_agreement(parties: Mapping[str, MomentParty]) -> Agreement:
    (first, one), *others = parties.items()
    for name, party in others:
        if different := one.agreement.differences(party.agreement):
            raise SchemaError(
                f"{first!r} and {name!r} hold different agreements: they differ in "
                f"{', '.join(different)}. Parties learn together under one agreement."
            )
    return one.agreement

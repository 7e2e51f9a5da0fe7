"""The two rounds by which a federation of `MomentParty` learns one model."""

import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from permea.federation.errors import FederationError, MissingPartiesWarning, SchemaError
from permea.federation.moment_party import MomentParty
from permea.federation.moments import (
    DropOutError,
    Message,
    add_released,
    aggregate,
    open_mean,
    open_moments,
)
from permea.federation.transport import Failure, Outcome
from permea.models.base import Array
from permea.models.moments import Moments
from permea.privacy.moments import MomentPlan, NoisedMoments, certify

if TYPE_CHECKING:
    from permea.federation.encryption import PublicKey
    from permea.federation.encryption.additive import SecureSum

Noise = Literal["shared", "own"]
Ask = Callable[[Callable[[MomentParty], Any], Sequence[str]], Mapping[str, Outcome]]
_STEPS = {
    "own": "{n} parties noised their moments fully, each on its own; the sum carries the noise of "
    "all of them",
    "shared": "{n} parties added shares of the noise sized for {needed} of them, in a secure "
    "aggregation; the promise holds for whoever sees totals only, and when k of the parties tell "
    "their shares, for {needed} - k in place of {needed}",
}


class MomentRounds:
    """One model from the moments of many parties.

    Parameters
    ----------
    parties : mapping of str to MomentParty
        Public facts are read off them (agreement, plan); rows are not.
    ask : callable
        Takes a function of a party and names; returns an outcome for each name.
    needed : int
        Parties that must answer each round; shares of the noise are sized for so many.
    """

    def __init__(self, parties: Mapping[str, MomentParty], ask: Ask, needed: int) -> None:
        if not all(isinstance(party, MomentParty) for party in parties.values()):
            raise FederationError("fit_moments needs parties with rows of their own: MomentParty.")
        _check_agreement(parties)
        self._parties, self._ask, self._needed = parties, ask, needed
        self._first = next(iter(parties.values()))
        self._missing: dict[str, str] = {}

    @property
    def plan(self) -> MomentPlan:
        """What was agreed on."""
        return self._first.plan

    def fit(self, noise: Noise) -> Any:
        """Both rounds, and the learning after them."""
        if noise not in ("shared", "own"):
            raise ValueError(f"noise must be 'shared' or 'own', got {noise!r}.")
        name = secrets.token_hex(8)
        needed = self._needed if noise == "shared" else 1
        first = self._round(noise, _mean_words(self.plan), lambda p: p.mean_message(name, needed))
        mean = open_mean(_summed(first), self.plan)
        second = self._round(
            noise,
            _moment_words(self.plan),
            lambda party: party.moment_message(name, needed, mean),
        )
        moments = self._open(second, noise)
        if self._missing:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self._missing.items())
            warnings.warn(f"Parties are missing: {reasons}", MissingPartiesWarning, stacklevel=3)
        return self._learned(moments, mean, noise, len(self._parties) - len(self._missing))

    def _round(
        self, noise: Noise, n_words: int, work: Callable[[MomentParty], Message]
    ) -> list[Message]:
        """Messages of the parties that answered; with shared noise their total alone."""
        names = [name for name in self._parties if name not in self._missing]
        if noise == "own":
            return list(self._answers(work, names).values())
        return [self._secretly(work, names, n_words)]

    def _answers(self, work: Callable[[MomentParty], Any], names: Sequence[str]) -> dict[str, Any]:
        outcomes = self._ask(work, names)
        for name, outcome in outcomes.items():
            if isinstance(outcome, Failure):
                self._missing[name] = outcome.reason
        found = {n: value for n, value in outcomes.items() if not isinstance(value, Failure)}
        if len(found) < self._needed:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self._missing.items())
            raise DropOutError(
                f"{len(found)} of at least {self._needed} parties answered. Nothing was opened. "
                f"Missing: {reasons}"
            )
        return found

    def _secretly(
        self, work: Callable[[MomentParty], Message], names: Sequence[str], n_words: int
    ) -> Message:
        """The total of the messages by additive encryption: no single one is seen by anybody."""
        from permea.federation.encryption.additive import SecureSum

        scheme = SecureSum(n_parties=len(self._parties), n_words=n_words)
        secret, public = scheme.keygen()  # the reader of the total
        place = {name: index for index, name in enumerate(self._parties)}

        def reply(party: MomentParty) -> tuple[bytes, int, int]:
            return _sealed(work(party), scheme, public, place[party.name])

        found = self._answers(reply, names)
        total = scheme.aggregate(public, [words for words, _, _ in found.values()])  # the server
        rows = sum(n_rows for _, n_rows, _ in found.values())
        words = scheme.decrypt(secret, total)
        # what the shares of more parties than needed add is known, and is said
        return Message(words, rows, len(found))

    def _open(self, messages: Sequence[Message], noise: Noise) -> Moments:
        plan = self.plan
        rows = sum(message.n_rows for message in messages)
        if rows > plan.most_rows():
            raise OverflowError(f"More than {plan.most_rows()} rows do not fit into 64 bits.")
        if noise == "own":
            return add_released([open_moments(message, plan) for message in messages])
        moments = open_moments(messages[0], plan)
        wider = float(np.sqrt(messages[0].needed / self._needed))
        return replace(
            moments,
            second_noise=wider * moments.second_noise,
            cross_noise=wider * moments.cross_noise,
            squares_noise=wider * moments.squares_noise,
        )

    def _learned(self, moments: Moments, mean: Array, noise: Noise, answered: int) -> Any:
        seeded = any(party.seeded for party in self._parties.values())
        certificate = certify(self.plan, moments, seeded, "").add_step(
            _STEPS[noise].format(n=answered, needed=self._needed)
        )
        return self._first.blank().learn(
            NoisedMoments(moments, np.asarray(mean, np.float64), certificate)
        )


def _sealed(
    message: Message, scheme: "SecureSum", public: "PublicKey", place: int
) -> tuple[bytes, int, int]:
    """At the party: its message encrypted; the number of rows is public, or 0."""
    return scheme.encrypt(public, message.words, place), message.n_rows, message.needed


def _summed(messages: Sequence[Message]) -> Message:
    return aggregate([replace(message, needed=1) for message in messages])


def _mean_words(plan: MomentPlan) -> int:
    return plan.n_features + 1


def _moment_words(plan: MomentPlan) -> int:
    D = plan.n_features
    return D * (D + 1) // 2 + D * plan.n_outputs + plan.tally_size


def _check_agreement(parties: Mapping[str, MomentParty]) -> None:
    (first, one), *others = parties.items()
    for name, party in others:
        if party.agreement != one.agreement:
            raise SchemaError(
                f"{first!r} and {name!r} do not want the same model: privacy, features, classes or "
                "outputs, neighbours, radius and split must be the same for all."
            )

"""Moments of several parties: they add up, so a federation learns what one owner would.

Two ways, both pure functions of messages:

* every party adds all of the noise to its own moments and anybody may add them up
  (:func:`add_released`); the noise of n parties has √n times the deviation of one;
* parties send exact sums plus a *share* of the noise through a secure aggregation, which shows the
  server nothing but the total. The total then carries one noise and equals the centralised release.
  The shares are sized for ``needed`` parties: when more reply, there is more noise than promised;
  when fewer do, the round fails. How many are needed is decided by the owners of the rows
  (`permea.federation.agreement`), never by the coordinator.

Models that describe every class need two more rounds: the scatter of the classes in directions that
the coordinator computes from the released moments, and sums of losses of what was learned from all
that. Both belong to the same charge. The messages are in `permea.federation.messages`.
"""

import math
import secrets
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from permea._arrays import Array
from permea.federation.aggregate import reasons_text
from permea.federation.encryption import EncryptionError
from permea.federation.errors import MissingPartiesWarning
from permea.federation.messages import (
    Message,
    add_released,
    aggregate,
    check_replied,
    open_losses,
    open_mean,
    open_moments,
    open_scatter,
)
from permea.federation.moment_party import MomentParty
from permea.federation.moment_rounds import (
    Journal,
    LocalMoments,
    MomentChannel,
    Question,
    Total,
    stage_size,
    totals_of,
)
from permea.federation.transport import Failure, Outcome, RetryPolicy
from permea.privacy.moments import Moments, certify
from permea.privacy.release import Release, warn_if_worthless
from permea.privacy.scatter import loss_noise

if TYPE_CHECKING:
    from permea.federation.encryption import PublicKey
    from permea.federation.encryption.secure_sum import SecureSum

_STEPS = {
    "own": "{n} parties added all of the noise to their moments, each on its own; the sum carries "
    "the noise of all of them",
    "shared": "{n} parties added shares of the noise sized for {shares} of them, in a secure "
    "aggregation; the promise holds for whoever sees totals only and for up to {spare} colluding "
    "parties",
}


class MomentFederation:
    """One model from the moments of many parties, under the agreement that all of them hold.

    Parameters
    ----------
    parties : sequence of MomentParty, or MomentChannel
        Parties in this process, or a channel to parties elsewhere. Public facts are read from them
        (agreement, plan); rows are not.
    quorum : int, optional
        Parties that must reply, where more are wanted than the agreement requires.
    retry : RetryPolicy, optional
        Time-out, attempts and back-off for each stage.
    journal : Journal, optional
        Where the state of the round is kept. A federation that is made again with the same file
        goes on with the round: what was charged is not charged again.
    """

    def __init__(
        self,
        parties: Sequence[MomentParty] | MomentChannel,
        *,
        quorum: int | None = None,
        retry: RetryPolicy | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._channel: MomentChannel
        self._channel = LocalMoments(parties) if isinstance(parties, Sequence) else parties
        self.agreement = self._channel.agreement
        self._least = max(self.agreement.least_parties, quorum or 1)
        self._retry = retry or RetryPolicy()
        self._journal = journal or Journal()
        self._missing: dict[str, str] = {}

    @property
    def missing(self) -> dict[str, str]:
        """Parties that left the last round, and why."""
        return dict(self._missing)

    def fit(self) -> Any:
        """Run one round, which every party charges to its ledger, and fit the model.

        What is learned, how the noise is made and how many parties must reply is determined by the
        agreement.

        Returns
        -------
        MomentClassifier or MomentRegressor
            Fitted, with the certificate of the release.

        Raises
        ------
        DropOutError
            When fewer parties replied than the agreement or ``quorum`` requires.
        """
        round_id = self._journal.resume(self.agreement.digest)
        if round_id is None:
            round_id = secrets.token_hex(8)
            self._journal.begin(round_id, self.agreement.digest)
        self._missing = self._journal.missing
        released, replied = self._moments_about_mean(round_id)
        model = self._channel.blank()
        if self.agreement.plan.n_directions:
            released, replied = self._with_scatter(round_id, model, released, replied)
        certificate = self._certificate(released.moments, replied)
        warn_if_worthless(certificate)
        model.learn(replace(released, certificate=certificate))
        if self.agreement.plan.n_losses:
            left = self._calibrate(round_id, model, released)
            if left < replied:  # fewer shares of the noise are on the losses
                model.certificate_ = self._certificate(released.moments, left)
        self._journal.remove()
        if self._missing:
            text = f"Parties are missing: {reasons_text(self._missing)}"
            warnings.warn(text, MissingPartiesWarning, stacklevel=2)
        return model

    def _question(self, stage: str, round_id: str, *arrays: Array) -> Question:
        shares = self.agreement.noise_shares
        return Question(stage, round_id, shares, self.agreement.digest, arrays)

    def _moments_about_mean(self, round_id: str) -> tuple[Release, int]:
        """The first two stages, and how many parties replied."""
        first, _ = self._stage(self._question("mean", round_id))
        mean = self._mean(first)
        second, replied = self._stage(self._question("moments", round_id, mean))
        moments = self._moments(second, replied)
        return Release(moments=moments, mean=np.asarray(mean, np.float64)), replied

    def _with_scatter(
        self, round_id: str, model: Any, released: Release, replied: int
    ) -> tuple[Release, int]:
        """The third stage: scatter of the classes in directions that follow from the moments.

        Where parties left after the moments, the scatter of the others stands for all: it is
        scaled by the numbers of units where they are public, else by those of parties.
        """
        plan, shares = self.agreement.plan, self.agreement.noise_shares
        P = model.choose_directions(released.moments, plan.n_directions)
        messages, left = self._stage(self._question("scatter", round_id, P), P.shape[1])
        scatter = add_released([open_scatter(message, P, plan) for message in messages])
        if self.agreement.noise == "shared":
            scatter = replace(scatter, noise=scatter.noise * math.sqrt(left / shares))
        if left < replied:
            units = sum(message.n_units for message in messages)
            factor = released.moments.size / units if plan.size_is_public else replied / left
            scatter = replace(scatter, second=factor * scatter.second, noise=factor * scatter.noise)
        return replace(released, scatter=scatter), left

    def _calibrate(self, round_id: str, model: Any, released: Release) -> int:
        """The last stage: losses of the model, by which it is calibrated; how many replied."""
        plan, shares = self.agreement.plan, self.agreement.noise_shares
        question = self._question("losses", round_id, *totals_of(released))
        messages, left = self._stage(question)
        losses = np.sum([open_losses(message, plan) for message in messages], axis=0)
        model.calibrate(losses, loss_noise(plan) * math.sqrt(left / shares))
        return left

    def _stage(self, question: Question, n_directions: int = 0) -> tuple[list[Message], int]:
        """Messages of the parties that replied, or their total; and how many replied.

        With shared noise the total is made by additive encryption: no role sees a single message.
        """
        if (known := self._journal.stage(question.stage)) is not None:
            return known
        if self.agreement.noise == "own":
            found = list(self._replies(question, None).values())
            result = found, len(found)
        else:
            message, names = self._summed(question, n_directions)
            result = [message], len(names)
        self._journal.done(question.stage, *result, self._missing)
        return result

    def _summed(self, question: Question, n_directions: int) -> tuple[Message, tuple[str, ...]]:
        """The total of a stage, opened by the reader; this side adds up ciphertexts."""
        from permea.federation.encryption.secure_sum import SecureSum

        size = stage_size(self.agreement.plan, question.stage, n_directions)
        scheme = SecureSum(n_parties=len(self._channel.names), n_values=size)
        public = self._channel.public_key(question, scheme)
        found = self._replies(question, (scheme, public))
        total = scheme.aggregate(public, [message.values for message in found.values()])
        units = sum(message.n_units for message in found.values())
        opened = self._channel.open(question, scheme, total, Total(None, tuple(found), units))
        for name in set(found) - set(opened.names):
            self._missing[name] = "replied after the total of this stage was opened"
        first = next(iter(found.values()))
        return replace(first, values=opened.values, n_units=opened.n_units), opened.names

    def _replies(
        self, question: Question, encryption: "tuple[SecureSum, PublicKey] | None"
    ) -> dict[str, Message]:
        """Replies of this round under this agreement; a party without one is missing."""
        expected = question.agreement, question.round_id, question.shares

        def request(names: Sequence[str], timeout: float | None) -> Mapping[str, Outcome]:
            return self._channel.ask(question, names, timeout, encryption)

        found = {}
        names = [name for name in self._channel.names if name not in self._missing]
        for name, outcome in self._retry.run(request, names).items():
            if isinstance(outcome, Failure):
                self._missing[name] = outcome.reason
            elif (outcome.agreement, outcome.round_id, outcome.needed) != expected:
                self._missing[name] = "replied to another round, or under another agreement"
            elif problem := self._problem(name, outcome, encryption):
                self._missing[name] = problem
            else:
                found[name] = outcome
        check_replied(len(found), self._least, reasons_text(self._missing))
        return found

    def _problem(
        self, name: str, message: Message, encryption: "tuple[SecureSum, PublicKey] | None"
    ) -> str:
        """Why a ciphertext cannot be added, if it cannot."""
        if encryption is None:
            return ""
        scheme, public = encryption
        try:
            scheme.check_summand(public, message.values, self._channel.names.index(name))
        except EncryptionError as error:
            return f"invalid reply: {error}"
        return ""

    def _mean(self, messages: Sequence[Message]) -> Array:
        """The noised mean, no longer than rows of features are: noise may carry it outside."""
        plan = self.agreement.plan
        mean = open_mean(aggregate([replace(message, needed=1) for message in messages]), plan)
        length = float(np.linalg.norm(mean))
        return mean * min(1.0, plan.feature_norm / length) if length else mean

    def _moments(self, messages: Sequence[Message], replied: int) -> Moments:
        plan = self.agreement.plan
        if sum(message.n_units for message in messages) > plan.most_rows():
            raise OverflowError(f"More than {plan.most_rows()} rows do not fit into 64 bits.")
        if self.agreement.noise == "own":
            return add_released([open_moments(message, plan) for message in messages])
        moments = open_moments(messages[0], plan)
        # more parties than shares: their noise is in the total, and the model must know
        wider = float(np.sqrt(replied / self.agreement.noise_shares))
        return replace(
            moments,
            second_noise=wider * moments.second_noise,
            cross_noise=wider * moments.cross_noise,
            squares_noise=wider * moments.squares_noise,
        )

    def _certificate(self, moments: Moments, replied: int) -> Any:
        seeded = self._channel.seeded
        agreement, shares = self.agreement, self.agreement.noise_shares
        text = _STEPS[agreement.noise].format(n=replied, shares=shares, spare=replied - shares)
        certificate = (
            certify(agreement.plan, moments, seeded)
            .add_step(f"agreement {agreement.digest}; each party charged its own ledger first")
            .add_step(text)
            .add_step(agreement.collusion_text(replied))
        )
        if replied > agreement.least_parties and agreement.noise == "shared":
            least = agreement.collusion_text()
            certificate = certificate.add_step(f"had only the least number replied: {least}")
        return certificate

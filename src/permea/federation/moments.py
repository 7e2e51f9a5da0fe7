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
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from permea._arrays import Array
from permea.federation.aggregate import reasons_text
from permea.federation.agreement import Agreement
from permea.federation.errors import (
    FederationError,
    MissingPartiesWarning,
    SchemaError,
)
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
from permea.federation.transport import Failure, RetryPolicy, run_calls
from permea.privacy.moments import Moments, certify
from permea.privacy.release import Release, warn_if_worthless
from permea.privacy.scatter import loss_noise

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
    parties : sequence of MomentParty
        Parties in this process. Public facts are read from them (agreement, plan); rows are not.
    quorum : int, optional
        Parties that must reply, where more are wanted than the agreement requires.
    retry : RetryPolicy, optional
        Time-out, attempts and back-off for each stage.
    """

    def __init__(
        self,
        parties: Sequence[MomentParty],
        *,
        quorum: int | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        if not parties or not all(isinstance(party, MomentParty) for party in parties):
            raise FederationError("MomentFederation needs parties with rows: MomentParty.")
        self._parties = {party.name: party for party in parties}
        if len(self._parties) < len(parties):
            raise ValueError("Two parties have the same name. Give each party a name of its own.")
        self.agreement = _common_agreement(parties)
        self._least = max(self.agreement.least_parties, quorum or 1)
        self._retry = retry or RetryPolicy()
        self._missing: dict[str, str] = {}

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
        self._missing = {}
        round_id = secrets.token_hex(8)
        released, replied = self._moments_about_mean(round_id)
        model = next(iter(self._parties.values())).blank()
        if self.agreement.plan.n_directions:
            released, replied = self._with_scatter(round_id, model, released, replied)
        certificate = self._certificate(released.moments, replied)
        warn_if_worthless(certificate)
        model.learn(replace(released, certificate=certificate))
        if self.agreement.plan.n_losses:
            left = self._calibrate(round_id, model, released)
            if left < replied:  # fewer shares of the noise are on the losses
                model.certificate_ = self._certificate(released.moments, left)
        if self._missing:
            text = f"Parties are missing: {reasons_text(self._missing)}"
            warnings.warn(text, MissingPartiesWarning, stacklevel=2)
        return model

    def _moments_about_mean(self, round_id: str) -> tuple[Release, int]:
        """The first two stages, and how many parties replied."""
        plan, shares = self.agreement.plan, self.agreement.noise_shares
        request, D = {"agreement": self.agreement.digest}, self.agreement.plan.n_features
        first, _ = self._stage(
            round_id, D + 1, lambda party: party.mean_message(round_id, shares, **request)
        )
        mean = self._mean(first)
        second, replied = self._stage(
            round_id,
            D * (D + 1) // 2 + D * plan.n_outputs + plan.n_counts,
            lambda party: party.moment_message(round_id, shares, mean, **request),
        )
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
        d = P.shape[1]
        messages, left = self._stage(
            round_id,
            plan.n_outputs * d * (d + 1) // 2,
            lambda party: party.scatter_message(
                round_id, shares, P, agreement=self.agreement.digest
            ),
        )
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
        messages, left = self._stage(
            round_id,
            plan.n_losses,
            lambda party: party.loss_message(
                round_id, shares, released, agreement=self.agreement.digest
            ),
        )
        losses = np.sum([open_losses(message, plan) for message in messages], axis=0)
        model.calibrate(losses, loss_noise(plan) * math.sqrt(left / shares))
        return left

    def _stage(
        self, round_id: str, size: int, work: Callable[[MomentParty], Message]
    ) -> tuple[list[Message], int]:
        """Messages of the parties that replied, or their total; and how many replied.

        With shared noise the total is made by additive encryption: no role sees a single message.
        """
        if self.agreement.noise == "own":
            messages = self._replies(work, round_id)
            return messages, len(messages)
        from permea.federation.encryption.secure_sum import SecureSum

        scheme = SecureSum(n_parties=len(self._parties), n_values=size)
        secret, public = scheme.keygen()  # the reader of the total
        index = {name: i for i, name in enumerate(self._parties)}

        def encrypted(party: MomentParty) -> Message:
            message = work(party)
            return replace(
                message, values=scheme.encrypt(public, message.values, index[party.name])
            )

        found = self._replies(encrypted, round_id)
        total = scheme.aggregate(public, [message.values for message in found])  # the server
        units = sum(message.n_units for message in found)
        return [replace(found[0], values=scheme.decrypt(secret, total), n_units=units)], len(found)

    def _replies(self, work: Callable[[MomentParty], Message], round_id: str) -> list[Message]:
        """Replies of this round under this agreement; a party without one is missing."""
        expected = self.agreement.digest, round_id, self.agreement.noise_shares

        def request(names: Sequence[str], timeout: float | None) -> dict[str, Any]:
            return run_calls({n: partial(work, self._parties[n]) for n in names}, timeout)

        found = []
        names = [name for name in self._parties if name not in self._missing]
        for name, outcome in self._retry.run(request, names).items():
            if isinstance(outcome, Failure):
                self._missing[name] = outcome.reason
            elif (outcome.agreement, outcome.round_id, outcome.needed) != expected:
                self._missing[name] = "replied to another round, or under another agreement"
            else:
                found.append(outcome)
        check_replied(len(found), self._least, reasons_text(self._missing))
        return found

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
        seeded = any(party.seeded for party in self._parties.values())
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


def _common_agreement(parties: Sequence[MomentParty]) -> Agreement:
    first, *others = parties
    for party in others:
        if different := first.agreement.differences(party.agreement):
            raise SchemaError(
                f"{first.name!r} and {party.name!r} hold different agreements: they differ in "
                f"{', '.join(different)}. Parties learn together under one agreement."
            )
    return first.agreement

"""Moments of several parties: they add up, so a federation learns what one owner would.

Two ways, both pure functions of messages:

* every party adds all of the noise to its own moments and anybody may add them up
  (:func:`add_released`); the noise of n parties has √n times the deviation of one;
* parties send exact sums plus a *share* of the noise through a secure aggregation, which shows the
  server nothing but the total. The total then carries one noise and equals the centralised release.
  The shares are sized for ``needed`` parties: when more reply, there is more noise than promised;
  when fewer do, the round fails. How many are needed is decided by the owners of the rows
  (`permea.federation.agreement`), never by the coordinator.

Messages are whole numbers modulo 2**64, so their order and grouping do not matter.
"""

import operator
import re
import secrets
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from permea._arrays import Array
from permea.federation.aggregate import reasons_text
from permea.federation.agreement import Agreement, AgreementError
from permea.federation.errors import (
    FederationError,
    MissingPartiesWarning,
    RefusedError,
    SchemaError,
)
from permea.federation.party import checked_name
from permea.federation.transport import Failure, RetryPolicy, run_calls
from permea.privacy import moments as noising
from permea.privacy.ledger import Ledger
from permea.privacy.ledger_events import Receipt
from permea.privacy.moments import FeatureSums, MomentPlan, Moments, MomentSums
from permea.privacy.release import Release, require_groups, warn_if_worthless
from permea.privacy.sampling import BitSource, Process, bit_source, this_process
from permea.privacy.signing import TrustedKeys


class DropOutError(FederationError):
    """Too few parties replied: their noise would not suffice. Nothing was decrypted."""


@dataclass(frozen=True)
class Message:
    """What one party contributes to a secure aggregation.

    Parameters
    ----------
    values : ndarray of int64, or bytes
        Noised sums, or a ciphertext of them.
    n_units : int
        Number of records or persons: public when neighbours are replaced, and 0 (not sent) when
        they come and go.
    needed : int
        Number of parties that the share of the noise was sized for.
    agreement, round_id : str
        Digest of the agreement and name of the round that the message belongs to.
    """

    values: Any
    n_units: int
    needed: int
    agreement: str = ""
    round_id: str = ""


def mean_message(sums: FeatureSums, plan: MomentPlan, needed: int, source: BitSource) -> Message:
    """A party's sum of features with its share of the noise, for the first stage."""
    noised = noising.noised_mean_steps(
        sums, noising.mean_noise(plan, source, shares=_positive(needed)), plan
    )
    values = np.append(noised.features, np.int64(noised.size))
    return Message(values, sums.n_units if plan.size_is_public else 0, needed)


def moment_message(sums: MomentSums, plan: MomentPlan, needed: int, source: BitSource) -> Message:
    """A party's moments about the common noised mean with its share of the noise.

    Of the symmetric matrix the upper triangle is sent.
    """
    noised = noising.add_noise(
        sums, noising.moment_noise(plan, source, shares=_positive(needed)), plan
    )
    upper = noised.second[np.triu_indices(plan.n_features)]
    return Message(
        np.concatenate([upper, noised.cross.ravel(), noised.counts]), noised.n_units, needed
    )


def _positive(needed: int) -> int:
    if needed < 1:
        raise ValueError(f"needed must be at least 1 party, got {needed}.")
    return needed


def aggregate(messages: Sequence[Message], *, least: int = 1) -> Message:
    """Add up messages modulo 2**64, as a secure aggregation does; fail when there are too few.

    Parameters
    ----------
    messages : sequence of Message
        Of one round, under one agreement, with noise sized for one number of parties.
    least : int, default=1
        Parties that must have replied, in addition to what their shares of the noise require.

    Examples
    --------
    >>> import numpy as np
    >>> one = Message(np.array([1, -2]), 3, 2)
    >>> aggregate([one, one]).values.tolist()
    [2, -4]
    >>> aggregate([one])
    Traceback (most recent call last):
        ...
    permea.federation.moments.DropOutError: 1 of at least 2 parties replied: their shares of the
    noise do not keep the promise. Nothing was decrypted.
    """
    if not messages:
        raise DropOutError("No party replied. Nothing was decrypted.")
    first = messages[0]
    for message in messages:
        if message.needed != first.needed:
            raise ValueError("The parties sized their noise for different numbers of parties.")
        if (message.agreement, message.round_id) != (first.agreement, first.round_id):
            raise ValueError("The messages belong to different agreements or rounds.")
        if message.values.shape != first.values.shape:
            raise ValueError("The parties' messages have different lengths: plans differ.")
    _check_replied(len(messages), max(first.needed, least))
    total = np.sum([message.values for message in messages], axis=0, dtype=np.int64)
    return replace(first, values=total, n_units=sum(message.n_units for message in messages))


def _check_replied(replied: int, least: int, reasons: str = "") -> None:
    """Raise unless at least ``least`` parties replied."""
    if replied < least:
        raise DropOutError(
            f"{replied} of at least {least} parties replied: their shares of the noise do not "
            f"keep the promise. Nothing was decrypted.{reasons and f' Missing: {reasons}'}"
        )


def open_mean(total: Message, plan: MomentPlan) -> NDArray[np.float64]:
    """The noised mean of all rows."""
    return noising.mean_from_steps(
        noising.MeanNoise(total.values[:-1], int(total.values[-1])), plan
    )


def open_moments(total: Message, plan: MomentPlan) -> Moments:
    """The noised moments of all rows, ready to learn from."""
    D, C = plan.n_features, plan.n_outputs
    above = np.triu_indices(D)
    triangle, rest = total.values[: above[0].size], total.values[above[0].size :]
    second = np.zeros((D, D), dtype=np.int64)
    second[above] = triangle
    second = np.where(np.tri(D, k=-1, dtype=bool), second.T, second)
    cross, counts = rest[: D * C].reshape(D, C), rest[D * C :]
    weight = total.n_units * noising.UNIT_STEPS
    return noising.moments_from_steps(MomentSums(second, cross, counts, weight), plan)


def add_released(parts: Sequence[Moments]) -> Moments:
    """Add moments that left their owners with all of the noise, about one common origin."""
    if not parts:
        raise DropOutError("No party replied.")
    return reduce(operator.add, parts)


_ROUND_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ROUNDING = 1e-6  # by which the norm of a mean may exceed the bound of the features


@dataclass
class _Round:
    """One charged round: what was sent in it, and the noise that is left to draw."""

    round_id: str
    receipt: Receipt
    source: BitSource
    sent: dict[str, Message] = field(default_factory=dict)
    mean: Array | None = None
    released: bool = False


@dataclass
class _Rounds:
    """The current round of a party, and a lock. It belongs to one object in one process."""

    process: Process = field(default_factory=this_process)
    lock: Any = field(default_factory=threading.Lock)
    current: _Round | None = None


class MomentParty:
    """An owner's rows as a federation of moments sees them: a name and noised sums.

    Parameters
    ----------
    name : str
        Name of the party, one of those in the agreement.
    estimator : MomentClassifier or MomentRegressor
        What is to be learned, not fitted: with ``privacy``, and ``classes`` or ``output_domain``.
        It must match the agreement. Its ``random_state`` is the party's own.
    X, y : array-like
        Its rows and outputs. They stay here. For an estimator with a schema, X is a frame, and y
        may be None where the schema names its column.
    groups : array-like, optional
        Whose each row is, for ``unit="person"``; a schema's person column by default. All rows of
        a person must be with one party: with k parties, she would count k times.
    agreement : Agreement
        What the owner agreed to, signed. Requests that differ from it are refused.
    trusted : TrustedKeys
        Keys whose signature on an agreement the owner accepts.
    ledger : Ledger, optional
        Charged for every round before anything is computed. By default the estimator's; one of
        the two is required.
    dataset : str, optional
        Name of the rows in the ledger. By default the estimator's.

    Examples
    --------
    >>> import numpy as np
    >>> from permea import MomentClassifier
    >>> from permea.federation import Agreement, MomentFederation
    >>> from permea.privacy import Ledger, Privacy
    >>> from permea.privacy.signing import SigningKey, TrustedKeys
    >>> X = np.random.default_rng(0).random((900, 3)); y = (X[:, 0] > 0.5).astype(int)
    >>> promise = Privacy(epsilon=4, delta=1e-5, unit="record", domain=(0, 1))
    >>> wanted = MomentClassifier(privacy=promise, features="identity", classes=[0, 1])
    >>> names = ["clinic-0", "clinic-1", "clinic-2"]
    >>> key = SigningKey.generate("steering-committee")
    >>> agreed = Agreement.of(wanted, n_columns=3, parties=names).signed(by=key)
    >>> trusted = TrustedKeys([key.public])
    >>> parties = [
    ...     MomentParty(
    ...         name, wanted, X[i::3], y[i::3], agreement=agreed, trusted=trusted, ledger=Ledger()
    ...     )
    ...     for i, name in enumerate(names)
    ... ]
    >>> model = MomentFederation(parties).fit()
    >>> model.score(X, y) > 0.9, model.certificate_.is_private
    (True, True)
    """

    def __init__(
        self,
        name: str,
        estimator: BaseEstimator,
        X: Any,
        y: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        agreement: Agreement,
        trusted: TrustedKeys,
        ledger: Ledger | None = None,
        dataset: str | None = None,
    ) -> None:
        self.name = checked_name(name)
        schema = estimator.schema
        data: tuple[Any, Any] = (X, y) if schema is not None else _matrix(X, y)
        self._X, self._y = data
        self._n_columns = self._X.shape[1] if schema is None else len(schema.features)
        self.n_targets: int = np.shape(self._y)[1] if np.ndim(self._y) == 2 else 1
        if schema is None or schema.person is None:
            require_groups(estimator.privacy, groups)
        self._groups = groups
        account = estimator.ledger if ledger is None else ledger
        if account is None:
            raise ValueError(
                "A party that keeps no account cannot promise anything about several rounds: give "
                "it ledger=Ledger('rounds.db'), or ledger=Ledger() for one that ends with the "
                "process."
            )
        self._ledger: Ledger = account
        self._dataset: str | None = estimator.dataset if dataset is None else dataset
        self._random_state = estimator.random_state
        self._estimator = _like(estimator)
        self.plan: MomentPlan = self._estimator.prepare(self._n_columns, self.n_targets)
        self.agreement = self._accepted(agreement, trusted)
        self._rounds = _Rounds()

    def _accepted(self, agreement: Agreement, trusted: TrustedKeys) -> Agreement:
        """The agreement, if a trusted key signed it and it matches this party."""
        if not isinstance(agreement, Agreement):
            raise TypeError("agreement must be an Agreement: see Agreement.of.")
        if not agreement.signers(trusted):
            raise AgreementError(
                "No trusted key has signed this agreement. Read agreement.describe(), then sign it "
                "with agreement.signed(by=key) or let an owner whose key you trust sign it."
            )
        if self.name not in agreement.parties:
            raise AgreementError(f"The agreement does not name the party {self.name!r}.")
        own = Agreement.of(
            self._estimator, self._n_columns, parties=agreement.parties, noise=agreement.noise,
            noise_shares=agreement.noise_shares, least_parties=agreement.least_parties,
            rounds=agreement.rounds, n_targets=self.n_targets,
        )  # fmt: skip
        if different := agreement.differences(own):
            raise AgreementError(
                f"The agreement and this party's estimator or rows differ in "
                f"{', '.join(different)}. Make the party as agreed, or sign a new agreement."
            )
        return agreement

    @property
    def seeded(self) -> bool:
        """Whether the noise can be repeated by whoever knows the seed."""
        return self._random_state is not None

    def blank(self) -> Any:
        """An estimator like this party's, prepared and without rows: it learns from totals."""
        estimator = _like(self._estimator)
        estimator.prepare(self._n_columns, self.n_targets)
        return estimator

    # ---- messages --------------------------------------------------------------------------------

    def mean_message(self, round_id: str, needed: int, *, agreement: str) -> Message:
        """First stage: noised sum of the features.

        The ledger is charged for both stages before anything is computed. A repeated request in
        the same round gets the same message; noise is never drawn twice for one sum.

        Parameters
        ----------
        round_id : str
            Up to 64 letters, digits, ``-`` and ``_``; a new one is a new round.
        needed : int
            Number of shares of the noise: as agreed, anything else is refused.
        agreement : str
            Digest of the agreement.
        """
        self._check_request(round_id, needed, agreement)
        rounds = self._own_rounds()
        with rounds.lock:
            if rounds.current is None or rounds.current.round_id != round_id:
                rounds.current = self._begin(round_id)  # the one before it is over
            return self._once(rounds.current, "mean", self._noised_mean)

    def moment_message(
        self, round_id: str, needed: int, mean: ArrayLike, *, agreement: str
    ) -> Message:
        """Second stage: noised moments about the noised mean of all."""
        self._check_request(round_id, needed, agreement)
        centre = self._checked_mean(mean)
        rounds = self._own_rounds()
        with rounds.lock:
            current = rounds.current
            if current is None or current.round_id != round_id or "mean" not in current.sent:
                raise RefusedError(
                    "This round did not begin here: request the mean first, then the moments."
                )
            if current.mean is not None and not np.array_equal(current.mean, centre):
                raise RefusedError("The moments of this round left about another mean already.")
            current.mean = centre
            message = self._once(current, "moments", self._noised_moments)
            if not current.released:
                self._ledger.released(current.receipt)
                current.released = True
            return message

    def _check_request(self, round_id: str, needed: int, agreement: str) -> None:
        if agreement != self.agreement.digest:
            raise RefusedError("The request names another agreement than the one of this party.")
        if needed != self.agreement.noise_shares or isinstance(needed, bool):
            raise RefusedError(
                "The request is for noise in another number of shares than the "
                f"{self.agreement.noise_shares} that were agreed on."
            )
        if not isinstance(round_id, str) or not _ROUND_ID.fullmatch(round_id):
            raise RefusedError("A round is named by 1 to 64 letters, digits, '-' and '_'.")

    def _checked_mean(self, mean: ArrayLike) -> Array:
        """A centre of the right size: rows are clipped around it, so any finite one is safe."""
        try:
            centre = np.array(mean, dtype=np.float64)
        except (TypeError, ValueError):
            raise RefusedError("The mean must be an array of numbers.") from None
        if centre.shape != (self.plan.n_features,) or not np.all(np.isfinite(centre)):
            raise RefusedError(f"The mean must be {self.plan.n_features} finite numbers.")
        longest = self.plan.feature_norm * (1.0 + _ROUNDING)
        if np.max(np.abs(centre)) > longest or np.linalg.norm(centre) > longest:
            raise RefusedError("The mean is longer than any row of features can be.")
        return centre

    def _own_rounds(self) -> _Rounds:
        """The rounds of this process: in a fork none of them goes on."""
        if self._rounds.process != this_process():
            self._rounds = _Rounds()
        return self._rounds

    def _begin(self, round_id: str) -> _Round:
        """Charge a new round. Nothing about the rows is computed, and no error depends on them."""
        charged = self._charged_rounds()
        if round_id in charged.values():
            raise RefusedError("This round is over, and its noise is not drawn again.")
        if len(charged) >= self.agreement.rounds:
            raise RefusedError(
                f"All {self.agreement.rounds} rounds of the agreement are used up. For more rounds "
                "the owners must sign a new agreement."
            )
        name = self._ledger.name_for(self._dataset, self._X)
        receipt = self._ledger.charge(self.plan.event(name, self._description(round_id)))
        before = sum(number < receipt.number for number in self._charged_rounds())
        if before >= self.agreement.rounds:
            raise RefusedError("Another process has used up the last round of the agreement.")
        return _Round(round_id, receipt, bit_source(self._random_state))

    def _description(self, round_id: str) -> str:
        """For the ledger; it is also where the rounds of an agreement are counted."""
        noise = "all of the noise"
        if self.agreement.noise == "shared":
            shares, alone = self.agreement.noise_shares, self.agreement.collusion_epsilon(0, 1)
            noise = f"1 of {shares} shares of the noise (by itself ε = {alone:.3g})"
        return (
            f"noised moments of {self.plan.n_features} features in a federation, {noise}; "
            f"{self._mark()} {round_id}"
        )

    def _mark(self) -> str:
        return f"agreement {self.agreement.digest}, party {self.name!r}, round"

    def _charged_rounds(self) -> dict[int, str]:
        """Rounds of this agreement in the ledger by number of the event, from all processes."""
        pattern = re.compile(re.escape(self._mark()) + r" ([A-Za-z0-9_-]+)")
        found = {event.number: pattern.search(event.description) for event in self._ledger.events}
        return {number: match.group(1) for number, match in found.items() if match is not None}

    def _once(self, current: _Round, stage: str, make: Callable[[_Round], Message]) -> Message:
        """The message of a stage: computed once, repeated after that."""
        if stage not in current.sent:
            try:
                message = make(current)
            except (TypeError, ValueError, ArithmeticError) as error:
                raise RefusedError(
                    "The rows of this party cannot be summed as agreed. Its owner sees the details."
                ) from error
            message.values.setflags(write=False)
            current.sent[stage] = replace(
                message, agreement=self.agreement.digest, round_id=current.round_id
            )
        return current.sent[stage]

    def _noised_mean(self, current: _Round) -> Message:
        sums = self._estimator.feature_sums(self._X, self.plan, y=self._y, groups=self._groups)
        if sums.n_units > self.plan.most_rows():
            raise OverflowError(
                f"More than {self.plan.most_rows()} units do not fit into the sums."
            )
        return mean_message(sums, self.plan, self.agreement.noise_shares, current.source)

    def _noised_moments(self, current: _Round) -> Message:
        sums = self._estimator.moment_sums(
            self._X, self._y, current.mean, self.plan, groups=self._groups
        )
        return moment_message(sums, self.plan, self.agreement.noise_shares, current.source)

    # ---- copies ----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins without rounds, so that no round is finished twice."""
        return {name: value for name, value in vars(self).items() if name != "_rounds"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._rounds = _Rounds()

    def __repr__(self) -> str:
        return f"MomentParty({self.name!r}, {type(self._estimator).__name__})"


def _matrix(X: ArrayLike, y: ArrayLike | None) -> tuple[Array, NDArray[Any]]:
    """Rows and outputs as arrays; only their shapes are checked."""
    try:
        rows, outputs = np.asarray(X, dtype=np.float64), np.asarray(y)
    except (TypeError, ValueError):
        raise ValueError("X must be a matrix of numbers.") from None
    if rows.ndim != 2 or outputs.ndim not in (1, 2) or len(rows) != len(outputs):
        raise ValueError("X must be a matrix with as many rows as y has.")
    return rows, outputs


def _like(estimator: Any) -> Any:
    """The same settings without a ledger; a fitted public transformer stays fitted."""
    settings = estimator.get_params(deep=False)
    return type(estimator)(**{**settings, "ledger": None, "dataset": None, "random_state": None})


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
        plan, round_id, self._missing = self.agreement.plan, secrets.token_hex(8), {}
        request: dict[str, Any] = {"agreement": self.agreement.digest}
        shares, D = self.agreement.noise_shares, plan.n_features
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
        if self._missing:
            text = f"Parties are missing: {reasons_text(self._missing)}"
            warnings.warn(text, MissingPartiesWarning, stacklevel=2)
        certificate = self._certificate(moments, replied)
        warn_if_worthless(certificate)
        blank = next(iter(self._parties.values())).blank()
        return blank.learn(
            Release(certificate=certificate, moments=moments, mean=np.asarray(mean, np.float64))
        )

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
        _check_replied(len(found), self._least, reasons_text(self._missing))
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
            noising.certify(agreement.plan, moments, seeded)
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

"""Moments of several parties: they add up, so a federation learns what one owner would.

Two ways, both pure functions of messages:

* every party noises its own moments fully and anybody may add them (:func:`add_released`); the
  noise of n parties has √n times the deviation of one;
* parties send exact sums plus a *share* of the noise through a secure aggregation, which shows the
  server nothing but the total (additive encryption, or masks that cancel). The total then carries
  one noise and equals the centralised release. The shares are sized for ``needed`` parties: when
  more answer, there is more noise than promised; when fewer do, the round fails. How many are
  needed is decided by the owners of the rows (`permea.federation.agreement`), never by whoever
  adds up.

Messages are whole numbers modulo 2**64, so their order and grouping do not matter.
"""

import re
import secrets
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from permea._arrays import Array
from permea.federation.agreement import Agreement, AgreementError
from permea.federation.errors import (
    FederationError,
    MissingPartiesWarning,
    RefusedError,
    SchemaError,
)
from permea.federation.party import checked_name
from permea.federation.schema import Schema
from permea.federation.transport import Failure, Outcome
from permea.privacy.ledger import Ledger
from permea.privacy.ledger_events import Receipt
from permea.privacy.moments import (
    FeatureSums,
    MeanNoise,
    MomentPlan,
    Moments,
    MomentSums,
    add_noise,
    certify,
    mean_from_steps,
    mean_noise,
    moment_noise,
    moments_from_steps,
    noised_mean_steps,
)
from permea.privacy.release import Release, warn_if_worthless
from permea.privacy.sampling import BitSource, Process, bit_source, this_process
from permea.privacy.signing import TrustedKeys

Words = NDArray[np.int64]


class DropOutError(RuntimeError):
    """Raised when too few parties answered: their noise would not suffice. Nothing is opened."""


@dataclass(frozen=True)
class Message:
    """What one party puts into a secure aggregation: whole numbers, and the number of rows.

    ``n_rows`` is public when neighbours are replaced, and 0 (not sent) when they come and go.
    ``needed`` is the number of parties its share of the noise was sized for. ``agreement`` is the
    digest of the agreement under which the party answered, ``round_id`` the round it answered.
    """

    words: Words
    n_rows: int
    needed: int
    agreement: str = ""
    round_id: str = ""


def mean_message(sums: FeatureSums, plan: MomentPlan, needed: int, source: BitSource) -> Message:
    """A party's sum of features with its share of the noise, for the first round."""
    _check_needed(needed)
    noised = noised_mean_steps(sums, mean_noise(plan, source, shares=needed), plan)
    words = np.append(noised.features, np.int64(noised.size))
    public_rows = sums.n_rows if plan.neighbours == "replace" else 0
    return Message(words, public_rows, needed)


def moment_message(sums: MomentSums, plan: MomentPlan, needed: int, source: BitSource) -> Message:
    """A party's moments about the common noised mean with its share of the noise.

    Of the symmetric matrix the upper triangle is sent.
    """
    _check_needed(needed)
    noised = add_noise(sums, moment_noise(plan, source, shares=needed), plan)
    upper = noised.second[np.triu_indices(plan.n_features)]
    words = np.concatenate([upper, noised.cross.ravel(), noised.tally])
    return Message(words, noised.n_rows, needed)


def aggregate(messages: Sequence[Message], *, least: int = 1) -> Message:
    """Add up messages modulo 2**64, as a secure aggregation does; fail when too few came.

    Parameters
    ----------
    messages : sequence of Message
        Of one round, under one agreement, with noise sized for one number of parties.
    least : int, default=1
        Parties that must have answered, beside what their shares of the noise ask for.

    Examples
    --------
    >>> import numpy as np
    >>> one = Message(np.array([1, -2]), 3, 2)
    >>> aggregate([one, one]).words.tolist()
    [2, -4]
    >>> aggregate([one])
    Traceback (most recent call last):
        ...
    permea.federation.moments.DropOutError: 1 of at least 2 parties answered: their shares of the
    noise do not keep the promise. Nothing was opened.
    """
    if not messages:
        raise DropOutError("No party answered. Nothing was opened.")
    first = messages[0]
    for message in messages:
        if message.needed != first.needed:
            raise ValueError("The parties sized their noise for different numbers of parties.")
        if (message.agreement, message.round_id) != (first.agreement, first.round_id):
            raise ValueError("The parties answered under different agreements or rounds.")
        if message.words.shape != first.words.shape:
            raise ValueError("The parties' messages have different lengths: plans differ.")
    check_answered(len(messages), max(first.needed, least))
    total = np.zeros_like(first.words, dtype=np.int64)
    for message in messages:
        total += message.words
    return replace(first, words=total, n_rows=sum(message.n_rows for message in messages))


def check_answered(answered: int, least: int, reasons: str = "") -> None:
    """Raise unless at least ``least`` parties answered."""
    if answered < least:
        raise DropOutError(
            f"{answered} of at least {least} parties answered: their shares of the noise do not "
            f"keep the promise. Nothing was opened.{reasons and f' Missing: {reasons}'}"
        )


def open_mean(total: Message, plan: MomentPlan) -> NDArray[np.float64]:
    """The noised mean of all rows."""
    return mean_from_steps(MeanNoise(total.words[:-1], int(total.words[-1])), plan)


def open_moments(total: Message, plan: MomentPlan) -> Moments:
    """The noised moments of all rows, ready to learn from."""
    D, C = plan.n_features, plan.n_outputs
    above = np.triu_indices(D)
    triangle, rest = total.words[: above[0].size], total.words[above[0].size :]
    second = np.zeros((D, D), dtype=np.int64)
    second[above] = triangle
    second = np.where(np.tri(D, k=-1, dtype=bool), second.T, second)
    cross, tally = rest[: D * C].reshape(D, C), rest[D * C :]
    return moments_from_steps(MomentSums(second, cross, tally, total.n_rows), plan)


def mask(words: Words, party: int, pairs: dict[int, BitSource]) -> Words:
    """Hide a message by masks that cancel in the sum: one stream shared with every other party.

    The party of the smaller number adds the mask of a pair, the other subtracts it. All parties
    must answer; a federation with drop-outs uses an aggregation that repairs them.

    Examples
    --------
    >>> import numpy as np
    >>> from permea.privacy.sampling import SeededBits
    >>> a = mask(np.array([5, 7]), 0, {1: SeededBits(9)})
    >>> b = mask(np.array([1, 1]), 1, {0: SeededBits(9)})
    >>> (a + b).tolist()
    [6, 8]
    """
    hidden = words.astype(np.int64).copy()
    for other, stream in pairs.items():
        noise = stream.words(words.size).view(np.int64)
        hidden += noise if party < other else -noise
    return hidden


def add_released(parts: Sequence[Moments]) -> Moments:
    """Add moments that left their owners fully noised, about one common origin."""
    if not parts:
        raise DropOutError("No party answered.")
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _check_needed(needed: int) -> None:
    if needed < 1:
        raise ValueError("At least one party must be needed.")


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


class _Rounds:
    """The round that a party is in, and a lock. It belongs to one object in one process."""

    def __init__(self) -> None:
        self.process: Process = this_process()
        self.lock = threading.Lock()
        self.current: _Round | None = None


class MomentParty:
    """An owner's rows as a federation of moments sees them: a name, a schema, noised sums.

    Parameters
    ----------
    name : str
        Name of the party, one of those in the agreement.
    estimator : MomentClassifier or MomentRegressor
        What is to be learned, not fitted: with ``privacy``, and ``classes`` or ``output_domain``.
        It must be what the agreement says. Its ``random_state`` is the party's own.
    X, y : array-like
        Its rows and outputs. They stay here.
    agreement : Agreement
        What the owner agreed to, signed. Requests that differ from it are refused.
    trusted : TrustedKeys
        Keys whose signature on an agreement the owner accepts: her own, or others.
    ledger : Ledger, optional
        Charged for every round before anything is computed. By default the estimator's; a party
        without one cannot be made.
    dataset : str, optional
        Name of the rows in the ledger. By default the estimator's.

    Examples
    --------
    >>> import numpy as np
    >>> from permea import MomentClassifier
    >>> from permea.federation import Agreement, Federation
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
    >>> model = Federation(parties).fit_moments()
    >>> model.score(X, y) > 0.9, model.certificate_.is_private
    (True, True)
    """

    certificate = None  # nothing was released yet
    objections: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike,
        *,
        agreement: Agreement,
        trusted: TrustedKeys,
        ledger: Ledger | None = None,
        dataset: str | None = None,
    ) -> None:
        self.name = checked_name(name)
        self._X, self._y = _matrix(X, y)
        self.n_targets = self._y.shape[1] if self._y.ndim == 2 else 1
        self._ledger: Ledger = _account(estimator.ledger if ledger is None else ledger)
        self._dataset: str | None = estimator.dataset if dataset is None else dataset
        self._random_state = estimator.random_state
        self._estimator = _like(estimator)
        self.plan: MomentPlan = self._estimator.prepare(self._X.shape[1], self.n_targets)
        self.agreement = self._accepted(agreement, trusted)
        self.schema = self._make_schema()
        self._rounds = _Rounds()

    def _accepted(self, agreement: Agreement, trusted: TrustedKeys) -> Agreement:
        """The agreement, if the owner's keys signed it and it says what this party would do."""
        if not isinstance(agreement, Agreement):
            raise TypeError("agreement must be an Agreement: see Agreement.of.")
        if not agreement.signers(trusted):
            raise AgreementError(
                "No trusted key has signed this agreement. Read agreement.describe(), sign it with "
                "agreement.signed(by=key) or ask an owner whose key you trust to sign it."
            )
        if self.name not in agreement.parties:
            raise AgreementError(f"The agreement does not name the party {self.name!r}.")
        own = Agreement.of(
            self._estimator, self._X.shape[1], parties=agreement.parties, noise=agreement.noise,
            noise_shares=agreement.noise_shares, least_parties=agreement.least_parties,
            rounds=agreement.rounds, n_targets=self.n_targets,
        )  # fmt: skip
        if different := agreement.differences(own):
            raise AgreementError(
                f"The agreement and this party's estimator or rows differ in "
                f"{', '.join(different)}. Make the party with what was agreed on, or agree anew."
            )
        return agreement

    def _make_schema(self) -> Schema:
        outputs = getattr(self._estimator, "classes_", None)
        names = [f"y{k}" for k in range(self.n_targets)]
        return Schema(
            n_features=self._X.shape[1],
            classes=tuple(names if outputs is None else np.asarray(outputs).tolist()),
            domain=self.plan.privacy.domain,
        )

    @property
    def seeded(self) -> bool:
        """Whether the noise can be repeated by whoever knows the seed."""
        return self._random_state is not None

    def blank(self) -> Any:
        """An estimator like this party's, prepared and without rows: it learns from totals."""
        estimator = _like(self._estimator)
        estimator.prepare(self._X.shape[1], self.n_targets)
        return estimator

    # ---- answers ---------------------------------------------------------------------------------

    def mean_message(self, round_id: str, needed: int, *, agreement: str) -> Message:
        """First stage: noised sum of the features.

        The ledger is charged for both stages before anything is computed. Asked again in the same
        round the party repeats the same words; it never draws noise twice for one sum.

        Parameters
        ----------
        round_id : str
            Up to 64 letters, digits, ``-`` and ``_``; a new one is a new round.
        needed : int
            Number of shares of the noise: what was agreed on, anything else is refused.
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
                raise RefusedError("This round did not begin here: first the mean, then moments.")
            if current.mean is not None and not np.array_equal(current.mean, centre):
                raise RefusedError("The moments of this round left about another mean already.")
            current.mean = centre
            message = self._once(current, "moments", self._noised_moments)
            if not current.released:
                self._ledger.released(current.receipt)
                current.released = True
            return message

    def distances(self, X: ArrayLike, classes: Any = None, *, asker: str = "unknown") -> Array:
        """Refused: rows are no model."""
        raise RefusedError("This party has rows and no model: use fit_moments.")

    def _check_request(self, round_id: str, needed: int, agreement: str) -> None:
        if agreement != self.agreement.digest:
            raise RefusedError("The request names another agreement than this party's owner's.")
        if needed != self.agreement.noise_shares or isinstance(needed, bool):
            raise RefusedError(
                f"The request asks for noise in another number of shares than the "
                f"{self.agreement.noise_shares} that were agreed on."
            )
        if not isinstance(round_id, str) or not _ROUND_ID.fullmatch(round_id):
            raise RefusedError("A round is named by 1 to 64 letters, digits, '-' and '_'.")

    def _checked_mean(self, mean: ArrayLike) -> Array:
        """A centre of the right size: rows are clipped about it, so any finite one is safe."""
        try:
            centre = np.array(mean, dtype=np.float64)
        except (TypeError, ValueError):
            raise RefusedError("The mean is not made of numbers.") from None
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
        """Charge a new round. Nothing about the rows is computed, and no error tells of them."""
        charged = self._charged_rounds()
        if round_id in charged.values():
            raise RefusedError("This round is over, and its noise is not drawn again.")
        if len(charged) >= self.agreement.rounds:
            raise RefusedError(
                f"All {self.agreement.rounds} rounds of the agreement were answered. Owners who "
                "want more agree anew."
            )
        name = self._ledger.name_for(self._dataset, self._X)
        receipt = self._ledger.charge(self.plan.event(name, self._description(round_id)))
        before = sum(number < receipt.number for number in self._charged_rounds())
        if before >= self.agreement.rounds:
            raise RefusedError("Another process has answered the last round of the agreement.")
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
        """Rounds of this agreement in the ledger, by number of the event, whoever charged them."""
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
                    "The rows of this party cannot be summed as agreed; why is for its owner alone."
                ) from error
            message.words.setflags(write=False)
            current.sent[stage] = replace(
                message, agreement=self.agreement.digest, round_id=current.round_id
            )
        return current.sent[stage]

    def _noised_mean(self, current: _Round) -> Message:
        if len(self._X) > self.plan.most_rows():
            raise OverflowError(f"More than {self.plan.most_rows()} rows do not fit into the sums.")
        sums = self._estimator.feature_sums(self._X, self.plan)
        return mean_message(sums, self.plan, self.agreement.noise_shares, current.source)

    def _noised_moments(self, current: _Round) -> Message:
        sums = self._estimator.moment_sums(self._X, self._y, current.mean, self.plan)
        return moment_message(sums, self.plan, self.agreement.noise_shares, current.source)

    # ---- copies ----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins without rounds: half of one is not finished twice."""
        return {name: value for name, value in vars(self).items() if name != "_rounds"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._rounds = _Rounds()

    def __repr__(self) -> str:
        return f"MomentParty({self.name!r}, {type(self._estimator).__name__})"


def _matrix(X: ArrayLike, y: ArrayLike) -> tuple[Array, NDArray[Any]]:
    """Rows and outputs as arrays; only their shapes are looked at."""
    try:
        rows, outputs = np.asarray(X, dtype=np.float64), np.asarray(y)
    except (TypeError, ValueError):
        raise ValueError("X must be a matrix of numbers.") from None
    if rows.ndim != 2 or outputs.ndim not in (1, 2) or len(rows) != len(outputs):
        raise ValueError("X must be a matrix with as many rows as y has.")
    return rows, outputs


def _account(ledger: Ledger | None) -> Ledger:
    if ledger is None:
        raise ValueError(
            "A party that keeps no account cannot promise anything about several rounds: give it "
            "ledger=Ledger('rounds.db'), or ledger=Ledger() for one that ends with the process."
        )
    return ledger


def _like(estimator: Any) -> Any:
    """The same settings without anybody's ledger; a fitted public transformer stays fitted."""
    settings = estimator.get_params(deep=False)
    return type(estimator)(**{**settings, "ledger": None, "dataset": None, "random_state": None})


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
            Release(certificate=certificate, moments=moments, mean=np.asarray(mean, np.float64))
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

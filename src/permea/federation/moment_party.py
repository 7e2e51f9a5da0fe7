"""Parties that add up moments: one model, as if their rows lay in one place.

Two stages make a round. First the parties sum their features, and the noised mean of all is opened;
then they sum the moments about that mean. Each sum carries noise before it leaves the party: all of
it, or a share that suffices together with those of the others (`permea.federation.moments`).

The coordinator of a round is not trusted with the noise. Every request names the agreement that the
party's owner accepted (`permea.federation.agreement`), every round is charged to the party's ledger
before anything is computed, and each stage of a round draws noise once.
"""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from permea.federation.agreement import Agreement, AgreementError
from permea.federation.errors import RefusedError
from permea.federation.moments import Message, mean_message, moment_message
from permea.federation.party import checked_name
from permea.federation.schema import Schema
from permea.models.base import Array
from permea.privacy.bits import BitSource, Process, bit_source, this_process
from permea.privacy.ledger import Ledger, Receipt
from permea.privacy.moments import MomentPlan
from permea.privacy.signing import TrustedKeys

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

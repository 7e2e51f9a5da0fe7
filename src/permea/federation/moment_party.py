"""A party of a federation of moments: what it checks, charges and sends.

Whoever owns the rows decides the noise. Every request is compared with the agreement that the owner
signed; a round is charged to the ledger of the party before anything is computed; in a round every
stage is computed once, about one question, and a repeated request gets the same message.
"""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from permea._arrays import Array
from permea.federation.agreement import Agreement, AgreementError
from permea.federation.errors import (
    RefusedError,
)
from permea.federation.messages import (
    Message,
    loss_message,
    mean_message,
    moment_message,
    scatter_message,
)
from permea.federation.party import checked_name
from permea.privacy.ledger import Ledger
from permea.privacy.ledger_events import Receipt
from permea.privacy.moments import MomentPlan, Moments
from permea.privacy.release import Release, require_groups
from permea.privacy.sampling import BitSource, Process, bit_source, this_process
from permea.privacy.scatter import ClassScatter
from permea.privacy.signing import TrustedKeys

_ROUND_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ROUNDING = 1e-6  # by which the norm of a mean may exceed the bound of the features
_STAGES = ("mean", "moments", "scatter", "losses")
_ANOTHER = {
    "moments": "The moments of this round left about another mean already.",
    "scatter": "The scatter of this round left in other directions already.",
    "losses": "The losses of this round left for another model already.",
}


@dataclass
class _Round:
    """One charged round: what was sent in it, and the noise that is left to draw."""

    round_id: str
    receipt: Receipt
    source: BitSource
    sent: dict[str, Message] = field(default_factory=dict)
    asked: dict[str, tuple[Array, ...]] = field(default_factory=dict)  #: what each stage is about
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
        return self._follow("moments", round_id, (centre,), self._noised_moments)

    def scatter_message(
        self, round_id: str, needed: int, directions: ArrayLike, *, agreement: str
    ) -> Message:
        """Third stage, where it is planned: noised second moments of the classes.

        The bound on what a row adds holds for any directions, because what a row is in them is
        shrunk to the radius again (`permea.privacy.scatter.sum_scatter`).
        """
        self._check_request(round_id, needed, agreement)
        P = self._checked_directions(directions)
        return self._follow("scatter", round_id, (P,), self._noised_scatter)

    def loss_message(
        self, round_id: str, needed: int, released: Release, *, agreement: str
    ) -> Message:
        """Last stage, where it is planned: noised sums of the losses of what was learned.

        The party learns from the totals itself, as the coordinator does; its losses are those of
        this model. The bound holds for any totals, because every loss is cut to [0, 1].
        """
        self._check_request(round_id, needed, agreement)
        if self.plan.n_losses == 0:
            raise RefusedError("No losses are part of what was agreed on.")
        return self._follow("losses", round_id, self._checked_totals(released), self._noised_losses)

    def _follow(
        self,
        stage: str,
        round_id: str,
        asked: tuple[Array, ...],
        make: Callable[[_Round], Message],
    ) -> Message:
        """The message of a stage after the first: once, about one question, in its order."""
        before = _STAGES[_STAGES.index(stage) - 1]
        rounds = self._own_rounds()
        with rounds.lock:
            current = rounds.current
            if current is None or current.round_id != round_id or before not in current.sent:
                raise RefusedError(
                    "This round did not begin here: request the mean first, then the moments, and "
                    "after them what follows."
                )
            known = current.asked.setdefault(stage, asked)
            if not all(map(np.array_equal, known, asked)):
                raise RefusedError(_ANOTHER[stage])
            message = self._once(current, stage, make)
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
        centre = _numbers(mean, "The mean")
        if centre.shape != (self.plan.n_features,):
            raise RefusedError(f"The mean must be {self.plan.n_features} finite numbers.")
        longest = self.plan.feature_norm * (1.0 + _ROUNDING)
        if np.max(np.abs(centre)) > longest or np.linalg.norm(centre) > longest:
            raise RefusedError("The mean is longer than any row of features can be.")
        return centre

    def _checked_directions(self, directions: ArrayLike) -> Array:
        """Directions of features, perhaps with a centre for every class; no more than planned."""
        plan = self.plan
        if plan.n_directions == 0:
            raise RefusedError("No scatter of the classes is part of what was agreed on.")
        P, heights = _numbers(directions, "The directions"), (0, plan.n_outputs)
        right = P.ndim == 2 and len(P) - plan.n_features in heights
        if not right or not 1 <= P.shape[1] <= plan.n_directions:
            raise RefusedError(
                f"The directions must be a matrix of {plan.n_features} rows, or "
                f"{plan.n_outputs} more, and at most {plan.n_directions} columns."
            )
        return P

    def _checked_totals(self, released: Release) -> tuple[Array, ...]:
        """Totals of the right shapes, as arrays."""
        moments, scatter = getattr(released, "moments", None), getattr(released, "scatter", None)
        if not isinstance(moments, Moments) or not isinstance(scatter, ClassScatter):
            raise RefusedError("The totals must be released moments and the scatter of classes.")
        P = self._checked_directions(scatter.directions)
        D, C, d = self.plan.n_features, self.plan.n_outputs, P.shape[1]
        shapes = [(D, D), (D, C), (D,), (C,), (C,), (), (), (), ()]
        found = [_numbers(getattr(moments, one.name), "The totals") for one in fields(Moments)]
        found += [_numbers(part, "The totals") for part in (scatter.second, scatter.noise)]
        if [part.shape for part in found] != [*shapes, (C, d, d), ()]:
            raise RefusedError("The totals are not those of the agreed release.")
        return P, *found

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
        (mean,) = current.asked["moments"]
        sums = self._estimator.moment_sums(self._X, self._y, mean, self.plan, groups=self._groups)
        return moment_message(sums, self.plan, self.agreement.noise_shares, current.source)

    def _noised_scatter(self, current: _Round) -> Message:
        (mean,), (P,) = current.asked["moments"], current.asked["scatter"]
        sums = self._estimator.scatter_sums(
            self._X, self._y, mean, P, self.plan, groups=self._groups
        )
        units = current.sent["moments"].n_units
        return scatter_message(sums, units, self.plan, self.agreement.noise_shares, current.source)

    def _noised_losses(self, current: _Round) -> Message:
        """Losses of the model that follows from the totals in question."""
        P, *totals, second, noise = current.asked["losses"]
        (mean,) = current.asked["moments"]
        sizes = (float(number) for number in totals[5:])
        moments = Moments(*totals[:5], *sizes)  # type: ignore[arg-type]
        scatter = ClassScatter(P, second, float(noise))
        try:
            learner = self.blank().learn(Release(moments=moments, mean=mean, scatter=scatter))
        except (ValueError, ArithmeticError):
            raise RefusedError("No model can be learned from these totals.") from None
        sums = learner.loss_sums(self._X, self._y, self.plan, groups=self._groups)
        return loss_message(sums, self.plan, self.agreement.noise_shares, current.source)

    # ---- copies ----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins without rounds, so that no round is finished twice."""
        return {name: value for name, value in vars(self).items() if name != "_rounds"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._rounds = _Rounds()

    def __repr__(self) -> str:
        return f"MomentParty({self.name!r}, {type(self._estimator).__name__})"


def _numbers(values: Any, what: str) -> Array:
    """An array of finite numbers that came from outside."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise RefusedError(f"{what} must be an array of numbers.") from None
    if not np.all(np.isfinite(array)):
        raise RefusedError(f"{what} must be finite numbers.")
    return array


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

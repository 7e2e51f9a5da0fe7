"""Parties that add up moments: one model, as if their rows lay in one house.

Two rounds. First the parties sum their features, and the noised mean of all is opened; then they
sum the moments about that mean. Each sum carries noise before it leaves the party: all of it, or a
share that suffices together with those of the others (`permea.federation.moments`).
"""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone

from permea.federation.errors import RefusedError
from permea.federation.moments import Message, mean_message, moment_message
from permea.federation.party import checked_name
from permea.federation.schema import Schema
from permea.models.base import Array
from permea.privacy.bits import BitSource, bit_source
from permea.privacy.moments import MomentPlan

_OWN_BUSINESS = ("ledger", "dataset", "random_state")  # what parties need not agree on


class MomentParty:
    """An owner's rows as a federation of moments sees them: a name, a schema, noised sums.

    Parameters
    ----------
    name : str
        Name of the party.
    estimator : MomentClassifier or MomentRegressor
        What all parties agreed to learn, not fitted: with ``privacy``, and ``classes`` or
        ``output_domain``. Its ``ledger``, ``dataset`` and ``random_state`` are the party's own.
    X, y : array-like
        Its rows and outputs. They stay here.

    Examples
    --------
    >>> import numpy as np
    >>> from permea import MomentClassifier
    >>> from permea.federation import Federation
    >>> from permea.privacy import Privacy
    >>> X = np.random.default_rng(0).random((900, 3)); y = (X[:, 0] > 0.5).astype(int)
    >>> promise = Privacy(epsilon=4, delta=1e-5, unit="record", domain=(0, 1))
    >>> wanted = MomentClassifier(privacy=promise, features="identity", classes=[0, 1])
    >>> parties = [MomentParty(f"clinic-{i}", wanted, X[i::3], y[i::3]) for i in range(3)]
    >>> model = Federation(parties).fit_moments()
    >>> model.score(X, y) > 0.9, model.certificate_.is_private
    (True, True)
    """

    certificate = None  # nothing was released yet
    objections: tuple[str, ...] = ()

    def __init__(self, name: str, estimator: BaseEstimator, X: ArrayLike, y: ArrayLike) -> None:
        self.name = checked_name(name)
        self._template = estimator
        self._estimator = clone(estimator)
        self._X, self._y = np.asarray(X, dtype=np.float64), np.asarray(y)
        if self._X.ndim != 2 or len(self._X) != len(self._y):
            raise ValueError("X must be a matrix with as many rows as y has.")
        self.n_outputs = self._y.shape[1] if self._y.ndim == 2 else 1
        self.plan: MomentPlan = self._estimator.prepare(self._X.shape[1], self.n_outputs)
        self.schema = self._make_schema()
        self._round = ""
        self._source: BitSource | None = None
        self._sent: dict[str, Message] = {}
        self._mean: Array | None = None

    def _make_schema(self) -> Schema:
        outputs = getattr(self._estimator, "classes_", None)
        names = [f"y{k}" for k in range(self.n_outputs)]
        return Schema(
            n_features=self._X.shape[1],
            classes=tuple(names if outputs is None else np.asarray(outputs).tolist()),
            domain=self.plan.privacy.domain,
        )

    @property
    def seeded(self) -> bool:
        """Whether the noise can be repeated by whoever knows the seed."""
        return self._template.random_state is not None

    @property
    def agreement(self) -> str:
        """Hash of everything that all parties must have in common."""
        chosen = self._estimator.get_params(deep=True)
        words = {
            name: _stable(value) for name, value in chosen.items() if name not in _OWN_BUSINESS
        }
        text = repr((sorted(words.items()), self.schema.to_dict(), self.n_outputs))
        return hashlib.sha256(text.encode()).hexdigest()

    def blank(self) -> Any:
        """An estimator like this party's, prepared and without rows: it learns from totals."""
        estimator = clone(self._estimator).set_params(
            ledger=None, dataset="federation", random_state=None
        )
        estimator.prepare(self._X.shape[1], self.n_outputs)
        return estimator

    def mean_message(self, round_id: str, needed: int) -> Message:
        """First round: noised sum of the features.

        The party's ledger is charged for both rounds before anything is computed. Asked again in
        the same round it repeats the same words; it never draws noise twice for one sum.
        """
        if round_id != self._round:
            self._begin(round_id)

        def make() -> Message:
            sums = self._estimator.feature_sums(self._X, self.plan)
            return mean_message(sums, self.plan, needed, self._bits())

        return self._once("mean", needed, make)

    def moment_message(self, round_id: str, needed: int, mean: Array) -> Message:
        """Second round: noised moments about the noised mean of all."""
        if round_id != self._round or "mean" not in self._sent:
            raise RefusedError("This round did not begin here: first the mean, then the moments.")
        if self._mean is not None and not np.array_equal(self._mean, mean):
            raise RefusedError("The moments of this round left about another mean already.")
        self._mean = np.asarray(mean, dtype=np.float64)

        def make() -> Message:
            sums = self._estimator.moment_sums(self._X, self._y, self._mean, self.plan)
            return moment_message(sums, self.plan, needed, self._bits())

        return self._once("moments", needed, make)

    def distances(self, X: ArrayLike, classes: Any = None, *, asker: str = "unknown") -> Array:
        """Refused: rows are no model."""
        raise RefusedError("This party has rows and no model: use fit_moments.")

    def _begin(self, round_id: str) -> None:
        if len(self._X) > self.plan.most_rows():
            raise RefusedError(f"More than {self.plan.most_rows()} rows do not fit into the sums.")
        ledger = self._template.ledger
        if ledger is not None:
            text = f"noised moments of {self.plan.n_features} features in a federation"
            ledger.charge(self.plan.event(self._template.dataset, text))
        self._round, self._sent, self._mean = round_id, {}, None
        self._source = bit_source(self._template.random_state)

    def _bits(self) -> BitSource:
        assert self._source is not None
        return self._source

    def _once(self, stage: str, needed: int, make: Callable[[], Message]) -> Message:
        if stage not in self._sent:
            self._sent[stage] = make()
        if self._sent[stage].needed != needed:
            raise RefusedError("The noise of this round was sized for another number of parties.")
        return self._sent[stage]

    def __repr__(self) -> str:
        return f"MomentParty({self.name!r}, {self._template!r})"


def _stable(value: Any) -> str:
    """A value in words that are the same in every process."""
    if isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value)
        return f"{data.dtype} {data.shape} {hashlib.sha256(data.tobytes()).hexdigest()}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_stable(item) for item in value)}]"
    if isinstance(value, BaseEstimator):
        inner = {name: _stable(item) for name, item in value.get_params(deep=False).items()}
        return f"{type(value).__qualname__} {sorted(inner.items())}"
    if isinstance(value, range):
        return _stable(list(value))
    return repr(value)

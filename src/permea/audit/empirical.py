"""Empirical ε: what a training or a release has leaked at least.

Canaries are rows (or entries) whose value is decided by a coin. Whoever sees the result guesses the
coins; guessing better than an (ε,δ)-private training allows proves that ε is larger. The bound
holds for the neighbour relation of the coins:

``unit="record"``, ``neighbours="replace"``
    the coin decides which of two rows is in the data, whose number of rows is public;
``unit="record"``, ``neighbours="add/remove"``
    the coin decides whether the row is in the data at all;
``unit="entry"``
    the coin decides whether one entry is at the low or at the high end of its domain.

References
----------
Steinke, Nasr, Jagielski (2023), Privacy Auditing with One (1) Training Run, NeurIPS.
Jagielski, Ullman, Oprea (2020), Auditing Differentially Private Machine Learning, NeurIPS.
Nasr et al. (2023), Tight Auditing of Differentially Private Machine Learning, USENIX Security.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from permea._progress import progress
from permea.audit import signals
from permea.audit.bounds import multi_run_epsilon, one_run_epsilon

Array = NDArray[np.float64]
Domain = tuple[ArrayLike, ArrayLike]
#: Two versions of each canary, with labels: the coin picks one. A label of None: no row at all.
Versions = tuple[Array, NDArray[Any], Array | None, NDArray[Any]]

RELATIONS = {"entry": ("replace",), "record": ("replace", "add/remove")}


@dataclass(frozen=True)
class EmpiricalEpsilon:
    """A lower bound on ε, with everything that it depends on.

    Attributes
    ----------
    epsilon : float
        The training (or release) leaked at least this much per ``unit``.
    delta : float
        The δ for which the bound holds.
    unit : {"entry", "record"}
        What one ε speaks of.
    neighbours : {"replace", "add/remove"}
        How two neighbouring data sets differ.
    confidence : float
        Probability with which the bound holds, all choices of the audit included.
    method : {"one-run", "multi-run"}
        How it was found.
    trials : int
        Canaries of the one run, or runs.
    note : str
        What else the bound rests on.
    """

    epsilon: float
    delta: float
    unit: str
    neighbours: str
    confidence: float
    method: str
    trials: int
    note: str = ""

    def __str__(self) -> str:
        means = "canaries" if self.method == "one-run" else "runs"
        text = (
            f"leaked at least ε = {self.epsilon:.3g} per {self.unit} at δ = {self.delta:g} "
            f"({self.neighbours} neighbours, {100 * self.confidence:g} % confidence, "
            f"{self.method} audit, {self.trials} {means})"
        )
        return f"{text}; {self.note}" if self.note else text

    def refutes(self, epsilon: float) -> bool:
        """Tell whether the audit refutes a claimed ε of the same unit, neighbours and δ."""
        return self.epsilon > epsilon

    def to_dict(self) -> dict[str, Any]:
        """Give plain numbers and strings, ready for JSON."""
        return asdict(self)


def empirical_epsilon(
    make_classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    canaries: int = 500,
    method: str = "one-run",
    runs: int = 200,
    unit: str = "record",
    neighbours: str = "replace",
    domain: Domain | None = None,
    delta: float = 0.0,
    confidence: float = 0.95,
    tradeoff: str = "any",
    score: Callable[[Any, Array, NDArray[Any]], Array] | None = None,
    random_state: int | None = 0,
) -> EmpiricalEpsilon:
    """Find a lower bound on the ε of a training: "it leaked at least ε = … per record (95 %)".

    Record canaries are rows of ``X`` with a wrong label, the rows a model must remember to answer
    with that label; the coin decides whether one is there or, for ``neighbours="replace"``, another
    such row in its place. Entry canaries are rows of ``X`` in which one entry is at the low or high
    end of the domain. The classifier is trained on ``X`` without the rows the canaries came from,
    plus the canaries as the coins fell.

    Parameters
    ----------
    make_classifier : callable or estimator
        Called without arguments for a new unfitted classifier per training, or an estimator that is
        cloned. Its randomness must be new in each training; if it is not, a multi-run audit shows.
    X, y : array-like
        Data to train on.
    canaries : int
        Coins of the one-run audit; at most half the rows, or a third for replaced records.
    method : {"one-run", "multi-run"}
        One training with many canaries (Steinke et al. 2023), or many trainings with one canary
        (Clopper-Pearson): slower and tighter.
    runs : int
        Trainings of the multi-run audit, half with either side of the coin.
    unit : {"record", "entry"}
        What a coin decides about.
    neighbours : {"replace", "add/remove"}
        The neighbour relation of records; entries are always replaced.
    domain : (low, high), optional
        Needed for entries: numbers or one number per column.
    delta : float
        The δ of the claim.
    confidence : float
        Probability with which the bound holds.
    tradeoff : {"any", "gaussian"}
        For multi-run audits of Gaussian mechanisms, see :func:`~permea.audit.multi_run_epsilon`.
    score : callable, optional
        ``score(clf, X, y)``, larger for rows that the classifier knows. By default nearness to the
        own class (distance-based classifiers) or the label's logit.
    random_state : int or None
        Decides canaries and coins.

    Returns
    -------
    EmpiricalEpsilon
        The bound; ``print`` it for a sentence.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from permea.audit import empirical_epsilon
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(600, 4)), rng.integers(0, 2, 600)
    >>> print(empirical_epsilon(KNeighborsClassifier(1), X, y, canaries=150))
    leaked at least ε = ... per record at δ = 0 (replace neighbours, 95 % confidence, one-run audit,
    150 canaries)
    """
    _check(method, unit, neighbours)
    rng = _coin_source(random_state)
    measure = signals.sharpest_signal if score is None else score
    rows, labels = np.asarray(X, dtype=np.float64), np.asarray(y)
    count = canaries if method == "one-run" else 1
    base, versions = _canaries(rows, labels, count, unit, neighbours, domain, rng)

    def train_and_score(coins: NDArray[np.bool_]) -> Array:
        model = _new_model(make_classifier)
        data, target = _planted(rows[base], labels[base], versions, coins)
        return _score(measure, model.fit(data, target), versions)

    note = ""
    if method == "one-run":
        coins = rng.random(count) < 0.5
        epsilon, _, _ = one_run_epsilon(
            train_and_score(coins), coins, delta=delta, confidence=confidence
        )
    else:
        sides = [
            np.array([train_and_score(np.array([side]))[0] for _ in _walk(runs // 2, side)])
            for side in (False, True)
        ]
        epsilon = multi_run_epsilon(*sides, tradeoff=tradeoff, delta=delta, confidence=confidence)
        note = "holds for Gaussian mechanisms" if tradeoff == "gaussian" else ""
    trials = count if method == "one-run" else 2 * (runs // 2)
    return EmpiricalEpsilon(epsilon, delta, unit, neighbours, confidence, method, trials, note)


def release_epsilon(
    release: Callable[[Array], ArrayLike],
    *,
    domain: Domain,
    n_columns: int = 1,
    canaries: int = 5000,
    method: str = "one-run",
    unit: str = "entry",
    overshoot: float = 0.0,
    statistic: Callable[[Array], Array] | None = None,
    delta: float = 0.0,
    confidence: float = 0.95,
    tradeoff: str = "any",
    random_state: int | None = 0,
) -> EmpiricalEpsilon:
    """Find a lower bound on the ε of a release of a matrix, row for row.

    Every entry (``unit="entry"``) or every whole row (``unit="record"``) is at the low or the high
    end of the domain, as its own coin says: neighbours as far apart as the domain allows. Noise
    that is independent between units makes one run as good as many.

    Parameters
    ----------
    release : callable
        Takes a matrix and returns the released matrix of the same shape.
    domain : (low, high)
        The declared domain, numbers or one number per column.
    n_columns : int
        Columns of the matrix.
    canaries : int
        Coins of the one run; releases for ``method="multi-run"``.
    method : {"one-run", "multi-run"}
        One release of many units, or many releases of one unit, which also finds randomness that is
        repeated between releases.
    unit : {"entry", "record"}
        What a coin decides about.
    overshoot : float
        Put the values this many widths outside the domain. A release that clips does not notice.
    statistic : callable, optional
        Takes the released matrix in units of the domain (0 low, 1 high) and gives one score per row
        for records or per entry for entries. The default for records is the sum of a row.
    delta, confidence, tradeoff, random_state
        As in :func:`empirical_epsilon`.

    Examples
    --------
    >>> import numpy as np
    >>> from permea.audit import release_epsilon
    >>> rng = np.random.default_rng(0)
    >>> claimed = lambda Y: Y + rng.laplace(0, 1.0, Y.shape)  # ε = 1 per entry on [0, 1]
    >>> bool(0.8 < release_epsilon(claimed, domain=(0, 1)).epsilon < 1.0)
    True
    """
    _check(method, unit, "replace")
    low = np.broadcast_to(np.asarray(domain[0], dtype=np.float64), (n_columns,))
    width = np.broadcast_to(np.asarray(domain[1], dtype=np.float64), (n_columns,)) - low
    rng = _coin_source(random_state)

    def observe(coins: Array) -> Array:
        values = low + width * (coins + overshoot * (2.0 * coins - 1.0))
        unitless = (np.asarray(release(values), dtype=np.float64) - low) / width
        if statistic is not None:
            return np.ravel(statistic(unitless))
        return np.ravel(unitless.sum(axis=1) if unit == "record" else unitless)

    note = "holds for Gaussian mechanisms" if tradeoff == "gaussian" else ""
    if method == "one-run":
        n_rows = canaries if unit == "record" else -(-canaries // n_columns)
        shape = (n_rows, 1 if unit == "record" else n_columns)
        coins = rng.random(shape) < 0.5
        scores = observe(np.broadcast_to(coins, (n_rows, n_columns)).astype(np.float64))
        epsilon, _, _ = one_run_epsilon(scores, coins.ravel(), delta=delta, confidence=confidence)
        trials, note = coins.size, ""
    else:
        other = np.zeros((1, n_columns))
        planted = other.copy()
        planted[0, : (n_columns if unit == "record" else 1)] = 1.0
        sides = [
            np.array([observe(row)[0] for _ in _walk(canaries // 2, row is planted)])
            for row in (other, planted)
        ]
        epsilon = multi_run_epsilon(*sides, tradeoff=tradeoff, delta=delta, confidence=confidence)
        trials = 2 * (canaries // 2)
    return EmpiricalEpsilon(epsilon, delta, unit, "replace", confidence, method, trials, note)


def _coin_source(random_state: int | None) -> np.random.Generator:
    """Give a stream of its own: coins drawn like a mechanism's equally seeded noise would lie."""
    return np.random.default_rng(None if random_state is None else [random_state, 0xC0175])


def _new_model(make_classifier: Any) -> Any:
    if isinstance(make_classifier, type) or not hasattr(make_classifier, "fit"):
        return make_classifier()
    return clone(make_classifier)


def _walk(runs: int, planted: bool) -> Any:
    return progress(range(runs), desc="runs with" if planted else "runs without")


def _check(method: str, unit: str, neighbours: str) -> None:
    if method not in ("one-run", "multi-run"):
        raise ValueError(f"method must be 'one-run' or 'multi-run', got {method!r}.")
    if unit not in RELATIONS:
        raise ValueError(f"unit must be 'entry' or 'record', got {unit!r}.")
    if neighbours not in RELATIONS[unit]:
        raise ValueError(
            f"neighbours={neighbours!r} is not defined for unit={unit!r}; expected one of "
            f"{', '.join(map(repr, RELATIONS[unit]))}."
        )


def _canaries(
    X: Array,
    y: NDArray[Any],
    count: int,
    unit: str,
    neighbours: str,
    domain: Domain | None,
    rng: np.random.Generator,
) -> tuple[NDArray[np.intp], Versions]:
    """Draw the canaries; give the positions of the rows that stay, and both versions of each."""
    sources = 2 if (unit == "record" and neighbours == "replace") else 1
    if count * sources >= len(X) - len(np.unique(y)):
        raise ValueError(
            f"{count} canaries need {count * sources} of the {len(X)} rows, and some must remain "
            "to train on; ask for fewer."
        )
    order = rng.permutation(len(X))
    first, rest = order[:count], order[count:]
    if unit == "entry":
        return rest, _entry_versions(X[first], y[first], domain, rng)
    wrong = _wrong_labels(y, y[first], rng)
    if neighbours == "add/remove":
        return rest, (X[first], wrong, None, wrong)
    second, rest = rest[:count], rest[count:]
    return rest, (X[first], wrong, X[second], _wrong_labels(y, y[second], rng))


def _entry_versions(
    X: Array, y: NDArray[Any], domain: Domain | None, rng: np.random.Generator
) -> Versions:
    if domain is None:
        raise ValueError("unit='entry' needs the declared domain=(low, high) of the entries.")
    low, high = (np.broadcast_to(np.asarray(end, dtype=float), X.shape[1:]) for end in domain)
    columns, positions = rng.integers(X.shape[1], size=len(X)), np.arange(len(X))
    at_high, at_low = X.copy(), X.copy()
    at_high[positions, columns] = high[columns]
    at_low[positions, columns] = low[columns]
    return at_high, y, at_low, y


def _wrong_labels(y: NDArray[Any], own: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    classes, positions = np.unique(y), np.searchsorted(np.unique(y), own)
    shift = rng.integers(1, max(len(classes), 2), size=len(own))
    wrong: NDArray[Any] = classes[(positions + shift) % len(classes)]
    return wrong


def _planted(
    X: Array, y: NDArray[Any], versions: Versions, coins: NDArray[np.bool_]
) -> tuple[Array, NDArray[Any]]:
    """Give the training data with the canaries as the coins fell."""
    heads, y_heads, tails, y_tails = versions
    if tails is None:
        return np.concatenate([X, heads[coins]]), np.concatenate([y, y_heads[coins]])
    chosen = np.where(coins[:, None], heads, tails)
    return np.concatenate([X, chosen]), np.concatenate([y, np.where(coins, y_heads, y_tails)])


def _score(measure: Any, model: Any, versions: Versions) -> Array:
    """How much better the model knows the heads version of each canary than the tails version."""
    heads, y_heads, tails, y_tails = versions
    known: Array = np.asarray(measure(model, heads, y_heads))
    return known if tails is None else known - np.asarray(measure(model, tails, y_tails))

"""The black box: canaries in the training data, found by asking the trained model."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from permea._arrays import Array
from permea._progress import progress
from permea.audit import signals
from permea.audit.bounds import multi_run_epsilon, one_run_epsilon
from permea.audit.result import EmpiricalEpsilon

Domain = tuple[ArrayLike, ArrayLike]
Score = Callable[[Any, Array, NDArray[Any]], Array]
#: Two versions of each canary, with labels: the coin picks one. A label of None: no row at all.
Versions = tuple[Array, NDArray[Any], Array | None, NDArray[Any]]


def training_epsilon(
    make_classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    method: str,
    canaries: int,
    runs: int,
    unit: str,
    neighbours: str,
    domain: Domain | None,
    delta: float,
    confidence: float,
    tradeoff: str,
    score: Score | None,
    random_state: int | None,
) -> EmpiricalEpsilon:
    """Bound ε by the answers of trained classifiers: see :func:`permea.audit.empirical_epsilon`."""
    rng = coin_source(random_state)
    measure = signals.sharpest_signal if score is None else score
    rows, labels = np.asarray(X, dtype=np.float64), np.asarray(y)
    count = canaries if method == "one-run" else 1
    base, versions = _canaries(rows, labels, count, unit, neighbours, domain, rng)

    def train_and_score(coins: NDArray[np.bool_]) -> Array:
        model = new_model(make_classifier)
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
            np.array([train_and_score(np.array([side]))[0] for _ in walk(runs // 2, side)])
            for side in (False, True)
        ]
        epsilon = multi_run_epsilon(*sides, tradeoff=tradeoff, delta=delta, confidence=confidence)
        note = "holds for Gaussian mechanisms" if tradeoff == "gaussian" else ""
    trials = count if method == "one-run" else 2 * (runs // 2)
    return EmpiricalEpsilon(epsilon, delta, unit, neighbours, confidence, method, trials, note)


def coin_source(random_state: int | None) -> np.random.Generator:
    """Give a stream of its own: coins drawn like a mechanism's equally seeded noise would lie."""
    return np.random.default_rng(None if random_state is None else [random_state, 0xC0175])


def new_model(make_classifier: Any) -> Any:
    """A fresh unfitted estimator: a clone of one, or what a factory makes."""
    if isinstance(make_classifier, type) or not hasattr(make_classifier, "fit"):
        return make_classifier()
    return clone(make_classifier)


def walk(runs: int, planted: bool) -> Any:
    """Count runs of one side, with a progress bar."""
    return progress(range(runs), desc="runs with" if planted else "runs without")


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

"""Shadow models: copies of the classifier trained on rows whose membership the attacker knows.

001 §3.1 trains 20 of them and, on what they answer, one attack classifier per class. The likelihood
attacks of :mod:`permea.audit.likelihood` read the same ensemble, so one set of refits serves all.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from permea._progress import progress
from permea.audit import attacks, signals

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: Attack classifiers of 001: support vectors, trees, a neural network.
ATTACKERS = ("svm", "tree", "network")
_MOST_ROWS = 2000


def halves(y: ArrayLike, n_shadows: int, rng: np.random.Generator) -> Mask:
    """Draw who trains which shadow model: ``(n_shadows, n_rows)``.

    Shadows come in pairs that train on complementary halves of every class, so each row is inside
    exactly half of an even number of shadows and every shadow knows every class.
    """
    labels = np.asarray(y)
    inside = np.zeros((n_shadows, len(labels)), dtype=bool)
    for pair in range(0, n_shadows, 2):
        for number, label in enumerate(np.unique(labels)):
            rows = rng.permutation(np.flatnonzero(labels == label))
            # A class of odd size gives its extra row to one shadow of the pair in turn.
            inside[pair, rows[: (len(rows) + number % 2) // 2]] = True
        if pair + 1 < n_shadows:
            inside[pair + 1] = ~inside[pair]
    return inside


@dataclass(frozen=True)
class ShadowEnsemble:
    """What the shadow models say about every row of the attacker's pool.

    Attributes
    ----------
    inside : ndarray of shape (n_shadows, n_rows)
        Which rows trained which shadow.
    signal, likelihood : ndarrays of shape (n_shadows, n_rows)
        The sharpest signal and the log likelihood of the row's own label, see
        :mod:`permea.audit.likelihood`.
    features : ndarray of shape (n_shadows, n_rows, n_features)
        Inputs of the attack classifiers.
    metrics : dict
        For each metric attack that applies its values, ``(n_shadows, n_rows)``.
    """

    inside: Mask
    signal: Array
    likelihood: Array
    features: Array
    metrics: dict[str, Array]


def train_shadows(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    n_shadows: int = 20,
    random_state: int | None = 0,
    n_jobs: int | None = None,
) -> ShadowEnsemble:
    """Train shadow models on halves of the pool and keep what each says about every row.

    Parameters
    ----------
    estimator : classifier
        Cloned for each shadow; the attacker knows the structure, not the trained coefficients.
    X, y : array-like
        The pool.
    n_shadows : int
        Number of shadow models.
    random_state : int or None
        Decides the halves, and the shadows' own randomness if they have a ``random_state`` that
        is set; an unset one stays unset.
    n_jobs : int or None
        Shadow models trained at once, as in joblib.

    Returns
    -------
    ShadowEnsemble
        The answers; the models themselves are not kept.
    """
    rows, labels = np.asarray(X), np.asarray(y)
    rng = np.random.default_rng(random_state)
    inside = halves(labels, n_shadows, rng)
    seeds = rng.integers(2**31 - 1, size=n_shadows)
    jobs = (
        delayed(_ask_one)(estimator, rows, labels, mine, int(seed))
        for mine, seed in zip(inside, seeds, strict=True)
    )
    answers = list(
        progress(
            Parallel(n_jobs=n_jobs, return_as="generator")(jobs), total=n_shadows, desc="shadows"
        )
    )
    names = [name for name in attacks.METRICS if name in answers[0][3]]
    return ShadowEnsemble(
        inside,
        np.stack([answer[0] for answer in answers]),
        np.stack([answer[1] for answer in answers]),
        np.stack([answer[2] for answer in answers]),
        {name: np.stack([answer[3][name] for answer in answers]) for name in names},
    )


def fit_copy(estimator: Any, X: ArrayLike, y: ArrayLike, seed: int) -> Any:
    """Fit a clone; a set ``random_state`` is replaced, so that copies differ in their noise."""
    copy = clone(estimator)
    settings = copy.get_params()
    seeded = [name for name in settings if name.split("__")[-1] == "random_state"]
    copy.set_params(**{name: seed for name in seeded if settings[name] is not None})
    return copy.fit(X, y)


def _ask_one(
    estimator: Any, X: Array, y: NDArray[Any], inside: Mask, seed: int
) -> tuple[Array, Array, Array, dict[str, Array]]:
    shadow = signals.Remembered(fit_copy(estimator, X[inside], y[inside], seed), X)
    metrics = {
        name: metric(shadow, X, y)
        for name, metric in attacks.METRICS.items()
        if not attacks.why_not(name, shadow)
    }
    return (
        signals.sharpest_signal(shadow, X, y),
        log_likelihood(shadow, X, y),
        attack_features(shadow, X, y),
        metrics,
    )


def log_likelihood(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """Log of what stands for p(x | model): one over the own class's distance, or p_y."""
    if signals.is_distance_based(clf):
        return signals.label_nearness(clf, X, y)
    return attacks.loss(clf, X, y)


def attack_features(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """What an attack classifier sees of a row: largest probabilities, logit, loss, hit, distances.

    Their number does not depend on the number of classes.
    """
    P = signals.class_probabilities(clf, X)
    top = -np.sort(-P, axis=1)[:, :3]
    top = np.pad(top, ((0, 0), (0, 3 - top.shape[1])))
    columns = [
        *top.T,
        signals.label_logit(clf, X, y),
        attacks.modified_entropy(clf, X, y),
        attacks.correctness(clf, X, y),
    ]
    if signals.is_distance_based(clf):
        nearest = np.maximum(-signals.nearness(clf, X), signals.DISTANCE_FLOOR)
        columns += [-np.log(nearest), signals.label_nearness(clf, X, y)]
    return np.column_stack(columns)


def make_attacker(kind: str, seed: int) -> Any:
    """Give an unfitted attack classifier: ``"svm"``, ``"tree"`` or ``"network"``."""
    if kind == "svm":
        return make_pipeline(StandardScaler(), SVC(C=1.0, class_weight="balanced"))
    if kind == "tree":
        return RandomForestClassifier(
            100, min_samples_leaf=5, class_weight="balanced_subsample", random_state=seed
        )
    if kind == "network":
        return make_pipeline(
            StandardScaler(),
            MLPClassifier((32,), solver="lbfgs", alpha=0.1, max_iter=200, random_state=seed),
        )
    raise ValueError(f"Unknown attacker {kind!r}; expected one of {', '.join(ATTACKERS)}.")


def train_attackers(
    kind: str, ensemble: ShadowEnsemble, y: ArrayLike, rows: NDArray[np.intp], *, seed: int = 0
) -> dict[Any, Any]:
    """Train one attack classifier per class on the shadows' answers about ``rows`` (001 §3.1).

    At most 2000 answers per class are used. A class whose answers are all inside or all outside
    gets no attacker.
    """
    labels = np.asarray(y)[rows]
    rng = np.random.default_rng(seed)
    attackers = {}
    for label in np.unique(labels):
        mine = rows[labels == label]
        features = ensemble.features[:, mine].reshape(-1, ensemble.features.shape[2])
        target = ensemble.inside[:, mine].ravel()
        picked = rng.permutation(len(target))[:_MOST_ROWS]
        if len(np.unique(target[picked])) == 2:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                attackers[label] = make_attacker(kind, seed).fit(features[picked], target[picked])
    return attackers


def attacker_scores(attackers: dict[Any, Any], features: Array, y: ArrayLike) -> Array:
    """Score rows by their class's attacker: positive means member, zero where there is none."""
    labels = np.asarray(y)
    scores = np.zeros(len(labels))
    for label, attacker in attackers.items():
        mine = labels == label
        if mine.any() and hasattr(attacker, "decision_function"):
            scores[mine] = attacker.decision_function(features[mine])
        elif mine.any():
            scores[mine] = attacker.predict_proba(features[mine])[:, 1] - 0.5
    return scores

"""Membership-inference attacks: by a threshold on what a classifier predicts, or by shadow models.

Metric attacks (001 §3.1) take one number per row from the predictions; a row is called a member if
the number is above a threshold. 001 uses correctness, loss, confidence and entropy; the modified
entropy (Song and Mittal 2021) adds the label to the entropy; ``distance`` is the quantity of the
membership-inference score, for classifiers with distances. The label-only attack needs labels
alone. Attacks with shadow models train copies of the classifier on known rows, and learn from their
predictions how members differ (001 §3.1; LiRA, Carlini et al. 2022; RMIA, Zarifzadeh et al. 2024).
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from permea._arrays import Array, Mask
from permea._progress import progress
from permea.audit import signals
from permea.audit.density import DensityTest, density_difference, density_test

Metric = Callable[[Any, ArrayLike, ArrayLike], Array]

#: Noise sizes of the label-only attack, in units of each column's spread.
SIZES: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4, 0.7, 1.0)
#: From this many shadows on either side, each row gets its own variance (Carlini et al. 2022).
ENOUGH_FOR_OWN_VARIANCE = 32
_SMALLEST_DEVIATION = 1e-6
#: Attack classifiers of 001: support vectors, trees, a neural network.
ATTACKERS = ("svm", "tree", "network")
_MOST_ROWS = 2000


def correctness(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """1 where the prediction is right, 0 where it is wrong."""
    return np.asarray(np.asarray(clf.predict(X)) == np.asarray(y), dtype=np.float64)


def loss(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """Log probability of the row's own label, which is minus the cross-entropy loss."""
    own = signals.of_label(
        signals.class_probabilities(clf, X), signals.class_positions(clf, y), 0.0
    )
    return _log(own)


def entropy(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """Minus the entropy of the class probabilities: confident predictions point to members."""
    P = signals.class_probabilities(clf, X)
    return np.asarray((P * _log(P)).sum(axis=1))


def modified_entropy(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """Minus the modified entropy: small only if the confident prediction is also the right one.

    ``(1 − p_y) log p_y + Σ_{c≠y} p_c log(1 − p_c)``
    """
    P = signals.class_probabilities(clf, X)
    positions = signals.class_positions(clf, y)
    each = P * _log(1.0 - P)
    own = signals.of_label(P, positions, 0.0)
    own_term = (1.0 - own) * _log(own)
    return np.asarray(each.sum(axis=1) - signals.of_label(each, positions, 0.0) + own_term)


def _log(probabilities: Array) -> Array:
    return np.asarray(np.log(np.maximum(probabilities, signals.PROBABILITY_FLOOR)))


#: The metric attacks by name.
METRICS: dict[str, Metric] = {
    "correctness": correctness,
    "loss": loss,
    "confidence": lambda clf, X, y: signals.confidence(clf, X),
    "entropy": entropy,
    "modified_entropy": modified_entropy,
    "distance": lambda clf, X, y: signals.nearness(clf, X),  # 004 eq. 67
}


def why_not(name: str, clf: Any) -> str:
    """Give the reason why an attack does not apply to ``clf``, empty if it does."""
    if name == "distance" and not signals.is_distance_based(clf):
        return "the classifier offers no distances(X)"
    if name not in ("correctness", "label_only") and not signals.gives_scores(clf):
        return "the classifier predicts a label alone"
    return ""


def membership_inference_score(
    clf: Any,
    X_train: ArrayLike,
    X_test: ArrayLike,
    *,
    standardize: bool = False,
    random_state: int | None = 0,
) -> float:
    r"""Score how well a classifier's predictions tell its training rows from others (004 eq. 69).

    .. math:: mis = \int (f_{r}(r) - f_{r'}(r))^2\,dr

    with :math:`f_r` the density of the smallest class distance over the training rows and
    :math:`f_{r'}` the same over test rows, estimated by :func:`~permea.audit.density_difference`.
    A classifier without ``distances`` is scored on its confidence, the largest class probability.

    Parameters
    ----------
    clf : fitted classifier
        With ``distances(X)`` (n × classes), or any scikit-learn classifier.
    X_train, X_test : array-like of shape (n, n_features)
        Rows the classifier was trained on, and rows it never saw.
    standardize : bool
        Divide the distances by their spread first. The plain score has the unit of one over a
        distance, so scores of models with different distances compare only when standardised.
    random_state : int or None
        Decides the folds of the density difference.

    Returns
    -------
    float
        Zero if the densities agree, larger the better members can be told.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from permea.audit import membership_inference_score
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = LogisticRegression(max_iter=500).fit(X[::2], y[::2])
    >>> membership_inference_score(clf, X[::2], X[1::2]) < 0.1
    True
    """
    measure = signals.nearness if signals.is_distance_based(clf) else signals.confidence
    return density_difference(
        measure(clf, X_train),
        measure(clf, X_test),
        standardize=standardize,
        random_state=random_state,
    )


def membership_inference_test(
    clf: Any,
    X_train: ArrayLike,
    X_test: ArrayLike,
    *,
    standardize: bool = False,
    n_divisions: int = 100,
    random_state: int | None = 0,
) -> DensityTest:
    """Compare the membership-inference score with what equal samples of the same sizes have.

    Parameters
    ----------
    clf, X_train, X_test, standardize, random_state
        See :func:`membership_inference_score`, which gives ``value``.
    n_divisions : int
        Random divisions of all rows into members and others.

    Returns
    -------
    permea.audit.DensityTest
        The score, its 95 % interval, the scores of random divisions, and a p-value.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from permea.audit import membership_inference_test
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = LogisticRegression(max_iter=500).fit(X[::2], y[::2])
    >>> membership_inference_test(clf, X[::2], X[1::2]).p_value > 0.01
    True
    """
    measure = signals.nearness if signals.is_distance_based(clf) else signals.confidence
    return density_test(
        measure(clf, X_train),
        measure(clf, X_test),
        standardize=standardize,
        n_divisions=n_divisions,
        random_state=random_state,
    )


def label_robustness(
    clf: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    spread: ArrayLike | None = None,
    sizes: Sequence[float] = SIZES,
    n_draws: int = 10,
    random_state: int | None = 0,
    n_jobs: int | None = None,
) -> Array:
    """Share of noisy copies of each row that keep the row's own label.

    Parameters
    ----------
    clf : classifier
        Only ``predict`` is called.
    X, y : array-like
        The rows and their true labels.
    spread : array-like of shape (n_features,), optional
        The unit of the noise in every column; the columns' standard deviation by default. Give the
        same one for rows that are compared.
    sizes : sequence of float
        Noise sizes; size 0 is the plain prediction and counts as one full round.
    n_draws : int
        Copies per size.
    random_state : int or None
        Decides the noise.
    n_jobs : int or None
        Processes that predict, as in joblib.

    Returns
    -------
    ndarray of shape (n_rows,)
        Between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> X, y = np.array([[0.0], [1.0], [5.0]]), np.array([0, 0, 1])
    >>> robust = label_robustness(KNeighborsClassifier(1).fit(X, y), X, y, spread=[1.0])
    >>> bool(robust[2] >= robust[1])
    True
    """
    rows, labels = np.asarray(X, dtype=np.float64), np.asarray(y)
    unit = rows.std(axis=0) if spread is None else np.asarray(spread, dtype=np.float64)
    rounds = [size for size in sizes for _ in range(n_draws if size else 1)]
    drawn = list(zip(rounds, np.random.SeedSequence(random_state).spawn(len(rounds)), strict=True))
    share = effective_n_jobs(n_jobs)  # each process gets the classifier once
    tasks = (delayed(_times_kept)(clf, rows, labels, unit, drawn[k::share]) for k in range(share))
    done = Parallel(n_jobs=n_jobs, return_as="generator")(tasks)
    noisy, plain = zip(*progress(done, total=share, desc="label-only"), strict=True)
    kept = np.sum(noisy, axis=0) + n_draws * np.sum(plain, axis=0)
    return np.asarray(kept / (n_draws * len(sizes)), dtype=np.float64)


def _times_kept(
    clf: Any, rows: Array, labels: NDArray[Any], unit: Array, drawn: Sequence[tuple[float, Any]]
) -> tuple[Array, Array]:
    """How often each row keeps its label, with noise of so many sizes and without any."""
    noisy, plain = np.zeros((2, len(rows)))
    for size, seed in drawn:
        if size == 0.0:
            plain += np.asarray(clf.predict(rows)) == labels
        else:
            noise = np.random.default_rng(seed).standard_normal(rows.shape)
            noisy += np.asarray(clf.predict(rows + size * unit * noise)) == labels
    return noisy, plain


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
    """What the shadow models predict for every row of the attacker's pool.

    Attributes
    ----------
    inside : ndarray of shape (n_shadows, n_rows)
        Which rows trained which shadow.
    scores : dict of ndarrays of shape (n_shadows, n_rows)
        ``"signal"`` (`signals.sharpest_signal`), ``"likelihood"`` (`log_likelihood`), and every
        metric attack that applies.
    features : ndarray of shape (n_shadows, n_rows, n_features)
        Inputs of the attack classifiers.
    """

    inside: Mask
    scores: dict[str, Array]
    features: Array


def train_shadows(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    n_shadows: int = 20,
    random_state: int | None = 0,
    n_jobs: int | None = None,
) -> ShadowEnsemble:
    """Train shadow models on halves of the pool and keep what each predicts for every row.

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
        The predictions; the models themselves are not kept.
    """
    rows, labels = np.asarray(X), np.asarray(y)
    rng = np.random.default_rng(random_state)
    inside = halves(labels, n_shadows, rng)
    seeds = rng.integers(2**31 - 1, size=n_shadows)
    jobs = (
        delayed(_shadow_scores)(estimator, rows, labels, mine, int(seed))
        for mine, seed in zip(inside, seeds, strict=True)
    )
    done = Parallel(n_jobs=n_jobs, return_as="generator")(jobs)
    scores = list(progress(done, total=n_shadows, desc="shadows"))
    stacked = {name: np.stack([one[name] for one in scores]) for name in scores[0]}
    return ShadowEnsemble(inside, stacked, stacked.pop("features"))


def _shadow_scores(
    estimator: Any, X: Array, y: NDArray[Any], inside: Mask, seed: int
) -> dict[str, Array]:
    shadow = signals.Remembered(_fit_copy(estimator, X[inside], y[inside], seed), X)
    metrics = {
        name: metric(shadow, X, y) for name, metric in METRICS.items() if not why_not(name, shadow)
    }
    return {
        "signal": signals.sharpest_signal(shadow, X, y),
        "likelihood": log_likelihood(shadow, X, y),
        "features": attack_features(shadow, X, y),
        **metrics,
    }


def _fit_copy(estimator: Any, X: ArrayLike, y: ArrayLike, seed: int) -> Any:
    """Fit a clone; a set ``random_state`` is replaced, so that copies differ in their noise."""
    copy = clone(estimator)
    settings = copy.get_params()
    seeded = [name for name in settings if name.split("__")[-1] == "random_state"]
    copy.set_params(**{name: seed for name in seeded if settings[name] is not None})
    return copy.fit(X, y)


def _moments(shadow: Array, chosen: Mask) -> tuple[Array, Array]:
    """Mean and deviation of each row's signal over the chosen shadows."""
    count = chosen.sum(axis=0)
    mean = np.where(chosen, shadow, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = np.where(chosen, (shadow - mean) ** 2, 0.0)
    if count.min() >= ENOUGH_FOR_OWN_VARIANCE:
        variance = squares.sum(axis=0) / (count - 1)
    else:
        degrees = np.maximum(count - 1, 0).sum()
        variance = np.full(shadow.shape[1], squares.sum() / max(degrees, 1))
    return mean, np.sqrt(np.maximum(variance, _SMALLEST_DEVIATION**2))


def lira_online(observed: Array, shadow: Array, inside: Mask) -> Array:
    """Log likelihood ratio of the two Gaussians "row was in" and "row was out".

    With fewer than 32 shadows on a side one variance is shared by all rows.

    Returns
    -------
    ndarray of shape (n_rows,)
        Above zero: more likely a member.
    """
    mean_in, deviation_in = _moments(shadow, inside)
    mean_out, deviation_out = _moments(shadow, ~inside)
    ratio = norm.logpdf(observed, mean_in, deviation_in)
    return np.asarray(ratio - norm.logpdf(observed, mean_out, deviation_out))


def lira_offline(observed: Array, shadow: Array, inside: Mask) -> Array:
    """How many deviations the signal is above what models without the row answer.

    A monotone function of the one-sided p-value of the offline attack; no shadow that knew the row
    is used.
    """
    mean_out, deviation_out = _moments(shadow, ~inside)
    return np.asarray((observed - mean_out) / deviation_out)


def rmia(
    observed: Array,
    shadow: Array,
    inside: Mask,
    population: Mask,
    *,
    offline: bool = False,
    interpolation: float = 0.3,
) -> Array:
    """Share of population rows that the row beats in relative likelihood.

    The likelihood of a row under the audited model is divided by its mean over the shadows; the
    score is the share of population rows z with ratio(x) ≥ ratio(z).

    Parameters
    ----------
    observed, shadow : ndarrays
        Log likelihoods, not signals of any scale.
    inside : ndarray
        Which rows trained which shadow.
    population : ndarray of bool, shape (n_rows,)
        Rows known not to be members, to compare with.
    offline : bool
        Use only shadows that did not know the row, and correct their mean towards one:
        ``((1 + a) p_out + 1 − a) / 2``. Meant for probabilities; for other likelihoods the plain
        mean over the shadows outside is used (``interpolation=1``).
    interpolation : float
        a of Zarifzadeh et al. 2024; their γ is 1.
    """
    weight = ~inside if offline else np.ones_like(inside)
    count = np.maximum(weight.sum(axis=0), 1)
    typical = logsumexp(shadow, axis=0, b=weight / count)
    if offline:
        typical = np.logaddexp(
            typical + np.log((1 + interpolation) / 2),
            np.log((1 - interpolation) / 2) if interpolation < 1 else -np.inf,
        )
    ratio = observed - typical
    rivals = np.sort(ratio[population])
    return np.asarray(np.searchsorted(rivals, ratio, side="right") / len(rivals))


def without(number: int, shadow: Array, inside: Mask) -> tuple[Array, Array, Mask, Mask]:
    """Take one shadow out to stand for the audited model, whose members are then known.

    Returns its signal, the other shadows' signals and masks, and who its members are. Thresholds
    are fitted this way, on rows that are not scored.
    """
    others = np.arange(len(shadow)) != number
    return shadow[number], shadow[others], inside[others], inside[number]


def log_likelihood(clf: Any, X: ArrayLike, y: ArrayLike) -> Array:
    """Log of what stands for p(x | model): one over the own class's distance, or p_y."""
    if signals.is_distance_based(clf):
        return signals.label_nearness(clf, X, y)
    return loss(clf, X, y)


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
        modified_entropy(clf, X, y),
        correctness(clf, X, y),
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
            100, min_samples_leaf=5, class_weight="balanced", random_state=seed
        )
    if kind == "network":
        return make_pipeline(
            StandardScaler(),
            MLPClassifier((32,), solver="lbfgs", alpha=0.1, max_iter=200, random_state=seed),
        )
    raise ValueError(f"Unknown attacker {kind!r}; expected one of {', '.join(ATTACKERS)}.")


def train_attackers(
    kind: str,
    ensemble: ShadowEnsemble,
    y: ArrayLike,
    rows: NDArray[np.intp],
    *,
    seed: int = 0,
    n_jobs: int | None = None,
) -> dict[Any, Any]:
    """Train one attack classifier per class on the shadows' predictions for ``rows`` (001 §3.1).

    At most 2000 predictions per class are used. A class that is all inside or all outside
    gets no attacker.
    """
    labels = np.asarray(y)[rows]
    rng = np.random.default_rng(seed)
    tasks = {}
    for label in np.unique(labels):
        mine = rows[labels == label]
        features = ensemble.features[:, mine].reshape(-1, ensemble.features.shape[2])
        target = ensemble.inside[:, mine].ravel()
        picked = rng.permutation(len(target))[:_MOST_ROWS]
        if len(np.unique(target[picked])) == 2:
            tasks[label] = delayed(_fit_attacker)(kind, seed, features[picked], target[picked])
    return dict(zip(tasks, Parallel(n_jobs=n_jobs)(tasks.values()), strict=True))


def _fit_attacker(kind: str, seed: int, features: Array, target: Mask) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return make_attacker(kind, seed).fit(features, target)


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

"""All attacks on one classifier, with one call.

The rows that are scored never fit a threshold or train an attack classifier. Without data of the
attacker's own, half of the members and half of the outside rows are set aside for that; with them
(``shadow_data``, the attacker of 001 §3.1), the shadow models on those rows do it and every given
row is scored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._arrays import Array, Mask
from permea.audit import attacks, signals
from permea.audit.attacks import label_robustness, membership_inference_test
from permea.audit.bounds import EmpiricalEpsilon
from permea.audit.metrics import AttackResult, best_threshold, evaluate, not_applicable
from permea.audit.reconstruction import attribute_attack
from permea.audit.report import AttackReport, guarantee_rows
from permea.audit.tables import by_number

LIKELIHOOD = ("lira_online", "lira_offline", "rmia_online", "rmia_offline")
SHADOW = tuple(f"shadow_{kind}" for kind in attacks.ATTACKERS)
THRESHOLDS = ("rows set aside", "shadow models on the attacker's rows")
#: Every attack by name.
KINDS = (*attacks.METRICS, "label_only", *SHADOW, *LIKELIHOOD)


@dataclass(frozen=True)
class _Pool:
    """The rows of an audit: members, outside rows and the attacker's own, in that order."""

    X: Array
    y: NDArray[Any]
    member: Mask  #: trained the audited classifier
    scored: Mask  #: judged by the attacks; all others are for calibration
    spread: Array

    @property
    def spare(self) -> NDArray[np.intp]:
        return np.flatnonzero(~self.scored)


def attack(
    clf: Any,
    X_member: ArrayLike,
    y_member: ArrayLike,
    X_outside: ArrayLike,
    y_outside: ArrayLike,
    *,
    kinds: str | Sequence[str] = "all",
    shadow_data: tuple[ArrayLike, ArrayLike] | None = None,
    estimator: Any = None,
    n_shadows: int = 20,
    hidden_columns: Sequence[int] = (),
    measured: Sequence[EmpiricalEpsilon] = (),
    random_state: int = 0,
    n_jobs: int | None = None,
) -> AttackReport:
    """Attack a fitted classifier with every attack that applies.

    Parameters
    ----------
    clf : fitted classifier
        Any scikit-learn classifier; ``distances(X)``, ``predict_proba`` and ``decision_function``
        are used where there.
    X_member, y_member : array-like
        Rows that trained ``clf``; frames, where it reads tables by a schema.
    X_outside, y_outside : array-like
        Rows of the same population that did not.
    kinds : "all" or sequence of str
        Names out of ``permea.audit.KINDS``.
    shadow_data : (X, y), optional
        Rows of the attacker's own, neither members nor outside rows.
    estimator : classifier, optional
        What the shadow models are clones of; ``clf`` by default.
    n_shadows : int
        Shadow models; 001 uses 20.
    hidden_columns : sequence of int
        Columns for attribute inference.
    measured : sequence of EmpiricalEpsilon
        Lower bounds to print beside the claim of ``clf.certificate_``.
    random_state : int
        Decides splits, shadows and noise of the attacks.
    n_jobs : int or None
        Shadow models trained at once.

    Returns
    -------
    AttackReport
        ``print`` it for a table.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from permea import audit
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = KNeighborsClassifier(5).fit(X[::2], y[::2])
    >>> report = audit.attack(clf, X[::2], y[::2], X[1::2], y[1::2], kinds=["loss", "distance"])
    >>> report["distance"].note
    'the classifier offers no distances(X)'
    >>> 0.2 < report["loss"].auc < 0.8
    True
    """
    chosen = _chosen(kinds)
    if getattr(clf, "schema", None) is not None:
        if shadow_data is not None or len(hidden_columns):
            raise ValueError("shadow_data and hidden_columns are for models of numbers.")
        clf, X_member, X_outside = by_number(clf, X_member, X_outside)
        chosen = tuple(name for name in chosen if name != "label_only")  # noise on numbers of rows
    pool = _make_pool(X_member, y_member, X_outside, y_outside, shadow_data, random_state)
    ensemble = None
    if shadow_data is not None or set(chosen) & {*SHADOW, *LIKELIHOOD}:
        ensemble = attacks.train_shadows(
            clf if estimator is None else estimator,
            pool.X,
            pool.y,
            n_shadows=n_shadows,
            random_state=random_state,
            n_jobs=n_jobs,
        )
    known = signals.Remembered(clf, pool.X)
    results = tuple(
        _carry_out(name, known, pool, ensemble, random_state, n_jobs) for name in chosen
    )
    attributes = tuple(
        attribute_attack(clf, X_member, y_member, X_outside, y_outside, column=column)
        for column in hidden_columns
    )
    told = (
        membership_inference_test(clf, X_member, X_outside) if signals.gives_scores(clf) else None
    )
    return AttackReport(
        results,
        None if told is None else told.value,
        attributes,
        guarantee_rows(getattr(clf, "certificate_", None), measured),
        {
            "n_shadows": 0 if ensemble is None else n_shadows,
            "thresholds": THRESHOLDS[shadow_data is not None],
            "scored_members": int((pool.scored & pool.member).sum()),
            "scored_outside": int((pool.scored & ~pool.member).sum()),
            "random_state": random_state,
        },
        told,
    )


def _chosen(kinds: str | Sequence[str]) -> tuple[str, ...]:
    names = KINDS if kinds == "all" else (kinds,) if isinstance(kinds, str) else tuple(kinds)
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise ValueError(
            f"Unknown attacks {unknown}; expected 'all' or names of {', '.join(KINDS)}."
        )
    return names


def _make_pool(
    X_member: ArrayLike,
    y_member: ArrayLike,
    X_outside: ArrayLike,
    y_outside: ArrayLike,
    shadow_data: tuple[ArrayLike, ArrayLike] | None,
    random_state: int,
) -> _Pool:
    inside, outside = np.asarray(X_member, dtype=float), np.asarray(X_outside, dtype=float)
    parts, labels = [inside, outside], [np.asarray(y_member), np.asarray(y_outside)]
    if shadow_data is not None:
        parts.append(np.asarray(shadow_data[0], dtype=float))
        labels.append(np.asarray(shadow_data[1]))
    if any(len(rows) != len(names) for rows, names in zip(parts, labels, strict=True)):
        raise ValueError("Every set of rows needs one label per row.")
    if min(len(inside), len(outside)) < 20:
        raise ValueError("An audit needs at least 20 members and 20 outside rows.")
    X, y = np.concatenate(parts), np.concatenate(labels)
    group = np.repeat(np.arange(len(parts)), [len(rows) for rows in parts])
    if shadow_data is None:
        rng = np.random.default_rng(random_state)
        scored = np.concatenate([~attacks.halves(names, 1, rng)[0] for names in labels])
    else:
        scored = group < 2
    spread = X[~scored].std(axis=0)
    return _Pool(X, y, group == 0, scored, spread)


def _carry_out(
    name: str,
    clf: signals.Remembered,
    pool: _Pool,
    ensemble: attacks.ShadowEnsemble | None,
    seed: int,
    n_jobs: int | None,
) -> AttackResult:
    """Score the pool by one attack, fit its threshold on other rows, and judge it."""
    if reason := attacks.why_not(name, clf):
        return not_applicable(name, reason)
    inside = pool.member[pool.spare]
    threshold = None
    if name == "label_only":
        scores = label_robustness(
            clf.original, pool.X, pool.y, spread=pool.spread, random_state=seed, n_jobs=n_jobs
        )
        known = scores[pool.spare]
        if not inside.any():  # the attacker's rows are all outside: half of them reach the median
            threshold = float(np.median(known)) + 1e-9
    elif name in attacks.METRICS:
        scores = attacks.METRICS[name](clf, pool.X, pool.y)
        known = scores[pool.spare]
        if not inside.any() and ensemble is not None:
            known, inside = ensemble.scores[name][:, pool.spare], ensemble.inside[:, pool.spare]
    elif name in SHADOW:
        assert ensemble is not None
        kind = name.removeprefix("shadow_")
        trained = attacks.train_attackers(kind, ensemble, pool.y, pool.spare, n_jobs=n_jobs)
        features = attacks.attack_features(clf, pool.X, pool.y)
        scores, threshold = attacks.attacker_scores(trained, features, pool.y), 0.0
    else:
        assert ensemble is not None
        scores, known, inside = _by_likelihood(name, clf, pool, ensemble)
    if threshold is None:
        threshold = best_threshold(known[inside], known[~inside])
    members, outside = pool.scored & pool.member, pool.scored & ~pool.member
    return evaluate(
        name,
        scores[members],
        scores[outside],
        threshold=threshold,
        y_member=pool.y[members],
        y_outside=pool.y[outside],
    )


def _by_likelihood(
    name: str, clf: Any, pool: _Pool, ensemble: attacks.ShadowEnsemble
) -> tuple[Array, Array, Mask]:
    """Scores by the ensemble; scores and members where one shadow stands for the classifier."""
    rmia = name.startswith("rmia")
    signal = ensemble.scores["likelihood" if rmia else "signal"]
    observed = (attacks.log_likelihood if rmia else signals.sharpest_signal)(clf, pool.X, pool.y)
    interpolation = 1.0 if signals.is_distance_based(clf) else 0.3

    def score(observed: Array, signal: Array, inside: Mask, member: Mask) -> Array:
        if name == "lira_online":
            return attacks.lira_online(observed, signal, inside)
        if name == "lira_offline":
            return attacks.lira_offline(observed, signal, inside)
        population, offline = ~pool.scored & ~member, name == "rmia_offline"
        return attacks.rmia(
            observed, signal, inside, population, offline=offline, interpolation=interpolation
        )

    scores = score(observed, signal, ensemble.inside, pool.member)
    stand_in, others, inside, members = attacks.without(0, signal, ensemble.inside)
    trial = score(stand_in, others, inside, members)
    return scores, trial[pool.spare], members[pool.spare]

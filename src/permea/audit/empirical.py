"""Lower bounds on ε: of a mechanism by its released numbers, of a training by its predictions.

Two neighbouring inputs differ in what a fair coin decides: whether a canary is there, or which of
two versions. The better the coins are guessed from what was released, the larger ε must be. A
white-box audit reads the released numbers themselves (`permea.audit.white_box`); the others plant
canaries in the training data, or in a matrix, and score them afterwards.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from permea._arrays import Array, Mask
from permea._progress import progress
from permea.audit import signals
from permea.audit.bounds import EmpiricalEpsilon, multi_run_epsilon, one_run_epsilon
from permea.audit.white_box import (
    MOMENT_ESTIMATORS,
    MomentExperiment,
    RowExperiment,
    new_model,
    white_box_epsilon,
)
from permea.audit.white_box_hulls import moment_experiment
from permea.privacy import Privacy

RELATIONS = {
    "entry": ("replace",),
    "record": ("replace", "add/remove"),
    "person": ("replace", "add/remove"),
}
METHODS = ("white-box", "one-run", "multi-run")
_RELEASES, _TRAININGS = 8000, 200  # of both sides together
_PROMISE = ("epsilon", "delta", "unit")

Domain = tuple[ArrayLike, ArrayLike]
Score = Callable[[Any, Array, NDArray[Any]], Array]


class _Version(NamedTuple):
    """One version of each canary: its rows, their labels, and which canary they belong to."""

    rows: Array
    labels: NDArray[Any]
    canary: NDArray[np.intp]


#: Two versions of each canary: the coin picks one. None: no row at all.
Versions = tuple[_Version, _Version | None]


def empirical_epsilon(
    make_classifier: Any,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    groups: ArrayLike | None = None,
    privacy: Privacy | None = None,
    canaries: int = 500,
    method: str | None = None,
    runs: int | None = None,
    unit: str | None = None,
    neighbours: str | None = None,
    domain: Domain | None = None,
    delta: float | None = None,
    confidence: float = 0.95,
    tradeoff: str = "any",
    score: Score | None = None,
    random_state: int | None = 0,
) -> EmpiricalEpsilon:
    """Find a lower bound on the ε of a training: "it leaked at least ε = … per record (95 %)".

    A :class:`~permea.MomentClassifier` or :class:`~permea.MomentRegressor` with a promise is
    audited as a white box: its mechanism releases the moments of two made-up neighbouring data sets
    many times, and the released numbers are told apart by their likelihood ratio. The data sets are
    the worst that the plan of the noise allows. ``X`` and ``y`` are not needed for that; with them
    the bound from the predictions of the trained model stands beside it.

    All other classifiers are audited by their predictions. Record canaries are rows of ``X`` with a
    wrong label, the rows a model must remember to predict that label; the coin decides whether
    one is there or, for ``neighbours="replace"``, another such row in its place. Entry canaries are
    rows of ``X`` in which one entry is at the low or high end of the domain. The classifier is
    trained on ``X`` without the rows the canaries came from, plus the canaries as the coins fell.

    Parameters
    ----------
    make_classifier : callable or estimator
        Called without arguments for a new unfitted classifier per training, or an estimator that is
        cloned. Its randomness must be new in each training; if it is not, the audit shows it. With
        ``privacy`` a release of rows: a function from a matrix to the released matrix.
    X, y : array-like, optional
        Data to train on.
    groups : array-like, optional
        Whose each row is, for an audit per person: a canary is a person with all her rows.
    privacy : Privacy, optional
        The promise of a release of rows: see :func:`release_epsilon`.
    canaries : int
        Coins of the one-run audit; at most half the rows, or a third for replaced records.
    method : {"white-box", "one-run", "multi-run"}, optional
        The released numbers themselves; one training with many canaries (Steinke et al. 2023); or
        many trainings with one canary (Clopper-Pearson). The white box where a release is at hand,
        else one run.
    runs : int, optional
        Releases of the white box (8000), or trainings of the multi-run audit (200), half of them
        with either side of the coin. The white box makes up to 801 more, which are compared.
    unit : {"record", "entry", "person"}, optional
        What a coin decides about; records by default, persons where ``groups`` are given.
    neighbours : {"replace", "add/remove"}, optional
        The neighbour relation of records, that of the estimator by default; entries are always
        replaced.
    domain : (low, high), optional
        Needed for entries: numbers or one number per column.
    delta : float, optional
        The δ of the claim; that of the promise for the white box, else 0.
    confidence : float
        Probability with which the bound holds.
    tradeoff : {"any", "gaussian"}
        For multi-run audits of Gaussian mechanisms, see :func:`~permea.audit.multi_run_epsilon`.
    score : callable, optional
        ``score(clf, X, y)``, larger for rows that the classifier remembers. By default nearness to
        the own class (distance-based classifiers) or the label's logit.
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

    The same for a mechanism whose released moments are at hand:

    >>> from permea import MomentClassifier, Privacy
    >>> promise = Privacy(epsilon=8, delta=1e-3, unit="record", domain=(0, 1))
    >>> found = empirical_epsilon(MomentClassifier(privacy=promise), runs=200)
    >>> found.method, found.claim, bool(found.epsilon > 3)
    ('white-box', 8.0, True)
    """
    if privacy is not None:
        return release_epsilon(
            make_classifier, privacy=privacy, method=method or "white-box", runs=runs,
            delta=delta, confidence=confidence, tradeoff=tradeoff, random_state=random_state,
        )  # fmt: skip
    chosen = method or _method_for(make_classifier, unit, neighbours, score)
    _check(chosen, unit or "record", neighbours or "replace")
    found = None
    if chosen == "white-box":
        experiment = moment_experiment(make_classifier)
        relation = experiment.plan.neighbours
        own = experiment.plan.privacy.unit
        if unit not in (None, own) or neighbours not in (None, relation):
            raise ValueError(
                f"The estimator's promise is per {own} under the relation {relation!r}; a "
                "white-box audit is of that promise. Leave out unit and neighbours."
            )
        found = _measured(experiment, runs, delta, confidence)
        if X is None or y is None:
            return found
        chosen, unit, neighbours, delta = "one-run", found.unit, found.neighbours, found.delta
    if X is None or y is None:
        raise ValueError(
            "Rows X and labels y are missing. Only an estimator that releases moments under a "
            "promise, or a release of rows with privacy=…, is audited without them."
        )
    unit, neighbours = unit or ("record" if groups is None else "person"), neighbours or "replace"
    if (unit == "person") != (groups is not None):
        raise ValueError("An audit per person needs groups=…, whose each row is; others take none.")
    rng = _coin_source(random_state)
    measure = signals.sharpest_signal if score is None else score
    rows, labels = np.asarray(X, dtype=np.float64), np.asarray(y)
    count = canaries if chosen == "one-run" else 1
    people = np.arange(len(rows)) if groups is None else np.unique(groups, return_inverse=True)[1]
    base, versions = _canaries(rows, labels, people, count, unit, neighbours, domain, rng)
    stay = _Version(rows[base], labels[base], people[base])

    def train_and_score(coins: Mask) -> Array:
        data, target, whose = _planted(stay, versions, coins)
        options = {"groups": whose} if unit == "person" else {}
        return _score(measure, new_model(make_classifier).fit(data, target, **options), versions)

    trained = _guessed(
        train_and_score, chosen, count, runs or _TRAININGS, rng, delta or 0.0, confidence,
        tradeoff, unit, neighbours,
    )  # fmt: skip
    return trained if found is None else replace(found, black_box=trained.epsilon)


def release_epsilon(
    release: Callable[[Array], ArrayLike] | None = None,
    *,
    privacy: Privacy | None = None,
    domain: Domain | None = None,
    n_columns: int = 1,
    canaries: int = 5000,
    method: str | None = None,
    runs: int | None = None,
    unit: str = "entry",
    overshoot: float = 0.0,
    statistic: Callable[[Array], Array] | None = None,
    delta: float | None = None,
    confidence: float = 0.95,
    tradeoff: str = "any",
    random_state: int | None = 0,
) -> EmpiricalEpsilon:
    """Find a lower bound on the ε of a release of a matrix, row for row.

    With ``privacy`` the declared law of the noise is known, and the audit is a white box: many
    releases of a few rows, of which one is the canary, are told apart by their likelihood ratio.

    Without it, every entry (``unit="entry"``) or every whole row (``unit="record"``) is at the low
    or the high end of the domain, as its own coin says: neighbours as far apart as the domain
    allows. Noise that is independent between units makes one run as good as many.

    Parameters
    ----------
    release : callable, optional
        Takes a matrix and returns the released matrix of the same shape. With ``privacy`` the
        library's own :func:`permea.release` by default.
    privacy : Privacy, optional
        The promise: unit, domain, mechanism and claim of the white box.
    domain : (low, high)
        The declared domain, numbers or one number per column; needed without ``privacy``.
    n_columns : int
        Columns of the matrix.
    canaries : int
        Coins of the one run; releases for ``method="multi-run"``.
    method : {"white-box", "one-run", "multi-run"}, optional
        The likelihood ratio of many releases; one release of many units; or many releases of one
        unit, which also finds randomness that is repeated between releases. The white box with
        ``privacy``, else one run.
    runs : int, optional
        Releases of the white box, half of them with either side of the coin; 8000 by default.
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
    >>> def claimed(Y):  # ε = 1 per entry on [0, 1]
    ...     return np.clip(Y, 0, 1) + rng.laplace(0, 1.0, Y.shape)
    >>> bool(0.8 < release_epsilon(claimed, domain=(0, 1)).epsilon < 1.0)
    True
    >>> from permea import Privacy
    >>> found = release_epsilon(claimed, privacy=Privacy(epsilon=1, domain=(0, 1)), runs=2000)
    >>> found.method, found.claim, bool(0.5 < found.epsilon < 1.0)
    ('white-box', 1.0, True)
    """
    chosen = method or ("one-run" if privacy is None else "white-box")
    _check(chosen, unit, "replace")
    if chosen != "white-box" and "person" in (unit, getattr(privacy, "unit", "")):
        raise ValueError("Rows released per person are audited by the white box, with privacy=….")
    if chosen == "white-box":
        if privacy is None:
            raise ValueError("A white-box audit of released rows needs the promise as privacy=….")
        return _measured(RowExperiment(release, privacy), runs, delta, confidence)
    if privacy is not None:
        n_columns, unit, domain = privacy.n_columns or n_columns, privacy.unit, privacy.domain
    if release is None or domain is None:
        raise ValueError("Give the release and its declared domain=(low, high), or privacy=….")
    low, high = (np.broadcast_to(np.asarray(end, dtype=float), (n_columns,)) for end in domain)
    per_row = 1 if unit == "record" else n_columns
    n_rows = -(-canaries // per_row) if chosen == "one-run" else 1

    def observe(coins: Mask) -> Array:
        heads = np.zeros(n_rows * per_row)
        heads[: len(coins)] = coins
        heads = np.broadcast_to(heads.reshape(n_rows, per_row), (n_rows, n_columns))
        values = low + (high - low) * (heads + overshoot * (2.0 * heads - 1.0))
        unitless = (np.asarray(release(values), dtype=np.float64) - low) / (high - low)
        if statistic is not None:
            return np.ravel(statistic(unitless))
        return np.ravel(unitless.sum(axis=1) if unit == "record" else unitless)

    return _guessed(
        observe, chosen, n_rows * per_row, canaries, _coin_source(random_state), delta or 0.0,
        confidence, tradeoff, unit, "replace",
    )  # fmt: skip


def mechanism_epsilon(
    model: Any, *, runs: int | None = None, confidence: float = 0.95
) -> EmpiricalEpsilon:
    """White-box audit of the mechanism that a fitted model's certificate speaks of.

    Parameters
    ----------
    model : fitted estimator
        With ``certificate_``; a classifier of tables is looked into.
    runs : int, optional
        Releases, half of them with either side of the coin; 8000 by default.
    confidence : float
        Probability with which the bound holds.

    Raises
    ------
    ValueError
        If the mechanism cannot be run again; the message says why.

    Examples
    --------
    >>> import numpy as np
    >>> from permea import MomentClassifier, Privacy
    >>> X, y = np.random.default_rng(0).random((500, 3)), np.arange(500) % 2
    >>> promise = Privacy(epsilon=4, delta=1e-3, unit="record", domain=(0, 1))
    >>> clf = MomentClassifier(privacy=promise, classes=[0, 1], features="identity").fit(X, y)
    >>> found = mechanism_epsilon(clf, runs=400)
    >>> found.claim, found.unit, bool(found.epsilon > 1)
    (4.0, 'record', True)
    """
    reason = why_not_rerun(model)
    if reason:
        raise ValueError(f"The mechanism was not run again: {reason}.")
    inner, certificate = _released_by(model), model.certificate_
    if isinstance(inner, MOMENT_ESTIMATORS):
        fresh = clone(inner).set_params(random_state=None)
        return empirical_epsilon(fresh, method="white-box", runs=runs, confidence=confidence)
    return release_epsilon(privacy=certificate.privacy, runs=runs, confidence=confidence)


def why_not_rerun(model: Any) -> str:
    """Give the reason why a model's mechanism cannot be run again, empty if it can.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> why_not_rerun(DummyClassifier())
    'the model has no certificate, so nothing is claimed'
    """
    certificate = getattr(model, "certificate_", None)
    if certificate is None:
        return "the model has no certificate, so nothing is claimed"
    if not certificate.is_private:
        return "the certificate claims nothing: " + "; ".join(certificate.reasons_not_private)
    inner = _released_by(model)
    if getattr(inner, "holds_private_rows_", False) or getattr(inner, "privacy", "") is None:
        return "the settings of the model hold no promise: the certificate does not belong to it"
    own = getattr(inner, "privacy", certificate.privacy)
    if any(getattr(own, name) != getattr(certificate.privacy, name) for name in _PROMISE):
        return (
            f"the certificate says {certificate.privacy.describe()}, the settings of the model say "
            f"{own.describe()}: they do not belong together"
        )
    if certificate.released and not isinstance(inner, MOMENT_ESTIMATORS):
        return (
            f"what was released ({certificate.released}) cannot be released again from a "
            f"{type(inner).__name__}: the settings of its release are not stored with it"
        )
    return ""


def _released_by(model: Any) -> Any:
    """The estimator that made the release: in a classifier of tables, or of drawn rows."""
    inner = getattr(model, "classifier_", model)
    return getattr(inner, "encoder_", None) or inner


def _check(method: str, unit: str, neighbours: str) -> None:
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}.")
    if unit not in RELATIONS:
        raise ValueError(f"unit must be 'entry', 'record' or 'person', got {unit!r}.")
    if neighbours not in RELATIONS[unit]:
        raise ValueError(
            f"neighbours={neighbours!r} is not defined for unit={unit!r}; expected one of "
            f"{', '.join(map(repr, RELATIONS[unit]))}."
        )


def _method_for(make: Any, unit: str | None, neighbours: str | None, score: Score | None) -> str:
    """The white box where moments are released and nothing else is asked for."""
    model = new_model(make)
    at_hand = isinstance(model, MOMENT_ESTIMATORS) and model.privacy is not None
    if not at_hand or score is not None or unit == "entry":
        return "one-run"
    return "white-box" if neighbours in (None, model.neighbours) else "one-run"


def _measured(
    experiment: MomentExperiment | RowExperiment,
    runs: int | None,
    delta: float | None,
    confidence: float,
) -> EmpiricalEpsilon:
    """Run the white box, and put what it found beside the claim."""
    privacy = experiment.plan.privacy
    at = privacy.delta if delta is None else delta
    releases = (runs or _RELEASES) // 2
    found = white_box_epsilon(experiment, releases=releases, delta=at, confidence=confidence)
    claimed = at == privacy.delta
    return EmpiricalEpsilon(
        found.epsilon, at, privacy.unit, experiment.neighbours, confidence, "white-box",
        found.releases, experiment.note,
        claim=privacy.epsilon if claimed else None,
        assumption=found.assumption,
        assumption_free=found.assumption_free,
        attainable=experiment.attainable if claimed else None,
        seen_by=found.seen_by,
    )  # fmt: skip


def _guessed(
    observe: Callable[[Mask], Array],
    method: str,
    count: int,
    runs: int,
    rng: np.random.Generator,
    delta: float,
    confidence: float,
    tradeoff: str,
    unit: str,
    neighbours: str,
) -> EmpiricalEpsilon:
    """Bound ε by how well ``observe(coins)`` tells the coins: many at once, or one many times."""
    note = ""
    if method == "one-run":
        coins = rng.random(count) < 0.5
        epsilon, _, _ = one_run_epsilon(observe(coins), coins, delta=delta, confidence=confidence)
    else:
        count = 2 * (runs // 2)
        sides = [
            np.array([observe(np.array([side]))[0] for _ in progress(range(runs // 2), desc=name)])
            for side, name in ((False, "runs without"), (True, "runs with"))
        ]
        epsilon = multi_run_epsilon(*sides, tradeoff=tradeoff, delta=delta, confidence=confidence)
        note = "holds for Gaussian mechanisms" if tradeoff == "gaussian" else ""
    return EmpiricalEpsilon(epsilon, delta, unit, neighbours, confidence, method, count, note)


def _coin_source(random_state: int | None) -> np.random.Generator:
    """Coins of their own stream: a mechanism that is seeded alike must not repeat them."""
    return np.random.default_rng(None if random_state is None else [random_state, 0xC0175])


def _canaries(
    X: Array,
    y: NDArray[Any],
    people: NDArray[np.intp],
    count: int,
    unit: str,
    neighbours: str,
    domain: Domain | None,
    rng: np.random.Generator,
) -> tuple[NDArray[np.intp], Versions]:
    """Draw the canaries; give the positions of the rows that stay, and both versions of each."""
    members = np.split(np.argsort(people, kind="stable"), np.cumsum(np.bincount(people))[:-1])
    sources = 2 if (unit != "entry" and neighbours == "replace") else 1
    if count * sources >= len(members) - len(np.unique(y)):
        raise ValueError(
            f"{count} canaries need {count * sources} of the {len(members)} "
            f"{'persons' if unit == 'person' else 'rows'}, and some must remain to train on; ask "
            "for fewer."
        )
    order = rng.permutation(len(members))
    first, rest = order[:count], order[count:]
    if unit == "entry":
        return rest, _entry_versions(X[first], y[first], domain, rng)

    def version(chosen: NDArray[np.intp]) -> _Version:
        rows = np.concatenate([members[i] for i in chosen])
        canary = np.repeat(np.arange(count), [len(members[i]) for i in chosen])
        return _Version(X[rows], _wrong_labels(y, y[rows], rng), canary)

    heads, tails = version(first), None
    if neighbours == "replace":
        tails, rest = version(rest[:count]), rest[count:]
    return np.concatenate([members[i] for i in rest]), (heads, tails)


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
    return _Version(at_high, y, positions), _Version(at_low, y, positions)


def _wrong_labels(y: NDArray[Any], own: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    classes, positions = np.unique(y), np.searchsorted(np.unique(y), own)
    shift = rng.integers(1, max(len(classes), 2), size=len(own))
    wrong: NDArray[Any] = classes[(positions + shift) % len(classes)]
    return wrong


def _planted(
    stay: _Version, versions: Versions, coins: Mask
) -> tuple[Array, NDArray[Any], NDArray[np.intp]]:
    """Give the training data with the canaries as the coins fell, and whose each row is."""
    parts = [stay]
    for version, there in zip(versions, (coins, ~coins), strict=True):
        if version is not None:
            kept = there[version.canary]
            own = stay.canary.max() + 1 + version.canary[kept]
            parts.append(_Version(version.rows[kept], version.labels[kept], own))
    rows, labels, people = (np.concatenate(column) for column in zip(*parts, strict=True))
    return rows, labels, people


def _score(measure: Any, model: Any, versions: Versions) -> Array:
    """How much higher the heads version of each canary scores than the tails version."""

    def known(version: _Version) -> Array:
        scores = np.asarray(measure(model, version.rows, version.labels), dtype=np.float64)
        return np.bincount(version.canary, scores) / np.bincount(version.canary)

    heads, tails = versions
    return known(heads) if tails is None else known(heads) - known(tails)

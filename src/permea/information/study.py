"""Privacy, interpretability and transferability of one source over several ε (003 Algorithm 9).

The study needs the rows themselves and stays with their owner: it decides with which ε a source
model is made, before anything is handed over.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from permea._arrays import Array
from permea._progress import progress
from permea.information import (
    AdversaryReport,
    InformationLeakage,
    Interpreter,
    interpretability,
    privacy_leakage,
    simulate_attack,
)
from permea.information.leakage import column_names, same_rows, table
from permea.information.measures import MAX_SAMPLES, class_images, image_information
from permea.models.bayes import BayesianMembershipMapping
from permea.privacy import Privacy, release
from permea.privacy.release import RELEASES
from permea.transfer import SourceModel, TransferClassifier

Domain = tuple[float | tuple[float, ...], float | tuple[float, ...]]
RULES = {
    "min_privacy_leakage": ("privacy_leakage", -1),
    "max_interpretability": ("interpretability", 1),
    "max_transferability": ("transferability", 1),
    "max_accuracy": ("accuracy", 1),
}
_PAIRS = (
    "it is about pairs of a row and what was released of it, and a release of moments has none. "
    "Give trade_off source={'release': 'rows'}"
)
_MISSING = {
    "privacy_leakage": _PAIRS,
    "interpretability": f"{_PAIRS}, or leave out interpretable",
    "transferability": "give X_target and y_target to trade_off",
    "accuracy": "give X_test and y_test to trade_off",
}


@dataclass(frozen=True)
class TradeOffPoint:
    """What one ε gives.

    Attributes
    ----------
    epsilon : float
        Infinite for rows without noise.
    privacy_leakage, interpretability : InformationLeakage or None
        003 Definitions 10 and 11. Both are about pairs of a row and what was released of it. After
        a release of moments there is no such pair: the leakage is None, and the interpretability
        is that of rows drawn from the moments, or None with parameters other than the classes.
    transferability : InformationLeakage or None
        003 Definition 12; None without a target.
    image_gap : float
        Root mean squared distance between the source's and the target's image of a target row; NaN
        without a target.
    accuracy, source_accuracy : float
        Of the transfer classifier and of the source's classifier alone on the test rows; NaN
        without test rows.
    adversary : AdversaryReport or None
        The simulated attack on the private variables; None after a release of moments.
    interpreter : Interpreter or None
        Explains one noised (or drawn) row in terms of the interpretable parameters.
    source : SourceModel
        The artefact.
    classifier : TransferClassifier or None
        The target's classifier.
    """

    epsilon: float
    privacy_leakage: InformationLeakage | None
    interpretability: InformationLeakage | None
    transferability: InformationLeakage | None
    image_gap: float
    accuracy: float
    source_accuracy: float
    adversary: AdversaryReport | None
    interpreter: Interpreter | None
    source: SourceModel
    classifier: TransferClassifier | None

    def figures(self) -> dict[str, float]:
        """Every number of this point by its name."""
        measures = ("privacy_leakage", "interpretability", "transferability")
        found = {name: getattr(self, name) for name in measures}
        attack = self.adversary
        return {
            "epsilon": self.epsilon,
            **{name: math.nan if one is None else one.value for name, one in found.items()},
            "image_gap": self.image_gap,
            "accuracy": self.accuracy,
            "source_accuracy": self.source_accuracy,
            "recovered": math.nan if attack is None else attack.mean_recovered,
        }


@dataclass(frozen=True)
class TradeOff:
    """A study over several ε.

    Attributes
    ----------
    points : tuple of TradeOffPoint
        One for each ε, in the order asked for.

    See Also
    --------
    permea.report.plots.plot_trade_off : the six curves of 003 Fig. 4.
    """

    points: tuple[TradeOffPoint, ...]

    def select(self, rule: str) -> TradeOffPoint:
        """Give the point that is best by a rule (003 section 6).

        Parameters
        ----------
        rule : {"min_privacy_leakage", "max_interpretability", "max_transferability", \
"max_accuracy"}

        Returns
        -------
        TradeOffPoint
        """
        if rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}; got {rule!r}.")
        name, sign = RULES[rule]
        values = sign * np.array([point.figures()[name] for point in self.points])
        if np.isnan(values).all():
            raise ValueError(f"The study has no {name}: {_MISSING[name]}.")
        return self.points[int(np.nanargmax(values))]

    def to_frame(self) -> Any:
        """One row per ε, as a pandas data frame."""
        import pandas as pd

        return pd.DataFrame([point.figures() for point in self.points])

    def __str__(self) -> str:
        lines = ["      ε  leakage  interpretability  transferability  accuracy  source  recovered"]
        for point in self.points:
            f = point.figures()
            lines.append(
                f"{f['epsilon']:7g} {f['privacy_leakage']:8.2f} {f['interpretability']:17.2f} "
                f"{f['transferability']:16.2f} {f['accuracy']:9.4f} {f['source_accuracy']:7.4f} "
                f"{f['recovered']:10.3f}"
            )
        return "\n".join(lines)


def trade_off(
    X_source: ArrayLike,
    y_source: ArrayLike,
    *,
    private: ArrayLike | None = None,
    interpretable: ArrayLike | None = None,
    X_target: ArrayLike | None = None,
    y_target: ArrayLike | None = None,
    X_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    epsilons: Sequence[float] = (0.1, 0.25, 0.5, 1, 2, 10),
    delta: float = 1e-5,
    unit: Literal["entry", "record"] = "entry",
    domain: Domain = (0.0, 1.0),
    classifier: Any = None,
    source: dict[str, Any] | None = None,
    transfer: dict[str, Any] | None = None,
    max_samples: int | None = MAX_SAMPLES,
    models: bool = True,
    random_state: int | None = None,
) -> TradeOff:
    """Measure what leaks, what explains and what transfers for several ε (003 Algorithm 9).

    For every ε: noise the source rows, learn a source model from them and a transfer classifier
    with the target's rows; measure the information that noised rows hold about the private
    variables (Def. 10) and about the interpretable parameters (Def. 11), and that the target's
    images hold about the source's (Def. 12).

    Parameters
    ----------
    X_source, y_source : array-like
        Labelled source rows.
    private : array-like of shape (N, n), optional
        Private variables of the source rows; the rows themselves by default (003 section 6.1.2).
    interpretable : array-like of shape (N, q), optional
        Interpretable parameters of the source rows; the classes as columns of zeros and ones by
        default (003 section 6.1.1).
    X_target, y_target : array-like, optional
        Target rows and their labels, −1 where there is none. Without them nothing is transferred.
    X_test, y_test : array-like, optional
        Target rows with labels to measure accuracies on.
    epsilons : sequence of float
        The ε to compare; ``math.inf`` for no noise.
    delta, unit, domain
        The rest of the guarantee, as in `Privacy`. Rows outside the domain are refused.
    classifier : classifier of this library, optional
        Family of the source model; see `SourceModel`.
    source : dict, optional
        Further parameters of `SourceModel`. Per record the source releases class moments and needs
        ``{"classes": …}``; ``{"release": "rows"}`` is noise on rows.
    transfer : dict, optional
        Parameters of `TransferClassifier`, such as ``{"method": "centers"}``.
    max_samples : int or None
        Rows used at most for each measure.
    models : bool
        Also simulate the attack and fit the interpreter for each ε.
    random_state : int or None
        Seeds everything, the noise too: for reproducible studies, not for models to hand over.

    Returns
    -------
    TradeOff

    Notes
    -----
    Of a release of moments what leaves are sums over all rows, and no row of what was released
    belongs to a row of the source. So privacy leakage (Def. 10) and the attack on rows cannot be
    measured; what one row adds is bounded by the promise itself. Transferability, the gap of the
    images and the accuracies are measured as they are for rows. Interpretability is measured on
    rows that are drawn from the moments, each with its class.

    The measures use noise of the same law as the source model, drawn afresh. Privacy leakage and
    interpretability are about variables that are the same for every ε, so that their differences
    are differences of mutual information. Transferability is about the source's images, which
    change with ε themselves, so that it need not rise with ε: images that noise has flattened are
    easy to predict. ``image_gap``, the root mean squared distance between the images of a row by
    either side, says how far they are apart.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> X = X / 16
    >>> few = y[600:900].copy()
    >>> few[50:] = -1
    >>> study = trade_off(X[:600], y[:600], X_target=X[600:900], y_target=few,
    ...                   X_test=X[900:], y_test=y[900:], epsilons=[0.5, 10],
    ...                   max_samples=300, models=False, random_state=0)
    >>> study.select("min_privacy_leakage").epsilon, study.select("max_interpretability").epsilon
    (0.5, 10)
    >>> list(study.to_frame().columns[:3])
    ['epsilon', 'privacy_leakage', 'interpretability']
    """
    owner = _Owner(
        rows=check_array(X_source, dtype=[np.float64, np.float32], input_name="X_source"),
        labels=np.asarray(y_source),
        private=None if private is None else table(private, "private"),
        parameters=_parameters(interpretable, y_source),
        names=_names(interpretable, y_source),
        own_parameters=interpretable is not None,
        max_samples=max_samples,
        seed=random_state,
    )
    owner.check()
    target = _Target(X_target, y_target, X_test, y_test, transfer or {}, random_state)
    target.check()
    points = []
    for epsilon in progress(list(epsilons), desc="trade-off"):
        privacy = None
        if not math.isinf(epsilon):
            privacy = Privacy(epsilon=epsilon, delta=delta, unit=unit, domain=domain)
            _check_domain(owner.rows, privacy)
        model = SourceModel(
            privacy=privacy,
            classifier=classifier,
            random_state=random_state,
            **{"release": RELEASES[unit][0], **(source or {})},
        )
        points.append(_point(epsilon, model, owner, target, models))
    return TradeOff(tuple(points))


@dataclass(frozen=True)
class _Owner:
    """What the owner of the source has."""

    rows: Array
    labels: NDArray[Any]
    private: Array | None
    parameters: Array
    names: tuple[str, ...]
    max_samples: int | None
    seed: int | None
    own_parameters: bool = False  #: others than the classes

    def check(self) -> None:
        tables = {"X_source": self.rows, "y_source": self.labels, "interpretable": self.parameters}
        same_rows(**tables, **({} if self.private is None else {"private": self.private}))

    def noised(self, privacy: Privacy | None) -> tuple[Array, Array, Array]:
        """A sample of noised rows with its private variables and interpretable parameters."""
        order = np.random.default_rng(self.seed).permutation(len(self.rows))
        chosen = order if self.max_samples is None else order[: self.max_samples]
        rows = self.rows[chosen]
        hidden = rows if self.private is None else self.private[chosen]
        if privacy is not None:
            rows = release(rows, privacy, random_state=self.seed).data
        return np.asarray(rows), hidden, self.parameters[chosen]


@dataclass(frozen=True)
class _Target:
    """What the receiver has."""

    rows: ArrayLike | None
    labels: ArrayLike | None
    test_rows: ArrayLike | None
    test_labels: ArrayLike | None
    settings: dict[str, Any]
    seed: int | None

    def check(self) -> None:
        for pair in (("X_target", "y_target"), ("X_test", "y_test")):
            values = (self.rows, self.labels) if pair[0] == "X_target" else (
                self.test_rows, self.test_labels)  # fmt: skip
            if (values[0] is None) != (values[1] is None):
                raise ValueError(f"Give {pair[0]} and {pair[1]} together, or neither.")

    def sample(self, most: int | None) -> Array:
        """At most so many target rows, drawn at random."""
        rows = np.asarray(self.rows)
        order = np.random.default_rng(self.seed).permutation(len(rows))
        return np.asarray(rows[order if most is None else order[:most]], dtype=np.float64)

    def learn(self, source: SourceModel) -> TransferClassifier | None:
        if self.rows is None or self.labels is None:
            return None
        clf = TransferClassifier(source, random_state=self.seed, **self.settings)
        return clf.fit(self.rows, self.labels)

    def accuracies(
        self, source: SourceModel, clf: TransferClassifier | None
    ) -> tuple[float, float]:
        """Of the transfer classifier and of the source alone; NaN where there is none."""
        if self.test_rows is None or self.test_labels is None:
            return math.nan, math.nan
        truth = np.asarray(self.test_labels)
        if clf is None:
            return math.nan, float(np.mean(source.predict(self.test_rows) == truth))
        alone = clf.predict_source(self.test_rows)
        return float(clf.score(self.test_rows, truth)), float(np.mean(alone == truth))


def _point(
    epsilon: float, source: SourceModel, owner: _Owner, target: _Target, models: bool
) -> TradeOffPoint:
    """Steps 1 to 10 of 003 Algorithm 9 for one ε."""
    source.fit(owner.rows, owner.labels)
    clf = target.learn(source)
    moved, gap = None, math.nan
    if clf is not None:
        by_source, by_target = class_images(clf, target.sample(owner.max_samples))
        moved = image_information(by_source, by_target)
        gap = float(np.sqrt(np.mean(np.sum((by_source - by_target) ** 2, axis=1))))
    accuracy, source_accuracy = target.accuracies(source, clf)
    return TradeOffPoint(
        epsilon=epsilon,
        transferability=moved,
        image_gap=gap,
        accuracy=accuracy,
        source_accuracy=source_accuracy,
        source=source,
        classifier=clf,
        **_about_rows(source, owner, models),
    )


def _about_rows(source: SourceModel, owner: _Owner, models: bool) -> dict[str, Any]:
    """What is measured on single rows: noised ones, or rows drawn from released moments."""
    found: dict[str, Any] = dict.fromkeys(
        ("privacy_leakage", "interpretability", "adversary", "interpreter")
    )
    if source.encoder_ is None:
        rows, hidden, parameters = owner.noised(source.privacy)
        found["privacy_leakage"] = privacy_leakage(rows, hidden, max_samples=None)
        if models:
            found["adversary"] = simulate_attack(rows, hidden, random_state=owner.seed)
    elif owner.own_parameters:
        return found
    else:
        count = (owner.max_samples or MAX_SAMPLES) // len(source.classes_)
        rows, labels = source.encoder_.draw(max(count, 2), random_state=owner.seed)
        parameters = _parameters(None, labels)
    found["interpretability"] = interpretability(rows, parameters, max_samples=None)
    if models:
        model = BayesianMembershipMapping(noise="per_output", bandwidth=1.0)
        found["interpreter"] = Interpreter(model=model).fit(rows, parameters, names=owner.names)
    return found


def _check_domain(rows: Array, privacy: Privacy) -> None:
    """Refuse rows that noise would first have to clip: the study would measure the clipping."""
    low, high = privacy.lows(rows.shape[1]), privacy.highs(rows.shape[1])
    if np.any(rows < low) or np.any(rows > high):
        raise ValueError(
            "Some rows of X_source lie outside the declared domain. Declare the domain of the "
            "features with domain=(low, high), or clip the rows to it first."
        )


def _parameters(interpretable: ArrayLike | None, y: ArrayLike) -> Array:
    """The interpretable parameters, or the classes as columns of zeros and ones."""
    if interpretable is not None:
        return table(interpretable, "interpretable")
    classes, numbers = np.unique(np.asarray(y), return_inverse=True)
    return np.asarray(np.eye(len(classes))[numbers])


def _names(interpretable: ArrayLike | None, y: ArrayLike) -> tuple[str, ...]:
    if interpretable is not None:
        return column_names(interpretable, "parameter")
    return tuple(f"class {label}" for label in np.unique(np.asarray(y)))

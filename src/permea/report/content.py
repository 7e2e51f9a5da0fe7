"""What a report shows: plain values, and the functions that compute them from a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._arrays import Array
from permea._progress import progress
from permea.audit import (
    AttackReport,
    EmpiricalEpsilon,
    auc,
    clopper_pearson,
    release_epsilon,
    signals,
)
from permea.audit.synthetic import SyntheticRisks
from permea.fabricate.comparison import TableComparison
from permea.fabricate.quality import TableQuality
from permea.fabricate.rows import fabricate
from permea.privacy import Certificate, Privacy, release
from permea.tables import Schema


@dataclass(frozen=True)
class Series:
    """One curve, or the heights of one histogram."""

    name: str
    y: Sequence[float]
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart whose series share their x values.

    ``kind`` is ``"line"`` (points joined), ``"step"`` (a ROC curve) or ``"histogram"`` (``x`` are
    the centres of equal bins).
    """

    key: str
    title: str
    caption: str
    x_label: str
    y_label: str
    x: Sequence[float]
    series: Sequence[Series]
    kind: Literal["line", "step", "histogram"] = "line"
    log_x: bool = False
    y_range: tuple[float, float] | None = None
    reference: tuple[str, float] | None = None  #: a horizontal line with its name
    marked_x: float | None = None  #: the x value this report is about

    def __post_init__(self) -> None:
        if any(len(series.y) != len(self.x) for series in self.series) or len(self.x) < 2:
            raise ValueError(f"Chart {self.key!r} needs two or more x values, and as many y.")
        if self.log_x and min(self.x) <= 0:
            raise ValueError(f"Chart {self.key!r}: a logarithmic axis needs positive x values.")


@dataclass(frozen=True, kw_only=True)
class Samples:
    """The same rows at several stages, per ε: pictures when ``shape`` is given, else numbers."""

    stages: dict[str, dict[str, Array]]  #: ε as text → stage ("noised", …) → rows
    original: Array
    columns: Sequence[str] = ()
    shape: tuple[int, int] | None = None
    domain: tuple[float, float] = (0.0, 1.0)
    chosen: str = ""  #: the ε this report is about


@dataclass(frozen=True)
class Accuracy:
    """Share of correct predictions on rows not used for training, with a 95 % interval.

    ``majority`` is the share of the most frequent class: what a constant guess reaches. ``auroc``
    is how well the probabilities rank, 0.5 being guessing: the mean over the classes, each against
    all others. Both are None where they are not known.
    """

    value: float
    interval: tuple[float, float]
    n_rows: int
    per_class: dict[str, float] = field(default_factory=dict)
    majority: float | None = None
    auroc: float | None = None

    def __str__(self) -> str:
        low, high = self.interval
        text = f"accuracy {self.value:.3f} (95 % interval {low:.3f} to {high:.3f})"
        if self.majority is not None:
            text += f", majority class {self.majority:.3f}"
        if self.auroc is not None:
            text += f", AUROC {self.auroc:.3f}"
        return f"{text}, {self.n_rows} rows with a label"


@dataclass(frozen=True)
class ColumnEffect:
    """What one column contributes to a prediction, from what was released alone.

    ``importance`` is the spread of the contribution over people, ``noise`` the spread that noise
    alone would give it. ``values`` has the contribution of each category and its standard
    deviation; numbers have a chart instead.
    """

    column: str
    importance: float
    noise: float
    values: Sequence[tuple[str, float, float]] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything one report shows; parts that were not computed are left out.

    Attributes
    ----------
    title : str
        What was made.
    facts : dict
        Model, data, date, version: what an engineer looks for first.
    certificates : dict
        Name → certificate; one per party of a federation. Empty when nothing is promised.
    accuracy : Accuracy or None
        On rows that were not used for training.
    attacks : dict or None
        `permea.audit.AttackReport.to_dict`.
    baseline : str
        What the same model achieves without privacy, as a sentence.
    alternatives : sequence of (str, str, str, str)
        Other ways on the same rows, this one first: name, promise, AUROC, AUC of the strongest
        attack.
    charts : sequence of Chart
        In the order they are shown.
    samples : Samples or None
        Rows before and after noise and fabrication. Shows real rows: for public data only.
    effects : sequence of ColumnEffect
        What each column contributes, for models that add up columns.
    quality : TableQuality or None
        How near a synthetic table is to what was released.
    comparison : TableComparison or None
        The synthetic table beside the real one.
    risks : SyntheticRisks or None
        What attacks on the synthetic table achieved.
    measures : dict
        Leakage, interpretability, transferability, where computed: name → (value, what it means).
    reproduce : sequence of str
        Commands.
    computed_from_private_rows : sequence of str
        Parts of the report that no noise protects.
    purpose : str
        What it was made for, as the assessment says it.
    remark : str
        What a reader of the promise must know besides, such as a total over several releases.
    schema : Schema or None
        The declared columns: the categories of data of the assessment.
    holders : sequence of (str, str)
        Who holds what; the owner of the rows and the reader by default.
    """

    title: str
    facts: dict[str, str] = field(default_factory=dict)
    certificates: dict[str, Certificate] = field(default_factory=dict)
    accuracy: Accuracy | None = None
    attacks: dict[str, Any] | None = None
    baseline: str = ""
    alternatives: Sequence[tuple[str, str, str, str]] = ()
    charts: Sequence[Chart] = ()
    samples: Samples | None = None
    effects: Sequence[ColumnEffect] = ()
    quality: TableQuality | None = None
    comparison: TableComparison | None = None
    risks: SyntheticRisks | None = None
    measures: dict[str, tuple[str, str]] = field(default_factory=dict)
    reproduce: Sequence[str] = ()
    computed_from_private_rows: Sequence[str] = ()
    purpose: str = ""
    remark: str = ""
    schema: Schema | None = None
    holders: Sequence[tuple[str, str]] = ()

    @property
    def is_private(self) -> bool:
        """Whether there are certificates, and every one of them promises something.

        Whether the promise is verified is a different question: see `is_verified` and `status`.
        """
        return bool(self.certificates) and all(
            certificate.is_private for certificate in self.certificates.values()
        )

    @property
    def reasons_not_private(self) -> list[str]:
        """Why the certificates promise nothing, over all of them."""
        found = {text for one in self.certificates.values() for text in one.reasons_not_private}
        return sorted(found)

    @property
    def is_verified(self) -> bool:
        """Whether every certificate was made by this process or signed by a trusted key."""
        return all(certificate.is_verified for certificate in self.certificates.values())

    @property
    def status(self) -> str:
        """The verdict: "PRIVATE", "unverified claim" or "not private"."""
        if not self.is_private:
            return "not private"
        return "PRIVATE" if self.is_verified else "unverified claim"

    @property
    def weakest(self) -> Certificate | None:
        """The certificate with the largest ε about a whole record.

        Parties hold different rows, so the weakest promise is the promise about everybody.
        """
        return max(self.certificates.values(), key=lambda c: c.record_epsilon, default=None)

    @property
    def strongest_attack(self) -> dict[str, Any] | None:
        """The attack of the largest AUC."""
        applied = [one for one in (self.attacks or {}).get("attacks", []) if not one["note"]]
        return max(applied, key=lambda one: one["auc"], default=None)

    def charts_of(self, section: str) -> list[Chart]:
        """Charts of one section, found by how their keys start; "" for those of no section."""
        named = ("roc", "utility", "distances", "effects")
        if section:
            return [chart for chart in self.charts if chart.key.startswith(section)]
        return [chart for chart in self.charts if not chart.key.startswith(named)]


#: attacks that need no shadow models: seconds, not minutes
METRIC_ATTACKS = ("correctness", "loss", "confidence", "entropy", "modified_entropy", "distance")
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_ROC_POINTS = 60


def accuracy_of(model: Any, X: ArrayLike, y: ArrayLike) -> Accuracy:
    """Accuracy with its exact 95 % interval, the majority's share and AUROC beside it.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> guess = DummyClassifier().fit([[0.0], [1.0]], [0, 0])
    >>> accuracy_of(guess, [[0.0], [1.0]], [0, 1]).value
    0.5
    """
    scores = signals.class_probabilities(model, X) if signals.gives_scores(model) else None
    classes = getattr(model, "classes_", np.unique(np.asarray(y)))
    return accuracy_from(y, model.predict(X), scores, classes)


def accuracy_from(
    truth: ArrayLike, predicted: ArrayLike, scores: Array | None, classes: ArrayLike
) -> Accuracy:
    """The same from predictions; ``scores`` has a column per class, in the order of ``classes``.

    Examples
    --------
    >>> scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]])
    >>> print(accuracy_from(["a", "b", "a"], ["a", "a", "a"], scores, ["a", "b"]))
    accuracy 0.667 (95 % interval 0.094 to 0.992), majority class 0.667, AUROC 1.000, 3 rows with a
    label
    """
    labels = np.asarray(truth)
    right = np.asarray(predicted) == labels
    names, counts = np.unique(labels, return_counts=True)
    return Accuracy(
        float(right.mean()),
        clopper_pearson(int(right.sum()), len(right)),
        len(right),
        {str(name): float(right[labels == name].mean()) for name in names},
        float(counts.max() / len(labels)),
        None if scores is None else _auroc(labels, scores, np.asarray(classes)),
    )


def _auroc(labels: NDArray[Any], scores: Array, classes: NDArray[Any]) -> float | None:
    """Mean over the classes of how well a class's scores tell its rows from all others."""
    found = []
    for place, name in enumerate(classes):
        own = labels == name
        if own.any() and not own.all():
            found.append(auc(scores[own, place], scores[~own, place]))
    return float(np.mean(found)) if found else None


def measured_claim(privacy: Privacy, n_columns: int, canaries: int = 20000) -> EmpiricalEpsilon:
    """Lower bound on what the mechanism of a promise leaks, measured on synthetic rows.

    Rows at the two ends of the declared domain are released, and an attack guesses which end each
    of them was. No private row is read. A bound above the promise would refute it.
    """
    width = 1 if privacy.unit == "entry" else n_columns
    low, high = float(privacy.lows(n_columns)[0]), float(privacy.highs(n_columns)[0])
    same = replace(privacy, domain=(low, high), bound=None)
    return release_epsilon(
        lambda rows: release(rows, same).data,
        domain=(low, high),
        n_columns=width,
        canaries=canaries if width == 1 else min(canaries, max(1000, 2_000_000 // width)),
        unit=privacy.unit,
        delta=privacy.delta,
        random_state=None,
    )


def roc_chart(
    report: AttackReport, names: Sequence[str] = ("distance", "loss", "entropy")
) -> Chart:
    """ROC curves of some attacks on a common axis of false alarms, logarithmic."""
    shown = [one for one in report.attacks if one.applies and one.name in names]
    least = 1.0 / max([one.n_outside for one in shown], default=100)
    rates = np.geomspace(least, 1.0, _ROC_POINTS)
    series = []
    for one in shown:
        false, true = one.roc
        heights = [float(true[false <= rate + 1e-12].max()) for rate in rates]
        series.append(Series(f"{one.name.replace('_', ' ')} (AUC {one.auc:.2f})", heights))
    series.append(Series("guessing", rates.tolist(), dashed=True))
    return Chart(
        key="roc",
        title="Training rows found against false alarms",
        caption="What share of the training rows an attack finds (vertical) at a given share of "
        "false alarms (horizontal). A curve far above guessing at the left is dangerous.",
        x_label="false alarms",
        y_label="training rows found",
        x=rates.tolist(),
        series=series,
        kind="step",
        log_x=True,
        y_range=(0.0, 1.0),
    )


def _nearness(model: Any) -> tuple[str, Callable[[ArrayLike], Array]]:
    """What tells training rows best without labels: larger for rows that look more like them."""
    if signals.is_distance_based(model):
        return "smallest distance", lambda X: signals.nearness(model, X)
    return "largest class probability", lambda X: signals.confidence(model, X)


def distance_auc(model: Any, X_member: ArrayLike, X_outside: ArrayLike) -> float:
    """How well the smallest distance separates training rows from others; 0.5 is guessing.

    A model without distances is judged by its largest class probability.
    """
    _, near = _nearness(model)
    return auc(near(X_member), near(X_outside))


def distance_chart(
    model: Any,
    X_member: ArrayLike,
    X_outside: ArrayLike,
    *,
    key: str,
    title: str | None = None,
    bins: int = 30,
) -> Chart:
    """Histograms of the smallest distance of members and of others (004 Fig. 13).

    For a model without distances, of the largest class probability.
    """
    what, near = _nearness(model)
    sides = [near(X_member), near(X_outside)]
    member_auc = auc(*sides)
    if what == "smallest distance":
        sides = [-side for side in sides]
        edges = np.linspace(0.0, float(np.quantile(np.concatenate(sides), 0.995)) or 1.0, bins + 1)
        caption = "How far rows are from the nearest class. If training rows are nearer than others"
    else:
        edges = np.linspace(0.0, 1.0, bins + 1)
        caption = "How sure the model is. If it is surer of training rows than of others"
    heights = [np.histogram(side, bins=edges)[0] / len(side) for side in sides]
    return Chart(
        key=key,
        title=title or what.capitalize(),
        caption=f"{caption}, this reveals them: it separates the two with an AUC of "
        f"{member_auc:.2f}.",
        x_label=what,
        y_label="share of rows",
        x=((edges[1:] + edges[:-1]) / 2).tolist(),
        series=[
            Series("used for training", heights[0].tolist()),
            Series("not used for training", heights[1].tolist()),
        ],
        kind="histogram",
    )


def utility_chart(
    train: Callable[[Privacy], Any],
    privacy: Privacy,
    members: tuple[ArrayLike, ArrayLike],
    outside: tuple[ArrayLike, ArrayLike],
    *,
    epsilons: Sequence[float] = EPSILONS,
    plain_accuracy: float | None = None,
) -> Chart:
    """Accuracy and the AUC of `distance_auc` over ε, each from a fresh training.

    ``train`` gets a `Privacy` and returns a fitted model; ``plain_accuracy`` is what the same
    reaches without privacy.
    """
    values = sorted({*epsilons, privacy.epsilon})
    accuracy, attacked = [], []
    for epsilon in progress(values, desc="privacy against usefulness"):
        model = train(replace(privacy, epsilon=epsilon))
        accuracy.append(accuracy_of(model, *outside).value)
        attacked.append(distance_auc(model, members[0], outside[0]))
    series = [Series("accuracy", accuracy), Series("membership attack, AUC", attacked)]
    if plain_accuracy is not None:
        series.append(Series("accuracy without privacy", [plain_accuracy] * len(values)))
    return Chart(
        key="utility",
        title="Accuracy and attack over ε",
        caption=f"Each point is a separate model. Horizontal: ε per {privacy.unit}; more privacy "
        "is to the left. The dashed vertical line is the model of this report.",
        x_label=f"ε per {privacy.unit}",
        y_label="share, AUC",
        x=values,
        series=series,
        log_x=True,
        y_range=(0.0, 1.0),
        reference=("0.5: the attack is guessing", 0.5),
        marked_x=privacy.epsilon,
    )


def samples_of(
    X: Array,
    y: NDArray[Any],
    privacy: Privacy,
    *,
    count: int = 10,
    shape: tuple[int, int] | None = None,
    columns: Sequence[str] = (),
    epsilons: Sequence[float] = EPSILONS,
) -> Samples:
    """One row of each class (at most ``count``) before and after, for several ε.

    The rows are shown as they are: use public data, or keep the report with the data.
    """
    classes = np.unique(y)[:count]
    chosen = [int(np.flatnonzero(y == name)[0]) for name in classes]
    stages: dict[str, dict[str, Array]] = {}
    for epsilon in sorted({*epsilons, privacy.epsilon}):
        noised = np.asarray(release(X, replace(privacy, epsilon=epsilon)).data, dtype=np.float64)
        made = np.stack([_fabricated(noised, y, row) for row in chosen])
        stages[_name(epsilon, privacy.unit)] = {"noised": noised[chosen], "fabricated": made}
    low, high = (float(np.min(privacy.lows(X.shape[1]))), float(np.max(privacy.highs(X.shape[1]))))
    return Samples(
        stages=stages,
        original=X[chosen],
        columns=columns,
        shape=shape,
        domain=(low, high),
        chosen=_name(privacy.epsilon, privacy.unit),
    )


def _name(epsilon: float, unit: str) -> str:
    return f"ε = {epsilon:g} per {unit}"


def _fabricated(noised: Array, y: NDArray[Any], row: int) -> Array:
    """The fabricated version of one row, made with all noised rows of its class."""
    mates = np.flatnonzero(y == y[row])
    made = fabricate(noised[mates], n_components=min(20, noised.shape[1]), branch_size=2000)
    return np.asarray(made.data[int(np.flatnonzero(mates == row)[0])])


_MOST_CURVES = 12


def effects_of(found: Sequence[Any], unit: str) -> tuple[list[ColumnEffect], list[Chart]]:
    """What columns contribute, as rows of a table and as curves of numbers.

    Parameters
    ----------
    found : sequence of permea.models.explanation.Effect
        The most important first.
    unit : str
        What a contribution is measured in, such as "contribution to ill".
    """
    rows: list[ColumnEffect] = []
    charts: list[Chart] = []
    for one in found:
        if one.values.shape[1] > 1:  # several classes: how much, and not where to
            rows.append(ColumnEffect(one.column, _norm(one.importance), _norm(one.noise)))
            continue
        names = [name.removeprefix(one.column) for name in one.features]
        both = zip(one.values[:, 0].tolist(), one.std[:, 0].tolist(), strict=True)
        points = [(name, *pair) for name, pair in zip(names, both, strict=True)]
        curve = [(_place(name), *pair) for name, *pair in points if _place(name) is not None]
        rest = [(name.lstrip(" =@"), *pair) for name, *pair in points if _place(name) is None]
        rows.append(ColumnEffect(one.column, float(one.importance[0]), float(one.noise[0]), rest))
        if len(curve) > 1 and len(charts) < _MOST_CURVES:
            charts.append(_effect_chart(one.column, curve, unit))
    return rows, charts


def _norm(values: Array) -> float:
    return float(np.linalg.norm(values))


def _place(name: str) -> float | None:
    """Where on the axis of a number a feature such as "@42" lies."""
    try:
        return float(name.removeprefix("@")) if name.startswith("@") else None
    except ValueError:
        return None


def _effect_chart(column: str, curve: Sequence[Any], unit: str) -> Chart:
    x, value, deviation = (np.array(part, dtype=np.float64) for part in zip(*curve, strict=True))
    return Chart(
        key=f"effects-{column}",
        title=column,
        caption="Contribution to the prediction; zero is that of the mean. The dashed lines are "
        "two standard deviations away: sampling, privacy noise and shrinkage.",
        x_label=column,
        y_label=unit,
        x=x.tolist(),
        series=[
            Series("contribution", value.tolist()),
            Series("upper end", (value + 2 * deviation).tolist(), dashed=True),
            Series("lower end", (value - 2 * deviation).tolist(), dashed=True),
        ],
        reference=("none", 0.0),
    )

"""Pictures of leakage, interpretability and transferability (003 Fig. 3 to 7)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from permea.information import AdversaryReport, Explanation
from permea.report.pictures import pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS = {
    "privacy_leakage": "privacy leakage (nats)",
    "interpretability": "interpretability (nats)",
    "transferability": "transferability (nats)",
    "accuracy": "accuracy",
}
_CURVES = (  # the panels a to f of 003 Fig. 4
    ("privacy_leakage", "accuracy"),
    ("privacy_leakage", "interpretability"),
    ("privacy_leakage", "transferability"),
    ("interpretability", "transferability"),
    ("interpretability", "accuracy"),
    ("transferability", "accuracy"),
)


def plot_trade_off(frame: Any) -> "Figure":
    """Draw the six trade-off curves between the three measures and accuracy (003 Fig. 4).

    Parameters
    ----------
    frame : pandas.DataFrame
        One row per ε, as ``TradeOff.to_frame`` gives it.

    Returns
    -------
    matplotlib Figure
        Six axes. Where there is no target or no test set, the curves concerned stay empty.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"epsilon": [0.1, 10], "privacy_leakage": [-50.0, 300.0],
    ...     "interpretability": [-2.0, 5.0], "transferability": [-600.0, 400.0],
    ...     "accuracy": [0.95, 0.99], "source_accuracy": [0.2, 0.99]})
    >>> len(plot_trade_off(frame).axes)
    6
    """
    figure, axes = pyplot().subplots(2, 3, figsize=(11, 6.4), layout="constrained")
    ordered = frame.sort_values("epsilon")
    for ax, letter, (across, up) in zip(axes.flat, "abcdef", _CURVES, strict=True):
        _curve(ax, ordered, across, up, "transfer" if up == "accuracy" else None)
        if up == "accuracy":
            _curve(ax, ordered, across, "source_accuracy", "source alone")
            ax.legend(fontsize="small")
        else:
            for _, point in ordered.iterrows():
                place = (point[across], point[up])
                ax.annotate(f"ε={point['epsilon']:g}", place, xytext=(4, -10),
                            textcoords="offset points", fontsize="small")  # fmt: skip
        ax.set(xlabel=_LABELS[across], ylabel=_LABELS[up], title=f"({letter})")
    return figure  # type: ignore[no-any-return]


def _curve(ax: Any, frame: Any, across: str, up: str, label: str | None) -> None:
    rows = frame[[across, up]].dropna()
    ax.plot(rows[across], rows[up], marker="o", label=label)


def plot_estimates(
    level: ArrayLike,
    estimated: ArrayLike,
    theory: ArrayLike,
    *,
    error: ArrayLike | None = None,
    xlabel: str = "σ",
    ax: "Axes | None" = None,
) -> Any:
    """Draw estimated leakage beside the theoretical one (003 Fig. 3).

    Parameters
    ----------
    level : array-like of shape (k,)
        Noise levels.
    estimated, theory : array-like of shape (k,)
        Leakages in nats.
    error : array-like of shape (k,), optional
        Standard errors of the estimates.
    xlabel : str
        What the levels are.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib Axes
    """
    ax = pyplot().subplots(figsize=(5.5, 4), layout="constrained")[1] if ax is None else ax
    ax.plot(level, theory, color="black", label="theory")
    wide = None if error is None else 1.96 * np.asarray(error)
    ax.errorbar(level, estimated, yerr=wide, marker="o", linestyle="none", capsize=3,
                label="estimated")  # fmt: skip
    ax.set(xlabel=xlabel, ylabel="information leakage (nats)")
    ax.legend()
    return ax


def plot_leakage_levels(
    samples: Sequence[ArrayLike],
    titles: Sequence[str],
    *,
    shape: tuple[int, int] | None = None,
) -> "Figure":
    """Draw one row of data as it looks at several levels of leakage (003 Fig. 5 and 7).

    Parameters
    ----------
    samples : sequence of array-like of shape (p,)
        The same row with more and more noise.
    titles : sequence of str
        One for each, such as its ε and its measures.
    shape : (height, width), optional
        Draw images of this shape; curves by default, as for R-R intervals.

    Returns
    -------
    matplotlib Figure
    """
    if len(samples) != len(titles) or not len(samples):
        raise ValueError(
            f"Give one title for each sample, and at least one: {len(samples)} samples, "
            f"{len(titles)} titles."
        )
    lines = max(title.count("\n") + 1 for title in titles)
    size = (2.4 * len(samples), 2.6 + 0.3 * lines)
    figure, axes = pyplot().subplots(
        1, len(samples), figsize=size, layout="constrained", squeeze=False
    )
    for ax, sample, title in zip(axes.flat, samples, titles, strict=True):
        row = np.asarray(sample, dtype=float)
        if shape is None:
            ax.plot(row, linewidth=0.8)
        else:
            ax.imshow(row.reshape(shape), cmap="gray")
            ax.set_axis_off()
        ax.set_title(title, fontsize="small")
    return figure  # type: ignore[no-any-return]


def plot_subject_boxes(
    accuracies: Mapping[str, ArrayLike], *, ax: "Axes | None" = None, ylabel: str = "accuracy"
) -> Any:
    """Draw how accuracies spread over subjects, one box per method (003 Fig. 6).

    Parameters
    ----------
    accuracies : mapping of str to array-like of shape (subjects,)
        Accuracy of each subject, by method.
    ax : matplotlib Axes, optional
        Where to draw.
    ylabel : str
        What is shown.

    Returns
    -------
    matplotlib Axes
    """
    if not accuracies:
        raise ValueError("Give the accuracies of at least one method.")
    ax = (
        pyplot().subplots(figsize=(1.6 + 1.5 * len(accuracies), 4), layout="constrained")[1]
        if ax is None
        else ax
    )
    columns = [np.asarray(values, dtype=float) for values in accuracies.values()]
    columns = [values[~np.isnan(values)] for values in columns]
    ax.boxplot(columns)
    ax.set_xticks(range(1, len(columns) + 1), list(accuracies), rotation=20, ha="right")
    for place, values in enumerate(columns, start=1):
        spread = np.linspace(-0.12, 0.12, len(values)) if len(values) > 1 else np.zeros(len(values))
        ax.plot(place + spread, values, ".", color="tab:orange", alpha=0.6)
    ax.set_ylabel(ylabel)
    return ax


def plot_explanation(explanation: Explanation, *, ax: "Axes | None" = None) -> Any:
    """Draw what a row means: each parameter with its error bar, beside what is usual.

    The axis counts usual deviations, so that parameters in different units stand side by side.

    Parameters
    ----------
    explanation : Explanation
        From ``Interpreter.explain``.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib Axes
    """
    estimates = explanation.estimates
    height = 1 + 0.4 * len(estimates)
    ax = pyplot().subplots(figsize=(6, height), layout="constrained")[1] if ax is None else ax
    spread = np.array([estimate.spread or 1.0 for estimate in estimates])
    gap = np.array([estimate.value - estimate.usual for estimate in estimates]) / spread
    bars = np.array([estimate.std for estimate in estimates]) / spread
    places = np.arange(len(estimates))[::-1]
    ax.axvspan(-1, 1, color="0.9", label="usual")
    ax.errorbar(gap, places, xerr=bars, marker="o", linestyle="none", capsize=3, label="this row")
    labels = [f"{one.name}: {one.value:.3g} ± {one.std:.2g}" for one in estimates]
    ax.set_yticks(places, labels)
    ax.set_xlabel("deviations from what is usual")
    ax.legend(fontsize="small")
    return ax


def plot_recovery(report: AdversaryReport, *, most: int = 20, ax: "Axes | None" = None) -> Any:
    """Draw how much of each hidden variable an adversary recovers, with 95 % intervals.

    Parameters
    ----------
    report : AdversaryReport
        From `simulate_attack`.
    most : int
        Draw so many variables at most, those recovered best.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib Axes
    """
    order = np.argsort(-np.nan_to_num(report.recovered, nan=-np.inf))[:most]
    shares = np.clip(report.recovered[order], 0, 1)
    low, high = np.clip(report.interval[order], 0, 1).T
    height = 1 + 0.35 * len(order)
    ax = pyplot().subplots(figsize=(6, height), layout="constrained")[1] if ax is None else ax
    places = np.arange(len(order))[::-1]
    ax.barh(places, shares, color="tab:blue", alpha=0.7)
    ax.errorbar(shares, places, xerr=[np.maximum(shares - low, 0), np.maximum(high - shares, 0)],
                linestyle="none", color="black", capsize=3)  # fmt: skip
    ax.set_yticks(places, [report.names[k] for k in order])
    ax.set(xlim=(0, 1), xlabel="share of the variance recovered")
    return ax

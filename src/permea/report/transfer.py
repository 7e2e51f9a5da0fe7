"""A picture of what a transfer did to the unlabelled rows."""

from typing import TYPE_CHECKING, Any

import numpy as np

from permea.report.pictures import pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_history(clf: Any, *, ax: "Axes | None" = None) -> Any:
    """Draw the history of a transfer: labels changed in each pass, and accuracy where it is known.

    Parameters
    ----------
    clf : fitted TransferClassifier
        Or anything with a ``history_`` of its kind.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib Axes
        Bars for the labels changed; a line on a second axis for the share of right labels, when
        ``fit`` was told the truth.
    """
    history = clf.history_
    ax = pyplot().subplots(figsize=(6, 4))[1] if ax is None else ax
    places = np.arange(len(history))
    ax.bar(places, [step.changed for step in history], color="tab:gray", alpha=0.5)
    ax.set_xticks(places, [step.step.replace(", ", "\n") for step in history], fontsize="small")
    ax.set_ylabel("labels changed")
    right = [step.accuracy for step in history]
    if any(value is not None for value in right):
        second = ax.twinx()
        values = [np.nan if value is None else value for value in right]
        second.plot(places, values, marker="o", color="tab:blue")
        second.set_ylabel("share of right labels", color="tab:blue")
    ax.set_title(f"transfer by {getattr(clf, 'method', 'history')}")
    return ax

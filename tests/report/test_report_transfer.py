"""The picture of a history shows what the history says."""

from types import SimpleNamespace

import matplotlib as mpl
import pytest

mpl.use("Agg")

from permea.report.plots import plot_history
from permea.transfer import Iteration


@pytest.fixture
def clf():
    steps = [Iteration("initial labels", 90, 0.8), Iteration("round 1, n = 10", 12, 0.9)]
    return SimpleNamespace(history_=steps, method="consensus")


def test_bars_are_the_labels_changed_and_the_line_is_the_accuracy(clf):
    ax = plot_history(clf)
    assert [bar.get_height() for bar in ax.patches] == [90, 12]
    other = next(one for one in ax.figure.axes if one is not ax)
    assert list(other.lines[0].get_ydata()) == [0.8, 0.9]


def test_without_truth_there_is_no_line(clf):
    clf.history_ = [step._replace(accuracy=None) for step in clf.history_]
    assert len(plot_history(clf).figure.axes) == 1

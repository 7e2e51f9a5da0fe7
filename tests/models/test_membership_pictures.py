"""Pictures of the families show what they claim to show."""

import sys

import numpy as np
import pytest

from permea.report.plots import log_membership, plot_abstraction, plot_membership_function


@pytest.fixture(autouse=True)
def headless():
    import matplotlib

    matplotlib.use("Agg")
    yield
    matplotlib.pyplot.close("all")


def test_abstraction_shows_the_point_first_and_every_image():
    point, images = np.arange(6.0), [np.zeros(6), np.ones(6)]
    figure = plot_abstraction(point, images, shape=(2, 3), titles=["layer 1", "layer 2"])
    shown = [axis.images[0].get_array() for axis in figure.axes]
    np.testing.assert_array_equal(shown[0], point.reshape(2, 3))
    np.testing.assert_array_equal(shown[2], np.ones((2, 3)))
    assert [axis.get_title() for axis in figure.axes] == ["input", "layer 1", "layer 2"]


def test_abstraction_refuses_pictures_of_the_wrong_size():
    with pytest.raises(ValueError, match="needs points with 6 features"):
        plot_abstraction(np.zeros(5), [], shape=(2, 3))
    with pytest.raises(ValueError, match="1 titles for 2 images"):
        plot_abstraction(np.zeros(6), [np.zeros(6)] * 2, shape=(2, 3), titles=["one"])


def test_membership_function_spreads_with_nu():
    """000 Fig. 2 and Remark 3: two inputs, w = 0.25, larger ν spreads further."""
    figure = plot_membership_function((2.1, 10.0), n_points=21)
    narrow, wide = (axis.images[0].get_array() for axis in figure.axes if axis.images)
    assert narrow[10, 10] == wide[10, 10] == 0
    K = np.array([[1, np.exp(-0.5)], [np.exp(-0.5), 1]])
    corner = log_membership(np.array([[-5.0, -5.0]]), K, 2.1)[0]
    assert narrow[0, 0] == pytest.approx(corner)
    assert (narrow <= wide).mean() > 0.5


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"permea\[plot\]"):
        plot_membership_function()

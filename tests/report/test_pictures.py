"""Pictures show what they say: the drawn data are checked, not the pixels."""

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from permea import ConditionallyDeep, KAHMClassifier, KernelAffineHullMachine
from permea.report import plots as pictures


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def test_the_image_of_the_plane_is_that_of_the_model(blobs):
    X, _ = blobs
    machine = KernelAffineHullMachine(n_components=2).fit(X)
    ax = pictures.plot_image(machine, X, resolution=10)
    drawn = ax.collections[0].get_offsets().data
    assert drawn.shape == (100, 2)
    assert np.linalg.norm(drawn, axis=1).max() <= machine.norm_bound_


def test_decision_regions_show_the_distance_field(blobs):
    X, y = blobs
    clf = KAHMClassifier(n_components=2, n_layers=2).fit(X, y)
    ax = pictures.plot_decision_regions(clf, X, y, resolution=20)
    field = ax.collections[0].get_array()
    assert field.size == 400
    assert field.min() >= 0
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0", "1", "2"]


def test_layers_are_drawn_with_the_one_that_counts(digits):
    Y = digits[0][digits[2] == 8]
    deep = ConditionallyDeep(KernelAffineHullMachine(n_components=6), n_layers=4).fit(Y)
    figure = pictures.plot_layers(deep, Y[0])
    assert len(figure.axes) == 6
    last = figure.axes[-1].images[0].get_array().data.ravel()
    np.testing.assert_allclose(last, deep.reconstruct(Y[:1])[0])


def test_noise_grows_as_epsilon_falls(digits):
    figure = pictures.plot_noise(digits[0][0], [16, 4, 1])
    shown = [ax.images[0].get_array().data for ax in figure.axes]
    distances = [np.linalg.norm(picture - shown[0]) for picture in shown]
    assert distances == sorted(distances)
    assert "per entry" in figure.axes[1].get_title()


def test_fabricated_pictures_name_their_unit(digits):
    Y = digits[0][digits[2] == 3]
    figure = pictures.plot_fabricated(Y, epsilons=[2], n_components=[3], n_samples=4)
    assert len(figure.axes) == 8
    assert figure.axes[4].get_ylabel() == "ε = 2 per entry, n = 3"


def test_histograms_compare_members_and_others(digits):
    X_train, X_test, y_train, _ = digits
    clf = KAHMClassifier(n_components=5, n_layers=2).fit(X_train, y_train)
    figure = pictures.plot_distance_histograms({"plain": clf}, X_train, X_test)
    assert figure.axes[0].get_title() == "plain"
    assert len(figure.axes[0].patches) == 80


def test_wrong_shapes_are_explained(digits):
    with pytest.raises(ValueError, match="two features"):
        pictures.plot_image(None, np.ones((3, 5)))
    with pytest.raises(ValueError, match="not a square image"):
        pictures.plot_noise(np.ones(5), [1.0])

"""Pictures of models and of the wall, as functions a user calls.

Each takes an optional matplotlib ``ax`` (or makes a figure of its own) and returns what it drew on.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from permea.compose import ConditionallyDeep, ReconstructionClassifier
from permea.models.base import Array
from permea.privacy import Privacy, release
from permea.privacy.fabrication import fabricate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def pyplot() -> Any:
    """Give matplotlib.pyplot, or say how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as reason:
        raise ImportError(
            "Pictures need matplotlib. Install it with: pip install 'permea[plot]'"
        ) from reason
    return plt


def plot_image(model: Any, Y: ArrayLike, *, ax: "Axes | None" = None, resolution: int = 120) -> Any:
    """Draw the image of the plane under a model of two-dimensional rows (004 Fig. 4).

    Parameters
    ----------
    model : fitted model
        Anything with ``reconstruct``.
    Y : array-like of shape (N, 2)
        The rows it was fitted to.
    ax : matplotlib Axes, optional
        Where to draw.
    resolution : int
        Points of the plane along each side whose images are drawn.

    Returns
    -------
    matplotlib Axes
    """
    Y = _two_columns(Y)
    ax = pyplot().subplots(figsize=(5, 4))[1] if ax is None else ax
    points, _, _ = _grid(Y, resolution)
    image = model.reconstruct(points)
    ax.scatter(
        image[:, 0], image[:, 1], s=3, color="tab:orange", alpha=0.4, label="image of the plane"
    )
    ax.scatter(Y[:, 0], Y[:, 1], s=14, marker="+", color="black", label="rows")
    ax.legend(loc="best", fontsize="small")
    return ax


def plot_decision_regions(
    clf: ReconstructionClassifier,
    X: ArrayLike,
    y: ArrayLike,
    *,
    ax: "Axes | None" = None,
    resolution: int = 150,
) -> Any:
    """Draw the distance field of a classifier in the plane with its decision regions (004 Fig. 8).

    The colour is the distance to the nearest class; white lines part the classes.

    Parameters
    ----------
    clf : fitted classifier
        With ``distances``, on two features.
    X, y : array-like
        Rows and labels to show.
    ax : matplotlib Axes, optional
        Where to draw.
    resolution : int
        Grid points along each side.

    Returns
    -------
    matplotlib Axes
    """
    X = _two_columns(X)
    ax = pyplot().subplots(figsize=(5.5, 4.2))[1] if ax is None else ax
    points, across, up = _grid(X, resolution)
    distances = clf.distances(points)
    field = distances.min(axis=1).reshape(across.shape)
    winner = distances.argmin(axis=1).reshape(across.shape)
    colours = ax.pcolormesh(across, up, field, cmap="viridis_r", shading="auto")
    ax.figure.colorbar(colours, ax=ax, label="distance to the nearest class")
    for label in range(len(clf.classes_)):
        ax.contour(across, up, winner == label, levels=[0.5], colors="white", linewidths=1)
        rows = X[np.asarray(y) == clf.classes_[label]]
        ax.scatter(rows[:, 0], rows[:, 1], s=16, marker="+", label=str(clf.classes_[label]))
    ax.legend(loc="best", fontsize="small", title="class")
    return ax


def plot_layers(
    deep: ConditionallyDeep, sample: ArrayLike, *, shape: tuple[int, int] | None = None
) -> "Figure":
    """Draw what each layer makes of one image (004 Fig. 6).

    The first picture is the sample, the last is the layer that counts: the nearest one.

    Parameters
    ----------
    deep : fitted ConditionallyDeep
        A chain on flattened images.
    sample : array-like of shape (p,)
        One image, flattened.
    shape : (height, width), optional
        Shape of the image; a square by default.

    Returns
    -------
    matplotlib Figure
    """
    row = np.asarray(sample, dtype=float).reshape(1, -1)
    images = deep.images(row)[:, 0]
    nearest = int(np.linalg.norm(images - row, axis=1).argmin())
    titles = ["sample", *(f"layer {i + 1}" for i in range(len(images))), f"= layer {nearest + 1}"]
    return _strip([row[0], *images, images[nearest]], titles, shape)


def plot_noise(
    sample: ArrayLike,
    epsilons: Sequence[float],
    *,
    delta: float = 1e-5,
    domain: tuple[float, float] = (0, 1),
    shape: tuple[int, int] | None = None,
    random_state: int = 0,
) -> "Figure":
    """Draw one image under entry-level noise of several strengths (001 Fig. 1.6).

    Parameters
    ----------
    sample : array-like of shape (p,)
        One public image; the picture is drawn with seeded noise.
    epsilons : sequence of float
        ε per entry of each picture.
    delta : float
        δ per entry.
    domain : (low, high)
        Declared range of the pixels.
    shape : (height, width), optional
        Shape of the image; a square by default.
    random_state : int
        Seed of the noise.

    Returns
    -------
    matplotlib Figure
    """
    row = np.asarray(sample, dtype=float).reshape(1, -1)
    pictures, titles = [row[0]], ["sample"]
    for epsilon in epsilons:
        privacy = Privacy(epsilon=epsilon, delta=delta, domain=domain)
        pictures.append(release(row, privacy, random_state=random_state).data[0])
        titles.append(f"ε = {epsilon:g} per entry")
    return _strip(pictures, titles, shape)


def plot_fabricated(
    Y: ArrayLike,
    *,
    epsilons: Sequence[float] = (1, 4, 16),
    n_components: Sequence[int] = (5, 20),
    n_samples: int = 8,
    delta: float = 1e-5,
    domain: tuple[float, float] = (0, 1),
    shape: tuple[int, int] | None = None,
    random_state: int = 0,
) -> "Figure":
    """Draw fabricated images of one class by ε and subspace dimension (004 Fig. 9).

    Parameters
    ----------
    Y : array-like of shape (N, p)
        Public images of one class; the picture is drawn with seeded noise.
    epsilons : sequence of float
        ε per entry.
    n_components : sequence of int
        Subspace dimensions n.
    n_samples : int
        Images in a row.
    delta, domain, shape, random_state
        As in `plot_noise`.

    Returns
    -------
    matplotlib Figure
    """
    Y = np.asarray(Y, dtype=float)
    shown = np.linspace(0, len(Y) - 1, n_samples).astype(int)
    rows, titles = [Y[shown]], ["original"]
    for epsilon in epsilons:
        privacy = Privacy(epsilon=epsilon, delta=delta, domain=domain)
        noised = release(Y, privacy, random_state=random_state).data
        for n in n_components:
            rows.append(fabricate(noised, n_components=n).data[shown])
            titles.append(f"ε = {epsilon:g} per entry, n = {n}")
    figure, axes = pyplot().subplots(
        len(rows), n_samples, figsize=(1.1 * n_samples + 2, 1.1 * len(rows)), squeeze=False
    )
    for pictures, title, line in zip(rows, titles, axes, strict=True):
        for picture, ax in zip(pictures, line, strict=True):
            _show(ax, picture, shape)
        line[0].set_ylabel(title, rotation=0, ha="right", va="center", fontsize="small")
    figure.tight_layout()
    return figure  # type: ignore[no-any-return]


def plot_distance_histograms(
    classifiers: dict[str, Any], X_train: ArrayLike, X_test: ArrayLike, *, bins: int = 40
) -> "Figure":
    """Compare distances of training and test points for several classifiers (004 Fig. 13).

    The more the two histograms of a classifier differ, the easier it is to tell who was a member.

    Parameters
    ----------
    classifiers : dict of str to fitted classifier
        Their names and the classifiers, each with ``distances``.
    X_train, X_test : array-like
        Rows that were and rows that were not used for training.
    bins : int
        Bins of the histograms.

    Returns
    -------
    matplotlib Figure
    """
    figure, axes = pyplot().subplots(
        1, len(classifiers), figsize=(4.5 * len(classifiers), 3.2), squeeze=False
    )
    for ax, (name, clf) in zip(axes[0], classifiers.items(), strict=True):
        inside, outside = (clf.distances(X).min(axis=1) for X in (X_train, X_test))
        edges = np.histogram_bin_edges(np.concatenate([inside, outside]), bins)
        ax.hist(inside, edges, density=True, alpha=0.5, label="training points")
        ax.hist(outside, edges, density=True, alpha=0.5, label="test points")
        ax.set(title=name, xlabel="distance to the nearest class", ylabel="density")
        ax.legend(fontsize="small")
    figure.tight_layout()
    return figure  # type: ignore[no-any-return]


def _two_columns(X: ArrayLike) -> Array:
    X = np.asarray(X, dtype=float)
    if X.ndim != 2 or X.shape[1] != 2:
        raise ValueError(f"This picture is for rows with two features, got shape {X.shape}.")
    return X


def _grid(X: Array, resolution: int) -> tuple[Array, Array, Array]:
    """Points of a rectangle around the rows."""
    low, high = X.min(axis=0), X.max(axis=0)
    margin = 0.25 * (high - low)
    lines = [
        np.linspace(a, b, resolution) for a, b in zip(low - margin, high + margin, strict=True)
    ]
    across, up = np.meshgrid(*lines)
    return np.column_stack([across.ravel(), up.ravel()]), across, up


def _strip(
    pictures: Sequence[Array], titles: Sequence[str], shape: tuple[int, int] | None
) -> "Figure":
    figure, axes = pyplot().subplots(1, len(pictures), figsize=(1.6 * len(pictures), 1.9))
    for ax, picture, title in zip(np.atleast_1d(axes), pictures, titles, strict=True):
        _show(ax, picture, shape)
        ax.set_title(title, fontsize="small")
    figure.tight_layout()
    return figure  # type: ignore[no-any-return]


def _show(ax: "Axes", picture: Array, shape: tuple[int, int] | None) -> None:
    side = int(np.sqrt(picture.size))
    if shape is None and side * side != picture.size:
        raise ValueError(
            f"{picture.size} pixels are not a square image; give shape=(height, width)."
        )
    ax.imshow(picture.reshape(shape or (side, side)), cmap="gray_r")
    ax.set_xticks([])
    ax.set_yticks([])

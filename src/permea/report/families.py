"""Pictures of the model families: what a layer makes of a point, and what ν does."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from permea.models.base import Array
from permea.models.inducing import gaussian_kernel
from permea.models.student_t import log_membership


def _pyplot() -> Any:
    """Import matplotlib only when a picture is asked for."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib, which is not installed. Install it with the extra "
            "permea[plot]."
        ) from error
    return pyplot


def plot_abstraction(
    point: Array,
    images: Sequence[Array],
    *,
    shape: tuple[int, int],
    titles: Sequence[str] | None = None,
) -> Any:
    """Show a point beside its images, from the least to the most abstract (001 Fig. 1.3 to 1.5).

    The images may come from the layers of one chain (`ConditionallyDeep.images`), or from models
    with falling ``n_components`` or ``max_inducing``.

    Parameters
    ----------
    point : array-like of shape (p,)
        The point itself.
    images : sequence of array-like of shape (p,)
        Its images.
    shape : tuple of int
        Height and width of the picture that a point is, with p = height × width.
    titles : sequence of str, default=None
        One for each image.

    Returns
    -------
    matplotlib.figure.Figure
    """
    pyplot = _pyplot()
    rows = [np.asarray(point), *(np.asarray(image) for image in images)]
    if any(row.shape != (shape[0] * shape[1],) for row in rows):
        raise ValueError(
            f"A picture of shape {shape} needs points with {shape[0] * shape[1]} features, got "
            f"shapes {sorted({row.shape for row in rows})}."
        )
    names = ["input", *(titles or [f"image {k + 1}" for k in range(len(images))])]
    if len(names) != len(rows):
        raise ValueError(f"Got {len(names) - 1} titles for {len(images)} images.")
    figure, axes = pyplot.subplots(1, len(rows), figsize=(1.1 * len(rows), 1.6), squeeze=False)
    low, high = float(rows[0].min()), float(rows[0].max())
    for axis, row, name in zip(axes[0], rows, names, strict=True):
        axis.imshow(row.reshape(shape), cmap="gray_r", vmin=low, vmax=high)
        axis.set_title(name, fontsize=8)
        axis.set_axis_off()
    figure.tight_layout()
    return figure


def plot_membership_function(
    nus: Sequence[float] = (2.1, 10.0),
    *,
    inputs: Sequence[float] = (-1.0, 1.0),
    weight: float = 0.25,
    scale: float = 1.0,
    extent: float = 5.0,
    n_points: int = 101,
) -> Any:
    """Show log ζ of a Student-t membership mapping at two inputs for several ν (000 Fig. 2).

    Parameters
    ----------
    nus : sequence of float, default=(2.1, 10.0)
        Degrees of freedom, one picture each.
    inputs : pair of float, default=(-1, 1)
        The two inputs x¹ and x².
    weight, scale : float
        Kernel weight w and scale σ².
    extent : float, default=5
        Outputs from −extent to extent are shown.
    n_points : int, default=101
        Points along each side.

    Returns
    -------
    matplotlib.figure.Figure
    """
    pyplot = _pyplot()
    x = np.sqrt(weight) * np.asarray(inputs, dtype=float)[:, None]
    K = scale * gaussian_kernel(x, x)
    side = np.linspace(-extent, extent, n_points)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    pictures = [log_membership(grid, K, nu).reshape(n_points, n_points) for nu in nus]
    figure, axes = pyplot.subplots(1, len(pictures), figsize=(3.4 * len(nus), 3), squeeze=False)
    box = (-extent, extent, -extent, extent)
    for axis, picture, nu in zip(axes[0], pictures, nus, strict=True):
        shown = axis.imshow(picture, origin="lower", extent=box)
        axis.plot(0, 0, "k*")
        axis.set_title(f"log ζ, ν = {nu:g}", fontsize=9)
        axis.set_xlabel("output at x¹")
        axis.set_ylabel("output at x²")
        figure.colorbar(shown, ax=axis, shrink=0.8)
    figure.tight_layout()
    return figure

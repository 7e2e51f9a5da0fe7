"""Figures of models, of noise and of results, as functions that a user calls.

Each takes an optional matplotlib ``ax`` (or makes a figure of its own) and returns what it drew on.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from permea._arrays import Array
from permea.compose import ConditionallyDeep, ReconstructionClassifier
from permea.fabricate.rows import fabricate
from permea.information import AdversaryReport, Explanation
from permea.models.inducing import gaussian_kernel
from permea.privacy import Privacy, release

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from permea.information.study import TradeOff


def pyplot() -> Any:
    """Import matplotlib.pyplot, or say how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as reason:
        raise ImportError(
            "Pictures need matplotlib. Install it with: pip install 'permea[plot]'"
        ) from reason
    return plt


def _axes(ax: "Axes | None", width: float, height: float) -> Any:
    """The axes that the caller gave, or those of a new figure."""
    return pyplot().subplots(figsize=(width, height), layout="constrained")[1] if ax is None else ax


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
    ax = _axes(ax, 5, 4)
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
    ax = _axes(ax, 5.5, 4.2)
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
    rows = [np.asarray(point), *(np.asarray(image) for image in images)]
    if any(row.shape != (shape[0] * shape[1],) for row in rows):
        raise ValueError(
            f"A picture of shape {shape} needs points with {shape[0] * shape[1]} features, got "
            f"shapes {sorted({row.shape for row in rows})}."
        )
    names = ["input", *(titles or [f"image {k + 1}" for k in range(len(images))])]
    if len(names) != len(rows):
        raise ValueError(f"Got {len(names) - 1} titles for {len(images)} images.")
    figure, axes = pyplot().subplots(1, len(rows), figsize=(1.1 * len(rows), 1.6), squeeze=False)
    low, high = float(rows[0].min()), float(rows[0].max())
    for axis, row, name in zip(axes[0], rows, names, strict=True):
        axis.imshow(row.reshape(shape), cmap="gray_r", vmin=low, vmax=high)
        axis.set_title(name, fontsize=8)
        axis.set_axis_off()
    figure.tight_layout()
    return figure


def log_membership(values: Array, K: Array, nu: float) -> Array:
    r"""Logarithm of the membership of outputs to a zero-mean Student-t membership mapping.

    For outputs y at a set of inputs with kernel matrix K and ν > 2 degrees of freedom,

    .. math:: \log\zeta(y) = -\tfrac{\nu + |x|}{2}
              \log\bigl(1 + \tfrac{1}{\nu - 2} y^T K^{-1} y\bigr)

    (000 eq. 17). It is 0 at zero and falls the faster the smaller ν is. The limit for infinite ν is
    Gaussian.

    Parameters
    ----------
    values : ndarray of shape (m, d)
        Outputs y, one set of d of them in each row.
    K : ndarray of shape (d, d)
        Kernel matrix of the d inputs, positive definite.
    nu : float
        Degrees of freedom ν.

    Returns
    -------
    ndarray of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> log_membership(np.array([[0.0], [1.0]]), np.eye(1), nu=3.0).round(3)
    array([-0.   , -1.386])
    """
    if not nu > 2:
        raise ValueError(f"nu={nu} but the degrees of freedom must be larger than 2 (000 Def. 1).")
    distance = np.einsum("ij,ji->i", values, np.linalg.solve(K, values.T))
    if np.isinf(nu):
        return np.asarray(-0.5 * distance)
    return np.asarray(-0.5 * (nu + values.shape[1]) * np.log1p(distance / (nu - 2)))


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
    x = np.sqrt(weight) * np.asarray(inputs, dtype=float)[:, None]
    K = scale * gaussian_kernel(x, x)
    side = np.linspace(-extent, extent, n_points)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    pictures = [log_membership(grid, K, nu).reshape(n_points, n_points) for nu in nus]
    figure, axes = pyplot().subplots(1, len(pictures), figsize=(3.4 * len(nus), 3), squeeze=False)
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


def plot_trade_off(result: "TradeOff") -> "Figure":
    """Draw the six trade-off curves between the three measures and accuracy (003 Fig. 4).

    Parameters
    ----------
    result : permea.information.study.TradeOff
        What `permea.trade_off` returns.

    Returns
    -------
    matplotlib Figure
        Six axes. Where there is no target or no test set, the curves concerned stay empty.

    Examples
    --------
    >>> from permea import trade_off
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(n_class=2, return_X_y=True)
    >>> result = trade_off(X[:60] / 16, y[:60], epsilons=[0.1, 10], models=False, random_state=0)
    >>> len(plot_trade_off(result).axes)
    6
    """
    figure, axes = pyplot().subplots(2, 3, figsize=(11, 6.4), layout="constrained")
    ordered = result.to_frame().sort_values("epsilon")
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
    ax = _axes(ax, 5.5, 4)
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
    ax = _axes(ax, 1.6 + 1.5 * len(accuracies), 4)
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
    ax = _axes(ax, 6, height)
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
    ax = _axes(ax, 6, height)
    places = np.arange(len(order))[::-1]
    ax.barh(places, shares, color="tab:blue", alpha=0.7)
    ax.errorbar(shares, places, xerr=[np.maximum(shares - low, 0), np.maximum(high - shares, 0)],
                linestyle="none", color="black", capsize=3)  # fmt: skip
    ax.set_yticks(places, [report.names[k] for k in order])
    ax.set(xlim=(0, 1), xlabel="share of the variance recovered")
    return ax


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
    ax = _axes(ax, 6, 4)
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

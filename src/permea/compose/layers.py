"""Minima of distances that skip what cannot win."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array, Mask
from permea._parallel import run_parallel
from permea._validate import Accepted, has, jobs, random_state, validate_parameters, whole
from permea.models.base import row_norms
from permea.models.kahm import KernelAffineHullMachine
from permea.models.partition import partition


def distance_below(model: Any, Y: Array, cutoff: Array) -> Array:
    """Distance of each row, exact wherever it is below ``cutoff``.

    Models that know how to stop early offer ``distance_below``; for the others this is their
    ``distance``.
    """
    if hasattr(model, "distance_below"):
        return np.asarray(model.distance_below(Y, cutoff))
    return np.asarray(model.distance(Y))


def nearest_first(models: Sequence[Any], order: Array, Y: Array, cutoff: Array) -> Array:
    """Distance of each row to each of several models, exact for the smallest of its row.

    Each row is compared first with the model that ``order`` names for it. The distance found there
    is the cutoff for the others, most of which a lower bound then rules out.

    Parameters
    ----------
    models : sequence of fitted models
        The m models that compete.
    order : ndarray of shape (n,)
        Index of the model to ask first, a guess: a bad one costs time, never a wrong minimum.
    Y : ndarray of shape (n, p)
        Queries.
    cutoff : ndarray of shape (n,)
        Distances not below it are not of interest.

    Returns
    -------
    ndarray of shape (n, m)
        Distances, with infinity where a model was found to be out of the race.
    """
    distances = np.full((Y.shape[0], len(models)), np.inf, dtype=Y.dtype)
    for index, model in enumerate(models):
        rows = np.flatnonzero(order == index)
        if rows.size:
            distances[rows, index] = distance_below(model, Y[rows], cutoff[rows])
    best = np.minimum(distances.min(axis=1), cutoff)
    for index, model in enumerate(models):
        rows = np.flatnonzero(order != index)
        if rows.size:
            found = distance_below(model, Y[rows], best[rows])
            distances[rows, index] = found
            best[rows] = np.minimum(best[rows], found)
    return distances


def nearest_class(models: "Sequence[Wide]", Y: Array, *, labels_only: bool = False) -> Array:
    """Distance of each row to each of several wide models, exact for the smallest of its row.

    The branches with the two nearest centres, of different models, are evaluated first. The better
    one gives the leading model of a row and the cutoff for all other models, most of which a lower
    bound then rules out.

    Parameters
    ----------
    models : sequence of Wide
        The m models that compete.
    Y : ndarray of shape (n, p)
        Queries.
    labels_only : bool
        Only which model is nearest matters. The other branches of the leading model are then
        evaluated for those rows only for which another model is as near as the first branch.

    Returns
    -------
    ndarray of shape (n, m)
        Distances; those of models that were found to be out of the race may be too large.
    """
    branches = [branch for model in models for branch in model.branches_]
    owners = np.repeat(np.arange(len(models)), [len(model.branches_) for model in models])
    centres = np.concatenate([model.centres_ for model in models]).astype(Y.dtype, copy=False)
    for model in models:
        model.expect(centres)
    distances = np.full((len(Y), len(models)), np.inf, dtype=Y.dtype)
    best = distances[:, 0].copy()
    waiting = np.ones((len(Y), len(branches)), dtype=bool)

    def evaluate(chosen: Mask) -> None:
        for index in np.flatnonzero(chosen.any(axis=0)):
            rows = np.flatnonzero(chosen[:, index])
            found = distance_below(branches[index], Y[rows], best[rows])
            column = distances[:, owners[index]]
            column[rows] = np.minimum(column[rows], found)
            best[rows] = np.minimum(best[rows], found)
        waiting[chosen] = False

    _, nearness = nearest_centre(Y, centres)
    each = np.arange(len(branches))
    for _ in range(min(2, len(models))):
        nearest = nearness.argmin(axis=1)
        evaluate(nearest[:, None] == each)
        nearness[owners[nearest][:, None] == owners] = np.inf
    leader = distances.argmin(axis=1)
    of_leader = owners == leader[:, None]
    evaluate(waiting & ~of_leader)
    open_rows = np.ones(len(Y), dtype=bool)
    if labels_only:
        rivals = distances.copy()
        rivals[np.arange(len(Y)), leader] = np.inf
        open_rows = rivals.min(axis=1) <= distances[np.arange(len(Y)), leader]
    evaluate(waiting & open_rows[:, None])
    return distances


def nearest_centre(Y: Array, centres: Array) -> tuple[Array, Array]:
    """Index of the nearest centre for each row, and all squared distances up to a row constant."""
    squared = -2 * (Y @ centres.T)
    squared += np.einsum("ij,ij->i", centres, centres)
    return squared.argmin(axis=1), squared


class ConditionallyDeep(BaseEstimator):  # type: ignore[misc]
    """Chain a model with itself and answer with the layer whose image is nearest.

    Layer l maps the image of layer l − 1 to an image of its own, more abstract one. For every point
    the layer counts whose image is nearest to that point (004 Def. 3, 001 Def. 3, 000 Def. 17):

        M_l(y) = (A_l ∘ … ∘ A_1)(y),     D(y) = M_l̂(y),     l̂ = argmin_l ‖y − M_l(y)‖.

    Parameters
    ----------
    model : estimator with fit, reconstruct and distance, default=None
        The first layer; `KernelAffineHullMachine` when None. How the following layers are learned
        is the family's own affair, see `permea.models.base`.
    n_layers : int, default=5
        Number of layers L. Layer l has the dimension max(n − l + 1, 1), so that L may exceed n
        (000, 001 and 003; 004 has L ≤ n).

    Attributes
    ----------
    layers_ : list of fitted models
        The chain, first layer first.
    ratio_bound_, loose_ratio_bound_ : float
        For `KernelAffineHullMachine`: the distance of y to its image is less than this times the
        spectral norm of its differences to the training rows (004 Theorem 4).
    n_features_in_ : int
        Number of features p.

    Examples
    --------
    >>> import numpy as np
    >>> from permea.models import KernelAffineHullMachine
    >>> rows = np.random.default_rng(0).normal(size=(40, 6))
    >>> deep = ConditionallyDeep(KernelAffineHullMachine(n_components=4), n_layers=3).fit(rows)
    >>> bool(np.all(deep.distance(rows) <= deep.layers_[0].distance(rows) + 1e-12))
    True
    """

    _parameters: ClassVar[Accepted] = {
        "model": has("fit", "reconstruct", "distance") | None,
        "n_layers": whole(1),
    }

    def __init__(self, model: Any = None, *, n_layers: int = 5) -> None:
        self.model = model
        self.n_layers = n_layers

    def fit(self, Y: Array, y: object = None) -> Self:
        """Learn all layers from the rows of ``Y``.

        Parameters
        ----------
        Y : array-like of shape (N, p)
            Training rows.
        y : ignored
            For the scikit-learn convention.

        Returns
        -------
        ConditionallyDeep
            This chain, fitted.
        """
        validate_parameters(self)
        model = KernelAffineHullMachine() if self.model is None else self.model
        Y = validate_data(self, Y, dtype=[np.float64, np.float32])
        layers = [clone(model).fit(Y)]
        image = Y
        while len(layers) < self.n_layers:
            layer, image = _following_layer(layers[-1], Y, image)
            if layer is None:
                break
            layers.append(layer)
        self.layers_ = layers
        return self

    def images(self, Y: Array) -> Array:
        """Image of each row by every layer, an array of shape (L, m, p)."""
        Y = self._validated(Y)
        images = []
        image = Y
        for layer in self.layers_:
            image = layer.reconstruct(image)
            images.append(image)
        return np.stack(images)

    def reconstruct(self, Y: Array) -> Array:
        """Nearest image of each row over the layers (004 eq. 50)."""
        Y = self._validated(Y)
        image, nearest = Y, np.empty_like(Y)
        best = np.full(Y.shape[0], np.inf)
        for layer in self.layers_:
            image = layer.reconstruct(image)
            distance = row_norms(Y - image)
            closer = distance < best
            nearest[closer], best[closer] = image[closer], distance[closer]
        return nearest

    def distance(self, Y: Array) -> Array:
        """Distance of each row to its nearest image (004 eq. 53)."""
        return self._distance(self._validated(Y), None)

    def distance_below(self, Y: Array, cutoff: Array) -> Array:
        """Distance where it is below ``cutoff``; infinity is allowed where it is not."""
        return self._distance(Y, cutoff)

    @property
    def ratio_bound_(self) -> float:
        """Bound of 004 Theorem 4, that of the first layer."""
        return _bound_of(self, self.layers_[0], "ratio_bound_")

    @property
    def loose_ratio_bound_(self) -> float:
        """1 + pN² / (2‖Y‖²_F) of 004 eq. (54)."""
        return _bound_of(self, self.layers_[0], "loose_ratio_bound_")

    def expect(self, landmarks: Array) -> None:
        """Prepare `distance_below` for queries that lie about where ``landmarks`` do."""
        prepare = getattr(type(self.layers_[0]), "expect", None)
        if prepare is not None:
            prepare(self.layers_, landmarks)

    def _distance(self, Y: Array, cutoff: Array | None) -> Array:
        through = getattr(type(self.layers_[0]), "distance_through", None)
        if through is not None:
            return np.asarray(through(self.layers_, Y, cutoff))
        image = Y
        best = np.full(Y.shape[0], np.inf, dtype=Y.dtype)
        for layer in self.layers_:
            image = layer.reconstruct(image)
            np.minimum(best, row_norms(Y - image), out=best)
        return best

    def _validated(self, Y: Array) -> Array:
        check_is_fitted(self, "layers_")
        return np.asarray(validate_data(self, Y, dtype=[np.float64, np.float32], reset=False))


def _following_layer(layer: Any, Y: Array, image: Array) -> tuple[Any, Array]:
    """Fit the layer after ``layer``; None when there is none.

    The general way, for families without ``next_layer``: the same model with one component less,
    but never below one.
    """
    if getattr(layer, "layers_need_images", True):
        image = layer.reconstruct(image)
    if hasattr(layer, "next_layer"):
        return layer.next_layer(Y, image), image
    if not hasattr(layer, "n_components"):
        return None, image
    return clone(layer).set_params(n_components=max(layer.n_components - 1, 1)).fit(Y), image


class Wide(BaseEstimator):  # type: ignore[misc]
    """Model each part of a large data set on its own and answer with the nearest image.

    The rows are split into S = ⌈N / branch_size⌉ parts by k-means, each part trains a clone of
    ``model``, and a point belongs to the branch whose image is nearest (004 Def. 5, 001 Def. 13,
    000 Def. 19).

    Parameters
    ----------
    model : estimator with fit, reconstruct and distance, default=None
        Model of a branch; `ConditionallyDeep` when None.
    branch_size : int, default=1000
        Nominal number of rows in a branch. No branch gets more than twice as many.
    n_jobs : int, default=None
        Branches learned at the same time, as joblib counts them.
    random_state : int, RandomState instance or None, default=None
        For k-means.

    Attributes
    ----------
    branches_ : list of fitted models
        One for each part.
    centres_ : ndarray of shape (S, p)
        Mean of the rows of each part.
    ratio_bound_, loose_ratio_bound_ : float
        For `KernelAffineHullMachine`: the distance of y to its image is less than this times the
        Frobenius norm of its differences to all training rows (004 Theorem 5).
    n_features_in_ : int
        Number of features p.

    Examples
    --------
    >>> import numpy as np
    >>> from permea.models import KernelAffineHullMachine
    >>> rows = np.random.default_rng(0).normal(size=(90, 4))
    >>> model = KernelAffineHullMachine(n_components=3)
    >>> wide = Wide(model, branch_size=40, random_state=0).fit(rows)
    >>> each = np.stack([branch.distance(rows) for branch in wide.branches_])
    >>> bool(np.allclose(wide.distance(rows), each.min(axis=0)))
    True
    """

    _parameters: ClassVar[Accepted] = {
        "model": has("fit", "reconstruct", "distance") | None,
        "branch_size": whole(1),
        "n_jobs": jobs,
        "random_state": random_state,
    }

    def __init__(
        self,
        model: Any = None,
        *,
        branch_size: int = 1000,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.model = model
        self.branch_size = branch_size
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, Y: Array, y: object = None) -> Self:
        """Split the rows of ``Y`` and learn a branch from each part.

        Parameters
        ----------
        Y : array-like of shape (N, p)
            Training rows.
        y : ignored
            For the scikit-learn convention.

        Returns
        -------
        Wide
            This model, fitted.
        """
        validate_parameters(self)
        Y = validate_data(self, Y, dtype=[np.float64, np.float32])
        parts = self.split(Y)
        model = ConditionallyDeep() if self.model is None else self.model
        tasks = [(model, Y[rows]) for rows in parts]
        branches = run_parallel(fit_clone, tasks, n_jobs=self.n_jobs, desc="branches")
        return self.assemble(branches, [Y[rows].mean(axis=0) for rows in parts])

    def split(self, Y: Array) -> list[Any]:
        """Row numbers of each branch."""
        return list(partition(Y, self.branch_size, random_state=self.random_state))

    def assemble(self, branches: list[Any], centres: list[Array]) -> Self:
        """Take over branches that were learned elsewhere."""
        self.branches_ = branches
        self.centres_ = np.stack(centres)
        self.n_features_in_ = self.centres_.shape[1]
        return self

    def reconstruct(self, Y: Array) -> Array:
        """Nearest image of each row over the branches (004 eq. 55)."""
        Y = self._validated(Y)
        winner = self._distances(Y, np.full(Y.shape[0], np.inf)).argmin(axis=1)
        image = np.empty_like(Y)
        for index, branch in enumerate(self.branches_):
            rows = np.flatnonzero(winner == index)
            if rows.size:
                image[rows] = branch.reconstruct(Y[rows])
        return image

    def distance(self, Y: Array) -> Array:
        """Distance of each row to its nearest image (004 eq. 60)."""
        Y = self._validated(Y)
        return self.distance_below(Y, np.full(Y.shape[0], np.inf, dtype=Y.dtype))

    def distance_below(self, Y: Array, cutoff: Array) -> Array:
        """Distance where it is below ``cutoff``; infinity is allowed where it is not."""
        return np.asarray(self._distances(Y, cutoff).min(axis=1))

    @property
    def ratio_bound_(self) -> float:
        """The smallest bound of a branch; tighter than 004 eq. (61), and proven in the same way."""
        return min(_bound_of(self, branch, "ratio_bound_") for branch in self.branches_)

    @property
    def loose_ratio_bound_(self) -> float:
        """Smallest over the branches of 1 + p N_s² / (2‖Y_s‖²_F), 004 eq. (61)."""
        return min(_bound_of(self, branch, "loose_ratio_bound_") for branch in self.branches_)

    def expect(self, landmarks: Array) -> None:
        """Prepare `distance_below` for queries that lie about where ``landmarks`` do."""
        for branch in self.branches_:
            if hasattr(branch, "expect"):
                branch.expect(landmarks)

    def _distances(self, Y: Array, cutoff: Array) -> Array:
        order, _ = nearest_centre(Y, self.centres_.astype(Y.dtype))
        return nearest_first(self.branches_, order, Y, cutoff)

    def _validated(self, Y: Array) -> Array:
        check_is_fitted(self, "branches_")
        return np.asarray(validate_data(self, Y, dtype=[np.float64, np.float32], reset=False))


def _bound_of(owner: Any, model: Any, name: str) -> float:
    """A bound of a part; an AttributeError where its family has none."""
    if not hasattr(model, name):
        raise AttributeError(f"{type(owner).__name__} of this family has no {name}: see 004.")
    return float(getattr(model, name))


def fit_clone(model: Any, Y: Array) -> Any:
    """Fit a copy of an unfitted model; a function of its own so that it can travel to a worker."""
    return clone(model).fit(Y)

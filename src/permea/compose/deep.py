"""Depth: a chain of models, each fed with the image of the one before."""

from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from permea.models.base import Array, row_norms
from permea.models.kahm import KernelAffineHullMachine


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
        Number of layers L. Fewer are used where the model's dimension runs out.

    Attributes
    ----------
    layers_ : list of fitted models
        The chain, first layer first.
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

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "model": [HasMethods(["fit", "reconstruct", "distance"]), None],
        "n_layers": [Interval(Integral, 1, None, closed="left")],
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
        self._validate_params()
        model = KernelAffineHullMachine() if self.model is None else self.model
        check_depth(model, self.n_layers)
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


def check_depth(model: Any, n_layers: int) -> None:
    """Refuse more layers than dimensions: each layer gives one up (004 Def. 3: L ≤ n)."""
    n_components = getattr(model, "n_components", None)
    if isinstance(n_components, Integral) and n_layers > n_components:
        raise ValueError(
            f"n_layers={n_layers} is more than n_components={n_components}: each layer works with "
            "one component less than the one before. Lower n_layers or raise n_components."
        )


def _following_layer(layer: Any, Y: Array, image: Array) -> tuple[Any, Array]:
    """Fit the layer after ``layer``; None when there is none.

    The general way, for families without ``next_layer``: the same model with one component less.
    """
    if getattr(layer, "layers_need_images", True):
        image = layer.reconstruct(image)
    if hasattr(layer, "next_layer"):
        return layer.next_layer(Y, image), image
    if not hasattr(layer, "n_components") or layer.n_components <= 1:
        return None, image
    return clone(layer).set_params(n_components=layer.n_components - 1).fit(Y), image

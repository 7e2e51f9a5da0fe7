"""Width: many rows in parts, one model a part, the nearest image wins."""

from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._parallel import run_parallel
from permea.compose.deep import ConditionallyDeep
from permea.compose.minimum import nearest_centre, nearest_first
from permea.models.base import Array
from permea.models.partition import partition


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

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "model": [HasMethods(["fit", "reconstruct", "distance"]), None],
        "branch_size": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
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
        self._validate_params()
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

    def _distances(self, Y: Array, cutoff: Array) -> Array:
        order, _ = nearest_centre(Y, self.centres_.astype(Y.dtype))
        return nearest_first(self.branches_, order, Y, cutoff)

    def _validated(self, Y: Array) -> Array:
        check_is_fitted(self, "branches_")
        return np.asarray(validate_data(self, Y, dtype=[np.float64, np.float32], reset=False))


def fit_clone(model: Any, Y: Array) -> Any:
    """Fit a copy of an unfitted model; a function of its own so that it can travel to a worker."""
    return clone(model).fit(Y)

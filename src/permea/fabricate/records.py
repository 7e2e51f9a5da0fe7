"""Synthetic labelled rows from noised moments: nothing of a record but its share in the sums."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea.models.linear import class_gaussians
from permea.models.moments import MomentClassifier
from permea.privacy import Certificate, Ledger, Privacy
from permea.privacy.moments import Neighbours


@dataclass(frozen=True)
class FabricatedRecords:
    """Fabricated rows and labels, and what is promised about the rows they were learned from."""

    data: NDArray[np.float64]
    labels: NDArray[Any]
    certificate: Certificate


def fabricate_records(
    X: ArrayLike,
    y: ArrayLike,
    *,
    privacy: Privacy,
    classes: ArrayLike,
    n_rows: int | None = None,
    neighbours: Neighbours = "replace",
    shrinkage: float = 1.0,
    radius: float = 0.5,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    random_state: int | None = None,
) -> FabricatedRecords:
    """Draw labelled rows from class means and a common covariance, both from one noised release.

    The rows are encoded by their domain alone (:class:`permea.models.features.ScaledIdentity`);
    class sizes, class means and the covariance within classes follow from the released counts,
    cross moments and second moments, the covariance shrunk by the known norm of its noise
    (:func:`permea.models.linear.class_gaussians`). Gaussian rows are drawn, decoded and clipped to
    the domain. They may train any model or leave the house; the promise is that of the release.

    Parameters
    ----------
    X, y : array-like
        Private rows and labels.
    privacy : Privacy
        With ``unit="record"`` and δ > 0.
    n_rows : int, optional
        How many rows to fabricate; by default about as many as there are (a released number).
    classes, neighbours, radius, ledger, dataset, random_state
        See :class:`permea.models.moments.MomentClassifier`.
    shrinkage : float, default=1.0
        Eigenvalues of the covariance are lowered by this share of the norm of the noise.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> promise = Privacy(epsilon=4, delta=1e-5, unit="record", domain=(0, 16))
    >>> made = fabricate_records(X, y, privacy=promise, classes=range(10), n_rows=500)
    >>> made.data.shape, made.certificate.is_private
    ((500, 64), True)
    """
    model = MomentClassifier(
        privacy=privacy, features="identity", neighbours=neighbours, classes=classes,
        radius=radius, ledger=ledger, dataset=dataset, random_state=random_state,
    ).fit(X, y)  # fmt: skip
    assert model.certificate_ is not None
    moments = model.moments_
    rng = np.random.default_rng(random_state)
    shares = np.maximum(moments.outputs, 0.0)
    shares = shares / shares.sum() if shares.sum() > 0 else np.full(len(shares), 1 / len(shares))
    count = max(1, round(moments.size)) if n_rows is None else n_rows
    places = rng.choice(len(shares), size=count, p=shares)
    means, factor = class_gaussians(moments, shrinkage=shrinkage)
    z = means[places] + rng.normal(size=(count, factor.shape[1])) @ factor.T
    p = z.shape[1]
    low, high = privacy.lows(p), privacy.highs(p)
    decoded = (z + model.mean_) * np.sqrt(p) * (high - low) / 2 + (low + high) / 2
    certificate = model.certificate_.add_step(
        f"{count} labelled rows drawn from class means and a common covariance of the release, "
        f"shrunk by {shrinkage:g} times the norm of its noise, and clipped to the domain"
    )
    return FabricatedRecords(np.clip(decoded, low, high), model.classes_[places], certificate)

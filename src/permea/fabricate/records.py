"""Synthetic rows: tables with a schema from counts of pairs, arrays of numbers from moments."""

from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea.fabricate.arrays import PartedHulls
from permea.fabricate.tables import FabricatedTable, fabricate_table
from permea.privacy import Certificate, Ledger, Privacy
from permea.privacy.moments import Neighbours
from permea.tables import Schema


@dataclass(frozen=True)
class FabricatedRecords:
    """Fabricated rows and labels, and what is promised about the rows they were learned from."""

    data: NDArray[np.float64]
    labels: NDArray[Any]
    certificate: Certificate


@overload
def fabricate_records(
    X: Any, y: None = None, *, privacy: Privacy, schema: Schema, groups: ArrayLike | None = None,
    n_rows: int | None = None, neighbours: Neighbours = "replace", ledger: Ledger | None = None,
    dataset: str | None = None, random_state: int | None = None, seed: int | None = None,
) -> FabricatedTable: ...  # fmt: skip
@overload
def fabricate_records(
    X: ArrayLike, y: ArrayLike, *, privacy: Privacy, classes: ArrayLike, n_rows: int | None = None,
    neighbours: Neighbours = "replace", n_directions: int = 40, radius: float = 0.5,
    n_parts: int = 1, contrast: float = 1.0, ledger: Ledger | None = None,
    dataset: str | None = None, random_state: int | None = None, seed: int | None = None,
) -> FabricatedRecords: ...  # fmt: skip
def fabricate_records(
    X: Any,
    y: Any = None,
    *,
    privacy: Privacy,
    schema: Schema | None = None,
    classes: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    n_rows: int | None = None,
    neighbours: Neighbours = "replace",
    n_directions: int = 40,
    radius: float = 0.5,
    n_parts: int = 1,
    contrast: float = 1.0,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    random_state: int | None = None,
    seed: int | None = None,
) -> FabricatedTable | FabricatedRecords:
    """Synthetic rows that may be handed over, from one noised release per record or per person.

    With a schema, X is a table of numbers, categories, dates and missing values: pairs of columns
    are counted, and the result is a table with the same names and types
    (:func:`permea.fabricate.tables.fabricate_table`).

    Without one, X is an array of numbers with labels y, such as images or sensor rows: the size,
    mean and covariance of each class, or of parts of it, follow from noised moments, in the
    directions that noise does not cover (`permea.HullClassifier`), and Gaussian rows are drawn,
    decoded and clipped to the domain.

    Parameters
    ----------
    X, y : table, or array-like of rows and labels
        The private rows. A table has its label among its columns, if it has one.
    privacy : Privacy
        With ``unit="record"`` or ``"person"``, and δ > 0.
    schema : Schema, optional
        What is known about the columns of a table before seeing a row.
    classes : array-like, optional
        The declared labels of an array.
    groups : array-like, optional
        Whose row each is, with ``unit="person"``; the schema's person by default. A synthetic table
        has (new) identifiers where the schema names a person column.
    n_rows : int, optional
        How many rows to fabricate; by default about as many as there are (a released number).
    neighbours, n_directions, radius, ledger, dataset, random_state
        See :class:`permea.HullClassifier`.
    seed : int, optional
        Repeats the draw after the release, and leaves the release what it is.

    Returns
    -------
    FabricatedTable or FabricatedRecords
        ``data`` and ``certificate``; a table has ``quality`` and ``generator`` besides.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> promise = Privacy(epsilon=4, delta=1e-5, unit="record", domain=(0, 16))
    >>> made = fabricate_records(X, y, privacy=promise, classes=range(10), n_rows=500)
    >>> made.data.shape, made.certificate.is_private
    ((500, 64), True)
    """
    if schema is not None:
        if y is not None or classes is not None:
            raise ValueError("With a schema, the label is a column of the table: leave out y.")
        return fabricate_table(
            X, schema, privacy=privacy, neighbours=neighbours, groups=groups, n_rows=n_rows,
            ledger=ledger, dataset=dataset, random_state=random_state, seed=seed,
        )  # fmt: skip
    if y is None:
        raise ValueError("Arrays of numbers need labels y; tables need a schema.")
    if classes is None:
        raise TypeError("classes is missing: declare the labels, never read them off the data.")
    if not 1.0 <= contrast < np.inf:
        raise ValueError("contrast must be a number of at least 1.")
    model = PartedHulls(
        privacy=privacy, features="identity", neighbours=neighbours, classes=classes,
        n_directions=n_directions, radius=radius, n_parts=n_parts, ledger=ledger, dataset=dataset,
        random_state=random_state,
    ).fit(X, y, groups=groups)  # fmt: skip
    rng = np.random.default_rng(random_state if seed is None else seed)
    return _drawn(model, n_rows, contrast, rng)


def _drawn(
    model: PartedHulls, n_rows: int | None, contrast: float, rng: np.random.Generator
) -> FabricatedRecords:
    """Rows of all classes, as frequent as they are, in the columns of the private ones."""
    assert model.certificate_ is not None
    count = max(1, round(model.moments_.size)) if n_rows is None else n_rows
    centred, places = model.draw_rows(count, rng)
    p, privacy = model.n_features_in_, model.certificate_.privacy
    half, middle = (
        (privacy.highs(p) - privacy.lows(p)) / 2,
        (privacy.highs(p) + privacy.lows(p)) / 2,
    )
    deviations = (centred + model.mean_) * np.sqrt(p) * half * contrast
    parts = f"{model.n_parts} parts of each class" if model.n_parts > 1 else "each class"
    certificate = model.certificate_.add_step(
        f"{count} labelled rows drawn from the mean and covariance of {parts} in "
        f"{model.hulls_.means.shape[1]} directions, and clipped to the domain"
    )
    data = np.clip(middle + deviations, privacy.lows(p), privacy.highs(p))
    return FabricatedRecords(data, model.classes_[places], certificate)

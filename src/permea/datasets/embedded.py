"""Small public data sets that come with scikit-learn, mapped to [0, 1] from declared ranges.

The ranges are declared here by what each column means, rounded outward, and not computed when the
data are loaded: private data have to be treated the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn.datasets
from numpy.typing import NDArray

from permea._arrays import Array


@dataclass(frozen=True)
class Dataset:
    """Rows in [0, 1] with labels, and what they mean.

    Attributes
    ----------
    name : str
        Name of the data set.
    X : ndarray of shape (N, p)
        Rows; every column was mapped from its declared range to [0, 1].
    y : ndarray of shape (N,)
        Labels.
    feature_names : tuple of str
        One per column.
    class_names : tuple of str
        In the order of the labels.
    ranges : ndarray of shape (p, 2)
        Declared public range of each column before the mapping.
    shape : (height, width) or None
        When a row is a picture.
    """

    name: str
    X: Array
    y: NDArray[Any]
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]
    ranges: Array
    shape: tuple[int, int] | None = None

    @property
    def domain(self) -> tuple[float, float]:
        """Domain of ``X``, for `permea.privacy.Privacy`."""
        return (0.0, 1.0)


_TUMOUR_RANGES = {  # per cell nucleus, in the units of the original study
    "radius": (0, 50), "texture": (0, 60), "perimeter": (0, 320), "area": (0, 5000),
    "smoothness": (0, 0.3), "compactness": (0, 1.5), "concavity": (0, 1.5),
    "concave points": (0, 0.5), "symmetry": (0, 1), "fractal dimension": (0, 0.3),
}  # fmt: skip
_TUMOUR_ERRORS = {  # standard errors over the nuclei of one image
    "radius": (0, 5), "texture": (0, 6), "perimeter": (0, 30), "area": (0, 600),
    "smoothness": (0, 0.05), "compactness": (0, 0.2), "concavity": (0, 0.5),
    "concave points": (0, 0.1), "symmetry": (0, 0.1), "fractal dimension": (0, 0.05),
}  # fmt: skip
_WINE_RANGES = [
    (10, 16), (0, 8), (1, 4), (5, 35), (50, 180), (0, 5), (0, 6), (0, 1), (0, 5), (0, 15),
    (0, 2), (1, 5), (200, 2000),
]  # fmt: skip
_IRIS_RANGES = [(0, 10), (0, 6), (0, 10), (0, 4)]  # centimetres


def load_digits() -> Dataset:
    """1797 handwritten digits of 8 × 8 pixels with 17 grey levels.

    Examples
    --------
    >>> digits = load_digits()
    >>> digits.X.shape, float(digits.X.min()), float(digits.X.max())
    ((1797, 64), 0.0, 1.0)
    """
    return _load("digits", [(0, 16)] * 64, (8, 8))


def load_breast_cancer() -> Dataset:
    """569 tumours, 30 measurements of their cell nuclei; benign or malignant.

    Examples
    --------
    >>> load_breast_cancer().class_names
    ('malignant', 'benign')
    """
    means = [_TUMOUR_RANGES[name] for name in _TUMOUR_RANGES]
    errors = [_TUMOUR_ERRORS[name] for name in _TUMOUR_RANGES]
    return _load("breast_cancer", [*means, *errors, *means])


def load_wine() -> Dataset:
    """178 wines of three growers, 13 chemical measurements.

    Examples
    --------
    >>> load_wine().X.shape
    (178, 13)
    """
    return _load("wine", _WINE_RANGES)


def load_iris() -> Dataset:
    """150 irises of three species, four lengths.

    Examples
    --------
    >>> load_iris().class_names
    ('setosa', 'versicolor', 'virginica')
    """
    return _load("iris", _IRIS_RANGES)


def _load(
    name: str, ranges: Sequence[tuple[float, float]], shape: tuple[int, int] | None = None
) -> Dataset:
    raw = getattr(sklearn.datasets, f"load_{name}")()
    ends = np.asarray(ranges, dtype=np.float64)
    low, high = ends[:, 0], ends[:, 1]
    return Dataset(
        name=name,
        X=(raw.data - low) / (high - low),
        y=raw.target,
        feature_names=tuple(str(feature) for feature in raw.feature_names),
        class_names=tuple(str(target) for target in raw.target_names),
        ranges=ends,
        shape=shape,
    )

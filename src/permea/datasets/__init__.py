"""Embedded data sets, and loaders for files a user has."""

from permea.datasets.embedded import (
    Dataset,
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
)
from permea.datasets.files import (
    MissingDataError,
    Split,
    data_folder,
    load_mnist,
    load_office,
    load_rr,
    load_usps,
)

__all__ = [
    "Dataset",
    "MissingDataError",
    "Split",
    "data_folder",
    "load_breast_cancer",
    "load_digits",
    "load_iris",
    "load_mnist",
    "load_office",
    "load_rr",
    "load_usps",
    "load_wine",
]

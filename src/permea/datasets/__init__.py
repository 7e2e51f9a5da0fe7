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
from permea.datasets.heartbeat_files import load_recordings, read_rr, read_wfdb
from permea.datasets.heartbeats import (
    HRV_SCHEMA,
    Recording,
    Windows,
    both_classes,
    hrv_table,
    impulse_rejection,
    labelled_part,
    labels_from_score,
    make_recordings,
    make_windows,
    subject_splits,
)
from permea.datasets.visits import HOSPITALS, VISITS_SCHEMA, make_visits

__all__ = [
    "HOSPITALS",
    "HRV_SCHEMA",
    "VISITS_SCHEMA",
    "Dataset",
    "MissingDataError",
    "Recording",
    "Split",
    "Windows",
    "both_classes",
    "data_folder",
    "hrv_table",
    "impulse_rejection",
    "labelled_part",
    "labels_from_score",
    "load_breast_cancer",
    "load_digits",
    "load_iris",
    "load_mnist",
    "load_office",
    "load_recordings",
    "load_rr",
    "load_usps",
    "load_wine",
    "make_recordings",
    "make_visits",
    "make_windows",
    "read_rr",
    "read_wfdb",
    "subject_splits",
]

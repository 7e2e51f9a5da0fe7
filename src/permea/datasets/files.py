"""Loaders for data sets that a user has as files; nothing is downloaded.

Files are looked for in the folder that the environment variable ``PERMEA_DATA`` names; without it
in ``../shared/data`` beside a checkout of the project when that exists, else in the user's cache
folder. When one is missing, the error says which, where it was looked for, and how to get it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

_DIGITS = (
    "It holds x_train and x_test (rows × {size} × {size}) and y_train and y_test; from an OpenML "
    "copy (sklearn.datasets.fetch_openml) save it with numpy.savez_compressed."
)
SOURCES: dict[str, str] = {
    "mnist.npz": "MNIST, uint8 pictures; the file of this name that Keras distributes will do. "
    + _DIGITS.format(size=28),
    "usps.npz": "USPS digits, pictures in [0, 1]. " + _DIGITS.format(size=16),
    "office_caltech10_surf.npz": "Office+Caltech256 with ten classes as 800 SURF counts. It holds "
    "x_NAME and y_NAME for the domains amazon, caltech10, dslr and webcam; the authors of the "
    "geodesic-flow-kernel paper (Gong et al. 2012) publish the counts.",
    "office_caltech10_efficientnetlite0.npz": "The images of Office+Caltech256 with ten classes as "
    "1280 pooled features of EfficientNet-Lite0. It holds x_NAME and y_NAME for the domains "
    "amazon, caltech10, dslr and webcam.",
    "rr_cogload1.npz": "R-R intervals and NASA-TLX of CogLoad1 (Gjoreski et al. 2020). It holds "
    "user, t_sec, task, level, segment, rr_sec and tlx, one entry per measurement.",
    "rr_stress_predict.npz": "Inter-beat intervals of Stress-Predict (Iqbal et al. 2022). It holds "
    "subject, t_unix, ibi_sec and label, one entry per beat.",
}
DOMAINS = ("amazon", "caltech10", "dslr", "webcam")


class MissingDataError(FileNotFoundError):
    """A data file is not there; the text says where it was looked for and how to get it."""


@dataclass(frozen=True)
class Split:
    """Pictures in [0, 1] as rows, with the split their authors made."""

    X_train: NDArray[np.float32]
    y_train: NDArray[Any]
    X_test: NDArray[np.float32]
    y_test: NDArray[Any]
    shape: tuple[int, int]

    @property
    def domain(self) -> tuple[float, float]:
        """Domain of the rows, for `permea.privacy.Privacy`."""
        return (0.0, 1.0)


def data_folder() -> Path:
    """The folder where data files are looked for.

    Examples
    --------
    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, PERMEA_DATA="/srv/data"):
    ...     data_folder().as_posix()
    '/srv/data'
    """
    named = os.environ.get("PERMEA_DATA")
    if named:
        return Path(named).expanduser()
    root = Path(__file__).resolve().parents[3]
    shared = root.parent / "shared" / "data"
    if (root / "pyproject.toml").is_file() and shared.is_dir():
        return shared
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "permea"


def find_file(name: str) -> Path:
    """Path of a known data file.

    Parameters
    ----------
    name : str
        One of ``SOURCES``.

    Returns
    -------
    pathlib.Path
        The file. `MissingDataError` says what to do when it is not there.
    """
    path = data_folder() / name
    if path.is_file():
        return path
    raise MissingDataError(
        f"{name} is not in {path.parent}. {SOURCES.get(name, '')} Put it there, or name another "
        "folder with the environment variable PERMEA_DATA."
    )


def _arrays(name: str, needed: tuple[str, ...]) -> Mapping[str, NDArray[Any]]:
    path = find_file(name)
    try:
        with np.load(path, allow_pickle=False) as opened:
            missing = [key for key in needed if key not in opened.files]
            if not missing:
                return {key: opened[key] for key in opened.files}
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged or not a .npz file. Get a fresh copy.") from error
    raise ValueError(f"{path} lacks {', '.join(missing)}. {SOURCES[name]}")


def load_mnist() -> Split:
    """MNIST: 60000 and 10000 pictures of 28 × 28 pixels, divided by 255."""
    return _pictures("mnist.npz", 255.0)


def load_usps() -> Split:
    """USPS: 7291 and 2007 pictures of 16 × 16 pixels."""
    return _pictures("usps.npz", 1.0)


def _pictures(name: str, white: float) -> Split:
    arrays = _arrays(name, ("x_train", "y_train", "x_test", "y_test"))
    train, test = (arrays[key].astype(np.float32) / np.float32(white) for key in
                   ("x_train", "x_test"))  # fmt: skip
    return Split(
        train.reshape(len(train), -1),
        arrays["y_train"],
        test.reshape(len(test), -1),
        arrays["y_test"],
        (int(train.shape[1]), int(train.shape[2])),
    )


def load_office(
    features: Literal["surf", "efficientnet"] = "surf",
) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Office+Caltech256, ten classes in four domains, as features.

    Parameters
    ----------
    features : {"surf", "efficientnet"}
        800 SURF counts, or 1280 pooled features of a network.

    Returns
    -------
    dict
        Domain → (rows, labels); rows as stored, so that the caller decides on their scale.
    """
    files = {
        "surf": "office_caltech10_surf.npz",
        "efficientnet": "office_caltech10_efficientnetlite0.npz",
    }
    if features not in files:
        raise ValueError(f"features must be one of {', '.join(map(repr, files))}.")
    needed = tuple(f"{kind}_{domain}" for domain in DOMAINS for kind in "xy")
    arrays = _arrays(files[features], needed)
    return {domain: (arrays[f"x_{domain}"], arrays[f"y_{domain}"]) for domain in DOMAINS}


def load_rr(name: Literal["cogload1", "stress_predict"]) -> dict[str, NDArray[Any]]:
    """R-R intervals of many people, one entry per measurement, as stored.

    Parameters
    ----------
    name : {"cogload1", "stress_predict"}
        CogLoad1 has NASA-TLX; Stress-Predict has true inter-beat intervals.

    Returns
    -------
    dict
        Name of the array → array.
    """
    needed = {
        "cogload1": ("user", "t_sec", "task", "level", "segment", "rr_sec", "tlx"),
        "stress_predict": ("subject", "t_unix", "ibi_sec", "label"),
    }
    if name not in needed:
        raise ValueError(f"name must be one of {', '.join(map(repr, needed))}.")
    return dict(_arrays(f"rr_{name}.npz", needed[name]))

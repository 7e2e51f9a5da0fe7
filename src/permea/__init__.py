"""Learn from data that may not leave its owner."""

from importlib import import_module as _import_module
from typing import Any as _Any

from permea._version import __version__
from permea.compose import (
    ConditionallyDeep,
    FuzzyClassifier,
    HullClassifier,
    KAHMClassifier,
    MembershipClassifier,
    MomentClassifier,
    MomentRegressor,
    ReconstructionClassifier,
    Wide,
    fabricate_records,
)
from permea.fabricate.rows import fabricate
from permea.information import information_leakage
from permea.models import (
    BayesianMembershipMapping,
    FuzzyAutoencoder,
    FuzzyModel,
    KernelAffineHullMachine,
    MembershipAutoencoder,
    MembershipMapping,
)
from permea.privacy import (
    Budget,
    BudgetExceededError,
    Certificate,
    GaussianNoise,
    Ledger,
    OptimalNoise,
    Privacy,
    StaircaseNoise,
    noise_gain,
    release,
    release_pair,
)
from permea.storage import load, save
from permea.tables import Schema
from permea.transfer import SourceModel, TransferClassifier

__all__ = [
    "BayesianMembershipMapping",
    "Budget",
    "BudgetExceededError",
    "Certificate",
    "ConditionallyDeep",
    "FuzzyAutoencoder",
    "FuzzyClassifier",
    "FuzzyModel",
    "GaussianNoise",
    "HullClassifier",
    "KAHMClassifier",
    "KernelAffineHullMachine",
    "Ledger",
    "MembershipAutoencoder",
    "MembershipClassifier",
    "MembershipMapping",
    "MomentClassifier",
    "MomentRegressor",
    "OptimalNoise",
    "Privacy",
    "ReconstructionClassifier",
    "Schema",
    "SourceModel",
    "StaircaseNoise",
    "TransferClassifier",
    "Wide",
    "__version__",
    "audit",
    "fabricate",
    "fabricate_records",
    "federation",
    "information",
    "information_leakage",
    "load",
    "noise_gain",
    "release",
    "release_pair",
    "save",
    "trade_off",
]

_ROOMS = ("audit", "federation", "information")
_LATER = {"trade_off": "permea.information.study"}  # it uses transfer and information


def __getattr__(name: str) -> _Any:
    """Import the larger rooms when they are first asked for."""
    if name in _ROOMS:
        return _import_module(f"permea.{name}")
    if name in _LATER:
        return getattr(_import_module(_LATER[name]), name)
    raise AttributeError(f"module 'permea' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

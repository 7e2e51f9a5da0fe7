"""Learn from data that may not leave its owner."""

import sys as _sys
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING as _FOR_TYPES
from typing import Any as _Any

from permea._version import __version__

if _FOR_TYPES:
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
    from permea.information.study import trade_off
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
    "documents",
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

_ROOMS = ("audit", "documents", "federation", "information")
_WHERE = {
    "permea.compose": (
        "ConditionallyDeep",
        "FuzzyClassifier",
        "HullClassifier",
        "KAHMClassifier",
        "MembershipClassifier",
        "MomentClassifier",
        "MomentRegressor",
        "ReconstructionClassifier",
        "Wide",
        "fabricate_records",
    ),
    "permea.information": ("information_leakage",),
    "permea.models": (
        "BayesianMembershipMapping",
        "FuzzyAutoencoder",
        "FuzzyModel",
        "KernelAffineHullMachine",
        "MembershipAutoencoder",
        "MembershipMapping",
    ),
    "permea.privacy": (
        "Budget",
        "BudgetExceededError",
        "Certificate",
        "GaussianNoise",
        "Ledger",
        "OptimalNoise",
        "Privacy",
        "StaircaseNoise",
        "noise_gain",
        "release",
        "release_pair",
    ),
    "permea.storage": (
        "load",
        "save",
    ),
    "permea.tables": ("Schema",),
    "permea.transfer": (
        "SourceModel",
        "TransferClassifier",
    ),
    "permea.information.study": ("trade_off",),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> _Any:
    """Import what is asked for when it is first asked for: `import permea` alone is quick."""
    if name in _ROOMS:
        return _import_module(f"permea.{name}")
    if name in _MODULE_OF:
        found = getattr(_import_module(_MODULE_OF[name]), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'permea' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


class _Package(_ModuleType):
    """`permea.fabricate` is a function; importing the folder of that name does not replace it."""

    @property
    def fabricate(self) -> _Any:
        return _import_module("permea.fabricate.rows").fabricate

    @fabricate.setter
    def fabricate(self, folder: _ModuleType) -> None:
        pass


_sys.modules[__name__].__class__ = _Package

"""Learn from data that may not leave its owner."""

from permea import audit, federation
from permea._version import __version__
from permea.compose import (
    ConditionallyDeep,
    FuzzyClassifier,
    KAHMClassifier,
    MembershipClassifier,
    ReconstructionClassifier,
    Wide,
)
from permea.models import (
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
from permea.privacy.fabrication import fabricate
from permea.storage import load, save

__all__ = [
    "Budget",
    "BudgetExceededError",
    "Certificate",
    "ConditionallyDeep",
    "FuzzyAutoencoder",
    "FuzzyClassifier",
    "FuzzyModel",
    "GaussianNoise",
    "KAHMClassifier",
    "KernelAffineHullMachine",
    "Ledger",
    "MembershipAutoencoder",
    "MembershipClassifier",
    "MembershipMapping",
    "OptimalNoise",
    "Privacy",
    "ReconstructionClassifier",
    "StaircaseNoise",
    "Wide",
    "__version__",
    "audit",
    "fabricate",
    "federation",
    "load",
    "noise_gain",
    "release",
    "release_pair",
    "save",
]

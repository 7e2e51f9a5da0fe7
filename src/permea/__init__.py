"""Learn from data that may not leave its owner."""

from permea._version import __version__
from permea.compose import ConditionallyDeep, KAHMClassifier, ReconstructionClassifier, Wide
from permea.models import KernelAffineHullMachine
from permea.privacy import Certificate, GaussianNoise, Ledger, OptimalNoise, Privacy, release
from permea.privacy.fabrication import fabricate
from permea.storage import load, save

__all__ = [
    "Certificate",
    "ConditionallyDeep",
    "GaussianNoise",
    "KAHMClassifier",
    "KernelAffineHullMachine",
    "Ledger",
    "OptimalNoise",
    "Privacy",
    "ReconstructionClassifier",
    "Wide",
    "__version__",
    "fabricate",
    "load",
    "release",
    "save",
]

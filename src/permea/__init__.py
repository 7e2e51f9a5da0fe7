"""Learn from data that may not leave its owner."""

from permea._version import __version__
from permea.compose import ConditionallyDeep, KAHMClassifier, ReconstructionClassifier, Wide
from permea.models import KernelAffineHullMachine

__all__ = [
    "ConditionallyDeep",
    "KAHMClassifier",
    "KernelAffineHullMachine",
    "ReconstructionClassifier",
    "Wide",
    "__version__",
]

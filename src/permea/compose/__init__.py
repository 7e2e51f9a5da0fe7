"""Minima over layers, branches and classes, written once for every model family."""

from permea.compose.classifier import ReconstructionClassifier, matching_scores
from permea.compose.deep import ConditionallyDeep
from permea.compose.fronts import FuzzyClassifier, KAHMClassifier, MembershipClassifier
from permea.compose.wide import Wide
from permea.models.partition import partition

__all__ = [
    "ConditionallyDeep",
    "FuzzyClassifier",
    "KAHMClassifier",
    "MembershipClassifier",
    "ReconstructionClassifier",
    "Wide",
    "matching_scores",
    "partition",
]

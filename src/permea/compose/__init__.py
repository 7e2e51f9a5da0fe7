"""Minima over layers, branches and classes, written once for every model family."""

from permea.compose.classifier import KAHMClassifier, ReconstructionClassifier, matching_scores
from permea.compose.deep import ConditionallyDeep
from permea.compose.partition import partition
from permea.compose.wide import Wide

__all__ = [
    "ConditionallyDeep",
    "KAHMClassifier",
    "ReconstructionClassifier",
    "Wide",
    "matching_scores",
    "partition",
]

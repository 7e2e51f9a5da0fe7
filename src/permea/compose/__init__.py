"""Minima over layers, branches and classes, written once for every model family."""

from permea.compose.classifier import ReconstructionClassifier, matching_scores
from permea.compose.deep import ConditionallyDeep
from permea.compose.fabricate_records import fabricate_records
from permea.compose.fronts import FuzzyClassifier, KAHMClassifier, MembershipClassifier
from permea.compose.moments import MomentClassifier, MomentRegressor
from permea.compose.wide import Wide
from permea.models.partition import partition

__all__ = [
    "ConditionallyDeep",
    "FuzzyClassifier",
    "KAHMClassifier",
    "MembershipClassifier",
    "MomentClassifier",
    "MomentRegressor",
    "ReconstructionClassifier",
    "Wide",
    "fabricate_records",
    "matching_scores",
    "partition",
]

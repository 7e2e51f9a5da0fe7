"""Minima over layers, branches and classes, written once for every model family."""

from permea.compose.classifier import ReconstructionClassifier
from permea.compose.classifiers import FuzzyClassifier, KAHMClassifier, MembershipClassifier
from permea.compose.layers import ConditionallyDeep, Wide
from permea.fabricate.records import fabricate_records
from permea.models.base import matching_scores
from permea.models.hull import HullClassifier
from permea.models.moments import MomentClassifier, MomentRegressor
from permea.models.partition import partition

__all__ = [
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
    "matching_scores",
    "partition",
]

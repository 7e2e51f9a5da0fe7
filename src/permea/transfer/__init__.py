"""Transfer: what one owner learned, used by another who has few labels and other features."""

from permea.transfer.alignment import Alignment, align, principal_directions
from permea.transfer.source import SourceModel
from permea.transfer.target import TransferClassifier
from permea.transfer.task import Iteration

__all__ = [
    "Alignment",
    "Iteration",
    "SourceModel",
    "TransferClassifier",
    "align",
    "principal_directions",
]

"""What leaks, what explains, what transfers: information theoretic measures in nats (003)."""

from permea.information.entropy import Entropy, differential_entropy
from permea.information.leakage import InformationLeakage, LeakageWarning, information_leakage
from permea.information.mutual import MutualInformation
from permea.information.neighbours import neighbour_information

__all__ = [
    "Entropy",
    "InformationLeakage",
    "LeakageWarning",
    "MutualInformation",
    "differential_entropy",
    "information_leakage",
    "neighbour_information",
]

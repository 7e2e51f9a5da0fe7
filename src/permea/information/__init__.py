"""What leaks, what explains, what transfers: information theoretic measures in nats (003).

`information_leakage` is the measure, with an adversary or interpreter as its model; the three
measures of 003 section 5 are it about private variables (`privacy_leakage`), interpretable
parameters (`interpretability`) and the images of a source (`transferability`). `simulate_attack`
and `Interpreter` put the models to use. A study over several ε is `permea.trade_off`.
"""

from permea.information.attack import AdversaryReport, simulate_attack
from permea.information.entropy import (
    Entropy,
    MutualInformation,
    differential_entropy,
    neighbour_information,
)
from permea.information.interpreter import Estimate, Explanation, Interpreter
from permea.information.leakage import InformationLeakage, LeakageWarning, information_leakage
from permea.information.measures import (
    interpretability,
    party_transferability,
    privacy_leakage,
    transferability,
)

__all__ = [
    "AdversaryReport",
    "Entropy",
    "Estimate",
    "Explanation",
    "InformationLeakage",
    "Interpreter",
    "LeakageWarning",
    "MutualInformation",
    "differential_entropy",
    "information_leakage",
    "interpretability",
    "neighbour_information",
    "party_transferability",
    "privacy_leakage",
    "simulate_attack",
    "transferability",
]

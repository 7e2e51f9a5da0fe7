"""One model each: data in, an image of any point and its distance to that image out."""

from permea.models.base import ShrunkWarning
from permea.models.bayes import BayesianMembershipMapping
from permea.models.fuzzy import FuzzyAutoencoder, FuzzyModel
from permea.models.kahm import KernelAffineHullMachine
from permea.models.membership import MembershipAutoencoder, MembershipMapping

__all__ = [
    "BayesianMembershipMapping",
    "FuzzyAutoencoder",
    "FuzzyModel",
    "KernelAffineHullMachine",
    "MembershipAutoencoder",
    "MembershipMapping",
    "ShrunkWarning",
]

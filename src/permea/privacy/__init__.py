"""The wall: noise, privacy units, certificates and the ledger."""

from permea.privacy.certificate import Certificate
from permea.privacy.ledger import Budget, BudgetExceededError, Ledger
from permea.privacy.noise import GaussianNoise, OptimalNoise, StaircaseNoise, noise_gain
from permea.privacy.release import PairRelease, Release, release, release_pair
from permea.privacy.units import Privacy

__all__ = [
    "Budget",
    "BudgetExceededError",
    "Certificate",
    "GaussianNoise",
    "Ledger",
    "OptimalNoise",
    "PairRelease",
    "Privacy",
    "Release",
    "StaircaseNoise",
    "noise_gain",
    "release",
    "release_pair",
]

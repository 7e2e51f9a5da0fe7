"""The wall: noise, privacy units, certificates and the ledger."""

from permea.privacy.certificate import Certificate
from permea.privacy.ledger import (
    Budget,
    BudgetExceededError,
    Ledger,
    LedgerError,
    TamperedLedgerError,
)
from permea.privacy.noise import GaussianNoise, OptimalNoise, StaircaseNoise, noise_gain
from permea.privacy.payment import PrivacyWarning
from permea.privacy.release import PairRelease, Release, release, release_pair
from permea.privacy.signing import PublicKey, SigningError, SigningKey, TrustedKeys
from permea.privacy.units import Privacy

__all__ = [
    "Budget",
    "BudgetExceededError",
    "Certificate",
    "GaussianNoise",
    "Ledger",
    "LedgerError",
    "OptimalNoise",
    "PairRelease",
    "Privacy",
    "PrivacyWarning",
    "PublicKey",
    "Release",
    "SigningError",
    "SigningKey",
    "StaircaseNoise",
    "TamperedLedgerError",
    "TrustedKeys",
    "noise_gain",
    "release",
    "release_pair",
]

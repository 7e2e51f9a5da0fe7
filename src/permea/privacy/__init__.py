"""The wall: noise, privacy units, certificates and the ledger."""

from permea.privacy.certificate import Certificate
from permea.privacy.ledger import BudgetExceededError, Ledger
from permea.privacy.ledger_events import Budget, LedgerError, TamperedLedgerError
from permea.privacy.noise import GaussianNoise, OptimalNoise, StaircaseNoise, noise_gain
from permea.privacy.pairs import pick_pairs
from permea.privacy.quantiles import private_edges
from permea.privacy.release import PairRelease, PrivacyWarning, Release, release, release_pair
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
    "pick_pairs",
    "private_edges",
    "release",
    "release_pair",
]

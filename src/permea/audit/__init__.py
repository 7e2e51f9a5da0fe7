"""Attacks, density difference and an empirical lower bound on epsilon."""

from permea.audit.density import DensityDifference, density_difference, fit_density_difference
from permea.audit.membership import membership_inference_score

__all__ = [
    "DensityDifference",
    "density_difference",
    "fit_density_difference",
    "membership_inference_score",
]

"""Attacks, density difference and an empirical lower bound on epsilon.

Serves any scikit-learn classifier, says more about those that answer with distances, and most about
mechanisms whose released numbers can be read.
"""

from permea.audit.attacks import (
    label_robustness,
    membership_inference_score,
    membership_inference_test,
)
from permea.audit.bounds import (
    EmpiricalEpsilon,
    gaussian_epsilon,
    gaussian_scores_p_value,
    multi_run_epsilon,
    one_run_bound,
    one_run_epsilon,
    one_run_p_value,
    shift_epsilon,
)
from permea.audit.density import (
    DensityDifference,
    DensityTest,
    density_difference,
    density_test,
    fit_density_difference,
)
from permea.audit.empirical import (
    empirical_epsilon,
    mechanism_epsilon,
    release_epsilon,
    why_not_rerun,
)
from permea.audit.metrics import AttackResult, auc, auc_interval, clopper_pearson, tpr_at_fpr
from permea.audit.reconstruction import AttributeInference, attribute_attack, nearest_row_attack
from permea.audit.report import AttackReport, guarantee_rows
from permea.audit.suite import KINDS, attack
from permea.audit.synthetic import Risk, SyntheticRisks, synthetic_risks

__all__ = [
    "KINDS",
    "AttackReport",
    "AttackResult",
    "AttributeInference",
    "DensityDifference",
    "DensityTest",
    "EmpiricalEpsilon",
    "Risk",
    "SyntheticRisks",
    "attack",
    "attribute_attack",
    "auc",
    "auc_interval",
    "clopper_pearson",
    "density_difference",
    "density_test",
    "empirical_epsilon",
    "fit_density_difference",
    "gaussian_epsilon",
    "gaussian_scores_p_value",
    "guarantee_rows",
    "label_robustness",
    "mechanism_epsilon",
    "membership_inference_score",
    "membership_inference_test",
    "multi_run_epsilon",
    "nearest_row_attack",
    "one_run_bound",
    "one_run_epsilon",
    "one_run_p_value",
    "release_epsilon",
    "shift_epsilon",
    "synthetic_risks",
    "tpr_at_fpr",
    "why_not_rerun",
]

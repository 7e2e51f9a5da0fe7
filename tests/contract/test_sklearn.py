"""Scikit-learn's own checks on every estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from permea import (
    ConditionallyDeep,
    FuzzyClassifier,
    HullClassifier,
    KAHMClassifier,
    KernelAffineHullMachine,
    MembershipClassifier,
    MomentClassifier,
    MomentRegressor,
    ReconstructionClassifier,
    Wide,
)

ESTIMATORS = [
    KernelAffineHullMachine(n_components=2),
    ConditionallyDeep(KernelAffineHullMachine(n_components=2), n_layers=2),
    Wide(KernelAffineHullMachine(n_components=2), branch_size=20),
    ReconstructionClassifier(KernelAffineHullMachine(n_components=2), n_layers=2),
    # these checks set n_components to 1 on their own, which leaves room for one layer
    KAHMClassifier(n_components=2, n_layers=1),
    MembershipClassifier(n_components=2, n_layers=1),
    FuzzyClassifier(n_components=2, n_layers=1),
    MomentClassifier(features="identity"),
    MomentClassifier(features="fourier"),
    HullClassifier(features="identity"),
    HullClassifier(features="fourier", metric="likelihood"),
    MomentRegressor(features="identity"),
    MomentRegressor(features="identity", inference="ridge"),
]


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)

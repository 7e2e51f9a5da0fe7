"""The attacks agree with those of the Adversarial Robustness Toolbox on the same model and rows.

``make test-slow`` installs the toolbox (extra ``peers``); elsewhere these tests are left out.
"""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier

from permea import audit
from permea.audit import suite

pytestmark = pytest.mark.slow
pytest.importorskip("art", reason="needs the extra peers: pip install 'permea[peers]'")


@pytest.fixture(scope="module")
def target():
    """A tree that remembers digits of which a fifth have a random label."""
    rng = np.random.default_rng(0)
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(X))[:1600]
    X, y = X[order] / 16, y[order]
    y = np.where(rng.random(len(y)) < 0.2, rng.integers(0, 10, len(y)), y)
    clf = DecisionTreeClassifier(random_state=0).fit(X[:800], y[:800])
    report = audit.attack(clf, X[:800], y[:800], X[800:], y[800:], n_shadows=20)
    pool = suite._make_pool(X[:800], y[:800], X[800:], y[800:], None, 0)
    return clf, report, pool


def wrapped(clf):
    from art.estimators.classification import SklearnClassifier

    return SklearnClassifier(clf, clip_values=(0.0, 1.0))


def balanced(says_member, pool, rows):
    says, member = np.asarray(says_member).ravel(), pool.member[rows]
    return (says[member].mean() + 1 - says[~member].mean()) / 2


def close(peer, mine, n):
    """Two balanced accuracies over n rows, both with error at most 1/(2√n), at an error of 1e-6."""
    return abs(peer - mine) < norm.ppf(1 - 1e-6 / 2) * np.sqrt(2) * 0.5 / np.sqrt(n)


def test_rule_based_attack_is_our_correctness_attack(target):
    from art.attacks.inference.membership_inference import MembershipInferenceBlackBoxRuleBased

    clf, report, pool = target
    rows = np.flatnonzero(pool.scored)
    says = MembershipInferenceBlackBoxRuleBased(wrapped(clf)).infer(pool.X[rows], pool.y[rows])
    assert balanced(says, pool, rows) == pytest.approx(report["correctness"].accuracy)


@pytest.mark.parametrize("kind", ["rf", "svm", "gb"])
def test_black_box_attack(target, kind):
    from art.attacks.inference.membership_inference import MembershipInferenceBlackBox

    clf, report, pool = target
    attack = MembershipInferenceBlackBox(wrapped(clf), attack_model_type=kind)
    inside, outside = pool.spare[pool.member[pool.spare]], pool.spare[~pool.member[pool.spare]]
    attack.fit(pool.X[inside], pool.y[inside], pool.X[outside], pool.y[outside])
    rows = np.flatnonzero(pool.scored)
    peer = balanced(attack.infer(pool.X[rows], pool.y[rows]), pool, rows)
    assert peer > 0.55
    for mine in ("loss", "shadow_tree", "shadow_svm", "shadow_network"):
        assert close(peer, report[mine].accuracy, len(rows)), (mine, peer, report[mine].accuracy)


def test_label_only_attack(target):
    from art.attacks.inference.membership_inference import LabelOnlyDecisionBoundary

    clf, report, pool = target
    rng = np.random.default_rng(0)
    search = {"norm": 2, "max_iter": 5, "max_eval": 200, "init_eval": 20, "verbose": False}

    def some(mask, count):
        return rng.permutation(np.flatnonzero(mask))[:count]

    inside = some(~pool.scored & pool.member, 60)
    outside = some(~pool.scored & ~pool.member, 60)
    np.random.seed(0)  # noqa: NPY002 - the toolbox draws from the global generator
    attack = LabelOnlyDecisionBoundary(wrapped(clf))
    X, y = pool.X.astype(np.float32), pool.y
    attack.calibrate_distance_threshold(X[inside], y[inside], X[outside], y[outside], **search)
    rows = np.r_[some(pool.scored & pool.member, 80), some(pool.scored & ~pool.member, 80)]
    peer = balanced(attack.infer(X[rows], y[rows], **search), pool, rows)
    mine = report["label_only"].accuracy
    assert mine > 0.55
    assert close(peer, mine, len(rows)), (peer, mine)

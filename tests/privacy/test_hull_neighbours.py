"""Neighbouring data sets through the stages of a hull: all exact sums together move within μ."""

import numpy as np
import pytest

from permea import HullClassifier, Privacy
from permea.models.features import Chain, OrientedGradients, RandomFourier, ScaledIdentity
from permea.privacy.moments import MEAN_STEPS, SQUARE_STEPS, UNIT_STEPS

SIZE, CLASSES = 20, 3
FOURIER = Chain([ScaledIdentity(domain=(0, 1)), RandomFourier(n_frequencies=8)])
MODELS = {
    "identity": {"features": "identity"},
    "both models": {"features": "identity", "metric": "likelihood", "ridge_weight": 0.7},
    "weights": {"features": "identity", "class_weight": {0: 0.3, 1: 1.0}},
    "fourier": {"features": FOURIER, "radius": 0.05},
    "edges": {"features": OrientedGradients(image_shape=(3, 3), cells=2, orientations=4)},
}


class Foreign:
    """A transformer from elsewhere whose features are long, in single or double precision."""

    def __init__(self, kind):
        self.kind = kind

    def transform(self, X):
        return np.hstack([X, 30 * np.sin(50 * X)]).astype(self.kind)


def exact_sums(model, X, y, **groups):
    """The sums of all four stages in units of their noise."""
    plan, mean = model.prepare(X.shape[1]), model.mean_
    scales = plan.scales
    features = model.feature_sums(X, plan, y=y, **groups)
    moments = model.moment_sums(X, y, mean, plan, **groups)
    scatter = model.scatter_sums(X, y, mean, model.scatter_.directions, plan, **groups)
    weight = features.weight if plan.weighted else features.n_units * UNIT_STEPS
    if plan.size_is_public:
        assert features.n_units == moments.n_units
        weight = 0
    parts = [
        (features.features, MEAN_STEPS * scales.mean),
        (weight, UNIT_STEPS * scales.size),
        (moments.second, SQUARE_STEPS * scales.second),
        (moments.cross, SQUARE_STEPS * scales.cross),
        (moments.counts, SQUARE_STEPS * scales.counts),
        (scatter, SQUARE_STEPS * scales.scatter),
        (model.loss_sums(X, y, plan, **groups), SQUARE_STEPS * scales.losses),
    ]
    return np.concatenate([np.ravel(part).astype(float) / noise for part, noise in parts])


def neighbour(rng, X, y, groups, relation, per_person):
    """The same without the first record or person, or with others in its place; in any order."""
    kept = groups != groups[0] if per_person else np.arange(len(y)) > 0
    X, y, whose = X[kept], y[kept], groups[kept]
    if relation == "replace":
        n = int(rng.integers(1, 5)) if per_person else 1
        other = (rng.random((n, X.shape[1])) * rng.choice([-1, 1, 1e5])).astype(X.dtype)
        X, y = np.vstack([X, other]), np.append(y, rng.integers(0, CLASSES, n))
        whose = np.append(whose, np.full(n, groups[0]))
    order = rng.permutation(len(y))
    return X[order], y[order], whose[order]


@pytest.mark.parametrize("relation", ["replace", "add/remove"])
@pytest.mark.parametrize("unit", ["record", "person"])
@pytest.mark.parametrize("settings", [*MODELS.values(), *map(Foreign, (np.float32, np.float64))])
def test_all_stages_together_move_within_the_plan(settings, unit, relation):
    """Labels change with the rows, and a person has rows in several classes."""
    rng = np.random.default_rng(0)
    promise = Privacy(epsilon=2, delta=1e-5, unit=unit, domain=(0, 1))
    options = settings if isinstance(settings, dict) else {"features": settings}
    model = HullClassifier(
        privacy=promise, classes=range(CLASSES), neighbours=relation, random_state=0, **options
    )
    moved = []
    for kind in (np.float32, np.float64):
        X, y = rng.random((SIZE, 9)).astype(kind), rng.integers(0, CLASSES, SIZE)
        groups = rng.integers(0, 6, SIZE)
        mine = {"groups": groups} if unit == "person" else {}
        model.fit(X, y, **mine)
        others = neighbour(rng, X, y, groups, relation, unit == "person")
        theirs = {"groups": others[2]} if unit == "person" else {}
        difference = exact_sums(model, X, y, **mine) - exact_sums(model, *others[:2], **theirs)
        moved.append(np.linalg.norm(difference))
    most = model.prepare(9).loss.value
    assert 0.1 * most < max(moved) <= most

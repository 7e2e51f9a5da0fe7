"""Mechanisms that break their promise on purpose: what an audit of moments has to find.

Each is a classifier from moments whose certificate claims what the honest one claims. They are made
of the library's public steps (plan, sums, wall), so the honest parts are the library's own. Never
use one for anything but to test an audit.
"""

from dataclasses import replace
from itertools import count

import numpy as np

from permea import HullClassifier, MomentClassifier
from permea.privacy.moments import ChargedMoments, MomentSums, Scales, sum_moments


class StepByStep(MomentClassifier):
    """The honest mechanism, one public step after the other; the twins below change one step."""

    def fit(self, X, y, groups=None):
        X, y = np.asarray(X, dtype=float), np.asarray(y)
        plan = self.prepare(X.shape[1])
        wall = self.wall(plan)
        options = {} if groups is None else {"groups": groups}
        mean = wall.release_mean(self.feature_sums(X, plan, **options))
        return self.learn(wall.release(self.sums(X, y, mean, plan, **options)))

    def wall(self, plan):
        return ChargedMoments(plan, random_state=self.random_state)

    def sums(self, X, y, mean, plan, **options):
        return self.moment_sums(X, y, mean, plan, **options)


class HalfTheNoise(StepByStep):
    """Every standard deviation is half of what the promise needs."""

    share = 0.5

    def wall(self, plan):
        weak = replace(plan, scales=Scales(*(self.share * scale for scale in plan.scales)))
        return ChargedMoments(weak, random_state=self.random_state)


class TenthOfTheNoise(HalfTheNoise):
    """Every standard deviation is a tenth of what the promise needs."""

    share = 0.1


class NoClipping(StepByStep):
    """Rows about the mean are not shrunk to the radius."""

    widening = 16  # times the radius: wider than the features are

    def sums(self, X, y, mean, plan):
        indicators = np.eye(len(self.classes_))[np.searchsorted(self.classes_, y)]
        wide = replace(plan, radius=plan.radius * self.widening)
        found = sum_moments(self.map_.transform(X) - mean, indicators, wide)
        k = self.widening
        return MomentSums(found.second * k**2, found.cross * k, found.counts, found.weight)


class ExactCentring(StepByStep):
    """Rows are centred at their exact mean instead of the noised one."""

    def sums(self, X, y, mean, plan):
        return self.moment_sums(X, y, self.map_.transform(X).mean(axis=0), plan)


def factory(kind, privacy, *, reuse=1, seed=0, **settings):
    """A function that makes classifiers, each with a keystream of its own (or every ``reuse``)."""
    numbers = count()

    def make():
        place = next(numbers) // reuse
        random_state = np.random.default_rng([seed, place])
        return kind(privacy=privacy, classes=[0, 1], random_state=random_state, **settings)

    return make


class ForgottenWeights(MomentClassifier):
    """Every row of a person counts in full, as if she were several."""

    def _part(self, *given, **options):
        part = super()._part(*given, **options)
        return part._replace(weights=np.ones(len(part.weights)))


class WeakScatter(HullClassifier):
    """Hulls whose scatter has half of the noise that the promise needs; all else is honest."""

    def _charge_moments(self, *given, **options):
        charged = super()._charge_moments(*given, **options)
        weak = charged.plan.scales._replace(scatter=charged.plan.scales.scatter / 2)
        charged.plan = replace(charged.plan, scales=weak)
        return charged


class UnclippedScatter(HullClassifier):
    """Rows in directions of length 4 that are not shrunk to the radius again."""

    def _sum_scatter(self, *given, **options):
        return 16 * super()._sum_scatter(*given, **options)


class TwoClasses(HullClassifier):
    """Every row is counted in the scatter of two classes."""

    def _sum_scatter(self, *given, **options):
        own = super()._sum_scatter(*given, **options)
        return own + np.roll(own, 1, axis=0)

"""The white box on class hulls: what follows the moments is told apart as well.

After the moments of `MomentExperiment` two more stages are looked at: the scatter of each class, in
two fixed directions, and the sums of losses. Losses depend on what was learned from all that was
released before, so those of every row of the made-up data are computed from each release, and the
noised sums are compared with theirs.
"""

import math
from typing import Any

import numpy as np

from permea._arrays import Array
from permea.audit.white_box import MomentExperiment, new_model
from permea.models.hull import HullClassifier
from permea.privacy.scatter import loss_noise

_SECOND, _COUNTS = slice(2, 5), slice(9, 11)  # places in what is released of the moments
_SCATTER = slice(11, 17)


class HullExperiment(MomentExperiment):
    """Small trainings of a hull classifier with and without the worst canary.

    Examples
    --------
    >>> from permea.privacy import Privacy
    >>> promise = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))
    >>> experiment = HullExperiment(HullClassifier(privacy=promise, classes=[0, 1]))
    >>> 0.9 < experiment.attainable < 1.0  # the losses of the canary are not the largest
    True
    """

    def _model(self) -> Any:
        """Two columns in two directions, which may be any public ones."""
        model = super()._model().set_params(n_directions=2)
        model.choose_directions = lambda moments, most: np.eye(2)
        model._likely_temperature = lambda: 0  # after the release, and the audit is of the release
        return model

    def release(self, planted: bool) -> Array:
        """Moments, scatter, losses; and the losses that either data set has under this model."""
        heard: list[Array] = []
        model = self._model()
        model.calibrate = lambda losses, noise: heard.append(losses)
        model.fit(**self._data[planted])
        moments, above = model.moments_, np.triu_indices(2)
        parts = [model.mean_, moments.second[above], moments.cross.T.ravel(), moments.outputs]
        parts += [second[above] for second in model.scatter_.second]
        parts += [heard[0], *(self._losses_of(model, side) for side in (False, True))]
        return np.concatenate([np.ravel(part) for part in parts]).astype(np.float64)

    def _losses_of(self, model: Any, planted: bool) -> Array:
        """Exact losses of a data set under the model of a release, cut to [0, 1]."""
        groups = self._groups(planted)
        z = np.stack([group.features for group in groups]) - model.mean_
        z *= np.minimum(1.0, model.radius / np.maximum(np.linalg.norm(z, axis=1), 1e-30))[:, None]
        targets = np.eye(2)[[int(group.output) for group in groups]]
        losses = np.clip(model._losses(z, targets), 0.0, 1.0)
        return np.asarray(np.array([group.rows for group in groups]) @ losses)

    # ---- the losses stand behind everything else, with what is expected of them ------------------

    def log_ratios(self, released: Array) -> Array:
        """Likelihood ratio of all stages; each is Gaussian, given those before it."""
        observed, without, planted = self._losses(released)
        noise = loss_noise(self.plan)
        shift, middle = (planted - without) / noise, (observed - (planted + without) / 2.0) / noise
        earlier = super().log_ratios(released[:, : _SCATTER.stop])
        return np.asarray(earlier + (shift * middle).sum(axis=1))

    def residuals(self, released: Array) -> Array:
        """The same as for moments, and the losses about those without the canary."""
        observed, without, _ = self._losses(released)
        earlier = super().residuals(released[:, : _SCATTER.stop])
        return np.hstack([earlier, (observed - without) / loss_noise(self.plan)])

    def _losses(self, released: Array) -> list[Array]:
        return np.split(released[:, _SCATTER.stop :], 3, axis=1)

    def _noise(self) -> Array:
        second = self.plan.radius**2 * np.array([1.0, math.sqrt(0.5), 1.0])
        return np.concatenate([super()._noise(), np.tile(self.plan.scales.scatter * second, 2)])

    def _terms(self, group: Any, mean: Array, n_counts: int) -> Array:
        earlier = super()._terms(group, mean, _COUNTS.stop - _COUNTS.start)
        squares, indicator = earlier[:, _SECOND], earlier[:, _COUNTS]
        return np.hstack([earlier, *(squares * own for own in np.split(indicator, 2, axis=1))])


def moment_experiment(make: Any) -> MomentExperiment:
    """The experiment for a kind of estimator."""
    kind = HullExperiment if isinstance(new_model(make), HullClassifier) else MomentExperiment
    return kind(make)

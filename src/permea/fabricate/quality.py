"""How near a synthetic table is to what was released; no private row is read for it."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from permea._arrays import Integers
from permea.fabricate.generator import TableGenerator
from permea.fabricate.learn_tables import Learner


@dataclass(frozen=True)
class Agreement:
    """Distance between the synthetic table and what was released, of one or two columns.

    Attributes
    ----------
    columns : tuple of str
    distance : float
        Total variation: half the sum of absolute differences of shares, from 0 to 1.
    by_chance : float
        What the noise, and the chance of who is in the table, make of that on average when the
        synthetic rows follow the right distribution.
    error : float
        Standard deviation of that.
    """

    columns: tuple[str, ...]
    distance: float
    by_chance: float
    error: float

    @property
    def is_held(self) -> bool:
        """Whether chance explains the distance, but for a hundredth."""
        return self.distance <= self.by_chance + 4.0 * self.error + 0.01


@dataclass(frozen=True)
class TableQuality:
    """How near a synthetic table is to what was released; it may be published.

    A pair whose distance is well above ``by_chance`` depends in a way that the trees do not hold.
    """

    columns: tuple[Agreement, ...]
    pairs: tuple[Agreement, ...]

    @property
    def pairs_not_held(self) -> tuple[Agreement, ...]:
        """Pairs that are further off than chance explains, furthest first."""
        found = [pair for pair in self.pairs if not pair.is_held]
        return tuple(sorted(found, key=lambda pair: pair.by_chance - pair.distance))

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return asdict(self)


def quality_of(generator: TableGenerator, learner: Learner) -> TableQuality:
    """Compare a draw with the released counts; no private row is read."""
    size = float(learner.totals.sum())
    bins, _ = generator.draw_bins(max(generator.size, 1000), np.random.default_rng(0))
    columns = [
        _agreement((name,), sum(table), noise * math.sqrt(len(table)), size, bins[:, [k]])
        for k, (name, (table, noise)) in enumerate(
            zip(generator.names, learner.counted_alone, strict=True)
        )
    ]
    pairs = [
        _agreement(
            (generator.names[one], generator.names[other]), sum(tables),
            noise * math.sqrt(len(tables)), size, bins[:, [one, other]],
        )
        for (one, other), (tables, noise) in learner.counted_pairs.items()
    ]  # fmt: skip
    return TableQuality(tuple(columns), tuple(pairs))


def _agreement(
    names: tuple[str, ...], counted: Any, noise: float, size: float, bins: Integers
) -> Agreement:
    shape = np.shape(counted)
    code = np.ravel_multi_index(tuple(bins.T), shape)
    drawn = np.bincount(code, minlength=int(np.prod(shape))) / len(code)
    distance = 0.5 * np.abs(np.ravel(counted) / size - drawn).sum()
    variance = (noise**2 + size * drawn) / size**2  # of the released share of every cell
    by_chance = 0.5 * math.sqrt(2.0 / math.pi) * np.sqrt(variance).sum()
    error = 0.5 * math.sqrt((1.0 - 2.0 / math.pi) * variance.sum())
    return Agreement(names, float(distance), float(by_chance), float(error))

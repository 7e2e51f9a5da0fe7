r"""Counts released in stages: what is counted next depends on what was released before.

Every stage is a set of tables, as in `permea.privacy.counts`. How many tables it has at most, and
its share of the budget, are fixed before any row is read; which tables they are may follow from the
noised tables of earlier stages. A row falls into at most one cell of each, so a stage of T tables
costs :math:`μ_s^2 = T / σ_s^2` (twice as much when a row is replaced), and all stages together cost
:math:`μ^2 = \sum_s μ_s^2`, whatever was chosen. They are one event of the ledger. Proof:
``docs/proofs/quantiles.md``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from permea._arrays import Array
from permea.privacy.certificate import Certificate
from permea.privacy.composition import Loss
from permea.privacy.counts import (
    Codes,
    CountPlan,
    certify_counts,
    check_countable,
    check_units,
    most_moved,
    row_steps,
    sum_counts,
)
from permea.privacy.gaussian import discrete_gaussian
from permea.privacy.ledger import Ledger
from permea.privacy.ledger_events import Event
from permea.privacy.moments import Neighbours
from permea.privacy.noise import gaussian_mu, grid_slack
from permea.privacy.release import pay, read_after_charge
from permea.privacy.sampling import RandomState, bit_source
from permea.privacy.units import Privacy

MOST_CELLS = 2**22  # of all tables of one stage: public, and counted whether they are used or not


class Stage(NamedTuple):
    """Share of the budget, in μ², and the largest number of tables of one stage."""

    share: float
    n_tables: int


@dataclass(frozen=True)
class StagedPlan:
    """Everything public about counts in stages.

    ``stages`` has the noise of each, with sizes still to come; ``most`` is what was declared.
    """

    privacy: Privacy
    neighbours: Neighbours
    most: tuple[Stage, ...]
    stages: tuple[CountPlan, ...]
    loss: Loss
    replace_loss: Loss

    def event(self, dataset: str, description: str) -> Event:
        """One spend for a ledger, whose record is a replaced row."""
        return replace(self.stages[0], loss=self.loss, replace_loss=self.replace_loss).event(
            dataset, description
        )


def plan_stages(
    privacy: Privacy, stages: Sequence[Stage], *, neighbours: Neighbours = "replace"
) -> StagedPlan:
    """Calibrate the noise of all stages together.

    Examples
    --------
    >>> from permea.privacy.composition import tight_epsilon
    >>> promise = Privacy(epsilon=1, delta=1e-5, unit="record")
    >>> plan = plan_stages(promise, [Stage(0.2, 5), Stage(0.8, 20)])
    >>> one, two = plan.stages
    >>> one.noise == two.noise, abs(tight_epsilon([plan.loss], 1e-5) - 1) < 1e-3
    (True, True)
    """
    check_countable(privacy, neighbours)
    if not stages or any(stage.share <= 0 or stage.n_tables < 1 for stage in stages):
        raise ValueError("Every stage needs a share of the budget and at least one table.")
    if abs(math.fsum(stage.share for stage in stages) - 1.0) > 1e-9:
        raise ValueError("The shares of the stages must sum to 1.")
    first = gaussian_mu(privacy.epsilon, privacy.delta)
    drafts = [_stage(privacy, neighbours, stage, first) for stage in stages]
    eta, tau = _slack(drafts, first)
    if 2.0 * eta > 0.1 * privacy.epsilon or tau > 0.1 * privacy.delta:
        raise ValueError("The grid is too coarse for so small an epsilon or delta: raise it.")
    mu = gaussian_mu(privacy.epsilon - 2.0 * eta, (privacy.delta - tau) * math.exp(-eta))
    plans = [_stage(privacy, neighbours, stage, mu) for stage in stages]
    ratio = {name: most_moved(1)[name] / most_moved(1)[neighbours] for name in most_moved(1)}
    losses = {name: _loss(plans, mu * ratio[name] * (1.0 + 1e-12)) for name in ratio}
    return StagedPlan(
        replace(privacy, mechanism="gaussian", resolution=max(2, *(p.steps for p in plans))),
        neighbours, tuple(stages), tuple(plans), losses[neighbours], losses["replace"],
    )  # fmt: skip


def _stage(privacy: Privacy, neighbours: Neighbours, stage: Stage, mu: float) -> CountPlan:
    """Noise of one stage when all stages together have this μ."""
    scale = most_moved(stage.n_tables)[neighbours] / (mu * math.sqrt(stage.share))
    steps = row_steps(scale)
    unknown = Loss("gaussian", mu, 1)  # that of all stages is known later
    return CountPlan(
        privacy, neighbours, (), steps, steps * scale * (1.0 + 1e-12), unknown, unknown
    )


def _slack(plans: Sequence[CountPlan], mu: float) -> tuple[float, float]:
    """What the grid costs in all stages, with the largest number of cells each."""
    slacks = [grid_slack(plan.sigma, mu, MOST_CELLS) for plan in plans]
    return math.fsum(eta for eta, _ in slacks), math.fsum(tau for _, tau in slacks)


def _loss(plans: Sequence[CountPlan], mu: float) -> Loss:
    eta, tau = _slack(plans, mu)
    return Loss("gaussian", mu, 1, tau, eta)


class ChargedCounts:
    """Counts in stages that were planned and charged.

    Parameters
    ----------
    plan : StagedPlan
    description : str
        For the ledger and the certificate.
    ledger, dataset, random_state, rows
        See `permea.privacy.moments.ChargedMoments`.

    Examples
    --------
    >>> import numpy as np
    >>> promise = Privacy(epsilon=1, delta=1e-5, unit="record")
    >>> charged = ChargedCounts(plan_stages(promise, [Stage(1.0, 1)]), description="a table")
    >>> (table,) = charged.release(0, [3], lambda: Codes([np.array([0, 2, 2])]))
    >>> table.shape, charged.certificate(3).is_private
    ((3,), True)
    """

    def __init__(
        self,
        plan: StagedPlan,
        *,
        description: str,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        random_state: RandomState = None,
        rows: Any = None,
    ) -> None:
        self.plan = plan
        self._description = description
        self._payment = pay(ledger, plan.event, dataset, description, rows)
        self._source = bit_source(random_state)
        self._stage = 0
        self._n_tables = 0
        self._n_units: int | None = None

    def release(self, stage: int, sizes: Sequence[int], read: Callable[[], Codes]) -> list[Array]:
        """The noised tables of one stage, once; stages come in their order."""
        if stage != self._stage or not 0 < len(sizes) <= self.plan.most[stage].n_tables:
            raise RuntimeError("Stages come one after another, with no more tables than planned.")
        if min(sizes) < 1 or sum(sizes) > MOST_CELLS:
            raise ValueError(f"A stage has 1 to {MOST_CELLS} cells; declare fewer values or bins.")
        self._payment.use(f"stage {stage}")
        self._stage += 1
        self._n_tables += len(sizes)
        plan = replace(self.plan.stages[stage], sizes=tuple(sizes))

        def counted() -> list[Any]:
            codes = read()
            check_units(codes)
            if stage == 0 and plan.neighbours == "replace":
                self._n_units = codes.n_units
            return sum_counts(codes, plan)

        return [
            (table + discrete_gaussian(plan.sigma, table.size, self._source)) / plan.steps
            for table in read_after_charge(counted)
        ]

    @property
    def public_size(self) -> int | None:
        """How many records or persons were counted in the first stage, where that is public."""
        return self._n_units

    def noise(self, stage: int) -> float:
        """Standard deviation of the noise on every count of a stage."""
        return self.plan.stages[stage].noise

    def certificate(self, n_units: int) -> Certificate:
        """What is promised, when all stages are over; the ledger notes the release."""
        if self._stage < len(self.plan.stages):
            raise RuntimeError("Not all stages were released.")
        unit = self.plan.privacy.unit
        sigmas = ", ".join(f"{stage.noise:.4g}" for stage in self.plan.stages)
        noise = f"σ = {sigmas} {unit}s in {len(self.plan.stages)} stages"
        return self._payment.certify(
            certify_counts(
                self.plan, self._description, noise, self._n_tables, n_units=n_units,
                seeded=self._source.seeded,
            )
        )  # fmt: skip

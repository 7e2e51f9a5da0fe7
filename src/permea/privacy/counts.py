r"""Release of counts: how many rows, or people, fall into each cell of several public tables.

A row falls into at most one cell of every table, so with T tables it moves the counts by at most
√T, and a row that is replaced by √(2T). A person's rows have the weight 1/m each: she moves the
counts by a mean of what her rows move, which is no more. All tables get discrete Gaussian noise
once, as one release. Proof: ``docs/proofs/quantiles.md``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from permea._arrays import Array, Integers
from permea.privacy.certificate import NOT_PROTECTED, Certificate
from permea.privacy.composition import Loss, tight_epsilon
from permea.privacy.gaussian import discrete_gaussian
from permea.privacy.ledger import Ledger
from permea.privacy.ledger_events import Event
from permea.privacy.moments import RELATIONS, Neighbours, row_weights
from permea.privacy.noise import gaussian_mu, grid_sigma, grid_slack
from permea.privacy.release import RELEASES, pay, read_after_charge
from permea.privacy.sampling import RandomState, bit_source
from permea.privacy.units import Privacy
from permea.tables import Schema

MOST_STEPS = 2**36  # of one row or person
_MOST_UNITS = 2**62 // MOST_STEPS  # so many fit into 64 bits, with noise
_SIGMA = 2**38  # steps of the noise, unless a row would have more than MOST_STEPS


class Codes(NamedTuple):
    """What the rows say: the cell of every row in every table, -1 for none, and its weight."""

    cells: Sequence[Integers]
    weights: Array | None = None

    @property
    def n_units(self) -> int:
        """Number of rows, or of persons: m weights of 1/m are one."""
        return len(self.cells[0]) if self.weights is None else round(float(self.weights.sum()))


class Counts(NamedTuple):
    """Noised tables, the standard deviation of the noise on every cell, and the certificate."""

    tables: Sequence[Array]
    noise: float
    certificate: Certificate


@dataclass(frozen=True)
class CountPlan:
    """Everything public about a release of counts; ``sizes`` are the cells of the tables.

    A row counts ``steps``, and ``sigma`` is the noise in steps. ``loss`` is what the release costs
    under ``neighbours``, ``replace_loss`` what it costs when a unit is replaced (the unit of a
    ledger).
    """

    privacy: Privacy
    neighbours: Neighbours
    sizes: tuple[int, ...]
    steps: int
    sigma: float
    loss: Loss
    replace_loss: Loss

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on every count."""
        return self.sigma / self.steps

    def event(self, dataset: str, description: str) -> Event:
        """One spend for a ledger, whose record is a replaced row."""
        privacy, loss = self.privacy, (self.replace_loss,)
        epsilon = privacy.epsilon
        if self.neighbours == "add/remove":
            epsilon = tight_epsilon(loss, privacy.delta)
            description += f" (ε = {privacy.epsilon:g} add/remove, charged as replace-one)"
        return Event(
            dataset, description, privacy.unit, epsilon, privacy.delta, "gaussian", loss, loss
        )


def plan_counts(
    privacy: Privacy, sizes: Sequence[int], *, neighbours: Neighbours = "replace"
) -> CountPlan:
    """Calibrate the noise of a release of tables with so many cells.

    Examples
    --------
    >>> promise = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))
    >>> one, four = (plan_counts(promise, [8] * tables) for tables in (1, 4))
    >>> round(four.noise / one.noise, 3)
    2.0
    >>> abs(tight_epsilon([one.loss], 1e-5) - 1) < 1e-3
    True
    """
    check_countable(privacy, neighbours)
    if not sizes or min(sizes) < 1:
        raise ValueError("There is nothing to count: no table with at least one cell.")
    most = most_moved(len(sizes))
    steps = row_steps(most[neighbours] / gaussian_mu(privacy.epsilon, privacy.delta))
    moved = {name: steps * value * (1.0 + 1e-12) for name, value in most.items()}
    cells = sum(sizes)
    sigma = grid_sigma(privacy.epsilon, privacy.delta, moved[neighbours], cells)
    losses = {}
    for name, value in moved.items():
        eta, tau = grid_slack(sigma, value / sigma, cells)
        losses[name] = Loss("gaussian", value / sigma, 1, tau, eta)
    promise = replace(privacy, mechanism="gaussian", resolution=max(steps, 2))
    return CountPlan(
        promise, neighbours, tuple(sizes), steps, sigma, losses[neighbours], losses["replace"]
    )


def check_countable(privacy: Privacy, neighbours: Neighbours) -> None:
    """Check that counts can keep this promise."""
    if "moments" not in RELEASES[privacy.unit] or privacy.delta <= 0:
        raise ValueError(
            "Counts hide whole records or people with Gaussian noise: they need unit='record' or "
            f"'person' and delta > 0, e.g. delta=1e-5; got {privacy.describe()}."
        )
    if privacy.sampler != "grid" or privacy.clip_norm is not None:
        raise ValueError("Counts have a grid of their own: leave out sampler and clip_norm.")
    if neighbours not in RELATIONS[privacy.unit]:
        raise ValueError(f"neighbours must be 'replace' or 'add/remove', got {neighbours!r}.")


def most_moved(n_tables: int) -> dict[Neighbours, float]:
    """How far one unit may move the counts of so many tables, in units of one row.

    Examples
    --------
    >>> most_moved(8)["replace"]
    4.0
    """
    return {"replace": math.sqrt(2 * n_tables), "add/remove": math.sqrt(n_tables)}


def row_steps(scale: float) -> int:
    """Steps that one row counts, when the noise is to be ``scale`` rows."""
    return 1 << max(0, min(math.floor(math.log2(_SIGMA / scale)), MOST_STEPS.bit_length() - 1))


def sum_counts(codes: Codes, plan: CountPlan) -> list[Integers]:
    """Exact counts in whole steps: a row adds its weight to one cell of every table.

    Examples
    --------
    >>> promise = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))
    >>> cells = np.array([0, 2, 2, -1])
    >>> plan = plan_counts(promise, [3])
    >>> (sum_counts(Codes([cells]), plan)[0] / plan.steps).tolist()
    [1.0, 0.0, 2.0]
    """
    if codes.weights is None:
        return [
            _occurrences(cells, size) * plan.steps
            for cells, size in zip(codes.cells, plan.sizes, strict=True)
        ]
    steps = np.trunc(codes.weights * plan.steps).astype(np.int64)
    tables = []
    for cells, size in zip(codes.cells, plan.sizes, strict=True):
        table = np.zeros(size, np.int64)
        known = cells >= 0
        np.add.at(table, cells[known], steps[known])
        tables.append(table)
    return tables


def _occurrences(cells: Integers, size: int) -> Integers:
    """How often each cell occurs; -1 stands for none."""
    return np.bincount(cells + 1, minlength=size + 1)[1:].astype(np.int64)


def release_counts(
    read: Callable[[], Codes],
    plan: CountPlan,
    *,
    description: str,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    random_state: RandomState = None,
    rows: Any = None,
) -> Counts:
    """Charge, read the rows, count, add noise, certify: in this order.

    Parameters
    ----------
    read : callable
        Gives the cells of the rows; called after the charge.
    plan : CountPlan
    description : str
        For the ledger and the certificate.
    ledger, dataset, random_state, rows
        See `permea.privacy.moments.ChargedMoments`.
    """
    payment = pay(ledger, plan.event, dataset, description, rows)
    source = bit_source(random_state)
    exact, n_units = read_after_charge(lambda: _counted(read(), plan))
    tables = [
        (table + discrete_gaussian(plan.sigma, table.size, source)) / plan.steps for table in exact
    ]
    if plan.neighbours == "add/remove":
        n_units = max(round(tables[0].sum()), 1)
    paper = certify_counts(
        plan, description, f"σ = {plan.noise:.4g} {plan.privacy.unit}s", len(plan.sizes),
        n_units=n_units, seeded=source.seeded,
    )  # fmt: skip
    certificate = payment.certify(paper)
    return Counts(tables, plan.noise, certificate)


def _counted(codes: Codes, plan: CountPlan) -> tuple[list[Integers], int]:
    check_units(codes)
    return sum_counts(codes, plan), codes.n_units


def check_units(codes: Codes) -> None:
    """Check that counts of these rows fit into 64 bits."""
    if codes.n_units > _MOST_UNITS:
        raise OverflowError(f"Counts of more than {_MOST_UNITS} rows do not fit into 64 bits.")


def release_table_counts(
    frame: Any,
    schema: Schema,
    names: Sequence[str],
    cells: Callable[[dict[str, Array]], Sequence[Integers]],
    sizes: Sequence[int],
    *,
    privacy: Privacy,
    description: str,
    neighbours: Neighbours = "replace",
    groups: ArrayLike | None = None,
    **options: Any,
) -> Counts:
    """Counts of a table by its schema: ``cells`` turns the columns ``names`` into cells.

    With ``unit="person"`` rows are those of ``groups``, or of the schema's person column.
    """
    person = privacy.unit == "person"
    if person and groups is None and schema.person is None:
        raise ValueError("unit='person' needs groups=…, or a person column in the schema.")
    if groups is not None and not person:
        raise ValueError(f"groups belong to unit='person'; the promise is per {privacy.unit}.")
    owner = schema.person if person and groups is None else None
    schema.check_columns(frame, roles=[name for name in (*names, owner) if name is not None])
    plan = plan_counts(privacy, sizes, neighbours=neighbours)

    def read() -> Codes:
        found = cells(schema.read(frame, names))
        if not person:
            return Codes(found)
        weights = row_weights(schema.people(frame) if groups is None else groups)
        if len(weights) != len(found[0]):
            raise ValueError("groups must name one person for every row.")
        return Codes(found, weights)

    return release_counts(read, plan, description=description, rows=frame, **options)


def certify_counts(
    plan: Any, description: str, noise: str, n_tables: int, *, n_units: int, seeded: bool
) -> Certificate:
    """The certificate of a release of counts in so many tables; ``plan`` says what it costs."""
    privacy = plan.privacy
    public = (f"the number of {privacy.unit}s",) if plan.neighbours == "replace" else ()
    certificate = Certificate(
        privacy=privacy,
        n_rows=n_units,
        n_columns=n_tables,
        noise=f"Gaussian on counts; {noise}",
        seeded=seeded,
        exposed_entries=0.0,
        record_epsilon=privacy.epsilon,
        record_delta=privacy.delta,
        simple_record_epsilon=privacy.epsilon,
        simple_record_delta=privacy.delta,
        not_protected=(*public, NOT_PROTECTED[-1]),
        neighbours=RELATIONS[privacy.unit][plan.neighbours],
        released=f"{description}, from counts in {n_tables} public tables; no rows",
    )
    if plan.neighbours == "add/remove":
        epsilon = tight_epsilon([plan.replace_loss], privacy.delta)
        return certificate.add_step(
            f"when a {privacy.unit} is replaced instead, the same noise keeps ε = {epsilon:.4g} "
            f"per {privacy.unit} at δ = {privacy.delta:g} per {privacy.unit}"
        )
    return certificate

"""Synthetic tables from counts of pairs: per record or per person, in the types of a schema."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from permea.fabricate.cells import Cells, fine_cells
from permea.fabricate.generator import TableGenerator, check_rules
from permea.fabricate.learn_tables import Learner, Rows, stages
from permea.fabricate.persons import ROWS, count_cells, row_counts
from permea.fabricate.quality import TableQuality, quality_of
from permea.privacy import Certificate, Ledger, Privacy
from permea.privacy.moments import Neighbours
from permea.privacy.people import person_places, row_weights
from permea.privacy.sampling import RandomState
from permea.privacy.stages import MOST_CELLS, ChargedCounts, plan_stages
from permea.tables import Schema


@dataclass(frozen=True)
class FabricatedTable:
    """A synthetic table, what is promised about the rows behind it, and where more come from.

    Attributes
    ----------
    certificate : Certificate
    generator : TableGenerator
        Draws further tables, and longer ones, at no further cost.
    quality : TableQuality
        How near the table is to what was released, beside what chance explains.
    n_rows : int or None
    seed : int or None
        With which ``data`` is drawn.
    """

    certificate: Certificate
    generator: TableGenerator
    quality: TableQuality
    n_rows: int | None = None
    seed: int | None = None

    @cached_property
    def data(self) -> Any:
        """The synthetic rows, as a pandas table."""
        return self.generator.draw(self.n_rows, random_state=self.seed)


def fabricate_table(
    frame: Any,
    schema: Schema,
    *,
    privacy: Privacy,
    neighbours: Neighbours = "replace",
    groups: ArrayLike | None = None,
    n_rows: int | None = None,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    random_state: RandomState = None,
    seed: int | None = None,
) -> FabricatedTable:
    """A table like a private one: what `permea.fabricate_records` does with a schema.

    Pairs of columns are counted in stages (`permea.fabricate.learn_tables`), all of them one
    release; a tree of dependences follows, with shares for every label, and rows are drawn from it.

    Parameters
    ----------
    frame : table
        The private rows.
    schema : Schema
        The declared columns; roles say which is the label, and whose a row is.
    privacy : Privacy
        The promise, per record or per person, with δ > 0. Synthetic persons have no more rows than
        its ``rows_per_person``, 32 where it is not declared.
    neighbours : {"replace", "add/remove"}
        How neighbouring data sets differ.
    groups : array-like, optional
        Whose row each is, with ``unit="person"``; the schema's person by default. Rows of a person
        are taken to be in the order in which they were made.
    n_rows : int, optional
        Rows of the table; by default about as many as there are, or all rows of as many persons.
    ledger, dataset, random_state
        As in `permea.privacy.release.release`.
    seed : int, optional
        Repeats the draw after the release. It makes nothing less private.

    Examples
    --------
    >>> from permea.tables import Number, YesNo
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 80, 5000)
    >>> frame = {"age": age, "ill": np.where(rng.random(5000) < age / 100, "yes", "no")}
    >>> schema = Schema({"age": Number(18, 90, whole=True), "ill": YesNo()}, label="ill")
    >>> promise = Privacy(epsilon=1, delta=1e-6, unit="record")
    >>> made = fabricate_table(frame, schema, privacy=promise, seed=0)
    >>> made.data.shape, made.certificate.is_private
    ((5000, 2), True)
    >>> older = made.data["age"][made.data["ill"] == "yes"].mean()
    >>> bool(older > made.data["age"][made.data["ill"] == "no"].mean())
    True
    """
    persons = privacy.unit == "person"
    _check(frame, schema, privacy, groups, n_rows, seed)
    names, cells = _columns(schema, privacy)
    n_labels = 1 if schema.label is None else len(schema.classes)
    if n_labels * sum(each.count for each in cells) > MOST_CELLS:
        raise ValueError("The schema has too many values and labels to count: declare fewer.")
    check_rules(schema)
    if 4 * n_labels * math.comb(len(names), 2) > MOST_CELLS:
        raise ValueError("The schema has too many columns to count all pairs of: declare fewer.")
    plan = plan_stages(privacy, stages(len(names), persons=persons), neighbours=neighbours)
    charged = ChargedCounts(
        plan, description=f"a synthetic table of {len(names) + (schema.label is not None)} columns",
        ledger=ledger, dataset=dataset, random_state=random_state, rows=frame,
    )  # fmt: skip
    private = _PrivateRows(frame, schema, names, cells, groups, persons)
    learner = Learner(charged, lambda: private.rows, cells, n_labels)
    learner.learn(persons=persons)
    generator = TableGenerator(
        schema, names, cells, learner.bins, learner.totals / learner.totals.sum(), learner.trees,
        max(1, round(float(learner.totals.sum()))), learner.persistence,
    )  # fmt: skip
    certificate = charged.certificate(generator.size).add_step(
        "rows drawn from a tree of dependences between columns for every label; identifiers are new"
    )
    quality = quality_of(generator, learner)
    return FabricatedTable(certificate, generator, quality, n_rows, seed)


def _check(
    frame: Any,
    schema: Schema,
    privacy: Privacy,
    groups: ArrayLike | None,
    n_rows: int | None,
    seed: int | None,
) -> None:
    """What can be said before the charge, from names and options alone."""
    person = privacy.unit == "person"
    if person and groups is None and schema.person is None:
        raise ValueError("unit='person' needs groups=…, or a person column in the schema.")
    if groups is not None and not person:
        raise ValueError(f"groups belong to unit='person'; the promise is per {privacy.unit}.")
    if n_rows is not None and not (isinstance(n_rows, int | np.integer) and n_rows >= 1):
        raise ValueError(f"n_rows must be a whole number of at least 1, got {n_rows!r}.")
    if seed is not None and not (isinstance(seed, int | np.integer) and seed >= 0):
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}.")
    needed = [schema.label, schema.target, schema.person if person and groups is None else None]
    schema.check_columns(frame, roles=[name for name in needed if name is not None])


def _columns(schema: Schema, privacy: Privacy) -> tuple[tuple[str, ...], list[Cells]]:
    """The columns that are counted beside the label, and their cells."""
    roles = (schema.label, schema.person)
    names = [n for n in schema.columns if n not in roles and not schema.is_ignored(n)]
    cells = [fine_cells(schema.columns[name]) for name in names]
    if privacy.unit == "person":
        if ROWS in schema.columns:
            raise ValueError(f"Rename the column {ROWS!r}: a column of this name is added.")
        return (*names, ROWS), [*cells, count_cells(privacy.rows_per_person)]
    return tuple(names), cells


@dataclass(frozen=True)
class _PrivateRows:
    """The private table; ``rows`` is read after the charge, and once."""

    frame: Any
    schema: Schema
    names: tuple[str, ...]
    cells: list[Cells]
    groups: ArrayLike | None
    persons: bool

    @cached_property
    def rows(self) -> Rows:
        """The cells of all rows."""
        schema, people, weights = self.schema, None, None
        wanted = [name for name in self.names if name != ROWS]
        read = schema.read(self.frame, [*wanted, *([schema.label] if schema.label else [])])
        positions = [read[name] for name in wanted]
        n_rows = len(positions[0])
        if self.persons:
            groups = schema.people(self.frame) if self.groups is None else self.groups
            people, weights = person_places(groups), row_weights(groups)
            if len(weights) != n_rows:
                raise ValueError("groups must name one person for every row.")
            positions.append(row_counts(people).astype(np.float64))
        fine = [c.of(at).astype(np.int32) for c, at in zip(self.cells, positions, strict=True)]
        labels = np.zeros(n_rows, np.int64)
        if schema.label is not None:
            labels = read[schema.label].astype(np.int64)
        return Rows(fine, labels, weights, people)

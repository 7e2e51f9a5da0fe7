"""Attacks on a synthetic table: what it tells about the people it was learned from.

Each attack guesses something about real people, once about people whose rows were learned from and
once about people whose rows were not (the control). A table that tells about everybody alike has
learned the population; what it tells about its own people beyond that is its risk:
:math:`(s - c)/(1 - c)` for success s and control c. Singling out, linkability and inference are the
three risks of the Article 29 Working Party (Opinion 05/2014), measured by attacks as Giomi et al.
(2023) propose. All of them read real rows: their results are for the owner's eyes.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from permea._arrays import Array, Integers, Mask
from permea.audit.metrics import auc, auc_interval, clopper_pearson
from permea.fabricate.comparison import NOT_FOR_RELEASE
from permea.fabricate.generator import TableGenerator
from permea.privacy.people import person_places
from permea.tables import Date, Number, Schema
from permea.tables.columns import Choice
from permea.tables.frames import column_names

_ATTACKS = 1000  # guesses of each attack at most
_ROWS = 4000  # synthetic rows that are searched for neighbours
_TRIES = 4  # predicates tried for each that is wanted


@dataclass(frozen=True)
class Risk:
    """What one attack achieved.

    Attributes
    ----------
    name, question : str
    success, control : float
        Share of right guesses about people in the table, and about others.
    success_interval, control_interval : tuple of float
        95 % intervals.
    guesses : int
        How many there were about each group.
    """

    name: str
    question: str
    success: float
    success_interval: tuple[float, float]
    control: float
    control_interval: tuple[float, float]
    guesses: int

    @property
    def excess(self) -> float:
        """What the attack learns about people in the table beyond others, from 0 to 1."""
        return max(0.0, (self.success - self.control) / max(1.0 - self.control, 1e-9))

    @property
    def is_explained_by_chance(self) -> bool:
        """Whether the two intervals overlap."""
        return self.success_interval[0] <= self.control_interval[1]

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        chance = self.is_explained_by_chance
        return {**asdict(self), "excess": self.excess, "is_explained_by_chance": chance}


@dataclass(frozen=True)
class SyntheticRisks:
    """Risks of a synthetic table, and how well nearness to it tells who was in the real one.

    Attributes
    ----------
    risks : tuple of Risk
    nearer_to_members : float
        Share of synthetic rows whose nearest real row is one that was learned from, of as many of
        both kinds: 0.5 for a table that copies nobody.
    nearer_interval : tuple of float
    membership_auc : float
        Of the attack that takes people near the synthetic rows for members.
    membership_interval : tuple of float
    generator_auc : float or None
        Of the attack that takes people whose rows the generator finds likely for members.
    generator_interval : tuple of float or None
    note : str
        That these figures are for the owner.
    """

    risks: tuple[Risk, ...]
    nearer_to_members: float
    nearer_interval: tuple[float, float]
    membership_auc: float
    membership_interval: tuple[float, float]
    generator_auc: float | None = None
    generator_interval: tuple[float, float] | None = None
    note: str = NOT_FOR_RELEASE

    @property
    def are_explained_by_chance(self) -> bool:
        """Whether no attack learned more about people in the table than chance explains."""
        lows = [self.membership_interval[0], self.nearer_interval[0]]
        if self.generator_interval is not None:
            lows.append(self.generator_interval[0])
        return all(risk.is_explained_by_chance for risk in self.risks) and max(lows) <= 0.5

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        chance = self.are_explained_by_chance
        risks = [risk.to_dict() for risk in self.risks]
        return {**asdict(self), "risks": risks, "are_explained_by_chance": chance}


def synthetic_risks(
    real: Any,
    made: Any,
    holdout: Any,
    schema: Schema,
    *,
    generator: TableGenerator | None = None,
    random_state: int = 0,
) -> SyntheticRisks:
    """Attack a synthetic table with the real rows and with rows that were held out.

    Parameters
    ----------
    real, made, holdout : table
        Rows that were learned from, synthetic rows, and real rows that were not learned from.
    schema : Schema
        Distances compare numbers by their declared range and choices by equality. Where it names
        a person column, one row of every person is attacked.
    generator : TableGenerator, optional
        What drew the table, where it is handed over too: it is attacked by its likelihoods.
    random_state : int
        Which rows are attacked.

    Examples
    --------
    >>> from permea.tables import Number
    >>> schema = Schema({name: Number(0, 1) for name in "abcd"})
    >>> rng = np.random.default_rng(0)
    >>> real, other = ({name: rng.random(400) for name in "abcd"} for _ in range(2))
    >>> copied = synthetic_risks(real, real, other, schema)  # a table that copies everybody
    >>> copied.nearer_to_members, copied.membership_auc
    (1.0, 1.0)
    >>> [risk.excess > 0.5 for risk in copied.risks]
    [True, True, True]
    """
    rng = np.random.default_rng(random_state)
    scaled = _Scaled(schema)
    first, other = (_one_row_each(schema, one, rng) for one in (real, holdout))
    inside, outside = scaled.of(real)[first], scaled.of(holdout)[other]
    table = scaled.of(made)
    count = min(len(inside), len(outside), _ATTACKS)
    inside, outside = (
        part[rng.choice(len(part), size=min(len(inside), len(outside)), replace=False)]
        for part in (inside, outside)
    )
    if len(table) > _ROWS:
        table = table[rng.choice(len(table), size=_ROWS, replace=False)]
    people = inside[:count], outside[:count]
    order = rng.permutation(2 * len(inside))  # of several nearest rows, none comes first
    everybody = np.concatenate([inside, outside])[order]
    near = order[_nearest(table[:count], everybody)[0]]
    nearer = int((near < len(inside)).sum())
    scores = [-_nearest(part, table)[1] for part in people]
    ranked = auc(*scores)
    likely, likely_interval = None, None
    if generator is not None:
        parts = (
            generator.log_likelihood(real)[first],
            generator.log_likelihood(holdout)[other],
        )
        likely = auc(*parts)
        likely_interval = auc_interval(likely, len(parts[0]), len(parts[1]))
    return SyntheticRisks(
        (
            _singling_out(table, inside, outside, scaled, rng),
            _linkability(table, people, rng),
            _inference(table, people, schema, scaled),
        ),
        nearer / len(near),
        clopper_pearson(nearer, len(near)),
        ranked,
        auc_interval(ranked, count, count),
        likely,
        likely_interval,
    )


def _one_row_each(schema: Schema, table: Any, rng: np.random.Generator) -> Integers:
    """Places of one row of every person; of all rows where nobody says whose they are.

    Rows of one person are alike, so that counting each of them would make intervals too narrow.
    """
    if schema.person is None or schema.person not in column_names(table, schema.features):
        return np.arange(len(next(iter(schema.read(table, schema.features[:1]).values()))))
    people = person_places(schema.people(table))
    order = rng.permutation(len(people))
    return np.sort(order[np.unique(people[order], return_index=True)[1]])


class _Scaled:
    """Columns of a schema on a scale from 0 to 1; choices are told apart by equality."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.names = [name for name in schema.names if name != schema.person]
        self.is_choice = np.array([isinstance(schema.columns[n], Choice) for n in self.names])

    def of(self, table: Any) -> Array:
        """Rows of a table; numbers in shares of their range, missing as NaN."""
        read = self.schema.read(table, self.names)
        columns = []
        for name in self.names:
            column = self.schema.columns[name]
            number = column.days if isinstance(column, Date) else column
            at = read[name]
            if isinstance(number, Number):
                at = (np.clip(at, number.low, number.high) - number.low) / (
                    number.high - number.low
                )
            else:
                at = 2.0 * at  # two different choices are at least two apart, which counts as one
            columns.append(at)
        return np.column_stack(columns)


def _distances(one: Array, many: Array) -> Array:
    """Sum over columns of differences of at most 1; missing and known are 1 apart (Gower)."""
    apart = np.minimum(np.abs(many - one), 1.0)
    gaps = np.isnan(many) != np.isnan(one)
    return np.asarray(np.where(np.isnan(apart), gaps, apart).sum(axis=1))


def _nearest(rows: Array, many: Array) -> tuple[Integers, Array]:
    """For every row the nearest of many, and its distance; the first of several."""
    found = [_distances(row, many) for row in rows]
    return (
        np.array([each.argmin() for each in found], dtype=np.int64),
        np.array([each.min() for each in found]),
    )


def _risk(name: str, question: str, inside: Mask, outside: Mask) -> Risk:
    return Risk(
        name, question,
        float(inside.mean()), clopper_pearson(int(inside.sum()), len(inside)),
        float(outside.mean()), clopper_pearson(int(outside.sum()), len(outside)),
        len(inside),
    )  # fmt: skip


def _singling_out(
    table: Array, inside: Array, outside: Array, scaled: _Scaled, rng: np.random.Generator
) -> Risk:
    """Descriptions that fit one synthetic row, and whether they fit exactly one person."""
    wanted, found = min(_ATTACKS // 2, len(table)), []
    p = table.shape[1]
    for _ in range(_TRIES * wanted):
        row = table[rng.integers(len(table))]
        chosen = rng.choice(p, size=min(p, int(rng.integers(3, 9))), replace=False)
        describes = _description(row, chosen, scaled, rng)
        if describes(table).sum() == 1:
            found.append((describes(inside).sum() == 1, describes(outside).sum() == 1))
        if len(found) == wanted:
            break
    hits = np.array(found or [(False, False)])
    return _risk(
        "singling out",
        "Does a description that fits one synthetic row fit exactly one person?",
        hits[:, 0], hits[:, 1],
    )  # fmt: skip


def _description(
    row: Array, chosen: Integers, scaled: _Scaled, rng: np.random.Generator
) -> Callable[[Array], Mask]:
    """Equal choices, and numbers on the same side of the row's."""
    above = rng.random(len(chosen)) < 0.5

    def describes(rows: Array) -> Mask:
        fits = np.ones(len(rows), bool)
        for column, up in zip(chosen, above, strict=True):
            value, values = row[column], rows[:, column]
            if np.isnan(value):
                fits &= np.isnan(values)
            elif scaled.is_choice[column]:
                fits &= values == value
            else:
                fits &= values >= value if up else values <= value
        return fits

    return describes


def _linkability(table: Array, people: tuple[Array, Array], rng: np.random.Generator) -> Risk:
    """Whether the table joins two halves of a person's columns."""
    order = rng.permutation(table.shape[1])
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    joined = []
    for rows in people:
        one, two = (_nearest(rows[:, half], table[:, half])[0] for half in halves)
        joined.append(one == two)
    return _risk(
        "linkability",
        "Do two files with different columns of the same person lead to the same synthetic row?",
        *joined,
    )


def _inference(table: Array, people: tuple[Array, Array], schema: Schema, scaled: _Scaled) -> Risk:
    """Whether a column is as in the synthetic row that is nearest in all others."""
    secret = schema.label or schema.target or scaled.names[-1]
    place = scaled.names.index(secret)
    known = [k for k in range(table.shape[1]) if k != place] or [place]
    right = []
    for rows in people:
        guess = table[_nearest(rows[:, known], table[:, known])[0], place]
        truth = rows[:, place]
        close = np.abs(guess - truth) <= (0.0 if scaled.is_choice[place] else 0.05)
        right.append(close | (np.isnan(guess) & np.isnan(truth)))
    return _risk(
        "inference",
        f"Who knows all other columns of a person: how often is {secret!r} guessed right?",
        *right,
    )

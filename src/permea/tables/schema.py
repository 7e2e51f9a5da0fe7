"""What everybody knows about a table before seeing a row."""

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

import numpy as np

from permea._arrays import Array
from permea._files import write_atomically
from permea._text import safe_text
from permea.tables.columns import MISSING, Blanks, Choice, Column, Date, Number, Values, person_text
from permea.tables.encoding import MOST_FEATURES, TableEncoder
from permea.tables.frames import column_names, column_values
from permea.tables.rules import Rule

LONG_LIST = 100


@dataclass(frozen=True, repr=False, eq=False)
class Schema:
    """Declared columns of a table, and what each of them is for.

    Everything in it is public: it comes from a data dictionary, a form or a textbook, and is never
    read off the rows. `permea.tables.draft` writes a file to fill in.

    Parameters
    ----------
    columns : mapping of str to Number, Category, YesNo or Date
        The declared columns. Those without a role below are features, in this order.
    label : str or None, default=None
        The column of class labels, a Category or YesNo.
    target : str or None, default=None
        The column that a regression predicts, a Number.
    person : str or None, default=None
        The column that says whose row it is; it needs no declaration among the columns.
    ignored : sequence of str, default=()
        Columns that are not used; ``*`` stands for any letters. Every other column of a table must
        be declared.
    pairs : sequence of (str, str), default=()
        Pairs of features whose products are features too.
    rules : sequence of str, default=()
        What holds between numbers or dates of a row: ``"discharge >= admission"``,
        ``"total = food + rent"``. Synthetic tables keep it.
    missing_values : sequence of str
        Texts that stand for a missing value, in any case, unless they are a declared category.

    Examples
    --------
    >>> from permea.tables import Category, Number, Schema, YesNo
    >>> schema = Schema(
    ...     {"age": Number(0, 110, whole=True), "sex": Category(["f", "m"]), "died": YesNo()},
    ...     label="died", person="patient",
    ... )
    >>> schema.features, schema.classes
    (('age', 'sex'), ('no', 'yes'))
    >>> table = {"patient": [7, 7], "age": ["63", " 64"], "sex": ["f", "f"], "died": [0, 1]}
    >>> schema.labels(table).tolist(), schema.people(table).tolist()
    (['no', 'yes'], ['7', '7'])
    >>> schema.encode(table).shape
    (2, 10)
    """

    columns: Mapping[str, Column]
    label: str | None = field(default=None, kw_only=True)
    target: str | None = field(default=None, kw_only=True)
    person: str | None = field(default=None, kw_only=True)
    ignored: tuple[str, ...] = field(default=(), kw_only=True)
    pairs: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    missing_values: tuple[str, ...] = field(default=MISSING, kw_only=True)
    rules: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", dict(self.columns))
        for name in ("ignored", "missing_values", "rules"):
            object.__setattr__(self, name, _texts(getattr(self, name), name))
        if isinstance(self.pairs, str) or not isinstance(self.pairs, Iterable):
            raise ValueError("pairs must be lists of two different feature columns.")
        object.__setattr__(self, "pairs", tuple(tuple(pair) for pair in self.pairs))
        problems = list(self._role_problems())
        if problems:
            raise ValueError("This schema cannot be used: " + "; ".join(problems) + ".")

    def _role_problems(self) -> Iterable[str]:
        for name, column in self.columns.items():
            if not isinstance(name, str) or not isinstance(column, Column):
                yield "columns must be names with a Number, Category, YesNo or Date each"
                return
        for role, kinds, needed in (
            ("label", Choice, "a category or yes/no"),
            ("target", Number, "a number"),
        ):
            name = getattr(self, role)
            if name is None:
                continue
            if not isinstance(self.columns.get(name), kinds):
                yield f"the {role} {name!r} must be declared as {needed}"
            elif self.columns[name].missing:
                yield f"the {role} {name!r} must not be declared missing: nothing is learned there"
        roles = [role for role in (self.label, self.target, self.person) if role is not None]
        if len(set(roles)) < len(roles):
            yield "label, target and person must be different columns"
        for role in roles:
            if self.is_ignored(role):
                yield f"{role!r} has a role and is ignored as well"
        for pair in self.pairs:
            if len(set(pair)) != 2 or not set(pair) <= set(self.features):
                yield "pairs must be lists of two different feature columns"
        if len(set(self.pairs)) < len(self.pairs):
            yield "a pair is there twice"
        yield from self._rule_problems()
        if not self.features:
            yield "there is no feature: declare a column without a role"

    def _rule_problems(self) -> Iterable[str]:
        for text in self.rules:
            try:
                names = Rule.parse(text).names
            except ValueError as error:
                yield f"{safe_text(text)!r}: {error}"
                continue
            for name in names:
                if not isinstance(self.columns.get(name), Number | Date) or self.is_ignored(name):
                    yield f"{safe_text(text)!r}: {safe_text(name)!r} is no declared number or date"
                    return
            if len(set(names)) < len(names):
                yield f"{safe_text(text)!r}: a column is there twice"
            elif not Rule.parse(text).can_hold(
                {name: _range(self.columns[name]) for name in names}
            ):
                yield f"{safe_text(text)!r} can never hold within the declared ranges"

    def __repr__(self) -> str:
        roles = {role: getattr(self, role) for role in ("label", "target", "person")}
        said = "".join(f", {role}={name!r}" for role, name in roles.items() if name is not None)
        return f"Schema({len(self.features)} features{said})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        mine, others = vars(self), vars(other)
        return mine == others and list(self.columns) == list(other.columns)  # in the same order

    def __hash__(self) -> int:
        return hash((tuple(self.columns), self.label, self.target, self.person))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns that are learned from."""
        roles = (self.label, self.target, self.person)
        return tuple(n for n in self.columns if n not in roles and not self.is_ignored(n))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns that are used: features, label, target and person."""
        roles = (self.label, self.target, self.person)
        return (*self.features, *(name for name in roles if name is not None))

    @property
    def parsed_rules(self) -> tuple[Rule, ...]:
        """The declared rules, ready to be applied."""
        return tuple(Rule.parse(text) for text in self.rules)

    @property
    def classes(self) -> tuple[str, ...]:
        """Declared values of the label column."""
        column = self._role("label")
        assert isinstance(column, Choice)
        return column.names

    @property
    def target_domain(self) -> tuple[float, float]:
        """Declared range of the target column."""
        column = self._role("target")
        assert isinstance(column, Number)
        return float(column.low), float(column.high)

    @property
    def domain(self) -> dict[str, tuple[float, float]]:
        """Declared range of every feature that is a number."""
        numbers = {name: self.columns[name] for name in self.features}
        return {
            name: (float(column.low), float(column.high))
            for name, column in numbers.items()
            if isinstance(column, Number)
        }

    def is_ignored(self, name: str) -> bool:
        """Whether a column is declared as ignored."""
        return any(fnmatchcase(name, pattern) for pattern in self.ignored)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a schema: TOML, a Frictionless Table Schema (JSON), or a REDCap dictionary (CSV).

        Raises
        ------
        ValueError
            When fields are not filled in, or wrong; all of them are listed.
        """
        from permea.tables.formats import read_schema

        return read_schema(cls, Path(path))

    @classmethod
    def from_categories(
        cls,
        frame: Any,
        columns: Mapping[str, Column] | None = None,
        *,
        missing: bool = True,
        **roles: Any,
    ) -> Self:
        """Take the lists of values that the types of a table declare.

        Only call it on a table whose categories were declared: those that
        ``astype("category")`` makes are read off the rows, and so is a dictionary of pyarrow that
        was made by ``dictionary_encode``.

        Parameters
        ----------
        frame : table
            With pandas categoricals, polars enums or pyarrow dictionaries.
        columns : mapping or None, default=None
            The other columns; they decide where both declare one.
        missing : bool, default=True
            Whether values of the categories may be missing; those of the label may not.
        **roles : dict
            Label, target, person, ignored, pairs and missing_values, as for `Schema`.

        Examples
        --------
        >>> import pandas as pd
        >>> sex = pd.Series(["f"], dtype=pd.CategoricalDtype(["f", "m"]))
        >>> Schema.from_categories(pd.DataFrame({"sex": sex})).columns
        {'sex': Category(missing=True, values=('f', 'm'), other=False)}
        """
        from permea.tables.formats import declared_categories

        found = declared_categories(frame, missing=missing)
        if roles.get("label") in found:
            found[roles["label"]] = replace(found[roles["label"]], missing=False)
        return cls({**found, **(columns or {})}, **roles)

    def with_roles(self, **roles: Any) -> Self:
        """The same columns with another label, target, person, ignored or pairs.

        Examples
        --------
        >>> from permea.tables import Number, YesNo
        >>> schema = Schema({"age": Number(0, 110), "died": YesNo(missing=True)})
        >>> schema.with_roles(label="died").classes
        ('no', 'yes')
        """
        columns = dict(self.columns)
        for role in ("label", "target"):
            if roles.get(role) in columns:
                columns[roles[role]] = replace(columns[roles[role]], missing=False, unknown="error")
        return replace(self, columns=columns, **roles)

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read a schema from TOML text."""
        from permea.tables.formats import parse_toml

        return parse_toml(cls, text)

    def to_toml(self) -> str:
        """The schema as TOML text, which `from_toml` reads."""
        from permea.tables.formats import to_toml

        return to_toml(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the schema as TOML."""
        return write_atomically(path, self.to_toml().encode())

    def _repr_html_(self) -> str:
        from permea._html import definitions, table

        roles = {self.label: "label", self.target: "target", self.person: "person"}
        rows = [
            (name, column.kind, _declared(column), roles.get(name, "feature"))
            for name, column in self.columns.items()
        ]
        if self.person is not None and self.person not in self.columns:
            rows.append((self.person, "", "", "person"))
        rows += [(name, "", "", "ignored") for name in self.ignored]
        more = {"pairs": ", ".join(map(" and ".join, self.pairs)), "rules": ", ".join(self.rules)}
        told = [(name, text) for name, text in more.items() if text]
        shown = table(("column", "kind", "declared", "role"), rows)
        return shown + (definitions(told) if told else "")

    def encoder(self, bins: int | None = None) -> TableEncoder:
        """A fitted `TableEncoder`."""
        return TableEncoder(self, bins=bins).fit()

    def encode(self, frame: Any) -> Array:
        """Features of a table, with the default number of bins."""
        return self.encoder().transform(frame)

    def decode(self, array: Any) -> Any:
        """A table of the values that features stand for, with the default number of bins."""
        return self.encoder().inverse_transform(array)

    def check_columns(self, frame: Any, *, roles: bool | Iterable[str] = True) -> None:
        """Raise an error about missing, unknown and repeated columns. No value is read.

        Parameters
        ----------
        frame : table
            A pandas, polars or pyarrow table, or a dictionary of columns.
        roles : bool or sequence of str, default=True
            Whether label, target and person must be there too, or which of these columns.
        """
        found = column_names(frame, self.features)
        if isinstance(roles, bool):
            roles = self.names if roles else ()
        needed = dict.fromkeys((*self.features, *roles))
        known = {*self.columns, *self.names}
        if not _folded(known) & _folded(found):  # other names may be the values of a first row
            raise ValueError(
                "The columns of this table are not those of the schema: none of them is there. "
                "Does the table begin with the names of its columns?"
            )
        problems = [f"missing: {self._quoted(set(needed) - set(found), found)}"]
        unknown = {name for name in found if name not in known and not self.is_ignored(name)}
        problems.append(f"not in the schema: {self._quoted(unknown, known - set(found))}")
        twice = {name for name in needed if found.count(name) > 1}
        problems.append(f"there more than once: {self._quoted(twice, ())}")
        problems = [problem for problem in problems if not problem.endswith(": ")]
        if problems:
            raise ValueError(
                "The columns of this table are not those of the schema. " + "; ".join(problems)
                + ". Rename them, declare them, or list them under ignored."
            )  # fmt: skip

    def read(self, frame: Any, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Positions of the values of feature columns: numbers, places in lists, days; NaN missing.

        Raises
        ------
        ValueError
            Naming every column with a problem and its kind, without values, counts or rows.
        """
        self.check_columns(frame, roles=False)
        positions, problems = self._read(frame, self.features if names is None else names)
        if problems:
            raise ValueError(unreadable(problems))
        return positions

    def mostly_outside(self, frame: Any) -> list[str]:
        """Features of which more than half of the known values lie outside the declared range.

        Their unit may not be the declared one. Of private rows, the answer is private.

        Examples
        --------
        >>> from permea.tables import Number, Schema
        >>> Schema({"age": Number(0, 110)}).mostly_outside({"age": [30, 744, 912]})
        ['age']
        """
        found = []
        for name, positions in self.read(frame).items():
            column = self.columns[name]
            if isinstance(column, Number | Date):
                low, high = _range(column)
                known = positions[~np.isnan(positions)]
                if np.sum((known < low) | (known > high)) > len(known) / 2:
                    found.append(name)
        return found

    def problems(self, frame: Any) -> dict[str, list[str]]:
        """Kinds of problems of every column with one: features, label, target and person."""
        self.check_columns(frame)
        _, problems = self._read(frame, [name for name in self.names if name != self.person])
        if self.person is not None and None in self.person_ids(frame):
            problems[self.person] = [_NO_PERSON]
        return problems

    def labels(self, frame: Any) -> Values:
        """Class labels of a table, as declared."""
        assert self.classes
        assert self.label is not None
        positions = self._read_role(frame, self.label)
        return np.array(self.classes)[positions.astype(np.int64)]

    def outputs(self, frame: Any) -> Array:
        """Numbers of the target column."""
        self._role("target")
        assert self.target is not None
        return self._read_role(frame, self.target)

    def people(self, frame: Any) -> Values:
        """Identifiers of the person of every row, as text: 7, 7.0 and " 7" are the same person."""
        people = self.person_ids(frame)
        if None in people:
            raise ValueError(unreadable({str(self.person): [_NO_PERSON]}))
        return np.array(people, dtype=object)

    def n_people(self, frame: Any) -> int:
        """How many persons there are; rows without one do not count."""
        return len({*self.person_ids(frame)} - {None})

    def person_ids(self, frame: Any) -> list[str | None]:
        """Identifiers of the person of every row as text, and None where one is missing.

        No identifier is refused: this may be called before a charge, for `n_people`.
        """
        if self.person is None:
            raise ValueError("This schema declares no person; set it to the name of a column.")
        if self.person not in column_names(frame, self.features):
            raise ValueError(f"The table has no column {self.person!r}.")
        values, blanks = column_values(frame, self.person, self.features), self._blanks
        if values.dtype.kind in "iu" and not blanks.numbers:
            return [str(number) for number in values.tolist()]
        listed = values.tolist()
        return [None if blanks.cover(one) else person_text(one) for one in listed]

    def check(self) -> list[str]:
        """What is loose in this schema; an empty list if nothing is.

        Examples
        --------
        >>> from permea.tables import Number, Schema
        >>> Schema({"pay": Number(1, 1e6)}).check()
        ["pay: the range spans a factor of 1000 or more; scale = 'log' may suit it"]
        """
        loose = [f"{name}: {said}" for name in self.features for said in self._loose(name)]
        try:
            self.encoder()
        except ValueError as error:
            loose.append(str(error))
        return loose

    def _loose(self, name: str) -> Iterable[str]:
        column = self.columns[name]
        if isinstance(column, Number) and column.scale == "linear" and column.edges is None:
            width = column.high - column.low
            step = 1.0 if column.whole else column.resolution
            if column.low >= 0 and width / (column.low or step or 1.0) >= 1000:
                yield "the range spans a factor of 1000 or more; scale = 'log' may suit it"
            elif step is not None and width / step > 1000:
                yield "the range has more than 1000 steps; narrow it if it can be narrower"
        if isinstance(column, Choice) and len(column.names) > LONG_LIST:
            yield f"{len(column.names)} values; declare those that matter, and other = true"
        if column.kind == "category" and not (column.missing or getattr(column, "other", False)):
            yield "neither other nor missing is declared: an unknown or missing value is an error"

    def _role(self, role: str) -> Column:
        name = getattr(self, role)
        if name is None:
            raise ValueError(f"This schema declares no {role}; set it to the name of a column.")
        return self.columns[name]

    def _read_role(self, frame: Any, name: str) -> Array:
        if name not in column_names(frame, self.features):
            raise ValueError(f"The table has no column {name!r}.")
        positions, problems = self._read(frame, [name])
        if problems:
            raise ValueError(unreadable(problems))
        return positions[name]

    def _read(
        self, frame: Any, names: Iterable[str]
    ) -> tuple[dict[str, Array], dict[str, list[str]]]:
        blanks, features = self._blanks, self.features
        positions, problems = {}, {}
        for name in names:
            values = column_values(frame, name, features)
            positions[name], found = self.columns[name].read(values, blanks)
            if found:
                problems[name] = found
        if len({len(column) for column in positions.values()}) > 1:
            raise ValueError("The columns of this table have different lengths.")
        return positions, problems

    @property
    def _blanks(self) -> Blanks:
        return Blanks(self.missing_values)

    @staticmethod
    def _quoted(names: Iterable[str], candidates: Iterable[str]) -> str:
        """Names with the nearest candidate each, in one line."""
        return ", ".join(_with_suggestion(name, candidates) for name in sorted(map(str, names)))


_NO_PERSON = "rows without an identifier of the person"


def unreadable(problems: Mapping[str, list[str]]) -> str:
    """One message about all columns that could not be read."""
    told = "; ".join(
        f"{safe_text(name)!r} has {', '.join(found)}" for name, found in problems.items()
    )
    return f"The table does not fit its schema: {told}."


def _folded(names: Iterable[str]) -> set[str]:
    return {name.strip().casefold() for name in names}


def _with_suggestion(name: str, candidates: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, [str(other) for other in candidates], n=1)
    hint = f" (did you mean {safe_text(near[0])!r}?)" if near else ""
    return f"{safe_text(name)!r}{hint}"


def _range(column: Column) -> tuple[float, float]:
    """Declared range of a number, or of a date in days."""
    number = column.days if isinstance(column, Date) else column
    assert isinstance(number, Number)
    return float(number.low), float(number.high)


def _declared(column: Column) -> str:
    """What is declared about the values of a column, in a few words."""
    if isinstance(column, Choice):
        text = ", ".join(column.names[:LONG_LIST])
    elif isinstance(column, Date):
        text = f"{column.first} to {column.last}"
    else:
        low, high = _range(column)
        text = f"{low:g} to {high:g}"
    return f"{text}, or missing" if column.missing else text


def _texts(values: Any, name: str) -> tuple[str, ...]:
    if isinstance(values, str):
        values = (values,)
    if not isinstance(values, Iterable) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be a list of texts.")
    return tuple(values)


__all__ = ["LONG_LIST", "MOST_FEATURES", "Schema", "unreadable"]

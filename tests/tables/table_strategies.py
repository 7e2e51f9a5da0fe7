"""Arbitrary schemas and tables that fit them."""

import datetime

from hypothesis import strategies as st

from permea.tables import Category, Date, Number, Schema, YesNo

NAMES = st.text(
    st.characters(exclude_categories=["C", "Z"], exclude_characters="*?[]"), min_size=1, max_size=6
)
FORMATS = ("%Y-%m-%d", "%d/%m/%Y", "%m-%d-%Y", "%Y%m%d", "%d.%m.%Y")


@st.composite
def numbers(draw):
    whole = draw(st.booleans())
    low = draw(st.integers(-1000, 1000) if whole else st.floats(-1e6, 1e6))
    width = draw(st.integers(1, 5000) if whole else st.floats(1e-3, 1e6))
    high = low + width
    scale = draw(st.sampled_from(["linear", "log"]))
    bins = draw(st.none() | st.integers(2, 12))
    edges = None
    if draw(st.booleans()):
        shares = sorted(draw(st.sets(st.integers(1, 99), max_size=4)))
        edges = sorted({low, *(low + (high - low) * k / 100 for k in shares), high})
    resolution = None if whole or width < 1 else draw(st.sampled_from([None, None, 0.5, 1e-3]))
    missing = draw(st.booleans())
    return Number(
        low, high, whole=whole, scale=scale, bins=bins, edges=edges, resolution=resolution,
        missing=missing,
    )  # fmt: skip


@st.composite
def categories(draw):
    values = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    other = draw(st.booleans()) and "other" not in values
    return Category(values, other=other, missing=draw(st.booleans()))


@st.composite
def dates(draw):
    first = draw(st.dates(datetime.date(1900, 1, 1), datetime.date(2030, 1, 1)))
    last = first + datetime.timedelta(days=draw(st.integers(1, 20000)))
    form = draw(st.sampled_from(FORMATS))
    return Date(first, last, format=form, missing=draw(st.booleans()))


def yes_or_no():
    return st.builds(
        YesNo,
        yes=st.sampled_from([("yes", "y", "true", "1"), ("1",), ("Ja",)]),
        no=st.sampled_from([("no", "n", "false", "0"), ("2",), ("Nein",)]),
        missing=st.booleans(),
    )


def columns():
    return st.one_of(numbers(), categories(), yes_or_no(), dates())


@st.composite
def schemas(draw):
    """A schema of up to five features, with or without a pair."""
    declared = draw(st.dictionaries(NAMES, columns(), min_size=1, max_size=5))
    names = list(declared)
    pairs = [tuple(names[:2])] if len(names) > 1 and draw(st.booleans()) else []
    return Schema(declared, pairs=pairs)


def values_of(column):
    """Values that a column may hold, as a file or a frame may have them."""
    if isinstance(column, Number):
        near = (column.high - column.low) * 2
        value = st.floats(column.low - near, column.high + near, allow_nan=False)
        value = value.map(round) if column.whole else value
        value |= value.map(lambda number: f" {number!r}")
    elif isinstance(column, Category):
        value = st.sampled_from(column.values).map(lambda text: f" {text}") | st.sampled_from(
            column.values
        )
        value |= st.just("something else entirely") if column.other else st.nothing()
    elif isinstance(column, YesNo):
        value = st.sampled_from(column.yes + column.no)
    else:
        value = st.dates(column.first, column.last)
        value |= value.map(lambda day: day.strftime(column.format))
    return value | st.sampled_from([None, "", float("nan"), "NA"]) if column.missing else value


@st.composite
def tables(draw, max_rows=6):
    """A schema and a table that fits it."""
    schema = draw(schemas())
    n_rows = draw(st.integers(1, max_rows))
    table = {
        name: draw(st.lists(values_of(column), min_size=n_rows, max_size=n_rows))
        for name, column in schema.columns.items()
    }
    return schema, table

"""Columns: what values become, and what is said about those that cannot be read."""

import contextlib
import math
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from permea import MomentClassifier, Privacy
from permea.tables import Category, Date, Number, Schema, YesNo
from permea.tables.columns import MISSING, Blanks
from permea.tables.frames import column_values

SCHEMA = Schema(
    {
        "age": Number(0, 110, whole=True, missing=True),
        "sex": Category(["1", "2"]),
        "pay": Number(0, 99999, scale="log"),
        "seen": Date("2020-01-01", "2020-12-31", missing=True),
        "cvd": YesNo(yes=["1"], no=["0"]),
    },
    label="cvd",
    person="id",
    pairs=[("age", "sex")],
    ignored=["TIME*"],
)
TABLE = pd.DataFrame(
    {
        "id": [1, 1, 2],
        "age": [50, math.nan, 999],
        "sex": [1.0, 2, 1],
        "pay": ["0", " 62.84", "1e5"],
        "seen": ["2020-03-04", None, "2020-12-31"],
        "cvd": [0, 1, 0],
        "TIME1": 0,
    }
)


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "dictionary"])
def test_every_kind_of_table_gives_the_same_features(kind):
    table = {
        "pandas": TABLE,
        "pyarrow": pa.Table.from_pandas(TABLE),
        "dictionary": TABLE.to_dict("list"),
    }[kind]
    assert np.array_equal(SCHEMA.encode(table), SCHEMA.encode(TABLE))
    assert SCHEMA.labels(table).tolist() == ["0", "1", "0"]
    assert SCHEMA.people(table).tolist() == ["1", "1", "2"]
    decoded = SCHEMA.decode(SCHEMA.encode(table))
    assert decoded["age"].fillna(-1).tolist() == [50, -1, 110]
    assert decoded["sex"].tolist() == ["1", "2", "1"]
    assert decoded["pay"].round(6).tolist() == [0, 62.84, 99999]
    assert decoded["seen"].tolist()[::2] == ["2020-03-04", "2020-12-31"]


def test_a_number_is_interpolated_between_its_neighbours():
    schema = Schema({"x": Number(0, 4, bins=3)})
    Z = schema.encode({"x": [0, 0.5, 2, 4, 9, -1]})
    expected = [[1, 0, 0], [0.75, 0.25, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]]
    assert np.allclose(Z, expected, atol=1e-11)
    squares = [sum(Fraction(z) ** 2 for z in row) for row in Z.tolist()]
    assert max(squares) <= 1


def test_all_problems_are_told_at_once_and_no_value_is():
    bad = TABLE.assign(
        sex=[1, 2, 31415], pay=["secret", "", "1"], seen=["2020-03-04", "04/03/2020", None]
    )
    with pytest.raises(ValueError, match="does not fit its schema") as caught:
        SCHEMA.encode(bad)
    message = str(caught.value)
    assert all(name in message for name in ("'sex'", "'pay'", "'seen'"))
    assert not any(value in message for value in ("31415", "secret", "04/03"))


def test_columns_are_checked_by_name():
    with pytest.raises(ValueError, match=r"missing: 'age' \(did you mean 'Age'\?\)"):
        SCHEMA.encode(TABLE.rename(columns={"age": "Age"}))
    with pytest.raises(ValueError, match="there more than once: 'age'"):
        SCHEMA.encode(pd.concat([TABLE, TABLE[["age"]]], axis=1))
    SCHEMA.encode(TABLE.drop(columns=["cvd", "id"]))  # a table to predict


def test_toml_round_trip():
    assert Schema.from_toml(SCHEMA.to_toml()) == SCHEMA


def test_missing_values_of_every_type_of_column_stay_missing():
    schema = Schema({"x": Category(["u", "v"], missing=True)})
    dictionary = pa.array(["u", "v", None]).dictionary_encode()
    chunks = pa.chunked_array([dictionary[:1], dictionary[1:]])
    text = pd.Series(["u", "v", None])
    arrow = pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))
    for table in (
        pa.table({"x": dictionary}),
        pa.table({"x": chunks}),
        pa.record_batch({"x": dictionary}),
        pd.DataFrame({"x": text}),
        pd.DataFrame({"x": text.astype("category")}),
        pd.DataFrame({"x": text.astype("string")}),
        pd.DataFrame({"x": text.astype(arrow)}),
    ):
        assert schema.encode(table).argmax(axis=1).tolist() == [0, 1, 2]


def test_polars_tables():
    polars = pytest.importorskip("polars")
    kind = polars.Enum(["u", "v", "w"])
    table = polars.DataFrame(
        {
            "n": [1, None],
            "x": [None, 0.5],
            "c": polars.Series(["u", None], dtype=kind),
            "d": polars.Series(["2020-02-01", None]).str.to_date(),
            "b": [True, None],
        }
    )
    columns = {
        "n": Number(0, 5, missing=True),
        "x": Number(0, 1, missing=True),
        "c": Category(["u", "v", "w"], missing=True),
        "d": Date("2020-01-01", "2020-12-31", missing=True),
        "b": YesNo(missing=True),
    }
    schema = Schema(columns)
    Z = schema.encode(table)
    for same in (table.to_dict(as_series=False), table.to_arrow(), table.to_pandas()):
        assert np.array_equal(schema.encode(same), Z)
    del columns["c"]
    assert Schema.from_categories(table, columns).columns["c"] == schema.columns["c"]


# ---- values that cannot be read ------------------------------------------------------------------

ODD = [
    1, 1.0, "1", " 1.0 ", "01", 7, "007", True, np.bool_(True), "yes", "No", None, math.nan, pd.NA,
    pd.NaT, np.datetime64("NaT"), "NA", "-99", -99, 2**53 + 1, float(2**53), str(2**53 + 1),
    10**400, "1e3", Decimal("1.50"), Fraction(3, 2), 1.5, date(2020, 1, 2),
    datetime(2020, 1, 2, 23, 59),
    pd.Timestamp("2020-01-02 12:00"), pd.Timestamp("2020-01-02 23:30", tz="UTC"), "2020-01-02",
    np.datetime64("2020-01-02"), np.timedelta64(5, "D"), np.int8(1), np.float32(0.1), 0.1, "0.1",
    "1_000", "inf", math.inf, b"1", np.str_("1"), "", "a", "\u00e1", "a\u0301", 1 + 0j, 3 + 4j,
    [1], (1,),
]  # fmt: skip
NEIGHBOURS = ["1", 0.5, None, "Smith", True, pd.NaT, 1j, date(2020, 1, 2), 2**70, b"1"]
FORGIVING = [
    Number(0, 2000, missing=True, unknown="missing"),
    Category(["1", "7", "007", "0.1", "\u00e1"], missing=True, unknown="missing"),
    Category(["1", "007", "7"], other=True, missing=True),
    YesNo(missing=True, unknown="missing"),
    Date("2000-01-01", "2030-01-01", missing=True, unknown="missing"),
]


@pytest.mark.parametrize("column", FORGIVING, ids=lambda column: column.kind)
def test_what_a_value_becomes_does_not_depend_on_other_values(column):
    """Of any type, and however a frame stores the two: no error hides a silent change here."""

    def read(values):
        positions, problems = column.read(values, Blanks([*MISSING, "-99"]))
        assert problems == []
        return positions

    def listed(*values):
        out = np.empty(len(values), dtype=object)
        for place, value in enumerate(values):
            out[place] = value
        return out

    for value in ODD:
        alone = read(listed(value))[0]
        for neighbour in NEIGHBOURS:
            together = [listed(value, neighbour)]
            with contextlib.suppress(ValueError, TypeError, OverflowError):  # complex numbers
                together.append(column_values({"x": [value, neighbour]}, "x", "x"))
                together.append(column_values(pd.DataFrame({"x": [value, neighbour]}), "x", "x"))
            for values in together:
                assert np.array_equal(read(values)[0], alone, equal_nan=True), (value, neighbour)


def test_unknown_values_are_missing_where_that_is_declared():
    with pytest.raises(ValueError, match="needs missing = true"):
        YesNo(unknown="missing")
    with pytest.raises(ValueError, match='"error" or "missing"'):
        Number(0, 1, missing=True, unknown="other")
    number, choice = (kind for kind in FORGIVING[:2])
    schema = Schema({"x": number, "c": choice, "y": YesNo()}, label="y")
    assert Schema.from_toml(schema.to_toml()) == schema
    table = {"x": ["5", "five"], "c": ["b", "7"], "y": ["yes", "no"]}
    assert schema.problems(table) == {}
    positions = schema.read(table)
    assert np.isnan(positions["x"]).tolist() == [False, True]
    assert np.isnan(positions["c"]).tolist() == [True, False]
    assert schema.with_roles(label="c").columns["c"].unknown == "error"
    promise = Privacy(epsilon=1, delta=1e-6, unit="record")
    assert MomentClassifier(privacy=promise, schema=schema).fit(table).certificate_.is_private

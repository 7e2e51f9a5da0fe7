"""Rules between columns: read, checked against the ranges, kept in files, repaired."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from permea.tables import Category, Date, Number, Schema
from permea.tables.rules import Rule

COLUMNS = {
    "d.time": Number(0, 10),
    "length of stay": Number(0, 10),
    "total": Number(0, 20),
    "in": Date("2020-01-01", "2020-12-31"),
    "out": Date("2020-01-01", "2020-12-31"),
    "sex": Category(["f", "m"]),
}


def test_rules_survive_a_file():
    rules = ("out >= in", "total = d.time + length of stay", "d.time <= total")
    schema = Schema(COLUMNS, rules=rules)
    assert Schema.from_toml(schema.to_toml()) == schema
    assert schema.parsed_rules[1].right == ("d.time", "length of stay")
    assert schema.parsed_rules[2] == Rule("total", False, ("d.time",))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("out > in", "has the form"),
        ("out>=in", "has the form"),
        ("total >= d.time + total", "stands behind '='"),
        ("total >= sex", "no declared number or date"),
        ("total >= nothing", "no declared number or date"),
        ("total >= total", "there twice"),
        ("d.time >= out", "never hold"),
    ],
)
def test_rules_that_cannot_be_are_refused(rule, message):
    with pytest.raises(ValueError, match=message):
        Schema(COLUMNS, rules=(rule,))


def test_an_ignored_column_has_no_rule():
    with pytest.raises(ValueError, match="no declared number"):
        Schema(COLUMNS, rules=("out >= in",), ignored=("in",))


VALUES = st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=3, max_size=3)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(VALUES, min_size=1, max_size=5), st.sampled_from(["a >= b", "a = b + c"]))
def test_repaired_rows_keep_the_rule_and_others_are_not_touched(rows, text):
    rule, columns = Rule.parse(text), dict(zip("abc", np.array(rows).T, strict=True))
    kept = rule.holds(columns)
    repaired = rule.repaired(columns)
    assert rule.holds(repaired).all()
    for name in "abc":
        assert np.array_equal(repaired[name][kept], columns[name][kept], equal_nan=True)


def test_a_missing_value_breaks_no_rule():
    columns = {"a": np.array([np.nan, 1.0]), "b": np.array([1.0, 2.0])}
    assert Rule.parse("a >= b").holds(columns).tolist() == [True, False]

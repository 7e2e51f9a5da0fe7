"""Features of tables: what the proofs rely on, for arbitrary schemas and rows."""

import dataclasses
import datetime
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks as checks
from table_strategies import schemas, tables, values_of

from permea import Ledger, MomentClassifier, Privacy
from permea.tables import Category, Date, Number, Schema, TableEncoder, YesNo, default_bins
from permea.tables.encoding import MOST_FEATURES

SLOW = settings(max_examples=60, deadline=None, derandomize=True)
BINS = st.integers(2, 20)


@SLOW
@given(tables(), BINS)
def test_no_row_is_longer_than_one_in_exact_arithmetic(drawn, bins):
    schema, table = drawn
    Z = schema.encoder(bins).transform(table)
    for row in Z.tolist():
        assert sum(Fraction(entry) ** 2 for entry in row) <= 1
    assert np.all(np.linalg.norm(Z, axis=1) <= 1.0)
    assert np.all(Z >= 0)


@SLOW
@given(tables(), BINS)
def test_entries_of_a_column_sum_to_one_share(drawn, bins):
    schema, table = drawn
    encoder = schema.encoder(bins)
    Z = encoder.transform(table) * np.sqrt(len(encoder.groups_))
    for group in encoder.groups_.values():
        assert np.allclose(Z[:, group].sum(axis=1), 1.0, atol=1e-9)


@SLOW
@given(tables(), BINS, st.randoms(use_true_random=False))
def test_a_row_has_the_same_features_in_any_place_and_chunk(drawn, bins, random):
    schema, table = drawn
    encoder = schema.encoder(bins)
    Z = encoder.transform(table)
    order = list(range(len(Z)))
    random.shuffle(order)
    shuffled = encoder.transform({n: [values[k] for k in order] for n, values in table.items()})
    assert shuffled.tobytes() == Z[order].tobytes()
    for k in order:
        alone = encoder.transform({name: [values[k]] for name, values in table.items()})
        assert alone.tobytes() == Z[k].tobytes()


@SLOW
@given(tables(), BINS)
def test_decoding_gives_back_what_was_encoded(drawn, bins):
    schema, table = drawn
    encoder = schema.encoder(bins)
    decoded = encoder.inverse_transform(encoder.transform(table))
    assert list(decoded) == list(schema.features)
    truth, again = schema.read(table), schema.read(decoded)
    for name, column in schema.columns.items():
        assert np.array_equal(np.isnan(truth[name]), np.isnan(again[name]))
        if isinstance(column, Number):
            low, high = column.grid(bins)[[0, -1]]
            expected = column.round(np.clip(truth[name], low, high))
            step = column.resolution or 0.0  # halfway between two multiples, either is right
            error = np.abs(again[name] - expected)
            assert np.all(~(error > 1e-9 * (abs(low) + abs(high)) + step * 1.001))
            if column.whole:
                assert np.array_equal(again[name], expected, equal_nan=True)
        elif isinstance(column, Date | YesNo) or not column.other:
            assert np.array_equal(again[name], truth[name], equal_nan=True)


@SLOW
@given(tables(), BINS)
def test_encoding_what_was_decoded_changes_nothing(drawn, bins):
    schema, table = drawn
    encoder = schema.encoder(bins)
    once = encoder.inverse_transform(encoder.transform(table))
    twice = encoder.inverse_transform(encoder.transform(once))
    for name in schema.features:
        if isinstance(schema.columns[name], Number) and not schema.columns[name].whole:
            assert np.allclose(
                once[name].astype(float), twice[name].astype(float), rtol=1e-9, atol=1e-9,
                equal_nan=True,
            )  # fmt: skip
        else:
            pd.testing.assert_series_equal(once[name], twice[name])


@SLOW
@given(schemas(), BINS, st.integers(0, 2**32 - 1))
def test_any_features_are_decoded_to_values_that_the_schema_knows(schema, bins, seed):
    encoder = schema.encoder(bins)
    Z = np.random.default_rng(seed).normal(size=(5, encoder.n_features_out_))
    Z[0] = 0.0
    decoded = encoder.inverse_transform(Z)
    assert schema.problems(decoded) == {}
    for name, column in schema.columns.items():
        if isinstance(column, Number):
            numbers = decoded[name].astype(float).dropna()
            assert numbers.between(column.low, column.high).all()


@SLOW
@given(tables(), BINS)
def test_types_of_the_columns_do_not_matter(drawn, bins):
    schema, table = drawn
    encoder = schema.encoder(bins)
    Z = encoder.transform(table)
    assert encoder.transform(pd.DataFrame(table)).tobytes() == Z.tobytes()
    texts = {
        name: ["" if value is None or value != value else written(value, schema.columns[name])
               for value in values]
        for name, values in table.items()
    }  # fmt: skip
    assert encoder.transform(texts).tobytes() == Z.tobytes()


def written(value, column):
    """A value as a CSV file has it."""
    return value.strftime(column.format) if isinstance(value, datetime.date) else str(value)


@SLOW
@given(schemas(), BINS)
def test_names_and_places_of_features_agree(schema, bins):
    encoder = schema.encoder(bins)
    names = encoder.get_feature_names_out()
    assert len(names) == encoder.n_features_out_
    ends = [0, *(group.stop for group in encoder.groups_.values())]
    assert [group.start for group in encoder.groups_.values()] == ends[:-1]
    for name in schema.features:
        assert all(entry.startswith(name) for entry in names[encoder.groups_[name]])


@SLOW
@given(st.data())
def test_an_unknown_value_is_other_or_an_error_without_it(data):
    schema = data.draw(schemas())
    name = data.draw(st.sampled_from(schema.features))
    column = schema.columns[name]
    table = {n: [data.draw(values_of(c))] for n, c in schema.columns.items()}
    table[name] = ["no such value \x00"]
    if isinstance(column, Category) and column.other:
        assert schema.decode(schema.encode(table))[name].tolist() == ["other"]
    else:
        with pytest.raises(ValueError, match="does not fit its schema") as caught:
            schema.encode(table)
        assert "no such" not in str(caught.value)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT, "", " ", "NA", "nan", "?"])
@pytest.mark.parametrize(
    "column",
    [Number(0, 1), Category(["a"]), YesNo(), Date("2020-01-01", "2021-01-01")],
    ids=lambda column: column.kind,
)
def test_missing_is_an_indicator_or_an_error(column, missing):
    table = {"x": np.array([missing], dtype=object)}
    with pytest.raises(ValueError, match="missing values"):
        Schema({"x": column}).encode(table)
    Z = Schema({"x": dataclasses.replace(column, missing=True)}).encode(table)
    assert np.flatnonzero(Z[0]).tolist() == [Z.shape[1] - 1]


@pytest.mark.parametrize(
    "values",
    [[1, 2], [1.0, 2.0], ["1", "2"], [" 1", "2.0"], np.array([1, 2], dtype=np.int8),
     pd.array([1, 2], dtype="Int64"), np.array([True, 2], dtype=object)],
)  # fmt: skip
def test_numbers_match_categories_however_they_are_written(values):
    Z = Schema({"x": Category(["1", "2"])}).encode({"x": values})
    assert Z.argmax(axis=1).tolist() == [0, 1]


def test_letters_match_however_accents_are_stored():
    schema = Schema({"x": Category(["José", "Zoë"])}, person="id")
    table = {"x": ["Jose\u0301", " Zoë\xa0"], "id": ["é", "e\u0301"]}
    assert schema.encode(table).argmax(axis=1).tolist() == [0, 1]
    assert len(set(schema.people(table))) == 1


def test_decoded_numbers_are_multiples_of_the_resolution():
    schema = Schema({"x": Number(0, 1, resolution=0.1), "y": Number(0, 9, resolution=3)})
    decoded = schema.decode(schema.encode({"x": [0.31, 0.68], "y": [2.9, 8]}))
    assert decoded["x"].tolist() == [0.3, 0.7]
    assert decoded["y"].tolist() == [3, 9]


def test_equal_numbers_and_truth_values_are_told_apart_in_any_order():
    schema = Schema({"x": Category(["1", "True"])})
    for values in ([1, True, "1", "True"], [True, 1, "True", "1"]):
        Z = schema.encode({"x": np.array(values, dtype=object)})
        expected = [1 if str(value) == "True" else 0 for value in values]
        assert Z.argmax(axis=1).tolist() == expected
    schema = Schema({"x": Category(["1", "0.10"], other=True)})
    values = [True, "True", "0.1", np.float32(0.1), 0.1, [1], b"1", "1e0"]
    for order in (values, values[::-1]):
        Z = schema.encode({"x": order})
        rows = {repr(value): row.argmax() for value, row in zip(order, Z, strict=True)}
        assert list(map(rows.__getitem__, map(repr, values))) == [0, 2, 1, 2, 1, 2, 0, 2]


def test_dates_of_every_type_are_the_same_day():
    day = datetime.date(2020, 2, 29)
    schema = Schema({"x": Date("2020-01-01", "2020-12-31")})
    forms = [
        [day], ["2020-02-29"], [pd.Timestamp(day)], np.array([day], dtype="datetime64[D]"),
        np.array(["2020-02-29T23:59"], dtype="datetime64[ns]"), pd.Series([pd.Timestamp(day)]),
        [datetime.datetime(2020, 2, 29, 12)],
    ]  # fmt: skip
    assert len({schema.encode({"x": form}).tobytes() for form in forms}) == 1


def test_dates_in_two_formats_are_an_error():
    schema = Schema({"x": Date("2020-01-01", "2020-12-31", format="%d/%m/%Y")})
    with pytest.raises(ValueError, match="declared format"):
        schema.encode({"x": ["31/12/2020", "2020-12-31"]})


def test_a_person_is_the_same_however_the_identifier_is_written():
    schema = Schema({"x": YesNo()}, person="id")
    table = {"x": [1] * 5, "id": np.array([7, 7.0, "7", " 7 ", "7.0"], dtype=object)}
    assert set(schema.people(table)) == {"7"}
    others = schema.people({"x": [1] * 3, "id": ["a.0", "a", "07"]})
    assert others.tolist() == ["a.0", "a", "07"]
    for missing in (None, np.nan, ""):
        with pytest.raises(ValueError, match="'id' has rows without an identifier"):
            schema.people({"x": [1, 1], "id": np.array([7, missing], dtype=object)})


def test_too_many_categories_are_refused_before_memory_is():
    schema = Schema({"x": Category(range(10**5)), "y": YesNo()}, label="y")
    with pytest.raises(ValueError, match=f"at most {MOST_FEATURES}.*100000, are of 'x'"):
        schema.encoder()
    assert any("at most" in loose for loose in schema.check())
    as_label = schema.with_roles(label="x")
    assert len(as_label.classes) == 10**5
    assert as_label.labels({"x": [99_999]}).tolist() == ["99999"]


def test_an_empty_table_has_no_rows():
    schema = Schema({"x": Number(0, 1), "c": Category(["a"])}, label="c", person="p")
    for empty in ({"x": [], "c": [], "p": []}, pd.DataFrame(columns=["x", "c", "p"])):
        assert schema.encode(empty).shape == (0, 8)
        assert len(schema.labels(empty)) == len(schema.people(empty)) == 0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"x": [1, 2], "c": ["a"]}, "different lengths"),
        ({"x": [[1, 2]], "c": ["a"]}, "not numbers"),
        ({"x": [1]}, "missing: 'c'"),
        ({"x": [1], "c": ["a"], "d": [0]}, "not in the schema: 'd'"),
        (np.zeros((2, 3)), "without column names"),
        ([1, 2], "A table is needed"),
        (3, "A table is needed"),
    ],
)
def test_tables_of_another_shape(table, message):
    with pytest.raises(ValueError, match=message):
        Schema({"x": Number(0, 1), "c": Category(["a"])}).encode(table)


def test_a_frame_that_was_not_computed_is_refused_before_the_charge():
    lazy = pytest.importorskip("polars").LazyFrame({"x": [0.5], "y": ["yes"]})
    schema, ledger = Schema({"x": Number(0, 1), "y": YesNo()}, label="y"), Ledger()
    promise = Privacy(epsilon=1, delta=1e-6, unit="record")
    with pytest.raises(ValueError, match="collected"):
        MomentClassifier(privacy=promise, schema=schema, ledger=ledger).fit(lazy)
    assert len(ledger) == 0


def test_roles_must_be_declared_to_be_read():
    schema = Schema({"x": Number(0, 1)})
    for read in (schema.labels, schema.outputs, schema.people):
        with pytest.raises(ValueError, match="declares no"):
            read({"x": [1]})
    with pytest.raises(ValueError, match="no column 'y'"):
        Schema({"x": Number(0, 1), "y": YesNo()}, label="y").labels({"x": [1]})


def test_outputs_are_numbers():
    schema = Schema({"x": YesNo(), "y": Number(0, 10)}, target="y")
    assert schema.target_domain == (0.0, 10.0)
    assert schema.outputs({"y": [" 3", "4.5"]}).tolist() == [3.0, 4.5]


@pytest.fixture
def patients():
    random = np.random.default_rng(0)
    age = random.integers(20, 90, 300)
    table = pd.DataFrame({"age": age, "sex": random.choice(["f", "m"], 300)})
    table.loc[::7, "sex"] = None
    schema = Schema({"age": Number(0, 110, whole=True), "sex": Category(["f", "m"], missing=True)})
    return schema, table, (age + random.normal(0, 5, 300) > 55).astype(int)


def test_in_a_pipeline(patients):
    schema, table, y = patients
    model = make_pipeline(TableEncoder(schema, bins=6), LogisticRegression()).fit(table, y)
    assert model.score(table, y) > 0.8
    assert model[:-1].get_feature_names_out()[:2].tolist() == ["age@0", "age@22"]
    assert clone(model).fit(table, y).score(table, y) == model.score(table, y)


def test_in_a_column_transformer_beside_others(patients):
    schema, table, _ = patients
    both = ColumnTransformer(
        [("known", TableEncoder(schema), ["age", "sex"]), ("scaled", StandardScaler(), ["pay"])]
    )
    Z = both.fit_transform(table.assign(pay=1.0))
    assert np.array_equal(Z[:, :-1], schema.encode(table))
    assert both.get_feature_names_out()[0] == "known__age@0"


def test_as_a_scikit_learn_transformer(patients):
    schema, table, _ = patients
    encoder = TableEncoder(schema, bins=5)
    assert clone(encoder).get_params() == {"schema": schema, "bins": 5}
    table.index = table.index + 1000
    frame = encoder.set_output(transform="pandas").fit_transform(table)
    assert frame.index.equals(table.index)
    assert list(frame) == encoder.get_feature_names_out().tolist()
    assert np.array_equal(frame, TableEncoder(schema, bins=5).transform(table))  # nothing to fit
    assert np.array_equal(frame, TableEncoder(schema, bins=5).transform(table.to_numpy()))
    assert encoder.norm_bound_ == 1.0
    assert encoder.feature_names_in_.tolist() == ["age", "sex"]


def test_fit_reads_names_and_no_values(patients):
    schema, table, _ = patients
    TableEncoder(schema).fit(table.assign(age="not a number"))
    with pytest.raises(ValueError, match="missing: 'age'"):
        TableEncoder(schema).fit(table[["sex"]])


@pytest.mark.parametrize(
    "check",
    [
        checks.check_estimator_cloneable, checks.check_estimator_repr, checks.check_set_params,
        checks.check_estimator_tags_renamed, checks.check_valid_tag_types,
        checks.check_get_params_invariance, checks.check_no_attributes_set_in_init,
        checks.check_mixin_order,
    ],
)  # fmt: skip
def test_checks_of_scikit_learn(patients, check):
    check("TableEncoder", TableEncoder(patients[0]))


@pytest.mark.parametrize("bins", [1, 2.5, "8", 10**12, True])
def test_bins_must_be_a_number_of_points(patients, bins):
    with pytest.raises(ValueError, match="bins must be"):
        TableEncoder(patients[0], bins=bins).fit()


@given(st.integers(0, 10**9), st.floats(1e-3, 1e3), st.integers(1, 1000))
def test_default_bins_never_fall_with_more_people(n_people, epsilon, n_columns):
    bins = default_bins(n_people, epsilon, n_columns)
    assert 2 <= bins <= default_bins(2 * n_people, epsilon, n_columns)
    assert bins <= default_bins(n_people, 2 * epsilon, n_columns)


def test_a_grid_holds_no_more_points_than_values():
    assert Number(0, 3, whole=True).grid(16).tolist() == [0, 1, 2, 3]
    assert Number(0, 1, resolution=0.5).grid(16).tolist() == [0, 0.5, 1]
    assert len(Number(0, 3).grid(16)) == 16


def test_log_grids_begin_at_zero_or_above():
    grid = Number(0, 1e6, scale="log").grid(7)
    assert grid[0] == 0.0
    assert grid[-1] == 1e6
    assert np.allclose(np.diff(np.log1p(grid)), np.log1p(1e6) / 6)
    assert np.all(np.isfinite(Number(1e-308, 2, scale="log").grid(7)))

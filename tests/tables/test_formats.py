"""Files that hold a schema: what is read from them, what is left open, and what is refused."""

import datetime
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from table_strategies import schemas

from permea.tables import Category, Date, Number, Schema, YesNo, check_schema, draft

REDCAP = """\
"Variable / Field Name","Form Name","Field Type","Field Label",\
"Choices, Calculations, OR Slider Labels","Text Validation Type OR Show Slider Number",\
"Text Validation Min","Text Validation Max","Identifier?",\
"Branching Logic (Show field only if...)","Required Field?"
record_id,intake,text,Record,,,,,,,
surname,intake,text,Name,,,,,y,,y
sex,intake,radio,Sex,"1, Female | 2, Male, or other",,,,,,y
died,intake,yesno,Died,,,,,,,y
age,intake,text,Age,,integer,0,110,,,y
weight,intake,text,Weight,,number,2.5,300,,"[age] > 18",y
visit,intake,text,Visit,,date_mdy,2020-01-01,2024-12-31,,,
drugs,intake,checkbox,Drugs,"a, Aspirin | -1, None",,,,,,
pain,intake,slider,Pain,,,,,,,
bmi,intake,calc,BMI,[weight]/2,,,,,,
story,intake,notes,Story,,,,,,,
remark,intake,text,Remark,,,,,,,
note,intake,descriptive,Text,,,,,,,
"""
TABLE_SCHEMA = {
    "fields": [
        {"name": "id", "type": "integer"},
        {
            "name": "age",
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": 110, "required": True},
        },
        {"name": "bmi", "type": "number", "constraints": {"minimum": 10, "maximum": 80.5}},
        {"name": "sex", "type": "string", "constraints": {"enum": ["f", "m"], "required": True}},
        {"name": "died", "type": "boolean", "trueValues": ["J"], "falseValues": ["N"]},
        {
            "name": "seen",
            "type": "date",
            "format": "%d/%m/%Y",
            "constraints": {"minimum": "2020-01-01", "maximum": "2024-12-31"},
        },
    ],
    "missingValues": ["", "-99"],
    "primaryKey": "id",
    "label": "died",
}


def written(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_schema_is_read(tmp_path):
    path = written(tmp_path, "patients.json", json.dumps(TABLE_SCHEMA))
    assert Schema.load(path) == Schema(
        {
            "age": Number(0, 110, whole=True),
            "bmi": Number(10, 80.5, missing=True),
            "sex": Category(["f", "m"]),
            "died": YesNo(yes=["J"], no=["N"]),
            "seen": Date("2020-01-01", "2024-12-31", format="%d/%m/%Y", missing=True),
        },
        label="died",
        ignored=["id"],
        missing_values=["", "-99"],
    )
    package = {"resources": [{"name": "patients", "schema": TABLE_SCHEMA}]}
    assert Schema.load(written(tmp_path, "p.json", json.dumps(package))) == Schema.load(path)


def test_values_that_a_table_schema_calls_missing_are(tmp_path):
    schema = Schema.load(written(tmp_path, "patients.json", json.dumps(TABLE_SCHEMA)))
    row = {"age": [30], "bmi": ["-99"], "sex": ["f"], "seen": ["31/12/2021"]}
    assert schema.decode(schema.encode(row))["bmi"].isna().tolist() == [True]


def test_a_redcap_dictionary_becomes_a_draft_of_what_it_does_not_say(tmp_path):
    path = written(tmp_path, "dictionary.csv", REDCAP)
    problems, loose = check_schema(path)
    assert [problem.split(" is ")[0] for problem in problems] == [
        "bmi: low",
        "bmi: high",
        "remark: kind",
    ]
    assert loose == []
    text = draft(path).replace('low = "?"\nhigh = "?"', "low = 10\nhigh = 80")
    text = text.replace('[columns.remark]\nkind = "?"\nmissing = true\n', "")
    schema = Schema.load(written(tmp_path, "dictionary.toml", text)).with_roles(label="died")
    boxes = YesNo(yes=["1", "Checked"], no=["0", "Unchecked"], missing=True)
    assert schema.person == "record_id"
    assert dict(schema.columns) == {
        "sex": Category(["1", "2"]),
        "died": YesNo(),
        "age": Number(0, 110, whole=True),
        "weight": Number(2.5, 300, missing=True),
        "visit": Date("2020-01-01", "2024-12-31", missing=True),
        "drugs___a": boxes,
        "drugs____1": boxes,
        "pain": Number(0, 100, whole=True, missing=True),
        "bmi": Number(10, 80, missing=True),
    }
    for name in ("surname", "story", "redcap_event_name", "intake_complete"):
        assert schema.is_ignored(name)


def test_nothing_but_names_is_read_of_a_csv_file(tmp_path):
    texts = {
        draft(written(tmp_path, "a.csv", "age,sex\r\n" + rows))
        for rows in ("", "63,f\n", "x,\n1,2,3\n", "\x00\n")
    }
    assert len(texts) == 1
    assert 'kind = "?"' in texts.pop()


def test_nothing_but_types_is_read_of_a_parquet_file(tmp_path):
    texts = set()
    for rows in ([], [1, 2], [None, 7]):
        columns = {
            "n": pa.array(rows, pa.int32()),
            "x": pa.array(rows, pa.float64()),
            "c": pa.array([None] * len(rows), pa.dictionary(pa.int8(), pa.string())),
            "d": pa.array([None] * len(rows), pa.date32()),
            "b": pa.array([None] * len(rows), pa.bool_()),
            "s": pa.array([None] * len(rows), pa.string()),
        }
        parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
        texts.add(draft(tmp_path / "a.parquet"))
    (text,) = texts
    problems, _ = check_schema(written(tmp_path, "a.toml", text))
    assert [problem.split(" is ")[0] for problem in problems] == [
        "n: low", "n: high", "x: low", "x: high", "c: values", "d: first", "d: last", "s: kind",
    ]  # fmt: skip


def test_an_unfilled_draft_is_refused_with_everything_that_is_open(tmp_path):
    path = written(tmp_path, "a.toml", draft({"age": [1], "sex": ["f"]}))
    with pytest.raises(ValueError, match="not a complete schema") as caught:
        Schema.load(path)
    assert "age: kind is to be filled in" in str(caught.value)
    assert "sex: kind is to be filled in" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no column"),
        ("x =", "not valid TOML"),
        ("labl = 'a'\n[columns.a]\nkind='yesno'", "did you mean 'label'"),
        ("[columns.a]\nkind='numbr'", "kind is not known"),
        ("[columns.a]\nkind='number'\nlow=0\nhihg=1", "did you mean 'high'"),
        ("[columns.a]\nkind='number'\nlow=1\nhigh=0", "low must be below high"),
        ("[columns.a]\nkind='number'\nlow=0\nhigh=inf", "must be numbers"),
        ("[columns.a]\nkind='number'\nlow=0\nhigh=1\nbins=1", "bins must be"),
        ("[columns.a]\nkind='number'\nlow=0\nhigh=1\nbins=1000000000000", "bins must be"),
        ("[columns.a]\nkind='number'\nlow=0\nhigh=1" + "0" * 400, "must be numbers"),
        ("[columns.a]\nkind='number'\nlow=-1e308\nhigh=1e308", "too wide"),
        ("[columns.a]\nkind='number'\nlow=0.5\nhigh=1\nwhole=true", "whole limits"),
        ("[columns.a]\nkind='number'\nlow=0\nhigh=1\nresolution=1e-300", "too fine"),
        ("[columns.a]\nkind='number'\nlow=0\nhigh=1\nresolution=2", "wider than the range"),
        ("[columns.a]\nkind='number'\nlow=0\nhigh=1\nedges=[0, 0]", "rising"),
        ("[columns.a]\nkind='number'\nlow=0\nhigh=1\nmissing='yes'", "true or false"),
        ("[columns.a]\nkind='category'\nvalues=[]", "must not be empty"),
        ("[columns.a]\nkind='category'\nvalues='ab'", "must be a list"),
        ("[columns.a]\nkind='category'\nvalues=[1, 1.0]", "must differ"),
        ("[columns.a]\nkind='category'\nvalues=['other']\nother=true", "remove it"),
        ("[columns.a]\nkind='yesno'\nyes=['A']\nno=['a']", "both yes and no"),
        ("[columns.a]\nkind='date'\nfirst=2020-01-01\nlast=2019-01-01", "before last"),
        ("[columns.a]\nkind='date'\nfirst='1/2/20'\nlast=2019-01-01", "must be dates"),
        ("[columns]\na = 3", "kind is not known"),
        ("label='b'\n[columns.a]\nkind='yesno'", "the label 'b' must be declared"),
        ("label='a'\n[columns.a]\nkind='yesno'", "no feature"),
        ("pairs=[['a','a']]\n[columns.a]\nkind='yesno'", "two different feature columns"),
        ("pairs=3\n[columns.a]\nkind='yesno'", "pairs"),
        ("ignored=[3]\n[columns.a]\nkind='yesno'", "ignored must be a list"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(text, message):
    with pytest.raises(ValueError, match=message):
        Schema.from_toml(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [("a,a\n", "is there twice"), ("", "header line"), ("a,,b\n", "header line")],
)
def test_a_draft_needs_names(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        draft(written(tmp_path, "a.csv", text))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "not valid JSON"),
        ("a.json", "[]", "no Table Schema"),
        ("a.json", '{"fields": [3]}', "not of the form"),
        ("a.json", '{"fields": [{"type": "integer"}]}', "not of the form"),
        ("a.csv", "", "no REDCap"),
        ("a.csv", "a,b\n1,2\n", "no REDCap"),
    ],
)
def test_other_formats_are_refused_when_they_are_something_else(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message):
        Schema.load(written(tmp_path, name, text))


def test_a_schema_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "a.toml").write_bytes("[columns.größe]".encode("latin-1"))
    with pytest.raises(ValueError, match="UTF-8"):
        Schema.load(tmp_path / "a.toml")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(schema=schemas())
def test_toml_round_trip(schema):
    assert Schema.from_toml(schema.to_toml()) == schema


def test_save_and_load(tmp_path):
    schema = Schema({"größe [m]": Number(0.5, 2.5, resolution=np.float64(0.01))})
    assert Schema.load(schema.save(tmp_path / "schema.toml")) == schema


def test_categories_of_a_table_are_taken_on_request():
    kind = pd.CategoricalDtype(["f", "m", "x"])
    table = pd.DataFrame({"sex": pd.Series(["f", "m"], dtype=kind), "age": [3, 4]})
    expected = Schema({"sex": Category(["f", "m", "x"], missing=True), "age": Number(0, 110)})
    assert Schema.from_categories(table, {"age": Number(0, 110)}) == expected
    arrow = pa.Table.from_pandas(table)
    assert Schema.from_categories(arrow, {"age": Number(0, 110)}) == expected
    assert expected.encode(arrow).tolist() == expected.encode(table).tolist()
    assert Schema.from_categories(table, {"age": Number(0, 110)}, label="sex").classes == (
        "f", "m", "x",
    )  # fmt: skip


def test_what_is_loose_is_listed():
    schema = Schema(
        {
            "pay": Number(1, 1e6),
            "gain": Number(0, 99999),
            "steps": Number(-2500, 2500, whole=True),
            "code": Category([str(k) for k in range(200)], other=True),
            "sex": Category(["f", "m"]),
            "fine": Number(0, 1),
        }
    )
    assert [loose.split(":")[0] for loose in schema.check()] == [
        "pay",
        "gain",
        "steps",
        "code",
        "sex",
    ]


def test_dates_in_toml_are_dates():
    schema = Schema({"d": Date(datetime.date(2020, 1, 1), "2021-01-01")})
    assert "first = 2020-01-01" in schema.to_toml()

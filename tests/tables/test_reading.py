"""One table, from every place it can be in: the same rows, as often as they are asked for."""

import gzip
import pickle
import sqlite3
from contextlib import closing
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from postgres_server import PASSWORD, psycopg

from permea._parallel import add_up, sum_parts
from permea.models.moments import MomentClassifier
from permea.privacy import Budget, Ledger, Privacy
from permea.tables import Category, Number, Schema, YesNo
from permea.tables.people import count_units, people_weights
from permea.tables.reading import Chunks, read_chunks

N = 23
SECRET = "Smith-Rosenkranz"
TABLE = pd.DataFrame(
    {
        "patient": [f"p{k % 7}" for k in range(N)],
        "age": [20 + 3 * k for k in range(N)],
        "dose": [0.5 * k for k in range(N)],
        "ward": [["A", "B, left", 'C "new"'][k % 3] for k in range(N)],
        "lab": pd.array([None if k % 5 == 0 else 2**60 + k for k in range(N)], dtype="Int64"),
    }
)


def rows_of(chunks):
    """Rows as text, so that a number and its digits in a CSV file are the same."""
    return [
        tuple("" if pd.isna(value) else str(value) for value in row)
        for frame in chunks()
        for row in frame.astype(object).itertuples(index=False)
    ]


EXPECTED = [
    tuple("" if pd.isna(value) else str(value) for value in row)
    for row in TABLE.astype(object).itertuples(index=False)
]


def as_csv(folder):
    TABLE.to_csv(folder / "table.csv", index=False)
    return {"source": folder / "table.csv"}


def as_gzip(folder):
    TABLE.to_csv(folder / "table.csv.gz", index=False)
    return {"source": str(folder / "table.csv.gz")}


def as_semicolons(folder):
    TABLE.rename(columns={"dose": "dose"}).to_csv(folder / "table.csv", index=False, sep=";")
    return {"source": folder / "table.csv"}


def as_parquet(folder):
    TABLE.to_parquet(folder / "table.parquet", index=False, row_group_size=5)
    return {"source": folder / "table.parquet"}


def as_folder(folder):
    (folder / "parts").mkdir()
    for start in range(0, N, 6):
        TABLE[start : start + 6].to_parquet(folder / "parts" / f"{start:02d}.parquet", index=False)
    return {"source": folder / "parts"}


def as_dataset(folder):
    return {"source": pyarrow.dataset.dataset(as_folder(folder)["source"])}


def as_sqlite(folder):
    with closing(sqlite3.connect(folder / "table.db")) as connection:
        TABLE.astype(object).where(TABLE.notna(), None).to_sql("visits", connection, index=False)
        connection.commit()
    return {"source": f"sqlite:///{folder}/table.db", "query": "SELECT * FROM visits;"}


def as_duckdb(folder):
    path = as_folder(folder)["source"]
    return {"source": "duckdb:", "query": f"SELECT * FROM '{path}/*.parquet' ORDER BY age"}


def as_duckdb_file(folder):
    duckdb = pytest.importorskip("duckdb")
    path = folder / "table.duckdb"
    with closing(duckdb.connect(str(path))) as connection:
        file = as_parquet(folder)["source"]
        connection.execute(f"CREATE TABLE visits AS SELECT * FROM '{file}'")
    return {"source": f"duckdb:///{path}", "query": "SELECT * FROM visits"}


def as_polars(_):
    return {"source": pytest.importorskip("polars").from_pandas(TABLE)}


def as_dask(_):
    return {"source": pytest.importorskip("dask.dataframe").from_pandas(TABLE, npartitions=4)}


SOURCES = {
    "CSV": as_csv, "gzip": as_gzip, "semicolons": as_semicolons, "Parquet": as_parquet,
    "folder": as_folder, "dataset": as_dataset, "SQLite": as_sqlite, "DuckDB": as_duckdb,
    "DuckDB file": as_duckdb_file, "Polars": as_polars, "Dask": as_dask,
    "pandas": lambda _: {"source": TABLE}, "pyarrow": lambda _: {"source": pa.table(TABLE)},
}  # fmt: skip


@pytest.fixture(params=SOURCES)
def place(request, tmp_path):
    return SOURCES[request.param](tmp_path)


def test_every_source_gives_the_same_rows_twice(place):
    chunks = read_chunks(**place, rows=4)
    assert chunks.names == tuple(TABLE.columns)
    assert rows_of(chunks) == EXPECTED
    assert rows_of(chunks) == EXPECTED
    assert max(len(frame) for frame in chunks) <= 4


def test_columns_are_chosen_and_ordered(place):
    chunks = read_chunks(**place, columns=["ward", "patient"])
    assert [tuple(frame.columns) for frame in chunks][:1] == [("ward", "patient")]
    assert rows_of(chunks) == [(row[3], row[0]) for row in EXPECTED]
    with pytest.raises(ValueError, match="no column 'Ward'"):
        read_chunks(**place, columns=["Ward"])


@pytest.mark.parametrize("most", [1, 3, 100])
def test_parts_are_the_whole_table_and_can_be_sent_away(place, most):
    parts = read_chunks(**place).split(most)
    assert 1 <= len(parts) <= most
    found = [row for part in parts for row in rows_of(pickle.loads(pickle.dumps(part)))]
    assert sorted(found) == sorted(EXPECTED)


def test_a_parquet_file_splits_by_row_groups(tmp_path):
    assert len(read_chunks(**as_parquet(tmp_path)).split(100)) == 5


def test_types_do_not_depend_on_the_values_of_a_chunk(tmp_path):
    """A whole number of 64 bits next to a missing one is not rounded to a float."""
    TABLE.to_parquet(tmp_path / "table.parquet")
    kinds = {str(frame["lab"].dtype) for frame in read_chunks(tmp_path / "table.parquet", rows=1)}
    assert kinds == {"Int64"}


def test_cells_of_csv_stay_text(tmp_path):
    (tmp_path / "t.csv").write_text('a,b\n007,NA\n1e3,""\n')
    frame = next(read_chunks(tmp_path / "t.csv")())
    assert frame.to_numpy().tolist() == [["007", "NA"], ["1e3", ""]]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("compressed", [False, True])
def test_line_endings_may_be_mixed(tmp_path, mark, compressed):
    raw = mark + 'größe,note\r\n1,"two\nlines"\n2,b\r3,c\r\n'.encode()
    path = tmp_path / ("t.csv.gz" if compressed else "t.csv")
    path.write_bytes(gzip.compress(raw) if compressed else raw)
    chunks = read_chunks(path)
    assert chunks.names == ("größe", "note")
    assert rows_of(chunks) == [("1", "two\nlines"), ("2", "b"), ("3", "c")]


def test_a_partitioned_folder_has_the_columns_of_its_paths(tmp_path):
    pq.write_to_dataset(pa.table(TABLE), tmp_path / "by", partition_cols=["patient"])
    chunks = read_chunks(tmp_path / "by")
    assert set(chunks.names) == set(TABLE.columns)
    assert sorted(rows_of(chunks.select(TABLE.columns))) == sorted(EXPECTED)


def test_postgres_streams_the_rows_of_a_query(server):
    with psycopg.connect(server.url().replace("&ledger=default", ""), autocommit=True) as opened:
        opened.execute(
            "CREATE TABLE visits (patient TEXT, age INT, dose FLOAT, ward TEXT, lab BIGINT)"
        )
        with opened.cursor().copy("COPY visits FROM STDIN") as copy:
            for row in EXPECTED:
                copy.write_row([value or None for value in row])
    place = {"source": server.url().replace("&ledger=default", ""), "query": "SELECT * FROM visits"}
    chunks = read_chunks(**place, rows=4)
    assert rows_of(chunks) == EXPECTED
    assert rows_of(chunks) == EXPECTED
    with pytest.raises(ValueError, match='relation "visit" does not exist'):
        read_chunks(place["source"], query="SELECT * FROM visit")
    with pytest.raises(ValueError, match="there twice"):
        read_chunks(place["source"], query="SELECT age, dose AS age FROM visits")
    with pytest.raises(ValueError, match="refuses the login") as caught:
        read_chunks(place["source"].replace(PASSWORD, "open-window"), query="SELECT 1")
    assert "open-window" not in str(caught.value)
    broken = read_chunks(place["source"], query="SELECT CAST(ward AS INT) FROM visits")
    with pytest.raises(ValueError, match="could not be computed") as caught:
        list(broken())
    assert "left" not in str(caught.value)


# ---- what cannot be read -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "header"),
        (b"\n\n", "header"),
        (b"a,b,a\n1,2,3\n", "'a' is there twice"),
        (b"a, a\n1,2\n", "'a' is there twice"),
        (b"a,b,\n1,2,\n", "name for every column"),
        (b"\xff\xfea\x00,\x00b\x00", "not CSV in UTF-8"),
        (b"gr\xf6\xdfe,b\n1,2\n", "not CSV in UTF-8"),
        (b"PAR1 and no more", "not Parquet"),
    ],
)
def test_what_is_wrong_with_a_header_is_told_at_once(tmp_path, raw, message):
    path = tmp_path / "t.csv"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=message):
        read_chunks(path)


@pytest.mark.parametrize(
    "raw",
    [
        f"a,b\n1,2\n1,{SECRET},3\n".encode(),
        f'a,b\n1,"{SECRET}\n'.encode(),
        f"a,b\n{SECRET},gr\u00f6\n".encode("latin-1"),
    ],
    ids=["too many values", "open quotation mark", "another encoding"],
)
def test_what_is_wrong_with_rows_is_told_when_they_are_read_and_without_a_value(tmp_path, raw):
    path = tmp_path / "t.csv"
    path.write_bytes(raw)
    chunks = read_chunks(path)
    assert chunks.names == ("a", "b")
    with pytest.raises(ValueError, match="could not be read to its end") as caught:
        list(chunks())
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("kind", ["CSV", "gzip", "Parquet", "SQLite", "DuckDB", "pandas", "Polars"])
def test_an_empty_table_is_refused_while_it_is_read(tmp_path, kind, monkeypatch):
    monkeypatch.setitem(globals(), "TABLE", TABLE[:0])
    chunks = read_chunks(**SOURCES[kind](tmp_path))
    assert chunks.names == tuple(TABLE.columns)
    with pytest.raises(ValueError, match="has no rows"):
        list(chunks())


def test_a_damaged_file_of_a_folder_is_found_while_reading(tmp_path):
    folder = as_folder(tmp_path)["source"]
    (folder / "06.parquet").write_bytes(b"PAR1" + SECRET.encode() + b"PAR1")
    with pytest.raises(ValueError, match="damaged"):
        list(read_chunks(folder)())


def test_a_folder_without_files_is_named_as_such(tmp_path):
    with pytest.raises(ValueError, match="folder without files"):
        read_chunks(tmp_path)


def test_files_with_other_columns_are_not_filled_up(tmp_path):
    folder = as_folder(tmp_path)["source"]
    TABLE.drop(columns="lab").to_parquet(folder / "99.parquet", index=False)
    with pytest.raises(ValueError, match="other columns"):
        list(read_chunks(folder)())


@pytest.mark.parametrize(
    ("source", "query", "message"),
    [
        ("nowhere.csv", None, "no such file"),
        ("t.csv", "SELECT 1", "query needs the address"),
        ("sqlite:///nowhere.db", "SELECT 1", "does not exist"),
        ("duckdb:", None, "needs a query"),
        ("duckdb:", "SELEC 1", "does not understand the query"),
        ("duckdb:", "SELECT * FROM nowhere", "does not understand the query"),
        ("duckdb:", "SELECT * FROM 'nowhere.parquet'", "cannot be reached"),
        ("postgresql://user:open-sesame@127.0.0.1:1/db", "SELECT 1", "cannot be reached"),
        ([1, 2], None, "object of type list"),
    ],
)
def test_what_cannot_be_found_is_told(source, query, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_chunks(source, query=query)
    assert "open-sesame" not in str(caught.value)


def test_sqlite_is_opened_for_reading_only(tmp_path):
    place = as_sqlite(tmp_path)
    with pytest.raises(ValueError, match="no such table: visit"):
        read_chunks(place["source"], query="SELECT * FROM visit")
    with pytest.raises(ValueError, match="does not understand"):
        read_chunks(place["source"], query="DELETE FROM visits")
    assert rows_of(read_chunks(**place)) == EXPECTED


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        ("SQLite", "SELECT patient, age AS patient FROM visits"),
        ("DuckDB file", "SELECT patient, age AS patient FROM visits"),
    ],
)
def test_two_columns_of_a_query_with_one_name_are_refused(tmp_path, kind, query):
    source = SOURCES[kind](tmp_path)["source"]
    with pytest.raises(ValueError, match=r"columns changed|there twice"):
        list(read_chunks(source, query=query)())


def test_a_query_that_fails_on_a_row_tells_no_value(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"name": ["1", SECRET]}).to_parquet(path)
    chunks = read_chunks("duckdb:", query=f"SELECT CAST(name AS INT) AS n FROM '{path}'")
    with pytest.raises(ValueError, match="could not be computed") as caught:
        list(chunks())
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "module", "extra"), [("DuckDB", "duckdb", "sql"), ("CSV", "pyarrow.csv", "cli")]
)
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, kind, module, extra):
    place = SOURCES[kind](tmp_path)
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(ImportError, match=rf"permea\[{extra}\]"):
        list(read_chunks(**place)())


def test_nothing_of_the_rows_or_the_password_is_in_the_text_of_chunks():
    chunks = Chunks(("a",), (pd.DataFrame({"a": [SECRET]}),))
    assert SECRET not in repr(chunks)


# ---- people --------------------------------------------------------------------------------------


@given(
    rows=st.lists(st.integers(0, 6), min_size=1, max_size=40),
    size=st.integers(1, 9),
    ordered=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_weights_of_a_person_add_up_to_one(rows, size, ordered):
    ids = sorted(rows) if ordered else rows
    frame = pd.DataFrame({"who": ids, "x": range(len(ids))})
    weighted = people_weights(read_chunks(frame, rows=size), "who", ordered=ordered)
    for _ in range(2):
        pairs = list(weighted())
        assert np.concatenate([part["x"] for part, _ in pairs]).tolist() == list(range(len(ids)))
        weights = np.concatenate([weights for _, weights in pairs])
        assert weights.tolist() == [1 / ids.count(who) for who in ids]


def test_people_may_come_from_a_function():
    chunks = read_chunks(TABLE, rows=5)
    by_name = list(people_weights(chunks, "patient")())
    by_function = list(people_weights(chunks, lambda frame: frame["patient"].to_numpy())())
    for (_, a), (_, b) in zip(by_name, by_function, strict=True):
        assert a.tolist() == b.tolist()


def test_rows_that_are_not_sorted_by_person_are_refused():
    chunks = read_chunks(TABLE, rows=3)
    with pytest.raises(ValueError, match="Sort them"):
        list(people_weights(chunks, "patient", ordered=True)())


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, ""])
def test_a_row_without_a_person_is_refused(ordered, missing):
    chunks = read_chunks(pd.DataFrame({"who": pd.Series(["a", missing, "b"], dtype=object)}))
    with pytest.raises((ValueError, TypeError)) as caught:
        list(people_weights(chunks, "who", ordered=ordered)())
    assert "'a'" not in str(caught.value)


@pytest.mark.parametrize("newcomer", ["a", "c"])
def test_a_table_that_grows_between_two_passes_is_refused(tmp_path, newcomer):
    path = tmp_path / "t.csv"
    path.write_text("who,x\na,1\na,2\nb,3\n")
    weighted = people_weights(read_chunks(path), "who")
    assert [weights.tolist() for _, weights in weighted()] == [[0.5, 0.5, 1.0]]
    path.write_text(f"who,x\na,1\na,2\nb,3\n{newcomer},4\n")
    with pytest.raises(ValueError, match="grew"):
        list(weighted())


def test_units_are_counted_as_the_schema_reads_them_and_without_an_error(tmp_path):
    schema = Schema({"x": Number(0, 9)}, person="who")
    path = tmp_path / "t.csv"
    path.write_text("who,x\n7, 1\n 7,2\n7.0,3\n,4\nNA,5\n8,6\n")
    assert count_units(read_chunks(path, rows=2), schema, "person") == 2
    assert count_units(read_chunks(path, rows=2), schema, "record") == 6
    for broken in ("who,x\n1,2,3\n", "who,x\n", 'who,x\n1,"2\n'):
        path.write_text(broken)
        assert count_units(read_chunks(path), schema, "person") <= 1  # what could be read


# ---- workers -------------------------------------------------------------------------------------


def total_age(unit, part):
    return add_up(unit * sum(int(age) for age in frame["age"]) for frame in part())


def fails(part):
    raise ValueError(SECRET)


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.mark.xdist_group("processes")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["CSV", "folder", "Parquet", "Dask", "pandas"])
def test_workers_add_up_parts_of_every_source(client, tmp_path, kind):
    parts = read_chunks(**SOURCES[kind](tmp_path)).split(8)
    function = partial(total_age, 2)
    expected = 2 * int(TABLE["age"].sum())
    assert sum_parts(function, parts) == expected
    assert sum_parts(function, parts, engine="dask") == expected


@pytest.mark.xdist_group("processes")
@pytest.mark.timeout(300)
def test_a_dask_frame_on_the_cluster_is_added_up_where_it_is(client):
    frame = as_dask(None)["source"].persist()
    parts = read_chunks(frame).split(4)
    assert len(parts) == 4
    assert sum_parts(partial(total_age, 1), parts, engine="dask") == TABLE["age"].sum()


@pytest.mark.xdist_group("processes")
@pytest.mark.timeout(300)
def test_a_worker_that_fails_tells_and_logs_no_value(client):
    parts = read_chunks(TABLE).split(1)
    with pytest.raises(ValueError, match="could not read or use") as caught:
        sum_parts(fails, parts, engine="dask")
    logs = "".join(text for log in client.get_worker_logs().values() for _, text in log)
    assert SECRET not in str(caught.value) + logs


def test_an_empty_file_among_others_is_no_error(tmp_path):
    folder = as_folder(tmp_path)["source"]
    TABLE[:0].to_parquet(folder / "99.parquet", index=False)
    parts = read_chunks(folder).split(100)
    assert sum_parts(partial(total_age, 1), parts) == TABLE["age"].sum()
    with pytest.raises(ValueError, match="no rows"):
        sum_parts(partial(total_age, 1), read_chunks(TABLE[:0]).split(2))


def test_an_engine_needs_a_name_that_is_known():
    with pytest.raises(ValueError, match="engine must be"):
        sum_parts(len, ["a"], engine="spark")


# ---- what is learned -----------------------------------------------------------------------------

SCHEMA = Schema(
    {
        "patient": Category([f"p{k}" for k in range(7)]),
        "age": Number(0, 100, whole=True),
        "dose": Number(0, 10),
        "ward": Category(["A", "B, left"], other=True),
        "lab": Number(0, 2**61, missing=True),
        "sick": YesNo(),
    },
    label="sick",
    person="patient",
)
SICK = TABLE.assign(sick=["yes" if k % 3 else "no" for k in range(N)])


def seeded(unit):
    promise = Privacy(epsilon=2, delta=1e-4, unit=unit)
    return MomentClassifier(privacy=promise, schema=SCHEMA, bins=4, random_state=0)


def assert_same_model(one, other):
    assert np.array_equal(one.moments_.second, other.moments_.second)
    assert np.array_equal(one.moments_.cross, other.moments_.cross)
    assert np.array_equal(one.mean_, other.mean_)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("unit", ["record", "person"])
def test_every_source_gives_the_moments_of_the_table_in_memory(tmp_path, monkeypatch, kind, unit):
    monkeypatch.setitem(globals(), "TABLE", SICK)
    chunks = read_chunks(**SOURCES[kind](tmp_path), rows=5)
    assert_same_model(seeded(unit).fit_chunks(chunks), seeded(unit).fit(SICK))


@pytest.mark.xdist_group("processes")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("unit", ["record", "person"])
@pytest.mark.parametrize("kind", ["folder", "Dask"])
def test_workers_give_the_moments_of_the_table_in_memory(client, tmp_path, monkeypatch, kind, unit):
    monkeypatch.setitem(globals(), "TABLE", SICK)
    chunks = read_chunks(**SOURCES[kind](tmp_path), rows=5)
    assert_same_model(seeded(unit).fit_chunks(chunks, engine="dask"), seeded(unit).fit(SICK))


def test_columns_are_checked_before_the_charge_and_ignored_ones_are_not_read(tmp_path):
    ledger = Ledger(Budget(epsilon=10, delta=1e-3, unit="record"))
    model = seeded("record").set_params(ledger=ledger)
    for wrong in (SICK.drop(columns="sick"), SICK.drop(columns="dose"), SICK.assign(other=1)):
        with pytest.raises(ValueError, match="column"):
            model.fit_chunks(read_chunks(wrong))
    assert len(ledger.events) == 0
    read = []

    def watched(names):
        read.append(names)
        return [SICK.assign(remarks=SECRET)]

    schema = Schema(SCHEMA.columns, label="sick", person="patient", ignored=["remarks"])
    model.set_params(schema=schema).fit_chunks(Chunks((*SICK.columns, "remarks"), (watched,)))
    assert read == [tuple(SICK.columns)] * 2
    assert len(ledger.events) == 1


@pytest.mark.parametrize("kind", ["pandas", "arrow in pandas", "pyarrow", "Polars", "Parquet"])
def test_a_long_code_is_read_alike_whether_another_row_is_missing(tmp_path, kind):
    """As floats, which a missing value made of them, the two codes are the same number."""
    code = 900000000000207009
    schema = Schema({"c": Category([str(code - 1), str(code)], missing=True)})

    def table(values):
        if kind == "pandas":
            return pd.DataFrame({"c": pd.array(values, dtype="Int64")})
        if kind == "arrow in pandas":
            return pd.DataFrame({"c": pd.array(values, dtype=pd.ArrowDtype(pa.int64()))})
        if kind == "Polars":
            return pytest.importorskip("polars").DataFrame({"c": values})
        if kind == "Parquet":
            pq.write_table(pa.table({"c": values}), tmp_path / "t.parquet")
            return next(read_chunks(tmp_path / "t.parquet")())
        return pa.table({"c": values})

    alone, beside = (schema.encode(table(values))[0] for values in ([code, code], [code, None]))
    assert alone.tolist() == beside.tolist()
    assert alone[1] > 0

"""Synthetic tables: types, domains, rules and dependences hold; nothing but the release is read."""

import gc
import json
import weakref

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from permea import Certificate, Ledger, Privacy, fabricate_records
from permea.fabricate import generator, learn_tables
from permea.fabricate.generator import TableGenerator
from permea.fabricate.quality import quality_of
from permea.privacy import stages as permea_stages
from permea.privacy.counts import sum_counts
from permea.privacy.release import UnreadableRowsError
from permea.privacy.stages import ChargedCounts
from permea.report import Report, render
from permea.tables import Category, Date, Number, Schema, YesNo
from permea.tables.rules import Rule

RECORD = Privacy(epsilon=4, delta=1e-6, unit="record")
PERSON = Privacy(epsilon=8, delta=1e-6, unit="person", rows_per_person=8)
SCHEMA = Schema(
    {
        "age": Number(18, 100, whole=True),
        "pressure": Number(80, 200, resolution=0.5, missing=True),
        "cells": Number(0, 50, missing=True),
        "sex": Category(["f", "m"]),
        "ward": Category(["a", "b", "c"], other=True, missing=True),
        "in": Date("2020-01-01", "2020-12-31"),
        "out": Date("2020-01-01", "2020-12-31"),
        "food": Number(0, 50, whole=True),
        "rent": Number(0, 50, whole=True),
        "total": Number(0, 100, whole=True),
        "ill": YesNo(),
    },
    label="ill",
    person="patient",
    rules=("out >= in", "total = food + rent"),
)


def a_table(n=6000, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 100, n)
    first = rng.integers(0, 300, n)
    day = pd.Timestamp("2020-01-01")
    food, rent = rng.integers(0, 50, (2, n))
    return pd.DataFrame({
        "patient": [f"p{k // 3}" for k in range(n)],
        "age": age,
        "pressure": np.where(rng.random(n) < 0.1, np.nan, np.round(60 + age + rng.normal(0, 5, n))),
        "cells": np.where(rng.random(n) < 0.5, 0.0, rng.gamma(2, 5, n)),
        "sex": np.repeat(rng.choice(["f", "m"], -(-n // 3)), 3)[:n],
        "ward": rng.choice(["a", "b", "zoo", None], n),
        "in": (day + pd.to_timedelta(first, "D")).strftime("%Y-%m-%d"),
        "out": (day + pd.to_timedelta(first + rng.integers(0, 60, n), "D")).strftime("%Y-%m-%d"),
        "food": food, "rent": rent, "total": food + rent,
        "ill": rng.random(n) < age / 120,
    })  # fmt: skip


FRAME = a_table()


@pytest.fixture(scope="module")
def made():
    return fabricate_records(FRAME, schema=SCHEMA, privacy=RECORD, seed=0)


@pytest.fixture(scope="module")
def persons():
    return fabricate_records(FRAME, schema=SCHEMA, privacy=PERSON, seed=0)


def follows_the_schema(data):
    assert not SCHEMA.problems(data)
    for name, column in SCHEMA.columns.items():
        if isinstance(column, Number):
            known = data[name].dropna()
            assert known.between(column.low, column.high).all()
            assert np.allclose(column.round(known.to_numpy(float)), known.to_numpy(float))
    at = SCHEMA.read(data)
    assert all(rule.holds(at).all() for rule in SCHEMA.parsed_rules)


@pytest.mark.parametrize("which", ["made", "persons"])
def test_names_types_domains_and_rules_hold(which, request):
    data = request.getfixturevalue(which).data
    follows_the_schema(data)
    assert list(data) == ["patient", *SCHEMA.columns]
    assert data["age"].dtype == "int64"
    assert list(data["ward"].dtype.categories) == ["a", "b", "c", "other"]
    assert set(data["ill"]) == {"yes", "no"}
    assert data["pressure"].isna().mean() == pytest.approx(0.1, abs=0.05)
    assert data["ward"].isna().mean() == pytest.approx(0.25, abs=0.06)


def test_the_rows_would_break_the_rules_without_them(made):
    """Negative control: the same draw without rules."""
    free = SCHEMA.with_roles(rules=())
    other = TableGenerator(**{**vars(made.generator), "schema": free}).draw(2000, random_state=0)
    at = SCHEMA.read(other)
    assert not all(rule.holds(at).all() for rule in SCHEMA.parsed_rules)


def test_rules_that_cannot_be_kept_are_told():
    with pytest.raises(ValueError, match="can never hold"):
        Schema({"a": Number(0, 1), "b": Number(5, 6)}, rules=("a >= b",))
    schema = Schema({"a": Number(0, 1, whole=True), "b": Number(0.3, 0.7)}, rules=("a = b",))
    ledger = Ledger()
    with pytest.raises(ValueError, match="cannot be kept"):
        fabricate_records(
            {"a": np.ones(50), "b": np.full(50, 0.5)}, schema=schema, privacy=RECORD, ledger=ledger
        )
    assert len(ledger) == 0  # ranges and steps are public, so it is said before the charge


@pytest.mark.parametrize("which", ["made", "persons"])
def test_a_rule_that_is_hardly_ever_kept_does_not_stop_the_draw(which, request, monkeypatch):
    """Few attempts: rows that still break a rule become like others, and all of them keep it."""
    monkeypatch.setattr(generator, "_ATTEMPTS", 1)
    monkeypatch.setattr(Rule, "repaired", lambda self, columns: columns)
    schema = SCHEMA.with_roles(rules=("age >= food", "out >= in"))
    made = request.getfixturevalue(which).generator
    data = TableGenerator(**{**vars(made), "schema": schema}).draw(2000, random_state=0)
    at = schema.read(data)
    assert len(data) == 2000
    assert all(rule.holds(at).all() for rule in schema.parsed_rules)


def test_quality_is_that_of_the_rows_as_the_rules_leave_them():
    rng = np.random.default_rng(0)
    frame = {"a": rng.integers(0, 10, 4000), "b": rng.integers(0, 10, 4000)}
    columns = {name: Number(0, 9, whole=True) for name in frame}
    found = [
        fabricate_records(frame, schema=Schema(columns, rules=rules), privacy=RECORD).quality
        for rules in ((), ("a >= b",))  # the private rows do not keep it
    ]
    assert found[0].columns[0].is_held
    assert not found[1].columns[0].is_held


def test_dependences_and_values_of_their_own_are_kept(made):
    data = made.data
    assert np.corrcoef(data["age"][data["pressure"].notna()], data["pressure"].dropna())[0, 1] > 0.8
    ages = data.groupby(data["ill"].astype(str))["age"].mean()
    assert ages["yes"] - ages["no"] > 8
    assert (data["cells"] == 0).mean() == pytest.approx(0.5, abs=0.05)


def test_released_marginals_and_rows_agree_within_rounding(made):
    generator = made.generator
    bins, labels = generator.draw_bins(20_000, np.random.default_rng(0))
    for label, tree in enumerate(generator.trees):
        mine = bins[labels == label]
        assert len(mine) / 20_000 == pytest.approx(generator.label_shares[label], abs=2e-4)
        for column, parent in tree.edges:
            for cell, shares in enumerate(tree.given[column]):
                below = mine[mine[:, parent] == cell, column]
                counts = np.bincount(below, minlength=len(shares))
                assert np.all(np.abs(counts - len(below) * shares) < 1 + 1e-6)


def test_values_within_a_cell_are_drawn_evenly(made):
    place = made.generator.names.index("cells")
    cells = made.generator.cells[place]
    drawn = cells.draw(np.full(5000, 20), np.random.default_rng(0))
    low, high = cells.starts[20:22]
    assert stats.kstest((drawn - low) / (high - low), "uniform").pvalue > 1e-6


# --- persons ---


def test_persons_have_as_many_rows_and_keep_what_stays(persons):
    data = persons.data
    sizes = data.groupby("patient").size()
    assert len(sizes) == pytest.approx(2000, abs=1)
    assert (sizes == 3).mean() > 0.9
    assert (data.groupby("patient")["sex"].nunique() == 1).mean() > 0.9
    assert (data.groupby("patient")["age"].nunique() == 1).mean() < 0.3
    assert "per person" in str(persons.certificate)


def test_the_number_of_rows_can_be_chosen_and_draws_repeat(made, persons):
    for source in (made, persons):
        parts = list(source.generator.chunks(1000, rows=170, random_state=3))
        assert sum(map(len, parts)) == 1000
        assert (
            sum(part["patient"].nunique() for part in parts)
            == pd.concat(parts)["patient"].nunique()
        )
    one, two = (made.generator.draw(500, random_state=1) for _ in range(2))
    pd.testing.assert_frame_equal(one, two)
    assert not one.equals(made.generator.draw(500, random_state=2))


def test_parts_of_a_long_table_are_as_long_as_was_asked_for(persons):
    """Memory stays flat when persons have several rows each."""
    parts = [len(part) for part in persons.generator.chunks(3000, rows=300, random_state=0)]
    assert max(parts) < 400
    assert sum(parts) == 3000


def test_a_seed_of_the_draw_leaves_the_release_private(made):
    assert made.certificate.is_private
    seeded = fabricate_records(FRAME, schema=SCHEMA, privacy=RECORD, random_state=0)
    assert not seeded.certificate.is_private


def test_parquet_is_written_part_by_part(made, tmp_path):
    path = made.generator.write_parquet(tmp_path / "made.parquet", 3000, rows=500, random_state=1)
    read = pd.read_parquet(path)
    assert len(read) == 3000
    follows_the_schema(read)
    together = pd.concat(list(made.generator.chunks(3000, rows=500, random_state=1)))
    assert read["age"].tolist() == together["age"].tolist()


# --- without label, few columns, odd data ---


@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
@pytest.mark.parametrize("names", [["age"], ["age", "sex"], ["age", "sex", "cells"]])
def test_few_columns_and_no_label(names, neighbours):
    schema = Schema({name: SCHEMA.columns[name] for name in names})
    made = fabricate_records(FRAME[names], schema=schema, privacy=RECORD, neighbours=neighbours)
    assert list(made.data) == names
    assert len(made.data) == pytest.approx(6000, abs=60)
    assert made.data["age"].mean() == pytest.approx(FRAME["age"].mean(), abs=2)


def test_a_label_that_never_occurs_and_few_rows():
    frame = FRAME.head(5).assign(ill=True)
    made = fabricate_records(frame, schema=SCHEMA, privacy=RECORD, n_rows=50)
    follows_the_schema(made.data)


def test_a_target_is_a_column_like_others():
    schema = Schema({n: SCHEMA.columns[n] for n in ("age", "food")}, target="age")
    made = fabricate_records(FRAME[["age", "food"]], schema=schema, privacy=RECORD)
    assert sorted(made.data) == ["age", "food"]


# --- the wall ---


@pytest.mark.parametrize("lost", [learn_tables._LOST, 0.0], ids=["pairs", "halves"])
def test_nothing_but_the_release_is_read(monkeypatch, lost):
    """Counting made blind: two different tables give the same synthetic rows."""
    monkeypatch.setattr(learn_tables, "_LOST", lost)
    release = ChargedCounts.release

    def blind(self, stage, sizes, read):
        def nothing():
            codes = read()
            return codes._replace(cells=[np.zeros(10, np.int64)] * len(sizes), weights=None)

        return release(self, stage, sizes, nothing)

    def fabricated(frame):
        made = fabricate_records(
            frame, schema=SCHEMA, privacy=RECORD, neighbours="add/remove", random_state=0, seed=0
        )
        return made.data.to_csv(), str(made.certificate), json.dumps(made.quality.to_dict())

    other = a_table(4000, seed=1)
    assert fabricated(FRAME) != fabricated(other)  # the control: with eyes they differ
    monkeypatch.setattr(ChargedCounts, "release", blind)
    assert fabricated(FRAME) == fabricated(other)


@pytest.mark.parametrize("unit", ["record", "person"])
@pytest.mark.parametrize("lost", [learn_tables._LOST, 0.0], ids=["pairs", "halves"])
def test_one_more_person_moves_no_stage_by_more_than_was_charged(monkeypatch, unit, lost):
    """Whatever her rows hold, wherever they stand, and whatever type a column gets by them."""
    monkeypatch.setattr(learn_tables, "_LOST", lost)
    exact, rng = [], np.random.default_rng(0)

    def the_same_noised_tables(codes, plan):
        found = sum_counts(codes, plan)
        exact.append((np.concatenate(found) / plan.steps, len(found)))
        public = np.random.default_rng(len(exact))
        return [public.integers(0, 900, table.size) * plan.steps for table in found]

    monkeypatch.setattr(permea_stages, "sum_counts", the_same_noised_tables)
    monkeypatch.setattr(permea_stages, "discrete_gaussian", lambda s, size, bits: np.zeros(size))
    promise = Privacy(epsilon=1, delta=1e-6, unit=unit)

    def counted(frame):
        exact.clear()
        options = {"privacy": promise, "neighbours": "add/remove", "n_rows": 1}
        fabricate_records(frame, schema=SCHEMA, **options)
        return list(exact)

    few = FRAME.head(60)
    before = counted(few)
    odd = {"age": "30.5", "cells": np.nan, "ward": 7, "ill": "yes", "pressure": np.float32(80.3)}
    for m in (1, 7):
        new = FRAME.iloc[100 : 100 + (m if unit == "person" else 1)].assign(patient="new", **odd)
        order = np.argsort(np.append(rng.random(60).cumsum(), 60 * rng.random(len(new))))
        after = counted(pd.concat([few, new], ignore_index=True).iloc[order])
        assert len(after) == len(before) == (3 if unit == "record" else 4)
        for (one, n_tables), (two, _) in zip(before, after, strict=True):
            assert 0 < np.linalg.norm(one - two) <= np.sqrt(n_tables) * (1 + 1e-9) or m == 1


def test_rows_are_read_by_the_release_alone(monkeypatch):
    """After the last stage the private table may be gone."""
    learn = learn_tables.Learner.learn

    def then_forget(self, **options):
        learn(self, **options)
        self.read = None

    monkeypatch.setattr(learn_tables.Learner, "learn", then_forget)
    assert len(fabricate_records(FRAME, schema=SCHEMA, privacy=RECORD, n_rows=10).data) == 10


def test_what_is_made_holds_no_private_table():
    frame = FRAME.head(500).copy()
    gone = weakref.ref(frame)
    made = fabricate_records(frame, schema=SCHEMA, privacy=RECORD, n_rows=10, ledger=Ledger())
    del frame
    gc.collect()
    assert gone() is None
    assert len(made.data) == 10  # drawn when it is asked for


@pytest.mark.parametrize(
    "broken", [{"age": "Smith"}, {"ill": "perhaps"}, {"sex": None}], ids=lambda one: next(iter(one))
)
def test_unreadable_rows_are_found_after_the_charge_and_not_told(broken):
    ledger = Ledger()
    with pytest.raises(UnreadableRowsError) as caught:
        fabricate_records(FRAME.assign(**broken), schema=SCHEMA, privacy=RECORD, ledger=ledger)
    assert len(ledger) == 1
    assert "Smith" not in str(caught.value)


def test_one_event_and_a_certificate(made):
    ledger = Ledger()
    paper = fabricate_records(FRAME, schema=SCHEMA, privacy=RECORD, ledger=ledger).certificate
    assert len(ledger) == 1
    assert ledger.spent.epsilon == pytest.approx(4, rel=1e-2)
    assert Certificate.from_json(paper.to_json()) == paper
    assert "tree of dependences" in str(paper)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": [1]}, "leave out y"),
        ({"n_rows": 0}, "n_rows"),
        ({"n_rows": 10.5}, "n_rows"),
        ({"seed": -1}, "seed"),
        ({"seed": "one"}, "seed"),
        ({"groups": [1] * 6000}, "groups belong"),
        ({"privacy": Privacy(epsilon=1, delta=1e-6, domain=(0, 1))}, "unit='record'"),
        ({"X": FRAME.drop(columns="ill")}, "missing: 'ill'"),
        ({"schema": None}, "tables need a schema"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_charge(options, message):
    ledger = Ledger()
    settings = {"X": FRAME, "schema": SCHEMA, "privacy": RECORD, "ledger": ledger, **options}
    with pytest.raises(ValueError, match=message):
        fabricate_records(settings.pop("X"), settings.pop("y", None), **settings)
    assert len(ledger) == 0


def test_types_are_those_of_the_schema_whatever_one_row_holds():
    """One odd value makes a column of numbers one of objects, and must not show."""
    rng = np.random.default_rng(0)
    columns = {
        "grade": Category(["1", "2"], other=True),
        "ill": YesNo(),
        "on": YesNo(yes=["1"], no=["0"]),
    }
    frame = pd.DataFrame({name: rng.integers(0, 2, 300) + (name == "grade") for name in columns})
    odd = frame.astype(object)
    odd.iloc[7] = ["one", "no", "0"]
    found = [
        fabricate_records(each, schema=Schema(columns), privacy=RECORD).data.dtypes.to_dict()
        for each in (frame, odd)
    ]
    assert found[0] == found[1]
    assert found[0]["on"] == "int64"


def test_too_many_cells_are_refused_before_the_charge():
    many = Category([str(k) for k in range(60_000)])
    schema = Schema({"a": many, "ill": Category([str(k) for k in range(80)])}, label="ill")
    ledger = Ledger()
    with pytest.raises(ValueError, match="too many values"):
        fabricate_records({"a": [1], "ill": [1]}, schema=schema, privacy=RECORD, ledger=ledger)
    assert len(ledger) == 0


def test_too_many_columns_are_refused_before_the_charge():
    names = [f"c{k}" for k in range(1500)]
    schema, ledger = Schema({name: YesNo() for name in names}), Ledger()
    frame = {name: [1] for name in names}
    with pytest.raises(ValueError, match="too many columns"):
        fabricate_records(frame, schema=schema, privacy=RECORD, ledger=ledger)
    assert len(ledger) == 0


def test_a_column_of_a_reserved_name_is_refused_before_the_charge():
    name, ledger = "rows of the person", Ledger()
    schema = Schema({name: YesNo(), "ill": YesNo()}, person="id")
    frame = {name: [1], "ill": [1], "id": [1]}
    with pytest.raises(ValueError, match="Rename"):
        fabricate_records(frame, schema=schema, privacy=PERSON, ledger=ledger)
    assert len(ledger) == 0


# --- many columns ---


def blocks_of_columns(n_columns, n=6000, each=3):
    """Columns that depend on each other within blocks, and a label that depends on one block."""
    rng = np.random.default_rng(0)
    hidden = np.repeat(rng.normal(size=(n, n_columns // each)), each, axis=1)
    values = np.clip(0.9 * hidden + 0.44 * rng.normal(size=hidden.shape), -4, 4)
    frame = pd.DataFrame({f"c{k}": values[:, k] for k in range(hidden.shape[1])})
    frame["c2"] = np.where(frame["c2"] > 0.2, "high", np.where(frame["c2"] > -0.8, "mid", "low"))
    columns = {name: Number(-4, 4) for name in frame}
    columns["c2"] = Category(["low", "mid", "high"])
    frame["ill"] = np.where(values[:, 0] + rng.normal(size=n) > 0, "yes", "no")
    return frame, Schema({**columns, "ill": YesNo()}, label="ill")


def test_of_many_columns_the_pairs_that_matter_are_found(monkeypatch):
    frame, schema = blocks_of_columns(60)
    promise = Privacy(epsilon=2, delta=1e-6, unit="record")
    right = {}
    for way in ("halves", "tables"):  # the control: tables of all pairs
        if way == "tables":
            monkeypatch.setattr(learn_tables, "_LOST", np.inf)
            monkeypatch.setattr(learn_tables, "_MANY", np.inf)
        made = fabricate_records(frame, schema=schema, privacy=promise, random_state=0, seed=0)
        trees = made.generator.trees
        right[way] = sum(a // 3 == b // 3 for tree in trees for a, b in tree.edges) / len(trees)
        assert not schema.problems(made.data)
        assert len(made.quality.pairs) == 60 * 59 / 2 + 60
    assert right["tables"] < 30 < 36 < right["halves"] <= 40


def test_halves_that_are_not_held_are_told(monkeypatch):
    """A tree cannot hold a ring of columns, each of which depends on both of its neighbours."""
    monkeypatch.setattr(learn_tables, "_LOST", 0.0)
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(20_000, 6))
    values = np.clip(hidden + np.roll(hidden, 1, axis=1), -3, 3)
    frame = pd.DataFrame(values, columns=list("abcdef"))
    schema = Schema({name: Number(-3, 3) for name in frame})
    made = fabricate_records(frame, schema=schema, privacy=RECORD, seed=0)
    ring = {tuple(sorted(("abcdef"[k], "abcdef"[k - 1]))) for k in range(6)}
    held = {tuple(sorted(("abcdef"[a], "abcdef"[b]))) for a, b in made.generator.trees[0].edges}
    lost = {tuple(sorted(pair.columns)) for pair in made.quality.pairs_not_held}
    assert len(ring - held) == 1
    assert made.quality.n_halved == 15 - 5
    page = render(Report(title="a ring", quality=made.quality))
    assert "10 pairs are compared in halves" in page
    assert ring - held <= lost


# --- quality ---


def test_quality_is_noise_where_the_tree_holds_and_more_where_it_does_not():
    rng = np.random.default_rng(0)
    n = 20_000
    one, two = rng.integers(0, 2, (2, n))
    frame = {"a": one, "b": two, "c": (one + two) % 2, "d": one, "e": two}
    frame = {name: np.where(rng.random(n) < 0.05, 1 - at, at) for name, at in frame.items()}
    schema = Schema({name: YesNo() for name in frame})
    made = fabricate_records(frame, schema=schema, privacy=RECORD, seed=0)
    found = {pair.columns: pair for pair in made.quality.pairs}
    pair = found["a", "d"]
    assert abs(pair.distance - pair.by_chance) < 5 * pair.error + 0.01
    assert all(each.is_held for each in made.quality.columns)


def test_error_bars_of_queries_hold_the_truth():
    """Of the shares of values in the private table, about 95 % lie in the interval."""
    rng = np.random.default_rng(0)
    names = "abcdefgh"
    frame = {name: rng.integers(0, 10, 5000) for name in names}
    frame["ill"] = rng.choice(["yes", "no"], 5000)
    columns = {name: Number(0, 9, whole=True) for name in names}
    schema = Schema({**columns, "ill": YesNo()}, label="ill")
    hits = []
    for _ in range(4):
        made = fabricate_records(frame, schema=schema, privacy=RECORD)
        assert {query.column for query in made.quality.queries} == {*names, "ill"}
        for query in made.quality.queries:
            ends = query.value.split(" to ")
            if query.column == "ill":
                truth = np.mean(frame["ill"] == query.value)
            else:
                truth = np.mean((frame[query.column] >= int(ends[0]))
                                & (frame[query.column] <= int(ends[-1])))  # fmt: skip
            hits.append(query.interval[0] <= truth <= query.interval[1])
    low, high = stats.binom.ppf([1e-6, 1 - 1e-6], len(hits), 0.95) / len(hits)
    assert low - 0.02 <= np.mean(hits) <= high + 0.02


def test_two_columns_have_a_pair_and_a_label_has_pairs():
    for label, pairs in ((None, {("age", "ill")}), ("ill", {("age", "ill")})):
        schema = Schema({name: SCHEMA.columns[name] for name in ("age", "ill")}, label=label)
        made = fabricate_records(FRAME[["age", "ill"]], schema=schema, privacy=RECORD)
        assert {pair.columns for pair in made.quality.pairs} == pairs
        assert not made.quality.pairs_not_held


def test_a_broken_generator_is_seen_in_its_quality(monkeypatch):
    """Negative control: a generator that forgets what depends on what."""
    learned = []
    learn = learn_tables.Learner.learn
    monkeypatch.setattr(
        learn_tables.Learner, "learn", lambda s, **o: (learn(s, **o), learned.append(s))[0]
    )
    frame = FRAME[["age", "pressure", "food", "ill"]]
    schema = Schema({name: SCHEMA.columns[name] for name in frame}, label="ill")
    made = fabricate_records(frame, schema=schema, privacy=RECORD, seed=0)
    assert not made.quality.pairs_not_held
    for tree in made.generator.trees:
        for column in tree.given:
            tree.given[column][:] = tree.given[column].mean(0)
    worse = quality_of(made.generator, learned[0])
    assert ("age", "pressure") in [pair.columns for pair in worse.pairs_not_held]

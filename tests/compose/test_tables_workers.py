"""Moments of tables that are added up by workers: what they read, send, count and refuse."""

import threading
from functools import partial

import numpy as np
import pandas as pd
import pytest

from permea import Ledger, MomentClassifier, Privacy, Schema
from permea._parallel import map_parts, sum_parts
from permea.privacy.release import UnreadableRowsError
from permea.tables import Number, YesNo
from permea.tables.reading import Chunks

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.xdist_group("processes")

NAMES = ("pid", "age", "died")
SCHEMA = Schema({"age": Number(0, 100), "died": YesNo()}, label="died", person="pid")


@pytest.fixture(scope="module")
def client():
    """Workers are threads of this process, so that tests can see what they do."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def visits(seed, n=600):
    rng = np.random.default_rng(seed)
    age = rng.uniform(20, 90, n)
    died = np.where(age + rng.normal(0, 10, n) > 60, "yes", "no")
    return pd.DataFrame({"pid": rng.integers(0, 200, n), "age": age, "died": died})


class Piece:
    """A part of a table that looks different each time it is read."""

    def __init__(self, *passes):
        self.passes, self.readers = passes, []

    def __call__(self, names):
        frame = self.passes[min(len(self.readers), len(self.passes) - 1)]
        self.readers.append(threading.current_thread())
        return [frame[list(names)]]

    def __reduce__(self):
        return _same, (id(self),)  # workers are in this process: the same object


_SAME = {}


def _same(key):
    return _SAME[key]


def table(*pieces):
    _SAME.update({id(piece): piece for piece in pieces})
    return Chunks(NAMES, pieces)


def fit(chunks, unit="person", engine="dask", **options):
    promise = Privacy(epsilon=1, delta=1e-6, unit=unit)
    clf = MomentClassifier(privacy=promise, schema=SCHEMA, bins=5, random_state=0, **options)
    return clf.fit_chunks(chunks, engine=engine)


@pytest.mark.parametrize("unit", ["record", "person"])
def test_every_pass_is_read_by_workers_and_the_model_is_the_same(client, unit):
    frames = [visits(seed) for seed in range(5)]
    pieces = [Piece(frame) for frame in frames]
    there = fit(table(*pieces), unit)
    here = fit(table(*map(Piece, frames)), unit, engine=None)
    np.testing.assert_array_equal(there.model_.weights, here.model_.weights)
    passes = 3 if unit == "person" else 2  # one counts the rows of each person
    assert [len(piece.readers) for piece in pieces] == [passes] * 5
    assert threading.current_thread() not in {t for piece in pieces for t in piece.readers}


def test_one_result_comes_back_however_many_parts_there_are(client, monkeypatch):
    asked = []
    compute = client.compute
    monkeypatch.setattr(client, "compute", lambda work: asked.append(work) or compute(work))
    assert sum_parts(len, ["abc"] * 70, engine="dask") == 210
    assert len(asked) == 1
    assert not isinstance(asked[0], list)
    assert map_parts(len, ["abc", "d"], engine="dask") == [3, 1]
    with pytest.raises(ValueError, match="no rows"):
        sum_parts(len, [], engine="dask")


ONE, MORE = visits(0), visits(1)
KNOWN, STRANGER = ONE.iloc[:1], ONE.iloc[:1].assign(pid=999)


@pytest.mark.parametrize("engine", [None, "dask"])
@pytest.mark.parametrize(
    "passes",
    [
        pytest.param([ONE, ONE, pd.concat([ONE, KNOWN])], id="a person has one row more"),
        pytest.param([ONE, pd.concat([ONE, KNOWN])], id="in both passes after the count"),
        pytest.param([ONE, ONE, pd.concat([ONE, STRANGER])], id="a person comes"),
        pytest.param([ONE, ONE, ONE[ONE.pid != 7]], id="a person goes"),
    ],
)
def test_a_table_that_changes_between_passes_is_refused(client, passes, engine):
    with pytest.raises(UnreadableRowsError) as caught:
        fit(table(Piece(MORE), Piece(*passes)), engine=engine)
    assert caught.value.__cause__ is None
    assert fit(table(Piece(MORE), Piece(ONE)), engine=engine).certificate_ is not None


@pytest.mark.parametrize("engine", [None, "dask"])
def test_another_number_of_rows_in_the_second_pass_is_refused(client, engine):
    with pytest.raises(UnreadableRowsError):
        fit(table(Piece(MORE), Piece(ONE, ONE[:-1])), "record", engine=engine)


def test_a_person_who_moves_rows_between_parts_is_refused(client):
    """She has as many rows as before in the whole table, and more of them in one part."""
    left, right = ONE.drop(index=0), pd.concat([MORE, KNOWN])
    with pytest.raises(UnreadableRowsError):
        fit(table(Piece(MORE, right), Piece(ONE, left)))


def test_an_engine_that_cannot_work_costs_nothing():
    ledger = Ledger()
    with pytest.raises(ValueError, match="engine must be"):
        fit(table(Piece(ONE)), engine="spark", ledger=ledger)
    unready = partial(fit, table(Piece(ONE)), ledger=ledger)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed, "get_client", _no_client)
        with pytest.raises(ValueError, match="needs a client"):
            unready()
    assert len(ledger.events) == 0


def _no_client():
    raise ValueError("No global client found")


def test_no_warning_of_a_worker_depends_on_a_row(client, recwarn):
    assert map_parts(np.exp, [np.array(0.0), np.array(1e4)], engine="dask") == [1.0, np.inf]
    assert not [one for one in recwarn if issubclass(one.category, RuntimeWarning)]

"""A person moves the exact sums behind ``fit`` by her own term and by nothing else."""

import contextlib

import numpy as np
import pytest

from permea import Ledger, MomentClassifier, MomentRegressor, Privacy, SourceModel
from permea.privacy.moments import ChargedMoments
from permea.privacy.release import UnreadableRowsError
from permea.tables import Category, Date, Number, Schema

PERSON = Privacy(epsilon=1.0, delta=1e-5, unit="person", domain=(0, 1))
SCHEMA = Schema(
    {"a": Number(0, 1), "b": Number(0, 1, missing=True), "c": Category(("u",), other=True)}
    | {"when": Date("2020-01-01", "2024-12-31")}
    | {"died": Category(("no", "yes")), "score": Number(0, 1)},
    ignored=("score",),
    label="died",
    person="id",
)


@pytest.fixture
def sums(monkeypatch):
    """What ``fit`` adds up, as one vector of whole numbers; the mean is public and fixed."""
    seen = {}

    def keep_mean(self, found):
        seen["mean"] = np.append(found.features, found.weight)
        self._mean = np.linspace(-0.05, 0.05, len(found.features))
        return self._mean

    real = ChargedMoments.release

    def keep(self, found):
        parts = seen["mean"], found.second.ravel(), found.cross.ravel(), found.counts
        size = 0 if self.plan.weighted else found.n_units  # with weights it is not released
        seen["all"] = np.concatenate([*parts, [size]])
        return real(self, found)

    monkeypatch.setattr(ChargedMoments, "release_mean", keep_mean)
    monkeypatch.setattr(ChargedMoments, "release", keep)
    return seen


def world(rng, people, rows):
    ids = np.repeat(people, rows)
    return rng.random((len(ids), 3)), rng.integers(0, 2, len(ids)), ids


def fit_arrays(data, dtype, **options):
    X, y, ids = data
    MomentClassifier(privacy=PERSON, features="fourier", classes=[0, 1], **options).fit(
        X.astype(dtype), y, groups=ids
    )


def fit_numbers(data, dtype):
    X, y, ids = data
    MomentRegressor(privacy=PERSON, features="identity", output_domain=(0, 1)).fit(
        X.astype(dtype), X[:, 0] * y, groups=ids
    )


def as_frame(data, dtype):
    X, y, ids = data
    days = np.datetime64("2019-12-01") + (X[:, 0] * 1900).astype("timedelta64[D]")
    return {
        "when": days if dtype is np.float64 else days.astype(str),
        "a": X[:, 0].astype(dtype), "b": np.where(X[:, 1] < 0.1, np.nan, X[:, 1]).astype(dtype),
        "c": np.where(X[:, 2] < 0.5, "u", "v"), "died": np.where(y == 1, "yes", "no"),
        "score": X[:, 0], "id": np.char.add("p", ids.astype(str)),
    }  # fmt: skip


def fit_frame(data, dtype):
    MomentClassifier(privacy=PERSON, schema=SCHEMA, bins=5).fit(as_frame(data, dtype))


def fit_chunks(data, dtype):
    frame = as_frame(data, dtype)
    n = len(data[2])

    def chunks():
        for start in range(0, n, 700):
            yield {name: column[start : start + 700] for name, column in frame.items()}

    MomentClassifier(privacy=PERSON, schema=SCHEMA, bins=5).fit_chunks(chunks)


def fit_source(data, dtype):
    made = SourceModel(privacy=PERSON, schema=SCHEMA, neighbours="add/remove")
    made.fit(as_frame(data, dtype))


def fit_weighted(data, dtype):
    fit_arrays(data, dtype, class_weight={0: 0.3, 1: 1.0})


@pytest.mark.parametrize(
    "fit",
    [fit_arrays, fit_numbers, fit_frame, fit_chunks, fit_weighted, fit_source],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [1, 1000])
def test_a_person_adds_her_own_term(sums, fit, dtype, rows):
    """Her term is the same among other people, at any place, in any order of rows."""

    def exact(*parts):
        joined = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        fit(joined, dtype)
        return sums["all"].copy()

    rng = np.random.default_rng(rows)
    she = world(rng, [7_000_000], [rows])
    worlds = [world(rng, np.arange(n), rng.integers(1, 5, n)) for n in (301, 40)]
    terms = []
    for others in worlds:
        without = exact(others)
        order = np.random.default_rng(1).permutation(len(others[2]))
        shuffled = tuple(column[order] for column in others)
        half = [tuple(c[part] for c in others) for part in (slice(0, 33), slice(33, None))]
        assert np.array_equal(exact(shuffled), without)
        terms += [exact(others, she) - without, exact(she, shuffled) - without]
        terms.append(exact(half[0], she, half[1]) - without)
    for term in terms[1:]:
        assert np.array_equal(term, terms[0])
    assert terms[0][-1] == (fit is not fit_weighted)  # one person more
    other = world(rng, [7_000_001], [3])
    replaced = exact(worlds[0], other) - exact(worlds[0], she)
    assert replaced[-1] == 0  # the number of persons stays


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_other_lengths_are_refused(cut):
    """Rows without an output were left out in silence, and persons without a row counted."""
    data = list(world(np.random.default_rng(0), np.arange(30), 2))
    data[cut] = data[cut][:-1]
    X, y, ids = data
    model = MomentClassifier(privacy=PERSON, features="identity", classes=[0, 1])
    with pytest.raises(UnreadableRowsError):
        model.fit_chunks(lambda: [(X, y, ids)])
    with pytest.raises(UnreadableRowsError):
        model.fit(X, y, groups=ids)


@pytest.mark.parametrize("ids", ["spelled in many ways", "missing"])
def test_what_is_laid_out_before_the_charge_does_not_depend_on_her_rows(ids):
    """The number of people is public, and sets the bins; how she writes her id is not."""
    spelled = [" " * k + "p0" for k in range(4000)]
    layouts = []
    for hers in (["p0"], spelled if ids != "missing" else ["p0"] + [None] * 4000):
        rng = np.random.default_rng(0)
        frame = as_frame(world(rng, np.arange(300), np.r_[len(hers), np.ones(299, int)]), float)
        frame["id"] = np.append(np.array(hers, dtype=object), frame["id"][len(hers) :])
        clf = MomentClassifier(privacy=PERSON, schema=SCHEMA, ledger=Ledger())
        with contextlib.suppress(UnreadableRowsError):
            clf.fit(frame)
        layouts.append((clf.map_.n_features_out_, clf.ledger.events[-1].description))
    assert layouts[0] == layouts[1]

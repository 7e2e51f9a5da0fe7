"""Rule 8 of the wall: what comes after the release is post-processing.

The wall is made blind: it releases the same, whatever rows it is given. Then two fits on different
rows must learn the same to the last bit; a difference came around the wall. Two settings of
document 004 that really read raw rows a second time, and leaks that are put in on purpose, are the
controls that this test must catch.
"""

import inspect
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import permea
from permea import (
    FuzzyClassifier,
    HullClassifier,
    KAHMClassifier,
    KernelAffineHullMachine,
    MembershipClassifier,
    MomentClassifier,
    MomentRegressor,
    Privacy,
    ReconstructionClassifier,
    SourceModel,
    fabricate,
    fabricate_records,
    release,
)
from permea.cli.app import run
from permea.cli.table_model import TableClassifier, unit_privacy
from permea.privacy import Budget, BudgetExceededError, Ledger
from permea.privacy.moments import ChargedMoments, FeatureSums
from permea.privacy.release import ChargedRows

N, P = 90, 5
ENTRY = Privacy(epsilon=2, domain=(0, 1))
RECORD = Privacy(epsilon=2, delta=1e-5, unit="record", domain=(0, 1))
LABELS = np.repeat([0, 1, 2], N // 3)
SEED = 0  # the noise must repeat, so that only the rows differ


def kahm(**options):
    return KAHMClassifier(n_components=3, n_layers=2, branch_size=25, **options)


def general(**options):
    model = KernelAffineHullMachine(n_components=3)
    return ReconstructionClassifier(model, n_layers=2, branch_size=25, **options)


FAMILIES = {
    "kahm": kahm,
    "membership": lambda **o: MembershipClassifier(n_components=3, n_layers=2, branch_size=25, **o),
    "fuzzy": lambda **o: FuzzyClassifier(n_components=3, branch_size=25, **o),
    "general": general,
}


def family(name, **options):
    return lambda: FAMILIES[name](privacy=ENTRY, random_state=SEED, **options)


def moments(kind, **options):
    return lambda: kind(privacy=RECORD, features="identity", random_state=SEED, **options)


def drawn(name):
    return lambda: FAMILIES[name](
        privacy=RECORD, features="identity", classes=range(3), rows_per_class=30, random_state=SEED
    )


def table_model():
    inner = kahm(privacy=unit_privacy(ENTRY), random_state=SEED)
    return TableClassifier(inner, columns=list("abcde"), label="y", privacy=ENTRY)


ESTIMATORS = {
    **{
        f"{name}, fabricate={way}": family(name, fabricate=way)
        for name in FAMILIES
        for way in (False, True, "discrepancy")
    },
    "source": lambda: SourceModel(privacy=ENTRY, random_state=SEED),
    "source, per record": lambda: SourceModel(privacy=RECORD, classes=range(3), random_state=SEED),
    "source, per record, add/remove, kahm": lambda: SourceModel(
        privacy=RECORD,
        classes=range(3),
        random_state=SEED,
        neighbours="add/remove",
        classifier=kahm(rows_per_class=30),
    ),
    "moment classifier": moments(MomentClassifier, classes=range(3)),
    "moment classifier, add/remove": moments(
        MomentClassifier, classes=range(3), neighbours="add/remove"
    ),
    "hulls": moments(HullClassifier, classes=range(3), n_directions=3),
    "hulls, add/remove": moments(
        HullClassifier, classes=range(3), neighbours="add/remove", metric="likelihood"
    ),
    **{f"{name}, per record": drawn(name) for name in FAMILIES},
    "moment regressor": moments(MomentRegressor, output_domain=(0, 2)),
    "moment regressor, ridge": moments(MomentRegressor, output_domain=(0, 2), inference="ridge"),
    "table": table_model,
}
READ_RAW_ROWS = {  # settings of document 004 that look at the rows behind the wall
    f"{name}, {option}": family(name, **options)
    for name in FAMILIES
    for option, options in {
        "stop": {"fabricate": "original"},
        "clusters": {"partition_on": "original"},
    }.items()
}


def raw(which):
    rows = np.random.default_rng(1).random((N, P))
    if which == "one entry":
        rows[40, 2] = 1.0 - rows[40, 2]
    if which == "all rows":
        rows = 0.02 * np.random.default_rng(2).random((N, P)) ** 3
    return rows


@pytest.fixture
def blind_wall(monkeypatch):
    """A wall through which nothing of the rows passes but their number."""
    passed = []
    release_rows = ChargedRows.release
    noise_mean, release = ChargedMoments.release_mean, ChargedMoments.release

    def rows(self, X, **options):
        passed.append(np.shape(X))
        made_up = np.random.default_rng(99).random(np.shape(X)).astype(np.asarray(X).dtype)
        return release_rows(self, made_up, **options)

    def mean(self, sums):
        return noise_mean(self, FeatureSums(np.zeros_like(sums.features), sums.weight))

    def moments(self, sums):
        passed.append(sums.second.shape)
        none = {name: np.zeros_like(getattr(sums, name)) for name in ("second", "cross", "counts")}
        return release(self, replace(sums, **none))

    def no_sums(stage):
        release_stage = getattr(ChargedMoments, stage)

        def without(self, sums, *given):
            return release_stage(self, np.zeros_like(sums), *given)

        monkeypatch.setattr(ChargedMoments, stage, without)

    for stage in ("release_scatter", "release_losses", "release_gradient"):
        no_sums(stage)
    monkeypatch.setattr(ChargedRows, "release", rows)
    monkeypatch.setattr(ChargedMoments, "release_mean", mean)
    monkeypatch.setattr(ChargedMoments, "release", moments)
    return passed


def learned(value, path="model"):
    """Everything that an object holds, as pairs of a place and a value that can be compared."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        yield path, (value.dtype.str, value.shape, value.tobytes())
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from learned(value[key], f"{path}[{key!r}]")
    elif isinstance(value, list | tuple | np.ndarray):
        for place, item in enumerate(value):
            yield from learned(item, f"{path}[{place}]")
    elif is_dataclass(value):
        for one in fields(value):
            yield from learned(getattr(value, one.name), f"{path}.{one.name}")
    elif hasattr(value, "__dict__") and not callable(value):
        yield from learned(vars(value), path)
    else:
        yield path, repr(value)


def differences(make, one="as they are", other="all rows"):
    """Places in which two fitted models differ that were given different rows."""
    found = [dict(learned(make().fit(raw(which), LABELS))) for which in (one, other)]
    assert len(found[0]) > 5
    return {place for place in found[0] | found[1] if found[0].get(place) != found[1].get(place)}


@pytest.mark.parametrize("other", ["one entry", "all rows"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_is_learned_comes_through_the_wall(blind_wall, name, other):
    assert differences(ESTIMATORS[name], other=other) == set()
    assert len(blind_wall) == 2, "each fit passes the wall once"


@pytest.mark.parametrize("name", READ_RAW_ROWS)
def test_settings_that_read_raw_rows_are_caught(blind_wall, name):
    """Negative control: the check of 0.1 passed with these as well, so it could not fail."""
    assert differences(READ_RAW_ROWS[name])
    certificate = READ_RAW_ROWS[name]().fit(raw("as they are"), LABELS).certificate_
    assert certificate.void_reasons


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_leak_of_one_entry_is_caught(blind_wall, monkeypatch, name):
    """Negative control for every estimator: a fit that keeps one number about the raw rows."""
    make = ESTIMATORS[name]
    kind = type(make())
    fit = kind.fit

    def leaking_fit(self, X, y):
        fit(self, X, y)
        self.scale_ = np.abs(X).max()
        return self

    monkeypatch.setattr(kind, "fit", leaking_fit)
    assert differences(make) == {"model['scale_']"}


def test_every_estimator_with_privacy_is_covered():
    public = [getattr(permea, name) for name in permea.__all__]
    with_privacy = {
        kind
        for kind in public
        if inspect.isclass(kind) and issubclass(kind, BaseEstimator)
        and "privacy" in inspect.signature(kind).parameters
    }  # fmt: skip
    assert with_privacy <= {type(make()) for make in ESTIMATORS.values()}


def fabricated(rows, stop):
    noised = release(rows, ENTRY, random_state=SEED).data
    return fabricate(
        noised, n_components=3, stop=stop, noise_variance=0.01, original=rows, branch_size=30,
        random_state=SEED,
    )  # fmt: skip


@pytest.mark.parametrize(("stop", "same"), [(1, True), ("discrepancy", True), ("original", False)])
def test_fabricated_rows_come_through_the_wall(blind_wall, stop, same):
    one, other = (
        dict(learned(fabricated(raw(which), stop))) for which in ("as they are", "all rows")
    )
    assert (one == other) == same


def test_fabricated_records_come_through_the_wall(blind_wall):
    one, other = (
        fabricate_records(raw(which), labels, privacy=RECORD, classes=range(3), random_state=SEED)
        for which, labels in (("as they are", LABELS), ("all rows", LABELS[::-1]))
    )
    assert dict(learned(one)) == dict(learned(other))


COMMANDS = {
    "train": ["train", "data.csv", "--components", "3", "--layers", "2", "-o", "out.permea"],
    "train --fabricate": [
        "train", "data.csv", "--components", "3", "--layers", "2", "--fabricate",
        "-o", "out.permea",
    ],
    "source": ["source", "data.csv", "--components", "3", "--layers", "2", "-o", "out.permea"],
    "source --unit record": [
        "source", "data.csv", "--unit", "record", "--delta", "1e-5", "--class", "0", "--class", "1",
        "--class", "2", "-o", "out.permea",
    ],
    "fabricate": ["fabricate", "data.csv", "--components", "3", "-o", "out.csv"],
}  # fmt: skip
PROMISE = ["--epsilon", "2", "--domain", "0", "1", "--seed", str(SEED)]


def written(folder, monkeypatch, words, which):
    """What a command writes for a table."""
    place = folder / which.replace(" ", "-")
    place.mkdir()
    monkeypatch.chdir(place)
    lines = [",".join([*map(repr, row), str(label)]) for row, label in zip(raw(which).tolist(),
             LABELS.tolist(), strict=True)]  # fmt: skip
    (place / "data.csv").write_text("\n".join(["a,b,c,d,e,y", *lines]) + "\n")
    assert run([*words, "--label", "y", "--quiet"]) == 0
    return next(place.glob("out.*")).read_bytes()


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_writes_comes_through_the_wall(blind_wall, tmp_path, monkeypatch, name):
    words = [*COMMANDS[name], *PROMISE]
    files = {written(tmp_path, monkeypatch, words, which) for which in ("one entry", "all rows")}
    assert len(files) == 1


def test_a_model_file_with_raw_rows_is_caught(blind_wall, tmp_path, monkeypatch):
    """Negative control of the test above."""
    words = [*COMMANDS["train"], "--not-private"]
    files = {written(tmp_path, monkeypatch, words, which) for which in ("one entry", "all rows")}
    assert len(files) == 2


def test_a_private_fit_is_different_every_time_and_a_seeded_one_says_so():
    X = raw("as they are")
    one, two = (kahm(privacy=ENTRY).fit(X, LABELS) for _ in range(2))
    assert np.any(one.distances(X) != two.distances(X))
    assert one.certificate_.is_private
    seeded = kahm(privacy=ENTRY, random_state=1).fit(X, LABELS)
    assert "not private: seeded" in str(seeded.certificate_)


def test_the_budget_is_checked_before_anything_is_computed():
    ledger = Ledger(budget=Budget(epsilon=3.0, delta=0.0, unit="entry"))
    clf = kahm(privacy=ENTRY, ledger=ledger).fit(raw("as they are"), LABELS)
    with pytest.raises(BudgetExceededError):
        clf.fit(raw("as they are"), LABELS)

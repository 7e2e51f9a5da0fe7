"""Parties whose models rest on class moments: the minimum of their distances, in common units."""

from dataclasses import replace

import numpy as np
import pytest
from federation_world import blobs

from permea import HullClassifier, KAHMClassifier, Privacy, load, save
from permea.compose import matching_scores
from permea.federation import Federation, Party
from permea.federation.party import typical_distance
from permea.federation.service.config import ConfigError, PartyConfig
from permea.federation.service.deploy import train_model

RECORD = Privacy(epsilon=16, delta=1e-5, unit="record", domain=(0, 1))
X, Y = blobs(n_rows=400)
MINE = (Y < 2, Y > 0)  # two parties: neither knows all classes


def hulls(rows, classes, **options):
    options = {"privacy": RECORD, "features": "identity", "random_state": 0, **options}
    return HullClassifier(classes=classes, **options).fit(X[rows], Y[rows])


def drawn(rows, classes):
    family = KAHMClassifier(n_components=3, n_layers=2, rows_per_class=60, random_state=0)
    return family.learn_drawn(hulls(rows, classes))


def party(name, model):
    return Party(name, model, consent="seeded")


def parties(kind=hulls):
    return [party("a", kind(MINE[0], [0, 1])), party("b", kind(MINE[1], [1, 2]))]


@pytest.mark.parametrize("kind", [hulls, drawn])
def test_the_nearest_class_of_the_nearest_party_wins(kind):
    a, b = parties(kind)
    federation = Federation([a, b])
    assert federation.classes_.tolist() == [0, 1, 2]
    both = np.stack([one.distances(X, classes=(0, 1, 2)) for one in (a, b)])
    assert np.isinf(both[0, :, 2]).all()
    assert np.isinf(both[1, :, 0]).all()
    assert np.array_equal(federation.distances(X), both.min(axis=0))
    assert federation.score(X, Y) > 0.95
    assert np.array_equal(federation.matching_scores(X), matching_scores(both.min(axis=0)))


@pytest.mark.parametrize("kind", [hulls, drawn])
def test_distances_leave_in_multiples_of_what_is_typical(kind, tmp_path):
    model = kind(np.ones(len(Y), bool), [0, 1, 2])
    one = party("a", model)
    unit = typical_distance(model)
    assert one.unit_of_distance == unit > 0
    assert np.array_equal(one.distances(X), model.distances(X) / unit)
    own = one.distances(X)[np.arange(len(X)), Y]
    assert 0.5 < np.sqrt(np.mean(own**2)) < 2  # rows of a class are about 1 away from it
    save(model, tmp_path / "a.permea")
    assert typical_distance(load(tmp_path / "a.permea")) == unit


def test_a_party_with_other_coordinates_is_as_far_away():
    """In a tenth of the directions distances are shorter, in typical units they are not."""
    everyone = np.ones(len(Y), bool)
    wide, narrow = (hulls(everyone, [0, 1, 2], n_directions=d) for d in (4, 1))
    raw = [np.median(one.distances(X).min(axis=1)) for one in (wide, narrow)]
    told = [np.median(party("a", one).distances(X).min(axis=1)) for one in (wide, narrow)]
    assert raw[1] < 0.6 * raw[0]
    assert abs(np.log(told[1] / told[0])) < abs(np.log(raw[1] / raw[0]))


def test_models_of_rows_keep_the_units_of_the_features():
    entry = Privacy(epsilon=16, domain=(0, 1))
    model = KAHMClassifier(n_components=2, n_layers=1, privacy=entry, random_state=0).fit(X, Y)
    assert typical_distance(model) == 1.0


def test_models_that_are_sent_answer_in_the_same_units():
    members = parties()
    there = Federation(members, topology="models")
    assert np.array_equal(there.distances(X), Federation(members).distances(X))


def test_encrypted_distances_name_the_same_classes():
    pytest.importorskip("seal")
    members, scale = parties(), (0.0, 4.0)
    opened = Federation(members)
    distances = np.sort(opened.distances(X[::20]), axis=1)
    sure = (distances[:, 1] - distances[:, 0] > 2 * 4 / 62) & (distances[:, 0] < 4)
    secret = Federation(members, encrypted=True, bits=6, scale=scale)
    assert sure.mean() > 0.8
    assert np.array_equal(secret.predict(X[::20])[sure], opened.predict(X[::20])[sure])


# ---- a party trains by its configuration ---------------------------------------------------------

PARTY = """
[party]
name = "a"
model = "a.permea"
[server]
address = "127.0.0.1:1"
ca = "ca.crt"
key = "a.key"
[train]
data = "rows.npz"
epsilon = 8
delta = 1e-5
low = 0
high = 1
"""


def config(folder, text):
    path = folder / "a.toml"
    path.write_text(PARTY + text)
    return PartyConfig.from_file(path)


@pytest.mark.parametrize("unit", ["record", "person"])
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('family = "hulls"\nfeatures = "identity"\nn_directions = 3\n', HullClassifier),
        ('family = "kahm"\nfeatures = "identity"\nn_components = 3\nn_layers = 1\n',
         KAHMClassifier),
    ],
)  # fmt: skip
def test_a_party_trains_on_class_moments(tmp_path, unit, text, kind):
    whose = {"groups": np.arange(len(Y)) // 2} if unit == "person" else {}
    np.savez(tmp_path / "rows.npz", X=X, y=Y, **whose)
    made = config(tmp_path, f'unit = "{unit}"\nclasses = [0, 1, 2]\n{text}')
    train_model(made)
    model = load(made.model)
    assert isinstance(model, kind)
    assert model.certificate_.privacy.unit == unit
    assert model.certificate_.is_private
    assert "second moments of each class" in model.certificate_.released
    federation = Federation([made.party()])
    assert federation.score(X, Y) > 0.8
    assert replace(model.certificate_.privacy, domain=None).epsilon == 8


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('family = "membership"\ndisturbance = "gamma"\nnu = inf\nmax_inducing = 0.25\n',
         {"disturbance": "gamma", "nu": np.inf, "max_inducing": 0.25}),
        ('family = "membership"\nkappa = 0.05\n', {"kappa": 0.05}),
        ('family = "fuzzy"\nn_rules = 5\nbranch_size = 40\n', {"n_rules": 5, "branch_size": 40}),
        ("fabricate = 2\nbound = 0.5\n", {"fabricate": 2}),
        ("n_layers = 5\n", {"n_layers": 5}),
    ],
)  # fmt: skip
def test_a_party_can_set_what_the_documents_name(tmp_path, text, values):
    np.savez(tmp_path / "rows.npz", X=X, y=Y)
    made = config(tmp_path, f"n_components = 2\n{text}")
    train_model(made)
    model = load(made.model)
    assert {name: getattr(model, name) for name in values} == values
    assert model.certificate_.privacy.bound == (0.5 if "bound" in text else None)
    assert model.certificate_.is_private


def test_a_party_may_choose_the_order_of_the_document(tmp_path):
    made = config(tmp_path, 'partition_on = "original"\n')
    assert made.training.model().partition_on == "original"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("n_rules = 5\n", "has no"),
        ('family = "hulls"\nunit = "record"\n', "classes is missing"),
        ('unit = "person"\nrows_per_person = 2\n', "classes is missing"),
        ('family = "trees"\n', "family in .train. must be one of"),
        ('family = "hulls"\nunit = "record"\nclasses = [0, 1]\nn_layers = 2\n', "has no"),
        ("n_directions = 2\n", "has no"),
    ],
)
def test_mistakes_in_train_are_named(tmp_path, text, told):
    with pytest.raises(ConfigError, match=told):
        config(tmp_path, text)

"""Model files: exact round trips, and clear words about everything that is wrong with a file."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import permea
from permea import KAHMClassifier, KernelAffineHullMachine, Privacy, load, save
from permea.storage import StorageError, read_manifest

PRIVACY = Privacy(epsilon=4, delta=1e-5, domain=(0, 1))


@pytest.fixture
def data():
    random = np.random.default_rng(0)
    return random.random((60, 4)), np.repeat(["no", "yes", "maybe"], 20)


@pytest.fixture
def model(data):
    return KAHMClassifier(n_components=3, n_layers=2, privacy=PRIVACY, branch_size=10).fit(*data)


def rewritten(path, change_metadata=None, change_tensors=None):
    with safe_open(path, framework="numpy") as container:
        metadata = container.metadata()
        tensors = {name: container.get_tensor(name) for name in container.keys()}  # noqa: SIM118
    if change_metadata:
        change_metadata(metadata)
    if change_tensors:
        change_tensors(tensors)
    save_file(tensors, path, metadata=metadata)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_round_trip_is_exact(data, tmp_path, dtype):
    X, y = data
    clf = KAHMClassifier(n_components=3, n_layers=2, privacy=PRIVACY).fit(X.astype(dtype), y)
    again = load(save(clf, tmp_path / "model.permea"))
    np.testing.assert_array_equal(again.distances(X.astype(dtype)), clf.distances(X.astype(dtype)))
    np.testing.assert_array_equal(again.predict(X.astype(dtype)), clf.predict(X.astype(dtype)))
    assert again.certificate_ == clf.certificate_
    assert again.get_params()["privacy"] == PRIVACY
    assert again.holds_private_rows_ is False


def test_feature_names_survive(data, tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    clf = KAHMClassifier(n_components=2, n_layers=1, privacy=PRIVACY).fit(frame, y)
    again = load(save(clf, tmp_path / "model.permea"))
    assert list(again.feature_names_in_) == list("abcd")
    np.testing.assert_array_equal(again.predict(frame), clf.predict(frame))


def test_raw_rows_are_refused_until_words_allow_them(data, tmp_path):
    plain = KAHMClassifier(n_components=3, n_layers=2).fit(*data)
    with pytest.raises(StorageError, match="contains its training rows"):
        save(plain, tmp_path / "model.permea")
    assert not list(tmp_path.iterdir())
    path = save(plain, tmp_path / "model.permea", private_rows="include")
    assert read_manifest(path)["holds_private_rows"] is True
    with pytest.raises(StorageError, match="include"):
        save(plain, tmp_path / "model.permea", private_rows="yes")


def test_a_bare_machine_counts_as_holding_rows(data, tmp_path):
    with pytest.raises(StorageError, match="contains its training rows"):
        save(KernelAffineHullMachine(n_components=2).fit(data[0]), tmp_path / "m.permea")


def test_the_seeds_stopping_rule_leaves_a_mark(data, tmp_path):
    clf = KAHMClassifier(n_components=2, n_layers=1, privacy=PRIVACY, fabricate="original")
    with pytest.raises(StorageError, match="contains its training rows"):
        save(clf.fit(*data), tmp_path / "m.permea")


def test_the_manifest_tells_the_certificate_without_building_the_model(model, tmp_path):
    manifest = read_manifest(save(model, tmp_path / "model.permea"))
    assert manifest["certificate"]["privacy"]["epsilon"] == 4
    assert manifest["permea"] == permea.__version__


def test_no_private_row_can_be_found_in_the_file(data, model, tmp_path):
    X, _ = data
    content = save(model, tmp_path / "model.permea").read_bytes()
    for row in X:
        assert row.tobytes() not in content
        assert row[:1].tobytes() not in content


def test_ledgers_and_generators_stay_behind(data, tmp_path):
    clf = KAHMClassifier(
        n_components=2,
        n_layers=1,
        privacy=PRIVACY,
        ledger=permea.Ledger(),
        random_state=np.random.RandomState(0),
    ).fit(*data)
    again = load(save(clf, tmp_path / "model.permea"))
    assert again.ledger is None
    assert again.random_state is None


def test_changed_numbers_are_found(model, tmp_path):
    path = save(model, tmp_path / "model.permea")

    def nudge(tensors):
        name = next(name for name, array in tensors.items() if array.dtype.kind == "f")
        tensors[name] = tensors[name] + 1

    rewritten(path, change_tensors=nudge)
    with pytest.raises(StorageError, match="numbers were changed"):
        load(path)


def test_a_changed_certificate_is_found(model, tmp_path):
    path = save(model, tmp_path / "model.permea")

    def lie(metadata):
        metadata["permea"] = metadata["permea"].replace('"epsilon": 4.0', '"epsilon": 0.1')

    rewritten(path, change_metadata=lie)
    with pytest.raises(StorageError, match="manifest was changed"):
        load(path)


def test_a_future_format_asks_for_an_update(model, tmp_path):
    import hashlib

    path = save(model, tmp_path / "model.permea")

    def age(metadata):
        manifest = json.loads(metadata["permea"])
        manifest["schema"] = 99
        metadata["permea"] = json.dumps(manifest)
        metadata["sha256"] = hashlib.sha256(metadata["permea"].encode()).hexdigest()

    rewritten(path, change_metadata=age)
    with pytest.raises(StorageError, match="newer format"):
        load(path)


def test_foreign_classes_are_not_built(model, tmp_path):
    import hashlib

    path = save(model, tmp_path / "model.permea")

    def smuggle(metadata):
        manifest = json.loads(metadata["permea"])
        manifest["model"]["object"] = "subprocess:Popen"
        metadata["permea"] = json.dumps(manifest)
        metadata["sha256"] = hashlib.sha256(metadata["permea"].encode()).hexdigest()

    rewritten(path, change_metadata=smuggle)
    with pytest.raises(StorageError, match="does not have"):
        load(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x00" * 100])
def test_other_files_are_named_as_such(tmp_path, content):
    path = tmp_path / "model.permea"
    path.write_bytes(content)
    with pytest.raises(StorageError, match="damaged, cut short or not a model file"):
        load(path)


def test_a_truncated_file_is_named_as_such(model, tmp_path):
    path = save(model, tmp_path / "model.permea")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StorageError, match="cut short"):
        load(path)


def test_a_safetensors_file_of_somebody_else_is_named_as_such(tmp_path):
    save_file({"weights": np.zeros(3)}, tmp_path / "model.permea")
    with pytest.raises(StorageError, match="did not write it"):
        load(tmp_path / "model.permea")


def test_missing_files_and_folders_are_named(model, tmp_path):
    with pytest.raises(StorageError, match="not a file"):
        load(tmp_path / "nothing.permea")
    with pytest.raises(StorageError, match="does not exist"):
        save(model, tmp_path / "no" / "model.permea")


def test_an_interrupted_write_leaves_the_old_file(model, tmp_path, monkeypatch):
    path = save(model, tmp_path / "model.permea")
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("permea.storage.save_file", fail)
    with pytest.raises(KeyboardInterrupt):
        save(model, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_saved_is_named(tmp_path):
    from sklearn.svm import SVC

    with pytest.raises(StorageError, match=r"sklearn\.svm"):
        save(SVC(), tmp_path / "m.permea", private_rows="include")

"""Data sets: declared ranges hold, files are found where the user says, and errors help."""

import numpy as np
import pytest

from permea import datasets
from permea.datasets import files


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "wine", "iris"])
def test_embedded_sets_lie_in_their_declared_domain(name):
    data = getattr(datasets, f"load_{name}")()
    assert data.X.min() >= 0
    assert data.X.max() <= 1
    assert data.X.shape == (len(data.y), len(data.feature_names))
    assert set(np.unique(data.y)) == set(range(len(data.class_names)))
    assert (data.ranges[:, 0] < data.ranges[:, 1]).all()


@pytest.mark.parametrize("name", ["breast_cancer", "wine", "iris"])
def test_ranges_are_rounded_declarations_and_not_the_data_s_own(name):
    data = getattr(datasets, f"load_{name}")()
    widest = data.X.max(axis=0) - data.X.min(axis=0)
    assert (widest < 1).all()  # a range read off the data would be filled to both ends
    assert (widest > 0.05).all()  # and an absurdly wide one would drown everything in noise


def make_pictures(folder, name="mnist.npz"):
    pictures = np.full((3, 28, 28), 255, np.uint8)
    np.savez(folder / name, x_train=pictures, y_train=[1, 2, 3], x_test=pictures, y_test=[1, 2, 3])


def test_pictures_are_read_from_the_named_folder(tmp_path, monkeypatch):
    make_pictures(tmp_path)
    monkeypatch.setenv("PERMEA_DATA", str(tmp_path))
    mnist = datasets.load_mnist()
    assert mnist.X_train.shape == (3, 784)
    assert mnist.X_train.dtype == np.float32
    assert mnist.X_train.max() == 1
    assert mnist.shape == (28, 28)


@pytest.mark.parametrize(
    "load",
    [
        datasets.load_mnist,
        datasets.load_usps,
        datasets.load_office,
        lambda: datasets.load_office("efficientnet"),
        lambda: datasets.load_rr("cogload1"),
        lambda: datasets.load_rr("stress_predict"),
    ],
)
def test_a_missing_file_says_what_where_and_how(tmp_path, monkeypatch, load):
    monkeypatch.setenv("PERMEA_DATA", str(tmp_path))
    with pytest.raises(datasets.MissingDataError, match="PERMEA_DATA") as caught:
        load()
    text = str(caught.value)
    assert str(tmp_path) in text
    assert ".npz" in text
    assert "It holds" in text


def test_damaged_and_incomplete_files_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PERMEA_DATA", str(tmp_path))
    (tmp_path / "mnist.npz").write_bytes(b"PK no more")
    with pytest.raises(ValueError, match="damaged"):
        datasets.load_mnist()
    np.savez(tmp_path / "usps.npz", x_train=np.zeros((1, 16, 16)))
    with pytest.raises(ValueError, match="lacks y_train, x_test, y_test"):
        datasets.load_usps()


def test_without_a_named_folder_the_cache_is_used(tmp_path, monkeypatch):
    monkeypatch.delenv("PERMEA_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(files, "__file__", str(tmp_path / "site" / "permea" / "datasets" / "f.py"))
    assert datasets.data_folder() == tmp_path / "permea"


def test_beside_a_checkout_the_shared_folder_is_used(tmp_path, monkeypatch):
    monkeypatch.delenv("PERMEA_DATA", raising=False)
    root = tmp_path / "main"
    (root / "src" / "permea" / "datasets").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    (tmp_path / "shared" / "data").mkdir(parents=True)
    monkeypatch.setattr(files, "__file__", str(root / "src" / "permea" / "datasets" / "files.py"))
    assert datasets.data_folder() == tmp_path / "shared" / "data"


@pytest.mark.slow
def test_real_files_have_the_documented_sizes():
    assert datasets.load_mnist().X_train.shape == (60000, 784)
    assert datasets.load_usps().X_test.shape == (2007, 256)
    assert len(datasets.load_office()["caltech10"][1]) == 1123
    assert len(np.unique(datasets.load_rr("stress_predict")["subject"])) == 35

"""Files of R-R intervals: forms people have, units, and errors that name the place only."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from permea.datasets import load_recordings, make_windows, read_rr, read_wfdb
from permea.datasets.heartbeats import TERMS


def write(folder, text, name="ada.txt"):
    path = folder / name
    path.write_text(text)
    return path


def test_one_value_per_line(tmp_path):
    person = read_rr(write(tmp_path, "# made up\n0.8\n\n0.9\n"))
    assert person.subject == "ada"
    assert person.intervals.tolist() == [0.8, 0.9]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("812\n0\n790\n", {}, [0.812, 0, 0.790]),
        ("0.812\n0\n", {}, [0.812, 0]),
        ("9\n800\n", {"unit": "ms"}, [0.009, 0.8]),
        ("rr_ms\n812\n", {}, [0.812]),
    ],
)
def test_units(tmp_path, text, options, expected):
    assert read_rr(write(tmp_path, text), **options).intervals.tolist() == pytest.approx(expected)


def test_a_table_with_times_scores_and_ratings(tmp_path):
    terms = ",".join(TERMS)
    path = write(
        tmp_path,
        f"note,t,rr,stress,{terms}\nx,1.0,800,20,1,2,3,4,5,6\ny,1.9,,80,11,12,13,14,15,16\n",
        "day 1.csv",
    )
    person = read_rr(path, time="t", score="stress", ratings=TERMS, subject="bob")
    assert person.subject == "bob"
    assert person.intervals[0] == 0.8
    assert np.isnan(person.intervals[1])
    assert person.times.tolist() == [1.0, 1.9]
    assert person.score.tolist() == [20, 80]
    assert person.ratings[1].tolist() == [11, 12, 13, 14, 15, 16]


def test_semicolons_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "ada.csv"
    path.write_text("IBI;t\n0.8;1\n0.9;2\n", encoding="utf-8-sig")
    assert read_rr(path).intervals.tolist() == [0.8, 0.9]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "no line of data"),
        ("# only words\n", {}, "no line of data"),
        ("rr\n", {}, "no row of data"),
        ("0.8\nsecret\n", {}, "row 2 is not a number"),
        ("9\n800\n", {}, "seconds or milliseconds"),
        ("0.8\n-0.7\n", {}, "negative or infinite"),
        ("0.8\ninf\n", {}, "negative or infinite"),
        ("0.8,1\n0.9,2\n", {}, "no header line"),
        ("rr,t\n0.8\n", {}, "another number of cells in row 1"),
        ("rr,ibi\n0.8,0.8\n", {}, "which column"),
        ("a,b\n0.8,0.8\n", {}, "which column"),
        ("rr,t\n0.8,1\n", {"column": "beat"}, "no column 'beat'. It has: rr, t"),
        ("rr,t\n0.8,secret\n", {"time": "t"}, "column 't', row 1 is not a number"),
        ("0.8\n", {"score": "stress"}, "no column 'stress'"),
        ("rr\n0.8\n", {"ratings": ["a"]}, "6 columns: mental demand"),
        ("rr\n0.8\n", {"unit": "hours"}, '"auto", "s" or "ms"'),
    ],
)
def test_bad_files_are_told_without_their_content(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_rr(write(tmp_path, text), **options)
    assert "secret" not in str(caught.value)


def annotations(symbols="NN+VN", samples=(0, 90, 100, 170, 260), fs=100):
    notes = SimpleNamespace(symbol=list(symbols), sample=np.array(samples), fs=fs)
    asked = []
    module = SimpleNamespace(rdann=lambda record, ending: asked.append((record, ending)) or notes)
    return module, asked


def test_annotations_of_beats_become_intervals(monkeypatch):
    module, asked = annotations()
    monkeypatch.setitem(sys.modules, "wfdb", module)
    person = read_wfdb("records/100", annotator="qrs")
    assert asked == [("records/100", "qrs")]
    assert person.subject == "100"
    assert person.intervals.tolist() == pytest.approx([0.9, 0.8, 0.9])  # "+" marks no beat
    assert person.times.tolist() == pytest.approx([0.9, 1.7, 2.6])


@pytest.mark.parametrize(
    ("options", "message"), [({"fs": None}, ".hea"), ({"symbols": "N++++"}, "fewer than two")]
)
def test_annotations_that_cannot_be_used(monkeypatch, options, message):
    monkeypatch.setitem(sys.modules, "wfdb", annotations(**options)[0])
    with pytest.raises(ValueError, match=message):
        read_wfdb("100")


def test_without_wfdb_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "wfdb", None)
    with pytest.raises(ImportError, match=r"permea\[heartbeats\]"):
        read_wfdb("100")


def test_public_sets_become_recordings(tmp_path, monkeypatch):
    monkeypatch.setenv("PERMEA_DATA", str(tmp_path))
    tlx = np.array([[-1] * 7, [18, 1, 2, 3, 4, 5, 3], [30, 5, 5, 5, 5, 5, 5]], np.int8)
    np.savez(
        tmp_path / "rr_cogload1.npz", user=[0, 0, 7], t_sec=[0, 1, 0], task=[0] * 3,
        level=[0] * 3, segment=[0] * 3, rr_sec=np.float32([0.8, 0.9, 0.7]), tlx=tlx,
        tlx_columns=list("abcdefg"), user_names=["a", "b"],
    )  # fmt: skip
    first, second = load_recordings("cogload1")
    assert (first.subject, second.subject) == ("cogload-00", "cogload-07")
    assert np.isnan(first.score[0])
    assert first.ratings[1].tolist() == [0, 25, 50, 75, 100, 50]
    assert first.score[1] == 50
    assert second.score[0] == 100
    np.savez(
        tmp_path / "rr_stress_predict.npz", subject=[3, 3, 3], t_unix=[1e9, 1e9 + 1, 1e9 + 2],
        ibi_sec=[0.8, 0.9, 0.7], label=np.int8([-1, 0, 1]),
    )  # fmt: skip
    (person,) = load_recordings("stress_predict")
    assert np.isnan(person.score[0])
    assert person.score[1:].tolist() == [0, 100]
    assert person.times.tolist() == [0, 1, 2]


@pytest.mark.slow
def test_real_recordings_give_rows():
    cogload, stress = (load_recordings(name) for name in ("cogload1", "stress_predict"))
    assert (len(cogload), len(stress)) == (23, 35)
    windows = make_windows(cogload)
    assert windows.X.shape[1] == 217
    assert len(windows) > 30000
    assert windows.X.min() >= 0.3
    assert np.isfinite(windows.score).sum() > 10000


@pytest.mark.slow
def test_a_real_annotation_file_is_read(tmp_path):
    """Written and read by the package itself; ``make test-slow`` installs it."""
    wfdb = pytest.importorskip("wfdb", reason="needs the extra heartbeats or peers")
    beats = np.cumsum([100, 250, 240, 260, 255])
    symbols = ["N", "N", "V", "+", "N"]
    wfdb.wrann("person", "atr", beats, symbol=symbols, fs=250, write_dir=str(tmp_path))
    person = read_wfdb(tmp_path / "person")
    assert person.subject == "person"
    np.testing.assert_allclose(person.intervals, np.diff(beats[[0, 1, 2, 4]]) / 250)

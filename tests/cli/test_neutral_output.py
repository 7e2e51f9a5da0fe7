"""Names from strangers on their way out: no spreadsheet runs them, no terminal obeys them."""

import csv
import io
import json
import os
import stat

import numpy as np
import pandas as pd
import pytest

from permea._text import safe_cell, safe_json, safe_text

from .conftest import PRIVATE, Shell, table

FORMULA = "=cmd|' /C calc'!A0"
ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202elive"
WICKED = {"ill": FORMULA, "well": ESCAPE}
OBEYED = set("\x1b\x07\x9b\u202e\x7f\r")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """A model whose classes are a formula and an escape sequence, and rows with such ids."""
    folder = tmp_path_factory.mktemp("stranger")
    data, new = table(120, 1), table(80, 2)
    data["y"] = data["y"].map(WICKED)
    new["id"] = ["@SUM(A1)", "+1+1", "-2+3", "=1", "plain", "\t=1", "-1.5", "\x1b[31m"] * 10
    data.to_csv(folder / "data.csv", index=False)
    new.drop(columns="y").to_csv(folder / "new.csv", index=False)
    shell = Shell(folder)
    done = shell("train", "data.csv", "--label", "y", "--id", "id", *PRIVATE, "-o", "model.permea")
    assert done.code == 0, done.err
    assert not OBEYED & set(done.out + done.err)
    return shell


def cells(text):
    rows = list(csv.reader(io.StringIO(text, newline="")))
    return rows[0], rows[1:]


@pytest.mark.parametrize("where", ["out.csv", "-"])
def test_predictions_are_harmless_in_a_spreadsheet(stranger, where):
    done = stranger("predict", "model.permea", "new.csv", "--distances", "-o", where)
    assert done.code == 0, done.err
    text = done.out if where == "-" else (stranger.folder / where).read_bytes().decode()
    assert not OBEYED & set(text)
    names, rows = cells(text)
    written = {cell for row in rows for cell in row} | set(names)
    assert f"'{FORMULA}" in written
    for cell in written:
        if cell.startswith(("=", "+", "-", "@", "\t", "\r")):
            float(cell)  # a number, and no formula
    assert {"'@SUM(A1)", "'+1+1", "'-2+3", "'=1", "plain", "-1.5"} <= {row[0] for row in rows}
    assert all(float(row[-1]) >= 0 for row in rows)  # numbers stay numbers


def test_federate_and_fabricate_use_the_same_writer(stranger):
    done = stranger("federate", "model.permea", "--queries", "new.csv", "-o", "fed.csv")
    assert done.code == 0, done.err
    made = stranger("fabricate", "data.csv", "--label", "y", "--id", "id", *PRIVATE, "-o", "m.csv")
    assert made.code == 0, made.err
    for name in ("fed.csv", "m.csv"):
        text = (stranger.folder / name).read_text()
        assert not OBEYED & set(text), name
        assert f",{FORMULA}" not in text
    assert not OBEYED & set(made.out + made.err + done.out + done.err)


def test_parquet_keeps_every_text(stranger):
    done = stranger("predict", "model.permea", "new.csv", "-o", "out.parquet")
    assert done.code == 0, done.err
    found = pd.read_parquet(stranger.folder / "out.parquet")
    assert set(found["prediction"]) <= {FORMULA, ESCAPE}
    assert "\x1b[31m" in set(found["id"])


def test_json_is_harmless_on_a_terminal_and_reads_back_unchanged(stranger):
    done = stranger("predict", "model.permea", "new.csv", "-o", "out.csv", "--json")
    assert not OBEYED & set(done.out)
    assert set(json.loads(done.out)["predicted"]) <= {FORMULA, ESCAPE}


def test_errors_and_reports_do_not_obey_either(stranger):
    rows = ("--members", "data.csv", "--outside", "data.csv", "--label", "y")
    found = stranger("audit", "model.permea", *rows)
    assert not OBEYED & set(found.out + found.err)
    bad = stranger("predict", "model.permea", "\x1b[31mred.csv", "-o", "out.csv")
    assert bad.code == 3
    assert not OBEYED & set(bad.err)
    assert "\\x1b[31mred.csv" in bad.err
    traced = stranger("predict", "model.permea", "\x1b[31mred.csv", "-o", "out.csv", "--debug")
    assert not OBEYED & set(traced.err)
    done = stranger("report", "model.permea", "--title", ESCAPE, "-o", "r.html")
    assert done.code == 0, done.err
    assert not OBEYED & set((stranger.folder / "r.html").read_text())


def test_a_planted_link_is_replaced_and_not_followed(stranger, tmp_path):
    """For every kind of result: the file that the link points to stays as it is."""
    treasure = tmp_path / "treasure"
    treasure.write_text("mine")
    treasure.chmod(0o666)
    model = str(stranger.folder / "model.permea")
    words = {
        "out.csv": ("predict", model, "new.csv"),
        "out.parquet": ("predict", model, "new.csv"),
        "out.html": ("report", model),
        "out.permea": ("train", "data.csv", "--label", "y", "--id", "id", "--not-private"),
    }
    for name, command in words.items():
        place = stranger.folder / name
        place.unlink(missing_ok=True)
        place.symlink_to(treasure)
        done = stranger(*command, "-o", name)
        assert done.code == 0, done.err
        assert treasure.read_text() == "mine"
        assert not place.is_symlink()
        if name == "out.permea":
            assert stat.S_IMODE(place.stat().st_mode) == 0o600


def test_raw_rows_do_not_flow_into_a_planted_pipe(stranger):
    os.mkfifo(stranger.folder / "pipe.permea")
    words = ("train", "data.csv", "--label", "y", "--id", "id", "--not-private")
    done = stranger(*words, "-o", "pipe.permea")
    assert done.code == 5
    assert "no file" in done.err


def test_every_control_character_becomes_visible_and_nothing_else_changes():
    dangerous = [*range(0x20), *range(0x7F, 0xA0), 0x200E, 0x202A, 0x202E, 0x2066, 0x2069, 0x2028]
    for code in dangerous:
        assert chr(code) not in safe_text(f"a{chr(code)}b")
        assert chr(code) not in printed(chr(code))
    plain = "Zürich, 東京, ε ≤ 1, naïve 👩\u200d⚕️ ~"
    assert safe_text(plain) == plain
    assert safe_cell(plain) == plain
    assert safe_text("two\nlines", lines=True) == "two\nlines"


def printed(text):
    """The text as JSON prints it, which must read back unchanged."""
    assert json.loads(safe_json([text])) == [text]
    return safe_json([text])


@pytest.mark.parametrize("text", ["=1", " =1", "+1+1", "-x", "@a", "＝1", "--1", "-1e", "+", "-"])
def test_formulas_get_an_apostrophe(text):
    assert safe_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["-1", "+1.5", "-1e-5", "1=1", "a-b", "", "'=1", "-.5"])
def test_numbers_and_other_text_stay(text):
    assert safe_cell(text) == text


def test_numbers_of_every_type_stay_numbers():
    from permea.cli.tables import harmless

    frame = pd.DataFrame(
        {
            "f": np.array([-1.5, np.nan]),
            "i": np.array([-1, 2]),
            "b": [True, False],
            "d": pd.to_datetime(["2020-01-01", "2021-01-01"]),
            "c": pd.Categorical(["=1", "b"]),
            "s": pd.array(["-x", None], dtype="string"),
            "o": np.array([-1, "=x"], dtype=object),
        }
    )
    shown = harmless(frame)
    for name in "fibd":
        pd.testing.assert_series_equal(shown[name], frame[name])
    assert shown["c"].tolist() == ["'=1", "b"]
    assert shown["s"].tolist()[0] == "'-x"
    assert shown["o"].tolist() == [-1, "'=x"]
    assert frame["c"].tolist() == ["=1", "b"]  # the table itself is not touched

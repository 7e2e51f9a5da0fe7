"""Bad input: one clear line, an exit code that means something, nothing lost or half-written."""

import json
import os
import resource
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from .conftest import ENVIRONMENT, PRIVATE, Shell, table

OLD = b"something the user would miss\n"


@pytest.fixture
def folder(trained, tmp_path):
    """A user's folder with a model, tables, and results of earlier work."""
    table(60, 1).to_csv(tmp_path / "data.csv", index=False)
    table(40, 2).to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "model.permea").write_bytes((trained.folder / "model.permea").read_bytes())
    for name in ("out.csv", "out.csv.certificate.json", "old.permea", "report.html"):
        (tmp_path / name).write_bytes(OLD)
    return Shell(tmp_path)


def text_in_numbers(shell):
    frame = pd.read_csv(shell.folder / "data.csv").astype({"height": object})
    frame.loc[7, "height"] = "secret-value"
    frame.to_csv(shell.folder / "data.csv", index=False)


def wrong_columns(shell):
    frame = pd.read_csv(shell.folder / "new.csv").rename(columns={"weight": "mass"})
    frame.to_csv(shell.folder / "new.csv", index=False)


def outside_the_domain(shell):
    frame = pd.read_csv(shell.folder / "data.csv")
    frame.loc[3, "weight"] = 17.125
    frame.to_csv(shell.folder / "data.csv", index=False)


def missing_values(shell):
    frame = pd.read_csv(shell.folder / "data.csv")
    frame.loc[3, "weight"] = np.nan
    frame.to_csv(shell.folder / "data.csv", index=False)


def many_problems(shell):
    frame = pd.read_csv(shell.folder / "data.csv")
    frame.loc[3, "weight"] = np.nan
    frame.assign(height="secret-value", score="b").to_csv(shell.folder / "data.csv", index=False)


def corrupt(shell):
    path = shell.folder / "model.permea"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(raw)


def cut_short(shell):
    path = shell.folder / "model.permea"
    path.write_bytes(path.read_bytes()[:2000])


def write(name, content):
    return lambda shell: (shell.folder / name).write_bytes(content)


TRAIN = ("train", "data.csv", "--label", "y", "--id", "id", "-o", "old.permea")
FABRICATE = ("fabricate", "data.csv", "--label", "y", "--id", "id", "-o", "out.csv")
PREDICT = ("predict", "model.permea", "new.csv", "-o", "out.csv")
NOTHING = lambda shell: None  # noqa: E731
UNTOLD = ["data.csv", "private", "--clip", "--id"]  # a promise was made: see test_private_tables

# what happens, how it comes about, what is typed, exit code, words of the message
CASES = {
    "missing label": (NOTHING, ("train", "data.csv", "--label", "z", *PRIVATE, "-o", "old.permea"),
                      3, ["'z'", "'height'"]),
    "text in a number column": (text_in_numbers, (*TRAIN, *PRIVATE), 3, UNTOLD),
    "text without privacy": (text_in_numbers, (*TRAIN, "--not-private"), 3,
                             ["'height'", "--drop height"]),
    "wrong columns at predict": (wrong_columns, PREDICT, 3, ["'weight'", "lacks 1 of the 4"]),
    "empty file": (write("data.csv", b""), (*TRAIN, *PRIVATE), 3, ["empty"]),
    "header only": (write("data.csv", b"id,height,y\n"), (*TRAIN, *PRIVATE), 3, ["no rows"]),
    "unreadable file": (write("data.csv", b"\xff\xfe\x00\x81" * 50), (*TRAIN, *PRIVATE), 3,
                        ["data.csv"]),
    "no such file": (NOTHING, ("predict", "model.permea", "gone.csv", "-o", "out.csv"), 3,
                     ["gone.csv", "does not exist"]),
    "ragged file": (write("data.csv", b"id,a,y\n1,2,3\n1,2,3,4\n"), (*TRAIN, *PRIVATE), 3, UNTOLD),
    "ragged file without privacy": (write("data.csv", b"id,a,y\n1,2,3\n1,2,3,4\n"),
                                    (*TRAIN, "--not-private"), 3, ["header"]),
    "unreadable parquet": (write("data.parquet", b"PAR1 no more"),
                           ("fabricate", "data.parquet", "-e", 1, "--domain", 0, 1,
                            "-o", "out.csv"), 3, ["Parquet"]),
    "a column twice": (write("data.csv", b"a,a,y\n1,2,3\n"), (*TRAIN, *PRIVATE), 3, ["twice"]),
    "missing values": (missing_values, (*TRAIN, *PRIVATE), 3, UNTOLD),
    "missing values without privacy": (missing_values, (*TRAIN, "--not-private"), 3,
                                       ["'weight'", "missing"]),
    "epsilon of zero": (NOTHING, (*TRAIN, "--epsilon", 0, "--domain", 0, 1), 2, ["positive"]),
    "negative epsilon": (NOTHING, (*FABRICATE, "--epsilon", -1, "--domain", 0, 1), 2,
                         ["positive"]),
    "delta of one": (NOTHING, (*FABRICATE, "-e", 1, "--delta", 1, "--domain", 0, 1), 2, ["delta"]),
    "domain missing": (NOTHING, (*TRAIN, "--epsilon", 8), 2, ["--domain", "not from the data"]),
    "domain upside down": (NOTHING, (*FABRICATE, "-e", 1, "--domain", 1, 0), 2, ["low < high"]),
    "domain violated": (outside_the_domain, (*FABRICATE, "-e", 8, "--domain", 0, 1), 3,
                        UNTOLD),
    "categories": (NOTHING, ("fabricate", "data.csv", "--label", "y", "-e", 8, "--domain", 0, 1,
                             "-o", "out.csv"), 3, UNTOLD),
    "categories without privacy": (NOTHING, ("train", "data.csv", "--label", "y", "--not-private",
                                             "-o", "old.permea"), 3,
                                   ["'id'", "--id id", "schema"]),
    "many problems": (many_problems, (*TRAIN, "--not-private"), 3,
                      ["'height', 'score'", "'weight'", "missing", "text"]),
    "corrupted model": (corrupt, PREDICT, 4, ["model.permea", "fresh copy"]),
    "model cut short": (cut_short, PREDICT, 4, ["model.permea", "fresh copy"]),
    "not a model": (NOTHING, ("predict", "data.csv", "new.csv", "-o", "out.csv"), 4, ["data.csv"]),
    "full disk": (NOTHING, ("predict", "model.permea", "new.csv", "-o", "/dev/full"), 5,
                  ["No space left"]),
    "unwritable folder": (NOTHING, ("predict", "model.permea", "new.csv", "-o",
                                    "nowhere/out.csv"), 5, ["nowhere", "does not exist"]),
    "a file as folder": (NOTHING, ("predict", "model.permea", "new.csv", "-o",
                                   "data.csv/out.csv"), 5, ["data.csv"]),
    "output over input": (NOTHING, ("fabricate", "data.csv", "-l", "y", "--id", "id", "-e", 8,
                                    "--domain", 0, 1, "-o", "data.csv"), 2, ["lost"]),
    "unknown format": (NOTHING, ("predict", "model.permea", "new.csv", "-o", "out.xlsx"), 2,
                       [".csv or .parquet"]),
    "unknown option": (NOTHING, (*TRAIN, "--epsilonn", 8), 2, ["--epsilonn", "--help"]),
    "unknown command": (NOTHING, ("trane",), 2, ["trane"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_clear_line_and_nothing_lost(folder, case):
    prepare, words, code, said = CASES[case]
    prepare(folder)
    before = folder.files()
    done = folder(*words)
    assert done.code == code, done.err
    lines = [line for line in done.err.strip().splitlines() if not line.startswith("training on")]
    assert len(lines) == 1, done.err
    assert lines[0].startswith("permea: error: ")
    assert all(word in lines[0] for word in said), lines[0]
    if said is UNTOLD:
        assert not any(name in lines[0] for name in ("height", "weight", "row ", "1", "8"))
    assert "Traceback" not in done.err
    assert not any(value in done.err for value in ("secret-value", "17.125"))
    assert folder.files() == before


def test_debug_shows_the_traceback_and_the_line(folder):
    done = folder(*TRAIN, "--epsilon", 0, "--domain", 0, 1, "--debug")
    assert done.code == 2
    assert "Traceback" in done.err
    assert done.err.strip().splitlines()[-1].startswith("permea: error: ")


@pytest.mark.parametrize("words", [(*TRAIN, *PRIVATE), (*FABRICATE, "-e", 8, "--domain", 0, 1)])
def test_a_disk_that_fills_up_leaves_the_old_result(folder, words):
    """The process may write files of at most 1 kB, like a disk that is full after that."""
    before = folder.files()
    done = folder.process(
        *words, prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    )
    assert done.code == 5, done.err
    assert "could not be written" in done.err
    assert folder.files() == before


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "terminate"]
)
def test_an_interrupt_leaves_nothing_half_written(folder, number, code):
    """The command waits for its table on a pipe; there it is stopped."""
    before = folder.files()
    os.mkfifo(folder.folder / "slow.csv")
    words = ["train", "slow.csv", "--label", "y", *PRIVATE, "-o", "old.permea"]
    process = subprocess.Popen(
        [sys.executable, "-m", "permea", *map(str, words)],
        cwd=folder.folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True,
        preexec_fn=heeds_interrupts,
    )  # fmt: skip
    with (folder.folder / "slow.csv").open("w") as pipe:  # opens once the command reads
        pipe.write("height,y\n")
        pipe.flush()
        assert stopped(process, number) == code
    (folder.folder / "slow.csv").unlink()
    assert "Nothing was written" in process.stderr.read()
    process.stderr.close()
    assert folder.files() == before


def heeds_interrupts():
    """Tests that run in the background of a shell inherit that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def stopped(process, number):
    """Exit code after a signal, sent again while libraries that are loading swallow it."""
    for _ in range(12):
        process.send_signal(number)
        try:
            return process.wait(10)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return None


def test_an_interrupt_while_writing_removes_the_part(tmp_path):
    """The temporary file is gone, the target as before."""
    from permea._files import write_atomically

    target = tmp_path / "out.csv"
    target.write_bytes(OLD)

    def interrupted():
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(target, interrupted())
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert target.read_bytes() == OLD


def test_files_that_belong_together_are_written_together_or_not_at_all(tmp_path):
    """The table takes its name first; when it cannot, no certificate of another table appears."""
    from permea._files import write_together

    certificate, table_file = tmp_path / "t.csv.certificate.json", tmp_path / "t.csv"
    certificate.write_bytes(OLD)
    table_file.mkdir()
    with pytest.raises(OSError, match="folder"):
        write_together({certificate: b"new", table_file: b"new"})
    table_file.rmdir()
    assert [path.name for path in tmp_path.iterdir()] == [certificate.name]
    assert certificate.read_bytes() == OLD
    write_together({certificate: b"new", table_file: b"new"})
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"new"}


def test_clip_accepts_what_the_domain_does_not(folder):
    outside_the_domain(folder)
    done = folder(*FABRICATE, "-e", 8, "--domain", 0, 1, "--clip", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["private"]


def test_a_reader_that_stops_is_no_error(folder):
    words = [sys.executable, "-m", "permea", "predict", "model.permea", "new.csv"]
    process = subprocess.Popen(words, cwd=folder.folder, env=ENVIRONMENT, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    process.stdout.close()
    assert process.wait(60) == 0
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()

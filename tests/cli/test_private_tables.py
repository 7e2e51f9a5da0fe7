"""Nothing about a private table is told before the ledger is charged, and little after it.

0.1 told how many values lay outside the domain, and in which column, to anybody who asked, before
anything was charged; so it did for gaps, text among numbers, and lines of another length.
"""

import numpy as np
import pandas as pd
import pytest

import permea
from permea import KAHMClassifier
from permea.cli.table_model import TableClassifier, unit_privacy
from permea.cli.tables import read_private_table
from permea.privacy import Ledger, Privacy
from permea.tables import Number, Schema

from .conftest import Shell, table

HEADER = "id,height,weight,smoker,score,y"
COMMON = ("--label", "y", "--id", "id", "--epsilon", 8, "--delta", 1e-5, "--domain", 0, 1)
COMMANDS = {
    "train": ("train", "data.csv", *COMMON, "--components", 3, "--layers", 1, "-o", "out.permea"),
    "source": ("source", "data.csv", *COMMON, "--components", 3, "--layers", 1, "-o", "out.permea"),
    "fabricate": ("fabricate", "data.csv", *COMMON, "-o", "out.csv"),
}
ROWS = [line.split(",") for line in table(40, 1).to_csv(index=False).splitlines()[1:]]
ROW = 7


def cell(column, value):
    """The table with another value in one cell."""
    rows = [list(row) for row in ROWS]
    rows[ROW][HEADER.split(",").index(column)] = value
    return "\n".join([HEADER, *map(",".join, rows)]).encode() + b"\n"


GOOD = cell("id", "p0007")
DEFECTS = {
    "outside the domain": cell("weight", "17.125"),
    "far outside": cell("weight", "1e300"),
    "text": cell("height", "Smith"),
    "a gap": cell("height", ""),
    "infinite": cell("score", "inf"),
    "no number": cell("score", "nan"),
    "no label": cell("y", ""),
    "a line too long": cell("y", "ill,ill"),
    "a line too short": GOOD.replace(b",".join([b"p0007"]) + b",", b"p0007\n", 1),
    "an open quotation mark": cell("height", '"0.5'),
    "bytes that are no text": cell("height", "@").replace(b"@", b"\xe9"),
    "a column of text": GOOD.replace(b"0.", b"x."),
}


@pytest.fixture
def at(tmp_path):
    """Run a command on a table in a folder of its own."""

    def run(name, content, *words):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        (folder / "data.csv").write_bytes(content)
        done = Shell(folder)(*COMMANDS[name], *words)
        return folder, done

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_adjacent_tables_look_alike_until_the_charge(at, name):
    """The budget does not allow the release, so all that is printed comes before the charge."""
    small = ("--ledger", "account.db", "--budget", 1, 0)
    _, good = at(name, GOOD, *small)
    assert good.code == 6, good.err
    for defect, content in DEFECTS.items():
        folder, bad = at(name, content, *small)
        assert bad == good, defect
        assert not (folder / "out.permea").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_defect_is_told_after_the_charge_and_nothing_about_it(at, name):
    enough = ("--ledger", "account.db", "--budget", 100, 1e-3)
    folder, good = at(name, GOOD, *enough)
    assert good.code == 0, good.err
    spent = Ledger(folder / "account.db").spent
    lines = set()
    for defect, content in DEFECTS.items():
        folder, bad = at(name, content, *enough)
        assert bad.code == 3, (defect, bad.err)
        assert bad.out == ""
        lines.add(bad.err)
        assert Ledger(folder / "account.db").spent == spent, defect
        assert sorted(path.name for path in folder.iterdir() if path.suffix != ".db") == [
            path for path in ("account.db-shm", "account.db-wal", "data.csv")
            if (folder / path).exists()
        ]  # fmt: skip
    assert len(lines) == 1, lines
    (text,) = lines
    *said, error = text.strip().splitlines()
    assert good.err.splitlines()[: len(said)] == said  # what is said on the way is the same as well
    assert error.startswith("permea: error: data.csv: ")
    assert "--clip" in error
    assert not any(character.isdigit() for character in error)
    assert not any(f"'{column}'" in error for column in HEADER.split(","))


@pytest.mark.parametrize("defect", DEFECTS)
def test_without_a_ledger_no_more_is_told(at, defect):
    _, bad = at("fabricate", DEFECTS[defect])
    assert bad.code == 3, bad.err
    error = bad.err.strip().splitlines()[-1]
    assert "private" in error
    assert not any(character.isdigit() for character in error)


def test_clip_moves_values_and_changes_no_message(at):
    for content in (GOOD, DEFECTS["outside the domain"], DEFECTS["far outside"]):
        _, done = at("train", content, "--clip", "--quiet")
        assert (done.code, done.out) == (0, ""), done.err


def test_whether_a_column_is_whole_is_declared_not_seen(at):
    """0.1 rounded a column of a CSV file when all its values were whole: one row decided."""
    for content in (GOOD, cell("smoker", "0.5")):
        folder, done = at("fabricate", content, "--noise-only")
        assert done.code == 0, done.err
        made = pd.read_csv(folder / "out.csv")["smoker"]
        assert not np.array_equal(made, made.round())
        folder, done = at("fabricate", content, "--noise-only", "--whole", "smoker")
        made = pd.read_csv(folder / "out.csv")["smoker"]
        assert np.array_equal(made, made.round())


def test_what_a_parquet_file_declares_is_public(tmp_path):
    """Its column types come before the rows: they are refused by name, and nothing is charged."""
    table(40, 1).to_parquet(tmp_path / "data.parquet", index=False)
    done = Shell(tmp_path)(
        "fabricate", "data.parquet", "--label", "y", "--epsilon", 8, "--domain", 0, 1,
        "--ledger", "account.db", "--budget", 10, 0, "-o", "out.csv",
    )  # fmt: skip
    assert done.code == 3
    assert "'id'" in done.err
    assert "--id id" in done.err
    assert len(Ledger(tmp_path / "account.db")) == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (GOOD.replace(b",", b";"), "separated by ';'"),
        (GOOD.replace(b"height", b"weight", 1), "twice"),
        (GOOD.replace(b"y\n", b"z\n", 1), "no column 'y'"),
        (GOOD.replace(b"height", b"h\xe9ight", 1), "UTF-8"),
        (GOOD.splitlines(keepends=True)[0], "no rows"),
    ],
)
def test_what_the_header_says_is_public(at, content, said):
    _, done = at("train", content, "--ledger", "account.db", "--budget", 1, 0)
    assert done.code == 3
    assert said in done.err


def test_a_header_of_several_lines_is_read_to_its_end(at):
    two_lines = GOOD.replace(b"height", b'"height\nin metres"', 1)
    _, good = at("train", two_lines, "--quiet")
    assert good.code == 0, good.err
    _, bad = at("train", two_lines.replace(b"p0007,", b"p0007,,,,,,", 1))
    assert "private" in bad.err


def parquet_rows():
    import pyarrow as pa

    frame = table(40, 1)
    columns = {name: pa.array(frame[name]) for name in frame.columns}
    columns["smoker"] = pa.array([bool(value > 0.5) for value in frame["smoker"]])
    gap = pa.array([None, *columns["smoker"].to_pylist()[1:]], type=pa.bool_())
    labels = [str(label).encode() for label in frame["y"]]
    labels[ROW] = b"Smith\xff"
    text = pa.Array.from_buffers(
        pa.string(), len(labels), pa.array(labels, type=pa.binary()).buffers()
    )
    return {
        "nothing": pa.table(columns),
        "a gap": pa.table({**columns, "smoker": gap}),
        "a label that is no text": pa.table({**columns, "y": text}),
    }


@pytest.mark.parametrize("defect", ["a gap", "a label that is no text"])
@pytest.mark.parametrize("command", ["train", "fabricate"])
def test_parquet_tells_nothing_before_the_charge(tmp_path, command, defect):
    """Types are those that the file declares; a value that cannot be read was printed."""
    from pyarrow import parquet

    ends = {}
    for name in ("nothing", defect):
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        parquet.write_table(parquet_rows()[name], folder / "data.parquet")
        words = ["data.parquet" if w == "data.csv" else w for w in COMMANDS[command]]
        done = Shell(folder)(
            *words, "--ledger", "l.db", "--budget", "50", "1e-3", "--dataset", "ward"
        )
        ends[name] = done.code
        assert len(Ledger(folder / "l.db").events) == 1, done.err
        assert "Smith" not in done.err + done.out
    assert ends["nothing"] == 0
    assert ends[defect] == 3


@pytest.mark.parametrize(
    "other",
    [None, Privacy(epsilon=8, delta=1e-5, domain=(0, 1)),
     Privacy(epsilon=1, delta=1e-5, domain=((0, 0), (1, 100)))],
)  # fmt: skip
def test_a_table_and_its_classifier_make_one_promise(other):
    """Rows are not read where the certificate would name another promise than the noise keeps."""
    declared = Privacy(epsilon=1, delta=1e-5, domain=((0, 0), (1, 100)))
    X, y = np.random.default_rng(0).random((40, 2)) * [1, 100], np.repeat([0, 1], 20)
    ledger = Ledger()

    def fit(promise):
        inner = KAHMClassifier(n_components=2, n_layers=1, privacy=promise)
        model = TableClassifier(inner, columns=["a", "b"], label="y", privacy=declared)
        return model.fit(X, y, ledger=ledger, dataset="ward")

    with pytest.raises(ValueError, match="promise of the table"):
        fit(other)
    assert not ledger.events
    assert fit(unit_privacy(declared)).certificate_.privacy == declared
    assert len(ledger.events) == 1


def test_whose_a_row_is_does_not_depend_on_the_ids_of_others(tmp_path):
    """007 and 7 are two people or one, whether or not somebody else's id is a text."""
    found = []
    for last in ("9", "p9"):
        file = tmp_path / f"{last}.csv"
        file.write_text(f"x,y,id\n0.5,1,007\n0.5,1,7\n0.5,0,7.0\n0.5,0,{last}\n")
        table = read_private_table(str(file), texts=["y", "id"])
        schema = Schema({"x": Number(0, 1)}, person="id")
        found.append(schema.people(table.frame).tolist())
    assert found == [["007", "7", "7", "9"], ["007", "7", "7", "p9"]]


def test_ids_of_a_table_of_numbers_stay_text(shell):
    rows = table(60, 1)
    words = ("train", "data.csv", "--label", "y", "--unit", "person", "--person", "id", "--clip",
             "--epsilon", 1000, "--delta", 1e-5, "--domain", 0, 1, "--seed", 1)  # fmt: skip
    people = []
    for last in ("9", "p9"):
        ids = [f"{n // 4:0{1 + n % 2 * 2}}" for n in range(59)]
        rows.assign(id=[*ids, last]).to_csv(shell.folder / "data.csv", index=False)
        done = shell(*words, "--class", "ill", "--class", "well", "-o", "m.permea")
        assert done.code == 0, done.err
        model = permea.load(shell.folder / "m.permea")
        people.append(model.moments_.size)
    assert people == [30, 31]

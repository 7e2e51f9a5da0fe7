"""``permea ledger``, and ``--ledger`` of the commands that release something."""

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from permea.privacy import Ledger, Privacy
from permea.privacy.release import plan

from .conftest import ENVIRONMENT

TRAIN = ("train", "data.csv", "--label", "y", "--id", "id", "--domain", 0, 1)
FABRICATE = ("fabricate", "data.csv", "-l", "y", "--id", "id", "--domain", 0, 1, "--noise-only")


@pytest.fixture
def spent(shell):
    """A folder with a ledger that paid for a table."""
    made = shell("ledger", "create", "l.db", "--epsilon", 5, "--unit", "entry")
    assert made.code == 0, made.err
    done = shell(*FABRICATE, "-e", 2, "--ledger", "l.db", "--dataset", "ward", "-o", "one.csv")
    assert done.code == 0, done.err
    return shell


def test_two_trainings_at_the_same_time_on_a_budget_for_one(shell):
    """Both read the old account, both found room in it, and the last writer won."""
    assert shell("ledger", "create", "l.db", "--epsilon", 1).code == 0
    words = [*TRAIN, "-e", 1, "--ledger", "l.db", "--components", 2, "--layers", 1, "--jobs", 1]
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "permea", *map(str, words), "-o", f"{name}.permea"],
            cwd=shell.folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for name in ("one", "two")
    ]  # fmt: skip
    for run in runs:
        run.communicate(timeout=120)
    assert sorted(run.returncode for run in runs) == [0, 6]
    assert len(list(shell.folder.glob("*.permea"))) == 1
    ledger = Ledger(shell.folder / "l.db")
    assert [event.status for event in ledger.events] == ["released"]


def test_show_tells_what_was_spent(spent):
    shown = spent("ledger", "show", "l.db")
    assert shown.code == 0
    for text in ("data set 'ward': 1 release", "ε = 2 per entry", "ε = 5 per entry", "[released]"):
        assert text in shown.out
    assert "never released" not in shown.out
    ledger = Ledger(spent.folder / "l.db")
    ledger.charge(plan(Privacy(epsilon=1, domain=(0, 1)), 2).event("ward", "was stopped"))
    shown = spent("ledger", "show", "l.db")
    assert "[charged, never released]" in shown.out
    assert "1 event was charged and never released" in shown.out
    values = json.loads(spent("ledger", "show", "l.db", "--json").out)
    assert values["spent"]["epsilon"] == 3
    assert values["remaining"]["epsilon"] == 2
    assert values["datasets"] == {"ward": {"epsilon": 3, "delta": 0}}
    assert [event["status"] for event in values["events"]] == ["released", "charged"]


def test_verify_finds_what_was_changed(spent):
    whole = spent("ledger", "verify", "l.db")
    assert whole.code == 0
    assert "is whole: 1 event" in whole.out
    with closing(sqlite3.connect(spent.folder / "l.db", isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER no_update")
        connection.execute("UPDATE events SET body = replace(body, '2.0', '0.1')")
    found = spent("ledger", "verify", "l.db")
    assert found.code == 7
    assert "entry 1 was altered" in found.err
    refused = spent(*FABRICATE, "-e", 1, "--ledger", "l.db", "-o", "two.csv")
    assert refused.code == 3
    assert "entry 1 was altered" in refused.err
    assert not (spent.folder / "two.csv").exists()


def test_verify_finds_a_restored_copy_by_its_certificates(spent):
    folder = spent.folder
    shutil.copy(folder / "l.db", folder / "backup.db")
    done = spent(*TRAIN, "-e", 2, "--ledger", "l.db", "--components", 2, "-o", "m.permea")
    assert done.code == 0, done.err
    evidence = ("--certificate", "m.permea", "-c", "one.csv.certificate.json")
    assert spent("ledger", "verify", "l.db", *evidence).code == 0
    shutil.copy(folder / "backup.db", folder / "l.db")
    assert spent("ledger", "verify", "l.db").code == 0  # holds together by itself
    assert spent("ledger", "verify", "l.db", *evidence[2:]).code == 0
    found = spent("ledger", "verify", "l.db", *evidence)
    assert found.code == 7
    assert "older copy was restored" in found.err
    (folder / "l.db").unlink()
    assert spent("ledger", "create", "l.db", "--epsilon", 5).code == 0
    assert spent("ledger", "verify", "l.db", *evidence).code == 7


def test_export_writes_json(spent):
    assert spent(*FABRICATE, "-e", 1, "--ledger", "l.db", "-o", "two.csv").code == 0
    done = spent("ledger", "export", "l.db", "--output", "l.json")
    assert done.code == 0, done.err
    values = json.loads((spent.folder / "l.json").read_text())
    assert [event["dataset"] for event in values["events"]] == ["ward", None]
    assert json.loads(spent("ledger", "export", "l.db").out) == values
    again = spent("ledger", "import", "l.json", "again.db")
    assert again.code == 0, again.err
    assert "2 events imported" in again.out


def test_the_json_of_version_0_1_is_imported_and_not_overwritten(shell):
    event = plan(Privacy(epsilon=4, domain=(0, 1)), 4).event("data", "fabricated table").to_dict()
    old = {
        "schema": 1,
        "budget": {"epsilon": 6.0, "delta": 0.0, "unit": "entry"},
        "composition": "basic",
        "events": [event],
    }
    path = shell.folder / "account.json"
    path.write_text(json.dumps(old))
    words = (*FABRICATE, "-e", 4, "-o", "two.csv", "--ledger")
    refused = shell(*words, "account.json")
    assert refused.code == 3
    assert "permea ledger import account.json ledger.db" in refused.err
    assert json.loads(path.read_text()) == old
    assert shell("ledger", "import", "account.json", "ledger.db").code == 0
    assert shell(*words, "ledger.db").code == 6  # four of six are spent
    old["events"] = [{**event, "epsilon": -100.0}]
    path.write_text(json.dumps(old))
    forged = shell("ledger", "import", "account.json", "forged.db")
    assert forged.code == 3
    assert "epsilon of an event must be finite and not negative" in forged.err
    assert not (shell.folder / "forged.db").exists()


def test_a_budget_on_the_command_line_is_for_a_new_ledger(shell):
    words = (*FABRICATE, "-e", 1, "--ledger", "l.db", "-o", "one.csv")
    assert shell(*words, "--budget", 3, 0).code == 0
    assert shell(*words, "--budget", 3, 0).code == 0
    wider = shell(*words, "--budget", 9, 0)
    assert wider.code == 3
    assert "fixed when a ledger is created" in wider.err
    assert Ledger(shell.folder / "l.db").spent.epsilon == 2


def test_wrong_lines_are_explained(shell):
    assert shell("ledger", "show", "nothing.db").code == 3
    assert not (shell.folder / "nothing.db").exists()
    assert shell("ledger", "create", "l.db", "--epsilon", -1).code == 2
    assert shell("ledger", "create", "l.db", "--epsilon", 1).code == 0
    assert shell("ledger", "create", "l.db", "--epsilon", 1).code == 3
    for words in (("--dataset", "x"), ("--budget", 1, 0)):
        alone = shell(*FABRICATE, "-e", 1, "-o", "one.csv", *words)
        assert alone.code == 2
        assert "--ledger" in alone.err
    named = shell(*FABRICATE, "-e", 1, "-o", "o.csv", "--ledger", "l.db", "--dataset", "rows-1")
    assert named.code == 2
    assert shell("ledger", "verify", "l.db", "-c", "data.csv").code != 0
    assert shell("ledger", "show", "data.csv").code == 3


def test_source_and_train_share_the_account_of_unnamed_rows(shell):
    """The file's name was the data set's name for one of them, and "data" for the other."""
    options = ("--ledger", "l.db", "--components", 2, "--layers", 1)
    first = shell("source", *TRAIN[1:], "-e", 1, "--budget", 1.5, 0, *options, "-o", "s.permea")
    assert first.code == 0, first.err
    second = shell(*TRAIN, "-e", 1, *options, "-o", "m.permea")
    assert second.code == 6
    assert "rows without a name" in second.err

"""What notebooks show of certificates, schemas, ledgers, attacks and files."""

import html.parser

import numpy as np
import pytest

from permea import Budget, Certificate, KAHMClassifier, Ledger, Privacy, Schema, audit, release
from permea.storage import StorageError, contents, save
from permea.tables import Category, Number, YesNo

ROWS = np.random.default_rng(0).random((60, 3))
PROMISE = Privacy(epsilon=4, delta=1e-5, domain=(0, 1))


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def model():
    y = np.repeat([0, 1], 30)
    return KAHMClassifier(n_components=2, n_layers=1, privacy=PROMISE).fit(ROWS, y)


@pytest.fixture
def file(model, tmp_path):
    return save(model, tmp_path / "model.permea")


def test_a_certificate_shows_its_verdict_in_its_colour():
    good = release(ROWS, PROMISE).certificate
    colours = {
        one._repr_html_().partition("solid ")[2][:7]
        for one in (good, Certificate.from_json(good.to_json()), good.void("a <reason>"))
    }
    assert len(colours) == 3
    shown = good.void("a <reason>")._repr_html_()
    assert "a &lt;reason&gt;" in shown
    assert "details" in Tags(shown).seen


def test_a_schema_shows_columns_and_roles():
    schema = Schema(
        {"a<b": Number(0, 9), "c": Category(["x", "y"], missing=True), "d": YesNo()},
        label="d", person="who", ignored=("z*",),
    )  # fmt: skip
    shown = schema._repr_html_()
    assert Tags(shown).seen.count("tr") == 1 + 3 + 1 + 1
    for text in ("a&lt;b", "0 to 9", "x, y, or missing", "label", "who", "z*"):
        assert text in shown


def test_a_ledger_shows_its_balance_and_no_fingerprint():
    ledger = Ledger(Budget(epsilon=9, delta=1e-3, unit="entry"))
    release(ROWS, PROMISE, ledger=ledger, dataset="ward <7>")
    release(ROWS, PROMISE, ledger=ledger)
    shown = ledger._repr_html_()
    assert "ward &lt;7&gt;" in shown
    assert "unnamed rows" in shown
    assert "2 releases" in shown
    unnamed = next(one.dataset for one in ledger.events if not one.is_named)
    assert unnamed not in shown
    assert Tags(shown).seen.count("tbody") == 1


def test_attacks_are_a_table(model):
    y = np.repeat([0, 1], 30)
    found = audit.attack(model, ROWS[::2], y[::2], ROWS[1::2], y[1::2], kinds=["loss", "distance"])
    shown = found._repr_html_()
    assert Tags(shown).seen.count("tr") == 3
    assert "0.5 is guessing" in shown


def test_contents_lists_every_class_and_array(model, file):
    found = contents(file)
    assert found.model == "KAHMClassifier"
    assert {"KAHMClassifier", "Privacy"} <= set(found.classes)
    assert found.certificates[0].status == "unverified claim"
    arrays = [entry for entry in found.entries if entry.kind == "array"]
    assert 0 < sum(entry.size for entry in arrays) == found.numbers < found.size
    assert "numbers and JSON" in str(found)
    assert "table" in Tags(found._repr_html_()).seen
    assert found.to_dict()["certificates"][0]["is_private"]


def test_contents_refuses_what_load_refuses(file):
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    with pytest.raises(StorageError, match="changed after saving"):
        contents(file)

"""Signing and trusting on the command line: a certificate nobody vouches for is never PRIVATE."""

import json
import stat
from dataclasses import replace

import pytest

import permea
from permea.privacy import Certificate, SigningKey, TrustedKeys

from .conftest import PRIVATE, Shell, table

TRAIN = ("train", "data.csv", "--label", "y", "--id", "id")


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """An owner with a key, a reader who trusts it, and a signed model between them."""
    folder = tmp_path_factory.mktemp("clinic")
    table(120, 1).to_csv(folder / "data.csv", index=False)
    table(80, 2).to_csv(folder / "new.csv", index=False)
    shell = Shell(folder)
    made = shell("keys", "create", "clinic", "--output", "clinic.key")
    assert made.code == 0, made.err
    (folder / "clinic.pub").write_text(made.out)
    assert shell("keys", "trust", "trusted.keys", "clinic.pub").code == 0
    done = shell(*TRAIN, *PRIVATE, "--sign", "clinic.key", "-o", "signed.permea", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["signed_by"] == "clinic"
    assert shell(*TRAIN, *PRIVATE, "-o", "unsigned.permea").code == 0
    assert shell(*TRAIN, "--not-private", "-o", "plain.permea").code == 0
    graft(folder)
    return shell


def graft(folder):
    """What a forger can do: put a certificate of ε = 0.01 onto a model that holds raw rows."""
    model = permea.load(folder / "plain.permea")
    honest = permea.load(folder / "signed.permea").certificate_
    values = replace(honest, privacy=replace(honest.privacy, epsilon=0.01)).to_dict()
    values |= {"record_epsilon": 0.01, "simple_record_epsilon": 0.01}
    forged = Certificate.from_dict(values)
    for part in (model, model.classifier_):
        part.certificate_, part.holds_private_rows_ = forged, False
    permea.save(model, folder / "forged.permea", private_rows="include")
    permea.save(
        model,
        folder / "self-signed.permea",
        private_rows="include",
        sign=SigningKey.generate("clinic"),  # the name of a trusted key, and another key
    )


FORGED = ("forged.permea", "self-signed.permea", "unsigned.permea")


class TestKeys:
    def test_a_new_key_is_for_its_owner_and_its_public_line_for_all(self, shell):
        made = shell("keys", "create", "me", "-o", "me.key", "--json")
        assert made.code == 0, made.err
        path = shell.folder / "me.key"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        said = json.loads(made.out)
        assert said["public"] == str(SigningKey.load(path).public)
        assert shell("keys", "public", "me.key").out.strip() == said["public"]
        again = shell("keys", "create", "me", "-o", "me.key")
        assert again.code == 5
        assert "lost" in again.err
        assert str(SigningKey.load(path).public) == said["public"]

    @pytest.mark.parametrize("name", ["", "two words", "\x1b[31mred", "a/b", "x" * 65])
    def test_names_that_could_mislead_are_refused(self, shell, name):
        done = shell("keys", "create", name, "-o", "me.key")
        assert done.code == 3
        assert "\x1b" not in done.err
        assert not (shell.folder / "me.key").exists()

    def test_trusted_keys_are_added_one_by_one_and_listed(self, shell):
        for name in ("north", "south"):
            line = shell("keys", "create", name, "-o", f"{name}.key").out
            (shell.folder / f"{name}.pub").write_text(line)
        (shell.folder / "trusted.keys").write_text("# our friends")
        for name in ("north", "south"):
            assert shell("keys", "trust", "trusted.keys", f"{name}.pub").code == 0
        assert (shell.folder / "trusted.keys").read_text().startswith("# our friends\nnorth ")
        listed = json.loads(shell("keys", "list", "trusted.keys", "--json").out)["keys"]
        assert [one["name"] for one in listed] == ["north", "south"]
        before = shell.files()
        twice = shell("keys", "trust", "trusted.keys", "north.pub", "--name", "west")
        assert twice.code == 3
        assert "already" in twice.err
        other = shell("keys", "create", "north", "-o", "other.key").out
        (shell.folder / "other.pub").write_text(other)
        assert shell("keys", "trust", "trusted.keys", "other.pub").code == 3
        after = shell.files()
        assert after["trusted.keys"] == before["trusted.keys"]

    def test_a_locked_key_signs_with_its_passphrase_alone(self, shell, monkeypatch):
        SigningKey.generate("me").save(shell.folder / "me.key", passphrase="correct horse")
        monkeypatch.delenv("PERMEA_KEY_PASSPHRASE", raising=False)
        assert "passphrase" in shell.process("keys", "public", "me.key", stdin="").err
        for phrase, code in (("wrong", 3), ("correct horse", 0)):
            monkeypatch.setenv("PERMEA_KEY_PASSPHRASE", phrase)
            assert shell("keys", "public", "me.key").code == code


class TestSigned:
    """What a trusted key has signed is shown as PRIVATE, with the name of the key."""

    def test_by_verify(self, clinic):
        done = clinic("keys", "verify", "signed.permea", "--trusted", "trusted.keys", "--json")
        assert done.code == 0, done.err
        said = json.loads(done.out)
        assert (said["private"], said["verified"], said["signer"]) == (True, True, "clinic")

    def test_by_report(self, clinic):
        done = clinic("report", "signed.permea", "--trusted", "trusted.keys", "-o", "s.html")
        assert done.code == 0, done.err
        assert "PRIVATE" in done.out
        assert "signed by clinic" in done.out
        page = (clinic.folder / "s.html").read_text()
        assert "PRIVATE, signed by clinic" in page
        assert "UNVERIFIED" not in page.upper()

    def test_by_the_environment(self, clinic, monkeypatch):
        monkeypatch.setenv("PERMEA_TRUSTED_KEYS", str(clinic.folder / "trusted.keys"))
        assert clinic("keys", "verify", "signed.permea").code == 0
        monkeypatch.setenv("PERMEA_TRUSTED_KEYS", "")
        assert clinic("keys", "verify", "signed.permea").code == 7

    def test_by_federate_and_predict(self, clinic):
        asked = ("--queries", "new.csv", "--trusted", "trusted.keys", "-o", "out.csv", "--json")
        for words in (("federate", "signed.permea", *asked),
                      ("predict", "signed.permea", "new.csv", *asked[2:])):  # fmt: skip
            done = clinic(*words)
            assert done.code == 0, done.err
            said = json.loads(done.out)
            assert (said["private"], said["verified"], said["status"]) == (True, True, "PRIVATE")

    def test_a_missing_file_of_trusted_keys_is_an_error_and_not_an_empty_one(self, clinic):
        done = clinic("report", "signed.permea", "--trusted", "nowhere.keys", "-o", "n.html")
        assert done.code == 3
        assert "nowhere.keys" in done.err
        assert not (clinic.folder / "n.html").exists()

    def test_the_key_is_read_before_any_work(self, clinic):
        done = clinic(*TRAIN, *PRIVATE, "--sign", "nowhere.key", "-o", "never.permea")
        assert done.code == 3
        assert not (clinic.folder / "never.permea").exists()
        both = clinic(*TRAIN, "--not-private", "--sign", "clinic.key", "-o", "never.permea")
        assert both.code == 2


@pytest.mark.parametrize("file", FORGED)
class TestForged:
    """A certificate that no trusted key has signed is an unverified claim wherever it is shown."""

    def test_by_report(self, clinic, file):
        for trusted in ((), ("--trusted", "trusted.keys")):
            done = clinic("report", file, "-o", "f.html", *trusted)
            assert done.code == 0, done.err
            assert "unverified claim" in done.out
            assert "PRIVATE" not in done.out
            page = (clinic.folder / "f.html").read_text()
            assert "UNVERIFIED CLAIM" in page
            assert "PRIVATE:" not in page
            assert "PRIVATE PER VALUE" not in page
            assert "verdict good" not in page
            said = json.loads(clinic("report", file, "-o", "f.html", "--json", *trusted).out)
            assert (said["private"], said["verified"]) == (False, False)
            assert said["status"] == "unverified claim"

    def test_by_federate(self, clinic, file):
        asked = ("federate", file, "--queries", "new.csv", "--trusted", "trusted.keys")
        done = clinic(*asked, "-o", "out.csv")
        assert "unverified claim" in done.out
        assert "PRIVATE" not in done.out
        said = json.loads(clinic(*asked, "-o", "out.csv", "--json").out)
        assert (said["private"], said["verified"]) == (False, False)
        assert said["status"] == "unverified claim"

    def test_by_audit(self, clinic, file):
        rows = ("--members", "data.csv", "--outside", "new.csv", "--label", "y")
        done = clinic("audit", file, *rows, "--trusted", "trusted.keys")
        assert "unverified claim" in done.out
        assert "PRIVATE" not in done.out
        assert "unverified claim" in clinic("audit", file, *rows, "--json").out

    def test_by_predict(self, clinic, file):
        done = clinic("predict", file, "new.csv", "-o", "out.csv", "--json")
        said = json.loads(done.out)
        assert (said["private"], said["status"]) == (False, "unverified claim")
        assert "PRIVATE" not in clinic("predict", file, "new.csv", "-o", "out.csv").out

    def test_by_verify(self, clinic, file):
        done = clinic("keys", "verify", file, "--trusted", "trusted.keys")
        assert done.code == 7
        assert "PRIVATE" not in done.out

    def test_by_python(self, clinic, file):
        trusted = TrustedKeys.load(clinic.folder / "trusted.keys")
        certificate = permea.load(clinic.folder / file, trusted=trusted).certificate_
        assert certificate.status == "unverified claim"
        assert "PRIVATE" not in str(certificate)


class TestTables:
    """A fabricated table is signed together with its certificate."""

    WORDS = ("fabricate", "data.csv", "--label", "y", "--id", "id", *PRIVATE)

    def test_a_signed_table_is_verified_until_a_bit_changes(self, clinic):
        done = clinic(*self.WORDS, "--sign", "clinic.key", "-o", "made.csv")
        assert done.code == 0, done.err
        check = ("keys", "verify", "made.csv", "--trusted", "trusted.keys", "--json")
        good = clinic(*check)
        assert good.code == 0, good.err
        assert json.loads(good.out)["signer"] == "clinic"
        assert clinic("keys", "verify", "made.csv").code == 7
        paper = clinic.folder / "made.csv.certificate.json"
        for path, old, new in (
            (paper, '"epsilon": 8.0', '"epsilon": 0.1'),
            (clinic.folder / "made.csv", "p0001", "p9999"),
        ):
            text = path.read_text()
            assert old in text
            path.write_text(text.replace(old, new))
            bad = clinic(*check)
            assert bad.code == 7
            assert json.loads(bad.out)["status"] == "unverified claim"
            path.write_text(text)
        assert clinic(*check).code == 0

    def test_a_signature_of_a_model_is_none_of_a_table(self, clinic):
        assert clinic(*self.WORDS, "--sign", "clinic.key", "-o", "made.csv").code == 0
        place = clinic.folder / "made.csv.signature.json"
        place.write_text('{"schema": "permea table signature 1"}')
        done = clinic("keys", "verify", "made.csv", "--trusted", "trusted.keys")
        assert done.code == 3
        assert "signature" in done.err

    def test_a_stream_cannot_be_signed(self, clinic):
        assert clinic(*self.WORDS, "--sign", "clinic.key", "-o", "-").code == 2

"""Signatures: who may speak for whom, and files that do not say what they should."""

import base64
import json
import os
import pickle
import stat

import pytest

from permea.privacy import PublicKey, SigningError, SigningKey, TrustedKeys
from permea.privacy.signing import Signature, canonical

MESSAGE = b"what was promised"


@pytest.fixture(scope="module")
def key():
    return SigningKey.generate("clinic")


@pytest.fixture(scope="module")
def trusted(key):
    return TrustedKeys([SigningKey.generate("other").public, key.public])


def test_the_name_comes_from_the_reader_and_not_from_the_signer(key):
    renamed = TrustedKeys([PublicKey("vienna", key.public.raw)])
    assert renamed.signer(MESSAGE, key.sign(MESSAGE)) == "vienna"


def test_one_changed_bit_anywhere_is_noticed(key, trusted):
    made = key.sign(MESSAGE, purpose="certificate")
    assert trusted.signer(MESSAGE, made, purpose="certificate") == "clinic"
    for place in range(len(made.signature)):
        bent = bytearray(made.signature)
        bent[place] ^= 1
        wrong = Signature(made.key, bytes(bent))
        assert trusted.signer(MESSAGE, wrong, purpose="certificate") is None
    assert trusted.signer(MESSAGE + b" ", made, purpose="certificate") is None


def test_a_signature_serves_one_purpose(key, trusted):
    made = key.sign(MESSAGE, purpose="certificate")
    assert trusted.signer(MESSAGE, made, purpose="agreement") is None
    assert trusted.signer(MESSAGE, made) is None
    with pytest.raises(SigningError, match="purpose"):
        key.sign(MESSAGE, purpose="a v1\npermea b")  # would let one purpose look like another


def test_a_stranger_and_a_borrowed_key_are_nobody(key, trusted):
    stranger = SigningKey.generate("clinic")
    assert trusted.signer(MESSAGE, stranger.sign(MESSAGE)) is None
    posing = Signature(key.public.raw, stranger.sign(MESSAGE).signature)
    assert trusted.signer(MESSAGE, posing) is None
    assert TrustedKeys().signer(MESSAGE, key.sign(MESSAGE)) is None


def test_a_key_travels_through_its_file_which_is_for_its_owner_alone(key, tmp_path):
    path = tmp_path / "clinic.key"
    before = os.umask(0)
    try:
        key.save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = SigningKey.load(path)
    assert again.public == key.public
    assert again.sign(MESSAGE) == key.sign(MESSAGE)
    with pytest.raises(SigningError, match="exists"):
        SigningKey.generate("new").save(path)
    assert SigningKey.load(path).public == key.public


def test_a_planted_link_is_not_followed(key, tmp_path):
    (tmp_path / "clinic.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SigningError):
        key.save(tmp_path / "clinic.key")
    assert not (tmp_path / "elsewhere").exists()


def test_a_passphrase_is_needed_where_there_is_one(key, tmp_path):
    path = tmp_path / "locked.key"
    key.save(path, passphrase="correct horse")
    assert SigningKey.needs_passphrase(path)
    assert SigningKey.load(path, passphrase="correct horse").public == key.public
    for phrase in (None, "wrong"):
        with pytest.raises(SigningError, match="passphrase"):
            SigningKey.load(path, passphrase=phrase)


def test_a_key_that_others_can_read_is_pointed_out(key, tmp_path):
    path = tmp_path / "open.key"
    key.save(path)
    path.chmod(0o644)
    with pytest.warns(UserWarning, match="chmod 600"):
        SigningKey.load(path)


def test_the_private_key_shows_nowhere(key):
    secret = key._private.private_bytes_raw()
    for text in (repr(key), str(key), str(key.public), key.public.fingerprint):
        assert secret.hex() not in text
        assert base64.b64encode(secret).decode() not in text
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(key)


def test_trusted_keys_from_a_file(key, tmp_path):
    path = tmp_path / "trusted.keys"
    other = SigningKey.generate("other").public
    path.write_text(f"# people we know\n\n{key.public}\n  {other.name}   {str(other).split()[1]}\n")
    found = TrustedKeys.load(path)
    assert [one.name for one in found] == ["clinic", "other"]
    path.write_text("".join(f"{one}\n" for one in found))
    assert list(TrustedKeys.load(path)) == list(found)


# With such a public key, signatures exist that fit every message.
SMALL_ORDER = {
    "one": 1,
    "one, spelt differently": 2**255 - 18,
    "two": 2**255 - 20,
    "four": 0,
    "eight": 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
}


def point(y):
    return base64.b64encode(y.to_bytes(32, "little")).decode()


def bad_lines():
    line = str(SigningKey.generate("clinic").public)
    name, text = line.split()
    return {
        "no key": "clinic",
        "a third word": f"{line} admin",
        "short": f"{name} {base64.b64encode(bytes(31)).decode()}",
        "long": f"{name} {base64.b64encode(bytes(33)).decode()}",
        "no padding": f"{name} {text.rstrip('=')}",
        "hexadecimal": f"{name} {'00' * 32}",
        "empty name": f' "" {text}',
        "escape in the name": f"cli\x1b[31mnic {text}",
        "bidirectional name": f"cli\u202enic {text}",
        "another alphabet": f"сlinic {text}",  # a Cyrillic first letter
        **{f"order {order}": f"{name} {point(y)}" for order, y in SMALL_ORDER.items()},
        "a name twice": f"{line}\n{SigningKey.generate('clinic').public}",
        "a key twice": f"{line}\nother {text}",
    }


@pytest.mark.parametrize("case", sorted(bad_lines()))
def test_a_file_of_trusted_keys_is_read_strictly(case, tmp_path):
    path = tmp_path / "trusted.keys"
    path.write_text(bad_lines()[case] + "\n", encoding="utf-8")
    with pytest.raises(SigningError, match="line"):
        TrustedKeys.load(path)


@pytest.mark.parametrize("load", [SigningKey.load, TrustedKeys.load])
@pytest.mark.parametrize("case", ["missing", "folder", "pipe", "large", "binary", "json"])
def test_files_that_hold_something_else(case, load, tmp_path):
    path = tmp_path / "file"
    if case == "folder":
        path.mkdir()
    elif case == "pipe":
        os.mkfifo(path)  # must not wait for a writer
    elif case == "large":
        path.write_bytes(b"#" * (2 << 20))
    elif case == "binary":
        path.write_bytes(b"\xff\xfe\x00")
    elif case == "json":
        path.write_text(json.dumps({"schema": "something else", "name": "a", "key": "b"}))
    if case != "missing" and path.is_file():
        path.chmod(0o600)
    with pytest.raises(SigningError):
        load(path)


def test_a_signing_key_file_with_another_kind_of_key(tmp_path):
    from cryptography.hazmat.primitives import serialization as serial
    from cryptography.hazmat.primitives.asymmetric import ec

    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serial.Encoding.PEM, serial.PrivateFormat.PKCS8, serial.NoEncryption()
    )
    path = tmp_path / "ec.key"
    path.write_text(
        json.dumps({"schema": "permea signing key 1", "name": "a", "key": pem.decode()})
    )
    path.chmod(0o600)
    with pytest.raises(SigningError, match="Ed25519"):
        SigningKey.load(path)


def test_a_signature_travels_as_text(key, trusted):
    made = key.sign(MESSAGE)
    again = Signature.from_dict(json.loads(json.dumps(made.to_dict())))
    assert trusted.signer(MESSAGE, again) == "clinic"
    for wrong in (None, [], {}, {**made.to_dict(), "x": 1}, {**made.to_dict(), "key": 3},
                  {**made.to_dict(), "signature": "AA=="}):  # fmt: skip
        with pytest.raises(SigningError):
            Signature.from_dict(wrong)


def test_canonical_text_does_not_depend_on_order_and_refuses_what_is_ambiguous():
    assert canonical({"a": 1, "b": {"d": 2, "c": [3.5, None, True]}}) == canonical(
        {"b": {"c": [3.5, None, True], "d": 2}, "a": 1}
    )
    assert canonical({"a": 1}) != canonical({"a": 1.0})
    for wrong in ({"a": float("nan")}, {"a": float("inf")}, {"a": b"raw"}, {1: "a", "1": "b"},
                  {"a": "\ud800"}, {1: "a"}):  # fmt: skip
        with pytest.raises(SigningError):
            canonical(wrong)

"""Decoders of bytes from another machine: a value, or an error that says what is wrong."""

import hashlib
import io
import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from federation_world import blobs, private_party
from hypothesis import given, settings
from hypothesis import strategies as st
from test_moments_federated import KEY, TRUSTED, parties_of, rows

from permea.federation import Agreement, AgreementError, MomentFederation, MomentParty
from permea.federation.encryption import DamagedMessageError, EncryptionError, PublicKey
from permea.federation.encryption.protocol import EncryptedQuery, Terms, read_scheme
from permea.federation.encryption.scheme import pack, unpack
from permea.federation.encryption.secure_sum import SecureSum
from permea.federation.errors import FederationError, InvalidReplyError
from permea.federation.flower.moments import moment_replies
from permea.federation.flower.replies import UNPACK, party_replies, read_reply, reply_values
from permea.federation.moment_rounds import LocalMoments
from permea.federation.transport import Failure
from permea.federation.wire import pack_array, unpack_array

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=9,
)
RECORDS = st.dictionaries(
    st.sampled_from(
        ["text", "distances", "fingerprint", "ciphertext", "model", "failure", "final"]
    ),
    st.binary(max_size=60) | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=40),
)
X, Y = blobs()
PARTY = private_party("a", X, Y)
LONG = settings(max_examples=40, deadline=None)


def header(shape, descr="<f8", version=1):
    buffer = io.BytesIO()
    values = {"descr": descr, "fortran_order": False, "shape": shape}
    write = {1: np.lib.format.write_array_header_1_0, 2: np.lib.format.write_array_header_2_0}
    write[version](buffer, values)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        header((10**13,)), header((2**62, 2**62)), header((3,)), header((1,), "|O"),
        header((1,), "<U5"), header((2,) * 5), header((1,), version=2), b"", None, "text",
        b"PK\x03\x04 broken", pack_array(np.ones(3)) + b"x",
    ],
)  # fmt: skip
def test_arrays_that_announce_what_is_not_there_are_refused(data):
    with pytest.raises(InvalidReplyError):
        unpack_array(data)


@given(st.binary(max_size=300), st.integers(0, 200), st.binary(max_size=8))
def test_arrays_from_any_bytes(junk, place, splice):
    honest = pack_array(np.arange(6.0).reshape(2, 3))
    for data in (junk, honest[:place] + splice + honest[place + len(splice) :]):
        try:
            assert unpack_array(data).nbytes <= len(data)
        except InvalidReplyError:
            continue


@LONG
@given(st.sampled_from(sorted(UNPACK)), RECORDS)
def test_replies_of_a_node_never_raise(kind, record):
    outcome = read_reply(UNPACK[kind], "a", record)
    assert isinstance(outcome, Failure | bytes) or kind == "distances"


@LONG
@given(JSON)
def test_introductions_from_any_json(values):
    text = json.dumps({"schema": values, "certificate": values})
    assert isinstance(read_reply(UNPACK["introduce"], "a", {"text": text}), Failure)


@pytest.mark.parametrize(
    "text",
    ["[" * 50_000, '{"schema": {"n_features": 1e999, "classes": [0, 1], "feature_names": null, '
     '"domain": null}, "certificate": null}', '{"a": 1, "a": 2}', "NaN", "x" * (1 << 25)],
    ids=["nested", "1e999", "twice", "nan", "long"],
)  # fmt: skip
def test_introductions_that_broke_an_aggregator(text):
    assert isinstance(read_reply(UNPACK["introduce"], "a", {"text": text}), Failure)


@LONG
@given(st.binary(max_size=400), st.sampled_from(["ciphertext", "summand", "public key"]))
def test_containers_from_any_bytes(junk, kind):
    for message in (junk, pack(kind, {"a": 1}, [junk])[:-1], pack("other", {}, [junk])):
        with pytest.raises(EncryptionError):
            unpack(message, kind)
    assert unpack(pack(kind, {"a": 1}, [junk]), kind)[1] == [junk]


@LONG
@given(JSON)
def test_headers_of_containers_from_any_json(values):
    text = json.dumps(values).encode()
    body = b"PERMEA-ENC-1\n" + len(text).to_bytes(4, "big") + text
    with pytest.raises(EncryptionError):
        unpack(body + hashlib.sha256(body).digest(), "note")


@LONG
@given(JSON)
def test_terms_schemes_and_agreements_from_any_json(values):
    text = json.dumps(values)
    for read in (read_scheme, Terms.from_json):
        with pytest.raises((EncryptionError, FederationError, ValueError, TypeError, KeyError)):
            read(text)
    with pytest.raises(AgreementError):
        Agreement.from_json(text)


@pytest.mark.parametrize("field", ["n_parties", "n_classes", "bits"])
def test_public_parameters_of_absurd_size_are_refused_at_once(field):
    values = {"scheme": "bfv", "scale": [0, 1], "n_parties": 2, "n_classes": 2, "bits": 6}
    with pytest.raises(ValueError, match=field):
        read_scheme(json.dumps({**values, "circuit": "grid", field: 10**12}))


@LONG
@given(
    st.dictionaries(
        st.sampled_from(
            ["queries", "client", "scheme", "public_key", "classes", "query_id", "party"]
        ),
        st.binary(max_size=30) | st.text(max_size=30) | st.integers(),
    )
)
def test_questions_to_a_party_from_any_record(record):
    replies = party_replies(PARTY)
    for kind in ("distances", "encrypted", "unknown"):
        assert "failure" in reply_values(lambda: replies, kind, record)
    with pytest.raises((KeyError, ValueError, TypeError, FederationError)):
        EncryptedQuery.from_record(record)


@LONG
@given(
    st.dictionaries(
        st.sampled_from(["stage", "round", "shares", "agreement", "arrays", "array0"]),
        st.sampled_from(["mean", "moments", "scatter", "losses"])
        | st.integers(-3, 20) | st.binary(max_size=40),
    )
)  # fmt: skip
def test_questions_about_rows_from_any_record(record):
    party = parties_of(*rows(), kind=MomentParty)[0]
    replies = moment_replies(party, TRUSTED)
    assert "failure" in reply_values(lambda: replies, "moments", record)
    assert not party._ledger.events


def test_the_sender_of_a_bad_summand_is_named_and_left_out():
    pytest.importorskip("seal")
    honest = parties_of(*rows(), terms={"least_parties": 8})

    class Damaged(LocalMoments):
        def ask(self, question, names, timeout, encryption):
            found = super().ask(question, names, timeout, encryption)
            if question.stage != "mean":
                return found
            header, (part, *rest) = unpack(found["p1"].values, "summand")
            damaged = pack("summand", header, [part[:113] + b"\xff" * (len(part) - 113), *rest])
            return {
                **found,
                "p0": replace(found["p0"], values=b"junk"),
                "p1": replace(found["p1"], values=damaged),
            }

    federation = MomentFederation(Damaged(honest))
    with pytest.warns(UserWarning, match="p0: invalid reply"):
        model = federation.fit()
    assert set(federation.missing) == {"p0", "p1"}
    assert model.moments_.size == sum(len(party._X) for party in honest[2:])


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_summands_with_any_body(data):
    pytest.importorskip("seal")
    scheme, public, honest = _sum()
    header, parts = unpack(honest, "summand")
    place = data.draw(st.integers(0, 400))
    junk = data.draw(st.binary(min_size=1, max_size=40))
    part = parts[0][:place] + junk + parts[0][place + len(junk) :]
    try:
        scheme.check_summand(public, pack("summand", header, [part]), 0)
    except DamagedMessageError:
        return
    scheme.aggregate(public, [pack("summand", header, [part])])  # what is accepted can be added


@cache
def _sum():
    scheme = SecureSum(n_parties=2, n_values=3)
    _, public = scheme.keygen()
    return scheme, public, scheme.encrypt(public, np.arange(3), 0)


def test_keys_from_any_bytes():
    for junk in (b"", b"x" * 100, pack("secret key", {"parameters": "a", "key": "b"}, [])):
        with pytest.raises(EncryptionError):
            PublicKey.from_bytes(junk)
    assert KEY.public.name == "committee"

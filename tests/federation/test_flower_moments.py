"""Training messages: the same rounds as in one process, and what parties and readers refuse."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_moments_federated import KEY, TRUSTED, rows, wanted

pytest.importorskip("flwr")

from permea.cli.app import run
from permea.federation import Agreement, MomentFederation, MomentParty, RefusedError, SchemaError
from permea.federation.errors import FederationError
from permea.federation.flower.moments import FlowerMoments, moment_replies, reader_replies
from permea.federation.flower.replies import read_reply, reply_values
from permea.federation.messages import DropOutError
from permea.federation.moment_rounds import Total
from permea.federation.service.config import ConfigError, MomentFiles
from permea.federation.service.training import Wanted, moment_party, read_agreement
from permea.federation.sum_reader import SumReader
from permea.federation.transport import Failure
from permea.privacy import Ledger
from permea.privacy.signing import SigningKey, TrustedKeys

READER = SigningKey.generate("reader")
READERS = TrustedKeys([READER.public])


class Wire:
    """Carries records to the replies of nodes in this process, as a `FlowerChannel` does."""

    def __init__(self, nodes):
        self.nodes, self.replies, self.spoil = nodes, [], lambda name, kind, record: record

    def send(self, kind, records, timeout):
        found = {}
        for name, record in records.items():
            values = reply_values(lambda name=name: self.nodes[name], kind, record)
            self.replies.append((name, kind, values))
            found[name] = read_reply(None, name, self.spoil(name, kind, values))
        return found


def network(n=4, estimator=wanted, readers=READERS, signer=READER, **terms):
    """Parties behind a wire, and their agreement; noise in shares needs a reader."""
    X, y = rows()
    names = [f"p{i}" for i in range(n)]
    agreed = Agreement.of(estimator(), X.shape[1], parties=names, **terms).signed(by=KEY)
    parties = [
        MomentParty(
            name, estimator(random_state=i), X[i::n], y[i::n], agreement=agreed,
            trusted=TRUSTED, ledger=Ledger(),
        )
        for i, name in enumerate(names)
    ]  # fmt: skip
    wire = Wire({party.name: moment_replies(party, readers) for party in parties})
    if agreed.noise == "shared":
        wire.nodes["reader"] = reader_replies(SumReader(agreed, TRUSTED, signer))
    return wire, parties, agreed


def learn(wire, agreed, estimator=wanted, **options):
    return MomentFederation(FlowerMoments(wire, agreed, estimator()), **options)


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_rounds_over_messages_are_those_of_one_process(noise):
    if noise == "shared":
        pytest.importorskip("seal")
    wire, parties, agreed = network(noise=noise)
    model = learn(wire, agreed).fit()
    _, same, _ = network(noise=noise)
    expected = MomentFederation(same).fit()
    assert np.array_equal(model.moments_.second, expected.moments_.second)
    assert np.array_equal(model.mean_, expected.mean_)
    assert "seeded" in str(model.certificate_)  # parties say so; the certificate does not hide it
    assert [len(party._ledger.events) for party in parties] == [1] * 4
    kinds = {kind for name, kind, _ in wire.replies if name != "reader"}
    assert kinds == {"moments"}


def test_the_server_gets_ciphertexts_and_the_reader_gets_no_message():
    pytest.importorskip("seal")
    wire, parties, agreed = network()
    federation = learn(wire, agreed)
    federation.fit()
    sent = [values["values"] for name, kind, values in wire.replies if kind == "moments"]
    own = [m.values.tobytes() for p in parties for m in p._rounds.current.sent.values()]
    assert len(sent) == len(own) == 8
    assert not any(plain[:32] in cipher for plain in own for cipher in sent)
    seen = federation._channel.seen
    assert len(seen["reader"]) == 2
    assert all("total of 4 parties" in line for line in seen["reader"])


def test_a_key_that_the_reader_did_not_sign_reads_nothing():
    """A server that makes keys of its own is refused by every party, before a charge."""
    pytest.importorskip("seal")
    wire, parties, agreed = network(signer=SigningKey.generate("server"))
    with pytest.raises(DropOutError, match="not signed by the reader"):
        learn(wire, agreed).fit()
    wire, parties, agreed = network(readers=None)
    with pytest.raises(DropOutError, match="for a reader that it knows"):
        learn(wire, agreed).fit()
    assert all(not party._ledger.events for party in parties)


def test_the_reader_opens_one_total_for_each_stage():
    pytest.importorskip("seal")
    _, _, agreed = network(least_parties=3)
    reader = SumReader(agreed, TRUSTED, READER)
    size = agreed.n_features + 1
    public, _ = reader.public_key("r", "mean", size)
    from permea.federation.encryption.secure_sum import SecureSum

    scheme = SecureSum(n_parties=4, n_values=size)
    parts = [scheme.encrypt(public, np.full(size, 10**i), i) for i in range(4)]
    names = agreed.parties
    with pytest.raises(RefusedError, match="at least 3 parties"):
        reader.open("r", "mean", scheme.aggregate(public, parts[:1]), Total(None, names[:1], 1))
    with pytest.raises(RefusedError, match="does not know"):
        reader.open("r", "mean", scheme.aggregate(public, parts), Total(None, ("x",), 1))
    first = reader.open("r", "mean", scheme.aggregate(public, parts), Total(None, names, 9))
    again = reader.open("r", "mean", scheme.aggregate(public, parts[:3]), Total(None, names[:3], 7))
    assert again is first  # the difference of two totals would be one party's message
    assert first.values[0] == 1111
    assert reader.public_key("r", "mean", size)[0].digest == public.digest
    for stage, length in (("mean", size + 1), ("nothing", 1), ("losses", 1)):
        with pytest.raises(RefusedError):
            reader.public_key("r", stage, length)
    with pytest.raises(RefusedError, match="All 1 rounds"):
        reader.public_key("another round", "mean", size)
    with pytest.raises(RefusedError, match="begin a new round"):
        reader.open("r", "moments", b"", Total(None, names, 1))


@pytest.mark.parametrize(
    "change",
    [
        {"values": b"junk"}, {"values": None}, {"n_units": -1}, {"n_units": True},
        {"agreement": "another"}, {"round": "another"}, {"needed": 7}, {"failure": "no"},
    ],
)  # fmt: skip
def test_a_party_that_replies_with_something_else_is_named_and_left_out(change):
    wire, _, agreed = network(noise="own", least_parties=3)
    wire.spoil = lambda name, kind, record: {**record, **change} if name == "p1" else record
    federation = learn(wire, agreed)
    with pytest.warns(UserWarning, match="p1: "):
        federation.fit()
    assert set(federation.missing) == {"p1"}


def test_another_estimator_than_the_agreed_one_is_refused():
    wire, _, agreed = network(noise="own")
    with pytest.raises(SchemaError, match="differ in privacy"):
        FlowerMoments(wire, agreed, wanted(privacy=replace(wanted().privacy, epsilon=9.0)))
    wire.nodes["p0"] = {}
    assert isinstance(wire.send("moments", {"p0": {}}, None)["p0"], Failure)
    with pytest.raises(FederationError, match="4 parties replied"):
        learn(wire, agreed).fit()


SCHEMA = """
label = "ill"
person = "patient"

[columns.age]
kind = "number"
low = 0
high = 100

[columns.ill]
kind = "category"
values = ["no", "yes"]
"""


def test_a_party_reads_its_table_by_the_schema_of_all(tmp_path):
    (tmp_path / "training.toml").write_text(
        '[model]\nschema = "schema.toml"\n[privacy]\nepsilon = 1\ndelta = 1e-5\nunit = "person"\n'
    )
    (tmp_path / "schema.toml").write_text(SCHEMA)
    age = np.arange(60) % 90
    frame = pd.DataFrame({"patient": np.arange(60) // 2, "age": age,
                          "ill": np.where(age > 45, "yes", "no")})  # fmt: skip
    frame.to_csv(tmp_path / "rows.csv", index=False)
    agreed = Wanted.from_file(tmp_path / "training.toml").agreement(["a"], noise="own")
    (tmp_path / "agreement.json").write_text(agreed.signed(by=KEY).to_json())
    (tmp_path / "owners.keys").write_text(f"{KEY.public}\n")
    party = moment_party(
        "a",
        MomentFiles(
            training=tmp_path / "training.toml", agreement=tmp_path / "agreement.json",
            trusted=tmp_path / "owners.keys", reader=None, data=tmp_path / "rows.csv",
            ledger=str(tmp_path / "ledger.db"), dataset="ward",
        ),
    )  # fmt: skip
    estimator = Wanted.from_file(tmp_path / "training.toml").estimator
    channel = FlowerMoments(Wire({"a": moment_replies(party, None)}), party.agreement, estimator)
    model = MomentFederation(channel).fit()
    assert model.certificate_.privacy.unit == "person"
    assert set(model.predict(frame.drop(columns="ill"))) <= {"no", "yes"}
    assert Ledger(tmp_path / "ledger.db").events[0].dataset == "ward"


def test_owners_write_and_sign_an_agreement_on_the_command_line(tmp_path, capsys):
    training, output = tmp_path / "training.toml", tmp_path / "agreement.json"
    training.write_text(
        '[model]\nlearn = "hulls"\ncolumns = 5\nclasses = ["healthy", "ill"]\n'
        '[privacy]\nepsilon = 1\ndelta = 1e-6\nunit = "record"\nlow = 0\nhigh = 1\n'
    )
    keys = [SigningKey.generate(name) for name in ("owner-a", "owner-b")]
    words = ["federate", "agree", "--training", str(training), "-o", str(output)]
    words += [word for name in "abc" for word in ("--party", name)]
    for key in keys:
        key.save(tmp_path / f"{key.name}.key")
        assert run([*words, "--least", "2", "--sign", str(tmp_path / f"{key.name}.key")]) == 0
    assert "2 of them must reply" in capsys.readouterr().out
    agreed = read_agreement(output)
    assert agreed.signers(TrustedKeys(key.public for key in keys)) == ("owner-a", "owner-b")
    assert (agreed.parties, agreed.noise_shares) == (("a", "b", "c"), 2)
    assert run([*words, "--least", "3"]) == 3  # another agreement does not take its place
    assert "differs in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("columns = 5", ""), "needs columns"),
        (('learn = "hulls"', 'learn = "forest"'), "learn must be one of"),
        (("columns = 5", "columns = 5\nseed = 1"), "takes no"),
        (("columns = 5", "columns = 5\nrandom_state = 1"), "takes no"),
        (("low = 0", "lowest = 0"), "unknown keys"),
        (("[privacy]", "[privcy]"), "no training file"),
    ],
)
def test_mistakes_in_a_training_file_are_named(tmp_path, change, text):
    path = tmp_path / "training.toml"
    whole = (
        '[model]\nlearn = "hulls"\ncolumns = 5\nclasses = [0, 1]\n'
        '[privacy]\nepsilon = 1\ndelta = 1e-6\nunit = "record"\nlow = 0\nhigh = 1\n'
    )
    path.write_text(whole.replace(*change))
    with pytest.raises(ConfigError, match=text):
        Wanted.from_file(path)

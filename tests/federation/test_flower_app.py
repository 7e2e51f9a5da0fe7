"""The Flower apps are the federation: same answers, same faults, over messages."""

import asyncio
import hashlib
import io

import numpy as np
import pytest
from federation_world import SEEDED, blobs, private_party

from permea.federation import Federation, Guard, Party
from permea.federation.encryption.protocol import KeyHolder
from permea.federation.errors import InvalidReplyError, QuorumError
from permea.federation.flower.launch import QUIET, FleetOnly, app_bundle, be_quiet
from permea.federation.service.config import ConfigError, FederationConfig, PartyConfig
from permea.federation.service.deploy import train_model
from permea.federation.transport import Failure, RetryPolicy
from permea.storage import load, save

pytest.importorskip("flwr")
be_quiet()

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict  # noqa: E402
from flwr.proto.node_pb2 import NodeInfo  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from permea.federation.flower.app import (  # noqa: E402
    RECORD,
    FlowerChannel,
    claimed_nodes,
    make_client_app,
    registered_nodes,
)
from permea.federation.flower.replies import unpack_introduction  # noqa: E402
from permea.federation.wire import pack_array, unpack_array  # noqa: E402

X, Y = blobs(n_rows=40)
PARTIES = [private_party(f"p{i}", X[i::3], Y[i::3], seed=i) for i in range(3)]


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    """What Flower tells a server app about itself before it runs."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class LocalGrid:
    """A grid that hands messages to client apps in this process, as Flower's do."""

    def __init__(self, parties, spoil=None):
        self.parties = {100 + index: party for index, party in enumerate(parties)}
        self.offline = set()
        self.spoil = spoil or (lambda name, message, reply: reply)
        self.messages = []

    def get_nodes(self):
        return [
            NodeInfo(node_id=node, name=party.name)
            for node, party in self.parties.items()
            if party.name not in self.offline
        ]

    def get_node_ids(self):
        return [node.node_id for node in self.get_nodes()]

    def push_messages(self, messages):
        self.messages += messages
        self.sent = {str(number): message for number, message in enumerate(messages)}
        for number, message in self.sent.items():
            message.metadata.__dict__["_message_id"] = number
        return list(self.sent)

    def pull_messages(self, numbers):
        for number in numbers:
            message = self.sent[number]
            node = message.metadata.dst_node_id
            app = make_client_app(lambda context: self.parties[context.node_id])
            context = Context(
                run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={}
            )
            reply = app(message, context)
            reply.metadata._src_node_id = node
            reply = self.spoil(self.parties[node].name, message, reply)
            if reply is not None:
                yield reply


def over(grid, **settings):
    return Federation.over(FlowerChannel(grid, [p.name for p in PARTIES]), **settings)


def record(message, values):
    return Message(RecordDict({RECORD: ConfigRecord(values)}), reply_to=message)


@pytest.mark.parametrize("topology", ["queries", "models"])
def test_answers_are_those_of_the_federation_in_one_process(topology):
    grid = LocalGrid(PARTIES)
    federation = over(grid, topology=topology, batch_size=50)
    answer = federation.ask(X)
    expected = Federation(PARTIES, batch_size=50).ask(X)
    assert np.array_equal(answer.distances, expected.distances)
    assert np.array_equal(answer.labels, expected.labels)
    assert federation.summary().parties == Federation(PARTIES).summary().parties
    kinds = {message.metadata.message_type for message in grid.messages}
    travelled = "query.distances" if topology == "queries" else "query.model"
    assert kinds == {"query.introduce", travelled}


def test_encrypted_answers_over_messages_are_those_of_one_process():
    """What comes back from a party is a ciphertext; the aggregator has no key to open it."""
    pytest.importorskip("seal")
    secret = {"encrypted": True, "bits": 6, "batch_size": 100}
    replies = []

    def watch(name, message, reply):
        replies.append((message.metadata.message_type, dict(reply.content[RECORD])))
        return reply

    grid = LocalGrid(PARTIES, watch)
    federation = over(grid, **secret, quorum=2)
    holder = KeyHolder(federation.terms())
    query = holder.query()
    encrypted = federation.ask_encrypted(X, query, holder.keys.evaluation, client="me")
    labels, _ = holder.labels(encrypted.ciphertexts, query)
    assert np.array_equal(labels, Federation(PARTIES, **secret).predict(X))
    assert {kind for kind, _ in replies} == {"query.introduce", "query.encrypted"}
    answers = [said for kind, said in replies if kind == "query.encrypted"]
    assert all(set(said) == {"ciphertext"} for said in answers)

    grid.offline = {"p1"}  # labels of two sets of parties would tell which of them decides
    with pytest.raises(QuorumError, match="answered by p0, p1, p2, this one by p0, p2"):
        federation.ask_encrypted(X, query, holder.keys.evaluation)

    again = over(grid, **secret, quorum=2)
    holder = KeyHolder(again.terms())
    query = holder.query()
    encrypted = again.ask_encrypted(X, query, holder.keys.evaluation)
    assert encrypted.missing == {"p1": "not connected"}
    expected = Federation([PARTIES[0], PARTIES[2]], **secret).predict(X)
    assert np.array_equal(holder.labels(encrypted.ciphertexts, query)[0], expected)


def test_bytes_that_travel_are_counted():
    channel = FlowerChannel(LocalGrid(PARTIES), [p.name for p in PARTIES])
    Federation.over(channel).ask(X)
    assert channel.bytes_sent == pytest.approx(3 * X.nbytes, rel=0.1)
    assert channel.bytes_received > 3 * len(X) * 3 * 8


def test_a_node_is_who_its_key_says_not_who_it_says():
    impostor = private_party("p0", X[::2], Y[::2])
    grid = LocalGrid([*PARTIES[:2], impostor])
    nodes = list(grid.parties)
    grid.get_nodes = lambda: [NodeInfo(node_id=n, name=f"p{i}") for i, n in enumerate(nodes)]
    assert registered_nodes(grid) == {"p0": 100, "p1": 101, "p2": 102}
    assert claimed_nodes(grid, 1.0)["p0"] == 102  # this is why claims are not used in deployments


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda message, reply: None, "no reply in time"),
        (
            lambda message, reply: Message(Error(code=2, reason="x"), reply_to=message),
            "app failed",
        ),
        (
            lambda message, reply: Message(Error(code=3, reason="x"), reply_to=message),
            "went away",
        ),
        (
            lambda message, reply: record(message, {"distances": b"junk", "fingerprint": ""}),
            "invalid message",
        ),
        (lambda message, reply: record(message, {"wrong": 1}), "cannot be read"),
        (
            lambda message, reply: record(
                message, {"distances": pack_array(np.ones((1, 1))), "fingerprint": ""}
            ),
            "another schema",
        ),
    ],
)
def test_faults_over_messages_are_reported_like_any_other(spoil, reason):
    def only_p1(name, message, reply):
        if name != "p1" or not message.metadata.message_type.endswith("distances"):
            return reply
        spoiled = spoil(message, reply)
        if spoiled is not None:
            spoiled.metadata._src_node_id = 101
        return spoiled

    answer = over(LocalGrid(PARTIES, only_p1), quorum=2, retry=RetryPolicy(timeout=1)).ask(X)
    assert answer.who_answered == ("p0", "p2")
    assert reason in answer.missing["p1"]


def test_a_node_that_is_not_connected_is_missing_until_it_comes_back():
    grid = LocalGrid(PARTIES)
    grid.offline = {"p2"}
    federation = over(grid, quorum=2)
    assert federation.ask(X).missing == {"p2": "not connected"}
    grid.offline = set()
    assert federation.ask(X).is_complete


def test_what_a_party_raises_stays_at_the_party():
    class Broken(Party):
        def distances(self, X, classes=None, *, client="unknown"):
            raise RuntimeError(f"secret detail {X[0, 0]}")

    broken = Broken("p2", PARTIES[2]._classifier, consent=SEEDED)
    answer = over(LocalGrid([*PARTIES[:2], broken]), quorum=2).ask(X)
    assert answer.missing == {"p2": "RuntimeError"}


def test_a_refusal_travels_with_its_reason():
    limited = Party("p2", PARTIES[2]._classifier, consent=SEEDED, guard=Guard(max_batch=10))
    answer = over(LocalGrid([*PARTIES[:2], limited]), quorum=2).ask(X)
    assert "at most 10" in answer.missing["p2"]


def test_a_model_that_is_none_is_not_hosted():
    def spoil(name, message, reply):
        if name == "p1" and message.metadata.message_type == "query.model":
            reply = record(message, {"model": b"not a model"})
            reply.metadata._src_node_id = 101
        return reply

    answer = over(LocalGrid(PARTIES, spoil), topology="models", quorum=2).ask(X)
    assert "no model" in answer.missing["p1"]


def test_arrays_travel_without_pickle():
    assert np.array_equal(unpack_array(pack_array(X)), X)
    for data in (b"", b"junk", pack_array(X)[:-5]):
        with pytest.raises(InvalidReplyError):
            unpack_array(data)
    with pytest.raises(ValueError, match="pickle"):
        pack_array(np.array([{}], dtype=object))


@pytest.mark.parametrize("shape", [(10**13,), (10**30,), (-1,), (2**31, 2**31)])
def test_a_header_that_announces_too_much_is_an_invalid_reply(shape):
    """80 TB of numbers in a message of 128 bytes: no MemoryError reaches the aggregator."""
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, header)
    with pytest.raises(InvalidReplyError, match="does not hold the expected array"):
        unpack_array(buffer.getvalue())


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"schema": ' + "[" * 100_000 + "]" * 100_000 + ', "certificate": null}',
     '{"schema": {}}', "[]", "null", "9" * 5000, ""],
)  # fmt: skip
def test_an_introduction_that_cannot_be_read_is_an_invalid_reply(text):
    """Brackets that are nested too deep end in no RecursionError of the aggregator."""
    with pytest.raises(InvalidReplyError, match="introduction cannot be read"):
        unpack_introduction("p1", {"text": text})


class TestDoors:
    """Only `/v1/fleet` is open to strangers; nodes run one program."""

    def status(self, path, client, kind="http"):
        passed, sent = [], []

        async def app(scope, receive, send):
            passed.append(scope["path"])

        async def send(event):
            sent.append(event)

        scope = {"type": kind, "path": path, "client": client}
        asyncio.run(FleetOnly(app)(scope, None, send))
        return 200 if passed else sent[0]["status"]

    @pytest.mark.parametrize(
        ("path", "client", "status"),
        [
            ("/v1/fleet/pull-messages", ("10.0.0.9", 1), 200),
            ("/v1/control/start-run", ("10.0.0.9", 1), 403),
            ("/v1/control/register-node", ("10.0.0.9", 1), 403),
            ("/v1/runtime/pull-messages", ("192.168.1.7", 1), 403),
            ("/v1/fleetx", ("10.0.0.9", 1), 403),
            ("/docs", ("10.0.0.9", 1), 403),
            ("/v1/control/start-run", None, 403),
            ("/v1/control/start-run", ("127.0.0.1", 1), 200),
            ("/v1/control/start-run", ("::1", 1), 200),
        ],
    )
    def test_strangers_reach_the_fleet_alone(self, path, client, status):
        assert self.status(path, client) == status

    def test_websockets_are_closed_to_all(self):
        assert self.status("/v1/fleet/x", ("127.0.0.1", 1), "websocket") == 403

    def test_the_program_that_travels_is_the_same_everywhere(self):
        digests = {hashlib.sha256(app_bundle()).hexdigest() for _ in range(3)}
        assert len(digests) == 1

    def test_telemetry_is_off(self):
        import os

        from flwr.supercore import telemetry

        assert telemetry.FLWR_TELEMETRY_ENABLED == "0"
        assert {name: os.environ[name] for name in QUIET} == QUIET


class TestConfiguration:
    PARTY = """
[party]
name = "a"
model = "a.permea"
[server]
address = "localhost:1"
ca = "ca.crt"
key = "a.key"
"""
    SERVER = """
[federation]
timeout = 30
quorum = 1
[federation.parties]
a = "a.pub"
[server]
port = 1
ca = "ca.crt"
certificate = "s.crt"
key = "s.key"
"""

    def write(self, tmp_path, text):
        path = tmp_path / "x.toml"
        path.write_text(text)
        return path

    def test_paths_are_relative_to_the_file(self, tmp_path):
        party = PartyConfig.from_file(self.write(tmp_path, self.PARTY))
        assert party.model == tmp_path / "a.permea"
        assert party.guard["log"] == tmp_path / "a-audit.jsonl"
        server = FederationConfig.from_file(self.write(tmp_path, self.SERVER))
        assert server.keys == {"a": tmp_path / "a.pub"}
        assert server.settings["retry"].timeout == 30
        assert server.settings["quorum"] == 1

    def test_a_party_trains_with_a_promise_per_person(self, tmp_path):
        X, people = np.random.default_rng(0).random((40, 2)), np.arange(40) // 2
        np.savez(tmp_path / "rows.npz", X=X, y=people % 2, groups=people)
        train = '[train]\ndata = "rows.npz"\nepsilon = 8\nlow = 0\nhigh = 1\nunit = "person"\n'
        train += 'release = "rows"\nrows_per_person = 2\n'
        text = self.PARTY + train + "n_components = 2\nn_layers = 1\n"
        config = PartyConfig.from_file(self.write(tmp_path, text))
        train_model(config)
        assert load(config.model).certificate_.privacy.unit == "person"

    def test_encryption_is_a_matter_of_two_files(self, tmp_path):
        wanted = "quorum = 1\nencrypted = true\nbits = 8\nscale = [0, 2.5]\nn_jobs = 2"
        text = self.SERVER.replace("quorum = 1", wanted)
        settings = FederationConfig.from_file(self.write(tmp_path, text)).settings
        chosen = Federation.over(FlowerChannel(None, ["a"]), **settings)
        assert (chosen.encrypted, chosen.bits, chosen.scale, chosen.n_jobs) == (
            True, 8, (0, 2.5), 2,
        )  # fmt: skip
        save(PARTIES[0]._classifier, tmp_path / "a.permea")
        wanted = 'consent = "seeded"\nencrypted_only = true\nclient_keys = ["00ff"]\n[server]'
        config = PartyConfig.from_file(self.write(tmp_path, self.PARTY.replace("[server]", wanted)))
        assert config.party().encrypted_only
        assert config.party()._client_keys == {"00ff"}

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            (("quorum", "qourum"), "unknown keys"),
            (("[server]", "[sever]"), "unknown tables"),
            (("port = 1", ""), "port is missing"),
            (('a = "a.pub"', ""), "public key file of each party"),
            (("quorum = 1", "quorum ="), "not valid TOML"),
        ],
    )
    def test_mistakes_are_named(self, tmp_path, change, text):
        with pytest.raises(ConfigError, match=text):
            FederationConfig.from_file(self.write(tmp_path, self.SERVER.replace(*change)))

    def test_a_missing_file_is_named(self, tmp_path):
        with pytest.raises(ConfigError, match="does not exist"):
            PartyConfig.from_file(tmp_path / "none.toml")


def test_a_failure_keeps_one_short_line():
    failure = Failure.of(ValueError("a\nb" * 1000))
    assert "\n" not in failure.reason
    assert len(failure.reason) < 330


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_local_simulation_runs_the_same_apps(monkeypatch):
    pytest.importorskip("ray")
    from permea.federation.flower.app import simulate

    monkeypatch.undo()  # the simulation gives itself an identity
    answer, channel = simulate(PARTIES, X, batch_size=60)
    expected = Federation(PARTIES, batch_size=60).ask(X)
    assert np.array_equal(answer.labels, expected.labels)
    assert np.array_equal(answer.distances, expected.distances)
    assert channel.bytes_sent > 3 * X.nbytes
